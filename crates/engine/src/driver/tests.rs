//! The loop against a provider that keeps addresses on a shelf, and a source that behaves as an API
//! server does: what is reported comes back as a fact.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use jiff::Timestamp;
use landfall_model::intent::{Claim, Intent};
use landfall_model::plan::Plan;
use landfall_model::provider::{
    Applied, ProviderError, ProviderProfile, ProviderStatus, ProviderStep, Retry,
};
use landfall_model::reason::Code;
use landfall_model::recorded::vouch;
use landfall_model::rows::{PoolRow, ResourceRow};
use landfall_model::status::{Condition, ConditionType, IngressAddress, RECORD, ServiceStatus};
use landfall_testkit::svc;
use serde::Serialize;

use super::*;
use crate::report::{Event, ReportError};

mod audit;
mod conflict;
mod crashes;
mod pauses;
mod reconciles;
mod removal;
mod repeats;
mod restart;
mod role;
mod slots;
mod unserved;
mod writing;

/// Addresses 127.77.0.1, .2, ... by Service; at most `size` of them.
#[derive(Debug)]
struct Shelf {
    held: Mutex<BTreeMap<Uid, u8>>,
    recalled: Mutex<Vec<(String, usize)>>,
    /// Whose places were to be kept.
    kept: Mutex<Vec<Uid>>,
    /// Held by Services that no instance serves.
    reserved: Mutex<BTreeMap<Uid, u8>>,
    size: u8,
    /// Looks so far, if each of them fails, in words that differ.
    refused: Mutex<Option<usize>>,
    profile: ProviderProfile,
    /// What removals were asked for with.
    removals: Mutex<Vec<Intent>>,
    /// The names of pools, each time that they were given, and whether more may be missing.
    pools: Mutex<Vec<(Vec<String>, bool)>>,
    incomplete: AtomicBool,
    /// The names of custom resources, each time that they were given.
    resources: Mutex<Vec<Vec<String>>>,
    audits: Answers,
    /// The Services that were checked, in this order.
    looks: Mutex<Vec<Uid>>,
    /// Whose looks fail, and how.
    fails: Mutex<BTreeMap<Uid, ProviderError>>,
    /// Whether looks have no end.
    hangs: AtomicBool,
    /// The next change, if something else decides than what is held.
    script: Mutex<Option<Script>>,
    /// What the script had written.
    written: Mutex<Vec<String>>,
}

/// Says what is to be written after what was written; `None`: nothing.
struct Script(Box<Next>);

type Next = dyn Fn(&[String]) -> Option<String> + Send;

/// Reads everything: each waits for its answer.
#[derive(Debug)]
struct Answers {
    begun: watch::Sender<usize>,
    answers: watch::Sender<Option<Vec<Uid>>>,
}

#[derive(Clone, Debug, Serialize)]
enum Step {
    Take(Uid, u8),
    Return(Uid),
    Write(String),
}

/// The source's side: rows as the outside has them.
#[derive(Debug)]
struct Source {
    rows: Mutex<BTreeMap<ServiceKey, ServiceRow>>,
    facts: mpsc::Sender<Fact>,
    writes: Mutex<Vec<String>>,
    /// The next status is written, or finalizer taken off, and the answer lost.
    loses_answer: AtomicBool,
    /// Warnings.
    warnings: Mutex<Vec<String>>,
    /// Events, warnings or not.
    events: AtomicUsize,
    /// So many attempts to write a status find that the Service has changed.
    conflicts: Mutex<usize>,
    /// Another program takes the addresses out of so many statuses as soon as they are written.
    defaces: Mutex<usize>,
    /// A Service whose finalizer takes this long to be written.
    slow: Mutex<Option<(ServiceKey, Duration)>>,
    /// So many more writes are done; each after them is refused.
    takes: Mutex<usize>,
    /// A Service of which nothing can be written, as if nothing could at all, and no write is
    /// answered.
    unwritable: Mutex<Option<ServiceKey>>,
}

struct Lab {
    shelf: Arc<Shelf>,
    source: Arc<Source>,
    handle: EngineHandle<Shelf>,
    wakes: mpsc::Sender<Uid>,
    cancel: CancellationToken,
    task: task::JoinHandle<()>,
}

// === impl Shelf ===

impl Shelf {
    fn new(size: u8) -> Self {
        Self {
            held: Mutex::default(),
            recalled: Mutex::default(),
            kept: Mutex::default(),
            reserved: Mutex::default(),
            size,
            refused: Mutex::default(),
            profile: ProviderProfile::default(),
            removals: Mutex::default(),
            pools: Mutex::default(),
            incomplete: AtomicBool::default(),
            resources: Mutex::default(),
            audits: Answers {
                begun: watch::Sender::new(0),
                answers: watch::Sender::new(None),
            },
            looks: Mutex::default(),
            fails: Mutex::default(),
            hangs: AtomicBool::default(),
            script: Mutex::default(),
            written: Mutex::default(),
        }
    }

    /// Writes what a script says, instead of what is held.
    fn scripted(script: impl Fn(&[String]) -> Option<String> + Send + 'static) -> Self {
        Self {
            script: Mutex::new(Some(Script(Box::new(script)))),
            ..Self::new(9)
        }
    }

    fn fail(&self, name: &str, retry: Retry) {
        let reason = Reason::error(Code::ProviderFailed, "no");
        let error = ProviderError {
            retry,
            ..ProviderError::lasting(reason)
        };
        self.fails.lock().unwrap().insert(uid(name), error);
    }

    fn looks(&self, name: &str) -> usize {
        let looks = self.looks.lock().unwrap();
        looks.iter().filter(|it| **it == uid(name)).count()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Take(_, last) => write!(f, "take {last}"),
            Self::Return(_) => f.write_str("return"),
            Self::Write(what) => f.write_str(what),
        }
    }
}

impl ProviderStep for Step {
    fn kind(&self) -> &'static str {
        match self {
            Self::Take(..) => "take",
            Self::Return(_) => "return",
            Self::Write(_) => "write",
        }
    }
}

impl Provider for Shelf {
    type Observed = (Option<u8>, Option<u8>);
    type Step = Step;

    fn profile(&self) -> &ProviderProfile {
        &self.profile
    }

    async fn observe(&self, want: &Intent) -> Result<Self::Observed, ProviderError> {
        self.looks.lock().unwrap().push(want.uid.clone());
        if self.hangs.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        if let Some(error) = self.fails.lock().unwrap().get(&want.uid) {
            return Err(error.clone());
        }
        if let Some(looks) = self.refused.lock().unwrap().as_mut() {
            *looks += 1;
            let reason = Reason::error(Code::ProviderFailed, format!("look {looks} failed"));
            return Err(ProviderError {
                retry: landfall_model::Retry::Backoff,
                ..ProviderError::lasting(reason)
            });
        }
        if want.load_balancer.is_none() {
            self.removals.lock().unwrap().push(want.clone());
        }
        let held = self.held.lock().unwrap();
        let reserved = self.reserved.lock().unwrap();
        let taken = held.values().chain(reserved.values());
        let free = (1..=self.size).find(|last| taken.clone().all(|it| it != last));
        Ok((held.get(&want.uid).copied(), free))
    }

    fn plan(
        &self,
        want: &Intent,
        (held, free): &Self::Observed,
    ) -> Result<Plan<Step>, Vec<Reason>> {
        let mut plan = Plan::default();
        if let Some(script) = self.script.lock().unwrap().as_ref() {
            let next = (script.0)(&self.written.lock().unwrap());
            if let Some(next) = next {
                plan.push(Step::Write(next), "so it is written");
            }
            return Ok(plan);
        }
        match (&want.load_balancer, held, free) {
            (Some(_), None, Some(free)) => {
                plan.push_claim(Step::Take(want.uid.clone(), *free), "it has none");
            }
            (Some(_), None, None) => {
                return Err(vec![Reason::error(
                    Code::PoolExhausted,
                    "the shelf is empty",
                )]);
            }
            (None, Some(_), _) => plan.push(Step::Return(want.uid.clone()), "it wants none"),
            _ => {}
        }
        Ok(plan)
    }

    async fn apply(&self, step: &Step) -> Result<Applied, ProviderError> {
        let mut held = self.held.lock().unwrap();
        match step {
            Step::Take(uid, last) => {
                if held.values().any(|taken| taken == last) {
                    let reason = Reason::error(Code::AddressInUse, "another Service was faster");
                    return Err(ProviderError::outdated(reason));
                }
                held.insert(uid.clone(), *last);
                Ok(Applied::Addressed(ingress(*last).into()))
            }
            Step::Return(uid) => {
                held.remove(uid);
                Ok(Applied::Done)
            }
            Step::Write(what) => {
                self.written.lock().unwrap().push(what.clone());
                if what.starts_with("fail") {
                    let reason = Reason::error(Code::ProviderFailed, what.clone());
                    return Err(ProviderError {
                        retry: Retry::Backoff,
                        ..ProviderError::lasting(reason)
                    });
                }
                Ok(Applied::Busy {
                    after: Duration::from_secs(1),
                })
            }
        }
    }

    fn status(&self, _: &Intent, (held, _): &Self::Observed) -> ProviderStatus {
        let marks = held.map(|last| (RECORD.to_owned(), format!("shelf {last}")));
        let ingress = held.map(ingress).unwrap_or_default();
        ProviderStatus {
            ingress,
            marks: marks.into_iter().collect(),
            ..ProviderStatus::default()
        }
    }

    async fn audit(&self) -> Result<Vec<Uid>, ProviderError> {
        self.audits.begun.send_modify(|begun| *begun += 1);
        let mut answers = self.audits.answers.subscribe();
        let answer = answers.wait_for(Option::is_some).await;
        Ok(answer.unwrap().clone().unwrap_or_default())
    }

    fn set_resources(&self, resources: &[Arc<ResourceRow>]) -> Vec<Reason> {
        let names = resources.iter().map(ToString::to_string).collect();
        self.resources.lock().unwrap().push(names);
        Vec::new()
    }

    fn set_pools_incomplete(&self, incomplete: bool) {
        self.incomplete.store(incomplete, Ordering::Relaxed);
    }

    fn set_pools(&self, pools: &[Arc<PoolRow>]) -> Vec<Reason> {
        let names = pools.iter().map(|pool| pool.name.clone()).collect();
        let incomplete = self.incomplete.load(Ordering::Relaxed);
        self.pools.lock().unwrap().push((names, incomplete));
        Vec::new()
    }

    fn invalidate_caches(&self, others_led: bool) {
        if others_led {
            self.held.lock().unwrap().clear();
            self.reserved.lock().unwrap().clear();
        }
        let reported = format!("invalidate_caches {others_led}");
        self.recalled.lock().unwrap().push((reported, 0));
    }

    async fn retire(&self) {
        self.held.lock().unwrap().clear();
        self.reserved.lock().unwrap().clear();
        let reported = ("retire".to_owned(), 0);
        self.recalled.lock().unwrap().push(reported);
    }

    fn set_foreign_claim(&self, claimant: &Uid, claim: Option<&Claim>) {
        let mut reserved = self.reserved.lock().unwrap();
        reserved.remove(claimant);
        reserved.extend(on_record(claim.map_or(&[], std::slice::from_ref)));
    }

    fn restore_claims(&self, claims: &[Claim]) {
        self.held.lock().unwrap().extend(on_record(claims));
        let held = self.held.lock().unwrap().len();
        self.recalled
            .lock()
            .unwrap()
            .push(("restore_claims".to_owned(), held));
    }

    fn reserve_listeners(&self, claims: &[Claim]) {
        let kept = claims.iter().map(|claim| claim.uid.clone());
        self.kept.lock().unwrap().extend(kept);
    }
}

/// The last number of each address.
fn on_record(claims: &[Claim]) -> BTreeMap<Uid, u8> {
    let of = |claim: &Claim| match claim.addresses.first() {
        Some(std::net::IpAddr::V4(address)) => Some((claim.uid.clone(), address.octets()[3])),
        _ => None,
    };
    claims.iter().filter_map(of).collect()
}

fn ingress(last: u8) -> Vec<IngressAddress> {
    let ip = Some(std::net::IpAddr::from([127, 77, 0, last]));
    vec![IngressAddress {
        ip,
        ..IngressAddress::default()
    }]
}

/// Takes one off, if there is one.
fn spend(count: &Mutex<usize>) -> bool {
    let mut count = count.lock().unwrap();
    let some = *count > 0;
    *count = count.saturating_sub(1);
    some
}

// === impl Source ===

impl Source {
    async fn change(
        &self,
        what: &str,
        key: &ServiceKey,
        change: impl FnOnce(&mut ServiceRow),
    ) -> Result<(), ReportError> {
        let is_unwritable = self.unwritable.lock().unwrap().as_ref() == Some(key);
        if is_unwritable || !spend(&self.takes) {
            return Err(ReportError::Unavailable {
                what: "status",
                why: "the disk is full".to_owned(),
                unanswered: is_unwritable,
            });
        }
        self.writes.lock().unwrap().push(format!("{what} {key}"));
        let fact = {
            let mut rows = self.rows.lock().unwrap();
            let Some(row) = rows.get_mut(key) else {
                return Ok(());
            };
            change(row);
            row.recorded = vouch(row.uid.as_str(), &row.status.marks).map(Into::into);
            if row.deleting && !row.finalized {
                rows.remove(key);
                Fact::ServiceGone(key.clone())
            } else {
                Fact::Service(Arc::new(row.clone()))
            }
        };
        self.facts
            .send(fact)
            .await
            .map_err(|_| ReportError::Conflict {
                what: "no receiver",
            })
    }

    async fn lose_answer(&self, what: &'static str) -> Result<(), ReportError> {
        if !self.loses_answer.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        // By now the loop has received it.
        tokio::time::sleep(Duration::from_millis(10)).await;
        Err(ReportError::Failed {
            what,
            why: "no answer".to_owned(),
        })
    }
}

impl Report for Source {
    async fn add_finalizer(
        &self,
        row: &ServiceRow,
        status: Option<&ServiceStatus>,
    ) -> Result<(), ReportError> {
        let finalize = |row: &mut ServiceRow| {
            row.finalized = true;
            if let Some(status) = status {
                row.status = status.clone();
            }
        };
        let slow = self.slow.lock().unwrap().clone();
        if let Some((_, takes)) = slow.filter(|(key, _)| *key == row.key) {
            tokio::time::sleep(takes).await;
        }
        self.change("finalize", &row.key, finalize).await
    }

    async fn remove_finalizer(&self, row: &ServiceRow) -> Result<(), ReportError> {
        self.change("unfinalize", &row.key, |row| {
            row.finalized = false;
            row.status = ServiceStatus::default();
        })
        .await?;
        self.lose_answer("finalizer").await
    }

    async fn write_status(
        &self,
        row: &ServiceRow,
        status: &ServiceStatus,
    ) -> Result<(), ReportError> {
        if spend(&self.conflicts) {
            self.writes.lock().unwrap().push("conflict".to_owned());
            return Err(ReportError::Conflict { what: "status" });
        }
        self.change("status", &row.key, |row| row.status = status.clone())
            .await?;
        if spend(&self.defaces) {
            self.change("deface", &row.key, |row| row.status.ingress.clear())
                .await?;
            // By now the loop has received it.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.lose_answer("status").await
    }

    fn at_once(&self) -> usize {
        24
    }

    async fn event(&self, row: &ServiceRow, event: &Event) {
        self.events.fetch_add(1, Ordering::Relaxed);
        if event.warning {
            let reported = format!("{}: {}: {}", row.key, event.reason, event.message);
            self.warnings.lock().unwrap().push(reported);
        }
    }
}

// === impl Lab ===

impl Lab {
    async fn start(size: u8, rows: Vec<Arc<ServiceRow>>) -> Self {
        Self::start_led(size, rows, leads()).await
    }

    async fn start_led(
        size: u8,
        rows: Vec<Arc<ServiceRow>>,
        leading: watch::Receiver<Role>,
    ) -> Self {
        Self::start_with(Classes::only("local"), size, rows, leading).await
    }

    async fn start_with(
        classes: Classes,
        size: u8,
        rows: Vec<Arc<ServiceRow>>,
        leading: watch::Receiver<Role>,
    ) -> Self {
        Self::start_over(Shelf::new(size), classes, rows, leading).await
    }

    async fn start_over(
        shelf: Shelf,
        classes: Classes,
        rows: Vec<Arc<ServiceRow>>,
        leading: watch::Receiver<Role>,
    ) -> Self {
        Self::start_on(shelf, Vec::new(), classes, rows, leading).await
    }

    async fn start_on(
        shelf: Shelf,
        further: Vec<Arc<Shelf>>,
        classes: Classes,
        rows: Vec<Arc<ServiceRow>>,
        leading: watch::Receiver<Role>,
    ) -> Self {
        Self::start_after(shelf, further, classes, rows, (leading, false)).await
    }

    /// The role, and whether the shelf holds something from before.
    async fn start_after(
        shelf: Shelf,
        further: Vec<Arc<Shelf>>,
        classes: Classes,
        rows: Vec<Arc<ServiceRow>>,
        (leading, inherits): (watch::Receiver<Role>, bool),
    ) -> Self {
        let led = |engine: Engine<Shelf, Source>| engine.led_by(leading, inherits);
        Self::start_as(shelf, further, classes, rows, led).await
    }

    /// A replica that waits for word that what it knows is current.
    async fn start_confirmed(rows: Vec<Arc<ServiceRow>>, leading: watch::Receiver<Role>) -> Self {
        let (shelf, classes) = (Shelf::new(9), Classes::only("local"));
        let led =
            |engine: Engine<Shelf, Source>| engine.led_by(leading, false).confirmed_by_facts();
        Self::start_as(shelf, Vec::new(), classes, rows, led).await
    }

    async fn start_as(
        shelf: Shelf,
        further: Vec<Arc<Shelf>>,
        classes: Classes,
        rows: Vec<Arc<ServiceRow>>,
        led: impl FnOnce(Engine<Shelf, Source>) -> Engine<Shelf, Source>,
    ) -> Self {
        let (facts, receiver) = mpsc::channel(1024);
        let (wakes, woken) = mpsc::channel(16);
        let shelf = Arc::new(shelf);
        let source = Arc::new(Source {
            rows: Mutex::new(
                rows.iter()
                    .map(|row| (row.key.clone(), (**row).clone()))
                    .collect(),
            ),
            facts: facts.clone(),
            writes: Mutex::default(),
            loses_answer: AtomicBool::default(),
            warnings: Mutex::default(),
            events: AtomicUsize::default(),
            conflicts: Mutex::default(),
            defaces: Mutex::default(),
            slow: Mutex::default(),
            takes: Mutex::new(usize::MAX),
            unwritable: Mutex::default(),
        });
        let config = EngineConfig {
            now: || Timestamp::UNIX_EPOCH,
            ..EngineConfig::new(classes)
        };
        let mut shelves = vec![shelf.clone()];
        shelves.extend(further);
        let engine = led(Engine::new(config, shelves, source.clone()));
        let (handle, cancel) = (engine.handle(), CancellationToken::new());
        let task = tokio::spawn(engine.run(receiver, woken, cancel.clone()));
        for row in rows {
            facts.send(Fact::Service(row)).await.unwrap();
        }
        facts.send(Fact::Synced).await.unwrap();
        Self {
            shelf,
            source,
            handle,
            wakes,
            cancel,
            task,
        }
    }

    /// Two instances, `edge` and `inner`, of which the first is the default.
    async fn start_two(edge: Shelf, rows: Vec<Arc<ServiceRow>>) -> (Self, Arc<Shelf>) {
        let (edge, inner) = (Arc::new(edge), Arc::new(Shelf::new(9)));
        let (facts, receiver) = mpsc::channel(64);
        let (wakes, woken) = mpsc::channel(1);
        let source = Arc::new(Source {
            rows: Mutex::default(),
            facts: facts.clone(),
            writes: Mutex::default(),
            loses_answer: AtomicBool::default(),
            warnings: Mutex::default(),
            events: AtomicUsize::default(),
            conflicts: Mutex::default(),
            defaces: Mutex::default(),
            slow: Mutex::default(),
            takes: Mutex::new(usize::MAX),
            unwritable: Mutex::default(),
        });
        let classes = Classes::new(vec!["edge".to_owned(), "inner".to_owned()], Some("edge"));
        let providers = vec![edge.clone(), inner.clone()];
        let engine = Engine::new(EngineConfig::new(classes), providers, source.clone());
        let cancel = CancellationToken::new();
        let lab = Self {
            shelf: edge,
            source,
            handle: engine.handle(),
            wakes,
            task: tokio::spawn(engine.run(receiver, woken, cancel.clone())),
            cancel,
        };
        for row in rows {
            lab.apply(row).await;
        }
        facts.send(Fact::Synced).await.unwrap();
        (lab, inner)
    }

    /// Whether a Service is said to have a reason of this code.
    fn says(&self, name: &str, code: Code) -> bool {
        self.handle.store.read(|pages| {
            let record = pages.records.get(&key(name));
            record.is_some_and(|record| record.reasons.iter().any(|it| it.code == code))
        })
    }

    fn warnings_of(&self, text: &str) -> usize {
        let warnings = self.source.warnings.lock().unwrap();
        warnings.iter().filter(|it| it.contains(text)).count()
    }

    async fn apply(&self, row: Arc<ServiceRow>) {
        self.source
            .rows
            .lock()
            .unwrap()
            .insert(row.key.clone(), (*row).clone());
        self.source.facts.send(Fact::Service(row)).await.unwrap();
    }

    /// Deletes a Service as the API server does: it goes once its finalizer is off.
    async fn delete(&self, key: &ServiceKey) {
        self.source
            .change("delete", key, |row| row.deleting = true)
            .await
            .unwrap();
    }

    /// Waits until the rows of the source satisfy a condition.
    async fn until(&self, what: &str, met: impl Fn(&BTreeMap<ServiceKey, ServiceRow>) -> bool) {
        let wait = async {
            let mut changes = self.handle.store.changes();
            while !met(&self.source.rows.lock().unwrap()) {
                let _ = tokio::time::timeout(Duration::from_millis(20), changes.changed()).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(20), wait)
            .await
            .is_err()
        {
            panic!("never: {what}; {:#?}", self.source.rows.lock().unwrap());
        }
    }

    async fn until_ready(&self) {
        let wait = async {
            let mut changes = self.handle.store.changes();
            while !self.handle.store.read(crate::store::Snapshot::ready) {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait)
            .await
            .expect("ready in 20 s");
    }

    fn writes(&self) -> Vec<String> {
        self.source.writes.lock().unwrap().clone()
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.task.await.unwrap();
    }
}

/// The role of a process that has no replicas.
fn leads() -> watch::Receiver<Role> {
    watch::Sender::new(Role::Leading { term: 0 }).subscribe()
}

fn key(name: &str) -> ServiceKey {
    svc(name).row().key.clone()
}

fn uid(name: &str) -> Uid {
    svc(name).row().uid.clone()
}

fn web(name: &str) -> Arc<ServiceRow> {
    svc(name).port(80).row()
}

fn programmed(rows: &BTreeMap<ServiceKey, ServiceRow>, name: &str) -> bool {
    rows.get(&key(name))
        .and_then(|row| row.status.condition(ConditionType::Programmed))
        .is_some_and(|condition| condition.status)
}

#[test]
fn checks_of_everything_are_spread_and_never_late() {
    let pauses = |seed: u64| {
        let config = EngineConfig {
            audit_seed: seed,
            ..EngineConfig::new(Classes::only("test"))
        };
        let each = (0..20).map(|audits| config.pause_before_audit(audits));
        each.collect::<Vec<Duration>>()
    };
    let (one, other) = (pauses(1), pauses(2));
    let bounds = AUDIT_EVERY / 5 * 4..=AUDIT_EVERY;
    assert!(
        one.iter().chain(&other).all(|it| bounds.contains(it)),
        "{one:?}"
    );
    assert_ne!(one, other);
}
