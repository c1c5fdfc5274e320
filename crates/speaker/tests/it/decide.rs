use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use landfall_l2::driver::View;
use landfall_l2::election::{NotAnnounced, Rules, Subnet, fingerprint};
use landfall_l2::fsm::{Scope, Start, State, Status};
use landfall_l2::interfaces::Prefix;
use landfall_membership::driver::View as Members;
use landfall_model::ServiceKey;
use landfall_model::rows::Fact;
use landfall_model::status::IpMode;
use landfall_speaker::decide::Decider;
use landfall_speaker::metadata::Metadata;
use landfall_speaker::steady::Part;
use landfall_testkit::{node, slice, svc};
use serde_json::{Value, json};

use crate::support::{advertisement, interface, members, pool, status};

const ADDRESS: &str = "192.0.2.1";

fn address() -> IpAddr {
    ADDRESS.parse().unwrap()
}

fn service(name: &str) -> Vec<Fact> {
    vec![
        Fact::Service(svc(name).port(80).holding(ADDRESS).row()),
        Fact::Slice(slice(name).port("", 8080).ready("10.0.0.9").row()),
    ]
}

fn nodes() -> Vec<Fact> {
    let nodes = ["node-a", "node-b", "node-c"];
    let row = |(number, name): (usize, &&str)| node(name, &format!("10.0.0.{}", 1 + number)).row();
    nodes
        .iter()
        .enumerate()
        .map(|it| Fact::Node(row(it)))
        .collect()
}

/// The speaker of a node that knows everything, with all others alive.
fn speaker(own: &str, spec: &Value) -> Decider {
    speaker_by(Rules::default(), own, spec)
}

fn speaker_by(rules: Rules, own: &str, spec: &Value) -> Decider {
    let mut decider = Decider::new(own, 7, rules);
    let mut facts = nodes();
    facts.extend(service("web"));
    facts.extend([pool(), advertisement(spec)]);
    decider.take_facts(facts);
    assert!(decider.wanted().announcements.is_empty() && !decider.is_synced());
    decider.take_facts(vec![Fact::Synced]);
    decider.take_interfaces(vec![interface("eth0", 1)]);
    let others = ["node-a", "node-b", "node-c"];
    let others: Vec<&str> = others.into_iter().filter(|it| *it != own).collect();
    decider.take_members(members(&others));
    decider
}

fn owners(spec: &Value) -> Vec<&'static str> {
    let names = ["node-a", "node-b", "node-c"];
    let owns = |name: &&&str| {
        speaker(name, spec)
            .wanted()
            .announcements
            .contains_key(&address())
    };
    names.iter().filter(owns).copied().collect()
}

#[test]
fn one_node_announces_an_address_and_it_is_the_one_that_metallb_elects() {
    // `printf node-X#192.0.2.1 | sha256sum`, the least of the three.
    let hash = |name: &&&str| landfall_l2::election::hash(name, address());
    let names = ["node-a", "node-b", "node-c"];
    let least = names.iter().min_by_key(hash).unwrap();
    assert_eq!(owners(&json!({})), [*least]);
}

#[test]
fn without_an_advertisement_or_endpoints_or_a_pool_no_node_announces() {
    let mut decider = speaker("node-a", &json!({}));
    let owner = decider.owner(address()).unwrap().to_owned();
    let gone = ServiceKey::new("default", "web-1");
    let slices: Vec<ServiceKey> = decider
        .world()
        .slices_of(&ServiceKey::new("default", "web"))
        .map(|it| it.key)
        .collect();
    assert!(!owner.is_empty() && slices.len() == 1, "{gone}");
    decider.take_facts(vec![Fact::SliceGone(slices[0].clone())]);
    assert_eq!(decider.owner(address()), None);
    assert_eq!(decider.why_not(address()), Some(NotAnnounced::NoEndpoints));
    decider.take_facts(service("web"));
    assert_eq!(decider.owner(address()), Some(&*owner));
    decider.take_facts(vec![Fact::PoolGone("lan".into())]);
    assert_eq!(decider.owner(address()), None);
}

#[test]
fn the_next_node_takes_over_when_the_owner_is_no_member_any_more() {
    let owner = owners(&json!({}))[0];
    let left: Vec<&str> = ["node-a", "node-b", "node-c"]
        .into_iter()
        .filter(|it| *it != owner)
        .collect();
    let announcing = left.iter().filter(|own| {
        let mut decider = speaker(own, &json!({}));
        decider.set_current();
        let others: Vec<&str> = left.iter().filter(|it| it != own).copied().collect();
        decider.take_members(members(&others));
        let wanted = decider.wanted();
        assert_eq!(wanted.peers.len(), 1);
        let announcement = wanted.announcements.get(&address());
        // Another node announced it: there is nothing to probe.
        announcement.is_some_and(|it| it.start == Start::TakeOver)
    });
    assert_eq!(announcing.count(), 1);
}

#[test]
fn what_is_owned_is_announced_again_when_a_node_is_met_that_may_have_announced_it() {
    let owner = owners(&json!({}))[0];
    let mut decider = speaker(owner, &json!({}));
    let before = decider.wanted().announcements[&address()].clone();
    let others: Vec<_> = decider.members().map(ToString::to_string).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    // That one dies changes nothing.
    decider.take_members(members(&others[..1]));
    assert_eq!(decider.wanted().announcements[&address()], before);
    let reunited = Members {
        reunions: 1,
        ..Members::clone(&members(&others))
    };
    decider.take_members(Arc::new(reunited));
    let after = decider.wanted().announcements[&address()].clone();
    assert_ne!(after.revision, before.revision);
    assert_eq!(after.start, before.start);
}

#[test]
fn where_nodes_must_be_able_to_serve_those_that_are_about_to_go_come_last() {
    let owner = owners(&json!({}))[0];
    let strict = Rules {
        must_be_able_to_serve: true,
        ..Rules::default()
    };
    let cordoned = |name: &str, is_cordoned: bool| {
        let row = node(name, "10.0.0.1").with(|row| row.cordoned = is_cordoned);
        Fact::Node(row.row())
    };
    let all = ["node-a", "node-b", "node-c"];
    for own in all {
        let mut decider = speaker_by(strict, own, &json!({}));
        assert_eq!(decider.owner(address()), Some(owner));
        decider.take_facts(vec![cordoned(owner, true)]);
        let next = decider.owner(address()).map(str::to_owned);
        assert!(next.is_some_and(|it| it != owner));
        // Where all are about to go, the first of them announces.
        decider.take_facts(all.map(|it| cordoned(it, true)).to_vec());
        assert_eq!(decider.owner(address()), Some(owner));
        decider.take_facts(all.map(|it| cordoned(it, it == owner)).to_vec());
        assert_ne!(decider.owner(address()), Some(owner));
        decider.take_facts(vec![cordoned(owner, false)]);
        assert_eq!(decider.owner(address()), Some(owner));
        // By MetalLB's rules nothing moves.
        let mut decider = speaker(own, &json!({}));
        decider.take_facts(vec![cordoned(owner, true)]);
        assert_eq!(decider.owner(address()), Some(owner));
        let mut decider = speaker_by(strict, own, &json!({})).ignoring_cordon();
        decider.take_facts(vec![cordoned(owner, true)]);
        assert_eq!(decider.owner(address()), Some(owner));
    }
}

#[test]
fn where_nodes_must_be_able_to_serve_one_that_reaches_the_subnet_of_an_address_announces_it() {
    let owner = owners(&json!({}))[0];
    let subnets = |address: &str| {
        let address = address.parse().unwrap();
        let subnet = Subnet::from(Prefix {
            address,
            length: 24,
        });
        BTreeMap::from([("eth0".to_owned(), BTreeSet::from([subnet]))])
    };
    let strict = Rules {
        must_be_able_to_serve: true,
        ..Rules::default()
    };
    let mut decider = speaker_by(strict, owner, &json!({}));
    let others: Vec<_> = decider.members().map(ToString::to_string).collect();
    assert_eq!(decider.owner(address()), Some(owner));
    decider.take_subnets(subnets("192.0.2.250"));
    assert_eq!(decider.owner(address()), Some(owner));
    decider.take_subnets(subnets("198.51.100.250"));
    let next = decider.owner(address()).map(str::to_owned);
    assert!(next.is_some_and(|it| others.contains(&it)));
    assert_eq!(
        decider.why_not(address()),
        Some(NotAnnounced::NotAbleToServe)
    );
    // Others decide by what it says.
    let said = Metadata::decode(&decider.metadata().encode()).unwrap();
    assert!(said.inability().concerns(address()));
    // By MetalLB's rules the subnet does not matter.
    let mut decider = speaker(owner, &json!({}));
    decider.take_subnets(subnets("198.51.100.250"));
    assert_eq!(decider.owner(address()), Some(owner));
    assert_eq!(decider.metadata().subnets, None);
}

#[test]
fn a_node_that_announces_nothing_yet_is_no_candidate_for_the_others() {
    let owner = owners(&json!({}))[0];
    let other = ["node-a", "node-b", "node-c"]
        .into_iter()
        .find(|it| *it != owner)
        .unwrap();
    let mut decider = speaker(other, &json!({}));
    assert_eq!(decider.owner(address()), Some(owner));
    // Its speaker has started again, and knows no Service: the API server may be away.
    let mut seen = Members::clone(&members(&[owner]));
    let starting = Metadata {
        is_starting: true,
        ..Metadata::new(2, &[interface("eth0", 100)])
    };
    seen.peers.get_mut(owner).unwrap().metadata = starting.encode().into();
    decider.take_members(Arc::new(seen));
    assert_eq!(decider.owner(address()), Some(other));
    decider.take_members(members(&[owner]));
    assert_eq!(decider.owner(address()), Some(owner));
}

/// What can fail of a node that announces on `eth0`.
fn failures() -> [Part; 4] {
    [
        Part::Address(address()),
        Part::Interface("eth0".to_owned()),
        Part::Sockets,
        Part::DataPlane,
    ]
}

#[test]
fn an_owner_that_fails_gives_the_address_up_until_it_can_be_relied_on() {
    let owner = owners(&json!({}))[0];
    for part in failures() {
        let mut decider = speaker(owner, &json!({}));
        decider.take_unsteady(BTreeSet::from([part.clone()]));
        assert!(decider.wanted().announcements.is_empty(), "{part:?}");
        let why = decider.why_not(address());
        assert_eq!(why, Some(NotAnnounced::NotAbleToServe), "{part:?}");
        decider.take_unsteady(BTreeSet::new());
        assert_eq!(decider.owner(address()), Some(owner), "{part:?}");
    }
}

#[test]
fn the_others_come_to_the_same_answer_from_what_a_node_that_fails_reports() {
    let owner = owners(&json!({}))[0];
    for part in failures() {
        let mut failing = speaker(owner, &json!({}));
        failing.set_current();
        failing.take_unsteady(BTreeSet::from([part.clone()]));
        let next = failing.owner(address()).unwrap().to_owned();
        let third = ["node-a", "node-b", "node-c"];
        let third = third.into_iter().find(|it| ![owner, &next].contains(it));
        let mut other = speaker(&next, &json!({}));
        let mut seen = Members::clone(&members(&[owner, third.unwrap()]));
        let reported = failing.metadata().encode();
        seen.peers.get_mut(owner).unwrap().metadata = reported.into();
        other.take_members(Arc::new(seen));
        assert!(
            other.wanted().announcements.contains_key(&address()),
            "{part:?}"
        );
    }
}

#[test]
fn where_all_nodes_fail_alike_the_address_stays_where_it_was() {
    let owner = owners(&json!({}))[0];
    let mut decider = speaker(owner, &json!({}));
    let others: Vec<String> = decider.members().map(ToString::to_string).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let mut seen = Members::clone(&members(&others));
    for name in &others {
        let mut failing = Metadata::new(1, &[interface("eth0", 9)]);
        failing.is_silent = true;
        seen.peers.get_mut(*name).unwrap().metadata = failing.encode().into();
    }
    decider.take_members(Arc::new(seen));
    decider.take_unsteady(BTreeSet::from([Part::Address(address())]));
    assert_eq!(decider.owner(address()), Some(owner));
}

#[test]
fn where_all_nodes_are_taken_for_alive_no_membership_is_asked() {
    let names = ["node-a", "node-b", "node-c"];
    let expected = owners(&json!({}));
    let alone = |own: &&&str| {
        let mut decider = Decider::new(own, 7, Rules::default()).assuming_all_alive();
        let mut facts = nodes();
        facts.extend(service("web"));
        facts.extend([pool(), advertisement(&json!({})), Fact::Synced]);
        decider.take_facts(facts);
        decider.take_interfaces(vec![interface("eth0", 1)]);
        decider.wanted().announcements.contains_key(&address())
    };
    let announcing: Vec<&str> = names.iter().filter(alone).copied().collect();
    assert_eq!(announcing, expected);
}

#[test]
fn a_node_says_that_it_announces_once_it_does() {
    let mut decider = speaker("node-a", &json!({}));
    assert!(decider.metadata().is_starting);
    decider.set_current();
    assert!(!decider.metadata().is_starting);
}

#[test]
fn an_address_that_kube_proxy_does_not_deliver_is_not_announced() {
    let owner = owners(&json!({}))[0];
    let mut decider = speaker(owner, &json!({}));
    let mut row = svc("web").port(80).holding(ADDRESS).row();
    for mode in [Some(IpMode::Proxy), Some(IpMode::Vip), None] {
        Arc::make_mut(&mut row).status.ingress[0].ip_mode = mode;
        decider.take_facts(vec![Fact::Service(row.clone())]);
        let is_announced = decider.wanted().announcements.contains_key(&address());
        assert_eq!(is_announced, mode != Some(IpMode::Proxy), "{mode:?}");
    }
}

#[test]
fn an_address_that_appears_later_is_probed_first() {
    let owner = owners(&json!({}))[0];
    let mut decider = speaker(owner, &json!({}));
    decider.set_current();
    decider.take_facts(vec![Fact::ServiceGone(ServiceKey::new("default", "web"))]);
    assert!(decider.wanted().announcements.is_empty());
    decider.take_facts(service("web"));
    let wanted = decider.wanted();
    assert_eq!(wanted.announcements[&address()].start, Start::Probe);
}

#[test]
fn a_node_reports_the_addresses_that_other_hosts_have_until_it_announces_them() {
    let owner = owners(&json!({}))[0];
    let mut decider = speaker(owner, &json!({}));
    decider.set_current();
    for (state, is_refused) in [
        (State::Conflicted, true),
        // The host is asked again.
        (State::Probing, true),
        (State::Announcing, false),
    ] {
        decider.take_announced(&status(address(), state));
        let reported = Metadata::decode(&decider.metadata().encode()).unwrap();
        let refused = &reported.refused.addresses;
        assert_eq!(refused.contains(&fingerprint(address())), is_refused);
        // Others would be refused, too.
        assert!(!reported.inability().concerns(address()));
    }
}

#[test]
fn what_a_host_has_is_probed_by_the_next_owner_and_after_a_restart() {
    let all = ["node-a", "node-b", "node-c"];
    let owner = owners(&json!({}))[0];
    let others: Vec<&str> = all.into_iter().filter(|it| *it != owner).collect();
    let refusing = |names: &[&str], by: &str| {
        let mut seen = Members::clone(&members(names));
        let peer = seen.peers.get_mut(by).unwrap();
        let mut reported = Metadata::decode(&peer.metadata).unwrap();
        reported.refused.addresses.insert(fingerprint(address()));
        peer.metadata = reported.encode().into();
        Arc::new(seen)
    };
    let starts = |decider: &Decider| {
        let wanted = decider.wanted().announcements;
        wanted.get(&address()).map(|it| it.start)
    };
    let mut probing = Vec::new();
    for own in &others {
        let mut decider = speaker(own, &json!({}));
        decider.set_current();
        let left: Vec<&str> = others.iter().copied().filter(|it| it != own).collect();
        decider.take_members(refusing(&[&[owner], &left[..]].concat(), owner));
        assert_eq!(starts(&decider), None);
        decider.take_members(members(&left));
        probing.extend(starts(&decider));
    }
    assert_eq!(probing, [Start::Probe]);

    // The owner comes back while the next one has found the host.
    for (by, expected) in [(None, Start::TakeOver), (Some(others[0]), Start::Probe)] {
        let mut decider = speaker(owner, &json!({}));
        let seen = by.map_or_else(|| members(&others), |by| refusing(&others, by));
        decider.take_members(seen);
        let asks = decider.asks().announcements;
        assert_eq!(asks.contains_key(&address()), by.is_some());
        assert!(asks.values().all(|it| it.start == Start::Ask));
        decider.set_current();
        assert_eq!(starts(&decider), Some(expected));
    }
}

#[test]
fn a_node_without_the_interface_of_an_advertisement_is_not_elected_for_it() {
    // The others report eth0 alone.
    let spec = json!({"interfaces": ["eth7"]});
    let mut decider = speaker("node-b", &spec);
    assert_eq!(decider.owner(address()), None);
    decider.take_interfaces(vec![interface("eth0", 1), interface("eth7", 2)]);
    assert_eq!(decider.owner(address()), Some("node-b"));
    let scope = &decider.wanted().announcements[&address()].interfaces;
    assert_eq!(*scope, Scope::Only(BTreeSet::from(["eth7".to_owned()])));
}

#[test]
fn only_what_is_really_announced_is_said_of_a_service() {
    let owner = owners(&json!({}))[0];
    let mut decider = speaker(owner, &json!({}));
    let mut view = View::default();
    assert!(decider.announces(&view).is_empty());
    let mut status = Status {
        state: State::Probing,
        interfaces: vec!["eth0".to_owned()],
        conflict: None,
    };
    view.addresses.insert(address(), status.clone());
    assert!(decider.announces(&view).is_empty());
    status.state = State::Announcing;
    view.addresses.insert(address(), status);
    let said = decider.announces(&view);
    let key = ServiceKey::new("default", "web");
    assert_eq!(said.keys().collect::<Vec<_>>(), [&key]);
    assert!(said[&key].through.is_empty() && said[&key].took_over);
    assert_eq!(decider.holders(address()).len(), 1);
    decider.take_facts(vec![Fact::ServiceGone(key)]);
    assert!(decider.announces(&view).is_empty());
}

#[test]
fn speakers_are_sought_at_the_addresses_of_all_other_nodes() {
    let decider = speaker("node-b", &json!({}));
    let seeds = decider.seeds(7947);
    let seeds: Vec<String> = seeds
        .iter()
        .map(|(name, address)| format!("{name} {address}"))
        .collect();
    assert_eq!(seeds, ["node-a 10.0.0.1:7947", "node-c 10.0.0.3:7947"]);
}
