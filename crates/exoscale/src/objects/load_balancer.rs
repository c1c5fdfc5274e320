//! Network Load Balancers and their services, as they are answered.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::words::{
    HealthcheckMode, HealthcheckResult, LoadBalancerState, Protocol, ServiceState, Strategy,
};
use super::{Id, or_empty};

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A Network Load Balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LoadBalancer {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the zone.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// Its description.
    #[serde(default, deserialize_with = "or_empty")]
    pub description: String,
    /// Its state.
    #[serde(default, deserialize_with = "or_empty")]
    pub state: LoadBalancerState,
    /// Its address, once it has one.
    #[serde(default)]
    pub ip: Option<Ipv4Addr>,
    /// Its labels.
    #[serde(default, deserialize_with = "or_empty")]
    pub labels: Labels,
    /// Its services.
    #[serde(default, deserialize_with = "or_empty")]
    pub services: Vec<LoadBalancerService>,
}

/// A service of an NLB: one port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LoadBalancerService {
    /// Its id.
    pub id: Id,
    /// Its name.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// Its description.
    #[serde(default, deserialize_with = "or_empty")]
    pub description: String,
    /// Its state.
    #[serde(default, deserialize_with = "or_empty")]
    pub state: ServiceState,
    /// The protocol.
    #[serde(default, deserialize_with = "or_empty")]
    pub protocol: Protocol,
    /// The port on the NLB's address.
    #[serde(default, deserialize_with = "or_empty")]
    pub port: u16,
    /// The port on the instances.
    #[serde(default, deserialize_with = "or_empty")]
    pub target_port: u16,
    /// How an instance is chosen.
    #[serde(default, deserialize_with = "or_empty")]
    pub strategy: Strategy,
    /// The pool of the instances. Answers may hold more of it than its id.
    #[serde(default)]
    pub instance_pool: Option<Reference>,
    /// How instances are checked.
    #[serde(default, deserialize_with = "or_empty")]
    pub healthcheck: Healthcheck,
    /// The health of the instances.
    #[serde(default, deserialize_with = "or_empty")]
    pub healthcheck_status: Vec<ServerStatus>,
}

/// An object that another one names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// Its id.
    pub id: Id,
}

/// A health check. What is `None` is not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Healthcheck {
    /// Its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<HealthcheckMode>,
    /// The port that is checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The path of HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Seconds between two checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<u32>,
    /// Seconds until a check fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u32>,
    /// Failed checks before an instance is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// The server's name in checks by HTTPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_sni: Option<String>,
}

/// The health of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ServerStatus {
    /// The address of the instance.
    #[serde(default)]
    pub public_ip: Option<Ipv4Addr>,
    /// Its health.
    #[serde(default)]
    pub status: Option<HealthcheckResult>,
}
