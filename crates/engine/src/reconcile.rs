//! One reconcile of one Service: observe, plan, apply, report. The only place that orders writes: a
//! state machine (`machine`) says what is next, and `Reconcile::run` does it.
//!
//! A reconcile ends when nothing is left to do, when the provider is busy, or at a failure; it
//! never waits. Whatever it leaves undone the next reconcile finds by observing again, which is
//! also what makes a crash between any two steps harmless.

mod machine;
mod persisted;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use landfall_model::intent::Intent;
use landfall_model::plan::{Planned, PlannedStep};
use landfall_model::provider::{
    Applied, Provider, ProviderError, ProviderStatus, ProviderStep as _, Retry,
};
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::ServiceRow;
use landfall_model::status::ServiceStatus;

use crate::metrics::Metrics;
use crate::progress::Progress;
use crate::report::Report;
use machine::{Action, Input, Machine};
pub use machine::{Announced, EventState};
pub use persisted::Persisted;

/// What one reconcile is about.
#[derive(Clone, Debug)]
pub struct Job {
    /// What is wanted; `None`: the spec is invalid and nothing was accepted before.
    pub intent: Option<Intent>,
    /// The Service, unless it is gone altogether.
    pub row: Option<Arc<ServiceRow>>,
    /// Why the newest version is not valid; then `intent` is the last valid one.
    pub errors: Vec<Reason>,
    /// What the status says as far as we know.
    pub status: ServiceStatus,
    /// What the last reconcile failed with, so that each failure has one event.
    pub last_failure: Option<String>,
    /// What events have reported of the change that is in progress.
    pub reporting: EventState,
    /// What was carried out since the Service was last settled.
    pub progress: Progress,
    /// Whether a removal may take the finalizer off: no other instance is asked after this one.
    pub releases_finalizer: bool,
    /// What is kept on the Service by the engine itself.
    pub persisted: Persisted,
    /// Whether a write before this reconcile may have happened or not: the status is written, also
    /// where it says nothing new.
    pub unsure: bool,
}

/// How a reconcile ended.
#[derive(Clone, Debug)]
pub struct ReconcileEnd {
    /// What to do next.
    pub outcome: Outcome,
    /// The status as it was last written (or found).
    pub status: ServiceStatus,
    /// Everything there is to say, worst first.
    pub reasons: Vec<Reason>,
    /// Steps that are planned and not done.
    pub pending: Vec<PlannedStep>,
    /// What this reconcile failed of; or the one before, if nothing shows yet whether that is
    /// healed.
    pub failure: Option<String>,
    /// What events have reported of the change that is in progress.
    pub reporting: EventState,
    /// Whether it changed anything outside.
    pub changed: bool,
    /// Whether nothing is to be left of the Service with this instance.
    pub(crate) removing: bool,
    /// What was carried out since the Service was last settled.
    pub progress: Progress,
    /// Whether the last plan was refused; `None`: nothing was planned.
    plan_refused: Option<bool>,
    /// What became of the status.
    pub(crate) writing: Writing,
    /// The addresses that a status names which could not be written: the provider may hold them,
    /// and no record names them.
    pub(crate) unrecorded: Vec<IpAddr>,
    /// Whether it ended because nothing could be written.
    pub(crate) unavailable: bool,
    /// Whether it took too long, and nothing is known of what it did.
    pub(crate) broken_off: bool,
    /// Whether the finalizer is on the Service by now.
    finalized: bool,
    /// The statuses that were written, in this order.
    pub(crate) wrote: Vec<ServiceStatus>,
}

/// What became of the status in a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// It was not written.
    Nothing,
    /// It was written.
    Done,
    /// It may have been written: the last attempt failed.
    Unsure,
}

/// What follows a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything is as wanted.
    Settled,
    /// Nothing is left of it, here and outside.
    Removed,
    /// The spec can't be had until a fact changes.
    Refused,
    /// Something failed; to be tried again with growing pauses.
    Failed,
    /// To be taken up again after this long.
    Busy(Duration),
    /// The provider asks to be left alone for this long, whatever happens.
    Paused(Duration),
    /// What it rested on changed meanwhile; to be tried again after a short pause.
    Outdated,
    /// The same writes would be repeated without end.
    Stuck,
}

/// The means of a reconcile.
#[derive(Debug)]
pub(crate) struct Reconcile<'a, P, R> {
    pub(crate) provider: &'a P,
    pub(crate) reporter: &'a R,
    pub(crate) metrics: &'a Metrics,
    pub(crate) now: fn() -> Timestamp,
}

// === impl ReconcileEnd ===

impl ReconcileEnd {
    /// The end of a reconcile that found nothing to do.
    pub(crate) fn nothing(job: &Job) -> Self {
        Self {
            outcome: Outcome::Settled,
            status: job.status.clone(),
            reasons: job.errors.clone(),
            pending: Vec::new(),
            failure: None,
            reporting: job.reporting.clone(),
            changed: false,
            removing: (job.intent.as_ref()).is_some_and(|intent| intent.load_balancer.is_none()),
            progress: job.progress.clone(),
            plan_refused: None,
            writing: Writing::Nothing,
            unrecorded: Vec::new(),
            unavailable: false,
            broken_off: false,
            finalized: job.row.as_ref().is_some_and(|row| row.finalized),
            wrote: Vec::new(),
        }
    }

    /// The end of a reconcile that took too long: nothing is known of what it did.
    pub(crate) fn broken_off(job: &Job, limit: Duration) -> Self {
        let minutes = limit.as_secs() / 60;
        let reason = Reason::error(
            Code::ProviderFailed,
            format!("timed out after {minutes} minutes"),
        );
        tracing::error!(
            service = job.row.as_ref().map(|row| row.key.to_string()),
            %reason,
            "sync failed"
        );
        Self {
            outcome: Outcome::Failed,
            failure: Some(reason.to_string()),
            reasons: std::iter::once(reason).chain(job.errors.clone()).collect(),
            writing: Writing::Unsure,
            broken_off: true,
            ..Self::nothing(job)
        }
    }
}

// === impl Job ===

impl Job {
    /// A provider knows fields and no files: a reason that names a field gets the field's place.
    fn place(&self, reason: &mut Reason) {
        if let (None, Some(field), Some(row)) = (&reason.origin, &reason.field, &self.row) {
            reason.origin = row.origin_of(field);
        }
    }

    fn placed(&self, mut standing: ProviderStatus) -> ProviderStatus {
        let ProviderStatus {
            remarks,
            waiting,
            notices,
            ..
        } = &mut standing;
        let notices = notices.iter_mut().map(|(_, reason)| reason);
        for reason in remarks.iter_mut().chain(waiting).chain(notices) {
            self.place(reason);
        }
        standing
    }
}

// === impl Outcome ===

impl Outcome {
    /// One word for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Removed => "removed",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Busy(_) => "busy",
            Self::Paused(_) => "paused",
            Self::Outdated => "outdated",
            Self::Stuck => "stuck",
        }
    }
}

// === impl Reconcile ===

impl<P: Provider, R: Report> Reconcile<'_, P, R> {
    /// Runs the job to its end: carries out the actions that the machine asks for.
    pub(crate) async fn run(&self, job: &Job) -> ReconcileEnd {
        let mut machine = Machine::new(job, self.provider);
        let mut input = Input::Start;
        loop {
            let (events, action) = machine.next(input, (self.now)());
            for event in &events {
                if let Some(row) = &job.row {
                    self.reporter.event(row, event).await;
                }
            }
            input = match action {
                Action::Observe(intent) => Input::Observed(self.provider.observe(intent).await),
                Action::Apply(planned) => {
                    let applied = self.provider.apply(&planned.step).await;
                    self.count(job, planned, &applied);
                    Input::Applied(applied)
                }
                Action::Wait(waits) => {
                    let pauses = waits.iter().map(|wait| self.provider.on_waiting(wait));
                    Input::Waiting(pauses.min().unwrap_or_default())
                }
                Action::Write(row, status, true) => {
                    Input::Written(self.reporter.add_finalizer(row, Some(status)).await)
                }
                Action::Write(row, status, false) => {
                    Input::Written(self.reporter.write_status(row, status).await)
                }
                Action::Release(row) => Input::Written(self.reporter.remove_finalizer(row).await),
                Action::Recorded(service) => {
                    self.provider.on_recorded(service);
                    Input::Recorded
                }
                Action::Finish => break,
            };
        }
        if let (Some(intent), Some(refused)) = (&job.intent, machine.end.plan_refused) {
            self.provider.on_planned(&intent.uid, refused);
        }
        machine.end
    }

    /// Counts and logs a step, unless it was not due yet.
    fn count(
        &self,
        job: &Job,
        planned: &Planned<P::Step>,
        applied: &Result<Applied, ProviderError>,
    ) {
        match applied {
            Ok(Applied::Later { .. }) => {}
            Ok(Applied::Done | Applied::Addressed(_) | Applied::Busy { .. }) => {
                self.metrics.step(planned.step.kind());
                tracing::info!(
                    service = job.row.as_ref().map(|row| row.key.to_string()),
                    step = %planned.step,
                    because = planned.because,
                    "applied"
                );
            }
            Err(_) => self.metrics.failed_step(planned.step.kind()),
        }
    }
}

/// The longest pause that any failure asks for decides; then one that a new look heals, and one
/// that time can heal outweighs those that it can't.
fn outcome_of(failures: &[ProviderError]) -> Outcome {
    let pauses = failures.iter().filter_map(|failure| match failure.retry {
        Retry::After(pause) => Some(pause),
        Retry::Now | Retry::Backoff | Retry::OnChange => None,
    });
    let asks = |retry| failures.iter().any(|failure| failure.retry == retry);
    match pauses.max() {
        Some(pause) => Outcome::Paused(pause),
        None if asks(Retry::Now) => Outcome::Outdated,
        None if asks(Retry::Backoff) => Outcome::Failed,
        None => Outcome::Refused,
    }
}

#[cfg(test)]
mod tests;
