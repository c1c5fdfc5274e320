//! Options that a single provider supports, by dialect.

use serde::{Deserialize, Serialize};

use super::openstack::OpenStackOptions;
use crate::status::ServiceStatus;

/// Options that a single provider supports: one field per dialect that has such options.
///
/// The engine passes them on unread, for removals, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Extensions {
    /// Those of `loadbalancer.openstack.org/*`.
    pub openstack: OpenStackOptions,
}

impl Extensions {
    /// Adds what a dialect reads in the status of the Service.
    #[must_use]
    pub fn with_status(self, status: &ServiceStatus) -> Self {
        Self {
            openstack: self.openstack.with_status(status),
        }
    }
}
