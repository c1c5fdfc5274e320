//! How the last reconciles of a Service went, and what it keeps others from having.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use landfall_model::intent::Intent;
use landfall_model::listener::ListenerKey;

use super::status_conflicts::StatusConflicts;
use crate::progress::Progress;
use crate::reconcile::{Job, Outcome};

/// The history of the last reconciles of a Service.
#[derive(Debug, Default)]
pub(super) struct ReconcileHistory {
    /// The last end, and when it was.
    pub(super) last: Option<(Outcome, Instant)>,
    /// Reconciles in a row that rested on something that had changed.
    pub(super) conflicts: u32,
    /// Whether it is not known if a status was written: the last write has no certain answer.
    pub(super) unsure: bool,
    /// `None`: nothing was carried out since it was last settled.
    pub(super) progress: Option<Box<Progress>>,
    pub(super) status_conflicts: StatusConflicts,
    /// What it has kept others from since it was last settled.
    pub(super) holds: Option<Holds>,
}

/// What a Service keeps others from having, beside its addresses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holds {
    ports: Vec<ListenerKey>,
    /// Stands for the terms on which it shares an address.
    terms: u64,
}

// === impl ReconcileHistory ===

impl ReconcileHistory {
    /// Hands a reconcile what it has to know of those before it.
    pub(super) fn begin(&mut self, job: &mut Job, now: Instant) {
        self.status_conflicts.review(now);
        let progress = self.progress.as_deref().cloned();
        job.progress = progress.unwrap_or_default().at(now);
        if let Some(intent) = &mut job.intent
            && intent.load_balancer.is_some()
        {
            intent.remarks.extend(self.status_conflicts.remark());
        }
    }

    /// Whether the provider is at work and a check of it is due.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self.last, Some((Outcome::Busy(_), _)))
    }

    /// Whether it is known what the status says.
    pub(super) fn is_sure(&self) -> bool {
        !self.unsure
    }
}

// === impl Holds ===

impl Holds {
    pub(super) fn of(intent: &Intent) -> Option<Self> {
        let spec = intent.load_balancer.as_ref()?;
        let mut hasher = DefaultHasher::new();
        (&spec.address.sharing_key, &spec.address.backend_key).hash(&mut hasher);
        Some(Self {
            ports: spec.listeners.iter().map(|it| it.key).collect(),
            terms: hasher.finish(),
        })
    }

    /// Whether others may have something now that they could not have before.
    pub(super) fn gives_back(&self, now: Option<&Self>) -> bool {
        let Some(now) = now else { return true };
        self.terms != now.terms || self.ports.iter().any(|port| !now.ports.contains(port))
    }
}
