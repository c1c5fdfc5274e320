//! What `landfall.yaml` says about an instance on Exoscale.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Complaint, Options};

/// An instance that creates Network Load Balancers of Exoscale. What is left out, the environment
/// says: `EXOSCALE_API_KEY` with `EXOSCALE_API_SECRET`, `EXOSCALE_API_ZONE` and so on. What both
/// say, the environment decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Exoscale {
    /// The zone, such as `ch-gva-2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The API key and its secret: a JSON file with `api_key` and `api_secret`, or a directory with
    /// files `api-key` and `api-secret`, such as a mounted Secret. Changes are noticed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_file: Option<PathBuf>,
    /// The address that is asked for the zones; default: that of `ch-gva-2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_endpoint: Option<String>,
    /// The instance pool of Services that name none; default: that of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_pool: Option<String>,
    /// The health check of Services with `externalTrafficPolicy: Local` that name none.
    #[serde(skip_serializing_if = "is_default")]
    pub local_health_check: LocalHealthCheck,
    /// What marks load balancers as this cluster's where there is no namespace `kube-system` whose
    /// UID does; default: `kubernetes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub cluster_name: Option<String>,
}

/// Health checks of nodes that may have no endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LocalHealthCheck {
    /// Only nodes with an endpoint get traffic.
    #[default]
    Http,
    /// All nodes get traffic, and those without an endpoint drop it, as with Exoscale's controller.
    Tcp,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "for serde")]
fn is_default(check: &LocalHealthCheck) -> bool {
    *check == LocalHealthCheck::default()
}

impl Options for Exoscale {
    fn short() -> Result<Self, &'static str> {
        Ok(Self::default())
    }

    fn complaint(&self) -> Option<Complaint> {
        let empty = |text: &Option<String>| text.as_deref() == Some("");
        let keys = [
            ("zone", &self.zone),
            ("apiEndpoint", &self.api_endpoint),
            ("instancePool", &self.instance_pool),
            ("clusterName", &self.cluster_name),
        ];
        let (key, _) = keys.into_iter().find(|(_, value)| empty(value))?;
        Some(Complaint::new(key, "", "write a value, or leave it out"))
    }

    fn no_pools(&self) -> Option<&'static str> {
        Some("an Exoscale instance has no pools; its addresses come from the cloud")
    }
}
