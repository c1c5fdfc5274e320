//! The end of a project: everything that it holds, in the order in which the APIs allow it.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::http::Method;
use super::project::quota_path;
use super::session::Session;
use super::{Project, Service, StackError, id_of};

/// Octavia deletes one after the other, a second or two each.
const LOAD_BALANCERS_GO: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(500);

/// As many threads as Neutron has.
const AT_ONCE: usize = 6;

impl Project {
    /// Deletes everything that the project holds, and the project: load balancers with all that is
    /// theirs, floating IPs, ports, networks, groups, secrets, users.
    pub async fn delete(self) -> Result<(), StackError> {
        let admin = self.stack.admin();
        load_balancers(&self, admin).await?;
        secrets(&self).await?;
        network(&self, admin).await?;
        for service in [Service::LoadBalancer, Service::Network] {
            admin
                .delete(service, &quota_path(service, &self.id)?)
                .await?;
        }
        let users = self.users.into_inner();
        let users = users.unwrap_or_else(PoisonError::into_inner);
        for user in [self.user_id].iter().chain(&users) {
            let user = format!("/v3/users/{user}");
            admin.delete(Service::Identity, &user).await?;
        }
        let path = format!("/v3/projects/{}", self.id);
        admin.delete(Service::Identity, &path).await
    }
}

async fn load_balancers(project: &Project, admin: &Session) -> Result<(), StackError> {
    let list = format!("/v2/lbaas/loadbalancers?project_id={}", project.id);
    let begun = Instant::now();
    loop {
        let left = admin
            .list(Service::LoadBalancer, &list, "loadbalancers")
            .await?;
        if left.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > LOAD_BALANCERS_GO {
            return Err(StackError::TooSlow {
                what: format!("the end of the load balancers of {}", project.name),
                within: LOAD_BALANCERS_GO,
                seen: Value::Array(left).to_string(),
            });
        }
        for load_balancer in &left {
            let path = format!("/v2/lbaas/loadbalancers/{}", id_of(load_balancer)?);
            // The OVN provider leaves children behind that are deleted while they are being made,
            // and calls the load balancer ACTIVE before they are.
            if is_pending(admin, &path).await? {
                continue;
            }
            let path = format!("{path}?cascade=true");
            let answer = admin
                .ask(Method::DELETE, Service::LoadBalancer, &path, None)
                .await?;
            // Gone, or busy again: the next round shows.
            if !matches!(answer.status, 404 | 409) {
                answer.successful(&format!("DELETE {path}"))?;
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Whether a load balancer or anything below it is still in the works.
async fn is_pending(admin: &Session, path: &str) -> Result<bool, StackError> {
    let path = format!("{path}/status");
    let answer = admin
        .ask(Method::GET, Service::LoadBalancer, &path, None)
        .await?;
    Ok(answer.body.to_string().contains("\"PENDING_"))
}

/// Containers before the secrets in them. As the project's user: others may not see them.
async fn secrets(project: &Project) -> Result<(), StackError> {
    for name in ["containers", "secrets"] {
        loop {
            let path = format!("/v1/{name}?limit=100");
            let items = project
                .session
                .list(Service::KeyManager, &path, name)
                .await?;
            if items.is_empty() {
                break;
            }
            for item in items {
                let reference = item[format!("{}_ref", name.trim_end_matches('s'))].as_str();
                let id = reference.and_then(|reference| reference.rsplit('/').next());
                let id = id.ok_or_else(|| StackError::Answer(format!("no reference in {item}")))?;
                let path = format!("/v1/{name}/{id}");
                project.session.delete(Service::KeyManager, &path).await?;
            }
        }
    }
    Ok(())
}

async fn network(project: &Project, admin: &Session) -> Result<(), StackError> {
    let of_project = format!("project_id={}", project.id);
    all(admin, "floatingips", &of_project).await?;
    let routers = list(admin, "routers", &of_project).await?;
    for router in &routers {
        let router = id_of(router)?;
        let ports = format!("device_id={router}&device_owner=network:router_interface");
        for port in list(admin, "ports", &ports).await? {
            let path = format!("/v2.0/routers/{router}/remove_router_interface");
            let body = json!({"port_id": id_of(&port)?});
            let answer = admin
                .ask(Method::PUT, Service::Network, &path, Some(&body))
                .await?;
            if answer.status != 404 {
                answer.successful(&format!("PUT {path}"))?;
            }
        }
    }
    all(admin, "routers", &of_project).await?;
    // The amphorae's ports are Octavia's, so by network, and then those on networks of others.
    for network in list(admin, "networks", &of_project).await? {
        all(admin, "ports", &format!("network_id={}", id_of(&network)?)).await?;
    }
    all(admin, "ports", &of_project).await?;
    all(admin, "networks", &of_project).await?;
    all(admin, "security-groups", &of_project).await
}

async fn list(admin: &Session, what: &str, filter: &str) -> Result<Vec<Value>, StackError> {
    let path = format!("/v2.0/{what}?{filter}&fields=id");
    let name = what.replace('-', "_");
    admin.list(Service::Network, &path, &name).await
}

/// Deletes all of a kind, some at once.
async fn all(admin: &Session, what: &str, filter: &str) -> Result<(), StackError> {
    let mut deletions = JoinSet::new();
    for item in list(admin, what, filter).await? {
        if deletions.len() >= AT_ONCE {
            finished(deletions.join_next().await)?;
        }
        let path = format!("/v2.0/{what}/{}", id_of(&item)?);
        let admin = admin.clone();
        deletions.spawn(async move { admin.delete(Service::Network, &path).await });
    }
    while !deletions.is_empty() {
        finished(deletions.join_next().await)?;
    }
    Ok(())
}

type Finished = Option<Result<Result<(), StackError>, tokio::task::JoinError>>;

fn finished(deletion: Finished) -> Result<(), StackError> {
    match deletion {
        None => Ok(()),
        Some(Ok(deleted)) => deleted,
        Some(Err(error)) => Err(StackError::Answer(format!("a deletion broke off: {error}"))),
    }
}
