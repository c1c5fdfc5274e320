//! Names, adoption, removal: whose a load balancer is.

use landfall_model::rows::ServiceRow;
use landfall_testkit::build::number;
use landfall_testkit::exoscale::Fault;
use landfall_testkit::svc;

use crate::rig::{Rig, key, web};

const NOTHING: Vec<String> = Vec::new();

/// A load balancer as the reference makes it for the Service `web`; its id.
fn of_the_reference(rig: &Rig) -> String {
    let nlb = rig.sim.add_load_balancer("k8s-uid-web");
    rig.sim.add_service(&nlb, "uid-web-80", 32_672, &rig.pool);
    nlb
}

#[tokio::test(start_paused = true)]
async fn s04_an_empty_load_balancer_with_the_right_name_is_used() {
    let mut rig = Rig::new();
    let nlb = rig.sim.add_load_balancer("k8s-uid-web");
    rig.apply(web().annotated(&key("id"), &nlb)).await;
    assert_eq!(rig.writes(), ["POST /load-balancer/LB/service"]);
    assert_eq!(rig.nlb()["id"], nlb);
    rig.delete("web").await;
    assert!(rig.sim.load_balancers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_the_reference_made_is_taken_over_without_a_write() {
    let mut rig = Rig::new();
    let nlb = of_the_reference(&rig);
    let service = svc("web").port(32_672).node_port(32_672);
    let service = service.annotated(&key("id"), &nlb);
    let service = service.annotated(&key("service-instancepool-id"), &rig.pool);
    rig.sim.edit_service(
        &nlb,
        rig.service(32_672)["id"].as_str().unwrap(),
        "name",
        "uid-web-32672".into(),
    );
    rig.apply(service).await;
    assert_eq!(rig.writes(), NOTHING);
    assert!(rig.is_programmed());
    // The pool was inferred by the reference, and goes on to be.
    let next = rig.sim.add_pool("next");
    rig.add_node_of("c", Some(&next));
    for name in ["a", "b"] {
        rig.cluster.remove_node(name);
    }
    rig.settle().await;
    rig.wait(std::time::Duration::from_secs(600)).await;
    assert_eq!(rig.service(32_672)["instance-pool"]["id"], next);
}

#[tokio::test(start_paused = true)]
async fn s46_a_new_name_is_one_change() {
    let mut rig = Rig::new();
    rig.apply(web().annotated(&key("name"), "a")).await;
    rig.forget();
    rig.annotate("name", "b").await;
    assert_eq!(rig.writes(), ["PUT /load-balancer/LB"]);
    assert_eq!(rig.nlb()["name"], "b");
}

#[tokio::test(start_paused = true)]
async fn s51_what_was_deleted_by_hand_is_created_again() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    let before = rig.nlb();
    rig.sim.remove_load_balancer(before["id"].as_str().unwrap());
    rig.restart().await;
    let now = rig.nlb();
    assert_ne!(now["id"], before["id"]);
    assert_eq!(rig.annotation("id").as_deref(), now["id"].as_str());
    assert_eq!(rig.published("web"), [now["ip"].as_str().unwrap()]);
    assert_eq!(rig.ports(), [80]);
}

#[tokio::test(start_paused = true)]
async fn s53_a_crash_after_the_creation_makes_no_second_load_balancer() {
    for custom in [None, Some("custom")] {
        let mut rig = Rig::new();
        rig.sim.on_call(|call| {
            let creates = call.line() == "POST /load-balancer";
            creates.then_some(Fault::HangAfter)
        });
        rig.apply(match custom {
            Some(name) => web().annotated(&key("name"), name),
            None => web(),
        })
        .await;
        rig.kill();
        rig.sim.heal();
        rig.restart().await;
        rig.wait(std::time::Duration::from_secs(60)).await;
        rig.settle().await;
        assert_eq!(rig.ports(), [80]);
        assert!(rig.is_programmed());
    }
}

#[tokio::test(start_paused = true)]
async fn s55_a_name_that_is_taken_is_an_error_and_the_other_is_left_alone() {
    let mut rig = Rig::new();
    let other = rig.sim.add_load_balancer("mine");
    rig.apply(web().annotated(&key("name"), "mine")).await;
    rig.wait(std::time::Duration::from_secs(600)).await;
    assert_eq!(rig.nlb()["id"], other);
    assert!(
        rig.writes().len() < 25,
        "{} requests in 15 minutes",
        rig.writes().len()
    );
    let programmed = rig.condition("web", landfall_model::status::ConditionType::Programmed);
    assert_eq!(programmed.reason, landfall_model::Code::NotOurs);
    assert_eq!(rig.cluster.events(), ["web SyncLoadBalancerFailed"]);
}

#[tokio::test(start_paused = true)]
async fn s56_a_load_balancer_that_is_gone_is_deleted() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    rig.sim
        .remove_load_balancer(rig.nlb()["id"].as_str().unwrap());
    rig.delete("web").await;
    assert!(rig.cluster.service("web").is_none());
}

#[tokio::test(start_paused = true)]
async fn s57_a_service_of_others_keeps_the_load_balancer() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    let nlb = rig.nlb()["id"].as_str().unwrap().to_owned();
    rig.sim.add_service(&nlb, "ssh", 22, &rig.pool);
    rig.delete("web").await;
    assert_eq!(rig.ports(), [22]);
    assert!(rig.cluster.service("web").is_none());
}

#[tokio::test(start_paused = true)]
async fn s58_a_load_balancer_is_found_without_the_annotations() {
    for custom in [None, Some("custom")] {
        let mut rig = Rig::new();
        rig.apply(match custom {
            Some(name) => web().annotated(&key("name"), name),
            None => web(),
        })
        .await;
        rig.kill();
        rig.cluster.edit("web", |row| {
            row.annotations.clear();
            row.status.marks.clear();
        });
        rig.start();
        rig.delete("web").await;
        assert!(rig.sim.load_balancers().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn s59_and_s63_a_service_that_stops_wanting_one_leaves_nothing() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    let before = rig.nlb()["id"].clone();
    let toggle = |wants: bool| {
        move |row: &mut ServiceRow| {
            row.wants_load_balancer = wants;
            row.ports[0].port = number(8080);
        }
    };
    rig.edit("web", toggle(false)).await;
    assert!(rig.sim.load_balancers().is_empty());
    rig.edit("web", toggle(true)).await;
    assert_ne!(rig.nlb()["id"], before);
    assert_eq!(rig.annotation("id").as_deref(), rig.nlb()["id"].as_str());
    assert_eq!(rig.ports(), [8080]);
}

#[tokio::test(start_paused = true)]
async fn s61_a_service_that_vanishes_meanwhile_is_done() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    let (nlb, service) = (rig.nlb()["id"].clone(), rig.service(80)["id"].clone());
    let sim = rig.sim.clone();
    rig.sim.on_call(move |call| {
        if call.line().contains("/service/") {
            let ids = (nlb.as_str().unwrap(), service.as_str().unwrap());
            sim.remove_service(ids.0, ids.1);
        }
        None
    });
    rig.delete("web").await;
    assert!(rig.sim.load_balancers().is_empty());
    assert!(rig.cluster.service("web").is_none());
}

#[tokio::test(start_paused = true)]
async fn s62_an_invalid_id_keeps_no_service_from_being_deleted() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    rig.kill();
    rig.cluster.edit("web", |row| {
        row.annotations.insert(key("id"), "abc".to_owned());
    });
    rig.start();
    rig.delete("web").await;
    assert!(rig.sim.load_balancers().is_empty());
    assert!(rig.cluster.service("web").is_none());
}

#[tokio::test(start_paused = true)]
async fn s64_a_service_of_a_foreign_class_is_ignored_completely() {
    let mut rig = Rig::new();
    let service = web().with(|row| row.class = Some("example.com/other".into()));
    rig.apply(service).await;
    rig.delete("web").await;
    assert_eq!(rig.calls(), NOTHING);
    assert_eq!((rig.cluster.writes(), rig.cluster.events()), (0, NOTHING));
}

#[tokio::test(start_paused = true)]
async fn two_clusters_with_equal_names_never_touch_each_other() {
    let mut first = Rig::new();
    first.apply(web().annotated(&key("name"), "one")).await;
    let before = first.sim.load_balancers();
    let mut second = Rig::in_zone(first.sim.clone(), "c2");
    second.apply(web().annotated(&key("name"), "two")).await;
    assert_eq!(second.sim.load_balancers().len(), 2);
    second.delete("web").await;
    assert_eq!(second.sim.load_balancers(), before);
    first.delete("web").await;
    assert!(first.sim.load_balancers().is_empty());
}
