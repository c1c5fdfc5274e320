//! 10,000 Services announced to 8 routers: the time until each router has all prefixes, the memory
//! that this takes, and the CPU of a change of one Service, from the fact to the wire. The routers
//! are threads that count prefixes. Prints figures and validates nothing.
//!
//! `cargo xtask bench routes`, or `cargo run -p landfall-speaker --example full_table`

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program for developers, which prints"
)]

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use landfall_bgp::driver::{Neighbor, Speaker, Wanted};
use landfall_l2::election::Rules;
use landfall_model::rows::{Endpoint, Fact, ResourceKind};
use landfall_model::{ServiceKey, wire};
use landfall_speaker::decide::Decider;
use landfall_testkit::build::endpoint;
use landfall_testkit::{node, slice, svc};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const SERVICES: u32 = 10_000;
const ROUTERS: u8 = 8;
const FLAPS: u32 = 200;

/// A `BGPPeer` can't name the ports that the kernel chooses.
const PORT: u16 = 11_790;

/// A router that counts what it is sent.
struct Router {
    address: SocketAddr,
    announced: Arc<AtomicU64>,
    withdrawn: Arc<AtomicU64>,
}

fn main() {
    let routers: Vec<Router> = (1..=ROUTERS)
        .map(|it| Router::start(IpAddr::from([127, 0, 0, it])))
        .collect();
    let mut decider = Decider::new("node-a", 1, Rules::default());
    let began = Instant::now();
    let cpu = clock();
    decider.take_facts(facts(&routers));
    decider.take_facts(vec![Fact::Synced]);
    println!(
        "{SERVICES} Services, {ROUTERS} routers\n  decided after      {:.1?}, {:.1?} of CPU",
        began.elapsed(),
        clock().saturating_sub(cpu)
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(run(&mut decider, &routers));
}

async fn run(decider: &mut Decider, routers: &[Router]) {
    let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
    let (before, cpu, began) = (resident(), clock(), Instant::now());
    let speaker = Speaker::start(wanted(decider), &tracker, stop.clone());
    let count = u64::from(SERVICES);
    until(|| routers.iter().all(|it| it.announced() >= count)).await;
    println!(
        "  all have all after {:.1?}, {:.1?} of CPU, {:.1} MiB more than before",
        began.elapsed(),
        clock().saturating_sub(cpu),
        (resident().saturating_sub(before)) as f64 / 1024.0 / 1024.0
    );
    let (cpu, began) = (clock(), Instant::now());
    for turn in 0..FLAPS {
        let name = format!("web-{}", turn * 7);
        let withdrawn = u64::from(turn) + 1;
        decider.take_facts(vec![Fact::ServiceGone(ServiceKey::new("default", &name))]);
        speaker.update(|known| *known = wanted(decider));
        until(|| routers.iter().all(|it| it.withdrawn() >= withdrawn)).await;
        let back = count + withdrawn;
        decider.take_facts(service(turn * 7));
        speaker.update(|known| *known = wanted(decider));
        until(|| routers.iter().all(|it| it.announced() >= back)).await;
    }
    println!(
        "  a flap             {:.1?} until all routers have both, {:.1?} of CPU",
        began.elapsed() / FLAPS,
        clock().saturating_sub(cpu) / FLAPS
    );
    println!(
        "  resident           {:.1} MiB",
        resident() as f64 / 1024.0 / 1024.0
    );
    stop.cancel();
    tracker.close();
    tracker.wait().await;
}

fn wanted(decider: &Decider) -> Wanted {
    let routing = decider.routing();
    let peers = routing.peers.iter().map(|(name, spec)| {
        let neighbor = Neighbor {
            peer: spec.peer.clone(),
            routes: Arc::clone(&routing.union.routes[name]),
        };
        (Arc::clone(name), neighbor)
    });
    Wanted {
        peers: peers.collect(),
        ..Wanted::default()
    }
}

/// Waits without a share of what is measured that would count.
async fn until(met: impl Fn() -> bool) {
    while !met() {
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
}

/// What this thread has used of a core.
fn clock() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        now.tv_sec.unsigned_abs(),
        u32::try_from(now.tv_nsec).unwrap(),
    )
}

/// The memory of this process.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

// === impl Router ===

impl Router {
    fn start(address: IpAddr) -> Self {
        let listener = TcpListener::bind((address, PORT)).expect("a free port");
        let router = Self {
            address: listener.local_addr().unwrap(),
            announced: Arc::default(),
            withdrawn: Arc::default(),
        };
        let (announced, withdrawn) = (Arc::clone(&router.announced), Arc::clone(&router.withdrawn));
        std::thread::spawn(move || serve(&listener, &announced, &withdrawn));
        router
    }

    fn announced(&self) -> u64 {
        self.announced.load(Ordering::Relaxed)
    }

    fn withdrawn(&self) -> u64 {
        self.withdrawn.load(Ordering::Relaxed)
    }
}

/// Takes one session, and counts host routes of IPv4.
fn serve(listener: &TcpListener, announced: &AtomicU64, withdrawn: &AtomicU64) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut head = [0; 19];
    while stream.read_exact(&mut head).is_ok() {
        let length = usize::from(u16::from_be_bytes([head[16], head[17]])) - head.len();
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        match head[18] {
            1 => {
                // Without a hold time. The two capabilities that matter: IPv4, and AS numbers of
                // four octets.
                let capabilities = [1, 4, 0, 1, 0, 1, 65, 4, 0, 0, 0xfb, 0xf5];
                let mut open = vec![4, 0xfb, 0xf5, 0, 0, 10, 0, 0, 2, 14, 2, 12];
                open.extend(capabilities);
                stream.write_all(&message(1, &open)).unwrap();
                stream.write_all(&message(4, &[])).unwrap();
            }
            2 => {
                let number = |at: usize| usize::from(u16::from_be_bytes([body[at], body[at + 1]]));
                let gone = number(0);
                let attributes = number(2 + gone);
                let new = length - 4 - gone - attributes;
                // Each is its length of 32 and four octets.
                withdrawn.fetch_add(gone as u64 / 5, Ordering::Relaxed);
                announced.fetch_add(new as u64 / 5, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xff; 16];
    let length = u16::try_from(19 + body.len()).unwrap();
    bytes.extend(length.to_be_bytes());
    bytes.push(kind);
    bytes.extend(body);
    bytes
}

fn service(number: u32) -> Vec<Fact> {
    let name = format!("web-{number}");
    let address = Ipv4Addr::from_bits(0xc612_0000 + number).to_string();
    let ready = Endpoint {
        node: Some("node-a".into()),
        ..endpoint("10.8.0.1")
    };
    vec![
        Fact::Service(svc(&name).port(80).holding(&address).row()),
        Fact::Slice(slice(&name).port("", 8080).endpoint(ready).row()),
    ]
}

fn facts(routers: &[Router]) -> Vec<Fact> {
    let mut facts = vec![Fact::Node(node("node-a", "127.0.0.1").row())];
    let pool: wire::IpAddressPool = serde_json::from_value(json!({
        "metadata": {"name": "wide", "namespace": "metallb-system"},
        "spec": {"addresses": ["198.18.0.0/16"]},
    }))
    .unwrap();
    facts.push(Fact::Pool(Arc::new(pool.into_row().unwrap())));
    let all = json!({"communities": ["64500:7"]});
    facts.push(resource(
        ResourceKind::BgpAdvertisement,
        "v1beta1",
        "all",
        &all,
    ));
    for (number, router) in routers.iter().enumerate() {
        let spec = json!({"myASN": 64_500, "peerASN": 64_501,
            "peerAddress": router.address.ip(), "peerPort": router.address.port()});
        let name = format!("tor-{number}");
        facts.push(resource(ResourceKind::BgpPeer, "v1beta2", &name, &spec));
    }
    for number in 0..SERVICES {
        facts.extend(service(number));
    }
    facts
}

fn resource(kind: ResourceKind, version: &str, name: &str, spec: &Value) -> Fact {
    let shape: wire::Resource = serde_json::from_value(json!({
        "apiVersion": format!("metallb.io/{version}"), "kind": kind.to_string(),
        "metadata": {"name": name, "namespace": "metallb-system"}, "spec": spec,
    }))
    .expect("the shape of a resource");
    Fact::Resource(Arc::new(shape.into_row(kind).unwrap()))
}
