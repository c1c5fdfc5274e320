//! Writes to Octavia.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{ApiError, ErrorKind};
use crate::graph::{Graph, key_of};
use crate::memory::{Known, afterwards};
use crate::names::{SERVICE_PREFIX, SHARER_PREFIX};
use crate::objects::{Id, LoadBalancer, Provisioning, Ref};
use crate::provider::OpenStack;
use crate::requests::{ListenerRequest, MonitorRequest, PoolRequest};
use crate::step::Step;

impl OpenStack {
    /// Carries out a change of a load balancer, and makes it in the graph that is remembered, too.
    pub(super) async fn write_octavia(
        &self,
        step: &Step,
        graph: Option<&mut Graph>,
    ) -> Result<(), ApiError> {
        let mut unread = Graph::default();
        let graph = graph.unwrap_or(&mut unread);
        match step {
            Step::TryListener { .. }
            | Step::CreateListener { .. }
            | Step::UpdateListener { .. }
            | Step::DeleteListener { .. } => self.write_listener(step, graph).await,
            Step::CreatePool { .. } | Step::UpdatePool { .. } | Step::DeletePool { .. } => {
                self.write_pool(step, graph).await
            }
            Step::SetMembers { .. }
            | Step::AddMember { .. }
            | Step::UpdateMember { .. }
            | Step::DeleteMember { .. } => self.write_members(step, graph).await,
            Step::CreateMonitor { .. }
            | Step::UpdateMonitor { .. }
            | Step::DeleteMonitor { .. } => self.write_monitor(step, graph).await,
            _ => self.write_load_balancer(step, graph).await,
        }
    }

    /// Changes, fails over or deletes a load balancer.
    async fn write_load_balancer(&self, step: &Step, graph: &mut Graph) -> Result<(), ApiError> {
        match step {
            Step::UpdateLoadBalancer {
                load_balancer,
                changes,
                seen,
            } => {
                if let Some(tags) = &changes.tags {
                    self.check_tags(load_balancer, seen, tags).await?;
                }
                let body = json!(changes);
                let row = self.cloud.update_load_balancer(load_balancer, &body);
                self.renew(row.await?).await;
            }
            Step::FailOver { load_balancer } => self.cloud.failover(load_balancer).await?,
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
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks that the tags of a load balancer that others use are still those from which the new
    /// ones were made: what was read of it may be some seconds old, and Octavia replaces all.
    ///
    /// # Errors
    /// `Stale`: others have changed them.
    async fn check_tags(&self, id: &Id, seen: &[String], tags: &[String]) -> Result<(), ApiError> {
        let made = |known: &Known| known.row.name.starts_with(SERVICE_PREFIX);
        let made = self.memory().balancers.get(id).is_some_and(made);
        let all: BTreeSet<&String> = seen.iter().chain(tags).collect();
        let users = all.iter().filter(|tag| tag.starts_with(SERVICE_PREFIX));
        let shared = all.iter().any(|tag| tag.starts_with(SHARER_PREFIX));
        if made && !shared && users.count() < 2 {
            return Ok(());
        }
        let Some(now) = self.cloud.load_balancer(id).await? else {
            return Ok(());
        };
        let set = |tags: &[String]| -> BTreeSet<String> { tags.iter().cloned().collect() };
        if set(&now.tags) == set(seen) {
            return Ok(());
        }
        self.renew(now).await;
        Err(ApiError::ours(
            ErrorKind::Stale,
            &format!("GET /v2/lbaas/loadbalancers/{id}"),
            "its tags were changed meanwhile",
        ))
    }

    /// Replaces what is remembered of a load balancer by what the cloud has just said.
    async fn renew(&self, row: LoadBalancer) {
        let renew = |all: &mut Vec<(LoadBalancer, Instant)>| {
            for (it, _) in all.iter_mut().filter(|(it, _)| it.id == row.id) {
                it.tags.clone_from(&row.tags);
                it.name.clone_from(&row.name);
            }
        };
        self.lists.roster.amend(renew).await;
        let mut memory = self.memory();
        let id = row.id.clone();
        memory.balancers.entry(id).or_default().row = row;
    }

    /// Creates, changes or deletes a listener.
    async fn write_listener(&self, step: &Step, graph: &mut Graph) -> Result<(), ApiError> {
        match step {
            Step::TryListener {
                load_balancer,
                listener,
            } => {
                let body = ListenerRequest {
                    loadbalancer_id: Some(load_balancer.clone()),
                    admin_state_up: Some(false),
                    ..ListenerRequest::new(listener)
                };
                let created = self.cloud.create_listener(&json!(body)).await?;
                graph
                    .listeners
                    .push(settled(created, |it| &mut it.provisioning_status));
            }
            Step::CreateListener {
                load_balancer,
                listener,
                pool,
            } => {
                let body = ListenerRequest {
                    loadbalancer_id: Some(load_balancer.clone()),
                    default_pool_id: pool.clone(),
                    ..ListenerRequest::new(listener)
                };
                let created = self.cloud.create_listener(&json!(body)).await?;
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
                if changes.default_pool_id.is_some() {
                    for pool in &mut graph.pools {
                        pool.listeners.retain(|it| it.id != *listener);
                        if Some(&pool.id) == default.as_ref() {
                            pool.listeners.push(Ref {
                                id: listener.clone(),
                            });
                        }
                    }
                }
            }
            Step::DeleteListener { listener, .. } => {
                self.cloud.delete_listener(listener).await?;
                graph.listeners.retain(|it| it.id != *listener);
                for pool in &mut graph.pools {
                    pool.listeners.retain(|it| it.id != *listener);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Creates, changes or deletes a pool.
    async fn write_pool(&self, step: &Step, graph: &mut Graph) -> Result<(), ApiError> {
        match step {
            Step::CreatePool {
                load_balancer,
                listener,
                pool,
            } => {
                let alone = listener.is_none().then(|| load_balancer.clone());
                let body = PoolRequest {
                    listener_id: listener.clone(),
                    loadbalancer_id: alone,
                    ..PoolRequest::new(pool)
                };
                let created = self.cloud.create_pool(&json!(body)).await?;
                let created = settled(created, |it| &mut it.provisioning_status);
                for it in &mut graph.listeners {
                    if Some(&it.id) == listener.as_ref() {
                        it.default_pool_id = Some(created.id.clone());
                    }
                }
                graph.pools.push(created);
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
            }
            Step::DeletePool { pool, .. } => {
                self.cloud.delete_pool(pool).await?;
                graph.remove_pool(pool);
            }
            _ => {}
        }
        Ok(())
    }

    /// Sets, adds, changes or deletes members.
    async fn write_members(&self, step: &Step, graph: &mut Graph) -> Result<(), ApiError> {
        match step {
            Step::SetMembers {
                pool,
                members,
                additive,
                leaves,
                ..
            } => {
                let bodies: Vec<Value> = members.iter().map(|it| json!(it)).collect();
                self.cloud.set_members(pool, &bodies, *additive).await?;
                graph.members.insert(pool.clone(), leaves.clone());
            }
            Step::AddMember { pool, member, .. } => {
                let added = self.cloud.create_member(pool, &json!(member)).await?;
                graph.members.entry(pool.clone()).or_default().push(added);
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
            }
            _ => {}
        }
        Ok(())
    }

    /// Creates, changes or deletes a monitor.
    async fn write_monitor(&self, step: &Step, graph: &mut Graph) -> Result<(), ApiError> {
        match step {
            Step::CreateMonitor { pool, monitor, .. } => {
                let body = MonitorRequest {
                    pool_id: Some(pool.clone()),
                    ..MonitorRequest::new(monitor)
                };
                let created = self.cloud.create_monitor(&json!(body)).await?;
                for it in &mut graph.pools {
                    if it.id == *pool {
                        it.healthmonitor_id = Some(created.id.clone());
                    }
                }
                graph.monitors.push(created);
            }
            Step::UpdateMonitor {
                monitor, changes, ..
            } => {
                let updated = self.cloud.update_monitor(monitor, &json!(changes)).await?;
                graph.monitors.retain(|it| it.id != *monitor);
                graph.monitors.push(updated);
            }
            Step::DeleteMonitor { monitor, .. } => {
                self.cloud.delete_monitor(monitor).await?;
                graph.monitors.retain(|it| it.id != *monitor);
                for pool in &mut graph.pools {
                    if pool.healthmonitor_id.as_ref() == Some(monitor) {
                        pool.healthmonitor_id = None;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// What is being changed will be as the answer says.
fn settled<T>(mut object: T, status: impl Fn(&mut T) -> &mut crate::objects::Provisioning) -> T {
    *status(&mut object) = crate::objects::Provisioning::Active;
    object
}
