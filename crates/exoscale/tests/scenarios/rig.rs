//! A controller, a cluster in memory, and a cloud: the stage of all scenarios. Time is virtual:
//! `#[tokio::test(start_paused = true)]`.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use landfall_engine::backoff::Backoff;
use landfall_engine::{Classes, Engine, EngineConfig};
use landfall_exoscale::{Exoscale, Settings};
use landfall_model::provider::Provider as _;
use landfall_model::rows::ServiceRow;
use landfall_model::status::{Condition, ConditionType};
use landfall_model::view::ListenerView;
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::exoscale::Sim;
use landfall_testkit::{node, svc};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client;
use crate::cluster::Cluster;

/// Everything on stage: nodes a and b, instances of the pool `pool`.
pub struct Rig {
    pub sim: Sim,
    pub cluster: Cluster,
    pub settings: Settings,
    pub pool: String,
    pub provider: Option<Arc<Exoscale>>,
    controller: Option<Controller>,
    nodes: u8,
}

struct Controller {
    engine: JoinHandle<()>,
    feed: JoinHandle<()>,
}

pub const PREFIX: &str = "service.beta.kubernetes.io/exoscale-loadbalancer-";

/// The key of an annotation.
pub fn key(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// A Service with port 80 and `NodePort` 32672.
pub fn web() -> ServiceBuilder {
    svc("web").port(80).node_port(32_672)
}

// === impl Rig ===

impl Rig {
    pub fn new() -> Self {
        Self::in_zone(Sim::new(), "c1")
    }

    /// Another cluster in a zone.
    pub fn in_zone(sim: Sim, cluster: &str) -> Self {
        let pool = sim.add_pool("web");
        let mut rig = Self {
            sim,
            cluster: Cluster::default(),
            settings: Settings::new(cluster),
            pool,
            provider: None,
            controller: None,
            nodes: 0,
        };
        rig.add_node("a");
        rig.add_node("b");
        rig
    }

    /// Adds a node, an instance of the pool; returns the id of the instance.
    pub fn add_node(&mut self, name: &str) -> String {
        let pool = self.pool.clone();
        self.add_node_of(name, Some(&pool))
    }

    /// Adds a node, an instance of a pool or of none; returns the id of the instance.
    pub fn add_node_of(&mut self, name: &str, pool: Option<&str>) -> String {
        self.nodes += 1;
        let ip = Ipv4Addr::new(198, 51, 100, self.nodes);
        let instance = self.sim.add_instance(name, ip, pool);
        self.put_node(name, &format!("exoscale://{instance}"));
        instance
    }

    /// Adds a node without an instance.
    pub fn put_node(&self, name: &str, provider_id: &str) {
        let address = format!("10.0.0.{}", name.bytes().map(u32::from).sum::<u32>() % 250);
        let row = node(name, &address).with(|row| row.provider_id = Some(provider_id.into()));
        self.cluster.put_node(row.row());
    }

    /// Starts the controller, as a new process would.
    pub fn start(&mut self) {
        self.kill();
        let provider = Exoscale::new(client::cloud(&self.sim), self.settings.clone());
        let provider = Arc::new(provider);
        self.provider = Some(provider.clone());
        let classes = Classes::new(vec!["exoscale".to_owned()], Some("exoscale"));
        let mut config = EngineConfig::new(classes);
        config.backoff = Backoff {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(60),
        };
        let cluster = Arc::new(self.cluster.clone());
        let engine = Engine::new(config, vec![provider], cluster);
        let mut watch = self.cluster.watch();
        let (facts, reported) = mpsc::channel(64);
        let (wakes, woken) = mpsc::channel(16);
        let feed = tokio::spawn(async move {
            let _wakes = wakes;
            while let Some(fact) = watch.recv().await {
                if facts.send(fact).await.is_err() {
                    return;
                }
            }
        });
        let engine = tokio::spawn(engine.run(reported, woken, CancellationToken::new()));
        self.controller = Some(Controller { engine, feed });
    }

    /// Ends the controller at once, in the middle of whatever it does.
    pub fn kill(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.engine.abort();
            controller.feed.abort();
        }
    }

    /// Applies a Service and waits until the controller has come to rest.
    pub async fn apply(&mut self, service: ServiceBuilder) {
        self.cluster.apply(&service.row());
        if self.controller.is_none() {
            self.start();
        }
        self.settle().await;
    }

    /// Changes a Service and waits.
    pub async fn edit(&mut self, name: &str, change: impl FnOnce(&mut ServiceRow)) {
        self.cluster.edit(name, change);
        self.settle().await;
    }

    /// Sets an annotation of the Service `web` and waits.
    pub async fn annotate(&mut self, name: &str, value: &str) {
        let (name, value) = (key(name), value.to_owned());
        self.edit("web", |row| drop(row.annotations.insert(name, value)))
            .await;
    }

    /// Deletes a Service and waits.
    pub async fn delete(&mut self, name: &str) {
        self.cluster.delete(name);
        self.settle().await;
    }

    /// Starts again and waits.
    pub async fn restart(&mut self) {
        self.start();
        self.settle().await;
    }

    /// Waits until nothing was asked of the cloud for a while; at most some minutes, for what fails
    /// for ever.
    pub async fn settle(&self) {
        const QUIET: u32 = 15;
        let mut quiet = 0;
        for _ in 0..400 {
            let before = (self.sim.calls().len(), self.cluster.writes());
            tokio::time::sleep(Duration::from_secs(1)).await;
            let same = before == (self.sim.calls().len(), self.cluster.writes());
            quiet = if same { quiet + 1 } else { 0 };
            if quiet >= QUIET {
                return;
            }
        }
    }

    /// Lets time pass.
    pub async fn wait(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Calls so far: `GET /load-balancer`.
    pub fn calls(&self) -> Vec<String> {
        let calls = self.sim.calls();
        calls
            .iter()
            .map(landfall_testkit::exoscale::Call::line)
            .collect()
    }

    /// Writes so far, with words in place of ids: `POST /load-balancer/LB/service`.
    pub fn writes(&self) -> Vec<String> {
        let calls = self.sim.writes();
        calls.iter().map(|call| short(&call.line())).collect()
    }

    /// The bodies of the writes so far.
    pub fn bodies(&self) -> Vec<Value> {
        let calls = self.sim.writes();
        let read = |body: &[u8]| serde_json::from_slice(body).unwrap_or_default();
        calls.iter().map(|call| read(&call.body)).collect()
    }

    /// Forgets calls and events.
    pub fn forget(&self) {
        self.sim.forget_calls();
        self.cluster.forget_events();
    }

    /// The only NLB.
    pub fn nlb(&self) -> Value {
        let mut all = self.sim.load_balancers();
        assert_eq!(all.len(), 1, "{all:#?}");
        all.remove(0)
    }

    /// The NLB service of a port of the only NLB.
    pub fn service(&self, port: u16) -> Value {
        let nlb = self.nlb();
        let services = nlb["services"].as_array().unwrap().clone();
        let mut found = services.into_iter().filter(|it| it["port"] == port);
        found.next().unwrap_or_default()
    }

    /// The ports of the only NLB.
    pub fn ports(&self) -> Vec<u64> {
        let nlb = self.nlb();
        let services = nlb["services"].as_array().unwrap().iter();
        let mut ports: Vec<u64> = services.map(|it| it["port"].as_u64().unwrap()).collect();
        ports.sort_unstable();
        ports
    }

    /// The listeners of a Service, as people see them.
    pub fn listeners(&self, name: &str) -> Vec<ListenerView> {
        let uid = self.cluster.service(name).unwrap().uid.clone();
        let provider = self.provider.as_ref().unwrap();
        provider.live(&uid)
    }

    /// What the status of a Service publishes.
    pub fn published(&self, name: &str) -> Vec<String> {
        let service = self.cluster.service(name).unwrap();
        let entries = service.status.ingress.iter();
        entries.map(|entry| entry.ip.unwrap().to_string()).collect()
    }

    /// An annotation of the Service `web`.
    pub fn annotation(&self, name: &str) -> Option<String> {
        let service = self.cluster.service("web")?;
        service.annotations.get(&key(name)).cloned()
    }

    /// A condition of a Service.
    pub fn condition(&self, name: &str, kind: ConditionType) -> Condition {
        let service = self.cluster.service(name).unwrap();
        service.status.condition(kind).unwrap().clone()
    }

    /// Whether traffic flows, in the status of the Service `web`.
    pub fn is_programmed(&self) -> bool {
        self.condition("web", ConditionType::Programmed).status
    }

    /// Why the Service `web` is not accepted; empty: it is.
    pub fn refusal(&self) -> String {
        let condition = self.condition("web", ConditionType::Accepted);
        if condition.status {
            return String::new();
        }
        format!("{}: {}", condition.reason, condition.message)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A line with words in place of ids.
pub fn short(line: &str) -> String {
    let is_id = |part: &str| part.len() == 36 && part.matches('-').count() == 4;
    let mut words = ["LB", "SERVICE"].into_iter();
    let parts = line.split('/');
    let parts = parts.map(|part| {
        if is_id(part) {
            words.next().unwrap_or("ID")
        } else {
            part
        }
    });
    parts.collect::<Vec<_>>().join("/")
}
