//! The book: what the engine last knew of each Service, for people to read at any time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};

use landfall_model::ServiceKey;
use landfall_model::intent::{AddressSpec, KeptAddress, LeftOut};
use landfall_model::plan::PlannedStep;
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::{KeptService, ServiceRow};
use landfall_model::status::{Condition, ConditionType, ServiceStatus};
use tokio::sync::watch;

use crate::instance::InstanceId;

/// What is known of one Service.
#[derive(Clone, Debug)]
pub struct Record {
    pub(crate) row: KeptService,
    /// What was last reported of it, where the row says something else.
    pub(crate) reported: Option<Box<ServiceStatus>>,
    /// The provider instance that serves it, if one does.
    pub instance: Option<InstanceId>,
    /// Everything there is to say about it, worst first.
    pub reasons: Arc<[Reason]>,
    pub(crate) address: Option<KeptAddress>,
    /// Endpoints in no pool.
    pub left_out: Vec<LeftOut>,
    /// Steps that are planned and not done.
    pub pending: Vec<PlannedStep>,
    /// Whether it is being removed, and something of it is left.
    pub removing: bool,
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
    /// Reasons that were noted of the last Services, to be shared with others: many have the same.
    recent: VecDeque<Arc<[Reason]>>,
}

/// So many lists of reasons are compared with a new one.
const RECENT: usize = 16;

// === impl Record ===

impl Record {
    /// Creates the record of a Service that was not handled yet. What its status says was reported.
    pub fn new(row: KeptService) -> Self {
        Self {
            row,
            reported: None,
            instance: None,
            reasons: Arc::default(),
            address: None,
            left_out: Vec::new(),
            pending: Vec::new(),
            removing: false,
            handled: false,
        }
    }

    /// Namespace and name of the Service.
    pub const fn key(&self) -> &ServiceKey {
        self.row.key()
    }

    /// Returns the Service itself, which is unpacked for it.
    pub fn row(&self) -> Option<ServiceRow> {
        self.row.row()
    }

    /// Returns the requested address.
    pub fn address(&self) -> Option<AddressSpec> {
        self.address.as_ref()?.spec()
    }

    /// Replaces the requested address.
    pub fn set_address(&mut self, address: Option<&AddressSpec>) {
        self.address = address.and_then(KeptAddress::new);
    }

    /// The Service as it is kept.
    pub(crate) const fn kept(&self) -> &KeptService {
        &self.row
    }

    /// Returns what was last reported of it.
    pub fn status(&self) -> ServiceStatus {
        let reported = self.reported.as_deref();
        reported.map_or_else(|| self.row.status(), ServiceStatus::clone)
    }

    /// Returns its status for people: nothing flows any more to what is being removed, also where
    /// that can't be written.
    pub fn shown_status(&self) -> ServiceStatus {
        let mut status = self.status();
        let flowing = |it: &&mut Condition| it.kind == ConditionType::Programmed && it.status;
        if self.removing
            && let Some(programmed) = status.conditions.iter_mut().find(flowing)
        {
            let reason = Reason::info(Code::Progressing, "the load balancer is being deleted");
            let since = programmed.last_transition_time;
            *programmed = Condition::unmet(ConditionType::Programmed, &reason, since);
        }
        status
    }

    /// Replaces the Service. What was reported stays.
    pub fn set_row(&mut self, row: KeptService) {
        if row == self.row {
            return;
        }
        let (status, of_row) = (self.status(), row.status());
        self.reported = (status != of_row).then(|| Box::new(status));
        self.row = row;
    }

    /// Replaces what was reported.
    pub fn set_status(&mut self, status: ServiceStatus) {
        self.reported = (status != self.row.status()).then(|| Box::new(status));
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
    /// Returns these reasons, which take no room of their own where another Service has the same.
    pub(crate) fn share(&mut self, reasons: Vec<Reason>) -> Arc<[Reason]> {
        if reasons.is_empty() {
            return Arc::default();
        }
        if let Some(known) = self.recent.iter().find(|it| ***it == *reasons) {
            return Arc::clone(known);
        }
        let new: Arc<[Reason]> = reasons.into();
        self.recent.truncate(RECENT - 1);
        self.recent.push_front(Arc::clone(&new));
        new
    }

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
    use landfall_model::reason::Code;
    use landfall_testkit::svc;

    use super::*;

    #[test]
    fn reasons_that_many_services_have_are_there_once() {
        let mut pages = Snapshot::default();
        let reason = |text: &str| vec![Reason::warning(Code::NotAnnounced, text)];
        let first = pages.share(reason("no speaker"));
        for number in 2..RECENT {
            pages.share(reason(&number.to_string()));
        }
        assert!(Arc::ptr_eq(&first, &pages.share(reason("no speaker"))));
        assert_eq!(pages.share(Vec::new()).len(), 0);
        for number in 0..RECENT * 2 {
            pages.share(reason(&number.to_string()));
        }
        assert_eq!(pages.recent.len(), RECENT);
        assert_eq!(*pages.share(reason("no speaker")), *first);
    }

    #[test]
    fn what_was_reported_stays_until_the_row_says_it() {
        let at = |address: &str| svc("web").port(80).holding(address).row();
        let (old, new) = (at("192.0.2.1"), at("192.0.2.2"));
        let kept = |row: &Arc<ServiceRow>| KeptService::from(&**row);
        let mut record = Record::new(kept(&old));
        assert_eq!(record.status(), old.status);
        record.set_row(kept(&new));
        assert_eq!(record.status(), old.status);
        record.set_status(new.status.clone());
        assert_eq!(
            (record.status(), &record.reported),
            (new.status.clone(), &None)
        );
        record.set_status(old.status.clone());
        assert_eq!(record.status(), old.status);
        record.set_row(kept(&old));
        assert_eq!(
            (record.status(), &record.reported),
            (old.status.clone(), &None)
        );
    }
}
