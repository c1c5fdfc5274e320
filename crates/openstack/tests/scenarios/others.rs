//! What others use of a Service's own load balancer stays, whatever becomes of the Service.

use std::num::NonZero;
use std::time::Duration;

use http::Method;
use landfall_model::marks::managed_annotations;
use landfall_model::status::ServiceStatus;
use landfall_openstack::objects::{Id, Provisioning};
use landfall_openstack::orphans;
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::openstack::Service;
use landfall_testkit::svc;
use serde_json::json;

use crate::addresses::{INTERNAL, floating_ip_by_hand, lb};
use crate::create::web;
use crate::rig::{Picture, Rig};
use crate::two_clusters::neighbour;
use crate::written::refusal;

/// How the other cluster says that it shares.
const MARK: &str = "landfall_shared_by_ks-2";
/// From one audit to the next, and a little.
const AUDIT: Duration = Duration::from_secs(190);

fn guest(balancer: &Id) -> ServiceBuilder {
    svc("guest")
        .port(8080)
        .node_port(30081)
        .annotated(&lb("load-balancer-id"), balancer.as_str())
}

/// A cluster whose Service `web` has a load balancer that `guest` of a cluster of this name uses,
/// too.
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
async fn a_service_that_makes_a_load_balancer_internal_does_not_cut_those_that_share_it() {
    for cluster in ["c2", "c1"] {
        let (mut owner, mut guests, _) = shared_with(cluster).await;
        let published = owner.published("web");
        let before = guests_part(&owner.picture().await);
        owner.forget();
        owner.apply(web().annotated(INTERNAL, "true")).await;
        owner.wait(AUDIT).await;
        let reported = refusal(&owner, "web");
        let tag = format!("kube_service_{cluster}_default_guest");
        for part in ["can't become internal", INTERNAL, &tag, &published[0]] {
            assert!(reported.contains(part), "{part}: {reported}");
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
    let reported = refusal(&owner, "web");
    assert!(
        reported.contains("kube_service_c2_default_guest"),
        "{reported}"
    );
}

/// Octavia gives a load balancer up, and says of its traffic that there is none.
fn give_up(rig: &Rig, balancer: &Id, operating: &str) {
    rig.sim.set_status(balancer.as_str(), "ERROR");
    rig.sim.edit(balancer.as_str(), |row| {
        row.insert("operating_status".to_owned(), operating.into());
    });
}

#[tokio::test(start_paused = true)]
async fn a_broken_one_is_not_recreated_while_others_use_it_but_failed_over_again_and_again() {
    for (cluster, operating, tag_is_lost) in [
        ("c2", "ERROR", false),
        ("c1", "OFFLINE", false),
        ("c2", "OFFLINE", true),
    ] {
        let (mut owner, mut guests, id) = shared_with(cluster).await;
        guests.kill();
        if tag_is_lost {
            let tags = ["kube_service_c1_default_web", "kube_cluster_id_ks-1"];
            owner.sim.relabel(id.as_str(), &json!({ "tags": tags }));
        }
        let before = guests_part(&owner.picture().await);
        give_up(&owner, &id, operating);
        owner.forget();
        owner.wait(Duration::from_secs(2 * 3600)).await;
        let writes = owner.writes();
        let failover = format!("PUT /v2/lbaas/loadbalancers/{id}/failover");
        assert!(writes.iter().all(|line| *line == failover), "{writes:?}");
        assert!((3..10).contains(&writes.len()), "{writes:?}");
        assert_eq!(guests_part(&owner.picture().await), before);
        let reported = refusal(&owner, "web");
        let tag = format!("kube_service_{cluster}_default_guest");
        for part in ["is in ERROR", "not recreated", &tag] {
            assert!(reported.contains(part), "{part}: {reported}");
        }
        // A restart knows no better.
        owner.restart().await;
        assert_eq!(guests_part(&owner.picture().await), before);
        // Once the cloud lets it be fixed, it is.
        owner.sim.configure(|it| it.failover_allowed = true);
        owner.wait(Duration::from_secs(3600)).await;
        let picture = owner.picture().await;
        assert_eq!(
            picture.balancers[0].provisioning_status,
            Provisioning::Active
        );
        assert_eq!(guests_part(&picture), before);
        assert_eq!(refusal(&owner, "web"), "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_one_is_not_recreated_although_its_owner_publishes_nothing() {
    let (mut owner, mut guests, id) = shared_with("c2").await;
    guests.kill();
    let before = guests_part(&owner.picture().await);
    // Restored from a backup: neither annotations of ours nor a status.
    owner.kill();
    owner.cluster.edit("web", |row| {
        for key in managed_annotations() {
            row.annotations.remove(key);
        }
        row.status = ServiceStatus::default();
    });
    give_up(&owner, &id, "OFFLINE");
    owner.restart().await;
    owner.wait(AUDIT).await;
    assert_eq!(guests_part(&owner.picture().await), before);
    let reported = refusal(&owner, "web");
    assert!(reported.contains("not recreated"), "{reported}");
}

#[tokio::test(start_paused = true)]
async fn a_broken_one_is_recreated_when_all_others_are_about_to_leave() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let before = rig.picture().await;
    let id = before.balancers[0].id.clone();
    rig.apply(guest(&id)).await;
    give_up(&rig, &id, "OFFLINE");
    rig.wait(AUDIT).await;
    assert_eq!(rig.picture().await.balancers[0].id, id);
    rig.delete("guest").await;
    rig.wait(AUDIT).await;
    rig.settle().await;
    let after = rig.picture().await;
    assert_eq!(after.balancers.len(), 1, "{:?}", rig.writes());
    assert_ne!(after.balancers[0].id, id);
    assert_eq!(after.floating_ips[0].id, before.floating_ips[0].id);
    assert_eq!(refusal(&rig, "web"), "");
    rig.wait(AUDIT).await;
    assert!(rig.cluster.service("guest").is_none());
}

#[tokio::test(start_paused = true)]
async fn of_two_that_were_made_for_a_service_one_stays_that_another_uses() {
    for tag_is_lost in [false, true] {
        of_two_one_stays(tag_is_lost).await;
    }
}

async fn of_two_one_stays(tag_is_lost: bool) {
    let mut owner = Rig::new("");
    owner.apply(web()).await;
    let calls = owner.sim.calls();
    let create = calls
        .iter()
        .find(|call| call.is_write() && call.path == "/v2/lbaas/loadbalancers");
    let body = serde_json::from_slice(&create.unwrap().body).unwrap();
    owner.kill();
    let second = owner
        .sim
        .hand(
            Service::LoadBalancer,
            &Method::POST,
            "/v2/lbaas/loadbalancers",
            body,
        )
        .unwrap();
    let second = second["loadbalancer"]["id"].as_str().unwrap().to_owned();
    owner.wait(Duration::from_secs(10)).await;
    let port = owner.sim.load_balancer(&second)["vip_port_id"].clone();
    floating_ip_by_hand(&owner, Some(&Id::new(port.as_str().unwrap()))).await;
    let mut guests = neighbour(&owner, "c2", "ks-2");
    guests.apply(guest(&Id::new(&second))).await;
    assert_eq!(refusal(&guests, "guest"), "");
    if tag_is_lost {
        guests.kill();
        let tags = [
            "kube_service_c1_default_web",
            "kube_cluster_id_ks-1",
            "landfall_service_uid-web",
        ];
        owner.sim.relabel(&second, &json!({ "tags": tags }));
    }
    owner.restart().await;
    owner.wait(AUDIT).await;
    owner.settle().await;
    let picture = owner.picture().await;
    assert_eq!(picture.balancers.len(), 2, "{:?}", owner.writes());
    assert_eq!(picture.members_at(8080).len(), 2);
}

/// Takes the mark of the cluster that shares from a load balancer: another controller leaves none.
fn unmark(rig: &Rig, id: &Id, picture: &Picture) {
    let tags = picture.balancers[0].tags.iter();
    let tags: Vec<&String> = tags.filter(|tag| **tag != MARK).collect();
    rig.sim.relabel(id.as_str(), &json!({ "tags": tags }));
}

#[tokio::test(start_paused = true)]
async fn what_a_cluster_of_the_same_name_uses_without_a_mark_is_no_orphan() {
    for has_tag in [true, false] {
        let (mut owner, mut guests, id) = shared_with("c1").await;
        guests.kill();
        unmark(&owner, &id, &owner.picture().await);
        owner.delete("web").await;
        assert!(owner.cluster.service("web").is_none());
        if !has_tag {
            let tags = ["kube_cluster_id_ks-1"];
            owner.sim.relabel(id.as_str(), &json!({ "tags": tags }));
        }
        let picture = owner.picture().await;
        assert!(
            picture.balancers[0]
                .tags
                .contains(&"kube_cluster_id_ks-1".to_owned())
        );
        let before = guests_part(&picture);
        let found = orphans::find(owner.looker(), &owner.settings, &[]).await;
        assert_eq!(found.unwrap().orphans, [], "{has_tag}");
        assert_eq!(guests_part(&owner.picture().await), before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_an_older_build_left_out_comes_with_the_next_change() {
    for cluster in ["c1", "c2"] {
        let (mut owner, mut guests, id) = shared_with(cluster).await;
        owner.kill();
        guests.kill();
        unmark(&owner, &id, &owner.picture().await);
        guests.forget();
        guests.restart().await;
        guests.wait(AUDIT).await;
        assert_eq!(guests.writes(), Vec::<String>::new());
        guests.add_node("z", "10.0.0.26");
        guests.settle().await;
        let picture = guests.picture().await;
        let marks = picture.balancers[0].tags.iter();
        assert_eq!(marks.filter(|tag| **tag == MARK).count(), 1);
        assert_eq!(picture.members_at(8080).len(), 3);
        let of_balancer = format!("PUT /v2/lbaas/loadbalancers/{id}");
        let writes = guests.writes();
        let written = writes.iter().filter(|line| **line == of_balancer);
        assert_eq!(written.count(), 1, "{writes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_guest_leaves_what_carries_no_tag_as_it_is() {
    for cascade in ["true", "false"] {
        let mut owner = Rig::new("");
        owner.apply(web()).await;
        owner.kill();
        let before = owner.picture().await;
        let id = before.balancers[0].id.clone();
        let mut guests = neighbour(&owner, "c2", "ks-2");
        guests.settings.conf.cascade_delete = cascade == "true";
        guests.apply(guest(&id)).await;
        // A person has made it, or a reference without tags.
        let tags = json!({"tags": ["kube_service_c2_default_guest", MARK]});
        owner.sim.relabel(id.as_str(), &tags);
        let listener = owner.picture().await.listener_at(80).id.clone();
        owner.sim.relabel(listener.as_str(), &json!({"tags": []}));
        guests.delete("guest").await;
        assert!(guests.cluster.service("guest").is_none());
        let after = owner.picture().await;
        assert_eq!(after.listeners.len(), 1, "{:?}", guests.writes());
        assert_eq!(after.listener_at(80).id, listener);
        assert_eq!(after.members_at(80), before.members_at(80));
        assert_eq!(after.floating_ips, before.floating_ips);
        assert_eq!(after.balancers[0].tags, Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_the_owner_to_which_a_guest_was_led_by_hand_stays_the_owner_s() {
    let (owner, guests, _) = shared_with("c2").await;
    let before = owner.picture().await;
    let pool = before.pool_at(80).id.clone();
    let path = format!("/v2/lbaas/listeners/{}", before.listener_at(8080).id);
    let change = json!({"listener": {"default_pool_id": pool}});
    owner
        .sim
        .hand(Service::LoadBalancer, &Method::PUT, &path, change)
        .unwrap();
    owner.forget();
    guests.wait(AUDIT).await;
    guests.settle().await;
    owner.settle().await;
    let after = owner.picture().await;
    let of_pool = format!("/v2/lbaas/pools/{pool}/members");
    let writes = owner.writes();
    assert!(
        !writes.iter().any(|line| line.contains(&of_pool)),
        "{writes:?}"
    );
    assert_eq!(after.pool_at(80).id, pool);
    assert_eq!(after.members_at(80), before.members_at(80));
    assert_eq!(after.members_at(8080), before.members_at(8080));
}

#[tokio::test(start_paused = true)]
async fn a_tag_that_another_sets_between_a_list_and_a_write_stays() {
    const THEIRS: &str = "kube_service_c3_default_late";
    let mut owner = Rig::new("");
    owner.apply(web()).await;
    let balancer = owner.picture().await.balancers[0].clone();
    let mut guests = neighbour(&owner, "c2", "ks-2");
    guests.settings.conf.max_shared_lb = 3;
    let sim = owner.sim.again();
    let mut tags = balancer.tags;
    tags.push(THEIRS.to_owned());
    let id = balancer.id.clone();
    let mut done = false;
    owner.sim.on_call(move |call| {
        let reads = call.path.starts_with("/v2/lbaas/pools") && !call.is_write();
        if reads && !std::mem::replace(&mut done, true) {
            sim.relabel(id.as_str(), &json!({ "tags": tags }));
        }
        None
    });
    guests.apply(guest(&balancer.id)).await;
    assert_eq!(refusal(&guests, "guest"), "");
    let picture = owner.picture().await;
    let tags = &picture.balancers[0].tags;
    for tag in [THEIRS, "kube_service_c2_default_guest", MARK] {
        assert!(tags.iter().any(|it| it == tag), "{tag}: {tags:?}");
    }
    assert_eq!(picture.members_at(8080).len(), 2);
}
