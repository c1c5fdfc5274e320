//! The pool of a listener: which members there are, which of them serve, and which one the next
//! connection gets. Changes replace an immutable snapshot; picking reads it without waiting for
//! writers. Never opens a socket and never checks a member itself.
//!
//! The tiers of members, best first; a tier is used only while all before it are empty:
//! checked and up, not yet checked, backup up, backup not yet checked, draining (terminating
//! but still serving). Members that are down or without weight never serve.

mod choice;
mod lease;
mod line;
mod member;
mod rendezvous;
mod snapshot;
mod spared;
mod turn;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use landfall_model::listener::{Algorithm, ClientAffinity, Pool};
use landfall_model::protection::Protection;

use crate::budget::Account;
use crate::changes::ChangesOf;
use crate::client_table::ClientTable;
use crate::counters::{MemberTotals, Refusal};

use self::line::Line;
pub use self::member::{Health, MemberState};
pub use self::rendezvous::HashKey;
use self::snapshot::{Entry, Snapshot, serving};
pub use lease::Lease;

/// How many clients one pool remembers for affinity; beyond, the least recent is forgotten. Bounds
/// the table at about 8 MiB.
const AFFINITY_CLIENTS: usize = 65_536;

/// The members of one listener, live.
#[derive(Debug)]
pub struct PoolState {
    snapshot: ArcSwap<Snapshot>,
    /// Serialises writers, and holds members that are gone but still have connections.
    gone: Mutex<Vec<Arc<MemberState>>>,
    affinity: Arc<Mutex<ClientTable<Remembered>>>,
    shared: Arc<Shared>,
    workers: usize,
}

/// What the pool and its members share.
#[derive(Debug)]
struct Shared {
    changes: ChangesOf,
    /// The connections that wait for a member.
    line: Line,
    /// Tries at another member under way.
    retries: AtomicU32,
    /// Failures in a row after which a member is left out; zero: never.
    outliers: AtomicU32,
    /// How many members serve.
    serving: AtomicUsize,
    /// Members that are left out, and until when.
    left_out: Mutex<Vec<(SocketAddr, Instant)>>,
}

/// Why there is no member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// None can serve, or each was tried.
    NoMember,
    /// Each has as much as it may.
    Full,
    /// Other members were tried for too many at the moment.
    Retries,
}

/// A member that began to leave. Its connections are to be cut when the drain time has passed.
#[derive(Debug)]
pub struct Leaving {
    member: Arc<MemberState>,
    ticket: u32,
}

/// How many members of a pool new connections reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Those that get new connections and can be reached.
    pub serving: usize,
    /// Those that should get some.
    pub total: usize,
    /// Why connections to one of them fail.
    pub failure: Option<Arc<str>>,
}

/// A member's row in the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Where it is.
    pub address: SocketAddr,
    /// Its weight; zero where it is gone from the pool.
    pub weight: u16,
    /// Whether it is a backup.
    pub backup: bool,
    /// Whether it is leaving: gone from the pool, without weight, or terminating.
    pub leaving: bool,
    /// Whether it gets new connections at present.
    pub serves: bool,
    /// Whether a monitor checks it.
    pub checked: bool,
    /// Its health; up where there is no monitor.
    pub health: Health,
    /// Why connections to it fail, if they do. It serves nevertheless: nothing may be better.
    pub failing: Option<Arc<str>>,
    /// Why it is left out for a while, although it is not down.
    pub left_out: Option<Arc<str>>,
    /// Why it has this health, in the monitor's words; may be empty.
    pub cause: Arc<str>,
    /// How often its health changed between up and down.
    pub transitions: u64,
    /// What it has at present: connections, flows or requests.
    pub open: u32,
    /// Its counters.
    pub totals: MemberTotals,
}

#[derive(Debug)]
struct Remembered {
    member: Arc<MemberState>,
    until: Instant,
}

// === impl PoolState ===

impl PoolState {
    /// A pool without members, counting for this many workers. `changes` is noted whenever health
    /// or membership changes; what is remembered of clients counts for `account`.
    pub fn new(workers: usize, key: HashKey, changes: ChangesOf, account: Arc<Account>) -> Self {
        Self {
            snapshot: ArcSwap::from_pointee(Snapshot::empty(key)),
            gone: Mutex::default(),
            affinity: Arc::new(Mutex::new(ClientTable::new(AFFINITY_CLIENTS, account))),
            shared: Arc::new(Shared::new(changes)),
            workers,
        }
    }

    /// Makes the pool what the configuration says. Members that stay keep their connections, health
    /// and counters. Returns the members that began to leave.
    pub fn update(&self, pool: &Pool) -> Vec<Leaving> {
        let mut gone = lock(&self.gone);
        let before = self.snapshot.load_full();
        let find = |address| {
            let present = before.members.iter().map(|entry| &entry.state);
            present
                .chain(gone.iter())
                .find(|state| state.address() == address)
                .cloned()
        };
        let joins = !before.members.is_empty();
        let members: Vec<Entry> = pool
            .members
            .iter()
            .map(|member| Entry {
                state: find(member.address).unwrap_or_else(|| {
                    let shared = self.shared.clone();
                    let state = MemberState::new(member.address, self.workers, shared);
                    if joins {
                        state.begin(Instant::now());
                    }
                    Arc::new(state)
                }),
                weight: member.weight,
                backup: member.backup,
                draining: member.draining,
            })
            .collect();
        let mut leaving = Vec::new();
        for entry in &members {
            let leaves = entry.weight == 0 || entry.draining;
            leaving.extend(Leaving::note(&entry.state, leaves));
        }
        let stays = |state: &Arc<MemberState>| {
            members
                .iter()
                .any(|entry| entry.state.address() == state.address())
        };
        for entry in &before.members {
            if !stays(&entry.state) {
                entry.state.set_serves(false);
                leaving.extend(Leaving::note(&entry.state, true));
                gone.push(entry.state.clone());
            }
        }
        gone.retain(|state| state.open() > 0 && !stays(state));
        self.publish(
            &before,
            members,
            pool.algorithm,
            pool.affinity,
            pool.monitor.is_some(),
            pool.protection,
        );
        leaving
    }

    /// Stores the result of a monitor for a member, with its cause. Returns whether this changed
    /// its health.
    pub fn set_health(&self, member: SocketAddr, health: Health, cause: &str) -> bool {
        let guard = lock(&self.gone);
        let before = self.snapshot.load_full();
        let entry = before
            .members
            .iter()
            .find(|entry| entry.state.address() == member);
        let now = Instant::now();
        let changed = entry.is_some_and(|entry| entry.state.set_health(health, cause, now));
        if changed {
            let Snapshot {
                algorithm,
                affinity,
                monitored,
                protection,
                ..
            } = *before;
            self.publish(
                &before,
                before.members.clone(),
                algorithm,
                affinity,
                monitored,
                protection,
            );
        }
        drop(guard);
        changed
    }

    /// Chooses a member for a new connection of a client, leaving out those that were `tried`
    /// before. `None`: none can serve now.
    pub fn pick(&self, client: SocketAddr, tried: &[SocketAddr]) -> Option<Lease> {
        self.try_pick(client, tried).ok()
    }

    /// As [`Self::pick`], with the reason if no member can be chosen.
    pub fn try_pick(&self, client: SocketAddr, tried: &[SocketAddr]) -> Result<Lease, Unavailable> {
        // A new connection does not pass those that wait. One that was admitted before does.
        if tried.is_empty() && self.shared.line.length() > 0 {
            return Err(Unavailable::Full);
        }
        self.look(client, tried)
    }

    /// As [`Self::try_pick`], and waits in line while each member has as much as it may. Another
    /// try does not wait.
    pub async fn take(
        &self,
        client: SocketAddr,
        tried: &[SocketAddr],
    ) -> Result<Lease, Unavailable> {
        match self.try_pick(client, tried) {
            Err(Unavailable::Full) if tried.is_empty() => self.wait(client).await,
            picked => picked,
        }
    }

    /// Waits in line for a member, for as long as the pool lets one wait.
    pub async fn wait(&self, client: SocketAddr) -> Result<Lease, Unavailable> {
        let Protection {
            queue,
            queue_timeout,
            ..
        } = self.snapshot.load().protection;
        let ticket = self.shared.line.join(queue as usize);
        let ticket = ticket.ok_or(Unavailable::Full)?;
        let picked = poll_fn(|context| {
            ticket.poll(context, || match self.look(client, &[]) {
                Err(Unavailable::Full) => None,
                picked => Some(picked),
            })
        });
        let in_time = tokio::time::timeout(queue_timeout, picked).await;
        in_time.unwrap_or(Err(Unavailable::Full))
    }

    /// How many wait for a member.
    pub fn waiting(&self) -> usize {
        self.shared.line.length()
    }

    /// The members that belong to the pool, in the configuration's order.
    pub fn members(&self) -> Vec<Arc<MemberState>> {
        self.snapshot
            .load()
            .members
            .iter()
            .map(|entry| entry.state.clone())
            .collect()
    }

    /// Returns how many members new connections reach.
    pub fn reach(&self) -> Reach {
        let (snapshot, now) = (self.snapshot.load(), Instant::now());
        let mut reach = Reach::default();
        for state in snapshot.members.iter().map(|entry| &entry.state) {
            reach.total += usize::from(!state.is_leaving());
            if !state.serves() {
                continue;
            }
            match state.left_out(now).or_else(|| state.failing()) {
                None => reach.serving += 1,
                Some(failure) => drop(reach.failure.get_or_insert(failure)),
            }
        }
        reach
    }

    /// A row for every member, and for those that are gone but still have connections.
    pub fn status(&self) -> Vec<MemberStatus> {
        let gone = lock(&self.gone).clone();
        let snapshot = self.snapshot.load();
        let monitored = snapshot.monitored;
        let present = snapshot.members.iter().map(|entry| entry.status(monitored));
        let gone = gone.iter().filter(|state| state.open() > 0).map(|state| {
            let entry = Entry {
                state: state.clone(),
                weight: 0,
                backup: false,
                draining: false,
            };
            entry.status(monitored)
        });
        present.chain(gone).collect()
    }

    /// Forgets connections that failed long ago: no client came since, and nothing is known.
    pub fn forget_failures(&self, now: Instant) {
        for entry in &self.snapshot.load().members {
            entry.state.forget_failures(now);
        }
    }

    /// Ends everything that all members still have.
    pub fn cut_all(&self) {
        let gone = lock(&self.gone);
        let snapshot = self.snapshot.load();
        for state in snapshot
            .members
            .iter()
            .map(|entry| &entry.state)
            .chain(gone.iter())
        {
            state.cut_all();
        }
    }

    /// Puts a snapshot in place. Callers hold `gone`.
    fn publish(
        &self,
        before: &Snapshot,
        members: Vec<Entry>,
        algorithm: Algorithm,
        affinity: Option<ClientAffinity>,
        monitored: bool,
        protection: Protection,
    ) {
        let serving = serving(&members, monitored);
        let turns = before.turns(&serving);
        let outliers = protection.outlier_failures.map_or(0, u32::from);
        self.shared.outliers.store(outliers, Ordering::Relaxed);
        self.shared.serving.store(serving.len(), Ordering::Relaxed);
        for entry in &members {
            let serves = serving
                .iter()
                .any(|choice| choice.state.address() == entry.state.address());
            entry.state.set_serves(serves);
        }
        if affinity.is_none() {
            lock(&self.affinity).clear();
        }
        self.snapshot.store(Arc::new(Snapshot {
            algorithm,
            key: before.key,
            affinity,
            monitored,
            protection,
            members,
            serving,
            turns: Mutex::new(turns),
            start: AtomicUsize::new(before.start.load(Ordering::Relaxed)),
        }));
        self.shared.changed();
        // The first that waits reads what there is now.
        self.shared.line.wake();
    }
}

// === impl Shared ===

impl Shared {
    fn new(changes: ChangesOf) -> Self {
        Self {
            changes,
            line: Line::default(),
            retries: AtomicU32::new(0),
            outliers: AtomicU32::new(0),
            serving: AtomicUsize::new(0),
            left_out: Mutex::default(),
        }
    }

    fn changed(&self) {
        self.changes.note();
    }

    fn outlier_failures(&self) -> u32 {
        self.outliers.load(Ordering::Relaxed)
    }

    /// Notes that a member is left out from now on, if not too many are.
    fn may_leave_out(&self, member: SocketAddr, now: Instant, time: Duration) -> bool {
        let mut left_out = lock(&self.left_out);
        left_out.retain(|&(other, until)| other != member && until > now);
        let may = spared::may_leave_out(left_out.len(), self.serving.load(Ordering::Relaxed));
        if may {
            left_out.push((member, now + time));
        }
        may
    }
}

// === impl Leaving ===

impl Leaving {
    fn note(state: &Arc<MemberState>, leaves: bool) -> Option<Self> {
        let ticket = state.set_leaving(leaves)?;
        Some(Self {
            member: state.clone(),
            ticket,
        })
    }

    /// The member that leaves.
    pub fn address(&self) -> SocketAddr {
        self.member.address()
    }

    /// The drain time is over: cuts what the member still has, unless it came back meanwhile.
    pub fn cut(&self) -> bool {
        self.member.cut_if_still_leaving(self.ticket)
    }
}

// === impl Unavailable ===

impl From<Unavailable> for Refusal {
    fn from(why: Unavailable) -> Self {
        match why {
            Unavailable::NoMember | Unavailable::Retries => Self::NoMember,
            Unavailable::Full => Self::Queue,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves these tables valid at every step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
