//! The statuses that a reconcile writes. Pure.

use landfall_model::intent::Intent;
use landfall_model::provider::{Provider, ProviderStatus};
use landfall_model::reason::{Code, Reason, Severity};
use landfall_model::status::{ConditionType, ServiceStatus};

use super::super::Writing;
use super::events::Announced;
use super::{Machine, Todo};
use crate::held::addresses;
use crate::report::{Event, ReportError};
use crate::status::{Facts, compose};

impl<P: Provider> Machine<'_, P> {
    /// Prepares the finalizer, which goes on before anything is made outside, with a status that
    /// shows that it is ours; returns whether that is to be written. A plan that begins with a
    /// claim makes nothing before the claim is on record, and the finalizer goes there in the same
    /// write.
    pub(super) fn begin(
        &mut self,
        intent: &Intent,
        observed: &ProviderStatus,
        claims: bool,
    ) -> bool {
        let unneeded = self.job.row.is_none() || self.end.finalized || claims;
        if intent.load_balancer.is_none() || unneeded {
            return false;
        }
        let mut status = if self.end.status.conditions.is_empty() {
            let status = ProviderStatus {
                ingress: self.end.status.ingress.clone(),
                marks: self.end.status.marks.clone(),
                ..observed.clone()
            };
            self.compose(&status, &progress(&self.end.status, &status))
        } else {
            self.end.status.clone()
        };
        self.job.persisted.name_instance(&mut status);
        self.prepare_write(status, true);
        true
    }

    /// Reports that the provider is at it. What is published goes on to be true, and marks are
    /// written with the status of the end. Of a Service that publishes an address, only an error is
    /// worth a write before that.
    pub(super) fn report_busy(&mut self, observed: &ProviderStatus) -> Todo {
        let removal = Some(Announced::Removal);
        if self.end.reporting.announced == removal && self.job.reporting.announced != removal {
            let event = Event::normal("DeletingLoadBalancer", "Deleting load balancer");
            self.events.push(event);
        }
        let published = &self.end.status.ingress;
        let is_error = |reason: &Reason| reason.severity == Severity::Error;
        if !published.is_empty() && !observed.waiting.iter().any(is_error) {
            return self.finish();
        }
        let ingress = if observed.ingress.is_empty() {
            published.clone()
        } else {
            observed.ingress.clone()
        };
        let status = ProviderStatus {
            ingress,
            marks: self.end.status.marks.clone(),
            ..observed.clone()
        };
        self.report(&status, &[])
    }

    /// Prepares the status; returns whether it says something new and is to be written.
    pub(super) fn prepare_report(&mut self, observed: &ProviderStatus, refused: &[Reason]) -> bool {
        let intent = self.job.intent.as_ref();
        let leaves = intent.is_some_and(|intent| intent.load_balancer.is_none());
        if self.job.row.is_none() || leaves {
            return false;
        }
        let mut status = self.compose(observed, refused);
        // Also on what is refused: it may not be known yet what an earlier process has made for it.
        // And the finalizer may have been taken off by hand.
        let holds = intent.is_some() || !status.ingress.is_empty();
        let finalize = holds && !self.end.finalized;
        // What was written in vain may be there all the same, and no watch has shown it yet.
        let unsure = self.job.unsure && self.end.wrote.is_empty();
        let needed =
            says_more(&status, &self.end.status, observed.deferred_marks) || finalize || unsure;
        if needed {
            self.job.persisted.name_instance(&mut status);
            self.prepare_write(status, finalize);
        }
        needed
    }

    fn compose(&self, observed: &ProviderStatus, refused: &[Reason]) -> ServiceStatus {
        let job = self.job;
        let mut status = compose(&Facts {
            errors: &job.errors,
            remarks: job.intent.as_ref().map_or(&[], |intent| &intent.remarks),
            refused,
            unserved: job.intent.is_none(),
            standing: observed,
            before: &self.end.status,
            generation: job.row.as_ref().and_then(|row| row.generation),
            now: self.now,
        });
        let provider = self.provider.profile().marks;
        status.marks = job.persisted.marks(provider, &self.end.status, observed);
        status
    }

    fn prepare_write(&mut self, status: ServiceStatus, finalize: bool) {
        // Until there is an answer, it may be there or not.
        self.before = std::mem::replace(&mut self.end.writing, Writing::Unsure);
        self.write = (status, finalize);
    }

    /// Takes what came of the write that was prepared last.
    pub(super) fn written(&mut self, written: Result<(), ReportError>) -> Result<(), ReportError> {
        if written.as_ref().is_err_and(ReportError::is_certain) {
            self.end.writing = self.before;
        }
        if written.is_err() {
            self.end.unrecorded = addresses(&self.write.0);
        }
        written?;
        let (status, finalize) = std::mem::take(&mut self.write);
        self.end.finalized |= finalize;
        self.end.writing = Writing::Done;
        self.end.wrote.push(status.clone());
        self.end.status = status;
        Ok(())
    }
}

/// Returns what to say of a Service whose listeners are about to be opened: nothing where traffic
/// flows already or is known to wait for something else, so that the status of the end is no other
/// one than this.
pub(super) fn progress(before: &ServiceStatus, standing: &ProviderStatus) -> Vec<Reason> {
    let programmed = before.condition(ConditionType::Programmed);
    if programmed.is_some_and(|condition| condition.status) || !standing.waiting.is_empty() {
        return Vec::new();
    }
    vec![Reason::info(
        Code::Progressing,
        "the load balancer is being created",
    )]
}

/// Whether a status is worth a write over another one. Marks that are `deferred_marks` are not,
/// where they are there with an older value.
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
pub(in crate::reconcile) fn unknown_status(status: &ServiceStatus) -> ProviderStatus {
    ProviderStatus {
        ingress: status.ingress.clone(),
        marks: status.marks.clone(),
        ..ProviderStatus::default()
    }
}
