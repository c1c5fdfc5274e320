//! How often the members of a pool may change. Each change has an amphora load its configuration
//! again, and keep a process for the connections that it has: pods that come one after the other
//! come in few changes.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::objects::Id;
use crate::step::Step;

/// From one change of a pool's pods to the next, at least.
const PACE: Duration = Duration::from_secs(2);

/// When the members of pools were changed last.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    changed: HashMap<Id, Instant>,
}

// === impl Pace ===

impl Pace {
    /// Returns how long a step has to wait; `None`: it need not.
    pub(crate) fn wait(&self, step: &Step, now: Instant) -> Option<Duration> {
        let pool = paced(step)?;
        let next = *self.changed.get(pool)? + PACE;
        let wait = next.saturating_duration_since(now);
        (!wait.is_zero()).then_some(wait)
    }

    /// Notes that a step was carried out.
    pub(crate) fn note(&mut self, step: &Step, now: Instant) {
        if let Some(pool) = paced(step) {
            self.changed.retain(|_, at| now < *at + PACE);
            self.changed.insert(pool.clone(), now);
        }
    }
}

/// The pool whose members a step changes not too often.
fn paced(step: &Step) -> Option<&Id> {
    match step {
        Step::SetMembers {
            pool, paced: true, ..
        } => Some(pool),
        _ => None,
    }
}
