//! The session with one router: the state machine of RFC 4271, without I/O and clock.
//!
//! ```text
//!   connected, accepted ─┐                        ┌─> next_action: connect, close, ...
//!   received, closed ────┼──> Session (takes now) ┼─> transmit: bytes, when there is room
//!   configure, announce ─┘                        └─> deadline, status
//! ```
//!
//! A session has up to three connections: the one that is established, one that this side begins
//! and one that the router begins, until it is clear which of them stays (RFC 4271, 6.8).

mod backoff;
mod connection;
mod link;
mod open;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::advertise::Advertiser;
use crate::error::{ConnectProblem, SessionError};
use crate::notification::{Notification, cease};
use crate::peer::{Mode, Peer};
use crate::route::{Drain, Routes};
use crate::status::{Counts, State, Status};
use backoff::Backoff;
pub use connection::{Connection, LinkId, Side};
use link::{Link, Phase};

/// How long a connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// For how long a session must last until attempts to connect begin with the shortest wait again.
const STABLE: Duration = Duration::from_secs(30);

/// The session with one router.
#[derive(Debug)]
pub struct Session {
    peer: Peer,
    routes: Arc<Routes>,
    drain: Drain,
    dial: Dial,
    backoff: Backoff,
    /// Whether this process has not had a session with the router yet (RFC 4724: Restart State).
    restarted: bool,
    links: Vec<Link>,
    next_link: LinkId,
    actions: VecDeque<Action>,
    random: fastrand::Rng,
    /// The state while there is no connection.
    resting: State,
    state: State,
    since: Instant,
    last_error: Option<(Instant, SessionError)>,
    counts: Counts,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Begin a connection, then report by [`Session::connected`] or [`Session::connect_failed`].
    Connect,
    /// Give the connection up that was begun and is not reported yet.
    Abort,
    /// Close a connection, after this message if there is one. The session has forgotten it.
    Close(LinkId, Option<Vec<u8>>),
    /// Use the password of [`Session::peer`] on all connections.
    Rekey,
}

/// How a session is ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// For good: routers withdraw its routes. The text is for their operators (RFC 9003).
    Shutdown(String),
    /// Because this process restarts: routers that agreed to graceful restart keep its routes.
    Restart,
    /// Because the path is down (RFC 9384). Attempts to connect go on.
    BfdDown,
    /// To begin again. The text is for the router's operators (RFC 9003).
    Reset(String),
    /// Because the router is no longer configured.
    Removed,
}

/// What is done to begin connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dial {
    /// Nothing: only the router begins, or the session is ended.
    Off,
    /// There is a connection already.
    Linked,
    /// It is begun then.
    At(Instant),
    /// It was begun, and is given up then.
    Until(Instant),
}

// === impl Session ===

impl Session {
    /// Begins a session; a first attempt to connect follows at once. The seed is for jitter.
    pub fn new(peer: Peer, routes: Arc<Routes>, seed: u64, now: Instant) -> Self {
        let mut new = Self {
            peer,
            routes,
            drain: Drain::Off,
            dial: Dial::Off,
            backoff: Backoff::default(),
            restarted: true,
            links: Vec::new(),
            next_link: LinkId::default(),
            actions: VecDeque::new(),
            random: fastrand::Rng::with_seed(seed),
            resting: State::Idle,
            state: State::Idle,
            since: now,
            last_error: None,
            counts: Counts::default(),
        };
        new.dial_at(now);
        new.settle(now);
        new
    }

    /// Returns what is configured.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns what is announced.
    pub fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }

    /// Returns whether a connection is one of this session's.
    pub fn has(&self, id: LinkId) -> bool {
        self.place(id).is_some()
    }

    /// Changes what is configured. A session ends and begins again, unless only the password
    /// differs.
    pub fn configure(&mut self, peer: Peer, now: Instant) {
        if self.peer == peer {
            return;
        }
        let only_password = self.peer.differs_in_password_only(&peer);
        self.peer = peer;
        if only_password {
            self.actions.push_back(Action::Rekey);
            if self.links.is_empty() && self.dial != Dial::Off {
                self.begin_again(now);
            }
        } else {
            let why = Notification::cease(cease::CONFIGURATION_CHANGE, "");
            self.drop_all(&why, &SessionError::Ended(why.clone()), now);
            self.begin_again(now);
        }
        self.settle(now);
    }

    /// Changes what is announced: all routes; `drain`: whether with the community that asks for
    /// other paths (RFC 8326).
    pub fn announce(&mut self, routes: Arc<Routes>, drain: Drain) {
        self.routes = routes;
        self.drain = drain;
        for link in &mut self.links {
            if let Phase::Established(established) = &mut link.phase {
                let routes = Arc::clone(&self.routes);
                let drained = drain.concerns(established.agreed.keeps_routes);
                established.advertiser.set(routes, drained);
            }
        }
    }

    /// Ends the session.
    pub fn end(&mut self, end: End, now: Instant) {
        let (why, error) = match end {
            End::Shutdown(text) => {
                let why = Notification::cease(cease::ADMINISTRATIVE_SHUTDOWN, &text);
                (why.clone(), SessionError::Ended(why))
            }
            End::Reset(text) => {
                let why = Notification::cease(cease::ADMINISTRATIVE_RESET, &text);
                (why.clone(), SessionError::Ended(why))
            }
            End::BfdDown => {
                let why = Notification::cease(cease::BFD_DOWN, "");
                (why, SessionError::BfdDown)
            }
            End::Removed => {
                let why = Notification::cease(cease::PEER_DECONFIGURED, "");
                (why.clone(), SessionError::Ended(why))
            }
            End::Restart => return self.restart(now),
        };
        self.drop_all(&why, &error, now);
        if matches!(
            why.subcode,
            cease::ADMINISTRATIVE_SHUTDOWN | cease::PEER_DECONFIGURED
        ) {
            self.stop_dialing();
        }
        self.settle(now);
    }

    /// Ends it so that routers keep routes where they agreed to: without a NOTIFICATION.
    fn restart(&mut self, now: Instant) {
        let why = Notification::cease(cease::ADMINISTRATIVE_SHUTDOWN, "");
        for link in std::mem::take(&mut self.links) {
            let last = (!link.keeps_routes()).then(|| self.last_words(&why));
            self.actions.push_back(Action::Close(link.id, last));
        }
        self.stop_dialing();
        self.settle(now);
    }

    /// Takes a connection that was begun for [`Action::Connect`].
    pub fn connected(&mut self, connection: Connection, now: Instant) -> LinkId {
        self.dial = Dial::Linked;
        let id = self.link(connection, now);
        self.settle(now);
        id
    }

    /// Takes a connection that the router began; `None` if it is to be closed at once.
    pub fn accepted(&mut self, connection: Connection, now: Instant) -> Option<LinkId> {
        if self.dial == Dial::Off && self.peer.mode == Mode::Active {
            return None;
        }
        // A router that begins a second one has given the first one up.
        let older = |link: &Link| link.side == Side::Incoming && !link.is_established();
        while let Some(place) = self.links.iter().position(older) {
            let link = self.links.remove(place);
            self.actions.push_back(Action::Close(link.id, None));
        }
        let id = self.link(connection, now);
        self.settle(now);
        Some(id)
    }

    /// Notes that a connection could not be begun.
    pub fn connect_failed(&mut self, kind: ConnectProblem, why: String, now: Instant) {
        if matches!(self.dial, Dial::Until(_)) {
            self.fail_to_connect(kind, why, now);
            self.settle(now);
        }
    }

    fn fail_to_connect(&mut self, kind: ConnectProblem, why: String, now: Instant) {
        let password = self.peer.password.is_some();
        let error = SessionError::Connect {
            kind,
            why,
            password,
        };
        self.last_error = Some((now, error));
        self.resting = State::Active;
        self.dial_after_wait(now);
    }

    /// Takes bytes that were received.
    pub fn received(&mut self, id: LinkId, bytes: &[u8], now: Instant) {
        let Some(place) = self.place(id) else { return };
        if let Some(link) = self.links.get_mut(place) {
            link.receive(bytes);
        }
        while let Some(place) = self.place(id) {
            if !self.read_one(place, now) {
                break;
            }
        }
        self.settle(now);
    }

    /// Notes that a connection ended; with the words of the system if it failed.
    pub fn closed(&mut self, id: LinkId, error: Option<String>, now: Instant) {
        let Some(place) = self.place(id) else { return };
        let link = self.links.remove(place);
        let error = match error {
            Some(why) => SessionError::Broken(why),
            None => SessionError::Closed {
                open_sent: !link.is_established(),
            },
        };
        self.note_end(&link, error, now);
        self.settle(now);
    }

    /// Returns what is to be sent next. Ask again when all of it was taken, and report that by
    /// [`Session::sent`].
    pub fn transmit(&mut self, id: LinkId, now: Instant) -> Option<Vec<u8>> {
        let place = self.place(id)?;
        self.links
            .get_mut(place)?
            .transmit(&mut self.counts, &mut self.random, now)
    }

    /// Notes that what [`Session::transmit`] returned was taken.
    pub fn sent(&mut self, id: LinkId) {
        if let Some(link) = self.place(id).and_then(|it| self.links.get_mut(it)) {
            link.stuck_at = None;
        }
    }

    /// Returns whether there is something to send.
    pub fn has_to_send(&self, id: LinkId) -> bool {
        let link = self.place(id).and_then(|it| self.links.get(it));
        link.is_some_and(Link::has_to_send)
    }

    /// Returns what is to be done next.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns when [`Session::expire`] is to be called; `None`: not before something happens.
    pub fn deadline(&self) -> Option<Instant> {
        let dial = match self.dial {
            Dial::At(at) | Dial::Until(at) => Some(at),
            Dial::Off | Dial::Linked => None,
        };
        let links = self.links.iter().filter_map(Link::deadline);
        links.chain(dial).min()
    }

    /// Lets time pass.
    pub fn expire(&mut self, now: Instant) {
        match self.dial {
            Dial::At(at) if at <= now => {
                self.dial = Dial::Until(now + CONNECT_TIMEOUT);
                self.actions.push_back(Action::Connect);
            }
            Dial::Until(at) if at <= now => {
                self.actions.push_back(Action::Abort);
                let why = format!("no answer within {CONNECT_TIMEOUT:?}");
                self.fail_to_connect(ConnectProblem::Timeout, why, now);
            }
            _ => {}
        }
        let ids: Vec<_> = self.links.iter().map(|link| link.id).collect();
        for id in ids {
            let Some(place) = self.place(id) else {
                continue;
            };
            let link = self.links.get_mut(place);
            if let Some((why, error)) = link.and_then(|it| it.expire(now)) {
                self.drop_link(place, Some(&why), Some(error), now);
            }
        }
        self.settle(now);
    }

    /// Returns what is known of the session.
    pub fn status(&self) -> Status {
        let established = self.established().and_then(|place| self.links.get(place));
        let established = established.and_then(|link| match &link.phase {
            Phase::Established(established) => Some(established),
            Phase::OpenSent | Phase::OpenConfirm(_) => None,
        });
        let wanted = self.routes.len();
        let advertiser = established.map(|it| &it.advertiser);
        let unsent = advertiser.and_then(Advertiser::unsent);
        Status {
            state: self.state,
            since: self.since,
            last_error: self.last_error.clone(),
            next_attempt: match self.dial {
                Dial::At(at) => Some(at),
                Dial::Off | Dial::Linked | Dial::Until(_) => None,
            },
            agreed: established.map(|it| it.agreed.clone()),
            prefixes_wanted: wanted,
            prefixes_sent: advertiser.map_or(0, Advertiser::sent),
            unsent,
            prefixes_received: established.map_or(0, |it| it.prefixes_received),
            counts: self.counts,
        }
    }

    fn place(&self, id: LinkId) -> Option<usize> {
        self.links.iter().position(|link| link.id == id)
    }

    fn established(&self) -> Option<usize> {
        self.links.iter().position(Link::is_established)
    }

    fn link(&mut self, connection: Connection, now: Instant) -> LinkId {
        let id = self.next_link;
        self.next_link = id.next();
        let offer = open::offer(&self.peer, self.restarted);
        self.links.push(Link::new(id, connection, &offer, now));
        id
    }

    /// Closes a connection, and notes why.
    fn drop_link(
        &mut self,
        place: usize,
        why: Option<&Notification>,
        error: Option<SessionError>,
        now: Instant,
    ) {
        let link = self.links.remove(place);
        let last = why.map(|why| self.last_words(why));
        self.actions.push_back(Action::Close(link.id, last));
        if let Some(error) = error {
            self.note_end(&link, error, now);
        }
    }

    fn drop_all(&mut self, why: &Notification, error: &SessionError, now: Instant) {
        while !self.links.is_empty() {
            self.drop_link(0, Some(why), Some(error.clone()), now);
        }
    }

    fn last_words(&mut self, why: &Notification) -> Vec<u8> {
        self.counts.notifications_sent += 1;
        crate::wire::notification(why)
    }

    fn note_end(&mut self, link: &Link, error: SessionError, now: Instant) {
        if link.is_established() && now.saturating_duration_since(self.since) >= STABLE {
            self.backoff.reset();
        }
        self.last_error = Some((now, error));
        self.resting = State::Idle;
    }

    fn dial_at(&mut self, at: Instant) {
        self.dial = match self.peer.mode {
            Mode::Active => Dial::At(at),
            Mode::Passive => Dial::Off,
        };
    }

    fn dial_after_wait(&mut self, now: Instant) {
        let longest = self.peer.timers.connect;
        let wait = self.backoff.next(longest, &mut self.random);
        self.dial_at(now + wait);
    }

    fn begin_again(&mut self, now: Instant) {
        self.abort();
        self.backoff.reset();
        self.resting = State::Idle;
        self.dial_at(now);
    }

    fn stop_dialing(&mut self) {
        self.abort();
        self.dial = Dial::Off;
        self.resting = State::Idle;
    }

    fn abort(&mut self) {
        if matches!(self.dial, Dial::Until(_)) {
            self.actions.push_back(Action::Abort);
        }
    }

    /// Brings attempts to connect and the state in line with the connections that there are.
    fn settle(&mut self, now: Instant) {
        let outgoing = self.links.iter().any(|link| link.side == Side::Outgoing);
        if self.established().is_some() {
            if self.dial != Dial::Off {
                self.abort();
                self.dial = Dial::Linked;
            }
        } else if self.dial == Dial::Linked && !outgoing {
            self.dial_after_wait(now);
        }
        let resting = match self.dial {
            Dial::Until(_) => State::Connect,
            Dial::Off if self.peer.mode == Mode::Passive => State::Active,
            _ => self.resting,
        };
        let state = self.links.iter().map(Link::state).max();
        let state = state.unwrap_or(resting);
        if state != self.state {
            self.state = state;
            self.since = now;
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod simulation;
#[cfg(test)]
pub(crate) mod tests;
