//! How long Octavia takes for a change, learned from those that were seen.

use std::time::Duration;

use tokio::time::Instant;

use super::phase::Phase;

/// How long Octavia takes for a change.
#[derive(Debug)]
pub(crate) struct ChangeTiming {
    /// How long a change usually takes.
    pub(crate) settle: Duration,
    /// When a change was last polled earlier than usual, in case that Octavia has become faster.
    probed_at: Option<Instant>,
    /// Until then nothing is taken to be done: a guess was wrong a moment ago.
    cautious_until: Option<Instant>,
}

/// What a change is taken to last before any was seen.
const FIRST_GUESS: Duration = Duration::from_secs(1);
/// The longest delay before a poll.
const LONGEST_GUESS: Duration = Duration::from_secs(10);
/// From one early poll to the next.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);
/// How long nothing is guessed after a wrong guess.
const PESSIMISTIC_PERIOD: Duration = Duration::from_secs(30);
/// A change that took longer than so many usual ones counts as so many.
const OUTLIER: u32 = 4;

// === impl ChangeTiming ===

impl Default for ChangeTiming {
    fn default() -> Self {
        Self {
            settle: FIRST_GUESS,
            probed_at: None,
            cautious_until: None,
        }
    }
}

impl ChangeTiming {
    /// Returns the delay before the next poll. It is halved once per [`PROBE_INTERVAL`], so that a
    /// faster Octavia is noticed.
    pub(crate) fn wait(&mut self, now: Instant) -> Duration {
        let probed = self.probed_at;
        let rested = probed.is_none_or(|at| now.saturating_duration_since(at) >= PROBE_INTERVAL);
        if self.settle <= FIRST_GUESS * 2 || !rested {
            return self.settle;
        }
        self.probed_at = Some(now);
        self.settle / 2
    }

    /// Whether a change is taken to be done, as the time is over that it usually takes.
    pub(super) fn is_over(&self, phase: Phase, now: Instant) -> bool {
        let guessing = self.cautious_until.is_none_or(|until| now >= until);
        matches!(phase, Phase::Assumed { since, .. } if guessing && now >= since + self.settle)
    }

    /// Notes that a guess was wrong. Many load balancers that are changed at the same time queue up
    /// in Octavia: for a while they are polled.
    pub(super) fn guessed_wrong(&mut self, now: Instant) {
        self.cautious_until = Some(now + PESSIMISTIC_PERIOD);
    }

    /// Notes that a change was seen to be done, and between which two polls it was.
    pub(super) fn took(&mut self, phase: Phase, at: Instant) {
        let (Phase::Assumed { since, busy_at } | Phase::Changing { since, busy_at }) = phase else {
            return;
        };
        let most = at.saturating_duration_since(since);
        let least = busy_at.map_or(Duration::ZERO, |it| it.saturating_duration_since(since));
        // A guess that is too short costs a refused request each time; one that is too long, only a
        // moment.
        if least >= self.settle {
            // One that was stuck does not show how long the others take.
            self.settle = most.min(self.settle * OUTLIER);
        } else if most < self.settle {
            self.settle = (self.settle + most) / 2;
        }
        self.settle = self.settle.clamp(FIRST_GUESS / 2, LONGEST_GUESS);
    }
}
