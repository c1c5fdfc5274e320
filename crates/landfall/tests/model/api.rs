//! An API server in memory: Services with their statuses, finalizers and annotations of ours,
//! pools, and one watch. Writes may be refused, lost after they were done, or take a while.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use landfall_engine::report::Event;
use landfall_engine::{Report, ReportError};
use landfall_model::marks::{managed_annotations, marks_of};
use landfall_model::rows::{Fact, PoolRow, ServiceRow};
use landfall_model::status::{HELD_ADDRESSES, ServiceStatus};
use landfall_model::{ServiceKey, Uid};
use tokio::sync::mpsc;

use crate::validate::Checker;

/// Facts on their way to a process.
const FACTS: usize = 10_000;

/// The API server.
#[derive(Debug)]
pub struct Api {
    inner: Mutex<Inner>,
    pub validate: Checker,
}

#[derive(Debug)]
struct Inner {
    services: BTreeMap<ServiceKey, ServiceRow>,
    /// Services that another controller's finalizer holds back, too.
    held_back: BTreeSet<Uid>,
    pools: BTreeMap<String, Arc<PoolRow>>,
    watch: Option<mpsc::Sender<Fact>>,
    random: fastrand::Rng,
    faulty: bool,
    writes: u64,
}

/// What becomes of a write.
enum Fate {
    Done,
    Refused,
    /// Done, but the answer is lost.
    Lost,
    Conflict,
}

/// One process's way to write.
#[derive(Debug)]
pub struct Reporter(pub Arc<Api>);

// === impl Api ===

impl Api {
    pub fn new(random: fastrand::Rng) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                services: BTreeMap::new(),
                held_back: BTreeSet::new(),
                pools: BTreeMap::new(),
                watch: None,
                random,
                faulty: false,
                writes: 0,
            }),
            validate: Checker::default(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Returns everything that is there as facts, and what changes from now on. An earlier watch
    /// ends.
    pub fn watch(&self) -> (Vec<Fact>, mpsc::Receiver<Fact>) {
        let (report, reported) = mpsc::channel(FACTS);
        let mut inner = self.inner();
        inner.watch = Some(report);
        let pools = inner.pools.values().cloned().map(Fact::Pool);
        let services = inner.services.values().cloned();
        let facts = pools.chain(services.map(|row| Fact::Service(Arc::new(row))));
        (facts.chain([Fact::Synced]).collect(), reported)
    }

    pub fn services(&self) -> Vec<ServiceRow> {
        self.inner().services.values().cloned().collect()
    }

    pub fn service(&self, key: &ServiceKey) -> Option<ServiceRow> {
        self.inner().services.get(key).cloned()
    }

    pub fn of_uid(&self, uid: &Uid) -> Option<ServiceRow> {
        let inner = self.inner();
        inner.services.values().find(|row| row.uid == *uid).cloned()
    }

    pub fn writes(&self) -> u64 {
        self.inner().writes
    }

    pub fn set_faulty(&self, faulty: bool) {
        self.inner().faulty = faulty;
    }

    /// Replaces all pools, new ones first.
    pub fn set_pools(&self, pools: Vec<PoolRow>) {
        let mut inner = self.inner();
        let now: BTreeMap<String, Arc<PoolRow>> = pools
            .into_iter()
            .map(|pool| (pool.name.clone(), Arc::new(pool)))
            .collect();
        let before = std::mem::replace(&mut inner.pools, now.clone());
        for pool in now.values() {
            inner.report(Fact::Pool(pool.clone()));
        }
        for name in before.keys().filter(|name| !now.contains_key(*name)) {
            inner.report(Fact::PoolGone(name.clone()));
        }
    }

    /// Creates a Service, or changes what its user writes of it.
    pub fn apply(&self, row: ServiceRow) {
        let mut inner = self.inner();
        let mut row = row;
        if let Some(old) = inner.services.get(&row.key) {
            row.uid = old.uid.clone();
            row.finalized = old.finalized;
            row.status = old.status.clone();
            // As in Kubernetes, the annotations are not part of what it counts.
            let same = old.ports == row.ports && old.wants_load_balancer == row.wants_load_balancer;
            let step = i64::from(!same);
            row.generation = old.generation.map(|number| number + step);
            for mark in managed_annotations() {
                if let Some(value) = old.annotations.get(mark) {
                    row.annotations.insert(mark.to_owned(), value.clone());
                }
            }
        }
        inner.put(row);
    }

    /// As `kubectl delete` does.
    pub fn delete(&self, key: &ServiceKey) {
        let mut inner = self.inner();
        let Some(mut row) = inner.services.get(key).cloned() else {
            return;
        };
        row.deleting = true;
        inner.put(row);
    }

    /// Another controller puts its finalizer on a Service.
    pub fn hold_back(&self, key: &ServiceKey) {
        let mut inner = self.inner();
        if let Some(row) = inner.services.get(key) {
            let uid = row.uid.clone();
            inner.held_back.insert(uid);
        }
    }

    /// Other controllers take their finalizers off.
    pub fn let_go(&self) {
        let mut inner = self.inner();
        inner.held_back.clear();
        let rows: Vec<ServiceRow> = inner.services.values().cloned().collect();
        for row in rows {
            inner.put(row);
        }
    }

    /// Removes our finalizer, as operators do to force a deletion.
    pub fn take_finalizer_off(&self, key: &ServiceKey) {
        let mut inner = self.inner();
        if let Some(mut row) = inner.services.get(key).cloned() {
            row.finalized = false;
            inner.put(row);
        }
    }

    /// Another program takes the addresses out of a status.
    pub fn wipe(&self, key: &ServiceKey) {
        let mut inner = self.inner();
        if let Some(old) = inner.services.get(key).cloned() {
            let mut row = old.clone();
            row.status.ingress.clear();
            self.validate.wiped(&old);
            inner.put(row);
        }
    }

    async fn write(
        &self,
        what: &'static str,
        service: &ServiceRow,
        change: impl FnOnce(&mut ServiceRow),
    ) -> Result<(), ReportError> {
        let (fate, before, after) = self.inner().draw();
        tokio::time::sleep(before).await;
        let failed = |why: &str| ReportError::Failed {
            what,
            why: why.to_owned(),
        };
        match fate {
            Fate::Refused => return Err(failed("refused")),
            Fate::Conflict => return Err(ReportError::Conflict { what }),
            Fate::Done | Fate::Lost => {}
        }
        {
            let mut inner = self.inner();
            inner.writes += 1;
            let Some(old) = inner.services.get(&service.key).cloned() else {
                return Err(ReportError::Conflict { what });
            };
            if old.uid != service.uid {
                return Err(ReportError::Conflict { what });
            }
            if what == "finalizer" && old.deleting {
                return Err(ReportError::Conflict { what });
            }
            let mut row = old.clone();
            change(&mut row);
            let others: Vec<ServiceRow> = inner
                .services
                .values()
                .filter(|other| other.uid != row.uid)
                .cloned()
                .collect();
            self.validate.written(what, service, [&old, &row], &others);
            inner.put(row);
        }
        tokio::time::sleep(after).await;
        match fate {
            Fate::Lost => Err(failed("no answer")),
            Fate::Done | Fate::Refused | Fate::Conflict => Ok(()),
        }
    }
}

/// The addresses on record of a Service.
pub fn on_record(row: &ServiceRow) -> Vec<IpAddr> {
    let published: Vec<IpAddr> = row.status.addresses().collect();
    if !published.is_empty() {
        return published;
    }
    let held = row.annotations.get(HELD_ADDRESSES);
    let parts = held.iter().flat_map(|text| text.split(','));
    parts.filter_map(|part| part.trim().parse().ok()).collect()
}

pub fn put_status(row: &mut ServiceRow, status: &ServiceStatus) {
    row.status = status.clone();
    for mark in managed_annotations() {
        match status.marks.get(mark) {
            Some(value) => row.annotations.insert(mark.to_owned(), value.clone()),
            None => row.annotations.remove(mark),
        };
    }
    row.status.marks = marks_of(&row.annotations);
}

// === impl Inner ===

impl Inner {
    fn put(&mut self, row: ServiceRow) {
        let key = row.key.clone();
        if row.deleting && !row.finalized && !self.held_back.contains(&row.uid) {
            self.services.remove(&key);
            self.report(Fact::ServiceGone(key));
            return;
        }
        let changed = self.services.get(&key) != Some(&row);
        self.services.insert(key, row.clone());
        if changed {
            self.report(Fact::Service(Arc::new(row)));
        }
    }

    fn report(&mut self, fact: Fact) {
        if let Some(watch) = &self.watch {
            // A process that is gone reads no more.
            let _ = watch.try_send(fact);
        }
    }

    /// What becomes of the next write, and how long it takes until and after it is done.
    fn draw(&mut self) -> (Fate, Duration, Duration) {
        if !self.faulty {
            return (Fate::Done, Duration::ZERO, Duration::ZERO);
        }
        let fate = match self.random.u8(..100) {
            0..12 => Fate::Refused,
            12..20 => Fate::Lost,
            20..26 => Fate::Conflict,
            _ => Fate::Done,
        };
        let mut pause = || Duration::from_millis(self.random.u64(..25));
        (fate, pause(), pause())
    }
}

// === impl Reporter ===

impl Report for Reporter {
    async fn add_finalizer(
        &self,
        service: &ServiceRow,
        status: Option<&ServiceStatus>,
    ) -> Result<(), ReportError> {
        let change = |row: &mut ServiceRow| {
            row.finalized = true;
            if let Some(status) = status {
                put_status(row, status);
            }
        };
        self.0.write("finalizer", service, change).await
    }

    async fn remove_finalizer(&self, service: &ServiceRow) -> Result<(), ReportError> {
        let change = |row: &mut ServiceRow| {
            row.finalized = false;
            put_status(row, &ServiceStatus::default());
        };
        let removed = self.0.write("removal", service, change).await;
        match removed {
            // It is gone already.
            Err(ReportError::Conflict { .. }) if self.0.of_uid(&service.uid).is_none() => Ok(()),
            other => other,
        }
    }

    async fn write_status(
        &self,
        service: &ServiceRow,
        status: &ServiceStatus,
    ) -> Result<(), ReportError> {
        let change = |row: &mut ServiceRow| put_status(row, status);
        self.0.write("status", service, change).await
    }

    async fn event(&self, _: &ServiceRow, _: &Event) {}
}
