//! The admin endpoint's view of the running instance.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_engine::{Classes, EngineHandle};
use landfall_model::view::{CloudCallsView, InstanceView, MetricsView};
use landfall_model::wire::service_list;
use landfall_web::{Heartbeat, PlanError};
use tokio::sync::watch;

use crate::platform::Platform;
use crate::{planning, view};

/// A loop that has not turned for this long is stuck: it turns every second when idle, and never
/// waits for anything outside.
const STUCK: Duration = Duration::from_secs(15);

/// Answers for a running instance.
#[derive(Debug)]
pub struct Desk {
    handle: EngineHandle<Platform>,
    classes: Classes,
    started: String,
}

// === impl Desk ===

impl Desk {
    /// A desk for this engine; `started` is RFC 3339.
    pub fn new(handle: EngineHandle<Platform>, classes: Classes, started: String) -> Self {
        Self {
            handle,
            classes,
            started,
        }
    }
}

impl landfall_web::Instance for Desk {
    fn view(&self) -> Arc<InstanceView> {
        Arc::new(view::instance(&self.handle, &self.started))
    }

    fn metrics(&self) -> MetricsView {
        let mut metrics = self.handle.metrics.view();
        let providers = self.handle.providers.iter().zip(self.classes.names());
        for (provider, instance) in providers {
            let Platform::OpenStack(openstack) = &**provider else {
                continue;
            };
            for (key, calls) in openstack.cloud().calls() {
                metrics.cloud_calls.push(CloudCallsView {
                    instance: instance.clone(),
                    method: key.method.to_owned(),
                    resource: key.resource.to_owned(),
                    outcome: key.outcome.to_owned(),
                    count: calls.count,
                    seconds: calls.time.as_secs_f64(),
                });
            }
        }
        metrics
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.handle.book.changes()
    }

    fn heartbeat(&self) -> Heartbeat {
        Heartbeat {
            age: self.handle.pulse.age(Instant::now()),
            limit: STUCK,
        }
    }

    fn services_json(&self) -> serde_json::Value {
        self.handle.book.read(|pages| {
            service_list(
                pages
                    .records
                    .values()
                    .map(|record| (&*record.row, &record.status)),
            )
        })
    }

    async fn plan(&self, manifests: Vec<u8>, prune: bool) -> Result<serde_json::Value, PlanError> {
        let loaded = tokio::task::spawn_blocking(move || landfall_files::load_text(&manifests))
            .await
            .map_err(|error| PlanError::Unavailable(error.to_string()))?;
        let Some(world) = self.handle.world().await else {
            return Err(PlanError::Unavailable(
                "the instance is stopping".to_owned(),
            ));
        };
        let sandboxes: Vec<Platform> = self
            .handle
            .providers
            .iter()
            .map(|provider| provider.sandbox())
            .collect();
        let outlook = planning::on_top(world, &sandboxes, &self.classes, loaded, prune).await;
        serde_json::to_value(&outlook).map_err(|error| PlanError::Unavailable(error.to_string()))
    }
}
