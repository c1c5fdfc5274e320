//! The seam to the running program: what the admin endpoint asks it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::ServiceKey;
use landfall_model::view::{InstanceView, MetricsView, ServiceView};
use tokio::sync::watch;

/// A running instance as the admin endpoint sees it. Every method but [`Instance::plan`] and
/// [`Instance::service`] answers from memory and returns at once.
pub trait Instance: Send + Sync + 'static {
    /// Everything there is to show, with traffic counted up to this moment.
    fn view(&self) -> Arc<InstanceView>;

    /// Whether each Service was handled once. Asked by each probe: not by way of all there is to
    /// show.
    fn readiness(&self) -> Readiness;

    /// One Service, as in [`Self::view`], and not by way of it.
    fn service(&self, key: &ServiceKey) -> impl Future<Output = Option<ServiceView>> + Send;

    /// Some Services that may have been meant by a name that none has: see [`similar`].
    fn similar(&self, key: &ServiceKey) -> Vec<ServiceKey>;

    /// What the engine counts about its own work.
    fn metrics(&self) -> MetricsView;

    /// A number that rises whenever something other than a counter changed in the view.
    fn changed(&self) -> watch::Receiver<u64>;

    /// When the control loop last turned.
    fn heartbeat(&self) -> Heartbeat;

    /// The LoadBalancer Services as a Kubernetes `v1` `List`.
    fn services_json(&self) -> serde_json::Value;

    /// The steps that the given manifests (YAML or JSON, many documents) would cause. Changes
    /// nothing. With `prune`, Services that are not in them are taken as deleted.
    fn plan(
        &self,
        manifests: Vec<u8>,
        prune: bool,
    ) -> impl Future<Output = Result<serde_json::Value, PlanError>> + Send;
}

/// Whether an instance is ready, and what it waits for otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Whether it is.
    pub ready: bool,
    /// What it waits for; of many things some, and how many there are.
    pub waiting: Vec<String>,
}

/// The largest number of names that are listed in place of one that does not exist.
const NAMED: usize = 3;

/// Returns some of these names: those of the same Service elsewhere, else the first of all.
pub fn similar<'a>(
    key: &ServiceKey,
    keys: impl Iterator<Item = &'a ServiceKey> + Clone,
) -> Vec<ServiceKey> {
    let same_name = keys.clone().filter(|other| other.name() == key.name());
    let named: Vec<ServiceKey> = same_name.take(NAMED).cloned().collect();
    if named.is_empty() {
        return keys.take(NAMED).cloned().collect();
    }
    named
}

/// A sign of life of the control loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// How long ago the loop last turned.
    pub age: Duration,
    /// The age from which on the loop is taken for stuck.
    pub limit: Duration,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// What was sent holds no manifests that can be read.
    #[error("the manifests can't be read: {0}")]
    Unreadable(String),
    /// The instance can't plan at the moment.
    #[error("no plan can be made now: {0}")]
    Unavailable(String),
}

// === impl Heartbeat ===

impl Heartbeat {
    /// Whether the loop turned recently enough.
    pub fn alive(self) -> bool {
        self.age <= self.limit
    }
}
