//! The calls.

use http::Method;
use landfall_rest::{
    ApiError, At, Change, ErrorKind, Operation as Pending, OperationState, Progress,
};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::Cloud;
use super::operation::{Begun, state};
use super::session::Service;
use crate::objects::{
    CreateLoadBalancer, CreateService, Id, Instance, InstancePool, LoadBalancer, LoadBalancerField,
    Operation, Quota, SksCluster, UpdateLoadBalancer, UpdateService,
};

const LOAD_BALANCER: &str = "load-balancer";
const SERVICE: &str = "service";
/// The kind of object in counters.
const NLB_SERVICE: &str = "load-balancer-service";

fn load_balancer<'a>(path: &'a [&'a str]) -> At<'a, Service> {
    At::new(Service, LOAD_BALANCER, path)
}

impl Cloud {
    /// Reads all NLBs of the zone with their services. An answer without the list is an error: it
    /// does not prove that there is none.
    pub async fn load_balancers(&self) -> Result<Vec<LoadBalancer>, ApiError> {
        let at = load_balancer(&[LOAD_BALANCER]);
        self.client().list(at, "load-balancers").await
    }

    /// Reads an NLB with its services.
    pub async fn load_balancer(&self, id: &Id) -> Result<Option<LoadBalancer>, ApiError> {
        let path = [LOAD_BALANCER, id.as_str()];
        self.client().object(load_balancer(&path)).await
    }

    /// Creates an NLB.
    pub async fn create_load_balancer(&self, body: &CreateLoadBalancer) -> Result<Begun, ApiError> {
        let path = [LOAD_BALANCER];
        self.change(LOAD_BALANCER, &path, Change::new(Method::POST, json(body)?))
            .await
    }

    /// Changes an NLB.
    pub async fn update_load_balancer(
        &self,
        id: &Id,
        body: &UpdateLoadBalancer,
    ) -> Result<Begun, ApiError> {
        let path = [LOAD_BALANCER, id.as_str()];
        self.change(LOAD_BALANCER, &path, Change::new(Method::PUT, json(body)?))
            .await
    }

    /// Empties a field of an NLB.
    pub async fn reset_load_balancer(
        &self,
        id: &Id,
        field: LoadBalancerField,
    ) -> Result<Begun, ApiError> {
        let path = [LOAD_BALANCER, id.as_str(), field.as_str()];
        self.change(LOAD_BALANCER, &path, delete()).await
    }

    /// Deletes an NLB; `None`: there is none any more.
    pub async fn delete_load_balancer(&self, id: &Id) -> Result<Option<Begun>, ApiError> {
        let path = [LOAD_BALANCER, id.as_str()];
        gone(self.change(LOAD_BALANCER, &path, delete()).await)
    }

    /// Adds a service to an NLB.
    pub async fn create_service(
        &self,
        load_balancer: &Id,
        body: &CreateService,
    ) -> Result<Begun, ApiError> {
        let path = [LOAD_BALANCER, load_balancer.as_str(), SERVICE];
        self.change(NLB_SERVICE, &path, Change::new(Method::POST, json(body)?))
            .await
    }

    /// Changes a service of an NLB.
    pub async fn update_service(
        &self,
        load_balancer: &Id,
        id: &Id,
        body: &UpdateService,
    ) -> Result<Begun, ApiError> {
        let path = [LOAD_BALANCER, load_balancer.as_str(), SERVICE, id.as_str()];
        self.change(NLB_SERVICE, &path, Change::new(Method::PUT, json(body)?))
            .await
    }

    /// Empties the description of a service of an NLB: the one field that can be.
    pub async fn reset_service_description(
        &self,
        load_balancer: &Id,
        id: &Id,
    ) -> Result<Begun, ApiError> {
        let (of, id) = (load_balancer.as_str(), id.as_str());
        let path = [LOAD_BALANCER, of, SERVICE, id, "description"];
        self.change(NLB_SERVICE, &path, delete()).await
    }

    /// Removes a service from an NLB; `None`: there is none any more.
    pub async fn delete_service(
        &self,
        load_balancer: &Id,
        id: &Id,
    ) -> Result<Option<Begun>, ApiError> {
        let path = [LOAD_BALANCER, load_balancer.as_str(), SERVICE, id.as_str()];
        gone(self.change(NLB_SERVICE, &path, delete()).await)
    }

    /// Asks for the state of an operation, if that is due. Its end names the object that it was
    /// about, if the cloud does.
    ///
    /// # Errors
    /// It has failed; or its end is not known, and the object should be read.
    pub async fn poll(&self, operation: &mut Pending) -> Result<Progress<Option<Id>>, ApiError> {
        let ask = |id: String| async move {
            let path = ["operation", id.as_str()];
            let at = At::new(Service, "operation", &path);
            let answer: Option<Operation> = self.client().object(at).await?;
            Ok(answer.as_ref().map_or_else(
                || OperationState::Failed(ErrorKind::Lost, "it is not known any more".to_owned()),
                state,
            ))
        };
        operation.poll(ask).await
    }

    /// Reads all instances of the zone.
    pub async fn instances(&self) -> Result<Vec<Instance>, ApiError> {
        let at = At::new(Service, "instance", &["instance"]);
        self.client().list(at, "instances").await
    }

    /// Reads an instance.
    pub async fn instance(&self, id: &Id) -> Result<Option<Instance>, ApiError> {
        let path = ["instance", id.as_str()];
        let at = At::new(Service, "instance", &path);
        self.client().object(at).await
    }

    /// Reads an instance pool.
    pub async fn instance_pool(&self, id: &Id) -> Result<Option<InstancePool>, ApiError> {
        let path = ["instance-pool", id.as_str()];
        let at = At::new(Service, "instance-pool", &path);
        self.client().object(at).await
    }

    /// Reads all instance pools of the zone.
    pub async fn instance_pools(&self) -> Result<Vec<InstancePool>, ApiError> {
        let at = At::new(Service, "instance-pool", &["instance-pool"]);
        self.client().list(at, "instance-pools").await
    }

    /// Reads all Kubernetes clusters of the zone with their nodepools.
    pub async fn sks_clusters(&self) -> Result<Vec<SksCluster>, ApiError> {
        let at = At::new(Service, "sks-cluster", &["sks-cluster"]);
        self.client().list(at, "sks-clusters").await
    }

    /// Reads how many NLBs there may be, and are; `None`: the cloud does not say.
    pub async fn load_balancer_quota(&self) -> Result<Option<Quota>, ApiError> {
        let path = ["quota", "network-load-balancer"];
        let at = At::new(Service, "quota", &path);
        self.client().object(at).await
    }

    async fn change(
        &self,
        resource: &'static str,
        path: &[&str],
        change: Change,
    ) -> Result<Begun, ApiError> {
        let request = format!("{} {}", change.method, path.join("/"));
        let at = At::new(Service, resource, path);
        let answer: Operation = self.client().changed(at, change).await?;
        Begun::of(&request, &answer, self.polling(), Instant::now())
    }
}

fn delete() -> Change {
    Change::new(Method::DELETE, None)
}

fn json(body: &impl Serialize) -> Result<Option<Value>, ApiError> {
    serde_json::to_value(body)
        .map(Some)
        .map_err(|why| ApiError::ours(ErrorKind::Invalid, "a body", why.to_string()))
}

/// Takes an object that is gone as deleted.
fn gone(result: Result<Begun, ApiError>) -> Result<Option<Begun>, ApiError> {
    match result {
        // Not the end of an operation: that names no status.
        Err(error) if error.kind == ErrorKind::NotFound && error.status.is_some() => Ok(None),
        result => result.map(Some),
    }
}
