//! What the resources say about announcing by ARP and Neighbour Discovery: pools and the
//! advertisements attached to them. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use landfall_engine::World;
use landfall_ipam::LabelSelector;
use landfall_l2::election::Advertisement;
use landfall_model::rows::{NodeRow, ServiceRow};

use crate::board::{BoardAdvertisement, ServiceFacts};
use crate::metadata::Metadata;

/// The annotations that allow a Service to share its address, the newer one first.
const SHARING_KEYS: [&str; 2] = [
    "metallb.io/allow-shared-ip",
    "metallb.universe.tf/allow-shared-ip",
];

/// Pools and advertisements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer2 {
    /// The pools, which do not overlap.
    pub pools: Vec<AdvertisedPool>,
    /// The advertisements.
    pub advertisements: Vec<AdvertisementSpec>,
}

/// A pool of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdvertisedPool {
    /// Its name.
    pub name: Arc<str>,
    /// Its first and last addresses.
    pub ranges: Vec<(IpAddr, IpAddr)>,
    /// The advertisements attached to it, by their place.
    pub advertisements: BTreeSet<usize>,
}

/// An advertisement as it is specified. Of several selectors one has to match; without any, all do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdvertisementSpec {
    /// On labels of nodes.
    pub node_selectors: Vec<LabelSelector>,
    /// On labels of Services.
    pub service_selectors: Vec<LabelSelector>,
    /// Names of interfaces; none: all.
    pub interfaces: BTreeSet<String>,
    /// Nodes that are preferred, with a weight.
    pub preferred: Vec<(u32, LabelSelector)>,
}

// === impl Layer2 ===

impl Layer2 {
    /// Returns the pool of an address.
    pub fn pool_of(&self, address: IpAddr) -> Option<&AdvertisedPool> {
        let contains = |pool: &&AdvertisedPool| pool.contains(address);
        self.pools.iter().find(contains)
    }

    /// Evaluates the advertisements for these nodes. A node that is known to have none of the
    /// interfaces of an advertisement is not selected by it: another one can announce instead.
    pub fn evaluate(
        &self,
        nodes: &[&NodeRow],
        reported: &BTreeMap<String, Metadata>,
    ) -> Vec<BoardAdvertisement> {
        let evaluate = |spec: &AdvertisementSpec| {
            let selected = nodes.iter().filter(|node| {
                let reported = reported.get(&*node.name);
                matches_any(&spec.node_selectors, &node.labels)
                    && reported.is_none_or(|reported| reported.has_one_of(&spec.interfaces))
            });
            let mut advertisement = Advertisement {
                selects_services: !spec.service_selectors.is_empty(),
                ..Advertisement::default()
            };
            for node in selected {
                let matching = spec.preferred.iter();
                let matching = matching.filter(|(_, selector)| selector.matches(&node.labels));
                let weight = matching.fold(0, |sum: u32, (weight, _)| sum.saturating_add(*weight));
                let name = node.name.to_string();
                if weight > 0 {
                    advertisement.preferences.insert(name.clone(), weight);
                }
                advertisement.nodes.insert(name);
            }
            BoardAdvertisement {
                election: advertisement,
                interfaces: spec.interfaces.clone(),
            }
        };
        self.advertisements.iter().map(evaluate).collect()
    }

    /// Returns what elections need of a Service; `None` if it has no address of a pool.
    pub fn facts(&self, world: &World, row: &ServiceRow) -> Option<ServiceFacts> {
        if !row.wants_load_balancer {
            return None;
        }
        let published = row.status.ingress.iter().filter_map(|entry| entry.ip);
        let (addresses, advertisements): (Vec<_>, Vec<_>) = published
            .filter_map(|address| Some((address, self.matching(address, row)?)))
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
        let slices = world.slices_of(&row.key);
        for endpoint in slices.flat_map(|slice| slice.endpoints) {
            if !endpoint.serving {
                continue;
            }
            facts.has_endpoints = true;
            // With the policy Cluster the nodes make no difference, and would cost an election
            // whenever a Pod moves.
            if let (true, Some(node)) = (facts.is_local, &endpoint.node) {
                facts.endpoint_nodes.insert(node.to_string());
            }
        }
        Some(facts)
    }

    /// The advertisements that apply to an address of a Service; `None` if it is in no pool.
    fn matching(&self, address: IpAddr, row: &ServiceRow) -> Option<BTreeSet<usize>> {
        let attached = self.pool_of(address)?.advertisements.iter();
        let applies = |place: &&usize| {
            let spec = self.advertisements.get(**place);
            spec.is_some_and(|spec| matches_any(&spec.service_selectors, &row.labels))
        };
        Some(attached.filter(applies).copied().collect())
    }
}

// === impl AdvertisedPool ===

impl AdvertisedPool {
    fn contains(&self, address: IpAddr) -> bool {
        let contains = |(first, last): &(IpAddr, IpAddr)| {
            address.is_ipv4() == first.is_ipv4() && *first <= address && address <= *last
        };
        self.ranges.iter().any(contains)
    }
}

fn matches_any(selectors: &[LabelSelector], labels: &BTreeMap<String, String>) -> bool {
    selectors.is_empty() || selectors.iter().any(|selector| selector.matches(labels))
}
