//! Builders for canned Services: what a scene says about each is short enough to be read.

#![expect(
    clippy::expect_used,
    reason = "canned facts are right, or the stage is broken"
)]

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use jiff::Timestamp;
use landfall_model::intent::{AddressSpec, LeftOut};
use landfall_model::listener::{Algorithm, AllowedSources, Check, HttpMethod, StatusCodes};
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_model::view::{Health, ListenerView, MemberView, ServiceView, TrafficView};
use landfall_model::{
    Code, Condition, ConditionType, IngressAddress, ListenerKey, Monitor, Origin, Protocol, Reason,
    ServiceKey, ServiceStatus, Uid,
};

/// A Service that serves, with one address and no listener yet.
pub fn service(key: &str, address: &str, line: u32) -> ServiceView {
    let (namespace, name) = key.split_once('/').expect("namespace/name");
    let address = address.parse().expect("an address");
    ServiceView {
        key: ServiceKey::new(namespace, name),
        uid: Uid::new(&format!(
            "5f0c7a3e-{line:04}-4d1b-9a6e-{:012x}",
            key.len() * 7919
        )),
        class: None,
        origin: Some(origin(line)),
        status: ServiceStatus {
            ingress: vec![IngressAddress {
                ip: Some(address),
                ..IngressAddress::default()
            }],
            conditions: met(),
            ..ServiceStatus::default()
        },
        reasons: Vec::new(),
        address: Some(spec()),
        listeners: Vec::new(),
        announcements: Vec::new(),
        left_out: Vec::new(),
        pending: Vec::new(),
        removing: false,
    }
}

/// Any IPv4 address.
pub fn spec() -> AddressSpec {
    AddressSpec {
        namespace_labels: BTreeMap::new(),
        labels: BTreeMap::new(),
        families: vec![Family::V4],
        policy: FamilyPolicy::SingleStack,
        requested: Vec::new(),
        requested_by: String::new(),
        pool: None,
        count: 1,
        sharing_key: None,
        backend_key: String::new(),
        held: Vec::new(),
    }
}

/// A place in the example manifests.
pub fn origin(line: u32) -> Origin {
    Origin {
        file: "examples/shop/services.yaml".into(),
        line,
    }
}

/// All three conditions true, since some time ago.
fn met() -> Vec<Condition> {
    let accepted = [
        (
            ConditionType::Accepted,
            Code::Accepted,
            "every field and annotation is valid",
        ),
        (
            ConditionType::Addressed,
            Code::Assigned,
            "the Service holds its addresses",
        ),
        (
            ConditionType::Programmed,
            Code::Ready,
            "the Service is converged",
        ),
    ];
    let make = |(kind, code, text)| Condition::met(kind, code, text, ago(2 * 3600 + 700));
    accepted.into_iter().map(make).collect()
}

/// So many seconds ago.
pub fn ago(seconds: i64) -> Timestamp {
    let now = Timestamp::now().as_second();
    Timestamp::from_second(now - seconds).expect("a time of our days")
}

/// A reason why a Service does not serve: says so, and turns the condition (and those after it).
pub fn refused(mut service: ServiceView, kind: ConditionType, reason: Reason) -> ServiceView {
    for condition in &mut service.status.conditions {
        if condition.kind >= kind {
            *condition = Condition::unmet(condition.kind, &reason, ago(95));
        }
    }
    if kind < ConditionType::Programmed {
        service.status.ingress.clear();
        service.listeners.clear();
    }
    service.reasons.insert(0, reason);
    service
}

/// A listener in the given mode.
pub fn listener(
    port: u16,
    protocol: Protocol,
    mode: &str,
    members: Vec<MemberView>,
) -> ListenerView {
    let mut traffic = TrafficView::default();
    for member in &members {
        traffic.open += member.traffic.open;
        traffic.connections += member.traffic.connections;
        traffic.failed += member.traffic.failed;
        traffic.bytes_in += member.traffic.bytes_in;
        traffic.bytes_out += member.traffic.bytes_out;
    }
    ListenerView {
        addresses: Vec::new(),
        key: ListenerKey {
            protocol,
            port: NonZeroU16::new(port).expect("a port"),
        },
        name: mode.to_owned(),
        mode: mode.to_owned(),
        problem: None,
        traffic,
        measured: None,
        algorithm: Algorithm::RoundRobin,
        allowed: AllowedSources::All,
        connection_limit: None,
        affinity: None,
        proxy_protocol: None,
        monitor: Some(Monitor::new(Check::Tcp)),
        members,
    }
}

/// A check of `/healthz`.
pub fn http_monitor() -> Monitor {
    let codes: StatusCodes = "200-204".parse().expect("codes");
    Monitor::new(Check::Http {
        method: HttpMethod::Get,
        path: "/healthz".into(),
        codes,
    })
}

/// A member that is up; `load` scales its traffic.
pub fn member(name: &str, address: &str, load: u64) -> MemberView {
    MemberView {
        address: address.parse().expect("address and port"),
        name: Some(name.to_owned()),
        node: Some(format!("node-{}", (name.len() + load as usize) % 3 + 1)),
        weight: 1,
        backup: false,
        health: Health::Up,
        detail: String::new(),
        traffic: TrafficView {
            open: load / 3,
            connections: load * 211,
            failed: 0,
            bytes_in: load * 1_940_000,
            bytes_out: load * 21_300_000,
            health_changes: 1,
        },
    }
}

/// The same member in another state.
pub fn turned(mut member: MemberView, health: Health, detail: &str) -> MemberView {
    if health == Health::Down {
        member.traffic = TrafficView {
            health_changes: 3,
            failed: 7,
            ..TrafficView::default()
        };
    }
    member.health = health;
    detail.clone_into(&mut member.detail);
    member
}

/// An endpoint that is in no pool.
pub fn left_out(endpoint: &str, name: &str, message: &str) -> LeftOut {
    LeftOut {
        endpoint: endpoint.to_owned(),
        name: Some(name.to_owned()),
        reason: Reason::info(Code::EndpointIgnored, message),
        count: 1,
    }
}

/// Puts the Service's addresses on listeners that have none of their own.
pub fn with(mut service: ServiceView, listeners: Vec<ListenerView>) -> ServiceView {
    service.listeners = listeners;
    for listener in &mut service.listeners {
        if listener.addresses.is_empty() {
            listener.addresses = service.status.addresses().collect();
        }
    }
    service
}
