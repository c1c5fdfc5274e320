//! All sessions of a system: which session a packet is for (RFC 5880, section 6.3; RFC 5881,
//! sections 3 and 5; RFC 5883, section 4), and which is due next. Without I/O and clock.

mod path;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use crate::packet::echo::Echo;
use crate::packet::{Control, Malformed, State};
use crate::session::{Cause, Change, Discard, Output, Session, Settings};

pub use self::path::{Hops, Path};
pub use self::status::{Counters, Discards, Status};

/// The TTL or hop limit of packets that crossed no router (RFC 5881, section 5).
const DIRECT: u8 = 255;

/// All sessions that shall exist.
pub type Wanted = BTreeMap<Path, Settings>;

/// This system's name for a session, which packets carry.
pub type Id = NonZeroU32;

/// A datagram on a port of BFD.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'d> {
    /// The address of its sender.
    pub from: IpAddr,
    /// The address that it was sent to.
    pub to: Option<IpAddr>,
    /// The index of the interface that it came through.
    pub interface: Option<u32>,
    /// What its port says.
    pub hops: Hops,
    /// The VRF that it came in.
    pub vrf: Option<&'d str>,
    /// The TTL or hop limit that it came with.
    pub ttl: Option<u8>,
    /// The payload.
    pub bytes: &'d [u8],
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make ready to send for a session.
    Open(Id, Arc<Path>),
    /// Send a control packet.
    Control(Id, Vec<u8>),
    /// Send an echo with this token.
    Echo(Id, u64),
    /// Report this.
    Event(Event),
    /// The session is gone.
    Close(Id),
}

/// A session changed its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it runs over.
    pub path: Arc<Path>,
    /// What changed, and why.
    pub change: Change,
}

/// Why a packet changed no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// It is no packet.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// There is no such session.
    #[error("no session is the receiver of the packet")]
    Unknown,
    /// It crossed more routers than it may.
    #[error("the TTL of the packet is {}, at least {least} is needed", Ttl(*.came))]
    Ttl {
        /// The TTL or hop limit that it came with.
        came: Option<u8>,
        /// What it would need.
        least: u8,
    },
    /// The session discarded it.
    #[error(transparent)]
    Discarded(#[from] Discard),
}

struct Ttl(Option<u8>);

/// The sessions.
#[derive(Debug)]
pub struct Table {
    sessions: BTreeMap<Id, Entry>,
    paths: BTreeMap<Arc<Path>, Id>,
    queue: BTreeSet<(Instant, Id)>,
    discards: Discards,
    random: fastrand::Rng,
    actions: Vec<Action>,
    revision: u64,
}

#[derive(Debug)]
struct Entry {
    path: Arc<Path>,
    session: Session,
    /// The index of the interface that the path names.
    interface: Option<u32>,
    way: Way,
    queued: Option<Instant>,
    since: Instant,
    counters: Counters,
    last_down: Option<Cause>,
    last_rejection: Option<Rejection>,
}

/// How packets of the other side came last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The address of this side.
    pub local: Option<IpAddr>,
    /// The index of the interface.
    pub interface: Option<u32>,
}

// === impl Table ===

impl Table {
    /// Returns a table without sessions. The seed should differ from start to start, because names
    /// of sessions come from it.
    pub fn new(seed: u64) -> Self {
        Self {
            sessions: BTreeMap::new(),
            paths: BTreeMap::new(),
            queue: BTreeSet::new(),
            discards: Discards::default(),
            random: fastrand::Rng::with_seed(seed),
            actions: Vec::new(),
            revision: 0,
        }
    }

    /// Makes the sessions those that are wanted. Those that are no longer announce that first. Echo
    /// applies to single hops over IPv4 only, where `returns_echoes` reports whether this system
    /// forwards what it receives on a path.
    pub fn apply(&mut self, wanted: &Wanted, returns_echoes: impl Fn(&Path) -> bool, now: Instant) {
        let ids: Vec<(Arc<Path>, Id)> = self.paths.iter().map(|(k, v)| (k.clone(), *v)).collect();
        for (path, id) in ids {
            if !wanted.contains_key(&*path) {
                self.with(id, now, |entry| entry.session.close(now));
            }
        }
        for (path, settings) in wanted {
            let mut settings = settings.clone();
            if path.hops == Hops::Multi || path.peer.is_ipv6() {
                settings.echo = None;
            }
            let returns = settings.echo.is_some() && returns_echoes(path);
            let id = match self.paths.get(path) {
                Some(id) => *id,
                None => self.insert(path, &settings, now),
            };
            self.with(id, now, |entry| {
                entry.session.configure(settings, now);
                entry.session.set_returns_echoes(returns, now);
            });
        }
        self.revision += 1;
    }

    /// Takes all sessions down, and repeats that if it was done before.
    pub fn farewell(&mut self, now: Instant) {
        let ids: Vec<Id> = self.sessions.keys().copied().collect();
        for id in ids {
            self.with(id, now, |entry| {
                entry.session.close(now);
                entry.session.repeat(now);
            });
        }
    }

    /// Takes a datagram.
    pub fn receive(&mut self, datagram: &Datagram<'_>, now: Instant) -> Result<(), Rejection> {
        let taken = self.take_packet(datagram, now);
        if let Err(rejection) = taken {
            self.discards.count(rejection);
        }
        taken
    }

    fn take_packet(&mut self, datagram: &Datagram<'_>, now: Instant) -> Result<(), Rejection> {
        let packet = Control::parse(datagram.bytes)?;
        let length = usize::from(datagram.bytes.get(3).copied().unwrap_or_default());
        let bytes = datagram.bytes.get(..length).unwrap_or_default();
        let id = self.find(&packet, datagram).ok_or(Rejection::Unknown)?;
        let mut taken = Ok(());
        self.with(id, now, |entry| {
            taken = entry.receive(&packet, bytes, datagram, now);
            match taken {
                Ok(()) => entry.counters.control_in += 1,
                Err(rejection) => {
                    entry.counters.rejected += 1;
                    entry.last_rejection = Some(rejection);
                }
            }
        });
        taken
    }

    /// Takes an echo that came back. Returns whether it was sent by a session.
    pub fn receive_echo(&mut self, echo: &Echo, now: Instant) -> bool {
        let mut is_ours = false;
        self.with(echo.discriminator, now, |entry| {
            is_ours = entry.session.receive_echo(echo.token, now);
            entry.counters.echo_in += u64::from(is_ours);
        });
        is_ours
    }

    /// Does what is due, after all datagrams that came until now were taken.
    pub fn expire(&mut self, now: Instant) {
        while let Some((at, id)) = self.queue.first().copied() {
            if at > now {
                break;
            }
            self.queue.remove(&(at, id));
            self.with(id, now, |entry| {
                entry.queued = None;
                entry.session.expire(now);
            });
        }
    }

    /// When something is due next.
    pub fn deadline(&self) -> Option<Instant> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Takes what is to be done, in order.
    pub fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Notes the index of the interface that a path names.
    pub fn set_interface(&mut self, id: Id, interface: Option<u32>) {
        if let Some(entry) = self.sessions.get_mut(&id) {
            entry.interface = interface;
        }
    }

    /// Counts a packet that could not be sent.
    pub fn count_unsent(&mut self, id: Id) {
        if let Some(entry) = self.sessions.get_mut(&id) {
            entry.counters.unsent += 1;
        }
    }

    /// The path of a session, and how its packets came last.
    pub fn way(&self, id: Id) -> Option<(&Arc<Path>, Way)> {
        let entry = self.sessions.get(&id)?;
        let local = entry.path.local.or(entry.way.local);
        let interface = entry.interface.or(entry.way.interface);
        Some((&entry.path, Way { local, interface }))
    }

    /// What is known of all sessions, those that are being closed left out.
    pub fn status(&self) -> BTreeMap<Arc<Path>, Status> {
        let known = self.sessions.values().filter(|it| !it.session.is_closing());
        known
            .map(|it| (Arc::clone(&it.path), it.status()))
            .collect()
    }

    /// Counts of packets that changed no session.
    pub fn discards(&self) -> Discards {
        self.discards
    }

    /// A number that changes with the state of any session, and with the sessions.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    fn insert(&mut self, path: &Path, settings: &Settings, now: Instant) -> Id {
        let id = loop {
            let number = NonZeroU32::new(self.random.u32(..));
            match number {
                Some(id) if !self.sessions.contains_key(&id) => break id,
                _ => {}
            }
        };
        let path = Arc::new(path.clone());
        let seed = self.random.u64(..);
        let entry = Entry {
            path: Arc::clone(&path),
            session: Session::new(settings.clone(), id, seed, now),
            interface: None,
            way: Way::default(),
            queued: None,
            since: now,
            counters: Counters::default(),
            last_down: None,
            last_rejection: None,
        };
        self.sessions.insert(id, entry);
        self.paths.insert(Arc::clone(&path), id);
        self.actions.push(Action::Open(id, path));
        id
    }

    /// The session that a packet is for: the one that it names, or else the one over its path.
    fn find(&self, packet: &Control, datagram: &Datagram<'_>) -> Option<Id> {
        if let Some(id) = packet.your_discriminator {
            let path = &self.sessions.get(&id)?.path;
            return path.is_way_of(datagram).then_some(id);
        }
        let over = self.paths.iter().filter(|(path, id)| {
            let entry = self.sessions.get(id);
            let bound = path.interface.is_none()
                || entry.is_some_and(|it| it.interface == datagram.interface);
            let local = path.local.is_none() || path.local == datagram.to;
            path.is_way_of(datagram) && bound && local
        });
        // The one that says more about its way comes first.
        let best = over.max_by_key(|(path, _)| (path.interface.is_some(), path.local.is_some()));
        best.map(|(_, id)| *id)
    }

    /// Changes a session, then notes what follows of it.
    fn with(&mut self, id: Id, now: Instant, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        change(entry);
        for output in entry.session.take() {
            self.revision += u64::from(matches!(output, Output::Change(_)));
            self.actions.push(entry.note(id, output, now));
        }
        if entry.session.is_closed(now) {
            if let Some(at) = entry.queued {
                self.queue.remove(&(at, id));
            }
            self.paths.remove(&entry.path);
            self.sessions.remove(&id);
            self.actions.push(Action::Close(id));
            return;
        }
        let deadline = entry.session.deadline();
        if deadline != entry.queued {
            if let Some(at) = entry.queued {
                self.queue.remove(&(at, id));
            }
            self.queue.extend(deadline.map(|at| (at, id)));
            entry.queued = deadline;
        }
    }
}

// === impl Entry ===

impl Entry {
    fn receive(
        &mut self,
        packet: &Control,
        bytes: &[u8],
        datagram: &Datagram<'_>,
        now: Instant,
    ) -> Result<(), Rejection> {
        let least = match self.path.hops {
            Hops::Single => DIRECT,
            Hops::Multi => self.session.settings().minimum_ttl,
        };
        if datagram.ttl.is_none_or(|ttl| ttl < least) {
            let came = datagram.ttl;
            return Err(Rejection::Ttl { came, least });
        }
        self.session.receive(packet, bytes, now)?;
        self.way = Way {
            local: datagram.to,
            interface: datagram.interface,
        };
        Ok(())
    }

    fn note(&mut self, id: Id, output: Output, now: Instant) -> Action {
        match output {
            Output::Control(bytes) => {
                self.counters.control_out += 1;
                Action::Control(id, bytes)
            }
            Output::Echo(token) => {
                self.counters.echo_out += 1;
                Action::Echo(id, token)
            }
            Output::Change(change) => {
                self.since = now;
                if change.to == State::Up {
                    self.counters.ups += 1;
                }
                if change.is_down() {
                    self.counters.downs += 1;
                    self.last_down = Some(change.cause);
                }
                let path = Arc::clone(&self.path);
                Action::Event(Event { path, change })
            }
        }
    }

    fn status(&self) -> Status {
        Status {
            session: self.session.view(),
            since: self.since,
            counters: self.counters,
            last_down: self.last_down,
            last_rejection: self.last_rejection,
            fault: None,
        }
    }
}

// === impl Event ===

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { from, to, cause } = self.change;
        if from == State::Up {
            write!(f, "the BFD session with {} went down: {cause}", self.path)
        } else {
            write!(f, "the BFD session with {} is {to}: {cause}", self.path)
        }
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(ttl) => ttl.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests;
