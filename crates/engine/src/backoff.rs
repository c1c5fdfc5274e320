//! How long to wait after a failure: per key, doubling, with jitter, bounded.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Bounds of the wait after failures in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// Never longer than this.
    pub longest: Duration,
}

/// Failures in a row, by key, and the waits after them.
#[derive(Clone, Debug)]
pub struct Retries<K> {
    backoff: Backoff,
    failures: HashMap<K, u32>,
}

// === impl Backoff ===

impl Default for Backoff {
    /// 0.5 s doubling to 5 min: quick enough for a port that is freed, slow enough for an outage.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            longest: Duration::from_secs(300),
        }
    }
}

impl Backoff {
    /// Returns the wait after the given number of failures in a row (1 is the first), spread over
    /// 75..=100 % of the doubled time. The spread depends only on the key and the number, so that
    /// many keys that fail together do not come back together, and tests can foretell it.
    pub fn delay(&self, key: &impl Hash, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        let full = self.first.saturating_mul(1 << doublings).min(self.longest);
        let mut hasher = DefaultHasher::new();
        (key, failures).hash(&mut hasher);
        let quarter_in_256 = u32::try_from(hasher.finish() % 64).unwrap_or(0);
        full.saturating_sub(full / 256 * quarter_in_256)
    }
}

// === impl Retries ===

impl<K: Clone + Eq + Hash> Retries<K> {
    /// Returns a record without failures.
    pub fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            failures: HashMap::new(),
        }
    }

    /// Counts a failure and returns how long to wait before the next attempt.
    pub fn fail(&mut self, key: &K) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        self.backoff.delay(key, *failures)
    }

    /// Forgets the failures of a key: it succeeded, or is gone.
    pub fn reset(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// Returns whether the last attempt failed.
    pub fn is_failing(&self, key: &K) -> bool {
        self.failures.contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    use landfall_model::ServiceKey;

    use super::*;

    #[test]
    fn delays_double_within_their_jitter_and_stop_at_the_longest() {
        let (backoff, key) = (Backoff::default(), ServiceKey::new("default", "web"));
        for failures in 1..40 {
            let full = (backoff.first * 2u32.pow((failures - 1).min(20))).min(backoff.longest);
            let delay = backoff.delay(&key, failures);
            assert!(
                delay <= full && delay >= full * 3 / 4,
                "{failures}: {delay:?} of {full:?}"
            );
        }
    }

    #[test]
    fn services_that_fail_together_come_back_apart() {
        let backoff = Backoff::default();
        let delays: std::collections::BTreeSet<_> = (0..50)
            .map(|n| backoff.delay(&ServiceKey::new("default", &format!("web-{n}")), 3))
            .collect();
        assert!(delays.len() > 20, "{delays:?}");
    }

    #[test]
    fn a_success_begins_the_waits_again() {
        let mut retries = Retries::new(Backoff::default());
        let first = retries.fail(&"web");
        assert!(retries.fail(&"web") > first && retries.is_failing(&"web"));
        assert!(!retries.is_failing(&"db"));
        retries.reset(&"web");
        assert_eq!(
            (retries.is_failing(&"web"), retries.fail(&"web")),
            (false, first)
        );
    }
}
