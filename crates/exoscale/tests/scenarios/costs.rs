//! What the controller asks of the cloud.

use std::time::Duration;

use landfall_testkit::svc;

use crate::rig::{Rig, key, web};

/// Calls without polls, and the search for the zone.
fn calls(rig: &Rig) -> Vec<String> {
    let mut calls = rig.calls();
    calls.retain(|line| !line.starts_with("GET /operation/"));
    calls
}

#[tokio::test(start_paused = true)]
async fn the_first_reconcile_of_three_ports_on_100_nodes_makes_at_most_8_calls() {
    let mut rig = Rig::new();
    for number in 0..98 {
        rig.add_node(&format!("n{number}"));
    }
    let ports = (1..=3).fold(svc("web"), |service, port| {
        let service = service.named_port(&format!("p{port}"), port);
        service.node_port(30_000 + port)
    });
    rig.apply(ports).await;
    assert_eq!(rig.ports(), [1, 2, 3]);
    assert!(rig.is_programmed());
    assert!(calls(&rig).len() <= 8, "{:#?}", calls(&rig));
}

#[tokio::test(start_paused = true)]
async fn an_audit_of_100_services_makes_2_calls_and_a_restart_with_1000_at_most_4() {
    let mut rig = Rig::new();
    let nlb = rig.sim.add_load_balancer("shared");
    for number in 0..999 {
        let name = format!("s{number}");
        let id = rig.sim.add_load_balancer(&format!("k8s-uid-{name}"));
        let service = svc(&name).port(80).node_port(80).annotated(&key("id"), &id);
        rig.sim
            .add_service(&id, &format!("uid-{name}-80"), 80, &rig.pool);
        rig.cluster.apply(&service.row());
    }
    let service = web().annotated(&key("external"), "true");
    rig.apply(service.annotated(&key("id"), &nlb)).await;
    assert_eq!(rig.writes().len(), 1);
    for name in ["web", "s0", "s998"] {
        let kind = landfall_model::status::ConditionType::Programmed;
        assert!(rig.condition(name, kind).status, "{name}");
    }
    rig.forget();
    rig.restart().await;
    assert!(calls(&rig).len() <= 4, "{:#?}", calls(&rig));
    rig.forget();
    rig.wait(Duration::from_secs(170)).await;
    let before = calls(&rig).len();
    rig.wait(Duration::from_secs(180)).await;
    let calls = calls(&rig).len() - before;
    assert!((1..=2).contains(&calls), "{calls}");
}
