//! What this node is to announce by BGP, and to which routers, kept up to date change by change.
//! Pure.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use landfall_engine::World;
use landfall_metallb::Config;
use landfall_model::ServiceKey;
use landfall_model::reason::Reason;
use landfall_model::rows::{NodeRow, ServiceRow};

use crate::board::ServiceFacts;
use crate::layer2::EXCLUDED;
use crate::peers::{PeerSpec, desired, router_id};
use crate::routes::{Offered, Offering, Offers, OwnNode, Union, Withheld, offers};

/// What is to be announced by BGP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// The routers of this node, by name.
    pub peers: BTreeMap<Arc<str>, PeerSpec>,
    /// What each of them is sent.
    pub union: Union,
    /// This node is about to go, or is cordoned: routers are asked to prefer others.
    pub is_leaving: bool,
    /// The kubelet of this node says that it is not ready, as it does when the machine shuts down:
    /// it may start no new speaker.
    pub is_unready: bool,
    /// Why there is no session with others that are for this node.
    pub problems: Vec<Reason>,
}

// === impl Routing ===

impl Routing {
    /// Returns whether a speaker that stops now is likely to be back within the time for which
    /// routers keep its routes.
    pub const fn is_to_return(&self) -> bool {
        !self.is_leaving && !self.is_unready
    }
}

/// Keeps it.
#[derive(Debug)]
pub struct Router {
    own: Arc<str>,
    ignore_exclude_label: bool,
    ignore_cordon: bool,
    is_unhealthy: bool,
    /// What routers know this node by where no other is written. It stays what it was at first:
    /// with another one each session begins again.
    id: Option<Ipv4Addr>,
    node: Option<OwnNode>,
    offers: Offers,
    routing: Arc<Routing>,
}

// === impl Router ===

impl Router {
    /// A node that knows nothing.
    pub fn new(own: &str, ignore_exclude_label: bool) -> Self {
        Self {
            own: own.into(),
            ignore_exclude_label,
            ignore_cordon: false,
            is_unhealthy: false,
            id: None,
            node: None,
            offers: Offers::default(),
            routing: Arc::default(),
        }
    }

    /// Where the address of this node is an IPv4 address, routers know it by that: it is the same
    /// in the next process, whatever else the Node lists before it then.
    pub const fn know_by(&mut self, address: IpAddr) {
        if let IpAddr::V4(address) = address
            && !address.is_unspecified()
        {
            self.id = Some(address);
        }
    }

    /// From now on a cordoned node is like any other.
    pub fn ignore_cordon(&mut self) {
        self.ignore_cordon = true;
    }

    /// Takes whether what delivers packets on this node fails, and returns whether that is new.
    /// Then everything is to be taken again.
    pub fn set_unhealthy(&mut self, is_unhealthy: bool) -> bool {
        std::mem::replace(&mut self.is_unhealthy, is_unhealthy) != is_unhealthy
    }

    /// Takes whether this node is about to go, which changes nothing else.
    pub fn take_leaving(&mut self, world: &World) {
        let row = world.nodes().find(|row| row.name == self.own);
        let is_leaving = row.is_some_and(|row| self.is_leaving(row));
        let is_unready = row.is_some_and(|row| !row.ready);
        if (self.routing.is_leaving, self.routing.is_unready) != (is_leaving, is_unready) {
            let routing = Arc::make_mut(&mut self.routing);
            routing.is_leaving = is_leaving;
            routing.is_unready = is_unready;
        }
    }

    /// Returns whether a node is about to go.
    pub(crate) fn is_leaving(&self, row: &NodeRow) -> bool {
        row.leaving || row.deleting || (row.cordoned && !self.ignore_cordon)
    }

    /// Takes the node and its routers. All Services are to be taken again.
    pub fn begin(&mut self, config: &Config, world: &World) {
        let row = world.nodes().find(|row| row.name == self.own);
        let is_leaving = row.is_some_and(|row| self.is_leaving(row));
        self.node = row.map(|row| OwnNode {
            is_unhealthy: self.is_unhealthy,
            ..OwnNode::new(row, EXCLUDED, self.ignore_exclude_label)
        });
        let routing = Arc::make_mut(&mut self.routing);
        routing.peers.clear();
        routing.problems.clear();
        if let Some(row) = row {
            let id = self.id;
            let id = id.unwrap_or_else(|| router_id(&row.name, &row.addresses));
            self.id = Some(id);
            let (peers, findings) = config.peers_on(&row.labels);
            for (key, peer) in peers {
                let profile = peer.bfd_profile.as_deref();
                let profile = profile.and_then(|name| config.bfd_profile(name));
                let desired = desired(peer, profile, key.namespace(), id);
                routing.peers.insert(key.name().into(), desired);
            }
            routing.problems = findings.reasons();
            routing.is_leaving = is_leaving;
            routing.is_unready = !row.ready;
        }
        self.offers = Offers::new(config, routing.peers.keys());
    }

    /// Takes a Service, or that there is none of this name with an address of a pool.
    pub fn take(
        &mut self,
        config: &Config,
        key: &ServiceKey,
        facts: Option<(&ServiceRow, &ServiceFacts)>,
    ) {
        let offered = self.node.as_ref().zip(facts);
        let offered = offered.map(|(node, (row, facts))| Offered {
            uid: row.uid.clone(),
            offers: offers(config, node, row, facts),
        });
        self.offers.set(key, offered);
    }

    /// Returns what is to be announced; the same object where nothing changed.
    pub fn settle(&mut self) -> &Arc<Routing> {
        if self.offers.has_changes() {
            let routing = Arc::make_mut(&mut self.routing);
            routing.union = self.offers.unite(&routing.union);
        }
        &self.routing
    }

    /// What is to be announced, as of when it was put together last.
    pub const fn routing(&self) -> &Arc<Routing> {
        &self.routing
    }

    /// Returns what this node offers of a Service, or why nothing; `None`: it has no address.
    pub fn offered(&self, key: &ServiceKey) -> Option<&Result<Offering, Withheld>> {
        self.offers.get(key)
    }
}
