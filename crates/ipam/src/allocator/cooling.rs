//! Addresses that a Service gave up and that no other one gets yet.

use std::net::IpAddr;
use std::sync::Arc;

use landfall_model::{ServiceKey, Uid};

use super::Allocator;
use crate::request::Claimant;
use crate::sharing::Terms;

// === impl Allocator ===

impl Allocator {
    /// Keeps an address from other Services that `service` gave up before this allocator was made,
    /// until [`warm`](Self::warm). Returns whether it is kept: its pool keeps addresses, and no
    /// Service holds it.
    pub fn cool(&mut self, address: IpAddr, service: ServiceKey) -> bool {
        let pool = self.pools.pool_of(address);
        let keeps = pool.is_some_and(|pool| pool.cool_down().is_some());
        if !keeps || self.occupied.contains_key(&address) {
            return false;
        }
        let claimant = Arc::new(Claimant {
            uid: Uid::new(""),
            service,
            terms: Terms::default(),
        });
        self.enter(address, &claimant);
        self.cooling.insert(address, claimant);
        true
    }

    /// The Service that gave an address up which no other one gets yet.
    pub fn cooling(&self, address: IpAddr) -> Option<&ServiceKey> {
        self.cooling.get(&address).map(|claimant| &claimant.service)
    }

    /// Lets an address be given out again that a Service gave up.
    pub fn warm(&mut self, address: IpAddr) {
        if let Some(claimant) = self.cooling.remove(&address) {
            self.leave(address, &claimant);
        }
    }

    /// Returns whether an address is not given out yet after another Service had it.
    pub(crate) fn cools(&self, address: IpAddr, uid: &Uid) -> bool {
        let before = self.cooling.get(&address);
        before.is_some_and(|claimant| claimant.uid != *uid)
    }
}
