//! The writes of a pass to its Service: the finalizer and the status.

use landfall_model::intent::Intent;
use landfall_model::plan::Plan;
use landfall_model::provider::{Provider, ProviderError, ProviderStatus, Published};
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::ServiceRow;
use landfall_model::status::{ConditionType, ServiceStatus};

use super::events::Announced;
use super::{Job, Pass, PassEnd, Writing, outcome_of};
use crate::report::{Event, Report, ReportError};
use crate::status::{Facts, compose};

impl<P: Provider, R: Report> Pass<'_, P, R> {
    /// Puts the finalizer on before anything is made outside, with a status that tells that it is
    /// ours. A plan that begins with a claim makes nothing before the claim is on record, and the
    /// finalizer goes there in the same write.
    pub(super) async fn begin(
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
    pub(super) async fn report_claim(
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
    pub(super) async fn report_busy(
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
    pub(super) async fn report_failed(
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
                Err(_) => unknown_status(&end.status),
            },
            None => unknown_status(&end.status),
        };
        self.report(job, end, &standing, &reasons).await
    }

    /// Writes the status if it says something new.
    pub(super) async fn report(
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

    pub(super) fn compose(
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

    pub(super) async fn write(
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
pub(super) fn unknown_status(status: &ServiceStatus) -> ProviderStatus {
    ProviderStatus {
        ingress: status.ingress.clone(),
        marks: status.marks.clone(),
        ..ProviderStatus::default()
    }
}
