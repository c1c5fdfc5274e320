//! The Leases by which speakers know of each other where they may not send datagrams: each node
//! renews its own and reads all.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::api::{self, APPLY, Ask, List};
use crate::connect::Connection;
use crate::error::ApiError;
use crate::report::MANAGER;

/// The longest that one request may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Selects them, and has the name of the node.
const NODE: &str = "landfall.dev/speaker-node";

/// What a node reports to the others.
const REPORTS: &str = "landfall.dev/speaker-reports";

/// A Lease that was not renewed for so long is of a node that is gone for good.
const FORGET: Duration = Duration::from_secs(3_600);

/// A Lease of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberLease {
    /// The node.
    pub node: String,
    /// When it renewed the Lease, by its own clock.
    pub renewed: String,
    /// What it reports to the others.
    pub metadata: Vec<u8>,
}

/// The Leases of speakers, in the namespace of the connection.
#[derive(Clone, Debug)]
pub struct MemberLeases {
    connection: Connection,
    node: String,
    duration: Duration,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    renew_time: Option<String>,
}

// === impl MemberLeases ===

impl MemberLeases {
    /// The Leases as this node sees them.
    pub fn new(connection: Connection, node: &str, duration: Duration) -> Self {
        Self {
            connection,
            node: node.to_owned(),
            duration,
        }
    }

    fn path(&self) -> String {
        let namespace = self.connection.namespace();
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
    }

    fn path_of(&self, node: &str) -> String {
        format!("{}/landfall-speaker.{node}", self.path())
    }

    /// Renews the Lease of this node, or creates it.
    ///
    /// # Errors
    /// The API server refused or did not answer.
    pub async fn renew(&self, metadata: &[u8]) -> Result<(), ApiError> {
        let path = format!(
            "{}?fieldManager={MANAGER}&force=true",
            self.path_of(&self.node)
        );
        let now = Timestamp::now();
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": format!("landfall-speaker.{}", self.node),
                "labels": {NODE: ""},
                "annotations": {REPORTS: BASE64_STANDARD.encode(metadata)},
            },
            "spec": {
                "holderIdentity": self.node,
                "leaseDurationSeconds": self.duration.as_secs().max(1),
                "renewTime": format!("{now:.6}"),
            },
        });
        let ask = Ask::send(Method::PATCH, path, APPLY, &body, "apply leases");
        self.send(ask).await
    }

    /// Ends the membership of this node.
    ///
    /// # Errors
    /// The API server refused or did not answer.
    pub async fn leave(&self) -> Result<(), ApiError> {
        self.delete(&self.node).await
    }

    /// Returns the Leases of all nodes. Those of nodes that are gone for good are deleted.
    ///
    /// # Errors
    /// The API server refused or did not answer.
    pub async fn read(&self) -> Result<Vec<MemberLease>, ApiError> {
        // From the cache of the API server: all nodes ask all the time.
        let path = format!("{}?labelSelector={NODE}&resourceVersion=0", self.path());
        let ask = Ask::get(path, "list leases");
        let objects: List<Object> = api::request_json(&self.connection, ask, TIMEOUT).await?;
        let mut leases = Vec::new();
        for object in objects.items {
            let Some(node) = object.spec.holder_identity else {
                continue;
            };
            let renewed = object.spec.renew_time.unwrap_or_default();
            if is_forgotten(&renewed, Timestamp::now()) {
                // Another node may have deleted it; if not, the next read tries again.
                let _ = self.delete(&node).await;
                continue;
            }
            let reports = object.metadata.annotations.get(REPORTS);
            let metadata = reports.and_then(|text| BASE64_STANDARD.decode(text).ok());
            leases.push(MemberLease {
                node,
                renewed,
                metadata: metadata.unwrap_or_default(),
            });
        }
        Ok(leases)
    }

    async fn delete(&self, node: &str) -> Result<(), ApiError> {
        let ask = Ask {
            method: Method::DELETE,
            ..Ask::get(self.path_of(node), "delete leases")
        };
        match self.send(ask).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    async fn send(&self, ask: Ask) -> Result<(), ApiError> {
        api::request(&self.connection, ask, TIMEOUT).await.map(drop)
    }
}

/// Returns whether a Lease was renewed long ago, however the clocks of nodes differ.
fn is_forgotten(renewed: &str, now: Timestamp) -> bool {
    let renewed: Option<Timestamp> = renewed.parse().ok();
    renewed.is_some_and(|renewed| {
        let age = Duration::try_from(now.duration_since(renewed));
        age.is_ok_and(|age| age > FORGET)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_forgotten_an_hour_after_its_last_renewal_and_never_for_its_clock_alone() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        assert!(is_forgotten("2026-01-01T10:59:59.000000Z", now));
        assert!(!is_forgotten("2026-01-01T11:00:01.000000Z", now));
        assert!(!is_forgotten("2026-01-01T14:00:00.000000Z", now));
        assert!(!is_forgotten("", now));
    }
}
