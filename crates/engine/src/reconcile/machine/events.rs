//! The events of a reconcile: one per change, however many reconciles it takes.

use landfall_model::happening::Happening;
use landfall_model::intent::Intent;
use landfall_model::plan::Plan;
use landfall_model::provider::{Provider, ProviderStatus};
use landfall_model::reason::{Code, Severity};
use landfall_model::status::{ConditionType, IngressAddress, ServiceStatus};

use super::super::{ReconcileEnd, Writing};
use super::Machine;
use crate::report::Event;
use crate::status::addresses;

/// What events have reported, so that one is sent per change however many reconciles it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventState {
    /// What was announced and has not been reported as done yet.
    pub announced: Option<Announced>,
    /// Notices that were reported and still hold.
    pub notices: Vec<String>,
    /// Whether a reconcile of this process has checked the Service. Until then what is found is
    /// what reported by an earlier process, unless the status says otherwise.
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

// === impl Machine ===

impl<P: Provider> Machine<'_, P> {
    /// Reports that a change is done. Members that follow the nodes are worth a line in the log,
    /// and what a process finds at its start as its predecessor reported it was reported then.
    pub(super) fn announce_success(&mut self, status: &ProviderStatus) {
        let (job, end) = (self.job, &mut self.end);
        let at = addresses(&status.ingress);
        let service = job.row.as_ref().map(|row| row.key.to_string());
        let reported = was_reported(&job.status) && end.writing == Writing::Nothing;
        match end.reporting.announced.take() {
            Some(Announced::Change | Announced::Removal) if job.reporting.looked || !reported => {
                // Where new addresses are reported, that says it all.
                let gained = gained(&job.status.ingress, &status.ingress);
                if gained.is_empty() || self.reason(Happening::Assigned).is_none() {
                    let message = format!("Ensured load balancer at {at}");
                    self.announce(Happening::Ensured, false, message);
                }
            }
            Some(Announced::Change | Announced::Removal) => {
                tracing::debug!(service, at, "serves as before again");
            }
            Some(Announced::Members) => tracing::info!(service, "the members are up to date"),
            None => {}
        }
    }

    /// Reports what has become true since the last reconcile: the provider's notices, and what
    /// holds otherwise than it is written. `found`: it was true before this process looked.
    pub(super) fn announce_notices(&mut self, status: &ProviderStatus, found: bool) {
        let (job, end) = (self.job, &mut self.end);
        let reported = std::mem::take(&mut end.reporting.notices);
        end.reasons
            .extend(status.notices.iter().map(|(_, reason)| reason.clone()));
        let remarks = job.intent.iter().flat_map(|intent| &intent.remarks);
        let warnings = remarks.chain(&status.remarks).filter(|remark| {
            let noticed = status.notices.iter().any(|(_, reason)| reason == *remark);
            remark.severity == Severity::Warning && !noticed && !follows_members(remark.code)
        });
        let notices = status.notices.iter().map(|(name, reason)| (*name, reason));
        let event_reason = self.provider.profile().event_reason;
        let named = warnings
            .filter_map(|reason| Some((event_reason(Happening::Warned(reason.code))?, reason)));
        for (name, reason) in notices.chain(named) {
            let text = format!("{name}: {reason}");
            if !found && !reported.contains(&text) && !end.reporting.notices.contains(&text) {
                self.events.push(Event::warning(name, reason.to_string()));
            }
            end.reporting.notices.push(text);
        }
    }

    pub(super) fn announce_failure(&mut self) {
        let (job, end) = (self.job, &self.end);
        if let Some(failure) = &end.failure
            && job.last_failure.as_ref() != Some(failure)
        {
            tracing::warn!(
                service = job.row.as_ref().map(|row| row.key.to_string()),
                error = failure,
                "sync failed"
            );
            if !job.reporting.looked && is_on_record(&job.status, failure) {
                return;
            }
            let message = format!("Error syncing load balancer: {failure}");
            let happening = if end.status.ingress.is_empty() {
                Happening::Refused
            } else {
                Happening::Failed
            };
            self.announce(happening, true, message);
        }
    }

    /// Reports addresses that the Service lost and got, by its status before and after.
    pub(super) fn announce_addresses(&mut self) {
        let (job, end) = (self.job, &self.end);
        let wanted = job
            .intent
            .as_ref()
            .is_some_and(|it| it.load_balancer.is_some());
        let (before, after) = (&job.status.ingress, &end.status.ingress);
        let lost = gained(after, before);
        let gained = gained(before, after);
        if wanted && !lost.is_empty() {
            let message = format!("The Service lost {}", addresses(&lost));
            self.announce(Happening::Cleared, false, message);
        }
        if wanted && !gained.is_empty() {
            let message = format!("The Service got {}", addresses(&gained));
            self.announce(Happening::Assigned, false, message);
        }
    }

    fn announce(&mut self, happening: Happening, warning: bool, message: String) {
        let event = self.reason(happening).map(|reason| Event {
            reason,
            warning,
            message,
        });
        self.events.extend(event);
    }

    fn reason(&self, happening: Happening) -> Option<&'static str> {
        (self.provider.profile().event_reason)(happening)
    }
}

/// Returns the entries of `after` whose address or name is not in `before`.
fn gained(before: &[IngressAddress], after: &[IngressAddress]) -> Vec<IngressAddress> {
    let is_new = |entry: &&IngressAddress| {
        let same = |it: &IngressAddress| (it.ip, &it.hostname) == (entry.ip, &entry.hostname);
        !before.iter().any(same)
    };
    after.iter().filter(is_new).cloned().collect()
}

// === impl Event ===

impl Event {
    pub(super) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            warning: false,
            message: message.into(),
        }
    }

    pub(super) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
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

/// Notes what begins, unless an earlier reconcile began it.
pub(super) fn announce<S>(end: &mut ReconcileEnd, intent: &Intent, plan: &Plan<S>) {
    let members_only = plan.steps.iter().all(|planned| planned.members_only)
        && !plan.waits.iter().any(|wait| wait.creates);
    let begun = match &intent.load_balancer {
        None => Announced::Removal,
        Some(_) if members_only => Announced::Members,
        Some(_) => Announced::Change,
    };
    if (begun, end.reporting.announced) != (Announced::Members, Some(Announced::Change)) {
        end.reporting.announced = Some(begun);
    }
}

/// Returns whether a reconcile of this Service has ended before.
pub(super) fn was_reported(status: &ServiceStatus) -> bool {
    status.condition(ConditionType::Accepted).is_some()
}

/// Returns whether a condition reports a failure.
fn is_on_record(status: &ServiceStatus, failure: &str) -> bool {
    let unmet = status.conditions.iter().filter(|it| !it.status);
    unmet.into_iter().any(|it| it.message.starts_with(failure))
}
