//! Objects of Octavia (API v2), Neutron (API v2.0) and Barbican (API v1) as their servers answer
//! them: only the fields that are read here.

mod barbican;
mod network;
mod octavia;
mod words;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

pub use barbican::{Container, Secret, SecretRef, id_in};
pub use network::{FixedIp, FloatingIp, Network, Port, Rule, SecurityGroup, Subnet};
pub use octavia::{
    AdditionalVip, Listener, LoadBalancer, Member, Monitor, Pool, Provisioning, SessionPersistence,
};
pub use words::{
    ListenerProtocol, MonitorType, OperatingStatus, PersistenceType, PoolAlgorithm, PoolProtocol,
};

/// The id of an object of a cloud: a UUID, unless a user wrote something else in its place.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Id(Arc<str>);

/// How one object names another: `{"id": ...}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ref {
    /// Whose id.
    pub id: Id,
}

// === impl Id ===

impl Id {
    /// An id as the cloud writes it.
    pub fn new(id: &str) -> Self {
        Self(id.into())
    }

    /// As the cloud writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether anything can have this id. What can't is not asked for: some services call it a bad
    /// request, others say that it is not there.
    pub(crate) fn is_uuid(&self) -> bool {
        let digits = self.0.bytes().filter(|byte| *byte != b'-');
        digits.clone().count() == 32 && digits.clone().all(|byte| byte.is_ascii_hexdigit())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Id {
    fn from(id: &str) -> Self {
        Self::new(id)
    }
}

/// Some fields are `null`, or an empty text, where nothing is set.
fn none_if_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Id>, D::Error> {
    let id = Option::<Id>::deserialize(deserializer)?;
    Ok(id.filter(|id| !id.as_str().is_empty()))
}

/// `null` where a list or a map is empty.
fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The server of a node: `openstack:///UUID`, or `openstack://REGION/UUID`.
pub(crate) fn server_of(provider_id: &str) -> Option<&str> {
    let rest = provider_id.strip_prefix("openstack://")?;
    let (_, server) = rest.rsplit_once('/')?;
    (!server.is_empty()).then_some(server)
}
