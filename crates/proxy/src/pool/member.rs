//! The live side of a member: health, open connections, counters, and the cut that ends what it
//! still has when its drain time is over. Outlives changes of the pool: found again by its address.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use landfall_sys::address::RawAddress;
use tokio::sync::Notify;

use super::{Shared, lock, rendezvous, spared};
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
const FORGET_FAILURES_AFTER: Duration = Duration::from_secs(60);

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
    /// Failures in a row of any kind, while these count.
    outliers: AtomicU32,
    /// End of the time in which it is left out, in milliseconds after `born`; how often in a row;
    /// and why. Zero: it never was.
    left_out_until: AtomicU64,
    times_left_out: AtomicU32,
    left_out_for: Mutex<Arc<str>>,
    /// Its ejection was reported, and its end not yet.
    reported: AtomicBool,
    /// Since when it gets less than its share, in milliseconds after `born`; zero: it does not.
    begun: AtomicU64,
    /// What it is owed of turns while it gets less, in parts of `WHOLE`.
    credit: AtomicU32,
    shared: Arc<Shared>,
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

/// What went wrong, without the system's number for it.
pub(super) fn describe(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(_) => error.kind().to_string(),
        None => error.to_string(),
    }
}

// === impl MemberState ===

impl MemberState {
    /// The pool is notified when connections begin to fail, and when they no longer do.
    pub(super) fn new(address: SocketAddr, workers: usize, shared: Arc<Shared>) -> Self {
        Self {
            failures: AtomicU32::new(0),
            failed_at: AtomicU64::new(0),
            failure: Mutex::new(Arc::from("")),
            failing: AtomicBool::new(false),
            outliers: AtomicU32::new(0),
            left_out_until: AtomicU64::new(0),
            times_left_out: AtomicU32::new(0),
            left_out_for: Mutex::new(Arc::from("")),
            reported: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            credit: AtomicU32::new(0),
            shared,
            address,
            raw: RawAddress::new(address),
            hash: rendezvous::of_member(address),
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
        // A connection that waits for a place sees each that was given back before it began to
        // wait.
        self.open.load(Ordering::SeqCst)
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

    /// Stores a verdict; returns whether the health is another one now.
    pub(super) fn set_health(&self, health: Health, cause: &str, now: Instant) -> bool {
        let mut stored = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
        if **stored != *cause {
            *stored = Arc::from(cause);
        }
        let before = self.health();
        self.health.store(health as u8, Ordering::Relaxed);
        if before != health && health == Health::Up {
            self.forgive();
            // At the start of a pool all are alike.
            if before == Health::Down || self.begun.load(Ordering::Relaxed) != 0 {
                self.begin(now);
            }
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
        let why = describe(error);
        {
            let mut failure = lock(&self.failure);
            if **failure != *why {
                *failure = Arc::from(why);
            }
        }
        if !self.failing.swap(true, Ordering::Relaxed) {
            self.shared.changed();
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
        if now.saturating_duration_since(self.born) > failed_at + FORGET_FAILURES_AFTER {
            self.forgive();
        }
        if !self.is_left_out(|| now) && self.reported.swap(false, Ordering::Relaxed) {
            self.shared.changed();
        }
    }

    fn forgive(&self) {
        self.failures.store(0, Ordering::Relaxed);
        if self.failing.swap(false, Ordering::Relaxed) {
            self.shared.changed();
        }
    }

    pub(super) fn is_suspect(&self, now: impl FnOnce() -> Instant) -> bool {
        let until = self.suspect_until.load(Ordering::Relaxed);
        until != 0 && now().saturating_duration_since(self.born) < Duration::from_millis(until)
    }

    /// Notes a failure of any kind. After so many in a row, the member is left out for a while, if
    /// enough others serve.
    pub(super) fn note_outlier(&self, now: Instant, why: impl FnOnce() -> String) {
        let after = self.shared.outlier_failures();
        if after == 0 {
            return;
        }
        let failures = self.outliers.fetch_add(1, Ordering::Relaxed) + 1;
        if failures < after || self.is_left_out(|| now) {
            return;
        }
        let age = now.saturating_duration_since(self.born);
        let last = Duration::from_millis(self.left_out_until.load(Ordering::Relaxed));
        let times = match self.times_left_out.load(Ordering::Relaxed) {
            _ if spared::is_over(age.saturating_sub(last)) => 1,
            times => times.saturating_add(1),
        };
        let time = spared::how_long(times);
        if !self.shared.may_leave_out(self.address, now, time) {
            return;
        }
        let seconds = time.as_secs();
        let text = format!(
            "ejected for {seconds} s after {failures} failures in a row: {}",
            why()
        );
        *lock(&self.left_out_for) = Arc::from(text);
        self.times_left_out.store(times, Ordering::Relaxed);
        self.outliers.store(0, Ordering::Relaxed);
        self.begin(now + time);
        let until = (age + time).as_millis() as u64;
        self.left_out_until.store(until.max(1), Ordering::Relaxed);
        self.reported.store(true, Ordering::Relaxed);
        self.shared.changed();
    }

    /// Notes that it did what was asked of it.
    pub(super) fn note_success(&self) {
        if self.outliers.load(Ordering::Relaxed) != 0 {
            self.outliers.store(0, Ordering::Relaxed);
        }
    }

    /// Whether failures in a row are counted.
    pub(super) fn counts_outliers(&self) -> bool {
        self.shared.outlier_failures() != 0
    }

    pub(super) fn is_left_out(&self, now: impl FnOnce() -> Instant) -> bool {
        let until = self.left_out_until.load(Ordering::Relaxed);
        until != 0 && now().saturating_duration_since(self.born) < Duration::from_millis(until)
    }

    /// Why it is left out, if it is.
    pub(super) fn left_out(&self, now: Instant) -> Option<Arc<str>> {
        self.is_left_out(|| now)
            .then(|| lock(&self.left_out_for).clone())
    }

    /// From then on it gets less than its share for a while.
    pub(super) fn begin(&self, at: Instant) {
        let begun = at.saturating_duration_since(self.born).as_millis() as u64;
        self.begun.store(begun.max(1), Ordering::Relaxed);
    }

    /// The part of its weight that it gets.
    pub(super) fn share(&self, window: Duration, now: impl FnOnce() -> Instant) -> u16 {
        let begun = self.begun.load(Ordering::Relaxed);
        if begun == 0 || window.is_zero() {
            return spared::WHOLE;
        }
        let age = now().saturating_duration_since(self.born);
        spared::share(age.saturating_sub(Duration::from_millis(begun)), window)
    }

    /// Whether it takes this turn, of which it gets a part only.
    pub(super) fn takes_turn(&self, share: u16) -> bool {
        if share >= spared::WHOLE {
            return true;
        }
        let (share, whole) = (u32::from(share), u32::from(spared::WHOLE));
        let before = self.credit.fetch_add(share, Ordering::Relaxed);
        before % whole + share >= whole
    }

    /// Takes a place, unless it has `limit` already.
    pub(super) fn enter(&self, limit: u32) -> bool {
        if limit == u32::MAX {
            self.open.fetch_add(1, Ordering::SeqCst);
            return true;
        }
        let entered = self
            .open
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |open| {
                (open < limit).then_some(open + 1)
            });
        entered.is_ok()
    }

    pub(super) fn exit(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        self.shared.line.wake();
    }

    pub(super) fn end_retry(&self) {
        self.shared.retries.fetch_sub(1, Ordering::Relaxed);
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
        if !leaving {
            // One that comes back begins as those do that are new.
            self.begin(Instant::now());
        }
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
