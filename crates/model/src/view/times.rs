//! Times that were measured.

use serde::{Deserialize, Serialize};

/// Times counted by size, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimesView {
    /// Upper bounds in rising order, each with the times that fit under it and under no lower one.
    pub buckets: Vec<(u64, u64)>,
    /// All times added up.
    pub sum: u64,
    /// How many there were, with those above every bound.
    pub count: u64,
}

// === impl TimesView ===

impl TimesView {
    /// Adds times that were counted with the same bounds.
    pub fn add(&mut self, other: &Self) {
        if self.buckets.is_empty() {
            self.clone_from(other);
            return;
        }
        for (into, from) in self.buckets.iter_mut().zip(&other.buckets) {
            into.1 += from.1;
        }
        self.sum += other.sum;
        self.count += other.count;
    }
}
