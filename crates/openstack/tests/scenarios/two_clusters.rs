//! Two clusters in one project, one of which shares the other's load balancer: neither takes
//! anything from the other.

use std::time::Duration;

use landfall_openstack::objects::Id;
use landfall_openstack::orphans;
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::svc;

use crate::addresses::lb;
use crate::create::web;
use crate::listeners::TLS;
use crate::rig::stage::in_part;
use crate::rig::{Picture, Rig};
use crate::written::{refusal, short};

const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

/// Another cluster in the same project, with nodes of its own.
pub fn neighbour(rig: &Rig, cluster: &str, id: &str) -> Rig {
    let conf = format!(
        "[LoadBalancer]\nfloating-network-id={}\nsubnet-id={}\n",
        rig.sim.external_network(),
        rig.sim.subnet()
    );
    let mut other = Rig::bare(rig.sim.again(), &conf);
    cluster.clone_into(&mut other.settings.cluster);
    other.settings.cluster_id = Some(id.to_owned());
    other.add_node("x", "10.0.0.24");
    other.add_node("y", "10.0.0.25");
    other
}

fn guest_service(balancer: &Id) -> ServiceBuilder {
    svc("guest")
        .port(8080)
        .node_port(30081)
        .annotated(&lb("load-balancer-id"), balancer.as_str())
}

/// What the guest is served by: ids, and what decides which clients reach it.
fn guests_part(picture: &Picture) -> String {
    let listener = picture.listener_at(8080);
    let pool = picture.pool_at(8080);
    let floating_ips: Vec<_> = picture
        .floating_ips
        .iter()
        .map(|it| (&it.id, it.floating_ip_address, &it.port_id))
        .collect();
    format!(
        "{} {floating_ips:?} {} {} {:?} {:?} {}",
        picture.balancers[0].id,
        listener.id,
        listener.protocol,
        listener.allowed_cidrs,
        listener.provisioning_status,
        pool.id
    )
}

#[tokio::test(start_paused = true)]
async fn s14_of_two_clusters_on_one_load_balancer_neither_takes_anything_from_the_other() {
    let mut owner = Rig::new("");
    owner.apply(web()).await;
    let id = owner.picture().await.balancers[0].id.clone();
    let mut guest = neighbour(&owner, "c2", "ks-2");
    guest.apply(guest_service(&id)).await;
    let published = guest.published("guest");
    assert_eq!(published, owner.published("web"));
    let before = guests_part(&owner.picture().await);

    // Internal on: refused, and as open as it says.
    guest
        .apply(guest_service(&id).annotated(INTERNAL, "true"))
        .await;
    let reported = refusal(&guest, "guest");
    assert!(reported.contains("can't share"), "{reported}");
    assert_eq!(guest.published("guest"), published);

    // The owner can't be internal either, as long as there is a guest.
    owner.apply(web().annotated(INTERNAL, "true")).await;
    let reported = refusal(&owner, "web");
    assert!(reported.contains("can't become internal"), "{reported}");
    assert_eq!(guests_part(&owner.picture().await), before);
    assert_eq!(owner.published("web"), published);
    owner
        .edit("web", |row| {
            row.annotations.remove(INTERNAL);
        })
        .await;
    assert_eq!(refusal(&owner, "web"), "");

    // Internal off; a certificate that Octavia refuses, and a node in between.
    if owner.sim.is_ovn() {
        in_part("a refused certificate");
        guest.apply(guest_service(&id)).await;
    } else {
        let reference = owner.sim.add_false_certificate();
        guest
            .apply(guest_service(&id).annotated(&short(TLS), &reference))
            .await;
        let reported = refusal(&guest, "guest");
        assert!(reported.contains(&short(TLS)), "{reported}");
    }
    guest.add_node("z", "10.0.0.26");
    guest.settle().await;
    let picture = owner.picture().await;
    assert_eq!(
        picture.members_at(8080),
        ["10.0.0.24:30081", "10.0.0.25:30081", "10.0.0.26:30081"]
    );
    assert_eq!(guests_part(&picture), before);
    assert_eq!(picture.members_at(80).len(), 2);

    // The owner goes, and what it has left is looked for.
    owner.delete("web").await;
    assert!(owner.cluster.service("web").is_none());
    let found = orphans::find(owner.looker(), &owner.settings, &[])
        .await
        .unwrap();
    assert_eq!(found.orphans, []);
    guest.apply(guest_service(&id)).await;
    guest.wait(Duration::from_secs(200)).await;
    guest.settle().await;
    let picture = owner.picture().await;
    assert_eq!(guests_part(&picture), before);
    assert_eq!(picture.listeners.len(), 1, "{:?}", picture.listeners);
    assert_eq!(
        (refusal(&guest, "guest"), guest.published("guest")),
        (String::new(), published)
    );

    // The last one to leave takes everything along.
    guest.delete("guest").await;
    assert!(
        owner.picture().await.is_empty(),
        "{:?}",
        owner.picture().await
    );
}
