//! What a session makes of a packet (RFC 5880, section 6.8.6).

use std::time::Instant;

use super::{Cause, Remote, Session};
use crate::packet::{Control, Diagnostic, State};

/// Why a packet that names a session is discarded. The session does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Discard {
    /// The session has no key.
    #[error("the packet is authenticated, but the session is not")]
    UnexpectedAuthentication,
    /// The session has a key.
    #[error("the packet is not authenticated, but the session is")]
    MissingAuthentication,
    /// Another method or key, or a digest that is wrong.
    #[error("the authentication of the packet is wrong (method, key id or key)")]
    WrongAuthentication,
    /// The packet was seen before, or is far ahead.
    #[error("the sequence number of the packet is out of its window")]
    Sequence,
}

impl Session {
    /// Takes a packet that was sent to this session, with the bytes that it was read from.
    pub fn receive(&mut self, packet: &Control, bytes: &[u8], now: Instant) -> Result<(), Discard> {
        self.authenticate(packet, bytes)?;
        let was_demand = self.is_demand_active();
        self.remote = Remote::from(packet);
        self.received = Some(now);
        if packet.is_final {
            self.end_poll(now);
        }
        if self.state != State::AdminDown {
            self.advance(packet, now);
        }
        if was_demand != self.is_demand_active() {
            // The bit in our packets changes, too.
            self.verified = now;
            self.announce = true;
            self.begin_poll();
        }
        if self.remote.required_min_echo_rx.0 == 0 {
            self.echo = super::Echo::default();
        }
        self.negotiate();
        if packet.is_poll && self.state != State::AdminDown {
            self.send_final();
        }
        self.settle(now);
        Ok(())
    }

    /// Takes an echo that came back. Returns whether it is one of this session.
    pub fn receive_echo(&mut self, token: u64, now: Instant) -> bool {
        let is_ours = token == self.token && self.echo_interval().is_some();
        if is_ours {
            self.echo.returned = Some(now);
            self.settle(now);
        }
        is_ours
    }

    fn authenticate(&mut self, packet: &Control, bytes: &[u8]) -> Result<(), Discard> {
        match (&self.settings.authentication, &packet.authentication) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(Discard::UnexpectedAuthentication),
            (Some(_), None) => Err(Discard::MissingAuthentication),
            (Some(key), Some(section)) => {
                if !self.sequences.accepts(section, packet.detect_multiplier) {
                    return Err(Discard::Sequence);
                }
                if !key.verify(bytes, section) {
                    return Err(Discard::WrongAuthentication);
                }
                self.sequences.note(section);
                Ok(())
            }
        }
    }

    /// The table of states. A session that is held down stays so.
    fn advance(&mut self, packet: &Control, now: Instant) {
        let neighbor = |diagnostic| match packet.state {
            State::AdminDown => Cause::NeighborAdministrator,
            _ => Cause::Neighbor(diagnostic),
        };
        match (self.state, packet.state) {
            (State::Down, State::Down) => self.change(State::Init, Cause::Packets, now),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                self.change(State::Up, Cause::Packets, now);
            }
            (State::Init | State::Up, State::AdminDown) | (State::Up, State::Down) => {
                self.diagnostic = Diagnostic::NeighborDown;
                self.change(State::Down, neighbor(packet.diagnostic), now);
            }
            (State::AdminDown, _)
            | (State::Down, State::AdminDown | State::Up)
            | (State::Init, State::Down)
            | (State::Up, State::Init | State::Up) => {}
        }
    }
}
