//! What the leader reports on custom resources: their status, and events.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use landfall_engine::report::{Event, ReportError};
use landfall_model::kinds::ObjectKind;
use landfall_model::rows::{ResourceKind, ResourceRow};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{self, Ask, JSON_PATCH, List};
use crate::connect::Connection;
use crate::error::ApiError;
use crate::lease::WriteGuard;

use super::events::{Announcer, Occurrence};
use super::permits::WritePermits;
use super::{MANAGER, failed, may_be_another};

/// Reports on custom resources to the API server, while the Lease is ours.
#[derive(Debug)]
pub struct ResourceReports {
    pub(super) connection: Connection,
    pub(super) guard: WriteGuard,
    pub(super) events: Announcer,
    pub(super) permits: WritePermits,
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

/// The longest that a single request may take.
const TIMEOUT: Duration = Duration::from_secs(15);

// === impl ResourceReports ===

impl ResourceReports {
    /// Returns the statuses of all objects of a kind in a namespace, by name.
    ///
    /// # Errors
    /// The API server refused or did not answer.
    pub async fn statuses(
        &self,
        kind: ResourceKind,
        namespace: &str,
    ) -> Result<BTreeMap<String, Value>, ReportError> {
        let row = ObjectKind::Resource(kind).row();
        let path = row.path(Some(namespace));
        let ask = Ask::get(path, format!("list {}", row.full_resource()));
        let answer: Result<List<Object>, ApiError> =
            api::request_json(&self.connection, ask, TIMEOUT).await;
        let objects = answer.map_err(|error| failed("status", &error))?;
        let named = objects.items.into_iter();
        Ok(named.map(|it| (it.metadata.name, it.status)).collect())
    }

    /// Replaces the status of an object. An object that is gone, another one of its name, and one
    /// whose definition has no place for it are left alone: to try again would not help.
    ///
    /// # Errors
    /// The API server refused or did not answer, or the Lease is another replica's.
    pub async fn write_status(
        &self,
        resource: &ResourceRow,
        status: &Value,
    ) -> Result<(), ReportError> {
        let row = ObjectKind::Resource(resource.kind).row();
        let (namespace, name) = (resource.key.namespace(), resource.key.name());
        let path = row.path(Some(namespace));
        let path = format!("{path}/{name}/status?fieldManager={MANAGER}");
        // Of a custom resource, a merge patch of the status ignores the UID.
        let mut body = vec![json!({"op": "add", "path": "/status", "value": status})];
        if let Some(uid) = &resource.uid {
            let same = json!({"op": "test", "path": "/metadata/uid", "value": uid.as_str()});
            body.insert(0, same);
        }
        let body = Value::Array(body);
        let what = format!("patch {}/status", row.full_resource());
        let ask = Ask::send(Method::PATCH, path, JSON_PATCH, &body, what);
        let _permit = self.permits.later(namespace).await;
        let sent = api::request(&self.connection, ask, TIMEOUT);
        match self.guard.while_allowed(sent).await {
            None => Err(failed("status", &ApiError::NotLeading)),
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) if may_be_another(&error) => {
                tracing::debug!(%resource, %error, "a status is left alone");
                Ok(())
            }
            Some(Err(error)) => Err(failed("status", &error)),
        }
    }

    /// Sends an event about an object. Best effort: a lost event changes nothing.
    pub fn event(&self, resource: &ResourceRow, event: &Event) {
        if let Some(uid) = &resource.uid {
            let occurrence = Occurrence::at_resource(resource, uid, event);
            self.events.announce(occurrence);
        }
    }
}
