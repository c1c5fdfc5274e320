//! What is written, and how often: row 46, and a new Service.

use landfall_testkit::slice;
use serde_json::json;

use crate::rig::{Rig, web};

#[tokio::test(start_paused = true)]
async fn row_46_a_service_that_is_as_it_should_be_costs_no_write_however_often_it_is_reconciled() {
    // MetalLB writes the status again each time.
    let rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.0/24"]}))]).await;
    rig.apply(web("web")).await;
    let before = (rig.cluster.writes(), rig.cluster.events());
    rig.reconcile("web", 100).await;
    assert_eq!((rig.cluster.writes(), rig.cluster.events()), before);
}

#[tokio::test(start_paused = true)]
async fn a_new_service_costs_one_write_and_one_event_whether_it_has_endpoints_or_not() {
    let mut rig = Rig::with(&[("a", json!({"addresses": ["10.0.0.0/24"]}))]).await;
    for name in ["idle", "busy"] {
        if name == "busy" {
            let endpoints = slice(name).port("", 8080).ready("10.8.0.1").row();
            rig.endpoints(endpoints).await;
        }
        rig.forget();
        let before = rig.cluster.writes();
        rig.apply(web(name)).await;
        assert_eq!(rig.cluster.writes(), before + 1, "{name}");
        assert_eq!(rig.events(name), ["IPAllocated"]);
    }
}
