//! The result of a check: a sign of life, or the failure.

use std::time::Duration;
use std::{fmt, io};

use landfall_model::listener::StatusCodes;

use super::fsm::Verdict;
use crate::shortage::Shortage;

/// A response whose head is longer is not waited for: the monitor reads status codes, not pages.
pub(super) const MAX_HEAD: usize = 16 * 1024;

/// A good check, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The TCP handshake completed.
    Connected,
    /// An HTTP response with an accepted code.
    Status(u16),
    /// gRPC's health service says so.
    Serving,
    /// A datagram came back.
    Answered,
    /// Nothing said that the UDP port is closed.
    NotRefused,
}

/// What was wrong, in words for the status page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The port is closed.
    #[error("connection refused")]
    Refused,
    /// No complete answer in the time allowed.
    #[error("no answer in {}", Seconds(*.0))]
    TimedOut(Duration),
    /// Another code than the accepted ones.
    #[error("HTTP {got}, expected {wanted}")]
    Status {
        /// The response's code.
        got: u16,
        /// The accepted codes.
        wanted: StatusCodes,
    },
    /// Accepted by its code, but not by its body.
    #[error("the body does not contain {wanted:?}")]
    Body {
        /// What should be in it.
        wanted: String,
    },
    /// gRPC's health service says otherwise, or does not exist.
    #[error("gRPC health: {0}")]
    Grpc(String),
    /// There is no TLS with this member; the text says so.
    #[error("{0}")]
    Tls(String),
    /// The answer is no HTTP/1 response.
    #[error("the answer is not HTTP/1")]
    NotHttp,
    /// The answer is no HTTP/2 response.
    #[error("the answer is not HTTP/2")]
    NotHttp2,
    /// The response's head does not end.
    #[error("the head of the response is longer than {MAX_HEAD} bytes")]
    HeadTooLong,
    /// The connection ended before the answer did.
    #[error("closed before answering")]
    Closed,
    /// Another failure of the network.
    #[error("{0}")]
    Network(String),
    /// The check could not be carried out on this side; says nothing about the member.
    #[error("could not be checked: {0}")]
    Here(String),
}

struct Seconds(Duration);

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("connected"),
            Self::Status(code) => write!(f, "HTTP {code}"),
            Self::Serving => f.write_str("gRPC SERVING"),
            Self::Answered => f.write_str("answered"),
            Self::NotRefused => f.write_str("not refused"),
        }
    }
}

impl Failure {
    /// What the failure says about the member.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Here(_) => Verdict::Unclear,
            Self::Refused
            | Self::TimedOut(_)
            | Self::Status { .. }
            | Self::Body { .. }
            | Self::Grpc(_)
            | Self::Tls(_)
            | Self::NotHttp
            | Self::NotHttp2
            | Self::HeadTooLong
            | Self::Closed
            | Self::Network(_) => Verdict::Bad,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => Self::Closed,
            io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::AddrInUse
            | io::ErrorKind::OutOfMemory
            | io::ErrorKind::PermissionDenied => Self::Here(plain(&error)),
            _ if Shortage::of(&error).is_some() => Self::Here(plain(&error)),
            _ => Self::Network(plain(&error)),
        }
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.subsec_nanos() == 0 {
            write!(f, "{} s", self.0.as_secs())
        } else {
            write!(f, "{} ms", self.0.as_millis())
        }
    }
}

/// The system's words without Rust's `(os error 113)`.
fn plain(error: &io::Error) -> String {
    let text = error.to_string().to_lowercase();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
