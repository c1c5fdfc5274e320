//! What a process reports on itself: status objects of its own, and events. It needs no Lease,
//! because no other process writes these objects; one that takes over deletes what another left.

use std::time::Duration;

use http::Method;
use landfall_engine::report::{Event, OwnKind, OwnObject, OwnReport, ReportError};
use landfall_model::{ServiceKey, Uid};
use serde::de::DeserializeOwned;
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
    metadata: Name,
    #[serde(default)]
    status: Value,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

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

    async fn send(&self, ask: Ask) -> Result<(), ApiError> {
        api::request(&self.connection, ask, TIMEOUT).await.map(drop)
    }

    /// Creates or replaces an object together with its status.
    async fn apply(
        &self,
        object: &OwnObject,
        version: &'static str,
        status: &Value,
    ) -> Result<(), ApiError> {
        let path = path_in(version, &object.kind);
        let path = format!("{path}/{}?fieldManager={MANAGER}&force=true", object.name);
        let mut body = body_of(object);
        body["apiVersion"] = version.into();
        body["status"] = status.clone();
        let what = format!("apply {}", object.kind.plural);
        self.send(Ask::send(Method::PATCH, path, APPLY, &body, what))
            .await
    }

    async fn write_status(&self, object: &OwnObject, status: &Value) -> Result<(), ApiError> {
        let path = format!("{}/{}/status", path_of(&object.kind), object.name);
        // A merge patch that leaves a field out would keep it.
        let body = json!([{"op": "add", "path": "/status", "value": status}]);
        let what = format!("patch {}/status", object.kind.plural);
        let ask = Ask::send(Method::PATCH, path, JSON_PATCH, &body, what);
        self.send(ask).await
    }

    async fn create(&self, object: &OwnObject) -> Result<(), ApiError> {
        let body = body_of(object);
        let what = format!("create {}", object.kind.plural);
        let ask = Ask::send(Method::POST, path_of(&object.kind), JSON, &body, what);
        match self.send(ask).await {
            // It was made meanwhile, or the answer to an earlier attempt was lost.
            Err(error) if error.is_conflict() => Ok(()),
            outcome => outcome,
        }
    }
}

impl OwnReport for OwnReports {
    async fn write_own<S: Serialize + Sync>(
        &self,
        object: &OwnObject,
        status: &S,
    ) -> Result<(), ReportError> {
        let what = "own status";
        let status = serde_json::to_value(status).map_err(|error| ReportError::Failed {
            what,
            why: error.to_string(),
        })?;
        if let Some(version) = object.kind.whole {
            match self.apply(object, version, &status).await {
                // MetalLB's own definition has no such version.
                Err(error) if error.is_not_found() => {}
                applied => return applied.map_err(|error| failed(what, &error)),
            }
        }
        let written = match self.write_status(object, &status).await {
            Err(error) if error.is_not_found() => match self.create(object).await {
                Ok(()) => self.write_status(object, &status).await,
                Err(error) => Err(error),
            },
            written => written,
        };
        written.map_err(|error| failed(what, &error))
    }

    async fn delete_own(&self, object: &OwnObject) -> Result<(), ReportError> {
        let path = format!("{}/{}", path_of(&object.kind), object.name);
        let what = format!("delete {}", object.kind.plural);
        match self.send(delete(path, what)).await {
            Err(error) if !error.is_not_found() => Err(failed("own status", &error)),
            _ => Ok(()),
        }
    }

    async fn delete_matching(&self, kind: &OwnKind, selector: &str) -> Result<(), ReportError> {
        let path = selected(kind, selector);
        let ask = delete(path, format!("deletecollection {}", kind.plural));
        let outcome = self.send(ask).await;
        outcome.map_err(|error| failed("own status", &error))
    }

    async fn list_own<S: DeserializeOwned + Send>(
        &self,
        kind: &OwnKind,
        selector: &str,
    ) -> Result<Vec<(String, Option<S>)>, ReportError> {
        let ask = Ask::get(selected(kind, selector), format!("list {}", kind.plural));
        let answer: Result<List<Object>, ApiError> =
            api::request_json(&self.connection, ask, TIMEOUT).await;
        let objects = match answer {
            // Of a kind that the cluster does not have there are none.
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            answer => answer.map_err(|error| failed("own status", &error))?,
        };
        let named = |object: Object| {
            let status = serde_json::from_value(object.status).ok();
            (object.metadata.name, status)
        };
        Ok(objects.items.into_iter().map(named).collect())
    }

    async fn own_event(&self, service: &ServiceKey, uid: &Uid, event: &Event) {
        self.events
            .announce(Occurrence::at_service(service, uid, event));
    }
}

fn delete(path: String, what: String) -> Ask {
    Ask {
        method: Method::DELETE,
        ..Ask::get(path, what)
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
