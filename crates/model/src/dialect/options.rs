//! What annotations come down to: typed options, each with the key it was given under.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;

use ipnet::IpNet;

use super::extensions::Extensions;
use super::given::Given;
use super::nodes::NodeSelector;
use crate::listener::{Algorithm, HttpMethod, ProxyProtocol, Redirect, StatusCodes, TlsVersion};
use crate::protection::Rate;
use crate::rows::ServicePort;
use crate::target::Target;

/// Everything that annotations say about a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceOptions {
    /// Exactly these addresses. One entry per annotation that asks, so that contradictions show.
    pub addresses: Vec<Given<Vec<IpAddr>>>,
    /// Only from this address pool.
    pub address_pool: Option<Given<String>>,
    /// How many addresses of each family.
    pub address_count: Option<Given<u8>>,
    /// Services with an equal key may share an address.
    pub sharing_key: Option<Given<String>>,
    /// Published in the status instead of the address.
    pub hostname: Option<Given<String>>,
    /// Whether members are pods or nodes.
    pub target_type: Option<Given<Target>>,
    /// Which nodes are members.
    pub node_selector: Option<Given<NodeSelector>>,
    /// Options that a single provider supports.
    pub extensions: Extensions,
    /// What holds for every port that has nothing of its own.
    pub common: PortOptions,
    /// What single ports have of their own.
    pub per_port: BTreeMap<PortRef, PortOptions>,
}

/// How an annotation names a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortRef {
    /// By its number. A number may stand for two ports, of different protocols.
    Number(NonZeroU16),
    /// By its name.
    Name(String),
}

macro_rules! port_options {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ty,)+) => {
        /// What annotations say about a port; `None` where they say nothing.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct PortOptions {
            $($(#[doc = $doc])+ pub $name: Option<Given<$kind>>,)+
        }

        impl PortOptions {
            /// These options, and those of `base` where these say nothing.
            #[must_use]
            pub fn or(&self, base: &Self) -> Self {
                Self {
                    $($name: self.$name.clone().or_else(|| base.$name.clone()),)+
                }
            }

            /// The annotations of `base` in whose place these options speak.
            pub fn shadowed<'a>(&self, base: &'a Self) -> Vec<&'a str> {
                let mut shadowed = Vec::new();
                $(if let (Some(_), Some(given)) = (&self.$name, &base.$name) {
                    shadowed.push(given.annotation.as_str());
                })+
                shadowed
            }
        }
    };
}

port_options! {
    /// Members in place of the EndpointSlices'.
    endpoints: Vec<EndpointSpec>,
    /// How a member is chosen.
    algorithm: Algorithm,
    /// How the bytes are treated.
    mode: ModeChoice,
    /// Secrets with certificates, the first is the default.
    tls_secrets: Vec<String>,
    /// What is added to requests.
    forwarded_headers: ForwardedHeaders,
    /// How many proxies in front are believed.
    trusted_hops: u8,
    /// What is spoken toward members of an HTTP listener.
    member_protocol: MemberProtocol,
    /// Which header is written toward members; inner `None`: none.
    proxy_protocol: Option<ProxyProtocol>,
    /// Peers whose header is believed.
    accept_proxy_from: BTreeSet<IpNet>,
    /// Connections open at once; inner `None`: no limit.
    connection_limit: Option<u32>,
    /// Silence of the client that ends a connection.
    timeout_client_data: Duration,
    /// The timeout of connecting to a member.
    timeout_member_connect: Duration,
    /// Silence of the member that ends a connection.
    timeout_member_data: Duration,
    /// How long to wait for the client's first bytes.
    timeout_tcp_inspect: Duration,
    /// How long leaving members keep their connections.
    drain: Duration,
    /// Which clients may connect.
    source_ranges: BTreeSet<IpNet>,
    /// How members are checked.
    monitor: MonitorChoice,
    /// Request method of an HTTP check.
    monitor_method: HttpMethod,
    /// Request target of an HTTP check.
    monitor_path: String,
    /// Accepted status codes of an HTTP check.
    monitor_codes: StatusCodes,
    /// Time between checks.
    monitor_delay: Duration,
    /// The timeout of one check.
    monitor_timeout: Duration,
    /// Good checks that bring a member back.
    monitor_max_retries: u8,
    /// Failed checks that take a member out.
    monitor_max_retries_down: u8,
    /// Checked port.
    monitor_port: NonZeroU16,
    /// Weights of single members.
    member_weights: BTreeMap<MemberRef, u16>,
    /// Members that serve only when no other can.
    backup_members: BTreeSet<MemberRef>,
    /// Connections of one source at once; inner `None`: no limit.
    source_connection_limit: Option<u32>,
    /// New connections of one source; inner `None`: no limit.
    source_connection_rate: Option<Rate>,
    /// Requests of one source; inner `None`: no limit.
    source_request_rate: Option<Rate>,
    /// What a member has at once; inner `None`: no limit.
    member_connection_limit: Option<u32>,
    /// How many wait for a member.
    member_queue: u32,
    /// How long each of them waits.
    member_queue_timeout: Duration,
    /// How long a member that begins gets less.
    slow_start: Duration,
    /// Failures in a row after which a member gets nothing new; inner `None`: never.
    outlier_detection: Option<u16>,
    /// Tries at another member, in percent of what the pool has.
    retry_budget: u8,
    /// The oldest version of TLS that clients may speak.
    tls_minimum_version: TlsVersion,
    /// Whether clients must ask for a name that a certificate covers.
    tls_strict_names: bool,
    /// Where requests are sent in place of a member; inner `None`: nowhere.
    https_redirect: Option<Redirect>,
    /// TLS toward members.
    member_tls: MemberTlsChoice,
    /// The Secret with the authorities that sign members' certificates.
    member_ca_secret: String,
    /// The name in members' certificates.
    member_server_name: String,
    /// The Secret with the certificate that members are shown.
    member_client_secret: String,
    /// The host that requests of checks name.
    monitor_host: String,
    /// What the body of a good response contains.
    monitor_body: String,
    /// Whose health a gRPC check asks for.
    monitor_grpc_service: String,
}

/// A member that an annotation names outright.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSpec {
    /// Where it is.
    pub address: SocketAddr,
    /// Its weight, where one stands beside it.
    pub weight: Option<u16>,
    /// Whether it is marked as backup.
    pub backup: bool,
}

/// How a listener treats bytes, without what that needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModeChoice {
    /// Pass them unread.
    #[default]
    Stream,
    /// End TLS, pass the plain bytes unread.
    Tls,
    /// Read HTTP requests.
    Http,
    /// End TLS, read HTTP requests.
    Https,
}

/// Which headers are added to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedHeaders {
    /// `X-Forwarded-For`
    pub client: bool,
    /// `X-Forwarded-Proto`
    pub proto: bool,
    /// `X-Forwarded-Port`
    pub port: bool,
}

/// HTTP versions toward members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
}

/// TLS toward members, as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberTlsChoice {
    /// None.
    Off,
    /// With certificates that are verified.
    Verify,
    /// With any certificate.
    Insecure,
}

/// Kinds of checks, as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitorChoice {
    /// None.
    Off,
    /// The kind that fits the port's protocol.
    On,
    /// A TCP connection.
    Tcp,
    /// An HTTP request.
    Http,
    /// An HTTP request over TLS.
    Https,
    /// A question to the health service of gRPC.
    Grpc,
    /// A datagram.
    UdpConnect,
}

/// How an annotation names a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemberRef {
    /// By its address, whatever the port.
    Address(IpAddr),
    /// By its pod's name.
    Name(String),
}

// === impl ServiceOptions ===

impl ServiceOptions {
    /// The names of all Secrets that are asked for, in the namespace of the Service.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let ports = std::iter::once(&self.common).chain(self.per_port.values());
        ports.flat_map(|port| {
            let lists = port.tls_secrets.iter().flat_map(|given| &given.value);
            let single = port.member_ca_secret.iter();
            let single = single.chain(&port.member_client_secret);
            lists
                .chain(single.map(|given| &given.value))
                .map(String::as_str)
        })
    }

    /// What was written for this very port: under its name, else under its number.
    pub fn own(&self, port: &ServicePort) -> PortOptions {
        let of = |key: &PortRef| self.per_port.get(key).cloned().unwrap_or_default();
        let by_name = of(&PortRef::Name(port.name.clone()));
        by_name.or(&of(&PortRef::Number(port.port)))
    }

    /// What holds for a port: its own options, else the common ones.
    pub fn effective(&self, port: &ServicePort) -> PortOptions {
        self.own(port).or(&self.common)
    }
}

// === impl PortRef ===

impl PortRef {
    /// What the part of a key behind the `.` stands for among these ports: a name before a number.
    pub fn find(text: &str, ports: &[ServicePort]) -> Option<Self> {
        if !text.is_empty() && ports.iter().any(|port| port.name == text) {
            return Some(Self::Name(text.to_owned()));
        }
        let number = text.parse().ok()?;
        let known = ports.iter().any(|port| port.port == number);
        known.then_some(Self::Number(number))
    }
}

// === impl ModeChoice ===

impl ModeChoice {
    /// The word that stands for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Tls => "tls",
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Whether requests are read.
    pub fn reads_requests(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    /// Whether TLS ends at the load balancer.
    pub fn ends_tls(self) -> bool {
        matches!(self, Self::Tls | Self::Https)
    }
}

// === impl ForwardedHeaders ===

impl ForwardedHeaders {
    /// All of them: the default of listeners that read requests.
    pub const ALL: Self = Self {
        client: true,
        proto: true,
        port: true,
    };
    /// None of them.
    pub const NONE: Self = Self {
        client: false,
        proto: false,
        port: false,
    };
}

// === impl MemberRef ===

impl fmt::Display for MemberRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}
