//! What this provider holds: claims, and listeners as they were last applied.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use landfall_ipam::{Allocator, Proposal, Refusal, Request};
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
    /// Services whose record may name other addresses than they hold.
    unrecorded: BTreeSet<Uid>,
    /// Whether pools may be missing from those that were told.
    pub pools_in_doubt: bool,
    listeners: BTreeMap<Uid, BTreeMap<ListenerId, Opened>>,
    /// Whose listener serves there.
    serving: HashMap<ListenerId, Uid>,
}

// === impl State ===

impl State {
    /// Claims addresses for a Service; says whether that has to be recorded.
    pub fn claim(&mut self, request: &Request, proposal: &Proposal) -> Result<bool, Refusal> {
        let uid = &request.claimant.uid;
        let held = |allocator: &Allocator| allocator.held(uid).map(|claim| claim.addresses);
        let before = held(&self.allocator);
        self.allocator.claim(request, proposal)?;
        if held(&self.allocator) != before {
            self.unrecorded.insert(uid.clone());
        }
        Ok(self.is_unrecorded(uid))
    }

    /// Ends the claim of a Service. Its addresses stay reserved until that is on record.
    pub fn withdraw(&mut self, service: &Uid) {
        if self.allocator.held(service).is_some() {
            self.allocator.retire(service);
            self.unrecorded.insert(service.clone());
        }
    }

    /// Gives back what a Service gave up, and its claim, if these are addresses of that. They stay
    /// reserved until they are on record no more.
    pub fn release(&mut self, service: &Uid, addresses: &[IpAddr]) {
        let claim = self.allocator.held(service);
        if claim.is_some_and(|claim| claim.addresses.iter().all(|it| addresses.contains(&it))) {
            self.withdraw(service);
        }
        if !self.is_unrecorded(service) {
            self.allocator.free(service);
        }
    }

    /// Whether the record of a Service may name other addresses than it holds.
    pub fn is_unrecorded(&self, service: &Uid) -> bool {
        self.unrecorded.contains(service)
    }

    /// Notes that the record of a Service names what it holds.
    pub fn recorded(&mut self, service: &Uid) {
        self.unrecorded.remove(service);
    }

    /// Notes that no record names what a Service gave up.
    pub fn forgotten(&mut self, service: &Uid) {
        if self.allocator.held(service).is_none() {
            self.unrecorded.remove(service);
            self.allocator.free(service);
        }
    }

    /// The listeners of a Service.
    pub fn listeners(&self, service: &Uid) -> BTreeMap<ListenerId, Opened> {
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
            .insert(id, opened);
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

    /// Forgets who holds what, but no listener that is open.
    pub fn forget_claims(&mut self) {
        self.allocator.forget_claims();
        self.reserved.clear();
        self.unrecorded.clear();
    }

    /// Forgets everything but the pools.
    pub fn forget_everything(&mut self) {
        self.forget_claims();
        self.listeners.clear();
        self.serving.clear();
    }

    /// All listeners with the Service that they belong to.
    pub fn all(&self) -> impl Iterator<Item = (&Uid, &ListenerId, &Opened)> {
        self.listeners.iter().flat_map(|(uid, listeners)| {
            listeners.iter().map(move |(id, opened)| (uid, id, opened))
        })
    }
}
