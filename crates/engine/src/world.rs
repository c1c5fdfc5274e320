//! The World: one in-memory snapshot of facts, indexed for the questions that `resolve` asks.
//!
//! [`World::apply`] takes one fact and says whose outcome may differ because of it. It decides
//! nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use landfall_model::ServiceKey;
use landfall_model::reason::Reason;
use landfall_model::rows::{Fact, NamespaceRow, NodeRow, PoolRow, SecretRow, ServiceRow, SliceRow};

/// Everything that sources have told.
#[derive(Clone, Debug, Default)]
pub struct World {
    services: BTreeMap<ServiceKey, Arc<ServiceRow>>,
    slices: HashMap<ServiceKey, Arc<SliceRow>>,
    slices_of_service: HashMap<ServiceKey, BTreeSet<ServiceKey>>,
    nodes: BTreeMap<Arc<str>, Arc<NodeRow>>,
    /// Whether there has ever been a node.
    had_nodes: bool,
    namespaces: BTreeMap<Arc<str>, Arc<NamespaceRow>>,
    secrets: HashMap<ServiceKey, Arc<SecretRow>>,
    pools: BTreeMap<String, Arc<PoolRow>>,
    problems: BTreeMap<Arc<str>, Vec<Reason>>,
    synced: bool,
}

/// Whose outcome may differ because of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affected {
    /// Nobody's.
    Nobody,
    /// That of these Services.
    Services(Vec<ServiceKey>),
    /// Everybody's.
    All,
    /// Everybody's, because the address pools are others now.
    Pools,
}

// === impl World ===

impl World {
    /// Takes one fact in.
    pub fn apply(&mut self, fact: Fact) -> Affected {
        match fact {
            Fact::Service(row) => self.apply_service(&row),
            Fact::ServiceGone(key) => match self.services.remove(&key) {
                Some(_) => Affected::one(key),
                None => Affected::Nobody,
            },
            Fact::Slice(row) => self.apply_slice(&row),
            Fact::SliceGone(key) => match self.slices.remove(&key) {
                Some(old) => {
                    self.unlink_slice(&old);
                    Affected::one(old.service.clone())
                }
                None => Affected::Nobody,
            },
            Fact::Node(row) => {
                self.had_nodes = true;
                let old = self.nodes.insert(row.name.clone(), row.clone());
                if old.as_ref() == Some(&row) {
                    Affected::Nobody
                } else {
                    Affected::All
                }
            }
            Fact::NodeGone(name) => match self.nodes.remove(&name) {
                Some(_) => Affected::All,
                None => Affected::Nobody,
            },
            Fact::Namespace(row) => {
                let old = self.namespaces.insert(row.name.clone(), row.clone());
                if old.as_ref() == Some(&row) {
                    Affected::Nobody
                } else {
                    self.all_in_namespace(&row.name)
                }
            }
            Fact::NamespaceGone(name) => match self.namespaces.remove(&name) {
                Some(_) => self.all_in_namespace(&name),
                None => Affected::Nobody,
            },
            Fact::Secret(row) => {
                let key = row.key.clone();
                let old = self.secrets.insert(key.clone(), row.clone());
                if old.as_ref() == Some(&row) {
                    Affected::Nobody
                } else {
                    self.users_of_secret(&key)
                }
            }
            Fact::SecretGone(key) => match self.secrets.remove(&key) {
                Some(_) => self.users_of_secret(&key),
                None => Affected::Nobody,
            },
            Fact::Pool(row) => {
                let old = self.pools.insert(row.name.clone(), row.clone());
                if old.as_ref() == Some(&row) {
                    Affected::Nobody
                } else {
                    Affected::Pools
                }
            }
            Fact::PoolGone(name) => match self.pools.remove(&name) {
                Some(_) => Affected::Pools,
                None => Affected::Nobody,
            },
            Fact::SourceProblems { part, reasons } => {
                if reasons.is_empty() {
                    self.problems.remove(&part);
                } else {
                    self.problems.insert(part, reasons);
                }
                Affected::Nobody
            }
            Fact::Synced => {
                self.synced = true;
                Affected::All
            }
        }
    }

    /// Whether everything that was there at the start is known.
    pub fn synced(&self) -> bool {
        self.synced
    }

    /// A Service.
    pub fn service(&self, key: &ServiceKey) -> Option<&Arc<ServiceRow>> {
        self.services.get(key)
    }

    /// All Services, by key.
    pub fn services(&self) -> impl Iterator<Item = &Arc<ServiceRow>> {
        self.services.values()
    }

    /// The slices of a Service, by the slices' own key.
    pub fn slices_of(&self, service: &ServiceKey) -> impl Iterator<Item = &Arc<SliceRow>> {
        self.slices_of_service
            .get(service)
            .into_iter()
            .flatten()
            .filter_map(|slice| self.slices.get(slice))
    }

    /// A namespace.
    pub fn namespace(&self, name: &str) -> Option<&Arc<NamespaceRow>> {
        self.namespaces.get(name)
    }

    /// A TLS Secret.
    pub fn secret(&self, key: &ServiceKey) -> Option<&Arc<SecretRow>> {
        self.secrets.get(key)
    }

    /// All address pools, by name.
    pub fn pools(&self) -> Vec<Arc<PoolRow>> {
        self.pools.values().cloned().collect()
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

    fn apply_service(&mut self, row: &Arc<ServiceRow>) -> Affected {
        let key = row.key.clone();
        let old = self.services.insert(key.clone(), row.clone());
        if old.as_ref() == Some(row) {
            Affected::Nobody
        } else {
            Affected::one(key)
        }
    }

    fn apply_slice(&mut self, row: &Arc<SliceRow>) -> Affected {
        let Some(old) = self.slices.insert(row.key.clone(), row.clone()) else {
            self.link_slice(row);
            return Affected::one(row.service.clone());
        };
        if old == *row {
            return Affected::Nobody;
        }
        if old.service == row.service {
            return Affected::one(row.service.clone());
        }
        self.unlink_slice(&old);
        self.link_slice(row);
        Affected::Services(vec![old.service.clone(), row.service.clone()])
    }

    fn link_slice(&mut self, row: &SliceRow) {
        self.slices_of_service
            .entry(row.service.clone())
            .or_default()
            .insert(row.key.clone());
    }

    fn unlink_slice(&mut self, row: &SliceRow) {
        if let Some(slices) = self.slices_of_service.get_mut(&row.service) {
            slices.remove(&row.key);
            if slices.is_empty() {
                self.slices_of_service.remove(&row.service);
            }
        }
    }

    fn in_namespace<'a>(
        &'a self,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a ServiceKey, &'a Arc<ServiceRow>)> {
        self.services
            .range(ServiceKey::new(namespace, "")..)
            .take_while(move |(key, _)| key.namespace() == namespace)
    }

    fn all_in_namespace(&self, namespace: &str) -> Affected {
        Affected::Services(
            self.in_namespace(namespace)
                .map(|(key, _)| key.clone())
                .collect(),
        )
    }

    /// Services name their Secrets in annotations, in a syntax that only the dialects know; a
    /// Service that does not even mention the name can't be using it.
    fn users_of_secret(&self, secret: &ServiceKey) -> Affected {
        let mentions = |row: &ServiceRow| {
            row.annotations
                .values()
                .any(|value| value.contains(secret.name()))
        };
        Affected::Services(
            self.in_namespace(secret.namespace())
                .filter(|(_, row)| mentions(row))
                .map(|(key, _)| key.clone())
                .collect(),
        )
    }
}

// === impl Affected ===

impl Affected {
    fn one(key: ServiceKey) -> Self {
        Self::Services(vec![key])
    }
}
