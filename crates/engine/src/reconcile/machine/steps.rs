//! How a plan is carried out, step by step. Pure but for log lines.

use std::time::Duration;

use landfall_model::provider::{
    Applied, Provider, ProviderError, ProviderStatus, Published, Retry, Scope,
};
use landfall_model::reason::{Code, Reason};

use super::super::Outcome;
use super::writes::progress;
use super::{Machine, State, Todo, Work};

impl<P: Provider> Machine<'_, P> {
    /// Applies the next step of the plan.
    pub(super) fn apply_next(&mut self, work: Work<P>) -> Todo {
        let Some(planned) = work.plan.steps.get(work.index) else {
            return self.wait(work);
        };
        tracing::debug!(step = %planned.step, because = planned.because, "applying");
        self.state = State::Applying(work);
        Todo::Apply
    }

    /// Goes on after all steps: where something is waited for, the reconcile ends.
    fn wait(&mut self, work: Work<P>) -> Todo {
        if work.plan.waits.is_empty() {
            return self.carried(work, None);
        }
        self.state = State::Waiting(work);
        Todo::Wait
    }

    /// Takes what came of a step.
    pub(super) fn take_applied(
        &mut self,
        mut work: Work<P>,
        applied: Result<Applied, ProviderError>,
    ) -> Todo {
        match applied {
            Ok(Applied::Later { after }) => self.carried(work, Some(after)),
            Ok(Applied::Done) => {
                self.end.changed = true;
                self.count(work)
            }
            Ok(Applied::Addressed(published)) => {
                self.end.changed = true;
                self.report_claim(work, published)
            }
            Ok(Applied::Busy { after }) => {
                self.end.changed = true;
                work.note_done();
                self.carried(work, Some(after))
            }
            Err(failure) => {
                let scope = failure.scope;
                work.failures.push(failure);
                if scope == Scope::Reconcile {
                    return self.carried(work, None);
                }
                work.index += 1;
                self.apply_next(work)
            }
        }
    }

    /// Puts an address on record before anything is served there. A claim that could not be
    /// recorded is repeated until it is: that is no plan without an end.
    fn report_claim(&mut self, work: Work<P>, published: Published) -> Todo {
        let status = ProviderStatus {
            marks: published.marks(&self.end.status.marks),
            ingress: published.ingress,
            ..work.status.clone()
        };
        // Where nothing but the record is missing, the status is that of the end.
        let is_last = work.index + 1 == work.plan.steps.len();
        let progress = if is_last && self.provider.profile().immediate {
            Vec::new()
        } else {
            progress(&self.end.status, &status)
        };
        if self.prepare_report(&status, &progress) {
            self.state = State::Claiming(work);
            return Todo::Write;
        }
        self.record(work)
    }

    /// Notifies the provider that its claim is on record.
    pub(super) fn record(&mut self, work: Work<P>) -> Todo {
        self.state = State::Recording(work);
        Todo::Recorded
    }

    /// Counts a step that is done and goes on with the next.
    pub(super) fn count(&mut self, mut work: Work<P>) -> Todo {
        work.note_done();
        self.apply_next(work)
    }

    /// Goes on after the steps that could be tried: those from the work's index on were not.
    pub(super) fn carried(&mut self, mut work: Work<P>, busy: Option<Duration>) -> Todo {
        self.end.pending = work.plan.describe_after(work.index);
        self.uncounted.extend(work.take_done());
        if let Some(after) = busy {
            self.end.outcome = Outcome::Busy(after);
            let reason = Reason::info(Code::Progressing, "changes are in progress");
            self.end.reasons.push(reason);
            return self.report_busy(&work.status);
        }
        if work.failures.iter().any(|it| it.retry != Retry::Now) {
            let reasons = self.take_failures(&work.failures);
            self.state = State::ObservingAgain(reasons);
            return Todo::Observe;
        }
        self.round += 1;
        self.observe()
    }
}
