//! What the `ovn` provider refuses (501); every other provider accepts all.

use serde_json::Value;

use super::super::wire::{Reply, Row, text};
use super::super::world::World;

const OVN: &str = "ovn";
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

fn unsupported(why: &str) -> Reply {
    let text = format!("Provider 'ovn' does not support a requested option: {why}");
    Reply::balancer(501, text)
}

fn full(row: &Row, key: &str) -> bool {
    match row.get(key) {
        None | Some(Value::Null) => false,
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    }
}

pub(super) fn balancer(provider: &str, row: &Row) -> Result<(), Reply> {
    if provider == OVN && full(row, "availability_zone") {
        let text = "Provider 'ovn' does not support a requested action: This provider does not \
                   support availability zones.";
        return Err(Reply::balancer(501, text));
    }
    Ok(())
}

pub(super) fn failover(provider: &str) -> Result<(), Reply> {
    if provider == OVN {
        return Err(unsupported(
            "OVN provider does not support loadbalancer failover",
        ));
    }
    Ok(())
}

pub(super) fn listener(provider: &str, row: &Row) -> Result<(), Reply> {
    let protocol = text(row, "protocol");
    if provider != OVN {
        return Ok(());
    }
    if !PROTOCOLS.contains(&protocol) {
        return Err(unsupported(&format!(
            "OVN provider does not support {protocol} protocol"
        )));
    }
    if full(row, "allowed_cidrs") {
        return Err(unsupported(
            "OVN provider does not support allowed_cidrs option",
        ));
    }
    Ok(())
}

pub(super) fn pool(world: &World, provider: &str, row: &Row) -> Result<(), Reply> {
    if provider != OVN {
        return Ok(());
    }
    let protocol = text(row, "protocol");
    if !PROTOCOLS.contains(&protocol) {
        return Err(unsupported(&format!(
            "OVN provider does not support {protocol} protocol"
        )));
    }
    let algorithm = text(row, "lb_algorithm");
    let source = algorithm == "SOURCE_IP" && world.settings.ovn_source_ip;
    if algorithm != "SOURCE_IP_PORT" && !source {
        return Err(unsupported(&format!(
            "OVN provider does not support {algorithm} algorithm"
        )));
    }
    let persistence = row.get("session_persistence").and_then(Value::as_object);
    if let Some(persistence) = persistence
        && text(persistence, "type") != "SOURCE_IP"
    {
        return Err(unsupported(&format!(
            "OVN provider does not support {} session persistence. Only SOURCE_IP type is \
            supported.",
            text(persistence, "type")
        )));
    }
    Ok(())
}

pub(super) fn member(provider: &str, row: &Row) -> Result<(), Reply> {
    if provider == OVN && (full(row, "monitor_port") || full(row, "monitor_address")) {
        return Err(unsupported(
            "OVN Load Balancer does not support different member monitor address or port.",
        ));
    }
    Ok(())
}

pub(super) fn monitor(provider: &str, row: &Row) -> Result<(), Reply> {
    let kind = text(row, "type");
    if provider == OVN && !["TCP", "UDP-CONNECT"].contains(&kind) {
        return Err(unsupported(&format!(
            "OVN provider does not support {kind} health monitor type. Supported types: \
            UDP-CONNECT, TCP"
        )));
    }
    Ok(())
}
