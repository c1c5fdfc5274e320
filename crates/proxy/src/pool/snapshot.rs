//! What a pool is between two changes: its members, those that serve, and how one of them is
//! chosen. Immutable but for whose turn it is. Never waits.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use landfall_model::listener::{Algorithm, ClientAffinity};
use landfall_model::protection::Protection;

use super::member::{Health, MemberState};
use super::rendezvous::HashKey;
use super::turn::Turns;
use super::{MemberStatus, Unavailable, lock, rendezvous};

#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) algorithm: Algorithm,
    pub(super) key: HashKey,
    pub(super) affinity: Option<ClientAffinity>,
    pub(super) monitored: bool,
    pub(super) protection: Protection,
    pub(super) members: Vec<Entry>,
    /// The tier that serves at present.
    pub(super) serving: Vec<Choice>,
    /// Turns over `serving`.
    pub(super) turns: Mutex<Turns>,
    /// Where `LEAST_CONNECTIONS` starts looking, so that equals take turns.
    pub(super) start: AtomicUsize,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) state: Arc<MemberState>,
    pub(super) weight: u16,
    pub(super) backup: bool,
    pub(super) draining: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) state: Arc<MemberState>,
    pub(super) weight: u16,
}

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn empty(key: HashKey) -> Self {
        Self {
            algorithm: Algorithm::RoundRobin,
            key,
            affinity: None,
            monitored: false,
            protection: Protection::default(),
            members: Vec::new(),
            serving: Vec::new(),
            turns: Mutex::default(),
            start: AtomicUsize::new(0),
        }
    }

    /// Turns over a new serving tier; members that served before go on from where they were.
    pub(super) fn turns(&self, serving: &[Choice]) -> Turns {
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

    /// How much a member may have at once.
    pub(super) fn limit(&self) -> u32 {
        self.protection.connections.unwrap_or(u32::MAX)
    }

    /// Chooses a member and takes a place of it.
    pub(super) fn enter(
        &self,
        client: SocketAddr,
        tried: &[SocketAddr],
        now: impl Fn() -> Instant + Copy,
    ) -> Result<Arc<MemberState>, Unavailable> {
        let limit = self.limit();
        while let Some(choice) = self.choose(client, tried, now) {
            // Another worker may have taken the last place since.
            if choice.state.enter(limit) {
                return Ok(choice.state.clone());
            }
        }
        let is_left = |choice: &Choice| !tried.contains(&choice.state.address());
        Err(if self.serving.iter().any(is_left) {
            Unavailable::Full
        } else {
            Unavailable::NoMember
        })
    }

    /// Chooses among the serving members that were not tried and have room; those that could lately
    /// not be reached and those that are left out come last.
    fn choose(
        &self,
        client: SocketAddr,
        tried: &[SocketAddr],
        now: impl Fn() -> Instant + Copy,
    ) -> Option<&Choice> {
        let limit = self.limit();
        let can = |choice: &Choice| {
            choice.state.open() < limit && !tried.contains(&choice.state.address())
        };
        let should = |choice: &Choice| {
            can(choice) && !choice.state.is_suspect(now) && !choice.state.is_left_out(now)
        };
        let share = |choice: &Choice| choice.state.share(self.protection.slow_start, now);
        let slow = !self.protection.slow_start.is_zero();
        let first = slow
            .then(|| {
                let accept =
                    |choice: &Choice| should(choice) && choice.state.takes_turn(share(choice));
                match self.algorithm {
                    Algorithm::RoundRobin => self.by_algorithm(client, accept, share),
                    _ => None,
                }
            })
            .flatten();
        first
            .or_else(|| self.by_algorithm(client, should, share))
            .or_else(|| self.by_algorithm(client, can, share))
    }

    /// `share` is the part of its weight that a member gets.
    fn by_algorithm(
        &self,
        client: SocketAddr,
        accept: impl Fn(&Choice) -> bool,
        share: impl Fn(&Choice) -> u16,
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
                let candidates = after.iter().chain(before).filter(|choice| accept(choice));
                let weighed = candidates
                    .map(|choice| (choice, u64::from(choice.weight) * u64::from(share(choice))));
                let least = weighed.min_by(|a, b| {
                    let load = |x: &Choice, weight: u64| (u64::from(x.state.open()) + 1) * weight;
                    load(a.0, b.1).cmp(&load(b.0, a.1))
                });
                least.map(|(choice, _)| choice)
            }
            Algorithm::SourceIp => self.by_hash(self.key.of_address(client.ip()), accept, share),
            Algorithm::SourceIpPort => self.by_hash(self.key.of_socket(client), accept, share),
        }
    }

    fn by_hash(
        &self,
        client: u64,
        accept: impl Fn(&Choice) -> bool,
        share: impl Fn(&Choice) -> u16,
    ) -> Option<&Choice> {
        let candidates = self.serving.iter().filter(|choice| accept(choice));
        let drawn = candidates.map(|choice| {
            let all = rendezvous::attraction(client, choice.state.hash(), choice.weight);
            (all * f64::from(share(choice)), choice)
        });
        drawn
            .max_by(|(a, _), (b, _)| a.total_cmp(b))
            .map(|(_, choice)| choice)
    }
}

/// The first tier that has members.
pub(super) fn serving(members: &[Entry], monitored: bool) -> Vec<Choice> {
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
    pub(super) fn health(&self, monitored: bool) -> Health {
        if monitored {
            self.state.health()
        } else {
            Health::Up
        }
    }

    pub(super) fn status(&self, monitored: bool) -> MemberStatus {
        MemberStatus {
            address: self.state.address(),
            weight: self.weight,
            backup: self.backup,
            leaving: self.state.is_leaving(),
            serves: self.state.serves(),
            checked: monitored,
            health: self.health(monitored),
            failing: self.state.failing(),
            left_out: self.state.left_out(Instant::now()),
            cause: if monitored {
                self.state.cause()
            } else {
                Arc::default()
            },
            transitions: self.state.transitions(),
            open: self.state.open(),
            totals: self.state.counters().totals(),
        }
    }
}
