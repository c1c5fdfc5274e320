//! What `landfall.yaml` says about an instance on bare metal.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Complaint, Options};

/// Addresses from pools, which speakers on the nodes announce and kube-proxy serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metal {}

impl Options for Metal {
    fn short() -> Result<Self, &'static str> {
        Ok(Self {})
    }

    fn complaint(&self) -> Option<Complaint> {
        None
    }

    fn no_pools(&self) -> Option<&'static str> {
        None
    }
}
