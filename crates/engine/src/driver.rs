//! The loop: takes facts and wakes in, starts passes, takes their ends, keeps the book.
//!
//! One task owns the World and the queue; passes run beside it as tasks of their own, never two for
//! one Service. Nothing here decides what a load balancer should look like.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use landfall_model::provider::{Provider, ProviderError};
use landfall_model::reason::Reason;
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::{ServiceKey, Uid};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{self, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::book::{Book, Record};
use crate::claims::{claims, lost};
use crate::leadership::Role;
use crate::metrics::Metrics;
use crate::pass::{Job, Outcome, Pass, PassEnd, Telling, Writing};
use crate::pulse::Pulse;
use crate::queue::Queue;
use crate::report::Report;
use crate::select::{Belongs, Classes};
use crate::world::{Affected, World};
use lost::Lost;
use tracked::Tracked;

/// How an engine runs.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Whose Services.
    pub classes: Classes,
    /// How many passes at the same time.
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
    world: World,
    queue: Queue,
    pool_problems: Vec<Reason>,
    tracked: HashMap<ServiceKey, Tracked>,
    by_uid: HashMap<Uid, ServiceKey>,
    lost: Lost,
    questions: mpsc::Receiver<oneshot::Sender<World>>,
    role: watch::Receiver<Role>,
    /// Whether claims were recalled and passes are made.
    at_work: bool,
    /// The term in which passes were last made, until another replica serves.
    term: Option<u64>,
    passes: JoinSet<(Duration, PassEnd)>,
    /// Looks at everything, one per instance. They may take a while, and nothing waits for them.
    audits: JoinSet<Result<Vec<Uid>, ProviderError>>,
    running: HashMap<task::Id, ServiceKey>,
    /// Services of which something was told while a pass over them ran that may be the pass's own writing.
    heard: HashSet<ServiceKey>,
}

/// What the rest of the process may see of an engine.
#[derive(Debug)]
pub struct EngineHandle<P> {
    /// What is known of each Service.
    pub book: Arc<Book>,
    /// Counters of passes and steps.
    pub metrics: Arc<Metrics>,
    /// Sign of life of the loop.
    pub pulse: Arc<Pulse>,
    /// The provider instances, in the order of their classes.
    pub providers: Arc<[Arc<P>]>,
    questions: mpsc::Sender<oneshot::Sender<World>>,
}

/// A pass to be made, and with which instances, one after the other.
#[derive(Debug)]
struct Errand {
    job: Job,
    instances: Vec<usize>,
}

/// How often an idle loop says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Facts that come within this time are decided on together: one edit of a manifest, or one rollout,
/// is several facts, and a load balancer should not see the states in between.
const TOGETHER: Duration = Duration::from_millis(10);

/// Facts taken in one go before passes are started.
const BATCH: usize = 1024;

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
        world.await.ok()
    }
}

// === impl Engine ===

impl<P: Provider, R: Report> Engine<P, R> {
    /// An engine that knows nothing yet.
    pub fn new(config: EngineConfig, providers: Vec<Arc<P>>, reporter: Arc<R>) -> Self {
        let (asking, questions) = mpsc::channel(8);
        let handle = EngineHandle {
            questions: asking,
            book: Arc::default(),
            metrics: Arc::default(),
            pulse: Arc::default(),
            providers: providers.into(),
        };
        Self {
            config,
            handle,
            reporter,
            world: World::default(),
            queue: Queue::default(),
            pool_problems: Vec::new(),
            tracked: HashMap::new(),
            by_uid: HashMap::new(),
            lost: Lost::default(),
            questions,
            role: watch::Sender::new(Role::Leading { term: 0 }).subscribe(),
            at_work: false,
            term: None,
            passes: JoinSet::new(),
            audits: JoinSet::new(),
            running: HashMap::new(),
            heard: HashSet::new(),
        }
    }

    /// Makes passes only while this replica leads.
    #[must_use]
    pub fn led_by(mut self, role: watch::Receiver<Role>) -> Self {
        self.role = role;
        self
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
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            self.start_passes();
            self.handle.metrics.queued(self.queue.depth());
            // What is due while nothing may be done must not wake the loop for ever.
            let due = self.queue.next_due().filter(|_| self.at_work);
            tokio::select! {
                () = cancel.cancelled() => break,
                count = facts.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        break;
                    }
                    self.take_facts(&mut batch);
                }
                // A sender that is gone leaves its last word standing.
                Ok(()) = self.role.changed() => self.follow_role().await,
                Some(answer) = self.questions.recv() => {
                    // Whoever asked may have gone away meanwhile.
                    let _ = answer.send(self.world.clone());
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
                Some(_) = self.lost.telling.join_next(), if !self.lost.telling.is_empty() => {}
                _ = beat.tick() => self.handle.pulse.beat(clock()),
                _ = audit.tick(), if self.at_work => self.start_audit(),
                Some(end) = self.audits.join_next(), if !self.audits.is_empty() => {
                    self.take_audit(end);
                }
            }
        }
        while let Some(end) = self.passes.join_next_with_id().await {
            self.take_end(end);
        }
    }

    fn take_facts(&mut self, batch: &mut Vec<Fact>) {
        let now = clock();
        let mut of_note = false;
        for fact in batch.drain(..) {
            of_note |= matches!(fact, Fact::SourceProblems { .. } | Fact::Synced);
            let may_be_echo = self.at_work && self.may_be_echo(&fact);
            let affected = self.world.apply(fact);
            if !self.at_work {
                continue;
            }
            match affected {
                Affected::Nobody => {}
                Affected::Services(keys) if may_be_echo => {
                    for key in &keys {
                        self.hear(key);
                    }
                }
                Affected::Services(keys) => {
                    for key in &keys {
                        if self.concerns_us(key) {
                            self.queue.push_after(key, TOGETHER, now);
                        }
                    }
                }
                Affected::All => self.push_all(),
                Affected::Pools => {
                    of_note = true;
                    self.set_pools();
                    self.push_all();
                }
            }
        }
        // First everybody who is still to be handled is noted, and then that all is known: the book
        // must not say "ready" in between.
        self.begin();
        if of_note {
            self.note_problems();
        }
    }

    fn push_all(&mut self) {
        let ours: Vec<ServiceKey> = self
            .world
            .keys()
            .filter(|it| self.concerns_us(it))
            .collect();
        for key in &ours {
            self.queue.push(key);
        }
    }

    /// Whether a fact about a Service may have to be acted upon. Most Services of a cluster are
    /// nobody's business here, and their facts should cost next to nothing.
    fn concerns_us(&self, key: &ServiceKey) -> bool {
        let Some(affiliation) = self.world.affiliation(key) else {
            return self.is_remembered(key);
        };
        let namespace = self.world.namespace(key.namespace());
        let classes = &self.config.classes;
        match classes.judge_affiliation(affiliation, namespace.map(AsRef::as_ref)) {
            Belongs::Ours(_) | Belongs::UnknownClass => true,
            // It may be ours to clear away.
            Belongs::NotOurs => {
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
        self.handle.book.write(|pages| {
            pages.problems = self
                .world
                .problems()
                .chain(&self.pool_problems)
                .cloned()
                .collect();
            pages.synced = self.world.synced();
            pages.at_work = self.at_work;
        });
    }

    /// Loads every claim on record before the first pass, and marks who will have to be handled
    /// before this instance is ready.
    fn recall(&mut self) {
        let claims = claims(&self.world, &self.config.classes, &self.handle.providers);
        for (provider, claims) in self.handle.providers.iter().zip(&claims) {
            provider.recall(claims);
        }
        // After what is ours: where both are on record with an address, ours goes on being served.
        self.lost.claims = lost(&self.world, &self.config.classes);
        self.reserve();
        let unhandled = self.world.services().filter_map(|row| {
            let Belongs::Ours(instance) = self.judge(&row) else {
                return None;
            };
            let record = Record {
                row: row.clone(),
                instance,
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

    fn start_passes(&mut self) {
        while self.at_work && self.passes.len() < self.config.concurrency {
            let Some(key) = self.queue.take(clock()) else {
                return;
            };
            match self.prepare(&key) {
                Some(errand) => self.start(key, errand),
                None => self.queue.finish(&key),
            }
        }
    }

    fn judge(&self, row: &ServiceRow) -> Belongs {
        let namespace = self.world.namespace(row.key.namespace());
        self.config.classes.judge(row, namespace.map(AsRef::as_ref))
    }

    /// Hands each instance its pools.
    fn set_pools(&mut self) {
        let shares = self.config.classes.share_pools(&self.world.pools());
        let told = self.handle.providers.iter().zip(&shares);
        self.pool_problems = told
            .flat_map(|(provider, pools)| provider.set_pools(pools))
            .collect();
    }

    fn track(&mut self, row: &ServiceRow) -> &mut Tracked {
        self.by_uid.insert(row.uid.clone(), row.key.clone());
        let tracked = self
            .tracked
            .entry(row.key.clone())
            .or_insert_with(|| Tracked {
                uid: row.uid.clone(),
                accepted: None,
                written: None,
                failures: 0,
                last_failure: None,
                telling: Telling::default(),
                marks: row.status.marks.clone(),
                holder: None,
                replacing: false,
            });
        tracked.uid = row.uid.clone();
        tracked
    }

    fn forget(&mut self, key: &ServiceKey) {
        if let Some(tracked) = self.tracked.remove(key) {
            self.by_uid.remove(&tracked.uid);
        }
        self.handle.book.write(|pages| {
            pages.records.remove(key);
        });
    }

    fn start(&mut self, key: ServiceKey, errand: Errand) {
        let Errand { job, instances } = errand;
        let providers: Vec<Arc<P>> = instances
            .iter()
            .filter_map(|instance| self.handle.providers.get(*instance).cloned())
            .collect();
        let reporter = self.reporter.clone();
        let (metrics, now) = (self.handle.metrics.clone(), self.config.now);
        self.note_start(&job, instances.first().copied().unwrap_or(0));
        let task = self.passes.spawn(async move {
            let started = clock();
            let mut end = PassEnd::nothing(&job);
            for (position, provider) in providers.iter().enumerate() {
                let pass = Pass {
                    provider: &**provider,
                    reporter: &*reporter,
                    metrics: &metrics,
                    now,
                };
                let last_of_row = position + 1 == providers.len();
                end = pass
                    .run(Job {
                        last_of_row,
                        ..job.clone()
                    })
                    .await;
                if end.outcome != Outcome::Removed {
                    break;
                }
            }
            (started.elapsed(), end)
        });
        self.running.insert(task.id(), key);
    }

    /// Keeps the row of the record current, so that the book never lags behind the source.
    fn note_start(&self, job: &Job, instance: usize) {
        let Some(row) = &job.row else { return };
        let wish = job
            .intent
            .as_ref()
            .and_then(|intent| intent.load_balancer.as_ref());
        let address = wish.map(|wish| wish.address.clone());
        let left_out = wish.map(|wish| wish.left_out.clone()).unwrap_or_default();
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

    fn take_end(&mut self, end: Result<(task::Id, (Duration, PassEnd)), task::JoinError>) {
        let id = end.as_ref().map_or_else(task::JoinError::id, |(id, _)| *id);
        let Some(key) = self.running.remove(&id) else {
            return;
        };
        let heard = self.heard.remove(&key);
        let (took, end) = match end {
            Ok((_, end)) => end,
            Err(error) if error.is_cancelled() => return self.queue.finish(&key),
            Err(error) => {
                tracing::error!(service = %key, %error, "a pass panicked; this is a bug");
                self.queue.finish(&key);
                self.fail(&key);
                return;
            }
        };
        self.handle.metrics.pass(took, end.outcome.as_str());
        self.queue.finish(&key);
        let Some(tracked) = self.tracked.get_mut(&key) else {
            return;
        };
        tracked.last_failure.clone_from(&end.failure);
        tracked.telling.clone_from(&end.telling);
        tracked.marks.clone_from(&end.status.marks);
        match end.outcome {
            Outcome::Settled | Outcome::Refused => tracked.failures = 0,
            Outcome::Busy(after) => self.queue.push_after(&key, after, clock()),
            Outcome::Failed => self.fail(&key),
            Outcome::Removed => {
                tracked.holder = None;
                tracked.failures = 0;
                let replacing = std::mem::take(&mut tracked.replacing);
                let same = self
                    .world
                    .service(&key)
                    .is_some_and(|row| row.uid == tracked.uid);
                if replacing || !same {
                    self.by_uid.remove(&tracked.uid);
                    self.tracked.remove(&key);
                    self.queue.push(&key);
                    if self.world.service(&key).is_none() {
                        self.forget(&key);
                    }
                    self.wake_waiting();
                    return;
                }
            }
        }
        if let (Some(row), Some(tracked)) = (self.world.service(&key), self.tracked.get_mut(&key)) {
            match end.writing {
                Writing::Nothing => {}
                Writing::Done => tracked.remember_written(&row, &end.status),
                // The source will tell.
                Writing::Unsure => tracked.written = None,
            }
            if heard && row.status != end.status {
                self.queue.push_after(&key, TOGETHER, clock());
            }
        }
        let removed = end.outcome == Outcome::Removed;
        self.handle.book.write(|pages| {
            if removed {
                pages.records.remove(&key);
            } else if let Some(record) = pages.records.get_mut(&key) {
                record.status = end.status;
                record.reasons = end.reasons;
                record.pending = end.pending;
                record.handled = true;
            }
        });
        if end.changed && matches!(end.outcome, Outcome::Settled | Outcome::Removed) {
            self.wake_waiting();
        }
    }

    fn fail(&mut self, key: &ServiceKey) {
        if let Some(tracked) = self.tracked.get_mut(key) {
            tracked.failures += 1;
            let delay = self.config.backoff.delay(key, tracked.failures);
            self.queue.push_after(key, delay, clock());
        }
    }

    /// Something may have been given back: whoever was refused may have it now.
    fn wake_waiting(&mut self) {
        for (key, tracked) in &self.tracked {
            if tracked.last_failure.is_some() {
                self.queue.push(key);
            }
        }
    }

    /// Looks at everything, unless the last look is still going on.
    fn start_audit(&mut self) {
        if !self.audits.is_empty() {
            return;
        }
        for provider in self.handle.providers.iter() {
            let provider = provider.clone();
            self.audits.spawn(async move { provider.audit().await });
        }
    }

    fn take_audit(&mut self, end: Result<Result<Vec<Uid>, ProviderError>, task::JoinError>) {
        let changed = match end {
            Ok(Ok(changed)) => changed,
            Ok(Err(error)) => return tracing::warn!(%error, "the audit failed"),
            Err(error) => return tracing::error!(%error, "the audit panicked; this is a bug"),
        };
        for key in changed.iter().filter_map(|uid| self.by_uid.get(uid)) {
            tracing::info!(service = %key, "the audit found a difference");
            self.queue.push(key);
        }
    }
}

/// The time by tokio's clock, which tests can stop.
fn clock() -> Instant {
    tokio::time::Instant::now().into_std()
}

mod echo;
mod lost;
mod prepare;
mod role;
mod tracked;

#[cfg(test)]
mod tests;
