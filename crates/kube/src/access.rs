//! What this identity may do, asked before it is needed: so that a missing right is one clear error
//! at the start.

use std::time::Duration;

use http::Method;
use landfall_model::kinds::{ObjectKind, Watched};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::api::{self, Ask, JSON, List};
use crate::connect::Connection;
use crate::error::ApiError;

/// A right that is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`.
    pub verb: &'static str,
    /// API group; empty for the core.
    pub group: &'static str,
    /// Plural name.
    pub resource: &'static str,
    /// Subresource; empty: the object itself.
    pub subresource: &'static str,
    /// In this namespace; `None`: in all.
    pub namespace: Option<String>,
    /// Of this object; `None`: of all.
    pub name: Option<String>,
}

#[derive(Deserialize)]
struct Review {
    #[serde(default)]
    status: ReviewStatus,
}

#[derive(Default, Deserialize)]
struct ReviewStatus {
    #[serde(default)]
    allowed: bool,
}

/// How long is waited for a sign of life.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

const TIMEOUT: Duration = Duration::from_secs(10);

const fn right(verb: &'static str, group: &'static str, resource: &'static str) -> Right {
    Right {
        verb,
        group,
        resource,
        subresource: "",
        namespace: None,
        name: None,
    }
}

/// What following the cluster needs. Address pools and Secrets are not among it: without them, the
/// rest goes on.
pub fn to_watch() -> Vec<Right> {
    let needed = ObjectKind::ALL
        .into_iter()
        .map(ObjectKind::row)
        .filter(|row| row.watched == Watched::All);
    needed
        .flat_map(|row| {
            let verbs = row.verbs.iter().filter(|verb| **verb != "get");
            verbs.map(move |verb| right(verb, row.group, row.resource))
        })
        .collect()
}

/// What reports need.
pub fn to_report() -> Vec<Right> {
    let status = Right {
        subresource: "status",
        ..right("patch", "", "services")
    };
    vec![
        right("get", "", "services"),
        status,
        right("create", "events.k8s.io", "events"),
        right("patch", "events.k8s.io", "events"),
    ]
}

/// What an election by a Lease needs.
pub fn to_elect(namespace: &str, name: &str) -> Vec<Right> {
    let of_leases = |verb| Right {
        namespace: Some(namespace.to_owned()),
        ..right(verb, "coordination.k8s.io", "leases")
    };
    let named = |verb| Right {
        name: Some(name.to_owned()),
        ..of_leases(verb)
    };
    vec![of_leases("create"), named("get"), named("update")]
}

/// Which of the rights this identity does not have.
pub async fn missing(connection: &Connection, rights: Vec<Right>) -> Result<Vec<Right>, ApiError> {
    let mut missing = Vec::new();
    for right in rights {
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": right.verb, "group": right.group, "resource": right.resource,
                "subresource": right.subresource,
                "namespace": right.namespace.as_deref().unwrap_or_default(),
                "name": right.name.as_deref().unwrap_or_default(),
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned();
        let ask = Ask::send(
            Method::POST,
            path,
            JSON,
            &body,
            "create selfsubjectaccessreviews",
        );
        let review: Review = api::request_json(connection, ask, TIMEOUT).await?;
        if !review.status.allowed {
            missing.push(right);
        }
    }
    Ok(missing)
}

/// Whether the cluster has a namespace, by the right to list them that watching needs anyway.
pub async fn has_namespace(connection: &Connection, name: &str) -> Result<bool, ApiError> {
    let path = format!("/api/v1/namespaces?fieldSelector=metadata.name%3D{name}");
    let ask = Ask::get(path, "list namespaces");
    let list: List<IgnoredAny> = api::request_json(connection, ask, TIMEOUT).await?;
    Ok(!list.items.is_empty())
}

/// Whether the API server answers what Services there are, be it with a refusal. It takes two
/// seconds at most.
pub async fn answers(connection: &Connection) -> bool {
    let ask = Ask::get("/api/v1/services?limit=1".to_owned(), "list services");
    // A credential command may take long, too.
    let asked = tokio::time::timeout(SIGN_OF_LIFE, api::request(connection, ask, SIGN_OF_LIFE));
    match asked.await {
        Ok(Ok(_) | Err(ApiError::Denied { .. } | ApiError::Unauthorized { .. })) => true,
        Ok(Err(ApiError::Refused { code, .. })) => code < 429,
        Ok(Err(_)) | Err(_) => false,
    }
}

impl std::fmt::Display for Right {
    /// `patch services/status`, `update leases.coordination.k8s.io "landfall" in landfall-system`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " in {namespace}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_read_as_people_grant_them() {
        let all: Vec<_> = [to_report(), to_elect("system", "landfall")]
            .concat()
            .iter()
            .map(Right::to_string)
            .collect();
        assert_eq!(
            all,
            [
                "get services",
                "patch services/status",
                "create events.events.k8s.io",
                "patch events.events.k8s.io",
                "create leases.coordination.k8s.io in system",
                "get leases.coordination.k8s.io \"landfall\" in system",
                "update leases.coordination.k8s.io \"landfall\" in system",
            ]
        );
    }
}
