//! What the loop remembers of a Service between reconciles, and what it takes the status for.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use landfall_model::intent::Intent;
use landfall_model::rows::{KeptStatus, ServiceRow};
use landfall_model::status::{IngressAddress, ServiceStatus};
use landfall_model::{ServiceKey, Uid};

use super::clock;
use super::history::ReconcileHistory;
use crate::instance::Owners;
use crate::progress::Progress;
use crate::reconcile::{EventState, Job, Outcome, Persisted, ReconcileEnd, Writing};
use crate::resolve::{Accepted, removal};

/// What the loop remembers of a Service between reconciles.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) uid: Uid,
    pub(super) accepted: Option<Accepted>,
    /// Whether a removal of everything began since that was accepted: from then on the record says
    /// what was accepted last.
    pub(super) ending: bool,
    /// Whether it gave up an address since it was settled last.
    pub(super) gave_up: bool,
    /// Addresses that it may have claimed since then in vain: they could not be recorded.
    pub(super) unrecorded: Vec<IpAddr>,
    /// What we wrote last, until the source repeats it.
    pub(super) written: Option<Box<Written>>,
    pub(super) last_failure: Option<String>,
    pub(super) reporting: EventState,
    /// The marks as the last reconcile left them, whether or not the source has repeated them: a
    /// removal needs them, and its Service may be gone by then. And what its status published when
    /// its claim was read from there, or as the last reconcile left it that served a version.
    left: KeptStatus,
    /// The instances with which something of it may exist outside.
    pub(super) owners: Option<Owners>,
    /// The running reconcile clears the way: for a later Service of this name, or another instance.
    pub(super) replacing: bool,
    /// How its last reconciles went.
    pub(super) history: ReconcileHistory,
    /// Annotations of the instance that served it before and has cleared everything away.
    pub(super) obsolete: &'static [&'static str],
}

#[derive(Debug)]
pub(super) struct Written {
    status: ServiceStatus,
    /// What stood there when it was written: as long as the source says so, it is behind.
    over: ServiceStatus,
    /// What was written between the two: while the source says so, it is behind, too.
    earlier: Vec<ServiceStatus>,
}

/// How a status that a fact brings relates to our own writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusOrigin {
    /// It is what we wrote last, with what others may have put beside it.
    Ours,
    /// It is what we wrote last, with annotations beside it that are no news of the status.
    Annotated,
    /// It is older than what we wrote last.
    Late,
    /// Another program wrote it.
    Foreign,
}

// === impl Tracked ===

impl Tracked {
    /// Remembers a Service of which nothing was done yet.
    pub(super) fn new(row: &ServiceRow, obsolete: &'static [&'static str]) -> Self {
        Self {
            uid: row.uid.clone(),
            accepted: None,
            gave_up: false,
            ending: false,
            unrecorded: Vec::new(),
            written: None,
            last_failure: None,
            reporting: EventState::default(),
            left: kept(row.status.ingress.clone(), row.status.marks.clone()),
            owners: None,
            replacing: false,
            history: ReconcileHistory::default(),
            obsolete,
        }
    }

    /// Returns its marks as the last reconcile left them.
    pub(super) fn marks(&self) -> BTreeMap<String, String> {
        self.left.status().marks
    }

    /// Returns what its status published.
    pub(super) fn published(&self) -> Vec<IngressAddress> {
        self.left.status().ingress
    }

    /// Replaces what its status published.
    pub(super) fn set_published(&mut self, published: Vec<IngressAddress>) {
        self.left = kept(published, self.marks());
    }

    /// Remembers how a reconcile ended. `served`: it was for a load balancer that is wanted.
    pub(super) fn take_end(&mut self, end: &mut ReconcileEnd, served: bool, now: Instant) {
        self.last_failure.clone_from(&end.failure);
        self.reporting.clone_from(&end.reporting);
        let published = if served {
            end.status.ingress.clone()
        } else {
            self.published()
        };
        self.left = kept(published, end.status.marks.clone());
        let history = &mut self.history;
        history.last = Some((end.outcome, now));
        if end.writing != Writing::Nothing {
            history.unsure = end.writing == Writing::Unsure;
        }
        let mut progress = std::mem::take(&mut end.progress);
        // A step that fails is not counted; those that succeed before it are, however it ends.
        if matches!(end.outcome, Outcome::Failed | Outcome::Paused(_)) {
            progress.fail(end.failure.as_deref());
        }
        history.progress = (progress != Progress::default()).then(|| Box::new(progress));
        if end.outcome != Outcome::Outdated {
            history.conflicts = 0;
        }
    }

    /// Notes addresses that could not be recorded.
    pub(super) fn note_unrecorded(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            if !self.unrecorded.contains(address) {
                self.unrecorded.push(*address);
            }
        }
    }

    /// A reconcile that leaves nothing of what it holds.
    pub(super) fn removal(&mut self, key: &ServiceKey, row: Option<Arc<ServiceRow>>) -> Job {
        self.ending = true;
        // How it is to be removed stands on the Service; where that is gone, as it was last seen.
        let seen = || {
            let accepted = self.accepted.as_ref()?;
            accepted.row.row().map(Arc::new)
        };
        let last = row.clone().or_else(seen);
        let last = last.filter(|row| row.uid == self.uid);
        let mut intent = match last {
            Some(row) => removal(&row),
            None => Intent::removal(key.clone(), self.uid.clone()),
        };
        let status = match &row {
            Some(row) => self.current_status(row),
            None => ServiceStatus {
                marks: self.marks(),
                ..ServiceStatus::default()
            },
        };
        intent.marks.clone_from(&status.marks);
        Job {
            intent: Some(intent),
            errors: Vec::new(),
            status,
            last_failure: self.last_failure.clone(),
            reporting: self.reporting.clone(),
            progress: Progress::default(),
            row,
            releases_finalizer: true,
            persisted: Persisted::default(),
            unsure: false,
        }
    }

    /// The status as far as we know: what we wrote, until a fact has something else than what
    /// came before it.
    pub(super) fn current_status(&mut self, row: &ServiceRow) -> ServiceStatus {
        if let Some(said) = self.history.status_conflicts.stands_in(clock()) {
            return said.clone();
        }
        match &self.written {
            Some(written) if written.is_after(&row.status) => written.status.clone(),
            _ => {
                self.written = None;
                row.status.clone()
            }
        }
    }

    /// The owner of this status, which a fact has instead of another one. `said`: as the last
    /// reconcile left it.
    pub(super) fn validate_reported(
        &self,
        reported: &ServiceStatus,
        said: Option<&ServiceStatus>,
    ) -> StatusOrigin {
        let written = self.written.as_ref();
        let is_late = written.is_some_and(|written| written.earlier.contains(reported));
        match written.map(|written| &written.status).or(said) {
            Some(ours) if says(reported, ours) && reported.marks == ours.marks => {
                StatusOrigin::Ours
            }
            _ if is_late => StatusOrigin::Late,
            Some(ours) if says(reported, ours) && has_marks(reported, ours) => {
                StatusOrigin::Annotated
            }
            _ => StatusOrigin::Foreign,
        }
    }

    /// Takes in a fact that repeats what we wrote.
    pub(super) fn confirm(&mut self, reported: &ServiceStatus) {
        self.written = self.written.take().and_then(|mut written| {
            written.over.clone_from(reported);
            written.earlier.clear();
            (written.status != *reported).then_some(written)
        });
    }

    /// Remembers what was written over what a row says, the last one last.
    pub(super) fn remember_written(&mut self, over: &ServiceStatus, mut wrote: Vec<ServiceStatus>) {
        let Some(status) = wrote.pop() else { return };
        let mut earlier = Vec::new();
        if let Some(before) = self.written.take() {
            earlier = before.earlier;
            earlier.push(before.status);
        }
        earlier.append(&mut wrote);
        earlier.retain(|it| *it != status);
        self.written = (status != *over || !earlier.is_empty()).then(|| {
            Box::new(Written {
                status,
                over: over.clone(),
                earlier,
            })
        });
    }
}

// === impl Written ===

impl Written {
    fn is_after(&self, reported: &ServiceStatus) -> bool {
        *reported == self.over || self.earlier.contains(reported)
    }
}

fn kept(ingress: Vec<IngressAddress>, marks: BTreeMap<String, String>) -> KeptStatus {
    KeptStatus::new(&ServiceStatus {
        ingress,
        marks,
        ..ServiceStatus::default()
    })
}

/// Whether addresses and conditions are ours. Others may put names beside our addresses; an address
/// that is not ours may not stand there.
fn says(reported: &ServiceStatus, ours: &ServiceStatus) -> bool {
    let is_foreign = |entry: &&IngressAddress| {
        let known = ours.ingress.iter().any(|it| it.hostname == entry.hostname);
        entry.ip.is_none() && !known
    };
    let mut left = reported.ingress.iter().filter(|entry| !is_foreign(entry));
    let same = |entry: &IngressAddress| {
        left.next().is_some_and(|reported| {
            reported.ip == entry.ip
                && (entry.hostname.is_none() || reported.hostname == entry.hostname)
                && (entry.ip_mode.is_none() || reported.ip_mode == entry.ip_mode)
                && (entry.ports.is_empty() || reported.ports == entry.ports)
        })
    };
    ours.ingress.iter().all(same) && left.next().is_none() && reported.conditions == ours.conditions
}

/// Whether every annotation that we keep is there.
fn has_marks(reported: &ServiceStatus, ours: &ServiceStatus) -> bool {
    let mut marks = ours.marks.iter();
    marks.all(|(key, value)| reported.marks.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_of_a_service_fits_a_size_class_of_the_allocator() {
        assert!(size_of::<Tracked>() <= 448, "{}", size_of::<Tracked>());
    }
}
