//! Sequence numbers of authenticated packets (RFC 5880, section 6.7.4).

use crate::packet::Control;
use crate::packet::authentication::{Method, Section};

/// The sequence numbers of both directions.
#[derive(Debug)]
pub(super) struct Sequences {
    next: u32,
    /// What was sent last, without its section.
    sent: Option<Control>,
    received: Option<u32>,
}

// === impl Sequences ===

impl Sequences {
    pub(super) fn new(first: u32) -> Self {
        Self {
            next: first,
            sent: None,
            received: None,
        }
    }

    /// Returns the number for a packet. It grows with every packet, or with every packet that says
    /// something new.
    pub(super) fn of(&mut self, packet: &Control, method: Method) -> u32 {
        let is_new = self.sent.replace(*packet) != Some(*packet);
        if is_new || method == Method::MeticulousKeyedSha1 {
            self.next = self.next.wrapping_add(1);
        }
        self.next
    }

    /// Returns whether a packet may be new: its number lies in the window that the RFC gives.
    pub(super) fn accepts(&self, section: &Section, detect_multiplier: u8) -> bool {
        let Some(received) = self.received else {
            return true;
        };
        let ahead = section.sequence.wrapping_sub(received);
        let least = match section.method {
            Method::KeyedSha1 => 0,
            Method::MeticulousKeyedSha1 => 1,
        };
        (least..=3 * u32::from(detect_multiplier)).contains(&ahead)
    }

    /// Notes the number of a packet whose digest was right.
    pub(super) fn note(&mut self, section: &Section) {
        self.received = Some(section.sequence);
    }

    /// Returns whether the other side's number is known.
    pub(super) fn is_known(&self) -> bool {
        self.received.is_some()
    }

    /// Forgets the other side's number: it was silent for so long that it may have restarted.
    pub(super) fn forget(&mut self) {
        self.received = None;
    }
}
