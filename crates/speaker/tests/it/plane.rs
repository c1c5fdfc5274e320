//! What nodes serve themselves.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_engine::Classes;
use landfall_l2::election::{Rules, fingerprint};
use landfall_l2::fsm::State;
use landfall_model::ServiceKey;
use landfall_model::option::OptionId;
use landfall_model::provider::{ProviderProfile, Support, Target};
use landfall_model::rows::{Endpoint, Fact, ResourceKind, ServiceRow};
use landfall_model::status::IpMode;
use landfall_speaker::decide::Decider;
use landfall_speaker::metadata::Metadata;
use landfall_speaker::plane::{Plane, Served, Serves};
use landfall_speaker::routes::Withheld;
use landfall_speaker::serve::ServingView;
use landfall_speaker::steady::Part;
use landfall_testkit::build::endpoint;
use landfall_testkit::{node, slice, svc};
use serde_json::json;

use crate::support::{advertisement, interface, members, peer, pool, resource, status};

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

/// The speaker of node-a, which has a router.
fn routed(web: Fact) -> Decider {
    let mut decider = speaker("node-a", web);
    let all = resource(ResourceKind::BgpAdvertisement, "v1beta1", "all", &json!({}));
    decider.take_facts(vec![all, peer("tor", &json!({}))]);
    decider
}

fn is_sent(decider: &Decider) -> bool {
    let routes = decider.routing().union.routes.get("tor").unwrap();
    routes.keys().any(|prefix| prefix.contains(&address()))
}

/// What the other nodes report: these can't serve the address.
fn report(decider: &mut Decider, unable: &[&str]) {
    let mut seen = Arc::unwrap_or_clone(members(&["node-b", "node-c"]));
    for (name, peer) in &mut seen.peers {
        let mut reported = Metadata::decode(&peer.metadata).unwrap();
        if unable.contains(&&**name) {
            reported.unserved.insert(fingerprint(address()));
        }
        peer.metadata = reported.encode().into();
    }
    decider.take_members(Arc::new(seen));
}

#[test]
fn routers_are_sent_an_address_once_its_packets_are_taken_and_no_longer_than_that() {
    let mut decider = routed(service(|_| {}));
    decider.take_routed(&BTreeSet::new());
    assert!(!is_sent(&decider), "a node that starts");
    let why = decider.why_not_by_bgp(&web());
    assert_eq!(why, Some(&Withheld::NotServed));
    let explained = decider.explain(&web(), None).unwrap();
    let mut of_bgp = explained.announcements.iter();
    let of_bgp = of_bgp.find(|it| it.protocol == "bgp").unwrap();
    assert_eq!(of_bgp.reason.as_deref(), Some("notServed"));

    let taken = BTreeSet::from([address()]);
    decider.take_routed(&taken);
    assert!(is_sent(&decider));
    // A new version of everything changes nothing of it.
    decider.take_facts(vec![service(|row| row.external_local = true)]);
    decider.take_facts(vec![pool()]);
    assert!(is_sent(&decider));

    decider.take_routed(&BTreeSet::new());
    assert!(!is_sent(&decider), "its route is gone");
}

#[test]
fn what_kube_proxy_serves_needs_no_listener_to_be_sent_to_routers() {
    let mut decider = routed(service(|row| row.status.ingress[0].ip_mode = None));
    decider.take_routed(&BTreeSet::new());
    assert!(is_sent(&decider));
}

#[test]
fn an_address_that_is_served_in_part_is_left_to_the_nodes_that_serve_all_of_it() {
    let mut decider = routed(service(|_| {}));
    decider.take_routed(&BTreeSet::from([address()]));
    let unsteady = BTreeSet::from([Part::Address(address())]);
    decider.take_unsteady(unsteady.clone());
    assert!(!is_sent(&decider));
    report(&mut decider, &["node-b"]);
    assert!(!is_sent(&decider), "node-c serves it");
    report(&mut decider, &["node-b", "node-c"]);
    assert!(is_sent(&decider), "a part is better than nothing");
    report(&mut decider, &["node-b"]);
    assert!(!is_sent(&decider));
    decider.take_members(members(&[]));
    assert!(is_sent(&decider), "no other node is alive");
    report(&mut decider, &[]);
    decider.take_unsteady(BTreeSet::new());
    assert!(is_sent(&decider));
    // With the policy Local, node-c has no endpoint.
    decider.take_facts(vec![service(|row| row.external_local = true)]);
    decider.take_unsteady(unsteady);
    assert!(!is_sent(&decider), "node-b serves it");
    report(&mut decider, &["node-b"]);
    assert!(is_sent(&decider));
}

#[test]
fn packets_of_an_address_that_another_host_has_are_left_alone_on_every_node() {
    let owner = speaker("node-a", service(|_| {}));
    let owner = owner.owner(address()).unwrap().to_owned();
    let refused = |decider: &Decider| served(decider).unwrap().refused.contains(&address());
    for own in NODES {
        let mut decider = speaker(own, service(|_| {}));
        assert!(!refused(&decider));
        // A node that does not announce it may be wrong.
        let by = |name: &str| {
            let mut seen = Arc::unwrap_or_clone(members(&NODES));
            seen.peers.remove(own);
            if let Some(peer) = seen.peers.get_mut(name) {
                let mut reported = Metadata::decode(&peer.metadata).unwrap();
                reported.refused.addresses.insert(fingerprint(address()));
                peer.metadata = reported.encode().into();
            }
            Arc::new(seen)
        };
        let another = NODES.into_iter().find(|it| *it != owner && *it != own);
        decider.take_members(by(another.unwrap()));
        assert!(!refused(&decider));
        decider.take_members(by(&owner));
        if own == owner {
            decider.take_announced(&status(address(), State::Conflicted));
        }
        assert!(refused(&decider), "{own}");
        // A new version of the Service changes nothing of it.
        decider.take_facts(vec![service(|row| {
            row.labels.insert("tier".to_owned(), "web".to_owned());
        })]);
        assert!(refused(&decider), "{own}");
        decider.take_members(by("no node"));
        if own == owner {
            decider.take_announced(&status(address(), State::Announcing));
        }
        assert!(!refused(&decider), "{own}");
    }
}

#[test]
fn routers_are_sent_nothing_before_all_that_is_to_be_served_was_tried() {
    let wanted = speaker("node-a", service(|_| {})).serves();
    let mut view = ServingView::default();
    assert!(!view.has_begun(&wanted));
    view.services = Arc::clone(&wanted);
    assert!(view.has_begun(&wanted), "also what failed");
    assert!(ServingView::default().has_begun(&Serves::default()));
}
