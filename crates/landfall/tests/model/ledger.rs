//! A record of what the journal of a process has taken and what the process reported: with every
//! write that came back, and every write of which nothing is known.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use landfall_engine::report::Event;
use landfall_engine::{Report, ReportError};
use landfall_files::ManifestStore;
use landfall_files::memory::StateDisk;
use landfall_model::listener::ListenerKey;
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::status::{ConditionType, ServiceStatus};
use landfall_model::{ServiceKey, Uid};

use crate::api::{on_record, put_status};
use crate::validate::Checker;

/// A record of all writes and reports, which finds contradictions.
#[derive(Debug)]
pub struct Ledger {
    inner: Mutex<Inner>,
    disk: StateDisk,
    pub validate: Checker,
}

#[derive(Debug, Default)]
struct Inner {
    records: BTreeMap<Uid, Record>,
    /// The Services as the running process has reported them.
    reported: BTreeMap<ServiceKey, Arc<ServiceRow>>,
    /// What it had reported before it had reported all.
    found: Option<BTreeMap<Uid, Arc<ServiceRow>>>,
    counts: Counts,
}

/// What there was to note.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub writes: u64,
    pub refused: u64,
    pub opened: u64,
}

/// What is known of the record of a Service.
#[derive(Debug, Default)]
struct Record {
    /// As the last write made it that came back with a success; `None`: there was none.
    certain: Option<ServiceRow>,
    /// As the one before made it.
    before: Option<ServiceStatus>,
    /// As writes since may have made it.
    possible: Vec<ServiceRow>,
}

/// One process's way to write.
#[derive(Debug)]
pub struct Remembering {
    pub ledger: Arc<Ledger>,
    pub store: ManifestStore,
}

// === impl Ledger ===

impl Ledger {
    pub fn new(disk: StateDisk) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::default(),
            disk,
            validate: Checker::default(),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub fn counts(&self) -> Counts {
        self.inner().counts
    }

    pub fn reported(&self) -> Vec<ServiceRow> {
        let inner = self.inner();
        inner.reported.values().map(|row| (**row).clone()).collect()
    }

    /// A process begins, and knows what is on the disk.
    pub fn begun(&self) {
        let mut inner = self.inner();
        inner.reported.clear();
        inner.found = Some(BTreeMap::new());
        drop(inner);
        self.validate.begun();
    }

    /// The process sends the engine a fact.
    pub fn received(&self, fact: &Fact) {
        let mut inner = self.inner();
        let violations = match fact {
            Fact::Service(row) => {
                inner.reported.insert(row.key.clone(), row.clone());
                match &mut inner.found {
                    Some(found) => {
                        found.insert(row.uid.clone(), row.clone());
                        Vec::new()
                    }
                    None => inner.receive_of(row),
                }
            }
            Fact::ServiceGone(key) => inner.receive_gone(key),
            Fact::Synced => inner.reconcile(),
            _ => Vec::new(),
        };
        drop(inner);
        for violation in violations {
            self.validate.violation(violation);
        }
    }

    /// A listener opens: its address must be on the disk for its Service, whatever a power cut
    /// would take with it now.
    pub fn opened(&self, address: IpAddr, key: ListenerKey, uid: &Uid) {
        let row = {
            let mut inner = self.inner();
            inner.counts.opened += 1;
            let record = inner.records.get(uid);
            record.and_then(|record| record.certain.clone())
        };
        self.validate.opened(address, key, uid, row.as_ref());
        for keeps_all in [false, true] {
            let survivors = match self.disk.survivors(keeps_all) {
                Ok(survivors) => survivors,
                Err(error) => return self.validate.violation(error.to_string()),
            };
            let found = survivors.iter().find(|row| row.uid == *uid);
            if !found.is_some_and(|row| on_record(row).contains(&address)) {
                self.validate.violation(format!(
                    "{address} {key} opens for {uid:?}, of which a power cut would leave {:?}",
                    found.map(|row| on_record(row))
                ));
            }
        }
    }

    /// Nothing changes any more: what is reported is what is on the disk, and nothing else is.
    pub fn settled(&self) {
        let reported = self.reported();
        let survivors = match self.disk.survivors(false) {
            Ok(survivors) => survivors,
            Err(error) => return self.validate.violation(error.to_string()),
        };
        for row in &reported {
            let found = survivors.iter().find(|found| found.uid == row.uid);
            let is_same = found.is_some_and(|found| {
                found.status == row.status
                    && (found.finalized, found.deleting) == (row.finalized, row.deleting)
            });
            if !is_same {
                self.validate.violation(format!(
                    "{} is reported with {:?}, and on the disk is {:?}",
                    row.key,
                    row.status,
                    found.map(|found| &found.status)
                ));
            }
        }
        for found in survivors {
            if !reported.iter().any(|row| row.uid == found.uid) {
                self.validate
                    .violation(format!("{} is on the disk, and not reported", found.key));
            }
        }
    }

    /// A write begins: from now on it may be on the disk.
    fn begins(&self, new: &ServiceRow) {
        if new.status.condition(ConditionType::Accepted).is_none() {
            self.validate.may_be_removed(&new.uid);
        }
        let mut inner = self.inner();
        let record = inner.records.entry(new.uid.clone()).or_default();
        record.possible.push(new.clone());
    }

    /// A write came back with a success.
    fn succeeded(&self, what: &str, known: &ServiceRow, new: &ServiceRow) {
        let mut inner = self.inner();
        inner.counts.writes += 1;
        let record = inner.records.entry(new.uid.clone()).or_default();
        let old = record.certain.replace(new.clone());
        record.before = old.as_ref().map(|old| old.status.clone());
        record.possible.clear();
        let records = inner.records.iter();
        let others = records.filter(|(uid, _)| **uid != new.uid);
        let others: Vec<ServiceRow> = others
            .filter_map(|(_, record)| record.certain.clone())
            .collect();
        drop(inner);
        let mut nothing = new.clone();
        put_status(&mut nothing, &ServiceStatus::default());
        let old = old.unwrap_or(nothing);
        self.validate.written(what, known, [&old, new], &others);
    }

    async fn write(
        &self,
        what: &str,
        known: &ServiceRow,
        change: impl FnOnce(&mut ServiceRow),
        writing: impl Future<Output = Result<(), ReportError>>,
    ) -> Result<(), ReportError> {
        let mut new = known.clone();
        change(&mut new);
        self.begins(&new);
        let written = writing.await;
        match &written {
            Ok(()) => self.succeeded(what, known, &new),
            Err(error) => {
                self.validate
                    .note(&format!("{what} {}: {error}", known.key));
                self.inner().counts.refused += 1;
            }
        }
        written
    }
}

// === impl Inner ===

impl Inner {
    /// A Service is reported: what it publishes must be on record.
    fn receive_of(&mut self, row: &ServiceRow) -> Vec<String> {
        let record = self.records.entry(row.uid.clone()).or_default();
        if row.status == ServiceStatus::default() && record.may_be_gone() {
            record.begin_again();
            return Vec::new();
        }
        let is_known = record.may_be(&row.status) || record.before.as_ref() == Some(&row.status);
        let violation = format!("{} is reported as never written: {:?}", row.key, row.status);
        (!is_known).then_some(violation).into_iter().collect()
    }

    fn receive_gone(&mut self, key: &ServiceKey) -> Vec<String> {
        let Some(row) = self.reported.remove(key) else {
            return vec![format!("{key} is reported as gone, and was not there")];
        };
        let record = self.records.entry(row.uid.clone()).or_default();
        let violation = format!("{key} is reported as gone, and has its finalizer");
        let is_violated = !record.may_be_gone();
        record.begin_again();
        is_violated.then_some(violation).into_iter().collect()
    }

    /// A process has reported all that it found.
    fn reconcile(&mut self) -> Vec<String> {
        let mut violations = Vec::new();
        let found = self.found.take().unwrap_or_default();
        for (uid, record) in &mut self.records {
            match found.get(uid) {
                Some(row) => {
                    let is_new = row.status == ServiceStatus::default() && record.may_be_gone();
                    if !is_new && !record.may_be(&row.status) {
                        violations.push(format!(
                            "{} comes back with {:?}, and {record:?} was written",
                            row.key, row.status
                        ));
                    }
                    *record = Record::of(row);
                }
                None if record.may_be_gone() => record.begin_again(),
                None => violations.push(format!("{uid:?} is lost: {record:?}")),
            }
        }
        for (uid, row) in found {
            if self.records.contains_key(&uid) {
                continue;
            }
            if row.finalized || !on_record(&row).is_empty() {
                violations.push(format!("{} comes back from nothing: {row:?}", row.key));
            }
            self.records.insert(uid, Record::of(&row));
        }
        violations
    }
}

// === impl Record ===

impl Record {
    fn of(row: &ServiceRow) -> Self {
        Self {
            certain: Some(row.clone()),
            ..Self::default()
        }
    }

    /// Lets nothing count any more. What was there may still come back in another process: no
    /// caller waits until the disk holds that a Service without a finalizer is gone, and a write
    /// may be on its way.
    fn begin_again(&mut self) {
        self.before = None;
        self.possible.extend(self.certain.take());
    }

    /// Whether no finalizer keeps the Service.
    fn may_be_gone(&self) -> bool {
        let certain = self.certain.as_ref();
        certain.is_none_or(|row| !row.finalized) || self.possible.iter().any(|row| !row.finalized)
    }

    fn may_be(&self, status: &ServiceStatus) -> bool {
        let nothing = ServiceStatus::default();
        let certain = self.certain.as_ref().map_or(&nothing, |row| &row.status);
        let mut possible = self.possible.iter().map(|row| &row.status);
        certain == status || possible.any(|possible| possible == status)
    }
}

// === impl Remembering ===

impl Report for Remembering {
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
        let writing = Report::add_finalizer(&self.store, service, status);
        self.ledger
            .write("finalizer", service, change, writing)
            .await
    }

    async fn remove_finalizer(&self, service: &ServiceRow) -> Result<(), ReportError> {
        let change = |row: &mut ServiceRow| {
            row.finalized = false;
            put_status(row, &ServiceStatus::default());
        };
        let writing = Report::remove_finalizer(&self.store, service);
        self.ledger.write("removal", service, change, writing).await
    }

    async fn write_status(
        &self,
        service: &ServiceRow,
        status: &ServiceStatus,
    ) -> Result<(), ReportError> {
        let change = |row: &mut ServiceRow| put_status(row, status);
        let writing = Report::write_status(&self.store, service, status);
        self.ledger.write("status", service, change, writing).await
    }

    fn at_once(&self) -> usize {
        self.store.at_once()
    }

    async fn event(&self, _: &ServiceRow, _: &Event) {}
}
