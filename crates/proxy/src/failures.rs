//! How many failures of a Service are written into the access log beyond its sample.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use landfall_model::protection::Rate;

use crate::rate::spend;

/// Failures of one Service that are written although they are not in the sample: a client that
/// breaks off on purpose is one, as often as it likes.
const FAILURES: Rate = Rate {
    count: 10,
    period: Duration::from_secs(1),
    burst: 1000,
};

/// How many failures of a Service were written lately. Shared by all workers.
#[derive(Debug)]
pub(crate) struct Failures {
    born: Instant,
    /// When the burst is whole again, in nanoseconds.
    whole: AtomicU64,
}

// === impl Failures ===

impl Default for Failures {
    fn default() -> Self {
        Self {
            born: Instant::now(),
            whole: AtomicU64::new(0),
        }
    }
}

impl Failures {
    /// Returns whether one more is to be written.
    pub(crate) fn take(&self, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.born).as_nanos();
        let now = u64::try_from(age).unwrap_or(u64::MAX);
        let spent = |whole| spend(FAILURES, whole, now).ok();
        let taken = self
            .whole
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent);
        taken.is_ok()
    }
}
