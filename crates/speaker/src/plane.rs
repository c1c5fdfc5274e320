//! Which Services the nodes themselves serve, and what each of them serves: pure.
//!
//! Every node is ready to serve every address: its listeners are open and its routes are there
//! before it is elected, so that a failover moves nothing but the announcement. With
//! `externalTrafficPolicy: Local` these are the nodes with a member, and each serves with its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use landfall_engine::resolve::{Accepted, resolve};
use landfall_engine::select::Ownership;
use landfall_engine::{Classes, World, claims};
use landfall_model::intent::LoadBalancerSpec;
use landfall_model::listener::Listener;
use landfall_model::provider::ProviderProfile;
use landfall_model::rows::ServiceRow;
use landfall_model::status::{IpMode, ServiceStatus};
use landfall_model::{ServiceKey, Uid};

/// What a node serves of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Identity of the Service.
    pub uid: Uid,
    /// Its addresses of pools.
    pub addresses: Vec<IpAddr>,
    /// Those of them that another host has, as the node says that would announce them: their
    /// packets are not for this Service, neither on that node nor on any other.
    pub refused: BTreeSet<IpAddr>,
    /// On each of them; none on a node without a member that it may use.
    pub listeners: Vec<Listener>,
    /// Whether there is a member, on any node.
    pub has_members: bool,
    /// The nodes that have one; empty where they do not matter.
    pub nodes: BTreeSet<String>,
    /// What the controller reports of it, for people.
    pub status: ServiceStatus,
}

/// What a node serves.
pub type Serves = BTreeMap<ServiceKey, Arc<Served>>;

/// The Services that nodes serve.
#[derive(Debug)]
pub struct Plane {
    own: Arc<str>,
    classes: Classes,
    /// Of each instance; `None`: something else serves its Services.
    profiles: Vec<Option<ProviderProfile>>,
    accepted: BTreeMap<ServiceKey, Accepted>,
    serves: Arc<Serves>,
    /// The addresses whose packets this node takes; `None`: all of them.
    routed: Option<BTreeSet<IpAddr>>,
    /// The addresses that other hosts have.
    refused: BTreeSet<IpAddr>,
}

// === impl Plane ===

impl Plane {
    /// The Services of these instances, on this node. `profiles`: one for each, where nodes serve
    /// its Services.
    pub fn new(own: &str, classes: Classes, profiles: Vec<Option<ProviderProfile>>) -> Self {
        Self {
            own: own.into(),
            classes,
            profiles,
            accepted: BTreeMap::new(),
            serves: Arc::default(),
            routed: None,
            refused: BTreeSet::new(),
        }
    }

    /// Takes the addresses that other hosts have.
    pub fn take_refused(&mut self, refused: BTreeSet<IpAddr>) {
        if refused == self.refused {
            return;
        }
        self.refused = refused;
        let differs = |it: &Served| it.refused != self.refused_of(&it.addresses);
        let changed = self.serves.iter().filter(|(_, it)| differs(it));
        let changed: Vec<(ServiceKey, Served)> = changed
            .map(|(key, it)| {
                let refused = self.refused_of(&it.addresses);
                let served = Served {
                    refused,
                    ..Served::clone(it)
                };
                (key.clone(), served)
            })
            .collect();
        if !changed.is_empty() {
            let all = Arc::make_mut(&mut self.serves);
            all.extend(changed.into_iter().map(|(key, it)| (key, Arc::new(it))));
        }
    }

    fn refused_of(&self, addresses: &[IpAddr]) -> BTreeSet<IpAddr> {
        let refused = addresses.iter().filter(|it| self.refused.contains(*it));
        refused.copied().collect()
    }

    /// Takes the addresses whose packets this node takes. Returns those that it took before, or
    /// takes now, and not both.
    pub fn take_routed(&mut self, routed: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        let before = self.routed.replace(routed.clone());
        let Some(before) = before else {
            let served = self.serves.values().flat_map(|it| &it.addresses);
            return served.copied().collect();
        };
        before.symmetric_difference(routed).copied().collect()
    }

    /// Returns whether packets for an address that this node is to serve get to it.
    pub fn is_routed(&self, address: IpAddr) -> bool {
        let routed = self.routed.as_ref();
        routed.is_none_or(|routed| routed.contains(&address))
    }

    /// Evaluates all Services again.
    pub fn take_all(&mut self, world: &World) {
        let gone = self.serves.keys().chain(self.accepted.keys()).cloned();
        let keys: BTreeSet<ServiceKey> = gone.chain(world.keys()).collect();
        for key in keys {
            self.take(world, &key);
        }
    }

    /// Evaluates a Service again.
    pub fn take(&mut self, world: &World, key: &ServiceKey) {
        let row = world.service(key);
        if row.is_none() {
            self.accepted.remove(key);
        }
        let served = row.and_then(|row| self.served(world, &row));
        if self.serves.get(key).map(AsRef::as_ref) == served.as_ref() {
            return;
        }
        let all = Arc::make_mut(&mut self.serves);
        match served {
            Some(served) => drop(all.insert(key.clone(), Arc::new(served))),
            None => drop(all.remove(key)),
        }
    }

    fn served(&mut self, world: &World, row: &Arc<ServiceRow>) -> Option<Served> {
        let namespace = world.namespace(row.key.namespace());
        let namespace = namespace.map(AsRef::as_ref);
        let profile = match self.classes.validate(row, namespace) {
            Ownership::Ours(instance) => instance.of(&self.profiles)?.as_ref(),
            Ownership::NotOurs | Ownership::UnknownClass | Ownership::SwitchedOff => None,
        };
        let addresses = addresses(world, row);
        let Some(profile) = profile.filter(|_| !addresses.is_empty() && !row.deleting) else {
            self.accepted.remove(&row.key);
            return None;
        };
        let intent = if let Ok(intent) = resolve(row, world, profile) {
            let accepted = Accepted::new(world.keep(row), Some(&intent));
            self.accepted.insert(row.key.clone(), accepted);
            intent
        } else {
            // The controller reports why. It goes on by the version that was valid last.
            let recorded = || {
                let row = claims::accepted(row)?.ok()?;
                Some(Accepted::new((&row).into(), None))
            };
            let of_this = |it: &&Accepted| it.row.is_of(&row.uid);
            let known = self.accepted.get(&row.key).filter(of_this).cloned();
            let accepted = known.or_else(recorded)?;
            accepted.resolve(row, world, profile)?
        };
        Some(self.of_node(row, addresses, intent.load_balancer?))
    }

    fn of_node(&self, row: &ServiceRow, addresses: Vec<IpAddr>, spec: LoadBalancerSpec) -> Served {
        let mut listeners = spec.listeners;
        let members = listeners.iter().flat_map(|it| &it.pool.members);
        let has_members = members.clone().next().is_some();
        let mut nodes = BTreeSet::new();
        if row.external_local {
            nodes.extend(members.filter_map(|it| it.node.as_deref().map(str::to_owned)));
            let is_here = |node: Option<&str>| node == Some(&*self.own);
            for listener in &mut listeners {
                let members = &mut listener.pool.members;
                members.retain(|it| is_here(it.node.as_deref()));
            }
            if !nodes.contains(&*self.own) {
                listeners.clear();
            }
        }
        Served {
            uid: row.uid.clone(),
            refused: self.refused_of(&addresses),
            addresses,
            listeners,
            has_members,
            nodes,
            status: ServiceStatus {
                ingress: row.status.ingress.clone(),
                conditions: row.status.conditions.clone(),
                ..ServiceStatus::default()
            },
        }
    }

    /// What nodes serve of a Service; `None`: nothing.
    pub fn get(&self, key: &ServiceKey) -> Option<&Served> {
        self.serves.get(key).map(AsRef::as_ref)
    }

    /// What this node serves.
    pub const fn serves(&self) -> &Arc<Serves> {
        &self.serves
    }
}

/// The addresses of pools that the controller published for what serves them itself.
fn addresses(world: &World, row: &ServiceRow) -> Vec<IpAddr> {
    let published = row.status.ingress.iter();
    let ours = published.filter(|it| it.ip_mode == Some(IpMode::Proxy));
    let addresses = ours.filter_map(|it| it.ip);
    addresses
        .filter(|address| world.in_a_pool(*address))
        .collect()
}
