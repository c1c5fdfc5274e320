//! What keeps one client from taking all of a listener, and clients from taking all of a member.
//! Plain data; the defaults are those that the portable dialect documents.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What one source may have of a listener. A source is an IPv4 address, or an IPv6 network of /64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceLimits {
    /// Connections (UDP: flows) at once.
    pub connections: Option<u32>,
    /// New connections (UDP: flows).
    pub connection_rate: Option<Rate>,
    /// Requests, where the listener reads them.
    pub request_rate: Option<Rate>,
}

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rate {
    /// So many times, at least 1,
    pub count: u32,
    /// in this time.
    pub period: Duration,
    /// How many of them may come at once, at least 1.
    pub burst: u32,
}

/// What members of a pool are spared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Protection {
    /// Connections, flows or requests that a member has at once at most.
    pub connections: Option<u32>,
    /// How many connections and requests wait for a member at most.
    pub queue: u32,
    /// How long each of them waits.
    pub queue_timeout: Duration,
    /// How long a member that is new or healthy again gets less than its share; zero: not at all.
    pub slow_start: Duration,
    /// After so many failures in a row, a member gets nothing new for a while.
    pub outlier_failures: Option<u16>,
    /// How many tries at another member there may be at once, in percent of what the pool has.
    pub retry_budget: u8,
}

// === impl SourceLimits ===

impl SourceLimits {
    /// Whether there is no limit.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

// === impl Rate ===

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = match self.period.as_secs() {
            1 => "s".to_owned(),
            60 => "m".to_owned(),
            3600 => "h".to_owned(),
            _ => format!("{:?}", self.period),
        };
        write!(f, "{}/{period} burst={}", self.count, self.burst)
    }
}

// === impl Protection ===

impl Protection {
    /// Whether everything is a default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Protection {
    fn default() -> Self {
        Self {
            connections: None,
            queue: 1000,
            queue_timeout: Duration::from_secs(5),
            slow_start: Duration::ZERO,
            outlier_failures: None,
            retry_budget: 20,
        }
    }
}
