//! Starting reconciles: those that are due and have a slot.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use landfall_model::ServiceKey;
use landfall_model::provider::Provider;

use super::ends::Running;
use super::tracked::Tracked;
use super::{Engine, EngineConfig, RECONCILE_LIMIT, WorkItem, clock};
use crate::instance::InstanceId;
use crate::reconcile::{Job, Outcome, Reconcile, ReconcileEnd};
use crate::report::Report;
use crate::select::{Classes, Ownership};
use crate::store::Record;
use crate::world::World;

/// How many Services are prepared before facts are taken in again.
const AT_ONCE: usize = 32;

// === impl Engine ===

impl<P: Provider, R: Report> Engine<P, R> {
    /// Starts some of those that are due. Returns whether there may be more of them: facts come in
    /// between, so that a namespace with many delays no other one.
    pub(super) fn start_passes(&mut self) -> bool {
        for _ in 0..AT_ONCE {
            if !self.at_work {
                return false;
            }
            let Self {
                queue,
                tracked,
                world,
                config,
                handle,
                ..
            } = self;
            let several = handle.providers.len();
            let lane_of = |key: &ServiceKey| {
                let instance = lane(key, tracked, world, &config.classes);
                instance.map_or(several, InstanceId::lane)
            };
            let Some(key) = queue.take(clock(), lane_of) else {
                return false;
            };
            match self.prepare(&key) {
                Some(item) => self.start(key, item),
                None => self.queue.finish(&key),
            }
        }
        true
    }

    pub(super) fn start(&mut self, key: ServiceKey, item: WorkItem) {
        let WorkItem { mut job, owners } = item;
        if let Some(tracked) = self.tracked.get_mut(&key) {
            tracked.history.begin(&mut job, clock());
        }
        let providers: Vec<Arc<P>> = owners
            .iter()
            .filter_map(|instance| instance.of(&self.handle.providers).cloned())
            .collect();
        let reporter = self.reporter.clone();
        let (metrics, now) = (self.handle.metrics.clone(), self.config.now);
        self.note_start(&job, owners.first);
        let calls = self.waiting.calls(owners.first);
        let running = Running::new(key, owners, calls, &job);
        // A reconcile holds its whole job, and a task is moved several times until it is where it
        // runs.
        let task = self.reconciles.spawn(Box::pin(async move {
            let started = clock();
            let end = {
                let reconciles = pin!(async {
                    let mut end = None;
                    for (position, provider) in providers.iter().enumerate() {
                        let reconcile = Reconcile {
                            provider: &**provider,
                            reporter: &*reporter,
                            metrics: &metrics,
                            now,
                        };
                        job.releases_finalizer = position + 1 == providers.len();
                        let ended = end.insert(reconcile.run(&job).await);
                        if ended.outcome != Outcome::Removed {
                            break;
                        }
                    }
                    end.unwrap_or_else(|| ReconcileEnd::nothing(&job))
                });
                tokio::time::timeout(RECONCILE_LIMIT, reconciles).await
            };
            let end = end.unwrap_or_else(|_| ReconcileEnd::broken_off(&job, RECONCILE_LIMIT));
            (started.elapsed(), end)
        }));
        self.running.insert(task.id(), running);
    }

    /// Keeps the row of the record current, so that the book never lags behind the source.
    pub(super) fn note_start(&self, job: &Job, instance: InstanceId) {
        let instance = Some(instance);
        let Some(row) = &job.row else { return };
        let spec = job
            .intent
            .as_ref()
            .and_then(|intent| intent.load_balancer.as_ref());
        let address = spec.map(|spec| &spec.address);
        let left_out = spec.map(|spec| spec.left_out.clone()).unwrap_or_default();
        let kept = self.world.keep(row);
        self.handle.store.write(|pages| {
            if !pages.records.contains_key(&row.key) {
                let mut record = Record {
                    reasons: pages.share(job.errors.clone()),
                    ..Record::new(kept.clone())
                };
                record.set_status(job.status.clone());
                pages.records.insert(row.key.clone(), record);
            }
            let Some(record) = pages.records.get_mut(&row.key) else {
                return;
            };
            record.set_row(kept);
            record.instance = instance;
            record.set_address(address);
            record.left_out = left_out;
        });
    }
}

/// Reconciles at the same time: of each instance, and of removals that ask several.
pub(super) fn slots<P: Provider, R: Report>(
    config: &EngineConfig,
    providers: &[Arc<P>],
    reporter: &R,
) -> Vec<usize> {
    let of = |provider: &Arc<P>| {
        if provider.profile().immediate {
            reporter.at_once()
        } else {
            config.concurrency
        }
    };
    let several = std::iter::once(config.concurrency);
    providers.iter().map(of).chain(several).collect()
}

/// Whose slots a reconcile of a Service takes: those of the instance that holds something of it, or
/// that it is for; `None`: of several, perhaps.
pub(super) fn lane(
    key: &ServiceKey,
    tracked: &HashMap<ServiceKey, Box<Tracked>>,
    world: &World,
    classes: &Classes,
) -> Option<InstanceId> {
    if let Some(tracked) = tracked.get(key)
        && let Some(owners) = &tracked.owners
    {
        return owners.further.is_empty().then_some(owners.first);
    }
    let affiliation = world.affiliation(key)?;
    let namespace = world.namespace(key.namespace());
    match classes.validate_affiliation(affiliation, namespace.map(AsRef::as_ref)) {
        Ownership::Ours(instance) => Some(instance),
        Ownership::NotOurs | Ownership::UnknownClass | Ownership::SwitchedOff => None,
    }
}
