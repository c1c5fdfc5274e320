//! What a node does for the addresses that it announces: answers, announcements, duplicate address
//! detection and the defence of an address, for ARP and Neighbour Discovery alike. No I/O and no
//! clock: it takes frames and the time, and gives frames, events and the time of its next deadline.
//!
//! It answers for nothing but the addresses that it was given, only on the interfaces that they are
//! announced on, and only while they are announced.
//!
//! ```text
//!              an interface      no host has it
//!   Waiting ──────────────> Probing ──────────> Announcing   answers, announces, defends
//!                              ^  │ a host has it    ^
//!                       retry  │  v                  │ Start::TakeOver
//!                             Conflicted ────────────┘
//! ```
//!
//! A take-over begins at once on the interfaces that are there when it is wanted. One that comes
//! later, also one that was there before, is asked first (RFC 5227, section 2.1), while the address
//! is announced on the others. A host keeps the address on its interface alone, and it is in
//! conflict once that is so on all.

mod correction;
mod entry;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use self::entry::{Action, Entry, Reaction, spread};
use crate::interfaces::Interface;
use crate::mac::MacAddress;
use crate::packet::ndp::solicited_node;
use crate::packet::{Claim, Frame};

/// Times and counts. The default announces as MetalLB does, and refreshes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The time between two announcements of a burst.
    pub round_interval: Duration,
    /// How long a burst goes on after its latest cause.
    pub burst: Duration,
    /// The time between two announcements after a burst, for neighbours that missed it and for
    /// switches that forget. `None`: never.
    pub refresh: Option<Duration>,
    /// Probes before an address is used for the first time; 0 uses it at once.
    pub probes: u8,
    /// The time that a host has to answer a probe.
    pub probe_interval: Duration,
    /// How long an address is left alone that another host has, after the first refusal: what
    /// refused it may be gone. The time doubles with each further one.
    pub first_retry: Duration,
    /// The longest such time, and how long a conflict that is reported counts as the same after its
    /// last message.
    pub conflict_retry: Duration,
    /// How long a node that has left the cluster is still expected to have addresses: it may only
    /// be cut off.
    pub forget_peer: Duration,
    /// The shortest time between two defences of an address (RFC 5227, section 2.4), and between
    /// two events about conflicts.
    pub defence_interval: Duration,
}

/// How an address is to be announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The interfaces.
    pub interfaces: Scope,
    /// How it begins.
    pub start: Start,
    /// Any number; a new one causes another burst, such as after a change of its Service.
    pub revision: u64,
}

/// On which interfaces an address is announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All that are eligible.
    All,
    /// Those with these names, as far as they are eligible.
    Only(BTreeSet<String>),
}

/// How an announcement begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With duplicate address detection: no node used the address before.
    Probe,
    /// At once on the interfaces that are there: another node used it, or it is to be announced
    /// although another host has it.
    TakeOver,
    /// Not yet: with duplicate address detection alone, so that it can begin at once later, with
    /// [`Start::Probe`].
    Ask,
}

/// What an address is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no interface for it. Hosts are asked for it as soon as there is one.
    Waiting,
    /// Duplicate address detection is running, or found no host and the address is to wait.
    Probing,
    /// It is announced and answered for.
    Announcing,
    /// Another host has it. It is not announced, and probed again later.
    Conflicted,
}

/// The status of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What it is doing.
    pub state: State,
    /// The names of the interfaces on which it is announced, or will be first; none: it is not
    /// reachable through this node.
    pub interfaces: Vec<String>,
    /// The last conflict, also if it is over.
    pub conflict: Option<Conflict>,
}

/// Another host that uses an address, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The host.
    pub mac: MacAddress,
    /// The interface that its message came through.
    pub interface: u32,
    /// It is a node that may announce the address, too; two that do so for long are a fault.
    pub is_peer: bool,
    /// When its last message came.
    pub last: Instant,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a frame from an interface.
    Send {
        /// The index of the interface.
        interface: u32,
        /// The frame from its link-layer header on.
        frame: Vec<u8>,
    },
    /// Report what happened to an address.
    Report(IpAddr, Event),
}

/// What happened to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is announced from now on.
    Announced,
    /// Another host has it, so it is not announced.
    Refused(Conflict),
    /// Another host has it on one interface, so it is not announced there, but on others.
    RefusedOn(Conflict),
    /// Another host uses it while it is announced.
    Disputed(Conflict),
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct Machine {
    settings: Settings,
    interfaces: BTreeMap<u32, Interface>,
    /// The interfaces were known once: one that comes from now on was not there before.
    has_interfaces: bool,
    own: BTreeSet<MacAddress>,
    peers: BTreeSet<MacAddress>,
    /// Those that were peers, and when they are forgotten.
    former: BTreeMap<MacAddress, Instant>,
    entries: BTreeMap<IpAddr, Entry>,
    /// The deadlines of the entries.
    due: BTreeSet<(Instant, IpAddr)>,
    /// Whether the status of an address changed since this was taken.
    pub has_news: bool,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            round_interval: Duration::from_millis(1_100),
            burst: Duration::from_secs(5),
            refresh: Some(Duration::from_mins(1)),
            probes: 3,
            probe_interval: Duration::from_millis(100),
            first_retry: Duration::from_millis(200),
            conflict_retry: Duration::from_secs(30),
            forget_peer: Duration::from_mins(10),
            defence_interval: Duration::from_secs(10),
        }
    }
}

impl Settings {
    /// Returns how long an address is left alone that was refused so often before.
    fn retry_after(&self, refusals: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(refusals);
        self.first_retry
            .saturating_mul(doubled)
            .min(self.conflict_retry)
    }
}

// === impl Scope ===

impl Scope {
    /// Returns whether an interface is part of it.
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }
}

// === impl Machine ===

impl Machine {
    /// A machine that announces nothing and knows no interface.
    pub const fn new(settings: Settings) -> Self {
        Self {
            settings,
            interfaces: BTreeMap::new(),
            has_interfaces: false,
            own: BTreeSet::new(),
            peers: BTreeSet::new(),
            former: BTreeMap::new(),
            entries: BTreeMap::new(),
            due: BTreeSet::new(),
            has_news: false,
        }
    }

    /// Takes the eligible interfaces, and all MAC addresses of this node. What is announced on an
    /// interface whose addresses changed is announced again, and asked for on one that is new.
    pub fn set_interfaces(
        &mut self,
        now: Instant,
        interfaces: BTreeMap<u32, Interface>,
        own: BTreeSet<MacAddress>,
    ) {
        let is_known = |(index, it): &(&u32, &Interface)| self.interfaces.get(index) == Some(it);
        let fresh: BTreeSet<u32> = interfaces
            .iter()
            .filter(|it| !is_known(it))
            .map(|(index, _)| *index)
            .collect();
        self.own = own;
        let is_first = !std::mem::replace(&mut self.has_interfaces, true);
        if fresh.is_empty() && self.interfaces.len() == interfaces.len() {
            return;
        }
        self.interfaces = interfaces;
        let addresses: Vec<IpAddr> = self.entries.keys().copied().collect();
        for address in addresses {
            self.review(now, address, &fresh, is_first);
        }
    }

    /// Takes the MAC addresses of the other nodes. What they say is expected while an address moves
    /// and not answered by a defence, nor does it keep an address from being announced: one that a
    /// host had that turns out to be such a node is probed again at once. Those that are missing
    /// from now on keep no address from being announced either, for a time.
    pub fn set_peers(&mut self, now: Instant, peers: BTreeSet<MacAddress>) {
        if peers == self.peers {
            return;
        }
        let before = std::mem::replace(&mut self.peers, peers);
        let missing = before.difference(&self.peers);
        let until = now + self.settings.forget_peer;
        self.former.retain(|_, until| now < *until);
        self.former.extend(missing.map(|it| (*it, until)));
        let entries = self.entries.iter();
        let met = entries.filter(|(_, entry)| entry.is_refused_by(&self.peers));
        let met: Vec<IpAddr> = met.map(|(address, _)| *address).collect();
        for address in met {
            self.change(address, |entry, _, _| entry.ask_again(now));
        }
    }

    /// Takes everything that is to be announced. What is missing is not answered for any more, from
    /// this call on.
    pub fn set_announcements(
        &mut self,
        now: Instant,
        announcements: &BTreeMap<IpAddr, Announcement>,
    ) {
        let due = &mut self.due;
        self.entries.retain(|address, entry| {
            let stays = announcements.contains_key(address);
            if let (false, Some(at)) = (stays, entry.due()) {
                due.remove(&(at, *address));
            }
            stays
        });
        for (address, wanted) in announcements {
            let new = || Entry::new(wanted.clone());
            let entry = self.entries.entry(*address);
            let is_new = matches!(entry, std::collections::btree_map::Entry::Vacant(_));
            let entry = entry.or_insert_with(new);
            if !is_new && entry.wanted == *wanted {
                continue;
            }
            let has_cause = entry.wanted.revision != wanted.revision;
            let is_other = is_new || entry.wanted.start != wanted.start;
            entry.wanted = wanted.clone();
            self.review(now, *address, &BTreeSet::new(), is_other);
            if has_cause {
                self.change(*address, |entry, settings, _| entry.trigger(now, settings));
            }
        }
    }

    /// Takes a frame that came through an interface.
    pub fn receive(&mut self, now: Instant, interface: u32, frame: &[u8]) -> Vec<Output> {
        let Some(frame) = Frame::parse(frame) else {
            return Vec::new();
        };
        if self.own.contains(&frame.source) || !self.interfaces.contains_key(&interface) {
            return Vec::new();
        }
        let mut outputs = Vec::new();
        if let Some(claim) = frame.claim() {
            self.claimed(now, interface, claim, &mut outputs);
        }
        if let (Some(through), Some(asked)) =
            (self.interfaces.get(&interface), wire::asked_for(&frame))
            && let Some(entry) = self.entries.get(&asked)
            && entry.answers_on(interface)
            && let Some(frame) = wire::answer(&frame, through)
        {
            outputs.push(Output::Send { interface, frame });
        }
        outputs
    }

    /// The time at which [`Self::expire`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Does what is due, up to about `most` outputs; what is left stays due.
    pub fn expire(&mut self, now: Instant, most: usize) -> Vec<Output> {
        let mut outputs = Vec::new();
        while let Some((at, address)) = self.due.first().copied() {
            if at > now || outputs.len() >= most {
                break;
            }
            let spread = spread(address);
            let action = self.change(address, |entry, settings, _| {
                entry.expire(now, settings, spread)
            });
            match action {
                Some(Action::Probe(on)) => self.send(address, &on, wire::probe, &mut outputs),
                Some(Action::Announce { is_first, on }) => {
                    if is_first {
                        outputs.push(Output::Report(address, Event::Announced));
                    }
                    self.send(address, &on, wire::announcement, &mut outputs);
                }
                Some(Action::Nothing) => {}
                None => {
                    self.due.pop_first();
                }
            }
        }
        outputs
    }

    /// The groups that frames about the addresses are sent to, by interface.
    pub fn groups(&self) -> BTreeSet<(u32, Ipv6Addr)> {
        let of = |(address, entry): (&IpAddr, &Entry)| match address {
            IpAddr::V4(_) => Vec::new(),
            IpAddr::V6(address) => {
                let group = solicited_node(*address);
                entry.usable.iter().map(|index| (*index, group)).collect()
            }
        };
        self.entries.iter().flat_map(of).collect()
    }

    /// The status of every address.
    pub fn status(&self) -> BTreeMap<IpAddr, Status> {
        let names = |entry: &Entry| {
            let interfaces = entry.interfaces();
            let interfaces = interfaces.filter_map(|index| self.interfaces.get(&index));
            interfaces.map(|it| it.name.clone()).collect()
        };
        let status = |(address, entry): (&IpAddr, &Entry)| {
            let status = Status {
                state: entry.state(),
                interfaces: names(entry),
                conflict: entry.conflict,
            };
            (*address, status)
        };
        self.entries.iter().map(status).collect()
    }

    /// The interfaces that announce.
    pub const fn interfaces(&self) -> &BTreeMap<u32, Interface> {
        &self.interfaces
    }

    /// Another station has an address, or is about to use it.
    fn claimed(&mut self, now: Instant, interface: u32, claim: Claim, outputs: &mut Vec<Output>) {
        if self.own.contains(&claim.mac) {
            return;
        }
        let conflict = Conflict {
            mac: claim.mac,
            interface,
            is_peer: self.peers.contains(&claim.mac),
            last: now,
        };
        let address = claim.address;
        let is_former = self.former.get(&claim.mac).is_some_and(|it| now < *it);
        let was_peer = conflict.is_peer || is_former;
        let reaction = self.change(address, |entry, settings, _| {
            entry.claimed(conflict, claim.is_probe, was_peer, settings)
        });
        let Some(Reaction { event, defends }) = reaction else {
            return;
        };
        outputs.extend(event.map(|event| Output::Report(address, event)));
        if let (true, Some(through)) = (defends, self.interfaces.get(&interface)) {
            let frames = wire::announcement(address, through);
            outputs.extend(frames.map(|frame| Output::Send { interface, frame }));
        }
    }

    /// Finds the interfaces of an address again, some of which are as good as new. `is_other`: how
    /// it is to begin is news.
    fn review(&mut self, now: Instant, address: IpAddr, fresh: &BTreeSet<u32>, is_other: bool) {
        self.change(address, |entry, settings, interfaces| {
            let fits = |interface: &Interface| {
                let has_protocol = match address {
                    IpAddr::V4(_) => interface.has_arp,
                    IpAddr::V6(_) => interface.link_local.is_some(),
                };
                has_protocol && entry.wanted.interfaces.contains(&interface.name)
            };
            let usable: BTreeSet<u32> = interfaces
                .iter()
                .filter(|(_, interface)| fits(interface))
                .map(|(index, _)| *index)
                .collect();
            let takes_over = is_other && entry.wanted.start == Start::TakeOver;
            entry.review(now, usable, fresh, takes_over, settings);
        });
    }

    /// Changes an entry and keeps its deadline in the list; `None` if there is no such entry.
    fn change<R>(
        &mut self,
        address: IpAddr,
        change: impl FnOnce(&mut Entry, &Settings, &BTreeMap<u32, Interface>) -> R,
    ) -> Option<R> {
        let entry = self.entries.get_mut(&address)?;
        let (before, shown) = (entry.due(), entry.shown());
        let result = change(entry, &self.settings, &self.interfaces);
        self.has_news |= entry.shown() != shown;
        let after = entry.due();
        if before != after {
            if let Some(before) = before {
                self.due.remove(&(before, address));
            }
            if let Some(after) = after {
                self.due.insert((after, address));
            }
        }
        Some(result)
    }

    /// Sends frames about an address from some interfaces.
    fn send<F: Iterator<Item = Vec<u8>>>(
        &self,
        address: IpAddr,
        on: &BTreeSet<u32>,
        frames: impl Fn(IpAddr, &Interface) -> F,
        outputs: &mut Vec<Output>,
    ) {
        for &interface in on {
            if let Some(through) = self.interfaces.get(&interface) {
                let frames = frames(address, through);
                outputs.extend(frames.map(|frame| Output::Send { interface, frame }));
            }
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
