//! Answers.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::settings::ErrorShape;

/// An answer.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub status: u16,
    pub body: Bytes,
    pub headers: Vec<(&'static str, String)>,
}

/// Why a request is refused.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub status: u16,
    pub message: String,
    /// What in the body is wrong.
    pub errors: Vec<String>,
}

pub(super) type Answer = Result<Value, Refused>;

// === impl Refused ===

impl Refused {
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            errors: Vec::new(),
        }
    }

    /// An object does not exist.
    pub fn missing(what: &str) -> Self {
        Self::new(404, format!("{what} not found"))
    }

    pub fn reply(self, shape: ErrorShape) -> Reply {
        let (message, list) = (self.message, self.errors);
        let body = match shape {
            ErrorShape::Message | ErrorShape::List if list.is_empty() => {
                json!({ "message": message })
            }
            ErrorShape::Message | ErrorShape::List => {
                let list: Vec<_> = list.iter().map(|it| json!({ "message": it })).collect();
                json!({"message": message, "errors": list})
            }
            ErrorShape::Problem => json!({
                "type": "about:blank", "title": message, "status": self.status, "errors": list,
            }),
            ErrorShape::Error => json!({ "error": message }),
            ErrorShape::Plain => {
                return Reply {
                    status: self.status,
                    body: Bytes::from(message),
                    headers: vec![("content-type", "text/plain".to_owned())],
                };
            }
        };
        Reply::json(self.status, &body)
    }
}

// === impl Reply ===

impl Reply {
    pub fn json(status: u16, body: &Value) -> Self {
        Self {
            status,
            body: Bytes::from(body.to_string()),
            headers: vec![("content-type", "application/json; charset=utf-8".to_owned())],
        }
    }

    pub fn into_response(self) -> Response<Bytes> {
        let mut response = Response::new(self.body);
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or_default();
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}
