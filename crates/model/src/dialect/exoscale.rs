//! The dialect of Exoscale's cloud controller manager,
//! `service.beta.kubernetes.io/exoscale-loadbalancer-*`.
//!
//! Values are kept as texts and validated by the provider, one by one: see
//! [`ExoscaleOptions`](super::ExoscaleOptions).

use super::given::{Given, put};
use super::{
    AnnotationError, Dialect, DialectId, Effect, OptionRow, Outcome, ServiceOptions, Text,
};
use crate::reason::Severity;

/// The id of the load balancer, which a controller writes where the user does not.
pub const LOAD_BALANCER_ID: &str = "service.beta.kubernetes.io/exoscale-loadbalancer-id";

/// The id of the instance pool, which a controller writes where the user does not.
pub const INSTANCE_POOL_ID: &str =
    "service.beta.kubernetes.io/exoscale-loadbalancer-service-instancepool-id";

/// The annotations of Exoscale's cloud controller manager.
pub(super) static DIALECT: Dialect = Dialect {
    id: DialectId::Exoscale,
    title: "Exoscale: `service.beta.kubernetes.io/exoscale-loadbalancer-*`",
    prefix: "service.beta.kubernetes.io/exoscale-loadbalancer-",
    per_port: false,
    unknown: Some(Severity::Warning),
    empty_is_absent: false,
    successor: None,
    marks: &[LOAD_BALANCER_ID, INSTANCE_POOL_ID],
    given_mark: Some(LOAD_BALANCER_ID),
    about: "\
Interpreted as by Exoscale's cloud controller manager. If a value is refused, the one in use stays,
and all other options are applied. Durations need a unit, and count whole seconds.",
    rows: ROWS,
};

const NO_CLOUD_OBJECT: &str = "it names or describes objects of Exoscale; there are none here";
const NO_POOL: &str = "it selects instances of Exoscale; members are chosen differently here";
const NO_MONITOR: &str = "it configures health checks of Exoscale; landfall.dev/monitor works here";

const ROWS: &[OptionRow] = &[
    row(
        "id",
        "the UUID of a load balancer",
        "written by the controller",
        "Which load balancer to use.",
        "11111111-1111-1111-1111-111111111111",
        NO_CLOUD_OBJECT,
        |service, it| some(&mut service.extensions.exoscale.load_balancer, it),
    ),
    row(
        "name",
        "1 to 255 characters",
        "`k8s-` and the UID of the Service",
        "The name of the load balancer. With `external` and without `id`: which load balancer to \
         use, by name or id.",
        "web",
        NO_CLOUD_OBJECT,
        |service, it| text(&mut service.extensions.exoscale.name, it),
    ),
    row(
        "description",
        "at most 255 characters",
        "none",
        "The description of the load balancer.",
        "Web servers",
        NO_CLOUD_OBJECT,
        |service, it| text(&mut service.extensions.exoscale.description, it),
    ),
    row(
        "external",
        "`true`, in upper or lower case; anything else is false",
        "`false`",
        "The load balancer belongs to others: it is never created, renamed or deleted, and neither \
         are NLB services of others.",
        "true",
        NO_CLOUD_OBJECT,
        |service, text| {
            let external = text.value.eq_ignore_ascii_case("true");
            put(&mut service.extensions.exoscale.external, text, external)
        },
    ),
    row(
        "service-name",
        "1 to 255 characters",
        "the UID of the Service, its port, and `-udp` for UDP",
        "The name of the NLB service, of a Service with one port.",
        "web-80",
        NO_CLOUD_OBJECT,
        |service, it| text(&mut service.extensions.exoscale.service_name, it),
    ),
    row(
        "service-description",
        "at most 255 characters",
        "none",
        "The description of the NLB service, of a Service with one port.",
        "HTTP",
        NO_CLOUD_OBJECT,
        |service, it| text(&mut service.extensions.exoscale.service_description, it),
    ),
    row(
        "service-instancepool-id",
        "the UUID of an instance pool",
        "the pool of the nodes; written by the controller",
        "The instance pool of all ports.",
        "11111111-1111-1111-1111-111111111111",
        NO_POOL,
        |service, it| some(&mut service.extensions.exoscale.instance_pool, it),
    ),
    row(
        "sks-cluster-name",
        "the name or id of an SKS cluster",
        "none",
        "The cluster of `service-sks-nodepool-name`.",
        "prod",
        NO_POOL,
        |service, it| some(&mut service.extensions.exoscale.sks_cluster, it),
    ),
    row(
        "service-sks-nodepool-name",
        "the name of a nodepool, in upper or lower case",
        "none",
        "The nodepool whose instance pool all ports have. Needs `sks-cluster-name`.",
        "web",
        NO_POOL,
        |service, it| some(&mut service.extensions.exoscale.sks_nodepool, it),
    ),
    row(
        "service-strategy",
        "`round-robin`, `source-hash` or `maglev-hash`",
        "`round-robin`",
        "How an instance is chosen.",
        "source-hash",
        "it configures load balancers of Exoscale; landfall.dev/algorithm works here",
        |service, it| text(&mut service.extensions.exoscale.strategy, it),
    ),
    row(
        "service-healthcheck-mode",
        "`tcp`, `http` or `https`",
        "`tcp`; with `externalTrafficPolicy: Local` `http`",
        "How instances are checked.",
        "http",
        NO_MONITOR,
        |service, it| text(&mut service.extensions.exoscale.healthcheck_mode, it),
    ),
    row(
        "service-healthcheck-port",
        "a port",
        "the NodePort; with `externalTrafficPolicy: Local` `healthCheckNodePort`",
        "The port that is checked, for all ports of the Service.",
        "30000",
        NO_MONITOR,
        |service, it| some(&mut service.extensions.exoscale.healthcheck_port, it),
    ),
    row(
        "service-healthcheck-uri",
        "1 to 255 characters",
        "none; with `externalTrafficPolicy: Local` `/healthz`",
        "The path of HTTP checks.",
        "/healthz",
        NO_MONITOR,
        |service, it| text(&mut service.extensions.exoscale.healthcheck_uri, it),
    ),
    row(
        "service-healthcheck-interval",
        "a duration from 5s to 300s",
        "`10s`",
        "Time between two checks, at least the timeout.",
        "15s",
        NO_MONITOR,
        |service, it| text(&mut service.extensions.exoscale.healthcheck_interval, it),
    ),
    row(
        "service-healthcheck-timeout",
        "a duration from 2s to 60s",
        "`5s`",
        "The timeout of a check.",
        "4s",
        NO_MONITOR,
        |service, it| text(&mut service.extensions.exoscale.healthcheck_timeout, it),
    ),
    row(
        "service-healthcheck-retries",
        "a number from 1 to 20",
        "`1`",
        "Failed checks before an instance is down.",
        "3",
        NO_MONITOR,
        |service, it| text(&mut service.extensions.exoscale.healthcheck_retries, it),
    ),
    row(
        "service-healthcheck-tls-sni",
        "1 to 255 characters",
        "none",
        "The server's name in HTTPS checks. Exoscale's controller does not have this option.",
        "web.example.org",
        NO_MONITOR,
        |service, it| text(&mut service.extensions.exoscale.healthcheck_tls_sni, it),
    ),
    OptionRow {
        name: "zone",
        takes: "the name of a zone",
        default: "none",
        summary: "Read by old versions of Exoscale's controller.",
        example: "ch-gva-2",
        effect: Effect::NotApplicable {
            severity: Severity::Info,
            why: "the configuration of the instance names the zone",
        },
    },
];

/// Returns a row about something that only Exoscale has.
const fn row(
    name: &'static str,
    takes: &'static str,
    default: &'static str,
    summary: &'static str,
    example: &'static str,
    why: &'static str,
    set: fn(&mut ServiceOptions, Text<'_>) -> Result<Outcome, AnnotationError>,
) -> OptionRow {
    let (of, severity) = (DialectId::Exoscale, Severity::Warning);
    OptionRow {
        name,
        takes,
        default,
        summary,
        example,
        effect: Effect::Extension {
            of,
            set,
            severity,
            why,
        },
    }
}

/// A text, even an empty one.
fn text(slot: &mut Option<Given<String>>, text: Text<'_>) -> Result<Outcome, AnnotationError> {
    put(slot, text, text.value.to_owned())
}

/// A text; an empty one is as good as none.
fn some(slot: &mut Option<Given<String>>, it: Text<'_>) -> Result<Outcome, AnnotationError> {
    if it.value.is_empty() {
        return Ok(Outcome::Nothing);
    }
    text(slot, it)
}
