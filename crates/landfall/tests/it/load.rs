//! Manifests are edited again and again under load, and no client notices.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use landfall_model::listener::{Algorithm, AllowedSources, ProxyProtocol};
use landfall_model::view::{Health, ServiceView};
use tokio::task::JoinSet;

use crate::backend::Backend;
use crate::client::{self, Browser, Talk};
use crate::lab::Lab;
use crate::manifest::{slice, svc};
use crate::view::{at, find, is_ready, listener};

/// New connections, at least.
const NEW: usize = 20_000;
/// Long connections.
const LONG: usize = 500;
/// Edits, at least; each is seen to take effect before the next one.
const EDITS: usize = 40;
/// New connections under way at one time. Each begins when an earlier one is done, so that the load
/// is what the machine can carry.
const AT_ONCE: usize = 48;
/// Between two lines on a long connection.
const PAUSE: Duration = Duration::from_millis(400);
/// Clients' addresses.
const CLIENTS: usize = 100;

/// What the load came to so far.
#[derive(Debug, Default)]
struct Tally {
    new: AtomicUsize,
    lines: AtomicUsize,
    stop: AtomicBool,
    failures: Mutex<Vec<String>>,
}

/// Everything that carries the load.
struct Scene {
    lab: Lab,
    members: Vec<Backend>,
    web: Backend,
    tally: Arc<Tally>,
}

// === impl Tally ===

impl Tally {
    fn failed(&self, what: &str) {
        self.failures.lock().unwrap().push(what.to_owned());
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_under_load_lose_nothing() {
    let mut scene = Scene::set().await;
    let began = Instant::now();
    let mut load = JoinSet::new();
    let targets = scene.targets().await;
    for number in 0..LONG {
        let (name, target) = targets.long[number % targets.long.len()];
        let source = scene.client(number);
        load.spawn(long(scene.tally.clone(), name, source, target, number));
    }
    for number in 0..AT_ONCE {
        let targets = targets.new.clone();
        let sources: Vec<_> = (0..CLIENTS).map(|n| scene.client(n + number)).collect();
        load.spawn(brief(scene.tally.clone(), targets, sources));
    }

    let (mut edits, mut during) = (0, Vec::new());
    while scene.tally.new.load(Ordering::Relaxed) < NEW || edits < EDITS {
        let before = scene.tally.new.load(Ordering::Relaxed);
        scene.edit(edits).await;
        during.push(scene.tally.new.load(Ordering::Relaxed) - before);
        edits += 1;
        let failures = scene.tally.failures.lock().unwrap();
        assert!(failures.is_empty(), "after {edits} edits: {failures:#?}");
    }
    let open: usize = scene.members.iter().map(Backend::open).sum();
    scene.tally.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = load.join_next().await {
        ended.unwrap();
    }

    let tally = &scene.tally;
    let (new, lines) = (
        tally.new.load(Ordering::Relaxed),
        tally.lines.load(Ordering::Relaxed),
    );
    eprintln!(
        "{new} new connections, {LONG} long ones with {lines} lines and {edits} edits in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    let failures = tally.failures.lock().unwrap().clone();
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(new >= NEW && edits >= EDITS);
    assert!(
        lines >= LONG * 5,
        "long connections had too little to say: {lines}"
    );
    // Those that speak HTTP share connections to their member.
    let reading = LONG.div_ceil(targets.long.len());
    assert!(
        open + reading >= LONG,
        "only {open} connections were open at members"
    );
    let unloaded = during.iter().filter(|count| **count == 0).count();
    assert!(
        unloaded * 10 < edits,
        "{unloaded} of {edits} edits met no new connection: {during:?}"
    );
    for (name, traffic) in scene.listeners().await {
        assert_eq!(traffic.failed, 0, "{name}");
    }
}

/// Where the load goes, each with a name for messages.
struct Targets {
    new: Vec<(&'static str, SocketAddr)>,
    long: Vec<(&'static str, SocketAddr)>,
}

// === impl Scene ===

impl Scene {
    async fn set() -> Self {
        let lab = Lab::new();
        let mut members = Vec::new();
        for number in 1..=6 {
            let address = lab.ranges.backend(number, 3001);
            members.push(Backend::lines(&format!("pod-{number}"), address).await);
        }
        let web = Backend::http("web", lab.ranges.backend(1, 3002)).await;
        let scene = Self {
            lab,
            members,
            web,
            tally: Arc::default(),
        };
        scene.scale(4);
        scene.proxy("off");
        scene.tune("ROUND_ROBIN", "50s", [1, 1], "127.0.0.0/8");
        scene.ports(&[9001, 9002]);
        let http = svc("http").tcp(8080).option("mode", "http");
        scene
            .lab
            .write("http.yaml", &http.members(&[scene.web.address]).yaml());
        let mut scene = scene;
        scene.lab.start().await;
        for key in [
            "default/busy",
            "default/quiet",
            "default/tuned",
            "default/ports",
        ] {
            scene.lab.ready(key).await;
        }
        scene.lab.ready("default/http").await;
        scene
    }

    fn client(&self, number: usize) -> std::net::IpAddr {
        let last = u8::try_from(1 + number % CLIENTS).unwrap();
        self.lab.ranges.client(last)
    }

    async fn targets(&self) -> Targets {
        let view = self.lab.view().await;
        let target = |key: &str, port| at(find(&view, key).unwrap(), port);
        let busy = ("busy", target("default/busy", 8080));
        let proxied = ("proxied", target("default/quiet", 8081));
        let tuned = ("tuned", target("default/tuned", 8080));
        let lasting = ("lasting port", target("default/ports", 9001));
        let changing = ("changing port", target("default/ports", 9002));
        let http = ("http", target("default/http", 8080));
        Targets {
            new: vec![busy, proxied, busy, http, busy, tuned, busy, lasting],
            long: vec![busy, busy, proxied, http, tuned, busy, lasting, changing],
        }
    }

    /// One edit, and the proof that it took effect. Every kind has its turn.
    async fn edit(&mut self, number: usize) {
        let round = number / 8;
        match number % 8 {
            // Members of the Service that carries most go and come.
            0 | 4 => {
                let count = [2, 6, 3, 5, 1, 4][(number / 4) % 6];
                self.scale(count);
                let serving = |service: &ServiceView| {
                    let members = &listener(service, 8080).members;
                    let staying = members.iter().filter(|it| it.health != Health::Draining);
                    staying.count() == count
                };
                self.took_effect("busy", "has the members", serving).await;
            }
            1 => {
                let ports: &[u16] = [&[9001, 9003][..], &[9001, 9002, 9004]][round % 2];
                self.ports(ports);
                let listens = |service: &ServiceView| {
                    let keys = service.listeners.iter().map(|it| it.key.port.get());
                    keys.eq(ports.iter().copied())
                };
                self.took_effect("ports", "has the ports", listens).await;
            }
            2 | 6 => {
                let (text, version) = [
                    ("v1", Some(ProxyProtocol::V1)),
                    ("v2", Some(ProxyProtocol::V2)),
                    ("off", None),
                ][(number / 4) % 3];
                self.proxy(text);
                let speaks = |it: &ServiceView| listener(it, 8081).proxy_protocol == version;
                self.took_effect("quiet", "speaks PROXY so", speaks).await;
            }
            3 => self.retune(round).await,
            5 => {
                let name = format!("extra-{round}");
                let extra = svc(&name).tcp(8080).members(&[self.members[0].address]);
                self.lab.write(&format!("{name}.yaml"), &extra.yaml());
                let extra = self.lab.ready(&format!("default/{name}")).await;
                assert!(client::member(at(&extra, 8080)).await.is_ok());
            }
            _ => {
                let name = format!("extra-{round}");
                self.lab.remove(&format!("{name}.yaml"));
                self.lab.gone(&format!("default/{name}")).await;
            }
        }
    }

    async fn took_effect(&self, name: &str, what: &str, met: impl Fn(&ServiceView) -> bool) {
        let key = format!("default/{name}");
        let ready = |service: &ServiceView| met(service) && is_ready(service);
        self.lab.until(&key, what, ready).await;
    }

    /// A Service whose members are in an EndpointSlice.
    fn scale(&self, members: usize) {
        let pods: Vec<(&str, SocketAddr)> = self.members[..members]
            .iter()
            .map(|member| (member.name.as_str(), member.address))
            .collect();
        let service = svc("busy").port("line", "TCP", 8080).yaml();
        let text = format!("{service}---\n{}", slice("busy", "line", "TCP", &pods));
        self.lab.write("busy.yaml", &text);
    }

    /// A Service whose second listener writes PROXY headers, or not.
    fn proxy(&self, version: &str) {
        let service = svc("quiet")
            .port("plain", "TCP", 8080)
            .port("proxied", "TCP", 8081)
            .members(&[self.members[0].address, self.members[1].address])
            .option("proxy-protocol.proxied", version);
        self.lab.write("quiet.yaml", &service.yaml());
    }

    fn ports(&self, ports: &[u16]) {
        let mut service = svc("ports").members(&[self.members[2].address]);
        for port in ports {
            service = service.port(&format!("p{port}"), "TCP", *port);
        }
        self.lab.write("ports.yaml", &service.yaml());
    }

    fn tune(&self, algorithm: &str, timeout: &str, weights: [u16; 2], sources: &str) {
        let [one, other] = [self.members[3].address, self.members[4].address];
        let endpoints = format!("{one} weight={}, {other} weight={}", weights[0], weights[1]);
        let service = svc("tuned")
            .tcp(8080)
            .option("algorithm", algorithm)
            .option("timeout-client-data", timeout)
            .option("endpoints", &endpoints)
            .spec(format!("loadBalancerSourceRanges: [{sources}]"));
        self.lab.write("tuned.yaml", &service.yaml());
    }

    async fn retune(&self, round: usize) {
        let (name, algorithm) = [
            ("LEAST_CONNECTIONS", Algorithm::LeastConnections),
            ("SOURCE_IP", Algorithm::SourceIp),
            ("SOURCE_IP_PORT", Algorithm::SourceIpPort),
            ("ROUND_ROBIN", Algorithm::RoundRobin),
        ][round % 4];
        let timeout = ["30s", "1m", "45s"][round % 3];
        let weights = [[3, 1], [1, 5], [2, 2]][round % 3];
        let (text, count) = [("127.0.0.0/9, 127.128.0.0/9", 2), ("127.0.0.0/8", 1)][round % 2];
        self.tune(name, timeout, weights, text);
        let tuned = |service: &ServiceView| {
            let it = listener(service, 8080);
            let prefixes = match &it.allowed {
                AllowedSources::All => 0,
                AllowedSources::Only(prefixes) => prefixes.len(),
            };
            let seen: Vec<u16> = it.members.iter().map(|member| member.weight).collect();
            it.algorithm == algorithm && seen == weights && prefixes == count
        };
        self.took_effect("tuned", "is tuned so", tuned).await;
        // Timeouts show in no view: the plan knows.
        self.lab.settled().await;
    }

    /// The traffic of every listener.
    async fn listeners(&self) -> BTreeMap<String, landfall_model::view::TrafficView> {
        let view = self.lab.view().await;
        let mut traffic = BTreeMap::new();
        for service in &view.services {
            for listener in &service.listeners {
                let name = format!("{} {}", service.key, listener.key);
                traffic.insert(name, listener.traffic);
            }
        }
        traffic
    }
}

/// Connects, exchanges a line (or a request), ends; again and again.
async fn brief(
    tally: Arc<Tally>,
    targets: Vec<(&'static str, SocketAddr)>,
    sources: Vec<std::net::IpAddr>,
) {
    for number in 0.. {
        if tally.stopped() {
            return;
        }
        let (name, target) = targets[number % targets.len()];
        let source = sources[number % sources.len()];
        let outcome = match name {
            "http" => client::http(target, "/").await.map(|answer| {
                assert_eq!(answer.status, 200);
            }),
            _ => line(source, target).await,
        };
        match outcome {
            Ok(()) => drop(tally.new.fetch_add(1, Ordering::Relaxed)),
            Err(error) => tally.failed(&format!("new connection to {name}: {error}")),
        }
    }
}

async fn line(source: std::net::IpAddr, target: SocketAddr) -> std::io::Result<()> {
    Talk::from(source, target)
        .await?
        .say("brief")
        .await
        .map(drop)
}

/// Stays connected and exchanges bytes all along.
async fn long(
    tally: Arc<Tally>,
    name: &'static str,
    source: std::net::IpAddr,
    target: SocketAddr,
    number: usize,
) {
    let talk = async {
        if name == "http" {
            let mut browser = Browser::over(client::connect(target).await?).await?;
            while !tally.stopped() {
                let answer = browser.get("long", "/", &[]).await?;
                assert_eq!(answer.status, 200);
                tally.lines.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
            return Ok(());
        }
        let mut talk = Talk::from(source, target).await?;
        let mut said = 0;
        while !tally.stopped() {
            talk.say(&format!("{number}: {said}")).await?;
            said += 1;
            tally.lines.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
        Ok::<_, std::io::Error>(())
    };
    if let Err(error) = talk.await {
        tally.failed(&format!("long connection {number} to {name}: {error}"));
    }
}
