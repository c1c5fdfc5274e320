//! Which node announces an address: a pure function of what every speaker knows, so that all of
//! them come to the same answer without a message.
//!
//! The rules and the function are those of MetalLB, so that its speakers and Landfall's elect the
//! same node while one replaces the other. MetalLB elects per Service, by the *first* address of
//! the Service. Where Services share an address and begin with different ones, it elects two owners
//! for it. Here an address has one election, and what is hashed keeps both properties
//! ([`hashed_address`]): it is the first address wherever the Services of the address agree on it,
//! which is wherever MetalLB has one owner; otherwise it is the address itself.

mod candidate;
mod inability;
mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sha2::{Digest, Sha256};

pub use self::candidate::refusal;
pub use self::inability::{Inability, Subnet, fingerprint};
pub use self::why::NotAnnounced;

/// A node, as far as an election needs to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name, which is hashed.
    pub name: String,
    /// It is a live member of the membership of speakers; any node where there is no membership.
    pub is_alive: bool,
    /// Its condition `NetworkUnavailable` is true.
    pub network_unavailable: bool,
    /// It has the label `node.kubernetes.io/exclude-from-external-load-balancers`.
    pub excluded: bool,
    /// It is ready, and reports that it has an interface that announces. Only
    /// [`Rules::must_be_able_to_serve`] reads it.
    pub is_able_to_serve: bool,
    /// What it reports that it can't do. With any rules it goes behind the nodes that can.
    pub inability: Inability,
}

/// An advertisement that applies to a Service: attached to the pool of its address, its
/// `serviceSelectors` match. Selectors are evaluated already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertisement {
    /// It has `serviceSelectors`.
    pub selects_services: bool,
    /// The nodes that its `nodeSelectors` accept.
    pub nodes: BTreeSet<String>,
    /// For each of these nodes the sum of the weights of its `preferredNodeSelectors` that match.
    pub preferences: BTreeMap<String, u32>,
}

/// A Service that holds the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service<'a> {
    /// The first of its addresses, in the order of its status.
    pub first_address: IpAddr,
    /// It has the annotation for sharing, with any value.
    pub has_sharing_key: bool,
    /// `externalTrafficPolicy: Local`.
    pub is_local: bool,
    /// An endpoint of it serves, on any node or on none that is known.
    pub has_endpoints: bool,
    /// The nodes with a serving endpoint.
    pub endpoint_nodes: &'a BTreeSet<String>,
    /// The advertisements that apply to it.
    pub advertisements: Vec<&'a Advertisement>,
}

/// What an operator may change of the rules; the default is what MetalLB does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Nodes with the label that excludes them take part (`--ignore-exclude-lb`).
    pub ignore_exclude_label: bool,
    /// Only nodes that are able to serve take part. All speakers must have the same setting, and
    /// none of MetalLB's may take part.
    pub must_be_able_to_serve: bool,
}

/// The outcome of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election<'n> {
    /// The candidates, the owner first, then those that would follow it.
    pub order: Vec<&'n str>,
    /// Why no node is a candidate for any of the Services, if it is so for all nodes alike.
    pub nowhere: Option<NotAnnounced>,
}

/// A place in the order: smaller is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank<'n> {
    /// Behind all that can: where none can, the same node is elected as if all could.
    is_unable: bool,
    preference: std::cmp::Reverse<u64>,
    hash: [u8; 32],
    /// Equal hashes do not happen; if they did, all nodes had to decide alike.
    name: &'n str,
}

/// Elects the owner of an address among the nodes.
pub fn elect<'n>(
    address: IpAddr,
    services: &[Service<'_>],
    nodes: &'n [Node],
    rules: Rules,
) -> Election<'n> {
    let hashed = hashed_address(address, services);
    let mut order: Vec<Rank<'n>> = nodes
        .iter()
        .filter_map(|node| {
            let eligible = services
                .iter()
                .filter(|service| refusal(service, node, rules).is_none())
                .map(|service| candidate::preference(service, &node.name));
            // Services that share an address have equal advertisements, so preferences differ only
            // while objects are changing.
            eligible.max().map(|preference| Rank {
                is_unable: node.inability.concerns(address),
                preference: std::cmp::Reverse(preference),
                hash: hash(&node.name, hashed),
                name: &node.name,
            })
        })
        .collect();
    order.sort_unstable();
    order.dedup();
    let nowhere = if order.is_empty() {
        services.iter().find_map(candidate::refusal_of_service)
    } else {
        None
    };
    Election {
        order: order.into_iter().map(|rank| rank.name).collect(),
        nowhere,
    }
}

/// Returns the address whose text is hashed: the first address of the Services if all of them have
/// the same one, otherwise the address that is elected.
///
/// A dual-stack Service therefore has both of its addresses on one node, as with MetalLB. An
/// IPv6-only Service that shares the second of them changes what is hashed for that address: it may
/// move, and MetalLB would answer for it on two nodes.
pub fn hashed_address(address: IpAddr, services: &[Service<'_>]) -> IpAddr {
    let mut firsts = services.iter().map(|service| service.first_address);
    match firsts.next() {
        Some(first) if firsts.all(|other| other == first) => first,
        _ => address,
    }
}

/// Returns what orders nodes of equal preference: SHA-256 over name, `#` and the canonical text of
/// the address.
pub fn hash(node: &str, address: IpAddr) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(node.as_bytes());
    hash.update(b"#");
    hash.update(address.to_string().as_bytes());
    hash.finalize().into()
}

// === impl Election ===

impl<'n> Election<'n> {
    /// The node that announces the address.
    pub fn owner(&self) -> Option<&'n str> {
        self.order.first().copied()
    }

    /// Returns why a node does not announce the address; `None` if it does.
    pub fn why_not(
        &self,
        node: &Node,
        services: &[Service<'_>],
        rules: Rules,
    ) -> Option<NotAnnounced> {
        if self.owner() == Some(&node.name) {
            return None;
        }
        if self.order.contains(&node.name.as_str()) {
            return Some(NotAnnounced::NotOwner);
        }
        let refusals = services.iter().map(|it| refusal(it, node, rules));
        let first = refusals.flatten().next();
        Some(first.unwrap_or(NotAnnounced::NotOwner))
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
