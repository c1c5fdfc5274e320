//! Refusals as JSON: `{"error": {"code": ..., "message": ...}}`. The code is stable.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::PlanError;

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

    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Busy", message)
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
        (self.status, Json(envelope)).into_response()
    }
}
