//! The marker that a replica has led: a second Lease, made once. What follows from it is decided in
//! [`landfall_engine::leadership`].

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use landfall_engine::leadership::Marker;
use landfall_model::status::FINALIZER;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::LeaseConfig;
use super::record::micro;
use crate::api::{self, Ask, JSON};
use crate::connect::Connection;
use crate::error::ApiError;

/// What of a Service shows that it is served.
#[derive(Deserialize)]
struct Service {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    finalizers: Vec<String>,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    items: Vec<Service>,
    metadata: PageMetadata,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

/// How many Services are read at a time.
const PAGE: usize = 500;

/// Makes the marker, if there is none. `time_limit`: for how long an answer is waited for.
///
/// # Errors
/// There was no answer, or one that says nothing about the marker.
pub(super) async fn make(
    connection: &Connection,
    config: &LeaseConfig,
    time_limit: Duration,
) -> Result<Marker, ApiError> {
    let body = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": config.marker(), "namespace": config.namespace},
        "spec": {"holderIdentity": config.identity, "acquireTime": micro(Timestamp::now())},
    });
    let what = "create leases.coordination.k8s.io";
    let ask = Ask::send(Method::POST, config.path(), JSON, &body, what);
    match api::request_json::<IgnoredAny>(connection, ask, time_limit).await {
        Ok(_) => Ok(Marker::Made),
        Err(error) if is_final(&error) => Ok(Marker::NotMade),
        Err(error) => Err(error),
    }
}

/// Returns whether any Service has the finalizer; `time_limit`: for each page of them.
///
/// # Errors
/// The API server does not answer, or refuses.
pub(super) async fn is_any_held(
    connection: &Connection,
    time_limit: Duration,
) -> Result<bool, ApiError> {
    let mut next = String::new();
    loop {
        let path = format!("/api/v1/services?limit={PAGE}&continue={next}");
        let ask = Ask::get(path, "list services");
        let page: Page = api::request_json(connection, ask, time_limit).await?;
        if page.is_any_held() {
            return Ok(true);
        }
        if page.metadata.next.is_empty() {
            return Ok(false);
        }
        next = page.metadata.next;
    }
}

// === impl Page ===

impl Page {
    fn is_any_held(&self) -> bool {
        let mut finalizers = self.items.iter().flat_map(|it| &it.metadata.finalizers);
        finalizers.any(|it| it == FINALIZER)
    }
}

/// Whether a refusal shows that the marker exists, or that this replica can't make it. An API
/// server that is overloaded says neither.
fn is_final(error: &ApiError) -> bool {
    match error {
        ApiError::Denied { .. } => true,
        ApiError::Refused { code, .. } => !matches!(code, 429 | 503 | 504),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_with_the_finalizer_is_held_whichever_controller_put_it_there() {
        let page = |services: serde_json::Value| -> Page {
            let list = json!({"metadata": {"resourceVersion": "7"}, "items": services});
            serde_json::from_value(list).unwrap()
        };
        let free = json!({"metadata": {"name": "db"}, "spec": {}});
        let other = json!({"metadata": {"finalizers": ["example.com/backup"]}});
        assert!(!page(json!([])).is_any_held());
        assert!(!page(json!([free, other])).is_any_held());
        let held = json!({"metadata": {"finalizers": ["example.com/backup", FINALIZER]}});
        assert!(page(json!([free, held])).is_any_held());
    }

    #[test]
    fn only_what_says_something_about_the_marker_is_believed() {
        let refused = |code| ApiError::Refused {
            what: "create leases".to_owned(),
            code,
            reason: String::new(),
            message: String::new(),
            retry_after: None,
        };
        assert!(
            [409, 403, 422, 500]
                .into_iter()
                .all(|code| is_final(&refused(code)))
        );
        assert!(
            ![429, 503, 504]
                .into_iter()
                .any(|code| is_final(&refused(code)))
        );
        assert!(!is_final(&ApiError::Timeout(Duration::from_secs(1))));
    }
}
