//! What the loop remembers of a Service between passes, and what it takes the status for.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_model::intent::Intent;
use landfall_model::listener::Certificate;
use landfall_model::rows::ServiceRow;
use landfall_model::status::ServiceStatus;
use landfall_model::{ServiceKey, Uid};

use crate::pass::{Job, Persisted, Telling};
use crate::resolve::removal;

/// What the loop remembers of a Service between passes.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) uid: Uid,
    pub(super) accepted: Option<Accepted>,
    /// What we wrote last, until the source tells it back.
    pub(super) written: Option<Written>,
    /// Failures in a row.
    pub(super) failures: u32,
    pub(super) last_failure: Option<String>,
    pub(super) telling: Telling,
    /// The marks as the last pass left them, whether or not the source has told them back: a removal
    /// needs them, and its Service may be gone by then.
    pub(super) marks: BTreeMap<String, String>,
    /// The instance with which something of it may exist outside.
    pub(super) holder: Option<usize>,
    /// The running pass clears the way: for a later Service of this name, or another instance.
    pub(super) replacing: bool,
    /// Annotations of the instance that served it before and has cleared everything away.
    pub(super) obsolete: &'static [&'static str],
}

/// The newest version of a Service that was valid.
#[derive(Clone, Debug)]
pub(super) struct Accepted {
    pub(super) row: Arc<ServiceRow>,
    /// What its Secrets held then.
    pub(super) certificates: Vec<Arc<Certificate>>,
}

#[derive(Debug)]
pub(super) struct Written {
    status: ServiceStatus,
    /// What the source said when it was written: as long as it says so, it is behind.
    over: ServiceStatus,
}

// === impl Accepted ===

impl Accepted {
    /// A version that is valid, and what it wants.
    pub(super) fn new(row: &Arc<ServiceRow>, intent: Option<&Intent>) -> Self {
        let wish = intent.and_then(|intent| intent.load_balancer.as_ref());
        let modes = wish
            .iter()
            .flat_map(|wish| &wish.listeners)
            .map(|it| &it.mode);
        let certificates = modes.filter_map(|mode| mode.certificates());
        Self {
            row: row.clone(),
            certificates: certificates.flat_map(|it| it.0.clone()).collect(),
        }
    }
}

// === impl Tracked ===

impl Tracked {
    /// A pass that leaves nothing of what it holds.
    pub(super) fn removal(&mut self, key: &ServiceKey, row: Option<Arc<ServiceRow>>) -> Job {
        // How it is to be removed stands on the Service; where that is gone, as it was last seen.
        let seen = self.accepted.as_ref().map(|accepted| &accepted.row);
        let last = row.as_ref().or(seen).filter(|row| row.uid == self.uid);
        let mut intent = match last {
            Some(row) => removal(row),
            None => Intent::removal(key.clone(), self.uid.clone()),
        };
        let status = match &row {
            Some(row) => self.current_status(row),
            None => ServiceStatus {
                marks: self.marks.clone(),
                ..ServiceStatus::default()
            },
        };
        intent.marks.clone_from(&status.marks);
        Job {
            intent: Some(intent),
            errors: Vec::new(),
            status,
            last_failure: self.last_failure.clone(),
            telling: self.telling.clone(),
            row,
            last_of_row: true,
            persisted: Persisted::default(),
        }
    }

    /// The status as far as we know: what we wrote, until the source tells something else than what
    /// we wrote it over.
    pub(super) fn current_status(&mut self, row: &ServiceRow) -> ServiceStatus {
        match &self.written {
            Some(written) if row.status == written.over => written.status.clone(),
            _ => {
                self.written = None;
                row.status.clone()
            }
        }
    }

    /// Whether this is what we wrote last.
    pub(super) fn is_written(&self, status: &ServiceStatus) -> bool {
        let written = self.written.as_ref();
        written.is_some_and(|written| written.status == *status)
    }

    pub(super) fn remember_written(&mut self, row: &ServiceRow, status: &ServiceStatus) {
        if *status == row.status {
            self.written = None;
        } else {
            self.written = Some(Written {
                status: status.clone(),
                over: row.status.clone(),
            });
        }
    }
}
