//! How many calls it takes: none for what is off, and fewer and fewer for what does not end.

use std::time::Duration;

use crate::addresses::lb;
use crate::create::web;
use crate::rig::Rig;

const MINUTE: Duration = Duration::from_secs(60);

fn polls(rig: &Rig) -> usize {
    let calls = rig.calls();
    let polls = calls
        .iter()
        .filter(|it| it.contains("/lbaas/loadbalancers"));
    polls.filter(|it| it.starts_with("GET")).count()
}

#[tokio::test(start_paused = true)]
async fn one_that_never_ends_is_asked_about_less_and_less_often_and_alone() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let id = rig.picture().await.balancers[0].id.to_string();
    rig.sim.set_status(&id, "PENDING_UPDATE");
    rig.cluster
        .apply(&web().annotated(&lb("timeout-client-data"), "1234").row());
    let mut each = Vec::new();
    for _ in 0..6 {
        rig.forget();
        rig.wait(MINUTE).await;
        each.push(polls(&rig));
    }
    assert!(each[0] <= 14, "{each:?}");
    // An audit lists them all once.
    assert!(each[3..].iter().all(|it| *it <= 4), "{each:?}");
    let alone = format!("GET /v2/lbaas/loadbalancers/{id}");
    let calls = rig.calls();
    let lists = calls
        .iter()
        .filter(|it| it.ends_with("/loadbalancers"))
        .count();
    assert!(calls.contains(&alone) && lists <= 1, "{calls:?}");
}

/// The reference asks after 1 s, and then after pauses that grow by a fifth each.
fn polls_of_reference(time: Duration) -> usize {
    let (mut at, mut pause, mut polls) = (Duration::ZERO, Duration::from_secs(1), 0);
    while at < time {
        at += pause;
        pause = pause * 6 / 5;
        polls += 1;
    }
    polls
}

#[tokio::test(start_paused = true)]
async fn a_single_change_of_a_slow_cloud_takes_no_more_polls_than_with_the_reference() {
    for seconds in [2, 5, 10, 30, 60] {
        let time = Duration::from_secs(seconds);
        let mut rig = Rig::new("");
        rig.apply(web()).await;
        rig.sim.settle_in(time);
        rig.forget();
        rig.apply(web().annotated(&lb("timeout-client-data"), "1234"))
            .await;
        rig.wait(time).await;
        rig.settle().await;
        assert_eq!(rig.writes().len(), 1);
        let reference = polls_of_reference(time) + 1;
        assert!(
            polls(&rig) <= reference,
            "{seconds}: {} {reference}",
            polls(&rig)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_asks_for_nothing_that_is_off() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.sim.settle_in(Duration::from_secs(10));
    rig.forget();
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
    let calls = rig.calls();
    let count = |kind: &str| {
        let of_kind = |it: &&String| it.contains(kind) && it.starts_with("GET");
        calls.iter().filter(of_kind).count()
    };
    assert_eq!(count("/security-groups"), 0, "{calls:?}");
    assert!(count("/floatingips") <= 2, "{calls:?}");
    assert!(count("/lbaas/loadbalancers") <= 9, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn without_floating_ips_no_audit_asks_for_them() {
    let mut rig = Rig::new("internal-lb=true");
    rig.apply(web()).await;
    rig.forget();
    rig.wait(Duration::from_secs(200)).await;
    let calls = rig.calls();
    assert!(!calls.is_empty());
    let asked = calls
        .iter()
        .any(|it| it.contains("floatingips") || it.contains("security"));
    assert!(!asked, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn ids_that_are_not_there_and_algorithms_that_the_provider_lacks_are_found_before_a_start() {
    use landfall_openstack::configured::unknown;
    let rig = Rig::new("");
    assert_eq!(unknown(rig.looker(), &rig.settings).await.unwrap(), []);
    let nowhere = crate::subnets::NOWHERE;
    let conf = format!(
        "[LoadBalancer]\nfloating-network-id=nonesuch\nsubnet-id={nowhere}\n\
         lb-provider=ovn\nlb-method=LEAST_CONNECTIONS\n[LoadBalancerClass \"gold\"]\n\
         network-id={nowhere}\nmember-subnet-id={}\n",
        rig.sim.subnet()
    );
    let rig = Rig::configured(rig.sim.again(), &conf);
    let found = unknown(rig.looker(), &rig.settings).await.unwrap();
    let fields: Vec<&str> = found.iter().filter_map(|it| it.field.as_deref()).collect();
    assert_eq!(
        fields,
        [
            "[LoadBalancer] lb-method",
            "[LoadBalancer] floating-network-id",
            "[LoadBalancerClass \"gold\"] network-id",
            "[LoadBalancer] subnet-id",
        ]
    );
}
