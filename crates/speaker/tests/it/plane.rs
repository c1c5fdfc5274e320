//! What nodes serve themselves.

use std::net::IpAddr;
use std::sync::Arc;

use landfall_engine::Classes;
use landfall_l2::election::Rules;
use landfall_model::ServiceKey;
use landfall_model::option::OptionId;
use landfall_model::provider::{ProviderProfile, Support, Target};
use landfall_model::rows::{Endpoint, Fact, ServiceRow};
use landfall_model::status::IpMode;
use landfall_speaker::decide::Decider;
use landfall_speaker::plane::{Plane, Served};
use landfall_testkit::build::endpoint;
use landfall_testkit::{node, slice, svc};
use serde_json::json;

use crate::support::{advertisement, interface, members, pool};

const ADDRESS: &str = "192.0.2.1";
const NODES: [&str; 3] = ["node-a", "node-b", "node-c"];

fn address() -> IpAddr {
    ADDRESS.parse().unwrap()
}

fn web() -> ServiceKey {
    ServiceKey::new("default", "web")
}

/// The instance `lan` serves everything, with all options.
fn plane(own: &str) -> Plane {
    let profile = ProviderProfile {
        provider: "metal",
        target: Target::Pod,
        support: |_: OptionId| Support::Supported,
        ..ProviderProfile::default()
    };
    Plane::new(own, Classes::only("lan"), vec![Some(profile)])
}

fn service(change: impl FnOnce(&mut ServiceRow)) -> Fact {
    let row = svc("web").port(80).holding(ADDRESS);
    Fact::Service(
        row.with(|row| row.status.ingress[0].ip_mode = Some(IpMode::Proxy))
            .with(change)
            .row(),
    )
}

fn pod(node: &str, address: &str) -> Endpoint {
    Endpoint {
        node: Some(node.into()),
        ..endpoint(address)
    }
}

/// The speaker of a node that knows of a Service with a member on node-a and one on node-b.
fn speaker(own: &str, web: Fact) -> Decider {
    let mut decider = Decider::new(own, 7, Rules::default()).serving(plane(own));
    let mut facts: Vec<Fact> = NODES
        .iter()
        .map(|name| Fact::Node(node(name, "10.0.0.1").row()))
        .collect();
    let pods = slice("web").port("", 8080);
    let pods = pods.endpoint(pod("node-a", "10.8.0.1"));
    let pods = pods.endpoint(pod("node-b", "10.8.1.1"));
    facts.extend([
        web,
        Fact::Slice(pods.row()),
        pool(),
        advertisement(&json!({})),
    ]);
    decider.take_facts(facts);
    decider.take_facts(vec![Fact::Synced]);
    decider.take_interfaces(vec![interface("eth0", 1)]);
    let others: Vec<&str> = NODES.into_iter().filter(|it| *it != own).collect();
    decider.take_members(members(&others));
    decider
}

fn served(decider: &Decider) -> Option<Arc<Served>> {
    decider.serves().get(&web()).cloned()
}

fn member_addresses(served: &Served) -> Vec<String> {
    let members = served.listeners.iter().flat_map(|it| &it.pool.members);
    members.map(|it| it.address.to_string()).collect()
}

#[test]
fn all_nodes_are_ready_to_serve_an_address_and_one_announces_it() {
    let speakers = NODES.map(|own| speaker(own, service(|_| {})));
    for decider in &speakers {
        let served = served(decider).unwrap();
        assert_eq!(served.addresses, [address()]);
        assert_eq!(
            member_addresses(&served),
            ["10.8.0.1:8080", "10.8.1.1:8080"]
        );
    }
    let announcing = speakers.iter().filter(|it| {
        let wanted = it.wanted();
        wanted.announcements.contains_key(&address())
    });
    assert_eq!(announcing.count(), 1);
}

#[test]
fn with_the_policy_local_a_node_serves_with_its_own_members() {
    let local = || service(|row| row.external_local = true);
    let of = |own: &str| served(&speaker(own, local())).unwrap();
    assert_eq!(member_addresses(&of("node-a")), ["10.8.0.1:8080"]);
    assert_eq!(member_addresses(&of("node-b")), ["10.8.1.1:8080"]);
    assert_eq!(of("node-c").listeners, [], "its pods reach another node");
    let owner = speaker("node-c", local());
    let owner = owner.owner(address()).unwrap();
    assert_ne!(owner, "node-c");
}

#[test]
fn what_another_serves_is_not_served_here() {
    for mode in [Some(IpMode::Vip), None] {
        let by_kube_proxy = service(|row| row.status.ingress[0].ip_mode = mode);
        assert_eq!(served(&speaker("node-a", by_kube_proxy)), None);
    }
    let foreign = service(|row| row.class = Some("example.com/other".into()));
    let decider = speaker("node-a", foreign);
    assert_eq!(served(&decider), None);
    assert_eq!(decider.owner(address()), None);
    let outside = service(|row| row.status.ingress[0].ip = "198.51.100.1".parse().ok());
    assert_eq!(served(&speaker("node-a", outside)), None, "in no pool");
}

#[test]
fn a_version_that_is_refused_leaves_the_one_before_with_the_members_of_today() {
    let mut decider = speaker("node-a", service(|_| {}));
    let refused = service(|row| {
        let weights = "landfall.dev/connection-limit".to_owned();
        row.annotations.insert(weights, "many".to_owned());
    });
    let pods = slice("web").port("", 8080);
    let pods = pods.endpoint(pod("node-c", "10.8.2.1")).row();
    decider.take_facts(vec![refused, Fact::Slice(pods)]);
    let before = served(&decider).unwrap();
    assert_eq!(member_addresses(&before), ["10.8.2.1:8080"]);
    // One that was never valid is not served.
    let never = service(|row| {
        let limit = "landfall.dev/connection-limit".to_owned();
        row.annotations.insert(limit, "many".to_owned());
    });
    assert_eq!(served(&speaker("node-a", never)), None);
}

#[test]
fn a_service_that_is_deleted_is_served_no_more() {
    let mut decider = speaker("node-a", service(|_| {}));
    decider.take_facts(vec![service(|row| row.deleting = true)]);
    assert_eq!(served(&decider), None);
    assert!(decider.wanted().announcements.is_empty());
    let mut decider = speaker("node-a", service(|_| {}));
    decider.take_facts(vec![Fact::ServiceGone(web())]);
    assert_eq!(served(&decider), None);
}

#[test]
fn members_that_an_annotation_names_make_the_address_announced() {
    let named = service(|row| {
        let endpoints = "landfall.dev/endpoints".to_owned();
        row.annotations.insert(endpoints, "10.9.0.1:80".to_owned());
    });
    let mut decider = speaker("node-a", named);
    let slices: Vec<ServiceKey> = decider.world().slices_of(&web()).map(|it| it.key).collect();
    decider.take_facts(slices.into_iter().map(Fact::SliceGone).collect());
    assert!(served(&decider).unwrap().has_members);
    assert!(decider.owner(address()).is_some());
}
