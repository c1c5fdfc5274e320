//! A Service row as JSON, as kubectl prints a Service.

use serde::Serialize;
use serde_json::{Value, json};

use crate::rows::{Family, FamilyPolicy, ServicePort, ServiceRow, TargetPort};
use crate::status::{FINALIZER, ServiceStatus};

use super::ObjectMeta;
use super::service::{
    ClientIpConfig, IntOrText, ServicePortShape, ServiceSpec, SessionAffinityConfig,
};
use super::status::{ConditionShape, ServiceStatusShape};

/// A `v1` Service on its way out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PrintedService {
    api_version: &'static str,
    kind: &'static str,
    metadata: ObjectMeta,
    spec: ServiceSpec,
    status: ServiceStatusShape,
}

/// Returns a `v1` Service with the given status, for a record that only this program writes. Fields
/// that a row does not keep are left out.
pub fn remembered_service(row: &ServiceRow, status: &ServiceStatus) -> PrintedService {
    PrintedService {
        api_version: "v1",
        kind: "Service",
        metadata: metadata(row, status),
        spec: spec(row),
        status: ServiceStatusShape::of(status),
    }
}

/// The same with the condition that vouches for the annotations.
fn printed_service(row: &ServiceRow, status: &ServiceStatus) -> PrintedService {
    let mut printed = remembered_service(row, status);
    let recorded = ConditionShape::recorded(row.uid.as_str(), status);
    printed.status.conditions.extend(recorded);
    printed
}

/// The same as a value.
pub fn service_to_json(row: &ServiceRow, status: &ServiceStatus) -> Value {
    // The shapes are maps with text keys all the way down: they always have a JSON form.
    serde_json::to_value(printed_service(row, status)).unwrap_or_default()
}

/// A `v1` List of Services, each with its status.
pub fn service_list(services: impl IntoIterator<Item = (ServiceRow, ServiceStatus)>) -> Value {
    let items: Vec<Value> = services
        .into_iter()
        .map(|(row, status)| service_to_json(&row, &status))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"resourceVersion": ""},
        "items": items,
    })
}

fn metadata(row: &ServiceRow, status: &ServiceStatus) -> ObjectMeta {
    let mut annotations = row.annotations.clone();
    annotations.extend(status.marks.clone());
    ObjectMeta {
        annotations,
        creation_timestamp: row.created,
        deletion_timestamp: None,
        finalizers: if row.finalized {
            vec![FINALIZER.to_owned()]
        } else {
            Vec::new()
        },
        generation: row.generation,
        labels: row.labels.clone(),
        name: Some(row.key.name().to_owned()),
        namespace: Some(row.key.namespace().to_owned()),
        resource_version: row.resource_version.as_deref().map(str::to_owned),
        uid: Some(row.uid.to_string()),
    }
}

/// The type, as far as a row still shows it.
fn kind(row: &ServiceRow) -> &'static str {
    let on_nodes = row.external_local || row.ports.iter().any(|port| port.node_port.is_some());
    if row.wants_load_balancer {
        "LoadBalancer"
    } else if on_nodes {
        "NodePort"
    } else if row.ports.is_empty() && !row.headless {
        "ExternalName"
    } else {
        "ClusterIP"
    }
}

/// What a Service wants, in the form of the API.
pub(super) fn spec(row: &ServiceRow) -> ServiceSpec {
    let kind = kind(row);
    let of_load_balancers = row.wants_load_balancer;
    let traffic_policy = if row.external_local {
        "Local"
    } else {
        "Cluster"
    };
    let policy = match row.family_policy {
        FamilyPolicy::SingleStack => "SingleStack",
        FamilyPolicy::PreferDualStack => "PreferDualStack",
        FamilyPolicy::RequireDualStack => "RequireDualStack",
    };
    ServiceSpec {
        allocate_load_balancer_node_ports: of_load_balancers.then_some(row.allocate_node_ports),
        cluster_ip: row.headless.then(|| "None".to_owned()),
        cluster_ips: if row.headless {
            vec!["None".to_owned()]
        } else {
            Vec::new()
        },
        external_ips: row
            .node_fields
            .get("externalIPs")
            .map(|addresses| addresses.split(',').map(str::to_owned).collect())
            .unwrap_or_default(),
        internal_traffic_policy: row.node_fields.get("internalTrafficPolicy").cloned(),
        traffic_distribution: row.node_fields.get("trafficDistribution").cloned(),
        external_traffic_policy: matches!(kind, "LoadBalancer" | "NodePort")
            .then(|| traffic_policy.to_owned()),
        health_check_node_port: row.health_check_node_port.map(|port| port.get().into()),
        ip_families: row
            .families
            .iter()
            .copied()
            .map(Family::as_str)
            .map(str::to_owned)
            .collect(),
        ip_family_policy: Some(policy.to_owned()),
        load_balancer_class: row.class.as_deref().map(str::to_owned),
        load_balancer_ip: row.load_balancer_ip.clone(),
        load_balancer_source_ranges: row.source_ranges.clone(),
        ports: row.ports.iter().map(port).collect(),
        publish_not_ready_addresses: row.publish_not_ready,
        selector: row.selector.clone(),
        session_affinity: Some(if row.affinity.is_some() {
            "ClientIP".to_owned()
        } else {
            "None".to_owned()
        }),
        session_affinity_config: row.affinity.map(|timeout| SessionAffinityConfig {
            client_ip: Some(ClientIpConfig {
                timeout_seconds: timeout.as_secs().try_into().ok(),
            }),
        }),
        kind: Some(kind.to_owned()),
    }
}

fn port(port: &ServicePort) -> ServicePortShape {
    ServicePortShape {
        app_protocol: port.app_protocol.clone(),
        name: (!port.name.is_empty()).then(|| port.name.clone()),
        node_port: port.node_port.map(|port| port.get().into()),
        port: Some(port.port.get().into()),
        protocol: Some(port.protocol.to_string()),
        target_port: Some(match &port.target {
            TargetPort::Number(number) => IntOrText::Int(number.get().into()),
            TargetPort::Name(name) => IntOrText::Text(name.clone()),
        }),
    }
}
