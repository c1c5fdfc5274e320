//! How a connection reaches its member.

use std::io;
use std::time::Instant;

use landfall_model::Protocol;
use landfall_sys::epoll::Event;

use super::super::member_socket::MemberSocket;
use super::super::pump::would_block;
use super::super::{Tools, member_token, millis};
use super::{Connection, End, Phase, Step};
use crate::counters::{Refusal, Span};
use crate::dial::MAX_TRIES;
use crate::pool::{Lease, Unavailable};
use crate::proxy_protocol::Header;
use crate::shortage::Shortage;

impl Connection {
    /// Chooses a member and begins to connect.
    pub(super) fn connect(&mut self, tools: &mut Tools) -> Step {
        let mut refusal = Refusal::NoMember;
        while self.tried.len() < MAX_TRIES {
            match self.listener.pool().try_pick(self.address, &self.tried) {
                Ok(lease) => {
                    if let Some(why) = self.connect_to(lease, tools) {
                        refusal = why;
                    } else {
                        return Step::Wait;
                    }
                }
                Err(Unavailable::Full) if self.tried.is_empty() => {
                    self.phase = Phase::Waiting;
                    return Step::LineUp;
                }
                Err(why) => {
                    if self.tried.is_empty() {
                        refusal = why.into();
                    }
                    break;
                }
            }
        }
        self.refuse(refusal)
    }

    /// Begins to connect to a member, or returns what it means for the client that it can't.
    pub(super) fn connect_to(&mut self, lease: Lease, tools: &mut Tools) -> Option<Refusal> {
        self.chosen = Instant::now();
        match self.try_member(&lease, tools) {
            Ok(member_socket) => {
                let within = self.listener.config().listener.timeouts.member_connect;
                let until = tools.now + u64::from(millis(within).max(1));
                self.phase = Phase::Connecting { until };
                self.member = Some((lease, member_socket));
                None
            }
            Err(error) => {
                self.note_failure(&lease, &error);
                Some(match Shortage::of(&error) {
                    Some(_) => Refusal::Local,
                    None => Refusal::NoMember,
                })
            }
        }
    }

    fn try_member(&self, lease: &Lease, tools: &mut Tools) -> io::Result<MemberSocket> {
        let address = lease.member().raw_address();
        let (user, member) = (self.key.index, lease.address());
        tools
            .member_sockets
            .connect(&tools.epoll, member, address, user, member_token)
    }

    /// Looks whether the member's handshake is over.
    pub(super) fn confirm(&mut self, event: Event, tools: &mut Tools) -> Step {
        let Some((_, member_socket)) = &self.member else {
            return Step::End(End::Closed);
        };
        // Before the handshake is over, a socket is not writable. Where the event says more than
        // that, or was about an earlier use of the socket, writing nothing shows what is true.
        if !event.is_writable() || event.is_read_closed() {
            match member_socket.stream.send(&[]) {
                Ok(_) => {}
                Err(error) if would_block(&error) => return Step::Wait,
                Err(error) => {
                    self.fail_member(tools, &error);
                    return self.connect(tools);
                }
            }
        }
        self.opened(tools);
        self.advance(tools)
    }

    fn opened(&mut self, tools: &mut Tools) {
        self.phase = Phase::Open;
        self.member_active = tools.now;
        self.tried = Vec::new();
        self.inward.writable = true;
        let counters = self.listener.counters().mine();
        counters.connected();
        counters.took(Span::Connect, self.chosen.elapsed());
        if let Some((lease, _)) = &self.member {
            lease.connected();
            lease.succeeded();
        }
        if let Some(version) = self.listener.config().listener.pool.proxy_protocol {
            let own = self.listener.id().socket_address();
            let local = self.local.as_deref().copied().unwrap_or(own);
            let header = Header::new(version, Protocol::Tcp, self.address, local);
            self.inward.hold(header.as_bytes());
        }
    }

    pub(super) fn fail_member(&mut self, tools: &mut Tools, error: &io::Error) {
        let Some((lease, member_socket)) = self.member.take() else {
            return;
        };
        tools.member_sockets.close(member_socket, false);
        self.note_failure(&lease, error);
        self.outward.readable = false;
        self.outward.more_behind = false;
    }

    fn note_failure(&mut self, lease: &Lease, error: &io::Error) {
        lease.failed(error);
        self.tried.push(lease.address());
        self.listener.counters().mine().connect_failed(error);
        let (listener, member) = (self.listener.id(), lease.address());
        tracing::debug!(%listener, %member, %error, "member could not be reached");
    }
}
