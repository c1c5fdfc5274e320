//! A cloud that is so busy that requests wait in it, and are carried out long after the answer was
//! given up.

use std::time::Duration;

use http::Method;
use landfall_testkit::openstack::{Fate, Fault};

use crate::create::web;
use crate::rig::Rig;

const BALANCERS: &str = "/v2/lbaas/loadbalancers";

/// The first creation of a load balancer gets this.
fn first_create(rig: &Rig, fault: Fault) {
    let mut fault = Some(fault);
    rig.sim.on_call(move |call| {
        let create = call.method == Method::POST && call.path == BALANCERS;
        fault.take_if(|_| create)
    });
}

fn creations(rig: &Rig) -> usize {
    let writes = rig.writes();
    let create = format!("POST {BALANCERS}");
    writes.iter().filter(|it| **it == create).count()
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_in_the_cloud_after_its_answer_was_lost_is_not_repeated() {
    let mut rig = Rig::new("");
    first_create(&rig, Fault::NoAnswerAndLater(Duration::from_secs(40)));
    rig.apply(web()).await;
    rig.wait(Duration::from_secs(200)).await;
    rig.settle().await;
    assert_eq!(creations(&rig), 1, "{:?}", rig.writes());
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(rig.published("web").len(), 1);
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(failed.len(), 1, "{:?}", rig.cluster.events());
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_gives_up_is_an_answer_lost() {
    let mut rig = Rig::new("");
    let mut first = true;
    rig.sim.on_call(move |call| {
        let create = call.method == Method::POST && call.path == BALANCERS && first;
        first &= !create;
        create.then(|| Fault::status(call.service, 504, "The server didn't respond in time."))
    });
    rig.cluster.apply(&web().row());
    rig.start();
    rig.wait(Duration::from_secs(60)).await;
    assert_eq!(creations(&rig), 1, "{:?}", rig.writes());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_arrived_is_repeated_after_a_while() {
    let mut rig = Rig::new("");
    first_create(&rig, Fault::NoAnswerBefore);
    rig.apply(web()).await;
    let waited = rig
        .calls()
        .iter()
        .filter(|it| it.contains(BALANCERS))
        .count();
    assert!(waited < 40, "{waited} looks");
    rig.wait(Duration::from_secs(130)).await;
    rig.settle().await;
    assert_eq!(creations(&rig), 2, "{:?}", rig.writes());
    assert_eq!(rig.picture().await.balancers.len(), 1);
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_deleted_meanwhile_leaves_nothing() {
    let mut rig = Rig::new("");
    first_create(&rig, Fault::NoAnswerAndLater(Duration::from_secs(60)));
    rig.cluster.apply(&web().row());
    rig.start();
    rig.wait(Duration::from_secs(10)).await;
    rig.cluster.delete("web");
    rig.wait(Duration::from_secs(180)).await;
    rig.settle().await;
    assert!(rig.picture().await.is_empty(), "{:?}", rig.writes());
    assert!(rig.cluster.service("web").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_second_one_goes_by_one_request_as_soon_as_octavia_is_done_with_it() {
    let mut rig = Rig::new("");
    // Longer than is waited: the second request is sent, and the first one is carried out after it.
    first_create(&rig, Fault::NoAnswerAndLater(Duration::from_secs(140)));
    rig.cluster.apply(&web().row());
    rig.start();
    rig.wait(Duration::from_secs(130)).await;
    rig.sim.next_fate(Fate::Late(Duration::from_secs(50)));
    rig.wait(Duration::from_secs(600)).await;
    rig.settle().await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1, "{:?}", rig.writes());
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(
        picture.floating_ips[0].port_id,
        picture.balancers[0].vip_port_id
    );
    let deletions = rig
        .sim
        .writes()
        .into_iter()
        .filter(|call| call.method == "DELETE" && call.path.starts_with(BALANCERS));
    let refused: Vec<u16> = deletions.map(|call| call.status).collect();
    assert_eq!(refused, [204], "{:?}", rig.writes());
}
