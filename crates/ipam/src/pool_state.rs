//! What is taken in one pool, and what it would give next.
//!
//! Everything here costs a walk down a few levels: no scan over addresses, entries or holders.

use std::collections::HashMap;
use std::net::IpAddr;

use landfall_model::rows::Family;

use crate::bitmap::Bitmap;
use crate::counters::Counters;
use crate::entry::{Range, from_bits, to_bits};
use crate::pool::Pool;
use crate::port_index::PortIndex;
use crate::sharing::{Group, Terms};
use crate::slots::Slots;

/// The state of one pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolState {
    avoid_buggy: bool,
    /// For each entry of the pool its number among the entries of its family.
    places: Vec<usize>,
    v4: FamilyState,
    v6: FamilyState,
}

/// The state of the entries of one family.
#[derive(Clone, Debug)]
struct FamilyState {
    blocks: Vec<Block>,
    /// Which blocks have nothing left.
    full: Bitmap,
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
}

/// The addresses of one entry.
#[derive(Clone, Debug)]
struct Block {
    range: Range,
    slots: Slots,
}

// === impl PoolState ===

impl PoolState {
    pub(crate) fn new(pool: &Pool) -> Self {
        let avoid_buggy = pool.avoid_buggy_ips();
        let mut blocks = (Vec::new(), Vec::new());
        let mut places = Vec::with_capacity(pool.entries().len());
        for entry in pool.entries() {
            let range = entry.range();
            let block = Block {
                range,
                slots: Slots::new(range.last_place(avoid_buggy)),
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
            places,
            v4: FamilyState::new(blocks.0, avoid_buggy),
            v6: FamilyState::new(blocks.1, avoid_buggy),
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

    /// A holder comes to an address of the entry; `first`: there was none.
    pub(crate) fn enter(&mut self, entry: usize, address: IpAddr, first: bool, terms: &Terms) {
        let Some(&block) = self.places.get(entry) else {
            return;
        };
        let avoid_buggy = self.avoid_buggy;
        let state = self.family_mut(Family::of(address));
        state.assigned += u64::from(first);
        let Some(Block { range, slots }) = state.blocks.get_mut(block) else {
            return;
        };
        // An avoided address may be held from before, but is never offered to anybody else.
        let Some(place) = range.place_of(address, avoid_buggy) else {
            return;
        };
        if first && slots.take(place) {
            state.taken += 1;
            if slots.is_full() {
                state.full.set(block);
            }
        }
        if let Some(group) = terms.group() {
            state
                .groups
                .entry(group)
                .or_default()
                .add(to_bits(address), &terms.ports);
        }
    }

    /// A holder leaves an address of the entry; `last`: nobody else is left.
    pub(crate) fn leave(&mut self, entry: usize, address: IpAddr, last: bool, terms: &Terms) {
        let Some(&block) = self.places.get(entry) else {
            return;
        };
        let avoid_buggy = self.avoid_buggy;
        let state = self.family_mut(Family::of(address));
        state.assigned -= u64::from(last);
        let Some(Block { range, slots }) = state.blocks.get_mut(block) else {
            return;
        };
        let Some(place) = range.place_of(address, avoid_buggy) else {
            return;
        };
        if last && slots.free(place) {
            state.taken -= 1;
            state.full.clear(block);
        }
        if let Some(group) = terms.group()
            && let Some(index) = state.groups.get_mut(&group)
        {
            if last {
                index.remove(to_bits(address));
            } else {
                index.subtract(to_bits(address), &terms.ports);
            }
            if index.is_empty() {
                state.groups.remove(&group);
            }
        }
    }

    /// The address the pool would give: the lowest that can be shared, else the first free one.
    pub(crate) fn offer(&self, family: Family, terms: &Terms) -> Option<IpAddr> {
        let state = self.family(family);
        let shared = terms
            .group()
            .and_then(|group| state.groups.get(&group))
            .and_then(|index| index.lowest_open(&terms.ports))
            .map(|bits| from_bits(family, bits));
        shared.or_else(|| {
            let Block { range, slots } = state.blocks.get(state.full.lowest_clear()?)?;
            range.address_at(slots.lowest_free()?, self.avoid_buggy)
        })
    }

    /// Whether the pool has no address of this family to give even when nothing is held.
    pub(crate) fn lacks(&self, family: Family) -> bool {
        self.family(family).capacity == 0
    }

    pub(crate) fn counters(&self, pool: &Pool) -> Counters {
        Counters {
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
    fn new(blocks: Vec<Block>, avoid_buggy: bool) -> Self {
        let mut full = Bitmap::new(blocks.len());
        for (index, block) in blocks.iter().enumerate() {
            if block.slots.is_full() {
                full.set(index);
            }
        }
        let capacity = blocks
            .iter()
            .filter_map(|block| block.range.last_place(avoid_buggy))
            .fold(0u128, |sum, last| {
                sum.saturating_add(last).saturating_add(1)
            });
        Self {
            saturated: blocks.iter().any(|block| block.range.saturates_counters()),
            blocks,
            full,
            capacity,
            taken: 0,
            assigned: 0,
            groups: HashMap::new(),
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
