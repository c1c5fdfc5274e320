//! Neutron, API v2.0: networks, ports, floating IPs, security groups. Bodies are the inner objects;
//! the envelope is put around here.

use http::Method;
use landfall_rest::{At, Change};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::catalog::Service;
use super::{ApiError, Cloud, ErrorKind, Query, of_project};
use crate::objects::{FloatingIp, Id, Network, Port, Rule, SecurityGroup, Subnet};

/// What can have tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tagged {
    /// A floating IP.
    FloatingIp,
    /// A port.
    Port,
    /// A security group.
    SecurityGroup,
}

impl Cloud {
    /// All networks that can be seen and match.
    pub async fn networks(&self, query: Query<'_>) -> Result<Vec<Network>, ApiError> {
        self.neutron_list("network", "networks", query).await
    }

    /// All subnets that can be seen and match.
    pub async fn subnets(&self, query: Query<'_>) -> Result<Vec<Subnet>, ApiError> {
        self.neutron_list("subnet", "subnets", query).await
    }

    /// A subnet.
    pub async fn subnet(&self, id: &Id) -> Result<Option<Subnet>, ApiError> {
        let path = ["subnets", id.as_str()];
        self.client().object(neutron("subnet", &path)).await
    }

    /// All ports that can be seen and match.
    pub async fn ports(&self, query: Query<'_>) -> Result<Vec<Port>, ApiError> {
        self.neutron_list("port", "ports", query).await
    }

    /// A port.
    pub async fn port(&self, id: &Id) -> Result<Option<Port>, ApiError> {
        let path = ["ports", id.as_str()];
        self.client().object(neutron("port", &path)).await
    }

    /// Changes a port; with `if_match` only when it is still in this revision, else it is `Stale`.
    pub async fn update_port(
        &self,
        id: &Id,
        body: &Value,
        if_match: Option<u64>,
    ) -> Result<Port, ApiError> {
        let path = ["ports", id.as_str()];
        let change = Change {
            if_match: if_match.map(of_revision),
            ..Change::new(Method::PUT, Some(json!({ "port": body })))
        };
        self.client().changed(neutron("port", &path), change).await
    }

    /// All floating IPs that can be seen and match.
    pub async fn floating_ips(&self, query: Query<'_>) -> Result<Vec<FloatingIp>, ApiError> {
        self.neutron_list("floatingip", "floatingips", query).await
    }

    /// A floating IP.
    pub async fn floating_ip(&self, id: &Id) -> Result<Option<FloatingIp>, ApiError> {
        let path = ["floatingips", id.as_str()];
        self.client().object(neutron("floatingip", &path)).await
    }

    /// Makes a floating IP. Tags aren't accepted here: [`Cloud::put_tags`] after.
    pub async fn create_floating_ip(&self, body: &Value) -> Result<FloatingIp, ApiError> {
        let change = Change::new(Method::POST, Some(json!({ "floatingip": body })));
        self.client()
            .changed(neutron("floatingip", &["floatingips"]), change)
            .await
    }

    /// Changes a floating IP; `{"port_id": null}` detaches it. With `if_match` only when it is
    /// still in this revision, else it is `Stale`.
    pub async fn update_floating_ip(
        &self,
        id: &Id,
        body: &Value,
        if_match: Option<u64>,
    ) -> Result<FloatingIp, ApiError> {
        let path = ["floatingips", id.as_str()];
        let change = Change {
            if_match: if_match.map(of_revision),
            ..Change::new(Method::PUT, Some(json!({ "floatingip": body })))
        };
        self.client()
            .changed(neutron("floatingip", &path), change)
            .await
    }

    /// Gives a floating IP back; with `if_match` only when it is still in this revision, else it is
    /// `Stale`.
    pub async fn delete_floating_ip(&self, id: &Id, if_match: Option<u64>) -> Result<(), ApiError> {
        let path = ["floatingips", id.as_str()];
        let change = Change {
            if_match: if_match.map(of_revision),
            ..Change::new(Method::DELETE, None)
        };
        let done = self.client().done(neutron("floatingip", &path), change);
        done.await.or_else(|error| match error.kind {
            ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })
    }

    /// Gives an object these tags, and no others.
    pub async fn put_tags(&self, what: Tagged, id: &Id, tags: &[String]) -> Result<(), ApiError> {
        let path = [what.collection(), id.as_str(), "tags"];
        let change = Change::new(Method::PUT, Some(json!({ "tags": tags })));
        self.client().done(neutron("tags", &path), change).await
    }

    /// The project's security groups that match, with their rules.
    pub async fn security_groups(&self, query: Query<'_>) -> Result<Vec<SecurityGroup>, ApiError> {
        let project = self.project_id().await?;
        let mut query = query.to_vec();
        // Groups of others may be shared with us.
        query.extend(of_project(project.as_ref()));
        self.neutron_list("security_group", "security_groups", &query)
            .await
    }

    /// A security group with its rules.
    pub async fn security_group(&self, id: &Id) -> Result<Option<SecurityGroup>, ApiError> {
        let path = ["security-groups", id.as_str()];
        self.client().object(neutron("security_group", &path)).await
    }

    /// Makes a security group, which begins with two rules that let all out. Tags aren't accepted
    /// here: [`Cloud::put_tags`] after.
    pub async fn create_security_group(&self, body: &Value) -> Result<SecurityGroup, ApiError> {
        let change = Change::new(Method::POST, Some(json!({ "security_group": body })));
        let at = neutron("security_group", &["security-groups"]);
        self.client().changed(at, change).await
    }

    /// Deletes a security group; `Conflict` while a port has it.
    pub async fn delete_security_group(&self, id: &Id) -> Result<(), ApiError> {
        let path = ["security-groups", id.as_str()];
        self.client().delete(neutron("security_group", &path)).await
    }

    /// Makes rules, all or none; each body has `security_group_id`.
    pub async fn create_rules(&self, rules: &[Value]) -> Result<Vec<Rule>, ApiError> {
        let body = json!({ "security_group_rules": rules });
        let change = Change::new(Method::POST, Some(body));
        let at = neutron("security_group_rule", &["security-group-rules"]);
        self.client()
            .changed(at.envelope("security_group_rules"), change)
            .await
    }

    /// Deletes a rule.
    pub async fn delete_rule(&self, id: &Id) -> Result<(), ApiError> {
        let path = ["security-group-rules", id.as_str()];
        self.client()
            .delete(neutron("security_group_rule", &path))
            .await
    }

    /// Lists are named alike in the path and in the answer, but for the dash.
    async fn neutron_list<T: DeserializeOwned>(
        &self,
        resource: &'static str,
        collection: &str,
        query: Query<'_>,
    ) -> Result<Vec<T>, ApiError> {
        let path = [&*collection.replace('_', "-")];
        self.client()
            .list(neutron(resource, &path).query(query), collection)
            .await
    }
}

// === impl Tagged ===

impl Tagged {
    fn collection(self) -> &'static str {
        match self {
            Self::FloatingIp => "floatingips",
            Self::Port => "ports",
            Self::SecurityGroup => "security-groups",
        }
    }
}

const fn neutron<'a>(resource: &'static str, path: &'a [&'a str]) -> At<'a, Service> {
    At::new(Service::Network, resource, path).envelope(resource)
}

/// Writes the condition that an object is still in a revision.
fn of_revision(revision: u64) -> String {
    format!("revision_number={revision}")
}
