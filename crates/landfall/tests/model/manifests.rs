//! One schedule of a process that serves manifests and remembers in a journal, on a disk that fills
//! up, errs and loses power.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_engine::{Classes, Engine, EngineConfig};
use landfall_files::memory::{self, Files, SimDelay, SimFault, StateDisk};
use landfall_local::Local;
use landfall_local::memory::{Listeners, Memory};
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::status::ServiceStatus;
use landfall_model::{ServiceKey, Uid, wire};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::ledger::{Ledger, Remembering};
use crate::schedule::{LONG, POOLS, Played, QUIET, SERVICES, draw, pooled, reported};

/// The process that runs.
struct Process {
    memory: Arc<Memory>,
    tasks: JoinSet<()>,
    cancel: CancellationToken,
}

struct Schedule {
    ledger: Arc<Ledger>,
    files: Files,
    /// Raised when a file was written.
    asked: Arc<Notify>,
    disk: StateDisk,
    is_troubled: bool,
    random: fastrand::Rng,
    process: Process,
    /// What users have written.
    written: BTreeMap<ServiceKey, ServiceRow>,
    /// The pools that are valid.
    pools: Vec<(&'static str, &'static str)>,
    made: u32,
    versions: u64,
    played: Played,
}

/// The file of the pools.
const POOL_FILE: &str = "pools.yaml";

/// How long the disk takes at most, in milliseconds.
const SLOWEST: u64 = 25;

/// How long a check of a changed file may be late, in milliseconds.
const LATEST: u64 = 40;

/// Attempts to start on a disk of which one operation fails.
const ATTEMPTS: usize = 8;

/// How far away trouble is planned.
const OPERATIONS: usize = 10;

/// Longer than any of the process's own pauses on a disk that is full.
const FULL: Duration = Duration::from_secs(100);

/// How long an orderly stop takes at most.
const STOP: Duration = Duration::from_secs(60);

/// Plays the schedule of a seed.
pub fn play(seed: u64) -> Played {
    in_virtual_time(async { Schedule::begin(seed).run().await })
}

fn in_virtual_time<R>(work: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(work)
}

/// Removes the manifest of a Service on a full disk and puts it back, as it was. Returns what is
/// open before, in between and after that, with the disk still full.
pub fn put_back_on_a_full_disk(seed: u64) -> [Listeners; 3] {
    in_virtual_time(async {
        let mut schedule = Schedule::begin(seed);
        while schedule.process.memory.listeners().is_empty() {
            schedule.edit();
            schedule.wait(FULL).await;
        }
        let before = schedule.process.memory.listeners();
        schedule.disk.fill();
        let manifests = schedule.written.keys().map(file_of);
        let manifests: Vec<String> = manifests.collect();
        let files = manifests.iter().map(|file| schedule.files.remove(file));
        let files: Vec<_> = files.collect();
        schedule.ask();
        schedule.wait(FULL).await;
        let between = schedule.process.memory.listeners();
        for (file, text) in manifests.iter().zip(files) {
            schedule.files.put(file, text.unwrap());
        }
        schedule.ask();
        schedule.wait(Duration::from_secs(10)).await;
        let after = schedule.process.memory.listeners();
        schedule.process.kill().await;
        [before, between, after]
    })
}

// === impl Process ===

impl Process {
    /// None at all.
    fn idle() -> Self {
        Self {
            memory: Arc::new(Memory::new(|_, _| {})),
            tasks: JoinSet::new(),
            cancel: CancellationToken::new(),
        }
    }

    /// Ends it at once, wherever it is.
    async fn kill(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Ends it as SIGTERM does.
    async fn stop(&mut self) {
        self.cancel.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(STOP, ended).await;
        self.kill().await;
    }
}

/// Passes facts on, and notes them.
async fn tap(ledger: Arc<Ledger>, mut from: mpsc::Receiver<Fact>, to: mpsc::Sender<Fact>) {
    while let Some(fact) = from.recv().await {
        ledger.received(&fact);
        if to.send(fact).await.is_err() {
            return;
        }
    }
}

fn file_of(key: &ServiceKey) -> String {
    format!("{}.yaml", key.name())
}

fn pool_text(pools: &[(&str, &str)]) -> String {
    let pool = |(name, range): &(&str, &str)| {
        format!(
            "---\napiVersion: metallb.io/v1beta1\nkind: IPAddressPool\n\
             metadata: {{name: {name}}}\nspec: {{addresses: [\"{range}\"]}}\n"
        )
    };
    pools.iter().map(pool).collect()
}

// === impl Schedule ===

impl Schedule {
    fn begin(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let (files, disk, asked) = (Files::default(), StateDisk::default(), Arc::default());
        let ledger = Ledger::new(disk.clone());
        let mut schedule = Self {
            process: Process::idle(),
            random: random.fork(),
            ledger,
            files,
            asked,
            disk,
            is_troubled: false,
            written: BTreeMap::new(),
            pools: Vec::new(),
            made: 0,
            versions: 0,
            played: Played::default(),
        };
        schedule.write_pools(POOLS[0]);
        schedule.start();
        schedule
    }

    async fn run(mut self) -> Played {
        for _ in 0..self.random.usize(10..30) {
            self.step().await;
            self.pause().await;
        }
        self.settle().await;
        self.process.kill().await;
        let counts = self.ledger.counts();
        self.played.writes = counts.writes;
        self.played.refused = counts.refused;
        self.played.opened = counts.opened;
        self.played.violations = self.ledger.validate.violations();
        self.played.story = self.ledger.validate.story();
        self.played
    }

    fn note(&self, line: &str) {
        self.ledger.validate.note(line);
    }

    /// Lets some time pass: often too little for anything to settle.
    async fn pause(&mut self) {
        let most = [2, 30, 30, 300, 3_000][self.random.usize(..5)];
        let pause = Duration::from_millis(self.random.u64(..most));
        self.wait(pause).await;
    }

    /// Lets time pass. Where an operation ends the process, the next one is started.
    async fn wait(&mut self, pause: Duration) {
        let off = tokio::time::timeout(pause, self.disk.went_off()).await;
        if off.is_ok() {
            self.note("the process ends at an operation");
            self.die().await;
            self.start();
            tokio::time::sleep(pause).await;
        }
    }

    async fn step(&mut self) {
        match self.random.u8(..100) {
            0..40 => self.edit(),
            40..50 => self.delete(),
            50..58 => self.change_pools(),
            58..68 => self.crash().await,
            68..80 => self.plan_trouble(),
            80..84 => {
                self.note("the disk is full");
                self.is_troubled = true;
                self.disk.fill();
            }
            84..89 => self.repair(),
            89..92 => self.restart().await,
            92..94 => self.wait(FULL).await,
            _ => self.settle().await,
        }
    }

    fn key(&mut self) -> ServiceKey {
        let letter = b'a' + self.random.u8(..SERVICES);
        ServiceKey::new("default", &char::from(letter).to_string())
    }

    /// Lets the process read the files, a moment after one was written.
    fn ask(&mut self) {
        let asked = self.asked.clone();
        let late = Duration::from_millis(self.random.u64(..LATEST));
        tokio::spawn(async move {
            tokio::time::sleep(late).await;
            asked.notify_one();
        });
    }

    /// Writes the manifest of a Service.
    fn edit(&mut self) {
        let key = self.key();
        let valid = self.random.u8(..5) > 0;
        self.versions += 1;
        let mut row = draw(&mut self.random, &key, self.versions, valid);
        let has_uid = self.random.bool();
        row.uid = match self.written.get(&key) {
            Some(existing) => existing.uid.clone(),
            None if has_uid => {
                self.made += 1;
                Uid::new(&format!("{}-{}", key.name(), self.made))
            }
            None => memory::uid_of(&key),
        };
        self.note(&reported(&row, valid));
        self.ledger.validate.edited(&row, valid);
        let mut manifest = wire::service_to_json(&row, &ServiceStatus::default());
        if row.uid == memory::uid_of(&key) {
            let metadata = manifest["metadata"].as_object_mut();
            metadata.unwrap().remove("uid");
        }
        self.files.put(&file_of(&key), manifest.to_string());
        self.written.insert(key, row);
        self.ask();
    }

    fn delete(&mut self) {
        let key = self.key();
        if self.written.remove(&key).is_some() {
            self.note(&format!("user removes the manifest of {key}"));
            self.files.remove(&file_of(&key));
            self.ask();
        }
    }

    fn change_pools(&mut self) {
        let chosen = POOLS[self.random.usize(..POOLS.len())];
        self.note(&format!("pools are {chosen:?}"));
        self.write_pools(chosen);
        self.ask();
    }

    /// Writes pools. One that can't be read changes nothing: what was valid goes on.
    fn write_pools(&mut self, chosen: &[(&'static str, &'static str)]) {
        let addresses: Option<Vec<IpAddr>> = pooled(chosen);
        let mut text = pool_text(chosen);
        if addresses.is_some() {
            self.pools = chosen.to_vec();
            self.ledger.validate.pools_changed(addresses);
        } else {
            self.ledger.validate.pools_unreadable();
            let valid = self.pools.iter().filter(|(name, _)| *name != "one");
            let valid: Vec<_> = valid.copied().collect();
            text.push_str(&pool_text(&valid));
        }
        if text.is_empty() {
            self.files.remove(POOL_FILE);
        } else {
            self.files.put(POOL_FILE, text);
        }
    }

    fn plan_trouble(&mut self) {
        let trouble = [
            SimFault::CutBefore,
            SimFault::CutAfter,
            SimFault::Fails,
            SimFault::Short,
            SimFault::Full,
        ][self.random.usize(..5)];
        let away = self.random.usize(..OPERATIONS);
        self.note(&format!("{trouble:?} at operation {away} from here"));
        self.is_troubled = true;
        self.played.faults += 1;
        self.disk.plan(away, trouble);
    }

    fn repair(&mut self) {
        self.note("the disk is fine");
        self.is_troubled = false;
        self.disk.repair();
    }

    /// The process is gone; in half of all cases with the power.
    async fn die(&mut self) {
        self.disk.kill();
        self.process.kill().await;
        self.played.crashes += 1;
        if self.random.bool() {
            self.note("the power is cut");
            let random = &mut self.random;
            self.disk.cut_power(|below| random.usize(..below));
        }
    }

    /// The process dies, and another one begins: at once, or a little later.
    async fn crash(&mut self) {
        self.note("kill -9");
        self.die().await;
        if self.random.bool() {
            let pause = Duration::from_millis(self.random.u64(..3_000));
            tokio::time::sleep(pause).await;
        }
        self.start();
    }

    /// The process stops in good order, and another one begins.
    async fn restart(&mut self) {
        self.note("SIGTERM");
        self.process.stop().await;
        self.disk.kill();
        self.start();
    }

    /// Starts a process that knows nothing but what the disk says.
    fn start(&mut self) {
        for _ in 0..ATTEMPTS {
            self.disk = self.disk.next_life();
            let random = Mutex::new(self.random.fork());
            let delay = SimDelay::new(move || {
                let mut random = random.lock().unwrap();
                Duration::from_millis(random.u64(..SLOWEST))
            });
            match memory::open(&self.files, &self.disk, delay) {
                Ok((manifests, store)) => {
                    let manifests = manifests.look_when(self.asked.clone());
                    return self.launch(manifests, store);
                }
                Err(error) if self.is_troubled => {
                    self.note(&format!("it does not start: {error}"));
                    self.repair();
                }
                Err(error) => {
                    self.ledger
                        .validate
                        .violation(format!("it does not start: {error}"));
                    return;
                }
            }
        }
        self.ledger.validate.violation("it never starts".to_owned());
    }

    fn launch(
        &mut self,
        manifests: landfall_files::Manifests,
        store: landfall_files::ManifestStore,
    ) {
        let ledger = self.ledger.clone();
        let memory = Arc::new(Memory::new(move |id, owner| {
            ledger.opened(id.address, id.key, &owner.uid);
        }));
        let local = Arc::new(Local::in_memory(memory.clone()));
        let config = EngineConfig::new(Classes::only("local"));
        let ledger = self.ledger.clone();
        let engine = Engine::new(config, vec![local], Arc::new(Remembering { ledger, store }));
        let (report, reported) = mpsc::channel(1024);
        let (pass, facts) = mpsc::channel(1024);
        let (wake, wakes) = mpsc::channel(1);
        let cancel = CancellationToken::new();
        self.ledger.begun();
        let mut tasks = JoinSet::new();
        tasks.spawn(manifests.run(report, cancel.clone()));
        tasks.spawn(tap(self.ledger.clone(), reported, pass));
        let ends = cancel.clone();
        tasks.spawn(async move {
            engine.run(facts, wakes, ends).await;
            drop(wake);
        });
        self.process = Process {
            memory,
            tasks,
            cancel,
        };
    }

    /// Lets everything settle, on a disk that works, and reads what is there.
    async fn settle(&mut self) {
        self.repair();
        self.wait(LONG).await;
        let before = self.disk.operations();
        tokio::time::sleep(QUIET).await;
        let validate = &self.ledger.validate;
        let more = self.disk.operations() - before;
        if more > 0 {
            validate.never_settles(more as u64);
        }
        let listeners: Listeners = self.process.memory.listeners();
        validate.settled(&self.ledger.reported(), &listeners);
        self.ledger.settled();
        self.played.settled += 1;
    }
}
