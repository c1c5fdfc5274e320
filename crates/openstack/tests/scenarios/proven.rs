//! Load balancers without marks that have the name of a Service's: what serves another cluster of
//! the same name is neither changed nor deleted.

use landfall_model::dialect::openstack::LOAD_BALANCER_ID;
use landfall_model::status::{IngressAddress, IpMode};
use landfall_openstack::objects::Id;

use crate::adopt::reference_makes;
use crate::create::web;
use crate::neighbours::of_cluster;
use crate::rig::Rig;
use crate::two_clusters::neighbour;
use crate::written::refusal;

const NAME: &str = "kube_service_c1_default_web";

/// A cluster of the same name as the one for which the reference has made default/web.
fn other_of_the_name(owner: &Rig) -> Rig {
    neighbour(owner, "c1", "ks-2")
}

fn made_by_reference(owner: &Rig) -> Id {
    let made = reference_makes(&owner.sim, "c1", NAME);
    Id::new(made["id"].as_str().unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_serves_another_cluster_of_the_name_is_not_taken_for_a_new_service() {
    let owner = Rig::new("");
    let id = made_by_reference(&owner);
    owner.wait(std::time::Duration::from_secs(10)).await;
    owner.sim.mark_foreign(id.as_str());
    let before = owner.sim.snapshot_foreign();
    let mut other = other_of_the_name(&owner);
    other.apply(web()).await;
    let reported = refusal(&other, "web");
    let said = "none of its members is a node of this cluster";
    assert!(reported.contains(said), "{reported}");
    assert_eq!(other.published("web"), Vec::<String>::new());
    other.restart().await;
    other.delete("web").await;
    assert!(other.cluster.service("web").is_none());
    assert_eq!(other.writes(), Vec::<String>::new());
    assert_eq!(owner.sim.snapshot_foreign(), before);
}

#[tokio::test(start_paused = true)]
async fn one_that_a_service_names_is_taken_though_it_has_no_mark() {
    let owner = Rig::new("");
    let id = made_by_reference(&owner);
    let mut other = other_of_the_name(&owner);
    other.apply(web()).await;
    assert_ne!(refusal(&other, "web"), "");
    other
        .edit("web", |row| {
            row.annotations
                .insert(LOAD_BALANCER_ID.to_owned(), id.to_string());
        })
        .await;
    assert_eq!(refusal(&other, "web"), "");
    let members = other.picture().await.members_at(80);
    assert_eq!(members, ["10.0.0.24:30080", "10.0.0.25:30080"]);
}

#[tokio::test(start_paused = true)]
async fn one_whose_members_are_the_nodes_is_taken_though_nothing_is_noted() {
    let mut rig = Rig::new("create-monitor=true");
    let id = made_by_reference(&rig);
    rig.apply(web()).await;
    assert_eq!(refusal(&rig, "web"), "");
    assert_eq!(
        rig.annotation("web", LOAD_BALANCER_ID),
        Some(id.to_string())
    );
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_without_members_is_taken_only_if_it_is_no_older_than_the_service() {
    for (created, taken) in [
        ("2000-01-01T00:00:00Z", true),
        ("2100-01-01T00:00:00Z", false),
    ] {
        let mut rig = Rig::new("");
        let made = of_cluster(&rig, "by-hand");
        rig.wait(std::time::Duration::from_secs(10)).await;
        let created = created.parse().unwrap();
        rig.apply(web().with(|row| row.created = Some(created)))
            .await;
        let reported = refusal(&rig, "web");
        assert_eq!(reported.is_empty(), taken, "{reported}");
        assert_eq!(rig.writes().is_empty(), !taken, "{:?}", rig.writes());
        if taken {
            assert_eq!(rig.picture().await.balancers[0].id.as_str(), made);
        } else {
            assert!(
                reported.contains("created before the Service"),
                "{reported}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_at_the_address_that_a_service_publishes_is_taken_whatever_its_members_are() {
    let owner = Rig::new("");
    let made = reference_makes(&owner.sim, "c1", NAME);
    let vip = made["vip_address"].as_str().unwrap().parse().unwrap();
    let mut other = other_of_the_name(&owner);
    let internal = "service.beta.kubernetes.io/openstack-internal-load-balancer";
    let service = web().annotated(internal, "true").with(|row| {
        row.status.ingress.push(IngressAddress {
            ip: Some(vip),
            ip_mode: Some(IpMode::Vip),
            ..IngressAddress::default()
        });
    });
    other.apply(service).await;
    assert_eq!(refusal(&other, "web"), "");
    let members = other.picture().await.members_at(80);
    assert_eq!(members, ["10.0.0.24:30080", "10.0.0.25:30080"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_the_reference_has_only_begun_is_waited_for_and_goes_with_its_service() {
    for deleted in [false, true] {
        let mut rig = Rig::new("create-monitor=true");
        rig.sim.settle_in(std::time::Duration::from_secs(60));
        let id = made_by_reference(&rig);
        rig.sim.set_status(id.as_str(), "PENDING_CREATE");
        rig.cluster.apply(&web().row());
        rig.start();
        rig.wait(std::time::Duration::from_secs(5)).await;
        let reported = refusal(&rig, "web");
        assert!(!reported.contains("another cluster"), "{reported}");
        if deleted {
            rig.cluster.delete("web");
            rig.wait(std::time::Duration::from_secs(5)).await;
        }
        rig.sim.set_status(id.as_str(), "ACTIVE");
        rig.wait(std::time::Duration::from_secs(60)).await;
        rig.settle().await;
        if deleted {
            assert!(rig.picture().await.is_empty(), "{:?}", rig.writes());
        } else {
            assert_eq!(refusal(&rig, "web"), "");
            assert_eq!(rig.published("web").len(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_in_error_whose_members_are_the_nodes_is_failed_over() {
    let mut rig = Rig::new("create-monitor=true");
    let id = made_by_reference(&rig);
    rig.wait(std::time::Duration::from_secs(10)).await;
    rig.sim.set_status(id.as_str(), "ERROR");
    rig.apply(web()).await;
    let failover = format!("PUT /v2/lbaas/loadbalancers/{id}/failover");
    assert!(rig.writes().contains(&failover), "{:?}", rig.writes());
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_named_after_a_refusal_counts() {
    let owner = Rig::new("");
    made_by_reference(&owner);
    let mut other = other_of_the_name(&owner);
    other.apply(web()).await;
    assert_ne!(refusal(&other, "web"), "");
    let by_hand = of_cluster(&owner, "by-hand");
    owner
        .sim
        .relabel(&by_hand, &serde_json::json!({"name": "mine", "tags": []}));
    owner.wait(std::time::Duration::from_secs(10)).await;
    other
        .edit("web", |row| {
            let value = by_hand.clone();
            row.annotations.insert(LOAD_BALANCER_ID.to_owned(), value);
        })
        .await;
    // It is the one that the Service waits for.
    let reported = refusal(&other, "web");
    assert!(reported.contains(&by_hand), "{reported}");
    assert!(reported.contains("has no floating IP"), "{reported}");
}
