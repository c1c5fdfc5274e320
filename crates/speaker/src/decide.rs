//! What this node announces, and what it says about it: everything that is known comes in here.
//! No I/O, no clock.

mod hosts;
mod options;
mod serving;
mod strict;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use landfall_engine::follow::Follower;
use landfall_l2::driver::{View as Announced, Wanted};
use landfall_l2::election::{NotAnnounced, Rules, Subnet, fingerprint};
use landfall_l2::fsm::{Announcement, Scope, Start, State};
use landfall_l2::interfaces::Interface;
use landfall_membership::driver::View as Members;
use landfall_metallb::Config;
use landfall_model::ServiceKey;
use landfall_model::Uid;
use landfall_model::rows::{Fact, ResourceKind, ServiceRow};

use crate::board::{Board, ServiceFacts};
use crate::explain::{self, Explained};
use crate::layer2;
use crate::metadata::Metadata;
use crate::plane::{Plane, Serves};
use crate::routes::Withheld;
use crate::routing::{Router, Routing};
use crate::steady::Part;

/// The resources that decide something here.
pub const RESOURCES: &[ResourceKind] = &[
    ResourceKind::BfdProfile,
    ResourceKind::BgpAdvertisement,
    ResourceKind::BgpPeer,
    ResourceKind::Community,
    ResourceKind::L2Advertisement,
];

/// Where this node says that it announces a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announces {
    /// The interfaces, none of them being all, or the routers.
    pub through: BTreeSet<String>,
    /// Another node announced it before, as far as this one knows.
    pub took_over: bool,
}

/// Everything that is known, and what follows from it.
#[derive(Debug)]
pub struct Decider {
    own: Arc<str>,
    session: u64,
    world: Follower,
    config: Config,
    board: Board,
    router: Router,
    members: Arc<Members>,
    /// `None`: not known yet, which is no inability.
    interfaces: Option<Vec<Interface>>,
    /// The subnets of interfaces, where they matter.
    subnets: Option<BTreeMap<String, BTreeSet<Subnet>>>,
    /// What of this node is not to be relied on.
    unsteady: BTreeSet<Part>,
    /// The addresses that this node serves a part of, while another one serves all of them.
    left: BTreeSet<IpAddr>,
    /// The addresses that this node is elected for and another host has.
    refused: BTreeSet<IpAddr>,
    reported: BTreeMap<String, Metadata>,
    /// The nodes of the cluster.
    nodes: Arc<BTreeSet<Arc<str>>>,
    /// This node announces what it is elected for.
    is_current: bool,
    /// What nodes serve themselves; `None`: kube-proxy serves everything.
    plane: Option<Plane>,
    /// Every node is taken for alive, whether or not it is a member.
    assumes_all_alive: bool,
    /// Nodes that are about to go, or do not reach an address, are elected where no other is left.
    is_strict: bool,
}

// === impl Decider ===

impl Decider {
    /// A node that knows nothing. `session` is any number that differs from start to start.
    pub fn new(own: &str, session: u64, rules: Rules) -> Self {
        Self {
            own: own.into(),
            session,
            world: Follower::default(),
            config: Config::default(),
            board: Board::new(own, rules),
            router: Router::new(own, rules.ignore_exclude_label),
            members: Arc::default(),
            interfaces: None,
            unsteady: BTreeSet::new(),
            left: BTreeSet::new(),
            refused: BTreeSet::new(),
            reported: BTreeMap::new(),
            nodes: Arc::default(),
            is_current: false,
            plane: None,
            assumes_all_alive: false,
            subnets: None,
            is_strict: rules.must_be_able_to_serve,
        }
    }

    /// What this node serves itself.
    pub fn serves(&self) -> Arc<Serves> {
        let plane = self.plane.as_ref();
        plane.map_or_else(Arc::default, |plane| Arc::clone(plane.serves()))
    }

    /// Takes what a source reports.
    pub fn take_facts(&mut self, facts: Vec<Fact>) {
        let was_synced = self.world.synced();
        let own = &self.own;
        let is_own = |fact: &Fact| matches!(fact, Fact::Node(row) if row.name == *own);
        let is_own_node = facts.iter().any(is_own);
        let is_of_node = |fact: &Fact| matches!(fact, Fact::Node(_) | Fact::NodeGone(_));
        let is_of_nodes = facts.iter().any(is_of_node);
        let changes = self.world.apply_all(facts);
        if !self.world.synced() {
            return;
        }
        if is_of_nodes || !was_synced {
            let names = self.world.nodes().map(|row| Arc::clone(&row.name));
            self.nodes = Arc::new(names.collect());
        }
        if changes.pools || changes.resources || !was_synced {
            self.take_resources();
        } else if changes.all {
            self.take_served();
            self.evaluate();
        } else {
            for key in &changes.services {
                self.take_service(key);
            }
            if is_own_node {
                self.router.take_leaving(&self.world);
            }
            if is_of_nodes && self.is_strict {
                self.evaluate_nodes();
            }
            self.router.settle();
        }
        self.leave_to_others();
        self.leave_to_hosts();
    }

    fn take_resources(&mut self) {
        let reasons = self.world.settle_pools();
        for reason in reasons {
            tracing::warn!(%reason, "an address pool is not used");
        }
        let resources: Vec<_> = self.world.resources(RESOURCES).cloned().collect();
        let (config, findings) = Config::build(self.world.pools(), &resources, &self.config);
        for reason in findings.reasons() {
            tracing::warn!(%reason, "a resource is not in force as it is written");
        }
        self.config = config;
        self.take_served();
        self.evaluate();
    }

    fn take_served(&mut self) {
        if let Some(plane) = &mut self.plane {
            plane.take_all(&self.world);
        }
    }

    /// Evaluates everything again.
    fn evaluate(&mut self) {
        let nodes: Vec<_> = self.world.nodes().cloned().collect();
        let advertisements = layer2::advertisements(&self.config, &nodes, &self.reported);
        let services = self.world.services();
        let facts = services.filter_map(|row| {
            let facts = self.facts(&row)?;
            Some((row, facts))
        });
        let facts: Vec<_> = facts.collect();
        self.router.begin(&self.config, &self.world);
        for (row, facts) in &facts {
            self.router
                .take(&self.config, &row.key, Some((&**row, facts)));
        }
        self.router.settle();
        let facts = facts.into_iter();
        let facts = facts.map(|(row, facts)| (row.key.clone(), facts));
        self.board.set_advertisements(advertisements, facts);
        self.evaluate_nodes();
    }

    fn evaluate_nodes(&mut self) {
        // One that announces nothing yet is no candidate for others: an address that it won would
        // be silent until it knows the Services, for as long as the API server is away.
        let starts = |name: &&str| self.reported.get(*name).is_some_and(|it| it.is_starting);
        let names = self.members.peers.keys().map(|name| &**name);
        let mut alive: BTreeSet<&str> = names.filter(|name| !starts(name)).collect();
        alive.insert(&self.own);
        if self.assumes_all_alive {
            alive.extend(self.world.nodes().map(|row| &*row.name));
        }
        let nodes = self.world.nodes();
        let nodes = nodes.map(|row| {
            let reported = self.reported.get(&*row.name);
            layer2::node(row, &alive, reported, self.is_to_avoid(row))
        });
        self.board.set_nodes(nodes.collect());
    }

    fn take_service(&mut self, key: &ServiceKey) {
        if let Some(plane) = &mut self.plane {
            plane.take(&self.world, key);
        }
        self.take_facts_of(key);
    }

    fn take_facts_of(&mut self, key: &ServiceKey) {
        let row = self.world.service(key);
        let facts = row.as_ref().and_then(|row| self.facts(row));
        let taken = row.as_deref().zip(facts.as_ref());
        self.router.take(&self.config, key, taken);
        self.board.set_service(key, facts);
    }

    fn facts(&self, row: &ServiceRow) -> Option<ServiceFacts> {
        let served = self.plane.as_ref().and_then(|plane| plane.get(&row.key));
        let mut facts = layer2::service(&self.config, &self.world, row, served)?;
        if let (Some(plane), Some(served)) = (&self.plane, served) {
            let is_unserved = |it: &IpAddr| !plane.is_routed(*it) || self.left.contains(it);
            let unserved = served.addresses.iter().copied();
            facts.unserved = unserved.filter(is_unserved).collect();
        }
        Some(facts)
    }

    /// Takes which other speakers are alive, and what they report.
    pub fn take_members(&mut self, members: Arc<Members>) {
        self.members = members;
        self.take_reported();
    }

    /// Takes the interfaces of this node that announce.
    pub fn take_interfaces(&mut self, interfaces: Vec<Interface>) {
        if self.interfaces.as_ref() != Some(&interfaces) {
            self.interfaces = Some(interfaces);
            self.take_reported();
        }
    }

    /// Takes what of this node is not to be relied on: other nodes go before it.
    pub fn take_unsteady(&mut self, unsteady: BTreeSet<Part>) {
        if unsteady != self.unsteady {
            self.unsteady = unsteady;
            let is_out = self.unsteady.contains(&Part::DataPlane);
            let is_news = self.router.set_unhealthy(is_out);
            self.take_reported();
            if is_news {
                self.evaluate();
            }
        }
    }

    fn take_reported(&mut self) {
        let peers = self.members.peers.iter();
        let reported = peers
            .filter_map(|(name, peer)| Some((name.to_string(), Metadata::decode(&peer.metadata)?)));
        let mut reported: BTreeMap<_, _> = reported.collect();
        let fails = !self.unsteady.is_empty() || !self.refused.is_empty();
        if self.interfaces.is_some() || fails {
            reported.insert(self.own.to_string(), self.metadata());
        }
        let changed = reported != self.reported;
        self.reported = reported;
        // Before another node is elected for what they are about.
        let refused = self.reported.iter();
        let refused = refused.map(|(name, it)| (name.clone(), it.refused.clone()));
        self.board.set_refused(refused.collect());
        if changed {
            self.evaluate();
        } else {
            self.evaluate_nodes();
        }
        self.leave_to_others();
        self.leave_to_hosts();
    }

    /// The names of the other members.
    pub fn members(&self) -> impl Iterator<Item = &Arc<str>> {
        self.members.peers.keys()
    }

    /// The nodes of the cluster.
    pub const fn nodes(&self) -> &Arc<BTreeSet<Arc<str>>> {
        &self.nodes
    }

    /// Returns whether this is the first of the nodes that run a speaker, as far as that is known.
    pub fn is_first(&self) -> bool {
        let runs = |name: &Arc<str>| self.members.peers.contains_key(name);
        let is_before = |name: &&Arc<str>| **name < self.own;
        let mut before = self.nodes.iter().take_while(is_before);
        !before.any(|name| self.assumes_all_alive || runs(name))
    }

    /// What this node reports to the others.
    pub fn metadata(&self) -> Metadata {
        let mut metadata =
            Metadata::new(self.session, self.interfaces.as_deref().unwrap_or_default());
        metadata.is_starting = !self.is_current;
        let advertised = self.config.l2_advertisements().iter();
        let named = advertised.flat_map(|it| &it.advertisement.interfaces);
        metadata.named = named.cloned().collect();
        metadata.refused.addresses = self.refused.iter().copied().map(fingerprint).collect();
        for part in &self.unsteady {
            match part {
                Part::Interface(name) => metadata.unsteady.extend([name.clone()]),
                Part::Address(address) => metadata.unserved.extend([fingerprint(*address)]),
                Part::Sockets | Part::DataPlane => metadata.is_silent = true,
            }
        }
        metadata.subnets = self.subnets(&metadata.unsteady);
        metadata
    }

    /// Returns whether everything is known that was there at the start.
    pub fn is_synced(&self) -> bool {
        self.world.synced()
    }

    /// Returns whether time decides if other nodes announce what they are elected for.
    pub fn is_unsettled(&self) -> bool {
        self.board.is_unsettled()
    }

    /// Compares with what other nodes have, a second after the last time.
    pub fn look(&mut self) {
        self.board.look();
    }

    /// What this node is to ask for before it takes part: of what it is elected for that which no
    /// other node announces, so that it can begin without a probe.
    pub fn asks(&mut self) -> Wanted {
        self.board.begin();
        let mut wanted = self.wanted();
        wanted
            .announcements
            .retain(|_, it| it.start == Start::Probe);
        for announcement in wanted.announcements.values_mut() {
            announcement.start = Start::Ask;
        }
        wanted
    }

    /// From now on an address that appears is new.
    pub fn set_current(&mut self) {
        self.is_current = true;
        self.board.set_current();
    }

    /// Where speakers may be, with this port.
    pub fn seeds(&self, port: u16) -> BTreeMap<Arc<str>, SocketAddr> {
        let nodes = self.world.nodes().filter(|row| row.name != self.own);
        let addressed = nodes.filter_map(|row| {
            let address = row.addresses.first()?;
            Some((Arc::clone(&row.name), SocketAddr::new(*address, port)))
        });
        addressed.collect()
    }

    /// What this node announces.
    pub fn wanted(&self) -> Wanted {
        let owned = self.board.owned().into_iter();
        let announcements = owned.map(|(address, owned)| {
            let announcement = Announcement {
                interfaces: owned.interfaces,
                start: owned.start,
                // Another node may have announced it meanwhile, and hosts may send there.
                revision: self.members.reunions,
            };
            (address, announcement)
        });
        let others = self.reported.iter().filter(|(name, _)| **name != *self.own);
        let peers = others.flat_map(|(_, reported)| reported.interfaces.values().copied());
        Wanted {
            announcements: announcements.collect(),
            peers: peers.collect(),
        }
    }

    /// The Services of which this node announces an address, and where.
    pub fn announces(&self, announced: &Announced) -> BTreeMap<ServiceKey, Announces> {
        let mut all: BTreeMap<ServiceKey, Announces> = BTreeMap::new();
        for (address, owned) in self.board.owned() {
            let status = announced.addresses.get(&address);
            if status.is_none_or(|it| it.state != State::Announcing || it.interfaces.is_empty()) {
                continue;
            }
            for key in self.board.holders(address) {
                let entry = all.entry(key.clone()).or_default();
                entry.took_over |= owned.took_over;
                if let Scope::Only(names) = &owned.interfaces {
                    entry.through.extend(names.iter().cloned());
                }
            }
        }
        all
    }

    /// What this node announces by BGP, and to which routers.
    pub const fn routing(&self) -> &Arc<Routing> {
        self.router.routing()
    }

    /// Returns why this node announces nothing of a Service by BGP; `None` if it does.
    pub fn why_not_by_bgp(&self, key: &ServiceKey) -> Option<&Withheld> {
        self.router.offered(key)?.as_ref().err()
    }

    /// The Services that hold an address, with their UIDs.
    pub fn holders(&self, address: IpAddr) -> Vec<(ServiceKey, Uid)> {
        let holders = self.board.holders(address).cloned();
        let with_uid = holders.filter_map(|key| {
            let uid = self.world.service(&key)?.uid.clone();
            Some((key, uid))
        });
        with_uid.collect()
    }

    /// The names of the Services that hold an address.
    pub fn services_at(&self, address: IpAddr) -> impl Iterator<Item = &ServiceKey> {
        self.board.holders(address)
    }

    /// The owner of an address.
    pub fn owner(&self, address: IpAddr) -> Option<&str> {
        self.board.owner(address)
    }

    /// Returns why this node does not announce an address; `None` if it does.
    pub fn why_not(&self, address: IpAddr) -> Option<NotAnnounced> {
        self.board.why_not(address)
    }

    /// Returns what this node does for a Service of type `LoadBalancer`, and why not more; `None`:
    /// there is no such Service. `announced`: what answers for addresses, where anything does.
    pub fn explain(&self, key: &ServiceKey, announced: Option<&Announced>) -> Option<Explained> {
        let row = self
            .world
            .service(key)
            .filter(|row| row.wants_load_balancer)?;
        let known = explain::Known {
            node: &self.own,
            config: &self.config,
            board: &self.board,
            router: &self.router,
            announced,
        };
        Some(explain::explain(&known, &row))
    }

    /// Everything that is known.
    pub fn world(&self) -> &Follower {
        &self.world
    }
}
