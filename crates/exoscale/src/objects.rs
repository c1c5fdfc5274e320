//! Objects of the API as they stand in JSON: what is sent, and of answers what is read. Fields that
//! are not known are ignored, those that are missing or null are empty.

mod compute;
mod load_balancer;
mod operation;
mod requests;
mod words;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

pub use compute::{Instance, InstancePool, Manager, Nodepool, Quota, SksCluster, Zone, Zones};
pub use load_balancer::{
    Healthcheck, Labels, LoadBalancer, LoadBalancerService, Reference, ServerStatus,
};
pub use operation::{Operation, OperationReference};
pub use requests::{
    CreateLoadBalancer, CreateService, LoadBalancerField, UpdateLoadBalancer, UpdateService,
};
pub use words::{
    HealthcheckMode, HealthcheckResult, InstanceState, LoadBalancerState, ManagerType,
    OperationReason, OperationStatus, PoolState, Protocol, ServiceState, Strategy,
};

/// An id: a UUID, in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Id(Box<str>);

// === impl Id ===

impl Id {
    /// Parses what a user wrote; `None`: not a UUID.
    pub fn parse(text: &str) -> Option<Self> {
        let mut groups = text.split('-');
        let hex = |group: &str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
        let fits = [8, 4, 4, 4, 12].into_iter().all(|length| {
            let group = groups.next();
            group.is_some_and(|group| group.len() == length && hex(group))
        });
        (fits && groups.next().is_none()).then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// Returns its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Id {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads a value that may be null.
fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests;
