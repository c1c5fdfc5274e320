//! Listener, pool, member, monitor: Octavia's words for what a load balancer is made of, used for
//! every provider. Plain data; defaults are those that the portable dialect documents.

mod monitor;
mod pool;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::protection::SourceLimits;
pub use monitor::{Check, HttpMethod, InvalidStatusCodes, Monitor, StatusCodes};
pub use pool::{
    Algorithm, ClientAffinity, DEFAULT_AFFINITY_TIMEOUT, Member, MemberTls, Pool, ProxyProtocol,
};

/// Transport protocol of a Service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// Transmission Control Protocol.
    Tcp,
    /// User Datagram Protocol.
    Udp,
    /// Stream Control Transmission Protocol.
    Sctp,
}

/// The identity of a listener of a load balancer: a transport protocol and a front port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ListenerKey {
    /// Transport protocol.
    pub protocol: Protocol,
    /// The port that clients connect to.
    pub port: NonZeroU16,
}

/// A front port of a load balancer, and everything that happens to traffic arriving there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// Protocol and port.
    pub key: ListenerKey,
    /// The name of the Service port, empty where the Service gave none.
    pub name: String,
    /// How the listener treats the bytes.
    pub mode: Mode,
    /// Which clients may connect.
    pub allowed: AllowedSources,
    /// How many connections (UDP: flows) may be open at once; `None` is no limit.
    pub connection_limit: Option<u32>,
    /// What one source may have of it.
    #[serde(skip_serializing_if = "SourceLimits::is_nothing", default)]
    pub source_limits: SourceLimits,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// How long members that leave keep their connections before these are cut.
    pub drain: Duration,
    /// Peers whose PROXY protocol header is believed; empty: no header is expected.
    pub accept_proxy_from: Vec<IpNet>,
    /// What TLS must be like that ends here.
    #[serde(skip_serializing_if = "TlsPolicy::is_default", default)]
    pub tls: TlsPolicy,
    /// Where requests are sent in place of a member, in mode `http`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub redirect: Option<Redirect>,
    /// The members.
    pub pool: Pool,
    /// Which fields were set explicitly, for providers whose cloud may have other values
    /// already.
    #[serde(skip_serializing_if = "ExplicitFields::is_nothing", default)]
    pub said: ExplicitFields,
}

/// What was said of a listener outright. Where nothing was said, a default stands there, and a
/// provider may leave what it finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExplicitFields {
    /// The mode.
    pub mode: bool,
    /// Which forwarded headers there are, and that there are no others: by the portable dialect.
    pub headers: bool,
    /// The weights of members.
    pub weights: bool,
    /// Which members are backups.
    pub backups: bool,
}

/// How a listener treats the bytes that pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Mode {
    /// Bytes (or datagrams) pass unread.
    Stream,
    /// TLS ends at the load balancer, the plain bytes pass unread.
    Tls {
        /// The certificates to present.
        certificates: Certificates,
    },
    /// HTTP/1.1 and HTTP/2 without TLS.
    Http(Http),
    /// HTTP/1.1 and HTTP/2 (by ALPN) over TLS that ends at the load balancer.
    Https {
        /// What is done with each request.
        http: Http,
        /// The certificates to present.
        certificates: Certificates,
    },
}

/// What an HTTP listener adds to requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Http {
    /// Append the client's address to `X-Forwarded-For`.
    pub forwarded_for: bool,
    /// Set `X-Forwarded-Proto` to `http` or `https`.
    pub forwarded_proto: bool,
    /// Set `X-Forwarded-Port` to the listener's port.
    pub forwarded_port: bool,
    /// Speak HTTP/2 with prior knowledge (h2c) toward members.
    pub member_http2: bool,
    /// How many proxies in front may state the client's address; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_hops: Option<u8>,
}

/// Certificate chains for TLS, in the order in which the user named them: the first is presented to
/// clients that send no name, or a name that no certificate covers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificates(pub Vec<Arc<Certificate>>);

/// One certificate chain with its private key, both PEM. The key never shows in `Debug` nor in
/// JSON.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Certificate {
    /// Where it comes from, for messages: `namespace/name` of the Secret.
    pub source: String,
    /// The chain, leaf first, PEM.
    #[serde(skip)]
    pub chain_pem: Vec<u8>,
    /// The private key, PEM (PKCS#8, PKCS#1 or SEC1).
    #[serde(skip)]
    pub key_pem: Vec<u8>,
}

/// What is asked of the TLS of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsPolicy {
    /// The oldest version that is spoken.
    pub minimum: TlsVersion,
    /// A client must ask for a name that a certificate covers.
    pub strict_names: bool,
}

/// Versions of TLS that can be asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TlsVersion {
    /// RFC 5246.
    #[default]
    #[serde(rename = "1.2")]
    V12,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    V13,
}

/// An answer that sends clients to the same resource over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Redirect {
    /// 301 or 308.
    pub status: RedirectStatus,
    /// The port to ask there.
    pub port: NonZeroU16,
}

/// The status of an answer to a resource that moved permanently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RedirectStatus {
    /// 301: clients may turn `POST` into `GET`.
    #[serde(rename = "301")]
    Moved,
    /// 308: clients keep the method.
    #[serde(rename = "308")]
    Permanent,
}

/// Which clients may connect to a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AllowedSources {
    /// All clients.
    #[default]
    All,
    /// Only clients inside one of these prefixes, of either family.
    Only(BTreeSet<IpNet>),
}

/// Timeouts of a listener. Zero means "never" only where a field says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// No byte from the client for this long ends the connection (UDP: forgets the flow).
    pub client_data: Duration,
    /// How long one try to connect to a member may take.
    pub member_connect: Duration,
    /// No byte from the member for this long ends the connection.
    pub member_data: Duration,
    /// How long to wait for the client's first bytes before a member is chosen; zero: do not wait.
    pub tcp_inspect: Duration,
}

/// The default drain time: how long leaving members keep their connections.
pub const DEFAULT_DRAIN: Duration = Duration::from_secs(300);

// === impl Protocol ===

impl Protocol {
    /// Kubernetes' spelling: `TCP`, `UDP`, `SCTP`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for ListenerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, self.protocol)
    }
}

// === impl Mode ===

impl Mode {
    /// The certificates, for modes that end TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        match self {
            Self::Tls { certificates } | Self::Https { certificates, .. } => Some(certificates),
            Self::Stream | Self::Http(_) => None,
        }
    }

    /// The HTTP options, for modes that read requests.
    pub fn http(&self) -> Option<Http> {
        match self {
            Self::Http(http) | Self::Https { http, .. } => Some(*http),
            Self::Stream | Self::Tls { .. } => None,
        }
    }

    /// One word for tables: `stream`, `tls`, `http`, `https`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Tls { .. } => "tls",
            Self::Http(_) => "http",
            Self::Https { .. } => "https",
        }
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

// === impl AllowedSources ===

impl AllowedSources {
    /// Whether a client with this address may connect. IPv4-mapped IPv6 counts as IPv4.
    pub fn contains(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        match self {
            Self::All => true,
            Self::Only(prefixes) => prefixes.iter().any(|prefix| prefix.contains(&client)),
        }
    }
}

// === impl ExplicitFields ===

impl ExplicitFields {
    /// Whether everything is a default.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

// === impl TlsPolicy ===

impl TlsPolicy {
    /// Whether it asks for nothing that is not asked of every client.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

// === impl RedirectStatus ===

impl RedirectStatus {
    /// The number.
    pub fn code(self) -> u16 {
        match self {
            Self::Moved => 301,
            Self::Permanent => 308,
        }
    }
}

// === impl Timeouts ===

impl Default for Timeouts {
    /// Octavia's defaults: 50 s, 5 s, 50 s, 0.
    fn default() -> Self {
        Self {
            client_data: Duration::from_secs(50),
            member_connect: Duration::from_secs(5),
            member_data: Duration::from_secs(50),
            tcp_inspect: Duration::ZERO,
        }
    }
}

// === impl Listener ===

impl Listener {
    /// A listener with every option at its default and no member yet.
    pub fn new(protocol: Protocol, port: NonZeroU16) -> Self {
        Self {
            key: ListenerKey { protocol, port },
            name: String::new(),
            mode: Mode::Stream,
            allowed: AllowedSources::All,
            connection_limit: None,
            source_limits: SourceLimits::default(),
            timeouts: Timeouts::default(),
            drain: DEFAULT_DRAIN,
            accept_proxy_from: Vec::new(),
            tls: TlsPolicy::default(),
            redirect: None,
            pool: Pool::default(),
            said: ExplicitFields::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_codes_accept_lists_and_ranges() {
        let codes: StatusCodes = "200, 204,300-302".parse().unwrap();
        assert!(
            [200, 204, 300, 301, 302]
                .iter()
                .all(|&code| codes.contains(code))
        );
        assert!(![199, 201, 303].iter().any(|&code| codes.contains(code)));
        assert_eq!(codes.to_string(), "200,204,300-302");
    }

    #[test]
    fn status_codes_refuse_what_is_none() {
        for text in ["", "ok", "99", "600", "204-200", "200,", "200-"] {
            assert!(
                text.parse::<StatusCodes>().is_err(),
                "{text:?} should be refused"
            );
        }
    }

    #[test]
    fn a_mapped_client_counts_as_ipv4() {
        let allowed = AllowedSources::Only(BTreeSet::from(["10.0.0.0/8".parse().unwrap()]));
        assert!(allowed.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!allowed.contains("::ffff:11.1.2.3".parse().unwrap()));
    }

    #[test]
    fn a_private_key_shows_neither_in_debug_nor_in_json() {
        let certificate = Certificate {
            source: "shop/tls".into(),
            chain_pem: b"chain".to_vec(),
            key_pem: b"hidden".to_vec(),
        };
        let shown = format!(
            "{certificate:?}{}",
            serde_json::to_string(&certificate).unwrap()
        );
        assert!(
            !shown.contains("hidden") && !shown.contains("104"),
            "{shown}"
        );
    }
}
