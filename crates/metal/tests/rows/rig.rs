//! A controller with pools, and a cluster in memory. Time is virtual:
//! `#[tokio::test(start_paused = true)]`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use landfall_engine::{Classes, Engine, EngineConfig};
use landfall_metal::{DataPlane, Metal};
use landfall_model::Uid;
use landfall_model::provider::Provider as _;
use landfall_model::rows::{Fact, ResourceKind, ServiceRow, SliceRow};
use landfall_model::view::PoolView;
use landfall_model::wire;
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::svc;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;

/// The note of the pool that MetalLB's controller writes.
pub const POOL_OF: &str = "metallb.io/ip-allocated-from-pool";
pub const ADDRESSES: &str = "metallb.io/loadBalancerIPs";
pub const POOL: &str = "metallb.io/address-pool";
pub const KEY: &str = "metallb.io/allow-shared-ip";

/// A controller that serves a cluster.
pub struct Rig {
    pub cluster: Cluster,
    classes: Classes,
    /// What is there beside Services, by name.
    others: BTreeMap<String, Fact>,
    controller: Option<Controller>,
}

struct Controller {
    provider: Arc<Metal>,
    facts: mpsc::Sender<Fact>,
    wakes: mpsc::Sender<Uid>,
    tasks: [JoinHandle<()>; 2],
}

/// A Service with port 80.
pub fn web(name: &str) -> ServiceBuilder {
    svc(name).port(80)
}

// === impl Rig ===

impl Rig {
    /// A cluster with these pools, announced from everywhere, and a controller.
    pub async fn with(pools: &[(&str, Value)]) -> Self {
        let default = Classes::only("metal");
        Self::of_class(default, pools).await
    }

    /// The same with a controller that serves certain classes.
    pub async fn of_class(classes: Classes, pools: &[(&str, Value)]) -> Self {
        let advertisement = json!({
            "apiVersion": "metallb.io/v1beta1", "kind": "L2Advertisement",
            "metadata": {"name": "all", "namespace": "metallb-system"}, "spec": {},
        });
        let shape: wire::Resource = serde_json::from_value(advertisement).unwrap();
        let row = shape.into_row(ResourceKind::L2Advertisement).unwrap();
        let mut rig = Self {
            cluster: Cluster::default(),
            classes,
            others: BTreeMap::from([("all".to_owned(), Fact::Resource(Arc::new(row)))]),
            controller: None,
        };
        for (name, spec) in pools {
            rig.put_pool(name, spec).await;
        }
        rig.restart().await;
        rig
    }

    async fn put_pool(&mut self, name: &str, spec: &Value) {
        let object = json!({
            "metadata": {"name": name, "namespace": "metallb-system"}, "spec": spec,
        });
        let shape: wire::IpAddressPool = serde_json::from_value(object).unwrap();
        let fact = Fact::Pool(Arc::new(shape.into_row().unwrap()));
        self.others.insert(format!("pool/{name}"), fact.clone());
        self.send(fact).await;
    }

    async fn send(&self, fact: Fact) {
        if let Some(controller) = &self.controller {
            controller.facts.send(fact).await.unwrap();
        }
    }

    /// Creates or changes a pool and waits.
    pub async fn pool(&mut self, name: &str, spec: Value) {
        self.put_pool(name, &spec).await;
        self.settle().await;
    }

    /// Deletes a pool and creates it with another name, at the same time, and waits.
    pub async fn rename_pool(&mut self, name: &str, other: &str, spec: Value) {
        self.others.remove(&format!("pool/{name}"));
        self.send(Fact::PoolGone(name.to_owned())).await;
        self.pool(other, spec).await;
    }

    /// Deletes a pool and waits.
    pub async fn drop_pool(&mut self, name: &str) {
        self.others.remove(&format!("pool/{name}"));
        self.send(Fact::PoolGone(name.to_owned())).await;
        self.settle().await;
    }

    /// Gives a Service endpoints.
    pub async fn endpoints(&mut self, row: Arc<SliceRow>) {
        let fact = Fact::Slice(row.clone());
        self.others
            .insert(format!("slice/{}", row.key), fact.clone());
        self.send(fact).await;
    }

    /// Ends the controller at once.
    pub fn kill(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.tasks.iter().for_each(JoinHandle::abort);
        }
    }

    /// Starts the controller, as a new process would, and waits.
    pub async fn restart(&mut self) {
        self.kill();
        let provider = Arc::new(Metal::new(DataPlane::KubeProxy));
        let config = EngineConfig::new(self.classes.clone());
        let cluster = Arc::new(self.cluster.clone());
        let engine = Engine::new(config, vec![provider.clone()], cluster);
        let mut watch = self.cluster.watch();
        let (facts, reported) = mpsc::channel(64);
        let (wakes, woken) = mpsc::channel(16);
        let (others, to) = (self.others.clone(), facts.clone());
        let feed = tokio::spawn(async move {
            for fact in others.into_values() {
                to.send(fact).await.unwrap();
            }
            while let Some(fact) = watch.recv().await {
                if to.send(fact).await.is_err() {
                    return;
                }
            }
        });
        let engine = tokio::spawn(engine.run(reported, woken, CancellationToken::new()));
        self.controller = Some(Controller {
            provider,
            facts,
            wakes,
            tasks: [engine, feed],
        });
        self.settle().await;
    }

    /// Waits until nothing was written for a while.
    pub async fn settle(&self) {
        let mut quiet = 0;
        while quiet < 10 {
            let before = (self.cluster.writes(), self.cluster.events().len());
            tokio::time::sleep(Duration::from_secs(1)).await;
            let same = before == (self.cluster.writes(), self.cluster.events().len());
            quiet = if same { quiet + 1 } else { 0 };
        }
    }

    /// Applies a Service, waits, and returns its addresses.
    pub async fn apply(&self, service: ServiceBuilder) -> Vec<String> {
        let row = service.row();
        self.cluster.apply(&row);
        self.settle().await;
        self.addresses(row.key.name())
    }

    /// Deletes a Service and waits.
    pub async fn delete(&self, name: &str) {
        self.cluster.delete(name);
        self.settle().await;
    }

    /// Lets the controller reconcile a Service again, so many times.
    pub async fn reconcile(&self, name: &str, times: usize) {
        let uid = self.service(name).uid;
        let wakes = self.controller.as_ref().unwrap().wakes.clone();
        for _ in 0..times {
            wakes.send(uid.clone()).await.unwrap();
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        self.settle().await;
    }

    /// A Service of any namespace.
    pub fn service(&self, name: &str) -> ServiceRow {
        let services = self.cluster.services();
        let mut found = services.into_iter().filter(|it| it.key.name() == name);
        found.next().unwrap()
    }

    /// What the status of a Service publishes.
    pub fn addresses(&self, name: &str) -> Vec<String> {
        let ingress = self.service(name).status.ingress;
        let addresses = ingress.iter().filter_map(|entry| entry.ip);
        addresses.map(|it| it.to_string()).collect()
    }

    /// The pool that is noted on a Service.
    pub fn pool_of(&self, name: &str) -> Option<String> {
        self.service(name).annotations.get(POOL_OF).cloned()
    }

    /// The reasons of the events of a Service, in order, since the last call of [`Self::forget`].
    pub fn events(&self, name: &str) -> Vec<String> {
        let events = self.cluster.events().into_iter();
        let of_it = events.filter_map(|event| {
            let (service, reason) = event.split_once(' ')?;
            (service == name).then(|| reason.to_owned())
        });
        of_it.collect()
    }

    /// The message of the only event of a reason.
    pub fn message(&self, reason: &str) -> String {
        let mut messages = self.cluster.messages(reason);
        assert_eq!(messages.len(), 1, "{reason}: {messages:?}");
        messages.remove(0)
    }

    pub fn forget(&self) {
        self.cluster.forget_events();
    }

    /// The use of a pool: assigned and available, IPv4 and IPv6.
    pub fn counters(&self, pool: &str) -> [u64; 4] {
        let pools = self.controller.as_ref().unwrap().provider.pools();
        let view: &PoolView = pools.iter().find(|it| it.name == pool).unwrap();
        [
            view.assigned_ipv4,
            view.available_ipv4,
            view.assigned_ipv6,
            view.available_ipv6,
        ]
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.kill();
    }
}
