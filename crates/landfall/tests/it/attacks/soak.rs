//! Many Services under mixed load and edits, while others misuse theirs in every way by turns, for
//! as long as is asked: `cargo xtask soak`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::abuse::{Abuse, Misused};
use super::reached::sum;
use super::victims::{Holding, Kind, Victims};
use crate::client;
use crate::lab::{DEADLINE, LOOK, Lab};
use crate::manifest::svc;
use crate::shortage::limited_to;
use crate::view::{at, find};

/// Services whose clients stay within their limits.
const SERVICES: usize = 200;

/// Descriptors of the process: more than its Services and their clients need, fewer than abusers
/// want.
const FILES: u32 = 4096;

/// Clients within their limits at one time, each at an address of its own.
const CLIENTS: usize = 24;

/// Between two exchanges of one client. With it the load is one that two cores carry beside abusers
/// and members.
const PAUSE: Duration = Duration::from_millis(40);

/// Clients of one abuse at a time.
const ABUSERS: usize = 40;
const BUSY_ABUSERS: usize = 4;

/// Between two edits.
const EDITS: Duration = Duration::from_millis(500);

/// Parts of the time of which the first is not counted and the others are compared.
const PARTS: u32 = 5;

/// What the misused Service holds on to is over after this.
const REST: Duration = Duration::from_secs(3);

/// How much more the last quarter may hold than the first: of descriptors, as many as change hands
/// between two looks.
const MORE_FILES: usize = 24;
const MORE_MEMORY: u64 = 24 * 1024;

/// Checks that had to wait.
const DELAYED: &str = "landfall_checks_delayed_total";

/// Members of the Service whose checks hang: more than half of the checks that may run at once.
const HANGING: u8 = 200;

/// How long it takes by default, in seconds.
const SECONDS: u64 = 30;

/// Sets another duration.
const VARIABLE: &str = "LANDFALL_SOAK_SECONDS";

/// What clients within their limits saw.
#[derive(Default)]
struct Tally {
    stop: AtomicBool,
    edits: AtomicUsize,
    /// Microseconds of every exchange.
    took: Mutex<BTreeMap<&'static str, Vec<u32>>>,
    failures: Mutex<Vec<String>>,
    /// What goes on beside them.
    beside: Mutex<String>,
}

// === impl Tally ===

impl Tally {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn count(&self, kind: &'static str, took: Duration, outcome: Result<(), String>) {
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        self.took
            .lock()
            .unwrap()
            .entry(kind)
            .or_default()
            .push(micros);
        if let Err(error) = outcome {
            let beside = self.beside.lock().unwrap().clone();
            let failure = format!("{kind}: {error} ({beside})");
            self.failures.lock().unwrap().push(failure);
        }
    }

    #[expect(clippy::print_stderr, reason = "figures are what it is run for")]
    fn print(&self) {
        eprintln!(
            "{:8} {:>9} {:>9} {:>9} {:>9}",
            "kind", "exchanges", "p50 ms", "p99 ms", "max ms"
        );
        for (kind, took) in self.took.lock().unwrap().iter_mut() {
            took.sort_unstable();
            let at = |permille: usize| {
                let place = (took.len() - 1) * permille / 1000;
                f64::from(took[place]) / 1000.0
            };
            let (half, most, all) = (at(500), at(990), at(1000));
            eprintln!(
                "{kind:8} {:>9} {half:>9.1} {most:>9.1} {all:>9.1}",
                took.len()
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_soak_fails_no_request_within_limits_and_leaks_nothing() {
    let seconds = std::env::var(VARIABLE).ok();
    let seconds = seconds.map_or(SECONDS, |text| text.parse().unwrap());
    let part = (Duration::from_secs(seconds) / PARTS).saturating_sub(REST);
    let mut lab = Lab::new();
    let victims = Arc::new(Victims::set(&lab).await);
    let misused = Misused::set(&lab, "misused", "2s").await;
    lab.write("victims.yaml", &manifests(&victims));
    lab.write("misused.yaml", misused.manifest());
    // What connects is never accepted.
    let tarpit = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
    lab.write(
        "hanging.yaml",
        &hanging(&lab, tarpit.local_addr().unwrap().port()),
    );
    lab.start_with(|command| limited_to(command, FILES)).await;
    let served = Arc::new(targets(&lab).await);
    let misused_at = misused.targets(&lab, "misused").await;
    let tally = Arc::new(Tally::default());
    let mut load = JoinSet::new();
    for number in 0..CLIENTS {
        let source = lab.ranges.client(u8::try_from(100 + number).unwrap());
        load.spawn(client(
            (number, source),
            tally.clone(),
            victims.clone(),
            served.clone(),
        ));
    }
    let editing = editor(&lab, &tally, &victims);
    let watching = async {
        let mut quarters = Vec::new();
        for number in 0..PARTS {
            let seen = abused(&lab, &tally, misused_at, part).await;
            if number > 0 {
                quarters.push(seen);
            }
        }
        tally.stop.store(true, Ordering::Relaxed);
        quarters
    };
    let ((), quarters) = tokio::join!(editing, watching);
    while let Some(ended) = load.join_next().await {
        ended.unwrap();
    }

    eprintln!("{seconds} s, {SERVICES} Services, {FILES} descriptors, {CLIENTS} clients");
    tally.print();
    let edits = tally.edits.load(Ordering::Relaxed);
    let failures = tally.failures.lock().unwrap().clone();
    eprintln!("{edits} edits, {} failures: {failures:?}", failures.len());
    for (number, seen) in (1..).zip(&quarters) {
        let (most, rest) = (seen.most(), seen.rest());
        eprintln!(
            "quarter {number}: descriptors not in use {} (of all at most {}), {} MiB (most {})",
            rest.0,
            most.0,
            rest.1 / 1024,
            most.1 / 1024
        );
    }
    eprintln!("refused of abusers: {}", refused(&lab).await);
    let refused = refusals(&lab).await;
    assert!(failures.is_empty(), "{failures:#?}\n{refused}");
    assert!(edits > 4, "{edits} edits");
    let (first, last) = (&quarters[0], quarters.last().unwrap());
    assert!(last.rest().0 <= first.rest().0 + MORE_FILES);
    assert!(last.rest().1 <= first.rest().1 + MORE_MEMORY);
}

/// A Service with many members that answer no check.
fn hanging(lab: &Lab, port: u16) -> String {
    let members: Vec<SocketAddr> = (1..=HANGING)
        .map(|last| lab.ranges.backend(last, port))
        .collect();
    let service = svc("hanging").namespace("rude").tcp(8080);
    let service = service
        .option("monitor", "http")
        .option("monitor-delay", "1s")
        .option("monitor-timeout", "1s");
    service.members(&members).yaml()
}

/// All Services, and the Secret that some of them name.
fn manifests(victims: &Victims) -> String {
    let mut text = victims.secret();
    for number in 0..SERVICES {
        let service = victims.service(&name(number), kind(number));
        write!(text, "---\n{}", service.yaml()).unwrap();
    }
    text
}

fn name(number: usize) -> String {
    format!("soak-{number}")
}

fn kind(number: usize) -> Kind {
    Kind::ALL[number % Kind::ALL.len()]
}

async fn targets(lab: &Lab) -> Vec<(Kind, SocketAddr)> {
    let last = format!("default/{}", name(SERVICES - 1));
    lab.ready(&last).await;
    let mut targets = Vec::new();
    for number in 0..SERVICES {
        let key = format!("default/{}", name(number));
        let service = lab.ready(&key).await;
        targets.push((kind(number), at(&service, 8080)));
    }
    targets
}

/// Exchanges with one Service after the other, each on a connection of its own.
async fn client(
    (number, source): (usize, IpAddr),
    tally: Arc<Tally>,
    victims: Arc<Victims>,
    targets: Arc<Vec<(Kind, SocketAddr)>>,
) {
    for turn in number * 7.. {
        if tally.is_over() {
            return;
        }
        let (kind, target) = targets[turn % targets.len()];
        let began = Instant::now();
        let outcome = victims.exchange(kind, source, target).await;
        tally.count(kind.as_str(), began.elapsed(), outcome);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Edits Services under load, makes and removes others, and asks for what is refused.
async fn editor(lab: &Lab, tally: &Tally, victims: &Victims) {
    for round in 0_usize.. {
        if tally.is_over() {
            return;
        }
        match round % 4 {
            // Of Services under load, what touches no client.
            0 => {
                let mut text = victims.secret();
                for number in 0..SERVICES {
                    let mut service = victims.service(&name(number), kind(number));
                    if number % 10 == round % 10 {
                        let time = ["40s", "50s", "1m"][round % 3];
                        service = service.option("timeout-member-data", time);
                    }
                    write!(text, "---\n{}", service.yaml()).unwrap();
                }
                lab.write("victims.yaml", &text);
            }
            1 => {
                let extra = victims.service("extra", Kind::Stream);
                lab.write("extra.yaml", &extra.yaml());
                let extra = lab.ready("default/extra").await;
                let outcome = client::member(at(&extra, 8080)).await;
                tally.count(
                    "new",
                    Duration::ZERO,
                    outcome.map(drop).map_err(|error| error.to_string()),
                );
            }
            2 => {
                let mut greedy = svc("greedy").namespace("rude");
                for port in 10_000..11_100 {
                    greedy = greedy.port(&format!("p{port}"), "TCP", port);
                }
                lab.write("greedy.yaml", &greedy.yaml());
                let is_refused = |service: &landfall_model::view::ServiceView| {
                    !service.reasons.is_empty() && service.listeners.is_empty()
                };
                lab.until("rude/greedy", "is refused", is_refused).await;
            }
            _ => {
                lab.remove("extra.yaml");
                lab.remove("greedy.yaml");
                let gone = |view: &landfall_model::view::InstanceView| {
                    let there = |key| find(view, key).is_some();
                    (!there("default/extra") && !there("rude/greedy")).then_some(())
                };
                lab.wait("both are gone", gone).await;
            }
        }
        tally.edits.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(EDITS).await;
    }
}

/// What the process held, again and again: under abuse, and when abusers have been gone for a
/// moment.
#[derive(Default)]
struct Seen {
    abused: Vec<Holding>,
    rested: Vec<Holding>,
}

// === impl Seen ===

impl Seen {
    /// The most descriptors and memory in KiB.
    fn most(&self) -> (usize, u64) {
        let files = self.abused.iter().map(|holding| holding.files).max();
        let memory = self.abused.iter().map(|holding| holding.resident).max();
        (files.unwrap(), memory.unwrap())
    }

    /// Medians of descriptors that are not in use, and of memory in KiB, without abusers.
    fn rest(&self) -> (usize, u64) {
        let mut files: Vec<usize> = self.rested.iter().map(|holding| holding.files).collect();
        let mut memory: Vec<u64> = self.rested.iter().map(|holding| holding.resident).collect();
        files.sort_unstable();
        memory.sort_unstable();
        (files[files.len() / 2], memory[memory.len() / 2])
    }
}

/// Misuses a Service in every way by turns.
async fn abused(
    lab: &Lab,
    tally: &Tally,
    targets: super::abuse::Targets,
    within: Duration,
) -> Seen {
    let turn = within / u32::try_from(Abuse::ALL.len()).unwrap();
    let from: Vec<IpAddr> = (10..40).map(|last| lab.ranges.client(last)).collect();
    let mut seen = Seen::default();
    for abuse in Abuse::ALL {
        let count = if abuse.is_busy() {
            BUSY_ABUSERS
        } else {
            ABUSERS
        };
        let refused = abuse.refused(lab).await;
        let mut abusers = JoinSet::new();
        for number in 0..count {
            abusers.spawn(abuse.go_on(targets, from[number % from.len()]));
        }
        let until = Instant::now() + turn;
        *tally.beside.lock().unwrap() = format!("{abuse:?}");
        while Instant::now() < until {
            seen.abused.push(Holding::of(lab.pid()));
            tokio::time::sleep(LOOK * 10).await;
        }
        abuse.reached(lab, refused).await;
        abusers.shutdown().await;
    }
    // Checks of a Service whose members never answer are more than may run at once.
    let delayed = sum(lab, DELAYED, |_| true).await;
    let began = Instant::now();
    while sum(lab, DELAYED, |_| true).await <= delayed {
        assert!(began.elapsed() < DEADLINE, "no check waits for its turn");
        tokio::time::sleep(LOOK).await;
    }
    tokio::time::sleep(REST).await;
    for _ in 0..11 {
        // Connections, flows and what is kept for later come and go with the load, and are
        // bounded: what is not one of them, and not there for good, has leaked.
        let mut holding = Holding::of(lab.pid());
        holding.files = holding.files.saturating_sub(in_use(lab).await);
        seen.rested.push(holding);
        tokio::time::sleep(LOOK * 10).await;
    }
    seen
}

/// How many descriptors connections, flows and what is kept for later have.
async fn in_use(lab: &Lab) -> usize {
    let metrics = lab.text("/metrics?members=false").await;
    let mut lines = metrics.lines();
    let used = lines.find_map(|line| line.strip_prefix("landfall_descriptors_used "));
    used.unwrap().parse().unwrap()
}

/// What Services refused that none should.
async fn refusals(lab: &Lab) -> String {
    let metrics = lab.text("/metrics?members=false").await;
    let refused = metrics
        .lines()
        .filter(|line| line.starts_with("landfall_listener_connections_failed_total{"))
        .filter(|line| line.contains("namespace=\"default\"") && !line.ends_with(" 0"));
    refused.collect::<Vec<_>>().join("\n")
}

/// How often the misused Service refused.
async fn refused(lab: &Lab) -> u64 {
    let metric = "landfall_listener_connections_failed_total";
    sum(lab, metric, |line| line.contains("namespace=\"rude\"")).await
}
