//! IPv6, two families, changes of the address, and things of the cloud that are not there (rows F).

use std::time::Duration;

use http::Method;
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::openstack::Service;
use serde_json::json;

use crate::addresses::{floating_ip_by_hand, lb};
use crate::create::web;
use crate::rig::stage::Stage;
use crate::rig::{Picture, Rig};

pub const NOWHERE: &str = "99999999-9999-4999-8999-999999999999";

/// The default world with an IPv6 subnet beside S, its id, and configuration after
/// `[LoadBalancer]`.
pub fn six(conf: &str, nodes: &[(&str, &str)]) -> (Rig, String) {
    let sim = Stage::new();
    let cidr = "2001:db8::/64".parse().unwrap();
    let subnet = sim.add_subnet(&sim.network(), "sub6", cidr, &[]);
    let text = format!(
        "[LoadBalancer]\nfloating-network-id={}\nsubnet-id={subnet}\n{conf}",
        sim.external_network()
    );
    let mut rig = Rig::bare(sim, &text);
    for (name, address) in nodes {
        rig.add_node(name, address);
    }
    (rig, subnet)
}

const NODES: [(&str, &str); 2] = [("a", "2001:db8::4"), ("b", "2001:db8::5")];

fn web6() -> ServiceBuilder {
    web().families(&[Family::V6], FamilyPolicy::SingleStack)
}

#[tokio::test(start_paused = true)]
async fn f31_an_ipv6_service_is_reached_at_its_vip() {
    let (mut rig, _) = six("", &NODES);
    rig.apply(web6()).await;
    let picture = rig.picture().await;
    let vip = picture.balancers[0].vip_address.unwrap();
    assert!(vip.is_ipv6());
    assert_eq!(
        picture.members_at(80),
        ["2001:db8::4:30080", "2001:db8::5:30080"]
    );
    let every_client = &["::/0".to_owned()][..];
    assert_eq!(
        picture.listener_at(80).allowed_cidrs.as_deref(),
        (!rig.sim.is_ovn()).then_some(every_client)
    );
    assert_eq!(picture.floating_ips, []);
    assert_eq!(rig.published("web"), [vip.to_string()]);
    assert_eq!(
        rig.cluster.messages("LoadBalancerFloatingIPSkipped").len(),
        1
    );
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn f32_an_ipv6_service_gets_the_vip_it_asks_for() {
    let (mut rig, _) = six("", &NODES);
    rig.apply(web6().load_balancer_ip("2001:db8::50")).await;
    assert_eq!(rig.published("web"), ["2001:db8::50"]);
}

#[tokio::test(start_paused = true)]
async fn f34_a_made_up_name_of_an_ipv6_address_is_a_valid_one() {
    let (mut rig, _) = six("enable-ingress-hostname=true", &NODES);
    let service = web6().annotated(&lb("proxy-protocol"), "true");
    rig.apply(service.load_balancer_ip("2001:db8::50")).await;
    assert_eq!(rig.published("web"), ["2001-db8--50.nip.io"]);
}

/// The network has no subnet of IPv6 (any more).
pub fn leave_four_only(rig: &Rig) {
    let ask = |method: &Method, path: &str| {
        let answer = rig.sim.hand(Service::Network, method, path, json!(null));
        answer.unwrap()
    };
    let subnets = ask(&Method::GET, "/v2.0/subnets");
    for subnet in subnets["subnets"].as_array().unwrap() {
        if subnet["ip_version"] == 6 && subnet["network_id"] == rig.sim.network() {
            let id = subnet["id"].as_str().unwrap();
            ask(&Method::DELETE, &format!("/v2.0/subnets/{id}"));
        }
    }
}

/// Nodes that can serve a VIP of either family. With amphorae those of IPv4 can.
fn with_members_of_both(rig: &Rig) {
    if rig.sim.is_ovn() {
        crate::dual::with_both(rig);
    }
}

/// The second VIP: the load balancer's own, or, where members must be of its family, that of the
/// load balancer beside it. With its subnet.
fn second_vip(rig: &Rig, picture: &Picture) -> (String, String) {
    let (address, subnet) = if rig.sim.is_ovn() {
        assert_eq!(picture.balancers.len(), 2);
        let mut balancers = picture.balancers.iter();
        let second = balancers.find(|it| it.vip_address.unwrap().is_ipv6());
        let second = second.unwrap();
        (second.vip_address, second.vip_subnet_id.as_ref())
    } else {
        let [second] = picture.balancers[0].additional_vips.as_slice() else {
            panic!("{picture:#?}");
        };
        (second.ip_address, second.subnet_id.as_ref())
    };
    (address.unwrap().to_string(), subnet.unwrap().to_string())
}

pub fn dual(policy: FamilyPolicy) -> ServiceBuilder {
    web().families(&[Family::V4, Family::V6], policy)
}

#[tokio::test(start_paused = true)]
async fn f33_a_service_of_two_families_has_two_addresses() {
    let mut rig = Rig::new("");
    leave_four_only(&rig);
    let cidr = "2001:db8::/64".parse().unwrap();
    let subnet = rig.sim.add_subnet(&rig.sim.network(), "sub6", cidr, &[]);
    with_members_of_both(&rig);
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    let picture = rig.picture().await;
    let (six, subnet_of_six) = second_vip(&rig, &picture);
    assert_eq!(subnet_of_six, subnet);
    let four = picture.floating_ips[0].floating_ip_address.to_string();
    assert_eq!(rig.published("web"), [four, six]);
    // Every client of both families may connect, which needs no request to the provider ovn.
    let ovn = rig.sim.is_ovn();
    let allowed = |picture: &Picture, port| {
        let mut allowed = picture.listener_at(port).allowed_cidrs.clone();
        allowed.as_deref_mut().map(<[String]>::sort);
        allowed
    };
    let every_client = || vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()];
    assert_eq!(allowed(&picture, 80), (!ovn).then(every_client));
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    // A port that comes later is open to both as well.
    let more = dual(FamilyPolicy::RequireDualStack).with(|row| row.ports[0].name = "a".to_owned());
    rig.apply(more.named_port("b", 443).node_port(30443)).await;
    assert_eq!(
        allowed(&rig.picture().await, 443),
        (!ovn).then(every_client)
    );
}

#[tokio::test(start_paused = true)]
async fn f33_the_address_that_is_asked_for_of_the_second_family_is_had() {
    let mut rig = Rig::new("");
    // It is not in the first subnet of the family.
    for cidr in ["2001:db8:1::/64", "2001:db8::/64"] {
        let cidr = cidr.parse().unwrap();
        rig.sim.add_subnet(&rig.sim.network(), "sub6", cidr, &[]);
    }
    with_members_of_both(&rig);
    let service = dual(FamilyPolicy::PreferDualStack).load_balancer_ip("2001:db8::77");
    rig.apply(service).await;
    let picture = rig.picture().await;
    let four = picture.floating_ips[0].floating_ip_address.to_string();
    assert_eq!(rig.published("web"), [four, "2001:db8::77".to_owned()]);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn f33_one_address_is_enough_where_two_are_only_preferred() {
    let mut rig = Rig::new("");
    leave_four_only(&rig);
    rig.apply(dual(FamilyPolicy::PreferDualStack)).await;
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn f33_where_two_are_required_one_is_not_made() {
    let mut rig = Rig::new("");
    leave_four_only(&rig);
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(failed.len(), 1);
    assert!(failed[0].contains("spec.ipFamilies"), "{failed:?}");
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn f33_a_service_that_wants_two_later_goes_on_with_one() {
    let mut rig = Rig::new("");
    leave_four_only(&rig);
    rig.apply(web()).await;
    let before = rig.published("web");
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    assert_eq!(rig.published("web"), before);
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn another_address_is_taken_when_it_is_asked_for() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let made = rig.picture().await.floating_ips[0].clone();
    let one = floating_ip_by_hand(&rig, None).await;
    let other = floating_ip_by_hand(&rig, None).await;
    let address = |it: &landfall_openstack::objects::FloatingIp| it.floating_ip_address.to_string();
    rig.forget();
    rig.apply(web().load_balancer_ip(&address(&one))).await;
    assert_eq!(rig.published("web"), [address(&one)]);
    assert_eq!(
        rig.writes(),
        [
            format!("PUT /v2.0/floatingips/{}", made.id),
            format!("PUT /v2.0/floatingips/{}", one.id),
            // Not before the other one serves.
            format!("DELETE /v2.0/floatingips/{}", made.id),
        ]
    );
    // What a person made is only detached.
    rig.apply(web().annotated("landfall.dev/addresses", &address(&other)))
        .await;
    assert_eq!(rig.published("web"), [address(&other)]);
    let picture = rig.picture().await;
    assert_eq!(picture.floating_ips.len(), 2);
    let left = picture.floating_ips.iter().find(|it| it.id == one.id);
    assert_eq!(left.unwrap().port_id, None);
    // A Service that asks for nothing keeps what there is.
    rig.forget();
    rig.apply(web()).await;
    assert_eq!(rig.published("web"), [address(&other)]);
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_not_there_leaves_the_one_that_is() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let before = rig.published("web");
    rig.forget();
    rig.apply(web().annotated("landfall.dev/addresses", "198.18.200.200"))
        .await;
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(failed.len(), 1);
    assert!(failed[0].contains("198.18.200.200"), "{failed:?}");
    assert!(failed[0].contains("landfall.dev/addresses"), "{failed:?}");
    assert_eq!(rig.published("web"), before);
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_floating_ip_removed_by_hand_is_replaced_and_reported() {
    for wait in [0, 400] {
        let mut rig = Rig::new("");
        rig.apply(web()).await;
        rig.wait(Duration::from_secs(wait)).await;
        let lost = rig.picture().await.floating_ips[0].clone();
        // Its address has another owner at once.
        rig.sim.delete(lost.id.as_str());
        floating_ip_by_hand(&rig, None).await;
        rig.wait(Duration::from_secs(200)).await;
        let picture = rig.picture().await;
        let port = picture.balancers[0].vip_port_id.clone();
        let found = picture.floating_ips.iter().find(|it| it.port_id == port);
        let found = found.unwrap().floating_ip_address;
        assert_ne!(found, lost.floating_ip_address);
        assert_eq!(rig.published("web"), [found.to_string()]);
        let reported = rig.cluster.messages("LoadBalancerFloatingIPLost");
        assert_eq!(reported.len(), 1, "{:?}", rig.cluster.events());
        assert!(reported[0].contains(&lost.floating_ip_address.to_string()));
        rig.delete("web").await;
        assert_eq!(rig.picture().await.floating_ips.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_floating_ip_detached_by_hand_is_attached_again() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let before = rig.published("web");
    let floating_ip = rig.picture().await.floating_ips[0].id.clone();
    let detached = json!({"port_id": null});
    rig.looker()
        .update_floating_ip(&floating_ip, &detached, None)
        .await
        .unwrap();
    rig.wait(Duration::from_secs(200)).await;
    let picture = rig.picture().await;
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(
        picture.floating_ips[0].port_id,
        picture.balancers[0].vip_port_id
    );
    assert_eq!(rig.published("web"), before);
}

#[tokio::test(start_paused = true)]
async fn ids_that_do_not_exist_are_reported_in_the_words_of_the_cloud() {
    for name in ["network-id", "subnet-id", "port-id", "flavor-id"] {
        let mut rig = Rig::new("");
        let service = web().annotated(&lb(name), NOWHERE);
        rig.apply(service).await;
        let failed = rig.cluster.messages("SyncLoadBalancerFailed");
        assert_eq!(failed.len(), 1, "{name} {failed:?}");
        // Octavia does not repeat the id of a flavor.
        let named = failed[0].contains(NOWHERE) || failed[0].contains("Invalid flavor_id");
        assert!(named, "{name} {failed:?}");
        let picture = rig.picture().await;
        assert!(picture.is_empty(), "{name}");
        // Without it, all is well.
        rig.cluster.edit("web", |row| {
            row.annotations.remove(&lb(name));
        });
        rig.settle().await;
        assert_eq!(rig.published("web").len(), 1, "{name}");
    }
}

/// Asserts that nothing is made while an annotation puts members in a subnet that does not exist,
/// and that the failure names the annotation and the subnet.
async fn nothing_is_made(conf: &str, key: &str, value: &str, subnet: &str) {
    let mut rig = Rig::new(conf);
    rig.apply(web().annotated(&lb(key), value)).await;
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(failed.len(), 1, "{failed:?}");
    let parts = [lb(key), value.to_owned(), subnet.to_owned()];
    assert!(
        parts.iter().all(|part| failed[0].contains(part)),
        "{failed:?}"
    );
    rig.wait(Duration::from_secs(400)).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.edit("web", |row| {
        row.annotations.remove(&lb(key));
    })
    .await;
    assert_eq!(rig.published("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_subnet_of_members_that_is_not_there_is_refused_before_anything_is_made() {
    nothing_is_made("", "member-subnet-id", NOWHERE, NOWHERE).await;
    nothing_is_made("", "member-subnet-id", "🦀", "🦀").await;
    let class = format!("[LoadBalancerClass \"lost\"]\nmember-subnet-id={NOWHERE}");
    nothing_is_made(&class, "class", "lost", NOWHERE).await;
}

#[tokio::test(start_paused = true)]
async fn a_subnet_of_members_that_is_there_is_asked_for_once() {
    let mut rig = Rig::new("");
    let subnet = rig.sim.subnet();
    rig.apply(web().annotated(&lb("member-subnet-id"), &subnet))
        .await;
    assert_eq!(rig.published("web").len(), 1);
    let path = format!("GET /v2.0/subnets/{subnet}");
    let asked = rig.calls().iter().filter(|it| **it == path).count();
    assert_eq!(asked, 1);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_id_is_reported_while_the_service_works() {
    let mut rig = Rig::new("");
    // Members that are not in the subnet that is configured.
    rig.apply(web()).await;
    rig.forget();
    rig.apply(web().annotated(&lb("member-subnet-id"), "🦀"))
        .await;
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(
        failed[0].contains(&lb("member-subnet-id")) && failed[0].contains("🦀"),
        "{failed:?}"
    );
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(rig.picture().await.members_at(80).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn ids_that_do_not_exist_leave_a_working_load_balancer_alone() {
    for name in [
        "network-id",
        "subnet-id",
        "member-subnet-id",
        "port-id",
        "flavor-id",
        "floating-network-id",
        "floating-subnet-id",
    ] {
        let mut rig = Rig::new("");
        rig.apply(web()).await;
        let before = rig.published("web");
        rig.forget();
        rig.apply(web().annotated(&lb(name), NOWHERE)).await;
        rig.wait(Duration::from_secs(400)).await;
        assert_eq!(rig.writes(), Vec::<String>::new(), "{name}");
        assert_eq!(rig.published("web"), before, "{name}");
        assert_eq!(rig.picture().await.members_at(80).len(), 2, "{name}");
        if name == "member-subnet-id" {
            let failed = rig.cluster.messages("SyncLoadBalancerFailed");
            assert!(failed[0].contains(NOWHERE), "{failed:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_is_not_there_or_another_project_s_is_refused() {
    let mut rig = Rig::new("");
    let sim = rig.sim.clone();
    let body = json!({"loadbalancer": {"name": "theirs", "vip_subnet_id": sim.subnet()}});
    let made = sim.hand_as(
        "another-project",
        Service::LoadBalancer,
        &http::Method::POST,
        "/v2/lbaas/loadbalancers",
        body,
    );
    let theirs = made.unwrap()["loadbalancer"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    sim.mark_foreign(&theirs);
    let foreign = sim.snapshot_foreign();
    for id in [theirs.as_str(), NOWHERE, "🦀 no id"] {
        rig.forget();
        rig.apply(web().annotated(&lb("load-balancer-id"), id))
            .await;
        let failed = rig.cluster.messages("SyncLoadBalancerFailed");
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(failed[0].contains(id), "{failed:?}");
        assert!(failed[0].contains(&lb("load-balancer-id")), "{failed:?}");
        assert_eq!(rig.writes(), Vec::<String>::new());
        assert_eq!(
            rig.annotation("web", &lb("load-balancer-id")),
            Some(id.to_owned())
        );
    }
    assert_eq!(sim.snapshot_foreign(), foreign);
    // Another owner does not keep the Service from leaving.
    rig.apply(web().annotated(&lb("load-balancer-id"), &theirs))
        .await;
    rig.delete("web").await;
    assert!(rig.cluster.service("web").is_none());
    assert_eq!(sim.snapshot_foreign(), foreign);
}
