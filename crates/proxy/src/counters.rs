//! Counters of listeners and members. Hot ones are sharded per worker, so that workers do not fight
//! for cache lines; readers add the shards up. Never used to decide anything about traffic.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a connection (or the first datagram of a flow) was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// No member can serve, or every one that was tried could not be reached.
    NoMember,
    /// The listener's limit of open flows is reached (TCP waits in the accept queue instead).
    Limit,
    /// The client is outside the allowed source ranges.
    Source,
    /// A trusted peer sent no valid PROXY protocol header in time.
    ProxyHeader,
    /// The TLS handshake failed or took too long.
    Tls,
}

/// Classes of HTTP status codes.
pub const STATUS_CLASSES: usize = 5;

/// One counter block per worker, each on its own cache lines.
#[derive(Debug)]
pub struct Shards<T>(Box<[Padded<T>]>);

/// What a listener counts.
#[derive(Debug, Default)]
pub struct ListenerCounters {
    connections: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    connect_failures: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
    responses: [AtomicU64; STATUS_CLASSES],
}

/// What a member counts.
#[derive(Debug, Default)]
pub struct MemberCounters {
    connections: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    connect_failures: AtomicU64,
}

/// A reading of [`ListenerCounters`], all workers added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerTotals {
    /// Connections (UDP: flows) ever opened to a member; for HTTP: client connections accepted.
    pub connections: u64,
    /// Bytes received from clients.
    pub bytes_in: u64,
    /// Bytes sent to clients.
    pub bytes_out: u64,
    /// Tries to connect to a member that failed.
    pub connect_failures: u64,
    /// Connections (HTTP: requests) turned away, in the order of [`Refusal::ALL`].
    pub refused: [u64; Refusal::ALL.len()],
    /// HTTP responses by the first digit of their status, `1xx` first. Those that the proxy gave itself
    /// count as well.
    pub responses: [u64; STATUS_CLASSES],
}

/// A reading of [`MemberCounters`], all workers added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberTotals {
    /// Connections (UDP: flows; HTTP: requests) ever given to the member.
    pub connections: u64,
    /// Bytes sent to the member.
    pub bytes_in: u64,
    /// Bytes received from the member.
    pub bytes_out: u64,
    /// Tries to connect that failed.
    pub connect_failures: u64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

thread_local! {
    static WORKER: Cell<usize> = const { Cell::new(0) };
}

/// Tells the counters which worker the calling thread is.
pub(crate) fn set_worker(index: usize) {
    WORKER.set(index);
}

// === impl Refusal ===

impl Refusal {
    /// Every reason, in the order in which totals list them.
    pub const ALL: [Self; 5] = [
        Self::NoMember,
        Self::Limit,
        Self::Source,
        Self::ProxyHeader,
        Self::Tls,
    ];

    /// The metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoMember => "no_member",
            Self::Limit => "limit",
            Self::Source => "source",
            Self::ProxyHeader => "proxy_header",
            Self::Tls => "tls",
        }
    }
}

// === impl Shards ===

impl<T: Default> Shards<T> {
    /// One block for each of `workers`; at least one.
    pub fn new(workers: usize) -> Self {
        Self((0..workers.max(1)).map(|_| Padded::default()).collect())
    }

    /// The block of the calling worker. Threads that are no worker share the first one.
    pub fn mine(&self) -> &T {
        let index = WORKER.get();
        let shard = self.0.get(index).unwrap_or(&self.0[0]);
        &shard.0
    }

    fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|shard| &shard.0)
    }
}

impl Shards<ListenerCounters> {
    /// Adds up all workers.
    pub fn totals(&self) -> ListenerTotals {
        let mut totals = ListenerTotals::default();
        for shard in self.all() {
            totals.connections += read(&shard.connections);
            totals.bytes_in += read(&shard.bytes_in);
            totals.bytes_out += read(&shard.bytes_out);
            totals.connect_failures += read(&shard.connect_failures);
            for (total, shard) in totals.refused.iter_mut().zip(&shard.refused) {
                *total += read(shard);
            }
            for (total, shard) in totals.responses.iter_mut().zip(&shard.responses) {
                *total += read(shard);
            }
        }
        totals
    }
}

impl Shards<MemberCounters> {
    /// Adds up all workers.
    pub fn totals(&self) -> MemberTotals {
        let mut totals = MemberTotals::default();
        for shard in self.all() {
            totals.connections += read(&shard.connections);
            totals.bytes_in += read(&shard.bytes_in);
            totals.bytes_out += read(&shard.bytes_out);
            totals.connect_failures += read(&shard.connect_failures);
        }
        totals
    }
}

// === impl ListenerCounters ===

impl ListenerCounters {
    /// A connection was opened.
    pub fn connected(&self) {
        add(&self.connections, 1);
    }

    /// Bytes passed: from the client, and to the client.
    pub fn passed(&self, bytes_in: u64, bytes_out: u64) {
        add(&self.bytes_in, bytes_in);
        add(&self.bytes_out, bytes_out);
    }

    /// A member could not be reached.
    pub fn connect_failed(&self) {
        add(&self.connect_failures, 1);
    }

    /// A connection was turned away.
    pub fn refused(&self, refusal: Refusal) {
        add(&self.refused[refusal as usize], 1);
    }

    /// A response with this status began.
    pub fn responded(&self, status: u16) {
        let class = usize::from(status / 100).checked_sub(1);
        if let Some(counter) = class.and_then(|class| self.responses.get(class)) {
            add(counter, 1);
        }
    }
}

// === impl ListenerTotals ===

impl ListenerTotals {
    /// How many were turned away for one reason.
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.refused[refusal as usize]
    }
}

// === impl MemberCounters ===

impl MemberCounters {
    /// A connection was given to the member.
    pub fn connected(&self) {
        add(&self.connections, 1);
    }

    /// Bytes passed: to the member, and from the member.
    pub fn passed(&self, bytes_in: u64, bytes_out: u64) {
        add(&self.bytes_in, bytes_in);
        add(&self.bytes_out, bytes_out);
    }

    /// The member could not be reached.
    pub fn connect_failed(&self) {
        add(&self.connect_failures, 1);
    }
}

fn add(counter: &AtomicU64, amount: u64) {
    if amount > 0 {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up_all_workers() {
        let counters = std::sync::Arc::new(Shards::<ListenerCounters>::new(2));
        counters.mine().passed(10, 1);
        counters.mine().refused(Refusal::Source);
        counters.mine().responded(204);
        counters.mine().responded(999);
        let other = counters.clone();
        std::thread::spawn(move || {
            set_worker(1);
            other.mine().passed(5, 2);
            other.mine().connected();
            other.mine().refused(Refusal::Tls);
            other.mine().responded(200);
            other.mine().responded(503);
        })
        .join()
        .unwrap();
        assert_eq!(
            counters.totals(),
            ListenerTotals {
                connections: 1,
                bytes_in: 15,
                bytes_out: 3,
                connect_failures: 0,
                refused: [0, 0, 1, 0, 1],
                responses: [0, 2, 0, 0, 1],
            }
        );
    }

    #[test]
    fn a_refusal_stands_at_its_own_place() {
        for (place, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, place);
        }
    }
}
