//! One schedule: what happens, drawn from a seed, on a clock of its own.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use landfall_engine::{Classes, Engine, EngineConfig};
use landfall_local::Local;
use landfall_local::memory::{Listeners, Memory};
use landfall_model::rows::{Fact, PoolRow, ServiceRow};
use landfall_model::{ServiceKey, Uid};
use landfall_testkit::svc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Reporter};
use crate::validate::{ADDRESSES, SHARING_KEY, VERSION};

/// What came of a schedule.
#[derive(Debug, Default)]
pub struct Played {
    pub violations: Vec<String>,
    pub settled: u64,
    pub writes: u64,
    pub crashes: u64,
    /// Writes that came back with an error.
    pub refused: u64,
    /// Listeners that were opened.
    pub opened: u64,
    /// Troubles of the disk that were planned.
    pub faults: u64,
    pub story: String,
}

/// A running controller.
struct Process {
    memory: Arc<Memory>,
    engine: JoinHandle<()>,
    watch: JoinHandle<()>,
}

struct Schedule {
    api: Arc<Api>,
    random: fastrand::Rng,
    process: Process,
    made: u32,
    versions: u64,
    played: Played,
}

/// How many Services there may be.
pub const SERVICES: u8 = 5;

/// Longer than any pause after a failure.
pub const LONG: Duration = Duration::from_secs(400);

/// How long nothing may be written once everything has settled.
pub const QUIET: Duration = Duration::from_secs(200);

pub const POOLS: [&[(&str, &str)]; 7] = [
    &[("one", "127.77.9.0-127.77.9.2")],
    &[("one", "127.77.9.0-127.77.9.1")],
    &[
        ("one", "127.77.9.0-127.77.9.0"),
        ("two", "127.77.9.1-127.77.9.2"),
    ],
    &[("two", "127.77.9.0-127.77.9.2")],
    &[("one", "127.77.9.1-127.77.9.4")],
    &[("one", "no range")],
    &[],
];

/// Plays the schedule of a seed.
pub fn play(seed: u64) -> Played {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut random = fastrand::Rng::with_seed(seed);
        let api = Api::new(random.fork());
        api.validate.pools_changed(pooled(POOLS[0]));
        api.set_pools(pools(POOLS[0]));
        // The recorded seeds were found with a number drawn here.
        random.bool();
        let process = Process::start(&api, random.fork());
        let schedule = Schedule {
            api,
            random,
            process,
            made: 0,
            versions: 0,
            played: Played::default(),
        };
        schedule.run().await
    })
}

fn pools(of: &[(&str, &str)]) -> Vec<PoolRow> {
    let pool = |(name, range): &(&str, &str)| PoolRow {
        name: (*name).to_owned(),
        addresses: vec![(*range).to_owned()],
        auto_assign: true,
        ..PoolRow::default()
    };
    of.iter().map(pool).collect()
}

/// The addresses of pools; `None`: one of them can't be read.
pub fn pooled(of: &[(&str, &str)]) -> Option<Vec<IpAddr>> {
    let mut all = Vec::new();
    for (_, range) in of {
        let (first, last) = range.split_once('-')?;
        let (first, last): (Ipv4Addr, Ipv4Addr) = (first.parse().ok()?, last.parse().ok()?);
        all.extend((first.to_bits()..=last.to_bits()).map(|it| IpAddr::V4(it.into())));
    }
    Some(all)
}

/// What a user writes of a Service.
pub fn draw(random: &mut fastrand::Rng, key: &ServiceKey, version: u64, valid: bool) -> ServiceRow {
    let mut service = svc(key.name());
    for port in [80, 81, 82] {
        if random.bool() {
            service = service.named_port(&format!("p{port}"), port);
        }
    }
    if random.u8(..3) == 0 {
        service = service.annotated(SHARING_KEY, "k");
    }
    if random.u8(..5) == 0 {
        let address = IpAddr::from([127, 77, 9, random.u8(..4)]);
        service = service.annotated(ADDRESSES, &address.to_string());
    }
    if random.u8(..6) == 0 {
        service = service.annotated("landfall.dev/hostname", "web.example.org");
    }
    if !valid {
        service = service.annotated("landfall.dev/drain", "soon");
    }
    let mut row = ServiceRow::clone(&service.row());
    if row.ports.is_empty() {
        row.ports = ServiceRow::clone(&svc(key.name()).named_port("p80", 80).row()).ports;
    }
    row.annotations.insert(
        "landfall.dev/endpoints".to_owned(),
        "10.0.0.1:80".to_owned(),
    );
    row.wants_load_balancer = random.u8(..12) > 0;
    row.annotations
        .insert(VERSION.to_owned(), version.to_string());
    row
}

/// What a user is said to write.
pub fn reported(row: &ServiceRow, valid: bool) -> String {
    let ports: Vec<_> = row.ports.iter().map(|port| port.port).collect();
    format!(
        "user writes {}{}{}: ports {ports:?}, {:?}",
        row.key,
        if valid { "" } else { " (invalid)" },
        if row.wants_load_balancer {
            ""
        } else {
            " as ClusterIP"
        },
        row.annotations
    )
}

// === impl Process ===

impl Process {
    /// Starts a controller that knows nothing but what the API server says.
    fn start(api: &Arc<Api>, random: fastrand::Rng) -> Self {
        let judging = api.clone();
        let memory = Arc::new(Memory::new(move |id, owner| {
            let row = judging.of_uid(&owner.uid);
            judging
                .validate
                .opened(id.address, id.key, &owner.uid, row.as_ref());
        }));
        let local = Arc::new(Local::in_memory(memory.clone()));
        let config = EngineConfig::new(Classes::only("local"));
        let reporter = Arc::new(Reporter(api.clone()));
        let engine = Engine::new(config, vec![local], reporter);
        let (report, facts) = mpsc::channel(1024);
        let (wake, wakes) = mpsc::channel(1);
        api.validate.begun();
        let (first, later) = api.watch();
        let watch = tokio::spawn(watch(first, later, report, random));
        let engine = tokio::spawn(async move {
            engine.run(facts, wakes, CancellationToken::new()).await;
            drop(wake);
        });
        Self {
            memory,
            engine,
            watch,
        }
    }

    /// Ends it at once, wherever it is, as `kill -9` does.
    async fn kill(&mut self) {
        self.engine.abort();
        self.watch.abort();
        let _ = (&mut self.engine).await;
        let _ = (&mut self.watch).await;
    }
}

/// Passes facts on, in order, each a little late.
async fn watch(
    first: Vec<Fact>,
    mut later: mpsc::Receiver<Fact>,
    report: mpsc::Sender<Fact>,
    mut random: fastrand::Rng,
) {
    for fact in first {
        if report.send(fact).await.is_err() {
            return;
        }
    }
    while let Some(fact) = later.recv().await {
        if random.u8(..4) == 0 {
            tokio::time::sleep(Duration::from_millis(random.u64(..40))).await;
        }
        if report.send(fact).await.is_err() {
            return;
        }
    }
}

// === impl Schedule ===

impl Schedule {
    async fn run(mut self) -> Played {
        let steps = self.random.usize(10..30);
        self.api.set_faulty(self.random.bool());
        for _ in 0..steps {
            self.step().await;
            self.pause().await;
        }
        self.settle().await;
        self.process.kill().await;
        self.played.writes = self.api.writes();
        self.played.violations = self.api.validate.violations();
        self.played.story = self.api.validate.story();
        self.played
    }

    /// Lets some time pass: often too little for anything to settle.
    async fn pause(&mut self) {
        let most = [2, 30, 30, 300, 3_000][self.random.usize(..5)];
        let pause = Duration::from_millis(self.random.u64(..most));
        tokio::time::sleep(pause).await;
    }

    async fn step(&mut self) {
        match self.random.u8(..100) {
            0..45 => self.edit(),
            45..56 => self.delete(),
            56..64 => self.change_pools(),
            64..78 => self.crash().await,
            78..86 => self.meddle(),
            86..93 => {
                let faulty = self.random.bool();
                self.api.validate.note(&format!("faulty: {faulty}"));
                self.api.set_faulty(faulty);
            }
            _ => self.settle().await,
        }
    }

    /// Another program, or an impatient human, writes what is ours to write.
    fn meddle(&mut self) {
        let key = self.key();
        let (validate, api) = (&self.api.validate, &self.api);
        match self.random.u8(..4) {
            0 => {
                validate.note(&format!("our finalizer is taken off {key}"));
                api.take_finalizer_off(&key);
            }
            1 => {
                validate.note(&format!(
                    "the addresses are taken out of the status of {key}"
                ));
                api.wipe(&key);
            }
            2 => {
                validate.note(&format!("another controller puts its finalizer on {key}"));
                api.hold_back(&key);
            }
            _ => {
                validate.note("other controllers take their finalizers off");
                api.let_go();
            }
        }
    }

    fn key(&mut self) -> ServiceKey {
        let letter = b'a' + self.random.u8(..SERVICES);
        ServiceKey::new("default", &char::from(letter).to_string())
    }

    /// Creates a Service or changes what its user writes.
    fn edit(&mut self) {
        let key = self.key();
        let existing = self.api.service(&key);
        if existing.as_ref().is_some_and(|row| row.deleting) {
            return;
        }
        let valid = self.random.u8(..5) > 0;
        let row = self.draw(&key, existing.as_ref(), valid);
        self.api.validate.note(&reported(&row, valid));
        self.api.validate.edited(&row, valid);
        self.api.apply(row);
    }

    fn draw(&mut self, key: &ServiceKey, existing: Option<&ServiceRow>, valid: bool) -> ServiceRow {
        self.versions += 1;
        let mut row = draw(&mut self.random, key, self.versions, valid);
        row.generation = Some(1);
        row.uid = if let Some(existing) = existing {
            existing.uid.clone()
        } else {
            self.made += 1;
            Uid::new(&format!("{}-{}", key.name(), self.made))
        };
        row
    }

    fn delete(&mut self) {
        let key = self.key();
        self.api.validate.note(&format!("user deletes {key}"));
        self.api.delete(&key);
    }

    fn change_pools(&mut self) {
        let chosen = POOLS[self.random.usize(..POOLS.len())];
        self.api.validate.note(&format!("pools are {chosen:?}"));
        self.api.validate.pools_changed(pooled(chosen));
        self.api.set_pools(pools(chosen));
    }

    /// The process dies, and another one begins: at once, or a little later.
    async fn crash(&mut self) {
        self.api.validate.note("kill -9");
        self.process.kill().await;
        self.played.crashes += 1;
        if self.random.bool() {
            self.pause().await;
        }
        let random = self.random.fork();
        self.process = Process::start(&self.api, random);
    }

    /// Lets everything settle, without faults, and reads what is there.
    async fn settle(&mut self) {
        self.api.set_faulty(false);
        tokio::time::sleep(LONG).await;
        let before = self.api.writes();
        tokio::time::sleep(QUIET).await;
        let validate = &self.api.validate;
        let more = self.api.writes() - before;
        if more > 0 {
            validate.never_settles(more);
        }
        let listeners: Listeners = self.process.memory.listeners();
        validate.settled(&self.api.services(), &listeners);
        self.played.settled += 1;
        let faulty = self.random.bool();
        self.api.set_faulty(faulty);
    }
}
