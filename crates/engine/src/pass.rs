//! One pass over one Service: observe, plan, apply, report. The only place that orders writes.
//!
//! A pass ends when nothing is left to do, when the provider is busy, or at a failure; it never
//! waits. Whatever it leaves undone the next pass finds by observing anew, which is also what makes
//! a crash between any two steps harmless.

mod events;
mod persisted;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use landfall_model::intent::Intent;
use landfall_model::plan::{Plan, PlannedStep};
use landfall_model::provider::{
    Applied, Provider, ProviderError, ProviderStatus, ProviderStep as _, Retry, Scope,
};
use landfall_model::reason::{Code, Reason, Severity};
use landfall_model::rows::ServiceRow;
use landfall_model::status::ServiceStatus;

use crate::metrics::Metrics;
use crate::progress::Progress;
use crate::report::{Event, Report, ReportError};
pub use events::{Announced, EventState};
use events::{announce, was_reported};
pub use persisted::Persisted;
use writes::unknown_status;

/// How often one pass may observe anew after carrying out a plan. Two suffice for a provider whose
/// plans do what they say; the third is for one lost race.
const ROUNDS: usize = 3;

/// What one pass is about.
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
    /// What the last pass failed of, so that an event tells of each failure once.
    pub last_failure: Option<String>,
    /// What people were told of the change that is under way.
    pub telling: EventState,
    /// What was carried out since the Service was last settled.
    pub progress: Progress,
    /// Whether a removal may take the finalizer off: no other instance is asked after this one.
    pub last_of_row: bool,
    /// What is kept on the Service by the engine itself.
    pub persisted: Persisted,
}

/// How a pass ended.
#[derive(Clone, Debug)]
pub struct PassEnd {
    /// What to do next.
    pub outcome: Outcome,
    /// The status as it was last written (or found).
    pub status: ServiceStatus,
    /// Everything there is to say, worst first.
    pub reasons: Vec<Reason>,
    /// Steps that are planned and not done.
    pub pending: Vec<PlannedStep>,
    /// What this pass failed of; or the one before, if nothing shows yet whether that is healed.
    pub failure: Option<String>,
    /// What people were told of the change that is under way.
    pub telling: EventState,
    /// Whether it changed anything outside.
    pub changed: bool,
    /// What was carried out since the Service was last settled.
    pub progress: Progress,
    /// What became of the status.
    pub(crate) writing: Writing,
    /// Whether the finalizer is on the Service by now.
    finalized: bool,
    /// The statuses that were written, in this order.
    pub(crate) wrote: Vec<ServiceStatus>,
}

/// What became of the status in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// It was not written.
    Nothing,
    /// It was written.
    Done,
    /// It may have been written: the last attempt failed.
    Unsure,
}

/// What follows a pass.
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

/// The means of a pass.
#[derive(Debug)]
pub(crate) struct Pass<'a, P, R> {
    pub(crate) provider: &'a P,
    pub(crate) reporter: &'a R,
    pub(crate) metrics: &'a Metrics,
    pub(crate) now: fn() -> Timestamp,
}

/// What carrying out a plan came to.
struct Carried {
    failures: Vec<ProviderError>,
    busy: Option<Duration>,
    /// Index of the first step that was not tried.
    stopped_at: usize,
}

// === impl PassEnd ===

impl PassEnd {
    /// The end of a pass that found nothing to do.
    pub(crate) fn nothing(job: &Job) -> Self {
        Self {
            outcome: Outcome::Settled,
            status: job.status.clone(),
            reasons: job.errors.clone(),
            pending: Vec::new(),
            failure: None,
            telling: job.telling.clone(),
            changed: false,
            progress: job.progress.clone(),
            writing: Writing::Nothing,
            finalized: job.row.as_ref().is_some_and(|row| row.finalized),
            wrote: Vec::new(),
        }
    }

    /// The end of a pass that took too long: nothing is known of what it did.
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

// === impl Pass ===

impl<P: Provider, R: Report> Pass<'_, P, R> {
    /// Runs the job to its end.
    pub(crate) async fn run(&self, job: &Job) -> PassEnd {
        let mut end = PassEnd::nothing(job);
        if let Err(error) = self.converge(job, &mut end).await {
            let reason = match error {
                // No failure yet, and none to tell people of.
                ReportError::Conflict { .. } => {
                    end.outcome = Outcome::Outdated;
                    end.failure = None;
                    Reason::info(Code::Progressing, error.to_string())
                }
                ReportError::Failed { .. } => {
                    end.outcome = Outcome::Failed;
                    let reason = Reason::error(Code::ProviderFailed, error.to_string());
                    end.failure = Some(reason.to_string());
                    reason
                }
            };
            end.reasons.push(reason);
        }
        self.tell_of_failure(job, &end).await;
        end.telling.looked = true;
        // A failure is told once, however often the provider is busy with mending it in between.
        let goes_on = matches!(end.outcome, Outcome::Busy(_) | Outcome::Outdated);
        if goes_on && end.failure.is_none() {
            end.failure.clone_from(&job.last_failure);
        }
        end.reasons
            .sort_by_key(|reason| std::cmp::Reverse(reason.severity));
        let mut told = Vec::with_capacity(end.reasons.len());
        for reason in std::mem::take(&mut end.reasons) {
            if !told.contains(&reason) {
                told.push(reason);
            }
        }
        end.reasons = told;
        end
    }

    async fn converge(&self, job: &Job, end: &mut PassEnd) -> Result<(), ReportError> {
        let Some(intent) = &job.intent else {
            end.outcome = Outcome::Refused;
            end.failure = job.errors.first().map(ToString::to_string);
            // What is held stays held, and its address stays published.
            let standing = job.persisted.unserved_status(&job.status);
            return self.report(job, end, &standing, &[]).await;
        };
        end.reasons.extend(intent.remarks.iter().cloned());
        end.progress.begin(intent);
        let said = end.reasons.len();
        for round in 0..ROUNDS {
            // What was noticed before the last plan was carried out need not hold any more.
            end.reasons.truncate(said);
            let observed = match self.provider.observe(intent).await {
                Ok(observed) => observed,
                Err(error) => return self.report_failed(job, end, None, &[error]).await,
            };
            let standing = job.placed(self.provider.status(intent, &observed));
            let found = round == 0 && !job.telling.looked && was_reported(&job.status);
            self.tell_notices(job, end, &standing, found).await;
            let plan = match self.provider.plan(intent, &observed) {
                Ok(plan) => plan,
                Err(mut reasons) => {
                    for reason in &mut reasons {
                        job.place(reason);
                    }
                    end.outcome = Outcome::Refused;
                    end.failure = reasons.first().map(ToString::to_string);
                    end.reasons.extend(reasons.iter().cloned());
                    return self.report(job, end, &standing, &reasons).await;
                }
            };
            end.pending = plan.describe();
            if plan.is_empty() {
                end.progress = Progress::default();
                end.reasons
                    .extend(standing.remarks.iter().chain(&standing.waiting).cloned());
                return self.settle(job, end, intent, &standing).await;
            }
            if let Some(reason) = end.progress.objection(&end.pending) {
                end.outcome = Outcome::Stuck;
                end.failure = Some(reason.to_string());
                end.reasons.push(reason.clone());
                // Halfway through there may be no address, and what is published is meant to stay.
                let standing = unknown_status(&end.status);
                return self.report(job, end, &standing, &[reason]).await;
            }
            announce(end, intent, &plan);
            self.begin(job, end, intent, &standing, &plan).await?;
            let carried = self.carry_out(job, end, intent, &standing, &plan).await?;
            end.pending
                .drain(..carried.stopped_at.min(end.pending.len()));
            if let Some(after) = carried.busy {
                end.outcome = Outcome::Busy(after);
                end.reasons
                    .push(Reason::info(Code::Progressing, "changes are in progress"));
                self.report_busy(job, end, &standing).await?;
                return Ok(());
            }
            if carried
                .failures
                .iter()
                .any(|failure| failure.retry != Retry::Now)
            {
                return self
                    .report_failed(job, end, Some(intent), &carried.failures)
                    .await;
            }
        }
        end.outcome = Outcome::Busy(Duration::from_secs(1));
        Ok(())
    }

    /// Applies steps in order. A claim is reported before the next step is tried.
    async fn carry_out(
        &self,
        job: &Job,
        end: &mut PassEnd,
        intent: &Intent,
        observed: &ProviderStatus,
        plan: &Plan<P::Step>,
    ) -> Result<Carried, ReportError> {
        let mut carried = Carried {
            failures: Vec::new(),
            busy: None,
            stopped_at: plan.steps.len(),
        };
        for (index, planned) in plan.steps.iter().enumerate() {
            tracing::debug!(step = %planned.step, because = planned.because, "applying");
            match self.provider.apply(&planned.step).await {
                Ok(Applied::Skipped) => {}
                Ok(Applied::Later { after }) => {
                    carried.busy = Some(after);
                    carried.stopped_at = index;
                    return Ok(carried);
                }
                Ok(applied) => {
                    end.changed = true;
                    self.metrics.step(planned.step.kind());
                    tracing::info!(
                        service = job.row.as_ref().map(|row| row.key.to_string()),
                        step = %planned.step,
                        because = planned.because,
                        "applied"
                    );
                    // A claim that could not be recorded is repeated until it is: that is no plan
                    // without an end.
                    if let Applied::Addressed(published) = &applied {
                        self.report_claim(job, end, observed, published.clone())
                            .await?;
                        self.provider.on_recorded(&intent.uid);
                    }
                    if let Some(step) = end.pending.get(index) {
                        end.progress.count(intent, step);
                    }
                    match applied {
                        Applied::Done
                        | Applied::Addressed(_)
                        | Applied::Skipped
                        | Applied::Later { .. } => {}
                        Applied::Busy { after } => {
                            carried.busy = Some(after);
                            carried.stopped_at = index + 1;
                            return Ok(carried);
                        }
                    }
                }
                Err(failure) => {
                    self.metrics.failed_step(planned.step.kind());
                    let scope = failure.scope;
                    carried.failures.push(failure);
                    if scope == Scope::Pass {
                        carried.stopped_at = index;
                        return Ok(carried);
                    }
                }
            }
        }
        Ok(carried)
    }

    async fn settle(
        &self,
        job: &Job,
        end: &mut PassEnd,
        intent: &Intent,
        standing: &ProviderStatus,
    ) -> Result<(), ReportError> {
        if intent.load_balancer.is_some() {
            // A version that was not accepted stays an error however well the previous one serves.
            let unheeded = standing
                .remarks
                .iter()
                .filter(|remark| remark.severity == Severity::Error);
            let refusal = job.errors.iter().chain(unheeded).next();
            end.outcome = if refusal.is_none() {
                Outcome::Settled
            } else {
                Outcome::Refused
            };
            end.failure = refusal.map(ToString::to_string);
            self.report(job, end, standing, &[]).await?;
            if end.outcome == Outcome::Settled {
                self.tell_of_success(job, end, standing).await;
            }
            return Ok(());
        }
        end.outcome = Outcome::Removed;
        end.telling = EventState::default();
        let Some(row) = job.row.as_ref().filter(|_| job.last_of_row) else {
            return Ok(());
        };
        // One write for both: whatever a crash leaves, the status tells whose the finalizer is.
        // Also where the row has none: it may be older than the write that put it on with the
        // status.
        if row.finalized || end.status != ServiceStatus::default() {
            let served = row.finalized || !end.status.ingress.is_empty();
            end.writing = Writing::Unsure;
            self.reporter.remove_finalizer(row).await?;
            end.writing = Writing::Done;
            end.wrote.push(ServiceStatus::default());
            if served {
                let event = Event::normal("DeletedLoadBalancer", "Deleted load balancer");
                self.tell(job, event).await;
            }
        }
        end.status = ServiceStatus::default();
        Ok(())
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
