//! The book: what the engine last knew of each Service, for people to read at any time.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use landfall_model::ServiceKey;
use landfall_model::intent::{AddressSpec, LeftOut};
use landfall_model::plan::PlannedStep;
use landfall_model::reason::Reason;
use landfall_model::rows::ServiceRow;
use landfall_model::status::ServiceStatus;
use tokio::sync::watch;

use crate::instance::InstanceId;

/// What is known of one Service.
#[derive(Clone, Debug)]
pub struct Record {
    /// The Service itself.
    pub row: Arc<ServiceRow>,
    /// The provider instance that serves it, if one does.
    pub instance: Option<InstanceId>,
    /// What was last reported of it.
    pub status: ServiceStatus,
    /// Everything there is to say about it, worst first.
    pub reasons: Vec<Reason>,
    /// The requested address.
    pub address: Option<AddressSpec>,
    /// Endpoints in no pool.
    pub left_out: Vec<LeftOut>,
    /// Steps that are planned and not done.
    pub pending: Vec<PlannedStep>,
    /// Whether a reconcile of it has ended since it was first seen.
    pub handled: bool,
}

/// Records by key, what is wrong with the sources, and a number that grows with every change.
#[derive(Debug)]
pub struct StateStore {
    pages: RwLock<Snapshot>,
    changed: watch::Sender<u64>,
}

/// The contents of the book at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Records, by key.
    pub records: BTreeMap<ServiceKey, Record>,
    /// What is wrong with the sources.
    pub problems: Vec<Reason>,
    /// Whether every fact that was there at the start is known.
    pub synced: bool,
    /// Whether reconciles are made: this replica leads, and knows everything.
    pub at_work: bool,
}

// === impl StateStore ===

impl Default for StateStore {
    fn default() -> Self {
        Self {
            pages: RwLock::default(),
            changed: watch::Sender::new(0),
        }
    }
}

impl StateStore {
    /// Reads the book.
    pub fn read<T>(&self, read: impl FnOnce(&Snapshot) -> T) -> T {
        read(&self.pages.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Publishes changes: a number that grows.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn write(&self, write: impl FnOnce(&mut Snapshot)) {
        write(&mut self.pages.write().unwrap_or_else(PoisonError::into_inner));
        self.touch();
    }

    /// Says that something changed that the book does not hold itself, such as health.
    pub(crate) fn touch(&self) {
        self.changed.send_modify(|number| *number += 1);
    }
}

// === impl Snapshot ===

impl Snapshot {
    /// Whether everything that was there at the start is known and was handled once.
    pub fn ready(&self) -> bool {
        // It is asked after every change, and the last ones are handled last, mostly.
        let mut last_first = self.records.values().rev();
        self.synced && last_first.all(|record| record.handled)
    }

    /// Whether this replica leads, and has handled everything that was there when it began.
    pub fn serving(&self) -> bool {
        self.at_work && self.ready()
    }
}
