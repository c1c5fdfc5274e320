//! Zones, instances, pools of instances, and Kubernetes clusters (SKS).

use std::net::Ipv4Addr;

use serde::Deserialize;

use super::load_balancer::Reference;
use super::words::{InstanceState, ManagerType, PoolState};
use super::{Id, or_empty};

/// A list of zones.
#[derive(Clone, Debug, Deserialize)]
pub struct Zones {
    /// All zones.
    pub zones: Vec<Zone>,
}

/// A zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Zone {
    /// Its name, such as `ch-gva-2`.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// The address of its API, with `/v2`.
    #[serde(default)]
    pub api_endpoint: Option<String>,
}

/// An instance: a virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Instance {
    /// Its id.
    pub id: Id,
    /// Its name.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// Its state.
    #[serde(default, deserialize_with = "or_empty")]
    pub state: InstanceState,
    /// Its public address.
    #[serde(default)]
    pub public_ip: Option<Ipv4Addr>,
    /// The pool that made it.
    #[serde(default)]
    pub manager: Option<Manager>,
}

/// What made an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Manager {
    /// Its id.
    #[serde(default, deserialize_with = "or_empty")]
    pub id: Id,
    /// Its kind.
    #[serde(rename = "type", default, deserialize_with = "or_empty")]
    pub kind: ManagerType,
}

/// A pool of equal instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct InstancePool {
    /// Its id.
    pub id: Id,
    /// Its name.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// Its state.
    #[serde(default, deserialize_with = "or_empty")]
    pub state: PoolState,
    /// What made it: for a nodepool of SKS, that one.
    #[serde(default)]
    pub manager: Option<Manager>,
    /// Its instances.
    #[serde(default, deserialize_with = "or_empty")]
    pub instances: Vec<Reference>,
}

/// A Kubernetes cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct SksCluster {
    /// Its id.
    pub id: Id,
    /// Its name.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// Its nodepools.
    #[serde(default, deserialize_with = "or_empty")]
    pub nodepools: Vec<Nodepool>,
}

/// A nodepool of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Nodepool {
    /// Its id.
    pub id: Id,
    /// Its name.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// The instance pool behind it.
    #[serde(default)]
    pub instance_pool: Option<Reference>,
}

/// How much of a kind of object may be used, and is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Quota {
    /// How much may be used; negative: without limit.
    #[serde(default, deserialize_with = "or_empty")]
    pub limit: i64,
    /// How much is used.
    #[serde(default, deserialize_with = "or_empty")]
    pub usage: i64,
}
