//! Custom resources of MetalLB's API group, with their `spec` as written.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{ServiceKey, Uid};
use crate::reason::Reason;
use crate::rows::{Cooling, ResourceKind, ResourceRow};

use super::findings::{Findings, strictly};
use super::{ObjectMeta, lenient, names};

/// A custom resource of any kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resource {
    /// Group and version.
    #[serde(deserialize_with = "lenient::or_default")]
    pub api_version: String,
    /// Name, labels and annotations.
    pub metadata: ObjectMeta,
    /// What it says.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub spec: Value,
    /// What is reported of it. Of that only what Landfall's controller records is read.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub status: Value,
}

// === impl Resource ===

impl Resource {
    /// Returns the row, or everything that is wrong with the object's metadata.
    ///
    /// # Errors
    /// A name, label or annotation that the API server would refuse.
    pub fn into_row(self, kind: ResourceKind) -> Result<ResourceRow, Vec<Reason>> {
        strictly(self.validated(kind, Findings::default()))
    }

    /// Returns the row of an object that the API server has admitted.
    pub fn into_admitted_row(self, kind: ResourceKind) -> ResourceRow {
        self.validated(kind, Findings::of_admitted()).0
    }

    fn validated(self, kind: ResourceKind, mut findings: Findings) -> (ResourceRow, Vec<Reason>) {
        let name = findings.name(&self.metadata, names::dns_subdomain);
        let namespace = findings.namespace(&self.metadata);
        findings.metadata(&self.metadata);
        let uid = self.metadata.uid.filter(|uid| !uid.is_empty());
        let row = ResourceRow {
            kind,
            api_version: self.api_version,
            key: ServiceKey::new(&namespace, &name),
            uid: uid.map(|uid| Uid::new(&uid)),
            generation: self.metadata.generation,
            created: self.metadata.creation_timestamp,
            labels: self.metadata.labels,
            annotations: self.metadata.annotations,
            spec: self.spec,
            accepted: recorded(&self.status, "accepted").map(Arc::new),
            cooling: Cooling {
                released: recorded(&self.status, "cooling").unwrap_or_default(),
                held: recorded(&self.status, "held").unwrap_or_default(),
            },
            source: None,
        };
        (row, findings.reasons())
    }
}

/// Reads a part of a status. One that can't be read is as good as none.
fn recorded<T: DeserializeOwned>(status: &Value, field: &str) -> Option<T> {
    let value = status.get(field).filter(|it| !it.is_null())?;
    T::deserialize(value).ok()
}

impl From<&ResourceRow> for Resource {
    fn from(row: &ResourceRow) -> Self {
        Self {
            api_version: row.api_version.clone(),
            metadata: ObjectMeta {
                name: Some(row.key.name().to_owned()),
                namespace: Some(row.key.namespace().to_owned()),
                uid: row.uid.as_ref().map(ToString::to_string),
                generation: row.generation,
                creation_timestamp: row.created,
                labels: row.labels.clone(),
                annotations: row.annotations.clone(),
                ..ObjectMeta::default()
            },
            spec: row.spec.clone(),
            status: status_of(row),
        }
    }
}

/// Returns what of a status is read.
fn status_of(row: &ResourceRow) -> Value {
    let mut status = serde_json::Map::new();
    let accepted = row.accepted.as_ref();
    let released = Some(&row.cooling.released).filter(|it| !it.is_empty());
    let held = Some(&row.cooling.held).filter(|it| !it.is_empty());
    let fields = [
        ("accepted", accepted.map(serde_json::to_value)),
        ("cooling", released.map(serde_json::to_value)),
        ("held", held.map(serde_json::to_value)),
    ];
    for (field, value) in fields {
        // What was read can be written.
        if let Some(Ok(value)) = value {
            status.insert(field.to_owned(), value);
        }
    }
    if status.is_empty() {
        Value::Null
    } else {
        Value::Object(status)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn advertisement() -> Value {
        json!({
            "apiVersion": "metallb.io/v1beta1", "kind": "L2Advertisement",
            "metadata": {
                "name": "edge", "namespace": "metallb-system", "uid": "u", "generation": 4,
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"tier": "front"},
                "resourceVersion": "77", "managedFields": [{"manager": "kubectl"}],
            },
            "spec": {"ipAddressPools": ["public"], "interfaces": ["eth0"], "unheard": {"of": 1}},
        })
    }

    #[test]
    fn a_resource_keeps_its_spec_as_written_and_becomes_the_object_that_it_was_made_of() {
        let kind = ResourceKind::L2Advertisement;
        let shape: Resource = serde_json::from_value(advertisement()).unwrap();
        let row = shape.into_row(kind).unwrap();
        assert_eq!(row.to_string(), "L2Advertisement metallb-system/edge");
        assert_eq!(row.spec, advertisement()["spec"]);
        assert_eq!(
            (row.generation, row.uid.clone()),
            (Some(4), Some(Uid::new("u")))
        );
        let text = serde_json::to_string(&Resource::from(&row)).unwrap();
        let again: Resource = serde_json::from_str(&text).unwrap();
        assert_eq!(again.into_admitted_row(kind), row);
    }

    #[test]
    fn another_resource_version_alone_is_no_other_row() {
        let row = |version: &str| {
            let mut object = advertisement();
            object["metadata"]["resourceVersion"] = json!(version);
            object["status"] = json!({"written": version});
            let shape: Resource = serde_json::from_value(object).unwrap();
            shape.into_admitted_row(ResourceKind::L2Advertisement)
        };
        assert_eq!(row("77"), row("78"));
    }

    #[test]
    fn what_the_controller_recorded_in_a_status_is_read_and_what_can_not_be_read_is_ignored() {
        let read = |status: Value| {
            let mut object = advertisement();
            object["status"] = status;
            let shape: Resource = serde_json::from_value(object).unwrap();
            shape.into_admitted_row(ResourceKind::IpAddressPool)
        };
        let released = json!({"address": "192.0.2.7", "until": "2026-01-01T00:00:00Z",
            "service": "shop/web"});
        let accepted = json!({"spec": {"addresses": ["192.0.2.0/24"]}});
        let row = read(json!({"accepted": accepted, "cooling": [released], "assignedIPv4": 1}));
        assert_eq!(
            row.accepted.as_ref().unwrap().spec["addresses"][0],
            "192.0.2.0/24"
        );
        assert_eq!(row.cooling.released[0].service, "shop/web");
        let again = serde_json::to_value(Resource::from(&row)).unwrap();
        assert_eq!(
            again["status"],
            json!({"accepted": accepted, "cooling": [released]})
        );
        for status in [
            json!(7),
            json!({"accepted": 7, "cooling": {"of": 1}}),
            json!(null),
        ] {
            let row = read(status);
            assert!(row.accepted.is_none() && row.cooling.released.is_empty());
        }
    }

    #[test]
    fn a_resource_without_a_proper_name_is_refused_in_a_manifest_only() {
        let shape: Resource =
            serde_json::from_value(json!({"metadata": {"name": "Edge"}})).unwrap();
        let kind = ResourceKind::Community;
        let reasons = shape.clone().into_row(kind).unwrap_err();
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert_eq!(reasons[0].field.as_deref(), Some("metadata.name"));
        assert_eq!(shape.into_admitted_row(kind).key.name(), "Edge");
    }
}
