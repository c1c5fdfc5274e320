//! Carrying out one step. What the cloud answers is kept in memory, so that it need not be read
//! again.

mod certificates;
mod network;
mod octavia;

use std::sync::Arc;
use std::time::Duration;

use landfall_model::Uid;
use landfall_model::provider::{Applied, ProviderError, Scope};
use serde_json::json;
use tokio::time::Instant;

use crate::client::{ApiError, ErrorKind};
use crate::errors::failure;
use crate::memory::{ExpectedGraph, afterwards};
use crate::names::SERVICE_PREFIX;
use crate::objects::{Id, LoadBalancer};
use crate::provider::OpenStack;
use crate::refusal;
use crate::refusal::{is_lasting, option_of};
use crate::requests::LoadBalancerRequest;
use crate::step::Step;
use crate::target::WantedListener;

/// How long after an answer was lost the request may still wait in the cloud, to be carried out at
/// last. A busy Octavia was seen to take minutes.
const QUEUED: Duration = Duration::from_secs(120);
/// From one look to the next at whether a load balancer comes of such a request.
const UNHURRIED: Duration = Duration::from_secs(5);

impl OpenStack {
    pub(crate) async fn carry_out(&self, step: &Step) -> Result<Applied, ProviderError> {
        let result = match step {
            Step::CreateLoadBalancer {
                service,
                body,
                holds,
                ..
            } => {
                if let Some((_, after)) = self.memory().attempts.rest(service, Instant::now()) {
                    return Ok(Applied::Later { after });
                }
                self.create_balancer(service, body, holds).await
            }
            _ if step.locks().is_some() => {
                if let Some(after) = self.memory().pace.wait(step, Instant::now()) {
                    return Ok(Applied::Later { after });
                }
                self.change(step).await
            }
            Step::CreateCertificate { .. } | Step::DeleteCertificate { .. } => {
                self.write_certificate(step).await
            }
            _ => self.write_network(step).await,
        };
        result.map_err(|error| {
            tracing::debug!(%step, %error, "refused");
            let mut failure = failure(&error);
            let key = refusal::key(step);
            let now = Instant::now();
            let is_failure = error.kind == ErrorKind::Unavailable;
            let fails = |key: &refusal::Key| self.memory().attempts.fail(key, now);
            let is_lasting = is_lasting(&error) || (is_failure && key.as_ref().is_some_and(fails));
            if is_lasting && let Some(option) = option_of(step, &error, self.joins(step)) {
                failure.reason = failure.reason.at(option);
            }
            if is_lasting && let (Some(key), Some(load_balancer)) = (key, step.locks()) {
                let reason = failure.reason.clone();
                self.memory()
                    .attempts
                    .refuse(load_balancer, key, (reason, is_failure), now);
            }
            // What the cloud does not give of addresses and groups keeps nothing else from being
            // done.
            if step.stands_alone() && !error.is_transient() {
                failure.scope = Scope::Step;
            }
            failure
        })
    }

    /// Whether a write marks a load balancer of another Service as one that this Service shares.
    fn joins(&self, step: &Step) -> bool {
        let Step::UpdateLoadBalancer {
            load_balancer,
            changes,
            ..
        } = step
        else {
            return false;
        };
        let memory = self.memory();
        let row = memory.balancers.get(load_balancer).map(|known| &known.row);
        let comes = |tag: &String| {
            let is_new = |row: &LoadBalancer| row.name != *tag && !row.tags.contains(tag);
            tag.starts_with(SERVICE_PREFIX) && row.is_some_and(is_new)
        };
        changes.name.is_none() && changes.tags.iter().flatten().any(comes)
    }

    /// Notes that a load balancer is waited for; returns when to look again.
    pub(crate) fn wait_for(&self, load_balancer: &Id) -> Duration {
        let mut memory = self.memory();
        if !memory.balancers.contains_key(load_balancer) {
            return UNHURRIED;
        }
        // Whether it is done is to be seen, not to be assumed again.
        memory.stop_assuming_done(load_balancer);
        let busy_for = memory.busy_for(load_balancer, Instant::now());
        self.pause_after(busy_for, &memory)
    }

    async fn create_balancer(
        &self,
        service: &Uid,
        body: &LoadBalancerRequest,
        holds: &[WantedListener],
    ) -> Result<Applied, ApiError> {
        // However it ends, the next list must be one that has it.
        let outcome = self.cloud.create_load_balancer(&json!(body)).await;
        let now = afterwards();
        let mut memory = self.memory();
        memory.requested.insert(service.clone(), now);
        if let Err(error) = &outcome
            && body.additional_vips.is_some()
            && is_about_vips(error)
        {
            // Another plan is made: with a load balancer for each family.
            // Something else may be what it does not know.
            let provider = body.provider.as_deref().unwrap_or_default();
            let by_provider = error.message.to_lowercase().contains("vip");
            let whose = if by_provider {
                provider
            } else {
                service.as_str()
            };
            memory.caches.one_vip_only.insert(whose.to_owned());
            return Ok(Applied::Later {
                after: Duration::ZERO,
            });
        }
        let created = outcome.inspect_err(|error| {
            if may_come(error) {
                memory.unanswered.insert(service.clone(), now + QUEUED);
            }
        })?;
        memory.of.insert(service.clone(), created.id.clone());
        memory.attempts.created(service, now);
        memory.changed(&created.id, now);
        // Nothing is known of it but what was sent: it is waited for, not taken to be done.
        memory.unusual(&created.id);
        let expected = ExpectedGraph {
            balancer: created.id.clone(),
            token: None,
            listeners: holds.to_vec(),
        };
        memory.expected.insert(service.clone(), expected);
        if let Some(known) = memory.balancers.get_mut(&created.id) {
            known.row = created;
        }
        let after = memory.timing.settle;
        Ok(Applied::Busy { after })
    }

    /// A change of a load balancer, which is busy afterwards.
    async fn change(&self, step: &Step) -> Result<Applied, ApiError> {
        let Some(id) = step.locks().cloned() else {
            return Ok(Applied::Done);
        };
        let before = self
            .memory()
            .balancers
            .get(&id)
            .and_then(|it| it.graph.clone());
        let mut graph = before.as_deref().cloned();
        let written = self.write_octavia(step, graph.as_mut()).await;
        let now = afterwards();
        let mut memory = self.memory();
        let error = match written {
            Ok(()) => {
                memory.changed(&id, now);
                memory.pace.note(step, now);
                memory.note_source_ip(step, true);
                if let Some(key) = refusal::key(step) {
                    memory.attempts.accept(&key);
                }
                if let (Some(known), Some(graph)) = (memory.balancers.get_mut(&id), graph) {
                    known.graph = Some(Arc::new(graph));
                }
                match step {
                    Step::FailOver { .. } => memory.failed_over(&id, now),
                    Step::DeleteLoadBalancer { .. } => memory.unusual(&id),
                    _ => {}
                }
                let after = memory.timing.wait(now);
                return Ok(Applied::Busy { after });
            }
            Err(error) => error,
        };
        match error.kind {
            // It was not done yet with the last change, or another program is changing it.
            ErrorKind::Busy if memory.is_merely_busy(&id, now) => Ok(Applied::Later {
                after: self.poll_interval_with(&memory),
            }),
            // What the last change deletes is a child of it until that is done, and Octavia checks
            // for children first.
            ErrorKind::Invalid
                if matches!(step, Step::DeleteLoadBalancer { .. })
                    && memory.assumed_too_early(&id, now) =>
            {
                Ok(Applied::Later {
                    after: self.poll_interval_with(&memory),
                })
            }
            // Another plan is made, with the algorithm that every driver for OVN knows.
            ErrorKind::Invalid | ErrorKind::Unsupported if memory.note_source_ip(step, false) => {
                Ok(Applied::Later {
                    after: Duration::ZERO,
                })
            }
            ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::Conflict
                if matches!(step, Step::UpdatePool { lenient: true, .. }) =>
            {
                memory.attempts.refuse_algorithm(step, &error);
                Ok(Applied::Done)
            }
            ErrorKind::Forbidden
            | ErrorKind::Unsupported
            | ErrorKind::NotFound
            | ErrorKind::Conflict
                if matches!(step, Step::FailOver { .. }) =>
            {
                memory.attempts.not_failed_over(&id, now);
                Ok(Applied::Later {
                    after: self.poll_interval_with(&memory),
                })
            }
            _ => {
                memory.invalidate(&id, now);
                Err(error)
            }
        }
    }
}

/// Whether it was refused because the provider gives a load balancer one VIP only.
fn is_about_vips(error: &ApiError) -> bool {
    match error.kind {
        ErrorKind::Unsupported => true,
        ErrorKind::Invalid => error.message.contains("additional"),
        _ => false,
    }
}

/// Whether a request may be carried out after we have stopped waiting for its answer.
fn may_come(error: &ApiError) -> bool {
    // A proxy in front of Octavia gives up before Octavia does.
    error.kind == ErrorKind::Lost || matches!(error.status, Some(502 | 504))
}
