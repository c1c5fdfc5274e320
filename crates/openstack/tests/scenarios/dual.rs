//! Services of two families where one load balancer can't have an address of each: two stand behind
//! one Service.

use std::time::Duration;

use landfall_model::dialect::openstack::{LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID};
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_model::status::{ConditionType, RECORD};
use landfall_openstack::objects::{LoadBalancer, Member};
use landfall_openstack::orphans::{self, Owner};
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::node;
use landfall_testkit::openstack::{Fate, Fault, Sim};
use landfall_testkit::svc;

use crate::addresses::INTERNAL;
use crate::adopt::left_by_reference;
use crate::create::web;
use crate::rig::{Picture, Rig};
use crate::subnets::dual;

const NAME: &str = "kube_service_c1_default_web";
const BALANCERS: &str = "/v2/lbaas/loadbalancers";

/// From one audit to the next, and a little.
const AUDIT: Duration = Duration::from_secs(190);

/// An Octavia without further VIPs, and an IPv6 subnet beside S.
pub fn old_octavia(conf: &str) -> Rig {
    let sim = Sim::new();
    sim.configure(|settings| settings.api_minor = 25);
    let cidr = "2001:db8::/64".parse().unwrap();
    sim.add_subnet(&sim.network(), "sub6", cidr, &[]);
    Rig::in_world(sim, conf)
}

/// Gives the nodes an IPv6 address each, on a further port.
pub fn with_both(rig: &Rig) {
    with_second(rig, "a", "10.0.0.4", "2001:db8::4");
    with_second(rig, "b", "10.0.0.5", "2001:db8::5");
}

fn with_second(rig: &Rig, name: &str, four: &str, six: &str) {
    let server = &rig.servers[name];
    rig.sim.add_port(name, server, six.parse().unwrap());
    let provider_id = format!("openstack:///{server}");
    let row = node(name, four).with(|row| {
        row.provider_id = Some(provider_id.into());
        row.addresses.push(six.parse().unwrap());
    });
    rig.cluster.put_node(row.row());
}

fn named<'a>(picture: &'a Picture, name: &str) -> &'a LoadBalancer {
    let mut balancers = picture.balancers.iter();
    balancers
        .find(|it| it.name == name)
        .unwrap_or_else(|| panic!("{name}: {picture:#?}"))
}

/// The members that serve a port on one of the load balancers.
fn members<'a>(picture: &'a Picture, of: &LoadBalancer) -> &'a [Member] {
    let pool = picture
        .pools
        .iter()
        .find(|it| it.loadbalancers[0].id == of.id);
    &picture.members[pool.unwrap().id.as_str()]
}

fn allowed(picture: &Picture, of: &LoadBalancer) -> Vec<String> {
    let listener = picture
        .listeners
        .iter()
        .find(|it| it.loadbalancers[0].id == of.id);
    listener.unwrap().allowed_cidrs.clone().unwrap()
}

fn is_programmed(rig: &Rig) -> bool {
    let service = rig.cluster.service("web").unwrap();
    let condition = service.status.condition(ConditionType::Programmed);
    condition.is_some_and(|it| it.status)
}

/// The first load balancer was touched neither by a change nor by a deletion.
fn writes_on(rig: &Rig, of: &LoadBalancer) -> Vec<String> {
    let mut writes = rig.writes();
    writes.retain(|line| line.contains(of.id.as_str()));
    writes
}

#[tokio::test(start_paused = true)]
async fn f33_two_load_balancers_serve_where_one_has_one_address() {
    let mut rig = old_octavia("");
    with_both(&rig);
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 2, "{:?}", rig.cluster.events());
    let (four, six) = (
        named(&picture, NAME),
        named(&picture, &format!("{NAME}.ipv6")),
    );
    assert_eq!(six.description, four.description);
    assert!(
        six.tags
            .contains(&"landfall_service_uid-web.ipv6".to_owned())
    );
    assert!(six.tags.contains(&"kube_cluster_id_ks-1".to_owned()));
    let floating = picture.floating_ips[0].floating_ip_address.to_string();
    let vip = six.vip_address.unwrap();
    assert!(vip.is_ipv6());
    assert_eq!(rig.published("web"), [floating.clone(), vip.to_string()]);
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(allowed(&picture, four), ["0.0.0.0/0"]);
    assert_eq!(allowed(&picture, six), ["::/0"]);
    let addresses = |of| -> Vec<String> {
        let members = members(&picture, of).iter();
        let mut all: Vec<String> = members.map(|it| it.address.unwrap().to_string()).collect();
        all.sort();
        all
    };
    assert_eq!(addresses(four), ["10.0.0.4", "10.0.0.5"]);
    assert_eq!(addresses(six), ["2001:db8::4", "2001:db8::5"]);
    assert!(is_programmed(&rig));
    // What others read there is of the first one.
    assert_eq!(
        rig.annotation("web", LOAD_BALANCER_ID),
        Some(four.id.to_string())
    );
    assert_eq!(rig.annotation("web", LOAD_BALANCER_ADDRESS), Some(floating));
    assert_eq!(rig.cluster.events(), ["web EnsuredLoadBalancer"]);
}

#[tokio::test(start_paused = true)]
async fn c03_two_load_balancers_are_vouched_for_after_a_restart() {
    let mut rig = old_octavia("");
    rig.apply(web()).await;
    rig.forget();
    rig.restart().await;
    let of_one = rig.calls();
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    let before = rig.cluster.service("web");
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.calls(), of_one);
    assert_eq!(rig.cluster.service("web"), before);
    rig.wait(AUDIT).await;
    rig.forget();
    rig.wait(AUDIT).await;
    assert!(rig.calls().len() <= 6, "{:?}", rig.calls());
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn c04_both_go_with_their_service() {
    for conf in ["", "cascade-delete=false", "manage-security-groups=true"] {
        let mut rig = old_octavia(conf);
        with_both(&rig);
        rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
        assert_eq!(rig.picture().await.balancers.len(), 2);
        rig.restart().await;
        rig.delete("web").await;
        assert!(rig.picture().await.is_empty(), "{conf}: {:?}", rig.writes());
        assert!(rig.cluster.service("web").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_of_one_family_are_reached_through_a_proxy_of_the_other() {
    let mut rig = old_octavia("");
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    let picture = rig.picture().await;
    let six = named(&picture, &format!("{NAME}.ipv6"));
    assert_eq!(members(&picture, six).len(), 2);
    assert!(
        members(&picture, six)
            .iter()
            .all(|it| it.address.unwrap().is_ipv4())
    );
    assert_eq!(rig.published("web").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn datagrams_need_nodes_of_the_family() {
    let udp = |policy| {
        let service = svc("web").udp_port("dns", 53).node_port(30053);
        service.families(&[Family::V4, Family::V6], policy)
    };
    let mut rig = old_octavia("");
    rig.apply(udp(FamilyPolicy::PreferDualStack)).await;
    assert_eq!(rig.picture().await.balancers.len(), 1);
    assert_eq!(rig.published("web").len(), 1);
    assert!(is_programmed(&rig));
    let mut rig = old_octavia("");
    rig.apply(udp(FamilyPolicy::RequireDualStack)).await;
    let reported = rig.cluster.messages("SyncLoadBalancerFailed").join(" ");
    assert!(
        reported.contains("no node has an IPv6 address"),
        "{reported}"
    );
    assert_eq!(rig.writes(), Vec::<String>::new());
    // A node that has one is enough.
    with_both(&rig);
    rig.settle().await;
    assert_eq!(rig.picture().await.balancers.len(), 2);
    assert!(is_programmed(&rig));
}

#[tokio::test(start_paused = true)]
async fn one_that_serves_gets_another_beside_it_when_two_are_asked_for() {
    let mut rig = old_octavia("");
    rig.sim.configure(|settings| settings.api_minor = 27);
    rig.apply(web()).await;
    let before = rig.picture().await;
    let published = rig.published("web");
    rig.forget();
    rig.apply(dual(FamilyPolicy::PreferDualStack)).await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 2);
    assert_eq!(writes_on(&rig, &before.balancers[0]), Vec::<String>::new());
    assert_eq!(rig.writes(), [format!("POST {BALANCERS}")]);
    assert_eq!(rig.published("web")[0], published[0]);
    assert_eq!(rig.published("web").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_second_goes_when_one_family_is_enough() {
    for restart in [false, true] {
        let mut rig = old_octavia("manage-security-groups=true");
        with_both(&rig);
        rig.apply(web()).await;
        let alone = rig.picture().await;
        rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
        let both = rig.picture().await;
        assert_eq!(both.balancers.len(), 2);
        let rules = |picture: &Picture| picture.groups[0].rules.len();
        assert!(rules(&both) > rules(&alone));
        if restart {
            rig.restart().await;
        }
        rig.forget();
        rig.apply(web()).await;
        let after = rig.picture().await;
        assert_eq!(after.balancers.len(), 1, "{:?}", rig.writes());
        assert_eq!(after.balancers[0].id, alone.balancers[0].id);
        assert_eq!(after.floating_ips, alone.floating_ips);
        assert_eq!(rules(&after), rules(&alone));
        assert_eq!(writes_on(&rig, &after.balancers[0]), Vec::<String>::new());
        assert_eq!(rig.published("web").len(), 1);
        assert!(is_programmed(&rig));
        rig.forget();
        rig.wait(AUDIT * 2).await;
        assert_eq!(rig.writes(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn families_in_networks_of_their_own_get_a_load_balancer_each() {
    let mut rig = Rig::new("");
    let network = rig.sim.add_network("net6", false);
    let cidr = "2001:db8::/64".parse().unwrap();
    let subnet = rig.sim.add_subnet(&network, "sub6", cidr, &[]);
    with_both(&rig);
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    let picture = rig.picture().await;
    let six = named(&picture, &format!("{NAME}.ipv6"));
    assert_eq!(six.vip_subnet_id.as_ref().unwrap().as_str(), subnet);
    assert_eq!(rig.published("web").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_gives_no_further_address_gets_two_load_balancers() {
    let mut rig = old_octavia("");
    rig.sim.configure(|settings| settings.api_minor = 27);
    let mut left = 1;
    rig.sim.on_call(move |call| {
        let create = call.path == BALANCERS && call.is_write() && left > 0;
        left -= i32::from(create);
        let text = "Provider 'amphora' does not support a requested option: additional_vips";
        create.then(|| Fault::status(call.service, 501, text))
    });
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    assert_eq!(rig.picture().await.balancers.len(), 2);
    assert_eq!(rig.published("web").len(), 2);
    assert_eq!(
        rig.cluster.messages("SyncLoadBalancerFailed"),
        Vec::<String>::new()
    );
}

/// The default world with the VIP in an IPv6 subnet, so that IPv6 is first.
fn six_first(minor: u16, conf: &str) -> Rig {
    let (rig, _) = crate::subnets::six(conf, &[("a", "2001:db8::4"), ("b", "2001:db8::5")]);
    rig.sim.configure(|settings| settings.api_minor = minor);
    rig
}

fn six_and_four() -> ServiceBuilder {
    web().families(&[Family::V6, Family::V4], FamilyPolicy::RequireDualStack)
}

#[tokio::test(start_paused = true)]
async fn addresses_are_published_in_the_order_of_the_families() {
    let mut rig = six_first(25, "");
    rig.apply(six_and_four()).await;
    let picture = rig.picture().await;
    let (six, four) = (
        named(&picture, NAME),
        named(&picture, &format!("{NAME}.ipv4")),
    );
    assert!(four.vip_address.unwrap().is_ipv4());
    assert_eq!(picture.floating_ips[0].port_id, four.vip_port_id);
    assert_eq!(
        rig.published("web"),
        [
            six.vip_address.unwrap().to_string(),
            picture.floating_ips[0].floating_ip_address.to_string()
        ]
    );
    // The floating IP goes with the load balancer that it leads to.
    rig.apply(web().families(&[Family::V6], FamilyPolicy::SingleStack))
        .await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    assert_eq!(picture.floating_ips, []);
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn both_addresses_that_are_asked_for_are_had() {
    const BOTH: &str = "2001:db8::77, 10.0.0.77";
    let addresses = "landfall.dev/addresses";
    for minor in [25, 27] {
        let mut rig = six_first(minor, "");
        let service = six_and_four().annotated(INTERNAL, "true");
        rig.apply(service.annotated(addresses, BOTH)).await;
        let count = if minor == 25 { 2 } else { 1 };
        assert_eq!(rig.picture().await.balancers.len(), count, "2.{minor}");
        assert_eq!(rig.published("web").join(", "), BOTH, "2.{minor}");
    }
    // To the outside, the IPv4 address is that of a floating IP.
    let mut rig = six_first(27, "");
    let floating = crate::addresses::floating_ip_by_hand(&rig, None).await;
    let both = format!("2001:db8::77, {}", floating.floating_ip_address);
    rig.apply(six_and_four().annotated(addresses, &both)).await;
    assert_eq!(rig.picture().await.balancers.len(), 1);
    assert_eq!(rig.published("web").join(", "), both);
}

#[tokio::test(start_paused = true)]
async fn a_further_address_of_ipv4_is_reached_by_a_floating_ip() {
    let mut rig = six_first(27, "");
    rig.apply(six_and_four()).await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 1);
    let further = picture.balancers[0].additional_vips[0].ip_address.unwrap();
    let floating = &rig.sim.floating_ips()[0];
    assert_eq!(floating["fixed_ip_address"], further.to_string());
    assert_eq!(
        rig.published("web"),
        [
            picture.balancers[0].vip_address.unwrap().to_string(),
            picture.floating_ips[0].floating_ip_address.to_string()
        ]
    );
    assert!(is_programmed(&rig));
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    // Inside, the address itself will do.
    rig.apply(six_and_four().annotated(INTERNAL, "true")).await;
    assert_eq!(rig.picture().await.floating_ips, []);
    assert_eq!(rig.published("web")[1], further.to_string());
    rig.apply(six_and_four()).await;
    assert_eq!(rig.picture().await.floating_ips.len(), 1);
    assert_ne!(rig.published("web")[1], further.to_string());
    // A Service that wants no IPv4 address keeps no floating IP.
    rig.apply(web().families(&[Family::V6], FamilyPolicy::SingleStack))
        .await;
    assert_eq!(rig.picture().await.floating_ips, []);
    assert_eq!(rig.published("web").len(), 1);
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_private_address_is_not_published_to_the_outside() {
    let mut rig = six_first(27, "");
    rig.settings.conf.floating.network_id = None;
    rig.sim.delete(&rig.sim.external_network());
    rig.apply(six_and_four()).await;
    let picture = rig.picture().await;
    assert_eq!(
        rig.published("web"),
        [picture.balancers[0].vip_address.unwrap().to_string()]
    );
    assert_eq!(picture.floating_ips, []);
    let events = rig.cluster.events();
    assert!(
        !events.contains(&"web LoadBalancerForcedInternal".to_owned()),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_floating_ip_that_is_refused_leaves_the_other_family_serving() {
    let mut rig = six_first(27, "");
    rig.sim
        .configure(|settings| settings.quota.floating_ips = Some(0));
    rig.apply(six_and_four()).await;
    let picture = rig.picture().await;
    assert_eq!(
        rig.published("web"),
        [picture.balancers[0].vip_address.unwrap().to_string()]
    );
    let reported = rig.cluster.messages("SyncLoadBalancerFailed").join(" ");
    assert!(reported.to_lowercase().contains("quota"), "{reported}");
    assert!(!is_programmed(&rig));
}

#[tokio::test(start_paused = true)]
async fn a_service_serves_in_full_only_when_both_do() {
    let mut rig = old_octavia("");
    rig.sim.next_fate(Fate::Active);
    rig.sim.next_fate(Fate::Stuck);
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 2);
    assert_eq!(
        rig.published("web"),
        [picture.floating_ips[0].floating_ip_address.to_string()]
    );
    assert!(!is_programmed(&rig));
    let second = named(&picture, &format!("{NAME}.ipv6"));
    rig.sim.release(second.id.as_str());
    rig.settle().await;
    assert_eq!(rig.published("web").len(), 2);
    assert!(is_programmed(&rig));
}

#[tokio::test(start_paused = true)]
async fn a_second_one_that_fails_or_is_lost_is_recreated() {
    let mut rig = old_octavia("");
    rig.sim.next_fate(Fate::Active);
    rig.sim.next_fate(Fate::BalancerError);
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers.len(), 2);
    assert_eq!(rig.published("web").len(), 2);
    let first = named(&picture, NAME).clone();
    for restart in [false, true] {
        let picture = rig.picture().await;
        let second = named(&picture, &format!("{NAME}.ipv6"));
        rig.forget();
        rig.sim.delete(second.id.as_str());
        if restart {
            rig.restart().await;
        } else {
            rig.wait(AUDIT).await;
        }
        rig.settle().await;
        let after = rig.picture().await;
        assert_eq!(after.balancers.len(), 2, "{:?}", rig.writes());
        assert_eq!(writes_on(&rig, &first), Vec::<String>::new());
        let vip = named(&after, &format!("{NAME}.ipv6")).vip_address.unwrap();
        assert_eq!(rig.published("web")[1], vip.to_string());
    }
    // A first one that is lost comes back beside the second, and is not given both addresses.
    rig.sim.configure(|settings| settings.api_minor = 27);
    let published = rig.published("web");
    rig.sim.delete(first.id.as_str());
    rig.restart().await;
    assert_eq!(rig.picture().await.balancers.len(), 2);
    assert_eq!(rig.published("web"), published);
}

#[tokio::test(start_paused = true)]
async fn drift_of_the_second_is_put_right() {
    let mut rig = old_octavia("");
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    let picture = rig.picture().await;
    let second = named(&picture, &format!("{NAME}.ipv6"));
    let listener = picture
        .listeners
        .iter()
        .find(|it| it.loadbalancers[0].id == second.id);
    rig.sim.edit(listener.unwrap().id.as_str(), |row| {
        row.insert("connection_limit".to_owned(), 7.into());
    });
    rig.wait(AUDIT).await;
    rig.settle().await;
    let after = rig.picture().await;
    assert!(
        after
            .listeners
            .iter()
            .all(|it| it.connection_limit == Some(-1))
    );
}

#[tokio::test(start_paused = true)]
async fn nodes_and_ports_are_followed_on_both() {
    let mut rig = old_octavia("");
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let picture = rig.picture().await;
    assert!(picture.members.values().all(|members| members.len() == 3));
    let two = dual(FamilyPolicy::RequireDualStack).with(|row| row.ports[0].name = "a".to_owned());
    rig.apply(two.named_port("b", 443).node_port(30443)).await;
    let picture = rig.picture().await;
    assert_eq!(picture.listeners.len(), 4);
    assert!(is_programmed(&rig));
}

#[tokio::test(start_paused = true)]
async fn source_ranges_go_to_the_load_balancer_of_their_family() {
    let mut rig = old_octavia("");
    let service = dual(FamilyPolicy::RequireDualStack);
    rig.apply(
        service
            .source_range("192.0.2.0/24")
            .source_range("2001:db8:1::/48"),
    )
    .await;
    let picture = rig.picture().await;
    assert_eq!(allowed(&picture, named(&picture, NAME)), ["192.0.2.0/24"]);
    let six = named(&picture, &format!("{NAME}.ipv6"));
    assert_eq!(allowed(&picture, six), ["2001:db8:1::/48"]);
    // Without a range of the family no client is let in, rather than every client.
    let service = dual(FamilyPolicy::RequireDualStack);
    rig.apply(service.source_range("192.0.2.0/24")).await;
    let picture = rig.picture().await;
    let six = named(&picture, &format!("{NAME}.ipv6"));
    let allowed = allowed(&picture, six);
    assert_eq!(allowed.len(), 1);
    assert_ne!(allowed, ["::/0"]);
}

#[tokio::test(start_paused = true)]
async fn the_second_is_no_orphan_while_its_service_is_there() {
    let mut rig = old_octavia("");
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    let service = rig.cluster.service("web").unwrap();
    let owner = Owner {
        service: service.key.clone(),
        uid: service.uid.clone(),
        load_balancer: rig.annotation("web", LOAD_BALANCER_ID),
    };
    let found = orphans::find(rig.looker(), &rig.settings, &[owner]).await;
    assert_eq!(found.unwrap().orphans, []);
    let found = orphans::find(rig.looker(), &rig.settings, &[])
        .await
        .unwrap();
    assert_eq!(found.orphans.len(), 3, "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn another_cluster_s_load_balancer_of_that_name_is_left_alone() {
    let mut rig = old_octavia("");
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    let picture = rig.picture().await;
    let second = named(&picture, &format!("{NAME}.ipv6")).id.clone();
    rig.kill();
    rig.sim.edit(second.as_str(), |row| {
        row.insert(
            "tags".to_owned(),
            serde_json::json!([format!("{NAME}.ipv6"), "kube_cluster_id_other"]),
        );
    });
    rig.cluster.delete("web");
    rig.forget();
    rig.restart().await;
    let left = rig.picture().await;
    assert_eq!(left.balancers.len(), 1, "{:?}", rig.writes());
    assert_eq!(left.balancers[0].id, second);
}

#[tokio::test(start_paused = true)]
async fn the_place_of_the_second_load_balancer_is_no_choice_that_was_changed() {
    let mut rig = old_octavia("");
    let subnet = rig.sim.subnet();
    let service = dual(FamilyPolicy::RequireDualStack);
    let service = service.annotated("loadbalancer.openstack.org/subnet-id", &subnet);
    rig.apply(service).await;
    assert_eq!(rig.picture().await.balancers.len(), 2);
    let reported = rig.cluster.messages("OptionNotApplicable");
    assert_eq!(reported, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn members_of_two_load_balancers_cost_the_service_no_write() {
    let mut rig = old_octavia("");
    with_both(&rig);
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    let before = rig.cluster.writes();
    assert!(rig.annotation("web", RECORD).unwrap().contains(" + "));
    rig.add_node("c", "10.0.0.6");
    with_second(&rig, "c", "10.0.0.6", "2001:db8::6");
    rig.settle().await;
    let picture = rig.picture().await;
    let sizes: Vec<usize> = picture.members.values().map(Vec::len).collect();
    assert_eq!(sizes, [3, 3]);
    assert_eq!(rig.cluster.writes(), before);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_drops_ipv4_takes_no_address_from_those_that_share_it() {
    let mut rig = six_first(27, "");
    rig.apply(six_and_four()).await;
    let before = rig.picture().await;
    let guest = svc("guest")
        .port(8080)
        .node_port(30081)
        .families(&[Family::V6, Family::V4], FamilyPolicy::RequireDualStack);
    let id = before.balancers[0].id.as_str();
    rig.apply(guest.annotated(LOAD_BALANCER_ID, id)).await;
    let published = rig.published("guest");
    assert_eq!(published, rig.published("web"));
    rig.apply(web().families(&[Family::V6], FamilyPolicy::SingleStack))
        .await;
    rig.wait(AUDIT).await;
    let after = rig.picture().await;
    assert_eq!(after.floating_ips, before.floating_ips);
    assert_eq!(after.listeners.len(), 2);
    assert_eq!(rig.published("guest"), published);
    let reported = rig.cluster.messages("ConflictingOptions").join("; ");
    assert!(
        reported.contains("kube_service_c1_default_guest"),
        "{reported}"
    );
    rig.delete("guest").await;
    rig.wait(AUDIT).await;
    rig.settle().await;
    assert_eq!(rig.picture().await.floating_ips, []);
}

#[tokio::test(start_paused = true)]
async fn m10_a_second_family_that_is_only_preferred_adds_nothing_where_the_instance_says_so() {
    let mut rig = old_octavia("");
    with_both(&rig);
    rig.settings.prefer_dual_stack = false;
    rig.apply(dual(FamilyPolicy::PreferDualStack)).await;
    assert_eq!(rig.picture().await.balancers.len(), 1);
    assert!(is_programmed(&rig));
    assert_eq!(rig.published("web").len(), 1);
    // What is required is had.
    rig.apply(dual(FamilyPolicy::RequireDualStack)).await;
    assert_eq!(rig.picture().await.balancers.len(), 2);
    let both = rig.published("web");
    assert_eq!(both.len(), 2);
    // What is there stays.
    rig.forget();
    rig.apply(dual(FamilyPolicy::PreferDualStack)).await;
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert_eq!(rig.published("web"), both);
}

#[tokio::test(start_paused = true)]
async fn m10_a_new_load_balancer_gets_no_further_address_where_the_instance_says_so() {
    for (prefer, further) in [(true, 1), (false, 0)] {
        let sim = Sim::new();
        let cidr = "2001:db8::/64".parse().unwrap();
        sim.add_subnet(&sim.network(), "sub6", cidr, &[]);
        let mut rig = Rig::in_world(sim, "");
        rig.settings.prefer_dual_stack = prefer;
        rig.apply(dual(FamilyPolicy::PreferDualStack)).await;
        let picture = rig.picture().await;
        assert_eq!(picture.balancers.len(), 1);
        assert_eq!(picture.balancers[0].additional_vips.len(), further);
        assert!(is_programmed(&rig));
    }
}

#[tokio::test(start_paused = true)]
async fn m10_services_that_prefer_two_families_are_taken_over_without_a_write_where_asked_for() {
    for (prefer, balancers) in [(true, 2), (false, 1)] {
        let mut rig = old_octavia("create-monitor=true");
        with_both(&rig);
        rig.settings.prefer_dual_stack = prefer;
        left_by_reference(&rig, "c1");
        rig.cluster.edit("web", |row| {
            row.families = vec![Family::V4, Family::V6];
            row.family_policy = FamilyPolicy::PreferDualStack;
        });
        rig.restart().await;
        assert_eq!(rig.writes().is_empty(), !prefer, "{:?}", rig.writes());
        assert_eq!(rig.picture().await.balancers.len(), balancers);
        assert_eq!(rig.published("web").len(), balancers);
    }
}
