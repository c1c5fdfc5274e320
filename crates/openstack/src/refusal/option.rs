//! Which option of a Service a refused write is about: what the write sets, where that is one
//! thing; else the one of them that the cloud's words name. Pure.

use landfall_model::dialect::openstack::LOAD_BALANCER_ID;
use landfall_model::reason::annotation_field;

use crate::client::{ApiError, ErrorKind, Tagged};
use crate::names::{
    CLUSTER_PREFIX, INTERNAL_PREFIX, KEEPS_FLOATING_IP, SERVICE_PREFIX, SHARER_PREFIX, UID_PREFIX,
};
use crate::objects::{ListenerProtocol, PoolProtocol};
use crate::requests::{ListenerRequest, LoadBalancerRequest, MonitorRequest, PoolRequest};
use crate::step::Step;
use crate::target::{WantedListener, WantedPool};

/// An option: how a Reason names it, and what servers say when they mean it.
#[derive(Clone, Copy)]
struct Named {
    option: &'static str,
    words: &'static [&'static str],
}

const fn named(option: &'static str, words: &'static [&'static str]) -> Named {
    Named { option, words }
}

const BALANCER_TAGS: Named = named("loadbalancer.openstack.org/load-balancer-tags", &["tag"]);
const LISTENER_TAGS: Named = named("loadbalancer.openstack.org/listener-tags", &["tag"]);
const POOL_TAGS: Named = named("loadbalancer.openstack.org/pool-tags", &["tag"]);
const FLAVOR: Named = named("loadbalancer.openstack.org/flavor-id", &["flavor"]);
const ZONE: Named = named(
    "loadbalancer.openstack.org/availability-zone",
    &["availability zone", "availability_zone"],
);
const PORT: Named = named("loadbalancer.openstack.org/port-id", &["port"]);
const SUBNET: Named = named("loadbalancer.openstack.org/subnet-id", &["subnet"]);
const NETWORK: Named = named("loadbalancer.openstack.org/network-id", &["network"]);
const TLS: Named = named(
    "loadbalancer.openstack.org/default-tls-container-ref",
    &["pkcs12", "certificate", "tls", "barbican"],
);
const RANGES: Named = named("spec.loadBalancerSourceRanges", &["cidr"]);
const LIMIT: Named = named(
    "connection-limit",
    &["connection_limit", "connection limit"],
);
const HEADERS: Named = named("x-forwarded-for", &["insert_headers", "header"]);
const PROXY: Named = named("proxy-protocol", &["proxy"]);
const ALGORITHM: Named = named("lb-method", &["algorithm"]);
const AFFINITY: Named = named("spec.sessionAffinity", &["persistence"]);
const MONITOR: Named = named("enable-health-monitor", &["monitor"]);
const PORTS: Named = named("spec.ports", &["protocol_port", "listener"]);
const ADDRESS: Named = named("addresses", &["address"]);
const SNI: Named = named("loadbalancer.openstack.org/sni-container-refs", &["sni"]);
const VERSIONS: Named = named(
    "loadbalancer.openstack.org/tls-versions",
    &["tls_versions", "tls version"],
);
const CIPHERS: Named = named("loadbalancer.openstack.org/tls-ciphers", &["cipher"]);
const ALPN: Named = named("loadbalancer.openstack.org/alpn-protocols", &["alpn"]);
const FLOATING_IP_TAGS: Named = named("loadbalancer.openstack.org/floating-ip-tags", &["tag"]);
const GROUP_TAGS: Named = named("loadbalancer.openstack.org/security-group-tags", &["tag"]);
const SECRET: Named = named("tls-secret", &["certificate", "secret"]);
const BALANCER: Named = named(LOAD_BALANCER_ID, &[]);
const CLUSTER: Named = named("--cluster-name", &[]);
const NODES: Named = named("node-selector", &["member"]);
const GROUPS: Named = named("manage-security-groups", &["security"]);

/// The option that a refusal is about, as a Reason's field. A quota that keeps a new object from
/// being made is about none. `joins`: the write marks a load balancer that the Service begins to
/// share.
pub(crate) fn option_of(step: &Step, error: &ApiError, joins: bool) -> Option<String> {
    let said = error.message.to_lowercase();
    let set = if joins { vec![BALANCER] } else { set_by(step) };
    let names = |it: &&Named| it.words.iter().any(|word| said.contains(word));
    let found = match (step, error.kind) {
        (
            Step::CreateLoadBalancer { .. } | Step::CreateFloatingIp { .. },
            ErrorKind::Quota | ErrorKind::Forbidden,
        ) => None,
        // It sets so much that only the words name it.
        (Step::CreateLoadBalancer { .. }, _) => set.iter().find(names),
        _ => set.iter().find(names).or(set.first()),
    }?;
    Some(if found.option.contains("openstack.org/") {
        annotation_field(found.option)
    } else {
        found.option.to_owned()
    })
}

/// The options that a write sets, the likeliest first.
fn set_by(step: &Step) -> Vec<Named> {
    match step {
        Step::CreateLoadBalancer { body, holds, .. } => of_new_balancer(body, holds),
        Step::UpdateLoadBalancer { changes, .. } => {
            let own = changes.tags.iter().flatten().any(|tag| !is_mark(tag));
            let renames = changes.name.is_some();
            let options = [(renames, CLUSTER), (own, BALANCER_TAGS)].into_iter();
            options
                .filter_map(|(sets, option)| sets.then_some(option))
                .collect()
        }
        Step::TryListener { listener, .. } | Step::CreateListener { listener, .. } => {
            let mut set = of_listener(listener);
            set.push(PORTS);
            set
        }
        Step::UpdateListener { changes, .. } => of_listener_changes(changes),
        Step::DeleteListener { .. } | Step::DeletePool { .. } => vec![PORTS],
        Step::CreatePool { pool, .. } => {
            let mut set = of_pool(pool);
            set.extend([PORTS, ALGORITHM]);
            set
        }
        Step::UpdatePool { changes, .. } => of_pool_changes(changes),
        Step::SetMembers { .. }
        | Step::AddMember { .. }
        | Step::UpdateMember { .. }
        | Step::DeleteMember { .. } => vec![NODES],
        Step::CreateMonitor { .. } | Step::DeleteMonitor { .. } => vec![MONITOR],
        Step::UpdateMonitor { changes, .. } => of_monitor_changes(changes),
        Step::CreateFloatingIp { bodies } => {
            let asks = bodies.iter().any(|it| it.floating_ip_address.is_some());
            let network = named(
                "loadbalancer.openstack.org/floating-network-id",
                &["network", "address"],
            );
            vec![if asks { ADDRESS } else { network }]
        }
        Step::AttachFloatingIp { .. } | Step::DetachFloatingIp { .. } => vec![ADDRESS],
        Step::CreateGroup { .. }
        | Step::CreateRules { .. }
        | Step::DeleteRule { .. }
        | Step::SetPortGroups { .. }
        | Step::DeleteGroup { .. } => vec![GROUPS],
        Step::SetTags {
            of: Tagged::FloatingIp,
            ..
        } => vec![FLOATING_IP_TAGS],
        Step::SetTags { .. } => vec![GROUP_TAGS],
        Step::CreateCertificate { .. } | Step::DeleteCertificate { .. } => vec![SECRET],
        Step::FailOver { .. } | Step::DeleteLoadBalancer { .. } | Step::DeleteFloatingIp { .. } => {
            Vec::new()
        }
    }
}

fn of_new_balancer(body: &LoadBalancerRequest, holds: &[WantedListener]) -> Vec<Named> {
    let own = body.tags.iter().flatten().any(|tag| !is_mark(tag));
    let mut set: Vec<Named> = [
        (body.flavor_id.is_some(), FLAVOR),
        (body.availability_zone.is_some(), ZONE),
        (own, BALANCER_TAGS),
        (body.vip_port_id.is_some(), PORT),
    ]
    .into_iter()
    .filter_map(|(sets, option)| sets.then_some(option))
    .collect();
    for listener in holds {
        set.extend(of_listener(listener));
        set.extend(of_pool(&listener.pool));
    }
    set.push(ALGORITHM);
    set.extend(body.vip_subnet_id.as_ref().map(|_| SUBNET));
    set.extend(body.vip_network_id.as_ref().map(|_| NETWORK));
    set
}

fn of_listener(listener: &WantedListener) -> Vec<Named> {
    let http = listener.protocol == ListenerProtocol::Http || !listener.headers.is_empty();
    let all = |text: &String| text == "0.0.0.0/0" || text == "::/0";
    let restricted = listener.allowed.iter().flatten().any(|it| !all(it));
    let options = [
        (listener.tls_ciphers.is_some(), CIPHERS),
        (listener.tls_versions.is_some(), VERSIONS),
        (listener.alpn.is_some(), ALPN),
        (listener.sni.is_some(), SNI),
        (listener.tls.is_some(), TLS),
        (http, HEADERS),
        (listener.tags.len() > 1, LISTENER_TAGS),
        (restricted, RANGES),
        (listener.connection_limit >= 0, LIMIT),
    ];
    let set = options.into_iter();
    set.filter_map(|(sets, option)| sets.then_some(option))
        .collect()
}

fn of_listener_changes(changes: &ListenerRequest) -> Vec<Named> {
    let times = [
        (changes.timeout_client_data, "timeout-client-data"),
        (changes.timeout_member_connect, "timeout-member-connect"),
        (changes.timeout_member_data, "timeout-member-data"),
        (changes.timeout_tcp_inspect, "timeout-tcp-inspect"),
    ];
    let times = times.into_iter().filter_map(|(time, option)| {
        let words: &'static [&'static str] = match option {
            "timeout-client-data" => &["timeout_client_data"],
            "timeout-member-connect" => &["timeout_member_connect"],
            "timeout-member-data" => &["timeout_member_data"],
            _ => &["timeout_tcp_inspect"],
        };
        time.map(|_| named(option, words))
    });
    let options = [
        (changes.name.is_some(), CLUSTER),
        (changes.tls_ciphers.is_some(), CIPHERS),
        (changes.tls_versions.is_some(), VERSIONS),
        (changes.alpn_protocols.is_some(), ALPN),
        (changes.sni_container_refs.is_some(), SNI),
        (changes.default_tls_container_ref.is_some(), TLS),
        (changes.allowed_cidrs.is_some(), RANGES),
        (changes.connection_limit.is_some(), LIMIT),
        (changes.insert_headers.is_some(), HEADERS),
        (changes.tags.is_some(), LISTENER_TAGS),
        (changes.default_pool_id.is_some(), PORTS),
    ];
    let others = options.into_iter();
    others
        .filter_map(|(sets, option)| sets.then_some(option))
        .chain(times)
        .collect()
}

fn of_pool(pool: &WantedPool) -> Vec<Named> {
    let proxy = matches!(pool.protocol, PoolProtocol::Proxy | PoolProtocol::ProxyV2);
    let options = [
        (proxy, PROXY),
        (!pool.tags.is_empty(), POOL_TAGS),
        (pool.sticky, AFFINITY),
        (pool.monitor.is_some(), MONITOR),
    ];
    let set = options.into_iter();
    set.filter_map(|(sets, option)| sets.then_some(option))
        .collect()
}

fn of_pool_changes(changes: &PoolRequest) -> Vec<Named> {
    let options = [
        (changes.lb_algorithm.is_some(), ALGORITHM),
        (changes.session_persistence.is_some(), AFFINITY),
        (changes.tags.is_some(), POOL_TAGS),
    ];
    let set = options.into_iter();
    set.filter_map(|(sets, option)| sets.then_some(option))
        .collect()
}

fn of_monitor_changes(changes: &MonitorRequest) -> Vec<Named> {
    let options = [
        (
            changes.delay.is_some(),
            named("health-monitor-delay", &["delay"]),
        ),
        (
            changes.timeout.is_some(),
            named("health-monitor-timeout", &["timeout"]),
        ),
        (
            changes.max_retries.is_some(),
            named("health-monitor-max-retries", &["max_retries"]),
        ),
        (
            changes.max_retries_down.is_some(),
            named("health-monitor-max-retries-down", &["max_retries_down"]),
        ),
    ];
    let set = options.into_iter();
    let set = set.filter_map(|(sets, option)| sets.then_some(option));
    let renames = changes.name.as_ref().map(|_| CLUSTER);
    renames.into_iter().chain(set).chain([MONITOR]).collect()
}

/// Whether a tag is one of those by which controllers record owners.
fn is_mark(tag: &str) -> bool {
    let marks = [
        SERVICE_PREFIX,
        CLUSTER_PREFIX,
        UID_PREFIX,
        SHARER_PREFIX,
        INTERNAL_PREFIX,
        KEEPS_FLOATING_IP,
    ];
    marks.iter().any(|mark| tag.starts_with(mark))
}
