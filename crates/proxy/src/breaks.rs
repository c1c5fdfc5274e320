//! Streams that one side broke off: which side, and how. Pure.

use std::io;

/// A side, and what the system said of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The client reset the connection.
    ClientReset,
    /// It takes no more, but had not said so.
    ClientPipe,
    /// Its system acknowledges nothing any more.
    ClientTimeout,
    /// Anything else.
    ClientOther,
    /// As [`Self::ClientReset`], of the member.
    MemberReset,
    /// As [`Self::ClientPipe`], of the member.
    MemberPipe,
    /// As [`Self::ClientTimeout`], of the member.
    MemberTimeout,
    /// As [`Self::ClientOther`], of the member.
    MemberOther,
}

// === impl Break ===

impl Break {
    /// Every one, in the order in which totals list them.
    pub const ALL: [Self; 8] = [
        Self::ClientReset,
        Self::ClientPipe,
        Self::ClientTimeout,
        Self::ClientOther,
        Self::MemberReset,
        Self::MemberPipe,
        Self::MemberTimeout,
        Self::MemberOther,
    ];

    /// The metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClientReset => "client_reset",
            Self::ClientPipe => "client_pipe",
            Self::ClientTimeout => "client_timeout",
            Self::ClientOther => "client_other",
            Self::MemberReset => "member_reset",
            Self::MemberPipe => "member_pipe",
            Self::MemberTimeout => "member_timeout",
            Self::MemberOther => "member_other",
        }
    }

    /// Returns what a failure of the client's socket means.
    pub(crate) fn of_client(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset => Self::ClientReset,
            io::ErrorKind::BrokenPipe => Self::ClientPipe,
            io::ErrorKind::TimedOut => Self::ClientTimeout,
            _ => Self::ClientOther,
        }
    }

    /// Returns what a failure of the member's socket means.
    pub(crate) fn of_member(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset => Self::MemberReset,
            io::ErrorKind::BrokenPipe => Self::MemberPipe,
            io::ErrorKind::TimedOut => Self::MemberTimeout,
            _ => Self::MemberOther,
        }
    }
}
