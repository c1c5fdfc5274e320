//! A reconcile as a state machine: what came of the last action goes in, the next action comes out.
//!
//! Pure but for log lines. It asks the provider only for its answers without I/O: profile, plan
//! and status.

mod events;
mod steps;
mod writes;

use std::time::Duration;

use jiff::Timestamp;
use landfall_model::Uid;
use landfall_model::intent::Intent;
use landfall_model::plan::{Plan, Planned, Wait};
use landfall_model::provider::{Applied, Provider, ProviderError, ProviderStatus};
use landfall_model::reason::{Code, Reason, Severity};
use landfall_model::rows::ServiceRow;
use landfall_model::status::ServiceStatus;

use super::{Job, Outcome, ReconcileEnd, Writing, outcome_of};
use crate::progress::Progress;
use crate::report::{Event, ReportError};
pub use events::{Announced, EventState};
use events::{announce, was_reported};
pub(super) use writes::unknown_status;

/// How often one reconcile may observe again after carrying out a plan. Two suffice for a provider
/// whose plans do what they say; the third is for one lost race.
const ROUNDS: usize = 3;

/// A reconcile of one Service.
pub(super) struct Machine<'j, P: Provider> {
    pub(super) job: &'j Job,
    pub(super) provider: &'j P,
    pub(super) end: ReconcileEnd,
    pub(super) now: Timestamp,
    /// Events to send before the next action.
    pub(super) events: Vec<Event>,
    state: State<P>,
    round: usize,
    /// How many reasons there were before the first observation.
    said: usize,
    /// The status to write, and whether the finalizer goes with it.
    pub(super) write: (ServiceStatus, bool),
    /// What had become of the status before that write.
    pub(super) before: Writing,
    /// Steps that were carried out and are counted only if the Service is not settled then, which
    /// is rare: to distinguish steps costs more than most of them.
    pub(super) uncounted: Vec<Planned<P::Step>>,
}

/// What is to be done next.
pub(super) enum Action<'m, S> {
    /// Observe for this spec.
    Observe(&'m Intent),
    /// Apply this step.
    Apply(&'m Planned<S>),
    /// Notify the provider that this is waited for.
    Wait(&'m [Wait]),
    /// Write the status, with the finalizer if asked.
    Write(&'m ServiceRow, &'m ServiceStatus, bool),
    /// Remove the finalizer and the status.
    Release(&'m ServiceRow),
    /// Notify the provider that the claim of this Service is on record.
    Recorded(&'m Uid),
    /// Nothing: the reconcile is over.
    Finish,
}

/// What came of an action.
pub(super) enum Input<O> {
    /// There was none yet.
    Start,
    /// Of [`Action::Observe`].
    Observed(Result<O, ProviderError>),
    /// Of [`Action::Apply`].
    Applied(Result<Applied, ProviderError>),
    /// Of [`Action::Wait`]: when to look again.
    Waiting(Duration),
    /// Of [`Action::Write`] and [`Action::Release`].
    Written(Result<(), ReportError>),
    /// Of [`Action::Recorded`].
    Recorded,
}

/// What the machine waits for.
enum State<P: Provider> {
    Start,
    Observing,
    /// The finalizer is written before anything is made.
    Beginning(Work<P>),
    Applying(Work<P>),
    /// A claim is put on record before the next step.
    Claiming(Work<P>),
    Recording(Work<P>),
    /// All steps that can be are applied, and something else has to end.
    Waiting(Work<P>),
    /// After these failures.
    ObservingAgain(Vec<Reason>),
    /// The last write; the status of success is announced after it.
    Reporting(Option<ProviderStatus>),
    /// `served`: something was made for it.
    Releasing {
        served: bool,
    },
    Over,
}

/// A plan that is carried out.
struct Work<P: Provider> {
    status: ProviderStatus,
    plan: Plan<P::Step>,
    /// The next step.
    index: usize,
    /// Those before it that were carried out, in order.
    done: Vec<usize>,
    failures: Vec<ProviderError>,
}

/// The kind of the next action.
pub(super) enum Todo {
    Observe,
    Apply,
    Wait,
    Write,
    Release,
    Recorded,
    Finish,
}

// === impl Machine ===

impl<'j, P: Provider> Machine<'j, P> {
    pub(super) fn new(job: &'j Job, provider: &'j P) -> Self {
        Self {
            job,
            provider,
            end: ReconcileEnd::nothing(job),
            now: Timestamp::UNIX_EPOCH,
            events: Vec::new(),
            state: State::Start,
            round: 0,
            said: 0,
            write: (ServiceStatus::default(), false),
            before: Writing::Nothing,
            uncounted: Vec::new(),
        }
    }

    /// Takes what came of the last action; returns events to send and then the next action.
    pub(super) fn next(
        &mut self,
        input: Input<P::Observed>,
        now: Timestamp,
    ) -> (Vec<Event>, Action<'_, P::Step>) {
        self.now = now;
        let todo = self.advance(input);
        let events = std::mem::take(&mut self.events);
        (events, self.action(&todo).unwrap_or(Action::Finish))
    }

    fn action(&self, todo: &Todo) -> Option<Action<'_, P::Step>> {
        let (intent, row) = (self.job.intent.as_ref(), self.job.row.as_deref());
        Some(match todo {
            Todo::Observe => Action::Observe(intent?),
            Todo::Apply => match &self.state {
                State::Applying(work) => Action::Apply(work.plan.steps.get(work.index)?),
                _ => return None,
            },
            Todo::Wait => match &self.state {
                State::Waiting(work) => Action::Wait(&work.plan.waits),
                _ => return None,
            },
            Todo::Write => Action::Write(row?, &self.write.0, self.write.1),
            Todo::Release => Action::Release(row?),
            Todo::Recorded => Action::Recorded(&intent?.uid),
            Todo::Finish => Action::Finish,
        })
    }

    fn advance(&mut self, input: Input<P::Observed>) -> Todo {
        match (std::mem::replace(&mut self.state, State::Over), input) {
            (State::Start, _) => self.start(),
            (State::Observing, Input::Observed(Ok(observed))) => self.decide(&observed),
            (State::Observing, Input::Observed(Err(error))) => {
                let reasons = self.take_failures(&[error]);
                let status = unknown_status(&self.end.status);
                self.report(&status, &reasons)
            }
            (State::Beginning(work), Input::Written(written)) => match self.written(written) {
                Ok(()) => self.apply_next(work),
                Err(error) => self.fail_within(work, &error),
            },
            (State::Applying(work), Input::Applied(applied)) => self.take_applied(work, applied),
            (State::Claiming(work), Input::Written(written)) => match self.written(written) {
                Ok(()) => self.record(work),
                Err(error) => self.fail_within(work, &error),
            },
            (State::Recording(work), _) => self.count(work),
            (State::Waiting(work), Input::Waiting(after)) => self.carried(work, Some(after)),
            (State::ObservingAgain(reasons), Input::Observed(observed)) => {
                let status = match (observed, &self.job.intent) {
                    (Ok(observed), Some(intent)) => {
                        self.job.placed(self.provider.status(intent, &observed))
                    }
                    _ => unknown_status(&self.end.status),
                };
                self.report(&status, &reasons)
            }
            (State::Reporting(success), Input::Written(written)) => match self.written(written) {
                Ok(()) => self.succeed(success.as_ref()),
                Err(error) => self.fail(&error),
            },
            (State::Releasing { served }, Input::Written(Ok(()))) => {
                self.end.writing = Writing::Done;
                self.end.wrote.push(ServiceStatus::default());
                if served {
                    let event = Event::normal("DeletedLoadBalancer", "Deleted load balancer");
                    self.events.push(event);
                }
                self.end.status = ServiceStatus::default();
                self.finish()
            }
            (State::Releasing { .. }, Input::Written(Err(error))) => {
                if error.is_certain() {
                    self.end.writing = self.before;
                }
                self.fail(&error)
            }
            _ => self.finish(),
        }
    }

    fn start(&mut self) -> Todo {
        let Some(intent) = &self.job.intent else {
            self.end.outcome = Outcome::Refused;
            self.end.failure = self.job.errors.first().map(ToString::to_string);
            // What is held stays held, and its address stays published.
            let status = self.job.persisted.unserved_status(&self.job.status);
            return self.report(&status, &[]);
        };
        self.end.reasons.extend(intent.remarks.iter().cloned());
        self.end.progress.begin(intent);
        self.said = self.end.reasons.len();
        self.observe()
    }

    fn observe(&mut self) -> Todo {
        if self.round == ROUNDS {
            self.end.outcome = Outcome::Busy(Duration::from_secs(1));
            return self.finish();
        }
        // What was noticed before the last plan was carried out need not hold any more.
        self.end.reasons.truncate(self.said);
        self.state = State::Observing;
        Todo::Observe
    }

    /// Decides what to do about what was observed.
    fn decide(&mut self, observed: &P::Observed) -> Todo {
        let Some(intent) = &self.job.intent else {
            return self.finish();
        };
        let job = self.job;
        let status = job.placed(self.provider.status(intent, observed));
        let found = self.round == 0 && !job.reporting.looked && was_reported(&job.status);
        self.announce_notices(&status, found);
        let planned = self.provider.plan(intent, observed);
        self.end.plan_refused = Some(planned.is_err());
        let plan = match planned {
            Ok(plan) => plan,
            Err(mut reasons) => {
                for reason in &mut reasons {
                    job.place(reason);
                }
                self.end.outcome = Outcome::Refused;
                self.end.failure = reasons.first().map(ToString::to_string);
                self.end.reasons.extend(reasons.iter().cloned());
                return self.report(&status, &reasons);
            }
        };
        self.end.pending.clear();
        if plan.is_empty() {
            self.end.progress = Progress::default();
            self.uncounted.clear();
            let found = status.remarks.iter().chain(&status.waiting);
            self.end.reasons.extend(found.cloned());
            return self.settle(intent, &status);
        }
        self.count_all();
        if let Some(reason) = self.end.progress.objection(&plan.steps) {
            self.end.pending = plan.describe();
            self.end.outcome = Outcome::Stuck;
            self.end.failure = Some(reason.to_string());
            self.end.reasons.push(reason.clone());
            // Halfway through there may be no address, and what is published is meant to stay.
            let status = unknown_status(&self.end.status);
            return self.report(&status, &[reason]);
        }
        announce(&mut self.end, intent, &plan);
        let work = Work {
            status,
            plan,
            index: 0,
            done: Vec::new(),
            failures: Vec::new(),
        };
        let claims = work
            .plan
            .steps
            .first()
            .is_some_and(|planned| planned.claims);
        if self.begin(intent, &work.status, claims) {
            self.state = State::Beginning(work);
            return Todo::Write;
        }
        self.apply_next(work)
    }

    fn settle(&mut self, intent: &Intent, status: &ProviderStatus) -> Todo {
        if intent.load_balancer.is_none() {
            return self.release();
        }
        // A version that was not accepted stays an error however well the previous one serves.
        let mut remarks = status.remarks.iter();
        let unheeded = remarks.find(|remark| remark.severity == Severity::Error);
        let refusal = self.job.errors.first().or(unheeded);
        self.end.failure = refusal.map(ToString::to_string);
        if refusal.is_some() {
            self.end.outcome = Outcome::Refused;
            return self.report(status, &[]);
        }
        self.end.outcome = Outcome::Settled;
        if self.prepare_report(status, &[]) {
            self.state = State::Reporting(Some(status.clone()));
            return Todo::Write;
        }
        self.succeed(Some(status))
    }

    /// Takes the finalizer off a Service of which nothing is left.
    fn release(&mut self) -> Todo {
        let end = &mut self.end;
        end.outcome = Outcome::Removed;
        end.reporting = EventState::default();
        let Some(row) = self
            .job
            .row
            .as_ref()
            .filter(|_| self.job.releases_finalizer)
        else {
            return self.finish();
        };
        // One write for both: whatever a crash leaves, the status shows which instance set the
        // finalizer. Also where the row has none: it may be older than the write that put it on
        // with the status.
        if row.finalized || end.status != ServiceStatus::default() {
            let served = row.finalized || !end.status.ingress.is_empty();
            self.before = std::mem::replace(&mut end.writing, Writing::Unsure);
            self.state = State::Releasing { served };
            return Todo::Release;
        }
        end.status = ServiceStatus::default();
        self.finish()
    }

    /// Writes the status if it says something new, and ends.
    pub(super) fn report(&mut self, status: &ProviderStatus, refused: &[Reason]) -> Todo {
        if self.prepare_report(status, refused) {
            self.state = State::Reporting(None);
            return Todo::Write;
        }
        self.finish()
    }

    fn succeed(&mut self, status: Option<&ProviderStatus>) -> Todo {
        if let Some(status) = status {
            self.announce_success(status);
        }
        self.finish()
    }

    /// Notes failures; returns their reasons.
    fn take_failures(&mut self, failures: &[ProviderError]) -> Vec<Reason> {
        let reasons = failures.iter().map(|failure| failure.reason.clone());
        let reasons: Vec<Reason> = reasons.collect();
        self.end.outcome = outcome_of(failures);
        self.end.failure = reasons.first().map(ToString::to_string);
        self.end.reasons.extend(reasons.iter().cloned());
        reasons
    }

    /// Ends with a write that failed.
    fn fail(&mut self, error: &ReportError) -> Todo {
        self.end.unavailable = matches!(error, ReportError::Unavailable { .. });
        let reason = match error {
            // No failure yet, and none to report.
            ReportError::Conflict { .. } => {
                self.end.outcome = Outcome::Outdated;
                self.end.failure = None;
                Reason::info(Code::Progressing, error.to_string())
            }
            ReportError::Failed { .. } | ReportError::Unavailable { .. } => {
                self.end.outcome = Outcome::Failed;
                let reason = Reason::error(Code::ProviderFailed, error.to_string());
                self.end.failure = Some(reason.to_string());
                reason
            }
        };
        self.end.reasons.push(reason);
        self.finish()
    }

    /// Ends with a write that failed before a plan was carried out.
    fn fail_within(&mut self, mut work: Work<P>, error: &ReportError) -> Todo {
        self.end.pending = work.plan.describe();
        self.uncounted.extend(work.take_done());
        self.fail(error)
    }

    /// Counts the steps that were carried out.
    fn count_all(&mut self) {
        for planned in self.uncounted.drain(..) {
            self.end.progress.count(&planned);
        }
    }

    pub(super) fn finish(&mut self) -> Todo {
        self.announce_addresses();
        self.announce_failure();
        self.count_all();
        if let Some(intent) = &self.job.intent {
            self.end.progress.end(intent);
        }
        let end = &mut self.end;
        end.reporting.looked = true;
        // A failure is reported once, however often the provider is busy with its repair meanwhile.
        let goes_on = matches!(end.outcome, Outcome::Busy(_) | Outcome::Outdated);
        if goes_on && end.failure.is_none() {
            end.failure.clone_from(&self.job.last_failure);
        }
        end.reasons
            .sort_by_key(|reason| std::cmp::Reverse(reason.severity));
        let mut once = Vec::with_capacity(end.reasons.len());
        for reason in std::mem::take(&mut end.reasons) {
            if !once.contains(&reason) {
                once.push(reason);
            }
        }
        end.reasons = once;
        Todo::Finish
    }
}

// === impl Work ===

impl<P: Provider> Work<P> {
    /// Notes that the next step was carried out, and goes on to the one after it.
    fn note_done(&mut self) {
        self.done.push(self.index);
        self.index += 1;
    }

    /// Takes the steps that were carried out.
    fn take_done(&mut self) -> Vec<Planned<P::Step>> {
        let mut done = std::mem::take(&mut self.done).into_iter().peekable();
        let steps = std::mem::take(&mut self.plan.steps).into_iter();
        let steps = steps.enumerate();
        let done = steps.filter(|(index, _)| done.next_if_eq(index).is_some());
        done.map(|(_, planned)| planned).collect()
    }
}
