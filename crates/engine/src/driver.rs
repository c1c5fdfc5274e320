//! The loop: takes facts and wakes in, starts passes, takes their ends, keeps the book.
//!
//! One task owns the World and the queue; passes run beside it as tasks of their own, never two for
//! one Service. Nothing here decides what a load balancer should look like.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use landfall_model::provider::Provider;
use landfall_model::reason::Reason;
use landfall_model::rows::{Fact, OwnershipFields, ServiceRow};
use landfall_model::status::{ConditionType, INSTANCE};
use landfall_model::{ServiceKey, Uid};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{self, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::backoff::{Backoff, Retries};
use crate::book::{Record, StateStore};
use crate::claims::{Forfeited, lost, on_record};
use crate::debounce::Debounce;
use crate::follow::{Follower, receive};
use crate::instance::{InstanceId, Owners};
use crate::leadership::Role;
use crate::metrics::Metrics;
use crate::pass::{EventState, Job, Outcome, Pass, PassEnd};
use crate::pulse::Pulse;
use crate::queue::Queue;
use crate::report::Report;
use crate::select::{Classes, Ownership};
use crate::world::{Affected, World};
use audits::Audits;
use echo::Echo;
use ends::{Course, Running};
use lost::Lost;
use tracked::Tracked;
use waiting::Waiting;

/// How an engine runs.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Whose Services.
    pub classes: Classes,
    /// How many passes at the same time, per instance whose provider calls something outside of
    /// this process. What others wait for is the record alone: see [`Report::at_once`].
    pub concurrency: usize,
    /// Waits after failures.
    pub backoff: Backoff,
    /// From one look at everything to the next.
    pub audit_every: Duration,
    /// The wall clock, for what people read.
    pub now: fn() -> Timestamp,
}

/// The loop's own state.
#[derive(Debug)]
pub struct Engine<P, R> {
    config: EngineConfig,
    handle: EngineHandle<P>,
    reporter: Arc<R>,
    world: Follower,
    queue: Queue<ServiceKey>,
    retries: Retries<ServiceKey>,
    waiting: Waiting,
    pool_problems: Vec<Reason>,
    tracked: HashMap<ServiceKey, Tracked>,
    by_uid: HashMap<Uid, ServiceKey>,
    lost: Lost,
    /// Addresses on record that another Service holds.
    forfeited: BTreeMap<Uid, Vec<Forfeited>>,
    /// Annotations of the instance that a Service has just left.
    cleared: HashMap<Uid, &'static [&'static str]>,
    /// Changed pools, which come into force together.
    pools: Debounce,
    questions: mpsc::Receiver<oneshot::Sender<Arc<World>>>,
    role: watch::Receiver<Role>,
    /// Whether the source says what is known as of the beginning of a term.
    confirmed: bool,
    /// Whether claims were recalled and passes are made.
    at_work: bool,
    /// The term in which passes were last made, until another replica serves.
    term: Option<u64>,
    passes: JoinSet<(Duration, PassEnd)>,
    audits: Audits,
    running: HashMap<task::Id, Running>,
    /// Services of which something was told while a pass over them ran that may be the pass's own
    /// writing.
    heard: HashSet<ServiceKey>,
}

/// What the rest of the process may see of an engine.
#[derive(Debug)]
pub struct EngineHandle<P> {
    /// What is known of each Service.
    pub book: Arc<StateStore>,
    /// Counters of passes and steps.
    pub metrics: Arc<Metrics>,
    /// Sign of life of the loop.
    pub pulse: Arc<Pulse>,
    /// The provider instances, in the order of their classes.
    pub providers: Arc<[Arc<P>]>,
    questions: mpsc::Sender<oneshot::Sender<Arc<World>>>,
}

/// A pass to be made, and with which instances, one after the other.
#[derive(Debug)]
struct WorkItem {
    job: Job,
    owners: Owners,
}

/// How often an idle loop says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Facts that come within this time are decided on together: one edit of a manifest, or one
/// rollout, is several facts, and a load balancer should not see the states in between.
const TOGETHER: Duration = Duration::from_millis(10);

/// Pools come into force together once none has changed for this long: a range that passes from one
/// pool to another is two facts, and no Service may lose its address in between.
const POOLS_TOGETHER: Duration = Duration::from_millis(100);

/// The longest that a change of pools waits for others.
const POOLS_AT_MOST: Duration = Duration::from_secs(1);

/// The longest that a pass may take. Requests end by their own time limits long before; a provider
/// that never answers must not keep a slot for ever. What it leaves undone the next pass finds, as
/// after a crash.
const PASS_LIMIT: Duration = Duration::from_mins(15);

/// The term of what was held before this process stood for election. No other has this number.
const BEFORE: u64 = 0;

/// How long running passes have to end when the engine stops.
const LAST_CALL: Duration = Duration::from_secs(10);

// === impl EngineConfig ===

impl EngineConfig {
    /// Sane values for a provider on this machine.
    pub fn new(classes: Classes) -> Self {
        Self {
            classes,
            concurrency: 16,
            backoff: Backoff::default(),
            audit_every: Duration::from_secs(180),
            now: seconds,
        }
    }
}

/// Now, as precise as Kubernetes keeps it: a status must read back as it was written.
fn seconds() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

// === impl EngineHandle ===

impl<P> Clone for EngineHandle<P> {
    fn clone(&self) -> Self {
        Self {
            book: self.book.clone(),
            metrics: self.metrics.clone(),
            pulse: self.pulse.clone(),
            providers: self.providers.clone(),
            questions: self.questions.clone(),
        }
    }
}

impl<P> EngineHandle<P> {
    /// A copy of all facts as of now; `None` once the loop has ended.
    pub async fn world(&self) -> Option<World> {
        let (answer, world) = oneshot::channel();
        self.questions.send(answer).await.ok()?;
        let world = world.await.ok()?;
        // Copied here, where it holds up nobody.
        Some(Arc::unwrap_or_clone(world))
    }
}

// === impl Engine ===

impl<P: Provider, R: Report> Engine<P, R> {
    /// An engine that knows nothing yet.
    pub fn new(config: EngineConfig, providers: Vec<Arc<P>>, reporter: Arc<R>) -> Self {
        let (asking, questions) = mpsc::channel(8);
        let queue = Queue::new(&slots(&config, &providers, &*reporter));
        let handle = EngineHandle {
            questions: asking,
            book: Arc::default(),
            metrics: Arc::default(),
            pulse: Arc::default(),
            providers: providers.into(),
        };
        let retries = Retries::new(config.backoff);
        Self {
            config,
            handle,
            reporter,
            world: Follower::default(),
            queue,
            retries,
            waiting: Waiting::default(),
            pool_problems: Vec::new(),
            tracked: HashMap::new(),
            by_uid: HashMap::new(),
            lost: Lost::default(),
            forfeited: BTreeMap::new(),
            cleared: HashMap::new(),
            pools: Debounce::new(POOLS_TOGETHER, POOLS_AT_MOST),
            questions,
            role: watch::Sender::new(Role::Leading { term: 0 }).subscribe(),
            confirmed: false,
            at_work: false,
            term: None,
            passes: JoinSet::new(),
            audits: Audits::default(),
            running: HashMap::new(),
            heard: HashSet::new(),
        }
    }

    /// What the rest of the process may see.
    pub fn handle(&self) -> EngineHandle<P> {
        self.handle.clone()
    }

    /// Runs until cancelled or until the source ends, then lets running passes end. Nothing is
    /// removed from the outside at a stop.
    ///
    /// `wakes` names Services whose state changed outside: a member turned unhealthy.
    pub async fn run(
        mut self,
        mut facts: mpsc::Receiver<Fact>,
        mut wakes: mpsc::Receiver<Uid>,
        cancel: CancellationToken,
    ) {
        let mut audit = tokio::time::interval(self.config.audit_every);
        audit.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        audit.tick().await;
        let mut beat = tokio::time::interval(HEARTBEAT);
        loop {
            self.start_passes();
            self.handle.metrics.turn(self.queue.depth());
            // What is due while nothing may be done must not wake the loop for ever.
            let due = self.queue.next_due().filter(|_| self.at_work);
            tokio::select! {
                () = cancel.cancelled() => break,
                batch = receive(&mut facts) => match batch {
                    Some(batch) => self.take_facts(batch),
                    None => break,
                },
                // A sender that is gone leaves its last word standing.
                Ok(()) = self.role.changed() => self.follow_role().await,
                Some(answer) = self.questions.recv() => {
                    // Who asked may have gone away meanwhile.
                    let _ = answer.send(self.world.snapshot());
                }
                Some(uid) = wakes.recv() => {
                    if let Some(key) = self.by_uid.get(&uid) {
                        self.queue.push(key);
                    }
                }
                Some(end) = self.passes.join_next_with_id(), if !self.passes.is_empty() => {
                    self.take_end(end);
                }
                () = tokio::time::sleep_until(due.unwrap_or_else(clock).into()),
                    if due.is_some() => {}
                () = tokio::time::sleep_until(self.pools.due().unwrap_or_else(clock).into()),
                    if self.pools.due().is_some() => self.apply_pools(),
                Some(_) = self.lost.telling.join_next(), if !self.lost.telling.is_empty() => {}
                _ = beat.tick() => {
                    self.handle.pulse.beat(clock());
                    self.handle.metrics.events(self.reporter.event_counts());
                }
                _ = audit.tick(), if self.at_work => self.start_audit(),
                end = self.audits.join_next() => self.take_audit(end),
            }
        }
        let ended = async {
            while let Some(end) = self.passes.join_next_with_id().await {
                self.take_end(end);
            }
        };
        if tokio::time::timeout(LAST_CALL, ended).await.is_err() {
            tracing::warn!(
                "reconciles that did not end are cancelled; the next start repeats \
                           them"
            );
        }
    }

    fn take_facts(&mut self, batch: Vec<Fact>) {
        let now = clock();
        let (mut of_note, mut concerns_all) = (false, false);
        for fact in batch {
            of_note |= matches!(fact, Fact::SourceProblems { .. } | Fact::Synced);
            let echo = self.at_work.then(|| self.echo_of(&fact)).flatten();
            let affected = self.world.apply(fact);
            if !self.at_work {
                continue;
            }
            match (affected, echo) {
                (Affected::None, _) | (Affected::Services(_), Some(Echo::Finalizer)) => {}
                (Affected::Services(keys), Some(Echo::Status)) => {
                    for key in &keys {
                        self.hear(key);
                    }
                }
                (Affected::Services(keys), None) => {
                    for key in &keys {
                        if self.is_relevant(key) {
                            self.queue.push_after(key, TOGETHER, now);
                        }
                    }
                }
                (Affected::All, _) => concerns_all = true,
                (Affected::Pools, _) => self.pools.push(now),
            }
        }
        if concerns_all {
            self.push_all();
        }
        // First everybody who is still to be handled is noted, and then that all is known: the book
        // must not say "ready" in between.
        self.begin();
        if of_note {
            self.note_problems();
        }
    }

    /// Asks for a pass over every Service of ours. What a provider asked to be left alone for, and
    /// a change that is under way, are not disturbed, and who has just failed has a moment's rest:
    /// nodes may come and go every second.
    fn push_all(&mut self) {
        let now = clock();
        let ours: Vec<ServiceKey> = self
            .world
            .keys()
            .filter(|it| self.is_relevant(it))
            .collect();
        for key in &ours {
            let course = self.tracked.get(key).map(|tracked| &tracked.course);
            if course.is_some_and(Course::is_under_way) {
                self.queue.push_unless_due(key);
                continue;
            }
            match self.rest(key, now) {
                Some(rest) => self.queue.push_after(key, rest, now),
                None => self.queue.push(key),
            }
        }
    }

    /// Whether a fact about a Service may have to be acted upon. Most Services of a cluster are
    /// nobody's business here, and their facts should cost next to nothing.
    fn is_relevant(&self, key: &ServiceKey) -> bool {
        let Some(affiliation) = self.world.affiliation(key) else {
            return self.is_remembered(key);
        };
        let namespace = self.world.namespace(key.namespace());
        let classes = &self.config.classes;
        match classes.judge_affiliation(affiliation, namespace.map(AsRef::as_ref)) {
            Ownership::Ours(_) | Ownership::UnknownClass => true,
            Ownership::SwitchedOff => self.is_remembered(key),
            // It may be ours to clear away.
            Ownership::NotOurs => {
                affiliation.finalized || affiliation.reported || self.is_remembered(key)
            }
        }
    }

    fn is_remembered(&self, key: &ServiceKey) -> bool {
        self.tracked.contains_key(key)
            || self.lost.remembers(key)
            || self
                .handle
                .book
                .read(|pages| pages.records.contains_key(key))
    }

    fn note_problems(&self) {
        let problems: Vec<Reason> = self
            .world
            .problems()
            .chain(&self.pool_problems)
            .cloned()
            .collect();
        self.handle
            .book
            .read(|pages| problems::log(&pages.problems, &problems));
        self.handle.book.write(|pages| {
            pages.problems = problems;
            pages.synced = self.world.synced();
            pages.at_work = self.at_work;
        });
    }

    /// Loads every claim on record before the first pass, and marks who will have to be handled
    /// before this instance is ready.
    fn restore_claims(&mut self) {
        // Unpacking a row costs more than all that is asked of it here.
        let rows: Vec<Arc<ServiceRow>> = self.rows_on_record().collect();
        let record = on_record(
            rows.iter().cloned(),
            &self.world,
            &self.config.classes,
            &self.handle.providers,
        );
        let served = rows
            .iter()
            .filter(|row| prepare::stands(row, ConditionType::Programmed));
        let served: HashSet<&ServiceKey> = served.map(|row| &row.key).collect();
        for (provider, claims) in self.handle.providers.iter().zip(&record.claims) {
            provider.restore_claims(claims);
            let claims = claims
                .iter()
                .filter(|claim| served.contains(&claim.service));
            provider.reserve_listeners(&claims.cloned().collect::<Vec<_>>());
        }
        self.forfeited = record.forfeited;
        for (key, tracked) in &mut self.tracked {
            let row = self.world.service(key);
            let row = row.filter(|row| row.uid == tracked.uid);
            tracked.published = row.map_or_else(Vec::new, |row| row.status.ingress.clone());
        }
        // After what is ours: where both are on record with an address, ours goes on being served.
        self.lost.claims = lost(&rows, &self.world, &self.config.classes);
        self.reserve();
        let unhandled = rows.iter().filter_map(|row| {
            let Ownership::Ours(instance) = self.judge(row) else {
                return None;
            };
            let record = Record {
                row: row.clone(),
                instance: Some(instance),
                status: row.status.clone(),
                reasons: Vec::new(),
                address: None,
                left_out: Vec::new(),
                pending: Vec::new(),
                handled: false,
            };
            Some((row.key.clone(), record))
        });
        let records = unhandled.collect();
        self.handle.book.write(|pages| pages.records = records);
    }

    /// Every Service that may have something on record here, or is to be handled.
    fn rows_on_record(&self) -> impl Iterator<Item = Arc<ServiceRow>> {
        let concerned = self.world.keys().filter(|key| {
            let affiliation = self.world.affiliation(key);
            self.is_relevant(key) || affiliation.is_some_and(|it| it.instance.is_some())
        });
        concerned.filter_map(|key| self.world.service(&key))
    }

    fn start_passes(&mut self) {
        while self.at_work {
            let Self {
                queue,
                tracked,
                world,
                config,
                handle,
                ..
            } = self;
            let several = handle.providers.len();
            let lane_of = |key: &ServiceKey| {
                let instance = lane(key, tracked, world, &config.classes);
                instance.map_or(several, InstanceId::lane)
            };
            let Some(key) = queue.take(clock(), lane_of) else {
                return;
            };
            match self.prepare(&key) {
                Some(item) => self.start(key, item),
                None => self.queue.finish(&key),
            }
        }
    }

    fn judge(&self, row: &ServiceRow) -> Ownership {
        let namespace = self.world.namespace(row.key.namespace());
        let affiliation = OwnershipFields {
            instance: self.instance_of(row),
            ..row.into()
        };
        let classes = &self.config.classes;
        classes.judge_affiliation(affiliation, namespace.map(AsRef::as_ref))
    }

    /// The instance on record of a Service. A status of an earlier release does not say it; then
    /// this process remembers the annotation.
    fn instance_of<'a>(&'a self, row: &'a ServiceRow) -> Option<&'a str> {
        row.instance().or_else(|| {
            let tracked = self.tracked.get(&row.key)?;
            let ours = tracked.uid == row.uid;
            let noted = tracked.marks.get(INSTANCE).filter(|_| ours)?;
            Some(noted.as_str())
        })
    }

    /// Hands each instance its pools.
    fn set_pools(&mut self) {
        let providers = &self.handle.providers;
        let world = self.world.world_mut();
        self.pool_problems = hand_out_pools(world, &self.config.classes, providers);
    }

    /// Lets pools that have changed come into force.
    fn apply_pools(&mut self) {
        self.pools.clear();
        if self.at_work {
            self.set_pools();
            self.push_all();
            self.note_problems();
        }
    }

    fn track(&mut self, row: &ServiceRow) -> &mut Tracked {
        let earlier = self.tracked.get(&row.key);
        if earlier.is_some_and(|tracked| tracked.uid != row.uid) {
            // One of the same name, of which nothing is held: nothing of it is handed down.
            self.drop_tracked(&row.key);
        }
        self.by_uid.insert(row.uid.clone(), row.key.clone());
        self.tracked
            .entry(row.key.clone())
            .or_insert_with(|| Tracked {
                uid: row.uid.clone(),
                accepted: None,
                gave_up: false,
                written: None,
                last_failure: None,
                telling: EventState::default(),
                marks: row.status.marks.clone(),
                published: row.status.ingress.clone(),
                owners: None,
                replacing: false,
                course: Course::default(),
                obsolete: self.cleared.remove(&row.uid).unwrap_or_default(),
            })
    }

    fn drop_tracked(&mut self, key: &ServiceKey) {
        if let Some(tracked) = self.tracked.remove(key) {
            self.by_uid.remove(&tracked.uid);
            self.forfeited.remove(&tracked.uid);
        }
        self.retries.reset(key);
        self.waiting.leave(key);
    }

    fn forget(&mut self, key: &ServiceKey) {
        self.drop_tracked(key);
        self.handle.book.write(|pages| {
            pages.records.remove(key);
        });
    }

    fn start(&mut self, key: ServiceKey, item: WorkItem) {
        let WorkItem { mut job, owners } = item;
        if let Some(tracked) = self.tracked.get_mut(&key) {
            tracked.course.begin(&mut job, clock());
        }
        let providers: Vec<Arc<P>> = owners
            .iter()
            .filter_map(|instance| instance.of(&self.handle.providers).cloned())
            .collect();
        let reporter = self.reporter.clone();
        let (metrics, now) = (self.handle.metrics.clone(), self.config.now);
        self.note_start(&job, owners.first);
        let calls = self.waiting.calls(owners.first);
        let running = Running::new(key, owners, calls, &job);
        let task = self.passes.spawn(async move {
            let started = clock();
            let end = {
                let passes = pin!(async {
                    let mut end = None;
                    for (position, provider) in providers.iter().enumerate() {
                        let pass = Pass {
                            provider: &**provider,
                            reporter: &*reporter,
                            metrics: &metrics,
                            now,
                        };
                        job.last_of_row = position + 1 == providers.len();
                        let ended = end.insert(pass.run(&job).await);
                        if ended.outcome != Outcome::Removed {
                            break;
                        }
                    }
                    end.unwrap_or_else(|| PassEnd::nothing(&job))
                });
                tokio::time::timeout(PASS_LIMIT, passes).await
            };
            let end = end.unwrap_or_else(|_| PassEnd::broken_off(&job, PASS_LIMIT));
            (started.elapsed(), end)
        });
        self.running.insert(task.id(), running);
    }

    /// Keeps the row of the record current, so that the book never lags behind the source.
    fn note_start(&self, job: &Job, instance: InstanceId) {
        let instance = Some(instance);
        let Some(row) = &job.row else { return };
        let spec = job
            .intent
            .as_ref()
            .and_then(|intent| intent.load_balancer.as_ref());
        let address = spec.map(|spec| spec.address.clone());
        let left_out = spec.map(|spec| spec.left_out.clone()).unwrap_or_default();
        self.handle.book.write(|pages| {
            let record = pages
                .records
                .entry(row.key.clone())
                .or_insert_with(|| Record {
                    row: row.clone(),
                    instance,
                    status: job.status.clone(),
                    reasons: job.errors.clone(),
                    address: None,
                    left_out: Vec::new(),
                    pending: Vec::new(),
                    handled: false,
                });
            record.row = row.clone();
            record.instance = instance;
            record.address = address;
            record.left_out = left_out;
        });
    }
}

/// Passes at the same time: of each instance, and of removals that ask several.
fn slots<P: Provider, R: Report>(
    config: &EngineConfig,
    providers: &[Arc<P>],
    reporter: &R,
) -> Vec<usize> {
    let of = |provider: &Arc<P>| {
        if provider.profile().immediate {
            reporter.at_once()
        } else {
            config.concurrency
        }
    };
    let several = std::iter::once(config.concurrency);
    providers.iter().map(of).chain(several).collect()
}

/// Whose slots a pass over a Service takes: those of the instance that holds something of it, or
/// that it is for; `None`: of several, perhaps.
fn lane(
    key: &ServiceKey,
    tracked: &HashMap<ServiceKey, Tracked>,
    world: &World,
    classes: &Classes,
) -> Option<InstanceId> {
    if let Some(tracked) = tracked.get(key)
        && let Some(owners) = &tracked.owners
    {
        return owners.further.is_empty().then_some(owners.first);
    }
    let affiliation = world.affiliation(key)?;
    let namespace = world.namespace(key.namespace());
    match classes.judge_affiliation(affiliation, namespace.map(AsRef::as_ref)) {
        Ownership::Ours(instance) => Some(instance),
        Ownership::NotOurs | Ownership::UnknownClass | Ownership::SwitchedOff => None,
    }
}

/// Decides which pools are in force, and hands each instance its own. Returns what is wrong with
/// any.
pub fn hand_out_pools<P: Provider>(
    world: &mut World,
    classes: &Classes,
    providers: &[impl Deref<Target = P>],
) -> Vec<Reason> {
    let takes = providers.iter().map(|it| it.profile().takes_pools);
    let takes: Vec<bool> = takes.collect();
    let home = classes.home_of_pools(&takes);
    let mut problems = world.settle_pools(home.and_then(|home| classes.name(home)));
    let shares = classes.share_pools(world.pools(), &takes);
    for (provider, pools) in providers.iter().zip(&shares) {
        provider.set_pools_incomplete(world.pools_in_doubt());
        problems.extend(provider.set_pools(pools));
    }
    problems
}

/// The time by tokio's clock, which tests can stop.
fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}

mod audits;
mod contest;
mod echo;
mod ends;
mod lost;
mod prepare;
mod problems;
mod role;
mod tracked;
mod waiting;

#[cfg(test)]
mod tests;
