//! One pass over one Service: observe, plan, apply, report. The only place that orders writes.
//!
//! A pass ends when nothing is left to do, when the provider is busy, or at a failure; it never
//! waits. Whatever it leaves undone the next pass finds by observing anew, which is also what makes
//! a crash between any two steps harmless.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use landfall_model::intent::Intent;
use landfall_model::plan::{Plan, PlannedStep};
use landfall_model::provider::{
    Applied, Provider, ProviderError, ProviderStatus, Published, Retry, Scope,
};
use landfall_model::reason::{Code, Reason, Severity};
use landfall_model::rows::ServiceRow;
use landfall_model::status::{
    ACCEPTED_VERSION, ConditionType, ENGINE_MARKS, HELD_ADDRESSES, INSTANCE, IngressAddress,
    ServiceStatus,
};

use crate::claims;
use crate::metrics::Metrics;
use crate::progress::Progress;
use crate::report::{Event, Report, ReportError};
use crate::status::{Facts, addresses, compose};

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

/// What is kept on a Service for the process that comes next, whichever provider serves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Persisted {
    /// The instance that serves it, where its class does not tell.
    pub instance: Option<String>,
    /// Whether that was on record before: an annotation that is gone comes back.
    pub named: bool,
    /// The version that was accepted last, as text.
    pub accepted: Option<String>,
    /// Annotations of an instance that served it before and has cleared everything away.
    pub obsolete: &'static [&'static str],
    /// What was published when it was last known what the Service holds.
    pub published: Vec<IngressAddress>,
    /// Addresses in the status that another Service holds.
    pub forfeited: Vec<IpAddr>,
}

/// What people were told, so that an event comes once per change however many passes it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventState {
    /// What was announced and has not been told to be done yet.
    pub announced: Option<Announced>,
    /// Notices that were told and still hold.
    pub notices: Vec<String>,
    /// Whether a pass of this process has looked at the Service. Until then what is found is what
    /// an earlier process told of, unless the status says otherwise.
    pub looked: bool,
}

/// What is going on, as it was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// Nothing was: members follow the nodes.
    Members,
    /// The load balancer is being made or changed.
    Change,
    /// The load balancer is being deleted.
    Removal,
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

// === impl Persisted ===

impl Persisted {
    /// Names the instance in a status that is written anyway: that is worth no write of its own.
    fn name_instance(&self, status: &mut ServiceStatus) {
        match &self.instance {
            Some(instance) => drop(status.marks.insert(INSTANCE.to_owned(), instance.clone())),
            None => drop(status.marks.remove(INSTANCE)),
        }
    }

    /// Returns what stands of a Service of which no version can be served. What is held was read
    /// from what was published, and that goes back there if another program takes it out.
    fn unserved_standing(&self, status: &ServiceStatus) -> ProviderStatus {
        let mut standing = unknown_standing(status);
        if standing.ingress.is_empty() {
            standing.ingress.clone_from(&self.published);
        }
        if self.forfeited.is_empty() {
            return standing;
        }
        let keeps = |address: &IpAddr| !self.forfeited.contains(address);
        standing
            .ingress
            .retain(|entry| entry.ip.is_none_or(|address| keeps(&address)));
        // A name is published in place of the addresses that are noted beside it.
        let noted = standing.marks.remove(HELD_ADDRESSES).unwrap_or_default();
        let kept = claims::noted(&noted).filter(keeps);
        let kept: Vec<String> = kept.map(|address| address.to_string()).collect();
        if kept.is_empty() {
            standing.ingress.retain(|entry| entry.ip.is_some());
        } else {
            let mark = (HELD_ADDRESSES.to_owned(), kept.join(","));
            standing.marks.extend([mark]);
        }
        standing
    }

    /// The annotations that shall be on the Service: what the provider says now, what it does not
    /// know as it was, and our own; the instance as it was, unless it was taken away.
    fn marks(
        &self,
        provider: &[&str],
        before: &ServiceStatus,
        standing: &ProviderStatus,
    ) -> BTreeMap<String, String> {
        let engine = |key: &str| ENGINE_MARKS.contains(&key);
        let mut marks = before.marks.clone();
        marks.retain(|key, _| {
            let key = key.as_str();
            !provider.contains(&key) && !engine(key) && !self.obsolete.contains(&key)
        });
        let told = standing.marks.iter().filter(|(key, _)| !engine(key));
        marks.extend(told.map(|(key, value)| (key.clone(), value.clone())));
        let instance = before.marks.get(INSTANCE).cloned();
        let taken_away = || self.instance.clone().filter(|_| self.named);
        let instance = instance.or_else(taken_away);
        let own = [
            (INSTANCE, instance),
            (ACCEPTED_VERSION, self.accepted.clone()),
        ];
        marks.extend(
            own.into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?))),
        );
        marks
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
            let standing = job.persisted.unserved_standing(&job.status);
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
                let standing = unknown_standing(&end.status);
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
                    self.metrics.step(first_word(&planned.step.to_string()));
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
                    self.metrics
                        .failed_step(first_word(&planned.step.to_string()));
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

    /// Puts the finalizer on before anything is made outside, with a status that tells that it is
    /// ours. A plan that begins with a claim makes nothing before the claim is on record, and the
    /// finalizer goes there in the same write.
    async fn begin(
        &self,
        job: &Job,
        end: &mut PassEnd,
        intent: &Intent,
        standing: &ProviderStatus,
        plan: &Plan<P::Step>,
    ) -> Result<(), ReportError> {
        let claims = plan.steps.first().is_some_and(|planned| planned.claims);
        let Some(row) = &job.row else {
            return Ok(());
        };
        if intent.load_balancer.is_none() || end.finalized || claims {
            return Ok(());
        }
        let mut status = if end.status.conditions.is_empty() {
            let standing = ProviderStatus {
                ingress: end.status.ingress.clone(),
                marks: end.status.marks.clone(),
                ..standing.clone()
            };
            self.compose(job, end, &standing, &progress(&end.status, &standing))
        } else {
            end.status.clone()
        };
        job.persisted.name_instance(&mut status);
        self.write(row, end, status, true).await
    }

    /// Puts an address on record before anything is served there.
    async fn report_claim(
        &self,
        job: &Job,
        end: &mut PassEnd,
        observed: &ProviderStatus,
        published: Published,
    ) -> Result<(), ReportError> {
        let standing = ProviderStatus {
            marks: published.marks(&end.status.marks),
            ingress: published.ingress,
            ..observed.clone()
        };
        let progress = progress(&end.status, &standing);
        self.report(job, end, &standing, &progress).await
    }

    /// Says that the provider is at it. What is published goes on to be true, and marks are written
    /// with the status of the end.
    async fn report_busy(
        &self,
        job: &Job,
        end: &mut PassEnd,
        standing: &ProviderStatus,
    ) -> Result<(), ReportError> {
        let removal = Some(Announced::Removal);
        if end.telling.announced == removal && job.telling.announced != removal {
            let event = Event::normal("DeletingLoadBalancer", "Deleting load balancer");
            self.tell(job, event).await;
        }
        if !end.status.ingress.is_empty() {
            return Ok(());
        }
        let standing = ProviderStatus {
            marks: end.status.marks.clone(),
            ..standing.clone()
        };
        self.report(job, end, &standing, &[]).await
    }

    /// Reports failures together with what stands nevertheless.
    async fn report_failed(
        &self,
        job: &Job,
        end: &mut PassEnd,
        intent: Option<&Intent>,
        failures: &[ProviderError],
    ) -> Result<(), ReportError> {
        let reasons: Vec<Reason> = failures
            .iter()
            .map(|failure| failure.reason.clone())
            .collect();
        end.outcome = outcome_of(failures);
        end.failure = reasons.first().map(ToString::to_string);
        end.reasons.extend(reasons.iter().cloned());
        let standing = match intent {
            Some(intent) => match self.provider.observe(intent).await {
                Ok(observed) => job.placed(self.provider.status(intent, &observed)),
                Err(_) => unknown_standing(&end.status),
            },
            None => unknown_standing(&end.status),
        };
        self.report(job, end, &standing, &reasons).await
    }

    /// Writes the status if it says something new.
    async fn report(
        &self,
        job: &Job,
        end: &mut PassEnd,
        standing: &ProviderStatus,
        refused: &[Reason],
    ) -> Result<(), ReportError> {
        let Some(row) = &job.row else {
            return Ok(());
        };
        if job
            .intent
            .as_ref()
            .is_some_and(|intent| intent.load_balancer.is_none())
        {
            return Ok(());
        }
        let mut status = self.compose(job, end, standing, refused);
        // Also on what is refused: nobody may know yet what an earlier process has made for it. And
        // somebody may have taken the finalizer off.
        let holds = job.intent.is_some() || !status.ingress.is_empty();
        let finalize = holds && !end.finalized;
        if says_more(&status, &end.status, standing.deferred_marks) || finalize {
            job.persisted.name_instance(&mut status);
            self.write(row, end, status, finalize).await?;
        }
        Ok(())
    }

    fn compose(
        &self,
        job: &Job,
        end: &PassEnd,
        standing: &ProviderStatus,
        refused: &[Reason],
    ) -> ServiceStatus {
        let mut status = compose(&Facts {
            errors: &job.errors,
            remarks: job.intent.as_ref().map_or(&[], |intent| &intent.remarks),
            refused,
            unserved: job.intent.is_none(),
            standing,
            before: &end.status,
            generation: job.row.as_ref().and_then(|row| row.generation),
            now: (self.now)(),
        });
        let provider = self.provider.profile().marks;
        status.marks = job.persisted.marks(provider, &end.status, standing);
        status
    }

    async fn write(
        &self,
        row: &ServiceRow,
        end: &mut PassEnd,
        status: ServiceStatus,
        finalize: bool,
    ) -> Result<(), ReportError> {
        // Until there is an answer, it may be there or not.
        let before = std::mem::replace(&mut end.writing, Writing::Unsure);
        let written = if finalize {
            self.reporter.add_finalizer(row, Some(&status)).await
        } else {
            self.reporter.write_status(row, &status).await
        };
        if matches!(written, Err(ReportError::Conflict { .. })) {
            end.writing = before;
        }
        written?;
        end.finalized |= finalize;
        end.writing = Writing::Done;
        end.wrote.push(status.clone());
        end.status = status;
        Ok(())
    }

    /// Tells that a change is done. Members that follow the nodes are worth a line in the log, and
    /// what a process finds at its start as its predecessor reported it was told then.
    async fn tell_of_success(&self, job: &Job, end: &mut PassEnd, standing: &ProviderStatus) {
        let at = addresses(&standing.ingress);
        let service = job.row.as_ref().map(|row| row.key.to_string());
        let reported = was_reported(&job.status) && end.writing == Writing::Nothing;
        match end.telling.announced.take() {
            Some(Announced::Change | Announced::Removal) if job.telling.looked || !reported => {
                let message = format!("Ensured load balancer at {at}");
                self.tell(job, Event::normal("EnsuredLoadBalancer", message))
                    .await;
            }
            Some(Announced::Change | Announced::Removal) => {
                tracing::debug!(service, at, "serves as before again");
            }
            Some(Announced::Members) => tracing::info!(service, "the members are up to date"),
            None => {}
        }
    }

    /// Tells of what has become true since the last pass: what the provider notices, and what holds
    /// otherwise than it is written. `found`: it was true before this process looked.
    async fn tell_notices(
        &self,
        job: &Job,
        end: &mut PassEnd,
        standing: &ProviderStatus,
        found: bool,
    ) {
        let told = std::mem::take(&mut end.telling.notices);
        end.reasons
            .extend(standing.notices.iter().map(|(_, reason)| reason.clone()));
        let remarks = job.intent.iter().flat_map(|intent| &intent.remarks);
        let warnings = remarks.chain(&standing.remarks).filter(|remark| {
            let noticed = standing.notices.iter().any(|(_, reason)| reason == *remark);
            remark.severity == Severity::Warning && !noticed && !follows_members(remark.code)
        });
        let notices = standing
            .notices
            .iter()
            .map(|(name, reason)| (*name, reason));
        for (name, reason) in notices.chain(warnings.map(|it| (it.code.as_str(), it))) {
            let text = format!("{name}: {reason}");
            if !found && !told.contains(&text) && !end.telling.notices.contains(&text) {
                self.tell(job, Event::warning(name, reason.to_string()))
                    .await;
            }
            end.telling.notices.push(text);
        }
    }

    async fn tell_of_failure(&self, job: &Job, end: &PassEnd) {
        if let Some(failure) = &end.failure
            && job.last_failure.as_ref() != Some(failure)
        {
            tracing::warn!(
                service = job.row.as_ref().map(|row| row.key.to_string()),
                error = failure,
                "sync failed"
            );
            if !job.telling.looked && is_on_record(&job.status, failure) {
                return;
            }
            let message = format!("Error syncing load balancer: {failure}");
            self.tell(job, Event::warning("SyncLoadBalancerFailed", message))
                .await;
        }
    }

    async fn tell(&self, job: &Job, event: Event) {
        if let Some(row) = &job.row {
            self.reporter.event(row, &event).await;
        }
    }
}

// === impl Event ===

impl Event {
    fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            warning: false,
            message: message.into(),
        }
    }

    fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            warning: true,
            message: message.into(),
        }
    }
}

/// Returns whether a warning comes and goes with the members. The condition reports it; an event
/// for each rollout would be noise.
fn follows_members(code: Code) -> bool {
    matches!(
        code,
        Code::NoEndpoints
            | Code::NoReadyEndpoints
            | Code::NoHealthyMembers
            | Code::NoEligibleNodes
            | Code::EndpointIgnored
    )
}

/// Notes what begins, unless an earlier pass began it.
fn announce<S>(end: &mut PassEnd, intent: &Intent, plan: &Plan<S>) {
    let members_only = plan.steps.iter().all(|planned| planned.members_only);
    let begun = match &intent.load_balancer {
        None => Announced::Removal,
        Some(_) if members_only => Announced::Members,
        Some(_) => Announced::Change,
    };
    if (begun, end.telling.announced) != (Announced::Members, Some(Announced::Change)) {
        end.telling.announced = Some(begun);
    }
}

/// Returns what to say of a Service whose listeners are about to be opened: nothing where traffic
/// flows already or is known to wait for something else, so that the status of the end is no other
/// one than this.
fn progress(before: &ServiceStatus, standing: &ProviderStatus) -> Vec<Reason> {
    let programmed = before.condition(ConditionType::Programmed);
    if programmed.is_some_and(|condition| condition.status) || !standing.waiting.is_empty() {
        return Vec::new();
    }
    vec![Reason::info(
        Code::Progressing,
        "the load balancer is being created",
    )]
}

/// Returns whether a pass over this Service has come to an end before.
fn was_reported(status: &ServiceStatus) -> bool {
    status.condition(ConditionType::Accepted).is_some()
}

/// Returns whether a condition tells of a failure.
fn is_on_record(status: &ServiceStatus, failure: &str) -> bool {
    let unmet = status.conditions.iter().filter(|it| !it.status);
    unmet.into_iter().any(|it| it.message.starts_with(failure))
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

/// Whether a status is worth a write over another one. Marks that are `deferred_marks` are not, where
/// they are there with an older value.
fn says_more(status: &ServiceStatus, before: &ServiceStatus, deferred_marks: &[&str]) -> bool {
    let is_late = |(key, value): (&String, &String)| {
        let older = before.marks.get(key);
        deferred_marks.contains(&key.as_str()) && older.is_some_and(|older| older != value)
    };
    if !status.marks.iter().any(is_late) {
        return status != before;
    }
    let without = |it: &ServiceStatus| {
        let mut rest = it.clone();
        rest.marks
            .retain(|key, _| !deferred_marks.contains(&key.as_str()));
        rest
    };
    without(status) != without(before)
}

/// Where the provider can't be asked, what was last published still stands.
fn unknown_standing(status: &ServiceStatus) -> ProviderStatus {
    ProviderStatus {
        ingress: status.ingress.clone(),
        marks: status.marks.clone(),
        ..ProviderStatus::default()
    }
}

fn first_word(text: &str) -> &str {
    text.split(' ').next().unwrap_or(text)
}

#[cfg(test)]
mod tests;
