//! The dialect of cloud-provider-openstack, `loadbalancer.openstack.org/*`.
//!
//! Values are read by the rules of the reference, fallbacks included, except that a fallback is
//! reported.
//! What Octavia would refuse is an error here as there. Options that choose among things that only
//! a cloud has become a warning.

mod own;
mod parse;

use parse::{
    THE_DEFAULT, boolean, extension, forwarded, integer, list, of_monitor, proxy_protocol, seconds,
    some, text, timeout, within,
};

use super::given::put;
use super::landfall::ALGORITHMS;
use super::nodes::NodeSelector;
use super::options::MonitorChoice;
use super::{AnnotationError, Dialect, DialectId, Effect, OptionRow, Outcome, value};
use crate::option::OptionId;
use crate::reason::Severity;

/// The id of the load balancer, as cloud-provider-openstack writes it.
pub const LOAD_BALANCER_ID: &str = "loadbalancer.openstack.org/load-balancer-id";

/// The address of the load balancer, as cloud-provider-openstack writes it.
pub const LOAD_BALANCER_ADDRESS: &str = "loadbalancer.openstack.org/load-balancer-address";

const PREFIX: &str = "loadbalancer.openstack.org/";

/// The annotations of cloud-provider-openstack.
pub(super) static DIALECT: Dialect = Dialect {
    id: DialectId::OpenStack,
    title: "OpenStack: `loadbalancer.openstack.org/*`",
    prefix: PREFIX,
    per_port: false,
    unknown: Some(Severity::Warning),
    empty_is_absent: false,
    successor: None,
    marks: &[LOAD_BALANCER_ID, LOAD_BALANCER_ADDRESS],
    given_mark: Some(LOAD_BALANCER_ID),
    about: "\
Interpreted as by cloud-provider-openstack, so that a manifest written for OpenStack can be tried on
one machine. Where that controller silently uses a default, Landfall does, too, with a warning.
Unlike there, PROXY headers and `X-Forwarded-*` never apply to UDP ports.",
    rows: ROWS,
};

const BOOLEAN: &str = "`true` or `false`";
const TIMEOUT: &str = "milliseconds, from 0 to 2073600000 (on OpenStack; elsewhere 86400000)";
const NO_CLOUD_NETWORK: &str = "it selects a network of a cloud; there are none here, and address \
                               pools are used instead";
const NO_CLOUD_OBJECT: &str = "it names or marks objects in Octavia; there are none here";
const THE_DEFAULT_OF_OCTAVIA: &str = "Octavia has a setting for it; there is none here";

const ROWS: &[OptionRow] = &[
    OptionRow {
        name: "lb-method",
        takes: "`ROUND_ROBIN`, `LEAST_CONNECTIONS`, `SOURCE_IP` or `SOURCE_IP_PORT`",
        default: "`ROUND_ROBIN`",
        summary: "As `landfall.dev/algorithm`.",
        example: "LEAST_CONNECTIONS",
        effect: Effect::Port {
            option: OptionId::Algorithm,
            set: |port, text| {
                let algorithm = value::word(text.value, &ALGORITHMS);
                let algorithm = algorithm.map_err(|refusal| AnnotationError::Replaced {
                    refusal,
                    by: "the default",
                })?;
                put(&mut port.algorithm, text, algorithm)
            },
        },
    },
    OptionRow {
        name: "proxy-protocol",
        takes: "`true`, `v1` or `v2`; anything else is off",
        default: "off",
        summary: "As `landfall.dev/proxy-protocol`; `true` is `v1`. Not together with \
                 `x-forwarded-for`.",
        example: "v2",
        effect: Effect::Port {
            option: OptionId::ProxyProtocol,
            set: proxy_protocol,
        },
    },
    OptionRow {
        name: "x-forwarded-for",
        takes: BOOLEAN,
        default: "`false`",
        summary: "`true`: mode `http`, and `X-Forwarded-For` is added. Not together with \
                 `proxy-protocol`.",
        example: "true",
        effect: Effect::Port {
            option: OptionId::ForwardedHeaders,
            set: |port, text| forwarded(port, text, |headers| &mut headers.client),
        },
    },
    OptionRow {
        name: "x-forwarded-proto",
        takes: BOOLEAN,
        default: "`false`",
        summary: "`true`: mode `http`, and `X-Forwarded-Proto` is added. On OpenStack `false` does \
                 not remove it, because it may have been set by hand: \
                 `landfall.dev/forwarded-headers` sets the exact list.",
        example: "true",
        effect: Effect::Port {
            option: OptionId::ForwardedHeaders,
            set: |port, text| forwarded(port, text, |headers| &mut headers.proto),
        },
    },
    OptionRow {
        name: "x-forwarded-port",
        takes: BOOLEAN,
        default: "`false`",
        summary: "`true`: mode `http`, and `X-Forwarded-Port` is added. On OpenStack `false` does \
                 not remove it, because it may have been set by hand: \
                 `landfall.dev/forwarded-headers` sets the exact list.",
        example: "true",
        effect: Effect::Port {
            option: OptionId::ForwardedHeaders,
            set: |port, text| forwarded(port, text, |headers| &mut headers.port),
        },
    },
    OptionRow {
        name: "connection-limit",
        takes: "a number of at least 0 (on OpenStack; elsewhere 1), or -1 for no limit",
        default: "-1",
        summary: "As `landfall.dev/connection-limit`.",
        example: "1000",
        effect: Effect::Port {
            option: OptionId::ConnectionLimit,
            set: |port, text| {
                let limit = match integer(text, "-1")? {
                    -1 => None,
                    limit => Some(within(limit, 0, i64::from(u32::MAX))?),
                };
                put(&mut port.connection_limit, text, limit)
            },
        },
    },
    OptionRow {
        name: "timeout-client-data",
        takes: TIMEOUT,
        default: "50000",
        summary: "As `landfall.dev/timeout-client-data`; 0 is sent to Octavia unchanged, and means \
                 a day elsewhere.",
        example: "300000",
        effect: Effect::Port {
            option: OptionId::TimeoutClientData,
            set: |port, text| put(&mut port.timeout_client_data, text, timeout(text, "50000")?),
        },
    },
    OptionRow {
        name: "timeout-member-connect",
        takes: TIMEOUT,
        default: "5000",
        summary: "As `landfall.dev/timeout-member-connect`; 0 is sent to Octavia unchanged, and \
                 means a day elsewhere.",
        example: "500",
        effect: Effect::Port {
            option: OptionId::TimeoutMemberConnect,
            set: |port, text| {
                put(
                    &mut port.timeout_member_connect,
                    text,
                    timeout(text, "5000")?,
                )
            },
        },
    },
    OptionRow {
        name: "timeout-member-data",
        takes: TIMEOUT,
        default: "50000",
        summary: "As `landfall.dev/timeout-member-data`; 0 is sent to Octavia unchanged, and means \
                 a day elsewhere.",
        example: "90000",
        effect: Effect::Port {
            option: OptionId::TimeoutMemberData,
            set: |port, text| put(&mut port.timeout_member_data, text, timeout(text, "50000")?),
        },
    },
    OptionRow {
        name: "timeout-tcp-inspect",
        takes: TIMEOUT,
        default: "0",
        summary: "As `landfall.dev/timeout-tcp-inspect`.",
        example: "2000",
        effect: Effect::Port {
            option: OptionId::TimeoutTcpInspect,
            set: |port, text| put(&mut port.timeout_tcp_inspect, text, timeout(text, "0")?),
        },
    },
    OptionRow {
        name: "enable-health-monitor",
        takes: BOOLEAN,
        default: "`false`",
        summary: "`true` is `landfall.dev/monitor: on`.",
        example: "true",
        effect: Effect::Port {
            option: OptionId::Monitor,
            set: |port, text| {
                let choice = if boolean(text, THE_DEFAULT)? {
                    MonitorChoice::On
                } else {
                    MonitorChoice::Off
                };
                put(&mut port.monitor, text, choice)
            },
        },
    },
    OptionRow {
        name: "health-monitor-delay",
        takes: "seconds, at least 1; outside of OpenStack at most 3600",
        default: "5",
        summary: "As `landfall.dev/monitor-delay`.",
        example: "10",
        effect: Effect::Port {
            option: OptionId::MonitorDelay,
            set: |port, text| put(&mut port.monitor_delay, text, seconds(text, 1)?),
        },
    },
    OptionRow {
        name: "health-monitor-timeout",
        takes: "seconds; outside of OpenStack from 1 to 3600, and at most the delay",
        default: "3",
        summary: "As `landfall.dev/monitor-timeout`.",
        example: "2",
        effect: Effect::Port {
            option: OptionId::MonitorTimeout,
            set: |port, text| put(&mut port.monitor_timeout, text, seconds(text, 0)?),
        },
    },
    OptionRow {
        name: "health-monitor-max-retries",
        takes: "a number from 1 to 10",
        default: "1",
        summary: "As `landfall.dev/monitor-max-retries`.",
        example: "2",
        effect: Effect::Port {
            option: OptionId::MonitorMaxRetries,
            set: |port, text| {
                let retries = of_monitor(text, 1, 10)?;
                put(&mut port.monitor_max_retries, text, retries)
            },
        },
    },
    OptionRow {
        name: "health-monitor-max-retries-down",
        takes: "a number from 1 to 10",
        default: "3",
        summary: "As `landfall.dev/monitor-max-retries-down`.",
        example: "5",
        effect: Effect::Port {
            option: OptionId::MonitorMaxRetriesDown,
            set: |port, text| {
                let retries = of_monitor(text, 1, 10)?;
                put(&mut port.monitor_max_retries_down, text, retries)
            },
        },
    },
    OptionRow {
        name: "hostname",
        takes: "a DNS name; empty: no name",
        default: "the address is published",
        summary: "As `landfall.dev/hostname`.",
        example: "web.example.org",
        effect: Effect::Service {
            option: OptionId::Hostname,
            set: |service, text| {
                if text.value.is_empty() {
                    return Ok(Outcome::Nothing);
                }
                put(&mut service.hostname, text, value::dns_name(text.value)?)
            },
        },
    },
    extension(
        "default-tls-container-ref",
        "the URL of a Barbican secret or container",
        "Certificates for all ports.",
        "https://barbican.example.org/v1/containers/11111111-1111-1111-1111-111111111111",
        Severity::Warning,
        "the certificate is in Barbican, which is not used here; landfall.dev/mode and \
        landfall.dev/tls-secret do the same with a Secret",
        |service, it| text(&mut service.extensions.openstack.tls_container, it),
    ),
    extension(
        "floating-network-id",
        "the UUID of a network",
        "The network of the floating IP.",
        "11111111-1111-1111-1111-111111111111",
        Severity::Warning,
        NO_CLOUD_NETWORK,
        |service, it| text(&mut service.extensions.openstack.floating_network, it),
    ),
    extension(
        "floating-subnet-id",
        "the UUID of a subnet",
        "The subnet of the floating IP.",
        "11111111-1111-1111-1111-111111111111",
        Severity::Warning,
        NO_CLOUD_NETWORK,
        |service, it| some(&mut service.extensions.openstack.floating_subnet_id, it),
    ),
    extension(
        "floating-subnet",
        "a pattern for names of subnets",
        "The subnet of the floating IP, by name.",
        "public-*",
        Severity::Warning,
        NO_CLOUD_NETWORK,
        |service, it| some(&mut service.extensions.openstack.floating_subnet, it),
    ),
    extension(
        "floating-subnet-tags",
        "an expression of tags",
        "The subnet of the floating IP, by tags.",
        "public",
        Severity::Warning,
        NO_CLOUD_NETWORK,
        |service, it| some(&mut service.extensions.openstack.floating_subnet_tags, it),
    ),
    extension(
        "class",
        "the name of a `[LoadBalancerClass]` section of cloud.conf",
        "A set of networks from the configuration.",
        "internal",
        Severity::Warning,
        NO_CLOUD_NETWORK,
        |service, it| some(&mut service.extensions.openstack.class, it),
    ),
    extension(
        "subnet-id",
        "the UUID of a subnet",
        "The subnet of the address.",
        "11111111-1111-1111-1111-111111111111",
        Severity::Warning,
        NO_CLOUD_NETWORK,
        |service, it| some(&mut service.extensions.openstack.subnet, it),
    ),
    extension(
        "network-id",
        "the UUID of a network",
        "The network of the address.",
        "11111111-1111-1111-1111-111111111111",
        Severity::Warning,
        NO_CLOUD_NETWORK,
        |service, it| some(&mut service.extensions.openstack.network, it),
    ),
    extension(
        "member-subnet-id",
        "the UUID of a subnet",
        "The subnet of the members.",
        "11111111-1111-1111-1111-111111111111",
        Severity::Warning,
        "members are reached over the machine's own routes here",
        |service, it| some(&mut service.extensions.openstack.member_subnet, it),
    ),
    extension(
        "port-id",
        "the UUID of a Neutron port",
        "The port that has the address.",
        "11111111-1111-1111-1111-111111111111",
        Severity::Warning,
        "it names a port in Neutron; there is none here, and landfall.dev/addresses requests an \
        address",
        |service, it| some(&mut service.extensions.openstack.port, it),
    ),
    extension(
        "keep-floatingip",
        BOOLEAN,
        "The floating IP outlives the Service.",
        "true",
        Severity::Warning,
        "there are no floating IPs here; the address is released with the Service",
        |service, text| {
            put(
                &mut service.extensions.openstack.keep_floating_ip,
                text,
                boolean(text, "false")?,
            )
        },
    ),
    extension(
        "flavor-id",
        "the UUID of a flavor",
        "The size of the load balancer.",
        "11111111-1111-1111-1111-111111111111",
        Severity::Warning,
        "it selects a flavor of Octavia; there are none here",
        |service, it| text(&mut service.extensions.openstack.flavor, it),
    ),
    extension(
        "availability-zone",
        "the name of a zone",
        "The zone of the load balancer.",
        "nova",
        Severity::Warning,
        "it selects a zone of a cloud; this is one machine",
        |service, it| text(&mut service.extensions.openstack.availability_zone, it),
    ),
    extension(
        "lb-provider",
        "the name of an Octavia provider",
        "The Octavia provider of the load balancer.",
        "ovn",
        Severity::Warning,
        "it selects a driver of Octavia; there is none here",
        |service, it| some(&mut service.extensions.openstack.provider, it),
    ),
    extension(
        "enable-ingress-hostname",
        BOOLEAN,
        "With PROXY protocol: a generated name is published instead of the address.",
        "true",
        Severity::Warning,
        "traffic from inside the cluster reaches the load balancer here without a generated name; \
        landfall.dev/hostname publishes a real one",
        |service, text| {
            put(
                &mut service.extensions.openstack.ingress_hostname,
                text,
                boolean(text, "the configuration")?,
            )
        },
    ),
    extension(
        "node-selector",
        "labels as `KEY=VALUE` or `KEY`, with commas between them",
        "Which nodes are members.",
        "pool=edge",
        Severity::Warning,
        "members are endpoints here, on any node",
        |service, text| {
            let selector = NodeSelector::parse(text.value);
            let selector = selector.map_err(|refusal| AnnotationError::Replaced {
                refusal,
                by: "the default",
            })?;
            put(&mut service.node_selector, text, selector)
        },
    ),
    extension(
        "load-balancer-id",
        "the UUID of a load balancer",
        "Which load balancer to use; written by the controller.",
        "11111111-1111-1111-1111-111111111111",
        Severity::Warning,
        NO_CLOUD_OBJECT,
        |service, it| some(&mut service.extensions.openstack.load_balancer, it),
    ),
    extension(
        "load-balancer-address",
        "an address",
        "Written by the controller; not an option.",
        "192.0.2.10",
        Severity::Info,
        "the OpenStack controller writes it; it is not an option",
        |service, it| some(&mut service.extensions.openstack.published, it),
    ),
    extension(
        "load-balancer-tags",
        "tags with commas between them",
        "Additional tags of the load balancer.",
        "team-a",
        Severity::Info,
        NO_CLOUD_OBJECT,
        |service, it| list(&mut service.extensions.openstack.load_balancer_tags, it),
    ),
    extension(
        "listener-tags",
        "tags with commas between them",
        "Additional tags of the listeners.",
        "team-a",
        Severity::Info,
        NO_CLOUD_OBJECT,
        |service, it| list(&mut service.extensions.openstack.listener_tags, it),
    ),
    extension(
        "pool-tags",
        "tags with commas between them",
        "Additional tags of the pools.",
        "team-a",
        Severity::Info,
        NO_CLOUD_OBJECT,
        |service, it| list(&mut service.extensions.openstack.pool_tags, it),
    ),
    own::FLOATING_IP_TAGS,
    own::GROUP_TAGS,
    own::SNI_CONTAINERS,
    own::VERSIONS,
    own::CIPHERS,
    own::ALPN,
];
