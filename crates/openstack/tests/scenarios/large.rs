//! Pools that are too large for one request, on Octavias that can't add to what is there (before
//! 2.11).

use std::collections::BTreeSet;

use landfall_testkit::openstack::Sim;
use serde_json::Value;

use crate::create::web;
use crate::rig::Rig;

const MONITORED: &str = "loadbalancer.openstack.org/enable-health-monitor";

/// About ten members.
const LIMIT: usize = 1_200;

fn small(minor: u16) -> Rig {
    let sim = Sim::new();
    sim.configure(|settings| {
        settings.api_minor = minor;
        settings.body_limit = LIMIT;
    });
    let mut rig = Rig::in_world(sim, "");
    rig.body_limit = Some(LIMIT);
    rig
}

fn more(rig: &mut Rig, nodes: std::ops::Range<u8>) {
    for index in nodes {
        rig.add_node(&format!("n{index}"), &format!("10.0.0.{}", 100 + index));
    }
}

/// The addresses that each batch of members leaves, in the order of the batches.
fn batches(rig: &Rig) -> Vec<BTreeSet<String>> {
    let writes = rig.sim.writes();
    let batches = writes
        .iter()
        .filter(|call| call.method == "PUT" && call.path.ends_with("/members"));
    batches
        .map(|call| {
            let body: Value = serde_json::from_slice(&call.body).unwrap();
            let members = body["members"].as_array().unwrap().iter();
            members
                .map(|it| it["address"].as_str().unwrap().to_owned())
                .collect()
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn before_2_11_a_pool_too_large_for_a_request_is_filled_one_by_one_at_last() {
    let mut rig = small(10);
    more(&mut rig, 0..28);
    rig.apply(web()).await;
    rig.settle().await;
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80).len(), 30);
    let writes = rig.writes();
    assert!(!writes.iter().any(|it| it.contains("additive_only")));
    let sent = batches(&rig);
    assert_eq!(sent.len(), 1, "{writes:?}");
    let single = writes
        .iter()
        .filter(|it| it.starts_with("POST") && it.ends_with("/members"));
    assert_eq!(single.count(), 30 - sent[0].len(), "{writes:?}");
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn before_2_11_a_large_pool_follows_its_nodes_and_keeps_the_members_that_stay() {
    let mut rig = small(10);
    more(&mut rig, 0..28);
    rig.apply(web()).await;
    rig.settle().await;
    rig.forget();
    more(&mut rig, 28..30);
    rig.cluster.remove_node("n3");
    rig.settle().await;
    rig.settle().await;
    let members = rig.picture().await.members_at(80);
    assert_eq!(members.len(), 31);
    assert!(!members.contains(&"10.0.0.103:30080".to_owned()));
    assert_eq!(batches(&rig), Vec::<BTreeSet<String>>::new());
    let writes = rig.writes();
    assert_eq!(writes.len(), 3, "{writes:?}");
    // Of another NodePort all are new, and none of the old ones serves any more.
    rig.forget();
    rig.edit("web", |row| row.ports[0].node_port = 30099.try_into().ok())
        .await;
    rig.settle().await;
    let members = rig.picture().await.members_at(80);
    assert_eq!(members.len(), 31);
    assert!(members.iter().all(|it| it.ends_with(":30099")));
}

#[tokio::test(start_paused = true)]
async fn before_2_11_a_pool_that_grows_too_large_keeps_its_members() {
    let mut rig = small(10);
    rig.apply(web()).await;
    rig.forget();
    more(&mut rig, 0..20);
    rig.settle().await;
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80).len(), 22);
    for batch in batches(&rig) {
        assert!(
            batch.contains("10.0.0.4") && batch.contains("10.0.0.5"),
            "{batch:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn from_2_11_on_the_same_is_a_few_batches() {
    let mut rig = small(11);
    more(&mut rig, 0..28);
    rig.apply(web()).await;
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80).len(), 30);
    let writes = rig.writes();
    assert!(
        !writes
            .iter()
            .any(|it| it.starts_with("POST") && it.ends_with("/members"))
    );
    assert!(batches(&rig).len() <= 5, "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn from_2_11_on_another_node_port_of_a_large_pool_is_a_few_batches() {
    let mut rig = small(27);
    more(&mut rig, 0..60);
    rig.apply(web()).await;
    rig.settle().await;
    rig.forget();
    rig.edit("web", |row| row.ports[0].node_port = 30099.try_into().ok())
        .await;
    rig.settle().await;
    let members = rig.picture().await.members_at(80);
    assert_eq!(members.len(), 62);
    assert!(members.iter().all(|it| it.ends_with(":30099")));
    let writes = rig.writes();
    assert!(writes.len() <= 8, "{writes:?}");
    assert!(!writes[0].contains("additive_only"), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_large_pool_gets_another_monitor_port_by_a_few_batches() {
    for minor in [10, 27] {
        let mut rig = small(minor);
        more(&mut rig, 0..28);
        rig.apply(web().annotated(MONITORED, "true")).await;
        rig.settle().await;
        rig.forget();
        rig.edit("web", |row| {
            row.external_local = true;
            row.health_check_node_port = 31000.try_into().ok();
        })
        .await;
        rig.settle().await;
        let picture = rig.picture().await;
        assert_eq!(picture.members_at(80).len(), 30);
        let pool = picture.pool_at(80).id.to_string();
        let asked = picture.members[&pool].iter();
        let asked = asked.filter(|it| it.monitor_port == Some(31000)).count();
        assert_eq!(asked, 30, "2.{minor}: {:?}", rig.writes());
        assert!(minor < 11 || rig.writes().len() <= 8, "{:?}", rig.writes());
    }
}

#[tokio::test(start_paused = true)]
async fn how_much_a_cloud_takes_at_once_is_learned_from_its_refusal() {
    let sim = Sim::new();
    // Some proxy before Octavia takes less than Octavia does.
    sim.configure(|settings| settings.body_limit = 12_000);
    let mut rig = Rig::in_world(sim, "");
    more(&mut rig, 0..150);
    rig.apply(web()).await;
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80).len(), 152);
    assert_eq!(rig.published("web").len(), 1);
    let reported = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(reported, Vec::<String>::new());
    let creations = rig.writes();
    let creations = creations
        .iter()
        .filter(|it| *it == "POST /v2/lbaas/loadbalancers");
    assert_eq!(creations.count(), 2);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}
