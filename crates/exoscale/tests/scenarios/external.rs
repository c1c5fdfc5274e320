//! Load balancers of others.

use landfall_testkit::build::number;
use landfall_testkit::svc;
use serde_json::Value;

use crate::rig::{Rig, key, web};

const NOTHING: Vec<String> = Vec::new();

/// A load balancer of a person, with a service on port 22; its id.
fn external(rig: &Rig) -> String {
    let nlb = rig.sim.add_load_balancer("shared");
    rig.sim.add_service(&nlb, "ssh", 22, &rig.pool);
    nlb
}

fn of_others(rig: &Rig) -> Value {
    rig.service(22)
}

#[tokio::test(start_paused = true)]
async fn s38_ports_are_added_to_a_load_balancer_by_id_and_nothing_else_changes() {
    let mut rig = Rig::new();
    let nlb = external(&rig);
    let ssh = of_others(&rig);
    let service = web().annotated(&key("external"), "true");
    rig.apply(service.annotated(&key("id"), &nlb)).await;
    assert_eq!(rig.writes(), ["POST /load-balancer/LB/service"]);
    assert_eq!(rig.ports(), [22, 80]);
    assert_eq!(
        (rig.nlb()["name"].as_str(), of_others(&rig)),
        (Some("shared"), ssh.clone())
    );
    assert_eq!(rig.published("web"), [rig.nlb()["ip"].as_str().unwrap()]);
    rig.forget();
    rig.delete("web").await;
    assert_eq!(rig.writes(), ["DELETE /load-balancer/LB/service/SERVICE"]);
    assert_eq!((rig.ports(), of_others(&rig)), (vec![22], ssh));
}

#[tokio::test(start_paused = true)]
async fn s39_a_load_balancer_is_found_by_name_once() {
    let mut rig = Rig::new();
    let nlb = external(&rig);
    let service = web().annotated(&key("external"), "true");
    rig.apply(service.annotated(&key("name"), "shared")).await;
    assert_eq!(rig.annotation("id"), Some(nlb.clone()));
    assert_eq!(rig.ports(), [22, 80]);
    rig.forget();
    rig.annotate("name", "another").await;
    assert_eq!(rig.writes(), NOTHING);
    assert_eq!(
        (rig.refusal(), rig.annotation("id")),
        (String::new(), Some(nlb))
    );
}

#[tokio::test(start_paused = true)]
async fn s40_and_s41_what_does_not_exist_is_not_created() {
    let id = "11111111-1111-4111-8111-111111111111";
    for given in [None, Some(("name", "none")), Some(("id", id))] {
        let mut rig = Rig::new();
        let service = web().annotated(&key("external"), "true");
        rig.apply(match given {
            Some((name, value)) => service.annotated(&key(name), value),
            None => service,
        })
        .await;
        assert_eq!(rig.writes(), NOTHING, "{given:?}");
        assert!(!rig.is_programmed());
        assert_eq!(rig.cluster.events(), ["web SyncLoadBalancerFailed"]);
    }
}

#[tokio::test(start_paused = true)]
async fn s43_a_port_of_others_is_not_taken() {
    let mut rig = Rig::new();
    let nlb = external(&rig);
    let ssh = of_others(&rig);
    let service = svc("web").named_port("ssh", 22).node_port(30_022);
    let service = service.named_port("http", 80).node_port(30_080);
    let service = service.annotated(&key("external"), "true");
    rig.apply(service.annotated(&key("id"), &nlb)).await;
    assert!(rig.refusal().starts_with("PortInUse"), "{}", rig.refusal());
    assert_eq!((rig.ports(), of_others(&rig)), (vec![22, 80], ssh.clone()));
    rig.delete("web").await;
    assert_eq!((rig.ports(), of_others(&rig)), (vec![22], ssh));
}

#[tokio::test(start_paused = true)]
async fn s44_a_port_that_goes_is_removed_from_the_load_balancer_of_others() {
    let mut rig = Rig::new();
    let nlb = external(&rig);
    let service = |ports: &[u16]| {
        let service = ports.iter().fold(svc("web"), |service, port| {
            let service = service.named_port(&format!("p{port}"), *port);
            service.node_port(30_000 + port)
        });
        service
            .annotated(&key("external"), "true")
            .annotated(&key("id"), &nlb)
    };
    rig.apply(service(&[80, 443])).await;
    rig.apply(service(&[80])).await;
    assert_eq!(rig.ports(), [22, 80]);
    // Its name is the user's: the record shows whose it is.
    rig.apply(service(&[80]).annotated(&key("service-name"), "front"))
        .await;
    assert_eq!(rig.service(80)["name"], "front");
    rig.restart().await;
    rig.edit("web", |row| row.ports[0].port = number(8080))
        .await;
    assert_eq!(rig.ports(), [22, 8080]);
    rig.delete("web").await;
    assert_eq!(rig.ports(), [22]);
}

#[tokio::test(start_paused = true)]
async fn s45_only_true_is_external() {
    for (value, is_external) in [
        ("True", true),
        ("TRUE", true),
        ("1", false),
        (" true", false),
    ] {
        let mut rig = Rig::new();
        rig.apply(web().annotated(&key("external"), value)).await;
        assert_eq!(rig.sim.load_balancers().is_empty(), is_external, "{value}");
    }
}

#[tokio::test(start_paused = true)]
async fn s52_a_load_balancer_without_proof_of_ownership_is_not_taken_over() {
    let mut rig = Rig::new();
    let nlb = external(&rig);
    let ssh = of_others(&rig);
    rig.apply(web().annotated(&key("id"), &nlb)).await;
    assert_eq!(rig.writes(), ["POST /load-balancer/LB/service"]);
    assert_eq!(
        (rig.nlb()["name"].as_str(), of_others(&rig)),
        (Some("shared"), ssh)
    );
    rig.delete("web").await;
    assert_eq!(rig.ports(), [22]);
}

#[tokio::test(start_paused = true)]
async fn what_was_external_once_is_never_renamed_or_deleted() {
    let mut rig = Rig::new();
    let nlb = rig.sim.add_load_balancer("shared");
    let service = web().annotated(&key("external"), "true");
    rig.apply(service.annotated(&key("id"), &nlb)).await;
    rig.forget();
    rig.annotate("external", "false").await;
    rig.restart().await;
    assert_eq!(rig.writes(), NOTHING);
    assert_eq!(rig.nlb()["name"], "shared");
    rig.delete("web").await;
    assert_eq!(rig.ports(), Vec::<u64>::new());
}

#[tokio::test(start_paused = true)]
async fn s67_and_s68_services_share_a_load_balancer_one_change_at_a_time() {
    let mut rig = Rig::new();
    let nlb = external(&rig);
    let service = |name: &str, port: u16| {
        svc(name)
            .port(port)
            .node_port(30_000 + port)
            .annotated(&key("external"), "true")
            .annotated(&key("id"), &nlb)
    };
    rig.cluster.apply(&service("a", 80).row());
    rig.cluster.apply(&service("b", 443).row());
    rig.apply(service("c", 8080)).await;
    assert_eq!(rig.ports(), [22, 80, 443, 8080]);
    // The simulator refuses a second change of an NLB.
    let refused = rig.sim.calls().iter().filter(|it| it.status == 409).count();
    assert_eq!(refused, 0);
    rig.delete("a").await;
    assert_eq!(rig.ports(), [22, 443, 8080]);
}
