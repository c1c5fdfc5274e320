//! The portable dialect, `landfall.dev/*`: works with every provider, strict about its values.

mod members;

use std::time::Duration;

use super::compound;
use super::given::{Given, put};
use super::options::{MemberProtocol, ModeChoice};
use super::value::{self, A_DAY};
use super::{Dialect, DialectId, Effect, OptionRow, join};
use crate::listener::{Algorithm, ProxyProtocol};
use crate::option::OptionId;
use crate::reason::Severity;
use crate::rows::MOST_ADDRESSES;
use crate::target::Target;

/// The portable dialect.
pub(super) static DIALECT: Dialect = Dialect {
    id: DialectId::Landfall,
    title: "Portable options: `landfall.dev/*`",
    prefix: "landfall.dev/",
    per_port: true,
    unknown: Some(Severity::Error),
    empty_is_absent: false,
    successor: None,
    marks: &[],
    given_mark: None,
    about: "\
An option that a provider does not support is refused with a reason. Landfall's own data plane
supports most of them; what others lack is in [openstack.md](openstack.md#limits),
[exoscale.md](exoscale.md#what-an-nlb-cant-do) and [configuration.md](configuration.md#bare-metal).
Invalid values and unknown keys are errors: the last valid version of the Service stays in effect,
and its status reports the error.",
    rows: &join::<{ FIRST.len() + members::ROWS.len() }>(FIRST, members::ROWS),
};

const MILLISECOND: Duration = Duration::from_millis(1);

pub(super) const ALGORITHMS: [(&str, Algorithm); 4] = [
    ("ROUND_ROBIN", Algorithm::RoundRobin),
    ("LEAST_CONNECTIONS", Algorithm::LeastConnections),
    ("SOURCE_IP", Algorithm::SourceIp),
    ("SOURCE_IP_PORT", Algorithm::SourceIpPort),
];

macro_rules! port {
    ($option:ident, $field:ident, $parse:expr) => {
        Effect::Port {
            option: OptionId::$option,
            set: |port, text| {
                let parse = $parse;
                put(&mut port.$field, text, parse(text.value)?)
            },
        }
    };
}

macro_rules! service {
    ($option:ident, $field:ident, $parse:expr) => {
        Effect::Service {
            option: OptionId::$option,
            set: |service, text| {
                let parse = $parse;
                put(&mut service.$field, text, parse(text.value)?)
            },
        }
    };
}

use port;
pub(super) use service;

const FIRST: &[OptionRow] = &[
    OptionRow {
        name: "addresses",
        takes: "IP addresses of one family, or as many of each, with commas between them",
        default: "any free address of a suitable address pool",
        summary: "Exactly these addresses. They must be free and in one address pool. Annotations \
                 and `spec.loadBalancerIP` with different addresses are an error.",
        example: "192.0.2.10, 2001:db8::10",
        effect: Effect::Service {
            option: OptionId::Addresses,
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
        summary: "Take the address from this pool only, even if the pool has `autoAssign: false`.",
        example: "public",
        effect: service!(AddressPool, address_pool, value::some_text),
    },
    OptionRow {
        name: "address-count",
        takes: "a number from 1 to 8",
        default: "1",
        summary: "How many addresses of each of its families the Service gets, all from one \
                 address pool: all of them or none.",
        example: "2",
        effect: service!(AddressCount, address_count, |text| value::number(
            text,
            1..=MOST_ADDRESSES
        )),
    },
    OptionRow {
        name: "sharing-key",
        takes: "any text",
        default: "the address is not shared",
        summary: "Services of one namespace with the same key can share one address, if their \
                 ports differ and, with `externalTrafficPolicy: Local`, their selectors are equal. \
                 Services of several namespaces can if the address pool has \
                 `shareAcrossNamespaces`.",
        example: "office",
        effect: service!(SharingKey, sharing_key, value::some_text),
    },
    OptionRow {
        name: "hostname",
        takes: "a DNS name",
        default: "the address is published",
        summary: "Published in `status.loadBalancer` instead of the address.",
        example: "web.example.org",
        effect: service!(Hostname, hostname, value::dns_name),
    },
    OptionRow {
        name: "endpoints",
        takes: "`HOST:PORT[ weight=N][ backup]`, with commas between them; the host is an IP \
               address (IPv6 in brackets) or `localhost`, which is 127.0.0.1",
        default: "the Service's EndpointSlices",
        summary: "The members, by address. Names are not resolved. In a cluster only addresses \
                 that the operator allows with `members.annotations` in landfall.yaml.",
        example: "10.0.0.1:8080 weight=3, [2001:db8::1]:8080, localhost:8081 backup",
        effect: port!(Endpoints, endpoints, compound::endpoints),
    },
    OptionRow {
        name: "target-type",
        takes: "`pod` or `node`",
        default: "on OpenStack `targetType` of the instance, `node` by default; elsewhere the \
                  one that the provider supports",
        summary: "What members are: ready pods with their own addresses and target ports, or nodes \
                 with their NodePorts. On OpenStack pods must be reachable from the load \
                 balancer's subnet.",
        example: "pod",
        effect: service!(TargetType, target_type, |text| value::word(
            text,
            &[("pod", Target::Pod), ("node", Target::Node)]
        )),
    },
    OptionRow {
        name: "algorithm",
        takes: "`ROUND_ROBIN`, `LEAST_CONNECTIONS`, `SOURCE_IP` or `SOURCE_IP_PORT`",
        default: "`ROUND_ROBIN`",
        summary: "How a member is chosen for a new connection: in turn by weight; the fewest open \
                 connections for its weight; by a hash of the client's address; by a hash of the \
                 client's address and port.",
        example: "LEAST_CONNECTIONS",
        effect: port!(Algorithm, algorithm, |text| value::word(text, &ALGORITHMS)),
    },
    OptionRow {
        name: "mode",
        takes: "`stream`, `tls`, `http` or `https`",
        default: "`stream`",
        summary: "`stream` forwards bytes and datagrams unchanged. `tls` terminates TLS and \
                 forwards the plain bytes. `http` parses HTTP/1.1 and HTTP/2 requests. `https` \
                 terminates TLS and parses requests. UDP ports are always `stream`. On OpenStack \
                 `stream` excludes a port from TLS termination with a certificate for all ports.",
        example: "stream",
        effect: port!(Mode, mode, |text| value::word(
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
        takes: "names of Secrets of type `kubernetes.io/tls` in the Service's namespace, with \
               commas between them",
        default: "none; needed in mode `tls` and `https`",
        summary: "The certificates. Clients get the one that matches the requested name (SNI), \
                 else the first.",
        example: "web-tls,wildcard-tls",
        effect: port!(TlsSecret, tls_secrets, value::secret_names),
    },
    OptionRow {
        name: "forwarded-headers",
        takes: "some of `for`, `proto`, `port` with commas between them, or `none`",
        default: "`for,proto,port`",
        summary: "In mode `http` and `https`: which of `X-Forwarded-For`, `X-Forwarded-Proto` and \
                 `X-Forwarded-Port` are added to requests.",
        example: "for,proto",
        effect: port!(
            ForwardedHeaders,
            forwarded_headers,
            compound::forwarded_headers
        ),
    },
    OptionRow {
        name: "trusted-hops",
        takes: "a number from 0 to 10",
        default: "none: fields about the client are forwarded unchanged",
        summary: "In mode `http` and `https`: how many proxies in front of the load balancer are \
                 trusted. This many addresses at the end of `X-Forwarded-For` are kept; with `0`, \
                 nothing that clients write into it, or into another `X-Forwarded-` field, \
                 `X-Real-IP` or `Forwarded`, reaches a member.",
        example: "0",
        effect: port!(TrustedHops, trusted_hops, |text| value::number(
            text,
            0..=10
        )),
    },
    OptionRow {
        name: "member-protocol",
        takes: "`http1` or `http2`",
        default: "`http1`; `http2` where the port's `appProtocol` is `kubernetes.io/h2c`",
        summary: "In mode `http` and `https`: the protocol to members, HTTP/1.1 or HTTP/2. With \
                 `member-tls` it is negotiated by ALPN, and a member that does not accept HTTP/2 \
                 fails.",
        example: "http2",
        effect: port!(MemberProtocol, member_protocol, |text| value::word(
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
        summary: "Send a PROXY protocol header with the client's address at the start of each \
                 connection to a member. Not in mode `http` and `https`. On a UDP port only `v2`, \
                 and only if set for that port itself.",
        example: "v2",
        effect: port!(ProxyProtocol, proxy_protocol, |text| value::word(
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
        default: "none",
        summary: "Connections from these peers must begin with a PROXY protocol header, and the \
                 client's address is taken from it. TCP only.",
        example: "10.0.0.0/8,fd00::/8",
        effect: port!(AcceptProxyProtocolFrom, accept_proxy_from, value::cidrs),
    },
    OptionRow {
        name: "connection-limit",
        takes: "a number of at least 1, or `none`",
        default: "`none`",
        summary: "How many connections (UDP: flows) the port may have open at once.",
        example: "1000",
        effect: port!(ConnectionLimit, connection_limit, value::connection_limit),
    },
    OptionRow {
        name: "timeout-client-data",
        takes: "a time from `1ms` to `24h`",
        default: "`50s`",
        summary: "A connection without a byte from the client for this long is closed (UDP: the \
                 flow ends).",
        example: "5m",
        effect: port!(TimeoutClientData, timeout_client_data, |text| {
            value::duration(text, MILLISECOND..=A_DAY)
        }),
    },
    OptionRow {
        name: "timeout-member-connect",
        takes: "a time from `1ms` to `24h`",
        default: "`5s`",
        summary: "The timeout of one attempt to connect to a member.",
        example: "500ms",
        effect: port!(TimeoutMemberConnect, timeout_member_connect, |text| {
            value::duration(text, MILLISECOND..=A_DAY)
        }),
    },
    OptionRow {
        name: "timeout-member-data",
        takes: "a time from `1ms` to `24h`",
        default: "`50s`",
        summary: "A connection without a byte from the member for this long is closed.",
        example: "1m30s",
        effect: port!(TimeoutMemberData, timeout_member_data, |text| {
            value::duration(text, MILLISECOND..=A_DAY)
        }),
    },
    OptionRow {
        name: "timeout-tcp-inspect",
        takes: "a time from `0s` to `24h`",
        default: "`0s`: do not wait",
        summary: "How long to wait for the client's first bytes before a member is chosen. TCP \
                 only.",
        example: "2s",
        effect: port!(TimeoutTcpInspect, timeout_tcp_inspect, |text| {
            value::duration(text, Duration::ZERO..=A_DAY)
        }),
    },
    OptionRow {
        name: "drain",
        takes: "a time from `0s` to `24h`",
        default: "`5m`",
        summary: "How long the connections of a removed member may continue before they are \
                 closed.",
        example: "1m30s",
        effect: port!(Drain, drain, |text| {
            value::duration(text, Duration::ZERO..=A_DAY)
        }),
    },
    OptionRow {
        name: "source-ranges",
        takes: "prefixes in CIDR notation with commas between them",
        default: "all clients",
        summary: "Which clients may connect. `spec.loadBalancerSourceRanges` takes precedence over \
                 the value for the whole Service; the value for one port takes precedence over \
                 both.",
        example: "192.0.2.0/24,2001:db8::/32",
        effect: port!(SourceRanges, source_ranges, value::cidrs),
    },
];
