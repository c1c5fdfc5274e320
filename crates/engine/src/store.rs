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
    pub(crate) row: Arc<ServiceRow>,
    /// What was last reported of it, where the row says something else.
    pub(crate) reported: Option<Box<ServiceStatus>>,
    /// The provider instance that serves it, if one does.
    pub instance: Option<InstanceId>,
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

// === impl Record ===

impl Record {
    /// Creates the record of a Service that was not handled yet. What its status says was reported.
    pub fn new(row: Arc<ServiceRow>) -> Self {
        Self {
            row,
            reported: None,
            instance: None,
            reasons: Vec::new(),
            address: None,
            left_out: Vec::new(),
            pending: Vec::new(),
            handled: false,
        }
    }

    /// The Service itself.
    pub fn row(&self) -> &Arc<ServiceRow> {
        &self.row
    }

    /// What was last reported of it.
    pub fn status(&self) -> &ServiceStatus {
        self.reported.as_deref().unwrap_or(&self.row.status)
    }

    /// Replaces the Service. What was reported stays.
    pub fn set_row(&mut self, row: Arc<ServiceRow>) {
        if *self.status() == row.status {
            self.reported = None;
        } else if self.reported.is_none() {
            self.reported = Some(Box::new(self.row.status.clone()));
        }
        self.row = row;
    }

    /// Replaces what was reported.
    pub fn set_status(&mut self, status: ServiceStatus) {
        self.reported = (status != self.row.status).then(|| Box::new(status));
    }
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

#[cfg(test)]
mod tests {
    use landfall_testkit::svc;

    use super::*;

    #[test]
    fn what_was_reported_stays_until_the_row_says_it() {
        let at = |address: &str| svc("web").port(80).holding(address).row();
        let (old, new) = (at("192.0.2.1"), at("192.0.2.2"));
        let mut record = Record::new(old.clone());
        assert_eq!(*record.status(), old.status);
        record.set_row(new.clone());
        assert_eq!(*record.status(), old.status);
        record.set_status(new.status.clone());
        assert_eq!((record.status(), &record.reported), (&new.status, &None));
        record.set_status(old.status.clone());
        assert_eq!(*record.status(), old.status);
        record.set_row(old.clone());
        assert_eq!((record.status(), &record.reported), (&old.status, &None));
    }
}
