//! The slices of a World: found by the Service that they belong to, and by their own name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use landfall_model::ServiceKey;
use landfall_model::id::ByNamespace;
use landfall_model::rows::{PackedSlice, SliceRow};

/// A name of a Service and one of a slice.
type Names = (Arc<str>, Arc<str>);

/// All slices.
#[derive(Clone, Debug, Default)]
pub(super) struct Slices {
    /// By namespace; in it by Service and slice, so that the slices of a Service stand together.
    packed: BTreeMap<Arc<str>, BTreeMap<Names, PackedSlice>>,
    /// Whose each slice is.
    service_of: ByNamespace<Arc<str>>,
}

// === impl Slices ===

impl Slices {
    /// Takes a slice in; says whose slices are others now.
    pub(super) fn insert(&mut self, row: &SliceRow) -> Vec<ServiceKey> {
        let packed = PackedSlice::of(row);
        let mut affected = Vec::new();
        let before = self.service_of.get(&row.key);
        if before.is_some_and(|service| **service != *row.service.name()) {
            affected.extend(self.remove(&row.key));
        }
        let names = (
            row.service.shared_name().clone(),
            row.key.shared_name().clone(),
        );
        self.service_of.insert(&row.key, names.0.clone());
        let of_namespace = match self.packed.get_mut(row.key.namespace()) {
            Some(of_namespace) => of_namespace,
            None => self
                .packed
                .entry(row.key.shared_namespace().clone())
                .or_default(),
        };
        if of_namespace.get(&names) != Some(&packed) {
            of_namespace.insert(names, packed);
            affected.push(row.service.clone());
        }
        affected
    }

    /// Takes a slice out; says whose it was.
    pub(super) fn remove(&mut self, key: &ServiceKey) -> Option<ServiceKey> {
        let service = self.service_of.remove(key)?;
        let owner = ServiceKey::shared(key.shared_namespace(), &service);
        if let Some(of_namespace) = self.packed.get_mut(key.namespace()) {
            of_namespace.remove(&(service, key.shared_name().clone()));
            if of_namespace.is_empty() {
                self.packed.remove(key.namespace());
            }
        }
        Some(owner)
    }

    /// The slices of a Service, by name.
    pub(super) fn of<'a>(
        &'a self,
        service: &ServiceKey,
    ) -> impl Iterator<Item = SliceRow> + use<'a> {
        let found = self.packed.get(service.namespace());
        let service = service.clone();
        let first = (service.shared_name().clone(), Arc::from(""));
        found
            .into_iter()
            .flat_map(move |of_namespace| of_namespace.range(first.clone()..))
            .map_while(move |((of, name), packed)| {
                let ours = *of == *service.shared_name();
                let key = || ServiceKey::shared(service.shared_namespace(), name);
                ours.then(|| packed.row(key(), service.clone()))
            })
            .flatten()
    }

    /// The Services with an endpoint at one of these addresses.
    pub(super) fn with(&self, addresses: &BTreeSet<IpAddr>) -> BTreeSet<ServiceKey> {
        let mut found = BTreeSet::new();
        for (namespace, of_namespace) in &self.packed {
            for ((service, _), packed) in of_namespace {
                if packed.has_endpoint(|address| addresses.contains(&address.to_canonical())) {
                    found.insert(ServiceKey::shared(namespace, service));
                }
            }
        }
        found
    }

    /// Gives room back that growing has left, and holds each name once.
    pub(super) fn compact(&mut self) {
        for (namespace, of_namespace) in &mut self.packed {
            *of_namespace = std::mem::take(of_namespace).into_iter().collect();
            for (service, name) in of_namespace.keys() {
                let key = ServiceKey::shared(namespace, name);
                if let Some(held) = self.service_of.get_mut(&key) {
                    held.clone_from(service);
                }
            }
        }
        self.service_of.compact();
    }
}
