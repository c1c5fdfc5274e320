//! What members are.

use serde::{Deserialize, Serialize};

/// Where members point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// Pod addresses and target ports.
    #[default]
    Pod,
    /// Node addresses and NodePorts.
    Node,
}
