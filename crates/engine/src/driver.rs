//! The loop: takes facts and wakes in, starts reconciles, takes their ends, keeps the book.
//!
//! One task owns the World and the queue; reconciles run beside it as tasks of their own, never two
//! for one Service. Nothing here decides what a load balancer should look like.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use landfall_model::provider::Provider;
use landfall_model::reason::Reason;
use landfall_model::rows::{Fact, OwnershipFields, ServiceRow};
use landfall_model::status::INSTANCE;
use landfall_model::{ServiceKey, Uid};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{self, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::backoff::{Backoff, Retries};
use crate::claims::LostClaim;
use crate::debounce::Debounce;
use crate::follow::{Follower, receive};
use crate::heartbeat::Heartbeat;
use crate::instance::Owners;
use crate::leadership::Role;
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::reconcile::{Job, ReconcileEnd};
use crate::report::Report;
use crate::select::{Classes, Ownership};
use crate::store::StateStore;
use crate::world::World;
use audits::Audits;
use ends::Running;
pub use pools::hand_out_pools;
use start::slots;
use tracked::Tracked;
use unserved::UnservedServices;
use unwritten::Unwritten;
use waiting::Waiting;

/// How an engine runs.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Whose Services.
    pub classes: Classes,
    /// How many reconciles at the same time, per instance whose provider calls something outside of
    /// this process. What others wait for is the record alone: see [`Report::at_once`].
    pub concurrency: usize,
    /// Waits after failures.
    pub backoff: Backoff,
    /// Facts that come within this time are decided on together: one edit of a manifest, or one
    /// rollout, is several facts, and a load balancer should not see the states in between.
    pub debounce: Duration,
    /// From one check of everything to the next, at most.
    pub audit_every: Duration,
    /// What spreads the checks of several processes over time: they are up to a fifth earlier, by
    /// this number.
    pub audit_seed: u64,
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
    /// Services whose last write failed because nothing could be written.
    unwritten: Unwritten,
    pool_problems: Vec<Reason>,
    /// Apart from the table, which has room for many more.
    tracked: HashMap<ServiceKey, Box<Tracked>>,
    by_uid: HashMap<Uid, ServiceKey>,
    unserved: UnservedServices,
    /// Addresses on record that another Service holds.
    forfeited: BTreeMap<Uid, Vec<LostClaim>>,
    /// Annotations of the instance that a Service has just left.
    cleared: HashMap<Uid, &'static [&'static str]>,
    /// Changed pools, which come into force together.
    pools: Debounce,
    /// The same for other custom resources.
    resources: Debounce,
    questions: mpsc::Receiver<oneshot::Sender<Arc<World>>>,
    role: watch::Receiver<Role>,
    /// Whether the source says what is known as of the beginning of a term.
    confirmed: bool,
    /// Whether claims were recalled and reconciles are made.
    at_work: bool,
    /// The term in which reconciles were last made, until another replica serves.
    term: Option<u64>,
    reconciles: JoinSet<(Duration, ReconcileEnd)>,
    audits: Audits,
    running: HashMap<task::Id, Running>,
    /// Services with a fact that arrived during a reconcile of them and that may be its own
    /// writing.
    received: HashSet<ServiceKey>,
    /// Services as facts brought them before reconciles began; then those of ours as they were read
    /// at that time, until the first reconcile of each or a fact about it. To unpack a row is some
    /// work.
    recalled: HashMap<ServiceKey, Arc<ServiceRow>>,
}

/// What the rest of the process may see of an engine.
#[derive(Debug)]
pub struct EngineHandle<P> {
    /// What is known of each Service.
    pub store: Arc<StateStore>,
    /// Counters of reconciles and steps.
    pub metrics: Arc<Metrics>,
    /// Sign of life of the loop.
    pub heartbeat: Arc<Heartbeat>,
    /// The provider instances, in the order of their classes.
    pub providers: Arc<[Arc<P>]>,
    questions: mpsc::Sender<oneshot::Sender<Arc<World>>>,
}

/// A reconcile to be made, and with which instances, one after the other.
#[derive(Debug)]
struct WorkItem {
    job: Job,
    owners: Owners,
}

/// [`EngineConfig::audit_every`], where nothing else is configured.
pub const AUDIT_EVERY: Duration = Duration::from_secs(180);

/// How often an idle loop says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// [`EngineConfig::debounce`] where a source sends each fact on its own.
const DEBOUNCE: Duration = Duration::from_millis(10);

/// The longest that a reconcile may take. Requests end by their own time limits long before; a
/// provider that never answers must not keep a slot for ever. What it leaves undone the next
/// reconcile finds, as after a crash.
const RECONCILE_LIMIT: Duration = Duration::from_mins(15);

/// Pools come into force together once none has changed for this long: a range that passes from one
/// pool to another is two facts, and no Service may lose its address in between.
const POOL_DEBOUNCE: Duration = Duration::from_millis(100);

/// The longest that a change of pools waits for others.
const POOLS_AT_MOST: Duration = Duration::from_secs(1);

/// The term of what was held before this process stood for election. No other has this number.
const BEFORE: u64 = 0;

/// How long running reconciles have to end when the engine stops.
const LAST_CALL: Duration = Duration::from_secs(10);

// === impl EngineConfig ===

impl EngineConfig {
    /// Sane values for a provider on this machine.
    pub fn new(classes: Classes) -> Self {
        Self {
            classes,
            concurrency: 16,
            backoff: Backoff::default(),
            debounce: DEBOUNCE,
            audit_every: AUDIT_EVERY,
            audit_seed: 0,
            now: seconds,
        }
    }

    /// The pause before the next check of everything, after so many.
    fn pause_before_audit(&self, audits: u64) -> Duration {
        let mut hasher = DefaultHasher::new();
        (self.audit_seed, audits).hash(&mut hasher);
        let earlier = u32::try_from(hasher.finish() % 256).unwrap_or(0);
        let earlier = self.audit_every / 5 / 256 * earlier;
        self.audit_every.saturating_sub(earlier)
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
            store: self.store.clone(),
            metrics: self.metrics.clone(),
            heartbeat: self.heartbeat.clone(),
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
        // Copied here, where it delays nothing.
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
            store: Arc::default(),
            metrics: Arc::default(),
            heartbeat: Arc::default(),
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
            unwritten: Unwritten::default(),
            pool_problems: Vec::new(),
            tracked: HashMap::new(),
            by_uid: HashMap::new(),
            unserved: UnservedServices::default(),
            forfeited: BTreeMap::new(),
            cleared: HashMap::new(),
            pools: Debounce::new(POOL_DEBOUNCE, POOLS_AT_MOST),
            resources: Debounce::new(POOL_DEBOUNCE, POOLS_AT_MOST),
            questions,
            role: watch::Sender::new(Role::Leading { term: 0 }).subscribe(),
            confirmed: false,
            at_work: false,
            term: None,
            reconciles: JoinSet::new(),
            audits: Audits::default(),
            running: HashMap::new(),
            received: HashSet::new(),
            recalled: HashMap::new(),
        }
    }

    /// What the rest of the process may see.
    pub fn handle(&self) -> EngineHandle<P> {
        self.handle.clone()
    }

    /// Runs until cancelled or until the source ends, then lets running reconciles end. Nothing is
    /// removed from the outside at a stop.
    ///
    /// `wakes` names Services whose state changed outside: a member turned unhealthy.
    pub async fn run(
        mut self,
        mut facts: mpsc::Receiver<Fact>,
        mut wakes: mpsc::Receiver<Uid>,
        cancel: CancellationToken,
    ) {
        let mut audits = 0;
        let mut next_audit = self.config.pause_before_audit(audits);
        let mut audited = clock();
        let mut beat = tokio::time::interval(HEARTBEAT);
        loop {
            let more = self.start_passes();
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
                    // The caller may have gone away meanwhile.
                    let _ = answer.send(self.world.snapshot());
                }
                Some(uid) = wakes.recv() => {
                    if let Some(key) = self.by_uid.get(&uid) {
                        self.queue.push(key);
                    }
                }
                Some(end) = self.reconciles.join_next_with_id(), if !self.reconciles.is_empty() => {
                    self.take_end(end);
                    self.take_ends();
                }
                () = tokio::time::sleep_until(due.unwrap_or_else(clock).into()),
                    if due.is_some() => {}
                () = tokio::time::sleep_until(self.pools.due().unwrap_or_else(clock).into()),
                    if self.pools.due().is_some() => self.apply_pools(),
                () = tokio::time::sleep_until(self.resources.due().unwrap_or_else(clock).into()),
                    if self.resources.due().is_some() => self.apply_resources(),
                Some(_) = self.unserved.reporting.join_next(),
                    if !self.unserved.reporting.is_empty() => {}
                _ = beat.tick() => {
                    self.handle.heartbeat.beat(clock());
                    self.handle.metrics.events(self.reporter.event_counts());
                }
                () = tokio::time::sleep_until((audited + next_audit).into()), if self.at_work => {
                    self.start_audit();
                    audits += 1;
                    next_audit = self.config.pause_before_audit(audits);
                    audited = clock();
                }
                end = self.audits.join_next() => self.take_audit(end),
                // Lets whatever else is ready come first.
                () = tokio::task::yield_now(), if more => {}
            }
        }
        let ended = async {
            while let Some(end) = self.reconciles.join_next_with_id().await {
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

    fn validate(&self, row: &ServiceRow) -> Ownership {
        let namespace = self.world.namespace(row.key.namespace());
        let instance = self.instance_of(row);
        let affiliation = OwnershipFields {
            instance: instance.as_deref(),
            ..row.into()
        };
        let classes = &self.config.classes;
        classes.validate_affiliation(affiliation, namespace.map(AsRef::as_ref))
    }

    /// The instance on record of a Service. A status of an earlier release does not say it; then
    /// this process remembers the annotation.
    fn instance_of<'a>(&self, row: &'a ServiceRow) -> Option<Cow<'a, str>> {
        row.instance().map(Cow::Borrowed).or_else(|| {
            let tracked = self.tracked.get(&row.key)?;
            let ours = tracked.uid == row.uid;
            let instance = ours.then(|| tracked.marks().remove(INSTANCE)).flatten();
            instance.map(Cow::Owned)
        })
    }

    fn track(&mut self, row: &ServiceRow) -> &mut Tracked {
        let earlier = self.tracked.get(&row.key);
        if earlier.is_some_and(|tracked| tracked.uid != row.uid) {
            // One of the same name, of which nothing is held: nothing of it is handed down.
            self.drop_tracked(&row.key);
        }
        self.by_uid.insert(row.uid.clone(), row.key.clone());
        self.tracked.entry(row.key.clone()).or_insert_with(|| {
            let obsolete = self.cleared.remove(&row.uid).unwrap_or_default();
            Box::new(Tracked::new(row, obsolete))
        })
    }

    fn drop_tracked(&mut self, key: &ServiceKey) {
        if let Some(tracked) = self.tracked.remove(key) {
            self.by_uid.remove(&tracked.uid);
            self.forfeited.remove(&tracked.uid);
        }
        self.retries.reset(key);
        self.waiting.leave(key);
        self.unwritten.services.remove(key);
        self.look_for_end(clock());
    }

    fn forget(&mut self, key: &ServiceKey) {
        self.drop_tracked(key);
        self.handle.store.write(|pages| {
            pages.records.remove(key);
        });
    }
}

/// The time by tokio's clock, which tests can stop.
fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}

mod audits;
mod ends;
mod facts;
mod history;
mod pools;
mod prepare;
mod problems;
mod record;
mod role;
mod self_updates;
mod start;
mod status_conflicts;
mod tracked;
mod unserved;
mod unwritten;
mod waiting;

#[cfg(test)]
mod tests;
