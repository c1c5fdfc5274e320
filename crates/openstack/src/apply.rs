//! Carrying out one step. What the cloud answers is kept in memory, so that it need not be read
//! again.

mod network;

use std::sync::Arc;
use std::time::Duration;

use landfall_model::provider::{Applied, ProviderError, Scope};
use landfall_model::Uid;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::bodies;
use crate::client::{ApiError, ErrorKind};
use crate::errors::failure;
use crate::graph::{Graph, key_of};
use crate::memory::{ExpectedGraph, afterwards};
use crate::objects::{LoadBalancer, Provisioning, Ref};
use crate::provider::OpenStack;
use crate::refusal::{self, is_lasting, option_of};
use crate::step::Step;
use crate::wanted::WantedListener;

/// How long after an answer was lost the request may still wait in the cloud, to be carried out at
/// last. A busy Octavia was seen to take minutes.
const QUEUED: Duration = Duration::from_secs(120);
/// From one look to the next at whether a load balancer comes of such a request.
const UNHURRIED: Duration = Duration::from_secs(5);

impl OpenStack {
    pub(crate) async fn carry_out(&self, step: &Step) -> Result<Applied, ProviderError> {
        if let Step::Await { load_balancer, .. } = step {
            let mut memory = self.memory();
            if !memory.balancers.contains_key(load_balancer) {
                return Ok(Applied::Later { after: UNHURRIED });
            }
            // Whether it is done is to be seen, not to be assumed again.
            memory.stop_assuming_done(load_balancer);
            return Ok(Applied::Later {
                after: self.pace_with(&memory),
            });
        }
        let result = match step {
            Step::Upcoming { .. } => return Ok(Applied::Skipped),
            Step::CreateLoadBalancer {
                service,
                body,
                holds,
                ..
            } => {
                if let Some((_, after)) = self.memory().rest(service, Instant::now()) {
                    return Ok(Applied::Later { after });
                }
                self.create_balancer(service, body, holds).await
            }
            _ if step.locks().is_some() => self.change(step).await,
            _ => self.write_network(step).await,
        };
        result.map_err(|error| {
            tracing::debug!(%step, %error, "refused");
            let mut failure = failure(&error);
            if is_lasting(&error)
                && let (Some(key), Some(load_balancer)) = (refusal::key(step), step.locks())
            {
                if let Some(option) = option_of(step, &error.message) {
                    failure.reason = failure.reason.at_annotation(option);
                }
                let now = Instant::now();
                let reason = failure.reason.clone();
                self.memory().refuse(load_balancer, key, reason, now);
            }
            // What the cloud does not give of addresses and groups keeps nothing else from being
            // done.
            if step.stands_alone() && !error.is_passing() {
                failure.scope = Scope::Step;
            }
            failure
        })
    }

    async fn create_balancer(
        &self,
        service: &Uid,
        body: &Value,
        holds: &[WantedListener],
    ) -> Result<Applied, ApiError> {
        // However it ends, the next look must be one that tells of it.
        let outcome = self.cloud.create_load_balancer(body).await;
        let now = afterwards();
        let mut memory = self.memory();
        memory.attempts.insert(service.clone(), now);
        if let Err(error) = &outcome
            && body.get("additional_vips").is_some()
            && is_about_vips(error)
        {
            // Another plan is made: with a load balancer for each family.
            // Something else may be what it does not know.
            let provider = body["provider"].as_str().unwrap_or_default();
            let by_provider = error.message.to_lowercase().contains("vip");
            let whose = if by_provider {
                provider
            } else {
                service.as_str()
            };
            memory.one_vip_only.insert(whose.to_owned());
            return Ok(Applied::Later {
                after: Duration::ZERO,
            });
        }
        let created = outcome.inspect_err(|error| {
            if may_come(error) {
                memory.expected.insert(service.clone(), now + QUEUED);
            }
        })?;
        memory.of.insert(service.clone(), created.id.clone());
        memory.making(service, now);
        memory.changed(&created.id, now);
        // Nothing is known of it but what was sent: it is waited for, not taken to be done.
        memory.unusual(&created.id);
        let sketch = ExpectedGraph {
            balancer: created.id.clone(),
            token: None,
            listeners: holds.to_vec(),
        };
        memory.sketches.insert(service.clone(), sketch);
        if let Some(known) = memory.balancers.get_mut(&created.id) {
            known.row = created;
        }
        let after = memory.settle;
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
                if let Some(key) = refusal::key(step) {
                    memory.accept(&key);
                }
                if let (Some(known), Some(graph)) = (memory.balancers.get_mut(&id), graph) {
                    known.graph = Some(Arc::new(graph));
                }
                match step {
                    Step::FailOver { .. } => memory.failed_over(&id, now),
                    Step::DeleteLoadBalancer { .. } => memory.unusual(&id),
                    _ => {}
                }
                let after = memory.wait(now);
                return Ok(Applied::Busy { after });
            }
            Err(error) => error,
        };
        match error.kind {
            // It was not done yet with the last change, or somebody else is changing it.
            ErrorKind::Busy if memory.is_merely_busy(&id, now) => Ok(Applied::Later {
                after: self.pace_with(&memory),
            }),
            ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::Conflict
                if matches!(step, Step::UpdatePool { lenient: true, .. }) =>
            {
                memory.refuse_algorithm(step, &error);
                Ok(Applied::Done)
            }
            ErrorKind::Forbidden
            | ErrorKind::Unsupported
            | ErrorKind::NotFound
            | ErrorKind::Conflict
                if matches!(step, Step::FailOver { .. }) =>
            {
                memory.not_failed_over(&id, now);
                Ok(Applied::Later {
                    after: self.pace_with(&memory),
                })
            }
            _ => {
                memory.doubt(&id, now);
                Err(error)
            }
        }
    }

    async fn write_octavia(&self, step: &Step, graph: Option<&mut Graph>) -> Result<(), ApiError> {
        let mut unread = Graph::default();
        let graph = graph.unwrap_or(&mut unread);
        match step {
            Step::UpdateLoadBalancer {
                load_balancer,
                changes,
            } => {
                let row = self
                    .cloud
                    .update_load_balancer(load_balancer, &json!(changes))
                    .await?;
                let mut memory = self.memory();
                memory
                    .balancers
                    .entry(load_balancer.clone())
                    .or_default()
                    .row = row;
                Ok(())
            }
            Step::FailOver { load_balancer } => self.cloud.failover(load_balancer).await,
            Step::DeleteLoadBalancer {
                load_balancer,
                cascade,
            } => {
                self.cloud
                    .delete_load_balancer(load_balancer, *cascade)
                    .await?;
                *graph = Graph::default();
                self.memory().floating_written = Some(afterwards());
                // Whose load balancer it was a second one of need not look again.
                let going = |all: &mut Vec<(LoadBalancer, Instant)>| {
                    for (row, _) in all.iter_mut().filter(|(row, _)| row.id == *load_balancer) {
                        row.provisioning_status = Provisioning::PendingDelete;
                    }
                };
                self.lists.roster.amend(going).await;
                Ok(())
            }
            Step::TryListener {
                load_balancer,
                listener,
            } => {
                let mut body = bodies::listener(listener);
                body.insert("loadbalancer_id".into(), json!(load_balancer));
                body.insert("admin_state_up".into(), false.into());
                let created = self.cloud.create_listener(&body.into()).await?;
                graph
                    .listeners
                    .push(settled(created, |it| &mut it.provisioning_status));
                Ok(())
            }
            Step::CreateListener {
                load_balancer,
                listener,
                pool,
            } => {
                let mut body = bodies::listener(listener);
                body.insert("loadbalancer_id".into(), json!(load_balancer));
                if let Some(pool) = pool {
                    body.insert("default_pool_id".into(), json!(pool));
                }
                let created = self.cloud.create_listener(&body.into()).await?;
                let serving = graph
                    .pools
                    .iter_mut()
                    .filter(|it| Some(&it.id) == pool.as_ref());
                for it in serving {
                    it.listeners.push(Ref {
                        id: created.id.clone(),
                    });
                }
                graph
                    .listeners
                    .push(settled(created, |it| &mut it.provisioning_status));
                Ok(())
            }
            Step::UpdateListener {
                listener, changes, ..
            } => {
                let updated = self
                    .cloud
                    .update_listener(listener, &json!(changes))
                    .await?;
                let updated = settled(updated, |it| &mut it.provisioning_status);
                let default = updated.default_pool_id.clone();
                graph.listeners.retain(|it| it.id != *listener);
                graph.listeners.push(updated);
                if changes.contains_key("default_pool_id") {
                    for pool in &mut graph.pools {
                        pool.listeners.retain(|it| it.id != *listener);
                        if Some(&pool.id) == default.as_ref() {
                            pool.listeners.push(Ref {
                                id: listener.clone(),
                            });
                        }
                    }
                }
                Ok(())
            }
            Step::DeleteListener { listener, .. } => {
                self.cloud.delete_listener(listener).await?;
                graph.listeners.retain(|it| it.id != *listener);
                for pool in &mut graph.pools {
                    pool.listeners.retain(|it| it.id != *listener);
                }
                Ok(())
            }
            Step::CreatePool {
                load_balancer,
                listener,
                pool,
            } => {
                let mut body = bodies::pool(pool);
                match listener {
                    Some(listener) => body.insert("listener_id".into(), json!(listener)),
                    None => body.insert("loadbalancer_id".into(), json!(load_balancer)),
                };
                let created = self.cloud.create_pool(&body.into()).await?;
                let created = settled(created, |it| &mut it.provisioning_status);
                for it in &mut graph.listeners {
                    if Some(&it.id) == listener.as_ref() {
                        it.default_pool_id = Some(created.id.clone());
                    }
                }
                graph.pools.push(created);
                Ok(())
            }
            Step::UpdatePool { pool, changes, .. } => {
                let updated = self.cloud.update_pool(pool, &json!(changes)).await?;
                let updated = settled(updated, |it| &mut it.provisioning_status);
                for it in &mut graph.pools {
                    if it.id == *pool {
                        let monitor = it.healthmonitor_id.take();
                        *it = updated.clone();
                        it.healthmonitor_id = it.healthmonitor_id.take().or(monitor);
                    }
                }
                Ok(())
            }
            Step::DeletePool { pool, .. } => {
                self.cloud.delete_pool(pool).await?;
                graph.remove_pool(pool);
                Ok(())
            }
            Step::SetMembers {
                pool,
                members,
                additive,
                leaves,
                ..
            } => {
                self.cloud.set_members(pool, members, *additive).await?;
                graph.members.insert(pool.clone(), leaves.clone());
                Ok(())
            }
            Step::AddMember { pool, member, .. } => {
                let added = self.cloud.create_member(pool, member).await?;
                graph.members.entry(pool.clone()).or_default().push(added);
                Ok(())
            }
            Step::UpdateMember {
                pool,
                address,
                port,
                changes,
                ..
            } => {
                // What is in memory need not know the ids.
                let mut there = self.cloud.members(pool).await?;
                let key = Some((*address, *port));
                for member in there.iter_mut().filter(|it| key_of(it) == key) {
                    let updated = self
                        .cloud
                        .update_member(pool, &member.id, &json!(changes))
                        .await?;
                    *member = settled(updated, |it| &mut it.provisioning_status);
                }
                graph.members.insert(pool.clone(), there);
                Ok(())
            }
            Step::DeleteMember {
                pool,
                address,
                port,
                ..
            } => {
                let there = self.cloud.members(pool).await?;
                let key = Some((*address, *port));
                for member in there.iter().filter(|it| key_of(it) == key) {
                    self.cloud.delete_member(pool, &member.id).await?;
                }
                if let Some(members) = graph.members.get_mut(pool) {
                    members.retain(|it| key_of(it) != key);
                }
                Ok(())
            }
            Step::CreateMonitor { pool, monitor, .. } => {
                let mut body = bodies::monitor(monitor);
                body.insert("pool_id".into(), json!(pool));
                let created = self.cloud.create_monitor(&body.into()).await?;
                for it in &mut graph.pools {
                    if it.id == *pool {
                        it.healthmonitor_id = Some(created.id.clone());
                    }
                }
                graph.monitors.push(created);
                Ok(())
            }
            Step::UpdateMonitor {
                monitor, changes, ..
            } => {
                let updated = self.cloud.update_monitor(monitor, &json!(changes)).await?;
                graph.monitors.retain(|it| it.id != *monitor);
                graph.monitors.push(updated);
                Ok(())
            }
            Step::DeleteMonitor { monitor, .. } => {
                self.cloud.delete_monitor(monitor).await?;
                graph.monitors.retain(|it| it.id != *monitor);
                for pool in &mut graph.pools {
                    if pool.healthmonitor_id.as_ref() == Some(monitor) {
                        pool.healthmonitor_id = None;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
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

/// What is being changed will be as the answer says.
fn settled<T>(mut object: T, status: impl Fn(&mut T) -> &mut crate::objects::Provisioning) -> T {
    *status(&mut object) = crate::objects::Provisioning::Active;
    object
}
