//! `v1` Service: its shape and its row. What a `spec` may say is validated in `rules`.

mod cluster_ips;
pub(super) mod rules;
mod salvage;

use std::collections::BTreeMap;
use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::id::{ServiceKey, Uid};
use crate::marks::marks_of;
use crate::reason::Reason;
use crate::recorded::keep_vouched;
use crate::rows::ServiceRow;
use crate::status::{FINALIZER, STATE_DOMAIN};

use super::findings::{Findings, strictly};
use super::status::ServiceStatusShape;
use super::{ObjectMeta, lenient, names};

use rules::Kind;

/// `v1` Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Name, labels, annotations.
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(deserialize_with = "lenient::or_default")]
    pub spec: ServiceSpec,
    /// What there is.
    #[serde(deserialize_with = "lenient::or_default")]
    pub status: ServiceStatusShape,
}

/// `spec` of a Service. The fields are in the order of their names in JSON, in which they are on
/// record as the last accepted version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// Whether NodePorts are wanted; unset: yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocate_load_balancer_node_ports: Option<bool>,
    /// The address inside the cluster; `None` makes the Service headless.
    #[serde(rename = "clusterIP", skip_serializing_if = "Option::is_none")]
    pub cluster_ip: Option<String>,
    /// The same for every family. Set by the API server, hardly ever by people.
    #[serde(rename = "clusterIPs", skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "lenient::or_default")]
    pub cluster_ips: Vec<String>,
    /// Further addresses that nodes accept.
    #[serde(rename = "externalIPs", skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "lenient::or_default")]
    pub external_ips: Vec<String>,
    /// `Cluster` or `Local`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_traffic_policy: Option<String>,
    /// Where nodes report whether they have endpoints, with `externalTrafficPolicy: Local`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check_node_port: Option<i64>,
    /// `Cluster` or `Local`, for traffic to the cluster IP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_traffic_policy: Option<String>,
    /// `IPv4`, `IPv6`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "lenient::or_default")]
    pub ip_families: Vec<String>,
    /// `SingleStack`, `PreferDualStack`, `RequireDualStack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_family_policy: Option<String>,
    /// The class of its load balancer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer_class: Option<String>,
    /// Wanted address.
    #[serde(rename = "loadBalancerIP", skip_serializing_if = "Option::is_none")]
    pub load_balancer_ip: Option<String>,
    /// Which clients may connect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "lenient::or_default")]
    pub load_balancer_source_ranges: Vec<String>,
    /// Ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "lenient::or_default")]
    pub ports: Vec<ServicePortShape>,
    /// Whether endpoints serve before they are ready.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[serde(deserialize_with = "lenient::or_default")]
    pub publish_not_ready_addresses: bool,
    /// Labels of the pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(deserialize_with = "lenient::texts")]
    pub selector: BTreeMap<String, String>,
    /// `None` or `ClientIP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_affinity: Option<String>,
    /// Its timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// Which endpoints nodes prefer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<String>,
    /// `ClusterIP`, `NodePort`, `LoadBalancer`, `ExternalName`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// `spec.ports[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePortShape {
    /// Hint on the protocol above the transport.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
    /// Name, unique in the Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Port on every node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_port: Option<i64>,
    /// Front port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
    /// `TCP`, `UDP`, `SCTP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Port of the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_port: Option<IntOrText>,
}

/// A number or a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntOrText {
    /// A number.
    Int(i64),
    /// A text.
    Text(String),
}

/// `spec.sessionAffinityConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionAffinityConfig {
    /// For the kind `ClientIP`.
    #[serde(rename = "clientIP", skip_serializing_if = "Option::is_none")]
    pub client_ip: Option<ClientIpConfig>,
}

/// `spec.sessionAffinityConfig.clientIP`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientIpConfig {
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i64>,
}

// === impl Service ===

impl Service {
    /// The row, or everything that is wrong with the object. The file and line are the source's to
    /// add.
    pub fn into_row(self) -> Result<ServiceRow, Vec<Reason>> {
        strictly(self.validated(Findings::default()))
    }

    /// Returns the row of an object that the API server has admitted. What can't be read of it
    /// stands in [`ServiceRow::faults`].
    pub fn into_admitted_row(self) -> ServiceRow {
        let (mut row, faults) = self.validated(Findings::of_admitted());
        row.faults = faults;
        row
    }

    fn validated(self, mut findings: Findings) -> (ServiceRow, Vec<Reason>) {
        let Self {
            metadata,
            spec,
            status,
        } = self;

        // A DNS label may begin with a digit, which older API servers refuse for Services and newer
        // ones allow; nothing here depends on it.
        let name = findings.name(&metadata, names::dns_label);
        let namespace = findings.namespace(&metadata);
        findings.metadata(&metadata);
        if metadata.uid.as_deref().is_none_or(str::is_empty) && !findings.admitted() {
            findings.missing("metadata.uid", "the object has no identity", "");
        }

        let kind = spec.validate_kind(&mut findings);
        spec.check_fields_of_load_balancers(kind, &mut findings);
        let headless = spec.validate_cluster_ip(kind, &mut findings);
        let ports = spec.validate_ports(kind, headless, &mut findings);
        let (families, family_policy) = spec.validate_families(&mut findings);
        let affinity = spec.validate_affinity(&mut findings);
        let external_local = spec.validate_traffic_policy(kind, &mut findings);
        let health_check_node_port =
            spec.check_health_check_port(kind, external_local, &mut findings);
        findings.labels("spec.selector", &spec.selector);
        let mut annotations = metadata.annotations;
        let uid = metadata.uid.unwrap_or_default();
        let mut recorded = None;
        // What is read from elsewhere was written by us alone, or has no such annotations.
        if findings.admitted() {
            recorded = status.recorded().map(Into::into);
            keep_vouched(&uid, &mut annotations, recorded.as_deref());
        }
        let mut status = status.into_status();
        status.marks = marks_of(&annotations);
        annotations.retain(|key, _| !key.starts_with(STATE_DOMAIN));

        let node_fields = spec.node_fields();
        let row = ServiceRow {
            key: ServiceKey::new(&namespace, &name),
            uid: Uid::new(&uid),
            generation: metadata.generation,
            resource_version: metadata.resource_version.map(Into::into),
            recorded,
            created: metadata.creation_timestamp,
            finalized: metadata.finalizers.iter().any(|text| text == FINALIZER),
            deleting: metadata.deletion_timestamp.is_some(),
            labels: metadata.labels,
            annotations,
            wants_load_balancer: kind == Kind::LoadBalancer,
            class: non_empty(spec.load_balancer_class).map(Into::into),
            families,
            family_policy,
            headless,
            ports,
            selector: spec.selector,
            external_local,
            health_check_node_port,
            affinity,
            load_balancer_ip: non_empty(spec.load_balancer_ip),
            source_ranges: spec.load_balancer_source_ranges,
            publish_not_ready: spec.publish_not_ready_addresses,
            allocate_node_ports: spec.allocate_load_balancer_node_ports.unwrap_or(true),
            node_fields,
            status,
            faults: Vec::new(),
            source: None,
        };
        (row, findings.reasons())
    }
}

fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

// === impl IntOrText ===

impl Serialize for IntOrText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(number) => serializer.serialize_i64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = IntOrText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a text")
            }

            fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
                Ok(IntOrText::Int(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                // Beyond every port, so that it is refused as one, with its field.
                Ok(IntOrText::Int(number.try_into().unwrap_or(i64::MAX)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(IntOrText::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(IntOrText::Text(text))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests;
