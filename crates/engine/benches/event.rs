//! What one event of a large cluster costs: a slice that changes, from the API server's JSON until
//! the engine has acted upon it. In CPU time of the one thread that does it all, per event:
//!
//! ```text
//!   JSON ──decode──> row ──World::apply──> whose ──queue──> reconcile (of a Service that is ours)
//! ```
//!
//! `cargo bench -p landfall-engine --bench event`. Sockets, TLS and HTTP are not in it;
//! `cargo xtask bench cluster` measures the whole process.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use landfall_engine::report::Event;
use landfall_engine::{Classes, Engine, EngineConfig, Report, ReportError, World, resolve};
use landfall_model::intent::Intent;
use landfall_model::plan::Plan;
use landfall_model::provider::{
    Applied, Provider, ProviderError, ProviderProfile, ProviderStatus, ProviderStep,
};
use landfall_model::reason::Reason;
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::status::ServiceStatus;
use landfall_model::wire;
use landfall_model::{ServiceKey, Uid};
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const SERVICES: usize = 10_000;
const NODES: usize = 500;
const EVENTS: usize = 10_000;

/// The aim: at most so many microseconds.
const AIM: f64 = 50.0;

/// Holds nothing, changes nothing, counts.
#[derive(Debug, Default)]
struct Idle {
    profile: ProviderProfile,
    reconciles: AtomicUsize,
}

#[derive(Debug, Serialize)]
enum Never {}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl ProviderStep for Never {
    fn kind(&self) -> &'static str {
        match *self {}
    }
}

impl Provider for Idle {
    type Observed = ();
    type Step = Never;

    fn profile(&self) -> &ProviderProfile {
        &self.profile
    }

    async fn observe(&self, _: &Intent) -> Result<(), ProviderError> {
        self.reconciles.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn plan(&self, _: &Intent, (): &()) -> Result<Plan<Never>, Vec<Reason>> {
        Ok(Plan::default())
    }

    async fn apply(&self, step: &Never) -> Result<Applied, ProviderError> {
        match *step {}
    }

    fn status(&self, _: &Intent, (): &()) -> ProviderStatus {
        ProviderStatus::default()
    }

    async fn audit(&self) -> Result<Vec<Uid>, ProviderError> {
        Ok(Vec::new())
    }
}

/// Reports that go nowhere.
#[derive(Debug)]
struct Unread;

impl Report for Unread {
    async fn add_finalizer(
        &self,
        _: &ServiceRow,
        _: Option<&ServiceStatus>,
    ) -> Result<(), ReportError> {
        Ok(())
    }

    async fn remove_finalizer(&self, _: &ServiceRow) -> Result<(), ReportError> {
        Ok(())
    }

    async fn write_status(&self, _: &ServiceRow, _: &ServiceStatus) -> Result<(), ReportError> {
        Ok(())
    }

    async fn event(&self, _: &ServiceRow, _: &Event) {}
}

/// The API server's record of which client wrote which field.
fn managed_fields() -> serde_json::Value {
    json!([{
        "manager": "kubectl-create", "operation": "Update", "apiVersion": "v1",
        "time": "2026-11-21T10:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {".": {}, "f:app": {}, "f:team": {}}},
            "f:spec": {
                "f:allocateLoadBalancerNodePorts": {}, "f:externalTrafficPolicy": {},
                "f:internalTrafficPolicy": {}, "f:selector": {}, "f:type": {},
                "f:ports": {".": {}, "k:{\"port\":8080,\"protocol\":\"TCP\"}":
                    {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}}},
            },
        },
    }])
}

fn service(number: usize, class: Option<&str>) -> String {
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {
            "name": format!("web-{number}"), "namespace": "default",
            "uid": format!("0b5d0f4c-8a3e-4d0c-9f1e-{number:012x}"),
            "resourceVersion": (1000 + number).to_string(),
            "creationTimestamp": "2026-11-21T10:00:00Z",
            "finalizers": class.map(|_| ["service.kubernetes.io/load-balancer-cleanup"]),
            "labels": {"app": format!("web-{number}"), "team": format!("team-{}", number % 50)},
            "managedFields": managed_fields(),
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": class, "clusterIP": "10.96.0.1",
            "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "allocateLoadBalancerNodePorts": false, "selector": {"app": format!("web-{number}")},
            "ports": [{"name": "http", "port": 8080, "targetPort": 8000, "protocol": "TCP"}],
        },
        "status": {"loadBalancer": {}},
    })
    .to_string()
}

fn slice(number: usize, generation: usize) -> String {
    let [low, high] = [number % 256, number / 256];
    let endpoint = |index: usize| {
        json!({
            "addresses": [format!("10.{}.{high}.{low}", 100 + generation * 3 + index)],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": format!("node-{}", (number + index) % NODES),
            "targetRef": {"kind": "Pod", "namespace": "default",
                "name": format!("web-{number}-{index}")},
        })
    };
    json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": format!("web-{number}-1"), "namespace": "default",
            "uid": format!("1b5d0f4c-8a3e-4d0c-9f1e-{number:012x}"),
            "resourceVersion": (20_000 * (generation + 1) + number).to_string(),
            "labels": {"kubernetes.io/service-name": format!("web-{number}")},
            "managedFields": managed_fields(),
        },
        "addressType": "IPv4",
        "endpoints": [endpoint(0), endpoint(1), endpoint(2)],
        "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}],
    })
    .to_string()
}

fn service_fact(json: &str) -> Fact {
    let shape: wire::Service = serde_json::from_str(json).unwrap();
    Fact::Service(Arc::new(shape.into_row().unwrap()))
}

fn slice_fact(json: &str) -> Fact {
    let shape: wire::EndpointSlice = serde_json::from_str(json).unwrap();
    Fact::Slice(Arc::new(shape.into_row().unwrap()))
}

fn node_fact(number: usize) -> Fact {
    let address = format!("10.1.{}.{}", number / 256, number % 256);
    Fact::Node(landfall_testkit::node(&format!("node-{number}"), &address).row())
}

/// What is there before the first event.
fn cluster(class: Option<&str>) -> impl Iterator<Item = Fact> {
    let services = (0..SERVICES).map(move |number| service_fact(&service(number, class)));
    let slices = (0..SERVICES).map(|number| slice_fact(&slice(number, 0)));
    let nodes = (0..NODES).map(node_fact);
    nodes.chain(services).chain(slices).chain([Fact::Synced])
}

/// CPU time of this thread.
fn spent() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn since(before: Duration) -> Duration {
    spent().saturating_sub(before)
}

fn report(what: &str, spent: Duration) -> f64 {
    let microseconds = spent.as_secs_f64() * 1e6 / f64::from(u32::try_from(EVENTS).unwrap());
    println!("{what:<64} {microseconds:>7.1} µs");
    microseconds
}

/// Every event through the whole engine, one by one as they trickle in, or all in one go.
fn through_the_engine(class: Option<&str>, one_by_one: bool) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let provider = Arc::new(Idle::default());
        let classes = Classes::new(vec!["local".to_owned()], None);
        let engine = Engine::new(
            EngineConfig::new(classes),
            vec![provider.clone()],
            Arc::new(Unread),
        );
        let handle = engine.handle();
        let (facts, reported) = mpsc::channel(1024);
        let (_wakes, woken) = mpsc::channel(1);
        let cancel = CancellationToken::new();
        let running = tokio::spawn(engine.run(reported, woken, cancel.clone()));
        for fact in cluster(class) {
            facts.send(fact).await.unwrap();
        }
        let served = if class.is_some() { SERVICES } else { 0 };
        while !handle.store.read(landfall_engine::store::Snapshot::ready)
            || provider.reconciles.load(Ordering::Relaxed) < served
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let texts: Vec<String> = (0..EVENTS).map(|number| slice(number, 1)).collect();
        let reconciles = provider.reconciles.load(Ordering::Relaxed);
        let before = spent();
        for text in &texts {
            facts.send(slice_fact(text)).await.unwrap();
            if one_by_one {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        while provider.reconciles.load(Ordering::Relaxed) < reconciles + served {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let spent = since(before);
        cancel.cancel();
        running.await.unwrap();
        spent
    })
}

/// The runtime's own share: a timer and a wake per event, and nothing to do.
fn idle() -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (facts, mut reported) = mpsc::channel::<()>(1024);
        let listening = tokio::spawn(async move { while reported.recv().await.is_some() {} });
        let before = spent();
        for _ in 0..EVENTS {
            facts.send(()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let spent = since(before);
        drop(facts);
        listening.await.unwrap();
        spent
    })
}

fn main() {
    let texts: Vec<String> = (0..EVENTS).map(|number| slice(number, 1)).collect();
    println!("{SERVICES} Services, {NODES} nodes, {EVENTS} slices change; CPU time per event:");
    let before = spent();
    let facts: Vec<Fact> = texts.iter().map(|text| slice_fact(text)).collect();
    report("  decode the JSON", since(before));

    let mut world = World::default();
    for fact in cluster(Some("landfall.dev/local")) {
        world.apply(fact);
    }
    let before = spent();
    for fact in facts {
        world.apply(fact);
    }
    report("  take it into the World", since(before));
    let keys: Vec<ServiceKey> = world.keys().collect();
    let before = spent();
    for key in &keys {
        let row = world.service(key).unwrap();
        resolve(&row, &world, &ProviderProfile::default()).unwrap();
    }
    report("  resolve its Service", since(before));

    report("A wake with nothing to do, one a millisecond", idle());
    println!("From JSON to the end of the reconcile, if there is one:");
    for (what, class) in [
        ("watched only", None),
        ("served", Some("landfall.dev/local")),
    ] {
        for (pace, one_by_one) in [("all at once", false), ("one a millisecond", true)] {
            let took = report(
                &format!("  the Service is {what}, {pace}"),
                through_the_engine(class, one_by_one),
            );
            if took > AIM {
                println!("    more than the aim of {AIM} µs");
            }
        }
    }
}
