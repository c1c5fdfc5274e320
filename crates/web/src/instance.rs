//! The seam to the running program: what the admin endpoint asks it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::view::{InstanceView, MetricsView};
use tokio::sync::watch;

/// A running instance as the admin endpoint sees it. Every method but [`Instance::plan`] answers
/// from memory and returns at once.
pub trait Instance: Send + Sync + 'static {
    /// Everything there is to show, with traffic counted up to this moment.
    fn view(&self) -> Arc<InstanceView>;

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
