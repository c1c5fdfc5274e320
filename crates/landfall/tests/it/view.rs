//! Reads from the view that an instance gives of itself.

use std::net::SocketAddr;

use landfall_model::ServiceKey;
use landfall_model::reason::Code;
use landfall_model::status::ConditionType;
use landfall_model::view::{Health, InstanceView, ListenerView, ServiceView};

/// A Service among those of an instance.
pub fn find<'a>(view: &'a InstanceView, key: &str) -> Option<&'a ServiceView> {
    let key: ServiceKey = key.parse().unwrap();
    view.services.iter().find(|service| service.key == key)
}

/// Whether a condition is met.
pub fn met(service: &ServiceView, kind: ConditionType) -> bool {
    let condition = service.status.condition(kind);
    condition.is_some_and(|condition| condition.status)
}

/// Whether every condition is met.
pub fn is_ready(service: &ServiceView) -> bool {
    ConditionType::ALL.iter().all(|kind| met(service, *kind))
}

/// The code of a condition, with its truth.
pub fn condition(service: &ServiceView, kind: ConditionType) -> (bool, Code) {
    let condition = service.status.condition(kind).expect("it was reported");
    (condition.status, condition.reason)
}

/// Where clients connect to for a port of the Service.
pub fn at(service: &ServiceView, port: u16) -> SocketAddr {
    let address = service.status.addresses().next();
    SocketAddr::new(address.expect("it has an address"), port)
}

/// A listener by its port.
pub fn listener(service: &ServiceView, port: u16) -> &ListenerView {
    let mut listeners = service.listeners.iter();
    listeners
        .find(|listener| listener.key.port.get() == port)
        .expect("the listener is there")
}

/// Health of a member by its address.
pub fn health_of(service: &ServiceView, address: SocketAddr) -> Option<Health> {
    let mut members = service.listeners.iter().flat_map(|it| &it.members);
    let member = members.find(|it| it.address == address);
    member.map(|member| member.health)
}
