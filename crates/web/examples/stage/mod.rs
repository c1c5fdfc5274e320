//! A stage: an [`Instance`] with canned scenes instead of an engine, for the browser tests, the
//! fixture server and the screenshots. Counters rise with time, so that rates can be seen.

pub mod build;
pub mod scenes;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use landfall_model::ServiceKey;
use landfall_model::view::{InstanceView, MetricsView, ServiceView, TrafficView};
use landfall_web::{Heartbeat, Instance, PlanError, Readiness};
use tokio::sync::watch;

/// Plays one scene; [`Stage::play`] changes it under the eyes of the reader.
pub struct Stage {
    scene: Mutex<Arc<InstanceView>>,
    change: watch::Sender<u64>,
    began: Instant,
    heartbeat_age: Mutex<Duration>,
    views: AtomicUsize,
}

// === impl Stage ===

impl Stage {
    /// Opens with a scene.
    pub fn new(scene: InstanceView) -> Arc<Self> {
        Arc::new(Self {
            scene: Mutex::new(Arc::new(scene)),
            change: watch::Sender::new(1),
            began: Instant::now(),
            heartbeat_age: Mutex::new(Duration::from_millis(20)),
            views: AtomicUsize::new(0),
        })
    }

    /// Switches to another scene and notifies all clients.
    pub fn play(&self, scene: InstanceView) {
        *self.scene.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(scene);
        self.change.send_modify(|change| *change += 1);
    }

    /// How often all there is to show was asked for.
    #[allow(dead_code, reason = "only tests ask")]
    pub fn views(&self) -> usize {
        self.views.load(Ordering::Relaxed)
    }

    fn scene(&self) -> Arc<InstanceView> {
        let scene = self.scene.lock();
        scene.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says how long ago the control loop turned.
    pub fn set_heartbeat_age(&self, age: Duration) {
        *self
            .heartbeat_age
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = age;
    }

    /// Counts that have risen since the stage was opened: each canned count is taken as the count
    /// after ten minutes, and rises on at that pace, in waves.
    fn risen(&self, traffic: &mut TrafficView) {
        let elapsed = self.began.elapsed();
        let wave = (elapsed.as_secs_f64() * 0.9).sin() * 600.0;
        let share = elapsed
            .as_millis()
            .saturating_add_signed(wave as i128)
            .min(u64::MAX.into());
        let rise = |count: &mut u64| *count += *count * (share as u64) / 600_000;
        rise(&mut traffic.connections);
        rise(&mut traffic.bytes_in);
        rise(&mut traffic.bytes_out);
    }
}

impl Instance for Stage {
    fn view(&self) -> Arc<InstanceView> {
        self.views.fetch_add(1, Ordering::Relaxed);
        let mut view = InstanceView::clone(&self.scene());
        for listener in view
            .services
            .iter_mut()
            .flat_map(|service| &mut service.listeners)
        {
            self.risen(&mut listener.traffic);
            for member in &mut listener.members {
                self.risen(&mut member.traffic);
            }
        }
        Arc::new(view)
    }

    fn readiness(&self) -> Readiness {
        let scene = self.scene();
        Readiness {
            ready: scene.ready,
            waiting: scene.waiting.clone(),
        }
    }

    async fn service(&self, key: &ServiceKey) -> Option<ServiceView> {
        let scene = self.scene();
        let found = scene.services.iter().find(|service| service.key == *key);
        found.cloned()
    }

    fn similar(&self, key: &ServiceKey) -> Vec<ServiceKey> {
        let scene = self.scene();
        landfall_web::similar(key, scene.services.iter().map(|service| &service.key))
    }

    fn metrics(&self) -> MetricsView {
        scenes::metrics()
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.change.subscribe()
    }

    fn heartbeat(&self) -> Heartbeat {
        Heartbeat {
            age: *self
                .heartbeat_age
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
            limit: Duration::from_secs(30),
        }
    }

    fn services_json(&self) -> serde_json::Value {
        let view = self.view();
        let items = view.services.iter().map(|service| {
            serde_json::json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"namespace": service.key.namespace(), "name": service.key.name()},
            })
        });
        serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items.collect::<Vec<_>>()})
    }

    async fn plan(&self, manifests: Vec<u8>, prune: bool) -> Result<serde_json::Value, PlanError> {
        match String::from_utf8(manifests) {
            Ok(text) if text.starts_with("stuck") => Err(PlanError::Unavailable(
                "the sources are not read yet".into(),
            )),
            Ok(text) => Ok(serde_json::json!({"bytes": text.len(), "prune": prune})),
            Err(error) => Err(PlanError::Unreadable(error.to_string())),
        }
    }
}
