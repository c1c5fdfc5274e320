//! Writes that the cloud refuses permanently: what serves stays, and goes on following nodes.

use std::time::Duration;

use http::Method;
use landfall_testkit::openstack::{CallInfo, Fault};
use landfall_testkit::svc;

use crate::create::web;
use crate::listeners::TLS;
use crate::rig::Rig;
use crate::rig::stage::Stage;
use crate::written::{annotate, refusal, remove, short};

/// Long enough for several attempts at what was refused.
const LONG: Duration = Duration::from_secs(8 * 3600);
/// Long enough for the first one.
const SOON: Duration = Duration::from_secs(600);

/// From now on such writes are refused.
fn refuse(rig: &Rig, refused: impl Fn(&CallInfo) -> Option<&'static str> + Send + 'static) {
    rig.sim.on_call(move |call| {
        let why = refused(call).filter(|_| call.is_write())?;
        Some(Fault::status(call.service, 400, why))
    });
}

fn has(call: &CallInfo, text: &str) -> bool {
    String::from_utf8_lossy(&call.body).contains(text)
}

const NO_CERTIFICATE: &str =
    "The PKCS12 bundle is unreadable. Please check the PKCS12 bundle validity.";

#[tokio::test(start_paused = true)]
async fn a_listener_serves_on_when_its_replacement_is_refused() {
    let stage = Stage::new();
    let reference = stage.add_secret();
    let mut rig = Rig::on(stage, "");
    rig.apply(web()).await;
    let before = rig.picture().await;
    refuse(&rig, |call| {
        let makes = call.method == Method::POST && call.path.ends_with("/listeners");
        (makes && has(call, "TERMINATED_HTTPS")).then_some(NO_CERTIFICATE)
    });
    rig.forget();
    annotate(&mut rig, &[(TLS, &reference)]).await;
    let tries = |rig: &Rig| {
        let writes = rig.writes();
        writes
            .iter()
            .filter(|it| *it == "POST /v2/lbaas/listeners")
            .count()
    };
    assert_eq!(tries(&rig), 1, "{:?}", rig.writes());
    let reported = refusal(&rig, "web");
    assert!(
        reported.contains("PKCS12") && reported.contains(&short(TLS)),
        "{reported}"
    );
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    // A node makes no other request of it.
    assert_eq!(tries(&rig), 1);
    rig.wait(LONG).await;
    assert!((3..=16).contains(&tries(&rig)), "{}", tries(&rig));
    let deleted = |line: &String| line.starts_with("DELETE");
    assert!(!rig.writes().iter().any(deleted), "{:?}", rig.writes());
    let after = rig.picture().await;
    assert_eq!(after.listeners, before.listeners);
    assert_eq!(after.pools.len(), 1);
    assert_eq!(after.members_at(80).len(), 3);
    assert_eq!(rig.published("web").len(), 1);
    // A Service that takes it back has what was there.
    rig.forget();
    remove(&mut rig, TLS).await;
    assert_eq!(
        (refusal(&rig, "web"), rig.writes()),
        (String::new(), Vec::new())
    );
    // Once the certificate is one, it is used.
    rig.sim.on_call(|_| None);
    annotate(&mut rig, &[(TLS, &reference)]).await;
    rig.wait(LONG).await;
    let picture = rig.picture().await;
    assert_eq!(picture.listeners.len(), 1, "{:?}", picture.listeners);
    assert_eq!(picture.listener_at(80).protocol, "TERMINATED_HTTPS");
    assert_eq!(picture.members_at(80).len(), 3);
    assert_eq!(refusal(&rig, "web"), "");
}

#[tokio::test(start_paused = true)]
async fn a_listener_goes_only_when_the_cloud_has_taken_another_like_the_next() {
    let stage = Stage::new();
    let reference = stage.add_secret();
    let mut rig = Rig::on(stage, "");
    rig.apply(web()).await;
    let old = rig.picture().await.listeners[0].id.clone();
    rig.forget();
    annotate(&mut rig, &[(TLS, &reference)]).await;
    let sent = rig.sent();
    let body = |at: usize| serde_json::from_slice::<serde_json::Value>(&sent[at].body).unwrap();
    let listeners: Vec<usize> = (0..sent.len())
        .filter(|at| sent[*at].line.contains("/listeners"))
        .collect();
    let lines: Vec<&str> = listeners.iter().map(|at| sent[*at].line.as_str()).collect();
    let [tried, gone, made, done] = listeners[..] else {
        panic!("{lines:?}")
    };
    // It is out of use, at another port, and otherwise the same.
    let (trial, real) = (
        body(tried)["listener"].clone(),
        body(made)["listener"].clone(),
    );
    assert_eq!(trial["admin_state_up"], false);
    assert_ne!(trial["protocol_port"], real["protocol_port"]);
    for key in [
        "protocol",
        "default_tls_container_ref",
        "allowed_cidrs",
        "tags",
    ] {
        assert_eq!(trial[key], real[key]);
    }
    assert_eq!(sent[gone].line, format!("DELETE /v2/lbaas/listeners/{old}"));
    assert!(sent[done].line.starts_with("DELETE"), "{lines:?}");
    assert_eq!(rig.picture().await.listeners.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_tried_is_taken_away_when_nothing_comes_of_it() {
    let stage = Stage::new();
    let reference = stage.add_secret();
    let mut rig = Rig::on(stage, "");
    rig.apply(web()).await;
    let before = rig.picture().await;
    // The controller ends as soon as the trial is there.
    refuse(&rig, |call| {
        let next = call.path.ends_with("/pools") && call.method == Method::POST;
        next.then_some("not now")
    });
    annotate(&mut rig, &[(TLS, &reference)]).await;
    let picture = rig.picture().await;
    assert_eq!(picture.listeners.len(), 2, "{:?}", picture.listeners);
    rig.kill();
    rig.sim.on_call(|_| None);
    rig.cluster.edit("web", |row| {
        row.annotations.remove(&short(TLS));
    });
    rig.restart().await;
    rig.settle().await;
    assert_eq!(rig.picture().await.listeners, before.listeners);
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn members_follow_nodes_although_tags_and_pools_are_refused() {
    for (key, value, kind) in [
        ("load-balancer-tags", "refused", "loadbalancers"),
        ("listener-tags", "refused", "listeners"),
        ("pool-tags", "refused", "pools"),
        ("proxy-protocol", "v2", "pools"),
        ("x-forwarded-for", "true", "listeners"),
        ("timeout-client-data", "1234", "listeners"),
    ] {
        let mut rig = Rig::new("create-monitor=true");
        rig.apply(web()).await;
        let before = rig.picture().await;
        refuse(&rig, move |call| {
            let of_kind = call.path.contains(&format!("/{kind}"));
            let members = call.path.ends_with("/members");
            (of_kind && !members).then_some("Invalid input for field/attribute tags")
        });
        annotate(&mut rig, &[(key, value)]).await;
        let reported = refusal(&rig, "web");
        assert!(reported.contains("Invalid input"), "{key}: {reported}");
        if key.ends_with("-tags") {
            assert!(reported.contains(&short(key)), "{key}: {reported}");
        }
        rig.forget();
        rig.add_node("c", "10.0.0.6");
        rig.cluster.remove_node("a");
        rig.settle().await;
        assert_eq!(
            rig.picture().await.members_at(80),
            ["10.0.0.5:30080", "10.0.0.6:30080"],
            "{key}: {:?}",
            rig.writes()
        );
        let after = rig.picture().await;
        assert_eq!(after.listeners, before.listeners, "{key}");
        // It is tried again from time to time, and had once it is taken.
        rig.sim.on_call(|_| None);
        rig.wait(SOON).await;
        assert_eq!(refusal(&rig, "web"), "", "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_port_that_is_refused_keeps_no_other_from_being_served() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    refuse(&rig, |call| {
        let makes = call.method == Method::POST && call.path.ends_with("/listeners");
        (makes && has(call, "8443")).then_some("no such port")
    });
    let three = || {
        svc("web")
            .named_port("a", 8443)
            .named_port("b", 9000)
            .named_port("c", 80)
            .node_port(30080)
    };
    rig.apply(three()).await;
    let mut ports: Vec<u16> = rig
        .picture()
        .await
        .listeners
        .iter()
        .map(|it| it.protocol_port)
        .collect();
    ports.sort_unstable();
    assert_eq!(ports, [80, 9000]);
    assert!(refusal(&rig, "web").contains("no such port"));
}
