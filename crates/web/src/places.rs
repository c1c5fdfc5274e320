//! The clients that may be connected: so many at once, and beyond them a few for probes only.
//!
//! Pure but for a lock. When the places are taken, the connection on which nothing has been under
//! way for the longest time gives up its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Far more than people, probes and scrapers need, far less than the data plane's sockets.
pub(crate) const MOST: usize = 256;

/// Places beyond these, for probes: what restarts a process that does not answer must be answered
/// also by one whose other places are taken.
pub(crate) const RESERVED: usize = 32;

/// All places.
#[derive(Debug, Default)]
pub(crate) struct Places {
    rows: Mutex<Rows>,
    /// Notified when a place is given back.
    left: Notify,
}

#[derive(Debug, Default)]
struct Rows {
    /// Rises with everything that happens: a clock that needs no reading.
    ticks: u64,
    taken: BTreeMap<u64, Row>,
}

#[derive(Debug)]
struct Row {
    /// Since when nothing is under way; `None`: something is.
    idle: Option<u64>,
    ended: CancellationToken,
}

/// The place of one connection. It is given back when dropped.
#[derive(Debug)]
pub(crate) struct PlaceHold {
    places: Arc<Places>,
    number: u64,
    /// Fires when the place is needed for another.
    pub(crate) ended: CancellationToken,
    /// Whether only probes are answered here.
    pub(crate) reserved: bool,
}

/// An exchange under way. It is over when this is dropped.
#[derive(Debug)]
pub(crate) struct Busy {
    seat: Arc<PlaceHold>,
}

// === impl Places ===

impl Places {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection; `None`: all are taken, the reserved ones, too, and something
    /// is under way on each.
    pub(crate) fn take(self: &Arc<Self>) -> Option<PlaceHold> {
        let mut rows = self.rows();
        if rows.taken.len() >= MOST {
            rows.end_idlest();
        }
        let taken = rows.taken.len();
        if taken >= MOST + RESERVED {
            return None;
        }
        let number = rows.tick();
        let ended = CancellationToken::new();
        let row = Row {
            idle: Some(number),
            ended: ended.clone(),
        };
        rows.taken.insert(number, row);
        Some(PlaceHold {
            places: Arc::clone(self),
            number,
            ended,
            reserved: taken >= MOST,
        })
    }

    /// Waits until a place was given back.
    pub(crate) async fn wait(&self) {
        self.left.notified().await;
    }
}

impl Rows {
    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    fn end_idlest(&mut self) {
        let idle = self.taken.iter().filter_map(|(number, row)| {
            let since = row.idle?;
            Some((since, *number))
        });
        if let Some((_, number)) = idle.min()
            && let Some(row) = self.taken.remove(&number)
        {
            row.ended.cancel();
        }
    }
}

// === impl PlaceHold ===

impl PlaceHold {
    /// Notes that an exchange is under way.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        if let Some(row) = self.places.rows().taken.get_mut(&self.number) {
            row.idle = None;
        }
        Busy {
            seat: Arc::clone(self),
        }
    }
}

impl Drop for PlaceHold {
    fn drop(&mut self) {
        self.places.rows().taken.remove(&self.number);
        self.places.left.notify_one();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let PlaceHold { places, number, .. } = &*self.seat;
        let mut rows = places.rows();
        let now = rows.tick();
        if let Some(row) = rows.taken.get_mut(number) {
            row.idle = Some(now);
        }
        drop(rows);
        // A client that waits can have it.
        places.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> (Arc<Places>, Vec<Arc<PlaceHold>>) {
        let places = Arc::new(Places::default());
        let taken = (0..MOST).map(|_| Arc::new(places.take().unwrap()));
        let taken = taken.collect();
        (places, taken)
    }

    #[test]
    fn the_connection_that_has_been_idle_longest_makes_room() {
        let (places, taken) = full();
        // The first asks again, so that the second has been idle longest.
        drop(taken[0].busy());
        let new = places.take().unwrap();
        assert!(!new.reserved);
        assert!(!taken[0].ended.is_cancelled());
        assert!(taken[1].ended.is_cancelled());
        assert_eq!(places.rows().taken.len(), MOST);
    }

    #[test]
    fn where_all_are_busy_there_are_places_for_probes() {
        let (places, taken) = full();
        let _busy: Vec<Busy> = taken.iter().map(PlaceHold::busy).collect();
        let probes: Vec<Arc<PlaceHold>> = (0..RESERVED)
            .map(|_| {
                let seat = Arc::new(places.take().unwrap());
                assert!(seat.reserved);
                // Else it makes room for the next.
                std::mem::forget(seat.busy());
                seat
            })
            .collect();
        assert!(places.take().is_none());
        assert!(taken.iter().all(|seat| !seat.ended.is_cancelled()));
        assert!(probes.iter().all(|seat| !seat.ended.is_cancelled()));
    }

    #[test]
    fn a_place_is_given_back_once() {
        let (places, mut taken) = full();
        let new = places.take().unwrap();
        // The one that made room leaves later, and takes no other's place along.
        taken.remove(0);
        assert_eq!(places.rows().taken.len(), MOST);
        drop(new);
        assert_eq!(places.rows().taken.len(), MOST - 1);
    }
}
