//! One request to the API server, and what its answer means.

use crate::error::chain;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::connect::{ConnectError, Connection};
use crate::error::{ApiError, of_client, of_status};

/// What is asked of the API server.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) body: Vec<u8>,
    /// For messages: `patch services/status`.
    pub(crate) what: String,
}

/// The answer to a list, as far as it is read.
#[derive(Debug, Deserialize)]
pub(crate) struct List<T> {
    #[serde(default = "Vec::new")]
    pub(crate) items: Vec<T>,
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
/// Of server-side apply, which takes JSON as well.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// More of an error answer is not worth reading.
const LONGEST_ERROR: usize = 64 * 1024;

// === impl Ask ===

impl Ask {
    pub(crate) fn get(path: String, what: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path,
            content_type: None,
            body: Vec::new(),
            what: what.into(),
        }
    }

    pub(crate) fn send(
        method: Method,
        path: String,
        content_type: &'static str,
        body: &serde_json::Value,
        what: impl Into<String>,
    ) -> Self {
        Self {
            method,
            path,
            content_type: Some(content_type),
            body: body.to_string().into_bytes(),
            what: what.into(),
        }
    }

    fn into_request(self) -> Result<Request<Body>, ApiError> {
        let Self {
            method,
            path,
            content_type,
            body,
            what,
        } = self;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::ACCEPT, JSON);
        if let Some(content_type) = content_type {
            request = request.header(http::header::CONTENT_TYPE, content_type);
        }
        request
            .body(Body::from(body))
            .map_err(|error| ApiError::Unreadable {
                what,
                why: error.to_string(),
            })
    }
}

// === requests ===

/// Sends a request; the answer is whatever its body begins to say. Bounded in time up to there.
pub(crate) async fn open(
    connection: &Connection,
    ask: Ask,
    time_limit: Duration,
) -> Result<Body, ApiError> {
    let what = ask.what.clone();
    let request = ask.into_request()?;
    let client = connection.client().await;
    let client = client.map_err(|error| match error {
        ConnectError::Client { why, .. } => ApiError::NoClient { why },
        error => ApiError::NoClient {
            why: error.to_string(),
        },
    })?;
    let answered = tokio::time::timeout(time_limit, client.send(request)).await;
    let response = answered
        .map_err(|_| ApiError::Timeout(time_limit))?
        .map_err(|error| of_client(&error))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response.into_body());
    }
    let body = tokio::time::timeout(time_limit, read_error(response.into_body()))
        .await
        .unwrap_or_default();
    let error = of_status(what, status, &body);
    if matches!(error, ApiError::Unauthorized { .. }) {
        connection.distrust();
    }
    Err(error)
}

/// Sends a request and reads the whole answer.
pub(crate) async fn request(
    connection: &Connection,
    ask: Ask,
    time_limit: Duration,
) -> Result<Bytes, ApiError> {
    let whole = async {
        let body = open(connection, ask, time_limit).await?;
        body.collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .map_err(|error| ApiError::Unreachable { why: chain(&error) })
    };
    tokio::time::timeout(time_limit, whole)
        .await
        .map_err(|_| ApiError::Timeout(time_limit))?
}

/// Sends a request and reads the whole answer; `None`: it is longer than `most` bytes.
pub(crate) async fn request_within(
    connection: &Connection,
    ask: Ask,
    time_limit: Duration,
    most: usize,
) -> Result<Option<Vec<u8>>, ApiError> {
    let whole = async {
        let mut body = open(connection, ask, time_limit).await?;
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| ApiError::Unreachable { why: chain(&error) })?;
            bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if bytes.len() > most {
                return Ok(None);
            }
        }
        Ok(Some(bytes))
    };
    tokio::time::timeout(time_limit, whole)
        .await
        .map_err(|_| ApiError::Timeout(time_limit))?
}

/// Sends a request and reads the answer as JSON.
pub(crate) async fn request_json<T: DeserializeOwned>(
    connection: &Connection,
    ask: Ask,
    time_limit: Duration,
) -> Result<T, ApiError> {
    let what = ask.what.clone();
    let bytes = request(connection, ask, time_limit).await?;
    serde_json::from_slice(&bytes).map_err(|error| ApiError::Unreadable {
        what,
        why: error.to_string(),
    })
}

async fn read_error(mut body: Body) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            bytes.extend_from_slice(data);
        }
        if bytes.len() > LONGEST_ERROR {
            break;
        }
    }
    bytes
}
