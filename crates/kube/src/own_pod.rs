//! The Pod that this process runs in.

use std::time::Duration;

use landfall_engine::report::Owner;
use serde::Deserialize;

use crate::api::{self, Ask};
use crate::connect::Connection;
use crate::error::ApiError;

/// The longest that reading it may take.
const TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    owner_references: Vec<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    #[serde(default)]
    controller: bool,
}

/// Returns the controller of a Pod in the namespace of the connection, which stays when the Pod is
/// replaced: a `DaemonSet`. `None`: it has none.
pub async fn owner(connection: &Connection, pod: &str) -> Result<Option<Owner>, ApiError> {
    let path = format!("/api/v1/namespaces/{}/pods/{pod}", connection.namespace());
    let ask = Ask::get(path, "get pods");
    let pod: Pod = api::request_json(connection, ask, TIMEOUT).await?;
    let mut references = pod.metadata.owner_references.into_iter();
    let controller = references.find(|it| it.controller);
    Ok(controller.map(|it| Owner {
        api_version: it.api_version,
        kind: it.kind,
        name: it.name,
        uid: it.uid,
    }))
}
