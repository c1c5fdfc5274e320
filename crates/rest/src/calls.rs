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
    /// By duration, as [`BOUNDS`] divides it.
    within: [u64; BOUNDS.len()],
}

/// What divides durations: from a read of one object to a call that waits for a driver. Those that
/// take longer are in no part.
const BOUNDS: [Duration; 10] = [
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
];

/// The counters of one client.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<BTreeMap<CallKey, CallCount>>);

// === impl CallCount ===

impl CallCount {
    /// Returns upper bounds in rising order, each with the requests whose duration is within it and
    /// within no lower one. Longer ones are in `count` alone.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        BOUNDS.into_iter().zip(self.within)
    }

    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.time += time;
        let mut parts = BOUNDS.iter().zip(&mut self.within);
        if let Some((_, part)) = parts.find(|(bound, _)| time <= **bound) {
            *part += 1;
        }
    }
}

// === impl Calls ===

impl Calls {
    pub fn count(&self, key: CallKey, time: Duration) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.entry(key).or_default().add(time);
    }

    pub fn snapshot(&self) -> BTreeMap<CallKey, CallCount> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_at_the_lowest_bound_that_they_are_within() {
        let calls = Calls::default();
        let key = CallKey {
            method: "GET",
            resource: "loadbalancer",
            outcome: "ok",
        };
        for millis in [0, 25, 26, 30_000, 30_001] {
            calls.count(key, Duration::from_millis(millis));
        }
        let counted = calls.snapshot()[&key];
        assert_eq!(
            (counted.count, counted.time),
            (5, Duration::from_millis(60_052))
        );
        let some: Vec<_> = counted.buckets().filter(|(_, count)| *count > 0).collect();
        let bound = Duration::from_millis;
        assert_eq!(some, [(bound(25), 2), (bound(50), 1), (bound(30_000), 1)]);
        assert!(BOUNDS.is_sorted());
    }
}
