//! Listener, pool, member, monitor: Octavia's words for what a load balancer is made of, used for
//! every provider. Plain data; defaults are those that the portable dialect documents.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::protection::{Protection, SourceLimits};

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

/// What tells the listeners of one load balancer apart: a transport protocol and a front port.
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
    /// Time-outs.
    pub timeouts: Timeouts,
    /// How long members that leave keep their connections before these are cut.
    pub drain: Duration,
    /// Peers whose PROXY protocol header is believed; empty: no header is expected from anybody.
    pub accept_proxy_from: Vec<IpNet>,
    /// What TLS must be like that ends here.
    #[serde(skip_serializing_if = "TlsPolicy::is_default", default)]
    pub tls: TlsPolicy,
    /// Where requests are sent in place of a member, in mode `http`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub redirect: Option<Redirect>,
    /// Who serves the traffic.
    pub pool: Pool,
    /// What of this somebody said outright, for providers whose cloud may have other opinions
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
    /// How many proxies in front are believed what they say of the client; `None`: everybody is.
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

/// How an answer says that a resource is elsewhere for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RedirectStatus {
    /// 301: clients may turn `POST` into `GET`.
    #[serde(rename = "301")]
    Moved,
    /// 308: clients keep the method.
    #[serde(rename = "308")]
    Permanent,
}

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

/// Which clients may connect to a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AllowedSources {
    /// Everybody.
    #[default]
    All,
    /// Only clients inside one of these prefixes, of either family.
    Only(BTreeSet<IpNet>),
}

/// Time-outs of a listener. Zero means "never" only where a field says so.
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
    /// Good unless the datagram is answered by an ICMP error before the time-out.
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

/// How often Kubernetes lets an idle client keep its member when nothing else is said.
pub const DEFAULT_AFFINITY_TIMEOUT: Duration = Duration::from_secs(10_800);

/// How long leaving members keep their connections unless told otherwise.
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

// === impl Monitor ===

impl Monitor {
    /// The given check every 5 s, time-out 3 s, up after 1 good, down after 3 failed.
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
            key_pem: b"hush".to_vec(),
        };
        let shown = format!(
            "{certificate:?}{}",
            serde_json::to_string(&certificate).unwrap()
        );
        assert!(!shown.contains("hush") && !shown.contains("104"), "{shown}");
    }
}
