//! Bodies of requests, as Octavia (API v2) and Neutron (API v2.0) take them. What is `None` is left
//! out, and stays as it is where something is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use landfall_model::rows::Family;
use serde::Serialize;

use crate::features::Features;
use crate::names::Names;
use crate::objects::{
    Id, ListenerProtocol, Member, MonitorType, PersistenceType, PoolAlgorithm, PoolProtocol,
    SessionPersistence,
};
use crate::target::choice::Choice;
use crate::target::{FurtherVip, WantedListener, WantedMember, WantedMonitor, WantedPool};

/// A field that can be set to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum OrNull<T> {
    /// This.
    Set(T),
    /// Nothing.
    Null,
}

/// Defines requests, each field of which can be left out.
macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident {
        $($field:ident $(as $word:literal)?: $kind:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        pub struct $name {
            $(
                #[doc = concat!("`", stringify!($field), "`.")]
                #[serde(skip_serializing_if = "Option::is_none" $(, rename = $word)?)]
                pub $field: Option<$kind>,
            )*
        }

        impl $name {
            /// Whether it sets nothing.
            pub fn is_empty(&self) -> bool {
                *self == Self::default()
            }
        }
    )*};
}

requests! {
    /// A load balancer, or a change of one.
    LoadBalancerRequest {
        name: String,
        description: String,
        provider: String,
        tags: Vec<String>,
        vip_port_id: Id,
        vip_subnet_id: Id,
        vip_network_id: Id,
        vip_address: IpAddr,
        additional_vips: Vec<VipRequest>,
        flavor_id: String,
        availability_zone: String,
        listeners: Vec<ListenerRequest>,
    }

    /// A further VIP of a load balancer.
    VipRequest {
        subnet_id: Id,
        ip_address: IpAddr,
    }

    /// A listener, or a change of one.
    ListenerRequest {
        loadbalancer_id: Id,
        name: String,
        protocol: ListenerProtocol,
        protocol_port: u16,
        admin_state_up: bool,
        connection_limit: i64,
        timeout_client_data: u64,
        timeout_member_connect: u64,
        timeout_member_data: u64,
        timeout_tcp_inspect: u64,
        insert_headers: BTreeMap<String, String>,
        default_tls_container_ref: OrNull<String>,
        sni_container_refs: BTreeSet<String>,
        tls_versions: BTreeSet<String>,
        tls_ciphers: String,
        alpn_protocols: Vec<String>,
        allowed_cidrs: BTreeSet<String>,
        tags: Vec<String>,
        default_pool_id: Id,
        default_pool: PoolRequest,
    }

    /// A pool, or a change of one.
    PoolRequest {
        loadbalancer_id: Id,
        listener_id: Id,
        name: String,
        protocol: PoolProtocol,
        lb_algorithm: PoolAlgorithm,
        session_persistence: OrNull<SessionPersistence>,
        tags: Vec<String>,
        members: Vec<MemberRequest>,
        healthmonitor: MonitorRequest,
    }

    /// A member, or a change of one.
    MemberRequest {
        address: IpAddr,
        protocol_port: u16,
        name: String,
        subnet_id: Id,
        monitor_port: OrNull<u16>,
        weight: u16,
        backup: bool,
        admin_state_up: bool,
    }

    /// A monitor, or a change of one.
    MonitorRequest {
        pool_id: Id,
        name: String,
        kind as "type": MonitorType,
        delay: u64,
        timeout: u64,
        max_retries: u8,
        max_retries_down: u8,
        http_method: String,
        url_path: String,
        expected_codes: String,
    }

    /// A floating IP, or a change of one.
    FloatingIpRequest {
        floating_network_id: Id,
        port_id: OrNull<Id>,
        description: String,
        subnet_id: Id,
        fixed_ip_address: IpAddr,
        floating_ip_address: IpAddr,
    }

    /// A rule of a security group.
    RuleRequest {
        security_group_id: Id,
        direction: &'static str,
        ethertype: &'static str,
        protocol: String,
        port_range_min: u16,
        port_range_max: u16,
        remote_ip_prefix: String,
        description: String,
    }
}

/// How much of a load balancer is created by the one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// With everything in it.
    Everything,
    /// Without members: the request would be larger than the service reads.
    WithoutMembers,
    /// Alone: its driver needs a call for each object.
    Alone,
}

/// What is there, unless it is empty.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

// === impl OrNull ===

impl<T> From<Option<T>> for OrNull<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Self::Set)
    }
}

// === impl LoadBalancerRequest ===

impl LoadBalancerRequest {
    /// A new load balancer.
    pub fn new(
        names: &Names,
        choice: &Choice,
        features: Features,
        extra_tags: &[String],
        additional: &[FurtherVip],
        listeners: &[WantedListener],
        extent: Extent,
    ) -> Self {
        let own_address = choice.internal || choice.family() == Family::V6;
        let by_port = choice.port.is_some();
        let vips = additional.iter().map(|vip| VipRequest {
            subnet_id: Some(vip.subnet.clone()),
            ip_address: vip.address,
        });
        let children = listeners.iter().map(|it| ListenerRequest {
            default_pool: Some(PoolRequest {
                members: (extent == Extent::Everything).then(|| {
                    let all = it.pool.members.iter();
                    all.map(|((address, _), it)| MemberRequest::new(*address, it, None))
                        .collect()
                }),
                healthmonitor: it.pool.monitor.as_ref().map(MonitorRequest::new),
                ..PoolRequest::new(&it.pool)
            }),
            ..ListenerRequest::new(it)
        });
        Self {
            name: Some(names.load_balancer.clone()),
            description: Some(names.description.clone()),
            provider: Some(choice.provider.clone()).filter(|it| !it.is_empty()),
            tags: features.tags().then(|| tags_of_new(names, extra_tags)),
            vip_port_id: choice.port.clone(),
            vip_subnet_id: choice.vip_subnet.clone().filter(|_| !by_port),
            vip_network_id: choice.vip_network.clone().filter(|_| !by_port),
            vip_address: choice.address.filter(|_| own_address),
            additional_vips: some(vips.collect()),
            flavor_id: choice.flavor.clone().filter(|_| features.flavors()),
            availability_zone: choice.zone.clone().filter(|_| features.zones()),
            listeners: (extent != Extent::Alone).then(|| children.collect()),
        }
    }
}

/// The tags of a new load balancer: the Service's name first, as ever.
pub fn tags_of_new(names: &Names, extra: &[String]) -> Vec<String> {
    let mut tags = vec![names.load_balancer.clone()];
    tags.extend(names.cluster_tag.clone());
    tags.push(names.uid_tag.clone());
    tags.extend(extra.iter().cloned());
    tags
}

// === impl ListenerRequest ===

impl ListenerRequest {
    /// A new listener, without its place.
    pub fn new(wanted: &WantedListener) -> Self {
        let timeouts = wanted.timeouts;
        Self {
            name: Some(wanted.name.clone()),
            protocol: Some(wanted.protocol.clone()),
            protocol_port: Some(wanted.port),
            connection_limit: Some(wanted.connection_limit),
            timeout_client_data: timeouts.map(|it| it.client_data),
            timeout_member_connect: timeouts.map(|it| it.member_connect),
            timeout_member_data: timeouts.map(|it| it.member_data),
            timeout_tcp_inspect: timeouts.map(|it| it.tcp_inspect),
            insert_headers: Some(wanted.headers.clone()).filter(|it| !it.is_empty()),
            default_tls_container_ref: wanted.tls.clone().map(OrNull::Set),
            sni_container_refs: wanted.sni.clone().filter(|it| !it.is_empty()),
            tls_versions: wanted.tls_versions.clone(),
            tls_ciphers: wanted.tls_ciphers.clone(),
            alpn_protocols: wanted.alpn.clone(),
            allowed_cidrs: wanted.allowed.clone(),
            tags: some(wanted.tags.clone()),
            ..Self::default()
        }
    }
}

// === impl PoolRequest ===

impl PoolRequest {
    /// A new pool, without its place.
    pub fn new(wanted: &WantedPool) -> Self {
        Self {
            name: Some(wanted.name.clone()),
            protocol: Some(wanted.protocol.clone()),
            lb_algorithm: Some(wanted.algorithm.clone()),
            session_persistence: wanted.sticky.then(|| OrNull::Set(sticky())),
            tags: some(wanted.tags.clone()),
            ..Self::default()
        }
    }
}

/// Clients keep their member, by their address.
pub fn sticky() -> SessionPersistence {
    SessionPersistence {
        kind: PersistenceType::SourceIp,
        persistence_timeout: None,
    }
}

// === impl MemberRequest ===

impl MemberRequest {
    /// A member, with what was set by hand on the one that is there and the Service does not set.
    pub fn new(address: IpAddr, wanted: &WantedMember, there: Option<&Member>) -> Self {
        let weight = there.and_then(|it| it.weight).filter(|it| *it != 1);
        let backup = there.map(|it| it.backup).filter(|backup| *backup);
        let off = there.is_some_and(|it| it.admin_state_up == Some(false));
        Self {
            address: Some(address),
            protocol_port: Some(wanted.port),
            name: Some(wanted.name.clone()),
            subnet_id: wanted.subnet.clone(),
            monitor_port: wanted.monitor_port.map(OrNull::Set),
            weight: wanted.weight.or(weight),
            backup: wanted.backup.or(backup),
            admin_state_up: off.then_some(false),
        }
    }

    /// The bytes that it takes of a request.
    pub fn size(&self) -> usize {
        serde_json::to_string(self).map_or(0, |text| text.len())
    }
}

// === impl MonitorRequest ===

impl MonitorRequest {
    /// A new monitor, without its place.
    pub fn new(wanted: &WantedMonitor) -> Self {
        let (method, path, codes) = wanted.http.clone().map_or((None, None, None), |it| {
            (Some(it.0), Some(it.1), Some(it.2))
        });
        Self {
            pool_id: None,
            name: Some(wanted.name.clone()),
            kind: Some(wanted.kind.clone()),
            delay: Some(wanted.delay),
            timeout: Some(wanted.timeout),
            max_retries: Some(wanted.max_retries),
            max_retries_down: Some(wanted.max_retries_down),
            http_method: method,
            url_path: path,
            expected_codes: codes,
        }
    }
}
