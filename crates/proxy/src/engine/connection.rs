//! One TCP connection through a `Stream` listener: from the client's socket to a member's and back.
//! Decides when it opens, what its failures mean and when it has lasted too long; the engine tells it
//! what happened and carries out its end.
//!
//! ```text
//!   Inspect ──(first bytes, or time)──┐
//!                                     ├─> Connecting ──> Open ──> end
//!   Fresh ──(first bytes, or the end ─┘        │
//!            of this pass)                     └─ failed: the next member, at most three
//! ```
//!
//! A fresh connection waits out one pass of the engine, a few microseconds: a client that speaks first
//! has mostly spoken by then, and its bytes ride on the packet that ends the member's handshake.
//!
//! Idle times: bytes from a side, and bytes that it takes, both show that it lives. So a long download
//! does not end because the client has nothing to say, and it does end when the client takes nothing.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use landfall_model::Protocol;
use landfall_sys::epoll::{Event, Watch};
use landfall_sys::stream::Stream;

use super::outlet::Outlet;
use super::pump::{Broken, Rest, Way, would_block};
use super::slab::Key;
use super::{Tools, client_token, member_token, millis};
use crate::counters::Refusal;
use crate::dial::MAX_TRIES;
use crate::inbound::Inbound;
use crate::listener::{ListenerState, Place};
use crate::pool::Lease;
use crate::proxy_protocol::Header;

/// A connection on a worker.
#[derive(Debug)]
pub(super) struct Connection {
    key: Key,
    listener: Arc<ListenerState>,
    client: Stream,
    address: SocketAddr,
    /// What the client connected to, where a PROXY header said something else than the listener.
    local: Option<Box<SocketAddr>>,
    phase: Phase,
    member: Option<(Lease, Outlet)>,
    /// From the client to the member.
    inward: Way,
    /// From the member to the client.
    outward: Way,
    /// Whether the engine tells when the client can be written to.
    watches_writing: bool,
    client_heard: u64,
    member_heard: u64,
    client_idle: u32,
    member_idle: u32,
    tried: Vec<SocketAddr>,
    /// When the engine will ask again about the deadline.
    pub(super) alarm: u64,
    _place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Inspect { until: u64 },
    Fresh,
    Connecting { until: u64 },
    Open,
}

/// What the engine has to do with a connection next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing, until there are news.
    Wait,
    /// Ask again in the next pass.
    Again,
    /// Take it out.
    End(End),
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Both sides said so.
    Agreed,
    /// One side broke off; the other is told so.
    Broken,
    /// It was idle, refused or cut.
    Closed,
}

// === impl Connection ===

impl Connection {
    /// A connection that was let in.
    pub(super) fn new(
        key: Key,
        client: Stream,
        inbound: &Inbound,
        listener: Arc<ListenerState>,
        place: Place,
        now: u64,
    ) -> Self {
        let timeouts = listener.config().listener.timeouts;
        let own = listener.id().socket_address();
        let inspect = millis(timeouts.tcp_inspect);
        let phase = match inspect {
            0 => Phase::Fresh,
            wait => Phase::Inspect {
                until: now + u64::from(wait),
            },
        };
        let mut outward = Way::new();
        outward.writable = true;
        Self {
            key,
            listener,
            client,
            address: inbound.client,
            local: (inbound.local != own).then(|| Box::new(inbound.local)),
            phase,
            member: None,
            inward: Way::new(),
            outward,
            watches_writing: false,
            client_heard: now,
            member_heard: now,
            client_idle: millis(timeouts.client_data).max(1),
            member_idle: millis(timeouts.member_data).max(1),
            tried: Vec::new(),
            alarm: u64::MAX,
            _place: place,
        }
    }

    /// The client's socket.
    pub(super) fn client(&self) -> &Stream {
        &self.client
    }

    /// Whether it waits for the end of the pass.
    pub(super) fn is_fresh(&self) -> bool {
        self.phase == Phase::Fresh
    }

    /// Whether it must end because its member's or its listener's drain time is over.
    pub(super) fn is_cut(&self) -> bool {
        self.listener.cut().is_cancelled()
            || self
                .member
                .as_ref()
                .is_some_and(|(lease, _)| lease.is_cut())
    }

    /// News of the client's socket.
    pub(super) fn client_event(&mut self, event: Event, tools: &mut Tools) -> Step {
        if event.is_readable() {
            self.inward.readable = true;
            self.inward.hangup |= event.is_read_closed();
        }
        self.outward.writable |= event.is_writable();
        match self.phase {
            Phase::Inspect { .. } | Phase::Fresh => self.connect(tools),
            // Bytes wait until the member is there.
            Phase::Connecting { .. } => Step::Wait,
            Phase::Open => self.advance(tools),
        }
    }

    /// News of the member's socket.
    pub(super) fn member_event(&mut self, event: Event, tools: &mut Tools) -> Step {
        if event.is_readable() {
            self.outward.readable = true;
            self.outward.hangup |= event.is_read_closed();
        }
        self.inward.writable |= event.is_writable();
        match self.phase {
            Phase::Connecting { .. } => self.confirm(tools),
            Phase::Open => self.advance(tools),
            Phase::Inspect { .. } | Phase::Fresh => Step::Wait,
        }
    }

    /// When time alone will change something.
    pub(super) fn deadline(&self) -> u64 {
        match self.phase {
            Phase::Inspect { until } | Phase::Connecting { until } => until,
            Phase::Fresh => u64::MAX,
            Phase::Open => {
                // A side that has said its last word is not waited for.
                let client = self.client_heard + u64::from(self.client_idle);
                let member = self.member_heard + u64::from(self.member_idle);
                match (self.inward.closed, self.outward.closed) {
                    (true, false) => member,
                    (false, true) => client,
                    _ => client.min(member),
                }
            }
        }
    }

    /// The deadline has passed.
    pub(super) fn expire(&mut self, tools: &mut Tools) -> Step {
        match self.phase {
            Phase::Inspect { .. } | Phase::Fresh => self.connect(tools),
            Phase::Connecting { .. } => {
                self.fail_member(tools, &io::ErrorKind::TimedOut.into());
                self.connect(tools)
            }
            Phase::Open => Step::End(End::Closed),
        }
    }

    /// Chooses a member and begins to connect.
    pub(super) fn connect(&mut self, tools: &mut Tools) -> Step {
        // What the client has said already goes along; it is in the shared room until it is held.
        let mut fresh = 0;
        if self.tried.is_empty() {
            match self.first_bytes(tools) {
                Ok(count) => fresh = count,
                Err(_) => return Step::End(End::Closed),
            }
        }
        while self.tried.len() < MAX_TRIES {
            let Some(lease) = self.listener.pool().pick(self.address, &self.tried) else {
                break;
            };
            let address = lease.address();
            match self.try_member(lease, fresh, tools) {
                Ok(true) => return self.advance(tools),
                Ok(false) => return Step::Wait,
                Err((lease, error)) => {
                    self.inward
                        .hold(tools.room.get(..fresh).unwrap_or_default());
                    fresh = 0;
                    self.note_failure(&lease, &error);
                    self.tried.push(address);
                }
            }
        }
        self.listener.counters().mine().refused(Refusal::NoMember);
        Step::End(End::Closed)
    }

    /// The end has come: gives back what is held.
    pub(super) fn finish(mut self, end: End, tools: &mut Tools) {
        self.inward.give_up(&mut tools.pipes);
        self.outward.give_up(&mut tools.pipes);
        if end == End::Broken {
            // Without it the client would see an orderly end.
            let _ = self.client.set_reset_on_close();
        }
        drop(self.client);
        let Some((_lease, outlet)) = self.member else {
            return;
        };
        match end {
            End::Agreed if self.inward.closed => tools.outlets.take_back(outlet),
            End::Agreed | End::Closed => tools.outlets.close(outlet, false),
            End::Broken => tools.outlets.close(outlet, true),
        }
    }

    /// Reads the client's first bytes into the shared room, behind the PROXY header where the member
    /// wants one. Returns how many bytes there are.
    fn first_bytes(&mut self, tools: &mut Tools) -> Result<usize, Broken> {
        let mut start = 0;
        if let Some(version) = self.listener.config().listener.pool.proxy_protocol {
            let own = self.listener.id().socket_address();
            let local = self.local.as_deref().copied().unwrap_or(own);
            let header = Header::new(version, Protocol::Tcp, self.address, local);
            let bytes = header.as_bytes();
            if let Some(room) = tools.room.get_mut(..bytes.len()) {
                room.copy_from_slice(bytes);
                start = bytes.len();
            }
        }
        if self.inward.readable {
            let room = tools.room.get_mut(start..).unwrap_or_default();
            let count = self.inward.read_first(&self.client, room)?;
            if count > 0 {
                self.client_heard = tools.now;
                self.listener.counters().mine().passed(count as u64, 0);
            }
            start += count;
        }
        Ok(start)
    }

    /// Begins to connect to a member, with `fresh` bytes in the shared room for it. `true`: it is
    /// connected already.
    fn try_member(
        &mut self,
        lease: Lease,
        fresh: usize,
        tools: &mut Tools,
    ) -> Result<bool, (Lease, io::Error)> {
        let raw = *lease.member().raw_address();
        let (user, member) = (self.key.index, lease.address());
        let opened = tools
            .outlets
            .open(&tools.epoll, member, &raw, user, member_token);
        let outlet = match opened {
            Ok(outlet) => outlet,
            Err(error) => return Err((lease, error)),
        };
        let speaks = fresh > 0 || self.inward.holds();
        if speaks {
            // Saves a packet where it works, changes nothing where not.
            let _ = outlet.stream.set_speaks_first();
        }
        if let Err(error) = outlet.stream.connect(&raw) {
            tools.outlets.close(outlet, false);
            return Err((lease, error));
        }
        let mut taken = 0;
        let mut connected = false;
        self.inward.writable = false;
        if fresh > 0 && lease.member().may_be_near() {
            match outlet
                .stream
                .send(tools.room.get(..fresh).unwrap_or_default())
            {
                Ok(count) => {
                    taken = count;
                    connected = true;
                }
                Err(error) if would_block(&error) => lease.member().is_far(),
                Err(error) => {
                    tools.outlets.close(outlet, false);
                    return Err((lease, error));
                }
            }
        }
        self.inward.sent += taken as u64;
        self.inward
            .hold(tools.room.get(taken..fresh).unwrap_or_default());
        let within = self.listener.config().listener.timeouts.member_connect;
        self.phase = Phase::Connecting {
            until: tools.now + u64::from(millis(within).max(1)),
        };
        self.member = Some((lease, outlet));
        if connected {
            self.inward.writable = taken == fresh;
            self.opened(tools.now);
        }
        Ok(connected)
    }

    /// Looks whether the member's handshake is over.
    fn confirm(&mut self, tools: &mut Tools) -> Step {
        let Some((_, outlet)) = &self.member else {
            return Step::End(End::Closed);
        };
        // Writing nothing tells all three: connected, not yet, or failed.
        match outlet.stream.send(&[]) {
            Ok(_) => {
                self.inward.writable = true;
                self.opened(tools.now);
                self.advance(tools)
            }
            Err(error) if would_block(&error) => Step::Wait,
            Err(error) => {
                self.fail_member(tools, &error);
                self.connect(tools)
            }
        }
    }

    fn opened(&mut self, now: u64) {
        self.phase = Phase::Open;
        self.member_heard = now;
        self.tried = Vec::new();
        self.listener.counters().mine().connected();
        if let Some((lease, _)) = &self.member {
            lease.connected();
            // What was read before a member was chosen.
            lease
                .member()
                .counters()
                .mine()
                .passed(self.inward.moved, 0);
        }
    }

    fn fail_member(&mut self, tools: &mut Tools, error: &io::Error) {
        let Some((lease, outlet)) = self.member.take() else {
            return;
        };
        tools.outlets.close(outlet, false);
        self.tried.push(lease.address());
        self.note_failure(&lease, error);
        self.outward.readable = false;
        self.outward.hangup = false;
    }

    fn note_failure(&self, lease: &Lease, error: &io::Error) {
        lease.failed();
        self.listener.counters().mine().connect_failed();
        let (listener, member) = (self.listener.id(), lease.address());
        tracing::debug!(%listener, %member, %error, "member could not be reached");
    }

    /// Moves bytes both ways as far as they go.
    fn advance(&mut self, tools: &mut Tools) -> Step {
        let Some((lease, outlet)) = &mut self.member else {
            return Step::End(End::Closed);
        };
        let before = [
            self.inward.moved,
            self.inward.sent,
            self.outward.moved,
            self.outward.sent,
        ];
        if self.inward.readable && self.inward.sent > 0 {
            // The first bytes cannot be held back by what is under way; later ones could.
            outlet.set_nodelay();
        }
        let (room, pipes) = (&mut *tools.room, &mut tools.pipes);
        let inward = self.inward.pump(&self.client, &outlet.stream, room, pipes);
        let outward = self.outward.pump(&outlet.stream, &self.client, room, pipes);
        let passed_in = self.inward.moved - before[0];
        let passed_out = self.outward.moved - before[2];
        if passed_in > 0 || self.outward.sent > before[3] {
            self.client_heard = tools.now;
        }
        if passed_out > 0 || self.inward.sent > before[1] {
            self.member_heard = tools.now;
        }
        if passed_in > 0 || passed_out > 0 {
            self.listener
                .counters()
                .mine()
                .passed(passed_in, passed_out);
            lease
                .member()
                .counters()
                .mine()
                .passed(passed_in, passed_out);
        }
        let (inward, outward) = match (inward, outward) {
            (Ok(inward), Ok(outward)) => (inward, outward),
            (Err(broken), _) | (_, Err(broken)) => {
                let listener = self.listener.id();
                tracing::trace!(%listener, error = %broken.error(), "connection broke");
                return Step::End(End::Broken);
            }
        };
        if inward == Rest::Ended && !self.inward.closed {
            self.inward.close(&outlet.stream);
        }
        if outward == Rest::Ended && !self.outward.closed {
            if inward == Rest::Ended {
                return Step::End(End::Agreed);
            }
            self.outward.close(&self.client);
        }
        if inward == Rest::Ended && outward == Rest::Ended {
            return Step::End(End::Agreed);
        }
        if self.outward.holds() && !self.watches_writing {
            self.watches_writing = true;
            let token = client_token(self.key);
            if tools
                .epoll
                .change(&self.client, token, Watch::Both)
                .is_err()
            {
                return Step::End(End::Broken);
            }
        }
        if inward == Rest::Share || outward == Rest::Share {
            Step::Again
        } else {
            Step::Wait
        }
    }

    /// Goes on after its share of the last pass was used up.
    pub(super) fn resume(&mut self, tools: &mut Tools) -> Step {
        if self.phase == Phase::Open {
            self.advance(tools)
        } else {
            Step::Wait
        }
    }
}
