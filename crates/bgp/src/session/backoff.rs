//! How long to wait before the next attempt to connect.

use std::time::Duration;

/// The first wait.
const FIRST: Duration = Duration::from_secs(1);

/// Waits that double up to a bound, with jitter (RFC 4271, 10), so that many nodes do not connect
/// to a router in step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

// === impl Backoff ===

impl Backoff {
    /// Returns the next wait, which is `longest` at most.
    pub fn next(&mut self, longest: Duration, random: &mut fastrand::Rng) -> Duration {
        let longest = longest.max(FIRST);
        let wait = FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(longest);
        self.failures = self.failures.saturating_add(1);
        jittered(wait, random)
    }

    /// Begins with the first wait again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Returns three quarters of a time to all of it (RFC 4271, 10).
pub(super) fn jittered(time: Duration, random: &mut fastrand::Rng) -> Duration {
    time.mul_f64(0.75 + 0.25 * random.f64())
}

#[test]
fn waits_double_up_to_the_bound_and_differ() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut backoff = Backoff::default();
    let longest = Duration::from_secs(20);
    let waits: Vec<_> = (0..8).map(|_| backoff.next(longest, &mut random)).collect();
    let bounds = [1, 2, 4, 8, 16, 20, 20, 20].map(Duration::from_secs);
    for (wait, bound) in waits.iter().zip(bounds) {
        assert!(*wait <= bound && *wait >= bound * 3 / 4, "{waits:?}");
    }
    assert_ne!(waits.get(6), waits.get(7));
    backoff.reset();
    assert!(backoff.next(longest, &mut random) <= FIRST);
    assert!(backoff.next(Duration::ZERO, &mut random) <= FIRST * 2);
}
