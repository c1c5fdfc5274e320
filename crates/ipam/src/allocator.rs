//! The allocator: pools, and the holders of their addresses.
//!
//! Invariants, which the property tests watch:
//!
//! - *compatible*: all holders of one address may share it with each other;
//! - *indexed*: an address in a pool is taken in that pool's state exactly while it has a holder;
//! - *remembered*: a claim outlives its pool. Only a proposal that is claimed, or a release, ends
//!   it.
//! - *reserved*: an address that a Service gives up stays occupied until [`Allocator::free`]: as
//!   long as a record may name it, it is given to no other Service.

mod cooling;
mod validate;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::Uid;

use crate::counters::Counters;
use crate::family::Addresses;
use crate::occupancy::Occupancy;
use crate::pool::Pool;
use crate::pool_name::PoolName;
use crate::pool_set::PoolSet;
use crate::pool_state::{Alone, PoolState};
use crate::proposal::Proposal;
use crate::refusal::Refusal;
use crate::request::{Claimant, Request, at_most_one_of_each_family};

pub(crate) use validate::validate_admission;

/// Address pools and the claims on them.
///
/// A clone is independent: claim in it to see what would happen.
#[derive(Clone, Debug, Default)]
pub struct Allocator {
    pools: PoolSet,
    /// Whether there may be pools that are not known.
    incomplete: bool,
    /// One per pool, in the same order.
    states: Vec<PoolState>,
    occupied: HashMap<IpAddr, Occupancy>,
    claims: HashMap<Uid, Claim>,
    /// What Services gave up and a record may still name, on the terms on which they held it.
    leaving: HashMap<Uid, BTreeMap<IpAddr, Arc<Claimant>>>,
    /// What the record names of Services whose claim changed since it was written.
    recorded: HashMap<Uid, Addresses>,
    /// What no record names any more and is not given out yet, with the Service that had it.
    cooling: BTreeMap<IpAddr, Arc<Claimant>>,
}

/// What a Service holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The holder, on the terms of its last claim.
    pub claimant: Arc<Claimant>,
    /// At least one address.
    pub addresses: Addresses,
    /// The pool they came from, as far as known. It may be gone by now.
    pub pool: Option<PoolName>,
}

/// A claim to restore, as a Service's status has it.
#[derive(Clone, Debug)]
pub struct Restore {
    /// The holder.
    pub claimant: Arc<Claimant>,
    /// The addresses in the status.
    pub addresses: Vec<IpAddr>,
    /// The pool that was noted with them.
    pub pool: Option<PoolName>,
    /// The addresses that the Service asks for, if it asks for any and they can be read. Should
    /// two Services have one address in their status, the one that asks for it keeps it.
    pub requested: Addresses,
}

// === impl Allocator ===

impl Allocator {
    /// An allocator with these pools and no claims.
    pub fn new(pools: PoolSet) -> Self {
        let mut allocator = Self::default();
        allocator.set_pools(pools);
        allocator
    }

    /// Replaces the pools. Every claim stays; what must move is in the next
    /// [`propose`](Self::propose) of its Service. Linear in the number of claims.
    pub fn set_pools(&mut self, pools: PoolSet) {
        self.states = pools.iter().map(PoolState::new).collect();
        self.pools = pools;
        for (address, occupancy) in &self.occupied {
            let Some((pool, entry)) = self.pools.locate(*address) else {
                continue;
            };
            let Some(state) = self.states.get_mut(pool) else {
                continue;
            };
            let mut namespaces = HashSet::new();
            for (number, holder) in occupancy.holders().into_iter().enumerate() {
                let alone = Alone {
                    of_all: number == 0,
                    in_namespace: namespaces.insert(holder.service.namespace()),
                };
                state.enter(entry, *address, alone, holder);
            }
        }
    }

    /// Forgets all holders. The pools stay, and whether there may be others.
    pub fn forget_claims(&mut self) {
        let incomplete = self.incomplete;
        *self = Self::new(std::mem::take(&mut self.pools));
        self.incomplete = incomplete;
    }

    /// Says whether there may be pools beside the known ones. As long as there may be, no Service
    /// leaves an address because no pool has it.
    pub fn set_incomplete(&mut self, incomplete: bool) {
        self.incomplete = incomplete;
    }

    pub(crate) fn incomplete(&self) -> bool {
        self.incomplete
    }

    /// The pools.
    pub fn pools(&self) -> &PoolSet {
        &self.pools
    }

    /// The pool in which an address lies.
    pub fn pool_of(&self, address: IpAddr) -> Option<&Pool> {
        self.pools.pool_of(address)
    }

    /// What a Service holds.
    pub fn held(&self, uid: &Uid) -> Option<&Claim> {
        self.claims.get(uid)
    }

    /// All claims, in the order of names.
    pub fn claims(&self) -> Vec<&Claim> {
        let mut claims: Vec<&Claim> = self.claims.values().collect();
        claims.sort_by_key(|claim| (&claim.claimant.service, &claim.claimant.uid));
        claims
    }

    /// Returns the holders of an address, in the order of names.
    pub fn holders(&self, address: IpAddr) -> Vec<&Claimant> {
        let mut holders: Vec<&Claimant> = self
            .occupied
            .get(&address)
            .map(|occupancy| {
                occupancy
                    .holders()
                    .into_iter()
                    .map(|holder| &**holder)
                    .collect()
            })
            .unwrap_or_default();
        holders.sort_by_key(|holder| (&holder.service, &holder.uid));
        holders
    }

    /// The counters of every pool, in the order of names.
    pub fn counters(&self) -> Vec<Counters> {
        self.pools
            .iter()
            .zip(&self.states)
            .map(|(pool, state)| state.counters(pool))
            .collect()
    }

    /// Heap bytes of the records of taken places: bitmaps and runs, without the claims.
    pub fn slot_bytes(&self) -> usize {
        self.states.iter().map(PoolState::slot_bytes).sum()
    }

    /// Makes a proposal true, on the terms of the request. Another Service may have come first
    /// since it was made: then nothing changes and the refusal names it. Addresses that the
    /// proposal leaves out stay reserved until [`free`](Self::free).
    pub fn claim(&mut self, request: &Request, proposal: &Proposal) -> Result<(), Refusal> {
        for address in proposal.addresses.iter() {
            // Its own need not be in a pool any more.
            if self.is_own(&request.claimant.uid, address) {
                self.validate_sharing(&request.claimant, address)?;
            } else {
                let (pool, _) =
                    self.pools
                        .locate(address)
                        .ok_or_else(|| Refusal::AddressNotInPool {
                            address,
                            known: self.pools.names(),
                        })?;
                self.validate(request, pool, address)?;
            }
        }
        self.hold(&request.claimant, proposal.addresses, None);
        Ok(())
    }

    /// Ends a claim that a record may still name. Its addresses stay reserved until
    /// [`free`](Self::free).
    pub fn retire(&mut self, uid: &Uid) {
        if let Some(claim) = self.claims.remove(uid) {
            self.recorded.entry(uid.clone()).or_insert(claim.addresses);
            self.reserve(&claim, Addresses::NONE);
        }
    }

    /// The addresses that a Service gave up and that are still reserved.
    pub fn leaving(&self, uid: &Uid) -> Vec<IpAddr> {
        let leaving = self.leaving.get(uid);
        leaving.map_or_else(Vec::new, |leaving| leaving.keys().copied().collect())
    }

    /// Notes that the record of a Service names what it holds. Until then it rather goes back to
    /// what the record named before than to hold what it never named.
    pub fn on_recorded(&mut self, uid: &Uid) {
        self.recorded.remove(uid);
    }

    /// Frees what a Service gave up: no record names it any more. What it holds stays.
    ///
    /// Returns the addresses that no other Service gets before [`warm`](Self::warm), each with the
    /// time for which its pool keeps them.
    pub fn free(&mut self, uid: &Uid) -> Vec<(IpAddr, Duration)> {
        let mut cooling = Vec::new();
        self.recorded.remove(uid);
        for (address, claimant) in self.leaving.remove(uid).into_iter().flatten() {
            let pool = self.pools.pool_of(address);
            match pool.and_then(Pool::cool_down) {
                Some(time) if !self.cooling.contains_key(&address) => {
                    self.cooling.insert(address, claimant);
                    cooling.push((address, time));
                }
                _ => self.leave(address, &claimant),
            }
        }
        cooling
    }

    /// Returns the addresses that Services have, or gave up while a record may still name them.
    pub fn taken(&self) -> impl Iterator<Item = (&Uid, IpAddr)> {
        let claims = self.claims.iter();
        let held = claims.flat_map(|(uid, claim)| claim.addresses.iter().map(move |it| (uid, it)));
        let leaving = self.leaving.iter();
        held.chain(leaving.flat_map(|(uid, left)| left.keys().map(move |it| (uid, *it))))
    }

    /// Ends a claim. What it held can be given out at once.
    pub fn release(&mut self, uid: &Uid) -> Option<Claim> {
        self.recorded.remove(uid);
        let claim = self.claims.remove(uid)?;
        for address in claim.addresses.iter() {
            self.leave(address, &claim.claimant);
        }
        Some(claim)
    }

    /// Loads one claim as a Service's status has it, whether or not a pool has the addresses.
    /// To be called for all Services before the first proposal. Replaces an earlier claim of the
    /// same Service.
    ///
    /// Returns why an address was not restored: it is not the first of its family, or a Service
    /// restored earlier holds it and does not share it.
    pub fn restore(&mut self, restore: &Restore) -> Vec<Refusal> {
        let claimant = &restore.claimant;
        self.release(&claimant.uid);
        let found: Vec<IpAddr> = restore.addresses.iter().map(IpAddr::to_canonical).collect();
        let mut refusals: Vec<Refusal> = at_most_one_of_each_family(&found)
            .err()
            .into_iter()
            .collect();
        let mut addresses = Addresses::NONE;
        // The first of each family counts, so the last one to be written down.
        for address in found.into_iter().rev() {
            addresses.insert(address);
        }
        for address in addresses.iter() {
            // What a Service has on record was not released, or was assigned again.
            self.warm(address);
            // What is on record was given out by rules that may have been others.
            if let Err(refusal) = self.validate_holders(claimant, address, true) {
                refusals.push(refusal);
                addresses = addresses.without(&address.into());
            }
        }
        self.hold(claimant, addresses, restore.pool.clone());
        self.recorded.remove(&claimant.uid);
        refusals
    }

    /// Loads many claims; the outcome does not depend on their order. A Service that requests the
    /// very addresses it has comes first, then the order of names decides.
    pub fn restore_all(&mut self, mut all: Vec<Restore>) -> Vec<(Arc<Claimant>, Refusal)> {
        all.sort_by(|a, b| {
            let key = |restore: &Restore| {
                let asks = !restore.requested.is_empty()
                    && restore
                        .requested
                        .iter()
                        .all(|address| restore.addresses.contains(&address));
                !asks
            };
            (key(a), &a.claimant.service, &a.claimant.uid).cmp(&(
                key(b),
                &b.claimant.service,
                &b.claimant.uid,
            ))
        });
        let mut refused = Vec::new();
        for restore in &all {
            for refusal in self.restore(restore) {
                refused.push((Arc::clone(&restore.claimant), refusal));
            }
        }
        refused
    }

    pub(crate) fn held_addresses(&self, uid: &Uid) -> Addresses {
        self.claims
            .get(uid)
            .map_or(Addresses::NONE, |claim| claim.addresses)
    }

    /// What the record of a Service still names although its claim changed since.
    pub fn recorded(&self, uid: &Uid) -> Option<Addresses> {
        let recorded = self.recorded.get(uid).copied();
        recorded.filter(|it| !it.is_empty() && *it != self.held_addresses(uid))
    }

    /// Returns whether an address is held by a Service, or was and is still reserved.
    pub(crate) fn is_own(&self, uid: &Uid, address: IpAddr) -> bool {
        let leaving = self.leaving.get(uid);
        self.held_addresses(uid).contains(address)
            || leaving.is_some_and(|it| it.contains_key(&address))
    }

    pub(crate) fn state(&self, pool: usize) -> Option<&PoolState> {
        self.states.get(pool)
    }

    /// The addresses that a Service shares from before with Services of other namespaces, although
    /// their pool does not let them.
    pub fn shared_by_exception(&self, uid: &Uid) -> Vec<IpAddr> {
        let Some(claim) = self.claims.get(uid) else {
            return Vec::new();
        };
        let exception = |address: &IpAddr| {
            let occupancy = self.occupied.get(address);
            let foreign = occupancy.and_then(|it| it.foreigner_to(&claim.claimant));
            let pool = self.pools.pool_of(*address);
            foreign.is_some() && !pool.is_some_and(Pool::shares_across_namespaces)
        };
        claim.addresses.iter().filter(exception).collect()
    }

    /// Writes down what the Service holds from now on: exactly these addresses.
    fn hold(&mut self, claimant: &Arc<Claimant>, addresses: Addresses, noted: Option<PoolName>) {
        let lies_in = addresses
            .iter()
            .find_map(|address| self.pools.pool_of(address))
            .map(Pool::name);
        let lies_in = lies_in.cloned();
        if let Some(claim) = self.claims.get_mut(&claimant.uid)
            && claim.addresses == addresses
            && claim.claimant == *claimant
        {
            claim.pool = lies_in.or_else(|| claim.pool.take());
            return;
        }
        let claim = self.claims.remove(&claimant.uid);
        let held = claim.as_ref().map_or(Addresses::NONE, |it| it.addresses);
        if held != addresses {
            self.recorded.entry(claimant.uid.clone()).or_insert(held);
        }
        if let Some(claim) = &claim {
            self.reserve(claim, addresses);
        }
        let before = claim.and_then(|claim| claim.pool);
        if addresses.is_empty() {
            return;
        }
        for address in addresses.iter() {
            self.take_back(address, &claimant.uid);
            self.enter(address, claimant);
        }
        // The note says where they came from, even if they lie in another pool by now.
        let pool = noted.or(lies_in).or(before);
        let claim = Claim {
            claimant: Arc::clone(claimant),
            addresses,
            pool,
        };
        self.claims.insert(claimant.uid.clone(), claim);
    }

    /// Keeps the addresses of an ended claim reserved, except those that are held again.
    fn reserve(&mut self, claim: &Claim, again: Addresses) {
        for address in claim.addresses.iter() {
            if again.contains(address) {
                self.leave(address, &claim.claimant);
                continue;
            }
            self.leaving
                .entry(claim.claimant.uid.clone())
                .or_default()
                .insert(address, Arc::clone(&claim.claimant));
        }
    }

    /// Makes room for a Service on an address that it gave up itself.
    fn take_back(&mut self, address: IpAddr, uid: &Uid) {
        if self.cooling.get(&address).is_some_and(|it| it.uid == *uid) {
            self.warm(address);
        }
        let Some(leaving) = self.leaving.get_mut(uid) else {
            return;
        };
        let claimant = leaving.remove(&address);
        if leaving.is_empty() {
            self.leaving.remove(uid);
        }
        if let Some(claimant) = claimant {
            self.leave(address, &claimant);
        }
    }

    fn enter(&mut self, address: IpAddr, claimant: &Arc<Claimant>) {
        let occupancy = self.occupied.get(&address);
        let in_namespace = !occupancy.is_some_and(|it| it.has_of(claimant.service.namespace()));
        let of_all = match self.occupied.entry(address) {
            Entry::Occupied(mut occupancy) => {
                occupancy.get_mut().join(Arc::clone(claimant));
                false
            }
            Entry::Vacant(vacancy) => {
                vacancy.insert(Occupancy::Sole(Arc::clone(claimant)));
                true
            }
        };
        if let Some((pool, entry)) = self.pools.locate(address)
            && let Some(state) = self.states.get_mut(pool)
        {
            let alone = Alone {
                of_all,
                in_namespace,
            };
            state.enter(entry, address, alone, claimant);
        }
    }

    fn leave(&mut self, address: IpAddr, claimant: &Claimant) {
        let Some(occupancy) = self.occupied.get_mut(&address) else {
            return;
        };
        let in_namespace = !occupancy.has_beside(claimant);
        let of_all = occupancy.leave(&claimant.uid);
        if of_all {
            self.occupied.remove(&address);
        }
        if let Some((pool, entry)) = self.pools.locate(address)
            && let Some(state) = self.states.get_mut(pool)
        {
            let alone = Alone {
                of_all,
                in_namespace,
            };
            state.leave(entry, address, alone, claimant);
        }
    }
}

#[cfg(test)]
mod tests;
