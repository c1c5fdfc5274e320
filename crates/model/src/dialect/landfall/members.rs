//! Rows about members, monitors, limits and TLS.

use std::time::Duration;

use super::MILLISECOND;
use super::port;
use crate::dialect::compound;
use crate::dialect::given::put;
use crate::dialect::options::{MemberTlsChoice, MonitorChoice};
use crate::dialect::value::{self, A_DAY};
use crate::dialect::{Effect, OptionRow};
use crate::listener::{HttpMethod, TlsVersion};
use crate::option::OptionId;

const SHORTEST_DELAY: Duration = Duration::from_millis(100);
const AN_HOUR: Duration = Duration::from_hours(1);

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

pub(super) const ROWS: &[OptionRow] = &[
    OptionRow {
        name: "monitor",
        takes: "`tcp`, `http`, `https`, `grpc`, `udp-connect`, `on` or `off`",
        default: "`off`: only Kubernetes' readiness counts",
        summary: "How members are checked: a TCP connection; an HTTP request; one over TLS; a \
                 request to gRPC's health service (`grpc.health.v1`), which must answer `SERVING`; \
                 a datagram that must not cause an ICMP error (UDP ports only). With `member-tls`, \
                 `http` and `grpc` checks of the member's own port use TLS, too, with the same \
                 verification; without it an `https` check accepts any certificate. `on` is `tcp` \
                 on TCP ports and `udp-connect` on UDP ports.",
        example: "http",
        effect: port!(Monitor, monitor, |text| value::word(
            text,
            &[
                ("tcp", MonitorChoice::Tcp),
                ("http", MonitorChoice::Http),
                ("https", MonitorChoice::Https),
                ("grpc", MonitorChoice::Grpc),
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
        effect: port!(MonitorMethod, monitor_method, |text| value::word(
            text, &METHODS
        )),
    },
    OptionRow {
        name: "monitor-path",
        takes: "a path that begins with `/`",
        default: "`/`",
        summary: "The path of an `http` check.",
        example: "/healthz",
        effect: port!(MonitorPath, monitor_path, value::path),
    },
    OptionRow {
        name: "monitor-codes",
        takes: "status codes and ranges of them with commas between them; on OpenStack one range, \
               or at most 16 codes",
        default: "`200`",
        summary: "The status codes with which an `http` check succeeds.",
        example: "200,204,300-302",
        effect: port!(MonitorCodes, monitor_codes, |text: &str| {
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
        summary: "From the start of one check to the start of the next. On OpenStack parts of a \
                 second are rounded up, and the minimum for UDP ports is `3s`.",
        example: "10s",
        effect: port!(MonitorDelay, monitor_delay, |text| {
            value::duration(text, SHORTEST_DELAY..=AN_HOUR)
        }),
    },
    OptionRow {
        name: "monitor-timeout",
        takes: "a time from `1ms` to `1h`, at most the delay (on OpenStack: any); more than `60s` \
               means `60s`",
        default: "`3s`, or the delay if that is shorter (on OpenStack: as configured)",
        summary: "A check that takes longer fails.",
        example: "2s",
        effect: port!(MonitorTimeout, monitor_timeout, |text| {
            value::duration(text, MILLISECOND..=AN_HOUR)
        }),
    },
    OptionRow {
        name: "monitor-max-retries",
        takes: "a number from 1 to 10",
        default: "`1`",
        summary: "After how many successful checks in a row a member is up.",
        example: "2",
        effect: port!(MonitorMaxRetries, monitor_max_retries, |text| {
            value::number(text, 1..=10)
        }),
    },
    OptionRow {
        name: "monitor-max-retries-down",
        takes: "a number from 1 to 10",
        default: "`3`",
        summary: "After how many failed checks in a row a member is down.",
        example: "5",
        effect: port!(MonitorMaxRetriesDown, monitor_max_retries_down, |text| {
            value::number(text, 1..=10)
        }),
    },
    OptionRow {
        name: "monitor-port",
        takes: "a number from 1 to 65535",
        default: "the member's own port",
        summary: "The port that is checked.",
        example: "8081",
        effect: port!(MonitorPort, monitor_port, |text: &str| {
            text.trim().parse().map_err(|_| {
                value::Refusal::new("no port number", "write a number from 1 to 65535")
            })
        }),
    },
    OptionRow {
        name: "member-weights",
        takes: "`ADDRESS=N` or `POD-NAME=N` (on OpenStack `NODE-NAME=N`) with commas between them, \
               N from 0 to 256",
        default: "1 for each",
        summary: "The share of new connections that a member gets, relative to the others. 0: \
                 existing connections continue, no new ones. A `weight=N` in \
                 `landfall.dev/endpoints` takes precedence. On OpenStack members are nodes, and \
                 the provider `ovn` has no weights; when the annotation is removed, members keep \
                 the weights that they have in Octavia.",
        example: "web-0=3,10.0.0.2=1",
        effect: port!(MemberWeights, member_weights, compound::weights),
    },
    OptionRow {
        name: "backup-members",
        takes: "addresses and names of pods (on OpenStack: of nodes) with commas between them",
        default: "none",
        summary: "Members that serve only while no other one can. On OpenStack members are nodes, \
                 and the provider `ovn` has no backups; when the annotation is removed, members \
                 stay as they are in Octavia.",
        example: "web-2,10.0.0.3",
        effect: port!(BackupMembers, backup_members, compound::members),
    },
    OptionRow {
        name: "source-connection-limit",
        takes: "a number of at least 1, or `none`",
        default: "`none`",
        summary: "How many connections (UDP: flows) one source may have open at the port at once; \
                 others are reset. A source is an IPv4 address or an IPv6 /64; with an accepted \
                 PROXY header it is the client that this names.",
        example: "100",
        effect: port!(
            SourceConnectionLimit,
            source_connection_limit,
            value::connection_limit
        ),
    },
    OptionRow {
        name: "source-connection-rate",
        takes: "`N/s`, `N/m` or `N/h`, optionally with ` burst=N`, each from 1 to 1000000; or \
               `none`",
        default: "`none`; the burst is what the rate allows in one s, m or h",
        summary: "How many new connections (UDP: flows) one source may open at the port: the burst \
                 at once, then the rate. Others are reset.",
        example: "600/m burst=50",
        effect: port!(SourceConnectionRate, source_connection_rate, value::rate),
    },
    OptionRow {
        name: "source-request-rate",
        takes: "`N/s`, `N/m` or `N/h`, optionally with ` burst=N`, each from 1 to 1000000; or \
               `none`",
        default: "`none`; the burst is what the rate allows in one s, m or h",
        summary: "In mode `http` and `https`: how many requests one source may send. Others are \
                 answered with 429 and `Retry-After`. With `landfall.dev/trusted-hops` the source \
                 is the address that the outermost trusted proxy reports.",
        example: "20/s",
        effect: port!(SourceRequestRate, source_request_rate, value::rate),
    },
    OptionRow {
        name: "member-connection-limit",
        takes: "a number of at least 1, or `none`",
        default: "`none`",
        summary: "How many connections (UDP: flows; in mode `http` and `https`: requests) each \
                 member may have from the port at once, over all worker threads. Excess ones are \
                 queued, first in, first out.",
        example: "200",
        effect: port!(
            MemberConnectionLimit,
            member_connection_limit,
            value::connection_limit
        ),
    },
    OptionRow {
        name: "member-queue",
        takes: "a number from 0 to 100000",
        default: "`1000`",
        summary: "How many connections and requests may wait for a member below its limit. Others \
                 are reset, or answered with 503 and `Retry-After`. TCP only.",
        example: "200",
        effect: port!(MemberQueue, member_queue, |text| value::number(
            text,
            0..=100_000
        )),
    },
    OptionRow {
        name: "member-queue-timeout",
        takes: "a time from `1ms` to `24h`",
        default: "`5s`",
        summary: "How long each of them waits before it is reset or answered with 503. TCP only.",
        example: "10s",
        effect: port!(MemberQueueTimeout, member_queue_timeout, |text| {
            value::duration(text, MILLISECOND..=A_DAY)
        }),
    },
    OptionRow {
        name: "slow-start",
        takes: "a time from `0s` to `1h`",
        default: "`0s`: not at all",
        summary: "For how long a new member, or one that is healthy again, gets less than its \
                 share: a tenth of its weight at first, all of it at the end.",
        example: "30s",
        effect: port!(SlowStart, slow_start, |text| {
            value::duration(text, Duration::ZERO..=AN_HOUR)
        }),
    },
    OptionRow {
        name: "outlier-detection",
        takes: "a number from 1 to 1000, or `off`",
        default: "`off`",
        summary: "After this many failures in a row a member gets nothing new for 30 s, each \
                 further time in a row for 30 s longer, at most 5 min. Failures are failed \
                 connections, and in mode `http` and `https` missing answers and those with a \
                 status of 500 or more, but for 501 and 505. At most half of the serving members \
                 are ejected. TCP only.",
        example: "5",
        effect: port!(OutlierDetection, outlier_detection, |text| {
            value::number_or_off(text, 1..=1000)
        }),
    },
    OptionRow {
        name: "retry-budget",
        takes: "a percentage from `0%` to `100%`",
        default: "`20%`",
        summary: "Connections and requests that a member did not accept are retried with another \
                 one, at most twice. Retries are limited to this percentage of what the members \
                 have at the time; 10 are always allowed, but with `0%` none.",
        example: "50%",
        effect: port!(RetryBudget, retry_budget, value::percent),
    },
    OptionRow {
        name: "tls-minimum-version",
        takes: "`1.2` or `1.3`",
        default: "`1.2`",
        summary: "In mode `tls` and `https`: clients that speak only older versions of TLS are \
                  refused.",
        example: "1.3",
        effect: port!(TlsMinimumVersion, tls_minimum_version, |text| {
            value::word(text, &[("1.2", TlsVersion::V12), ("1.3", TlsVersion::V13)])
        }),
    },
    OptionRow {
        name: "tls-strict-names",
        takes: "`true` or `false`",
        default: "`false`: they get the first certificate",
        summary: "In mode `tls` and `https`: clients that send no name (SNI), or one that no \
                 certificate covers, are refused with the alert `unrecognized_name`.",
        example: "true",
        effect: port!(TlsStrictNames, tls_strict_names, |text| value::word(
            text,
            &[("true", true), ("false", false)]
        )),
    },
    OptionRow {
        name: "https-redirect",
        takes: "`301` or `308`, then `port=N` if the other port is not 443; or `off`",
        default: "`off`",
        summary: "In mode `http`: every request is answered with this status and the same host, \
                 path and query under `https`, and none reaches a member. A request without a \
                 valid host is refused. There is no exception for ACME challenges: ACME servers \
                 follow redirects, and the port that terminates TLS can answer them.",
        example: "308",
        effect: port!(HttpsRedirect, https_redirect, compound::redirect),
    },
    OptionRow {
        name: "member-tls",
        takes: "`verify`, `insecure` or `off`",
        default: "`off`",
        summary: "TLS to members. `verify` accepts only certificates that an authority of \
                 `member-ca-secret` has signed for `member-server-name`; the system's authorities \
                 are not used. `insecure` accepts any certificate, with a warning. Not on UDP \
                 ports.",
        example: "off",
        effect: port!(MemberTls, member_tls, |text| value::word(
            text,
            &[
                ("verify", MemberTlsChoice::Verify),
                ("insecure", MemberTlsChoice::Insecure),
                ("off", MemberTlsChoice::Off),
            ]
        )),
    },
    OptionRow {
        name: "member-ca-secret",
        takes: "the name of a Secret in the Service's namespace, of any type, whose `ca.crt` \
                  holds certificates in PEM",
        default: "none; needed with `member-tls: verify`",
        summary: "The authorities that sign the certificates of members. Changes apply from the \
                 next connection.",
        example: "members-ca",
        effect: port!(MemberCaSecret, member_ca_secret, value::secret_name),
    },
    OptionRow {
        name: "member-server-name",
        takes: "a DNS name",
        default: "`NAME.NAMESPACE.svc` of the Service",
        summary: "With `member-tls`: the name that is sent to members (SNI), and that their \
                 certificates must cover.",
        example: "web.internal.example.org",
        effect: port!(MemberServerName, member_server_name, value::dns_name),
    },
    OptionRow {
        name: "member-client-secret",
        takes: "the name of a Secret of type `kubernetes.io/tls` in the Service's namespace",
        default: "none",
        summary: "With `member-tls`: the certificate for members that request one (mutual TLS).",
        example: "client-tls",
        effect: port!(MemberClientSecret, member_client_secret, value::secret_name),
    },
    OptionRow {
        name: "monitor-host",
        takes: "a DNS name or an IP address, and a port if needed",
        default: "the member's address and port",
        summary: "The host name in an `http`, `https` or `grpc` check. It changes neither the \
                 destination of the check nor the expected certificate.",
        example: "web.example.org",
        effect: port!(MonitorHost, monitor_host, value::host),
    },
    OptionRow {
        name: "monitor-body",
        takes: "a text of at most 256 bytes",
        default: "the body is not checked",
        summary: "An `http` or `https` check succeeds only with this text in the first 64 KiB of \
                 the body.",
        example: "\"status\":\"ok\"",
        effect: port!(MonitorBody, monitor_body, value::expected_text),
    },
    OptionRow {
        name: "monitor-grpc-service",
        takes: "the name of a gRPC service",
        default: "none: the server as a whole",
        summary: "The service whose health a `grpc` check requests.",
        example: "shop.v1.Cart",
        effect: port!(
            MonitorGrpcService,
            monitor_grpc_service,
            value::grpc_service
        ),
    },
];
