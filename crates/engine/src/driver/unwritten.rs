//! Services that wait for a time in which anything can be written: a disk that was full, an API
//! server that did not answer. A long outage makes the pauses between attempts long; its end is
//! seen by one Service, and the others follow.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use landfall_model::ServiceKey;
use landfall_model::provider::Provider;

use super::Engine;
use crate::reconcile::ReconcileEnd;
use crate::report::Report;

/// Services whose last write failed because nothing could be written.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    pub(super) services: BTreeSet<ServiceKey>,
    /// When a write last succeeded.
    last_success: Option<Instant>,
}

/// The longest pause of the Service that finds the end of an outage for all others.
const ATTEMPT: Duration = Duration::from_secs(5);

/// So many are due after each write that succeeds: all are, soon, and if the next writes fail,
/// these are few.
const NEXT: usize = 2;

impl<P: Provider, R: Report> Engine<P, R> {
    /// Notes whether a reconcile that took so long and ended now could write. After each that can,
    /// some that could not are due, with their rest after a failure.
    pub(super) fn take_availability(
        &mut self,
        key: &ServiceKey,
        end: &ReconcileEnd,
        (took, now): (Duration, Instant),
    ) {
        let unwritten = &mut self.unwritten;
        unwritten.services.remove(key);
        if end.unavailable {
            // Where others could write meanwhile, or just before, it is this one that can't.
            let others = unwritten
                .last_success
                .and_then(|last| now.checked_duration_since(last));
            let is_outage = others.is_none_or(|ago| ago > took.max(ATTEMPT));
            if is_outage && self.tracked.contains_key(key) {
                unwritten.services.insert(key.clone());
            }
        } else if !end.wrote.is_empty() {
            unwritten.last_success = Some(now);
            self.wake_unwritten(now);
        }
        self.look_for_end(now);
    }

    fn wake_unwritten(&mut self, now: Instant) {
        let idle = |key: &&ServiceKey| !self.queue.is_running(key);
        let waiting = self.unwritten.services.iter().filter(idle);
        let next: Vec<ServiceKey> = waiting.take(NEXT).cloned().collect();
        for key in next {
            self.unwritten.services.remove(&key);
            match self.rest(&key, now) {
                Some(rest) => self.queue.push_after(&key, rest, now),
                None => self.queue.push(&key),
            }
        }
    }

    /// Lets the first of them try soon whether anything can be written.
    pub(super) fn look_for_end(&mut self, now: Instant) {
        if let Some(first) = self.unwritten.services.first() {
            self.queue.push_after(first, ATTEMPT, now);
        }
    }
}
