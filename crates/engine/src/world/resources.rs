//! Custom resources, but for address pools, which come with the pools.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_model::ServiceKey;
use landfall_model::rows::{ResourceKind, ResourceRow};

/// The custom resources that sources have reported, by kind and key.
#[derive(Clone, Debug, Default)]
pub(super) struct Resources {
    by_key: BTreeMap<ResourceKind, BTreeMap<ServiceKey, Arc<ResourceRow>>>,
}

// === impl Resources ===

impl Resources {
    /// Takes a resource in; returns whether that is news.
    pub(super) fn insert(&mut self, row: &Arc<ResourceRow>) -> bool {
        let of_kind = self.by_key.entry(row.kind).or_default();
        let old = of_kind.insert(row.key.clone(), row.clone());
        old.as_ref() != Some(row)
    }

    /// Takes a resource back; returns whether that is news.
    pub(super) fn remove(&mut self, kind: ResourceKind, key: &ServiceKey) -> bool {
        let of_kind = self.by_key.get_mut(&kind);
        of_kind.is_some_and(|of_kind| of_kind.remove(key).is_some())
    }

    /// Returns those of a kind, by key.
    pub(super) fn of(&self, kind: ResourceKind) -> impl Iterator<Item = &Arc<ResourceRow>> {
        self.by_key
            .get(&kind)
            .into_iter()
            .flat_map(BTreeMap::values)
    }
}
