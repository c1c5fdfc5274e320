//! The elections of all addresses, kept up to date change by change. Pure.
//!
//! A change of a Service elects the owners of its addresses again. A change of a node elects those
//! again that it may have won or lost: whether a node is a candidate does not depend on the others,
//! so the new owner is the better one of the owner so far and the nodes that changed, unless the
//! owner itself changed.

mod refused;
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use landfall_l2::election::{
    self, Advertisement, Election, Node, NotAnnounced, Rules, fingerprint,
};
use landfall_l2::fsm::{Scope, Start};
use landfall_model::ServiceKey;

use crate::metadata::Refused;

/// An owner is taken to announce a new address once it has had it for so many looks and reported no
/// host that has it: it has asked by then, and what it found has arrived.
const NEW: u8 = 2;

/// The same of an address that a host had: it may be that the owner does not know of it.
const REFUSED: u8 = 60;

/// A Service with addresses, as far as elections need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Its addresses, in the order of its status.
    pub addresses: Vec<IpAddr>,
    /// It has the annotation for sharing, with any value.
    pub has_sharing_key: bool,
    /// `externalTrafficPolicy: Local`.
    pub is_local: bool,
    /// An endpoint of it serves.
    pub has_endpoints: bool,
    /// The nodes with a serving endpoint; empty where they do not matter.
    pub endpoint_nodes: BTreeSet<String>,
    /// The addresses that this node is to serve itself and leaves to others, which matters to
    /// routes alone: elections know it of all nodes.
    pub unserved: BTreeSet<IpAddr>,
    /// For each address the advertisements that apply, by their place in the list of the Board.
    pub advertisements: Vec<BTreeSet<usize>>,
}

/// An advertisement with what only the owner of an address needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoardAdvertisement {
    /// What elections need.
    pub election: Advertisement,
    /// The interfaces; none: all.
    pub interfaces: BTreeSet<String>,
}

/// The elections.
#[derive(Clone, Debug)]
pub struct Board {
    /// The node that this speaker runs on.
    own: Arc<str>,
    rules: Rules,
    services: BTreeMap<ServiceKey, ServiceFacts>,
    addresses: BTreeMap<IpAddr, Elected>,
    nodes: Vec<Node>,
    advertisements: Vec<BoardAdvertisement>,
    /// The addresses that nodes, this one too, do not announce because other hosts have them.
    refused: BTreeMap<String, Refused>,
    /// What was there at the start was announced, whichever node did so.
    is_announced_at_start: bool,
    /// [`Self::begin`] ran: what is there by now is asked for.
    has_begun: bool,
    /// Whether everything that was there at the start is known: an address that appears afterwards
    /// is new.
    is_current: bool,
}

/// An address and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Elected {
    services: BTreeSet<ServiceKey>,
    owner: Option<String>,
    nowhere: Option<NotAnnounced>,
    /// While this is not zero, no node is known to have announced it: another host may have it.
    /// So many looks are left until its owner, if that is another node, is taken to announce it.
    unsettled: u8,
    /// A node was elected for it before.
    is_old: bool,
    /// How this node begins, or began, to announce it.
    start: Start,
    /// Another node may have announced it before this one.
    took_over: bool,
    /// At a start: it was not there yet, or no node could announce it, when this node began to ask
    /// for what it found. Nodes that started together did not ask for it either.
    is_unasked: bool,
}

/// An address that this node announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// On which interfaces.
    pub interfaces: Scope,
    /// How it begins.
    pub start: Start,
    /// Another node may have announced it before.
    pub took_over: bool,
}

// === impl Board ===

impl Board {
    /// A Board without Services and nodes.
    pub fn new(own: &str, rules: Rules) -> Self {
        Self {
            own: own.into(),
            rules,
            services: BTreeMap::new(),
            addresses: BTreeMap::new(),
            nodes: Vec::new(),
            advertisements: Vec::new(),
            refused: BTreeMap::new(),
            is_announced_at_start: false,
            has_begun: false,
            is_current: false,
        }
    }

    /// Takes which addresses nodes do not announce because other hosts have them.
    pub fn set_refused(&mut self, refused: BTreeMap<String, Refused>) {
        if refused == self.refused {
            return;
        }
        self.refused = refused;
        self.apply_refused();
    }

    fn apply_refused(&mut self) {
        let mut addresses = std::mem::take(&mut self.addresses);
        for (address, elected) in &mut addresses {
            if self.is_refused(*address, elected.owner.as_deref()) {
                elected.unsettled = REFUSED;
                if !self.is_current {
                    elected.start = Start::Probe;
                }
            }
        }
        self.addresses = addresses;
    }

    /// Returns whether a node reports that a host has an address, or its owner may mean it.
    fn is_refused(&self, address: IpAddr, owner: Option<&str>) -> bool {
        let mut all = self.refused.values().map(|it| &it.addresses);
        let of_owner = owner.and_then(|owner| self.refused.get(owner));
        of_owner.is_some_and(|it| it.are_many)
            || (all.clone().any(|it| !it.is_empty())
                && all.any(|it| it.contains(&fingerprint(address))))
    }

    /// Takes that this node announces an address.
    pub fn set_announced(&mut self, address: IpAddr) {
        if let Some(elected) = self.addresses.get_mut(&address) {
            elected.unsettled = 0;
        }
    }

    /// Returns whether time decides if owners announce their addresses.
    pub fn is_unsettled(&self) -> bool {
        let of_others = |it: &Elected| it.owner.as_deref().is_some_and(|it| it != &*self.own);
        let mut addresses = self.addresses.values();
        addresses.any(|it| it.unsettled > 0 && of_others(it))
    }

    /// One comparison with what other nodes have.
    pub fn look(&mut self) {
        let mut addresses = std::mem::take(&mut self.addresses);
        for (address, elected) in &mut addresses {
            let owner = elected.owner.as_deref();
            if elected.unsettled > 0 && owner.is_some_and(|it| it != &*self.own) {
                elected.unsettled = if self.is_refused(*address, owner) {
                    REFUSED
                } else {
                    elected.unsettled - 1
                };
            }
        }
        self.addresses = addresses;
    }

    /// Takes a Service, or that there is none of this name with an address. Returns whether
    /// anything may have changed.
    pub fn set_service(&mut self, key: &ServiceKey, facts: Option<ServiceFacts>) -> bool {
        let before = self.services.get(key);
        if before == facts.as_ref() {
            return false;
        }
        let mut touched: BTreeSet<IpAddr> = BTreeSet::new();
        for held in before.into_iter().chain(&facts) {
            touched.extend(&held.addresses);
        }
        match facts {
            Some(facts) => self.services.insert(key.clone(), facts),
            None => self.services.remove(key),
        };
        for address in touched {
            self.set_holder(address, key);
        }
        true
    }

    fn set_holder(&mut self, address: IpAddr, key: &ServiceKey) {
        let facts = self.services.get(key);
        if facts.is_some_and(|facts| facts.addresses.contains(&address)) {
            let is_old = !self.is_current;
            let is_unasked = is_old && self.has_begun;
            let elected = self.addresses.entry(address).or_insert_with(|| Elected {
                services: BTreeSet::new(),
                owner: None,
                nowhere: None,
                unsettled: if is_old && !is_unasked { 0 } else { NEW },
                is_old,
                start: Start::TakeOver,
                took_over: is_old,
                is_unasked,
            });
            elected.services.insert(key.clone());
        } else if let Some(elected) = self.addresses.get_mut(&address) {
            elected.services.remove(key);
            if elected.services.is_empty() {
                self.addresses.remove(&address);
            }
        }
        self.elect(address, None);
    }

    /// Replaces the advertisements, and with them the Services that refer to them by place.
    pub fn set_advertisements(
        &mut self,
        advertisements: Vec<BoardAdvertisement>,
        services: impl IntoIterator<Item = (ServiceKey, ServiceFacts)>,
    ) {
        self.advertisements = advertisements;
        let services: BTreeMap<_, _> = services.into_iter().collect();
        let gone: Vec<ServiceKey> = self.services.keys().cloned().collect();
        for key in gone.iter().filter(|key| !services.contains_key(key)) {
            self.set_service(key, None);
        }
        for (key, facts) in services {
            self.set_service(&key, Some(facts));
        }
        // The same place may now mean another advertisement.
        self.elect_all();
    }

    /// Replaces the nodes. Returns whether anything may have changed.
    pub fn set_nodes(&mut self, mut nodes: Vec<Node>) -> bool {
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        if nodes == self.nodes {
            return false;
        }
        let before = std::mem::replace(&mut self.nodes, nodes);
        let was = |node: &Node| {
            let place = before.binary_search_by(|it| it.name.cmp(&node.name)).ok()?;
            before.get(place)
        };
        let changed = self.nodes.iter().filter(|node| was(node) != Some(node));
        let mut changed: BTreeSet<String> = changed.map(|node| node.name.clone()).collect();
        let is_here = |name: &str| self.node(name).is_some();
        let gone = before.iter().filter(|node| !is_here(&node.name));
        changed.extend(gone.map(|node| node.name.clone()));
        let addresses: Vec<IpAddr> = self.addresses.keys().copied().collect();
        for address in addresses {
            self.elect(address, Some(&changed));
        }
        true
    }

    /// The node with this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        let place = self
            .nodes
            .binary_search_by(|it| it.name.as_str().cmp(name))
            .ok()?;
        self.nodes.get(place)
    }

    fn elect_all(&mut self) {
        let addresses: Vec<IpAddr> = self.addresses.keys().copied().collect();
        for address in addresses {
            self.elect(address, None);
        }
    }

    /// Elects the owner of an address again. `changed`: only these nodes changed since the last
    /// election.
    fn elect(&mut self, address: IpAddr, changed: Option<&BTreeSet<String>>) {
        let Some(elected) = self.addresses.get(&address) else {
            return;
        };
        let services = self.services_of(address, elected);
        let before = elected.owner.clone();
        // Without an owner, and where it changed itself, any node may win.
        let few: Vec<Node> = match (changed, &before) {
            (Some(changed), Some(owner)) if !changed.contains(owner) => {
                let names = changed.iter().chain([owner]);
                names.filter_map(|name| self.node(name)).cloned().collect()
            }
            _ => Vec::new(),
        };
        let nodes = if few.is_empty() { &self.nodes } else { &few };
        let election = election::elect(address, &services, nodes, self.rules);
        let (owner, nowhere) = (election.owner().map(str::to_owned), election.nowhere);
        let own = self.own.clone();
        if let Some(elected) = self.addresses.get_mut(&address) {
            elected.follow(&own, owner, nowhere);
        }
    }

    fn services_of(&self, address: IpAddr, elected: &Elected) -> Vec<election::Service<'_>> {
        let facts = elected.services.iter();
        facts
            .filter_map(|key| self.services.get(key))
            .filter_map(|facts| {
                let place = facts.addresses.iter().position(|it| *it == address)?;
                let advertisements = facts.advertisements.get(place).into_iter().flatten();
                let is_same = |it: &&IpAddr| it.is_ipv4() == address.is_ipv4();
                // Further addresses of a family, which no Service of MetalLB has, are elected each
                // for itself, so that several nodes take part.
                let is_further = facts.addresses.iter().find(is_same) != Some(&address);
                let first = *facts.addresses.first()?;
                Some(election::Service {
                    first_address: if is_further { address } else { first },
                    has_sharing_key: facts.has_sharing_key,
                    is_local: facts.is_local,
                    has_endpoints: facts.has_endpoints,
                    endpoint_nodes: &facts.endpoint_nodes,
                    advertisements: advertisements
                        .filter_map(|place| self.advertisements.get(*place))
                        .map(|it| &it.election)
                        .collect(),
                })
            })
            .collect()
    }

    /// The nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The owner of an address.
    pub fn owner(&self, address: IpAddr) -> Option<&str> {
        self.addresses.get(&address)?.owner.as_deref()
    }

    /// What is known of a Service with addresses.
    pub fn facts(&self, key: &ServiceKey) -> Option<&ServiceFacts> {
        self.services.get(key)
    }

    /// The Services that hold an address.
    pub fn holders(&self, address: IpAddr) -> impl Iterator<Item = &ServiceKey> {
        let elected = self.addresses.get(&address);
        elected.into_iter().flat_map(|it| &it.services)
    }

    /// The addresses of a Service.
    pub fn addresses_of(&self, key: &ServiceKey) -> &[IpAddr] {
        self.services.get(key).map_or(&[], |it| &it.addresses)
    }

    /// Returns the addresses that this node announces.
    pub fn owned(&self) -> BTreeMap<IpAddr, Owned> {
        let ours = |elected: &Elected| elected.owner.as_deref() == Some(&*self.own);
        let ours = self.addresses.iter().filter(|(_, elected)| ours(elected));
        ours.map(|(address, elected)| {
            let owned = Owned {
                interfaces: self.interfaces(*address, elected),
                start: elected.start,
                took_over: elected.took_over,
            };
            (*address, owned)
        })
        .collect()
    }

    /// The interfaces of all advertisements that select this node; one without a list means all.
    fn interfaces(&self, address: IpAddr, elected: &Elected) -> Scope {
        let mut names = BTreeSet::new();
        for facts in elected
            .services
            .iter()
            .filter_map(|it| self.services.get(it))
        {
            let Some(place) = facts.addresses.iter().position(|it| *it == address) else {
                continue;
            };
            let places = facts.advertisements.get(place).into_iter().flatten();
            for it in places.filter_map(|place| self.advertisements.get(*place)) {
                if !it.election.nodes.contains(&*self.own) {
                    continue;
                }
                if it.interfaces.is_empty() {
                    return Scope::All;
                }
                names.extend(it.interfaces.iter().cloned());
            }
        }
        Scope::Only(names)
    }

    /// Returns why this node does not announce an address; `None` if it does.
    pub fn why_not(&self, address: IpAddr) -> Option<NotAnnounced> {
        let elected = self.addresses.get(&address)?;
        let services = self.services_of(address, elected);
        let Some(own) = self.node(&self.own) else {
            return Some(elected.nowhere.unwrap_or(NotAnnounced::NotAMember));
        };
        let election = Election {
            order: elected.owner.iter().map(String::as_str).collect(),
            nowhere: elected.nowhere,
        };
        match election.why_not(own, &services, self.rules) {
            Some(NotAnnounced::NotOwner) if own.inability.concerns(address) => {
                Some(NotAnnounced::NotAbleToServe)
            }
            why => why,
        }
    }
}

// === impl Elected ===

impl Elected {
    fn follow(&mut self, own: &str, owner: Option<String>, nowhere: Option<NotAnnounced>) {
        self.nowhere = nowhere;
        if self.owner == owner {
            return;
        }
        if owner.as_deref() == Some(own) {
            self.start = if self.unsettled > 0 {
                Start::Probe
            } else {
                Start::TakeOver
            };
            self.took_over = self.is_old;
        }
        if self.unsettled > 0 {
            self.unsettled = self.unsettled.max(NEW);
        }
        self.is_old |= owner.is_some();
        self.owner = owner;
    }
}

#[cfg(test)]
mod tests;
