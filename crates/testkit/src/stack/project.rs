//! A project: one test's cloud.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::{Answer, Method, Request, USER_AGENT};
use super::session::{Account, Session};
use super::{Call, Fault, Mark, Service, Stack, StackError, id_of, text_of};

/// A project with a user of its own. Two projects see nothing of each other.
pub struct Project {
    /// Id of the project.
    pub id: String,
    /// Name of the project.
    pub name: String,
    /// Keystone, with its version: `http://.../v3`.
    pub auth_url: String,
    /// The user: roles member, load-balancer_member and creator.
    pub username: String,
    /// Id of the user.
    pub user_id: String,
    /// The user's password.
    pub password: String,
    /// Id of the domain of both user and project.
    pub domain_id: String,
    /// Its name.
    pub domain_name: String,
    /// The region of every service.
    pub region: String,
    /// Id of its network.
    pub network_id: String,
    /// Id of its IPv4 subnet, [`Project::SUBNET`].
    pub subnet_id: String,
    /// Id of its IPv6 subnet, [`Project::SUBNET6`].
    pub subnet6_id: String,
    /// Id of its router.
    pub router_id: String,
    /// Id of the external network that the router leads to: where floating IPs come from.
    pub external_network_id: String,
    pub(super) stack: Stack,
    pub(super) session: Session,
    /// Further users, by id.
    pub(super) users: Mutex<Vec<String>>,
}

const ROLES: [&str; 3] = ["member", "load-balancer_member", "creator"];

/// As in the stack's configuration (`token_cache_time`), and a second for its rounding.
const TOKENS_ARE_CACHED: Duration = Duration::from_secs(3);

const POLL: Duration = Duration::from_millis(200);

// === impl Project ===

impl Project {
    /// Prefix of the IPv4 subnet. The router has the first address. Room for some thousands of
    /// nodes; DHCP takes from all of it, so nodes and VIPs had better be given addresses.
    pub const SUBNET: &'static str = "10.0.0.0/16";
    /// Prefix of the IPv6 subnet.
    pub const SUBNET6: &'static str = "fd00:1::/64";

    pub(super) async fn create(
        stack: &Stack,
        prefix: &str,
        subnet: Value,
    ) -> Result<Self, StackError> {
        let admin = stack.admin();
        let name = unique(prefix);
        // Nothing else can reach the stack; a password only has to be the project's own.
        let password = format!("password-of-{name}");
        let project = json!({"name": name, "domain_id": "default"});
        let project = admin
            .create(Service::Identity, "/v3/projects", "project", project)
            .await?;
        let id = id_of(&project)?;
        let user = json!({
            "name": name, "password": password, "domain_id": "default", "default_project_id": id,
        });
        let user = admin
            .create(Service::Identity, "/v3/users", "user", user)
            .await?;
        let user_id = id_of(&user)?;
        for role in admin
            .list(Service::Identity, "/v3/roles", "roles")
            .await?
            .iter()
            .filter(|role| ROLES.iter().any(|wanted| role["name"] == *wanted))
        {
            let role = id_of(role)?;
            let path = format!("/v3/projects/{id}/users/{user_id}/roles/{role}");
            admin
                .call(Method::PUT, Service::Identity, &path, None)
                .await?;
        }
        let account = Account {
            auth_url: admin.account().auth_url.clone(),
            username: name.clone(),
            password: password.clone(),
            project: name.clone(),
        };
        let mut project = Self {
            id,
            auth_url: account.auth_url.clone(),
            username: name.clone(),
            user_id,
            password,
            domain_id: "default".to_owned(),
            domain_name: "Default".to_owned(),
            region: stack.inner.region.clone(),
            network_id: String::new(),
            subnet_id: String::new(),
            subnet6_id: String::new(),
            router_id: String::new(),
            external_network_id: stack.external_network().to_owned(),
            session: Session::new(admin.client().clone(), account),
            stack: stack.clone(),
            users: Mutex::default(),
            name,
        };
        project.make_network(subnet).await?;
        Ok(project)
    }

    async fn make_network(&mut self, mut subnet: Value) -> Result<(), StackError> {
        let neutron = Service::Network;
        let network = json!({"name": self.name});
        let network = self
            .session
            .create(neutron, "/v2.0/networks", "network", network)
            .await?;
        self.network_id = id_of(&network)?;
        subnet["ip_version"] = json!(4);
        self.subnet_id = self.make_subnet(subnet).await?;
        self.subnet6_id = self
            .make_subnet(json!({
                "ip_version": 6, "cidr": Self::SUBNET6,
                "ipv6_ra_mode": "dhcpv6-stateful", "ipv6_address_mode": "dhcpv6-stateful",
            }))
            .await?;
        let router = json!({
            "name": self.name,
            "external_gateway_info": {"network_id": self.external_network_id},
        });
        let router = self
            .session
            .create(neutron, "/v2.0/routers", "router", router)
            .await?;
        self.router_id = id_of(&router)?;
        // The IPv4 subnet alone: floating IPs need it, and it is the dearest of all that Neutron
        // does here.
        let path = format!("/v2.0/routers/{}/add_router_interface", self.router_id);
        self.put(neutron, &path, json!({"subnet_id": self.subnet_id}))
            .await?;
        Ok(())
    }

    async fn make_subnet(&self, mut subnet: Value) -> Result<String, StackError> {
        subnet["network_id"] = json!(self.network_id);
        subnet["name"] = json!(self.name);
        let subnet = self
            .session
            .create(Service::Network, "/v2.0/subnets", "subnet", subnet)
            .await?;
        id_of(&subnet)
    }

    /// Text of a clouds.yaml with one cloud of this name.
    pub fn clouds_yaml(&self, cloud: &str) -> String {
        format!(
            "clouds:\n  \
            {cloud}:\n    \
            region_name: {}\n    \
            identity_api_version: 3\n    \
            auth:\n      \
            auth_url: {}\n      \
            username: {}\n      \
            password: {}\n      \
            project_name: {}\n      \
            user_domain_id: {}\n      \
            project_domain_id: {}\n",
            self.region,
            self.auth_url,
            self.username,
            self.password,
            self.name,
            self.domain_id,
            self.domain_id,
        )
    }

    /// Text of a cloud.conf, as of cloud-provider-openstack. `[LoadBalancer]` comes last, so that a
    /// test may append to it.
    pub fn cloud_conf(&self) -> String {
        format!(
            "[Global]\nauth-url=\"{}\"\nusername=\"{}\"\npassword=\"{}\"\ntenant-id=\"{}\"\n\
             domain-id=\"{}\"\nregion=\"{}\"\n\n[LoadBalancer]\nfloating-network-id=\"{}\"\n\
             subnet-id=\"{}\"\n",
            self.auth_url,
            self.username,
            self.password,
            self.id,
            self.domain_id,
            self.region,
            self.external_network_id,
            self.subnet_id,
        )
    }

    /// Asks as the project's user. The path begins with its version, as in `/v2.0/ports`.
    pub async fn ask(
        &self,
        method: Method,
        service: Service,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, StackError> {
        self.session.ask(method, service, path, body).await
    }

    /// The token that the test's own requests are made with.
    pub async fn token(&self) -> Result<String, StackError> {
        self.session.token().await
    }

    /// Asks with a given token, whatever it is worth.
    pub async fn ask_with(
        &self,
        token: &str,
        method: Method,
        service: Service,
        path: &str,
    ) -> Result<Answer, StackError> {
        let session = &self.session;
        let url = format!("{}{path}", session.endpoint(service).await?);
        let request = Request {
            method,
            url: &url,
            user_agent: USER_AGENT,
            token: Some(token),
            body: None,
        };
        session.client().send(request).await
    }

    /// GET as the project's user; fails unless the status is of the 200s. So do the next three.
    pub async fn get(&self, service: Service, path: &str) -> Result<Value, StackError> {
        self.session.call(Method::GET, service, path, None).await
    }

    /// POST as the project's user.
    pub async fn post(
        &self,
        service: Service,
        path: &str,
        body: Value,
    ) -> Result<Value, StackError> {
        let body = Some(&body);
        self.session.call(Method::POST, service, path, body).await
    }

    /// PUT as the project's user.
    pub async fn put(
        &self,
        service: Service,
        path: &str,
        body: Value,
    ) -> Result<Value, StackError> {
        let body = Some(&body);
        self.session.call(Method::PUT, service, path, body).await
    }

    /// DELETE as the project's user. What is gone already is as good.
    pub async fn remove(&self, service: Service, path: &str) -> Result<(), StackError> {
        self.session.delete(service, path).await
    }

    /// Every item of a list: `list(Network, "/v2.0/ports", "ports")`. Of this project only, even
    /// where the API would show what it shares with others.
    pub async fn list(
        &self,
        service: Service,
        path: &str,
        name: &str,
    ) -> Result<Vec<Value>, StackError> {
        let mut items = self.session.list(service, path, name).await?;
        items.retain(|item| item["project_id"].is_null() || item["project_id"] == self.id);
        Ok(items)
    }

    /// Waits until a load balancer has a provisioning status, and returns it.
    pub async fn wait_for_load_balancer(
        &self,
        id: &str,
        status: &str,
        within: Duration,
    ) -> Result<Value, StackError> {
        let path = format!("/v2/lbaas/loadbalancers/{id}");
        let begun = Instant::now();
        loop {
            let mut answer = self.get(Service::LoadBalancer, &path).await?;
            let load_balancer = answer["loadbalancer"].take();
            let seen = text_of(&load_balancer, "provisioning_status")?;
            if seen == status {
                return Ok(load_balancer);
            }
            if begun.elapsed() > within {
                return Err(StackError::TooSlow {
                    what: format!("{status} of load balancer {id}"),
                    within,
                    seen,
                });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Sets one quota of this project, by its name in the API: `loadbalancer`, `floatingip`, ...
    /// Everything is unlimited (-1) at first.
    pub async fn set_quota(
        &self,
        service: Service,
        resource: &str,
        limit: i64,
    ) -> Result<(), StackError> {
        let path = quota_path(service, &self.id)?;
        let body = json!({"quota": {resource: limit}});
        let body = Some(&body);
        let admin = self.stack.admin();
        admin
            .call(Method::PUT, service, &path, body)
            .await
            .map(drop)
    }

    /// Every call since the mark that was made with a token of this project, and whose `User-Agent`
    /// begins like the given one. Without logins: those have no token yet.
    pub async fn calls_since(
        &self,
        mark: &Mark,
        user_agent: &str,
    ) -> Result<Vec<Call>, StackError> {
        let mut calls = self.stack.calls_since(mark, user_agent).await?;
        calls.retain(|call| call.project.as_deref() == Some(&self.id));
        Ok(calls)
    }

    /// Makes the amphorae of this project slow: each call of the driver takes this long, and there
    /// are a handful of them in a create. Load balancers stay PENDING_* meanwhile.
    pub fn slow_amphorae(&self, each_call: Duration) -> Result<Fault, StackError> {
        Fault::delay(self.stack.place(), Some(&self.id), each_call)
    }

    /// Makes the amphorae of this project fail, so that load balancers go to ERROR: in the named
    /// calls of the driver (`update`, `post_vip_plug`, ...), or in every one if none is named.
    pub fn failing_amphorae(&self, calls: &[&str]) -> Result<Fault, StackError> {
        Fault::fail(self.stack.place(), Some(&self.id), calls)
    }

    /// Revokes every token of the project's user. When this returns, every service refuses them
    /// with 401, and new logins work.
    pub async fn revoke_tokens(&self) -> Result<(), StackError> {
        self.set_password(&self.password).await?;
        self.session.log_out();
        // A service caches for so long what it has just found valid. Also, a revocation takes in
        // tokens of the same second that are made after it.
        tokio::time::sleep(TOKENS_ARE_CACHED).await;
        self.session.token().await.map(drop)
    }

    /// Changes the user's password, which ends all tokens; services take seconds to notice. The
    /// project's own requests need [`Self::revoke_tokens`] first, which restores the password.
    pub async fn set_password(&self, password: &str) -> Result<(), StackError> {
        let path = format!("/v3/users/{}", self.user_id);
        let body = json!({"user": {"password": password}});
        let admin = self.stack.admin();
        admin
            .call(Method::PATCH, Service::Identity, &path, Some(&body))
            .await
            .map(drop)
    }

    /// A user without any role, for trusts. Its id; it goes with the project.
    pub async fn add_user(&self, name: &str, password: &str) -> Result<String, StackError> {
        let name = format!("{}-{name}", self.name);
        let user = json!({"name": name, "password": password, "domain_id": self.domain_id});
        let admin = self.stack.admin();
        let user = admin.create(Service::Identity, "/v3/users", "user", user);
        let id = id_of(&user.await?)?;
        let users = self.users.lock();
        users
            .unwrap_or_else(PoisonError::into_inner)
            .push(id.clone());
        Ok(id)
    }
}

impl fmt::Debug for Project {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Project")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The path of a project's quota at a service.
pub(super) fn quota_path(service: Service, project: &str) -> Result<String, StackError> {
    match service {
        Service::Network => Ok(format!("/v2.0/quotas/{project}")),
        Service::LoadBalancer => Ok(format!("/v2/lbaas/quotas/{project}")),
        Service::KeyManager => Ok(format!("/v1/project-quotas/{project}")),
        Service::Identity => Err(StackError::Answer("Keystone has no quotas".to_owned())),
    }
}

/// A name that no other test of this machine has, in this run or an earlier one.
fn unique(prefix: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
    let seconds = since.map_or(0, |since| since.as_secs());
    format!("{prefix}-{seconds:x}-{}-{number}", std::process::id())
}
