//! The Lease as an object of the API, and what of it decides the election.

use std::time::Duration;

use jiff::Timestamp;
use landfall_engine::leadership::Record;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// `coordination.k8s.io/v1` Lease, as far as it matters.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Lease {
    /// Kept as it is: labels and annotations of others stay.
    pub(super) metadata: Map<String, Value>,
    #[serde(default)]
    pub(super) spec: LeaseSpec,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LeaseSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) holder_identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease_duration_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) acquire_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) renew_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease_transitions: Option<i64>,
}

/// The annotation that names the holder once it serves. It is empty before: versions that don't
/// know it, or leave it out until then, are recognized.
const SERVING: &str = "landfall.dev/serving";

/// The transitions of a Lease that was made and not renewed since.
pub(super) const UNPROVEN: i64 = 0;

impl Lease {
    pub(super) fn version(&self) -> Option<&str> {
        self.metadata.get("resourceVersion")?.as_str()
    }

    /// What of it decides anything.
    pub(super) fn record(&self) -> Record {
        let holder = self.spec.holder_identity.clone().unwrap_or_default();
        let annotations = self.metadata.get("annotations");
        let said = annotations.and_then(|it| it.get(SERVING)?.as_str());
        let serving = !holder.is_empty() && said == Some(&holder);
        let seconds = self.spec.lease_duration_seconds.unwrap_or(0);
        Record {
            serving,
            // A word about another holder says nothing of this one.
            declares: serving || said == Some(""),
            holder,
            lease: Duration::from_secs(seconds.try_into().unwrap_or(0)),
            unproven: self.spec.lease_transitions.unwrap_or(UNPROVEN) == UNPROVEN,
        }
    }
}

/// Says in the metadata of a Lease which holder serves; empty: the holder does not.
pub(super) fn declare(metadata: &mut Map<String, Value>, serving: &str) {
    let mut annotations = match metadata.remove("annotations") {
        Some(Value::Object(annotations)) => annotations,
        _ => Map::new(),
    };
    annotations.insert(SERVING.into(), serving.into());
    metadata.insert("annotations".into(), annotations.into());
}

/// `metav1.MicroTime`: always six digits.
pub(crate) fn micro(time: Timestamp) -> String {
    format!("{time:.6}")
}
