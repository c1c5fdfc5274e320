//! Changes of the state of a session, and their causes.

use std::fmt;
use std::time::Duration;

use crate::packet::{Diagnostic, State};

/// A change of the state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The state before.
    pub from: State,
    /// The state now.
    pub to: State,
    /// Why.
    pub cause: Cause,
}

/// Why the state of a session changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Packets of the other side: both are there.
    Packets,
    /// No packet came for the detection time.
    Silence(Duration),
    /// The other side did not answer a Poll Sequence in this time (demand mode).
    NoAnswer(Duration),
    /// No echo came back in this time.
    NoEcho(Duration),
    /// The other side is down, for its own reason.
    Neighbor(Diagnostic),
    /// The other side was taken down by its administrator, which says nothing about the path (RFC
    /// 5882, section 3.2).
    NeighborAdministrator,
    /// The settings of this side.
    Administrator,
}

// === impl Change ===

impl Change {
    /// Returns whether the session went down, for whatever cause.
    pub fn is_down(&self) -> bool {
        self.from == State::Up
    }

    /// Returns whether the way to the peer failed: the session was Up, and not taken down on
    /// purpose by either side.
    pub fn is_failure(&self) -> bool {
        let on_purpose = [Cause::Administrator, Cause::NeighborAdministrator];
        self.is_down() && !on_purpose.contains(&self.cause)
    }
}

// === impl Cause ===

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets => f.write_str("both sides receive packets of each other"),
            Self::Silence(time) => write!(f, "no packet came for {time:?}"),
            Self::NoAnswer(time) => write!(f, "a poll had no answer for {time:?}"),
            Self::NoEcho(time) => write!(f, "no echo came back for {time:?}"),
            Self::Neighbor(diagnostic) => write!(f, "the peer is down: {diagnostic}"),
            Self::NeighborAdministrator => f.write_str("the peer is administratively down"),
            Self::Administrator => f.write_str("it is administratively down on this side"),
        }
    }
}
