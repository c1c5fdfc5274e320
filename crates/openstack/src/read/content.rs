//! What is in a load balancer: remembered, vouched for, or read.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_model::Intent;
use tokio::time::Instant;

use super::ObserveError;
use crate::client::ApiError;
use crate::graph::Graph;
use crate::memory::ExpectedGraph;
use crate::objects::{Id, Listener, LoadBalancer, Pool, PoolAlgorithm};
use crate::observed::Content;
use crate::plan::members::as_members;
use crate::provider::OpenStack;
use crate::record::Record;
use crate::settings::OVN;
use crate::target;
use crate::target::WantedListener;

/// Up to so many load balancers, the graphs of all are read at once when several are needed.
const FEW: usize = 200;

impl OpenStack {
    /// Everything in the load balancer, as far as it is needed.
    pub(super) async fn content(
        &self,
        intent: &Intent,
        balancer: &LoadBalancer,
        wanted: &[WantedListener],
    ) -> Result<Content, ObserveError> {
        let fingerprint = target::fingerprint(wanted);
        let expected = {
            let mut memory = self.memory();
            if let Some(graph) = memory.graph(balancer) {
                return Ok(Content::Graph(graph));
            }
            // What was seen before this process began, and has not been changed since.
            let seen = Record::of(intent).is_some_and(|record| {
                record.vouches_for(&balancer.id, balancer.updated_at.as_deref(), &fingerprint)
            });
            let known = memory.balancers.get(&balancer.id);
            let unread = known.is_some_and(|it| it.unread);
            if seen && !unread && !memory.expected.contains_key(&intent.uid) {
                let expected = ExpectedGraph {
                    balancer: balancer.id.clone(),
                    token: balancer.updated_at.clone(),
                    listeners: wanted.to_vec(),
                };
                memory.expected.insert(intent.uid.clone(), expected);
            }
            memory.expected(&intent.uid, balancer).cloned()
        };
        if expected.as_deref() == Some(wanted) {
            let mut pools = wanted.iter().map(|it| &it.pool);
            if balancer.provider == OVN && pools.any(|it| it.algorithm == PoolAlgorithm::SourceIp) {
                self.memory().caches.ovn_takes_source_ip = Some(true);
            }
            return Ok(Content::AsWanted);
        }
        let graph = self.graph(balancer, intent, expected.as_deref()).await?;
        Ok(graph.map_or(Content::Unread, Content::Graph))
    }

    /// Reads the graph; `None`: it is still being changed. Members that are expected are not
    /// read.
    pub(super) async fn graph(
        &self,
        balancer: &LoadBalancer,
        intent: &Intent,
        expected: Option<&[WantedListener]>,
    ) -> Result<Option<Arc<Graph>>, ObserveError> {
        if let Some(graph) = self.memory().graph(balancer) {
            return Ok(Some(graph));
        }
        let mut graph = self.children(balancer).await?;
        let is_settling = |graph: &Graph| {
            self.memory()
                .is_settling(&balancer.id, graph, Instant::now())
        };
        if graph.is_settling() && is_settling(&graph) {
            return Ok(None);
        }
        let mut members = BTreeMap::new();
        for pool in &graph.pools {
            if pool.members.is_empty() && expected.is_none() {
                continue;
            }
            let served = expected.and_then(|expected| served_by(expected, &graph, pool));
            let list = match served {
                Some(wanted) => as_members(&wanted.pool),
                None => self.cloud.members(&pool.id).await?,
            };
            members.insert(pool.id.clone(), list);
        }
        graph.members = members;
        if is_settling(&graph) {
            return Ok(None);
        }
        let graph = Arc::new(graph);
        let mut memory = self.memory();
        memory.expected.remove(&intent.uid);
        memory.has_read(balancer, &graph);
        Ok(Some(graph))
    }

    /// Listeners, pools and monitors: of all load balancers at once where these are few.
    pub(super) async fn children(&self, balancer: &LoadBalancer) -> Result<Graph, ApiError> {
        let of = |parents: &[crate::objects::Ref]| parents.iter().any(|it| it.id == balancer.id);
        let few = self.memory().balancers.len().clamp(1, FEW + 1);
        if !(3..=FEW).contains(&few) {
            let listeners = self.cloud.listeners(Some(&balancer.id)).await?;
            let pools = self.cloud.pools(Some(&balancer.id)).await?;
            let monitored = pools.iter().any(|pool| pool.healthmonitor_id.is_some());
            let monitors = if monitored {
                self.cloud.monitors(None).await?
            } else {
                Vec::new()
            };
            return Ok(Graph {
                listeners,
                monitors: monitors
                    .into_iter()
                    .filter(|it| {
                        pools
                            .iter()
                            .any(|pool| it.pools.iter().any(|of| of.id == pool.id))
                    })
                    .collect(),
                pools,
                members: BTreeMap::new(),
            });
        }
        let since = self.last_touch(&balancer.id);
        let listeners = self
            .lists
            .listeners
            .since(since, async || self.cloud.listeners(None).await)
            .await?;
        let pools = self
            .lists
            .pools
            .since(since, async || self.cloud.pools(None).await)
            .await?;
        let pools: Vec<Pool> = pools
            .iter()
            .filter(|it| of(&it.loadbalancers))
            .cloned()
            .collect();
        let mut monitors = Vec::new();
        if pools.iter().any(|pool| pool.healthmonitor_id.is_some()) {
            let all = self
                .lists
                .monitors
                .since(since, async || self.cloud.monitors(None).await)
                .await?;
            let ours = all.iter().filter(|it| {
                pools
                    .iter()
                    .any(|pool| it.pools.iter().any(|of| of.id == pool.id))
            });
            monitors = ours.cloned().collect();
        }
        Ok(Graph {
            listeners: listeners
                .iter()
                .filter(|it| of(&it.loadbalancers))
                .cloned()
                .collect(),
            pools,
            monitors,
            members: BTreeMap::new(),
        })
    }

    /// From when on a list covers everything that is known to have happened to a load balancer.
    pub(super) fn last_touch(&self, id: &Id) -> Instant {
        let now = Instant::now();
        let recent = now.checked_sub(self.poll_interval()).unwrap_or(now);
        let memory = self.memory();
        let known = memory.balancers.get(id);
        let changed = known.and_then(|known| known.phase.since());
        // What is in it must not be older than the time of its last change that is kept with it.
        let seen = known.and_then(|known| known.seen_at).unwrap_or(recent);
        changed.map_or(seen, |changed| changed.max(seen))
    }
}

/// The listener of those that are expected that a pool serves.
fn served_by<'a>(
    expected: &'a [WantedListener],
    graph: &Graph,
    pool: &Pool,
) -> Option<&'a WantedListener> {
    let serves = |listener: &&Listener| graph.pool_of(listener).is_some_and(|it| it.id == pool.id);
    let listener = graph.listeners.iter().find(serves)?;
    expected
        .iter()
        .find(|it| it.port == listener.protocol_port && it.protocol == listener.protocol)
}
