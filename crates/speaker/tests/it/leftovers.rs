use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_engine::report::ReportError;
use landfall_metallb::{ServiceBgpStatus, ServiceL2Status};
use landfall_model::ServiceKey;
use landfall_model::view::PeerView;
use landfall_speaker::decide::Announces;
use landfall_speaker::leftovers::Leftovers;
use landfall_speaker::session_states::{SessionStates, states};
use landfall_speaker::status::{Said, Statuses};
use landfall_speaker::task::SpeakerView;
use serde_json::json;
use tokio::sync::watch;

use crate::status::Server;

const NAMESPACE: &str = "metallb-system";

async fn say<S: Said>(server: &Arc<Server>, node: &str) {
    let said = Announces {
        through: BTreeSet::from(["one".to_owned()]),
        took_over: false,
    };
    let wanted = BTreeMap::from([(ServiceKey::new("shop", "web"), said)]);
    let mut writer: Statuses<_, S> = Statuses::new(Arc::clone(server), node, NAMESPACE, None);
    writer.settle(&wanted).await.unwrap();
}

/// Three kinds of objects of each of three nodes.
async fn full() -> Arc<Server> {
    let server = Arc::new(Server::default());
    for node in ["node-a", "node-b", "node-c"] {
        say::<ServiceL2Status>(&server, node).await;
        say::<ServiceBgpStatus>(&server, node).await;
        let peer = PeerView {
            name: "tor".to_owned(),
            node: node.to_owned(),
            ..PeerView::default()
        };
        let mut writer = SessionStates::new(Arc::clone(&server), node, NAMESPACE, None);
        let wanted = states(vec![peer]);
        writer.settle(&wanted, Instant::now()).await.unwrap();
    }
    server.take_writes();
    server
}

fn nodes(server: &Server) -> Vec<String> {
    let objects = server.objects.lock().unwrap();
    let nodes = objects.values();
    let mut nodes: Vec<_> = nodes
        .map(|it| it["node"].as_str().unwrap().to_owned())
        .collect();
    nodes.sort();
    nodes
}

fn set(names: &[&str]) -> BTreeSet<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

fn leftovers(server: &Arc<Server>) -> Leftovers<Server> {
    Leftovers::new(Arc::clone(server), "node-a", NAMESPACE)
}

/// Sweeps while these nodes are there.
async fn sweep(server: &Arc<Server>, names: &[&str]) -> Result<usize, ReportError> {
    let (_seen, views) = watch::channel(view(names, true));
    leftovers(server).sweep(&set(names), &views).await
}

#[tokio::test]
async fn what_nodes_said_that_are_gone_is_deleted_and_nothing_else() {
    let server = full().await;
    let present = ["node-a", "node-c"];
    assert_eq!(sweep(&server, &present).await.unwrap(), 3);
    let a_and_c = ["node-a", "node-a", "node-a", "node-c", "node-c", "node-c"];
    assert_eq!(nodes(&server), a_and_c);
    server.take_writes();
    assert_eq!(sweep(&server, &present).await.unwrap(), 0);
    assert_eq!(server.take_writes(), [] as [String; 0]);
}

#[tokio::test]
async fn objects_that_no_speaker_of_landfall_wrote_are_left_alone() {
    let server = full().await;
    let status = json!({"node": "gone", "serviceName": "web", "serviceNamespace": "shop"});
    for name in ["l2-x7kq2", "bgp-x7kq2", "session-x7kq2"] {
        let mut objects = server.objects.lock().unwrap();
        objects.insert(name.to_owned(), status.clone());
    }
    let present = ["node-a", "node-b", "node-c"];
    assert_eq!(sweep(&server, &present).await.unwrap(), 0);
    // Nor is anything deleted while nodes are not known.
    assert_eq!(sweep(&server, &[]).await.unwrap(), 0);
    assert_eq!(nodes(&server).len(), 12);
}

#[tokio::test]
async fn a_deletion_that_fails_is_made_good_by_the_next() {
    let server = full().await;
    server.set_away(true);
    sweep(&server, &["node-a"]).await.unwrap_err();
    server.set_away(false);
    assert_eq!(sweep(&server, &["node-a"]).await.unwrap(), 6);
}

#[tokio::test]
async fn one_object_that_is_kept_is_no_reason_to_keep_others() {
    let server = full().await;
    for status in server.objects.lock().unwrap().values_mut() {
        if status["node"] == "node-b" {
            status["isKept"] = json!(true);
        }
    }
    sweep(&server, &["node-a"]).await.unwrap_err();
    let a_and_b = ["node-a", "node-a", "node-a", "node-b", "node-b", "node-b"];
    assert_eq!(nodes(&server), a_and_b);
}

#[tokio::test]
async fn what_a_node_writes_that_comes_back_during_a_sweep_stays() {
    let server = full().await;
    server.write_all_meanwhile();
    sweep(&server, &["node-a", "node-c"]).await.unwrap_err();
    let of_b = nodes(&server).into_iter().filter(|it| it == "node-b");
    assert_eq!(
        of_b.count(),
        1,
        "the one that was read before it was written"
    );
}

#[tokio::test]
async fn a_node_that_came_back_meanwhile_keeps_its_objects() {
    let server = full().await;
    let now = SpeakerView {
        members: set(&["node-b"]),
        ..SpeakerView::default()
    };
    let (_seen, views) = watch::channel(Arc::new(now));
    let present = set(&["node-a"]);
    let deleted = leftovers(&server).sweep(&present, &views).await;
    assert_eq!(deleted.unwrap(), 3);
    let a_and_b = ["node-a", "node-a", "node-a", "node-b", "node-b", "node-b"];
    assert_eq!(nodes(&server), a_and_b);
}

fn view(names: &[&str], is_first: bool) -> Arc<SpeakerView> {
    Arc::new(SpeakerView {
        nodes: Arc::new(set(names)),
        is_first,
        ..SpeakerView::default()
    })
}

/// Lets a time pass that is only counted.
async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_speaker_waits_for_a_machine_that_may_come_back_and_then_deletes() {
    let server = full().await;
    let all = ["node-a", "node-b", "node-c"];
    let (seen, views) = watch::channel(view(&all, true));
    let running = tokio::spawn(leftovers(&server).run(views));
    pass(61).await;
    seen.send_replace(view(&all[..2], true));
    pass(30).await;
    seen.send_replace(view(&all, true));
    pass(300).await;
    assert_eq!(nodes(&server).len(), 9, "it came back");
    // Another speaker is the first.
    seen.send_replace(view(&all[..2], false));
    pass(300).await;
    assert_eq!(nodes(&server).len(), 9);
    seen.send_replace(view(&all[..2], true));
    pass(59).await;
    assert_eq!(nodes(&server).len(), 9);
    pass(2).await;
    assert_eq!(
        nodes(&server),
        ["node-a", "node-a", "node-a", "node-b", "node-b", "node-b"]
    );
    drop(seen);
    running.await.unwrap();
}
