//! How fast one side takes a message: a client a response, or a member a request. Bounds what may
//! wait to be sent, and pays for it.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};

use super::CHUNK;
use crate::budget::units::UNIT;
use crate::memory::ConnectionMemory;

/// Frames of one message that may wait to be sent. The library bounds bytes only, and each frame
/// takes some 250 of its own: so many take as much as the bytes may, of a byte each or not.
pub(super) const MAX_FRAMES: usize = 256;

/// Bytes of one message that may wait to be sent, if there is memory for as many.
const MOST: u64 = 64 * 1024;

/// Fewer may wait, and one chunk more, without that and before any were taken.
const FEW: u64 = CHUNK as u64 / 2;

/// When no more than this waits, more is asked for: less often, and the way would run dry.
const LOW: u64 = MOST / 2;

/// Units of memory for the most that may wait, beyond a chunk.
const QUEUE: u32 = (MOST / UNIT as u64) as u32 - 1;

/// Bytes that one response may be ahead of its client.
pub(super) const STREAM_WINDOW: u32 = 64 * 1024;

/// Units of memory for what a member over HTTP/2 sends of a response that waits. The bits of both
/// differ, so that a number shows which are held.
const AHEAD: u32 = STREAM_WINDOW / UNIT as u32;
const _: () = assert!(QUEUE & AHEAD == 0, "their bits differ");

tokio::task_local! {
    static BACKPRESSURE: Arc<Backpressure>;
}

/// What the other side has taken of one message: a client of a response, or a member of a request.
#[derive(Debug, Default)]
pub(super) struct Backpressure {
    taken: AtomicU64,
    unsent: AtomicU64,
    frames: AtomicUsize,
    waiting: Mutex<Option<Waker>>,
    /// What the client's connection holds; `None`: nothing may be held.
    ledger: Option<Arc<ConnectionMemory>>,
    /// Units that are held there.
    held: AtomicU32,
}

/// Bytes of a message that notify their [`Backpressure`] when they have gone.
#[derive(Debug)]
pub(super) struct TrackedBytes {
    bytes: Bytes,
    backpressure: Arc<Backpressure>,
}

// === impl Backpressure ===

impl Backpressure {
    /// The one of the stream whose task calls.
    pub(super) fn current() -> Arc<Self> {
        BACKPRESSURE.try_with(Arc::clone).unwrap_or_default()
    }

    /// Runs the task of a stream that this is the backpressure of.
    pub(super) fn scope<F: Future>(self: Arc<Self>, stream: F) -> impl Future<Output = F::Output> {
        BACKPRESSURE.scope(self, stream)
    }

    /// One whose message is part of what a client's connection holds.
    pub(super) fn of(ledger: Option<&Arc<ConnectionMemory>>) -> Arc<Self> {
        let mut backpressure = Self::default();
        backpressure.ledger = ledger.cloned();
        Arc::new(backpressure)
    }

    /// Bytes that notify when they have gone.
    pub(super) fn hand_over(self: &Arc<Self>, bytes: Bytes) -> TrackedBytes {
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.unsent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        TrackedBytes {
            bytes,
            backpressure: self.clone(),
        }
    }

    /// Ready when all that was handed over has gone.
    pub(super) fn poll_sent(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.waiting();
        if self.unsent.load(Ordering::Relaxed) == 0 {
            return Poll::Ready(());
        }
        *waiting = Some(context.waker().clone());
        Poll::Pending
    }

    /// Ready when one more frame may wait to be sent.
    pub(super) fn poll_capacity(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.has_room() {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting();
        // Once more, or the last of them may have gone unseen.
        if self.has_room() {
            return Poll::Ready(());
        }
        *waiting = Some(context.waker().clone());
        Poll::Pending
    }

    fn has_room(&self) -> bool {
        if self.frames.load(Ordering::Acquire) >= MAX_FRAMES {
            return false;
        }
        let unsent = self.unsent.load(Ordering::Relaxed);
        unsent < FEW || (unsent + CHUNK as u64 <= MOST && self.flows() && self.hold(QUEUE))
    }

    /// Whether some was taken already. What is not taken shall not pile up.
    pub(super) fn flows(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= CHUNK as u64
    }

    /// Counts what may come from a member over HTTP/2, while something waits. Returns whether there
    /// is memory for it.
    pub(super) fn hold_ahead(&self) -> bool {
        self.hold(AHEAD)
    }

    fn hold(&self, units: u32) -> bool {
        if self.held.load(Ordering::Relaxed) & units == units {
            return true;
        }
        let taken = self.ledger.as_ref().is_some_and(|it| it.take(units));
        if taken {
            self.held.fetch_or(units, Ordering::Relaxed);
        }
        taken
    }

    /// Nothing more is handed over: what nothing waits for is given back.
    pub(super) fn settle(&self) {
        if !self.is_waiting() {
            self.release();
        }
    }

    fn release(&self) {
        let held = self.held.swap(0, Ordering::Relaxed);
        if held > 0
            && let Some(ledger) = &self.ledger
        {
            ledger.give_back(held);
        }
    }

    fn frame_went(&self) {
        let before = self.frames.fetch_sub(1, Ordering::AcqRel);
        // Not for each: then they would go one by one.
        if before == MAX_FRAMES / 2
            && let Some(waker) = self.waiting().take()
        {
            waker.wake();
        }
    }

    /// Bytes that were handed over so far.
    pub(super) fn total(&self) -> u64 {
        self.taken.load(Ordering::Relaxed) + self.unsent.load(Ordering::Relaxed)
    }

    fn went(&self, count: u64) {
        self.taken.fetch_add(count, Ordering::Relaxed);
        let before = self.unsent.fetch_sub(count, Ordering::Relaxed);
        let after = before - count;
        if after == 0 {
            self.release();
        }
        let crosses = |mark: u64| before >= mark && after < mark;
        if (after == 0 || crosses(FEW) || crosses(LOW))
            && let Some(waker) = self.waiting().take()
        {
            waker.wake();
        }
    }

    /// Whether some that was handed over has not gone.
    pub(super) fn is_waiting(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) > 0
    }

    /// Bytes that have gone so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Backpressure {
    fn drop(&mut self) {
        self.release();
    }
}

// === impl TrackedBytes ===

impl Buf for TrackedBytes {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.backpressure.went(count as u64);
    }
}

impl Drop for TrackedBytes {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.backpressure.went(self.bytes.len() as u64);
        }
        self.backpressure.frame_went();
    }
}
