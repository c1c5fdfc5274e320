//! What is in a load balancer: remembered, vouched for, or read.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_model::Intent;
use tokio::time::Instant;

use super::ObserveError;
use crate::client::ApiError;
use crate::graph::Graph;
use crate::memory::ExpectedGraph;
use crate::objects::{Id, Listener, LoadBalancer, Pool};
use crate::observed::Content;
use crate::plan::members::as_members;
use crate::provider::OpenStack;
use crate::record::Record;
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
        let as_wanted = {
            let mut memory = self.memory();
            let known = memory.balancers.get(&balancer.id);
            let graph = known.and_then(|known| {
                let current = known.dirty.is_some() || known.token == balancer.updated_at;
                known.graph.clone().filter(|_| current)
            });
            if let Some(graph) = graph {
                return Ok(Content::Graph(graph));
            }
            // What was seen before this process began, and has not been touched since.
            let seen = Record::of(intent).is_some_and(|record| {
                record.vouches_for(&balancer.id, balancer.updated_at.as_deref(), &fingerprint)
            });
            let seen = seen && !memory.doubted.contains(&balancer.id);
            if seen && !memory.sketches.contains_key(&intent.uid) {
                let sketch = ExpectedGraph {
                    balancer: balancer.id.clone(),
                    token: balancer.updated_at.clone(),
                    listeners: wanted.to_vec(),
                };
                memory.sketches.insert(intent.uid.clone(), sketch);
            }
            let sketch = memory.sketches.get(&intent.uid);
            let current =
                sketch.filter(|it| it.balancer == balancer.id && it.token == balancer.updated_at);
            current.is_some_and(|it| it.listeners == wanted)
        };
        if as_wanted {
            return Ok(Content::AsWanted);
        }
        let sketch = {
            let memory = self.memory();
            let sketch = memory.sketches.get(&intent.uid);
            sketch
                .filter(|it| it.balancer == balancer.id && it.token == balancer.updated_at)
                .map(|it| it.listeners.clone())
        };
        let graph = self.graph(balancer, intent, sketch.as_deref()).await?;
        Ok(graph.map_or(Content::Unread, Content::Graph))
    }

    /// Reads the graph; `None`: it is still being changed. Members that a sketch tells of are not
    /// read.
    pub(super) async fn graph(
        &self,
        balancer: &LoadBalancer,
        intent: &Intent,
        sketch: Option<&[WantedListener]>,
    ) -> Result<Option<Arc<Graph>>, ObserveError> {
        {
            let memory = self.memory();
            let known = memory.balancers.get(&balancer.id);
            let known = known.filter(|it| it.dirty.is_some() || it.token == balancer.updated_at);
            if let Some(graph) = known.and_then(|known| known.graph.clone()) {
                return Ok(Some(graph));
            }
        }
        let mut graph = self.children(balancer).await?;
        if self
            .memory()
            .is_settling(&balancer.id, &graph, Instant::now())
        {
            return Ok(None);
        }
        let mut members = BTreeMap::new();
        for pool in &graph.pools {
            if pool.members.is_empty() && sketch.is_none() {
                continue;
            }
            let told = sketch.and_then(|sketch| sketched(sketch, &graph, pool));
            let list = match told {
                Some(wanted) => as_members(&wanted.pool),
                None => self.cloud.members(&pool.id).await?,
            };
            members.insert(pool.id.clone(), list);
        }
        graph.members = members;
        let graph = Arc::new(graph);
        let mut memory = self.memory();
        memory.sketches.remove(&intent.uid);
        memory.doubted.remove(&balancer.id);
        let known = memory.balancers.entry(balancer.id.clone()).or_default();
        known.row = balancer.clone();
        known.graph = Some(graph.clone());
        known.changed = false;
        known.token.clone_from(&balancer.updated_at);
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

    /// From when on a list tells of everything that is known to have happened to a load balancer.
    pub(super) fn last_touch(&self, id: &Id) -> Instant {
        let now = Instant::now();
        let recent = now.checked_sub(self.pace()).unwrap_or(now);
        let memory = self.memory();
        let known = memory.balancers.get(id);
        let dirty = known.and_then(|known| known.dirty);
        // What is in it must not be older than the time of its last change that is kept with it.
        let seen = known.and_then(|known| known.seen_at).unwrap_or(recent);
        dirty.map_or(seen, |dirty| dirty.max(seen))
    }
}

/// The listener of a sketch that a pool serves.
pub(super) fn sketched<'a>(
    sketch: &'a [WantedListener],
    graph: &Graph,
    pool: &Pool,
) -> Option<&'a WantedListener> {
    let serves = |listener: &&Listener| graph.pool_of(listener).is_some_and(|it| it.id == pool.id);
    let listener = graph.listeners.iter().find(serves)?;
    sketch
        .iter()
        .find(|it| it.port == listener.protocol_port && it.protocol == listener.protocol)
}
