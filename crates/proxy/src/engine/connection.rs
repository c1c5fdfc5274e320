//! One TCP connection through a `Stream` listener: from the client's socket to a member's and back.
//! Decides when it opens, what its failures mean and when it has lasted too long; the engine
//! notifies it what happened and carries out its end.
//!
//! ```text
//!   Inspect ──(first bytes, or time)──> Connecting ──> Open ──> end
//!   (only where it is configured)          │  ^
//!                                          └──┘ failed: the next member, at most three
//! ```
//!
//! Where each member has as much as it may, it waits in line (`Waiting`) before it connects.
//!
//! Until a member is there, nothing is read: what the client says waits in the kernel.
//!
//! Idle times: bytes from a side, and bytes that it takes, both show that it lives. So a long
//! download does not end because the client has nothing to say, and it does end when the client
//! takes nothing. A side is late only while it is waited for: not while what it said before waits
//! for the other side.

mod connect;
mod outcome;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use landfall_sys::epoll::{Event, Watch};
use landfall_sys::stream::Stream;
use tokio_util::task::AbortOnDropHandle;

use super::member_socket::MemberSocket;
use super::pump::{Broken, Direction, Rest};
use super::slab::Key;
use super::{Tools, client_token, millis};
use crate::access_log::{self, Note};
use crate::breaks::Break;
use crate::counters::{Refusal, Span};
use crate::inbound::Inbound;
use crate::listener::{ListenerState, Place};
use crate::pool::{Lease, Unavailable};

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
    member: Option<(Lease, MemberSocket)>,
    /// From the client to the member.
    inward: Direction,
    /// From the member to the client.
    outward: Direction,
    /// Whether it waits for its next share already.
    pub(super) is_busy: bool,
    /// Whether the engine reports when the client can be written to.
    watches_writing: bool,
    client_active: u64,
    member_active: u64,
    client_idle: u32,
    member_idle: u32,
    tried: Vec<SocketAddr>,
    /// What waits in line for it.
    waits: Option<Box<AbortOnDropHandle<()>>>,
    began: Instant,
    /// When the present member was chosen.
    chosen: Instant,
    note: Option<Box<Note>>,
    /// When the engine will ask again about the deadline.
    pub(super) alarm: u64,
    _place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Inspect {
        until: u64,
    },
    New,
    /// Each member has as much as it may: a task waits in line for it.
    Waiting,
    Connecting {
        until: u64,
    },
    Open,
}

/// What the engine has to do with a connection next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing, until there are news.
    Wait,
    /// Ask again in the next pass.
    Again,
    /// Let it wait in line for a member.
    LineUp,
    /// Take it out.
    End(End),
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Both sides said so.
    Agreed,
    /// One side broke off; the other is reset, too.
    Broken,
    /// One side broke off after its end, and all that it had said has arrived.
    Deserted,
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
            0 => Phase::New,
            wait => Phase::Inspect {
                until: now + u64::from(wait),
            },
        };
        let mut outward = Direction::new();
        outward.writable = true;
        let began = Instant::now();
        let note = listener.note(inbound.client);
        Self {
            key,
            listener,
            client,
            address: inbound.client,
            local: (inbound.local != own).then(|| Box::new(inbound.local)),
            phase,
            member: None,
            inward: Direction::new(),
            outward,
            is_busy: false,
            watches_writing: false,
            client_active: now,
            member_active: now,
            client_idle: millis(timeouts.client_data).max(1),
            member_idle: millis(timeouts.member_data).max(1),
            tried: Vec::new(),
            waits: None,
            began,
            chosen: began,
            note,
            alarm: u64::MAX,
            _place: place,
        }
    }

    /// The client's socket.
    pub(super) fn client(&self) -> &Stream {
        &self.client
    }

    /// Its listener.
    pub(super) fn listener(&self) -> &Arc<ListenerState> {
        &self.listener
    }

    /// How it must end at once, if it must.
    pub(super) fn must_end(&self) -> Option<End> {
        if self.is_shut_out() {
            return Some(End::Broken);
        }
        self.is_cut().then_some(End::Closed)
    }

    /// Whether it must end because its member's or its listener's drain time is over.
    fn is_cut(&self) -> bool {
        self.listener.cut().is_cancelled()
            || self
                .member
                .as_ref()
                .is_some_and(|(lease, _)| lease.is_cut())
    }

    /// Whether no range allows its client any more.
    fn is_shut_out(&self) -> bool {
        !self.listener.config().allows(self.address.ip())
    }

    /// News of the client's socket.
    pub(super) fn client_event(&mut self, event: Event, tools: &mut Tools) -> Step {
        if event.is_readable() {
            self.inward.readable = true;
            self.inward.more_behind |= event.has_more_behind();
        }
        self.outward.writable |= event.is_writable();
        match self.phase {
            Phase::Inspect { .. } => self.connect(tools),
            // Bytes wait until the member is there.
            Phase::Waiting if event.is_error() => Step::End(End::Broken),
            Phase::New | Phase::Waiting | Phase::Connecting { .. } => Step::Wait,
            Phase::Open => self.advance(tools),
        }
    }

    /// News of the member's socket.
    pub(super) fn member_event(&mut self, event: Event, tools: &mut Tools) -> Step {
        if event.is_readable() {
            self.outward.readable = true;
            self.outward.more_behind |= event.has_more_behind();
        }
        self.inward.writable |= event.is_writable();
        match self.phase {
            Phase::Connecting { .. } => self.confirm(event, tools),
            Phase::Open => self.advance(tools),
            Phase::New | Phase::Waiting | Phase::Inspect { .. } => Step::Wait,
        }
    }

    /// When time alone will change something.
    pub(super) fn deadline(&self) -> u64 {
        match self.phase {
            Phase::Inspect { until } | Phase::Connecting { until } => until,
            Phase::New | Phase::Waiting => u64::MAX,
            Phase::Open => {
                let client = self.client_active + u64::from(self.client_idle);
                let member = self.member_active + u64::from(self.member_idle);
                match (self.waits_for_client(), self.waits_for_member()) {
                    (true, false) => client,
                    (false, true) => member,
                    _ => client.min(member),
                }
            }
        }
    }

    /// Whether the client has to take something, or could say something that would be read.
    fn waits_for_client(&self) -> bool {
        self.outward.holds() || !(self.inward.holds() || self.inward.closed)
    }

    /// Whether the member has to take something, or could say something that would be read.
    fn waits_for_member(&self) -> bool {
        self.inward.holds() || !(self.outward.holds() || self.outward.closed)
    }

    /// The deadline has passed.
    pub(super) fn expire(&mut self, tools: &mut Tools) -> Step {
        match self.phase {
            Phase::New | Phase::Inspect { .. } => self.connect(tools),
            Phase::Waiting => Step::Wait,
            Phase::Connecting { .. } => {
                self.fail_member(tools, &io::ErrorKind::TimedOut.into());
                self.connect(tools)
            }
            // No event says that all has arrived.
            Phase::Open
                if (self.inward.lost && self.outward.closed)
                    || (self.outward.lost && self.inward.closed) =>
            {
                Step::End(End::Deserted)
            }
            Phase::Open => Step::End(End::Closed),
        }
    }

    /// Begins: looks for a member, or waits for the client's first bytes.
    pub(super) fn begin(&mut self, tools: &mut Tools) -> Step {
        if self.phase == Phase::New {
            self.connect(tools)
        } else {
            Step::Wait
        }
    }

    /// The listener at which it waits in line, and for which client.
    pub(super) fn line(&self) -> (Arc<ListenerState>, SocketAddr) {
        (self.listener.clone(), self.address)
    }

    /// Keeps the task that waits in line for it.
    pub(super) fn wait(&mut self, task: AbortOnDropHandle<()>) {
        self.waits = Some(Box::new(task));
    }

    /// The wait in line is over.
    pub(super) fn served(&mut self, member: Result<Lease, Unavailable>, tools: &mut Tools) -> Step {
        self.waits = None;
        // It could not be noticed before.
        self.client_active = tools.now;
        if self.phase != Phase::Waiting {
            return Step::Wait;
        }
        match member {
            Ok(lease) => match self.connect_to(lease, tools) {
                None => Step::Wait,
                Some(_) => self.connect(tools),
            },
            Err(why) => self.refuse(why.into()),
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Step {
        self.listener.counters().mine().refused(refusal);
        if let Some(note) = &mut self.note {
            note.facts().end = refusal.as_str();
        }
        Step::End(match refusal {
            Refusal::Queue => End::Broken,
            _ => End::Closed,
        })
    }

    /// The end has come: gives back what is held.
    pub(super) fn finish(mut self, end: End, tools: &mut Tools) {
        self.note_end(end);
        self.inward.give_up(&mut tools.pipes);
        self.outward.give_up(&mut tools.pipes);
        // A side that has its end gets what is still on its way to it.
        let is_short = |direction: &Direction| match end {
            End::Agreed | End::Deserted => false,
            End::Broken => true,
            End::Closed => self.phase == Phase::Open && !direction.closed,
        };
        let (is_client_short, is_member_short) = (is_short(&self.outward), is_short(&self.inward));
        if is_client_short {
            // What came so far would look whole after an orderly end.
            let _ = self.client.set_reset_on_close();
        }
        drop(self.client);
        let Some((_lease, member_socket)) = self.member else {
            return;
        };
        match end {
            End::Agreed if self.inward.closed => tools.member_sockets.take_back(member_socket),
            End::Agreed | End::Deserted | End::Closed | End::Broken => {
                tools.member_sockets.close(member_socket, is_member_short);
            }
        }
    }

    fn note_end(&mut self, end: End) {
        if self.phase == Phase::Open {
            let counters = self.listener.counters().mine();
            counters.took(Span::Connection, self.began.elapsed());
        }
        let Some(mut note) = self.note.take() else {
            return;
        };
        let is_cut = self.is_cut() || self.is_shut_out();
        let facts = note.facts();
        (facts.bytes_in, facts.bytes_out) = (self.inward.moved, self.outward.moved);
        facts.member = self.member.as_ref().map(|(lease, _)| lease.address());
        // Otherwise it was refused.
        if facts.end == access_log::CUT && !is_cut {
            facts.end = match end {
                End::Agreed => access_log::OK,
                End::Broken | End::Deserted => access_log::BROKEN,
                End::Closed => access_log::TIMEOUT,
            };
        }
    }

    /// Moves bytes in both directions as far as they go.
    fn advance(&mut self, tools: &mut Tools) -> Step {
        let waited = (self.waits_for_client(), self.waits_for_member());
        let Some((lease, member_socket)) = &mut self.member else {
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
            member_socket.set_nodelay();
        }
        let (buffer, pipes, budget) = (&mut *tools.buffer, &mut tools.pipes, tools.budget);
        let lost = [self.inward.lost, self.outward.lost];
        let inward = self
            .inward
            .pump(&self.client, &member_socket.stream, buffer, pipes, budget);
        // Before the member is read: behind a reset that a write met, that finds a false end.
        let inward = self.inward.outlive(inward, &self.outward, pipes);
        let outward = self
            .outward
            .pump(&member_socket.stream, &self.client, buffer, pipes, budget);
        let outward = self.outward.outlive(outward, &self.inward, pipes);
        let passed = [
            self.inward.moved - before[0],
            self.outward.moved - before[2],
        ];
        if passed != [0, 0] {
            tools.budget = budget.saturating_sub(passed[0] + passed[1]);
            let member = lease.member().counters().mine();
            member.passed(passed[0], passed[1]);
        }
        // What is dropped is no sign of use.
        let uses_in = passed[0] > 0 && !self.inward.lost;
        let uses_out = passed[1] > 0 && !self.outward.lost;
        if uses_in || self.outward.sent > before[3] || !waited.0 {
            self.client_active = tools.now;
        }
        if uses_out || self.inward.sent > before[1] || !waited.1 {
            self.member_active = tools.now;
        }
        self.count(passed, lost);
        let (inward, outward) = match (inward, outward) {
            (Ok(inward), Ok(outward)) => (inward, outward),
            (Err(Broken::Sender(error)), _) | (_, Err(Broken::Receiver(error))) => {
                return self.broke(Break::of_client(&error), &error);
            }
            (Err(Broken::Receiver(error)), _) | (_, Err(Broken::Sender(error))) => {
                return self.broke(Break::of_member(&error), &error);
            }
        };
        self.rest(inward, outward, tools)
    }

    /// Passes ends on, and decides how to go on after each direction has come to rest.
    fn rest(&mut self, inward: Rest, outward: Rest, tools: &Tools) -> Step {
        let Some((_, member_socket)) = &self.member else {
            return Step::End(End::Closed);
        };
        if inward == Rest::Ended && !self.inward.closed {
            self.inward.close(&member_socket.stream);
        }
        if outward == Rest::Ended && !self.outward.closed {
            if inward == Rest::Ended {
                return Step::End(self.agreed());
            }
            self.outward.close(&self.client);
        }
        if inward == Rest::Ended && outward == Rest::Ended {
            return Step::End(self.agreed());
        }
        // Otherwise a side could speak for hours to one that is gone.
        if (self.inward.lost && self.outward.has_arrived(&self.client))
            || (self.outward.lost && self.inward.has_arrived(&member_socket.stream))
        {
            return Step::End(End::Deserted);
        }
        if self.outward.holds() && !self.watches_writing {
            self.watches_writing = true;
            let token = client_token(self.key);
            let watched = tools.epoll.change(&self.client, token, Watch::Both);
            if watched.is_err() {
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
        self.is_busy = false;
        if self.phase == Phase::Open {
            self.advance(tools)
        } else {
            Step::Wait
        }
    }
}
