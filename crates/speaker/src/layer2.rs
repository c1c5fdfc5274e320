//! What World and resources say about announcing by ARP and Neighbour Discovery, as elections need
//! it. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use landfall_engine::World;
use landfall_l2::election::{Advertisement, Node};
use landfall_metallb::Config;
use landfall_model::rows::{NodeRow, ServiceRow};
use landfall_model::status::IpMode;

use crate::board::{BoardAdvertisement, ServiceFacts};
use crate::metadata::Metadata;
use crate::plane::Served;

/// The annotations that allow a Service to share its address, the newer one first.
const SHARING_KEYS: [&str; 3] = [
    "landfall.dev/sharing-key",
    "metallb.io/allow-shared-ip",
    "metallb.universe.tf/allow-shared-ip",
];

/// The label that excludes a node, with any value.
pub(crate) const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Returns the advertisements, evaluated for these nodes. A node that is known to have none of the
/// interfaces of an advertisement is not selected by it: another one can announce instead.
pub fn advertisements(
    config: &Config,
    nodes: &[Arc<NodeRow>],
    reported: &BTreeMap<String, Metadata>,
) -> Vec<BoardAdvertisement> {
    let evaluate = |advertised: &landfall_metallb::Advertised<_>| {
        let advertisement: &landfall_metallb::L2Advertisement = &advertised.advertisement;
        let able = nodes.iter().filter(|node| {
            let reported = reported.get(&*node.name);
            reported.is_none_or(|reported| reported.has_one_of(&advertisement.interfaces))
        });
        let selected = advertisement.select(able.map(|node| (&*node.name, &node.labels)));
        BoardAdvertisement {
            election: Advertisement {
                selects_services: !advertisement.services.is_empty(),
                nodes: selected.names,
                preferences: selected.preferences,
            },
            interfaces: advertisement.interfaces.clone(),
        }
    };
    config.l2_advertisements().iter().map(evaluate).collect()
}

/// Returns what elections need of a Service; `None` if it has no address of a pool that nodes
/// deliver. `served`: what nodes serve of it themselves.
pub fn service(
    config: &Config,
    world: &World,
    row: &ServiceRow,
    served: Option<&Served>,
) -> Option<ServiceFacts> {
    if !row.wants_load_balancer || row.deleting {
        return None;
    }
    // With `Proxy`, kube-proxy does not deliver them: what serves them makes them reachable itself.
    let delivered = row.status.ingress.iter();
    let delivered = delivered.filter_map(|entry| {
        let by_kube_proxy = entry.ip_mode != Some(IpMode::Proxy);
        let is_served = |ip: &IpAddr| served.is_some_and(|it| it.addresses.contains(ip));
        entry.ip.filter(|ip| by_kube_proxy || is_served(ip))
    });
    let of_pools = delivered.filter(|address| config.pools().pool_of(*address).is_some());
    let (addresses, advertisements): (Vec<_>, Vec<_>) = of_pools
        .map(|address| (address, config.l2_of(address, &row.labels)))
        .unzip();
    if addresses.is_empty() {
        return None;
    }
    let mut facts = ServiceFacts {
        addresses,
        has_sharing_key: SHARING_KEYS
            .iter()
            .any(|key| row.annotations.contains_key(*key)),
        is_local: row.external_local,
        advertisements,
        ..ServiceFacts::default()
    };
    match served {
        Some(served) => {
            facts.has_endpoints = served.has_members;
            facts.endpoint_nodes.clone_from(&served.nodes);
        }
        None => take_endpoints(&mut facts, world, row),
    }
    Some(facts)
}

fn take_endpoints(facts: &mut ServiceFacts, world: &World, row: &ServiceRow) {
    let slices = world.slices_of(&row.key);
    let endpoints = slices.flat_map(|slice| slice.endpoints);
    for endpoint in endpoints.filter(|endpoint| endpoint.serving) {
        facts.has_endpoints = true;
        // With the policy Cluster the nodes make no difference, and would cost an election
        // whenever a Pod moves.
        if let (true, Some(node)) = (facts.is_local, &endpoint.node) {
            facts.endpoint_nodes.insert(node.to_string());
        }
    }
}

/// Returns a node as elections need it; `alive`: the names of the members. `is_leaving`: it is to
/// go behind all that stay, which is better than no node where all of them leave.
pub fn node(
    row: &NodeRow,
    alive: &BTreeSet<&str>,
    reported: Option<&Metadata>,
    is_leaving: bool,
) -> Node {
    let mut inability = reported.map(Metadata::inability).unwrap_or_default();
    inability.ipv4 |= is_leaving;
    inability.ipv6 |= is_leaving;
    Node {
        name: row.name.to_string(),
        is_alive: alive.contains(&*row.name),
        network_unavailable: row.network_unavailable,
        excluded: row.labels.contains_key(EXCLUDED),
        is_able_to_serve: row.ready && !row.deleting && reported.is_some_and(Metadata::has_any),
        inability,
    }
}
