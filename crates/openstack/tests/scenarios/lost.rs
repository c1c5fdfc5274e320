//! Load balancers that fail, are slow, or are gone (rows C).

use std::time::Duration;

use http::Method;
use landfall_model::dialect::openstack::LOAD_BALANCER_ID;
use landfall_model::status::ConditionType;
use landfall_openstack::objects::{Id, Provisioning};
use landfall_testkit::openstack::{Fate, Fault, Service};

use crate::create::web;
use crate::rig::Rig;

const BALANCERS: &str = "/v2/lbaas/loadbalancers";

/// From one audit to the next, and a little.
const AUDIT: Duration = Duration::from_secs(190);

/// The request that made the load balancer arrives once more.
fn repeat_create(rig: &Rig) {
    let calls = rig.sim.calls();
    let create = calls
        .iter()
        .find(|call| call.is_write() && call.path == BALANCERS);
    let body = serde_json::from_slice(&create.unwrap().body).unwrap();
    rig.sim
        .hand(Service::LoadBalancer, &Method::POST, BALANCERS, body)
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn c17_one_that_fails_while_it_is_made_is_recreated() {
    let mut rig = Rig::new("");
    rig.sim.fail_next_create();
    rig.apply(web()).await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(picture.floating_ips.len(), 1);
    let writes = rig.writes();
    assert_eq!(writes.len(), 4, "{writes:?}");
    assert_eq!(writes[0], format!("POST {BALANCERS}"));
    assert!(writes[1].starts_with(&format!("DELETE {BALANCERS}/")));
    assert!(writes[1].ends_with("?cascade=true"));
    assert_eq!(writes[2], format!("POST {BALANCERS}"));
    assert_eq!(writes[3], "POST /v2.0/floatingips");
    let reported = rig.cluster.messages("SyncLoadBalancerFailed").join(" ");
    assert!(reported.contains("ERROR"), "{:?}", rig.cluster.events());
    assert_eq!(
        rig.cluster.events().last().unwrap(),
        "web EnsuredLoadBalancer"
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_while_it_serves_is_failed_over_where_that_is_allowed() {
    let mut rig = Rig::new("");
    rig.sim
        .configure(|settings| settings.failover_allowed = true);
    rig.apply(web()).await;
    let before = rig.picture().await;
    let id = before.balancers[0].id.to_string();
    rig.sim.set_status(&id, "ERROR");
    rig.forget();
    rig.wait(AUDIT).await;
    rig.settle().await;
    let after = rig.picture().await;
    assert_eq!(after.balancers[0].id, before.balancers[0].id);
    assert_eq!(after.balancers[0].provisioning_status, Provisioning::Active);
    assert_eq!(rig.writes(), [format!("PUT {BALANCERS}/{id}/failover")]);
    assert_eq!(
        rig.published("web"),
        [before.floating_ips[0].floating_ip_address.to_string()]
    );
    assert_eq!(rig.cluster.messages("SyncLoadBalancerFailed").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_may_not_be_failed_over_is_recreated_behind_the_same_floating_ip() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let before = rig.picture().await;
    fail(&rig, before.balancers[0].id.as_str(), "ERROR");
    rig.forget();
    rig.wait(AUDIT).await;
    rig.settle().await;
    let after = rig.picture().await;
    assert_eq!(after.balancers.len(), 1, "{:?}", rig.writes());
    assert_ne!(after.balancers[0].id, before.balancers[0].id);
    assert_eq!(after.floating_ips.len(), 1);
    assert_eq!(after.floating_ips[0].id, before.floating_ips[0].id);
    assert_eq!(
        after.floating_ips[0].port_id,
        after.balancers[0].vip_port_id
    );
    assert_eq!(after.members_at(80), ["10.0.0.4:30080", "10.0.0.5:30080"]);
    assert_eq!(
        rig.published("web"),
        [before.floating_ips[0].floating_ip_address.to_string()]
    );
    assert_eq!(
        rig.annotation("web", LOAD_BALANCER_ID),
        Some(after.balancers[0].id.to_string())
    );
}

/// Octavia gives a load balancer up, and says so of its traffic.
pub fn fail(rig: &Rig, id: &str, operating: &str) {
    rig.sim.set_status(id, "ERROR");
    rig.sim.edit(id, |row| {
        row.insert("operating_status".to_owned(), operating.into());
    });
}

#[tokio::test(start_paused = true)]
async fn one_that_may_still_serve_is_kept_and_reported_until_that_is_known_to_be_over() {
    for operating in ["ONLINE", "DEGRADED", "DRAINING", "NO_MONITOR", ""] {
        let mut rig = Rig::new("");
        rig.apply(web()).await;
        let before = rig.picture().await;
        let id = before.balancers[0].id.to_string();
        let published = rig.published("web");
        fail(&rig, &id, operating);
        rig.forget();
        rig.wait(AUDIT * 3).await;
        rig.settle().await;
        let writes = rig.writes();
        assert!(
            writes.iter().all(|line| line.ends_with("/failover")),
            "{operating}: {writes:?}"
        );
        assert_eq!(rig.published("web"), published);
        let service = rig.cluster.service("web").unwrap();
        let condition = service.status.condition(ConditionType::Programmed).unwrap();
        assert!(!condition.status, "{condition:?}");
        let reported = rig.cluster.messages("SyncLoadBalancerFailed").join(" ");
        assert!(reported.contains("is kept"), "{operating}: {reported}");
        fail(&rig, &id, "OFFLINE");
        rig.wait(AUDIT).await;
        rig.settle().await;
        let after = rig.picture().await;
        assert_eq!(after.balancers.len(), 1, "{:?}", rig.writes());
        assert_ne!(after.balancers[0].id, before.balancers[0].id);
        assert_eq!(rig.published("web"), published);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_well_again_after_it_was_kept_goes_on() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let id = rig.picture().await.balancers[0].id.to_string();
    fail(&rig, &id, "ONLINE");
    rig.wait(AUDIT).await;
    rig.settle().await;
    rig.sim.set_status(&id, "ACTIVE");
    rig.wait(AUDIT).await;
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers[0].id.as_str(), id);
    assert_eq!(picture.members_at(80).len(), 3);
    let service = rig.cluster.service("web").unwrap();
    let condition = service.status.condition(ConditionType::Programmed).unwrap();
    assert!(condition.status, "{condition:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failover_that_fails_ends_in_a_new_one() {
    let mut rig = Rig::new("");
    rig.sim
        .configure(|settings| settings.failover_allowed = true);
    rig.apply(web()).await;
    let before = rig.picture().await;
    rig.sim.set_status(before.balancers[0].id.as_str(), "ERROR");
    rig.sim.on_lock(|write, _| match write {
        "failover" => Fate::BalancerError,
        _ => Fate::Active,
    });
    rig.forget();
    rig.wait(AUDIT).await;
    rig.settle().await;
    let after = rig.picture().await;
    assert_eq!(after.balancers.len(), 1, "{:?}", rig.writes());
    assert_eq!(after.balancers[0].provisioning_status, Provisioning::Active);
    assert_ne!(after.balancers[0].id, before.balancers[0].id);
    assert_eq!(after.floating_ips[0].id, before.floating_ips[0].id);
    assert_eq!(after.floating_ips.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn c18_one_that_takes_long_is_waited_for_and_not_made_twice() {
    let mut rig = Rig::new("");
    rig.sim.next_fate(Fate::Late(Duration::from_secs(420)));
    rig.apply(web()).await;
    rig.wait(Duration::from_secs(200)).await;
    // The wait survives a restart.
    rig.restart().await;
    rig.wait(Duration::from_secs(200)).await;
    rig.settle().await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(
        rig.writes(),
        ["POST /v2/lbaas/loadbalancers", "POST /v2.0/floatingips"]
    );
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn c18_one_that_never_ends_is_reported() {
    let mut rig = Rig::new("");
    rig.sim.next_fate(Fate::Stuck);
    rig.apply(web()).await;
    rig.wait(Duration::from_secs(300)).await;
    let reported = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(reported.len(), 1, "{:?}", rig.cluster.events());
    assert!(reported[0].contains("PENDING_CREATE"), "{reported:?}");
    rig.sim
        .release(rig.picture().await.balancers[0].id.as_str());
    // It is asked about every 30 s by now.
    rig.wait(Duration::from_secs(31)).await;
    rig.settle().await;
    assert_eq!(rig.published("web").len(), 1);
    assert_eq!(rig.writes().len(), 2, "{:?}", rig.writes());
}

#[tokio::test(start_paused = true)]
async fn c20_an_answer_that_was_lost_makes_no_second_one() {
    let mut rig = Rig::new("");
    let mut left = 1;
    rig.sim.on_call(move |call| {
        let create = call.method == Method::POST && call.path == BALANCERS && left > 0;
        left -= i32::from(create);
        create.then_some(Fault::NoAnswerAfter)
    });
    rig.apply(web()).await;
    assert_eq!(rig.picture().await.balancers.len(), 1);
    assert_eq!(
        rig.writes(),
        ["POST /v2/lbaas/loadbalancers", "POST /v2.0/floatingips"]
    );
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn c20_of_two_that_were_made_one_survives() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let first = rig.picture().await.balancers.remove(0);
    // A request of ours that was long under way and taken for lost arrives now.
    repeat_create(&rig);
    rig.cluster.edit("web", |row| {
        row.annotations.remove(LOAD_BALANCER_ID);
        row.status.marks.remove(LOAD_BALANCER_ID);
    });
    rig.restart().await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1, "{:?}", rig.writes());
    assert_eq!(picture.balancers[0].id, first.id);
    assert_eq!(picture.floating_ips[0].port_id, first.vip_port_id);
    assert_eq!(
        rig.annotation("web", LOAD_BALANCER_ID),
        Some(first.id.to_string())
    );
}

#[tokio::test(start_paused = true)]
async fn c20_a_second_one_that_appears_late_goes_at_the_next_audit() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let first = rig.picture().await.balancers.remove(0);
    repeat_create(&rig);
    rig.wait(AUDIT).await;
    rig.settle().await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1, "{:?}", rig.writes());
    assert_eq!(picture.balancers[0].id, first.id);
}

#[tokio::test(start_paused = true)]
async fn c23_without_cascade_it_is_taken_apart() {
    let mut rig = Rig::new("cascade-delete=false\ncreate-monitor=true");
    rig.apply(web()).await;
    let picture = rig.picture().await;
    rig.forget();
    rig.delete("web").await;
    let line = |kind: &str, id: &Id| format!("DELETE /v2/lbaas/{kind}/{id}");
    let mut writes = rig.writes();
    // A busy cloud may say once that the listener is not gone yet.
    writes.dedup();
    assert_eq!(
        writes,
        [
            format!("DELETE /v2.0/floatingips/{}", picture.floating_ips[0].id),
            line("healthmonitors", &picture.monitors[0].id),
            line("pools", &picture.pools[0].id),
            line("listeners", &picture.listeners[0].id),
            line("loadbalancers", &picture.balancers[0].id),
        ]
    );
    assert!(rig.picture().await.is_empty());
    assert!(rig.cluster.service("web").is_none());
}

#[tokio::test(start_paused = true)]
async fn without_cascade_a_listener_that_is_slow_to_go_is_waited_for() {
    let mut rig = Rig::new("cascade-delete=false\ncreate-monitor=true");
    rig.apply(web()).await;
    rig.sim.on_lock(|write, _| match write {
        "listener" => Fate::Late(Duration::from_secs(20)),
        _ => Fate::Active,
    });
    rig.delete("web").await;
    rig.wait(Duration::from_secs(120)).await;
    assert!(rig.picture().await.is_empty());
    assert!(rig.cluster.service("web").is_none());
    let reported = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(reported, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn c24_what_is_in_error_goes_whole_even_without_cascade() {
    let mut rig = Rig::new("cascade-delete=false\ncreate-monitor=true");
    rig.apply(web()).await;
    let picture = rig.picture().await;
    let id = &picture.balancers[0].id;
    rig.sim.set_status(id.as_str(), "ERROR");
    // Long enough that what is known is not taken to be true any more.
    rig.wait(Duration::from_secs(15)).await;
    rig.forget();
    rig.delete("web").await;
    assert_eq!(
        rig.writes(),
        [
            format!("DELETE /v2.0/floatingips/{}", picture.floating_ips[0].id),
            format!("DELETE {BALANCERS}/{id}?cascade=true"),
        ]
    );
    assert!(rig.picture().await.is_empty());
    assert!(rig.cluster.service("web").is_none());
}

#[tokio::test(start_paused = true)]
async fn c25_what_octavia_is_busy_with_is_deleted_afterwards() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let id = rig.picture().await.balancers[0].id.to_string();
    rig.sim.set_status(&id, "PENDING_UPDATE");
    rig.forget();
    rig.cluster.delete("web");
    rig.wait(Duration::from_secs(60)).await;
    assert!(rig.cluster.service("web").unwrap().finalized);
    assert_eq!(rig.picture().await.balancers.len(), 1);
    rig.sim.set_status(&id, "ACTIVE");
    rig.settle().await;
    assert!(rig.picture().await.is_empty());
    assert!(rig.cluster.service("web").is_none());
    let deletions = rig
        .writes()
        .into_iter()
        .filter(|line| line.contains("loadbalancers"));
    assert_eq!(deletions.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn c26_what_a_lost_one_left_goes_with_its_service() {
    let mut rig = Rig::new("manage-security-groups=true");
    rig.apply(web()).await;
    let picture = rig.picture().await;
    assert_eq!(picture.groups.len(), 1);
    rig.sim.delete(picture.balancers[0].id.as_str());
    rig.delete("web").await;
    assert!(rig.cluster.service("web").is_none());
    let after = rig.picture().await;
    assert!(after.is_empty(), "{after:?}");
    let grouped = rig.sim.ports().iter().any(|port| {
        port["security_groups"]
            .as_array()
            .unwrap()
            .iter()
            .any(|id| *id == picture.groups[0].id.as_str())
    });
    assert!(!grouped);
}

#[tokio::test(start_paused = true)]
async fn c26_the_same_after_a_restart() {
    let mut rig = Rig::new("manage-security-groups=true");
    rig.apply(web()).await;
    let picture = rig.picture().await;
    rig.kill();
    rig.sim.delete(picture.balancers[0].id.as_str());
    rig.cluster.delete("web");
    rig.restart().await;
    assert!(rig.cluster.service("web").is_none());
    assert!(rig.picture().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c27_a_lost_one_is_recreated_behind_the_same_floating_ip() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let before = rig.picture().await;
    rig.sim.delete(before.balancers[0].id.as_str());
    rig.wait(AUDIT).await;
    rig.settle().await;
    let after = rig.picture().await;
    assert_eq!(after.balancers.len(), 1);
    assert_eq!(after.members_at(80), ["10.0.0.4:30080", "10.0.0.5:30080"]);
    assert_eq!(after.floating_ips.len(), 1);
    assert_eq!(after.floating_ips[0].id, before.floating_ips[0].id);
    assert_eq!(
        after.floating_ips[0].port_id,
        after.balancers[0].vip_port_id
    );
    assert_eq!(
        rig.published("web"),
        [before.floating_ips[0].floating_ip_address.to_string()]
    );
    assert_eq!(
        rig.annotation("web", LOAD_BALANCER_ID),
        Some(after.balancers[0].id.to_string())
    );
}

#[tokio::test(start_paused = true)]
async fn c27_the_same_after_a_restart() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let before = rig.picture().await;
    rig.kill();
    rig.sim.delete(before.balancers[0].id.as_str());
    rig.restart().await;
    let after = rig.picture().await;
    assert_eq!(after.balancers.len(), 1);
    assert_eq!(after.floating_ips.len(), 1);
    assert_eq!(after.floating_ips[0].id, before.floating_ips[0].id);
    assert_eq!(
        after.floating_ips[0].port_id,
        after.balancers[0].vip_port_id
    );
}

#[tokio::test(start_paused = true)]
async fn c27_one_that_the_user_named_is_not_replaced() {
    let mut rig = Rig::new("");
    rig.apply(web().annotated(LOAD_BALANCER_ID, "11111111-2222-4333-8444-555555555555"))
        .await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    let reported = rig.cluster.messages("SyncLoadBalancerFailed").join(" ");
    assert!(reported.contains(LOAD_BALANCER_ID), "{reported}");
}
