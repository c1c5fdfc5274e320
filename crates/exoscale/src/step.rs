//! One change in the cloud: one request.

use std::fmt;

use landfall_model::Uid;
use landfall_model::provider::ProviderStep;
use serde::Serialize;

use crate::objects::{CreateLoadBalancer, CreateService, Id, UpdateLoadBalancer, UpdateService};

/// One change for a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The Service.
    pub service: Uid,
    /// What is changed.
    #[serde(flatten)]
    pub change: Change,
}

/// One change: one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(
    tag = "step",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Change {
    /// Creates the NLB.
    CreateLoadBalancer {
        /// The request.
        body: CreateLoadBalancer,
    },
    /// Changes the NLB.
    UpdateLoadBalancer {
        /// The NLB.
        load_balancer: Id,
        /// The request.
        body: UpdateLoadBalancer,
    },
    /// Empties the description of the NLB.
    ResetDescription {
        /// The NLB.
        load_balancer: Id,
    },
    /// Deletes the NLB.
    DeleteLoadBalancer {
        /// The NLB.
        load_balancer: Id,
    },
    /// Adds a service to the NLB.
    CreateService {
        /// The NLB.
        load_balancer: Id,
        /// The request.
        body: CreateService,
    },
    /// Changes a service of the NLB.
    UpdateService {
        /// The NLB.
        load_balancer: Id,
        /// The service.
        id: Id,
        /// The request.
        body: UpdateService,
    },
    /// Empties the description of a service of the NLB.
    ResetServiceDescription {
        /// The NLB.
        load_balancer: Id,
        /// The service.
        id: Id,
    },
    /// Removes a service from the NLB.
    DeleteService {
        /// The NLB.
        load_balancer: Id,
        /// The service.
        id: Id,
    },
}

// === impl Change ===

impl Change {
    /// Returns the NLB that is changed; `None`: it is created.
    pub fn load_balancer(&self) -> Option<&Id> {
        match self {
            Self::CreateLoadBalancer { .. } => None,
            Self::UpdateLoadBalancer { load_balancer, .. }
            | Self::ResetDescription { load_balancer }
            | Self::DeleteLoadBalancer { load_balancer }
            | Self::CreateService { load_balancer, .. }
            | Self::UpdateService { load_balancer, .. }
            | Self::ResetServiceDescription { load_balancer, .. }
            | Self::DeleteService { load_balancer, .. } => Some(load_balancer),
        }
    }

    /// Returns what the NLB is doing meanwhile.
    pub(crate) fn doing(&self) -> &'static str {
        match self {
            Self::CreateLoadBalancer { .. } => "being created",
            Self::DeleteLoadBalancer { .. } => "being deleted",
            _ => "being changed",
        }
    }
}

impl ProviderStep for Step {
    fn kind(&self) -> &'static str {
        match self.change {
            Change::CreateLoadBalancer { .. } | Change::CreateService { .. } => "create",
            Change::UpdateLoadBalancer { .. }
            | Change::ResetDescription { .. }
            | Change::UpdateService { .. }
            | Change::ResetServiceDescription { .. } => "update",
            Change::DeleteLoadBalancer { .. } | Change::DeleteService { .. } => "delete",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.change.fmt(f)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateLoadBalancer { body } => write!(f, "create load balancer {}", body.name),
            Self::UpdateLoadBalancer {
                load_balancer,
                body,
            } => {
                let fields = [
                    body.name.as_ref().map(|_| "name"),
                    body.description.as_ref().map(|_| "description"),
                    body.labels.as_ref().map(|_| "labels"),
                ];
                let fields = listed(&fields);
                write!(f, "set {fields} of load balancer {load_balancer}")
            }
            Self::ResetDescription { load_balancer } => {
                write!(f, "empty the description of load balancer {load_balancer}")
            }
            Self::DeleteLoadBalancer { load_balancer } => {
                write!(f, "delete load balancer {load_balancer}")
            }
            Self::CreateService {
                load_balancer,
                body,
            } => {
                let (port, protocol, target) = (body.port, &body.protocol, body.target_port);
                let pool = &body.instance_pool.id;
                write!(
                    f,
                    "add service {} to load balancer {load_balancer}: {port}/{protocol} to \
                     {target} of instance pool {pool}",
                    body.name
                )
            }
            Self::UpdateService {
                load_balancer,
                id,
                body,
            } => {
                let fields = [
                    body.name.as_ref().map(|_| "name"),
                    body.description.as_ref().map(|_| "description"),
                    body.strategy.as_ref().map(|_| "strategy"),
                    body.target_port.map(|_| "target-port"),
                    body.healthcheck.as_ref().map(|_| "healthcheck"),
                ];
                let fields = listed(&fields);
                write!(
                    f,
                    "set {fields} of service {id} of load balancer {load_balancer}"
                )
            }
            Self::ResetServiceDescription { load_balancer, id } => write!(
                f,
                "empty the description of service {id} of load balancer {load_balancer}"
            ),
            Self::DeleteService { load_balancer, id } => {
                write!(f, "remove service {id} from load balancer {load_balancer}")
            }
        }
    }
}

fn listed(fields: &[Option<&str>]) -> String {
    let fields: Vec<&str> = fields.iter().flatten().copied().collect();
    fields.join(", ")
}
