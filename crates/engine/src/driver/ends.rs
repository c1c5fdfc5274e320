//! Ends of reconciles: what is remembered of one, what follows, and which Services may be served
//! now.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_model::ServiceKey;
use landfall_model::provider::Provider;
use landfall_model::rows::ServiceRow;
use tokio::task;

use super::history::Holds;
use super::{Engine, clock, waiting};
use crate::backoff::Backoff;
use crate::held::addresses as on_record;
use crate::instance::{InstanceId, Owners};
use crate::reconcile::{Job, Outcome, ReconcileEnd, Writing};
use crate::report::Report;

/// A reconcile that goes on.
#[derive(Debug)]
pub(super) struct Running {
    key: ServiceKey,
    /// The instances that it asks.
    owners: Owners,
    /// How often those that wait for the first of them had been called when the reconcile began.
    calls: u64,
    /// The Service as it was when the reconcile began.
    row: Option<Arc<ServiceRow>>,
    addresses: Vec<IpAddr>,
    holds: Option<Holds>,
}

/// Delay after a reconcile whose basis has changed meanwhile: the fact arrives soon.
const CONFLICTS: Backoff = Backoff {
    first: Duration::from_millis(50),
    longest: Duration::from_secs(30),
};

/// A Service that failed is not tried again sooner because others changed.
const BREATHER: Duration = Duration::from_secs(5);

/// So many ends of reconciles are taken in within one turn of the loop, beside the first.
const ENDS: usize = 63;

/// Those that have waited longest go before all that is ready; the others queue up.
const BEFORE_ALL: usize = 16;

// === impl Running ===

impl Running {
    pub(super) fn new(key: ServiceKey, owners: Owners, calls: u64, job: &Job) -> Self {
        Self {
            key,
            owners,
            calls,
            row: job.row.clone(),
            addresses: on_record(&job.status),
            holds: job.intent.as_ref().and_then(Holds::of),
        }
    }
}

// === impl Engine ===

impl<P: Provider, R: Report> Engine<P, R> {
    pub(super) fn take_end(
        &mut self,
        end: Result<(task::Id, (Duration, ReconcileEnd)), task::JoinError>,
    ) {
        let id = end.as_ref().map_or_else(task::JoinError::id, |(id, _)| *id);
        let Some(mut ran) = self.running.remove(&id) else {
            return;
        };
        let key = ran.key.clone();
        let received = self.received.remove(&key);
        let (took, mut end) = match end {
            Ok((_, end)) => end,
            Err(error) if error.is_cancelled() => {
                self.note_broken_off(&key);
                return self.queue.finish(&key);
            }
            Err(error) => {
                tracing::error!(service = %key, %error, "a reconcile panicked; this is a bug");
                self.queue.finish(&key);
                self.note_broken_off(&key);
                self.fail(&key);
                return;
            }
        };
        let now = clock();
        self.handle.metrics.reconcile(took, end.outcome.as_str());
        if let Outcome::Paused(pause) = end.outcome {
            self.queue.hold(&key, pause, now);
        }
        self.queue.finish(&key);
        let served = ran.holds.is_some();
        let gives_back = self.gives_back(&mut ran, &mut end);
        self.line_up(&ran, &end);
        self.take_availability(&key, &end, (took, now));
        let Some(tracked) = self.tracked.get_mut(&key) else {
            return;
        };
        tracked.take_end(&mut end, served, now);
        // One that passes to another instance goes on.
        let removing = end.removing && !tracked.replacing;
        if end.outcome == Outcome::Removed {
            if self.take_removal(&key, ran.row.is_none()) {
                self.wake_waiting_for(ran.owners.iter());
                return;
            }
        } else {
            self.follow_outcome(&key, end.outcome, now);
        }
        self.take_writing(&key, &mut end, ran.row.as_deref(), now);
        let removed = end.outcome == Outcome::Removed;
        self.handle.store.write(|pages| {
            if removed {
                pages.records.remove(&key);
                return;
            }
            let reasons = pages.share(end.reasons);
            if let Some(record) = pages.records.get_mut(&key) {
                record.set_status(end.status);
                record.reasons = reasons;
                record.pending = end.pending;
                record.removing = removing;
                record.handled = true;
            }
        });
        if received {
            self.take_received(&key);
        }
        if gives_back {
            self.wake_waiting_for(ran.owners.iter());
        }
    }

    /// Notes that nothing is known of what a reconcile did: it may have given an address up.
    fn note_broken_off(&mut self, key: &ServiceKey) {
        if let Some(tracked) = self.tracked.get_mut(key) {
            tracked.gave_up = true;
        }
    }

    /// Takes in further reconciles that have ended, a bounded number: a turn of the loop costs
    /// more.
    pub(super) fn take_ends(&mut self) {
        for _ in 0..ENDS {
            let Some(end) = self.reconciles.try_join_next_with_id() else {
                return;
            };
            self.take_end(end);
        }
    }

    /// Decides when the next reconcile is due.
    fn follow_outcome(&mut self, key: &ServiceKey, outcome: Outcome, now: Instant) {
        let Some(tracked) = self.tracked.get_mut(key) else {
            return;
        };
        let history = &mut tracked.history;
        match outcome {
            Outcome::Settled => {
                self.retries.reset(key);
                // What its status says by now is its own again.
                self.forfeited.remove(&tracked.uid);
                // What the status says by now is of this instance only.
                let owner = tracked.owners.as_ref().map(|owners| owners.first);
                for (instance, provider) in InstanceId::enumerate(&self.handle.providers) {
                    if owner != Some(instance) {
                        provider.on_forgotten(&tracked.uid);
                    }
                }
            }
            Outcome::Refused => self.retries.reset(key),
            Outcome::Busy(after) => self.queue.push_after(key, after, now),
            Outcome::Outdated => {
                history.conflicts += 1;
                let pause = CONFLICTS.delay(key, history.conflicts);
                self.queue.push_after(key, pause, now);
            }
            Outcome::Stuck => {
                let pause = history.progress.get_or_insert_default().stop(now);
                self.queue.push_after(key, pause, now);
            }
            Outcome::Failed => self.fail(key),
            Outcome::Paused(_) | Outcome::Removed => {}
        }
    }

    /// Takes in that nothing is left of a Service with the instances that were asked. `unwritten`:
    /// the reconcile wrote nothing to the Service. Returns whether the Service is not tracked any
    /// more.
    fn take_removal(&mut self, key: &ServiceKey, unwritten: bool) -> bool {
        self.retries.reset(key);
        let Some(tracked) = self.tracked.get_mut(key) else {
            return false;
        };
        let left = tracked.owners.take().map(|owners| owners.first);
        // What comes back after this begins from nothing, as it would for another process.
        tracked.accepted = None;
        tracked.set_published(Vec::new());
        let replacing = std::mem::take(&mut tracked.replacing);
        let row = self.world.service(key);
        let same = row.is_some_and(|row| row.uid == tracked.uid);
        // A Service that passes to another instance is on record with the earlier one's addresses
        // until that instance has settled it. Nor was the record of one written of which another
        // controller has charge now.
        if !(same && (replacing || unwritten)) {
            for provider in self.handle.providers.iter() {
                provider.on_forgotten(&tracked.uid);
            }
        }
        if !replacing && same {
            return false;
        }
        let left = left.filter(|_| replacing && same);
        if let Some(provider) = left.and_then(|it| it.of(&self.handle.providers)) {
            let marks = provider.profile().marks;
            self.cleared.insert(tracked.uid.clone(), marks);
        }
        self.drop_tracked(key);
        self.queue.push(key);
        if self.world.service(key).is_none() {
            self.forget(key);
        }
        true
    }

    /// Remembers what the reconcile wrote over what `row` says.
    fn take_writing(
        &mut self,
        key: &ServiceKey,
        end: &mut ReconcileEnd,
        row: Option<&ServiceRow>,
        now: Instant,
    ) {
        let Some(tracked) = self.tracked.get_mut(key) else {
            return;
        };
        match (end.writing, row) {
            (Writing::Nothing, _) => {}
            (Writing::Done, Some(row)) => {
                tracked.history.status_conflicts.say(&end.status);
                tracked.remember_written(&row.status, std::mem::take(&mut end.wrote));
            }
            // The source reports it.
            (Writing::Done, None) | (Writing::Unsure, _) => tracked.written = None,
        }
        if let Some(wait) = tracked.history.status_conflicts.wait(now) {
            self.queue.push_after(key, wait, now);
        }
    }

    /// Tries a Service again after a pause that grows.
    fn fail(&mut self, key: &ServiceKey) {
        if self.tracked.contains_key(key) {
            let delay = self.retries.fail(key);
            self.queue.push_after(key, delay, clock());
        }
    }

    /// Whether a reconcile has given something back that another Service may wait for.
    fn gives_back(&mut self, ran: &mut Running, end: &mut ReconcileEnd) -> bool {
        if end.outcome == Outcome::Removed {
            return true;
        }
        let kept = on_record(&end.status);
        let mut gives_back = ran.addresses.iter().any(|it| !kept.contains(it));
        if let Some(tracked) = self.tracked.get_mut(&ran.key) {
            // An address is free once no record names it, which may take more reconciles than one.
            tracked.gave_up |= gives_back || end.broken_off;
            tracked.note_unrecorded(&end.unrecorded);
        }
        // Also one that is refused may have given something up, unless no version of it resolves:
        // then nothing was done, and it may hold all of it still.
        let ended = match end.outcome {
            Outcome::Settled => true,
            Outcome::Refused => ran.holds.is_some(),
            _ => false,
        };
        if ended && let Some(tracked) = self.tracked.get_mut(&ran.key) {
            gives_back |= std::mem::take(&mut tracked.gave_up);
            let unrecorded = std::mem::take(&mut tracked.unrecorded);
            gives_back |= unrecorded.iter().any(|it| !kept.contains(it));
        }
        if end.outcome == Outcome::Settled
            && let Some(tracked) = self.tracked.get_mut(&ran.key)
        {
            let holds = ran.holds.take();
            let before = std::mem::replace(&mut tracked.history.holds, holds);
            let now = tracked.history.holds.as_ref();
            gives_back |= before.is_some_and(|before| before.gives_back(now));
        }
        gives_back
    }

    /// Puts a Service that was refused what another one holds in line, and takes out one that was
    /// not.
    fn line_up(&mut self, ran: &Running, end: &ReconcileEnd) {
        let instance = ran.owners.first;
        match end.outcome {
            Outcome::Refused | Outcome::Failed if waiting::waits(&end.reasons) => {
                self.waiting.join(&ran.key, instance);
                if self.waiting.calls(instance) != ran.calls {
                    // What was given back while the reconcile ran may have come too late for it.
                    let rest = self.rest(&ran.key, clock()).unwrap_or_default();
                    self.queue.push_after(&ran.key, rest, clock());
                }
            }
            // How it goes on is not known yet.
            Outcome::Busy(_) | Outcome::Paused(_) | Outcome::Outdated | Outcome::Stuck => {}
            _ => self.waiting.leave(&ran.key),
        }
    }

    /// For how long a Service that failed is to rest although something around it changed.
    pub(super) fn rest(&self, key: &ServiceKey, now: Instant) -> Option<Duration> {
        let tracked = self
            .tracked
            .get(key)
            .filter(|_| self.retries.is_failing(key))?;
        let (_, ended) = tracked.history.last?;
        (ended + BREATHER).checked_duration_since(now)
    }

    /// Something may have been released: what waits for it may have it now, at any instance.
    pub(super) fn wake_waiting(&mut self) {
        let all = InstanceId::all(&self.handle.providers);
        self.wake_waiting_for(all);
    }

    fn wake_waiting_for(&mut self, instances: impl Iterator<Item = InstanceId>) {
        let now = clock();
        for instance in instances {
            let mut first = Vec::new();
            for (position, key) in self.waiting.call(instance).into_iter().enumerate() {
                match self.rest(&key, now) {
                    Some(rest) => self.queue.push_after(&key, rest, now),
                    None if position < BEFORE_ALL => first.push(key),
                    None => self.queue.push(&key),
                }
            }
            for key in first.iter().rev() {
                self.queue.push_first(key);
            }
        }
    }
}
