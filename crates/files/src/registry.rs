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
//! remembered from an earlier run is not deleted while any file can't be read: its manifest may stand
//! there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use landfall_model::rows::ServiceRow;
use landfall_model::status::{Condition, ServiceStatus};
use landfall_model::{ServiceKey, Uid};

use crate::state::Record;

/// Services by key.
pub(crate) type Rows = BTreeMap<ServiceKey, Arc<ServiceRow>>;

/// Every Service, and who must be told of what.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// As the manifests say.
    wanted: Rows,
    /// As they are.
    records: BTreeMap<ServiceKey, Arc<Record>>,
    /// Remembered from an earlier run, and in no manifest since.
    unseen: BTreeSet<ServiceKey>,
    /// What somebody must be told of.
    changed: BTreeSet<ServiceKey>,
    /// Counts changes of what is remembered.
    revision: u64,
}

/// The Service that was meant is not there (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outdated;

// === impl Registry ===

impl Registry {
    /// Goes on where an earlier run left off.
    pub(crate) fn new(records: Vec<Arc<Record>>) -> Self {
        let records: BTreeMap<ServiceKey, Arc<Record>> = records
            .into_iter()
            .map(|record| (record.row.key.clone(), record))
            .collect();
        Self {
            unseen: records.keys().cloned().collect(),
            changed: records.keys().cloned().collect(),
            records,
            ..Self::default()
        }
    }

    /// Takes in what the manifests say now. `in_doubt` tells of Services that may stand in a file
    /// that can't be read.
    pub(crate) fn want(
        &mut self,
        rows: Rows,
        in_doubt: impl Fn(&ServiceKey) -> bool,
        now: Timestamp,
    ) {
        let before = std::mem::replace(&mut self.wanted, rows);
        let mut touched: Vec<ServiceKey> = Vec::new();
        for (key, row) in &self.wanted {
            self.unseen.remove(key);
            if !before.get(key).is_some_and(|old| Arc::ptr_eq(old, row)) {
                touched.push(key.clone());
            }
        }
        let vanished = self.records.keys().filter(|key| {
            !self.wanted.contains_key(*key) && (!self.unseen.contains(*key) || !in_doubt(key))
        });
        touched.extend(vanished.cloned());
        for key in touched {
            self.unseen.remove(&key);
            self.settle(&key, now);
        }
    }

    /// Services that are kept only because a file can't be read.
    pub(crate) fn doubtful(&self) -> impl Iterator<Item = &ServiceKey> {
        self.unseen.iter()
    }

    /// Lets manifest and record of one Service agree.
    fn settle(&mut self, key: &ServiceKey, now: Timestamp) {
        let wanted = self.wanted.get(key).cloned();
        let record = self.records.get(key).cloned();
        match (wanted, record) {
            (None, None) => {}
            (Some(row), Some(record)) if row.uid == record.row.uid => self.update(&row, &record),
            (_, Some(record)) if record.row.finalized => self.delete(&record),
            (Some(row), _) => self.create(&row, now),
            (None, Some(_)) => {
                self.records.remove(key);
                self.note(key);
            }
        }
    }

    fn create(&mut self, row: &ServiceRow, now: Timestamp) {
        self.put(ServiceRow {
            created: Some(now),
            ..row.clone()
        });
    }

    fn update(&mut self, row: &ServiceRow, record: &Record) {
        let old = &record.row;
        let new = ServiceRow {
            created: old.created,
            finalized: old.finalized,
            status: old.status.clone(),
            ..row.clone()
        };
        if new == **old {
            return;
        }
        let as_remembered = ServiceRow {
            source: old.source.clone(),
            ..new.clone()
        };
        if as_remembered == **old {
            let key = new.key.clone();
            self.changed.insert(key.clone());
            self.records.insert(key, Arc::new(record.moved(new)));
        } else {
            self.put(new);
        }
    }

    fn delete(&mut self, record: &Record) {
        if !record.row.deleting {
            self.put(ServiceRow {
                deleting: true,
                ..ServiceRow::clone(&record.row)
            });
        }
    }

    fn put(&mut self, row: ServiceRow) {
        let key = row.key.clone();
        self.note(&key);
        self.records.insert(key, Arc::new(Record::new(row)));
    }

    fn note(&mut self, key: &ServiceKey) {
        self.changed.insert(key.clone());
        self.revision += 1;
    }

    fn find(&self, key: &ServiceKey, uid: &Uid) -> Option<Arc<Record>> {
        let record = self.records.get(key)?;
        (record.row.uid == *uid).then(|| record.clone())
    }

    /// Puts the finalizer on a Service. Returns the revision that must be durable for it to hold.
    pub(crate) fn add_finalizer(
        &mut self,
        key: &ServiceKey,
        uid: &Uid,
        begun: Option<&Condition>,
    ) -> Result<u64, Outdated> {
        let record = self.find(key, uid).ok_or(Outdated)?;
        if !record.row.finalized {
            if record.row.deleting {
                return Err(Outdated);
            }
            let mut row = ServiceRow::clone(&record.row);
            row.finalized = true;
            row.status.conditions.extend(begun.cloned());
            self.put(row);
        }
        Ok(self.revision)
    }

    /// Takes the finalizer off a Service, which ends it if its manifest is gone. A Service that is
    /// gone already is fine.
    pub(crate) fn remove_finalizer(&mut self, key: &ServiceKey, uid: &Uid, now: Timestamp) -> u64 {
        if let Some(record) = self.find(key, uid)
            && record.row.finalized
        {
            // No address may stay published that is given back.
            self.put(ServiceRow {
                finalized: false,
                status: ServiceStatus::default(),
                ..ServiceRow::clone(&record.row)
            });
            if !self.unseen.contains(key) {
                self.settle(key, now);
            }
        }
        self.revision
    }

    /// Replaces the status of a Service.
    pub(crate) fn write_status(
        &mut self,
        key: &ServiceKey,
        uid: &Uid,
        status: &ServiceStatus,
    ) -> Result<u64, Outdated> {
        let record = self.find(key, uid).ok_or(Outdated)?;
        if record.row.status != *status {
            self.put(ServiceRow {
                status: status.clone(),
                ..ServiceRow::clone(&record.row)
            });
        }
        Ok(self.revision)
    }

    /// The Services that changed since this was last asked, as they are now.
    pub(crate) fn take_changed(&mut self) -> Vec<(ServiceKey, Option<Arc<ServiceRow>>)> {
        std::mem::take(&mut self.changed)
            .into_iter()
            .map(|key| {
                let row = self.records.get(&key).map(|record| record.row.clone());
                (key, row)
            })
            .collect()
    }

    /// Counts changes of what is remembered.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Everything that is to be remembered.
    pub(crate) fn records(&self) -> Vec<Arc<Record>> {
        self.records.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
