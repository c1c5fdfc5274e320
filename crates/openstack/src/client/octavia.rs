//! Octavia, API v2: load balancers and what belongs to them. Bodies are the inner objects; the
//! envelope is put around here.

use http::Method;
use landfall_rest::{ApiRequest, At, Change};
use serde::Deserialize;
use serde_json::{Value, json};

use super::catalog::Service;
use super::version::ApiVersion;
use super::{ApiError, Cloud, ErrorKind, of_project};
use crate::objects::{Id, Listener, LoadBalancer, Member, Monitor, Pool};

/// A provider driver that Octavia offers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ProviderDriver {
    /// The name: `amphora`, `ovn`, ...
    pub name: String,
    /// For people.
    #[serde(default)]
    pub description: String,
}

const LOAD_BALANCERS: &str = "loadbalancers";
const LISTENERS: &str = "listeners";
const POOLS: &str = "pools";
const MEMBERS: &str = "members";
const MONITORS: &str = "healthmonitors";
/// Collections, and the versions of the API that they came with.
const SINCE: [(&str, ApiVersion); 2] = [
    ("availabilityzones", ApiVersion::new(2, 14)),
    ("flavors", ApiVersion::new(2, 6)),
];

impl Cloud {
    /// The highest version of Octavia's API, asked for now and then; an error is not kept.
    pub async fn versions(&self) -> Result<ApiVersion, ApiError> {
        self.last_version()
            .get(async || self.find_version().await)
            .await
    }

    /// The highest version. Where the list of versions can't be read for good, because a proxy does
    /// not lead to it, a version that is certainly there.
    async fn find_version(&self) -> Result<ApiVersion, ApiError> {
        let error = match self.ask_versions().await {
            Err(error) if matches!(error.status, Some(403..=405)) => error,
            asked => return asked,
        };
        for (collection, version) in SINCE {
            if self.has_collection(collection).await? {
                tracing::warn!(%error, %version, "the versions of Octavia can't be read, so that \
                    no more is used than what came with this one");
                return Ok(version);
            }
        }
        Err(error)
    }

    /// Whether Octavia knows a collection, be it that we may not read it.
    async fn has_collection(&self, collection: &str) -> Result<bool, ApiError> {
        let path = ["lbaas", collection];
        match self.client().exists(octavia("version", &path)).await {
            Err(error) if error.kind == ErrorKind::Forbidden => Ok(true),
            found => found,
        }
    }

    async fn ask_versions(&self) -> Result<ApiVersion, ApiError> {
        let client = self.client();
        let session = client.session().await?;
        let mut url = session.endpoints.load_balancer.root.clone();
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        let request = ApiRequest {
            auth: Some(&*session),
            ..ApiRequest::new(Method::GET, url, "version", self.config().timeouts.read)
        };
        let name = request.name();
        let answer = client.exchange().send(request).await?;
        let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        ApiVersion::highest(&document).ok_or_else(|| {
            ApiError::ours(ErrorKind::Unreadable, &name, "no versions in the answer")
        })
    }

    /// All load balancers of the project.
    pub async fn load_balancers(&self) -> Result<Vec<LoadBalancer>, ApiError> {
        self.octavia_list("loadbalancer", LOAD_BALANCERS, None)
            .await
    }

    /// The load balancers of the project that have this name; names aren't unique.
    pub async fn load_balancers_named(&self, name: &str) -> Result<Vec<LoadBalancer>, ApiError> {
        let project = self.project_id().await?;
        let mut query = vec![("name", name)];
        query.extend(of_project(project.as_ref()));
        let path = ["lbaas", LOAD_BALANCERS];
        let at = octavia("loadbalancer", &path).query(&query);
        self.client().list(at, LOAD_BALANCERS).await
    }

    /// A load balancer; `None` when it isn't there. One of another project is `Forbidden`.
    pub async fn load_balancer(&self, id: &Id) -> Result<Option<LoadBalancer>, ApiError> {
        let path = ["lbaas", LOAD_BALANCERS, id.as_str()];
        self.client().object(octavia("loadbalancer", &path)).await
    }

    /// Makes a load balancer, with all that belongs to it where the body says so.
    pub async fn create_load_balancer(&self, body: &Value) -> Result<LoadBalancer, ApiError> {
        self.octavia_create("loadbalancer", LOAD_BALANCERS, body)
            .await
    }

    /// Changes a load balancer.
    pub async fn update_load_balancer(
        &self,
        id: &Id,
        body: &Value,
    ) -> Result<LoadBalancer, ApiError> {
        self.octavia_update("loadbalancer", LOAD_BALANCERS, id, body)
            .await
    }

    /// Deletes a load balancer; `cascade`: with all that belongs to it, without which it is
    /// `Invalid` while it has any.
    pub async fn delete_load_balancer(&self, id: &Id, cascade: bool) -> Result<(), ApiError> {
        let path = ["lbaas", LOAD_BALANCERS, id.as_str()];
        let query: &[(&str, &str)] = if cascade { &[("cascade", "true")] } else { &[] };
        self.client()
            .delete(octavia("loadbalancer", &path).query(query))
            .await
    }

    /// Has the provider build the load balancer again behind its VIP. Mostly only administrators
    /// may.
    pub async fn failover(&self, id: &Id) -> Result<(), ApiError> {
        let path = ["lbaas", LOAD_BALANCERS, id.as_str(), "failover"];
        let change = Change::new(Method::PUT, None);
        self.client().done(octavia("failover", &path), change).await
    }

    /// The statuses of a load balancer and all that belongs to it, as the tree inside `statuses`.
    pub async fn statuses(&self, id: &Id) -> Result<Option<Value>, ApiError> {
        let path = ["lbaas", LOAD_BALANCERS, id.as_str(), "status"];
        self.client()
            .object(octavia("status", &path).envelope("statuses"))
            .await
    }

    /// Listeners of a load balancer, or all of the project.
    pub async fn listeners(&self, load_balancer: Option<&Id>) -> Result<Vec<Listener>, ApiError> {
        let filter = load_balancer.map(|id| ("loadbalancer_id", id));
        self.octavia_list("listener", LISTENERS, filter).await
    }

    /// A listener.
    pub async fn listener(&self, id: &Id) -> Result<Option<Listener>, ApiError> {
        let path = ["lbaas", LISTENERS, id.as_str()];
        self.client().object(octavia("listener", &path)).await
    }

    /// Makes a listener; the body has `loadbalancer_id`.
    pub async fn create_listener(&self, body: &Value) -> Result<Listener, ApiError> {
        self.octavia_create("listener", LISTENERS, body).await
    }

    /// Changes a listener.
    pub async fn update_listener(&self, id: &Id, body: &Value) -> Result<Listener, ApiError> {
        self.octavia_update("listener", LISTENERS, id, body).await
    }

    /// Deletes a listener.
    pub async fn delete_listener(&self, id: &Id) -> Result<(), ApiError> {
        let path = ["lbaas", LISTENERS, id.as_str()];
        self.client().delete(octavia("listener", &path)).await
    }

    /// Pools of a load balancer, or all of the project.
    pub async fn pools(&self, load_balancer: Option<&Id>) -> Result<Vec<Pool>, ApiError> {
        let filter = load_balancer.map(|id| ("loadbalancer_id", id));
        self.octavia_list("pool", POOLS, filter).await
    }

    /// A pool.
    pub async fn pool(&self, id: &Id) -> Result<Option<Pool>, ApiError> {
        let path = ["lbaas", POOLS, id.as_str()];
        self.client().object(octavia("pool", &path)).await
    }

    /// Makes a pool; the body has `listener_id` or `loadbalancer_id`.
    pub async fn create_pool(&self, body: &Value) -> Result<Pool, ApiError> {
        self.octavia_create("pool", POOLS, body).await
    }

    /// Changes a pool.
    pub async fn update_pool(&self, id: &Id, body: &Value) -> Result<Pool, ApiError> {
        self.octavia_update("pool", POOLS, id, body).await
    }

    /// Deletes a pool with its members and monitor.
    pub async fn delete_pool(&self, id: &Id) -> Result<(), ApiError> {
        let path = ["lbaas", POOLS, id.as_str()];
        self.client().delete(octavia("pool", &path)).await
    }

    /// The members of a pool.
    pub async fn members(&self, pool: &Id) -> Result<Vec<Member>, ApiError> {
        let path = ["lbaas", POOLS, pool.as_str(), MEMBERS];
        self.client().list(octavia("member", &path), MEMBERS).await
    }

    /// Gives a pool these members in one call. `additive` (API 2.11) leaves the others; without it
    /// they are removed.
    pub async fn set_members(
        &self,
        pool: &Id,
        members: &[Value],
        additive: bool,
    ) -> Result<(), ApiError> {
        let path = ["lbaas", POOLS, pool.as_str(), MEMBERS];
        let query: &[(&str, &str)] = if additive {
            &[("additive_only", "true")]
        } else {
            &[]
        };
        let change = Change::new(Method::PUT, Some(json!({ MEMBERS: members })));
        self.client()
            .done(octavia("members", &path).query(query), change)
            .await
    }

    /// Adds a member.
    pub async fn create_member(&self, pool: &Id, body: &Value) -> Result<Member, ApiError> {
        let path = ["lbaas", POOLS, pool.as_str(), MEMBERS];
        let change = Change::new(Method::POST, Some(json!({ "member": body })));
        self.client()
            .changed(octavia("member", &path), change)
            .await
    }

    /// Changes a member.
    pub async fn update_member(
        &self,
        pool: &Id,
        id: &Id,
        body: &Value,
    ) -> Result<Member, ApiError> {
        let path = ["lbaas", POOLS, pool.as_str(), MEMBERS, id.as_str()];
        let change = Change::new(Method::PUT, Some(json!({ "member": body })));
        self.client()
            .changed(octavia("member", &path), change)
            .await
    }

    /// Deletes a member.
    pub async fn delete_member(&self, pool: &Id, id: &Id) -> Result<(), ApiError> {
        let path = ["lbaas", POOLS, pool.as_str(), MEMBERS, id.as_str()];
        self.client().delete(octavia("member", &path)).await
    }

    /// The monitor of a pool, or all of the project.
    pub async fn monitors(&self, pool: Option<&Id>) -> Result<Vec<Monitor>, ApiError> {
        let filter = pool.map(|id| ("pool_id", id));
        self.octavia_list("healthmonitor", MONITORS, filter).await
    }

    /// A monitor.
    pub async fn monitor(&self, id: &Id) -> Result<Option<Monitor>, ApiError> {
        let path = ["lbaas", MONITORS, id.as_str()];
        self.client().object(octavia("healthmonitor", &path)).await
    }

    /// Makes a monitor; the body has `pool_id`.
    pub async fn create_monitor(&self, body: &Value) -> Result<Monitor, ApiError> {
        self.octavia_create("healthmonitor", MONITORS, body).await
    }

    /// Changes a monitor.
    pub async fn update_monitor(&self, id: &Id, body: &Value) -> Result<Monitor, ApiError> {
        self.octavia_update("healthmonitor", MONITORS, id, body)
            .await
    }

    /// Deletes a monitor.
    pub async fn delete_monitor(&self, id: &Id) -> Result<(), ApiError> {
        let path = ["lbaas", MONITORS, id.as_str()];
        self.client().delete(octavia("healthmonitor", &path)).await
    }

    /// The provider drivers that Octavia offers.
    pub async fn providers(&self) -> Result<Vec<ProviderDriver>, ApiError> {
        let path = ["lbaas", "providers"];
        self.client()
            .list(octavia("provider", &path), "providers")
            .await
    }

    async fn octavia_list<T: serde::de::DeserializeOwned>(
        &self,
        resource: &'static str,
        collection: &'static str,
        filter: Option<(&str, &Id)>,
    ) -> Result<Vec<T>, ApiError> {
        let project = self.project_id().await?;
        let query: Vec<_> = match filter {
            Some((key, id)) => vec![(key, id.as_str())],
            // Administrators would see those of all projects.
            None => of_project(project.as_ref()).into_iter().collect(),
        };
        let path = ["lbaas", collection];
        let at = octavia(resource, &path).query(&query);
        self.client().list(at, collection).await
    }

    async fn octavia_create<T: serde::de::DeserializeOwned>(
        &self,
        resource: &'static str,
        collection: &'static str,
        body: &Value,
    ) -> Result<T, ApiError> {
        let path = ["lbaas", collection];
        let change = Change::new(Method::POST, Some(json!({ resource: body })));
        self.client()
            .changed(octavia(resource, &path), change)
            .await
    }

    async fn octavia_update<T: serde::de::DeserializeOwned>(
        &self,
        resource: &'static str,
        collection: &'static str,
        id: &Id,
        body: &Value,
    ) -> Result<T, ApiError> {
        let path = ["lbaas", collection, id.as_str()];
        let change = Change::new(Method::PUT, Some(json!({ resource: body })));
        self.client()
            .changed(octavia(resource, &path), change)
            .await
    }
}

const fn octavia<'a>(resource: &'static str, path: &'a [&'a str]) -> At<'a, Service> {
    At::new(Service::LoadBalancer, resource, path).envelope(resource)
}
