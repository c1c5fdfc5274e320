//! Bytes on their way. Read buffers exist only while they hold bytes: an idle connection has none.
//! Their storage is kept per thread and handed from connection to connection.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use landfall_sys::clock::coarse_millis;
use tokio::io::{AsyncRead, ReadBuf};

use crate::budget::units::UNIT;
use crate::memory::{MemoryHold, MemoryOwner};

/// Size of a buffer: fits nearly every head, and a TLS record.
const SMALL: usize = UNIT;

/// Size of a buffer whose bytes can't be used before more are there, as of a long head: which is no
/// longer than this.
const MEDIUM: usize = super::MAX_HEAD;

/// Size of a buffer whose source keeps filling it: halves the system calls of large bodies twice
/// over, and still fits the second-level cache of a core together with that of the other direction.
const LARGE: usize = 64 * 1024;

/// How much storage of each size is kept for later per thread: 7 MiB at most. What is more goes
/// back to the allocator.
const KEPT: [usize; 3] = [256, 32, 32];

/// Bytes given back to the allocator after which it should give them back to the kernel.
const MUCH: usize = 8 * 1024 * 1024;

/// Bytes that went back to the allocator since it gave any back.
static FREED: AtomicUsize = AtomicUsize::new(0);

/// Milliseconds between two times that memory is given back.
const PAUSE: u64 = 10_000;

/// When it was given back last, by the coarse clock.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Bytes that were read and not yet used.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    storage: Vec<u8>,
    start: usize,
    end: usize,
    /// The last read left no room: there is more where that came from.
    eager: bool,
    /// One that pays for what rests here, and for a larger storage; without, it costs nothing.
    payer: Option<Arc<MemoryOwner>>,
    paid: Option<Box<MemoryHold>>,
}

/// Bytes made here, on their way out.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

thread_local! {
    static SPARE: RefCell<[Vec<Vec<u8>>; 3]> =
        const { RefCell::new([Vec::new(), Vec::new(), Vec::new()]) };
}

// === impl Buffer ===

impl Buffer {
    /// A buffer that holds these bytes.
    pub(super) fn holding(bytes: &[u8]) -> Self {
        let mut buffer = Self::default();
        if !bytes.is_empty() {
            buffer.storage = take(SMALL);
            if buffer.storage.len() < bytes.len() {
                buffer.storage.resize(bytes.len(), 0);
            }
            buffer.storage[..bytes.len()].copy_from_slice(bytes);
            buffer.end = bytes.len();
        }
        buffer
    }

    /// The same, paid for by a client.
    pub(super) fn paid_by(mut self, payer: Arc<MemoryOwner>) -> Self {
        self.payer = Some(payer);
        self
    }

    /// An empty buffer that the same client pays for.
    pub(super) fn beside(other: &Self) -> Self {
        let mut buffer = Self::default();
        buffer.payer.clone_from(&other.payer);
        buffer
    }

    /// The client that pays.
    pub(super) fn payer(&self) -> Option<&Arc<MemoryOwner>> {
        self.payer.as_ref()
    }

    /// Takes no large storage for the next bytes, however many there are.
    pub(super) fn stay_small(&mut self) {
        self.eager = false;
    }

    /// Counts what is there, because it stays for now. Fails if there is no memory for it.
    pub(super) fn rest(&mut self) -> io::Result<()> {
        if self.is_empty() || self.pay(self.storage.len()) {
            Ok(())
        } else {
            Err(io::ErrorKind::OutOfMemory.into())
        }
    }

    /// What is there.
    pub(super) fn bytes(&self) -> &[u8] {
        self.storage.get(self.start..self.end).unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Forgets the first `count` bytes.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.end);
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Moves `length` bytes from one place to an earlier one, both counted from the first byte.
    pub(super) fn move_down(&mut self, from: usize, to: usize, length: usize) {
        let (from, to) = (self.start + from, self.start + to);
        if from != to && from + length <= self.end && to < from {
            self.storage.copy_within(from..from + length, to);
        }
    }

    /// Reads once. `Ok(0)` is the end of the source; or a buffer that is as large as they get and
    /// full, which callers keep from happening by not waiting for more than [`MEDIUM`] bytes.
    /// Fails for want of memory where the client would have more than its share of it.
    pub(super) fn poll_fill<R: AsyncRead + Unpin>(
        &mut self,
        source: &mut R,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.make_room()?;
        let mut buffer = ReadBuf::new(self.storage.get_mut(self.end..).unwrap_or_default());
        let polled = Pin::new(source).poll_read(context, &mut buffer);
        let (count, full) = (buffer.filled().len(), buffer.remaining() == 0);
        if count == 0 && self.is_empty() {
            self.release();
        } else if polled.is_pending() {
            self.rest()?;
        }
        ready!(polled)?;
        self.end += count;
        self.eager = full;
        Poll::Ready(Ok(count))
    }

    /// Gives the storage back while nothing is in it.
    pub(super) fn release(&mut self) {
        if self.is_empty() {
            give(std::mem::take(&mut self.storage));
            self.paid = None;
            (self.start, self.end) = (0, 0);
        }
    }

    fn make_room(&mut self) -> io::Result<()> {
        let held = self.end - self.start;
        let grows = self.eager && held == 0 && self.pay(LARGE);
        let wanted = if grows { LARGE } else { SMALL };
        if held == 0 && self.storage.len() < wanted {
            give(std::mem::replace(&mut self.storage, take(wanted)));
        } else if self.end < self.storage.len() {
            return Ok(());
        } else if self.start > 0 || self.storage.len() >= MEDIUM {
            self.storage.copy_within(self.start..self.end, 0);
        } else if !self.pay(MEDIUM) {
            return Err(io::ErrorKind::OutOfMemory.into());
        } else {
            let mut larger = take(MEDIUM);
            larger[..held].copy_from_slice(self.bytes());
            give(std::mem::replace(&mut self.storage, larger));
        }
        (self.start, self.end) = (0, held);
        Ok(())
    }

    /// Pays for a storage of this size. Returns whether it is paid for.
    fn pay(&mut self, size: usize) -> bool {
        let Some(payer) = &self.payer else {
            return true;
        };
        let units = u8::try_from(size.div_ceil(UNIT)).unwrap_or(u8::MAX);
        if self.paid.as_ref().is_some_and(|paid| paid.units() >= units) {
            return true;
        }
        match payer.take(units) {
            Some(paid) => {
                self.paid = Some(Box::new(paid));
                true
            }
            None => false,
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        give(std::mem::take(&mut self.storage));
    }
}

// === impl Outgoing ===

impl Outgoing {
    /// What is still to be sent.
    pub(super) fn rest(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// Adds bytes at the end.
    pub(super) fn push(&mut self, more: &[u8]) {
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
        self.bytes.extend_from_slice(more);
    }

    /// Counts bytes as sent.
    pub(super) fn advance(&mut self, count: usize) {
        self.sent = (self.sent + count).min(self.bytes.len());
    }

    /// What is still to be sent, if the first part of it was sent already: then it can't be
    /// dropped.
    pub(super) fn take_begun(&mut self) -> Vec<u8> {
        let outgoing = std::mem::take(self);
        match outgoing.sent {
            0 => Vec::new(),
            _ => outgoing.rest().to_vec(),
        }
    }

    /// All bytes, sent or not, unless some were pushed after all before were sent.
    pub(super) fn into_storage(self) -> Vec<u8> {
        self.bytes
    }
}

impl From<Vec<u8>> for Outgoing {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, sent: 0 }
    }
}

/// Where storage of this size is kept.
fn place_of(size: usize) -> Option<usize> {
    match size {
        SMALL => Some(0),
        MEDIUM => Some(1),
        LARGE => Some(2),
        _ => None,
    }
}

fn take(size: usize) -> Vec<u8> {
    SPARE
        .with_borrow_mut(|spare| spare.get_mut(place_of(size)?)?.pop())
        .unwrap_or_else(|| vec![0; size])
}

fn give(storage: Vec<u8>) {
    if storage.is_empty() {
        return;
    }
    // At the end of a thread its list may be gone already: then it is freed.
    let _ = SPARE.try_with(|spare| {
        let Ok(mut spare) = spare.try_borrow_mut() else {
            return;
        };
        if let Some(place) = place_of(storage.len())
            && let (Some(kept), Some(&most)) = (spare.get_mut(place), KEPT.get(place))
            && kept.len() < most
        {
            kept.push(storage);
            return;
        }
        FREED.fetch_add(storage.len(), Ordering::Relaxed);
    });
}

/// Whether so much went back to the allocator that it should give back what it keeps: it keeps all
/// of it, where anything that is in use lies behind.
pub(super) fn much_is_free() -> bool {
    FREED.load(Ordering::Relaxed) >= MUCH
}

/// Gives free memory back to the kernel. Takes too long for a thread that serves clients, and holds
/// up others that allocate: once for all threads that saw that much is free, and not again for a
/// while.
pub(super) fn give_back() {
    let now = coarse_millis();
    let last = LAST.load(Ordering::Relaxed);
    if !much_is_free()
        || now.saturating_sub(last) < PAUSE
        || LAST
            .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
    {
        return;
    }
    FREED.store(0, Ordering::Relaxed);
    landfall_sys::memory::give_back();
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;

    use super::*;

    async fn fill(buffer: &mut Buffer, source: &mut (impl AsyncRead + Unpin)) -> usize {
        poll_fn(|context| buffer.poll_fill(source, context))
            .await
            .unwrap()
    }

    fn poll(buffer: &mut Buffer, source: &mut (impl AsyncRead + Unpin)) -> Poll<io::Result<usize>> {
        buffer.poll_fill(source, &mut Context::from_waker(std::task::Waker::noop()))
    }

    #[tokio::test]
    async fn bytes_are_read_used_and_moved() {
        let mut source = &b"hello world"[..];
        let mut buffer = Buffer::default();
        assert_eq!(fill(&mut buffer, &mut source).await, 11);
        buffer.move_down(6, 2, 5);
        assert_eq!(buffer.bytes(), b"heworldorld");
        buffer.consume(7);
        assert_eq!(buffer.bytes(), b"orld");
        buffer.consume(usize::MAX);
        assert!(buffer.is_empty());
        assert_eq!(fill(&mut buffer, &mut source).await, 0, "the end");
    }

    #[tokio::test]
    async fn an_idle_buffer_holds_no_memory() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let mut buffer = Buffer::default();
        assert!(poll(&mut buffer, &mut near).is_pending());
        assert_eq!(buffer.storage.capacity(), 0);
        far.write_all(b"x").await.unwrap();
        assert!(matches!(poll(&mut buffer, &mut near), Poll::Ready(Ok(1))));
        assert_eq!(buffer.bytes(), b"x");
        assert!(poll(&mut buffer, &mut near).is_pending());
        assert_eq!(buffer.bytes(), b"x");
        buffer.consume(1);
        assert!(poll(&mut buffer, &mut near).is_pending());
        assert_eq!(buffer.storage.capacity(), 0);
    }

    #[tokio::test]
    async fn a_buffer_grows_as_long_as_its_bytes_are_not_used_and_then_no_further() {
        let data: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
        let mut source = &data[..];
        let mut buffer = Buffer::default();
        assert_eq!(fill(&mut buffer, &mut source).await, SMALL);
        buffer.consume(10);
        while buffer.bytes().len() < MEDIUM {
            fill(&mut buffer, &mut source).await;
        }
        assert_eq!(fill(&mut buffer, &mut source).await, 0);
        assert_eq!(buffer.bytes(), &data[10..MEDIUM + 10]);
        assert_eq!(buffer.storage.len(), MEDIUM);
    }

    #[tokio::test]
    async fn a_source_that_fills_the_buffer_gets_a_larger_one() {
        let data = vec![7; 1 << 20];
        let mut source = &data[..];
        let mut buffer = Buffer::default();
        assert_eq!(fill(&mut buffer, &mut source).await, SMALL);
        buffer.consume(SMALL);
        assert_eq!(fill(&mut buffer, &mut source).await, LARGE);
    }

    #[test]
    fn bytes_that_came_early_are_held() {
        assert_eq!(Buffer::holding(b"PRI").bytes(), b"PRI");
        assert!(Buffer::holding(b"").is_empty());
        let long = vec![1; SMALL + 5];
        assert_eq!(Buffer::holding(&long).bytes(), long);
    }
}
