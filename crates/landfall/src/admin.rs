//! The admin endpoint's view of the running instance.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_engine::{Classes, EngineHandle};
use landfall_model::ServiceKey;
use landfall_model::view::{InstanceView, MetricsView, ServiceView};
use landfall_model::wire::service_list;
use landfall_web::{Heartbeat, PlanError, Readiness};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::backend::Backend;
use crate::routers::RoutersView;
use crate::{dry_run, logging};

pub mod client;
pub mod speaker;
pub mod view;

/// A loop that has not turned for this long is stuck: it turns every second when idle, and never
/// waits for anything outside.
const STUCK: Duration = Duration::from_secs(15);

/// Why an instance that works is not ready.
const LEAVING: &str = "it is stopping, or another process takes over";

/// Answers for a running instance.
#[derive(Debug)]
pub struct AdminApi {
    handle: EngineHandle<Backend>,
    classes: Classes,
    started: String,
    leaving: CancellationToken,
    /// Where this machine announces its addresses to routers.
    routers: Option<RoutersView>,
}

// === impl AdminApi ===

impl AdminApi {
    /// Creates the API of an engine; `started` is RFC 3339. Once `leaving` is cancelled, the
    /// instance is not ready any more, and the end of its loop is no failure.
    pub fn new(
        handle: EngineHandle<Backend>,
        classes: Classes,
        started: String,
        leaving: CancellationToken,
    ) -> Self {
        Self {
            handle,
            classes,
            started,
            leaving,
            routers: None,
        }
    }

    /// The same, with the sessions with routers.
    pub fn with_routers(self, routers: Option<RoutersView>) -> Self {
        Self { routers, ..self }
    }
}

impl landfall_web::Instance for AdminApi {
    fn view(&self) -> Arc<InstanceView> {
        let mut view = view::instance(&self.handle, &self.started);
        if let Some(routers) = &self.routers {
            routers.add_to(&mut view);
        }
        if self.leaving.is_cancelled() {
            view.ready = false;
            view.waiting.push(LEAVING.to_owned());
        }
        Arc::new(view)
    }

    fn readiness(&self) -> Readiness {
        let mut readiness = view::readiness(&self.handle);
        if self.leaving.is_cancelled() {
            readiness.ready = false;
            readiness.waiting.push(LEAVING.to_owned());
        }
        readiness
    }

    async fn service(&self, key: &ServiceKey) -> Option<ServiceView> {
        let mut view = view::one(&self.handle, key)?;
        if let Some(routers) = &self.routers {
            view.announcements = routers.explain(key);
        }
        Some(view)
    }

    fn similar(&self, key: &ServiceKey) -> Vec<ServiceKey> {
        let store = &self.handle.store;
        store.read(|pages| landfall_web::similar(key, pages.records.keys()))
    }

    fn metrics(&self) -> MetricsView {
        let mut metrics = self.handle.metrics.view();
        metrics.lost_log_lines = logging::lost();
        metrics.left_out_log_lines = logging::left_out();
        let providers = self.handle.providers.iter().zip(self.classes.names());
        for (provider, instance) in providers {
            provider.metrics(instance, &mut metrics);
        }
        metrics
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.handle.store.changes()
    }

    fn heartbeat(&self) -> Heartbeat {
        let age = if self.leaving.is_cancelled() {
            Duration::ZERO
        } else {
            self.handle.heartbeat.age(Instant::now())
        };
        Heartbeat { age, limit: STUCK }
    }

    fn services_json(&self) -> serde_json::Value {
        self.handle.store.read(|pages| {
            service_list(
                pages
                    .records
                    .values()
                    .filter_map(|record| Some((record.row()?, record.shown_status()))),
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
        let sandboxes: Vec<Backend> = self
            .handle
            .providers
            .iter()
            .map(|provider| provider.sandbox())
            .collect();
        let outlook = dry_run::on_top(world, &sandboxes, &self.classes, loaded, prune).await;
        serde_json::to_value(&outlook).map_err(|error| PlanError::Unavailable(error.to_string()))
    }
}
