//! What the loop does when this replica comes to lead, may not write any more, or is replaced.

use landfall_model::provider::Provider;
use tokio::sync::watch;

use super::unwritten::Unwritten;
use super::waiting::Waiting;
use super::{BEFORE, Engine, UnservedServices, slots};
use crate::backoff::Retries;
use crate::leadership::Role;
use crate::queue::Queue;
use crate::report::Report;

impl<P: Provider, R: Report> Engine<P, R> {
    /// Makes reconciles only while this replica leads. `inherits`: the providers hold something
    /// from before this engine, which stays until this replica leads, or another one serves.
    #[must_use]
    pub fn led_by(mut self, mut role: watch::Receiver<Role>, inherits: bool) -> Self {
        // The election may have been decided before there was an engine.
        role.mark_changed();
        self.term = inherits.then_some(BEFORE);
        self.role = role;
        self
    }

    /// Makes reconciles in a term only after [`Fact::Current`] has arrived: until then facts may be
    /// from before the last writes of the replica that led before.
    ///
    /// [`Fact::Current`]: landfall_model::rows::Fact::Current
    #[must_use]
    pub fn confirmed_by_facts(self) -> Self {
        Self {
            confirmed: true,
            ..self
        }
    }

    /// Follows a change of the role.
    pub(super) async fn follow_role(&mut self) {
        let role = *self.role.borrow_and_update();
        match role {
            Role::Leading { term } => {
                if self.term.is_some_and(|before| before != term) {
                    self.pause();
                }
                self.begin();
            }
            Role::Carrying => self.pause(),
            Role::Standby => self.retire().await,
        }
    }

    /// Goes to work as soon as this replica leads and everything is known as of then.
    pub(super) fn begin(&mut self) {
        let Role::Leading { term } = *self.role.borrow() else {
            return;
        };
        let knows = self.world.synced() && (!self.confirmed || self.world.is_current(term));
        if self.at_work || !knows {
            return;
        }
        self.at_work = true;
        self.pools.clear();
        self.resources.clear();
        let before = self.term.replace(term);
        self.set_pools();
        if before.is_some() {
            self.invalidate_caches(before != Some(term));
        }
        if before == Some(term) {
            self.follow_all_foreign();
        } else {
            self.restore_claims();
        }
        self.push_all();
        // Also what is gone meanwhile.
        for key in self.tracked.keys() {
            self.queue.push(key);
        }
        self.note_problems();
    }

    /// Whether reconciles begin as soon as the source has sent everything: nothing else is waited
    /// for.
    pub(super) fn begins_when_synced(&self) -> bool {
        let leads = matches!(*self.role.borrow(), Role::Leading { .. });
        leads && !self.at_work && !self.confirmed
    }

    /// Invalidates the cache of what may have changed while this replica did not write.
    fn invalidate_caches(&mut self, others_led: bool) {
        for provider in self.handle.providers.iter() {
            provider.invalidate_caches(others_led);
        }
        for tracked in self.tracked.values_mut() {
            tracked.written = None;
        }
    }

    /// Makes no more reconciles, and leaves everything as it is: what is served goes on being
    /// served.
    fn pause(&mut self) {
        if !self.at_work {
            return;
        }
        tracing::warn!("this replica may not write any more; it keeps serving");
        self.at_work = false;
        self.reconciles.abort_all();
        self.handle.store.write(|pages| pages.at_work = false);
    }

    /// Lets go of everything: another replica serves.
    async fn retire(&mut self) {
        self.pause();
        self.recalled.clear();
        if self.term.take().is_none() {
            return;
        }
        // They were broken off, so they end at once.
        while self.reconciles.join_next().await.is_some() {}
        self.running.clear();
        self.received.clear();
        self.queue = Queue::new(&slots(
            &self.config,
            &self.handle.providers,
            &*self.reporter,
        ));
        self.retries = Retries::new(self.config.backoff);
        self.waiting = Waiting::default();
        self.unwritten = Unwritten::default();
        self.tracked.clear();
        self.by_uid.clear();
        self.unserved = UnservedServices::default();
        self.forfeited.clear();
        self.cleared.clear();
        for provider in self.handle.providers.iter() {
            provider.retire().await;
        }
        self.handle.store.write(|pages| pages.records.clear());
        tracing::info!("another replica serves; this one stands by");
    }
}
