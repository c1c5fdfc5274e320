//! How many addresses of one family of a pool each namespace holds, and how many it may. Pure.

use std::collections::HashMap;
use std::sync::Arc;

/// Addresses of one family of a pool, counted by namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    /// `None`: as many as there are.
    most: Option<u128>,
    counts: HashMap<Arc<str>, u64>,
}

// === impl Shares ===

impl Shares {
    /// Nothing is held yet; each namespace may hold so many.
    pub(crate) fn new(most: Option<u32>) -> Self {
        Self {
            most: most.map(u128::from),
            counts: HashMap::new(),
        }
    }

    /// Counts an address that the namespace did not hold.
    pub(crate) fn enter(&mut self, namespace: &Arc<str>) {
        *self.counts.entry(namespace.clone()).or_default() += 1;
    }

    /// Takes back an address that the namespace holds no more.
    pub(crate) fn leave(&mut self, namespace: &str) {
        if let Some(count) = self.counts.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(namespace);
            }
        }
    }

    /// Whether the namespace may hold no address beside those that it holds.
    pub(crate) fn is_used_up(&self, namespace: &str) -> bool {
        let held = self.held(namespace);
        self.most.is_some_and(|most| u128::from(held) >= most)
    }

    /// How many addresses the namespace holds.
    pub(crate) fn held(&self, namespace: &str) -> u64 {
        self.counts.get(namespace).copied().unwrap_or_default()
    }

    /// How many addresses the namespace that holds the most of them holds.
    pub(crate) fn largest(&self) -> u64 {
        self.counts.values().copied().max().unwrap_or_default()
    }

    /// How many addresses a namespace may hold.
    pub(crate) fn most(&self) -> Option<u128> {
        self.most
    }
}
