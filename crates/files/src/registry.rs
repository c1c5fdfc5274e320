//! What an API server would hold: every Service with its finalizer and status, and how it changes
//! when manifests come and go. Pure.
//!
//! ```text
//!                 manifest appears                 finalizer removed
//!   (nothing) ──────────────────────> present          ┌──────────> (nothing)
//!                                      │   ^           │
//!         manifest vanishes, finalized │   │ manifest  │
//!                                      v   │ is back   │
//!                                     deleting ────────┘
//! ```
//!
//! Two things differ from Kubernetes, because files are moved about in ways that objects are not. A
//! deletion is undone when the manifest is back before the finalizer is gone. And a Service that is
//! remembered from an earlier run is not deleted while any file can't be read: its manifest may
//! stand there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use landfall_engine::parallel;
use landfall_model::reason::Reason;
use landfall_model::rows::{PoolRow, ServiceRow, SourceMap};
use landfall_model::status::ServiceStatus;
use landfall_model::{ServiceKey, Uid};

use crate::alike::{is_remembered_alike, is_same_memory, same_pool};
use crate::marks::note_marks;
use crate::state::{Changes, Entry, Key, Remembered};
use crate::unwritten::Unwritten;

/// Services by key.
pub(crate) type Rows = BTreeMap<ServiceKey, Arc<ServiceRow>>;

/// What manifests say of Services that they spoke of otherwise before; `None`: nothing any more.
pub(crate) type Wanted = BTreeMap<ServiceKey, Option<Arc<ServiceRow>>>;

/// Pools by name.
pub(crate) type Pools = BTreeMap<String, Arc<PoolRow>>;

/// Every Service, and what is still to be reported of each.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// As the manifests say.
    wanted: Rows,
    /// As they are. Finalizers and statuses in it are on the disk.
    records: Rows,
    /// Those of `records` that are not in `wanted`.
    unwanted: BTreeSet<ServiceKey>,
    /// Remembered from an earlier run, and in no manifest since.
    unseen: BTreeSet<ServiceKey>,
    /// The last valid version of every pool.
    pools: Pools,
    /// What is still to be reported.
    changed: BTreeSet<ServiceKey>,
    unwritten: Unwritten,
}

/// The Service that was meant is not there (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outdated;

/// A change of what only the store holds of a Service.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    /// Puts the finalizer on it, and replaces its status where one is given.
    Finalizer(Option<ServiceStatus>),
    /// Takes the finalizer off, which ends a Service whose manifest is gone.
    NoFinalizer,
    /// Replaces its status.
    Status(ServiceStatus),
}

/// A change of one Service.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) key: ServiceKey,
    pub(crate) uid: Uid,
    pub(crate) write: Write,
}

/// What goes to the disk together.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Services that are gone without a request: before `changes` give away what they had.
    pub(crate) gone: Changes,
    pub(crate) changes: Changes,
    /// What each of the requests came to.
    pub(crate) outcomes: Vec<Result<(), Outdated>>,
    /// The Services of the requests, before and after them.
    services: BTreeMap<ServiceKey, (Row, Row)>,
    now: Timestamp,
}

/// A Service, if there is one.
type Row = Option<Arc<ServiceRow>>;

/// A Service as its manifest wants it, in place of what it was.
struct Replacement {
    after: Row,
    /// Whether it is the very same.
    is_same: bool,
    /// Whether what is remembered of it is the same.
    is_alike: bool,
}

// === impl Registry ===

impl Registry {
    /// Goes on where an earlier run left off.
    pub(crate) fn new(remembered: Remembered) -> Self {
        let Remembered { services, pools } = remembered;
        let services = services.into_iter();
        let records: Rows = services.map(|row| (row.key.clone(), row)).collect();
        Self {
            unseen: records.keys().cloned().collect(),
            changed: records.keys().cloned().collect(),
            unwanted: records.keys().cloned().collect(),
            records,
            pools: pools
                .into_iter()
                .map(|row| (row.name.clone(), row))
                .collect(),
            ..Self::default()
        }
    }

    /// Takes in what differs from the previous manifests. `incomplete` returns whether a Service
    /// may stand in a file that can't be read, and `why` what is wrong with that.
    pub(crate) fn want(
        &mut self,
        changes: Wanted,
        incomplete: impl Fn(&ServiceKey) -> bool,
        why: impl Fn(&ServiceKey) -> Vec<Reason>,
        now: Timestamp,
    ) {
        let mut touched: Vec<ServiceKey> = Vec::new();
        for (key, row) in changes {
            let Some(row) = row else {
                self.wanted.remove(&key);
                if self.records.contains_key(&key) {
                    self.unwanted.insert(key);
                }
                continue;
            };
            let before = self.wanted.insert(key.clone(), row.clone());
            self.unwanted.remove(&key);
            if !is_same_memory(before.as_ref(), Some(&row)) {
                touched.push(key);
            }
        }
        let vanished = self.unwanted.iter();
        let vanished = vanished.filter(|key| !self.unseen.contains(*key) || !incomplete(key));
        touched.extend(vanished.cloned());
        // Each reads and copies a whole Service, and none depends on another one.
        let agreed = parallel::map(&touched, parallel::SERVICES, |key| {
            let before = self.records.get(key);
            Replacement::new(before, self.agreed(key, before.cloned(), now))
        });
        for (key, replacement) in touched.iter().zip(agreed) {
            self.unseen.remove(key);
            self.replace(key, replacement);
        }
        // What is only remembered says itself why its manifest is not served.
        for key in self.unseen.clone() {
            let Some(before) = self.records.get(&key).cloned() else {
                continue;
            };
            let why = why(&key);
            if before.newest_invalid() != why {
                let after = Arc::new(outdated(&before, why));
                self.replace(&key, Replacement::new(Some(&before), Some(after)));
            }
        }
    }

    /// Whether a Service that the manifests spoke of is in none any more.
    pub(crate) fn misses_any(&self, changes: &Wanted) -> bool {
        let mut gone = changes.iter().filter(|(_, row)| row.is_none());
        gone.any(|(key, _)| self.wanted.contains_key(key))
    }

    /// Services that are kept only because a file can't be read.
    pub(crate) fn unverified(&self) -> impl ExactSizeIterator<Item = &ServiceKey> {
        self.unseen.iter()
    }

    /// Takes in the valid pools of now, and remembers them.
    pub(crate) fn want_pools(&mut self, pools: Pools) {
        let names: BTreeSet<&String> = self.pools.keys().chain(pools.keys()).collect();
        for name in names {
            let is_same = match (self.pools.get(name), pools.get(name)) {
                (Some(before), Some(after)) => same_pool(before, after),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            if !is_same {
                self.unwritten.insert(Key::Pool(name.clone()));
            }
        }
        self.pools = pools;
    }

    /// The last valid version of every pool.
    pub(crate) fn pools(&self) -> &Pools {
        &self.pools
    }

    /// What becomes of a Service when its manifest is checked.
    fn agreed(&self, key: &ServiceKey, record: Row, now: Timestamp) -> Row {
        match (self.wanted.get(key), record) {
            (Some(row), Some(record)) if row.uid == record.uid => Some(updated(row, record)),
            (_, Some(record)) if record.finalized && record.deleting => Some(record),
            (_, Some(record)) if record.finalized => Some(Arc::new(ServiceRow {
                deleting: true,
                ..ServiceRow::clone(&record)
            })),
            (Some(row), _) => Some(Arc::new(ServiceRow {
                // As precise as Kubernetes keeps it.
                created: Timestamp::from_second(now.as_second()).ok(),
                ..ServiceRow::clone(row)
            })),
            (None, _) => None,
        }
    }

    /// Replaces a Service because of its manifest.
    fn replace(&mut self, key: &ServiceKey, replacement: Replacement) {
        if replacement.is_same {
            return;
        }
        if !replacement.is_alike {
            self.note_unwritten(key, replacement.after.is_none());
        }
        self.put(key, replacement.after);
    }

    fn note_unwritten(&mut self, key: &ServiceKey, is_gone: bool) {
        if is_gone {
            self.unwritten.insert_gone(key.clone());
        } else {
            self.unwritten.insert(Key::Service(key.clone()));
        }
    }

    fn put(&mut self, key: &ServiceKey, row: Row) {
        self.changed.insert(key.clone());
        if let Some(row) = row {
            if !self.wanted.contains_key(key) {
                self.unwanted.insert(key.clone());
            }
            self.records.insert(key.clone(), row);
        } else {
            self.unwanted.remove(key);
            self.records.remove(key);
        }
    }

    /// What a write makes of a Service. A finalizer that is taken off something that is gone is
    /// fine.
    fn written(
        &self,
        request: &Request,
        record: Row,
        now: Timestamp,
    ) -> (Row, Result<(), Outdated>) {
        let Request { key, uid, write } = request;
        let Some(row) = record.as_ref().filter(|row| row.uid == *uid) else {
            let outcome = match write {
                Write::NoFinalizer => Ok(()),
                Write::Finalizer(_) | Write::Status(_) => Err(Outdated),
            };
            return (record, outcome);
        };
        match write {
            Write::Finalizer(_) if row.deleting && !row.finalized => (record, Err(Outdated)),
            Write::Finalizer(status) => {
                let status = status.as_ref().filter(|status| row.status != **status);
                if row.finalized && status.is_none() {
                    return (record, Ok(()));
                }
                let mut row = match status {
                    Some(status) => self.reported(row, status),
                    None => ServiceRow::clone(row),
                };
                row.finalized = true;
                (Some(Arc::new(row)), Ok(()))
            }
            Write::NoFinalizer if !row.finalized => (record, Ok(())),
            Write::NoFinalizer => {
                // No address may stay published that is given back.
                let row = Some(Arc::new(ServiceRow {
                    finalized: false,
                    ..self.reported(row, &ServiceStatus::default())
                }));
                if self.unseen.contains(key) {
                    (row, Ok(()))
                } else {
                    (self.agreed(key, row, now), Ok(()))
                }
            }
            Write::Status(status) if row.status == *status => (record, Ok(())),
            Write::Status(status) => (Some(Arc::new(self.reported(row, status))), Ok(())),
        }
    }

    /// A Service with a new status, whose marks are annotations as they would be at an API server.
    fn reported(&self, row: &ServiceRow, status: &ServiceStatus) -> ServiceRow {
        let mut new = ServiceRow::clone(row);
        if row.status.marks != status.marks {
            for mark in row.status.marks.keys() {
                new.annotations.remove(mark);
            }
            // What a mark has covered shows again.
            let wanted = self
                .wanted
                .get(&row.key)
                .filter(|wanted| wanted.uid == row.uid);
            if let Some(wanted) = wanted {
                new.annotations.clone_from(&wanted.annotations);
            }
            note_marks(&mut new.annotations, &status.marks);
        }
        new.status = status.clone();
        new
    }

    /// Begins to write: what these requests ask for, and some of what is not on the disk
    /// otherwise. Nothing of it counts before [`Self::finish`].
    pub(crate) fn begin(&mut self, requests: &[Request], now: Timestamp) -> Batch {
        let mut services: BTreeMap<ServiceKey, (Row, Row)> = BTreeMap::new();
        let mut outcomes = Vec::new();
        for request in requests {
            let (_, after) = services.entry(request.key.clone()).or_insert_with(|| {
                let before = self.records.get(&request.key).cloned();
                (before.clone(), before)
            });
            let (row, outcome) = self.written(request, after.take(), now);
            *after = row;
            outcomes.push(outcome);
        }
        let mut gone = Changes::new();
        let mut changes = Changes::new();
        for key in self.unwritten.take_gone() {
            let record = match &key {
                Key::Service(key) => self.records.get(key).cloned().map(Entry::Service),
                Key::Pool(_) => None,
            };
            let first = record.is_none();
            if first { &mut gone } else { &mut changes }.insert(key, record);
        }
        for key in self.unwritten.take(services.keys()) {
            let entry = match &key {
                Key::Service(key) => self.records.get(key).cloned().map(Entry::Service),
                Key::Pool(name) => self.pools.get(name).cloned().map(Entry::Pool),
            };
            changes.insert(key, entry);
        }
        for (key, (before, after)) in &services {
            if !is_remembered_alike(before.as_ref(), after.as_ref())
                || changes.contains_key(&Key::Service(key.clone()))
            {
                let entry = after.clone().map(Entry::Service);
                changes.insert(Key::Service(key.clone()), entry);
            }
        }
        Batch {
            gone,
            changes,
            outcomes,
            services,
            now,
        }
    }

    /// Lets a batch count, which is on the disk now. Returns what each of the requests came to.
    pub(crate) fn finish(
        &mut self,
        requests: &[Request],
        batch: Batch,
    ) -> Vec<Result<(), Outdated>> {
        let Batch {
            mut outcomes,
            services,
            now,
            ..
        } = batch;
        for (key, (before, after)) in services {
            let current = self.records.get(&key).cloned();
            if is_same_memory(before.as_ref(), current.as_ref()) {
                if !is_same_memory(current.as_ref(), after.as_ref()) {
                    self.put(&key, after);
                }
                continue;
            }
            // Its manifest has changed meanwhile: the same again on what it is now.
            let mut row = current.clone();
            for (request, outcome) in requests.iter().zip(&mut outcomes) {
                if request.key == key {
                    (row, *outcome) = self.written(request, row, now);
                }
            }
            if !is_remembered_alike(row.as_ref(), after.as_ref()) {
                self.note_unwritten(&key, row.is_none());
            }
            if !is_same_memory(current.as_ref(), row.as_ref()) {
                self.put(&key, row);
            }
        }
        outcomes
    }

    /// Gives up a batch that could not be written. It is unknown what of it is on the disk: all of
    /// it is written again, as it is then, with whatever is written next.
    pub(crate) fn fail(&mut self, batch: Batch) {
        for key in batch.gone.into_keys().chain(batch.changes.into_keys()) {
            match key {
                Key::Service(key) => self.note_unwritten(&key, !self.records.contains_key(&key)),
                Key::Pool(_) => self.unwritten.insert(key),
            }
        }
    }

    /// Whether there is something that the disk does not hold.
    pub(crate) fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Whether a request changes nothing, and what it is about is on the disk.
    pub(crate) fn is_settled(&self, request: &Request) -> bool {
        let Request { key, uid, write } = request;
        let record = self.records.get(key).filter(|row| row.uid == *uid);
        let repeats = match (record, write) {
            (None, write) => matches!(write, Write::NoFinalizer),
            (Some(row), Write::Finalizer(status)) => {
                row.finalized && status.as_ref().is_none_or(|it| row.status == *it)
            }
            (Some(row), Write::NoFinalizer) => !row.finalized,
            (Some(row), Write::Status(status)) => row.status == *status,
        };
        repeats && !self.unwritten.contains(&Key::Service(key.clone()))
    }

    /// The Services that changed since this was last asked, as they are now.
    pub(crate) fn take_changed(&mut self) -> Vec<(ServiceKey, Option<Arc<ServiceRow>>)> {
        std::mem::take(&mut self.changed)
            .into_iter()
            .map(|key| {
                let row = self.records.get(&key).cloned();
                (key, row)
            })
            .collect()
    }
}

// === impl Replacement ===

impl Replacement {
    fn new(before: Option<&Arc<ServiceRow>>, after: Row) -> Self {
        Self {
            is_same: is_same_memory(before, after.as_ref()),
            is_alike: is_remembered_alike(before, after.as_ref()),
            after,
        }
    }
}

/// A Service whose manifest says this now.
fn updated(row: &ServiceRow, record: Arc<ServiceRow>) -> Arc<ServiceRow> {
    let mut new = ServiceRow {
        created: record.created,
        finalized: record.finalized,
        status: record.status.clone(),
        ..row.clone()
    };
    note_marks(&mut new.annotations, &record.status.marks);
    if new == *record {
        record
    } else {
        Arc::new(new)
    }
}

/// A Service that is only remembered, and why its manifest is not served.
fn outdated(row: &ServiceRow, why: Vec<Reason>) -> ServiceRow {
    let origin = why.iter().find_map(|reason| reason.origin.clone());
    let source = origin.map(|document| SourceMap {
        document,
        lines: BTreeMap::new(),
        newest_invalid: why,
    });
    ServiceRow {
        source: source.map(Arc::new),
        ..row.clone()
    }
}

#[cfg(test)]
mod tests;
