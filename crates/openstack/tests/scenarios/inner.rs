//! Internal Services that share a load balancer, and tags on what is made in Neutron.

use http::Method;
use landfall_openstack::objects::Id;
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::openstack::Service;
use landfall_testkit::svc;
use serde_json::json;

use crate::addresses::{INTERNAL, floating_ip_by_hand, lb};
use crate::create::web;
use crate::rig::Rig;
use crate::sharing::by_hand;
use crate::written::{refusal, short};

const MARK: &str = "landfall_internal_uid-second";

fn second(balancer: &Id) -> ServiceBuilder {
    let service = svc("second").port(8080).node_port(30_081);
    service
        .annotated(&lb("load-balancer-id"), balancer.as_str())
        .annotated(INTERNAL, "true")
}

/// An internal Service of the default world, a second one that shares its load balancer, and the
/// latter's id.
async fn shared_inside() -> (Rig, Id) {
    let mut rig = Rig::new("");
    rig.apply(web().annotated(INTERNAL, "true")).await;
    let balancer = rig.picture().await.balancers[0].id.clone();
    rig.apply(second(&balancer)).await;
    (rig, balancer)
}

async fn is_marked(rig: &Rig) -> bool {
    let picture = rig.picture().await;
    picture.balancers[0].tags.iter().any(|tag| tag == MARK)
}

#[tokio::test(start_paused = true)]
async fn s15_internal_services_share_an_internal_load_balancer() {
    let (mut rig, _) = shared_inside().await;
    assert_eq!(refusal(&rig, "second"), "");
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(picture.floating_ips, []);
    assert_eq!(picture.members_at(8080).len(), 2);
    let vip = picture.balancers[0].vip_address.unwrap().to_string();
    assert_eq!(rig.published("second"), [vip.as_str()]);
    assert_eq!(rig.published("web"), [vip.as_str()]);
    assert!(is_marked(&rig).await);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.delete("second").await;
    assert!(!is_marked(&rig).await);
    assert_eq!(rig.picture().await.listeners.len(), 1);
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn s15_the_one_that_made_it_is_not_exposed_while_internal_ones_share_it() {
    let (mut rig, _) = shared_inside().await;
    let published = rig.published("web");
    rig.apply(web()).await;
    assert_eq!(rig.picture().await.floating_ips, []);
    assert_eq!(rig.published("web"), published);
    let reported = refusal(&rig, "web");
    assert!(
        reported.contains("internal Services share it"),
        "{reported}"
    );
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let picture = rig.picture().await;
    assert_eq!(picture.members_at(80).len(), 3);
    assert_eq!(picture.members_at(8080).len(), 3);
    // Once no internal one uses it, it is.
    rig.delete("second").await;
    rig.wait(std::time::Duration::from_secs(200)).await;
    rig.settle().await;
    assert_eq!(rig.picture().await.floating_ips.len(), 1);
    assert_eq!(refusal(&rig, "web"), "");
}

#[tokio::test(start_paused = true)]
async fn s15_one_that_a_person_made_is_shared_inside_until_it_is_reached_from_outside() {
    let mut rig = Rig::new("");
    let mine = by_hand(&rig).await;
    rig.apply(second(&mine.id)).await;
    assert_eq!(refusal(&rig, "second"), "");
    let vip = mine.vip_address.unwrap().to_string();
    assert_eq!(rig.published("second"), [vip]);
    floating_ip_by_hand(&rig, mine.vip_port_id.as_ref()).await;
    rig.wait(std::time::Duration::from_secs(200)).await;
    rig.settle().await;
    let reported = refusal(&rig, "second");
    assert!(reported.contains("can't share"), "{reported}");
    assert_eq!(rig.picture().await.members_at(8080).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn s15_a_service_that_is_external_does_not_begin_on_an_internal_one() {
    let mut rig = Rig::new("");
    rig.apply(web().annotated(INTERNAL, "true")).await;
    let balancer = rig.picture().await.balancers[0].id.clone();
    rig.apply(second(&balancer).annotated(INTERNAL, "false"))
        .await;
    assert!(
        refusal(&rig, "second").contains("no floating IP"),
        "{}",
        refusal(&rig, "second")
    );
    assert_eq!(rig.picture().await.listeners.len(), 1);
    assert!(!is_marked(&rig).await);
}

fn tagged() -> ServiceBuilder {
    web()
        .annotated(&short("floating-ip-tags"), "team-a, cost=7")
        .annotated(&short("security-group-tags"), "team-a")
}

fn sorted(tags: &[String]) -> Vec<String> {
    let mut tags = tags.to_vec();
    tags.sort();
    tags
}

#[tokio::test(start_paused = true)]
async fn f36_and_g15_floating_ips_and_groups_get_the_tags_that_their_service_asks_for() {
    let mut rig = Rig::new("manage-security-groups=true");
    rig.apply(tagged()).await;
    let picture = rig.picture().await;
    assert_eq!(sorted(&picture.floating_ips[0].tags), ["cost=7", "team-a"]);
    assert_eq!(picture.groups[0].tags, ["team-a"]);
    assert_eq!(refusal(&rig, "web"), "");
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    // Those of others stay beside them.
    let path = format!("/v2.0/floatingips/{}/tags", picture.floating_ips[0].id);
    let mine = json!({"tags": ["mine"]});
    let replaced = rig.sim.hand(Service::Network, &Method::PUT, &path, mine);
    replaced.unwrap();
    rig.restart().await;
    let tags = &rig.picture().await.floating_ips[0].tags;
    assert_eq!(sorted(tags), ["cost=7", "mine", "team-a"]);
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_person_made_gets_no_tags_and_a_refused_tag_keeps_nothing_from_being_done() {
    let mut rig = Rig::new("");
    let mine = floating_ip_by_hand(&rig, None).await;
    let address = mine.floating_ip_address.to_string();
    rig.apply(tagged().load_balancer_ip(&address)).await;
    assert_eq!(rig.published("web"), [address]);
    assert_eq!(
        rig.picture().await.floating_ips[0].tags,
        Vec::<String>::new()
    );
    let mut rig = Rig::new("manage-security-groups=true");
    rig.sim.on_call(|call| {
        let hit = call.is_write() && call.path.ends_with("/tags");
        hit.then(|| landfall_testkit::openstack::Fault::status(call.service, 400, "Bad tag"))
    });
    rig.apply(tagged()).await;
    assert_eq!(rig.published("web").len(), 1);
    assert_eq!(rig.picture().await.members_at(80).len(), 2);
    let reported = refusal(&rig, "web");
    assert!(reported.contains("-tags"), "{reported}");
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80).len(), 3);
}
