//! The line of connections that wait for a member, while each has as much as it may. Bounded; the
//! one that came first goes first, and later ones go behind, even if a place is free just then.
//! Shared by all workers. Never chooses a member.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The connections that wait.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// How many. Raised before they look for a free place and read after one is given back, so that
    /// one of both sees the other.
    length: AtomicUsize,
    places: Mutex<Places>,
}

/// A place in the line, until it is dropped.
#[derive(Debug)]
pub(super) struct Ticket<'a> {
    line: &'a Line,
    number: u64,
}

#[derive(Debug, Default)]
struct Places {
    next: u64,
    waiting: BTreeMap<u64, Option<Waker>>,
}

// === impl Line ===

impl Line {
    /// How many wait.
    pub(super) fn length(&self) -> usize {
        self.length.load(Ordering::SeqCst)
    }

    /// Takes the last place, unless `most` wait already.
    pub(super) fn join(&self, most: usize) -> Option<Ticket<'_>> {
        let mut places = self.places();
        if places.waiting.len() >= most {
            return None;
        }
        let number = places.next;
        places.next += 1;
        places.waiting.insert(number, None);
        self.length.store(places.waiting.len(), Ordering::SeqCst);
        Some(Ticket { line: self, number })
    }

    /// Lets the first one look again. To be called after something was given back or changed.
    pub(super) fn wake(&self) {
        if self.length() == 0 {
            return;
        }
        let waker = self
            .places()
            .waiting
            .first_entry()
            .and_then(|mut first| first.get_mut().take());
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        // Each operation leaves the places valid at every step.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Ticket ===

impl Ticket<'_> {
    /// Ready with what `look` finds, once this is the first in the line and it finds something.
    pub(super) fn poll<T>(
        &self,
        context: &mut Context<'_>,
        look: impl FnOnce() -> Option<T>,
    ) -> Poll<T> {
        let mut places = self.line.places();
        let is_first = places.waiting.keys().next() == Some(&self.number);
        // Under the lock: what is given back after this look wakes the waker below.
        if is_first && let Some(found) = look() {
            return Poll::Ready(found);
        }
        if let Some(waker) = places.waiting.get_mut(&self.number) {
            *waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut places = self.line.places();
        places.waiting.remove(&self.number);
        self.line
            .length
            .store(places.waiting.len(), Ordering::SeqCst);
        drop(places);
        // There may be something for the next one, too.
        self.line.wake();
    }
}
