//! What there is of a Service in its NLB, for people: from what reconciles and audits have read.
//! Nothing is read. Pure.

use std::net::{IpAddr, SocketAddr};

use landfall_model::Intent;
use landfall_model::listener::{Algorithm, AllowedSources, ListenerKey};
use landfall_model::view::{Health, ListenerView, MemberView, TrafficView};

use crate::objects::{
    HealthcheckResult, LoadBalancer, LoadBalancerService, ServerStatus, Strategy,
};
use crate::ownership::Owner;

/// How an NLB treats bytes.
const MODE: &str = "stream";

/// A port of a Service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Port {
    key: ListenerKey,
    name: String,
}

/// Returns the ports that a Service asks for.
pub(crate) fn ports(want: &Intent) -> Vec<Port> {
    let listeners = want.load_balancer.iter().flat_map(|spec| &spec.listeners);
    let ports = listeners.map(|listener| Port {
        key: listener.key,
        name: listener.name.clone(),
    });
    ports.collect()
}

/// Returns the ports that the NLB has, with the instances and their health.
pub(crate) fn listeners(
    load_balancer: &LoadBalancer,
    owner: &Owner,
    ports: &[Port],
) -> Vec<ListenerView> {
    let own = owner.owns(load_balancer, &load_balancer.name);
    let views = ports.iter().filter_map(|port| {
        let protocol = port.key.protocol.to_string().to_lowercase();
        let mut services = load_balancer.services.iter();
        let service = services.find(|it| {
            it.port == port.key.port.get()
                && it.protocol.as_str() == protocol
                && owner.may_change(load_balancer, it, own)
        })?;
        Some(view(load_balancer, port, service))
    });
    views.collect()
}

fn view(load_balancer: &LoadBalancer, port: &Port, service: &LoadBalancerService) -> ListenerView {
    ListenerView {
        addresses: load_balancer.ip.into_iter().map(IpAddr::V4).collect(),
        key: port.key,
        name: port.name.clone(),
        mode: MODE.to_owned(),
        problem: None,
        traffic: TrafficView::default(),
        measured: None,
        algorithm: match service.strategy {
            Strategy::MaglevHash | Strategy::SourceHash => Algorithm::SourceIp,
            Strategy::RoundRobin | Strategy::Other(_) => Algorithm::RoundRobin,
        },
        allowed: AllowedSources::All,
        connection_limit: None,
        affinity: None,
        proxy_protocol: None,
        monitor: None,
        members: service
            .healthcheck_status
            .iter()
            .filter_map(|status| member(status, service.target_port))
            .collect(),
    }
}

fn member(status: &ServerStatus, port: u16) -> Option<MemberView> {
    Some(MemberView {
        address: SocketAddr::new(IpAddr::V4(status.public_ip?), port),
        name: None,
        node: None,
        weight: 1,
        backup: false,
        health: match status.status {
            Some(HealthcheckResult::Success) => Health::Up,
            Some(HealthcheckResult::Failure) => Health::Down,
            Some(HealthcheckResult::Other(_)) | None => Health::Unknown,
        },
        detail: "checked by Exoscale".to_owned(),
        traffic: TrafficView::default(),
    })
}
