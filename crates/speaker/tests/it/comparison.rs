use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use landfall_engine::World;
use landfall_l2::election::{Rules, hash};
use landfall_model::ServiceKey;
use landfall_model::rows::Fact;
use landfall_speaker::comparison::Electorate;
use landfall_testkit::{node, slice, svc};
use proptest::prelude::*;
use serde_json::json;

use crate::support::{advertisement, pool};

const NODES: [&str; 3] = ["node-a", "node-b", "node-c"];

fn world(services: Vec<Fact>) -> World {
    let mut world = World::default();
    let nodes = NODES.iter().enumerate();
    let nodes = nodes.map(|(place, name)| {
        let address = format!("10.0.0.{}", place + 1);
        Fact::Node(node(name, &address).row())
    });
    let facts = nodes.chain([pool(), advertisement(&json!({}))]);
    for fact in facts.chain(services) {
        world.apply(fact);
    }
    let _ = world.settle_pools(None);
    world
}

/// A Service with an endpoint and these addresses.
fn service(name: &str, addresses: &[&str]) -> Vec<Fact> {
    let held = addresses
        .iter()
        .fold(svc(name).port(80), |it, address| it.holding(address));
    vec![
        Fact::Service(held.row()),
        Fact::Slice(slice(name).port("", 8080).ready("10.0.0.9").row()),
    ]
}

fn least(address: IpAddr) -> &'static str {
    NODES
        .into_iter()
        .min_by_key(|name| hash(name, address))
        .unwrap()
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

#[test]
fn both_elect_the_same_node_and_none_for_a_service_without_endpoints() {
    let mut facts = service("web", &["192.0.2.1"]);
    facts.push(Fact::Service(
        svc("idle").port(80).holding("192.0.2.2").row(),
    ));
    facts.push(Fact::Service(
        svc("foreign").port(80).holding("198.51.100.1").row(),
    ));
    let electorate = Electorate::new(&world(facts), None, Rules::default());
    let owner = Some(least("192.0.2.1".parse().unwrap()).to_owned());
    assert_eq!(
        electorate.metallb(),
        BTreeMap::from([(key("web"), owner.clone()), (key("idle"), None)])
    );
    let addresses: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|it| it.parse().unwrap());
    assert_eq!(
        electorate.landfall(),
        BTreeMap::from([(addresses[0], owner), (addresses[1], None)])
    );
}

#[test]
fn a_node_without_a_speaker_is_no_candidate() {
    let owner = least("192.0.2.1".parse().unwrap());
    let others: BTreeSet<&str> = NODES.into_iter().filter(|it| *it != owner).collect();
    let world = world(service("web", &["192.0.2.1"]));
    let electorate = Electorate::new(&world, Some(&others), Rules::default());
    let elected = electorate.metallb().remove(&key("web")).unwrap().unwrap();
    assert!(others.contains(&*elected), "{elected}");
}

#[test]
fn metallb_has_two_owners_for_an_address_that_services_share_with_others_before_it_and_we_one() {
    // The address is the second of one Service, and the first of the other.
    let shared: IpAddr = "192.0.2.7".parse().unwrap();
    let other = (8..255).map(|last| format!("192.0.2.{last}"));
    let mut other = other.filter(|it| least(it.parse().unwrap()) != least(shared));
    let other = other.next().unwrap();
    let mut facts = service("two", &[&other, "192.0.2.7"]);
    facts.extend(service("one", &["192.0.2.7"]));
    let electorate = Electorate::new(&world(facts), None, Rules::default());
    let by_service = electorate.metallb();
    assert_ne!(by_service[&key("two")], by_service[&key("one")]);
    assert_eq!(
        electorate.landfall()[&shared].as_deref(),
        Some(least(shared))
    );
}

proptest! {
    #[test]
    fn nothing_moves_between_the_two_where_no_address_is_shared(
        lasts in proptest::collection::btree_set(1_u8..255, 1..20),
    ) {
        let texts: Vec<String> = lasts.iter().map(|last| format!("192.0.2.{last}")).collect();
        let facts = texts.iter().enumerate();
        let facts = facts.flat_map(|(place, text)| service(&format!("s{place}"), &[text]));
        let electorate = Electorate::new(&world(facts.collect()), None, Rules::default());
        let (before, after) = (electorate.metallb(), electorate.landfall());
        for (place, text) in texts.iter().enumerate() {
            let address: IpAddr = text.parse().unwrap();
            prop_assert_eq!(&before[&key(&format!("s{place}"))], &after[&address]);
        }
    }
}
