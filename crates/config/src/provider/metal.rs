//! What `landfall.yaml` says about an instance on bare metal.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Complaint, Options};

/// Addresses from pools, which speakers on the nodes announce.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metal {
    /// What serves the addresses.
    #[serde(default, skip_serializing_if = "DataPlane::is_default")]
    pub data_plane: DataPlane,
}

/// What serves the addresses of an instance on bare metal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DataPlane {
    /// The kube-proxy of each node, or what stands in for it.
    #[default]
    KubeProxy,
    /// The speakers, with the data plane of Landfall: TLS, HTTP, PROXY protocol, weights, monitors
    /// and draining. They need the capability `NET_ADMIN`.
    Landfall,
}

// === impl DataPlane ===

impl DataPlane {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Options for Metal {
    fn short() -> Result<Self, &'static str> {
        Ok(Self::default())
    }

    fn complaint(&self) -> Option<Complaint> {
        None
    }

    fn no_pools(&self) -> Option<&'static str> {
        None
    }
}
