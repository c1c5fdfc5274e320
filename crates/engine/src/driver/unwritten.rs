//! Services that wait for a time in which anything can be written: a disk that was full, an API
//! server that did not answer. A long outage makes the pauses between attempts long; its end is
//! seen by one Service, and the others are told.

use std::time::{Duration, Instant};

use landfall_model::ServiceKey;
use landfall_model::provider::Provider;

use super::Engine;
use crate::reconcile::ReconcileEnd;
use crate::report::Report;

/// The longest pause of the Service that finds the end of an outage for all others.
const ATTEMPT: Duration = Duration::from_secs(5);

impl<P: Provider, R: Report> Engine<P, R> {
    /// Notes whether a reconcile could write. After the first that can, those that could not are
    /// due, each with its rest after a failure.
    pub(super) fn take_availability(&mut self, key: &ServiceKey, end: &ReconcileEnd, now: Instant) {
        self.unwritten.remove(key);
        if end.unavailable && self.tracked.contains_key(key) {
            self.unwritten.insert(key.clone());
            if self.unwritten.first() == Some(key) {
                self.queue.push_after(key, ATTEMPT, now);
            }
            return;
        }
        if end.wrote.is_empty() {
            return;
        }
        for key in std::mem::take(&mut self.unwritten) {
            match self.rest(&key, now) {
                Some(rest) => self.queue.push_after(&key, rest, now),
                None => self.queue.push(&key),
            }
        }
    }
}
