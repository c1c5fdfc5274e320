//! What a process reports on itself: status objects of its own, and events. It needs no Lease,
//! because no other process writes these objects; one that takes over deletes what another left.

use std::time::Duration;

use http::Method;
use landfall_engine::report::{Event, Found, OwnKind, OwnObject, OwnReport, ReportError, Version};
use landfall_model::{ServiceKey, Uid};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::{self, APPLY, Ask, JSON, JSON_PATCH, List};
use crate::connect::Connection;
use crate::error::ApiError;
use crate::lease::WriteGuard;

use super::events::{Announcer, Occurrence, Reporter};
use super::permits::WritePermits;
use super::{MANAGER, failed};

/// Reports on the process itself to the API server.
#[derive(Debug)]
pub struct OwnReports {
    connection: Connection,
    events: Announcer,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    status: Value,
}

/// An object of which only its version is read.
#[derive(Deserialize)]
struct Written {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    resource_version: String,
}

/// What errors name.
const OWN: &str = "own status";

/// The longest that a single write may take.
const TIMEOUT: Duration = Duration::from_secs(15);

// === impl OwnReports ===

impl OwnReports {
    /// Reports as `controller` (`landfall.dev/speaker`) and `instance`: the names that events
    /// carry. Events are sent by a task of the tracker's, which ends, after what is queued, when
    /// cancelled.
    pub fn new(
        connection: Connection,
        controller: &'static str,
        instance: &str,
        tasks: &TaskTracker,
        cancel: &CancellationToken,
    ) -> Self {
        let reporter = Reporter {
            controller,
            instance: instance.to_owned(),
        };
        let events = Announcer::start(
            connection.clone(),
            WriteGuard::always(),
            reporter,
            WritePermits::default(),
            tasks,
            cancel.clone(),
        );
        Self { connection, events }
    }

    async fn write(&self, ask: Ask) -> Result<Version, ApiError> {
        let written: Written = api::request_json(&self.connection, ask, TIMEOUT).await?;
        Ok(written.metadata.version())
    }

    /// Creates or replaces an object together with its status.
    async fn apply(
        &self,
        object: &OwnObject,
        version: &'static str,
        status: &Value,
    ) -> Result<Version, ApiError> {
        let path = path_in(version, &object.kind);
        let path = format!("{path}/{}?fieldManager={MANAGER}&force=true", object.name);
        let mut body = body_of(object);
        body["apiVersion"] = version.into();
        body["status"] = status.clone();
        let what = format!("apply {}", object.kind.plural);
        self.write(Ask::send(Method::PATCH, path, APPLY, &body, what))
            .await
    }

    async fn write_status(&self, object: &OwnObject, status: &Value) -> Result<Version, ApiError> {
        let path = format!("{}/{}/status", path_of(&object.kind), object.name);
        // A merge patch that leaves a field out would keep it.
        let body = json!([{"op": "add", "path": "/status", "value": status}]);
        let what = format!("patch {}/status", object.kind.plural);
        let ask = Ask::send(Method::PATCH, path, JSON_PATCH, &body, what);
        self.write(ask).await
    }

    async fn create(&self, object: &OwnObject) -> Result<(), ApiError> {
        let body = body_of(object);
        let what = format!("create {}", object.kind.plural);
        let ask = Ask::send(Method::POST, path_of(&object.kind), JSON, &body, what);
        match self.write(ask).await {
            // It was made meanwhile, or the answer to an earlier attempt was lost.
            Err(error) if error.is_conflict() => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// Deletes an object if it is as it was: another process may have written it since.
    async fn delete(
        &self,
        kind: &OwnKind,
        name: &str,
        version: &Version,
    ) -> Result<(), ReportError> {
        let path = format!("{}/{name}", path_of(kind));
        let body = json!({"preconditions": {"uid": version.uid,
            "resourceVersion": version.resource_version}});
        let what = format!("delete {}", kind.plural);
        let ask = Ask::send(Method::DELETE, path, JSON, &body, what);
        match api::request(&self.connection, ask, TIMEOUT).await {
            Err(error) if error.is_conflict() => Err(ReportError::Conflict { what: OWN }),
            Err(error) if !error.is_not_found() => Err(failed(OWN, &error)),
            _ => Ok(()),
        }
    }
}

impl OwnReport for OwnReports {
    async fn write_own<S: Serialize + Sync>(
        &self,
        object: &OwnObject,
        status: &S,
    ) -> Result<Version, ReportError> {
        let status = serde_json::to_value(status).map_err(|error| ReportError::Failed {
            what: OWN,
            why: error.to_string(),
        })?;
        if let Some(version) = object.kind.whole {
            match self.apply(object, version, &status).await {
                // MetalLB's own definition has no such version.
                Err(error) if error.is_not_found() => {}
                applied => return applied.map_err(|error| failed(OWN, &error)),
            }
        }
        let written = match self.write_status(object, &status).await {
            Err(error) if error.is_not_found() => match self.create(object).await {
                Ok(()) => self.write_status(object, &status).await,
                Err(error) => Err(error),
            },
            written => written,
        };
        written.map_err(|error| failed(OWN, &error))
    }

    async fn delete_own(&self, object: &OwnObject, version: &Version) -> Result<(), ReportError> {
        self.delete(&object.kind, &object.name, version).await
    }

    async fn delete_matching(&self, kind: &OwnKind, selector: &str) -> Result<(), ReportError> {
        for found in self.list_own::<IgnoredAny>(kind, selector).await? {
            match self.delete(kind, &found.name, &found.version).await {
                // The process that wrote it is there, and deletes it itself.
                Err(ReportError::Conflict { .. }) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    async fn list_own<S: DeserializeOwned + Send>(
        &self,
        kind: &OwnKind,
        selector: &str,
    ) -> Result<Vec<Found<S>>, ReportError> {
        let ask = Ask::get(selected(kind, selector), format!("list {}", kind.plural));
        let answer: Result<List<Object>, ApiError> =
            api::request_json(&self.connection, ask, TIMEOUT).await;
        let objects = match answer {
            // Of a kind that the cluster does not have there are none.
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            answer => answer.map_err(|error| failed(OWN, &error))?,
        };
        let found = objects
            .items
            .into_iter()
            .map(|Object { metadata, status }| Found {
                name: metadata.name.clone(),
                version: metadata.version(),
                status: serde_json::from_value(status).ok(),
            });
        Ok(found.collect())
    }

    async fn own_event(&self, service: &ServiceKey, uid: &Uid, event: &Event) {
        self.events
            .announce(Occurrence::at_service(service, uid, event));
    }
}

// === impl Metadata ===

impl Metadata {
    fn version(self) -> Version {
        Version {
            uid: self.uid,
            resource_version: self.resource_version,
        }
    }
}

fn path_of(kind: &OwnKind) -> String {
    path_in(kind.api_version, kind)
}

fn path_in(version: &str, kind: &OwnKind) -> String {
    let OwnKind {
        plural, namespace, ..
    } = kind;
    match namespace {
        Some(namespace) => format!("/apis/{version}/namespaces/{namespace}/{plural}"),
        None => format!("/apis/{version}/{plural}"),
    }
}

/// Label selectors consist of characters that a query may contain as they are, but for spaces.
fn selected(kind: &OwnKind, selector: &str) -> String {
    let selector = selector.replace(' ', "%20");
    format!("{}?labelSelector={selector}", path_of(kind))
}

fn body_of(object: &OwnObject) -> Value {
    let mut metadata = json!({"name": object.name, "labels": object.labels});
    if let Some(namespace) = &object.kind.namespace {
        metadata["namespace"] = namespace.as_str().into();
    }
    if let Some(owner) = &object.owner {
        metadata["ownerReferences"] = json!([{"apiVersion": owner.api_version,
            "kind": owner.kind, "name": owner.name, "uid": owner.uid}]);
    }
    json!({
        "apiVersion": object.kind.api_version,
        "kind": object.kind.kind,
        "metadata": metadata,
    })
}
