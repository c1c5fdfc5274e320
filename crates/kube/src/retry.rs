//! How long to wait before trying again: pure.

use std::time::Duration;

/// Growing waits with jitter, so that replicas do not come back in step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retry {
    failures: u32,
}

const FIRST: Duration = Duration::from_millis(250);

/// An API server that comes back is found again within this long.
const LONGEST: Duration = Duration::from_secs(10);

// === impl Retry ===

impl Retry {
    /// The wait after one more failure. `dice` is any number; the wait is between half and all of
    /// what the count of failures asks for.
    pub(crate) fn next(&mut self, dice: u64) -> Duration {
        let full = FIRST
            .saturating_mul(1 << self.failures.min(10))
            .min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let half = full / 2;
        half + Duration::from_millis(dice % (half.as_millis() as u64 + 1))
    }

    /// It works again.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// An unpredictable number.
pub(crate) fn dice() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_and_start_again() {
        let mut retry = Retry::default();
        let waits: Vec<_> = (0..8).map(|_| retry.next(u64::MAX - 1)).collect();
        assert!(waits.iter().all(|wait| *wait <= LONGEST));
        let mut retry = Retry::default();
        let least: Vec<_> = (0..8).map(|_| retry.next(0).as_millis()).collect();
        assert_eq!(least, [125, 250, 500, 1000, 2000, 4000, 5000, 5000]);
        retry.reset();
        assert_eq!(retry.next(0).as_millis(), 125);
    }

    #[test]
    fn jitter_never_exceeds_the_full_wait() {
        for number in 0..1000 {
            let wait = Retry::default().next(number);
            assert!((125..=250).contains(&wait.as_millis()), "{wait:?}");
        }
    }
}
