//! Monitors: how members are checked.

use std::fmt;
use std::num::NonZeroU16;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How the members of a pool are checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Monitor {
    /// What a check does.
    pub check: Check,
    /// From the start of one check to the start of the next.
    pub delay: Duration,
    /// A check that takes longer has failed; at most `delay` and a minute, except on OpenStack.
    pub timeout: Duration,
    /// This many good checks in a row bring a member back, 1..=10.
    pub max_retries: u8,
    /// This many failed checks in a row take a member out, 1..=10.
    pub max_retries_down: u8,
    /// Checked port, where it is not the member's own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port: Option<NonZeroU16>,
    /// Requests are made over TLS, verified as the pool says.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub tls: bool,
    /// The host that requests name; `None`: the member's address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<String>,
    /// What the body of a good HTTP response contains.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub body: Option<String>,
}

/// What one check does, and what counts as good.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Check {
    /// Good when the TCP handshake completes.
    Tcp,
    /// Good when the response carries one of the codes.
    Http {
        /// Request method.
        method: HttpMethod,
        /// Request target, begins with `/`.
        path: String,
        /// Accepted status codes.
        codes: StatusCodes,
    },
    /// Good when the health service of gRPC (`grpc.health.v1`) says `SERVING`.
    Grpc {
        /// Whose health is asked for; empty: the server's as a whole.
        service: String,
    },
    /// Good unless the datagram is answered by an ICMP error before the timeout.
    UdpConnect,
}

/// Methods that an HTTP monitor may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the names are HTTP's own")]
pub enum HttpMethod {
    #[default]
    Get,
    Head,
    Options,
    Post,
    Put,
    Delete,
    Trace,
    Patch,
    Connect,
}

/// Accepted HTTP status codes: `200`, `200,202`, `200-204`, or mixtures.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct StatusCodes(Vec<(u16, u16)>);

/// A text that is not a list of status codes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a list of HTTP status codes such as 200, 200,204 or 200-299")]
pub struct InvalidStatusCodes(String);

// === impl Monitor ===

impl Monitor {
    /// The given check every 5 s, timeout 3 s, up after 1 good, down after 3 failed.
    pub fn new(check: Check) -> Self {
        Self {
            check,
            delay: Duration::from_secs(5),
            timeout: Duration::from_secs(3),
            max_retries: 1,
            max_retries_down: 3,
            port: None,
            tls: false,
            host: None,
            body: None,
        }
    }
}

// === impl HttpMethod ===

impl HttpMethod {
    /// The method as it stands in a request line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
            Self::Connect => "CONNECT",
        }
    }
}

// === impl StatusCodes ===

impl StatusCodes {
    /// Whether a status code is accepted.
    pub fn contains(&self, code: u16) -> bool {
        self.0
            .iter()
            .any(|&(first, last)| (first..=last).contains(&code))
    }

    /// The codes, first to last; single ones are both.
    pub fn ranges(&self) -> &[(u16, u16)] {
        &self.0
    }
}

impl Default for StatusCodes {
    fn default() -> Self {
        Self(vec![(200, 200)])
    }
}

impl fmt::Display for StatusCodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (first, last)) in self.0.iter().enumerate() {
            if position > 0 {
                f.write_str(",")?;
            }
            if first == last {
                write!(f, "{first}")?;
            } else {
                write!(f, "{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for StatusCodes {
    type Err = InvalidStatusCodes;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || InvalidStatusCodes(text.to_owned());
        let code = |part: &str| match part.trim().parse::<u16>() {
            Ok(code @ 100..=599) => Ok(code),
            _ => Err(refuse()),
        };
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let range = match part.split_once('-') {
                Some((first, last)) => (code(first)?, code(last)?),
                None => (code(part)?, code(part)?),
            };
            if range.0 > range.1 {
                return Err(refuse());
            }
            ranges.push(range);
        }
        Ok(Self(ranges))
    }
}

impl TryFrom<String> for StatusCodes {
    type Error = InvalidStatusCodes;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<StatusCodes> for String {
    fn from(codes: StatusCodes) -> Self {
        codes.to_string()
    }
}
