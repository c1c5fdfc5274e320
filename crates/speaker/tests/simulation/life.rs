//! One life of a speaker: its machines, connected as the task and the drivers connect them, without
//! their sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_l2::driver::Wanted;
use landfall_l2::election::Rules;
use landfall_l2::fsm::{self, Output, State};
use landfall_l2::interfaces::Interface;
use landfall_l2::mac::MacAddress;
use landfall_membership::driver::View;
use landfall_membership::machine::{Datagram, Machine, Own, Settings};
use landfall_membership::packet::SessionId;
use landfall_membership::seal::{Key, Keys};
use landfall_model::rows::Fact;
use landfall_speaker::decide::Decider;
use landfall_speaker::task::{ASK, FIND, LOOK};

use crate::cluster::name;

/// The index of the only interface of a node.
pub const INTERFACE: u32 = 2;

pub const PORT: u16 = 7947;

/// The numbers that a life begins with.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    pub node: usize,
    /// What its clock says, in milliseconds since 1970: it may be wrong.
    pub clock: u64,
    pub random: u128,
    pub now: Instant,
    pub rules: Rules,
}

/// What a life sends.
#[derive(Debug, Default)]
pub struct Sent {
    pub datagrams: Vec<Datagram>,
    pub frames: Vec<Vec<u8>>,
    /// Something happened to an address.
    pub has_news: bool,
}

pub struct Life {
    pub members: Machine,
    pub decider: Decider,
    announcer: fsm::Machine,
    wanted: Wanted,
    mac: MacAddress,
    /// Since when each address is refused that it did not announce since.
    refused: BTreeMap<IpAddr, Instant>,
    /// The stations that it took for nodes.
    met: BTreeSet<MacAddress>,
    found_at: Option<Instant>,
    ask_at: Option<Instant>,
    compare_at: Option<Instant>,
    revision: u64,
    /// It announces what it is elected for.
    pub is_ready: bool,
    /// It has said that it leaves.
    pub is_leaving: bool,
}

pub fn address(node: usize) -> SocketAddr {
    let [high, low] = (node as u16).to_be_bytes();
    SocketAddr::from(([10, 0, high, low], PORT))
}

pub fn mac(node: usize) -> MacAddress {
    let [high, low] = (node as u16).to_be_bytes();
    MacAddress([2, 0, 0, 0, high, low])
}

fn interface(node: usize) -> Interface {
    let link_local = [0xfe80, 0, 0, 0, 0, 0, 0, 1 + node as u16];
    Interface {
        name: "eth0".to_owned(),
        mac: mac(node),
        has_arp: true,
        link_local: Some(link_local.into()),
    }
}

fn keys() -> Keys {
    Keys {
        first: Key::new(b"the key of these speakers").unwrap(),
        others: Vec::new(),
    }
}

// === impl Sent ===

impl Sent {
    fn put(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send { frame, .. } => self.frames.push(frame),
                Output::Report(..) => self.has_news = true,
            }
        }
    }
}

// === impl Life ===

impl Life {
    pub fn begin(birth: Birth, has_carrier: bool) -> Self {
        let Birth { node, now, .. } = birth;
        let decider = Decider::new(&name(node), birth.random as u64, birth.rules);
        let own = Own {
            name: name(node).into(),
            address: address(node),
            incarnation: birth.clock,
            metadata: decider.metadata().encode().into(),
            session: SessionId(birth.random.to_be_bytes()),
            seed: birth.random as u64,
        };
        let mut life = Self {
            members: Machine::new(Settings::default(), own, keys(), now).unwrap(),
            decider,
            announcer: fsm::Machine::new(fsm::Settings::default()),
            wanted: Wanted::default(),
            mac: mac(node),
            refused: BTreeMap::new(),
            met: BTreeSet::new(),
            found_at: None,
            ask_at: None,
            compare_at: None,
            revision: 0,
            is_ready: false,
            is_leaving: false,
        };
        life.set_carrier(now, node, has_carrier);
        life
    }

    pub fn set_carrier(&mut self, now: Instant, node: usize, is_there: bool) {
        let interfaces = is_there.then(|| interface(node));
        let table: BTreeMap<u32, Interface> = interfaces
            .clone()
            .map(|it| (INTERFACE, it))
            .into_iter()
            .collect();
        self.announcer
            .set_interfaces(now, table, BTreeSet::from([self.mac]));
        self.decider
            .take_interfaces(interfaces.into_iter().collect());
    }

    pub fn take_facts(&mut self, now: Instant, facts: Vec<Fact>) {
        let was_synced = self.decider.is_synced();
        self.decider.take_facts(facts);
        if self.decider.is_synced() && !was_synced {
            self.found_at = Some(now + FIND);
            self.ask_at = Some(now + ASK);
        }
    }

    /// Takes what the membership knows, and hands on what was decided.
    pub fn decide(&mut self, now: Instant) -> Sent {
        if self.is_stale() {
            self.revision = self.members.revision();
            let view = View {
                peers: self.members.peers(),
                reunions: self.members.reunions(),
            };
            self.decider.take_members(Arc::new(view));
        }
        self.decider.take_announced(&self.announcer.status());
        if self.compare_at.is_none() && self.is_ready && self.decider.is_unsettled() {
            self.compare_at = Some(now + LOOK);
        }
        let mut sent = Sent::default();
        let seeds = self.decider.seeds(PORT);
        if !seeds.is_empty() {
            self.members.set_seeds(seeds);
        }
        let metadata = self.decider.metadata().encode().into();
        if !self.is_leaving {
            sent.datagrams = self.members.set_metadata(metadata).unwrap();
        }
        if self.is_ready {
            self.want(now, self.decider.wanted());
        } else if !self.wanted.announcements.is_empty() {
            let peers = self.decider.wanted().peers;
            self.want(
                now,
                Wanted {
                    peers,
                    ..self.wanted.clone()
                },
            );
        }
        sent
    }

    fn want(&mut self, now: Instant, wanted: Wanted) {
        if wanted != self.wanted {
            self.met.extend(&wanted.peers);
            self.announcer.set_peers(now, wanted.peers.clone());
            self.announcer.set_announcements(now, &wanted.announcements);
            self.wanted = wanted;
        }
    }

    /// Says what it would do about an address, and why.
    pub fn explain(&self, address: IpAddr) -> String {
        let members = self.members.peers();
        format!(
            "it holds {:?} for the owner, sees {:?}, and does {:?}",
            self.decider.owner(address),
            members.keys().collect::<Vec<_>>(),
            self.announcer.status().get(&address)
        )
    }

    /// Notes which addresses are refused.
    pub fn note_refusals(&mut self) {
        let status = self.announcer.status();
        let is_asked = |address: &IpAddr| {
            let it = status.get(address);
            it.is_some_and(|it| it.state != State::Announcing && it.conflict.is_some())
        };
        self.refused.retain(|address, _| is_asked(address));
        for (address, it) in &status {
            if let (State::Conflicted, Some(conflict)) = (it.state, it.conflict) {
                self.refused.entry(*address).or_insert(conflict.last);
            }
        }
    }

    /// Returns the station that keeps it from announcing an address, if it has not met it as a node
    /// and may still wait for it.
    ///
    /// What it never exchanged a datagram with is a host to it, and it leaves the address alone
    /// (RFC 5227, section 2.1.1). It asks again after 200 ms, and then after twice as long each
    /// time: it waits no longer than it was refused before, and those 200 ms. Then its questions
    /// take 300 ms.
    pub fn unmet(&self, now: Instant, address: IpAddr) -> Option<MacAddress> {
        let status = self.announcer.status().remove(&address)?;
        let conflict = status.conflict.filter(|it| !self.met.contains(&it.mac))?;
        let first = *self.refused.get(&address)?;
        let refused = conflict.last.saturating_duration_since(first);
        let asks = Duration::from_millis(200 + 300 + 10);
        let may_wait = now < conflict.last + refused + asks;
        (status.state != State::Announcing && may_wait).then_some(conflict.mac)
    }

    /// Returns whether the membership knows something that is not decided upon yet.
    pub fn is_stale(&self) -> bool {
        self.revision != self.members.revision()
    }

    /// When time is to pass next.
    pub fn deadline(&self) -> Option<Instant> {
        let members = (!self.is_leaving).then(|| self.members.deadline());
        let others = self.announcer.deadline().into_iter().chain(self.found_at);
        let others = others.chain(self.ask_at).chain(self.compare_at);
        others.chain(members).min()
    }

    /// Lets time pass. Returns whether something is to be decided.
    pub fn expire(&mut self, now: Instant, sent: &mut Sent) -> bool {
        if !self.is_leaving && self.members.deadline() <= now {
            sent.datagrams.extend(self.members.expire(now));
        }
        if self.announcer.deadline().is_some_and(|at| at <= now) {
            sent.put(self.announcer.expire(now, 64));
        }
        if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_at = None;
            let asks = self.decider.asks();
            self.want(now, asks);
        }
        if self.compare_at.is_some_and(|at| at <= now) {
            self.compare_at = None;
            self.decider.look();
        }
        let is_found = self.found_at.is_some_and(|at| at <= now);
        if is_found {
            self.found_at = None;
            self.is_ready = true;
            self.decider.set_current();
        }
        is_found || sent.has_news || self.is_stale()
    }

    pub fn take_datagram(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) -> Sent {
        Sent {
            datagrams: self.members.receive(now, from, bytes),
            ..Sent::default()
        }
    }

    pub fn take_frame(&mut self, now: Instant, frame: &[u8]) -> Sent {
        let mut sent = Sent::default();
        sent.put(self.announcer.receive(now, INTERFACE, frame));
        sent
    }

    pub fn leave(&mut self) -> Sent {
        self.is_leaving = true;
        Sent {
            datagrams: self.members.leave(),
            ..Sent::default()
        }
    }
}
