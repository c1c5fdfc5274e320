//! The World: one in-memory snapshot of facts, indexed for the questions that `resolve` asks.
//!
//! [`World::apply`] takes one fact and says whose outcome may differ because of it. It decides
//! nothing else.

mod cluster_ips;
mod pools;
mod resources;
mod secret_users;
mod slices;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use landfall_model::ServiceKey;
use landfall_model::id::ByNamespace;
use landfall_model::reach::Ours;
use landfall_model::reason::Reason;
use landfall_model::rows::{
    Fact, KeptService, NamespaceRow, NodeRow, OwnershipFields, PackedService, PoolRow,
    ResourceKind, ResourceRow, SecretRow, ServiceRow, SliceRow,
};

use crate::held::addresses;
use crate::parallel;
pub use cluster_ips::named_members;
use cluster_ips::{ClusterIps, Named};
use pools::Pools;
use resources::Resources;
use secret_users::SecretUsers;
use slices::Slices;

/// Everything that sources have reported.
///
/// Services and slices, of which a cluster has many that nothing asks for, are kept packed: each
/// reader gets a row of its own.
#[derive(Clone, Debug, Default)]
pub struct World {
    services: ByNamespace<PackedService>,
    slices: Slices,
    cluster_ips: ClusterIps,
    named: Named,
    nodes: BTreeMap<Arc<str>, Arc<NodeRow>>,
    /// Whether there has ever been a node.
    had_nodes: bool,
    namespaces: BTreeMap<Arc<str>, Arc<NamespaceRow>>,
    secrets: HashMap<ServiceKey, Arc<SecretRow>>,
    secret_users: SecretUsers,
    /// Whether the source can't report Secrets.
    secrets_unavailable: bool,
    pools: Pools,
    /// Custom resources but address pools.
    resources: Resources,
    /// Networks whose traffic arrives on this machine.
    machine: Arc<[IpNet]>,
    problems: BTreeMap<Arc<str>, Vec<Reason>>,
    synced: bool,
    /// The newest term as of whose beginning everything is known.
    current: Option<u64>,
}

/// Whose outcome may differ because of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affected {
    /// None's.
    None,
    /// That of these Services.
    Services(Vec<ServiceKey>),
    /// That of the Services that name one of these addresses as that of a member: see
    /// [`World::naming`], which goes through all slices, and so once for many facts.
    Naming(Vec<IpAddr>),
    /// That of the Services that name this Secret: see [`World::users_of`]. A batch of facts may
    /// concern one Secret many times.
    Secret(ServiceKey),
    /// All Services.
    All,
    /// All Services, because the address pools have changed.
    Pools,
    /// All Services of the instances that read custom resources, because these have changed.
    Resources,
}

// === impl World ===

impl World {
    /// Takes one fact in.
    pub fn apply(&mut self, fact: Fact) -> Affected {
        match fact {
            Fact::Service(row) => self.apply_service(&row),
            Fact::ServiceGone(key) => self.remove_service(key),
            Fact::ClusterIps(key, addresses) => self.apply_cluster_ips(&key, addresses),
            Fact::Slice(row) => Affected::Services(self.slices.insert(&row)).or_none(),
            Fact::SliceGone(key) => match self.slices.remove(&key) {
                Some(service) => Affected::one(service),
                None => Affected::None,
            },
            Fact::Node(row) => {
                self.had_nodes = true;
                let old = self.nodes.insert(row.name.clone(), row.clone());
                let same = |old: Arc<NodeRow>| *old == *row || is_only_emptied(&old, &row);
                Affected::all_if(!old.is_some_and(same))
            }
            Fact::NodeGone(name) => Affected::all_if(self.nodes.remove(&name).is_some()),
            Fact::Namespace(row) => {
                let old = self.namespaces.insert(row.name.clone(), row.clone());
                if old.as_ref() == Some(&row) {
                    Affected::None
                } else {
                    self.all_in_namespace(&row.name)
                }
            }
            Fact::NamespaceGone(name) => match self.namespaces.remove(&name) {
                Some(_) => self.all_in_namespace(&name),
                None => Affected::None,
            },
            Fact::Secret(row) => {
                let key = row.key.clone();
                let old = self.secrets.insert(key.clone(), row.clone());
                if old.as_ref() == Some(&row) {
                    Affected::None
                } else {
                    Affected::Secret(key)
                }
            }
            Fact::SecretGone(key) => match self.secrets.remove(&key) {
                Some(_) => Affected::Secret(key),
                None => Affected::None,
            },
            Fact::SecretsUnavailable => {
                let before = std::mem::replace(&mut self.secrets_unavailable, true);
                Affected::all_if(!before)
            }
            Fact::Machine(networks) => {
                let before = std::mem::replace(&mut self.machine, networks);
                Affected::all_if(before != self.machine)
            }
            Fact::Pool(row) => Affected::pools(self.pools.insert(&row)),
            Fact::PoolGone(name) => Affected::pools(self.pools.remove(name)),
            Fact::Resource(row) => Affected::resources(self.resources.insert(&row)),
            Fact::ResourceGone(kind, key) => Affected::resources(self.resources.remove(kind, &key)),
            Fact::PoolsIncomplete { part, incomplete } => {
                Affected::pools(self.pools.set_incomplete(part, incomplete))
            }
            Fact::SourceProblems { part, reasons } => {
                if reasons.is_empty() {
                    self.problems.remove(&part);
                } else {
                    self.problems.insert(part, reasons);
                }
                Affected::None
            }
            Fact::Current { term } => {
                self.current = Some(term);
                Affected::None
            }
            Fact::Synced => {
                self.synced = true;
                self.services.compact();
                self.slices.compact();
                self.cluster_ips.compact();
                self.secret_users.compact();
                Affected::All
            }
        }
    }

    /// Whether everything is known as of the beginning of a term.
    pub fn is_current(&self, term: u64) -> bool {
        self.current == Some(term)
    }

    /// Whether everything that was there at the start is known.
    pub fn synced(&self) -> bool {
        self.synced
    }

    /// A Service.
    pub fn service(&self, key: &ServiceKey) -> Option<Arc<ServiceRow>> {
        let packed = self.services.get(key)?;
        packed.row(key.clone()).map(Arc::new)
    }

    /// Keeps a row of a Service, which takes no room of its own where it is the newest one.
    pub fn keep(&self, row: &ServiceRow) -> KeptService {
        KeptService::new(row, self.services.get(&row.key))
    }

    /// Returns a Service as it is kept here.
    pub fn kept(&self, key: &ServiceKey) -> Option<KeptService> {
        let packed = self.services.get(key)?;
        Some(KeptService::shared(key.clone(), packed.clone()))
    }

    /// The fields that decide the owner of a Service.
    pub fn affiliation(&self, key: &ServiceKey) -> Option<OwnershipFields<'_>> {
        self.services.get(key)?.affiliation()
    }

    /// The keys of all Services, in order.
    pub fn keys(&self) -> impl Iterator<Item = ServiceKey> {
        self.services.iter().map(|(key, _)| key)
    }

    /// All Services, by key.
    pub fn services(&self) -> impl Iterator<Item = Arc<ServiceRow>> {
        let row = |(key, packed): (ServiceKey, &PackedService)| packed.row(key).map(Arc::new);
        self.services.iter().filter_map(row)
    }

    /// The slices of a Service, by the slices' own key.
    pub fn slices_of<'a>(
        &'a self,
        service: &ServiceKey,
    ) -> impl Iterator<Item = SliceRow> + use<'a> {
        self.slices.of(service)
    }

    /// The Services of which an endpoint or an annotation names one of these addresses.
    pub fn naming(&self, addresses: &BTreeSet<IpAddr>) -> BTreeSet<ServiceKey> {
        if addresses.is_empty() {
            return BTreeSet::new();
        }
        let mut found = self.slices.with(addresses);
        found.extend(self.named.with(addresses).cloned());
        found
    }

    /// The Services that name one of these Secrets, and perhaps such as did before.
    pub fn users_of(&self, secrets: &BTreeSet<ServiceKey>) -> BTreeSet<ServiceKey> {
        let users = secrets.iter().map(|secret| self.secret_users.of(secret));
        users.flatten().collect()
    }

    /// A namespace.
    pub fn namespace(&self, name: &str) -> Option<&Arc<NamespaceRow>> {
        self.namespaces.get(name)
    }

    /// A TLS Secret.
    pub fn secret(&self, key: &ServiceKey) -> Option<&Arc<SecretRow>> {
        self.secrets.get(key)
    }

    /// Returns whether the source can't report Secrets, so that one which is not known may exist.
    pub fn secrets_unavailable(&self) -> bool {
        self.secrets_unavailable
    }

    /// Decides which address pools are in force; `home` names the instance of those that name none.
    /// Returns what is wrong with the others.
    pub fn settle_pools(&mut self, home: Option<&str>) -> Vec<Reason> {
        if self.synced
            && let Some(fallback) = self.pools.unknown_fallback()
        {
            let services: Vec<&PackedService> = self.services.iter().map(|(_, it)| it).collect();
            let held = parallel::map(&services, parallel::SERVICES, |packed| {
                let status = packed.status();
                status.map_or_else(Vec::new, |status| addresses(&status))
            });
            let given = held.into_iter().flatten();
            let given = given.filter(|it| fallback.iter().any(|range| range.contains(it)));
            let given = given.collect();
            self.pools.note_on_record(given);
        }
        self.pools.settle(home)
    }

    /// The address pools in force, by name.
    pub fn pools(&self) -> &[Arc<PoolRow>] {
        self.pools.in_force()
    }

    /// The custom resources of these kinds: by kind in the order given, then by key. Address pools
    /// are those of sources, in force or not.
    pub fn resources<'a>(
        &'a self,
        kinds: &[ResourceKind],
    ) -> impl Iterator<Item = &'a Arc<ResourceRow>> + use<'a> {
        let kinds: Vec<ResourceKind> = kinds.to_vec();
        kinds.into_iter().flat_map(|kind| {
            let pools = (kind == ResourceKind::IpAddressPool).then(|| self.pools.resources());
            pools.into_iter().flatten().chain(self.resources.of(kind))
        })
    }

    /// Whether an address is in an address pool, so that a listener of ours may be there.
    pub fn in_a_pool(&self, address: IpAddr) -> bool {
        self.pools.cover(address)
    }

    /// Whether an address is a cluster IP of some Service.
    pub fn is_cluster_ip(&self, address: IpAddr) -> bool {
        self.cluster_ips.contain(address)
    }

    /// Returns the cluster IPs that annotations of a Service may name as members.
    pub fn cluster_ips_named_by(&self, row: &ServiceRow) -> Box<[IpAddr]> {
        let named = named_members(row).into_iter();
        named.filter(|it| self.is_cluster_ip(*it)).collect()
    }

    /// What is known of an address that a member may have. `asks_machine`: whether it matters that
    /// it is one of this machine's, of which there may be many.
    pub fn ours(&self, address: IpAddr, asks_machine: bool) -> Ours {
        Ours {
            pool: self.in_a_pool(address),
            machine: asks_machine && self.machine.iter().any(|net| net.contains(&address)),
            cluster_ip: self.is_cluster_ip(address),
        }
    }

    /// Whether address pools may be missing, because a source can't be read.
    pub fn pools_incomplete(&self) -> bool {
        self.pools.incomplete()
    }

    /// Whether no node has been known since the start.
    pub fn never_had_nodes(&self) -> bool {
        !self.had_nodes
    }

    /// Every node, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<NodeRow>> {
        self.nodes.values()
    }

    /// What is wrong with the sources themselves.
    pub fn problems(&self) -> impl Iterator<Item = &Reason> {
        self.problems.values().flatten()
    }

    fn apply_service(&mut self, row: &ServiceRow) -> Affected {
        let packed = PackedService::of(row);
        if self.services.get(&row.key) == Some(&packed) {
            return Affected::None;
        }
        self.named.set(row);
        self.secret_users.set(row);
        self.services.insert(&row.key, packed);
        Affected::one(row.key.clone())
    }

    fn remove_service(&mut self, key: ServiceKey) -> Affected {
        self.named.remove(&key);
        self.secret_users.remove(&key);
        match self.services.remove(&key) {
            Some(_) => Affected::one(key),
            None => Affected::None,
        }
    }

    fn apply_cluster_ips(&mut self, key: &ServiceKey, addresses: Box<[IpAddr]>) -> Affected {
        let changed = self.cluster_ips.set(key, addresses);
        // Before everything is known, nothing was resolved.
        if changed.is_empty() || !self.synced {
            return Affected::None;
        }
        Affected::Naming(changed)
    }

    fn all_in_namespace(&self, namespace: &str) -> Affected {
        let all = self.services.in_namespace(namespace);
        Affected::Services(all.map(|(key, _)| key).collect())
    }
}

// === impl Affected ===

impl Affected {
    fn all_if(changed: bool) -> Self {
        if changed { Self::All } else { Self::None }
    }

    fn one(key: ServiceKey) -> Self {
        Self::Services(vec![key])
    }

    fn pools(changed: bool) -> Self {
        if changed { Self::Pools } else { Self::None }
    }

    fn resources(changed: bool) -> Self {
        if changed { Self::Resources } else { Self::None }
    }

    fn or_none(self) -> Self {
        match self {
            Self::Services(keys) if keys.is_empty() => Self::None,
            other => other,
        }
    }
}

/// Whether all that is new is that the node is to be emptied: it was cordoned, which changes no
/// member, or the autoscaler is about to remove it. It drains it first: the next reconcile leaves
/// it out, and none is started for it.
fn is_only_emptied(old: &NodeRow, new: &NodeRow) -> bool {
    let emptied = NodeRow {
        leaving: old.leaving || new.leaving,
        cordoned: new.cordoned,
        ..old.clone()
    };
    emptied == *new
}

#[cfg(test)]
mod tests;
