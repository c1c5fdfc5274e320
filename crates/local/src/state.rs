//! What this provider holds: claims, and listeners as they were last applied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use landfall_ipam::Allocator;
use landfall_model::Uid;
use landfall_model::listener::Listener;
use landfall_model::reason::Reason;
use landfall_proxy::ListenerId;

use crate::plan::Opened;

/// Claims and listeners. A clone is independent: a dry run works on one.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Who holds which address.
    pub allocator: Allocator,
    /// Services of others, of which the allocator knows what they hold.
    pub reserved: BTreeSet<Uid>,
    listeners: BTreeMap<Uid, BTreeMap<ListenerId, Opened>>,
}

// === impl State ===

impl State {
    /// The listeners of a Service.
    pub fn listeners(&self, service: &Uid) -> BTreeMap<ListenerId, Opened> {
        self.listeners.get(service).cloned().unwrap_or_default()
    }

    /// Notes a listener that serves, or why it does not.
    pub fn note(
        &mut self,
        service: &Uid,
        id: ListenerId,
        listener: Arc<Listener>,
        problem: Option<Reason>,
    ) {
        let opened = Opened {
            listener,
            problem,
            refused: None,
        };
        self.put(service, id, opened);
    }

    /// Notes that a listener serves with `kept`, because its newest version was refused.
    pub fn note_refused(
        &mut self,
        service: &Uid,
        id: ListenerId,
        kept: Arc<Listener>,
        refused: (Arc<Listener>, Reason),
    ) {
        let opened = Opened {
            listener: kept,
            problem: None,
            refused: Some(refused),
        };
        self.put(service, id, opened);
    }

    fn put(&mut self, service: &Uid, id: ListenerId, opened: Opened) {
        self.listeners
            .entry(service.clone())
            .or_default()
            .insert(id, opened);
    }

    /// Forgets a listener; says whether it was the Service's.
    pub fn forget(&mut self, service: &Uid, id: ListenerId) -> bool {
        let Some(listeners) = self.listeners.get_mut(service) else {
            return false;
        };
        let had = listeners.remove(&id).is_some();
        if listeners.is_empty() {
            self.listeners.remove(service);
        }
        had
    }

    /// Forgets who holds what, but no listener that is open.
    pub fn forget_claims(&mut self) {
        self.allocator = Allocator::new(self.allocator.pools().clone());
        self.reserved.clear();
    }

    /// Forgets everything but the pools.
    pub fn forget_everything(&mut self) {
        self.forget_claims();
        self.listeners.clear();
    }

    /// All listeners with the Service that they belong to.
    pub fn all(&self) -> impl Iterator<Item = (&Uid, &ListenerId, &Opened)> {
        self.listeners.iter().flat_map(|(uid, listeners)| {
            listeners.iter().map(move |(id, opened)| (uid, id, opened))
        })
    }
}
