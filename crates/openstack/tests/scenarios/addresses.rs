//! Floating IPs, and which addresses a Service publishes (rows F).

use std::net::IpAddr;
use std::time::Duration;

use landfall_model::dialect::openstack::LOAD_BALANCER_ADDRESS;
use landfall_model::status::IpMode;
use landfall_openstack::objects::{FloatingIp, Id};
use landfall_testkit::build::ServiceBuilder;
use serde_json::json;

use crate::create::web;
use crate::rig::Rig;
use crate::rig::stage::Stage;

pub const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

/// An annotation of cloud-provider-openstack.
pub fn lb(name: &str) -> String {
    format!("loadbalancer.openstack.org/{name}")
}

/// A floating IP made by hand, attached to a port or detached.
pub async fn floating_ip_by_hand(rig: &Rig, port: Option<&Id>) -> FloatingIp {
    let body = json!({
        "floating_network_id": rig.sim.external_network(),
        "description": "by hand",
        "port_id": port,
    });
    rig.looker().create_floating_ip(&body).await.unwrap()
}

/// The port of a node.
pub async fn port_of(rig: &Rig, node: &str) -> Id {
    let query = [("device_id", rig.servers[node].as_str())];
    rig.looker().ports(&query).await.unwrap()[0].id.clone()
}

pub fn internal(value: &str) -> ServiceBuilder {
    web().annotated(INTERNAL, value)
}

fn net(text: &str) -> ipnet::IpNet {
    text.parse().unwrap()
}

async fn vip(rig: &Rig) -> IpAddr {
    rig.picture().await.balancers[0].vip_address.unwrap()
}

/// Nothing more is done, however long one waits and however often one starts again.
async fn stays(rig: &mut Rig) {
    rig.forget();
    rig.restart().await;
    rig.wait(Duration::from_secs(400)).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

async fn is_internal(rig: &Rig) {
    let picture = rig.picture().await;
    let vip = picture.balancers[0].vip_address.unwrap().to_string();
    assert_eq!(picture.floating_ips, []);
    assert_eq!(rig.published("web"), [vip.as_str()]);
    assert_eq!(rig.annotation("web", LOAD_BALANCER_ADDRESS), Some(vip));
}

#[tokio::test(start_paused = true)]
async fn f01_an_internal_service_gets_no_floating_ip() {
    let mut rig = Rig::new("");
    rig.apply(internal("true")).await;
    is_internal(&rig).await;
    assert_eq!(rig.writes(), ["POST /v2/lbaas/loadbalancers"]);
    stays(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn f02_where_everything_is_internal_an_annotation_can_not_change_it() {
    let mut rig = Rig::new("internal-lb=true");
    rig.apply(internal("false")).await;
    is_internal(&rig).await;
}

#[tokio::test(start_paused = true)]
async fn f03_a_service_that_becomes_internal_gives_its_floating_ip_back() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let floating_ip = rig.picture().await.floating_ips[0].id.clone();
    rig.forget();
    rig.apply(internal("true")).await;
    is_internal(&rig).await;
    assert_eq!(
        rig.writes(),
        [format!("DELETE /v2.0/floatingips/{floating_ip}")]
    );
    stays(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn f04_a_floating_ip_that_a_person_made_is_only_detached() {
    let mut rig = Rig::new("");
    rig.apply(internal("true")).await;
    let port = rig.picture().await.balancers[0].vip_port_id.clone();
    // An audit between the two would detach it from a Service that is internal yet.
    rig.kill();
    let by_hand = floating_ip_by_hand(&rig, port.as_ref()).await;
    rig.apply(web()).await;
    rig.forget();
    rig.apply(internal("true")).await;
    let picture = rig.picture().await;
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(picture.floating_ips[0].id, by_hand.id);
    assert_eq!(picture.floating_ips[0].port_id, None);
    let calls = rig.sent();
    assert_eq!(
        rig.writes(),
        [format!("PUT /v2.0/floatingips/{}", by_hand.id)]
    );
    let body: serde_json::Value = serde_json::from_slice(&calls[0].body).unwrap();
    assert_eq!(body, json!({"floatingip": {"port_id": null}}));
    stays(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn f04_a_floating_ip_that_is_to_be_kept_is_only_detached() {
    let mut rig = Rig::new("");
    let keep = |service: ServiceBuilder| service.annotated(&lb("keep-floatingip"), "true");
    rig.apply(keep(web())).await;
    rig.apply(keep(internal("true"))).await;
    let picture = rig.picture().await;
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(picture.floating_ips[0].port_id, None);
    let address = picture.floating_ips[0].floating_ip_address;
    stays(&mut rig).await;
    // It is the Service's still: back outside, it gets the same address.
    rig.apply(keep(web())).await;
    assert_eq!(rig.published("web"), [address.to_string()]);
    assert_eq!(rig.picture().await.floating_ips.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn f05_a_service_that_is_internal_no_longer_gets_a_floating_ip() {
    let mut rig = Rig::new("");
    rig.apply(internal("true")).await;
    rig.forget();
    rig.apply(web()).await;
    let picture = rig.picture().await;
    assert_eq!(picture.floating_ips.len(), 1);
    let address = picture.floating_ips[0].floating_ip_address.to_string();
    assert_eq!(
        picture.floating_ips[0].port_id,
        picture.balancers[0].vip_port_id
    );
    assert_eq!(rig.published("web"), [address.as_str()]);
    assert_eq!(rig.annotation("web", LOAD_BALANCER_ADDRESS), Some(address));
    assert_eq!(rig.writes(), ["POST /v2.0/floatingips"]);
    stays(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn f07_an_address_in_use_is_waited_for() {
    let mut rig = Rig::new("");
    let port = port_of(&rig, "a").await;
    let taken = floating_ip_by_hand(&rig, Some(&port)).await;
    let address = taken.floating_ip_address.to_string();
    rig.apply(web().load_balancer_ip(&address)).await;
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(failed.len(), 1);
    assert!(
        failed[0].contains(&address) && failed[0].contains("in use"),
        "{failed:?}"
    );
    assert!(failed[0].contains("spec.loadBalancerIP"), "{failed:?}");
    assert_eq!(rig.picture().await.balancers.len(), 1);
    assert_eq!(rig.published("web"), Vec::<String>::new());
    let detached = json!({"port_id": null});
    rig.looker()
        .update_floating_ip(&taken.id, &detached, None)
        .await
        .unwrap();
    rig.wait(Duration::from_secs(200)).await;
    let picture = rig.picture().await;
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(
        picture.floating_ips[0].port_id,
        picture.balancers[0].vip_port_id
    );
    assert_eq!(rig.published("web"), [address]);
    stays(&mut rig).await;
    // A person made it.
    rig.delete("web").await;
    assert_eq!(rig.picture().await.floating_ips[0].port_id, None);
}

#[tokio::test(start_paused = true)]
async fn f07_members_follow_while_the_address_is_waited_for() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    let before = rig.published("web");
    let port = port_of(&rig, "a").await;
    let taken = floating_ip_by_hand(&rig, Some(&port)).await;
    let address = taken.floating_ip_address.to_string();
    rig.apply(web().load_balancer_ip(&address)).await;
    assert_eq!(rig.cluster.messages("SyncLoadBalancerFailed").len(), 1);
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    assert_eq!(rig.picture().await.members_at(80).len(), 3);
    assert_eq!(rig.published("web"), before);
    rig.delete("web").await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers, []);
    assert_eq!(picture.floating_ips.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn f08_an_address_that_is_not_there_yet_is_asked_for_where_the_cloud_allows_it() {
    let mut rig = Rig::new("");
    rig.sim.configure(|it| it.floating_address_allowed = true);
    rig.apply(web().load_balancer_ip("198.18.3.3")).await;
    assert_eq!(rig.published("web"), ["198.18.3.3"]);
    assert_eq!(rig.picture().await.floating_ips.len(), 1);
    stays(&mut rig).await;
    rig.delete("web").await;
    assert!(rig.picture().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn f08_an_address_that_the_cloud_does_not_give_is_reported_and_leaves_nothing() {
    let mut rig = Rig::new("");
    rig.apply(web().load_balancer_ip("198.18.3.3")).await;
    rig.wait(Duration::from_secs(600)).await;
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].contains("disallowed by policy"), "{failed:?}");
    let picture = rig.picture().await;
    assert_eq!(picture.floating_ips, []);
    assert_eq!(picture.balancers.len(), 1);
    let tries = rig.writes();
    let tries = tries.iter().filter(|it| it.contains("floatingips")).count();
    assert!(tries < 20, "{tries}");
    // Everything else follows meanwhile.
    rig.add_node("c", "10.0.0.6");
    rig.wait(Duration::from_secs(90)).await;
    assert_eq!(rig.picture().await.members_at(80).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn f10_a_floating_ip_that_is_to_be_kept_outlives_the_service() {
    let mut rig = Rig::new("");
    let kept = || web().annotated(&lb("keep-floatingip"), "true");
    rig.apply(kept()).await;
    let address = rig.published("web");
    rig.delete("web").await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers, []);
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(picture.floating_ips[0].port_id, None);
    assert!(rig.cluster.service("web").is_none());
    // A Service that asks for it gets it back.
    rig.apply(kept().load_balancer_ip(&address[0])).await;
    assert_eq!(rig.published("web"), address);
    assert_eq!(rig.picture().await.floating_ips.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn f11_a_floating_ip_that_a_person_attached_is_used_and_left() {
    let mut rig = Rig::new("");
    rig.apply(internal("true")).await;
    let port = rig.picture().await.balancers[0].vip_port_id.clone();
    // An audit would detach it from what is still internal.
    rig.kill();
    let by_hand = floating_ip_by_hand(&rig, port.as_ref()).await;
    rig.forget();
    rig.apply(web()).await;
    assert_eq!(
        rig.published("web"),
        [by_hand.floating_ip_address.to_string()]
    );
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.delete("web").await;
    let picture = rig.picture().await;
    assert_eq!(picture.balancers, []);
    assert_eq!(picture.floating_ips.len(), 1);
    assert_eq!(picture.floating_ips[0].id, by_hand.id);
}

#[tokio::test(start_paused = true)]
async fn f12_an_internal_service_gets_the_vip_it_asks_for() {
    let mut rig = Rig::new("");
    rig.apply(internal("true").load_balancer_ip("10.0.0.50"))
        .await;
    assert_eq!(vip(&rig).await.to_string(), "10.0.0.50");
    assert_eq!(rig.published("web"), ["10.0.0.50"]);
    stays(&mut rig).await;
}

/// A configuration without anything about networks.
#[tokio::test(start_paused = true)]
async fn f13_the_only_external_network_is_found() {
    let sim = Stage::new();
    let conf = format!("[LoadBalancer]\nsubnet-id={}", sim.subnet());
    let mut rig = Rig::configured(sim, &conf);
    rig.apply(web()).await;
    let picture = rig.picture().await;
    let network = picture.floating_ips[0].floating_network_id.as_str();
    assert_eq!(network, rig.sim.external_network());
    assert_eq!(
        rig.published("web"),
        [picture.floating_ips[0].floating_ip_address.to_string()]
    );
}

#[tokio::test(start_paused = true)]
async fn f14_an_external_network_of_ipv6_only_is_skipped() {
    let sim = Stage::new();
    sim.delete(&sim.external_subnet());
    sim.delete(&sim.external_network());
    let six = sim.add_network("a-six", true);
    sim.add_subnet(&six, "six", net("2001:db8:1::/64"), &[]);
    let four = sim.add_network("b-four", true);
    sim.add_subnet(&four, "four", net("198.19.0.0/16"), &[]);
    let conf = format!("[LoadBalancer]\nsubnet-id={}", sim.subnet());
    let mut rig = Rig::configured(sim, &conf);
    rig.apply(web()).await;
    let picture = rig.picture().await;
    assert_eq!(picture.floating_ips[0].floating_network_id.as_str(), four);
}

#[tokio::test(start_paused = true)]
async fn f15_without_an_external_network_the_vip_is_published_and_that_is_reported() {
    let sim = Stage::new();
    sim.delete(&sim.external_subnet());
    sim.delete(&sim.external_network());
    let conf = format!("[LoadBalancer]\nsubnet-id={}", sim.subnet());
    let mut rig = Rig::configured(sim, &conf);
    rig.apply(web()).await;
    is_internal(&rig).await;
    let events = rig.cluster.events();
    for name in [
        "LoadBalancerExternalNetworkSearchFailed",
        "LoadBalancerForcedInternal",
    ] {
        let times = events.iter().filter(|it| **it == format!("web {name}"));
        assert_eq!(times.count(), 1, "{name} in {events:?}");
    }
    assert!(events.contains(&"web EnsuredLoadBalancer".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn f16_a_floating_subnet_of_another_network_is_refused() {
    let mut rig = Rig::new("");
    let subnet = rig.sim.subnet();
    rig.apply(web().annotated(&lb("floating-subnet-id"), &subnet))
        .await;
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(failed.len(), 1);
    assert!(failed[0].contains(&subnet), "{failed:?}");
    assert_eq!(rig.picture().await.floating_ips, []);
    rig.apply(web()).await;
    assert_eq!(rig.picture().await.floating_ips.len(), 1);
    // What is there goes on serving, whatever is asked for later.
    rig.forget();
    rig.apply(web().annotated(&lb("floating-subnet-id"), &subnet))
        .await;
    assert_eq!(rig.published("web").len(), 1);
    assert_eq!(rig.writes(), Vec::<String>::new());
}

/// An external network with subnets `pub-a` (198.19.1.0/24), `pub-b` (198.19.2.0/24) and `other`
/// (198.19.3.0/24), and a rig that takes floating IPs there.
fn many_subnets() -> Rig {
    let sim = Stage::new();
    let network = sim.add_network("many", true);
    for (name, cidr, tag) in [
        ("pub-a", "198.19.1.0/24", "a"),
        ("pub-b", "198.19.2.0/24", "b"),
        ("other", "198.19.3.0/24", "c"),
    ] {
        sim.add_subnet(&network, name, net(cidr), &[tag, "all"]);
    }
    let conf = format!(
        "[LoadBalancer]\nsubnet-id={}\nfloating-network-id={network}",
        sim.subnet()
    );
    Rig::configured(sim, &conf)
}

/// In which of the subnets the floating IP is with these annotations, and what was asked for.
async fn placed(annotations: &[(&str, &str)]) -> (String, String) {
    let mut rig = many_subnets();
    let mut service = web();
    for (name, value) in annotations {
        service = service.annotated(&lb(name), value);
    }
    rig.apply(service).await;
    let picture = rig.picture().await;
    let address = picture.floating_ips[0].floating_ip_address.to_string();
    let parts: Vec<&str> = address.split('.').collect();
    let calls = rig.calls();
    let asked = calls
        .iter()
        .find_map(|it| it.strip_prefix("GET /v2.0/subnets?"));
    (parts[2].to_owned(), asked.unwrap_or_default().to_owned())
}

#[tokio::test(start_paused = true)]
async fn f18_floating_subnets_are_chosen_by_name() {
    for (pattern, place) in [
        ("pub-b", "2"),
        ("~pub-(a|b)", "1"),
        ("~.*r", "3"),
        ("!pub-a", "2"),
        ("pub-*", "1"),
        ("!pub-*", "3"),
        ("!~pub-(a|b)", "3"),
    ] {
        let (found, _) = placed(&[("floating-subnet", pattern)]).await;
        assert_eq!(found, place, "{pattern}");
    }
}

#[tokio::test(start_paused = true)]
async fn f18_a_subnet_that_is_full_is_followed_by_the_next() {
    let mut rig = many_subnets();
    let first = rig
        .looker()
        .subnets(&[("name", "pub-a")])
        .await
        .unwrap()
        .remove(0);
    for _ in 0..255 {
        let body = json!({"floating_network_id": first.network_id, "subnet_id": first.id});
        if rig.looker().create_floating_ip(&body).await.is_err() {
            break;
        }
    }
    rig.apply(web().annotated(&lb("floating-subnet"), "pub-*"))
        .await;
    let published = rig.published("web");
    assert!(published[0].starts_with("198.19.2."), "{published:?}");
}

#[tokio::test(start_paused = true)]
async fn f19_and_f20_floating_subnets_are_chosen_by_tags() {
    for (tags, place, query) in [
        ("b,c", "2", "tags-any"),
        ("&b,all", "2", "tags"),
        ("!a", "2", "not-tags"),
        ("!a,b", "3", "not-tags"),
        ("!&b,all", "1", "not-tags"),
    ] {
        let (found, asked) = placed(&[("floating-subnet-tags", tags)]).await;
        assert_eq!(found, place, "{tags} by {asked}");
        assert!(asked.contains(query), "{tags} by {asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn f18_a_pattern_that_matches_nothing_is_reported() {
    let mut rig = many_subnets();
    rig.apply(web().annotated(&lb("floating-subnet"), "none"))
        .await;
    assert_eq!(rig.cluster.messages("SyncLoadBalancerFailed").len(), 1);
    assert_eq!(rig.picture().await.floating_ips, []);
    let mut rig = many_subnets();
    rig.apply(web().annotated(&lb("floating-subnet"), "~("))
        .await;
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert!(failed[0].contains("floating-subnet"), "{failed:?}");
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn f21_a_class_with_floating_options_wins_over_annotations() {
    let sim = Stage::new();
    let network = sim.add_network("classy", true);
    let one = sim.add_subnet(&network, "one", net("198.19.1.0/24"), &[]);
    sim.add_subnet(&network, "two", net("198.19.2.0/24"), &[]);
    let conf = format!(
        "[LoadBalancer]\nsubnet-id={}\nfloating-network-id={}\n[LoadBalancerClass \"Gold\"]\n\
         floating-network-id={network}\nfloating-subnet-id={one}\n",
        sim.subnet(),
        sim.external_network()
    );
    let mut rig = Rig::configured(sim, &conf);
    let service = web()
        .annotated(&lb("class"), "Gold")
        .annotated(&lb("floating-network-id"), &rig.sim.external_network())
        .annotated(&lb("floating-subnet"), "two");
    rig.apply(service).await;
    let published = rig.published("web");
    assert!(published[0].starts_with("198.19.1."), "{published:?}");
}

#[tokio::test(start_paused = true)]
async fn f22_an_unknown_class_is_refused_before_anything_is_made() {
    let mut rig = Rig::new("");
    rig.apply(web().annotated(&lb("class"), "nope")).await;
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert_eq!(failed.len(), 1);
    assert!(
        failed[0].contains("class") && failed[0].contains("nope"),
        "{failed:?}"
    );
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn f23_the_class_places_external_vips_and_the_annotation_internal_ones() {
    for (is_internal, cidr) in [(false, "10.1.0."), (true, "10.2.0.")] {
        let sim = Stage::new();
        let network = sim.network();
        let of_class = sim.add_subnet(&network, "class", net("10.1.0.0/24"), &[]);
        let annotated = sim.add_subnet(&network, "annotated", net("10.2.0.0/24"), &[]);
        let conf = format!(
            "[LoadBalancer]\nsubnet-id={}\nfloating-network-id={}\n[LoadBalancerClass \
            \"c\"]\nsubnet-id={of_class}\n",
            sim.subnet(),
            sim.external_network()
        );
        let mut rig = Rig::configured(sim, &conf);
        let service = web()
            .annotated(&lb("class"), "c")
            .annotated(&lb("subnet-id"), &annotated)
            .annotated(INTERNAL, if is_internal { "true" } else { "false" });
        rig.apply(service).await;
        let vip = vip(&rig).await.to_string();
        assert!(vip.starts_with(cidr), "{vip} {is_internal}");
    }
}

#[tokio::test(start_paused = true)]
async fn f25_the_subnet_is_that_of_the_nodes_where_none_is_named() {
    let sim = Stage::new();
    let mut rig = Rig::configured(sim, "[LoadBalancer]\n");
    rig.apply(web()).await;
    let picture = rig.picture().await;
    let subnet = rig.sim.subnet();
    let of_vip = picture.balancers[0].vip_subnet_id.as_ref().unwrap();
    assert_eq!(of_vip.as_str(), subnet);
    assert_eq!(picture.members_at(80).len(), 2);
    for member in picture.members.values().flatten() {
        assert_eq!(member.subnet_id.as_ref().unwrap().as_str(), subnet);
    }
    stays(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn f25_nodes_without_a_subnet_are_reported() {
    let sim = Stage::new();
    let mut rig = Rig::bare(sim, "[LoadBalancer]\n");
    let row = landfall_testkit::node("metal", "192.0.2.7");
    rig.cluster.put_node(row.row());
    rig.apply(web()).await;
    let failed = rig.cluster.messages("SyncLoadBalancerFailed");
    assert!(failed[0].contains("providerID"), "{failed:?}");
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn f26_with_a_network_only_octavia_chooses_the_subnet() {
    let sim = Stage::new();
    let conf = format!(
        "[LoadBalancer]\nnetwork-id={}\nfloating-network-id={}\nmanage-security-groups=true",
        sim.network(),
        sim.external_network()
    );
    let mut rig = Rig::configured(sim, &conf);
    rig.apply(web()).await;
    let writes = rig.sent();
    let body = writes
        .iter()
        .find(|it| it.line == "POST /v2/lbaas/loadbalancers")
        .map(|it| serde_json::from_slice::<serde_json::Value>(&it.body).unwrap())
        .unwrap();
    let balancer = &body["loadbalancer"];
    assert_eq!(balancer["vip_network_id"], json!(rig.sim.network()));
    assert_eq!(balancer["vip_subnet_id"], json!(null));
    let member = &balancer["listeners"][0]["default_pool"]["members"][0];
    assert_eq!(member["subnet_id"], json!(null), "{member}");
    let picture = rig.picture().await;
    assert_eq!(picture.groups.len(), 1);
    let rules = picture.groups[0].rules.iter();
    let sources: Vec<_> = rules
        .filter(|it| it.direction == "ingress")
        .map(|it| it.remote_ip_prefix.clone().unwrap())
        .collect();
    // Behind the provider ovn, nodes see the clients themselves.
    let expected = if rig.sim.is_ovn() {
        "0.0.0.0/0"
    } else {
        "10.0.0.0/24"
    };
    assert_eq!(sources, [expected]);
    for node in ["a", "b"] {
        let port = port_of(&rig, node).await;
        let port = rig.looker().port(&port).await.unwrap().unwrap();
        assert!(port.security_groups.contains(&picture.groups[0].id));
    }
    stays(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn f28_a_hostname_is_published_in_place_of_the_address() {
    let mut rig = Rig::new("");
    rig.apply(web().annotated(&lb("hostname"), "web.example.org"))
        .await;
    let address = rig.picture().await.floating_ips[0].floating_ip_address;
    let service = rig.cluster.service("web").unwrap();
    assert_eq!(service.status.ingress.len(), 1);
    assert_eq!(
        service.status.ingress[0].hostname.as_deref(),
        Some("web.example.org")
    );
    assert_eq!(service.status.ingress[0].ip, None);
    assert_eq!(service.status.ingress[0].ip_mode, None);
    assert_eq!(
        service.annotations[LOAD_BALANCER_ADDRESS],
        address.to_string()
    );
    stays(&mut rig).await;
    // The floating IP stays the Service's, though its status does not name it.
    rig.apply(web()).await;
    assert_eq!(rig.published("web"), [address.to_string()]);
}

#[tokio::test(start_paused = true)]
async fn f29_with_proxy_headers_a_made_up_name_is_published_where_that_is_configured() {
    let mut rig = Rig::new("enable-ingress-hostname=true\ningress-hostname-suffix=x.y");
    rig.apply(web().annotated(&lb("proxy-protocol"), "true"))
        .await;
    let address = rig.picture().await.floating_ips[0].floating_ip_address;
    assert_eq!(rig.published("web"), [format!("{address}.x.y")]);
    let service = rig.cluster.service("web").unwrap();
    assert_eq!(service.status.ingress[0].ip, None);
    assert_eq!(
        service.annotations[LOAD_BALANCER_ADDRESS],
        address.to_string()
    );
}

#[tokio::test(start_paused = true)]
async fn f30_with_proxy_headers_traffic_from_inside_takes_the_way_of_all() {
    let mut rig = Rig::new("");
    rig.apply(web().annotated(&lb("proxy-protocol"), "true"))
        .await;
    let address = rig.picture().await.floating_ips[0].floating_ip_address;
    let service = rig.cluster.service("web").unwrap();
    assert_eq!(service.status.ingress[0].ip, Some(address));
    assert_eq!(service.status.ingress[0].ip_mode, Some(IpMode::Proxy));
}

#[tokio::test(start_paused = true)]
async fn f35_flavor_and_zone_are_sent_where_octavia_knows_them() {
    let flavor = "11111111-1111-4111-8111-111111111111";
    for minor in [5, 14] {
        let mut rig = Rig::new("");
        rig.sim.configure(|it| {
            it.api_minor = minor;
            it.flavors = vec![(flavor.to_owned(), "amphora".to_owned())];
            it.availability_zones = vec!["az1".to_owned()];
        });
        let service = web()
            .annotated(&lb("flavor-id"), flavor)
            .annotated(&lb("availability-zone"), "az1");
        rig.apply(service).await;
        let picture = rig.picture().await;
        let balancer = &picture.balancers[0];
        let reported = rig.cluster.messages("LoadBalancerAvailabilityZonesIgnored");
        if minor == 5 {
            assert_eq!(balancer.availability_zone, None);
            assert_eq!(balancer.flavor_id, None);
            assert_eq!(reported.len(), 1, "{reported:?}");
        } else {
            assert_eq!(balancer.availability_zone.as_deref(), Some("az1"));
            assert_eq!(balancer.flavor_id.as_ref().unwrap().as_str(), flavor);
            assert_eq!(reported, Vec::<String>::new());
        }
        assert_eq!(rig.published("web").len(), 1);
    }
}
