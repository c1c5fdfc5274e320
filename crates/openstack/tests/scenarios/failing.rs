//! A cloud that fails in part, for as long as it likes: what serves is kept, and members follow.

use std::time::Duration;

use http::Method;
use landfall_testkit::openstack::Fault;

use crate::each_write::{LONG, SOON, service};
use crate::lost::fail;
use crate::rig::Rig;
use crate::written::{annotate, refusal};

const MONITORED: &str = "create-monitor=true";

#[tokio::test(start_paused = true)]
async fn a_write_at_which_the_cloud_always_fails_keeps_no_member_from_following_nodes() {
    for status in [500, 502, 504] {
        let mut rig = Rig::new(MONITORED);
        rig.apply(service(0..2)).await;
        let listener = rig.picture().await.listener_at(80).id.clone();
        let path = format!("/v2/lbaas/listeners/{listener}");
        rig.sim.on_call(move |call| {
            let hit = call.method == Method::PUT && call.path == path;
            hit.then(|| Fault::status(call.service, status, "Provider 'x' reports error"))
        });
        annotate(&mut rig, &[("timeout-client-data", "70000")]).await;
        rig.add_node("c", "10.0.0.6");
        rig.wait(SOON).await;
        let picture = rig.picture().await;
        let members = [80, 81].map(|port| picture.members_at(port).len());
        assert_eq!(members, [3, 3], "{status}");
        let reported = refusal(&rig, "web");
        assert!(reported.contains("reports error"), "{status}: {reported}");
        assert!(reported.contains("timeout-client-data"), "{reported}");
        // Tried again every few minutes, however long it takes, and not more often.
        rig.wait(LONG * 2).await;
        rig.forget();
        rig.wait(LONG).await;
        let tries = rig.writes().len();
        assert!((6..=14).contains(&tries), "{status}: {:?}", rig.writes());
        rig.sim.on_call(|_| None);
        rig.wait(SOON).await;
        assert_eq!(refusal(&rig, "web"), "", "{status}");
        let picture = rig.picture().await;
        assert_eq!(picture.listener_at(80).timeout_client_data, Some(70_000));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_in_error_is_kept_while_one_of_its_pools_serves() {
    let mut rig = Rig::new(MONITORED);
    rig.apply(service(0..2)).await;
    let before = rig.picture().await;
    let id = before.balancers[0].id.to_string();
    let operating = |port: u16, status: &'static str| {
        let pool = before.pool_at(port).id.to_string();
        rig.sim.edit(&pool, |row| {
            row.insert("operating_status".to_owned(), status.into());
        });
    };
    operating(80, "ONLINE");
    operating(81, "ERROR");
    fail(&rig, &id, "ERROR");
    rig.forget();
    rig.wait(Duration::from_secs(3_600)).await;
    let writes = rig.writes();
    let only_failover = writes.iter().all(|line| line.ends_with("/failover"));
    assert!(only_failover, "{writes:?}");
    let reported = rig.cluster.messages("SyncLoadBalancerFailed").join(" ");
    assert!(reported.contains("others reach members"), "{reported}");
    // Once none serves, it is recreated.
    operating(80, "ERROR");
    rig.wait(Duration::from_secs(600)).await;
    let after = rig.picture().await;
    assert_eq!(after.balancers.len(), 1, "{:?}", rig.writes());
    assert_ne!(after.balancers[0].id.to_string(), id);
}
