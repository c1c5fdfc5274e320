//! The live side of a member: health, open connections, counters, and the cut that ends what it still
//! has when its drain time is over. Outlives changes of the pool: found again by its address.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use landfall_sys::address::RawAddress;
use tokio::sync::{Notify, watch};

use super::{lock, rendezvous};
use crate::counters::{MemberCounters, Shards};

/// What the monitor says about a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Health {
    /// Not checked yet. Used while no checked member is up.
    #[default]
    Unknown = 0,
    /// Serves.
    Up = 1,
    /// Does not serve.
    Down = 2,
}

/// So many connections in a row that could not be made say that a member fails.
const FAILING_AFTER: u32 = 3;

/// A member that fails does so until it is reached and nothing failed for so long: under load one
/// that answers now and then would turn many times a second.
const FAILING_FOR: Duration = Duration::from_secs(10);

/// So long after the last failure nothing is known any more, if no client came since.
const FAILURE_TELLS: Duration = Duration::from_secs(60);

/// How long a member that could not be reached is asked last.
const SUSPECT_FOR: Duration = Duration::from_secs(2);

/// One member as the data plane sees it.
#[derive(Debug)]
pub struct MemberState {
    address: SocketAddr,
    raw: RawAddress,
    hash: u64,
    health: AtomicU8,
    /// Why it has this health, in the monitor's words.
    cause: Mutex<Arc<str>>,
    transitions: AtomicU64,
    open: AtomicU32,
    counters: Shards<MemberCounters>,
    /// Whether the pool gives it new connections at present.
    serves: AtomicBool,
    /// End of the time in which it is asked last, in milliseconds after `born`; zero: not suspect.
    suspect_until: AtomicU64,
    born: Instant,
    /// Connections in a row that could not be made; the last of them in milliseconds after `born`,
    /// and why.
    failures: AtomicU32,
    failed_at: AtomicU64,
    failure: Mutex<Arc<str>>,
    failing: AtomicBool,
    changes: watch::Sender<u64>,
    /// Raised by each cut; a lease from before a cut is cut.
    cuts: AtomicU32,
    cut: Notify,
    /// Odd while the member is leaving; each change of mind raises it.
    leave: AtomicU32,
}

// === impl Health ===

impl Health {
    /// `unknown`, `up`, `down`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

// === impl MemberState ===

impl MemberState {
    /// `changes` is raised when connections begin to fail, and when they no longer do.
    pub(super) fn new(address: SocketAddr, workers: usize, changes: watch::Sender<u64>) -> Self {
        Self {
            failures: AtomicU32::new(0),
            failed_at: AtomicU64::new(0),
            failure: Mutex::new(Arc::from("")),
            failing: AtomicBool::new(false),
            changes,
            address,
            raw: RawAddress::new(address),
            hash: rendezvous::of_socket(address),
            health: AtomicU8::new(Health::Unknown as u8),
            cause: Mutex::new(Arc::from("")),
            transitions: AtomicU64::new(0),
            open: AtomicU32::new(0),
            counters: Shards::new(workers),
            serves: AtomicBool::new(false),
            suspect_until: AtomicU64::new(0),
            born: Instant::now(),
            cuts: AtomicU32::new(0),
            cut: Notify::new(),
            leave: AtomicU32::new(0),
        }
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where to connect to, as system calls take it.
    pub(crate) fn raw_address(&self) -> &RawAddress {
        &self.raw
    }

    /// What the monitor last said.
    pub fn health(&self) -> Health {
        match self.health.load(Ordering::Relaxed) {
            1 => Health::Up,
            2 => Health::Down,
            _ => Health::Unknown,
        }
    }

    /// Why it has this health, in the monitor's words; empty where nothing was said.
    pub fn cause(&self) -> Arc<str> {
        self.cause
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How often its health changed between up and down.
    pub fn transitions(&self) -> u64 {
        self.transitions.load(Ordering::Relaxed)
    }

    /// Connections, flows or requests that it has at present.
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Its counters.
    pub fn counters(&self) -> &Shards<MemberCounters> {
        &self.counters
    }

    /// Whether it is leaving: removed, without weight, or terminating.
    pub fn is_leaving(&self) -> bool {
        self.leave.load(Ordering::Relaxed) % 2 == 1
    }

    /// Whether the pool gives it new connections at present.
    pub fn serves(&self) -> bool {
        self.serves.load(Ordering::Relaxed)
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// Stores a verdict; tells whether the health is another one now.
    pub(super) fn set_health(&self, health: Health, cause: &str) -> bool {
        let mut stored = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
        if **stored != *cause {
            *stored = Arc::from(cause);
        }
        let before = self.health();
        self.health.store(health as u8, Ordering::Relaxed);
        if before != health && health == Health::Up {
            self.forgive();
        }
        if before != health && health != Health::Unknown && before != Health::Unknown {
            self.transitions.fetch_add(1, Ordering::Relaxed);
        }
        before != health
    }

    pub(super) fn set_serves(&self, serves: bool) {
        self.serves.store(serves, Ordering::Relaxed);
    }

    /// Why connections to it fail, if they do.
    pub fn failing(&self) -> Option<Arc<str>> {
        let failing = self.failing.load(Ordering::Relaxed);
        failing.then(|| lock(&self.failure).clone())
    }

    /// Notes a connection that could not be made.
    pub(super) fn suspect(&self, now: Instant, error: &io::Error) {
        let age = now.saturating_duration_since(self.born);
        let until = age + SUSPECT_FOR;
        self.suspect_until
            .store(until.as_millis() as u64, Ordering::Relaxed);
        self.failed_at
            .store(age.as_millis() as u64, Ordering::Relaxed);
        let failures = self.failures.fetch_add(1, Ordering::Relaxed);
        if failures + 1 < FAILING_AFTER {
            return;
        }
        let why = match error.raw_os_error() {
            Some(_) => error.kind().to_string(),
            None => error.to_string(),
        };
        {
            let mut failure = lock(&self.failure);
            if **failure != *why {
                *failure = Arc::from(why);
            }
        }
        if !self.failing.swap(true, Ordering::Relaxed) {
            self.changes.send_modify(|version| *version += 1);
        }
    }

    /// Notes a connection that was made.
    pub(super) fn trust(&self, now: impl FnOnce() -> Instant) {
        if self.suspect_until.load(Ordering::Relaxed) != 0 {
            self.suspect_until.store(0, Ordering::Relaxed);
        }
        if self.failures.load(Ordering::Relaxed) == 0 {
            return;
        }
        if self.failing.load(Ordering::Relaxed) {
            let failed_at = Duration::from_millis(self.failed_at.load(Ordering::Relaxed));
            if now().saturating_duration_since(self.born) < failed_at + FAILING_FOR {
                return;
            }
        }
        self.forgive();
    }

    /// Forgets failures that are long ago.
    pub(super) fn forget_failures(&self, now: Instant) {
        let failed_at = Duration::from_millis(self.failed_at.load(Ordering::Relaxed));
        if now.saturating_duration_since(self.born) > failed_at + FAILURE_TELLS {
            self.forgive();
        }
    }

    fn forgive(&self) {
        self.failures.store(0, Ordering::Relaxed);
        if self.failing.swap(false, Ordering::Relaxed) {
            self.changes.send_modify(|version| *version += 1);
        }
    }

    pub(super) fn is_suspect(&self, now: impl FnOnce() -> Instant) -> bool {
        let until = self.suspect_until.load(Ordering::Relaxed);
        until != 0 && now().saturating_duration_since(self.born) < Duration::from_millis(until)
    }

    pub(super) fn enter(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn exit(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn cuts(&self) -> u32 {
        self.cuts.load(Ordering::Acquire)
    }

    pub(super) async fn cut_after(&self, cuts: u32) {
        loop {
            let notified = self.cut.notified();
            if self.cuts() != cuts {
                return;
            }
            notified.await;
        }
    }

    pub(super) fn cut_all(&self) {
        self.cuts.fetch_add(1, Ordering::AcqRel);
        self.cut.notify_waiters();
    }

    /// Notes that the member leaves, or came back. Returns the ticket of a leave that just began.
    pub(super) fn set_leaving(&self, leaving: bool) -> Option<u32> {
        if self.is_leaving() == leaving {
            return None;
        }
        let ticket = self.leave.fetch_add(1, Ordering::Relaxed) + 1;
        leaving.then_some(ticket)
    }

    /// Cuts what it still has, unless it came back since the ticket was given.
    pub(super) fn cut_if_still_leaving(&self, ticket: u32) -> bool {
        let still = self.leave.load(Ordering::Relaxed) == ticket;
        if still {
            self.cut_all();
        }
        still
    }
}
