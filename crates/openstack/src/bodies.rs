//! Bodies of requests, as Octavia (API v2) and Neutron (API v2.0) take them.

use serde_json::{Map, Value, json};

use crate::features::Features;
use crate::names::Names;
use crate::objects::Member;
use crate::target::choice::Choice;
use crate::target::{FurtherVip, WantedListener, WantedMember, WantedMonitor, WantedPool};

/// How much of a load balancer is made by the one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// With everything in it.
    Everything,
    /// Without members: the request would be larger than the service reads.
    WithoutMembers,
    /// Alone: its driver needs a call for each object.
    Alone,
}

/// A new load balancer.
pub fn load_balancer(
    names: &Names,
    choice: &Choice,
    features: Features,
    extra_tags: &[String],
    additional: &[FurtherVip],
    listeners: &[WantedListener],
    extent: Extent,
) -> Value {
    let mut body = Map::new();
    body.insert("name".into(), names.load_balancer.as_str().into());
    body.insert("description".into(), names.description.as_str().into());
    if !choice.provider.is_empty() {
        body.insert("provider".into(), choice.provider.as_str().into());
    }
    if features.tags() {
        body.insert("tags".into(), tags_of_new(names, extra_tags).into());
    }
    if let Some(port) = &choice.port {
        body.insert("vip_port_id".into(), port.as_str().into());
    } else {
        if let Some(subnet) = &choice.vip_subnet {
            body.insert("vip_subnet_id".into(), subnet.as_str().into());
        }
        if let Some(network) = &choice.vip_network {
            body.insert("vip_network_id".into(), network.as_str().into());
        }
    }
    let own_address = choice.internal || choice.family() == landfall_model::rows::Family::V6;
    if let Some(address) = choice.address.filter(|_| own_address) {
        body.insert("vip_address".into(), address.to_string().into());
    }
    if !additional.is_empty() {
        let vips: Vec<Value> = additional
            .iter()
            .map(|vip| match vip.address {
                Some(address) => json!({"subnet_id": vip.subnet, "ip_address": address}),
                None => json!({"subnet_id": vip.subnet}),
            })
            .collect();
        body.insert("additional_vips".into(), vips.into());
    }
    if let Some(flavor) = choice.flavor.as_ref().filter(|_| features.flavors()) {
        body.insert("flavor_id".into(), flavor.as_str().into());
    }
    if let Some(zone) = choice.zone.as_ref().filter(|_| features.zones()) {
        body.insert("availability_zone".into(), zone.as_str().into());
    }
    if extent != Extent::Alone {
        let children = listeners.iter().map(|it| {
            let mut child = listener(it);
            let mut pool_body = pool(&it.pool);
            if extent == Extent::Everything {
                let all = it.pool.members.iter();
                let members: Vec<Value> = all
                    .map(|(address, it)| member(*address, it, None))
                    .collect();
                pool_body.insert("members".into(), members.into());
            }
            if let Some(wanted) = &it.pool.monitor {
                pool_body.insert("healthmonitor".into(), monitor(wanted).into());
            }
            child.insert("default_pool".into(), pool_body.into());
            Value::Object(child)
        });
        body.insert("listeners".into(), children.collect::<Vec<_>>().into());
    }
    Value::Object(body)
}

/// The tags of a new load balancer: the Service's name first, as ever.
pub fn tags_of_new(names: &Names, extra: &[String]) -> Vec<String> {
    let mut tags = vec![names.load_balancer.clone()];
    tags.extend(names.cluster_tag.clone());
    tags.push(names.uid_tag.clone());
    tags.extend(extra.iter().cloned());
    tags
}

/// A new listener, without its place.
pub fn listener(wanted: &WantedListener) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("name".into(), wanted.name.as_str().into());
    body.insert("protocol".into(), wanted.protocol.as_str().into());
    body.insert("protocol_port".into(), wanted.port.into());
    body.insert("connection_limit".into(), wanted.connection_limit.into());
    if let Some(timeouts) = wanted.timeouts {
        for (key, time) in TIMEOUTS.into_iter().zip(timeouts) {
            body.insert(key.into(), time.into());
        }
    }
    if !wanted.headers.is_empty() {
        body.insert("insert_headers".into(), json!(wanted.headers));
    }
    if let Some(tls) = &wanted.tls {
        body.insert("default_tls_container_ref".into(), tls.as_str().into());
    }
    if let Some(allowed) = &wanted.allowed {
        body.insert("allowed_cidrs".into(), json!(allowed));
    }
    if !wanted.tags.is_empty() {
        body.insert("tags".into(), json!(wanted.tags));
    }
    body
}

/// The names of the time-outs, in the order of [`WantedListener::timeouts`].
pub const TIMEOUTS: [&str; 4] = [
    "timeout_client_data",
    "timeout_member_connect",
    "timeout_member_data",
    "timeout_tcp_inspect",
];

/// A new pool, without its place.
pub fn pool(wanted: &WantedPool) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("name".into(), wanted.name.as_str().into());
    body.insert("protocol".into(), wanted.protocol.as_str().into());
    body.insert("lb_algorithm".into(), wanted.algorithm.as_str().into());
    if wanted.sticky {
        body.insert("session_persistence".into(), json!({"type": "SOURCE_IP"}));
    }
    if !wanted.tags.is_empty() {
        body.insert("tags".into(), json!(wanted.tags));
    }
    body
}

/// A member, with what somebody set by hand on the one that is there and nobody said otherwise.
pub fn member(address: std::net::IpAddr, wanted: &WantedMember, there: Option<&Member>) -> Value {
    let mut body = json!({"address": address, "protocol_port": wanted.port, "name": wanted.name});
    if let Some(subnet) = &wanted.subnet {
        body["subnet_id"] = subnet.as_str().into();
    }
    if let Some(port) = wanted.monitor_port {
        body["monitor_port"] = port.into();
    }
    let by_hand = there.and_then(|it| it.weight).filter(|it| *it != 1);
    if let Some(weight) = wanted.weight.or(by_hand) {
        body["weight"] = weight.into();
    }
    let by_hand = there.map(|it| it.backup).filter(|backup| *backup);
    if let Some(backup) = wanted.backup.or(by_hand) {
        body["backup"] = backup.into();
    }
    let Some(there) = there else { return body };
    if there.admin_state_up == Some(false) {
        body["admin_state_up"] = false.into();
    }
    body
}

/// A new monitor, without its place.
pub fn monitor(wanted: &WantedMonitor) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("name".into(), wanted.name.as_str().into());
    body.insert("type".into(), wanted.kind.as_str().into());
    body.insert("delay".into(), wanted.delay.into());
    body.insert("timeout".into(), wanted.timeout.into());
    body.insert("max_retries".into(), wanted.max_retries.into());
    body.insert("max_retries_down".into(), wanted.max_retries_down.into());
    if let Some((method, path, codes)) = &wanted.http {
        body.insert("http_method".into(), method.as_str().into());
        body.insert("url_path".into(), path.as_str().into());
        body.insert("expected_codes".into(), codes.as_str().into());
    }
    body
}
