//! Counters of the requests to a cloud: for metrics, and for tests of the call budget.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The labels of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKey {
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: &'static str,
    /// The kind of object: `loadbalancer`, `listener`, ...
    pub resource: &'static str,
    /// `ok`, or the kind of error.
    pub outcome: &'static str,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCount {
    /// Their number.
    pub count: u64,
    /// Their duration, summed up.
    pub time: Duration,
}

/// The counters of one client.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<BTreeMap<CallKey, CallCount>>);

// === impl Calls ===

impl Calls {
    pub fn count(&self, key: CallKey, time: Duration) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = calls.entry(key).or_default();
        count.count += 1;
        count.time += time;
    }

    pub fn snapshot(&self) -> BTreeMap<CallKey, CallCount> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.clone()
    }
}
