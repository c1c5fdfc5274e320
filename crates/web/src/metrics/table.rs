//! The one table of metrics: `/metrics` is written with it and `docs/metrics.md` from it.

use std::fmt::Write as _;

/// A metric: its name, its meaning and the labels of its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name without the unit and without what the text format appends.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The unit, which becomes part of the name.
    pub unit: Option<&'static str>,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// One sentence.
    pub help: &'static str,
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises, until its object goes.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Observations by size.
    Histogram,
    /// Always 1; the labels say it.
    Info,
}

macro_rules! metrics {
    ($(
        $name:ident = $kind:ident $text:literal $(unit $unit:literal)?
            [$($label:literal),*]
            $help:literal;
    )+) => {
        $(pub(super) const $name: Metric = Metric {
            name: $text,
            kind: Kind::$kind,
            unit: metrics!(@unit $($unit)?),
            labels: &[$($label),*],
            help: $help,
        };)+

        /// Every metric, in the order in which it is written.
        pub const ALL: &[Metric] = &[$($name),+];
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
}

metrics! {
    BUILD = Info "landfall_build" ["version"]
        "The running program.";
    START = Gauge "landfall_start_time" unit "seconds" []
        "When the process started, in seconds since 1970.";
    READY = Gauge "landfall_ready" []
        "1 once every object was read and every Service was reconciled once after the start.";
    HEARTBEAT = Gauge "landfall_heartbeat_age" unit "seconds" []
        "Seconds since the control loop last ran.";
    PROBLEMS = Gauge "landfall_source_problems" ["code", "severity"]
        "Current problems of the sources, by reason.";
    SERVICES = Gauge "landfall_services" []
        "Services of type LoadBalancer that this process serves.";
    CONDITIONS = Gauge "landfall_service_conditions" ["condition", "status"]
        "Services by the conditions Accepted, Addressed and Programmed, each true or false.";
    PROGRAMMED = Gauge "landfall_service_programmed" ["namespace", "service"]
        "1 while traffic to the Service flows.";
    REASONS = Gauge "landfall_reasons" ["code", "severity"]
        "Current reasons of Services, by code.";
    LEFT_OUT = Gauge "landfall_left_out_endpoints" ["code"]
        "Endpoints that are left out of their pool, by reason.";
    PENDING = Gauge "landfall_pending_steps" []
        "Steps that are planned and not applied.";
    LISTENERS = Gauge "landfall_listeners" ["protocol", "mode"]
        "Listeners by transport protocol and by how they treat traffic (stream, tls, http, https).";
    LISTENER_UP = Gauge "landfall_listener_up" ["namespace", "service", "listener"]
        "1 while the listener serves.";
    LISTENER_MEMBERS = Gauge "landfall_listener_members"
        ["namespace", "service", "listener", "health"]
        "Members of the listener's pool by health (up, unknown, unchecked, failing, down, \
        draining).";
    LISTENER_OPEN = Gauge "landfall_listener_connections_open" ["namespace", "service", "listener"]
        "Open connections (UDP: flows).";
    LISTENER_CONNECTIONS = Counter "landfall_listener_connections"
        ["namespace", "service", "listener"]
        "Connections (UDP: flows) since the start.";
    LISTENER_FAILED = Counter "landfall_listener_connections_failed"
        ["namespace", "service", "listener"]
        "Connections that could not be served, for any reason.";
    LISTENER_RECEIVED = Counter "landfall_listener_received" unit "bytes"
        ["namespace", "service", "listener"]
        "Bytes from clients.";
    LISTENER_SENT = Counter "landfall_listener_sent" unit "bytes"
        ["namespace", "service", "listener"]
        "Bytes to clients.";
    LISTENER_RESPONSES = Counter "landfall_listener_responses"
        ["namespace", "service", "listener", "class"]
        "HTTP responses by status class (1xx to 5xx), including Landfall's own.";
    LISTENER_REFUSED = Counter "landfall_listener_refused"
        ["namespace", "service", "listener", "reason"]
        "Refused connections and requests, by reason: no_member, limit, source, source_limit, \
        source_rate, queue (of members with a limit), hops (a datagram with its last hop), \
        proxy_header, tls, share (of descriptors, ports or memory), local (a shortage of this \
        machine).";
    LISTENER_WAITING = Gauge "landfall_listener_waiting" ["namespace", "service", "listener"]
        "Connections and requests that wait for a member because all are at their limit.";
    LISTENER_LOCAL = Counter "landfall_listener_local_failures"
        ["namespace", "service", "listener", "cause"]
        "Failures of this machine and not of a member, by cause: descriptors, ports, memory, size, \
        denied.";
    LISTENER_BROKEN = Counter "landfall_listener_broken"
        ["namespace", "service", "listener", "cause"]
        "Streams without TLS that one side broke off, by side and error: client_ or member_reset, \
        pipe, timeout, other.";
    LISTENER_CONNECT = Histogram "landfall_listener_connect_duration" unit "seconds"
        ["namespace", "service", "listener"]
        "Time to connect streams to their member.";
    LISTENER_CONNECTION = Histogram "landfall_listener_connection_duration" unit "seconds"
        ["namespace", "service", "listener"]
        "Duration of streams and UDP flows.";
    LISTENER_FIRST_BYTE = Histogram "landfall_listener_first_byte_duration" unit "seconds"
        ["namespace", "service", "listener"]
        "From the head of an HTTP request to that of its response.";
    LISTENER_REQUEST = Histogram "landfall_listener_request_duration" unit "seconds"
        ["namespace", "service", "listener"]
        "From the head of an HTTP request to the end of its response.";
    MEMBER_UP = Gauge "landfall_member_up" ["namespace", "service", "listener", "member"]
        "1 while the member gets new connections and can be reached.";
    MEMBER_OPEN = Gauge "landfall_member_connections_open"
        ["namespace", "service", "listener", "member"]
        "Open connections to the member.";
    MEMBER_CONNECTIONS = Counter "landfall_member_connections"
        ["namespace", "service", "listener", "member"]
        "Connections to the member since the start.";
    MEMBER_FAILED = Counter "landfall_member_connections_failed"
        ["namespace", "service", "listener", "member"]
        "Connections to the member that failed.";
    MEMBER_TURNS = Counter "landfall_member_health_transitions"
        ["namespace", "service", "listener", "member"]
        "Changes of the member's health.";
    POOL_ASSIGNED = Gauge "landfall_pool_assigned_addresses" ["pool", "family"]
        "Addresses of the address pool that Services hold.";
    POOL_AVAILABLE = Gauge "landfall_pool_available_addresses" ["pool", "family"]
        "Free addresses of the address pool, at most 2^63.";
    POOL_LARGEST = Gauge "landfall_pool_largest_namespace_addresses" ["pool", "family"]
        "Addresses of the address pool that the namespace with most of them holds.";
    POOL_LIMIT = Gauge "landfall_pool_namespace_limit_addresses" ["pool", "family"]
        "Addresses of the address pool that one namespace may hold, if that is limited.";
    ALLOCATOR_TOTAL = Gauge "metallb_allocator_addresses_total" ["pool"]
        "Addresses of the address pool that Services hold or can get; named as in MetalLB, as all \
        of the allocator.";
    ALLOCATOR_USED = Gauge "metallb_allocator_addresses_in_use_total" ["pool"]
        "Addresses of the address pool that Services hold.";
    ALLOCATOR_TOTAL_V4 = Gauge "metallb_allocator_ipv4_addresses_total" ["pool"]
        "The same for IPv4.";
    ALLOCATOR_USED_V4 = Gauge "metallb_allocator_ipv4_addresses_in_use_total" ["pool"]
        "The same for IPv4.";
    ALLOCATOR_TOTAL_V6 = Gauge "metallb_allocator_ipv6_addresses_total" ["pool"]
        "The same for IPv6.";
    ALLOCATOR_USED_V6 = Gauge "metallb_allocator_ipv6_addresses_in_use_total" ["pool"]
        "The same for IPv6.";
    RECONCILE = Histogram "landfall_reconcile_duration" unit "seconds" []
        "Duration of reconciles of one Service.";
    RECONCILES = Counter "landfall_reconciles" ["outcome"]
        "Reconciles of one Service, by outcome.";
    QUEUED = Gauge "landfall_reconcile_queue" []
        "Services that wait to be reconciled.";
    EVENTS_SUPPRESSED = Counter "landfall_events_suppressed" ["how"]
        "Events that were not sent separately: `aggregated` into the count of another one, or \
        `dropped`.";
    TURNS = Counter "landfall_reconcile_loop_turns" []
        "Iterations of the control loop: about one per second when idle.";
    REWRITES = Counter "landfall_status_rewrites" []
        "Status writes of this process on a Service that another program overwrote.";
    STEPS = Counter "landfall_plan_steps" ["kind"]
        "Steps that were applied, by kind.";
    STEPS_FAILED = Counter "landfall_plan_steps_failed" ["kind"]
        "Steps that failed, by kind.";
    CLOUD_CALLS = Counter "landfall_cloud_calls" ["instance", "method", "resource", "outcome"]
        "Requests to APIs of clouds, by outcome (ok, or the kind of error).";
    CLOUD_TIME = Histogram "landfall_cloud_call_duration" unit "seconds"
        ["instance", "method", "resource"]
        "Duration of these requests, whatever their outcome.";
    SECRETS = Gauge "landfall_secrets_watched" []
        "Secrets that are watched because Services name them; each takes a descriptor.";
    SECRETS_LIMIT = Gauge "landfall_secrets_watched_limit" []
        "Limit of watched Secrets: an eighth of the descriptors, unless limits in landfall.yaml \
        are lower.";
    SECRETS_REFUSED = Gauge "landfall_secrets_refused" []
        "Secrets that Services name and that are not watched because of the limit.";
    WORKERS = Gauge "landfall_workers" []
        "Worker threads of the data plane.";
    DESCRIPTORS = Gauge "landfall_descriptors_used" []
        "File descriptors of connections and flows.";
    DESCRIPTOR_LIMIT = Gauge "landfall_descriptors_limit" []
        "Current limit of file descriptors for connections and flows.";
    LISTENER_SOCKETS = Gauge "landfall_listener_sockets" []
        "Sockets of listeners.";
    FLOWS = Gauge "landfall_udp_flows" []
        "Open UDP flows.";
    FLOW_LIMIT = Gauge "landfall_udp_flows_limit" []
        "Limit of open UDP flows.";
    BUFFER_MEMORY = Gauge "landfall_buffer_memory" unit "bytes" []
        "Buffer memory of connections, beyond what each connection always has.";
    BUFFER_MEMORY_LIMIT = Gauge "landfall_buffer_memory_limit" unit "bytes" []
        "Limit of buffer memory: half of what the control group or the machine has.";
    CHECKS = Counter "landfall_checks" []
        "Health checks that were started.";
    CHECKS_DELAYED = Counter "landfall_checks_delayed" []
        "Health checks that waited for their turn because too many were due.";
    CHECKS_WAITING = Gauge "landfall_checks_waiting" []
        "Health checks that wait for their turn.";
    SHORTAGES = Counter "landfall_shortages" []
        "Refusals and failures caused by a shortage of descriptors, ports or memory.";
    OVERLOADED = Gauge "landfall_overloaded" []
        "1 while descriptors, ports or buffer memory are short, and shortly after.";
    ACCESS_LOG_LOST = Counter "landfall_access_log_lines_lost" []
        "Lines of the access log that were dropped: too many at once, a full disk, a reader that \
        hangs.";
    ACCESS_LOG_LEFT_OUT = Counter "landfall_access_log_lines_left_out" []
        "Failures that are not in the access log because their Service had too many.";
    SPEAKER_ANNOUNCED = Gauge "metallb_speaker_announced" ["service", "protocol", "node", "ip"]
        "1 while this speaker announces the address for the Service; named as in MetalLB.";
    SPEAKER_FAILING = Gauge "landfall_speaker_failing_addresses" []
        "Addresses that this speaker should announce and can't.";
    SPEAKER_MEMBERS = Gauge "landfall_speaker_members" []
        "Live speakers, this one included.";
    SPEAKER_DIED = Counter "landfall_speaker_members_died" []
        "Speakers that this one found to have failed.";
    SPEAKER_SUSPICIONS = Counter "landfall_speaker_suspicions" []
        "Suspicions of other speakers that this one raised.";
    SPEAKER_REFUTED = Counter "landfall_speaker_suspicions_refuted" []
        "Suspicions of this speaker that it refuted.";
    SPEAKER_PAUSES = Counter "landfall_speaker_pauses" []
        "Pauses in which this process was not scheduled because the cores were busy.";
    SPEAKER_REFUSED = Counter "landfall_speaker_datagrams_refused" ["reason"]
        "Datagrams of the membership that were refused: foreign, unknown_key, forged, replayed, \
        own_name (another speaker has the name of this node).";
    BGP_UP = Gauge "metallb_bgp_session_up" ["peer", "vrf"]
        "1 while the session with the router is established; named as in MetalLB, as all of BGP.";
    BGP_ANNOUNCED = Gauge "metallb_bgp_announced_prefixes_total" ["peer", "vrf"]
        "Prefixes that the router was sent and that were not withdrawn.";
    BGP_PENDING = Gauge "metallb_bgp_pending_prefixes_total" ["peer", "vrf"]
        "Prefixes that the router was not sent yet.";
    BGP_RECEIVED = Counter "landfall_bgp_received_prefixes" ["peer", "vrf"]
        "Announcements of prefixes that came from the router, which are ignored.";
    BGP_MESSAGES = Counter "landfall_bgp_messages" ["peer", "vrf", "direction", "kind"]
        "Messages of the session, by direction and kind.";
    BFD_UP = Gauge "metallb_bfd_session_up" ["peer", "vrf"]
        "1 while BFD finds the router reachable; named as in MetalLB.";
    BFD_DOWNS = Counter "landfall_bfd_downs" ["peer", "vrf"]
        "How often BFD lost the router.";
    LOG_LOST = Counter "landfall_log_lines_lost" []
        "Log lines that were dropped: a full disk, a closed pipe, a reader that hangs.";
    LOG_LEFT_OUT = Counter "landfall_log_lines_left_out" []
        "Log lines of Services that were dropped because their Service or namespace wrote too \
        many.";
}

/// The reference page, `docs/metrics.md`.
pub fn reference() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
        <!-- Written from the table in crates/web/src/metrics/table.rs; a test compares. -->\n\n\
        `/metrics` on the [admin endpoint](operating.md#admin-endpoint) of each process:\n\
        controller, speaker and `up`. Each answer is one consistent snapshot. A series is\n\
        removed with the Service, listener, member or address pool that it describes.\n\n\
        The answer is OpenMetrics if the client accepts `application/openmetrics-text`, as\n\
        Prometheus does, otherwise the text format of Prometheus (0.0.4). It is compressed if\n\
        `Accept-Encoding` contains `gzip`. `/metrics?members=false` omits the series of single\n\
        members (those with the label `member`), which are most of a large answer; in Prometheus:\n\
        `params: {members: [\"false\"]}`. `/metrics?histograms=false` does so with the histograms\n\
        of listeners.\n\n\
        Labels: `namespace` and `service` name a Service, `listener` is a front port with its\n\
        protocol (`443/TCP`), `member` is the address and port of a member, `code` is the stable\n\
        code of a reason. Counters of a listener or member start from 0 when it is created. \
        Series\n\
        by `class`, `reason` or `cause`, and histograms, appear with the first event that they\n\
        count.\n\n\
        | metric | type | labels | meaning |\n\
        |---|---|---|---|\n",
    );
    for metric in ALL {
        let labels: Vec<_> = metric
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        // Writing into a string can't fail.
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} |",
            metric.sample_name(),
            metric.kind.as_str(),
            labels.join(", "),
            metric.help
        );
    }
    page.push_str(
        "\n## Alerts and dashboard\n\n\
        `deploy/monitoring/rules.yaml` has alert rules for Prometheus: Services without\n\
        traffic, pools that run out of members or addresses, problems of the sources,\n\
        shortages, a control loop that is stuck; and for bare metal routers without a\n\
        session or BFD, prefixes and addresses that are not announced, addresses that several\n\
        nodes answer for, and speakers that do not reach each other. For Grafana there is a\n\
        dashboard for bare metal, `deploy/monitoring/bare-metal.json`.\n",
    );
    page
}

// === impl Metric ===

impl Metric {
    /// The name of the metric family: with its unit.
    pub fn family_name(&self) -> String {
        match self.unit {
            Some(unit) => format!("{}_{unit}", self.name),
            None => self.name.to_owned(),
        }
    }

    /// Returns the name of samples. Those of histograms also end in `_bucket`, `_sum` or `_count`.
    pub fn sample_name(&self) -> String {
        let name = self.family_name();
        match self.kind {
            Kind::Counter => name + "_total",
            Kind::Info => name + "_info",
            Kind::Gauge | Kind::Histogram => name,
        }
    }
}

// === impl Kind ===

impl Kind {
    /// The type as the text format spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}
