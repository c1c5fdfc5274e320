//! Decides when a replica that leads and does not work lets another one lead: pure.
//!
//! A replica can hold the Lease and reconcile nothing: its lists fail, or its engine does not
//! start. Each attempt has a bound; after one that failed, the replica rests while others try.

use std::time::{Duration, Instant};

use super::Times;

/// When a replica that leads and does not come to work lets another one have its turn.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// How long others have their turn after one that came to nothing.
    rest: Duration,
    phase: Phase,
    /// How many turns in a row have come to nothing.
    failed: u32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// It works, or has not come to lead.
    Able,
    /// It came to lead then, and has not begun to work in this term.
    Idle { term: u64, since: Instant },
    /// Others have their turn until then.
    Resting(Instant),
}

/// How long a first turn without work lasts: longer than what can't be listed is waited for.
const FIRST_TURN: Duration = Duration::from_secs(60);

/// How long any does. They grow, so that a large cluster behind a slow API server is known at last.
const LONGEST_TURN: Duration = Duration::from_secs(900);

/// How long others have their turn after it at least: they look several times.
const REST: Duration = Duration::from_secs(15);

// === impl Turns ===

impl Turns {
    /// Begins with a replica that may lead.
    pub fn new(times: &Times) -> Self {
        Self {
            // Where giving the record up fails, others wait until it runs out, and then look.
            rest: REST.max(times.lease + times.retry * 2),
            phase: Phase::Able,
            failed: 0,
        }
    }

    /// Decides whether this replica may lead; `term`: in which one it does. Returns when to ask
    /// again at the latest.
    pub fn validate(
        &mut self,
        term: Option<u64>,
        works: bool,
        now: Instant,
    ) -> (bool, Option<Instant>) {
        if let Phase::Resting(until) = self.phase
            && now < until
        {
            return (false, Some(until));
        }
        if works {
            self.phase = Phase::Able;
            self.failed = 0;
            return (true, None);
        }
        // Behind a slow API server the lead is lost for a moment again and again, and no other
        // replica has its turn meanwhile: the clock of the term runs on.
        let Some(term) = term else {
            if let Phase::Resting(_) = self.phase {
                self.phase = Phase::Able;
            }
            return (true, None);
        };
        let since = match self.phase {
            Phase::Idle { term: of, since } if of == term => since,
            _ => now,
        };
        let longest = FIRST_TURN.saturating_mul(1 << self.failed.min(10));
        let ends = since + longest.min(LONGEST_TURN);
        if now < ends {
            self.phase = Phase::Idle { term, since };
            return (true, Some(ends));
        }
        self.failed = self.failed.saturating_add(1);
        let until = now + self.rest;
        self.phase = Phase::Resting(until);
        (false, Some(until))
    }
}
