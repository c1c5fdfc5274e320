//! Counters of listeners and members. Hot ones are sharded per worker, so that workers do not fight
//! for cache lines; readers add the shards up. Never used to decide anything about traffic.

use std::cell::Cell;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::breaks::Break;
use crate::shortage::Shortage;

/// Why a connection (or the first datagram of a flow) was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// No member can serve, or every one that was tried could not be reached.
    NoMember,
    /// The listener's limit of open flows is reached (TCP waits in the accept queue instead), or
    /// that of requests to an HTTP/2 member.
    Limit,
    /// The client is outside the allowed source ranges.
    Source,
    /// A trusted peer sent no valid PROXY protocol header in time.
    ProxyHeader,
    /// The TLS handshake failed or took too long.
    Tls,
    /// The Service or the source address has its share of the process's descriptors or ports.
    Share,
    /// This machine had no descriptor, port or memory for it, or could not send what came.
    Local,
    /// The source has as many connections at this listener as it may.
    SourceLimit,
    /// The source came more often than it may.
    SourceRate,
    /// All members have as many connections as they may, and the queue is full or took too long.
    Queue,
    /// A datagram came with no hop left to go on with: it goes round, or its sender gave it too
    /// few.
    Hops,
}

/// Classes of HTTP status codes.
pub const STATUS_CLASSES: usize = 5;

/// Which time a listener measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Span {
    /// From the choice of a member to the connection with it. Streams only.
    Connect,
    /// From the accept to the end. Streams, and flows of UDP.
    Connection,
    /// From the head of a request to that of its response.
    FirstByte,
    /// From the head of a request to the end of its response.
    Request,
}

/// Upper bounds of the buckets of a [`Span`], in microseconds.
pub type Bounds = [u64; BUCKETS];

/// Buckets with an upper bound.
pub const BUCKETS: usize = 12;

/// Of what should be short.
const LATENCIES: Bounds = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// Of what may last.
const LIFETIMES: Bounds = [
    1_000,
    10_000,
    100_000,
    500_000,
    1_000_000,
    5_000_000,
    10_000_000,
    60_000_000,
    300_000_000,
    1_800_000_000,
    7_200_000_000,
    86_400_000_000,
];

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
    local_failures: [AtomicU64; Shortage::ALL.len()],
    refused: [AtomicU64; Refusal::ALL.len()],
    broken: [AtomicU64; Break::ALL.len()],
    responses: [AtomicU64; STATUS_CLASSES],
    /// Made with the first measurement: most listeners of most workers measure two of four.
    times: [OnceLock<Box<Times>>; Span::ALL.len()],
}

/// How often a time fell into each bucket, and the sum of all.
#[derive(Debug, Default)]
struct Times {
    buckets: [AtomicU64; BUCKETS],
    larger: AtomicU64,
    micros: AtomicU64,
}

/// A reading of the times of one [`Span`], all workers added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeTotals {
    /// Times that fit under each bound and under no lower one.
    pub buckets: [u64; BUCKETS],
    /// How many there were, with those above every bound.
    pub count: u64,
    /// All added up, in microseconds.
    pub micros: u64,
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
    /// What failed on this side, in the order of [`Shortage::ALL`].
    pub local_failures: [u64; Shortage::ALL.len()],
    /// Connections (HTTP: requests) turned away, in the order of [`Refusal::ALL`].
    pub refused: [u64; Refusal::ALL.len()],
    /// Streams that one side broke off, in the order of [`Break::ALL`].
    pub broken: [u64; Break::ALL.len()],
    /// HTTP responses by the first digit of their status, `1xx` first. Those that the proxy gave
    /// itself count as well.
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

/// Sets which worker the calling thread is.
pub(crate) fn set_worker(index: usize) {
    WORKER.set(index);
}

// === impl Refusal ===

impl Refusal {
    /// Every reason, in the order in which totals list them.
    pub const ALL: [Self; 11] = [
        Self::NoMember,
        Self::Limit,
        Self::Source,
        Self::ProxyHeader,
        Self::Tls,
        Self::Share,
        Self::Local,
        Self::SourceLimit,
        Self::SourceRate,
        Self::Queue,
        Self::Hops,
    ];

    /// The metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoMember => "no_member",
            Self::Limit => "limit",
            Self::Source => "source",
            Self::ProxyHeader => "proxy_header",
            Self::Tls => "tls",
            Self::Share => "share",
            Self::Local => "local",
            Self::SourceLimit => "source_limit",
            Self::SourceRate => "source_rate",
            Self::Queue => "queue",
            Self::Hops => "hops",
        }
    }
}

// === impl Span ===

impl Span {
    /// Every one, in the order in which they are counted.
    pub const ALL: [Self; 4] = [
        Self::Connect,
        Self::Connection,
        Self::FirstByte,
        Self::Request,
    ];

    /// Its name in views.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Connection => "connection",
            Self::FirstByte => "first_byte",
            Self::Request => "request",
        }
    }

    /// Upper bounds of its buckets, in microseconds.
    pub fn bounds(self) -> &'static Bounds {
        match self {
            Self::Connect | Self::FirstByte | Self::Request => &LATENCIES,
            Self::Connection => &LIFETIMES,
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
            for (total, shard) in totals.local_failures.iter_mut().zip(&shard.local_failures) {
                *total += read(shard);
            }
            for (total, shard) in totals.refused.iter_mut().zip(&shard.refused) {
                *total += read(shard);
            }
            for (total, shard) in totals.broken.iter_mut().zip(&shard.broken) {
                *total += read(shard);
            }
            for (total, shard) in totals.responses.iter_mut().zip(&shard.responses) {
                *total += read(shard);
            }
        }
        totals
    }

    /// Adds up how many were turned away for one reason.
    pub fn refused(&self, refusal: Refusal) -> u64 {
        let shards = self.all();
        shards
            .map(|shard| read(&shard.refused[refusal as usize]))
            .sum()
    }
}

impl Shards<ListenerCounters> {
    /// Adds up the times of all workers; `None`: nothing was measured.
    pub fn times(&self, span: Span) -> Option<TimeTotals> {
        let mut totals = TimeTotals::default();
        for shard in self.all() {
            let Some(times) = shard.times[span as usize].get() else {
                continue;
            };
            for (total, bucket) in totals.buckets.iter_mut().zip(&times.buckets) {
                *total += read(bucket);
            }
            totals.count += read(&times.larger);
            totals.micros += read(&times.micros);
        }
        totals.count += totals.buckets.iter().sum::<u64>();
        (totals.count > 0).then_some(totals)
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

    /// A member could not be reached, or this side could not try.
    pub fn connect_failed(&self, error: &io::Error) {
        match Shortage::of(error) {
            Some(shortage) => self.fell_short(shortage),
            None => add(&self.connect_failures, 1),
        }
    }

    /// Something failed on this side.
    pub fn fell_short(&self, shortage: Shortage) {
        add(&self.local_failures[shortage as usize], 1);
    }

    /// A connection was turned away.
    pub fn refused(&self, refusal: Refusal) {
        add(&self.refused[refusal as usize], 1);
    }

    /// One side broke off a stream.
    pub fn broke(&self, how: Break) {
        add(&self.broken[how as usize], 1);
    }

    /// Something took so long. Two additions to memory of the worker's own, and no lock.
    pub fn took(&self, span: Span, time: Duration) {
        let times = self.times[span as usize].get_or_init(Box::default);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let place = span.bounds().iter().position(|&bound| micros <= bound);
        let bucket = place.and_then(|place| times.buckets.get(place));
        add(bucket.unwrap_or(&times.larger), 1);
        add(&times.micros, micros);
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

    /// How many failed on this side for one cause.
    pub fn local_failures(&self, shortage: Shortage) -> u64 {
        self.local_failures[shortage as usize]
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
                local_failures: [0; Shortage::ALL.len()],
                refused: [0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0],
                broken: [0; Break::ALL.len()],
                responses: [0, 2, 0, 0, 1],
            }
        );
    }

    #[test]
    fn a_time_is_counted_in_the_lowest_bucket_that_holds_it() {
        let counters = Shards::<ListenerCounters>::new(2);
        assert_eq!(counters.times(Span::Request), None);
        for millis in [1, 2, 300, 20_000] {
            let time = Duration::from_millis(millis);
            counters.mine().took(Span::Request, time);
        }
        let totals = counters.times(Span::Request).unwrap();
        assert_eq!(totals.buckets, [1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!((totals.count, totals.micros), (4, 20_303_000));
        assert_eq!(counters.times(Span::Connect), None);
        for span in Span::ALL {
            assert!(span.bounds().is_sorted());
            assert_eq!(Span::ALL[span as usize], span);
        }
    }

    #[test]
    fn a_refusal_stands_at_its_own_place() {
        for (place, shortage) in Shortage::ALL.into_iter().enumerate() {
            assert_eq!(shortage as usize, place);
        }
        for (place, how) in Break::ALL.into_iter().enumerate() {
            assert_eq!(how as usize, place);
        }
        for (place, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, place);
        }
    }
}
