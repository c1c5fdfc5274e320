//! Pools: from rows to ranges of the allocator, and their counters.

use std::sync::Arc;

use landfall_ipam::{Counters, PoolName, PoolSet};
use landfall_model::reason::Reason;
use landfall_model::rows::{PoolRow, ResourceProblem};
use landfall_model::view::PoolView;

use crate::addressing::Addressing;

impl Addressing {
    /// Notes whether a source may hide pools. Then no Service leaves an address because no pool has
    /// it.
    pub fn set_pools_incomplete(&mut self, incomplete: bool) {
        self.pools_incomplete = incomplete;
    }

    /// Replaces the pools. Returns what is wrong with some; each of those stays as it was, so that
    /// a typo costs no Service its address.
    pub fn set_pools(&mut self, rows: &[Arc<PoolRow>]) -> Vec<Reason> {
        let (set, errors) = PoolSet::of_rows(rows, self.allocator.pools());
        let mut problems = Vec::new();
        self.pool_problems.clear();
        for error in &errors {
            let name = error.pool().map(PoolName::as_str);
            let row = rows.iter().find(|row| Some(row.name.as_str()) == name);
            let reason = error.reason(row.map(|row| &**row));
            if let Some(object) = row.and_then(|row| row.resource.as_ref()) {
                self.pool_problems.push(ResourceProblem {
                    kind: object.kind,
                    key: object.key.clone(),
                    reason: reason.clone(),
                });
            }
            problems.push(reason);
        }
        self.allocator.set_pools(set);
        // An invalid pool that was not known before is a pool that is missing.
        self.allocator
            .set_incomplete(self.pools_incomplete || !problems.is_empty());
        self.rows = rows.to_vec();
        problems
    }

    /// Returns what is wrong with the pools that are objects.
    pub fn pool_problems(&self) -> Vec<ResourceProblem> {
        self.pool_problems.clone()
    }

    /// Returns the pools with their counters.
    pub fn pools(&self) -> Vec<PoolView> {
        let counters = self.allocator.counters();
        counters.iter().map(|it| self.view(it)).collect()
    }

    fn view(&self, counters: &Counters) -> PoolView {
        let name = counters.pool.to_string();
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let row = self.rows.iter().find(|row| row.name == name);
        PoolView {
            addresses: row.map(|row| row.addresses.clone()).unwrap_or_default(),
            assigned_ipv4: count(counters.assigned_ipv4),
            available_ipv4: count(counters.available_ipv4),
            assigned_ipv6: count(counters.assigned_ipv6),
            available_ipv6: count(counters.available_ipv6),
            limit_ipv4: counters.limit_ipv4.map(count),
            limit_ipv6: counters.limit_ipv6.map(count),
            largest_ipv4: count(counters.largest_ipv4),
            largest_ipv6: count(counters.largest_ipv6),
            cooling: Vec::new(),
            held: Vec::new(),
            name,
        }
    }
}
