//! Decides when a replica that leads and does not work lets another one lead: pure.
//!
//! A replica can hold the Lease and reconcile nothing: its lists fail, or its engine does not
//! start. Each attempt has a bound; after one that failed, the replica rests while others try.

use std::time::{Duration, Instant};

use super::Times;

/// When a replica that leads and does not come to work releases the Lease to another one.
#[derive(Clone, Copy, Debug)]
pub struct Candidacy {
    /// How long the Lease is left to others after a term without work.
    rest: Duration,
    phase: Phase,
    /// How many terms in a row were without work.
    failed: u32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// It works, or has not come to lead.
    Able,
    /// It came to lead then, and has not begun to work in this term.
    Idle { term: u64, since: Instant },
    /// The Lease is left to others until then.
    Resting(Instant),
}

/// How long a first term without work lasts: longer than what can't be listed is waited for.
const FIRST_TERM: Duration = Duration::from_secs(60);

/// How long any does. They grow, so that a large cluster behind a slow API server is known at last.
const LONGEST_TERM: Duration = Duration::from_secs(900);

/// How long the Lease is left to others after it at least: they read it several times.
const REST: Duration = Duration::from_secs(15);

// === impl Candidacy ===

impl Candidacy {
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
        // replica leads meanwhile: the clock of the term runs on.
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
        let longest = FIRST_TERM.saturating_mul(1 << self.failed.min(10));
        let ends = since + longest.min(LONGEST_TERM);
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
