//! What others use of a Service's own load balancer stays, whatever becomes of the Service.

use std::num::NonZero;
use std::time::Duration;

use landfall_openstack::objects::Id;
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::svc;
use serde_json::json;

use crate::addresses::{INTERNAL, lb};
use crate::create::web;
use crate::rig::{Picture, Rig};
use crate::two_clusters::neighbour;
use crate::written::refusal;

/// From one audit to the next, and a little.
const AUDIT: Duration = Duration::from_secs(190);

fn guest(balancer: &Id) -> ServiceBuilder {
    svc("guest")
        .port(8080)
        .node_port(30081)
        .annotated(&lb("load-balancer-id"), balancer.as_str())
}

/// A cluster whose Service `web` has a load balancer that `guest` of a cluster of this name uses, too.
async fn shared_with(cluster: &str) -> (Rig, Rig, Id) {
    let mut owner = Rig::new("");
    owner.apply(web()).await;
    let id = owner.picture().await.balancers[0].id.clone();
    let mut guests = neighbour(&owner, cluster, "ks-2");
    guests.apply(guest(&id)).await;
    assert_eq!(guests.published("guest"), owner.published("web"));
    (owner, guests, id)
}

/// What the guest is served by.
fn guests_part(picture: &Picture) -> String {
    let floating_ips: Vec<_> = picture
        .floating_ips
        .iter()
        .map(|it| (&it.id, it.floating_ip_address, &it.port_id))
        .collect();
    let listener = picture.listener_at(8080);
    format!(
        "{} {floating_ips:?} {} {:?}",
        picture.balancers[0].id,
        listener.id,
        picture.members_at(8080)
    )
}

#[tokio::test(start_paused = true)]
async fn who_makes_a_load_balancer_internal_does_not_cut_those_who_share_it() {
    for cluster in ["c2", "c1"] {
        let (mut owner, mut guests, _) = shared_with(cluster).await;
        let published = owner.published("web");
        let before = guests_part(&owner.picture().await);
        owner.forget();
        owner.apply(web().annotated(INTERNAL, "true")).await;
        owner.wait(AUDIT).await;
        let told = refusal(&owner, "web");
        let tag = format!("kube_service_{cluster}_default_guest");
        for part in ["can't become internal", INTERNAL, &tag, &published[0]] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert_eq!(owner.writes(), Vec::<String>::new(), "{cluster}");
        assert_eq!(guests_part(&owner.picture().await), before);
        // What is open is what is published; nothing is opened besides, and members follow nodes.
        assert_eq!(owner.published("web"), published);
        owner
            .edit("web", |row| {
                row.ports[0].port = NonZero::new(81).unwrap();
            })
            .await;
        owner.add_node("c", "10.0.0.6");
        owner.restart().await;
        let picture = owner.picture().await;
        assert_eq!(picture.listeners.len(), 2);
        assert_eq!(guests_part(&picture), before);
        owner.apply(web().annotated(INTERNAL, "true")).await;
        assert_eq!(owner.picture().await.members_at(80).len(), 3);

        // Once no other uses it, the Service is what it asks to be.
        guests.delete("guest").await;
        owner.wait(AUDIT).await;
        owner.settle().await;
        let picture = owner.picture().await;
        assert_eq!(picture.floating_ips, [], "{cluster}: {:?}", owner.writes());
        assert_eq!(refusal(&owner, "web"), "");
        let vip = picture.balancers[0].vip_address.unwrap().to_string();
        assert_eq!(owner.published("web"), [vip]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_of_another_keeps_the_floating_ip_where_the_tag_was_lost() {
    let (mut owner, mut guests, id) = shared_with("c2").await;
    guests.kill();
    let tags = ["kube_service_c1_default_web", "kube_cluster_id_ks-1"];
    owner.sim.relabel(id.as_str(), &json!({ "tags": tags }));
    owner.wait(Duration::from_secs(10)).await;
    let before = guests_part(&owner.picture().await);
    owner.apply(web().annotated(INTERNAL, "true")).await;
    assert_eq!(guests_part(&owner.picture().await), before);
    let told = refusal(&owner, "web");
    assert!(told.contains("kube_service_c2_default_guest"), "{told}");
}
