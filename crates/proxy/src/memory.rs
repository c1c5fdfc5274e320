//! Memory for buffers of connections: what clients and members make a connection hold, beyond what
//! each has anyway, is counted for its Service, namespace and source as descriptors are. Decides
//! nothing: see [`crate::admission`].

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::budget::units::UNIT;
use crate::budget::{Account, Held, Source};
use crate::inbound::Inbound;

/// What an HTTP/2 connection takes in any case, in units: the library's buffers and tables.
const BASE: u8 = 2;

/// Units that the streams of such a connection may hold without being counted: one request at a
/// time costs no more than over HTTP/1.
const FREE: u32 = 2;

/// Units that are taken and given back at once. What changes within is a matter of the connection.
const STEP: u8 = 8;

/// Bytes that are read at once, at most.
const READ: usize = UNIT;

/// A client at a Service, which pays.
#[derive(Debug)]
pub(crate) struct MemoryOwner {
    account: Arc<Account>,
    /// The address that it counts for.
    source: Option<IpAddr>,
}

/// A hold on memory.
#[derive(Debug)]
pub(crate) struct MemoryHold {
    payer: Arc<MemoryOwner>,
    source: Option<Source>,
    held: Held,
}

/// What one HTTP/2 connection of a client holds.
#[derive(Debug)]
pub(crate) struct ConnectionMemory {
    books: Mutex<Books>,
    payer: Arc<MemoryOwner>,
    _base: Option<MemoryHold>,
}

#[derive(Debug, Default)]
struct Books {
    used: u32,
    paid: Vec<MemoryHold>,
    uploads: Uploads,
}

/// What a connection holds of bodies of requests.
#[derive(Debug, Default)]
struct Uploads {
    /// Bodies of which there is more than their members took.
    waiting: u32,
    /// Bytes that came since there are any, and the units that are held for them.
    ahead: usize,
    units: u32,
    reader: Option<Waker>,
}

// === impl MemoryOwner ===

impl MemoryOwner {
    /// The client of a connection, at the Service with this account.
    pub(crate) fn new(account: Arc<Account>, inbound: &Inbound) -> Arc<Self> {
        // As at the accept: trusted peers bring the clients of many.
        let direct = inbound.client == inbound.peer;
        let source = direct.then(|| inbound.client.ip());
        Arc::new(Self { account, source })
    }

    /// Takes so many units, unless that is more than its share.
    pub(crate) fn take(self: &Arc<Self>, units: u8) -> Option<MemoryHold> {
        // Most connections never take any.
        let source = self
            .source
            .map(|source| self.account.budget().source(source));
        let held = self.account.take_memory(units, source).ok()?;
        Some(MemoryHold {
            payer: self.clone(),
            source,
            held,
        })
    }
}

// === impl MemoryHold ===

impl MemoryHold {
    /// How many units it is.
    pub(crate) fn units(&self) -> u8 {
        self.held.cost()
    }
}

impl Drop for MemoryHold {
    fn drop(&mut self) {
        let payer = &*self.payer;
        payer.account.give_back_memory(self.source, self.held);
    }
}

// === impl ConnectionMemory ===

impl ConnectionMemory {
    /// The ledger of a new connection; `None`: there may be no more of them.
    pub(crate) fn open(payer: Arc<MemoryOwner>) -> Option<Self> {
        Some(Self {
            books: Mutex::default(),
            _base: Some(payer.take(BASE)?),
            payer,
        })
    }

    /// One for what a connection holds that is no HTTP/2 connection itself.
    pub(crate) fn of(payer: Arc<MemoryOwner>) -> Self {
        Self {
            books: Mutex::default(),
            _base: None,
            payer,
        }
    }

    /// One that pays for the connection, where a buffer is counted by itself.
    pub(crate) fn payer(&self) -> &Arc<MemoryOwner> {
        &self.payer
    }

    /// Takes so many units. Returns whether they were to be had.
    pub(crate) fn take(&self, units: u32) -> bool {
        self.books().take(units, &self.payer)
    }

    /// Gives units back.
    pub(crate) fn give_back(&self, units: u32) {
        self.books().give_back(units);
    }

    /// There is more of a body than its member took, from now on.
    pub(crate) fn upload_waits(&self) {
        self.books().uploads.waiting += 1;
    }

    /// A body of which there was more than its member took has come to rest.
    pub(crate) fn upload_rests(&self) {
        let mut books = self.books();
        let uploads = &mut books.uploads;
        uploads.waiting = uploads.waiting.saturating_sub(1);
        if uploads.waiting > 0 {
            return;
        }
        uploads.ahead = 0;
        let units = std::mem::take(&mut uploads.units);
        if let Some(reader) = uploads.reader.take() {
            reader.wake();
        }
        books.give_back(units);
    }

    /// Ready when the client may be read: not while bodies wait that there is no memory for.
    pub(crate) fn poll_read(&self, most: usize, context: &Context<'_>) -> Poll<()> {
        let mut books = self.books();
        if books.uploads.waiting == 0 {
            return Poll::Ready(());
        }
        let wanted = (books.uploads.ahead + READ).min(most).div_ceil(UNIT);
        let more = (wanted as u32).saturating_sub(books.uploads.units);
        if books.take(more, &self.payer) {
            books.uploads.units += more;
            return Poll::Ready(());
        }
        books.uploads.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// So much was read of the client.
    pub(crate) fn read(&self, count: usize) {
        let uploads = &mut self.books().uploads;
        if uploads.waiting > 0 {
            uploads.ahead = uploads.ahead.saturating_add(count);
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Each operation leaves them valid at every step.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Books ===

impl Books {
    fn take(&mut self, units: u32, payer: &Arc<MemoryOwner>) -> bool {
        let due = (self.used + units).saturating_sub(FREE);
        while self.paid() < due {
            let Some(paid) = payer.take(STEP) else {
                self.settle();
                return false;
            };
            self.paid.push(paid);
        }
        self.used += units;
        true
    }

    fn give_back(&mut self, units: u32) {
        self.used = self.used.saturating_sub(units);
        self.settle();
    }

    /// Gives back what is not needed; a step is kept, so that not each stream takes one again.
    fn settle(&mut self) {
        let due = self.used.saturating_sub(FREE);
        let kept = if due == 0 { 0 } else { due + u32::from(STEP) };
        while self.paid() >= kept + u32::from(STEP) {
            self.paid.pop();
        }
    }

    fn paid(&self) -> u32 {
        self.paid.len() as u32 * u32::from(STEP)
    }
}

#[cfg(test)]
mod tests {
    use landfall_model::Uid;

    use super::*;
    use crate::budget::Budget;
    use crate::budget::units::bytes;

    const MIB: u64 = 1 << 20;

    fn payer(budget: &Arc<Budget>, service: &str, client: &str) -> Arc<MemoryOwner> {
        let client = format!("{client}:1").parse().unwrap();
        let account = budget.account(&Uid::new(service), service);
        MemoryOwner::new(account, &Inbound::direct(client, client))
    }

    fn all_of(payer: &Arc<MemoryOwner>) -> Vec<MemoryHold> {
        std::iter::from_fn(|| payer.take(4)).collect()
    }

    #[test]
    fn one_that_holds_all_the_memory_it_can_leaves_some_to_others() {
        let budget = Budget::with_memory(4096, 16, 64 * MIB);
        let other = payer(&budget, "b", "10.0.0.2");
        let clients = (0..8).map(|number| payer(&budget, "rude", &format!("10.1.0.{number}")));
        let taken: Vec<_> = clients.flat_map(|client| all_of(&client)).collect();
        let held = budget.pressure().memory;
        assert!(held > 32 * MIB && held < 64 * MIB, "{held}");
        assert!(budget.pressure().shortages > 0 && budget.pressure().scarce);
        assert!((0..8).all(|_| other.take(4).is_some()));
        drop(taken);
        assert_eq!(budget.pressure().memory, 0);
        assert!(!budget.pressure().scarce);
    }

    #[test]
    fn one_client_leaves_memory_to_others_of_its_service() {
        let budget = Budget::with_memory(4096, 16, 64 * MIB);
        let (rude, other) = (
            payer(&budget, "a", "10.0.0.1"),
            payer(&budget, "a", "10.0.0.2"),
        );
        let _taken = all_of(&rude);
        assert!(!all_of(&other).is_empty());
    }

    #[test]
    fn what_one_request_holds_at_a_time_is_not_counted() {
        let budget = Budget::with_memory(4096, 16, 64 * MIB);
        let ledger = ConnectionMemory::open(payer(&budget, "a", "10.0.0.1")).unwrap();
        let base = budget.pressure().memory;
        assert_eq!(base, bytes(u32::from(BASE)));
        assert!(ledger.take(FREE));
        assert_eq!(budget.pressure().memory, base);
        assert!(ledger.take(1));
        assert_eq!(budget.pressure().memory, base + bytes(u32::from(STEP)));
        ledger.give_back(1);
        assert_eq!(budget.pressure().memory, base);
        drop(ledger);
        assert_eq!(budget.pressure().memory, 0);
    }

    #[test]
    fn a_connection_above_its_share_gets_no_more_and_gives_all_back() {
        let budget = Budget::with_memory(4096, 16, 16 * MIB);
        let ledger = ConnectionMemory::open(payer(&budget, "a", "10.0.0.1")).unwrap();
        let taken = (0..10_000).filter(|_| ledger.take(1)).count() as u32;
        assert!(taken > 100 && bytes(taken) < 16 * MIB, "{taken}");
        ledger.give_back(taken - FREE);
        assert_eq!(budget.pressure().memory, bytes(u32::from(BASE)));
    }

    #[test]
    fn a_client_is_read_no_further_while_bodies_wait_that_there_is_no_memory_for() {
        let budget = Budget::with_memory(4096, 16, 4 * MIB);
        let payer = payer(&budget, "a", "10.0.0.1");
        let ledger = ConnectionMemory::open(payer.clone()).unwrap();
        let context = Context::from_waker(Waker::noop());
        let may_read = || ledger.poll_read(usize::MAX, &context).is_ready();
        let _others = all_of(&payer);
        for _ in 0..1000 {
            assert!(may_read());
            ledger.read(READ);
        }
        ledger.upload_waits();
        let mut read = 0;
        while may_read() {
            ledger.read(READ);
            read += READ;
        }
        assert_eq!(read, FREE as usize * UNIT);
        ledger.upload_rests();
        assert!(may_read());
    }
}
