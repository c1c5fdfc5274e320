//! What is taken in one pool, and what it would give next.
//!
//! Everything here costs a walk down a few levels: no scan over addresses, entries or holders.

use std::collections::HashMap;
use std::net::IpAddr;

use landfall_model::ServiceKey;
use landfall_model::rows::Family;

use crate::bitmap::Bitmap;
use crate::counters::Counters;
use crate::entry::{Range, from_bits, to_bits};
use crate::pool::Pool;
use crate::port_index::PortIndex;
use crate::request::Claimant;
use crate::reservation::Reservation;
use crate::shares::Shares;
use crate::sharing::Group;
use crate::slots::Slots;

/// The state of one pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolState {
    avoid_buggy: bool,
    /// Whether Services of several namespaces may share.
    across: bool,
    /// For each entry of the pool its number among the entries of its family.
    places: Vec<usize>,
    v4: FamilyState,
    v6: FamilyState,
}

/// The state of the entries of one family.
#[derive(Clone, Debug)]
struct FamilyState {
    blocks: Vec<Block>,
    /// Which blocks have nothing left for any Service. Those that are reserved count as such.
    full: Bitmap,
    /// The blocks that are reserved.
    reserved: Vec<usize>,
    /// Addresses that can be given out, counted up to `u128::MAX`.
    capacity: u128,
    /// Of these, how many are held.
    taken: u128,
    /// Addresses that are held, among them those that the pool avoids.
    assigned: u64,
    /// Whether a range is so large that counters do not follow.
    saturated: bool,
    /// Addresses whose holders share, by group.
    groups: HashMap<Group, PortIndex>,
    /// What each namespace holds of those that are held.
    shares: Shares,
}

/// How a holder stands to the others of an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone {
    /// There is no other one.
    pub(crate) of_all: bool,
    /// There is no other one of its namespace.
    pub(crate) in_namespace: bool,
}

/// The addresses of one entry.
#[derive(Clone, Debug)]
struct Block {
    range: Range,
    slots: Slots,
    /// An address that is assigned only on request.
    aside: Option<u128>,
    /// The Services that get its addresses, if not all do.
    reserved_for: Option<Reservation>,
}

// === impl PoolState ===

impl PoolState {
    pub(crate) fn new(pool: &Pool) -> Self {
        let limit = pool.addresses_per_namespace();
        let avoid_buggy = pool.avoid_buggy_ips();
        let mut blocks = (Vec::new(), Vec::new());
        let mut places = Vec::with_capacity(pool.entries().len());
        for entry in pool.entries() {
            let range = entry.range();
            let mut slots = Slots::new(range.last_place(avoid_buggy));
            let aside = entry.begins_with_anycast().then_some(0);
            if let Some(place) = aside {
                slots.take(place);
            }
            let block = Block {
                range,
                slots,
                aside,
                reserved_for: entry.reserved_for().cloned(),
            };
            let blocks = match range.family() {
                Family::V4 => &mut blocks.0,
                Family::V6 => &mut blocks.1,
            };
            places.push(blocks.len());
            blocks.push(block);
        }
        Self {
            avoid_buggy,
            across: pool.shares_across_namespaces(),
            places,
            v4: FamilyState::new(blocks.0, avoid_buggy, limit),
            v6: FamilyState::new(blocks.1, avoid_buggy, limit),
        }
    }

    fn family(&self, family: Family) -> &FamilyState {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    fn family_mut(&mut self, family: Family) -> &mut FamilyState {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }

    /// A holder comes to an address of the entry.
    pub(crate) fn enter(&mut self, entry: usize, address: IpAddr, alone: Alone, holder: &Claimant) {
        let first = alone.of_all;
        let Some(&block) = self.places.get(entry) else {
            return;
        };
        let (avoid_buggy, across) = (self.avoid_buggy, self.across);
        let state = self.family_mut(Family::of(address));
        state.assigned += u64::from(first);
        if alone.in_namespace {
            state.shares.enter(holder.service.shared_namespace());
        }
        let Some(Block {
            range,
            slots,
            aside,
            ..
        }) = state.blocks.get_mut(block)
        else {
            return;
        };
        // An avoided address may be held from before, but is never offered to another Service.
        let Some(place) = range.place_of(address, avoid_buggy) else {
            return;
        };
        if first && *aside != Some(place) && slots.take(place) {
            state.taken += 1;
            if slots.is_full() {
                state.full.set(block);
            }
        }
        if let Some(group) = holder.group(across) {
            state
                .groups
                .entry(group)
                .or_default()
                .add(to_bits(address), &holder.terms.ports);
        }
    }

    /// A holder leaves an address of the entry.
    pub(crate) fn leave(&mut self, entry: usize, address: IpAddr, alone: Alone, holder: &Claimant) {
        let last = alone.of_all;
        let Some(&block) = self.places.get(entry) else {
            return;
        };
        let (avoid_buggy, across) = (self.avoid_buggy, self.across);
        let state = self.family_mut(Family::of(address));
        state.assigned -= u64::from(last);
        if alone.in_namespace {
            state.shares.leave(holder.service.namespace());
        }
        let Some(Block {
            range,
            slots,
            aside,
            reserved_for,
        }) = state.blocks.get_mut(block)
        else {
            return;
        };
        let Some(place) = range.place_of(address, avoid_buggy) else {
            return;
        };
        if last && *aside != Some(place) && slots.free(place) {
            state.taken -= 1;
            if reserved_for.is_none() {
                state.full.clear(block);
            }
        }
        if let Some(group) = holder.group(across)
            && let Some(index) = state.groups.get_mut(&group)
        {
            if last {
                index.remove(to_bits(address));
            } else {
                index.subtract(to_bits(address), &holder.terms.ports);
            }
            if index.is_empty() {
                state.groups.remove(&group);
            }
        }
    }

    /// The lowest address that can be shared. Where holders of several namespaces share one from
    /// before, that still is for the holders to validate.
    pub(crate) fn shared(&self, family: Family, claimant: &Claimant) -> Option<IpAddr> {
        let index = self
            .family(family)
            .groups
            .get(&claimant.group(self.across)?)?;
        let bits = index.lowest_open(&claimant.terms.ports)?;
        Some(from_bits(family, bits))
    }

    /// The first free address of those that are reserved for the Service, or else of all others.
    pub(crate) fn free(&self, family: Family, service: &ServiceKey) -> Option<IpAddr> {
        let state = self.family(family);
        let first_of = |block: usize| {
            let Block { range, slots, .. } = state.blocks.get(block)?;
            range.address_at(slots.lowest_free()?, self.avoid_buggy)
        };
        let is_own = |block: &usize| {
            let reserved_for = state.blocks.get(*block)?.reserved_for.as_ref()?;
            reserved_for.is_for(service).then(|| first_of(*block))?
        };
        let mut reserved = state.reserved.iter();
        let own = reserved.find_map(is_own);
        own.or_else(|| first_of(state.full.lowest_clear()?))
    }

    /// Whether the pool has no address of this family to give even when nothing is held.
    pub(crate) fn lacks(&self, family: Family) -> bool {
        self.family(family).capacity == 0
    }

    /// What each namespace holds of the addresses of this family.
    pub(crate) fn shares(&self, family: Family) -> &Shares {
        &self.family(family).shares
    }

    pub(crate) fn counters(&self, pool: &Pool) -> Counters {
        let limit = |state: &FamilyState| {
            let most = state.shares.most()?;
            Some(i64::try_from(most).unwrap_or(i64::MAX))
        };
        let largest =
            |state: &FamilyState| i64::try_from(state.shares.largest()).unwrap_or(i64::MAX);
        Counters {
            limit_ipv4: limit(&self.v4),
            limit_ipv6: limit(&self.v6),
            largest_ipv4: largest(&self.v4),
            largest_ipv6: largest(&self.v6),
            pool: pool.name().clone(),
            assigned_ipv4: self.v4.assigned_count(),
            assigned_ipv6: self.v6.assigned_count(),
            available_ipv4: self.v4.available_count(),
            available_ipv6: self.v6.available_count(),
        }
    }

    /// Heap bytes of the records of taken places.
    pub(crate) fn slot_bytes(&self) -> usize {
        [&self.v4, &self.v6]
            .into_iter()
            .map(|state| {
                state.full.bytes()
                    + state
                        .blocks
                        .iter()
                        .map(|block| block.slots.bytes())
                        .sum::<usize>()
            })
            .sum()
    }
}

// === impl FamilyState ===

impl FamilyState {
    fn new(blocks: Vec<Block>, avoid_buggy: bool, limit: Option<u32>) -> Self {
        let mut full = Bitmap::new(blocks.len());
        let mut reserved = Vec::new();
        for (index, block) in blocks.iter().enumerate() {
            if block.slots.is_full() || block.reserved_for.is_some() {
                full.set(index);
            }
            if block.reserved_for.is_some() {
                reserved.push(index);
            }
        }
        let capacity = blocks
            .iter()
            .filter_map(|block| {
                let last = block.range.last_place(avoid_buggy)?;
                Some(last.saturating_add(1) - u128::from(block.aside.is_some()))
            })
            .fold(0u128, u128::saturating_add);
        Self {
            saturated: blocks.iter().any(|block| block.range.saturates_counters()),
            blocks,
            full,
            reserved,
            capacity,
            taken: 0,
            assigned: 0,
            groups: HashMap::new(),
            shares: Shares::new(limit),
        }
    }

    fn assigned_count(&self) -> i64 {
        i64::try_from(self.assigned).unwrap_or(i64::MAX)
    }

    fn available_count(&self) -> i64 {
        if self.saturated {
            return i64::MAX;
        }
        i64::try_from(self.capacity.saturating_sub(self.taken)).unwrap_or(i64::MAX)
    }
}
