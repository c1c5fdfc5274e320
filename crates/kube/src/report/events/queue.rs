//! Occurrences that wait for their turn: bounded, and joined by Service and reason. Namespaces have
//! turns, and where there are too many, those of the namespace with most are dropped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use landfall_engine::queue::{Line, Turn};
use landfall_engine::report::EventCounts;
use landfall_model::Uid;
use tokio::sync::Notify;

use crate::report::events::Occurrence;

/// What is shared with the task that sends.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) pending: Mutex<Pending>,
    pub(super) filled: Notify,
}

/// What is still to be sent: pure.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) order: Line<Kind>,
    pub(super) waiting: HashMap<Kind, (Occurrence, u32)>,
    pub(super) counts: EventCounts,
    /// Occurrences are being dropped, and that was logged.
    overflowing: bool,
}

/// Occurrences that are joined while they wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    namespace: Arc<str>,
    uid: Uid,
    reason: &'static str,
}

/// Reasons at Services that may wait at once: enough for one event of each of as many Services.
pub(super) const QUEUE: usize = 16_384;

impl Queue {
    pub(super) fn with<R>(&self, look: impl FnOnce(&mut Pending) -> R) -> R {
        // No code that holds the lock can leave it half changed.
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        look(&mut pending)
    }

    pub(super) fn pop(&self) -> Option<(Occurrence, u32)> {
        self.with(Pending::pop)
    }

    /// Counts occurrences that were aggregated into the count of another event.
    pub(super) fn note_aggregated(&self, count: u32) {
        self.with(|pending| pending.counts.aggregated += u64::from(count));
    }

    pub(super) fn note_dropped(&self, count: u32) {
        self.with(|pending| pending.counts.dropped += u64::from(count));
    }
}

impl Turn for Kind {
    fn turn(&self) -> &Arc<str> {
        &self.namespace
    }
}

impl Pending {
    pub(super) fn push(&mut self, occurrence: Occurrence) {
        let kind = Kind {
            namespace: occurrence.key.shared_namespace().clone(),
            uid: occurrence.saying.uid.clone(),
            reason: occurrence.saying.reason,
        };
        if let Some((newest, count)) = self.waiting.get_mut(&kind) {
            *newest = occurrence;
            *count = count.saturating_add(1);
            self.counts.aggregated += 1;
            return;
        }
        let full = self.waiting.len() >= QUEUE;
        let dropped = full.then(|| self.order.make_room(&kind.namespace));
        if let Some(Some(dropped)) = &dropped {
            self.waiting.remove(dropped);
        }
        if !matches!(dropped, Some(None)) {
            self.order.push_back(kind.clone());
            self.waiting.insert(kind, (occurrence, 1));
        }
        if full {
            self.counts.dropped += 1;
            if !std::mem::replace(&mut self.overflowing, true) {
                tracing::warn!(
                    waiting = QUEUE,
                    "more events than the API server accepts; some are dropped and counted"
                );
            }
        }
    }

    pub(super) fn pop(&mut self) -> Option<(Occurrence, u32)> {
        let kind = self.order.pop()?;
        self.overflowing &= self.waiting.len() > QUEUE / 2;
        self.waiting.remove(&kind)
    }
}
