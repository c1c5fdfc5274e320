//! What a node does to know which others are alive. No I/O, no clock.
//!
//! - A node pings the [`Settings::watched`] members that follow it in the ring. One that leaves its
//!   pings unanswered for [`Settings::timeout`] is suspected, in front of all members.
//! - Each member that is notified of a suspicion asks the suspected node, and thus it learns of it
//!   and refutes it with a greater incarnation. Where no refutation arrives within
//!   [`Settings::confirm`], the node is dead: it answered none of all members.
//! - Death is concluded by every member itself, never taken over: after a partition each side holds
//!   the other for dead. A node that is reported dead refutes that too.
//! - A node that was paused itself does not hold that against others.
//! - Members exchange all they know with one at random now and then, and send a hello to those that
//!   are dead or have never answered.

mod merge;
mod send;
mod watch;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};

use self::watch::Watch;
use crate::member::{LONGEST_METADATA, LONGEST_NAME, Record, Status};
use crate::packet::{Kind, Packet, SessionId};
use crate::replay::Windows;
use crate::ring::{Place, followers};
use crate::seal::{Keys, Refused, Sealer};

/// Members that are known at most, dead ones included.
const MEMBERS: usize = 1_024;

/// Times and counts. The time from a crash to its knowledge everywhere is at most
/// `interval + timeout + confirm`, and the way of two datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Members that each member watches.
    pub watched: usize,
    /// The time between two pings of a watched member.
    pub interval: Duration,
    /// The time that pings may be without an answer.
    pub timeout: Duration,
    /// The longest timeout with a member that only this node does not reach.
    pub longest_timeout: Duration,
    /// The time for the refutation of a suspicion.
    pub confirm: Duration,
    /// The time without being run after which a node takes itself for paused.
    pub pause: Duration,
    /// The time between two rounds in which dead and unknown nodes are greeted.
    pub hello: Duration,
    /// The time between two exchanges of all that is known.
    pub exchange: Duration,
    /// The time after which dead nodes are forgotten that are no seeds any more.
    pub forget: Duration,
}

/// What this node is for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its name.
    pub name: Arc<str>,
    /// Where it receives datagrams.
    pub address: SocketAddr,
    /// Greater than in earlier lives, as far as the clock is right: milliseconds since 1970.
    pub incarnation: u64,
    /// What it reports.
    pub metadata: Arc<[u8]>,
    /// Never used before.
    pub session: SessionId,
    /// Where random numbers come from.
    pub seed: u64,
}

/// Why a node cannot be a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnError {
    /// No other accepts the name.
    #[error("the name of a node has 1 to {LONGEST_NAME} bytes, not {0}")]
    Name(usize),
    /// No other accepts the metadata.
    #[error("the metadata of a node have at most {LONGEST_METADATA} bytes, not {0}")]
    Metadata(usize),
}

/// A datagram to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Where to.
    pub to: SocketAddr,
    /// What.
    pub bytes: Vec<u8>,
}

/// A member, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where it receives datagrams.
    pub address: SocketAddr,
    /// Grows with everything it says of itself.
    pub incarnation: u64,
    /// What it reports.
    pub metadata: Arc<[u8]>,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that were written.
    pub sent: u64,
    /// Datagrams that were accepted.
    pub accepted: u64,
    /// Datagrams of another version, or none of ours.
    pub foreign: u64,
    /// Datagrams sealed with a key that is not among ours.
    pub unknown_key: u64,
    /// Datagrams that no holder of the key wrote.
    pub forged: u64,
    /// Datagrams that were received before, or written for an earlier life of this node.
    pub replayed: u64,
    /// Datagrams of a node with the name of this one.
    pub own_name: u64,
    /// Suspicions that this node raised.
    pub suspected: u64,
    /// Suspicions of this node that it refuted.
    pub refuted: u64,
    /// Members whose death this node concluded.
    pub died: u64,
    /// Times that this node was paused.
    pub paused: u64,
}

/// The machine.
#[derive(Debug)]
pub struct Machine {
    settings: Settings,
    own: Record,
    place: Place,
    sealer: Sealer,
    windows: Windows,
    random: fastrand::Rng,
    /// Where nodes are that may be members.
    seeds: BTreeMap<Arc<str>, SocketAddr>,
    /// Those that never answered, with the rounds of hellos since.
    silent: BTreeMap<Arc<str>, u32>,
    members: BTreeMap<Arc<str>, Member>,
    watches: BTreeMap<Arc<str>, Watch>,
    /// What is appended to packets, and to how many more.
    news: BTreeMap<Arc<str>, u32>,
    /// Members to which everything that is known is sent soon.
    contacts: VecDeque<Arc<str>>,
    /// The number of the last ping.
    number: u64,
    /// When the machine ran last.
    ran: Instant,
    next_hello: Instant,
    next_exchange: Instant,
    next_contact: Instant,
    /// Answers that may still be given until `next_hello` to datagrams that may be repeated.
    sessions_left: u32,
    revision: u64,
    reunions: u64,
    /// The last incarnation of this node that another one held for dead.
    buried: Option<u64>,
    counts: Counts,
    out: Vec<Datagram>,
}

/// What is known of another node.
#[derive(Clone, Debug)]
struct Member {
    record: Record,
    place: Place,
    /// Its session, once it is known.
    session: Option<SessionId>,
    /// When it became suspect, dead or left.
    since: Instant,
    /// It said that it held this node for dead: it may have acted without it since.
    held_us_dead: bool,
    /// Its record when it was held for dead, and how many packets are yet to notify it.
    buried: Option<(Record, u8)>,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            watched: 3,
            interval: Duration::from_millis(50),
            timeout: Duration::from_millis(150),
            longest_timeout: Duration::from_millis(1_200),
            confirm: Duration::from_millis(80),
            pause: Duration::from_millis(40),
            hello: Duration::from_millis(200),
            exchange: Duration::from_secs(1),
            forget: Duration::from_mins(10),
        }
    }
}

// === impl Machine ===

impl Machine {
    /// A node that knows no other.
    pub fn new(settings: Settings, own: Own, keys: Keys, now: Instant) -> Result<Self, OwnError> {
        if own.name.is_empty() || own.name.len() > LONGEST_NAME {
            return Err(OwnError::Name(own.name.len()));
        }
        if own.metadata.len() > LONGEST_METADATA {
            return Err(OwnError::Metadata(own.metadata.len()));
        }
        Ok(Self {
            settings,
            place: Place::of(&own.name),
            sealer: Sealer::new(keys, own.session),
            windows: Windows::default(),
            random: fastrand::Rng::with_seed(own.seed),
            own: Record {
                name: own.name,
                address: own.address,
                incarnation: own.incarnation,
                status: Status::Alive,
                metadata: own.metadata,
            },
            seeds: BTreeMap::new(),
            silent: BTreeMap::new(),
            members: BTreeMap::new(),
            watches: BTreeMap::new(),
            news: BTreeMap::new(),
            contacts: VecDeque::new(),
            number: 0,
            ran: now,
            next_hello: now,
            next_exchange: now + settings.exchange,
            next_contact: now,
            sessions_left: 0,
            revision: 0,
            reunions: 0,
            buried: None,
            counts: Counts::default(),
            out: Vec::new(),
        })
    }

    /// Replaces the nodes that may be members, and where they are. Members that are not among them
    /// stay members while they answer.
    pub fn set_seeds(&mut self, seeds: BTreeMap<Arc<str>, SocketAddr>) {
        self.seeds = seeds;
        self.seeds.remove(&self.own.name);
    }

    /// Replaces the keys.
    pub fn set_keys(&mut self, keys: Keys) {
        self.sealer.set_keys(keys);
    }

    /// Replaces what this node reports, and sends it to all members.
    pub fn set_metadata(&mut self, metadata: Arc<[u8]>) -> Result<Vec<Datagram>, OwnError> {
        if metadata.len() > LONGEST_METADATA {
            return Err(OwnError::Metadata(metadata.len()));
        }
        if self.own.metadata != metadata {
            self.own.metadata = metadata;
            self.own.incarnation += 1;
            self.send_to_all(Kind::News, false);
        }
        Ok(self.take_out())
    }

    /// Leaves. Called again, it repeats what it sends.
    pub fn leave(&mut self) -> Vec<Datagram> {
        if self.own.status != Status::Left {
            self.own.status = Status::Left;
            self.own.incarnation += 1;
            self.watches.clear();
        }
        // Those that it holds for dead may hold it for dead, and hosts may send to it.
        self.send_to_all(Kind::News, true);
        self.take_out()
    }

    /// Takes a datagram. Returns what is to be sent.
    pub fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) -> Vec<Datagram> {
        self.note_pause(now);
        self.take_datagram(now, from, datagram);
        self.take_out()
    }

    /// Lets time pass. Returns what is to be sent.
    pub fn expire(&mut self, now: Instant) -> Vec<Datagram> {
        self.note_pause(now);
        if self.own.status == Status::Left {
            return Vec::new();
        }
        self.conclude(now);
        self.watch(now);
        if self.next_hello <= now {
            self.next_hello = now + self.settings.hello;
            self.send_hello();
        }
        if self.next_contact <= now
            && let Some(name) = self.contacts.pop_front()
        {
            self.next_contact = now + self.settings.interval;
            self.send_everything(&name);
        }
        if self.next_exchange <= now {
            self.next_exchange = now + self.settings.exchange;
            self.exchange(now);
        }
        self.take_out()
    }

    /// When time is to pass next.
    pub fn deadline(&self) -> Instant {
        let suspicions = self.members.values();
        let suspicions = suspicions.filter(|it| it.record.status == Status::Suspect);
        let suspicions = suspicions.map(|it| it.since + self.settings.confirm);
        let watches = self.watches.values().map(Watch::deadline);
        let contact = (!self.contacts.is_empty()).then_some(self.next_contact);
        let others = suspicions.chain(watches).chain(contact);
        others.fold(self.next_hello.min(self.next_exchange), Instant::min)
    }

    /// Returns the other members.
    pub fn peers(&self) -> BTreeMap<Arc<str>, Peer> {
        let present = self.members.values().filter(|it| it.is_present());
        let present = present.map(|it| {
            let peer = Peer {
                address: it.record.address,
                incarnation: it.record.incarnation,
                metadata: Arc::clone(&it.record.metadata),
            };
            (Arc::clone(&it.record.name), peer)
        });
        present.collect()
    }

    /// Grows when [`Machine::peers`] or [`Machine::reunions`] change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Grows when this node meets one that may have acted without it: it was new, or one of the two
    /// held the other for dead, or may have.
    pub fn reunions(&self) -> u64 {
        self.reunions
    }

    /// Counts since the start.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn take_out(&mut self) -> Vec<Datagram> {
        std::mem::take(&mut self.out)
    }

    fn take_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let opened = match self.sealer.open(datagram) {
            Ok(opened) => opened,
            Err(Refused::Version) => return self.counts.foreign += 1,
            Err(Refused::Key) => return self.counts.unknown_key += 1,
            Err(Refused::Forged) => return self.counts.forged += 1,
        };
        let Some(packet) = Packet::decode(&opened.packet) else {
            return self.counts.foreign += 1;
        };
        if packet.sender.name == self.own.name {
            return self.counts.own_name += 1;
        }
        if packet.to != self.sealer.session() {
            // Of no use before it is known that it is not repeated; nothing of it is kept.
            if packet.kind == Kind::Session {
                return self.counts.replayed += 1;
            }
            return self.send_session(from, opened.session, packet.number);
        }
        if !self.windows.take(opened.session, opened.number) {
            return self.counts.replayed += 1;
        }
        if self.windows.is_full() {
            self.begin_session();
        }
        self.counts.accepted += 1;
        self.accept(now, opened.session, packet);
    }

    /// Others learn of it when their next datagrams are answered.
    fn begin_session(&mut self) {
        let hash = digest(&SHA256, &self.sealer.session().0);
        let session = hash.as_ref().first_chunk().copied().unwrap_or_default();
        self.sealer.begin(SessionId(session));
        self.windows = Windows::default();
    }

    /// The set of members changed.
    fn set_ring(&mut self, now: Instant) {
        self.revision += 1;
        if self.own.status == Status::Left {
            return;
        }
        let others = self.members.values().filter(|it| it.is_present());
        let others = others.map(|it| &it.place).collect();
        let watched = followers(&self.place, others, self.settings.watched);
        let members = &self.members;
        self.watches.retain(|name, watch| {
            let is_present = members.get(name).is_some_and(Member::is_present);
            watched.contains(name) || watch.is_once && is_present
        });
        for name in watched {
            let interval = self.settings.interval.as_micros() as u64;
            let random = &mut self.random;
            let watch = self.watches.entry(name).or_insert_with(|| {
                let wait = Duration::from_micros(random.u64(0..=interval));
                Watch::new(now + wait, self.settings.timeout)
            });
            watch.is_once = false;
        }
    }
}

// === impl Member ===

impl Member {
    fn is_present(&self) -> bool {
        self.record.status.is_present()
    }
}
