//! Pools and their members.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Certificate, Monitor};
use crate::protection::Protection;

/// TLS toward members.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberTls {
    /// Authorities that must have signed the certificates of members, without a key; `None`:
    /// members
    /// are not verified.
    pub authorities: Option<Arc<Certificate>>,
    /// The name that members are asked for and that their certificates must cover.
    pub server_name: String,
    /// What is shown to members that ask for a certificate.
    pub certificate: Option<Arc<Certificate>>,
}

/// The members of a listener and how one of them is chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// How a member is chosen.
    pub algorithm: Algorithm,
    /// The same client keeps its member for this long after its last connection.
    pub affinity: Option<ClientAffinity>,
    /// What is written ahead of the client's bytes toward the member.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// TLS toward members; `None`: none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tls: Option<MemberTls>,
    /// How members are checked; `None`: taken as healthy.
    pub monitor: Option<Monitor>,
    /// What members are spared.
    #[serde(skip_serializing_if = "Protection::is_default", default)]
    pub protection: Protection,
    /// Sorted by address, without duplicates.
    pub members: Vec<Member>,
}

/// How a pool chooses a member for a new connection. Names and meaning as in Octavia's API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Algorithm {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// Fewest open connections for its weight.
    LeastConnections,
    /// By hash of the client's address: the same client meets the same member.
    SourceIp,
    /// By hash of the client's address and port.
    SourceIpPort,
}

/// Session affinity by client address (`sessionAffinity: ClientIP`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientAffinity {
    /// How long an idle client is remembered. Kubernetes' default is 10800 s.
    pub timeout: Duration,
}

/// Versions of the PROXY protocol (haproxy.org, `proxy-protocol.txt`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocol {
    /// The text header.
    V1,
    /// The binary header.
    V2,
}

/// One place that serves traffic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Where to connect to.
    pub address: SocketAddr,
    /// Share of new connections relative to other members, 0..=256. Zero: drains, gets no new ones.
    pub weight: u16,
    /// Used only while every non-backup member is down.
    pub backup: bool,
    /// Leaving: finishes what it has and gets nothing new while another member can serve
    /// (`terminating` endpoints that still serve).
    pub draining: bool,
    /// The node that the endpoint runs on, where known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<Arc<str>>,
    /// What people call it: the pod's name, where known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<Arc<str>>,
}

/// How often Kubernetes lets an idle client keep its member when nothing else is said.
pub const DEFAULT_AFFINITY_TIMEOUT: Duration = Duration::from_secs(10_800);

// === impl Algorithm ===

impl Algorithm {
    /// Octavia's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RoundRobin => "ROUND_ROBIN",
            Self::LeastConnections => "LEAST_CONNECTIONS",
            Self::SourceIp => "SOURCE_IP",
            Self::SourceIpPort => "SOURCE_IP_PORT",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Member ===

impl Member {
    /// A member of weight 1 that serves.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            weight: 1,
            backup: false,
            draining: false,
            node: None,
            name: None,
        }
    }
}

// === impl Pool ===

impl Default for Pool {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::RoundRobin,
            affinity: None,
            proxy_protocol: None,
            tls: None,
            monitor: None,
            protection: Protection::default(),
            members: Vec::new(),
        }
    }
}
