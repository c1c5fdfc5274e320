//! Carrying out one step: one request, then an operation in flight.

use std::time::Duration;

use landfall_model::provider::{Applied, ProviderError, Retry, Scope};
use landfall_model::{Code, Reason};
use tokio::time::Instant;

use crate::client::{ApiError, Begun, ErrorKind};
use crate::failure::{failure, is_lasting};
use crate::memory::{InFlight, Key};
use crate::objects::LoadBalancerField;
use crate::provider::Exoscale;
use crate::read::pause;
use crate::step::{Change, Step};

/// The pause before an NLB is tried again that takes no change.
const AGAIN: Duration = Duration::from_secs(3);
/// How long an NLB may refuse changes because of another one.
const BUSY: Duration = Duration::from_secs(120);
/// How long a request for an NLB without an answer may still be carried out.
const UNANSWERED: Duration = Duration::from_secs(30);

/// The place of a change in flight. If its reconcile ends before there is an answer, it is not
/// known what became of it.
struct Reservation<'a> {
    provider: &'a Exoscale,
    key: Key,
    answered: bool,
}

impl Exoscale {
    pub(crate) async fn carry_out(&self, step: &Step) -> Result<Applied, ProviderError> {
        let change = &step.change;
        let Some(mut reservation) = self.reserve(step) else {
            return Ok(Applied::Later { after: AGAIN });
        };
        self.memory().removing(change);
        let sent = self.send(change).await;
        reservation.answered = true;
        let key = reservation.key.clone();
        drop(reservation);
        match sent {
            Ok(Some(Begun::Pending(operation))) => {
                let after = operation.due_in(Instant::now());
                let in_flight = InFlight {
                    change: change.clone(),
                    operation: Some(operation),
                };
                self.memory().operations.insert(key, in_flight);
                Ok(Applied::Busy { after })
            }
            Ok(Some(Begun::Done(id))) => {
                self.memory().finish(&key, change, id, Instant::now());
                Ok(Applied::Done)
            }
            // There may be nothing to delete any more, which is read before it counts.
            Ok(None) => {
                self.memory().end_unknown(&key);
                Ok(Applied::Done)
            }
            Err(error) => self
                .not_carried_out(step, &key, &error)
                .map_err(|error| *error),
        }
    }

    /// Takes the place of a change in flight; `None`: another one is.
    fn reserve(&self, step: &Step) -> Option<Reservation<'_>> {
        let key = Key::of(step);
        let mut memory = self.memory();
        if memory.operations.contains_key(&key) {
            return None;
        }
        let in_flight = InFlight {
            change: step.change.clone(),
            operation: None,
        };
        memory.operations.insert(key.clone(), in_flight);
        Some(Reservation {
            provider: self,
            key,
            answered: false,
        })
    }

    async fn send(&self, change: &Change) -> Result<Option<Begun>, ApiError> {
        let cloud = &self.cloud;
        match change {
            Change::CreateLoadBalancer { body } => cloud.create_load_balancer(body).await.map(Some),
            Change::UpdateLoadBalancer {
                load_balancer,
                body,
            } => cloud
                .update_load_balancer(load_balancer, body)
                .await
                .map(Some),
            Change::ResetDescription { load_balancer } => {
                let field = LoadBalancerField::Description;
                cloud
                    .reset_load_balancer(load_balancer, field)
                    .await
                    .map(Some)
            }
            Change::DeleteLoadBalancer { load_balancer } => {
                cloud.delete_load_balancer(load_balancer).await
            }
            Change::CreateService {
                load_balancer,
                body,
            } => cloud.create_service(load_balancer, body).await.map(Some),
            Change::UpdateService {
                load_balancer,
                id,
                body,
            } => cloud
                .update_service(load_balancer, id, body)
                .await
                .map(Some),
            Change::ResetServiceDescription { load_balancer, id } => {
                let begun = cloud.reset_service_description(load_balancer, id).await;
                begun.map(Some)
            }
            Change::DeleteService { load_balancer, id } => {
                cloud.delete_service(load_balancer, id).await
            }
        }
    }

    fn not_carried_out(
        &self,
        step: &Step,
        key: &Key,
        error: &ApiError,
    ) -> Result<Applied, Box<ProviderError>> {
        let now = Instant::now();
        let change = &step.change;
        if let (true, Key::LoadBalancer(id)) = (is_busy(change, error), key) {
            // An operation of another process, or of a person, goes on.
            let mut memory = self.memory();
            memory.rows.invalidate(id);
            let since = *memory.conflicts.entry(id.clone()).or_insert(now);
            if now.saturating_duration_since(since) <= BUSY {
                let after = pause(since);
                return Ok(Applied::Later { after });
            }
        }
        let unanswered = error.may_be_done();
        if let (true, Key::Creating(service)) = (unanswered, key) {
            let until = now + UNANSWERED;
            self.memory().unanswered.insert(service.clone(), until);
        }
        if !matches!(error.kind, ErrorKind::Throttled | ErrorKind::Unreachable) {
            self.memory().end_unknown(key);
        }
        Err(Box::new(self.refused(change, error)))
    }

    /// Returns what the engine does about a change that has failed. What the cloud refuses as it is
    /// keeps nothing else from being done.
    pub(crate) fn refused(&self, change: &Change, error: &ApiError) -> ProviderError {
        let mut failed = failure(error);
        if error.kind == ErrorKind::Conflict
            && let Change::CreateLoadBalancer { body } = change
        {
            let message = format!(
                "the name of the load balancer is taken: {}",
                error.without_id()
            );
            let remedy = "choose another one in \
                          service.beta.kubernetes.io/exoscale-loadbalancer-name, or name the load \
                          balancer in service.beta.kubernetes.io/exoscale-loadbalancer-id";
            failed.reason = Reason::error(Code::NotOurs, message)
                .value(body.name.as_str())
                .remedy(remedy);
            return failed;
        }
        let is_update = matches!(
            change,
            Change::UpdateService { .. }
                | Change::UpdateLoadBalancer { .. }
                | Change::ResetDescription { .. }
                | Change::ResetServiceDescription { .. }
        );
        if error.kind == ErrorKind::NotFound && is_update {
            // It was deleted since it was read; if it is still there, the change is refused.
            failed.retry = Retry::Now;
        }
        let is_lasting = is_lasting(error) || error.kind == ErrorKind::Conflict;
        if is_lasting && change.load_balancer().is_some() {
            let now = Instant::now();
            self.memory().refuse(change, &failed.reason, now);
            failed.scope = Scope::Step;
        }
        failed
    }
}

/// Returns whether an NLB refuses a change because of another one. That of a name may be refused
/// because it is taken.
fn is_busy(change: &Change, error: &ApiError) -> bool {
    let names = matches!(change, Change::UpdateLoadBalancer { body, .. } if body.name.is_some());
    match error.kind {
        ErrorKind::Busy => true,
        ErrorKind::Conflict => !names,
        _ => false,
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut memory = self.provider.memory();
        if self.answered {
            memory.operations.remove(&self.key);
            return;
        }
        memory.end_unknown(&self.key);
        if let Key::Creating(service) = &self.key {
            let until = Instant::now() + UNANSWERED;
            memory.unanswered.insert(service.clone(), until);
        }
    }
}
