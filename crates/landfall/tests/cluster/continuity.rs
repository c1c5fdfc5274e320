//! Whatever becomes of API server, Lease and leader: clients of Services notice nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::bed::{Bed, DEADLINE, LOOK, address, only, text};
use crate::network::Range;
use crate::replica::Replica;
use crate::traffic::{Backend, ask};

const SERVICES: usize = 3;

/// How long the API server is away unless the environment says otherwise.
const AWAY: Duration = Duration::from_secs(20);

/// From one request of a client to the next.
const BREATH: Duration = Duration::from_millis(4);

/// Two replicas, and Services under load.
struct Scene {
    bed: Bed,
    range: Range,
    replicas: Vec<Replica>,
    started: u8,
    targets: Vec<SocketAddr>,
    _backend: Backend,
}

/// Clients that ask all the time.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Outcome>>,
}

/// What one client has seen.
#[derive(Default)]
struct Outcome {
    good: usize,
    failed: Vec<String>,
    /// The longest time without an answer.
    gap: Duration,
}

// === impl Scene ===

impl Scene {
    async fn open(name: &str) -> Self {
        let bed = Bed::open(name).await;
        let range = Range::claim();
        let backend = Backend::start("one", range.member(1)).await;
        let mut scene = Self {
            bed,
            range,
            replicas: Vec::new(),
            started: 0,
            targets: Vec::new(),
            _backend: backend,
        };
        scene.start_replica().await;
        scene.start_replica().await;
        let mut names = Vec::new();
        for number in 0..SERVICES {
            let name = format!("web-{number}");
            let manifest = format!(
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  annotations: \
                 {{landfall.dev/timeout-client-data: 1h, landfall.dev/timeout-member-data: 1h, \
                 landfall.dev/endpoints: \"{}\"}}\nspec:\n  type: LoadBalancer\n  \
                 ports: [{{port: 8080}}]\n",
                scene.range.member(1)
            );
            scene.bed.apply(&manifest).await;
            names.push(name);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        scene.bed.programmed(&names).await;
        for name in names {
            let held = address(&scene.bed.service(name).await).unwrap().to_owned();
            scene
                .targets
                .push(SocketAddr::new(held.parse().unwrap(), 8080));
        }
        scene.serves().await;
        scene
    }

    async fn start_replica(&mut self) {
        let config = self.bed.write("landfall.yaml", &only(&self.range.pool()));
        let name = format!("replica-{}", self.started);
        let admin = self.range.admin(self.started);
        let arguments = ["--config", text(&config)];
        let mut replica = Replica::spawn(&self.bed, &name, admin, &arguments);
        replica.ready().await;
        self.started += 1;
        self.replicas.push(replica);
    }

    /// The Lease's holder, and whether it says that it serves.
    async fn holder(&self) -> Option<(String, bool)> {
        let lease = ["-n", "landfall-system", "lease", "landfall"];
        let lease = self.bed.kubectl().get(&lease).await.ok()?;
        let holder = lease["spec"]["holderIdentity"].as_str()?.to_owned();
        let serving = lease["metadata"]["annotations"]["landfall.dev/serving"] == holder.as_str();
        Some((holder, serving))
    }

    /// Waits until a replica leads and serves; returns its place and its identity.
    async fn serves(&self) -> (usize, String) {
        let began = Instant::now();
        loop {
            if let Some((holder, true)) = self.holder().await {
                let named = |it: &Replica| holder.starts_with(&format!("{}_", it.name));
                if let Some(place) = self.replicas.iter().position(named) {
                    return (place, holder);
                }
            }
            assert!(began.elapsed() < DEADLINE, "no replica serves");
            tokio::time::sleep(LOOK).await;
        }
    }

    fn load(&self) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = self.targets.iter().map(|&target| {
            let stop = stop.clone();
            tokio::spawn(client(target, stop))
        });
        Load {
            clients: clients.collect(),
            stop,
        }
    }

    /// The addresses are those of the beginning.
    async fn nothing_moved(&self) {
        for (number, target) in self.targets.iter().enumerate() {
            let service = self.bed.service(&format!("web-{number}")).await;
            assert_eq!(address(&service), Some(target.ip().to_string().as_str()));
        }
    }
}

async fn client(target: SocketAddr, stop: Arc<AtomicBool>) -> Outcome {
    let mut reported = Outcome::default();
    let mut answered = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        match ask(target).await {
            Ok(_) => {
                reported.good += 1;
                reported.gap = reported.gap.max(answered.elapsed());
                answered = Instant::now();
            }
            Err(error) => reported.failed.push(error.to_string()),
        }
        tokio::time::sleep(BREATH).await;
    }
    reported
}

// === impl Load ===

impl Load {
    async fn end(self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Outcome::default();
        for client in self.clients {
            let reported = client.await.unwrap();
            all.good += reported.good;
            all.failed.extend(reported.failed);
            all.gap = all.gap.max(reported.gap);
        }
        all
    }

    /// Ends it; every request was answered.
    async fn unharmed(self, what: &str) {
        let reported = self.end().await;
        eprintln!(
            "{what}: {} requests, {} failed",
            reported.good,
            reported.failed.len()
        );
        assert_eq!(reported.failed, Vec::<String>::new(), "{what}");
        assert!(reported.good > 0);
    }
}

fn away() -> Duration {
    std::env::var("LANDFALL_TEST_OUTAGE")
        .map_or(AWAY, |text| Duration::from_secs(text.parse().unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_is_frozen_or_gone_costs_replicas_no_request_and_no_lead() {
    let scene = Scene::open("away").await;
    let (place, holder) = scene.serves().await;
    // Open all the time, through everything.
    let mut open = TcpStream::connect(scene.targets[0]).await.unwrap();

    let load = scene.load();
    scene.bed.cluster.freeze_api_server().unwrap();
    // The outage itself is what is being waited for.
    tokio::time::sleep(away()).await;
    scene.bed.cluster.thaw_api_server().unwrap();
    scene
        .bed
        .run(&["annotate", "service", "web-1", "it=is-back"])
        .await;
    assert_eq!(scene.serves().await, (place, holder.clone()));
    load.unharmed(&format!("frozen for {:?}", away())).await;

    let load = scene.load();
    scene.bed.cluster.stop_api_server();
    tokio::time::sleep(away()).await;
    scene.bed.cluster.start_api_server().await.unwrap();
    assert_eq!(scene.serves().await, (place, holder));
    // It writes again.
    let port = r#"[{"op": "replace", "path": "/spec/ports/0/port", "value": 8081}]"#;
    let patch = ["patch", "service", "web-2", "--type=json", "-p", port];
    load.unharmed(&format!("gone for {:?}", away())).await;
    scene.bed.run(&patch).await;
    let moved = SocketAddr::new(scene.targets[2].ip(), 8081);
    let began = Instant::now();
    while ask(moved).await.is_err() {
        assert!(began.elapsed() < DEADLINE, "an edit is not followed");
        tokio::time::sleep(LOOK).await;
    }
    scene.nothing_moved().await;

    open.write_all(b"?").await.unwrap();
    let mut answer = String::new();
    open.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_deleted_and_leaders_that_are_replaced_cost_no_request() {
    let mut scene = Scene::open("replaced").await;
    let (place, holder) = scene.serves().await;
    let load = scene.load();
    let delete = ["-n", "landfall-system", "delete", "lease", "landfall"];
    scene.bed.kubectl().run(&delete).await.unwrap();
    assert_eq!(scene.serves().await, (place, holder));
    load.unharmed("the Lease was deleted").await;

    let load = scene.load();
    let _idle = TcpStream::connect(scene.targets[0]).await.unwrap();
    let mut leaving = scene.replicas.remove(place);
    leaving.signal(Signal::TERM);
    let status = leaving.end().await;
    assert!(status.success(), "{status}");
    scene.serves().await;
    load.unharmed("asked to stop, with an idle connection open")
        .await;

    scene.start_replica().await;
    let load = scene.load();
    // As a Deployment does it: one after the other, each ready before the next goes.
    for _ in 0..2 {
        scene.replicas.remove(0).stop().await;
        scene.start_replica().await;
        scene.serves().await;
    }
    load.unharmed("a rolling update").await;
    scene.nothing_moved().await;

    let load = scene.load();
    let (place, _) = scene.serves().await;
    scene.replicas.remove(place).kill().await;
    scene.serves().await;
    let reported = load.end().await;
    eprintln!(
        "a killed leader: {} requests, {} failed, {:?} without an answer",
        reported.good,
        reported.failed.len(),
        reported.gap
    );
    scene.nothing_moved().await;
    for target in &scene.targets {
        assert_eq!(ask(*target).await.unwrap(), "one");
    }
}
