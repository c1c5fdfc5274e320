//! Leaving a broken load balancer, and releasing one that was taken apart by hand.

use std::num::NonZero;
use std::time::Duration;

use http::Method;
use landfall_model::Code;
use landfall_model::status::ConditionType;
use landfall_openstack::objects::{Id, Provisioning};
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::openstack::{Fate, Fault, Service};
use landfall_testkit::svc;
use serde_json::json;

use crate::addresses::{INTERNAL, lb};
use crate::create::web;
use crate::rig::Rig;

/// From one audit to the next, and a little.
const AUDIT: Duration = Duration::from_secs(190);

fn guest(balancer: &Id) -> ServiceBuilder {
    svc("guest")
        .port(8080)
        .node_port(30081)
        .annotated(&lb("load-balancer-id"), balancer.as_str())
}

/// A load balancer that two Services use.
async fn shared() -> (Rig, Id) {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let balancer = rig.picture().await.balancers[0].id.clone();
    rig.apply(guest(&balancer)).await;
    (rig, balancer)
}

/// Octavia gives the load balancer up, and says that it serves all the same.
fn give_up(rig: &Rig, balancer: &Id) {
    rig.sim.set_status(balancer.as_str(), "ERROR");
    rig.sim.edit(balancer.as_str(), |row| {
        row.insert("operating_status".to_owned(), "ONLINE".into());
    });
}

fn reason(rig: &Rig, name: &str) -> Option<Code> {
    let status = rig.cluster.service(name)?.status;
    let unmet = ConditionType::ALL
        .into_iter()
        .filter_map(|kind| status.condition(kind));
    unmet.filter(|it| !it.status).map(|it| it.reason).next()
}

/// The last message about a failure.
fn failure(rig: &Rig) -> String {
    let reported = rig.cluster.messages("SyncLoadBalancerFailed");
    reported.last().cloned().unwrap_or_default()
}

async fn detach(rig: &Rig) -> Id {
    let floating = rig.picture().await.floating_ips[0].id.clone();
    let path = format!("/v2.0/floatingips/{floating}");
    let body = json!({"floatingip": {"port_id": null}});
    rig.sim
        .hand(Service::Network, &Method::PUT, &path, body)
        .unwrap();
    floating
}

#[tokio::test(start_paused = true)]
async fn a_service_that_shares_a_broken_one_leaves_once_it_can_be_changed_again() {
    let (mut rig, balancer) = shared().await;
    give_up(&rig, &balancer);
    rig.delete("guest").await;
    rig.wait(AUDIT).await;
    assert!(rig.cluster.service("guest").is_some());
    assert!(failure(&rig).contains("in ERROR"), "{}", failure(&rig));
    rig.sim.set_status(balancer.as_str(), "ACTIVE");
    rig.wait(AUDIT).await;
    rig.settle().await;
    assert!(rig.cluster.service("guest").is_none());
    let picture = rig.picture().await;
    assert_eq!(picture.listeners.len(), 1);
    let guest = |tag: &String| tag.ends_with("_guest");
    assert!(!picture.balancers[0].tags.iter().any(guest));
    assert_eq!(reason(&rig, "web"), None);
}

#[tokio::test(start_paused = true)]
async fn s04_the_first_takes_nothing_broken_from_those_that_stay() {
    for operating in ["ONLINE", "OFFLINE", "ERROR"] {
        let (mut rig, balancer) = shared().await;
        let floating = rig.picture().await.floating_ips;
        rig.sim.set_status(balancer.as_str(), "ERROR");
        rig.sim.edit(balancer.as_str(), |row| {
            row.insert("operating_status".to_owned(), operating.into());
        });
        rig.forget();
        rig.delete("web").await;
        rig.wait(AUDIT).await;
        rig.settle().await;
        let picture = rig.picture().await;
        assert_eq!(picture.balancers[0].id, balancer, "{operating}");
        assert_eq!(picture.floating_ips, floating, "{operating}");
        assert!(rig.cluster.service("web").is_some());
        assert!(failure(&rig).contains("in ERROR"), "{}", failure(&rig));
        rig.sim.set_status(balancer.as_str(), "ACTIVE");
        rig.wait(AUDIT).await;
        rig.settle().await;
        assert!(rig.cluster.service("web").is_none(), "{operating}");
        assert_eq!(rig.picture().await.listeners.len(), 1);
        rig.delete("guest").await;
        assert!(rig.picture().await.is_empty(), "{operating}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_one_is_deleted_when_all_that_share_it_leave() {
    for order in [["web", "guest"], ["guest", "web"]] {
        let (mut rig, balancer) = shared().await;
        give_up(&rig, &balancer);
        for name in order {
            rig.delete(name).await;
        }
        rig.wait(AUDIT).await;
        rig.settle().await;
        assert!(rig.picture().await.is_empty(), "{:?}", rig.picture().await);
        assert!(rig.cluster.services().is_empty(), "{order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_wants_a_load_balancer_again_is_not_leaving() {
    let (mut rig, balancer) = shared().await;
    give_up(&rig, &balancer);
    rig.edit("guest", |row| row.wants_load_balancer = false)
        .await;
    rig.wait(AUDIT).await;
    rig.edit("guest", |row| row.wants_load_balancer = true)
        .await;
    rig.delete("web").await;
    rig.wait(AUDIT).await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1, "{:?}", rig.writes());
    assert!(rig.cluster.service("web").is_some());
    assert!(failure(&rig).contains("in ERROR"), "{}", failure(&rig));
}

#[tokio::test(start_paused = true)]
async fn a_sharing_service_follows_when_the_load_balancer_is_repaired() {
    let (mut rig, balancer) = shared().await;
    give_up(&rig, &balancer);
    rig.wait(AUDIT).await;
    assert_eq!(reason(&rig, "guest"), Some(Code::LoadBalancerFailed));
    rig.edit("guest", |row| {
        row.ports[0].port = NonZero::new(8081).unwrap();
    })
    .await;
    rig.sim.set_status(balancer.as_str(), "ACTIVE");
    rig.wait(AUDIT).await;
    rig.settle().await;
    let picture = rig.picture().await;
    assert_eq!(
        picture.balancers[0].provisioning_status,
        Provisioning::Active
    );
    assert_eq!(picture.listener_at(8081).protocol_port, 8081);
    assert_eq!(reason(&rig, "guest"), None);
}

#[tokio::test(start_paused = true)]
async fn a_floating_ip_that_was_taken_away_is_given_back_when_none_is_wanted_any_more() {
    for keep in [false, true] {
        let mut rig = Rig::new("");
        let service = || web().annotated(&lb("keep-floatingip"), &keep.to_string());
        rig.apply(service()).await;
        let floating = detach(&rig).await;
        rig.apply(service().annotated(INTERNAL, "true")).await;
        let left = rig.picture().await.floating_ips;
        let left: Vec<&Id> = left.iter().map(|it| &it.id).collect();
        let expected = if keep { vec![&floating] } else { Vec::new() };
        assert_eq!(left, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_to_leave_gives_back_what_the_first_had_lost() {
    let (mut rig, _) = shared().await;
    rig.delete("web").await;
    detach(&rig).await;
    rig.delete("guest").await;
    assert!(rig.picture().await.is_empty(), "{:?}", rig.picture().await);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_is_noticed_before_the_service_is_let_go() {
    let (mut rig, _) = shared().await;
    let mut failed = false;
    rig.sim.on_lock(move |write, _| {
        if write == "pool" && !std::mem::replace(&mut failed, true) {
            Fate::ChildError
        } else {
            Fate::Active
        }
    });
    rig.delete("guest").await;
    assert!(rig.cluster.service("guest").is_none());
    let picture = rig.picture().await;
    assert_eq!(picture.pools.len(), 1, "{:?}", rig.writes());
    assert_eq!(picture.listeners.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_in_error_inside_is_taken_apart_all_the_same() {
    let mut rig = Rig::new("cascade-delete=false\ncreate-monitor=true");
    rig.apply(web()).await;
    let pool = rig.picture().await.pools[0].id.clone();
    rig.sim.set_status(pool.as_str(), "ERROR");
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty(), "{:?}", rig.writes());
    assert!(rig.cluster.services().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_goes_on_to_be_refused_without_being_busy_is_a_failure_and_left_more_and_more_alone() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.sim.on_call(|call| {
        let member = call.is_write() && call.path.ends_with("/members");
        let words = "Pool 1 is immutable and cannot be updated.";
        member.then(|| Fault::status(Some(Service::LoadBalancer), 409, words))
    });
    rig.forget();
    rig.add_node("c", "10.0.0.6");
    rig.wait(Duration::from_secs(3600)).await;
    let writes = rig.writes().len();
    assert!(writes < 200, "{writes} attempts in an hour");
    assert!(failure(&rig).contains("is immutable"), "{}", failure(&rig));
    assert_eq!(reason(&rig, "web"), Some(Code::ProviderFailed));
    rig.sim.heal();
    rig.wait(Duration::from_secs(600)).await;
    assert_eq!(rig.picture().await.members_at(80).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_floating_ip_of_what_is_still_being_deleted_is_waited_for() {
    let mut rig = Rig::new("");
    rig.sim.configure(|settings| {
        settings.settle.delete = Duration::from_secs(60);
    });
    rig.apply(web()).await;
    let before = rig.picture().await;
    rig.sim.set_status(before.balancers[0].id.as_str(), "ERROR");
    rig.sim.edit(before.balancers[0].id.as_str(), |row| {
        row.insert("operating_status".to_owned(), "OFFLINE".into());
    });
    rig.wait(AUDIT).await;
    rig.wait(Duration::from_secs(60)).await;
    rig.settle().await;
    let after = rig.picture().await;
    assert_ne!(after.balancers[0].id, before.balancers[0].id);
    assert_eq!(after.floating_ips.len(), 1, "{:?}", rig.writes());
    assert_eq!(after.floating_ips[0].id, before.floating_ips[0].id);
    let port = &after.balancers[0].vip_port_id;
    assert_eq!(after.floating_ips[0].port_id, *port);
}
