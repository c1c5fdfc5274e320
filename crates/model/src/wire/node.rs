//! `v1` Node: its shape and its row.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::reason::Reason;
use crate::rows::NodeRow;

use super::findings::{Findings, strictly};
use super::{ObjectMeta, lenient, names};

/// The taint that the cluster autoscaler puts on a node before it removes the machine.
const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// `v1` Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Name and labels.
    pub metadata: ObjectMeta,
    /// What is configured.
    #[serde(deserialize_with = "lenient::or_default")]
    pub spec: NodeSpec,
    /// What is observed.
    #[serde(deserialize_with = "lenient::or_default")]
    pub status: NodeStatus,
}

/// `spec` of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// The machine's name at its cloud.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Prefixes of its pods.
    #[serde(rename = "podCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "lenient::or_default")]
    pub pod_cidrs: Vec<String>,
    /// The same, where there is only one.
    #[serde(rename = "podCIDR", skip_serializing_if = "Option::is_none")]
    pub pod_cidr: Option<String>,
    /// What keeps pods away.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "lenient::or_default")]
    pub taints: Vec<Taint>,
    /// Whether no new pod is placed on it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[serde(deserialize_with = "lenient::or_default")]
    pub unschedulable: bool,
}

/// `spec.taints[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Its key.
    pub key: String,
}

/// `status` of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Where it is reached.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "lenient::or_default")]
    pub addresses: Vec<NodeAddress>,
    /// How it fares.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "lenient::or_default")]
    pub conditions: Vec<NodeCondition>,
}

/// `status.addresses[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeAddress {
    /// The address, or a name.
    pub address: String,
    /// `InternalIP`, `ExternalIP`, `Hostname`, ...
    #[serde(rename = "type")]
    pub kind: String,
}

/// `status.conditions[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeCondition {
    /// `True`, `False`, `Unknown`.
    pub status: String,
    /// `Ready`, ...
    #[serde(rename = "type")]
    pub kind: String,
}

// === impl Node ===

impl Node {
    /// The row, or everything that is wrong with the object.
    pub fn into_row(self) -> Result<NodeRow, Vec<Reason>> {
        strictly(self.validated(Findings::default()))
    }

    /// Returns the row of a Node that the API server has admitted, and what of it is left out
    /// because it can't be read.
    pub fn into_admitted_row(self) -> (NodeRow, Vec<Reason>) {
        self.validated(Findings::of_admitted())
    }

    fn validated(self, mut findings: Findings) -> (NodeRow, Vec<Reason>) {
        let name = findings.name(&self.metadata, names::dns_subdomain);
        findings.metadata(&self.metadata);
        let pod_prefixes = self.spec.validate_pod_prefixes(&mut findings);
        let mut addresses: Vec<IpAddr> = Vec::new();
        for kind in ["InternalIP", "ExternalIP"] {
            let here = addresses.clone();
            for (index, entry) in self.status.addresses.iter().enumerate() {
                if entry.kind != kind {
                    continue;
                }
                match entry.address.parse::<IpAddr>() {
                    // From outside a node is reached where it has nothing inside.
                    Ok(address) if here.iter().any(|it| it.is_ipv4() == address.is_ipv4()) => {}
                    Ok(address) => addresses.push(address),
                    Err(_) => findings.refuse(
                        format!("status.addresses[{index}].address"),
                        &entry.address,
                        "not an IP address",
                        "",
                    ),
                }
            }
        }
        let holds = |kind: &str| {
            let mut conditions = self.status.conditions.iter();
            conditions.any(|condition| condition.kind == kind && condition.status == "True")
        };
        let (ready, network_unavailable) = (holds("Ready"), holds("NetworkUnavailable"));
        let row = NodeRow {
            name: name.as_str().into(),
            deleting: self.metadata.deletion_timestamp.is_some(),
            labels: self.metadata.labels,
            addresses,
            provider_id: self
                .spec
                .provider_id
                .filter(|id| !id.is_empty())
                .map(Into::into),
            leaving: self
                .spec
                .taints
                .iter()
                .any(|taint| taint.key == AUTOSCALER_TAINT),
            cordoned: self.spec.unschedulable,
            ready,
            network_unavailable,
            pod_prefixes,
        };
        (row, findings.reasons())
    }
}

// === impl NodeSpec ===

impl NodeSpec {
    fn validate_pod_prefixes(&self, findings: &mut Findings) -> Vec<IpNet> {
        let mut prefixes = Vec::new();
        let mut validate = |field: String, text: &str| match text.parse::<IpNet>() {
            Ok(prefix) => prefixes.push(prefix.trunc()),
            Err(_) => findings.refuse(field, text, "not a prefix in CIDR notation", ""),
        };
        for (index, text) in self.pod_cidrs.iter().enumerate() {
            validate(format!("spec.podCIDRs[{index}]"), text);
        }
        if self.pod_cidrs.is_empty()
            && let Some(text) = self.pod_cidr.as_deref().filter(|text| !text.is_empty())
        {
            validate("spec.podCIDR".to_owned(), text);
        }
        prefixes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_becomes_a_row() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1.example.com", "labels": {"zone": "a"},
                "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"providerID": "openstack:///1", "podCIDR": "10.1.0.0/24",
                "podCIDRs": ["10.1.0.0/24", "fd00:1::/64"],
                "unschedulable": true,
                "taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
            "status": {
                "addresses": [{"type": "Hostname", "address": "n1"},
                    {"type": "InternalIP", "address": "192.0.2.1"},
                    {"type": "ExternalIP", "address": "198.51.100.1"},
                    {"type": "InternalIP", "address": "2001:db8::1"}],
                "conditions": [{"type": "MemoryPressure", "status": "False"},
                    {"type": "NetworkUnavailable", "status": "True"},
                    {"type": "Ready", "status": "True"}],
                "images": [{"names": ["a"]}]},
        }))
        .unwrap();
        assert_eq!(
            node.into_row(),
            Ok(NodeRow {
                name: "n1.example.com".into(),
                labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
                addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
                provider_id: Some("openstack:///1".into()),
                deleting: true,
                leaving: true,
                cordoned: true,
                ready: true,
                network_unavailable: true,
                pod_prefixes: vec![
                    "10.1.0.0/24".parse().unwrap(),
                    "fd00:1::/64".parse().unwrap()
                ],
            })
        );
    }

    #[test]
    fn an_external_address_counts_where_there_is_no_internal_one_of_its_family() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1"},
            "status": {"addresses": [
                {"type": "ExternalIP", "address": "198.51.100.1"},
                {"type": "ExternalIP", "address": "2001:db8::2"},
                {"type": "ExternalIP", "address": "2001:db8::3"},
                {"type": "InternalIP", "address": "192.0.2.1"}]},
        }))
        .unwrap();
        let addresses: Vec<String> = node
            .into_row()
            .unwrap()
            .addresses
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(addresses, ["192.0.2.1", "2001:db8::2", "2001:db8::3"]);
    }

    #[test]
    fn a_node_without_a_status_is_not_ready() {
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": "n1"}, "status": null})).unwrap();
        assert!(!node.into_row().unwrap().ready);
    }

    #[test]
    fn bad_prefixes_and_addresses_are_named() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1"}, "spec": {"podCIDR": "10.1.0.0/33"},
            "status": {"addresses": [{"type": "InternalIP", "address": "n1"}]},
        }))
        .unwrap();
        let reasons = node.into_row().unwrap_err();
        let fields: Vec<_> = reasons
            .iter()
            .map(|r| r.field.as_deref().unwrap())
            .collect();
        assert_eq!(fields, ["spec.podCIDR", "status.addresses[0].address"]);
    }
}
