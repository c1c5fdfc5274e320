//! The pool of a listener: which members there are, which of them serve, and which one the next
//! connection gets. Changes replace an immutable snapshot; picking reads it without waiting for
//! writers. Never opens a socket and never checks a member itself.
//!
//! Who serves, best first; a tier is used only while all before it are empty:
//! checked and up, not yet checked, backup up, backup not yet checked, draining (terminating
//! but still serving). Members that are down or without weight never serve.

mod member;
mod rendezvous;
mod turn;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use landfall_model::listener::{Algorithm, ClientAffinity, Pool};
use tokio::sync::watch;

pub use self::member::{Health, MemberState};
use self::turn::Turns;
use crate::counters::MemberTotals;
use crate::recency::Recency;

/// How many clients one pool remembers for affinity; beyond, the least recent is forgotten. Bounds
/// the table at about 8 MiB.
const AFFINITY_CLIENTS: usize = 65_536;

/// The members of one listener, live.
#[derive(Debug)]
pub struct PoolState {
    snapshot: ArcSwap<Snapshot>,
    /// Serialises writers, and holds members that are gone but still have connections.
    gone: Mutex<Vec<Arc<MemberState>>>,
    affinity: Arc<Mutex<Recency<IpAddr, Remembered>>>,
    changes: watch::Sender<u64>,
    workers: usize,
}

/// One connection's hold on a member. Counts as open on the member until dropped.
#[derive(Debug)]
pub struct Lease {
    member: Arc<MemberState>,
    cuts: u32,
    remembered: Option<Box<Remembering>>,
}

/// What a lease does for affinity when it ends.
#[derive(Debug)]
struct Remembering {
    client: IpAddr,
    timeout: Duration,
    table: Arc<Mutex<Recency<IpAddr, Remembered>>>,
}

/// A member that began to leave. Its connections are to be cut when the drain time has passed.
#[derive(Debug)]
pub struct Leaving {
    member: Arc<MemberState>,
    ticket: u32,
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
struct Snapshot {
    algorithm: Algorithm,
    affinity: Option<ClientAffinity>,
    monitored: bool,
    members: Vec<Entry>,
    /// The tier that serves at present.
    serving: Vec<Choice>,
    /// Turns over `serving`.
    turns: Mutex<Turns>,
    /// Where `LEAST_CONNECTIONS` starts looking, so that equals take turns.
    start: AtomicUsize,
}

#[derive(Clone, Debug)]
struct Entry {
    state: Arc<MemberState>,
    weight: u16,
    backup: bool,
    draining: bool,
}

#[derive(Clone, Debug)]
struct Choice {
    state: Arc<MemberState>,
    weight: u16,
}

#[derive(Debug)]
struct Remembered {
    member: Arc<MemberState>,
    until: Instant,
}

// === impl PoolState ===

impl PoolState {
    /// A pool without members, counting for this many workers. `changes` is raised whenever health
    /// or membership changes.
    pub fn new(workers: usize, changes: watch::Sender<u64>) -> Self {
        Self {
            snapshot: ArcSwap::from_pointee(Snapshot::empty()),
            gone: Mutex::default(),
            affinity: Arc::new(Mutex::new(Recency::new(AFFINITY_CLIENTS))),
            changes,
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
        let members: Vec<Entry> = pool
            .members
            .iter()
            .map(|member| Entry {
                state: find(member.address).unwrap_or_else(|| {
                    let changes = self.changes.clone();
                    Arc::new(MemberState::new(member.address, self.workers, changes))
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
        );
        leaving
    }

    /// What the monitor found out about a member, and why. Tells whether this changed its health.
    pub fn set_health(&self, member: SocketAddr, health: Health, cause: &str) -> bool {
        let guard = lock(&self.gone);
        let before = self.snapshot.load_full();
        let entry = before
            .members
            .iter()
            .find(|entry| entry.state.address() == member);
        let changed = entry.is_some_and(|entry| entry.state.set_health(health, cause));
        if changed {
            let Snapshot {
                algorithm,
                affinity,
                monitored,
                ..
            } = *before;
            self.publish(
                &before,
                before.members.clone(),
                algorithm,
                affinity,
                monitored,
            );
        }
        drop(guard);
        changed
    }

    /// Chooses a member for a new connection of a client, leaving out those that were `tried` before.
    /// `None`: nobody can serve.
    pub fn pick(&self, client: SocketAddr, tried: &[SocketAddr]) -> Option<Lease> {
        let snapshot = self.snapshot.load();
        let Some(affinity) = snapshot.affinity else {
            return snapshot
                .choose(client, tried)
                .map(|choice| Lease::new(&choice.state, None));
        };
        let address = client.ip().to_canonical();
        let now = Instant::now();
        let mut table = lock(&self.affinity);
        let known = table.touch(&address).filter(|known| {
            known.until > now && known.member.serves() && !tried.contains(&known.member.address())
        });
        let member = if let Some(known) = known {
            known.until = now + affinity.timeout;
            known.member.clone()
        } else {
            let member = snapshot.choose(client, tried)?.state.clone();
            let remembered = Remembered {
                member: member.clone(),
                until: now + affinity.timeout,
            };
            table.insert(address, remembered);
            member
        };
        drop(table);
        let table = self.affinity.clone();
        let remembering = Remembering {
            client: address,
            timeout: affinity.timeout,
            table,
        };
        Some(Lease::new(&member, Some(Box::new(remembering))))
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
    ) {
        let serving = serving(&members, monitored);
        let turns = before.turns(&serving);
        for entry in &members {
            let serves = serving
                .iter()
                .any(|choice| choice.state.address() == entry.state.address());
            entry.state.set_serves(serves);
        }
        if affinity.is_none() {
            lock(&self.affinity).retain(|_, _| false);
        }
        self.snapshot.store(Arc::new(Snapshot {
            algorithm,
            affinity,
            monitored,
            members,
            serving,
            turns: Mutex::new(turns),
            start: AtomicUsize::new(before.start.load(Ordering::Relaxed)),
        }));
        self.changes.send_modify(|version| *version += 1);
    }
}

// === impl Snapshot ===

impl Snapshot {
    fn empty() -> Self {
        Self {
            algorithm: Algorithm::RoundRobin,
            affinity: None,
            monitored: false,
            members: Vec::new(),
            serving: Vec::new(),
            turns: Mutex::default(),
            start: AtomicUsize::new(0),
        }
    }

    /// Turns over a new serving tier; members that served before go on from where they were.
    fn turns(&self, serving: &[Choice]) -> Turns {
        let mut positions = vec![None; self.serving.len()];
        for (index, at) in lock(&self.turns).positions() {
            if let Some(position) = positions.get_mut(index as usize) {
                *position = Some(at);
            }
        }
        let known: std::collections::HashMap<SocketAddr, Option<u64>> = self
            .serving
            .iter()
            .map(|choice| choice.state.address())
            .zip(positions)
            .collect();
        Turns::resume(serving.iter().map(|choice| {
            (
                choice.weight,
                known.get(&choice.state.address()).copied().flatten(),
            )
        }))
    }

    /// Chooses among the serving members that were not tried; those that could lately not be reached
    /// come last.
    fn choose(&self, client: SocketAddr, tried: &[SocketAddr]) -> Option<&Choice> {
        let untried = |choice: &Choice| !tried.contains(&choice.state.address());
        self.by_algorithm(client, |choice| {
            untried(choice) && !choice.state.is_suspect(Instant::now)
        })
        .or_else(|| self.by_algorithm(client, untried))
    }

    fn by_algorithm(
        &self,
        client: SocketAddr,
        accept: impl Fn(&Choice) -> bool,
    ) -> Option<&Choice> {
        match self.algorithm {
            Algorithm::RoundRobin => {
                let index =
                    lock(&self.turns).next(|index| self.serving.get(index).is_some_and(&accept))?;
                self.serving.get(index)
            }
            Algorithm::LeastConnections => {
                let start = self.start.fetch_add(1, Ordering::Relaxed) % self.serving.len().max(1);
                let (before, after) = self.serving.split_at_checked(start)?;
                after
                    .iter()
                    .chain(before)
                    .filter(|choice| accept(choice))
                    .min_by(|a, b| {
                        let load = |x: &Choice, y: &Choice| {
                            (u64::from(x.state.open()) + 1) * u64::from(y.weight)
                        };
                        load(a, b).cmp(&load(b, a))
                    })
            }
            Algorithm::SourceIp => self.by_hash(rendezvous::of_address(client.ip()), accept),
            Algorithm::SourceIpPort => self.by_hash(rendezvous::of_socket(client), accept),
        }
    }

    fn by_hash(&self, client: u64, accept: impl Fn(&Choice) -> bool) -> Option<&Choice> {
        let candidates = self.serving.iter().filter(|choice| accept(choice));
        let drawn = candidates.map(|choice| {
            (
                rendezvous::attraction(client, choice.state.hash(), choice.weight),
                choice,
            )
        });
        drawn
            .max_by(|(a, _), (b, _)| a.total_cmp(b))
            .map(|(_, choice)| choice)
    }
}

/// The first tier that has members.
fn serving(members: &[Entry], monitored: bool) -> Vec<Choice> {
    let tier = |entry: &Entry| {
        let health = entry.health(monitored);
        (entry.weight > 0 && health != Health::Down).then_some((
            entry.draining,
            entry.backup && !entry.draining,
            health != Health::Up,
        ))
    };
    let first = members.iter().filter_map(tier).min();
    let chosen = members
        .iter()
        .filter(|entry| first.is_some() && tier(entry) == first);
    chosen
        .map(|entry| Choice {
            state: entry.state.clone(),
            weight: entry.weight,
        })
        .collect()
}

// === impl Entry ===

impl Entry {
    fn health(&self, monitored: bool) -> Health {
        if monitored {
            self.state.health()
        } else {
            Health::Up
        }
    }

    fn status(&self, monitored: bool) -> MemberStatus {
        MemberStatus {
            address: self.state.address(),
            weight: self.weight,
            backup: self.backup,
            leaving: self.state.is_leaving(),
            serves: self.state.serves(),
            checked: monitored,
            health: self.health(monitored),
            failing: self.state.failing(),
            cause: if monitored {
                self.state.cause()
            } else {
                Arc::from("")
            },
            transitions: self.state.transitions(),
            open: self.state.open(),
            totals: self.state.counters().totals(),
        }
    }
}

// === impl Lease ===

impl Lease {
    fn new(member: &Arc<MemberState>, remembered: Option<Box<Remembering>>) -> Self {
        member.enter();
        Self {
            member: member.clone(),
            cuts: member.cuts(),
            remembered,
        }
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.member.address()
    }

    /// The member's live side, for its counters.
    pub fn member(&self) -> &MemberState {
        &self.member
    }

    /// The member was reached: it is no longer asked last, and the connection counts.
    pub fn connected(&self) {
        self.member.trust(Instant::now);
        self.member.counters().mine().connected();
    }

    /// The member could not be reached: it is asked last for a while.
    pub fn failed(&self, error: &io::Error) {
        self.member.suspect(Instant::now(), error);
        self.member.counters().mine().connect_failed();
    }

    /// Whether the connection must end because the member's drain time is over.
    pub fn is_cut(&self) -> bool {
        self.member.cuts() != self.cuts
    }

    /// Completes when the connection must end because the member's drain time is over.
    pub async fn cut(&self) {
        self.member.cut_after(self.cuts).await;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.member.exit();
        if let Some(remembering) = self.remembered.take() {
            let Remembering {
                client,
                timeout,
                table,
            } = *remembering;
            // Idle time counts from the end of the last connection.
            let mut table = lock(&table);
            if let Some(known) = table.touch(&client)
                && Arc::ptr_eq(&known.member, &self.member)
            {
                known.until = Instant::now() + timeout;
            }
        }
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves these tables valid at every step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
