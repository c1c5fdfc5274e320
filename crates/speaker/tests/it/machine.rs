//! What one machine announces without a cluster.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use landfall_bgp::route::Community;
use landfall_model::rows::{Fact, PoolOrigin, PoolRow, ResourceKind, ResourceRow, ServiceRow};
use landfall_speaker::machine::Machine;
use landfall_speaker::routing::Routing;
use landfall_testkit::svc;
use serde_json::{Value, json};

use crate::support::{peer, resource};

const ID: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);

fn row(fact: Fact) -> Arc<ResourceRow> {
    match fact {
        Fact::Resource(row) => row,
        other => panic!("{other:?}"),
    }
}

/// A pool of the configuration, which is no object.
fn pool() -> Arc<PoolRow> {
    Arc::new(PoolRow {
        name: "lan".to_owned(),
        addresses: vec!["192.0.2.0/24".to_owned()],
        auto_assign: true,
        origin: PoolOrigin::Configured,
        ..PoolRow::default()
    })
}

fn served(name: &str, address: &str) -> (Arc<ServiceRow>, Vec<IpAddr>) {
    let row = svc(name).port(80).labelled("app", name).holding(address);
    (row.row(), vec![address.parse().unwrap()])
}

fn machine(resources: Vec<Fact>) -> Machine {
    let mut machine = Machine::new("edge");
    let resources: Vec<_> = resources.into_iter().map(row).collect();
    machine.take(&[pool()], &resources);
    machine
}

fn prefixes(routing: &Routing, peer: &str) -> Vec<String> {
    let prefixes: BTreeSet<_> = routing.union.routes[peer].keys().collect();
    prefixes.iter().map(ToString::to_string).collect()
}

fn advertisement(spec: &Value) -> Fact {
    resource(ResourceKind::BgpAdvertisement, "v1beta1", "web", spec)
}

#[test]
fn a_router_alone_is_sent_each_address_that_is_served() {
    let machine = machine(vec![peer("tor", &json!({}))]);
    assert!(machine.has_peers());
    let services = [served("web", "192.0.2.1"), served("api", "192.0.2.2")];
    let routing = machine.routing(&services, ID, &Routing::default());
    assert_eq!(prefixes(&routing, "tor"), ["192.0.2.1/32", "192.0.2.2/32"]);
    assert_eq!(routing.peers["tor"].peer.router_id, ID);
    assert!(routing.problems.is_empty() && !routing.is_leaving);
    // What did not change is the same object.
    let again = machine.routing(&services, ID, &routing);
    let of = |routing: &Routing| Arc::clone(&routing.union.routes["tor"]);
    assert!(Arc::ptr_eq(&of(&routing), &of(&again)));
}

#[test]
fn an_advertisement_says_which_services_are_announced_and_how() {
    let spec = json!({"communities": ["64500:7"],
        "serviceSelectors": [{"matchLabels": {"app": "web"}}]});
    let machine = machine(vec![peer("tor", &json!({})), advertisement(&spec)]);
    let services = [served("web", "192.0.2.1"), served("api", "192.0.2.2")];
    let routing = machine.routing(&services, ID, &Routing::default());
    assert_eq!(prefixes(&routing, "tor"), ["192.0.2.1/32"]);
    let (_, attributes) = routing.union.routes["tor"].entries().next().unwrap();
    assert_eq!(attributes.communities, [Community(64500, 7)].into());
}

#[test]
fn a_router_of_certain_nodes_and_one_that_is_invalid_get_nothing() {
    let selective = json!({"nodeSelectors": [{"matchLabels": {"rack": "one"}}]});
    let machine = machine(vec![
        peer("racks", &selective),
        peer("wrong", &json!({"peerAddress": "no address"})),
    ]);
    let routing = machine.routing(&[served("web", "192.0.2.1")], ID, &Routing::default());
    assert!(routing.peers.is_empty(), "{:?}", routing.peers);
    let said: Vec<String> = routing.problems.iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|it| it.contains("no address")), "{said:?}");
}
