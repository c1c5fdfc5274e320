//! What must hold, whatever happens:
//!
//! - A node answers for no address that a better node should have: one that was alive, knew the
//!   cluster and could talk to it for a second. So there are never two owners longer than that, and
//!   no owner changes without a cause.
//! - Once a second has passed since the last fault, the best node that is alive answers, unless it
//!   still waits for one that it never met and that has ended.
//! - Some seconds later hosts send to it, too.
//! - No node ever announces an address that a host has which is no node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use landfall_l2::mac::MacAddress;

use crate::cluster::Cluster;
use crate::life::mac;
use crate::network::Network;

/// The time after which all agree.
pub const BOUND: Duration = Duration::from_secs(1);

/// The time after which hosts know: an announcement may be lost.
pub const LEARNED: Duration = Duration::from_millis(3_500);

/// What was seen of an address at a moment.
pub struct Seen<'s> {
    pub now: Duration,
    pub address: IpAddr,
    pub answering: &'s [usize],
    /// The station to which a host sends that once asked.
    pub neighbour: Option<MacAddress>,
    pub is_paused: &'s dyn Fn(usize) -> bool,
    /// It leaves the address to a node that it never met and that has ended.
    pub waits: &'s dyn Fn(usize) -> bool,
    /// Pairs (node, other) of which the first ended while the other may not have known what hosts
    /// learned of it, with the address that they learned.
    pub ended_apart: &'s BTreeSet<(usize, usize, IpAddr)>,
}

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It takes part, and knows the cluster as it is.
    Fine,
    /// It takes part, and knows the cluster as it was.
    Behind,
    /// It does not take part.
    Absent,
}

pub struct Validator {
    pub violations: Vec<String>,
    /// From the crash of an owner to the first answer of another node.
    pub outages: Vec<Duration>,
    /// The longest times that two nodes answered for an address without a pause.
    pub longest_two: Duration,
    /// Moments at which an owner was expected, and was the right one.
    pub right: u64,
    /// How each node is, and since when; `None`: something happened to it since the last look.
    nodes: Vec<Option<(How, Duration)>>,
    two: BTreeMap<IpAddr, Duration>,
    open: BTreeMap<IpAddr, Duration>,
}

// === impl Validator ===

impl Validator {
    pub fn new(count: usize) -> Self {
        Self {
            violations: Vec::new(),
            outages: Vec::new(),
            longest_two: Duration::ZERO,
            right: 0,
            nodes: vec![None; count],
            two: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    /// Something happens to a node.
    pub fn touch(&mut self, node: usize) {
        self.nodes[node] = None;
        self.forget_outages();
    }

    /// Something else happens, so that outages have another cause.
    pub fn forget_outages(&mut self) {
        self.open.clear();
    }

    pub fn see(&mut self, node: usize, how: How, now: Duration) {
        if self.nodes[node].is_none_or(|(was, _)| was != how) {
            self.nodes[node] = Some((how, now));
        }
    }

    fn is_fine_for(&self, node: usize, now: Duration, time: Duration) -> bool {
        self.nodes[node].is_some_and(|(how, since)| how == How::Fine && since + time < now)
    }

    /// Returns the addresses that a node owns and another one could have, if all is well.
    pub fn owned_by(
        &self,
        node: usize,
        now: Duration,
        cluster: &Cluster,
        network: &Network,
    ) -> Vec<IpAddr> {
        let owns = |address: &IpAddr| {
            let candidates = cluster.candidates(*address);
            let mut fine = candidates.into_iter();
            let mut fine = fine.by_ref().filter(|it| self.is_fine_for(*it, now, BOUND));
            fine.next() == Some(node) && fine.next().is_some()
        };
        if self.is_settled(now, BOUND) && network.is_whole(now, BOUND) {
            cluster.held().filter(owns).collect()
        } else {
            Vec::new()
        }
    }

    /// From now on there is no answer for these.
    pub fn note_outages(&mut self, addresses: Vec<IpAddr>, now: Duration) {
        self.open = addresses.into_iter().map(|it| (it, now)).collect();
    }

    /// Returns whether nothing happened to any node for a time, and none is behind.
    fn is_settled(&self, now: Duration, time: Duration) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.all(|it| it.is_some_and(|(how, since)| how != How::Behind && since + time < now))
    }

    /// Returns what does not hold.
    pub fn validate(
        &mut self,
        seen: &Seen<'_>,
        cluster: &Cluster,
        network: &Network,
    ) -> Vec<String> {
        let mut news = Vec::new();
        let candidates = cluster.candidates(seen.address);
        for node in seen.answering {
            news.extend(self.usurped(*node, &candidates, seen, network));
        }
        self.note_times(seen);
        if let Some(owner) = self.expected(&candidates, seen, network, BOUND) {
            if seen.answering == [owner] {
                self.right += 1;
            } else if !(seen.is_paused)(owner) && !(seen.waits)(owner) {
                let (address, answering) = (seen.address, seen.answering);
                news.push(format!(
                    "{owner} should answer for {address}, and these do: {answering:?}"
                ));
            }
            let is_learned = self.expected(&candidates, seen, network, LEARNED) == Some(owner);
            let ended_apart = |station: MacAddress| {
                let mut pairs = seen.ended_apart.iter();
                pairs.any(|(node, other, address)| {
                    (*other, *address) == (owner, seen.address) && mac(*node) == station
                })
            };
            let wrong = seen.neighbour.filter(|it| is_learned && *it != mac(owner));
            let wrong = wrong.filter(|it| !ended_apart(*it) && !(seen.waits)(owner));
            if let Some(neighbour) = wrong {
                let address = seen.address;
                news.push(format!(
                    "{owner} owns {address}, and a host sends to {neighbour}"
                ));
            }
        }
        self.violations.extend(news.iter().cloned());
        news
    }

    /// Says why a node may not answer.
    fn usurped(
        &self,
        node: usize,
        candidates: &[usize],
        seen: &Seen<'_>,
        network: &Network,
    ) -> Option<String> {
        let (now, address) = (seen.now, seen.address);
        if !self.is_fine_for(node, now, BOUND) {
            return None;
        }
        let place = candidates.iter().position(|it| *it == node);
        let Some(place) = place else {
            return Some(format!("{node} answers for {address} and is no candidate"));
        };
        let better = &candidates[..place];
        let better = better.iter().find(|it| {
            self.is_fine_for(**it, now, BOUND) && !network.is_disturbed(node, **it, now, BOUND)
        })?;
        Some(format!("{node} answers for {address}, and {better} should"))
    }

    /// The owner that must be the only one, if nothing happened for a time.
    fn expected(
        &self,
        candidates: &[usize],
        seen: &Seen<'_>,
        network: &Network,
        time: Duration,
    ) -> Option<usize> {
        if !self.is_settled(seen.now, time) || !network.is_whole(seen.now, time) {
            return None;
        }
        let mut candidates = candidates.iter().copied();
        candidates.find(|it| self.is_fine_for(*it, seen.now, time))
    }

    fn note_times(&mut self, seen: &Seen<'_>) {
        let (now, address) = (seen.now, seen.address);
        if seen.answering.len() < 2 {
            self.two.remove(&address);
        } else {
            let since = *self.two.entry(address).or_insert(now);
            self.longest_two = self.longest_two.max(now.saturating_sub(since));
        }
        if !seen.answering.is_empty()
            && let Some(since) = self.open.remove(&address)
        {
            self.outages.push(now.saturating_sub(since));
        }
    }
}
