use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_engine::report::ReportError;
use landfall_model::reason::{Code, Reason};
use landfall_model::view::{BfdView, PeerView};
use landfall_speaker::session_states::{SessionState, SessionStates, states};

use crate::status::Server;

fn peer(name: &str, state: &str) -> PeerView {
    PeerView {
        name: name.to_owned(),
        node: "node-a".to_owned(),
        address: "192.0.2.254".to_owned(),
        state: state.to_owned(),
        ..PeerView::default()
    }
}

fn writer(server: &Arc<Server>) -> SessionStates<Server> {
    SessionStates::new(Arc::clone(server), "node-a", "metallb-system", None)
}

/// What was asked, without the number in names.
fn asked(server: &Server) -> Vec<String> {
    let kind = |what: String| what.split([' ', '-']).next().unwrap().to_owned();
    server.take_writes().into_iter().map(kind).collect()
}

fn said(server: &Server) -> BTreeMap<String, SessionState> {
    let objects = server.objects.lock().unwrap();
    let said = objects.values().map(|status| {
        let state: SessionState = serde_json::from_value(status.clone()).unwrap();
        (state.peer.clone(), state)
    });
    said.collect()
}

#[tokio::test]
async fn each_session_has_an_object_that_is_written_once_and_found_after_a_restart() {
    let server = Arc::new(Server::default());
    let mut far = peer("far", "Idle");
    far.vrf = Some("green".to_owned());
    far.problem = Some(Reason::warning(Code::NotAnnounced, "no session: refused"));
    let mut near = peer("near", "Established");
    near.bfd = Some(BfdView {
        state: "Up".to_owned(),
        ..BfdView::default()
    });
    let wanted = states(vec![far, near]);
    let now = Instant::now();
    let mut first = writer(&server);
    first.settle(&wanted, now).await.unwrap();
    first.settle(&wanted, now).await.unwrap();
    writer(&server).settle(&wanted, now).await.unwrap();
    assert_eq!(asked(&server), ["write", "write"]);
    let said = said(&server);
    let (far, near) = (&said["far"], &said["near"]);
    assert_eq!((&*far.bgp_status, &*far.bfd_status), ("Down", "N/A"));
    assert_eq!((&*far.vrf, &*far.problem), ("green", "no session: refused"));
    assert_eq!(
        (&*near.bgp_status, &*near.bfd_status),
        ("Established", "Up")
    );
    assert_eq!((&*near.node, &*near.address), ("node-a", "192.0.2.254"));
}

#[tokio::test]
async fn the_states_between_down_and_established_are_not_written() {
    let server = Arc::new(Server::default());
    let mut writer = writer(&server);
    let now = Instant::now();
    for (second, state) in (0..).zip(["Idle", "Connect", "Active", "OpenSent", "OpenConfirm"]) {
        let now = now + Duration::from_secs(20 * second);
        let wanted = states(vec![peer("tor", state)]);
        writer.settle(&wanted, now).await.unwrap();
    }
    assert_eq!(asked(&server), ["write"]);
}

#[tokio::test]
async fn a_router_that_is_gone_has_no_object_also_after_a_restart() {
    let server = Arc::new(Server::default());
    let both = states(vec![peer("one", "Idle"), peer("two", "Idle")]);
    let (one, none) = (states(vec![peer("one", "Idle")]), BTreeMap::new());
    let now = Instant::now();
    let mut first = writer(&server);
    first.settle(&both, now).await.unwrap();
    first
        .settle(&one, now + Duration::from_secs(10))
        .await
        .unwrap();
    assert_eq!(said(&server).into_keys().collect::<Vec<_>>(), ["one"]);
    writer(&server).settle(&none, now).await.unwrap();
    assert_eq!(asked(&server), ["write", "write", "delete", "delete"]);
}

#[tokio::test]
async fn an_object_that_another_process_wrote_meanwhile_is_deleted_only_once_it_was_read() {
    let server = Arc::new(Server::default());
    let mut writer = writer(&server);
    let (one, none) = (states(vec![peer("one", "Idle")]), BTreeMap::new());
    let now = Instant::now();
    writer.settle(&one, now).await.unwrap();
    server.write_all_meanwhile();
    let later = now + Duration::from_secs(10);
    let error = writer.settle(&none, later).await.unwrap_err();
    assert!(matches!(error, ReportError::Conflict { .. }), "{error}");
    assert_eq!(said(&server).len(), 1);
    writer.settle(&none, later).await.unwrap();
    assert_eq!(said(&server).len(), 0);
}

#[tokio::test]
async fn a_session_that_flaps_for_an_hour_is_written_once_a_minute_and_ends_as_it_is() {
    let server = Arc::new(Server::default());
    let mut writer = writer(&server);
    let now = Instant::now();
    let (up, down) = (
        states(vec![peer("tor", "Established"), peer("calm", "Idle")]),
        states(vec![peer("tor", "Idle"), peer("calm", "Idle")]),
    );
    for second in 0..3_600 {
        let wanted = if second % 7 < 4 { &up } else { &down };
        let now = now + Duration::from_secs(second);
        writer.settle(wanted, now).await.unwrap();
    }
    let count = asked(&server).len();
    assert!((30..=70).contains(&count), "{count}");
    for second in 3_600..=3_660 {
        let now = now + Duration::from_secs(second);
        writer.settle(&up, now).await.unwrap();
    }
    assert_eq!(said(&server)["tor"].bgp_status, "Established");
}

#[tokio::test]
async fn what_could_not_be_written_is_written_later_and_what_a_person_deletes_comes_back() {
    let server = Arc::new(Server::default());
    let mut writer = writer(&server);
    let wanted = states(vec![peer("tor", "Idle")]);
    let now = Instant::now();
    server.set_away(true);
    writer.settle(&wanted, now).await.unwrap_err();
    server.set_away(false);
    writer.settle(&wanted, now).await.unwrap();
    assert_eq!(asked(&server), ["write"]);
    server.objects.lock().unwrap().clear();
    writer
        .settle(&wanted, now + Duration::from_secs(599))
        .await
        .unwrap();
    assert_eq!(asked(&server), [] as [String; 0]);
    writer
        .settle(&wanted, now + Duration::from_secs(600))
        .await
        .unwrap();
    assert_eq!(asked(&server), ["write"]);
}
