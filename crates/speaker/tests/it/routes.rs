//! What a node announces by BGP.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use landfall_bgp::peer::{Mode, PeerAddress};
use landfall_bgp::route::{Attributes, Community, LargeCommunity};
use landfall_l2::election::Rules;
use landfall_model::rows::{Endpoint, Fact, ResourceKind};
use landfall_model::{ServiceKey, wire};
use landfall_speaker::decide::Decider;
use landfall_speaker::routing::Routing;
use landfall_speaker::steady::Part;
use landfall_testkit::build::endpoint;
use landfall_testkit::{node, slice, svc};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{peer, pool, resource};

fn advertisement(name: &str, spec: &Value) -> Fact {
    resource(ResourceKind::BgpAdvertisement, "v1beta1", name, spec)
}

/// A Service with this address and a ready endpoint on node-a.
pub fn service(name: &str, address: &str) -> Vec<Fact> {
    let ready = Endpoint {
        node: Some("node-a".into()),
        ..endpoint("10.8.0.1")
    };
    let labelled = svc(name).port(80).labelled("app", name);
    vec![
        Fact::Service(labelled.holding(address).row()),
        Fact::Slice(slice(name).port("", 8080).endpoint(ready).row()),
    ]
}

/// The node and its pool, and that all is known.
pub fn speaker(own: &str, facts: impl IntoIterator<Item = Fact>) -> Decider {
    let mut decider = Decider::new(own, 7, Rules::default());
    decider.take_facts(facts.into_iter().collect());
    for (name, address) in [("node-a", "10.0.0.1"), ("node-b", "10.0.0.2")] {
        decider.take_facts(vec![Fact::Node(node(name, address).row())]);
    }
    decider.take_facts(vec![pool(), Fact::Synced]);
    decider
}

/// The prefixes of a router, as text, with their attributes.
fn sent(routing: &Routing, peer: &str) -> BTreeMap<String, Attributes> {
    let routes = routing.union.routes.get(peer);
    let routes = routes.into_iter().flat_map(|it| it.entries());
    let routes = routes.map(|(prefix, attributes)| (prefix.to_string(), (**attributes).clone()));
    routes.collect()
}

fn prefixes(decider: &Decider, peer: &str) -> Vec<String> {
    sent(decider.routing(), peer).into_keys().collect()
}

#[test]
fn every_node_announces_the_address_of_a_service_to_every_router() {
    for own in ["node-a", "node-b"] {
        let mut facts = service("web", "192.0.2.1");
        facts.push(advertisement("all", &json!({})));
        facts.push(peer("one", &json!({})));
        facts.push(peer("two", &json!({"peerAddress": "192.0.2.253"})));
        let decider = speaker(own, facts);
        for router in ["one", "two"] {
            assert_eq!(
                prefixes(&decider, router),
                ["192.0.2.1/32"],
                "{own} {router}"
            );
        }
        let said = &decider.routing().union.sent;
        let said = said.get(&ServiceKey::new("default", "web")).unwrap();
        assert_eq!(said.peers.len(), 2);
    }
}

#[test]
fn a_session_is_made_of_what_the_peer_says_and_of_the_node() {
    let spec = json!({"peerPort": 1179, "holdTime": "9s", "ebgpMultiHop": true, "bfdProfile": "f",
        "passwordSecret": {"name": "tor"}, "enableGracefulRestart": true});
    let profile = json!({"transmitInterval": 50, "receiveInterval": 60, "detectMultiplier": 4});
    let facts = [
        resource(ResourceKind::BfdProfile, "v1beta1", "f", &profile),
        peer("tor", &spec),
    ];
    let decider = speaker("node-b", facts);
    let desired = &decider.routing().peers["tor"];
    assert_eq!(desired.peer.router_id.to_string(), "10.0.0.2");
    assert_eq!(
        (desired.peer.port, desired.peer.timers.hold.as_secs()),
        (1179, 9)
    );
    assert!(desired.peer.families.ipv4 && !desired.peer.families.ipv6);
    assert_eq!(
        desired.secret,
        Some(ServiceKey::new("metallb-system", "tor"))
    );
    let (path, settings) = desired.bfd.as_ref().unwrap();
    assert_eq!(path.hops, landfall_bfd::table::Hops::Multi);
    assert_eq!(settings.transmit_interval.as_millis(), 50);
    assert_eq!(settings.detect_multiplier.get(), 4);
}

#[test]
fn the_router_id_stays_as_it_was_whatever_the_node_lists_later_and_comes_of_its_own_address() {
    let listing = |addresses: [&str; 2]| {
        let mut row = node("node-a", addresses[0]).row();
        let addresses = addresses.map(|it| it.parse().unwrap());
        Arc::make_mut(&mut row).addresses = addresses.to_vec();
        Fact::Node(row)
    };
    let id = |decider: &Decider| decider.routing().peers["tor"].peer.router_id.to_string();
    let tor = || peer("tor", &json!({}));
    let mut decider = speaker("node-a", [tor()]);
    decider.take_facts(vec![listing(["10.0.0.9", "10.0.0.1"])]);
    assert_eq!(id(&decider), "10.0.0.1");

    let mut next = Decider::new("node-a", 8, Rules::default()).at([10, 0, 0, 1].into());
    next.take_facts(vec![tor(), listing(["10.0.0.9", "10.0.0.1"]), Fact::Synced]);
    assert_eq!(id(&next), "10.0.0.1");
}

#[test]
fn only_the_router_begins_the_session_where_an_annotation_says_so() {
    let with = |value: &str| {
        let shape: wire::Resource = serde_json::from_value(json!({
            "apiVersion": "metallb.io/v1beta2", "kind": "BGPPeer",
            "metadata": {"name": "tor", "namespace": "metallb-system",
                "annotations": {"landfall.dev/passive": value}},
            "spec": {"myASN": 64_500, "peerASN": 64_501, "peerAddress": "192.0.2.254"},
        }))
        .unwrap();
        let row = shape.into_row(ResourceKind::BgpPeer).unwrap();
        speaker("node-a", [Fact::Resource(Arc::new(row))])
    };
    for (value, mode) in [("true", Mode::Passive), ("false", Mode::Active)] {
        assert_eq!(with(value).routing().peers["tor"].peer.mode, mode);
    }
    let range = &with("192.0.2.7/24").routing().peers["tor"].clone();
    assert_eq!(range.peer.mode, Mode::Passive);
    let network = "192.0.2.0/24".parse().unwrap();
    assert_eq!(range.peer.address, PeerAddress::Range(network));
    // The router is not in the range; no range.
    for value in ["192.0.2.0/25", "maybe"] {
        assert!(with(value).routing().peers.is_empty(), "{value}");
    }
}

#[test]
fn the_key_of_bfd_is_in_the_secret_that_an_annotation_of_the_profile_names() {
    let shape: wire::Resource = serde_json::from_value(json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "BFDProfile",
        "metadata": {"name": "fast", "namespace": "metallb-system",
            "annotations": {"landfall.dev/bfd-key-secret": "bfd",
                "landfall.dev/bfd-key-id": "7"}},
        "spec": {},
    }))
    .unwrap();
    let profile = shape.into_row(ResourceKind::BfdProfile).unwrap();
    let with = |spec: &Value| {
        let facts = [Fact::Resource(Arc::new(profile.clone())), peer("tor", spec)];
        speaker("node-a", facts).routing().peers["tor"].clone()
    };
    let secret = |name| ServiceKey::new("metallb-system", name);
    let watched = with(&json!({"bfdProfile": "fast", "passwordSecret": {"name": "tor"}}));
    let key = watched.bfd_key.as_ref().unwrap();
    let method = landfall_bfd::packet::authentication::Method::KeyedSha1;
    assert_eq!(
        (&key.secret, key.id, key.method),
        (&secret("bfd"), 7, method)
    );
    let secrets: Vec<_> = watched.secrets().cloned().collect();
    assert_eq!(secrets, [secret("tor"), secret("bfd")]);
    let other = with(&json!({}));
    assert_eq!(
        (other.bfd_key.is_none(), other.secrets().count()),
        (true, 0)
    );
}

#[test]
fn an_aggregate_stays_until_the_last_service_in_it_is_gone() {
    let mut facts = service("web", "192.0.2.1");
    facts.extend(service("api", "192.0.2.130"));
    facts.push(advertisement("all", &json!({"aggregationLength": 24})));
    facts.push(peer("tor", &json!({})));
    let mut decider = speaker("node-a", facts);
    assert_eq!(prefixes(&decider, "tor"), ["192.0.2.0/24"]);
    let gone = |name| Fact::ServiceGone(ServiceKey::new("default", name));
    decider.take_facts(vec![gone("web")]);
    assert_eq!(prefixes(&decider, "tor"), ["192.0.2.0/24"]);
    decider.take_facts(vec![gone("api")]);
    assert_eq!(prefixes(&decider, "tor"), [""; 0]);
}

#[test]
fn communities_of_several_advertisements_are_united_for_each_router() {
    let mut facts = service("web", "192.0.2.1");
    let named = json!({"communities": [{"name": "edge", "value": "64500:7"}]});
    facts.push(resource(
        ResourceKind::Community,
        "v1beta1",
        "names",
        &named,
    ));
    let one = json!({"communities": ["edge", "large:64500:1:2"], "localPref": 200});
    let two = json!({"communities": ["64500:8"], "localPref": 200, "peers": ["two"]});
    facts.extend([advertisement("one", &one), advertisement("two", &two)]);
    facts.push(peer("one", &json!({})));
    facts.push(peer("two", &json!({"peerAddress": "192.0.2.253"})));
    let decider = speaker("node-a", facts);
    let of = |router| sent(decider.routing(), router)["192.0.2.1/32"].clone();
    assert_eq!(of("one").communities, [Community(64500, 7)].into());
    let both = [Community(64500, 7), Community(64500, 8)];
    assert_eq!(of("two").communities, both.into());
    for router in ["one", "two"] {
        assert_eq!(
            of(router).large_communities,
            [LargeCommunity(64500, 1, 2)].into()
        );
        assert_eq!(of(router).local_preference, Some(200));
    }
}

#[test]
fn a_node_that_can_not_deliver_announces_nothing_and_has_a_reason() {
    let web = ServiceKey::new("default", "web");
    let base = |spec: &Value| {
        let mut facts = service("web", "192.0.2.1");
        facts.extend([advertisement("all", spec), peer("tor", &json!({}))]);
        facts
    };
    let why = |decider: &Decider| {
        assert_eq!(prefixes(decider, "tor"), [""; 0]);
        decider.why_not_by_bgp(&web).unwrap().reason()
    };

    // The policy Local: only the node with the endpoint.
    let local = svc("web").port(80).holding("192.0.2.1").local().row();
    for (own, wanted) in [("node-a", vec!["192.0.2.1/32"]), ("node-b", vec![])] {
        let mut decider = speaker(own, base(&json!({})));
        decider.take_facts(vec![Fact::Service(Arc::clone(&local))]);
        assert_eq!(prefixes(&decider, "tor"), wanted, "{own}");
    }

    let mut decider = speaker("node-a", base(&json!({})));
    let empty = slice("web").port("", 8080).row();
    decider.take_facts(vec![Fact::Slice(empty)]);
    assert_eq!(why(&decider), "noEndpoints");

    let label = "node.kubernetes.io/exclude-from-external-load-balancers";
    let excluded = node("node-a", "10.0.0.1").labelled(label, "").row();
    let mut decider = speaker("node-a", base(&json!({})));
    decider.take_facts(vec![Fact::Node(excluded)]);
    assert_eq!(why(&decider), "nodeLabeledExcludeBalancers");

    let unavailable = node("node-a", "10.0.0.1").with(|row| row.network_unavailable = true);
    let mut decider = speaker("node-a", base(&json!({})));
    decider.take_facts(vec![Fact::Node(unavailable.row())]);
    assert_eq!(why(&decider), "nodeNetworkUnavailable");

    // What delivers packets fails, and works again.
    let mut decider = speaker("node-a", base(&json!({})));
    decider.take_unsteady(BTreeSet::from([Part::DataPlane]));
    assert_eq!(why(&decider), "dataPlaneUnhealthy");
    decider.take_unsteady(BTreeSet::new());
    assert_eq!(prefixes(&decider, "tor"), ["192.0.2.1/32"]);

    let elsewhere = json!({"nodeSelectors": [{"matchLabels": {"rack": "2"}}]});
    assert_eq!(why(&speaker("node-a", base(&elsewhere))), "notOwner");
    let other = json!({"serviceSelectors": [{"matchLabels": {"app": "api"}}]});
    assert_eq!(
        why(&speaker("node-a", base(&other))),
        "noMatchingAdvertisement"
    );
}

#[test]
fn a_service_is_not_announced_with_two_preferences_to_one_router() {
    let selected = |preference: u32, peers: &[&str]| {
        json!({"serviceSelectors": [{"matchLabels": {"app": "web"}}], "localPref": preference,
            "peers": peers})
    };
    let announced = |peers: &[&str]| {
        let mut facts = service("web", "192.0.2.1");
        facts.push(advertisement("one", &selected(100, &["one"])));
        facts.push(advertisement("two", &selected(300, peers)));
        facts.push(peer("one", &json!({})));
        speaker("node-a", facts)
    };
    assert_eq!(prefixes(&announced(&["two"]), "one"), ["192.0.2.1/32"]);
    let decider = announced(&["one"]);
    assert_eq!(prefixes(&decider, "one"), [""; 0]);
    let why = decider.why_not_by_bgp(&ServiceKey::new("default", "web"));
    assert_eq!(why.unwrap().reason(), "conflictingAdvertisements");
}

#[test]
fn routes_that_did_not_change_are_the_same_object_as_before() {
    let mut facts = service("web", "192.0.2.1");
    facts.push(advertisement("all", &json!({"peers": ["one"]})));
    facts.push(advertisement(
        "api",
        &json!({"peers": ["two"], "aggregationLength": 31}),
    ));
    facts.push(peer("one", &json!({})));
    facts.push(peer("two", &json!({"peerAddress": "192.0.2.253"})));
    let mut decider = speaker("node-a", facts);
    let before = decider.routing().union.routes.clone();
    // In the aggregate of the second router already.
    decider.take_facts(service("api", "192.0.2.0"));
    let after = &decider.routing().union.routes;
    assert!(Arc::ptr_eq(&before["two"], &after["two"]));
    assert!(!Arc::ptr_eq(&before["one"], &after["one"]));
}

proptest! {
    #[test]
    fn routes_are_the_union_over_addresses_in_whatever_order_they_come(
        addresses in prop::collection::btree_set(0_u8..64, 0..12),
        lengths in prop::collection::vec(24_u8..=32, 1..4),
        order in any::<u64>(),
    ) {
        let mut facts = vec![peer("tor", &json!({}))];
        for (number, length) in lengths.iter().enumerate() {
            let spec = json!({"aggregationLength": length,
                "communities": [format!("64500:{number}")]});
            facts.push(advertisement(&format!("of-{number}"), &spec));
        }
        for last in &addresses {
            facts.extend(service(&format!("s{last}"), &format!("192.0.2.{last}")));
        }
        let mut expected: BTreeMap<String, BTreeSet<Community>> = BTreeMap::new();
        for last in &addresses {
            for (number, length) in lengths.iter().enumerate() {
                let kept = u32::from(*last) & (u32::MAX << (32 - length));
                let prefix = format!("192.0.2.{kept}/{length}");
                let community = Community(64500, u16::try_from(number).unwrap());
                expected.entry(prefix).or_default().insert(community);
            }
        }
        let mut shuffled = facts.clone();
        fastrand::Rng::with_seed(order).shuffle(&mut shuffled);
        let first = speaker("node-a", facts);
        let mut second = speaker("node-a", Vec::new());
        for fact in shuffled {
            second.take_facts(vec![fact]);
        }
        for decider in [&first, &second] {
            let sent = sent(decider.routing(), "tor").into_iter();
            let sent: BTreeMap<_, _> = sent.map(|(prefix, it)| (prefix, it.communities)).collect();
            prop_assert_eq!(&sent, &expected);
        }
    }
}

#[test]
fn a_node_that_is_cordoned_or_about_to_go_asks_routers_to_prefer_others() {
    let mut facts = service("web", "192.0.2.1");
    facts.extend([advertisement("all", &json!({})), peer("tor", &json!({}))]);
    let mut decider = speaker("node-a", facts.clone());
    let mut asks = |cordoned, leaving| {
        let row = node("node-a", "10.0.0.1").with(|row| {
            row.cordoned = cordoned;
            row.leaving = leaving;
        });
        decider.take_facts(vec![Fact::Node(row.row())]);
        // It withdraws nothing: it may be the last one.
        assert_eq!(prefixes(&decider, "tor"), ["192.0.2.1/32"]);
        decider.routing().is_leaving
    };
    assert_eq!(
        [(true, false), (false, false), (false, true), (false, false)].map(|it| asks(it.0, it.1)),
        [true, false, true, false]
    );
    // One that is not ready asks nothing; a speaker of it that stops is not expected back.
    for ready in [false, true] {
        let row = node("node-a", "10.0.0.1").with(|row| row.ready = ready);
        decider.take_facts(vec![Fact::Node(row.row())]);
        assert_eq!(decider.routing().is_to_return(), ready);
        assert!(!decider.routing().is_leaving);
    }
    // Another node does not concern this one, and MetalLB's speakers take no notice at all.
    let cordoned = |name| node(name, "10.0.0.1").with(|row| row.cordoned = true).row();
    decider.take_facts(vec![Fact::Node(cordoned("node-b"))]);
    assert!(!decider.routing().is_leaving);
    let mut decider = speaker("node-a", facts).ignoring_cordon();
    decider.take_facts(vec![Fact::Node(cordoned("node-a"))]);
    assert!(!decider.routing().is_leaving);
}

#[test]
fn one_router_is_met_with_another_as_from_each_node() {
    let of = |name: &str, asn: u32, rack: &str| {
        let spec = json!({"myASN": asn, "nodeSelectors": [{"matchLabels": {"rack": rack}}]});
        peer(name, &spec)
    };
    let peers = [of("left", 64_600, "left"), of("right", 64_700, "right")];
    for (rack, asn) in [("left", 64_600), ("right", 64_700)] {
        let mut decider = speaker("node-a", peers.clone());
        let row = node("node-a", "10.0.0.1").labelled("rack", rack).row();
        decider.take_facts(vec![Fact::Node(row)]);
        let peers = &decider.routing().peers;
        assert_eq!(peers.len(), 1, "{rack}");
        assert_eq!(peers[rack].peer.asn.get(), asn);
    }
}

#[test]
fn of_many_services_a_change_of_one_changes_one_route_of_each_router() {
    let address = |number: u32| std::net::Ipv4Addr::from_bits(0xc612_0000 + number).to_string();
    let mut facts = Vec::new();
    for number in 0..2_000 {
        facts.extend(service(&format!("web-{number}"), &address(number)));
    }
    let wide: wire::IpAddressPool = serde_json::from_value(json!({
        "metadata": {"name": "wide", "namespace": "metallb-system"},
        "spec": {"addresses": ["198.18.0.0/16"]},
    }))
    .unwrap();
    facts.push(Fact::Pool(Arc::new(wide.into_row().unwrap())));
    facts.push(advertisement("all", &json!({})));
    for number in 1..=8 {
        let address = format!("192.0.2.{number}");
        facts.push(peer(
            &format!("tor-{number}"),
            &json!({"peerAddress": address}),
        ));
    }
    let mut decider = speaker("node-a", facts);
    let before = Arc::clone(decider.routing());
    assert_eq!(before.union.routes.len(), 8);
    assert!(before.union.routes.values().all(|it| it.len() == 2_000));
    // One Service goes: each router loses one prefix, and nothing else differs.
    let gone = ServiceKey::new("default", "web-7");
    decider.take_facts(vec![Fact::ServiceGone(gone.clone())]);
    let now = &decider.routing().union;
    for (name, routes) in &now.routes {
        let changes = routes.changes(&before.union.routes[name]);
        let changes: Vec<_> = changes.map(|it| (it.key.to_string(), it.now)).collect();
        assert_eq!(changes, [(format!("{}/32", address(7)), None)], "{name}");
    }
    let changes: Vec<_> = now.sent.changes(&before.union.sent).collect();
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].key, changes[0].now), (&gone, None));
}

/// A change of one Service: its number, its address and whether it has an endpoint; `None`: it is
/// gone.
type ServiceChange = (u8, Option<(u8, bool)>);

fn change() -> impl Strategy<Value = ServiceChange> {
    (0_u8..12, proptest::option::of((0_u8..64, any::<bool>())))
}

fn facts_of((number, held): ServiceChange) -> Vec<Fact> {
    let name = format!("s{number}");
    let Some((last, is_ready)) = held else {
        return vec![Fact::ServiceGone(ServiceKey::new("default", &name))];
    };
    let mut facts = service(&name, &format!("192.0.2.{last}"));
    if !is_ready {
        facts.pop();
        facts.push(Fact::Slice(slice(&name).port("", 8080).row()));
    }
    facts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Change by change the same comes out as from all Services at once.
    #[test]
    fn routes_that_follow_changes_are_those_that_are_worked_out_from_nothing(
        advertisements in prop::collection::vec((24_u8..=32, 0_u8..3, 0_u8..4), 1..5),
        changes in prop::collection::vec(prop::collection::vec(change(), 1..4), 1..12),
    ) {
        let mut facts = Vec::new();
        for number in 1..=3 {
            let spec = json!({"peerAddress": format!("192.0.2.{}", 250 + number)});
            facts.push(peer(&format!("tor-{number}"), &spec));
        }
        for (number, (length, peers, app)) in advertisements.into_iter().enumerate() {
            let peers: Vec<_> = (1..=peers).map(|it| format!("tor-{it}")).collect();
            let mut spec = json!({"peers": peers, "communities": [format!("64500:{number}")]});
            // A selector of Services goes with host routes only.
            if app == 0 {
                spec["serviceSelectors"] = json!([{"matchLabels": {"app": "s1"}}]);
            } else {
                spec["aggregationLength"] = json!(length);
            }
            facts.push(advertisement(&format!("of-{number}"), &spec));
        }
        let mut decider = speaker("node-a", facts.clone());
        let mut known: BTreeMap<u8, Vec<Fact>> = BTreeMap::new();
        for changed in changes {
            let mut all = Vec::new();
            for change in changed {
                all.extend(facts_of(change));
                known.insert(change.0, facts_of(change));
            }
            decider.take_facts(all);
            let all = facts.iter().chain(known.values().flatten()).cloned();
            let from_start = speaker("node-a", all);
            prop_assert_eq!(decider.routing(), from_start.routing());
        }
    }
}
