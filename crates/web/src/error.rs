//! Refusals as JSON: `{"error": {"code": ..., "message": ...}}`. The code is stable.

use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::PlanError;

/// What others keep from being answered now.
const BUSY: &str = "Busy";

/// Seconds after which one that was refused for others may try again.
const AGAIN: &str = "5";

/// A refused or failed request.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Inner<'a>,
}

#[derive(Serialize)]
struct Inner<'a> {
    code: &'a str,
    message: &'a str,
}

// === impl ApiError ===

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
        }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Failed", message)
    }

    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, BUSY, message)
    }
}

impl From<PlanError> for ApiError {
    fn from(error: PlanError) -> Self {
        let (status, code) = match error {
            PlanError::Unreadable(_) => (StatusCode::UNPROCESSABLE_ENTITY, "Unreadable"),
            PlanError::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "Unavailable"),
        };
        Self::new(status, code, error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let envelope = Envelope {
            error: Inner {
                code: self.code,
                message: &self.message,
            },
        };
        let mut response = (self.status, Json(envelope)).into_response();
        if self.code == BUSY {
            let again = HeaderValue::from_static(AGAIN);
            response.headers_mut().insert(RETRY_AFTER, again);
        }
        response
    }
}
