//! Bodies of requests. A field that is `None` is not sent: the cloud leaves it as it is.

use serde::Serialize;

use super::load_balancer::{Healthcheck, Labels, Reference};
use super::words::{Protocol, Strategy};

/// Creates an NLB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CreateLoadBalancer {
    /// Its name, with 1 to 255 characters.
    pub name: String,
    /// Its description, with at most 255 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its labels.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// Changes an NLB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UpdateLoadBalancer {
    /// Another name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Another description. It is emptied by a reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// All labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
}

/// Adds a service to an NLB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CreateService {
    /// Its name, with 1 to 255 characters.
    pub name: String,
    /// Its description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The pool of the instances. It can't be changed later.
    pub instance_pool: Reference,
    /// The protocol.
    pub protocol: Protocol,
    /// How an instance is chosen.
    pub strategy: Strategy,
    /// The port on the NLB's address, not 0.
    pub port: u16,
    /// The port on the instances, not 0.
    pub target_port: u16,
    /// How instances are checked.
    pub healthcheck: Healthcheck,
}

/// Changes a service of an NLB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct UpdateService {
    /// Another name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Another description. It is emptied by a reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Another protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Another way to choose an instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Another port on the NLB's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Another port on the instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_port: Option<u16>,
    /// Another health check, complete: whether the cloud merges it is not documented.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthcheck: Option<Healthcheck>,
}

/// A field of an NLB that can be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadBalancerField {
    /// The description.
    Description,
    /// The labels.
    Labels,
}

// === impl LoadBalancerField ===

impl LoadBalancerField {
    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Description => "description",
            Self::Labels => "labels",
        }
    }
}
