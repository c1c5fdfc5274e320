//! Others in the same organisation, and pools that the cloud refuses: what serves goes on serving.

use std::time::Duration;

use landfall_model::status::ConditionType;
use landfall_testkit::build::number;
use landfall_testkit::exoscale::{Call, Fault};
use landfall_testkit::svc;
use serde_json::{Value, json};

use crate::rig::{Rig, key, web};

const NOTHING: Vec<String> = Vec::new();
const AUDIT: Duration = Duration::from_secs(600);
const OTHER_SERVICE: &str = "6f1b5d1c-8a70-4f5c-9d0e-0b8f9a1c2d3e";

fn id(object: &Value) -> String {
    object["id"].as_str().unwrap().to_owned()
}

fn two() -> landfall_testkit::build::ServiceBuilder {
    let service = svc("web").named_port("p80", 80).node_port(32_672);
    service.named_port("p443", 443).node_port(32_443)
}

fn by_name(rig: &Rig, name: &str) -> Value {
    let mut all = rig.sim.load_balancers().into_iter();
    all.find(|it| it["name"] == name).unwrap()
}

/// Refuses to create NLB services in a pool; asks `now` each time.
fn refuse_pool(rig: &Rig, pool: &str) {
    let pool = pool.to_owned();
    rig.sim.on_call(move |call: &Call| {
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let hit = call.line().starts_with("POST") && body["instance-pool"]["id"] == *pool;
        hit.then(|| Fault::Status {
            code: 400,
            body: json!({"message": "no room in this pool"}).to_string(),
            retry_after: None,
        })
    });
}

#[tokio::test(start_paused = true)]
async fn a_port_of_another_service_in_a_load_balancer_of_ours_is_not_taken() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    let nlb = id(&rig.nlb());
    let name = format!("{OTHER_SERVICE}-443");
    rig.sim.add_service(&nlb, &name, 443, &rig.pool);
    let theirs = rig.service(443);
    rig.apply(two()).await;
    rig.wait(AUDIT).await;
    assert_eq!(rig.service(443), theirs);
    assert!(rig.refusal().contains("443"), "{}", rig.refusal());
    rig.edit("web", |row| row.ports[0].node_port = Some(number(31_000)))
        .await;
    assert_eq!(rig.service(80)["target-port"], 31_000);
    rig.restart().await;
    rig.delete("web").await;
    assert_eq!(rig.nlb()["services"], json!([theirs]));
}

#[tokio::test(start_paused = true)]
async fn an_id_of_another_services_load_balancer_takes_nothing_from_it() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    rig.apply(svc("other").port(80).node_port(30_080)).await;
    let other = by_name(&rig, "k8s-uid-other");
    let own = by_name(&rig, "k8s-uid-web");
    rig.annotate("id", &id(&other)).await;
    rig.wait(AUDIT).await;
    assert_eq!(by_name(&rig, "k8s-uid-other"), other);
    assert_eq!(by_name(&rig, "k8s-uid-web")["services"], own["services"]);
    assert!(rig.refusal().contains("80"), "{}", rig.refusal());
    // The other one goes on, and both end without a trace.
    assert!(rig.condition("other", ConditionType::Programmed).status);
    rig.restart().await;
    rig.delete("web").await;
    assert_eq!(rig.sim.load_balancers(), [other]);
    rig.delete("other").await;
    assert!(rig.sim.load_balancers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn labels_of_another_cluster_take_a_load_balancer_away_whatever_its_name() {
    let mut rig = Rig::new();
    let nlb = rig.sim.add_load_balancer("k8s-uid-web");
    rig.sim.add_service(&nlb, "uid-web-80", 80, &rig.pool);
    let labels = json!({"landfall-cluster": "c2", "landfall-service-uid": "uid-web"});
    rig.sim.edit_load_balancer(&nlb, "labels", labels);
    let theirs = rig.nlb();
    rig.apply(web()).await;
    rig.wait(AUDIT).await;
    rig.restart().await;
    rig.delete("web").await;
    let left = rig.sim.load_balancers();
    assert_eq!(left, [theirs]);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_the_cloud_refuses_costs_no_port() {
    let mut rig = Rig::new();
    let (pool, next) = (rig.pool.clone(), rig.sim.add_pool("next"));
    let service = web().annotated(&key("service-instancepool-id"), &pool);
    rig.apply(service).await;
    refuse_pool(&rig, &next);
    rig.annotate("service-instancepool-id", &next).await;
    assert!(rig.refusal().contains("no room"), "{}", rig.refusal());
    assert_eq!(rig.service(80)["instance-pool"]["id"], pool);
    // It stays so, and NodePorts follow.
    rig.forget();
    rig.wait(AUDIT).await;
    assert_eq!(rig.writes(), NOTHING);
    rig.edit("web", |row| row.ports[0].node_port = Some(number(31_000)))
        .await;
    assert_eq!(rig.writes(), ["PUT /load-balancer/LB/service/SERVICE"]);
    assert_eq!(rig.service(80)["target-port"], 31_000);
    assert!(rig.is_programmed());
    rig.sim.heal();
    rig.wait(Duration::from_secs(2 * 3600)).await;
    assert_eq!(rig.service(80)["instance-pool"]["id"], next);
    assert_eq!(rig.refusal(), "");
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_existed_once_is_looked_for_again_before_anything_is_removed() {
    let mut rig = Rig::new();
    let (pool, next) = (rig.pool.clone(), rig.sim.add_pool("next"));
    let service = web().annotated(&key("service-instancepool-id"), &next);
    rig.apply(service).await;
    rig.annotate("service-instancepool-id", &pool).await;
    rig.sim.remove_pool(&next);
    rig.forget();
    rig.annotate("service-instancepool-id", &next).await;
    assert_eq!(rig.writes(), NOTHING);
    assert!(rig.refusal().contains("no such"), "{}", rig.refusal());
    assert!(rig.is_programmed());
}

#[tokio::test(start_paused = true)]
async fn two_clusters_in_one_organisation_cost_what_each_costs_alone() {
    let mut first = Rig::new();
    let mut second = Rig::in_zone(first.sim.clone(), "c2");
    for number in 0..50 {
        let name = format!("s{number}");
        let one = svc(&name).port(80).node_port(30_080);
        let name = key("name");
        first
            .cluster
            .apply(&one.clone().annotated(&name, &format!("one-{number}")).row());
        second
            .cluster
            .apply(&one.annotated(&name, &format!("two-{number}")).row());
    }
    first.start();
    second.start();
    first.settle().await;
    assert_eq!(first.sim.load_balancers().len(), 100);
    first.forget();
    first.wait(Duration::from_secs(1800)).await;
    let calls = first.calls();
    assert_eq!(first.writes(), NOTHING);
    // Ten audits of each, with two calls at most.
    assert!((20..=44).contains(&calls.len()), "{}", calls.len());
    first.forget();
    first.start();
    second.start();
    first.settle().await;
    assert!(first.calls().len() <= 8, "{:#?}", first.calls());
    assert_eq!(first.writes(), NOTHING);
}
