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

use crate::api::{self, APPLY, Ask, JSON, List};
use crate::connect::Connection;
use crate::error::ApiError;
use crate::report::MANAGER;

/// The longest that one request may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Selects them, and has the name of the node.
const NODE: &str = "landfall.dev/speaker-node";

/// What a node reports to the others.
const REPORTS: &str = "landfall.dev/speaker-reports";

/// A Lease of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberLease {
    /// The node.
    pub node: String,
    /// When it renewed the Lease, by its own clock.
    pub renewed: String,
    /// The identity of the object.
    pub uid: String,
    /// The version of the object.
    pub version: String,
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
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
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
        format!("{}/{}", self.path(), name_of(node))
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
                "name": name_of(&self.node),
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
        let ask = Ask {
            method: Method::DELETE,
            ..Ask::get(self.path_of(&self.node), "delete leases")
        };
        gone(self.send(ask).await)
    }

    /// Deletes the Lease of a node that is gone for good, unless it was renewed since it had this
    /// version.
    ///
    /// # Errors
    /// The API server refused or did not answer.
    pub async fn forget(&self, node: &str, version: &str) -> Result<(), ApiError> {
        let body = json!({"preconditions": {"resourceVersion": version}});
        let path = self.path_of(node);
        let ask = Ask::send(Method::DELETE, path, JSON, &body, "delete leases");
        gone(self.send(ask).await)
    }

    /// Returns the Leases of all nodes. One that names a node whose Lease has another name is none.
    ///
    /// # Errors
    /// The API server refused or did not answer.
    pub async fn read(&self) -> Result<Vec<MemberLease>, ApiError> {
        // From the cache of the API server: all nodes ask all the time.
        let path = format!("{}?labelSelector={NODE}&resourceVersion=0", self.path());
        let ask = Ask::get(path, "list leases");
        let objects: List<Object> = api::request_json(&self.connection, ask, TIMEOUT).await?;
        let leases = objects.items.into_iter().filter_map(|object| {
            let reports = object.metadata.annotations.get(REPORTS);
            let metadata = reports.and_then(|text| BASE64_STANDARD.decode(text).ok());
            let node = object.spec.holder_identity?;
            if object.metadata.name != name_of(&node) {
                return None;
            }
            Some(MemberLease {
                node,
                uid: object.metadata.uid,
                renewed: object.spec.renew_time.unwrap_or_default(),
                version: object.metadata.resource_version,
                metadata: metadata.unwrap_or_default(),
            })
        });
        Ok(leases.collect())
    }

    async fn send(&self, ask: Ask) -> Result<(), ApiError> {
        api::request(&self.connection, ask, TIMEOUT).await.map(drop)
    }
}

/// Returns the name of the Lease of a node.
fn name_of(node: &str) -> String {
    format!("landfall-speaker.{node}")
}

/// A deletion of what is gone already has succeeded.
fn gone(deleted: Result<(), ApiError>) -> Result<(), ApiError> {
    match deleted {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
