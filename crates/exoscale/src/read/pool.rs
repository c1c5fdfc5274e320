//! The instance pool of a Service: given, of a nodepool, configured, or that of its nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use landfall_model::intent::NodeTarget;
use landfall_model::{Code, Intent, Reason};
use tokio::time::Instant;

use crate::client::{ApiError, ErrorKind};
use crate::memory::Instances;
use crate::objects::{Id, Instance, LoadBalancer, ManagerType, SksCluster};
use crate::options;
use crate::ownership::Owner;
use crate::provider::Exoscale;

/// Instances are listed again for nodes that are not known, but not more often than this.
const LIST_AGAIN: Duration = Duration::from_secs(60);
const PREFIX: &str = "exoscale://";
const ANNOTATION: &str = "service.beta.kubernetes.io/exoscale-loadbalancer-service-instancepool-id";

/// The pool, and whether it was inferred.
type Chosen = (Result<Id, Box<Reason>>, bool);

impl Exoscale {
    /// Returns the instance pool of a Service, or why none is known, and whether it was inferred.
    pub(super) async fn pool(
        &self,
        want: &Intent,
        owner: &Owner,
        have: Option<&LoadBalancer>,
    ) -> Result<Chosen, ApiError> {
        let Some(spec) = &want.load_balancer else {
            return Ok((Err(Box::new(unknown())), false));
        };
        let options = &want.extensions.exoscale;
        match (&options.sks_cluster, &options.sks_nodepool) {
            (Some(cluster), Some(nodepool)) => {
                let clusters = self.sks_clusters().await?;
                let found = of_nodepool(&clusters, &cluster.value, &nodepool.value);
                let found = found.map_err(|(is_cluster, message)| {
                    let given = if is_cluster { cluster } else { nodepool };
                    let reason = Reason::error(Code::CloudObjectNotFound, message)
                        .at_annotation(&given.annotation)
                        .value(given.value.as_str());
                    Box::new(reason.remedy("write the name of one in the zone of the instance"))
                });
                return Ok((found, false));
            }
            (Some(given), None) | (None, Some(given)) => {
                let other = if options.sks_cluster.is_some() {
                    "service-sks-nodepool-name"
                } else {
                    "sks-cluster-name"
                };
                let message = "the cluster and the nodepool are both needed to find a nodepool";
                let remedy =
                    format!("set service.beta.kubernetes.io/exoscale-loadbalancer-{other}");
                let reason = Reason::error(Code::ConflictingOptions, message)
                    .at_annotation(&given.annotation)
                    .value(given.value.as_str());
                return Ok((Err(Box::new(reason.remedy(remedy))), false));
            }
            (None, None) => {}
        }
        let given = match options::id(options.instance_pool.as_ref()) {
            Err(reason) => return Ok((Err(reason), false)),
            Ok(given) => given,
        };
        let recorded = owner.record.as_ref().and_then(|it| it.inferred.as_ref());
        if let Some(pool) = given
            && Some(&pool) != recorded
        {
            // The reference wrote what it inferred.
            let taken_over = owner.record.is_none() && options.load_balancer.is_some();
            if taken_over && self.inferred(&spec.nodes).await? == Ok(pool.clone()) {
                return Ok((Ok(pool), true));
            }
            return Ok((self.existing(pool, have).await?, false));
        }
        if let Some(pool) = &self.settings.instance_pool {
            return Ok((self.existing(pool.clone(), have).await?, true));
        }
        Ok((self.inferred(&spec.nodes).await?, true))
    }

    /// Returns a pool if it exists.
    async fn existing(
        &self,
        pool: Id,
        have: Option<&LoadBalancer>,
    ) -> Result<Result<Id, Box<Reason>>, ApiError> {
        let services = have.map_or(&[][..], |it| &it.services);
        let mut pools = services.iter().filter_map(|it| it.instance_pool.as_ref());
        // Before anything is removed for its sake it is read again.
        let serves = !services.is_empty();
        if pools.any(|it| it.id == pool) || (!serves && self.memory().pools.contains(&pool)) {
            return Ok(Ok(pool));
        }
        if self.cloud.instance_pool(&pool).await?.is_some() {
            self.memory().pools.insert(pool.clone());
            return Ok(Ok(pool));
        }
        let clusters = self.sks_clusters().await.unwrap_or_default();
        let mut nodepools = clusters.iter().flat_map(|it| &it.nodepools);
        let nodepool = nodepools.find(|it| it.id == pool);
        let remedy = match nodepool.and_then(|it| it.instance_pool.as_ref()) {
            Some(pool) => format!(
                "this is the id of a nodepool, as some versions of Exoscale's controller wrote \
                 it: write {} or remove it",
                pool.id
            ),
            None => "write the id of one in the zone of the instance, or remove it".to_owned(),
        };
        let reason = Reason::error(Code::CloudObjectNotFound, "no such instance pool");
        let reason = reason.at_annotation(ANNOTATION).value(pool.as_str());
        Ok(Err(Box::new(reason.remedy(remedy))))
    }

    /// Returns the pool of the nodes.
    async fn inferred(&self, nodes: &[NodeTarget]) -> Result<Result<Id, Box<Reason>>, ApiError> {
        let stale = {
            let memory = self.memory();
            let known = infer(nodes, &memory.instances.pools);
            let listed_at = memory.instances.listed_at;
            let old = listed_at.is_none_or(|at| at.elapsed() >= LIST_AGAIN);
            // A new node is taken to be of the pool of the others until the next audit.
            old && known.is_err()
        };
        if stale && let Err(error) = self.list_instances().await {
            // Nothing else has to wait for a permission.
            if error.kind != ErrorKind::Forbidden {
                return Err(error);
            }
            let message = format!("the instances can't be read: {}", error.without_id());
            let remedy = format!("allow list-instances, or set {ANNOTATION}");
            let reason = Reason::error(Code::ProviderFailed, message);
            return Ok(Err(Box::new(reason.remedy(remedy))));
        }
        let mut memory = self.memory();
        let Instances { pools, used, .. } = &mut memory.instances;
        for node in nodes {
            let key = key(node);
            if !used.contains_key(key) {
                used.insert(key.to_owned(), of_node(node, pools).cloned());
            }
        }
        Ok(infer(nodes, pools))
    }

    /// Reads all instances; returns whether the pool of a node has changed.
    pub(crate) async fn list_instances(&self) -> Result<bool, ApiError> {
        let at = Instant::now();
        let instances = self.cloud.instances().await?;
        let mut memory = self.memory();
        let known = &mut memory.instances;
        known.listed_at = Some(at);
        known.pools = instances.iter().flat_map(by_id_and_name).collect();
        let pools = &known.pools;
        let mut changed = false;
        known.used.retain(|key, before| {
            let now = pools.get(key).cloned().flatten();
            changed |= now != *before;
            *before = now;
            before.is_some()
        });
        Ok(changed)
    }

    async fn sks_clusters(&self) -> Result<Vec<SksCluster>, ApiError> {
        self.cloud.sks_clusters().await
    }
}

fn by_id_and_name(instance: &Instance) -> [(String, Option<Id>); 2] {
    let manager = instance.manager.as_ref();
    let manager = manager.filter(|it| it.kind == ManagerType::InstancePool);
    let pool = manager.map(|it| it.id.clone());
    [
        (instance.id.as_str().to_owned(), pool.clone()),
        (instance.name.clone(), pool),
    ]
}

/// Returns the id of the instance of a node, or its name where the node does not name an instance.
fn key(node: &NodeTarget) -> &str {
    let id = node.provider_id.as_deref();
    id.map_or(&node.name, |id| id.strip_prefix(PREFIX).unwrap_or(id))
}

/// Returns the pool of a node's instance; `None`: it is of no pool, or there is none.
fn of_node<'a>(node: &NodeTarget, pools: &'a BTreeMap<String, Option<Id>>) -> Option<&'a Id> {
    pools.get(key(node))?.as_ref()
}

/// Returns the one pool that nodes are of. Nodes of other clouds, and instances of no pool, count
/// for nothing.
fn infer(nodes: &[NodeTarget], pools: &BTreeMap<String, Option<Id>>) -> Result<Id, Box<Reason>> {
    let found = nodes.iter().filter_map(|node| of_node(node, pools));
    let found: BTreeSet<&Id> = found.collect();
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(pool), None) => Ok(pool.clone()),
        (None, _) => Err(Box::new(unknown())),
        (Some(first), Some(second)) => {
            let message = format!("the nodes are of several instance pools: {first}, {second}");
            let reason = Reason::error(Code::InvalidCloudOption, message);
            let remedy = format!("choose one of them in {ANNOTATION}");
            Err(Box::new(reason.remedy(remedy)))
        }
    }
}

fn unknown() -> Reason {
    let message = "no node is an instance of an instance pool";
    let reason = Reason::error(Code::CloudObjectNotFound, message);
    reason.remedy(format!("name the pool in {ANNOTATION}"))
}

/// Finds the pool of a nodepool: of the one cluster of this name or id, the first nodepool of this
/// name.
///
/// # Errors
/// Whether it is about the cluster, and why.
fn of_nodepool(
    clusters: &[SksCluster],
    cluster: &str,
    nodepool: &str,
) -> Result<Id, (bool, &'static str)> {
    let mut matching = clusters
        .iter()
        .filter(|it| it.name == cluster || it.id.as_str() == cluster);
    let found = match (matching.next(), matching.next()) {
        (Some(found), None) => found,
        (None, _) => return Err((true, "there is no such SKS cluster")),
        (Some(_), Some(_)) => return Err((true, "several SKS clusters have this name")),
    };
    let mut nodepools = found.nodepools.iter();
    let pool = nodepools.find_map(|it| {
        let pool = it.instance_pool.as_ref()?;
        it.name
            .eq_ignore_ascii_case(nodepool)
            .then(|| pool.id.clone())
    });
    pool.ok_or((
        false,
        "the SKS cluster has no such nodepool with an instance pool",
    ))
}

#[cfg(test)]
mod tests;
