//! The Kubernetes objects that Landfall reads, as slim serde shapes, and their conversion to rows.
//!
//! A shape holds the fields that a row needs and nothing else: unknown fields are skipped while
//! parsing, so `managedFields` and its like never reach memory. Texts are owned and *moved* into
//! the row, so that each is allocated once; Kubernetes clients ask for owned types anyway.
//!
//! ```text
//!  JSON, YAML ──serde──> Service ──into_row──> Ok(ServiceRow)
//!                                        └───> Err(every Reason at once, with field paths)
//!  ServiceRow + ServiceStatus ──service_to_json──> what kubectl prints
//! ```
//!
//! The conversions validate as the API server's validation does, where its rules matter to a load
//! balancer, and fill in the API server's defaults. They deviate on purpose in two places, each
//! marked where it stands: Service names may begin with a digit, and endpoints may be loopback
//! addresses.
//!
//! That is for manifests, which no API server has seen. What an API server has admitted becomes a
//! row by `into_admitted_row` whatever these rules say: its own may be newer, and an object that is
//! not read can be neither served nor let go of. Fields that can't be read are reported.
//!
//! Nothing here reads files or knows a client, and nothing here puts Secret data into a message.

mod accepted;
mod findings;
mod lenient;
mod names;
mod node;
mod pool;
mod print;
mod resource;
mod secret;
mod service;
mod slice;
mod status;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::reason::Reason;
use crate::rows::NamespaceRow;

pub use accepted::{accepted_annotations, accepted_from_text, accepted_to_text};
pub use node::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, Taint};
pub use pool::{
    ExpressionShape, IpAddressPool, IpAddressPoolSpec, LabelSelectorShape, ServiceAllocation,
    accepted_pool,
};
pub use print::{PrintedService, remembered_service, service_list, service_to_json};
pub use resource::Resource;
pub use secret::{Secret, TLS_SECRET_TYPE};
pub use service::{
    ClientIpConfig, IntOrText, Service, ServicePortShape, ServiceSpec, SessionAffinityConfig,
};
pub use slice::{
    EndpointConditions, EndpointShape, EndpointSlice, ObjectReference, SERVICE_NAME_LABEL,
    SlicePortShape,
};
pub use status::{
    ConditionShape, IngressShape, LoadBalancerShape, PortStatusShape, ServiceStatusShape,
};

use findings::{Findings, strictly};

/// The namespace of objects that name none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// `metadata` of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Free texts for programs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(deserialize_with = "lenient::texts")]
    pub annotations: BTreeMap<String, String>,
    /// When the API server made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// Set while it is being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Timestamp>,
    /// What must be cleared before it can go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "lenient::or_default")]
    pub finalizers: Vec<String>,
    /// Counts changes of `spec`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Texts to select by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(deserialize_with = "lenient::texts")]
    pub labels: BTreeMap<String, String>,
    /// Name, unique among objects of its kind in the namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace; unset where a manifest leaves it to the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Changes with every write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// A list of objects of one kind, as the API server answers it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
pub struct List<T> {
    /// Where in history the list stands.
    #[serde(default)]
    pub metadata: ListMeta,
    /// The objects.
    #[serde(deserialize_with = "lenient::or_default", default = "Vec::new")]
    pub items: Vec<T>,
}

/// `metadata` of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMeta {
    /// From which a watch goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Where the next page begins; unset or empty on the last one.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next_page: Option<String>,
}

/// `v1` Namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Namespace {
    /// Name, labels, annotations.
    pub metadata: ObjectMeta,
}

// === impl ObjectMeta ===

impl ObjectMeta {
    /// The namespace, with Kubernetes' default filled in.
    pub fn namespace_or_default(&self) -> &str {
        self.namespace
            .as_deref()
            .filter(|namespace| !namespace.is_empty())
            .unwrap_or(DEFAULT_NAMESPACE)
    }
}

// === impl Namespace ===

impl Namespace {
    /// The row, or everything that is wrong with the object.
    pub fn into_row(self) -> Result<NamespaceRow, Vec<Reason>> {
        strictly(self.validated(Findings::default()))
    }

    /// Returns the row of a Namespace that the API server has admitted.
    pub fn into_admitted_row(self) -> NamespaceRow {
        self.validated(Findings::of_admitted()).0
    }

    fn validated(self, mut findings: Findings) -> (NamespaceRow, Vec<Reason>) {
        let name = findings.name(&self.metadata, names::dns_label);
        findings.metadata(&self.metadata);
        let row = NamespaceRow {
            name: name.as_str().into(),
            labels: self.metadata.labels,
            annotations: self.metadata.annotations,
        };
        (row, findings.reasons())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_keeps_its_labels() {
        let namespace: Namespace = serde_json::from_str(
            r#"{"metadata": {"name": "shop", "labels": {"tier": "front"},
                "annotations": null, "managedFields": [{"manager": "kubectl"}]},
                "spec": {"finalizers": ["kubernetes"]}}"#,
        )
        .unwrap();
        assert_eq!(
            namespace.into_row(),
            Ok(NamespaceRow {
                name: "shop".into(),
                labels: BTreeMap::from([("tier".to_owned(), "front".to_owned())]),
                annotations: BTreeMap::new(),
            })
        );
    }

    #[test]
    fn a_namespace_without_a_proper_name_is_refused() {
        for name in ["", "Shop", "shop.front", "-shop"] {
            let namespace = Namespace {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    ..ObjectMeta::default()
                },
            };
            let reasons = namespace.into_row().unwrap_err();
            assert_eq!(reasons.len(), 1, "{name:?}: {reasons:?}");
            assert_eq!(reasons[0].field.as_deref(), Some("metadata.name"));
        }
    }

    #[test]
    fn a_list_states_where_a_watch_goes_on() {
        let list: List<Namespace> = serde_json::from_str(
            r#"{"kind": "NamespaceList", "metadata": {"resourceVersion": "7", "continue": ""},
                "items": [{"metadata": {"name": "a"}}]}"#,
        )
        .unwrap();
        assert_eq!(list.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(list.items.len(), 1);
    }
}
