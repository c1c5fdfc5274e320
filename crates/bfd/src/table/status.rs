//! What is known of a session, as values.

use std::time::Instant;

use super::Rejection;
use crate::session::{Cause, View};

/// One session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its state machine.
    pub session: View,
    /// When its state changed last.
    pub since: Instant,
    /// Counts since it is wanted.
    pub counters: Counters,
    /// Why it went down last.
    pub last_down: Option<Cause>,
    /// Why a packet to it was rejected last.
    pub last_rejection: Option<Rejection>,
    /// Why its packets, or else its echoes, cannot be sent or received.
    pub fault: Option<String>,
}

/// Counts of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Control packets that it accepted.
    pub control_in: u64,
    /// Control packets that it sent.
    pub control_out: u64,
    /// Echoes that came back.
    pub echo_in: u64,
    /// Echoes that it sent.
    pub echo_out: u64,
    /// Packets of the other side that it rejected.
    pub rejected: u64,
    /// Packets that the kernel did not take.
    pub unsent: u64,
    /// How often it came up.
    pub ups: u64,
    /// How often it went down.
    pub downs: u64,
}

/// Counts of packets that changed no session, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discards {
    /// No packets of BFD.
    pub malformed: u64,
    /// For no session.
    pub unknown: u64,
    /// With a TTL that is too small.
    pub ttl: u64,
    /// With an authentication that is wrong, missing or not expected.
    pub authentication: u64,
}

// === impl Discards ===

impl Discards {
    pub(super) fn count(&mut self, rejection: Rejection) {
        let counter = match rejection {
            Rejection::Malformed(_) => &mut self.malformed,
            Rejection::Unknown => &mut self.unknown,
            Rejection::Ttl { .. } => &mut self.ttl,
            Rejection::Discarded(_) => &mut self.authentication,
        };
        *counter += 1;
    }
}
