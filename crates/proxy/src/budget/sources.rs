//! What each source of traffic holds, in a table of fixed size.

use std::sync::atomic::{AtomicU32, Ordering};

/// Counters per row of a [`Sources`]; a power of two, of 14 bits.
const CELLS: usize = 1 << 14;

/// What source addresses hold, at most: two rows of counters in which each address has a place by
/// its hash. Bounded whatever number of addresses there is; keyed, so that no client knows which
/// other shares a place with.
#[derive(Debug)]
pub(super) struct Sources {
    rows: [Box<[AtomicU32]>; 2],
}

/// A source address, as the counts know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(pub(super) u32);

impl Sources {
    pub(super) fn new() -> Self {
        let row = || (0..CELLS).map(|_| AtomicU32::new(0)).collect();
        Self {
            rows: [row(), row()],
        }
    }

    pub(super) fn of(&self, source: Source) -> u32 {
        let counts = self.cells(source).map(|cell| cell.load(Ordering::Relaxed));
        counts.min().unwrap_or(0)
    }

    pub(super) fn add(&self, source: Source, amount: u32) {
        for cell in self.cells(source) {
            cell.fetch_add(amount, Ordering::Relaxed);
        }
    }

    pub(super) fn take(&self, source: Source, amount: u32) {
        for cell in self.cells(source) {
            cell.fetch_sub(amount, Ordering::Relaxed);
        }
    }

    fn cells(&self, source: Source) -> impl Iterator<Item = &AtomicU32> {
        let places = [source.0 as usize % CELLS, (source.0 >> 16) as usize % CELLS];
        let rows = self.rows.iter().zip(places);
        rows.filter_map(|(row, place)| row.get(place))
    }
}
