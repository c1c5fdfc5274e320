//! What `landfall.yaml` says about an instance on this machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Complaint, Options};

/// Addresses of this machine, traffic through this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Local {}

impl Options for Local {
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
