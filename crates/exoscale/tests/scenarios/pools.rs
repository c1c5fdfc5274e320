//! Instance pools: of the nodes, given, of nodepools.

use landfall_testkit::build::number;
use serde_json::Value;

use crate::rig::{Rig, key, web};

const NOTHING: Vec<String> = Vec::new();

fn pool_of(service: &Value) -> &str {
    service["instance-pool"]["id"].as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn s27_and_s31_nodes_of_no_pool_and_of_other_clouds_count_for_nothing() {
    let mut rig = Rig::new();
    rig.add_node_of("standalone", None);
    rig.put_node(
        "foreign",
        "openstack:///11111111-1111-4111-8111-111111111111",
    );
    rig.put_node("gone", "exoscale://11111111-1111-4111-8111-111111111111");
    rig.apply(web()).await;
    assert_eq!(pool_of(&rig.service(80)), rig.pool);
    assert_eq!(
        rig.annotation("service-instancepool-id"),
        Some(rig.pool.clone())
    );
}

#[tokio::test(start_paused = true)]
async fn s28_nodes_of_two_pools_need_a_choice() {
    let mut rig = Rig::new();
    let other = rig.sim.add_pool("other");
    rig.add_node_of("c", Some(&other));
    rig.apply(web()).await;
    assert_eq!(rig.writes(), NOTHING);
    let programmed = rig.condition("web", landfall_model::status::ConditionType::Programmed);
    assert!(
        programmed.message.contains("instancepool-id"),
        "{}",
        programmed.message
    );
    rig.annotate("service-instancepool-id", &other).await;
    assert_eq!(pool_of(&rig.service(80)), other);
}

#[tokio::test(start_paused = true)]
async fn s29_without_a_pool_nothing_is_created() {
    let mut rig = Rig::new();
    for name in ["a", "b"] {
        rig.cluster.remove_node(name);
    }
    rig.add_node_of("standalone", None);
    rig.apply(web()).await;
    assert_eq!(rig.writes(), NOTHING);
    assert!(!rig.is_programmed());
}

#[tokio::test(start_paused = true)]
async fn s32_and_s33_a_given_pool_is_used_without_reading_instances() {
    let mut rig = Rig::new();
    let other = rig.sim.add_pool("other");
    rig.apply(web().annotated(&key("service-instancepool-id"), &other))
        .await;
    assert_eq!(pool_of(&rig.service(80)), other);
    assert!(
        !rig.calls()
            .iter()
            .any(|it| it.starts_with("GET /instance/") || it == "GET /instance")
    );
    let nlb = rig.nlb();
    rig.forget();
    let pool = rig.pool.clone();
    rig.annotate("service-instancepool-id", &pool).await;
    assert_eq!(
        rig.writes(),
        [
            "DELETE /load-balancer/LB/service/SERVICE",
            "POST /load-balancer/LB/service"
        ]
    );
    assert_eq!(pool_of(&rig.service(80)), pool);
    assert_eq!(
        (&rig.nlb()["id"], &rig.nlb()["ip"]),
        (&nlb["id"], &nlb["ip"])
    );
}

#[tokio::test(start_paused = true)]
async fn s34_and_s87_a_pool_that_does_not_exist_keeps_the_one_in_use() {
    let mut rig = Rig::new();
    let pool = rig.pool.clone();
    let nodepools = rig.sim.add_cluster("prod", &[("web", &pool)]);
    rig.apply(web()).await;
    for (name, value, expected) in [
        (
            "service-instancepool-id",
            "11111111-1111-4111-8111-111111111111",
            "no such",
        ),
        (
            "service-instancepool-id",
            nodepools[0].as_str(),
            pool.as_str(),
        ),
        ("service-instancepool-id", "abc", "UUID"),
        ("sks-cluster-name", "prod", "service-sks-nodepool-name"),
    ] {
        let before = rig.annotation(name);
        rig.forget();
        rig.annotate(name, value).await;
        assert_eq!(rig.writes(), NOTHING, "{name} {value}");
        assert!(
            rig.refusal().contains(expected),
            "{value}: {}",
            rig.refusal()
        );
        assert_eq!(rig.annotation(name).as_deref(), Some(value), "the user's");
        assert_eq!(pool_of(&rig.service(80)), pool);
        assert!(rig.is_programmed());
        // Nothing else waits for it.
        rig.edit("web", |row| row.ports[0].node_port = Some(number(31_000)))
            .await;
        assert_eq!(rig.service(80)["target-port"], 31_000);
        rig.edit("web", |row| {
            row.ports[0].node_port = Some(number(32_672));
            match before {
                Some(before) => row.annotations.insert(key(name), before),
                None => row.annotations.remove(&key(name)),
            };
        })
        .await;
        assert_eq!(rig.refusal(), "", "{value}");
    }
}

#[tokio::test(start_paused = true)]
async fn s35_a_nodepool_is_found_by_name() {
    let mut rig = Rig::new();
    let (web_pool, other) = (rig.pool.clone(), rig.sim.add_pool("other"));
    rig.sim
        .add_cluster("prod", &[("db", &web_pool), ("web", &other)]);
    let service = web().annotated(&key("sks-cluster-name"), "prod");
    rig.apply(service.annotated(&key("service-sks-nodepool-name"), "Web"))
        .await;
    assert_eq!(pool_of(&rig.service(80)), other);
    assert_eq!(rig.annotation("service-instancepool-id"), Some(other));
}

#[tokio::test(start_paused = true)]
async fn s37_what_is_wrong_with_a_nodepool_has_three_reasons() {
    let mut reasons = Vec::new();
    for (cluster, nodepool) in [(Some("none"), "web"), (Some("prod"), "none"), (None, "web")] {
        let mut rig = Rig::new();
        let pool = rig.pool.clone();
        rig.sim.add_cluster("prod", &[("web", &pool)]);
        let service = web().annotated(&key("service-sks-nodepool-name"), nodepool);
        rig.apply(match cluster {
            Some(cluster) => service.annotated(&key("sks-cluster-name"), cluster),
            None => service,
        })
        .await;
        assert_eq!(rig.writes(), NOTHING);
        let programmed = rig.condition("web", landfall_model::status::ConditionType::Programmed);
        reasons.push(programmed.message);
    }
    reasons.dedup();
    assert_eq!(reasons.len(), 3, "{reasons:#?}");
}

#[tokio::test(start_paused = true)]
async fn an_inferred_pool_follows_the_nodes_and_a_given_one_does_not() {
    let mut rig = Rig::new();
    rig.apply(web()).await;
    let next = rig.sim.add_pool("next");
    rig.add_node_of("c", Some(&next));
    for name in ["a", "b"] {
        rig.cluster.remove_node(name);
    }
    rig.settle().await;
    rig.wait(std::time::Duration::from_secs(600)).await;
    rig.settle().await;
    assert_eq!(pool_of(&rig.service(80)), next);
    assert_eq!(
        rig.annotation("service-instancepool-id"),
        Some(next.clone())
    );
    let given = rig.pool.clone();
    rig.annotate("service-instancepool-id", &given).await;
    rig.restart().await;
    rig.wait(std::time::Duration::from_secs(600)).await;
    assert_eq!(pool_of(&rig.service(80)), given);
}
