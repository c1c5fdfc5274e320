//! Services that share a load balancer (rows S).

use std::time::Duration;

use http::Method;
use landfall_model::status::ConditionType;
use landfall_openstack::objects::{Id, LoadBalancer, Monitor};
use landfall_openstack::orphans::{self, OrphanKind};
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::openstack::Service;
use landfall_testkit::svc;
use serde_json::json;

use crate::addresses::{floating_ip_by_hand, lb};
use crate::create::web;
use crate::rig::{Picture, Rig};
use crate::two_clusters::neighbour;
use crate::written::refusal;

const FIRST: &str = "kube_service_c1_default_web";
const SECOND: &str = "kube_service_c1_default_second";
const KEEPS: &str = "landfall_keeps_floating_ip";

fn second(port: u16, balancer: &Id) -> ServiceBuilder {
    svc("second")
        .port(port)
        .node_port(30081)
        .annotated(&lb("load-balancer-id"), balancer.as_str())
}

/// A rig with the Service of the default world, a second one on port 8080 of its load balancer, and
/// the latter's id.
pub async fn shared(conf: &str) -> (Rig, Id) {
    let mut rig = Rig::new(conf);
    rig.apply(web()).await;
    let balancer = rig.picture().await.balancers[0].id.clone();
    rig.apply(second(8080, &balancer)).await;
    (rig, balancer)
}

fn first_part(picture: &Picture) -> String {
    let pool = picture.pool_at(80);
    format!(
        "{:?} {pool:?} {:?}",
        picture.listener_at(80),
        picture.members[pool.id.as_str()]
    )
}

fn ports(picture: &Picture) -> Vec<u16> {
    let mut ports: Vec<u16> = picture
        .listeners
        .iter()
        .map(|it| it.protocol_port)
        .collect();
    ports.sort_unstable();
    ports
}

fn has_tag(balancer: &LoadBalancer, tag: &str) -> bool {
    balancer.tags.iter().any(|it| it == tag)
}

#[tokio::test(start_paused = true)]
async fn s01_a_second_service_uses_the_load_balancer_that_it_names() {
    let (mut rig, balancer) = shared("").await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(picture.balancers[0].name, FIRST);
    assert!(has_tag(&picture.balancers[0], FIRST) && has_tag(&picture.balancers[0], SECOND));
    assert_eq!(ports(&picture), [80, 8080]);
    assert_eq!(picture.listener_at(8080).tags, [SECOND]);
    assert_eq!(
        picture.listener_at(8080).name,
        format!("listener_0_{SECOND}")
    );
    assert_eq!(
        picture.members_at(8080),
        ["10.0.0.4:30081", "10.0.0.5:30081"]
    );
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(rig.published("second"), rig.published("web"));
    assert_eq!(
        rig.annotation("second", &lb("load-balancer-id")),
        Some(balancer.to_string())
    );
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn s02_a_change_of_one_leaves_the_other_alone() {
    let (mut rig, balancer) = shared("").await;
    let before = first_part(&rig.picture().await);
    rig.apply(second(8081, &balancer)).await;
    let picture = rig.picture().await;
    assert_eq!(ports(&picture), [80, 8081]);
    assert_eq!(picture.pools.len(), 2);
    assert_eq!(first_part(&picture), before);
}

#[tokio::test(start_paused = true)]
async fn s03_a_service_that_leaves_removes_only_its_own() {
    let (mut rig, _) = shared("").await;
    let before = first_part(&rig.picture().await);
    rig.delete("second").await;
    let picture = rig.picture().await;
    assert!(rig.cluster.service("second").is_none());
    assert_eq!(ports(&picture), [80]);
    assert_eq!(picture.pools.len(), 1);
    assert!(has_tag(&picture.balancers[0], FIRST) && !has_tag(&picture.balancers[0], SECOND));
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(first_part(&picture), before);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn s04_the_last_to_leave_deletes_it_whichever_made_it() {
    let (mut rig, _) = shared("").await;
    let address = rig.published("second");
    rig.delete("web").await;
    assert!(rig.cluster.service("web").is_none());
    let picture = rig.picture().await;
    assert_eq!(ports(&picture), [8080]);
    assert!(!has_tag(&picture.balancers[0], FIRST) && has_tag(&picture.balancers[0], SECOND));
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(rig.published("second"), address);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.delete("second").await;
    assert!(rig.picture().await.is_empty(), "{:?}", rig.picture().await);
    assert!(rig.cluster.service("second").is_none());
}

#[tokio::test(start_paused = true)]
async fn s05_no_more_than_a_few_may_share() {
    let (mut rig, balancer) = shared("max-shared-lb=2").await;
    let before = rig.sim.load_balancer(balancer.as_str());
    rig.forget();
    let third = svc("third").port(9090).node_port(30082);
    rig.apply(third.annotated(&lb("load-balancer-id"), balancer.as_str()))
        .await;
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(failed.len(), 1);
    assert!(failed[0].contains("at most 2"), "{failed:?}");
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(rig.sim.load_balancer(balancer.as_str()), before);
    // When one leaves, there is room; the next audit sees it.
    rig.delete("second").await;
    rig.wait(std::time::Duration::from_secs(200)).await;
    assert_eq!(ports(&rig.picture().await), [80, 9090]);
}

#[tokio::test(start_paused = true)]
async fn s06_a_port_that_is_taken_is_refused() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let balancer = rig.picture().await.balancers[0].id.clone();
    let before = rig.sim.load_balancer(balancer.as_str());
    rig.forget();
    rig.apply(second(80, &balancer)).await;
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(failed.len(), 1);
    assert!(
        failed[0].contains("80") && failed[0].contains(FIRST),
        "{failed:?}"
    );
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.delete("second").await;
    assert!(rig.cluster.service("second").is_none());
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(rig.sim.load_balancer(balancer.as_str()), before);
}

#[tokio::test(start_paused = true)]
async fn s06_the_same_port_of_another_protocol_is_free() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let balancer = rig.picture().await.balancers[0].id.clone();
    let service = svc("second").udp_port("", 80).node_port(30081);
    rig.apply(service.annotated(&lb("load-balancer-id"), balancer.as_str()))
        .await;
    assert_eq!(ports(&rig.picture().await), [80, 80]);
    assert_eq!(
        rig.cluster.messages("SyncLoadBalancerFailed"),
        Vec::<String>::new()
    );
}

/// A load balancer that a person made, ready, with a listener on port 22 of theirs.
pub async fn by_hand(rig: &Rig) -> LoadBalancer {
    let body = json!({"loadbalancer": {
        "name": "mine", "vip_subnet_id": rig.sim.subnet(), "tags": ["keep me"],
        "listeners": [{"name": "ssh", "protocol": "TCP", "protocol_port": 22}],
    }});
    let path = "/v2/lbaas/loadbalancers";
    let made = rig
        .sim
        .hand(Service::LoadBalancer, &Method::POST, path, body);
    let made = serde_json::from_value(made.unwrap()["loadbalancer"].take()).unwrap();
    rig.wait(std::time::Duration::from_secs(5)).await;
    made
}

#[tokio::test(start_paused = true)]
async fn s09_an_external_service_does_not_begin_on_one_without_a_floating_ip() {
    let mut rig = Rig::new("");
    let mine = by_hand(&rig).await;
    let before = rig.sim.load_balancer(mine.id.as_str());
    rig.apply(second(8080, &mine.id)).await;
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(failed.len(), 1);
    assert!(failed[0].contains("no floating IP"), "{failed:?}");
    assert_eq!(rig.sim.load_balancer(mine.id.as_str()), before);
    assert_eq!(rig.picture().await.floating_ips, []);
    // Once it has one, the next audit sees it.
    let floating_ip = floating_ip_by_hand(&rig, mine.vip_port_id.as_ref()).await;
    rig.wait(std::time::Duration::from_secs(200)).await;
    assert_eq!(
        rig.published("second"),
        [floating_ip.floating_ip_address.to_string()]
    );
    assert_eq!(ports(&rig.picture().await), [22, 8080]);
}

#[tokio::test(start_paused = true)]
async fn s10_one_that_a_person_made_is_used_and_left_as_it_was() {
    let mut rig = Rig::new("");
    let mine = by_hand(&rig).await;
    let floating_ip = floating_ip_by_hand(&rig, mine.vip_port_id.as_ref()).await;
    rig.apply(second(8080, &mine.id)).await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(picture.balancers[0].name, "mine");
    assert_eq!(picture.balancers[0].tags, ["keep me", SECOND]);
    assert_eq!(ports(&picture), [22, 8080]);
    assert_eq!(
        rig.published("second"),
        [floating_ip.floating_ip_address.to_string()]
    );
    rig.delete("second").await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(picture.balancers[0].tags, ["keep me"]);
    assert_eq!(ports(&picture), [22]);
    assert_eq!(picture.pools, []);
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(picture.floating_ips[0].port_id, mine.vip_port_id);
    assert!(rig.cluster.service("second").is_none());
}

#[tokio::test(start_paused = true)]
async fn s11_without_tags_there_is_no_sharing() {
    let mut rig = Rig::new("");
    let mine = by_hand(&rig).await;
    floating_ip_by_hand(&rig, mine.vip_port_id.as_ref()).await;
    rig.sim.configure(|it| it.api_minor = 4);
    rig.apply(second(8080, &mine.id)).await;
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(failed.len(), 1);
    assert!(
        failed[0].contains("2.5") && failed[0].contains("2.4"),
        "{failed:?}"
    );
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn s11_a_service_that_shares_does_not_become_internal_and_goes_on_as_it_was() {
    let key = "service.beta.kubernetes.io/openstack-internal-load-balancer";
    let (mut rig, balancer) = shared("").await;
    let (before, published) = (rig.picture().await, rig.published("second"));
    rig.forget();
    rig.apply(second(8080, &balancer).annotated(key, "true"))
        .await;
    let reported = rig.cluster.messages("SyncLoadBalancerFailed").join("; ");
    assert!(reported.contains("can't share"), "{reported}");
    assert!(refusal(&rig, "second").contains("can't share"));
    assert_eq!(rig.writes(), Vec::<String>::new());
    // What is open is what is published, and it follows nodes.
    assert_eq!(rig.published("second"), published);
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let picture = rig.picture().await;
    assert_eq!(picture.members_at(8080).len(), 3);
    assert_eq!(ports(&picture), ports(&before));
    rig.restart().await;
    assert_eq!(rig.published("second"), published);
    rig.edit("second", |row| {
        row.annotations.remove(key);
    })
    .await;
    assert_eq!(refusal(&rig, "second"), "");
    assert_eq!(rig.published("second"), published);
}

#[tokio::test(start_paused = true)]
async fn s11_an_internal_service_does_not_share() {
    let mut rig = Rig::new("");
    let mine = by_hand(&rig).await;
    floating_ip_by_hand(&rig, mine.vip_port_id.as_ref()).await;
    rig.forget();
    let key = "service.beta.kubernetes.io/openstack-internal-load-balancer";
    rig.apply(second(8080, &mine.id).annotated(key, "true"))
        .await;
    assert_eq!(rig.cluster.messages("SyncLoadBalancerFailed").len(), 1);
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn s12_a_node_that_comes_changes_members_and_nothing_else() {
    let (mut rig, _) = shared("create-monitor=true").await;
    let named = |monitors: &[Monitor]| {
        let mut names: Vec<String> = monitors.iter().map(|it| it.name.clone()).collect();
        names.sort();
        names
    };
    let monitors = named(&rig.picture().await.monitors);
    assert_eq!(
        monitors,
        [format!("monitor_0_{SECOND}"), format!("monitor_0_{FIRST}")]
    );
    rig.forget();
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let picture = rig.picture().await;
    assert_eq!(picture.members_at(80).len(), 3);
    assert_eq!(picture.members_at(8080).len(), 3);
    assert_eq!(named(&picture.monitors), monitors);
    let mut lines = rig.writes();
    lines.sort();
    // A guess of when Octavia is done may be wrong, and costs a refused call.
    lines.dedup();
    let mut wanted: Vec<String> = [80, 8080]
        .iter()
        .map(|port| {
            let pool = &picture.pool_at(*port).id;
            format!("PUT /v2/lbaas/pools/{pool}/members?additive_only=true")
        })
        .collect();
    wanted.sort();
    assert_eq!(lines, wanted, "{:?}", rig.writes());
}

#[tokio::test(start_paused = true)]
async fn s12_another_floating_ip_is_published_by_all_at_once() {
    let (mut rig, _) = shared("").await;
    let other = floating_ip_by_hand(&rig, None).await;
    let other = [other.floating_ip_address.to_string()];
    let begun = tokio::time::Instant::now();
    rig.apply(web().load_balancer_ip(&other[0])).await;
    assert_eq!(rig.published("web"), other);
    assert_eq!(rig.published("second"), other);
    assert_eq!(
        rig.annotation("second", &lb("load-balancer-address")),
        Some(other[0].clone())
    );
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    assert_eq!(rig.picture().await.floating_ips.len(), 1);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

/// Writes the annotation as a person would, over the id of the Service's own load balancer.
async fn name_another(rig: &mut Rig, id: &str) {
    let key = lb("load-balancer-id");
    rig.edit("web", |row| {
        row.annotations.insert(key.clone(), id.to_owned());
        row.status.marks.insert(key, id.to_owned());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_service_does_not_leave_its_own_for_another_that_is_named_later() {
    let nowhere = "99999999-9999-4999-8999-999999999999";
    for id in ["theirs", nowhere, "🦀"] {
        let mut rig = Rig::new("");
        let mine = by_hand(&rig).await;
        floating_ip_by_hand(&rig, mine.vip_port_id.as_ref()).await;
        let id = if id == "theirs" { mine.id.as_str() } else { id };
        rig.apply(web()).await;
        let own = rig.picture().await.balancers;
        let own = own.iter().find(|it| it.name == FIRST).unwrap().id.clone();
        let published = rig.published("web");
        let before = rig.sim.load_balancer(mine.id.as_str());
        rig.forget();
        name_another(&mut rig, id).await;
        let reported = rig.cluster.messages("LoadBalancerIdIgnored");
        assert_eq!(reported.len(), 1, "{id}");
        let parts = [lb("load-balancer-id"), id.to_owned(), own.to_string()];
        assert!(
            parts.iter().all(|part| reported[0].contains(part)),
            "{reported:?}"
        );
        assert_eq!(rig.writes(), Vec::<String>::new(), "{id}");
        // What another client wrote is neither overwritten nor followed.
        rig.restart().await;
        assert_eq!(rig.writes(), Vec::<String>::new(), "{id}");
        assert_eq!(
            rig.annotation("web", &lb("load-balancer-id")),
            Some(id.to_owned())
        );
        assert_eq!(rig.published("web"), published);
        rig.add_node("c", "10.0.0.6");
        rig.settle().await;
        assert_eq!(rig.picture().await.members_at(80).len(), 3);
        rig.delete("web").await;
        let picture = rig.picture().await;
        assert_eq!(picture.balancers.len(), 1, "{id}");
        assert_eq!(rig.sim.load_balancer(mine.id.as_str()), before);
        assert_eq!(picture.floating_ips.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_does_not_leave_one_that_it_shares_for_another_that_is_named_later() {
    for id in ["theirs", "99999999-9999-4999-8999-999999999999", "🦀"] {
        let (mut rig, shared) = shared("").await;
        let theirs = by_hand(&rig).await;
        floating_ip_by_hand(&rig, theirs.vip_port_id.as_ref()).await;
        let before = rig.sim.load_balancer(theirs.id.as_str());
        let id = if id == "theirs" {
            theirs.id.as_str()
        } else {
            id
        };
        let published = rig.published("second");
        rig.forget();
        let named = |row: &mut landfall_model::rows::ServiceRow| {
            let key = lb("load-balancer-id");
            row.annotations.insert(key, id.to_owned());
        };
        rig.edit("second", named).await;
        let reported = rig.cluster.messages("LoadBalancerIdIgnored");
        assert_eq!(reported.len(), 1, "{id}");
        let parts = [id.to_owned(), shared.to_string()];
        assert!(
            parts.iter().all(|part| reported[0].contains(part)),
            "{reported:?}"
        );
        rig.restart().await;
        assert_eq!(rig.writes(), Vec::<String>::new(), "{id}");
        assert_eq!(rig.published("second"), published);
        rig.delete("second").await;
        let picture = rig.picture().await;
        assert_eq!(ports(&picture), [22, 80], "{id}");
        assert_eq!(rig.sim.load_balancer(theirs.id.as_str()), before);
        rig.delete("web").await;
        assert_eq!(rig.picture().await.balancers.len(), 1, "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_does_not_leave_one_that_it_shares_because_no_annotation_names_it_any_more() {
    let (mut rig, balancer) = shared("").await;
    let published = rig.published("second");
    rig.forget();
    let unnamed = |row: &mut landfall_model::rows::ServiceRow| {
        row.annotations.remove(&lb("load-balancer-id"));
    };
    rig.edit("second", unnamed).await;
    // It says again where it is, as a Service does that has one of its own.
    let named = rig.annotation("second", &lb("load-balancer-id"));
    assert_eq!(named, Some(balancer.to_string()));
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(rig.published("second"), published);
    rig.delete("web").await;
    assert_eq!(ports(&rig.picture().await), [8080]);
    rig.delete("second").await;
    assert!(rig.picture().await.is_empty(), "{:?}", rig.picture().await);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_no_longer_names_another_has_the_id_of_its_own_again() {
    let mut rig = Rig::new("");
    let mine = by_hand(&rig).await;
    rig.apply(web()).await;
    let own = rig.annotation("web", &lb("load-balancer-id"));
    name_another(&mut rig, mine.id.as_str()).await;
    rig.edit("web", |row| {
        row.annotations.remove(&lb("load-balancer-id"));
        row.status.marks.remove(&lb("load-balancer-id"));
    })
    .await;
    assert_eq!(rig.annotation("web", &lb("load-balancer-id")), own);
}

#[tokio::test(start_paused = true)]
async fn s13_the_service_that_made_it_and_comes_back_finds_it() {
    let (mut rig, balancer) = shared("").await;
    rig.delete("web").await;
    let again = web().with(|row| row.uid = landfall_model::Uid::new("uid-web-again"));
    rig.apply(again).await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(picture.balancers[0].id, balancer);
    assert!(has_tag(&picture.balancers[0], FIRST) && has_tag(&picture.balancers[0], SECOND));
    assert_eq!(ports(&picture), [80, 8080]);
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(rig.published("web"), rig.published("second"));
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

/// What a Service of a neighbour is served by, on the load balancer of another cluster.
fn guests_part(picture: &Picture) -> String {
    let pool = picture.pool_at(8080);
    let balancer = &picture.balancers[0];
    let floating_ips: Vec<_> = picture
        .floating_ips
        .iter()
        .map(|it| (&it.id, &it.port_id))
        .collect();
    format!(
        "{} {floating_ips:?} {:?} {pool:?} {:?}",
        balancer.id,
        picture.listener_at(8080),
        picture.members[pool.id.as_str()]
    )
}

#[tokio::test(start_paused = true)]
async fn what_a_neighbour_uses_is_no_orphan_when_its_owner_has_gone() {
    // Of two clusters of one name, too.
    for cluster in ["c2", "c1"] {
        let mut owner = Rig::new("");
        owner.apply(web()).await;
        let id = owner.picture().await.balancers[0].id.clone();
        let mut guest = neighbour(&owner, cluster, "ks-2");
        guest.apply(second(8080, &id)).await;
        assert_eq!(guest.published("second"), owner.published("web"));
        owner.delete("web").await;
        assert!(owner.cluster.service("web").is_none());
        let picture = owner.picture().await;
        assert_eq!(ports(&picture), [8080]);
        // Nothing on it says any more that it is the first cluster's, where names can distinguish
        // clusters.
        let tags = &picture.balancers[0].tags;
        assert!(
            has_tag(&picture.balancers[0], "landfall_shared_by_ks-2"),
            "{tags:?}"
        );
        let ours = has_tag(&picture.balancers[0], "kube_cluster_id_ks-1");
        assert_eq!(ours, cluster == "c1", "{tags:?}");
        let before = guests_part(&picture);
        let found = orphans::find(owner.looker(), &owner.settings, &[])
            .await
            .unwrap();
        assert_eq!(found.orphans, [], "{tags:?}");
        guest.wait(std::time::Duration::from_secs(200)).await;
        assert_eq!(guests_part(&owner.picture().await), before);
        assert_eq!(guest.published("second").len(), 1);
        // The last one to leave takes it along.
        guest.delete("second").await;
        assert!(owner.picture().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_gets_a_user_between_list_and_deletion_stays() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let found = orphans::find(rig.looker(), &rig.settings, &[])
        .await
        .unwrap();
    let kinds: Vec<OrphanKind> = found.orphans.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [OrphanKind::FloatingIp, OrphanKind::LoadBalancer]);
    let before = rig.picture().await;
    let mut guest = neighbour(&rig, "c2", "ks-2");
    guest.apply(second(8080, &before.balancers[0].id)).await;
    rig.forget();
    for orphan in &found.orphans {
        let deleted = orphans::delete(rig.looker(), &rig.settings, &[], orphan).await;
        assert!(!deleted.unwrap(), "{orphan}");
    }
    let after = rig.picture().await;
    assert_eq!(after.balancers.len(), 1);
    assert_eq!(after.floating_ips, before.floating_ips);
    // Without it, they go.
    guest.delete("second").await;
    for orphan in &found.orphans {
        let deleted = orphans::delete(rig.looker(), &rig.settings, &[], orphan).await;
        assert!(deleted.unwrap(), "{orphan}");
        rig.wait(std::time::Duration::from_secs(10)).await;
    }
    assert_eq!(rig.picture().await.balancers, []);
    assert_eq!(rig.picture().await.floating_ips, []);
}

#[tokio::test(start_paused = true)]
async fn a_listener_of_another_service_keeps_a_load_balancer_whose_tag_was_lost() {
    for cascade in ["true", "false"] {
        let mut rig = Rig::new(&format!("cascade-delete={cascade}"));
        rig.apply(web()).await;
        let balancer = rig.picture().await.balancers[0].id.clone();
        let mut guest = neighbour(&rig, "c2", "ks-2");
        guest.apply(second(8080, &balancer)).await;
        guest.kill();
        let tags = rig.picture().await.balancers[0].tags.clone();
        let tags: Vec<&String> = tags.iter().filter(|it| !it.contains("_c2_")).collect();
        rig.sim.relabel(balancer.as_str(), &json!({"tags": tags}));
        rig.wait(std::time::Duration::from_secs(10)).await;
        rig.delete("web").await;
        assert!(rig.cluster.service("web").is_none());
        let picture = rig.picture().await;
        assert_eq!(ports(&picture), [8080], "{cascade}");
        assert_eq!(picture.floating_ips.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn no_traffic_is_said_to_flow_before_the_ports_are_served() {
    let mut rig = Rig::new("");
    rig.sim.settle_in(Duration::from_secs(5));
    rig.apply(web()).await;
    let id = rig.picture().await.balancers[0].id.clone();
    let second = svc("second").port(81).node_port(30081);
    let named = second.annotated(&lb("load-balancer-id"), id.as_str());
    rig.cluster.apply(&named.row());
    for _ in 0..200 {
        rig.wait(Duration::from_millis(200)).await;
        let status = rig.cluster.service("second").unwrap().status;
        let flows = status.condition(ConditionType::Programmed);
        if flows.is_some_and(|it| it.status) {
            break;
        }
    }
    let picture = rig.picture().await;
    assert_eq!(picture.members_at(81).len(), 2);
    assert_eq!(refusal(&rig, "second"), "");
}

#[tokio::test(start_paused = true)]
async fn f10_a_floating_ip_that_its_service_wanted_kept_outlives_those_that_share_it() {
    let (mut rig, balancer) = shared("").await;
    let address = rig.published("web");
    rig.apply(web().annotated(&lb("keep-floatingip"), "true"))
        .await;
    rig.delete("web").await;
    let picture = rig.picture().await;
    assert!(has_tag(&picture.balancers[0], KEEPS), "{picture:?}");
    rig.restart().await;
    rig.delete("second").await;
    assert!(rig.cluster.service("second").is_none());
    let picture = rig.picture().await;
    assert!(picture.balancers.is_empty(), "{balancer}");
    let kept: Vec<String> = picture
        .floating_ips
        .iter()
        .map(|it| it.floating_ip_address.to_string())
        .collect();
    assert_eq!(kept, address);
}

#[tokio::test(start_paused = true)]
async fn f10_the_last_word_of_its_service_decides_whether_a_floating_ip_is_kept() {
    let (mut rig, _) = shared("").await;
    rig.apply(web().annotated(&lb("keep-floatingip"), "true"))
        .await;
    rig.delete("web").await;
    // It comes back, wants nothing kept, and leaves once more.
    rig.apply(web()).await;
    rig.delete("web").await;
    assert!(!has_tag(&rig.picture().await.balancers[0], KEEPS));
    rig.delete("second").await;
    assert!(rig.picture().await.is_empty());
}
