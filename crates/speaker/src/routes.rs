//! Which prefixes this node announces by BGP, with which attributes, and to which routers. Pure.
//!
//! ```text
//!  Service ──offers──> (prefix, advertisement)* ──union──> routes of each router
//! ```
//!
//! No node is elected: each that can deliver the packets of a Service announces it, and the routers
//! spread connections over them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use landfall_bgp::route::{Attributes, Community, LargeCommunity, Routes};
use landfall_metallb::{BgpAdvertised, BgpAdvertisement, CommunityValue, Config};
use landfall_model::rows::{Family, NodeRow, ServiceRow};
use landfall_model::{ServiceKey, Uid};

use crate::board::ServiceFacts;

/// A prefix that a Service asks for, by one of the `BGPAdvertisement` objects, named by its place.
pub type Offer = (IpNet, usize);

/// What a Service offers, with the addresses that it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offering {
    /// Its addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// The prefixes that they are in.
    pub prefixes: BTreeSet<Offer>,
}

/// This node, as far as announcing needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnNode {
    /// Its name.
    pub name: Arc<str>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its condition `NetworkUnavailable` is true.
    pub network_unavailable: bool,
    /// It is excluded from load balancers, and that counts.
    pub excluded: bool,
}

/// Why a node announces nothing of a Service by BGP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Withheld {
    /// No advertisement for the pools of its addresses selects this node.
    NotOwner,
    /// None of those that do selects the Service.
    NoMatchingAdvertisement,
    /// Two advertisements announce the same prefix to the same router with other preferences.
    Conflicting(String, String),
    /// The network of the node is not ready.
    NetworkUnavailable,
    /// The label of the node excludes it.
    Excluded,
    /// The policy is Local, and no endpoint on this node serves.
    NoLocalEndpoint,
    /// No endpoint serves.
    NoEndpoint,
    /// This node is to serve it itself, and can't, or not yet.
    NotServed,
}

/// What each Service offers from this node, kept Service by Service.
#[derive(Clone, Debug, Default)]
pub struct Offers {
    by_service: BTreeMap<ServiceKey, Offered>,
}

/// What a Service offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Identity of the Service.
    pub uid: Uid,
    /// Prefixes, or why none.
    pub offers: Result<Offering, Withheld>,
}

/// Where a Service is announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Identity of the Service.
    pub uid: Uid,
    /// The routers that are sent something of it.
    pub peers: BTreeSet<Arc<str>>,
}

/// The routes of each router, and which Services they are of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Union {
    /// By router.
    pub routes: BTreeMap<Arc<str>, Arc<Routes>>,
    /// The Services of which some router is sent something.
    pub sent: BTreeMap<ServiceKey, Sent>,
    /// Their addresses.
    pub addresses: BTreeMap<ServiceKey, BTreeSet<IpAddr>>,
    /// The Services of each prefix.
    pub services_at: BTreeMap<IpNet, BTreeSet<ServiceKey>>,
}

// === impl OwnNode ===

impl OwnNode {
    /// Takes what decides from a Node object. `ignore_exclude_label`: the label that excludes it
    /// does not count.
    pub fn new(row: &NodeRow, excluded_by: &str, ignore_exclude_label: bool) -> Self {
        Self {
            name: Arc::clone(&row.name),
            labels: row.labels.clone(),
            network_unavailable: row.network_unavailable,
            excluded: row.labels.contains_key(excluded_by) && !ignore_exclude_label,
        }
    }
}

// === impl Offers ===

impl Offers {
    /// Takes what a Service offers, or that there is no such Service. Returns whether that changed.
    pub fn set(&mut self, key: &ServiceKey, offered: Option<Offered>) -> bool {
        if self.by_service.get(key) == offered.as_ref() {
            return false;
        }
        match offered {
            Some(offered) => drop(self.by_service.insert(key.clone(), offered)),
            None => drop(self.by_service.remove(key)),
        }
        true
    }

    /// Forgets all Services.
    pub fn clear(&mut self) {
        self.by_service.clear();
    }

    /// Returns what a Service offers, or why nothing; `None`: it is not known.
    pub fn get(&self, key: &ServiceKey) -> Option<&Result<Offering, Withheld>> {
        Some(&self.by_service.get(key)?.offers)
    }

    /// Returns what each router is sent. The order of Services and advertisements makes no
    /// difference: communities are united, and of several local preferences the highest counts.
    /// Routes that are as they were in `before` are the same object.
    pub fn unite<'a>(
        &self,
        config: &Config,
        peers: impl Iterator<Item = &'a Arc<str>>,
        before: &Union,
    ) -> Union {
        let mut union = Union::default();
        let mut audiences = audiences(config, peers);
        let all = config.bgp_advertisements();
        let shared: Vec<_> = all.iter().map(|it| Arc::new(attributes(it))).collect();
        for (key, offered) in &self.by_service {
            let Ok(offering) = &offered.offers else {
                continue;
            };
            let mut peers = BTreeSet::new();
            for (prefix, place) in &offering.prefixes {
                let Some(attributes) = shared.get(*place) else {
                    continue;
                };
                let mut is_sent = false;
                for (_, audience) in audiences.iter_mut().filter(|(of, _)| of.contains(place)) {
                    is_sent = true;
                    peers.extend(audience.peers.iter().map(Arc::clone));
                    let known = audience.routes.entry(*prefix);
                    known
                        .and_modify(|known| add(Arc::make_mut(known), attributes))
                        .or_insert_with(|| Arc::clone(attributes));
                }
                if is_sent {
                    let services = union.services_at.entry(*prefix).or_default();
                    services.insert(key.clone());
                }
            }
            if !peers.is_empty() {
                let addresses = offering.addresses.clone();
                union.addresses.insert(key.clone(), addresses);
                let uid = offered.uid.clone();
                union.sent.insert(key.clone(), Sent { uid, peers });
            }
        }
        for mut audience in audiences.into_values() {
            intern(&mut audience.routes);
            let routes = Arc::new(audience.routes);
            for name in audience.peers {
                let known = before.routes.get(&name).filter(|known| **known == routes);
                let routes = Arc::clone(known.unwrap_or(&routes));
                union.routes.insert(name, routes);
            }
        }
        union
    }
}

/// Routers that are sent the same routes, because the same advertisements are for them.
#[derive(Debug, Default)]
struct Audience {
    peers: Vec<Arc<str>>,
    routes: Routes,
}

/// Returns the routers by the advertisements that are for them, named by place.
fn audiences<'a>(
    config: &Config,
    peers: impl Iterator<Item = &'a Arc<str>>,
) -> BTreeMap<BTreeSet<usize>, Audience> {
    let mut all: BTreeMap<BTreeSet<usize>, Audience> = BTreeMap::new();
    for name in peers {
        let advertisements = config.bgp_advertisements().iter().enumerate();
        let of_it = advertisements.filter(|(_, it)| is_for(&it.of.advertisement, name));
        let audience = all.entry(of_it.map(|(place, _)| place).collect());
        audience.or_default().peers.push(Arc::clone(name));
    }
    all
}

/// Lets equal attributes be the same object.
fn intern(routes: &mut Routes) {
    let mut known: BTreeSet<Arc<Attributes>> = BTreeSet::new();
    for attributes in routes.values_mut() {
        match known.get(&*attributes) {
            Some(same) => *attributes = Arc::clone(same),
            None => drop(known.insert(Arc::clone(attributes))),
        }
    }
}

/// Returns what a Service offers from a node, as `facts` describe it, or why nothing.
pub fn offers(
    config: &Config,
    node: &OwnNode,
    row: &ServiceRow,
    facts: &ServiceFacts,
) -> Result<Offering, Withheld> {
    let of_pools = |address| {
        let pool = config.pools().pool_of(address);
        let all = config.bgp_advertisements().iter();
        all.filter(move |it| pool.is_some_and(|pool| it.of.pools.contains(pool.name())))
    };
    let mut for_node = facts.addresses.iter().flat_map(|it| of_pools(*it));
    if !for_node.any(|it| it.of.advertisement.nodes.accepts(&node.labels)) {
        return Err(Withheld::NotOwner);
    }
    let (mut offering, mut offered) = (Offering::default(), BTreeSet::new());
    for address in &facts.addresses {
        for place in config.bgp_of(*address, &row.labels) {
            let Some(advertised) = config.bgp_advertisements().get(place) else {
                continue;
            };
            let advertisement = &advertised.of.advertisement;
            if !advertisement.nodes.accepts(&node.labels) {
                continue;
            }
            let length = advertisement.length(Family::of(*address));
            if let Ok(prefix) = IpNet::new(*address, length) {
                let offer = (prefix.trunc(), place);
                offered.insert(offer);
                if !facts.unserved.contains(address) {
                    offering.prefixes.insert(offer);
                    offering.addresses.insert(*address);
                }
            }
        }
    }
    if offered.is_empty() {
        return Err(Withheld::NoMatchingAdvertisement);
    }
    if let Some(conflict) = conflict(config, &offered) {
        return Err(conflict);
    }
    if node.network_unavailable {
        return Err(Withheld::NetworkUnavailable);
    }
    if node.excluded {
        return Err(Withheld::Excluded);
    }
    if !facts.has_endpoints {
        return Err(Withheld::NoEndpoint);
    }
    if facts.is_local && !facts.endpoint_nodes.contains(&*node.name) {
        return Err(Withheld::NoLocalEndpoint);
    }
    if offering.prefixes.is_empty() {
        return Err(Withheld::NotServed);
    }
    Ok(offering)
}

/// Returns two advertisements that contradict each other about a prefix.
fn conflict(config: &Config, offered: &BTreeSet<Offer>) -> Option<Withheld> {
    let all = config.bgp_advertisements();
    let named = || {
        offered
            .iter()
            .filter_map(move |(prefix, it)| Some((prefix, all.get(*it)?)))
    };
    named().enumerate().find_map(|(number, (prefix, one))| {
        let others = named().skip(number + 1);
        let mut same = others
            .filter(|(other, _)| *other == prefix)
            .map(|(_, it)| it);
        let of = &one.of.advertisement;
        let other = same.find(|it| {
            let it = &it.of.advertisement;
            let meet =
                of.peers.is_empty() || it.peers.is_empty() || !of.peers.is_disjoint(&it.peers);
            meet && of.local_preference != it.local_preference
        })?;
        let (one, other) = (one.of.key.name(), other.of.key.name());
        Some(Withheld::Conflicting(one.to_owned(), other.to_owned()))
    })
}

/// Returns whether an advertisement is for a router.
pub(crate) fn is_for(advertisement: &BgpAdvertisement, peer: &str) -> bool {
    advertisement.peers.is_empty() || advertisement.peers.contains(peer)
}

fn attributes(advertised: &BgpAdvertised) -> Attributes {
    let mut attributes = Attributes {
        local_preference: advertised.of.advertisement.local_preference,
        ..Attributes::default()
    };
    for community in &advertised.communities {
        match *community {
            CommunityValue::Standard(high, low) => {
                attributes.communities.insert(Community(high, low));
            }
            CommunityValue::Large(administrator, one, two) => {
                let large = LargeCommunity(administrator, one, two);
                attributes.large_communities.insert(large);
            }
        }
    }
    attributes
}

/// Adds what another advertisement says of the same prefix.
fn add(known: &mut Attributes, other: &Attributes) {
    known.communities.extend(&other.communities);
    known.large_communities.extend(&other.large_communities);
    let value = |it: Option<u32>| it.unwrap_or(Attributes::LOCAL_PREFERENCE);
    let (one, two) = (known.local_preference, other.local_preference);
    // Of equal ones that which is written: it makes no difference on the wire.
    known.local_preference = one.max(two);
    if value(one) != value(two) {
        known.local_preference = if value(one) > value(two) { one } else { two };
    }
}

// === impl Withheld ===

impl Withheld {
    /// Returns the word that MetalLB has for it, if it knows that.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotOwner => "notOwner",
            Self::NoMatchingAdvertisement => "noMatchingAdvertisement",
            Self::Conflicting(..) => "conflictingAdvertisements",
            Self::NetworkUnavailable => "nodeNetworkUnavailable",
            Self::Excluded => "nodeLabeledExcludeBalancers",
            Self::NoLocalEndpoint => "noLocalEndpoints",
            Self::NoEndpoint => "noEndpoints",
            Self::NotServed => "notServed",
        }
    }
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOwner => {
                f.write_str("no BGPAdvertisement for the pool of its address selects this node")
            }
            Self::NoMatchingAdvertisement => {
                f.write_str("no BGPAdvertisement for this node selects the Service")
            }
            Self::Conflicting(one, other) => write!(
                f,
                "BGPAdvertisements {one} and {other} announce it to the same router with another \
                 localPref each"
            ),
            Self::NetworkUnavailable => {
                f.write_str("the condition NetworkUnavailable of this node is true")
            }
            Self::Excluded => f.write_str("a label excludes this node from load balancers"),
            Self::NoLocalEndpoint => {
                f.write_str("externalTrafficPolicy is Local, and no endpoint on this node is ready")
            }
            Self::NoEndpoint => f.write_str("no endpoint of the Service is ready"),
            Self::NotServed => f.write_str("this node does not serve it, or not all of it"),
        }
    }
}
