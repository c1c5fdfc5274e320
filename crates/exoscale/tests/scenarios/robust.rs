//! A cloud that fails, is slow, or is changed by others.

use std::time::Duration;

use landfall_model::Code;
use landfall_model::status::ConditionType;
use landfall_testkit::build::number;
use landfall_testkit::exoscale::{ErrorShape, Fate, Fault, Parallel};
use landfall_testkit::svc;
use serde_json::json;
use tokio::time::Instant;

use crate::rig::{Rig, key, web};

const NOTHING: Vec<String> = Vec::new();
const AUDIT: Duration = Duration::from_secs(600);

#[tokio::test(start_paused = true)]
async fn s05_the_next_change_waits_for_the_end_of_the_last_one() {
    let mut rig = Rig::new();
    rig.sim.configure(|settings| settings.polls = 3);
    rig.apply(web()).await;
    let calls = rig.calls();
    let is_poll = |line: &&String| line.starts_with("GET /operation/");
    assert_eq!(calls.iter().filter(is_poll).count(), 6);
    assert!(rig.is_programmed());
}

#[tokio::test(start_paused = true)]
async fn s07_a_change_that_fails_at_once_has_failed() {
    let mut rig = Rig::new();
    rig.sim
        .next_change(Fate::failure("busy", "later").at_once());
    rig.apply(web()).await;
    rig.settle().await;
    assert_eq!(rig.ports(), [80]);
    assert_eq!(
        rig.writes()
            .iter()
            .filter(|it| *it == "POST /load-balancer")
            .count(),
        2
    );
    assert!(rig.is_programmed());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_fails_late_is_tried_again() {
    for fate in [
        Fate::failure("unavailable", "no"),
        Fate::failure("incorrect", "no"),
    ] {
        let mut rig = Rig::new();
        rig.apply(web()).await;
        rig.sim.next_change(fate);
        rig.edit("web", |row| row.ports[0].node_port = Some(number(31_000)))
            .await;
        rig.wait(AUDIT).await;
        rig.settle().await;
        assert_eq!(rig.service(80)["target-port"], 31_000);
        assert_eq!(rig.refusal(), "");
        assert!(rig.is_programmed());
    }
}

#[tokio::test(start_paused = true)]
async fn s65_a_new_node_costs_nothing() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    rig.forget();
    rig.add_node("c");
    rig.settle().await;
    assert_eq!(rig.calls(), NOTHING);
    assert!(rig.is_programmed());
}

#[tokio::test(start_paused = true)]
async fn s69_an_operation_that_never_ends_is_left_behind() {
    let mut rig = Rig::new();
    rig.sim.next_change(Fate::stuck());
    rig.cluster.apply(&web().row());
    let begun = Instant::now();
    rig.apply(svc("other").port(90).node_port(30_090)).await;
    assert!(rig.condition("other", ConditionType::Programmed).status);
    rig.wait(Duration::from_secs(300).saturating_sub(begun.elapsed()))
        .await;
    rig.settle().await;
    assert!(rig.is_programmed());
    assert_eq!(rig.sim.load_balancers().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn s69_a_cloud_whose_operations_get_stuck_in_parallel_is_never_asked_for_two() {
    let mut rig = Rig::new();
    rig.sim
        .configure(|settings| settings.parallel = Parallel::Stuck);
    let ports = (1..=4).fold(svc("web"), |service, port| {
        let service = service.named_port(&format!("p{port}"), port);
        service.node_port(30_000 + port)
    });
    rig.apply(ports).await;
    assert_eq!(rig.ports(), [1, 2, 3, 4]);
    assert!(rig.is_programmed());
}

#[tokio::test(start_paused = true)]
async fn s70_a_cloud_that_asks_to_wait_is_left_alone() {
    for (line, status) in [
        ("POST /load-balancer", 429),
        ("POST /load-balancer", 503),
        ("GET /load-balancer", 429),
    ] {
        let mut rig = Rig::new();
        let (mut asked, mut again) = (None, None);
        let (send, mut seen) = tokio::sync::mpsc::channel(8);
        rig.sim.on_call(move |call| {
            if call.line() != line {
                return None;
            }
            let now = Instant::now();
            if asked.is_none() {
                asked = Some(now);
                return Some(Fault::Status {
                    code: status,
                    body: json!({"message": "slow down"}).to_string(),
                    retry_after: Some(7),
                });
            }
            if again.is_none() {
                again = Some(now);
                send.try_send(now - asked.unwrap()).unwrap();
            }
            None
        });
        rig.apply(web()).await;
        rig.settle().await;
        let pause = seen.recv().await.unwrap();
        assert!(pause >= Duration::from_secs(7), "{line}: {pause:?}");
        assert_eq!(rig.ports(), [80]);
    }
}

#[tokio::test(start_paused = true)]
async fn s77_without_an_address_no_status_is_published() {
    let mut rig = Rig::new();
    let nlb = rig.sim.add_load_balancer("k8s-uid-web");
    rig.sim.edit_load_balancer(&nlb, "ip", json!(null));
    rig.sim.edit_load_balancer(&nlb, "state", json!("creating"));
    rig.cluster.apply(&web().row());
    rig.start();
    rig.wait(Duration::from_secs(60)).await;
    assert!(
        rig.cluster
            .service("web")
            .unwrap()
            .status
            .ingress
            .is_empty()
    );
    assert_eq!(rig.writes(), NOTHING);
    let looks = rig.calls().len();
    assert!(looks < 20, "{looks} calls in a minute");
    rig.sim.edit_load_balancer(&nlb, "ip", json!("198.18.0.99"));
    rig.sim.edit_load_balancer(&nlb, "state", json!("running"));
    rig.wait(Duration::from_secs(60)).await;
    assert_eq!(rig.published("web"), ["198.18.0.99"]);
    assert_eq!(rig.ports(), [80]);
}

#[tokio::test(start_paused = true)]
async fn s82_annotations_of_the_user_stay() {
    let mut rig = Rig::new();
    rig.cluster.apply(&web().row());
    rig.start();
    rig.wait(Duration::from_secs(1)).await;
    rig.cluster.edit("web", |row| {
        row.annotations.insert("team".to_owned(), "a".to_owned());
    });
    rig.settle().await;
    let service = rig.cluster.service("web").unwrap();
    assert_eq!(service.annotations["team"], "a");
    assert!(service.annotations.contains_key(&key("id")));
}

#[tokio::test(start_paused = true)]
async fn s83_what_is_changed_by_hand_is_restored() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    let ids = (
        rig.nlb()["id"].as_str().unwrap().to_owned(),
        rig.service(80)["id"].as_str().unwrap().to_owned(),
    );
    rig.sim
        .edit_service(&ids.0, &ids.1, "target-port", json!(1));
    rig.wait(AUDIT).await;
    assert_eq!(rig.service(80)["target-port"], 32_672);
    rig.sim.remove_service(&ids.0, &ids.1);
    rig.wait(AUDIT).await;
    assert_eq!(rig.ports(), [80]);
    assert!(rig.is_programmed());
    rig.sim.remove_load_balancer(&ids.0);
    rig.wait(AUDIT).await;
    assert_eq!(rig.ports(), [80]);
    assert_eq!(rig.published("web"), [rig.nlb()["ip"].as_str().unwrap()]);
}

#[tokio::test(start_paused = true)]
async fn programmed_reflects_the_health_that_the_cloud_reports() {
    let mut rig = Rig::new();
    let third = rig.add_node("c");
    rig.apply(web()).await;
    let all: Vec<String> = [third]
        .into_iter()
        .chain(["a", "b"].map(|name| {
            let row = rig.cluster.facts().into_iter().find_map(|fact| match fact {
                landfall_model::rows::Fact::Node(node) if &*node.name == name => Some(node),
                _ => None,
            });
            let id = row.unwrap().provider_id.clone().unwrap();
            id.strip_prefix("exoscale://").unwrap().to_owned()
        }))
        .collect();
    for instance in &all {
        rig.sim.set_health(instance, false);
    }
    rig.wait(AUDIT).await;
    let programmed = rig.condition("web", ConditionType::Programmed);
    assert_eq!(
        (programmed.status, programmed.reason),
        (false, Code::NoHealthyMembers)
    );
    rig.sim.set_health(&all[1], true);
    rig.wait(AUDIT).await;
    assert!(rig.is_programmed());
}

#[tokio::test(start_paused = true)]
async fn s88_every_shape_of_an_error_is_readable() {
    for (shape, text) in [
        (ErrorShape::Message, "at most 0"),
        (ErrorShape::List, ""),
        (ErrorShape::Problem, ""),
        (ErrorShape::Error, ""),
        (ErrorShape::Plain, ""),
    ] {
        let mut rig = Rig::new();
        rig.sim.configure(|settings| {
            settings.errors = shape;
            settings.max_load_balancers = 0;
        });
        rig.apply(web()).await;
        let programmed = rig.condition("web", ConditionType::Programmed);
        assert!(!programmed.status && programmed.message.contains("POST /v2/load-balancer"));
        let _ = text;
    }
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_revoked_leave_what_serves_as_it_is() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    rig.forget();
    rig.sim.set_key("EXOother", "other");
    rig.edit("web", |row| row.ports[0].node_port = Some(number(31_000)))
        .await;
    let programmed = rig.condition("web", ConditionType::Programmed);
    assert!(
        programmed.message.contains("API key"),
        "{}",
        programmed.message
    );
    assert!(!rig.published("web").is_empty());
    rig.sim.set_key(
        landfall_testkit::exoscale::KEY,
        landfall_testkit::exoscale::SECRET,
    );
    rig.wait(AUDIT).await;
    assert_eq!(rig.service(80)["target-port"], 31_000);
    assert!(rig.is_programmed());
}
