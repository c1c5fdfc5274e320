//! The portable dialect, `landfall.dev/*`: works with every provider, strict about its values.

use std::time::Duration;

use super::options::{MemberProtocol, ModeChoice, MonitorChoice, put};
use super::value::{self, A_DAY};
use super::{Dialect, Effect, OptionRow};
use crate::dialect::options::Given;
use crate::listener::{Algorithm, HttpMethod, ProxyProtocol};
use crate::reason::Severity;

/// The portable dialect.
pub(super) static DIALECT: Dialect = Dialect {
    title: "Portable options: `landfall.dev/*`",
    prefix: "landfall.dev/",
    per_port: true,
    unknown: Some(Severity::Error),
    empty_is_absent: false,
    successor: None,
    not_on_openstack: None,
    about: "\
These work with every provider, or are refused with a reason where a provider can't do them. A value that an
option does not take, and a key that is not in this list, is an error: the Service keeps what it had before and
says what is wrong.",
    rows: ROWS,
};

const MILLISECOND: Duration = Duration::from_millis(1);
const SHORTEST_DELAY: Duration = Duration::from_millis(100);
const AN_HOUR: Duration = Duration::from_hours(1);

pub(super) const ALGORITHMS: [(&str, Algorithm); 4] = [
    ("ROUND_ROBIN", Algorithm::RoundRobin),
    ("LEAST_CONNECTIONS", Algorithm::LeastConnections),
    ("SOURCE_IP", Algorithm::SourceIp),
    ("SOURCE_IP_PORT", Algorithm::SourceIpPort),
];

const METHODS: [(&str, HttpMethod); 9] = [
    ("GET", HttpMethod::Get),
    ("HEAD", HttpMethod::Head),
    ("OPTIONS", HttpMethod::Options),
    ("POST", HttpMethod::Post),
    ("PUT", HttpMethod::Put),
    ("DELETE", HttpMethod::Delete),
    ("TRACE", HttpMethod::Trace),
    ("PATCH", HttpMethod::Patch),
    ("CONNECT", HttpMethod::Connect),
];

macro_rules! port {
    ($option:literal, $field:ident, $parse:expr) => {
        Effect::Port {
            option: $option,
            set: |port, text| {
                let parse = $parse;
                put(&mut port.$field, text, parse(text.value)?)
            },
        }
    };
}

macro_rules! service {
    ($option:literal, $field:ident, $parse:expr) => {
        Effect::Service {
            option: $option,
            set: |service, text| {
                let parse = $parse;
                put(&mut service.$field, text, parse(text.value)?)
            },
        }
    };
}

pub(super) use service;

const ROWS: &[OptionRow] = &[
    OptionRow {
        name: "addresses",
        takes: "an IP address, or an IPv4 and an IPv6 address with a comma between them",
        default: "any free address of a suitable pool",
        summary: "Exactly these addresses. They must be free and in one address pool. Annotations \
                  and `spec.loadBalancerIP` that ask for different ones are an error.",
        example: "192.0.2.10, 2001:db8::10",
        effect: Effect::Service {
            option: "addresses",
            set: |service, text| {
                service.addresses.push(Given {
                    value: value::addresses(text.value)?,
                    annotation: text.annotation.to_owned(),
                });
                Ok(super::Outcome::Decided)
            },
        },
    },
    OptionRow {
        name: "address-pool",
        takes: "the name of an address pool",
        default: "every pool that serves the Service, by priority",
        summary: "Take the address from this pool and from no other, even if the pool is not handed out automatically.",
        example: "public",
        effect: service!("address-pool", address_pool, value::some_text),
    },
    OptionRow {
        name: "sharing-key",
        takes: "any text",
        default: "the address is not shared",
        summary: "Services with the same text may hold one address, as long as their ports differ and, with \
                  `externalTrafficPolicy: Local`, their selectors are equal.",
        example: "office",
        effect: service!("sharing-key", sharing_key, value::some_text),
    },
    OptionRow {
        name: "hostname",
        takes: "a DNS name",
        default: "the address is published",
        summary: "Published in `status.loadBalancer` in place of the address.",
        example: "web.example.org",
        effect: service!("hostname", hostname, value::dns_name),
    },
    OptionRow {
        name: "endpoints",
        takes: "`HOST:PORT[ weight=N][ backup]`, with commas between them; the host is an IP address (IPv6 in \
                brackets) or `localhost`, which is 127.0.0.1",
        default: "the Service's EndpointSlices",
        summary: "Members, named outright. Names are not looked up.",
        example: "10.0.0.1:8080 weight=3, [2001:db8::1]:8080, localhost:8081 backup",
        effect: port!("endpoints", endpoints, value::endpoints),
    },
    OptionRow {
        name: "algorithm",
        takes: "`ROUND_ROBIN`, `LEAST_CONNECTIONS`, `SOURCE_IP` or `SOURCE_IP_PORT`",
        default: "`ROUND_ROBIN`",
        summary: "How a member is chosen for a new connection: in turn by weight; the fewest open connections for \
                  its weight; by a hash of the client's address; by a hash of the client's address and port.",
        example: "LEAST_CONNECTIONS",
        effect: port!("algorithm", algorithm, |text| value::word(
            text,
            &ALGORITHMS
        )),
    },
    OptionRow {
        name: "mode",
        takes: "`stream`, `tls`, `http` or `https`",
        default: "`stream`",
        summary: "`stream` passes bytes and datagrams unread. `tls` ends TLS and passes the plain bytes. `http` reads \
                  HTTP/1.1 and HTTP/2 requests. `https` ends TLS and reads requests. UDP ports are always `stream`. On \
                  OpenStack `stream` keeps a port from ending TLS with a certificate that is for all ports.",
        example: "stream",
        effect: port!("mode", mode, |text| value::word(
            text,
            &[
                ("stream", ModeChoice::Stream),
                ("tls", ModeChoice::Tls),
                ("http", ModeChoice::Http),
                ("https", ModeChoice::Https),
            ]
        )),
    },
    OptionRow {
        name: "tls-secret",
        takes: "names of Secrets of type `kubernetes.io/tls` in the Service's namespace, with commas between them",
        default: "none; needed in mode `tls` and `https`",
        summary: "The certificates. Clients get the one that fits the name they ask for (SNI), else the first.",
        example: "web-tls,wildcard-tls",
        effect: port!("tls-secret", tls_secrets, value::secret_names),
    },
    OptionRow {
        name: "forwarded-headers",
        takes: "some of `for`, `proto`, `port` with commas between them, or `none`",
        default: "`for,proto,port`",
        summary: "In mode `http` and `https`: which of `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Port` \
                  are added to requests.",
        example: "for,proto",
        effect: port!(
            "forwarded-headers",
            forwarded_headers,
            value::forwarded_headers
        ),
    },
    OptionRow {
        name: "member-protocol",
        takes: "`http1` or `http2`",
        default: "`http1`; `http2` where the port's `appProtocol` is `kubernetes.io/h2c`",
        summary: "In mode `http` and `https`: what is spoken toward members, HTTP/1.1 or HTTP/2 without TLS.",
        example: "http2",
        effect: port!("member-protocol", member_protocol, |text| value::word(
            text,
            &[
                ("http1", MemberProtocol::Http1),
                ("http2", MemberProtocol::Http2)
            ]
        )),
    },
    OptionRow {
        name: "proxy-protocol",
        takes: "`v1`, `v2` or `off`",
        default: "`off`",
        summary: "Write a PROXY protocol header with the client's address ahead of each connection toward a member. Not \
                  in mode `http` and `https`. On a UDP port only `v2`, and only when it is written for that port itself.",
        example: "v2",
        effect: port!("proxy-protocol", proxy_protocol, |text| value::word(
            text,
            &[
                ("v1", Some(ProxyProtocol::V1)),
                ("v2", Some(ProxyProtocol::V2)),
                ("off", None),
            ]
        )),
    },
    OptionRow {
        name: "accept-proxy-protocol-from",
        takes: "prefixes in CIDR notation with commas between them",
        default: "nobody",
        summary: "Connections from these peers must begin with a PROXY protocol header, and the client's address is \
                  taken from it. TCP only.",
        example: "10.0.0.0/8,fd00::/8",
        effect: port!(
            "accept-proxy-protocol-from",
            accept_proxy_from,
            value::cidrs
        ),
    },
    OptionRow {
        name: "connection-limit",
        takes: "a number of at least 1, or `none`",
        default: "`none`",
        summary: "How many connections (UDP: flows) the port may have open at once.",
        example: "1000",
        effect: port!(
            "connection-limit",
            connection_limit,
            value::connection_limit
        ),
    },
    OptionRow {
        name: "timeout-client-data",
        takes: "a time from `1ms` to `24h`",
        default: "`50s`",
        summary: "No byte from the client for this long ends the connection (UDP: forgets the flow).",
        example: "5m",
        effect: port!("timeout-client-data", timeout_client_data, |text| {
            value::duration(text, MILLISECOND..=A_DAY)
        }),
    },
    OptionRow {
        name: "timeout-member-connect",
        takes: "a time from `1ms` to `24h`",
        default: "`5s`",
        summary: "How long one try to connect to a member may take.",
        example: "500ms",
        effect: port!("timeout-member-connect", timeout_member_connect, |text| {
            value::duration(text, MILLISECOND..=A_DAY)
        }),
    },
    OptionRow {
        name: "timeout-member-data",
        takes: "a time from `1ms` to `24h`",
        default: "`50s`",
        summary: "No byte from the member for this long ends the connection.",
        example: "1m30s",
        effect: port!("timeout-member-data", timeout_member_data, |text| {
            value::duration(text, MILLISECOND..=A_DAY)
        }),
    },
    OptionRow {
        name: "timeout-tcp-inspect",
        takes: "a time from `0s` to `24h`",
        default: "`0s`: do not wait",
        summary: "How long to wait for the client's first bytes before a member is chosen. TCP only.",
        example: "2s",
        effect: port!("timeout-tcp-inspect", timeout_tcp_inspect, |text| {
            value::duration(text, Duration::ZERO..=A_DAY)
        }),
    },
    OptionRow {
        name: "drain",
        takes: "a time from `0s` to `24h`",
        default: "`5m`",
        summary: "How long the connections of a member that leaves may go on before they are cut.",
        example: "1m30s",
        effect: port!("drain", drain, |text| {
            value::duration(text, Duration::ZERO..=A_DAY)
        }),
    },
    OptionRow {
        name: "source-ranges",
        takes: "prefixes in CIDR notation with commas between them",
        default: "everybody",
        summary: "Which clients may connect. `spec.loadBalancerSourceRanges` wins over what this says for the whole \
                  Service; what it says for one port wins over both.",
        example: "192.0.2.0/24,2001:db8::/32",
        effect: port!("source-ranges", source_ranges, value::cidrs),
    },
    OptionRow {
        name: "monitor",
        takes: "`tcp`, `http`, `udp-connect`, `on` or `off`",
        default: "`off`: Kubernetes' readiness alone decides",
        summary: "How members are checked: by a TCP connection; by an HTTP request; by a datagram that must not be \
                  answered by an ICMP error (UDP ports only). `on` is `tcp` on TCP ports and `udp-connect` on UDP ports.",
        example: "http",
        effect: port!("monitor", monitor, |text| value::word(
            text,
            &[
                ("tcp", MonitorChoice::Tcp),
                ("http", MonitorChoice::Http),
                ("udp-connect", MonitorChoice::UdpConnect),
                ("on", MonitorChoice::On),
                ("off", MonitorChoice::Off),
            ]
        )),
    },
    OptionRow {
        name: "monitor-method",
        takes: "an HTTP method in capitals",
        default: "`GET`",
        summary: "The method of an `http` check.",
        example: "HEAD",
        effect: port!("monitor-method", monitor_method, |text| value::word(
            text, &METHODS
        )),
    },
    OptionRow {
        name: "monitor-path",
        takes: "a path that begins with `/`",
        default: "`/`",
        summary: "What an `http` check asks for.",
        example: "/healthz",
        effect: port!("monitor-path", monitor_path, value::path),
    },
    OptionRow {
        name: "monitor-codes",
        takes: "status codes and ranges of them with commas between them; on OpenStack one range, or at most 16 codes",
        default: "`200`",
        summary: "Which answers to an `http` check are good.",
        example: "200,204,300-302",
        effect: port!("monitor-codes", monitor_codes, |text: &str| {
            text.parse().map_err(|_| {
                value::Refusal::new(
                    "not a list of HTTP status codes",
                    "write codes from 100 to 599, such as 200, 200,204 or 200-299",
                )
            })
        }),
    },
    OptionRow {
        name: "monitor-delay",
        takes: "a time from `100ms` to `1h`",
        default: "`5s`",
        summary: "From the start of one check to the start of the next. On OpenStack parts of a second are rounded up, and \
                  UDP ports are checked every `3s` at most.",
        example: "10s",
        effect: port!("monitor-delay", monitor_delay, |text| {
            value::duration(text, SHORTEST_DELAY..=AN_HOUR)
        }),
    },
    OptionRow {
        name: "monitor-timeout",
        takes: "a time from `1ms` to `1h`, at most the delay (on OpenStack: of any length)",
        default: "`3s`, or the delay where that is shorter (on OpenStack: as configured)",
        summary: "A check that takes longer has failed.",
        example: "2s",
        effect: port!("monitor-timeout", monitor_timeout, |text| {
            value::duration(text, MILLISECOND..=AN_HOUR)
        }),
    },
    OptionRow {
        name: "monitor-max-retries",
        takes: "a number from 1 to 10",
        default: "`1`",
        summary: "How many good checks in a row bring a member back.",
        example: "2",
        effect: port!("monitor-max-retries", monitor_max_retries, |text| {
            value::number(text, 1..=10)
        }),
    },
    OptionRow {
        name: "monitor-max-retries-down",
        takes: "a number from 1 to 10",
        default: "`3`",
        summary: "How many failed checks in a row take a member out.",
        example: "5",
        effect: port!(
            "monitor-max-retries-down",
            monitor_max_retries_down,
            |text| value::number(text, 1..=10)
        ),
    },
    OptionRow {
        name: "monitor-port",
        takes: "a number from 1 to 65535",
        default: "the member's own port",
        summary: "The port that is checked.",
        example: "8081",
        effect: port!("monitor-port", monitor_port, |text: &str| {
            text.trim().parse().map_err(|_| {
                value::Refusal::new("no port number", "write a number from 1 to 65535")
            })
        }),
    },
    OptionRow {
        name: "member-weights",
        takes: "`ADDRESS=N` or `POD-NAME=N` (on OpenStack `NODE-NAME=N`) with commas between them, N from 0 to 256",
        default: "1 for each",
        summary: "The share of new connections that a member gets, relative to the others. 0: finishes what it has and \
                  gets nothing new. A `weight=N` in `landfall.dev/endpoints` wins over this. On OpenStack members are nodes, \
                  and the provider `ovn` has no weights; when this is taken away, members keep the weights that they have \
                  in Octavia.",
        example: "web-0=3,10.0.0.2=1",
        effect: port!("member-weights", member_weights, value::weights),
    },
    OptionRow {
        name: "backup-members",
        takes: "addresses and names of pods (on OpenStack: of nodes) with commas between them",
        default: "none",
        summary: "Members that serve only while no other one can. On OpenStack members are nodes, and the provider `ovn` has \
                  no backups; when this is taken away, members stay what they are in Octavia.",
        example: "web-2,10.0.0.3",
        effect: port!("backup-members", backup_members, value::members),
    },
];
