//! Packets of a session (RFC 5880, section 6.8.7).

use std::time::Instant;

use super::timing::{Poll, Sent};
use super::{Output, Role, Session};
use crate::packet::{Control, Micros};

impl Session {
    /// Returns whether packets may be sent without being asked for.
    pub(super) fn may_send(&self) -> bool {
        let is_begun = self.settings.role == Role::Active || self.remote.discriminator.is_some();
        is_begun && self.remote.required_min_rx.0 != 0
    }

    /// Returns whether a change may be sent before the next periodic packet. The first packet is
    /// not a change.
    pub(super) fn may_announce(&self) -> bool {
        self.may_send() && (self.sent.is_some() || self.remote.discriminator.is_some())
    }

    /// Sends a packet, of the Poll Sequence if there is one.
    pub(super) fn send(&mut self, now: Instant) {
        self.announce = false;
        let is_poll = self.poll != Poll::Idle;
        self.push(is_poll, false);
        self.note_poll(now);
        let multiplier = self.settings.detect_multiplier.get();
        self.sent = Some(Sent::new(now, multiplier, &mut self.random));
    }

    /// Answers a poll. That leaves the times of periodic packets as they are.
    pub(super) fn send_final(&mut self) {
        self.push(false, true);
    }

    /// Sends an echo.
    pub(super) fn send_echo(&mut self, now: Instant) {
        self.output.push(Output::Echo(self.token));
        let multiplier = self.settings.detect_multiplier.get();
        self.echo.sent = Some(Sent::new(now, multiplier, &mut self.random));
    }

    fn push(&mut self, is_poll: bool, is_final: bool) {
        let returns = self.settings.echo.filter(|_| self.returns_echoes);
        let mut packet = Control {
            diagnostic: self.diagnostic,
            state: self.state,
            is_poll,
            is_final,
            // It ends with the process that speaks BGP.
            is_control_plane_independent: false,
            is_demand: self.is_demand_active(),
            detect_multiplier: self.settings.detect_multiplier.get(),
            my_discriminator: self.discriminator,
            your_discriminator: self.remote.discriminator,
            desired_min_tx: Micros::from(self.advertised.transmit),
            required_min_rx: Micros::from(self.advertised.receive),
            required_min_echo_rx: returns.map_or(Micros(0), Micros::from),
            authentication: None,
        };
        let bytes = match &self.settings.authentication {
            None => packet.bytes(),
            Some(key) => {
                let sequence = self.sequences.of(&packet, key.method);
                packet.authentication = Some(key.section(sequence));
                let mut bytes = packet.bytes();
                key.seal(&mut bytes);
                bytes
            }
        };
        self.output.push(Output::Control(bytes));
    }
}
