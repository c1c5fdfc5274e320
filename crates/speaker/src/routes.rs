//! Which prefixes this node announces by BGP, with which attributes, and to which routers. Pure.
//!
//! ```text
//!  Service ──offers──> (prefix, advertisement)* ──union──> routes of each router
//! ```
//!
//! A change of a Service changes the routes of its own prefixes, and nothing else is read.
//!
//! No node is elected: each that can deliver the packets of a Service announces it, and the routers
//! spread connections over them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use landfall_bgp::route::{Attributes, Community, LargeCommunity, Routes};
use landfall_bgp::shared::SharedMap;
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
    /// What delivers its packets fails.
    pub is_unhealthy: bool,
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
    /// What delivers packets on the node fails.
    Unhealthy,
    /// The policy is Local, and no endpoint on this node serves.
    NoLocalEndpoint,
    /// No endpoint serves.
    NoEndpoint,
    /// This node is to serve it itself, and can't, or not yet.
    NotServed,
}

/// What the Services offer from this node, and to which routers that is.
#[derive(Clone, Debug, Default)]
pub struct Offers {
    by_service: BTreeMap<ServiceKey, Offered>,
    /// How many Services offer each prefix by each advertisement.
    by_prefix: BTreeMap<IpNet, BTreeMap<usize, usize>>,
    audiences: Vec<Audience>,
    /// By the advertisements that say something of a prefix: so do prefixes share them.
    attributes: BTreeMap<BTreeSet<usize>, Arc<Attributes>>,
    /// The attributes of each advertisement.
    of_advertisement: Vec<Attributes>,
    changed: Changed,
}

/// What changed since routes were put together.
#[derive(Clone, Debug, Default)]
struct Changed {
    everything: bool,
    services: BTreeSet<ServiceKey>,
    prefixes: BTreeSet<IpNet>,
}

/// Routers that are sent the same routes, because the same advertisements are for them.
#[derive(Clone, Debug)]
struct Audience {
    advertisements: BTreeSet<usize>,
    peers: BTreeSet<Arc<str>>,
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
    /// Its addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// The prefixes that some router is sent.
    pub prefixes: BTreeSet<IpNet>,
}

/// The routes of each router, and which Services they are of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Union {
    /// By router.
    pub routes: BTreeMap<Arc<str>, Arc<Routes>>,
    /// The Services of which some router is sent something.
    pub sent: SharedMap<ServiceKey, Sent>,
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
            is_unhealthy: false,
        }
    }
}

// === impl Offers ===

impl Offers {
    /// Nothing, to be offered to these routers by the advertisements of `config`.
    pub fn new<'a>(config: &Config, peers: impl Iterator<Item = &'a Arc<str>>) -> Self {
        let advertisements = config.bgp_advertisements();
        Self {
            audiences: audiences(advertisements, peers),
            of_advertisement: advertisements.iter().map(attributes).collect(),
            changed: Changed {
                everything: true,
                ..Changed::default()
            },
            ..Self::default()
        }
    }

    /// Takes what a Service offers, or that there is no such Service.
    pub fn set(&mut self, key: &ServiceKey, offered: Option<Offered>) {
        if self.by_service.get(key) == offered.as_ref() {
            return;
        }
        let before = match offered {
            Some(offered) => {
                for (prefix, place) in prefixes(&offered) {
                    let places = self.by_prefix.entry(*prefix).or_default();
                    *places.entry(*place).or_default() += 1;
                    self.changed.prefixes.insert(*prefix);
                }
                self.by_service.insert(key.clone(), offered)
            }
            None => self.by_service.remove(key),
        };
        for offer in before.iter().flat_map(prefixes) {
            self.take_back(offer);
        }
        self.changed.services.insert(key.clone());
    }

    fn take_back(&mut self, (prefix, place): &Offer) {
        self.changed.prefixes.insert(*prefix);
        let Entry::Occupied(mut places) = self.by_prefix.entry(*prefix) else {
            return;
        };
        if let Entry::Occupied(mut count) = places.get_mut().entry(*place) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        if places.get().is_empty() {
            places.remove();
        }
    }

    /// Returns what a Service offers, or why nothing; `None`: it is not known.
    pub fn get(&self, key: &ServiceKey) -> Option<&Result<Offering, Withheld>> {
        Some(&self.by_service.get(key)?.offers)
    }

    /// Returns whether something changed since routes were put together.
    pub fn has_changes(&self) -> bool {
        let Changed {
            everything,
            services,
            ..
        } = &self.changed;
        *everything || !services.is_empty()
    }

    /// Returns what each router is sent, where it was sent `before` until the last changes. The
    /// order of Services and advertisements makes no difference: communities are united, and of
    /// several local preferences the highest counts. Routes that are as they were are the same
    /// object.
    pub fn unite(&mut self, before: &Union) -> Union {
        let changed = std::mem::take(&mut self.changed);
        let base = (!changed.everything).then_some(before);
        let mut sent = base.map(|it| it.sent.clone()).unwrap_or_default();
        for key in &changed.services {
            sent.set(key, self.sent(key));
        }
        let mut all = BTreeMap::new();
        for audience in &self.audiences {
            let known =
                |union: &Union| Some(Arc::clone(union.routes.get(audience.peers.first()?)?));
            let mut routes = base.and_then(known).unwrap_or_default();
            for prefix in &changed.prefixes {
                let attributes = self.by_prefix.get(prefix).and_then(|it| {
                    let places = it.keys().filter(|it| audience.advertisements.contains(it));
                    united(
                        &self.of_advertisement,
                        &mut self.attributes,
                        places.copied(),
                    )
                });
                if routes.get(prefix) != attributes.as_ref() {
                    Arc::make_mut(&mut routes).set(prefix, attributes);
                }
            }
            for peer in &audience.peers {
                let known = before.routes.get(peer).filter(|known| **known == routes);
                let routes = Arc::clone(known.unwrap_or(&routes));
                all.insert(Arc::clone(peer), routes);
            }
        }
        Union { routes: all, sent }
    }

    /// Returns to which routers something of a Service is sent; `None`: to none.
    fn sent(&self, key: &ServiceKey) -> Option<Sent> {
        let offered = self.by_service.get(key)?;
        let offering = offered.offers.as_ref().ok()?;
        let mut sent = Sent {
            uid: offered.uid.clone(),
            peers: BTreeSet::new(),
            addresses: offering.addresses.clone(),
            prefixes: BTreeSet::new(),
        };
        for (prefix, place) in &offering.prefixes {
            let audiences = self.audiences.iter();
            for audience in audiences.filter(|it| it.advertisements.contains(place)) {
                sent.peers.extend(audience.peers.iter().map(Arc::clone));
                sent.prefixes.insert(*prefix);
            }
        }
        (!sent.peers.is_empty()).then_some(sent)
    }
}

fn prefixes(offered: &Offered) -> impl Iterator<Item = &Offer> {
    let offering = offered.offers.iter();
    offering.flat_map(|offering| &offering.prefixes)
}

/// Returns the attributes that several advertisements say of a prefix; `None`: there is none.
fn united(
    of_advertisement: &[Attributes],
    known: &mut BTreeMap<BTreeSet<usize>, Arc<Attributes>>,
    places: impl Iterator<Item = usize>,
) -> Option<Arc<Attributes>> {
    let places: BTreeSet<usize> = places.collect();
    if let Some(known) = known.get(&places) {
        return Some(Arc::clone(known));
    }
    let mut all = places.iter().filter_map(|it| of_advertisement.get(*it));
    let mut attributes = all.next()?.clone();
    for other in all {
        add(&mut attributes, other);
    }
    let attributes = Arc::new(attributes);
    known.insert(places, Arc::clone(&attributes));
    Some(attributes)
}

/// Returns the routers by the advertisements that are for them, named by place.
fn audiences<'a>(
    advertisements: &[BgpAdvertised],
    peers: impl Iterator<Item = &'a Arc<str>>,
) -> Vec<Audience> {
    let mut all: BTreeMap<BTreeSet<usize>, BTreeSet<Arc<str>>> = BTreeMap::new();
    for name in peers {
        let of_it = advertisements.iter().enumerate();
        let of_it = of_it.filter(|(_, it)| is_for(&it.of.advertisement, name));
        let audience = all.entry(of_it.map(|(place, _)| place).collect());
        audience.or_default().insert(Arc::clone(name));
    }
    let all = all.into_iter();
    all.map(|(advertisements, peers)| Audience {
        advertisements,
        peers,
    })
    .collect()
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
    if node.is_unhealthy {
        return Err(Withheld::Unhealthy);
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
            Self::Unhealthy => "dataPlaneUnhealthy",
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
            Self::Unhealthy => {
                f.write_str("what --data-plane-health names does not say that it works")
            }
            Self::NoLocalEndpoint => {
                f.write_str("externalTrafficPolicy is Local, and no endpoint on this node is ready")
            }
            Self::NoEndpoint => f.write_str("no endpoint of the Service is ready"),
            Self::NotServed => f.write_str("this node does not serve it, or not all of it"),
        }
    }
}
