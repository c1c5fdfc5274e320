//! What this provider holds: claims, and listeners as they were last applied.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use landfall_addressing::Addressing;
use landfall_model::Uid;
use landfall_model::listener::Listener;
use landfall_model::reason::Reason;
use landfall_proxy::ListenerId;

use crate::observed::Opened;

/// Claims and listeners. A clone is independent: a dry run works on one.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub addressing: Addressing,
    /// Behind pointers: a map has room for eleven with the first, and readers get copies of it.
    listeners: HashMap<Uid, BTreeMap<ListenerId, Arc<Opened>>>,
    /// Whose listener serves there.
    serving: HashMap<ListenerId, Uid>,
}

// === impl State ===

impl State {
    /// The listeners of a Service.
    pub fn listeners(&self, service: &Uid) -> BTreeMap<ListenerId, Arc<Opened>> {
        self.listeners.get(service).cloned().unwrap_or_default()
    }

    /// The names of the listeners of a Service.
    pub fn names(&self, service: &Uid) -> Vec<ListenerId> {
        let listeners = self.listeners.get(service);
        listeners
            .into_iter()
            .flat_map(BTreeMap::keys)
            .copied()
            .collect()
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

    /// One listener serves there: the note of the Service that had it before is dropped.
    fn put(&mut self, service: &Uid, id: ListenerId, opened: Opened) {
        if opened.problem.is_none()
            && let Some(before) = self.serving.insert(id, service.clone())
            && before != *service
        {
            self.drop_note(&before, id);
        }
        self.listeners
            .entry(service.clone())
            .or_default()
            .insert(id, Arc::new(opened));
    }

    /// Forgets a listener of a Service.
    pub fn forget(&mut self, service: &Uid, id: ListenerId) {
        self.drop_note(service, id);
        if self.serving.get(&id) == Some(service) {
            self.serving.remove(&id);
        }
    }

    fn drop_note(&mut self, service: &Uid, id: ListenerId) {
        let Some(listeners) = self.listeners.get_mut(service) else {
            return;
        };
        listeners.remove(&id);
        if listeners.is_empty() {
            self.listeners.remove(service);
        }
    }

    /// Forgets everything but the pools.
    pub fn forget_everything(&mut self) {
        self.addressing.forget_claims();
        self.listeners.clear();
        self.serving.clear();
    }

    /// All listeners with the Service that they belong to.
    pub fn all(&self) -> impl Iterator<Item = (&Uid, &ListenerId, &Opened)> {
        self.listeners.iter().flat_map(|(uid, listeners)| {
            listeners
                .iter()
                .map(move |(id, opened)| (uid, id, &**opened))
        })
    }
}
