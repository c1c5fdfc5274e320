//! One flow of datagrams.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use landfall_sys::address::RawAddress;
use landfall_sys::datagram;

use super::super::slab::Key;
use crate::access_log::{self, Note};
use crate::budget::Source;
use crate::counters::Span;
use crate::listener::{ListenerState, Place};
use crate::pool::Lease;
use crate::shortage::Shortage;

/// A client and its member.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) port: Key,
    pub(super) peer: SocketAddr,
    pub(super) raw_peer: RawAddress,
    pub(super) socket: OwnedFd,
    pub(super) listener: Arc<ListenerState>,
    pub(super) lease: Lease,
    /// How many hops what was sent last had.
    pub(super) hops: u8,
    pub(super) idle: u32,
    pub(super) last_active: u64,
    pub(super) source: Option<Source>,
    /// The address that the ranges are about: the peer, or the client in its PROXY header.
    pub(super) client: SocketAddr,
    pub(super) began: u64,
    pub(super) note: Option<Box<Note>>,
    pub(super) place: Place,
}

impl Flow {
    /// Whether it must end: it is cut, or no range allows its client any more, or that is a member
    /// now.
    pub(super) fn is_over(&self) -> bool {
        let config = self.listener.config();
        self.lease.is_cut() || !config.allows(self.client.ip()) || config.would_go_round(self.peer)
    }

    /// Gives what is sent next so many hops. Should that fail, it has those of the last one.
    pub(super) fn set_hops(&mut self, hops: u8) {
        let member = self.lease.address().ip();
        if self.hops != hops && datagram::set_hops(&self.socket, member, hops).is_ok() {
            self.hops = hops;
        }
    }

    /// Measures from the first datagram to the last one.
    pub(super) fn note_end(&mut self) {
        let lasted = Duration::from_millis(self.last_active.saturating_sub(self.began));
        self.listener
            .counters()
            .mine()
            .took(Span::Connection, lasted);
        let is_over = self.note.is_some() && self.is_over();
        if let Some(mut note) = self.note.take()
            && note.facts().end == access_log::CUT
            && !is_over
        {
            note.facts().end = access_log::OK;
        }
    }

    pub(super) fn count(&mut self, bytes_in: u64, bytes_out: u64) {
        if let Some(note) = &mut self.note {
            note.facts().bytes_in += bytes_in;
            note.facts().bytes_out += bytes_out;
        }
        self.listener.counters().mine().passed(bytes_in, bytes_out);
        self.lease
            .member()
            .counters()
            .mine()
            .passed(bytes_in, bytes_out);
    }

    /// Notes that a datagram could not be sent. Returns whether that was this side's doing: the
    /// flow goes on then.
    pub(super) fn fail(&mut self, error: &io::Error) -> bool {
        self.lease.failed(error);
        self.listener.counters().mine().connect_failed(error);
        let (listener, member) = (self.listener.id(), self.lease.address());
        tracing::debug!(%listener, %member, %error, "member accepts no datagrams");
        let is_ours = Shortage::of(error).is_some();
        if let Some(note) = self.note.as_mut().filter(|_| !is_ours) {
            note.facts().end = access_log::MEMBER_FAILED;
        }
        is_ours
    }
}
