//! One HTTP request with JSON in and out. Plain HTTP: the stack is on loopback.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::StackError;

pub use http::Method;

/// An answer of an API, whatever its status.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body, or null where it is empty.
    pub body: Value,
    /// Keystone's token, where a login was answered.
    pub(super) token: Option<String>,
}

/// A client that shares nothing between requests, so that tests with runtimes of their own may
/// share it.
#[derive(Clone)]
pub(super) struct Client {
    pool: Pool<HttpConnector, Full<Bytes>>,
}

pub(super) struct Request<'a> {
    pub(super) method: Method,
    pub(super) url: &'a str,
    pub(super) user_agent: &'a str,
    pub(super) token: Option<&'a str>,
    pub(super) body: Option<&'a Value>,
}

/// The name of the testkit itself, which distinguishes it from the code under test.
pub(super) const USER_AGENT: &str = "landfall-testkit";

// === impl Client ===

impl Client {
    pub(super) fn new() -> Self {
        let mut builder = Pool::builder(TokioExecutor::new());
        // A connection lives in the runtime of the test that opened it, and so must not be kept.
        builder.pool_max_idle_per_host(0);
        Self {
            pool: builder.build_http(),
        }
    }

    pub(super) async fn send(&self, request: Request<'_>) -> Result<Answer, StackError> {
        let failed = |why: String| StackError::Unreachable {
            request: format!("{} {}", request.method, request.url),
            why,
        };
        let mut builder = http::Request::builder()
            .method(&request.method)
            .uri(request.url)
            .header("user-agent", request.user_agent)
            .header("accept", "application/json")
            .header("content-type", "application/json");
        if let Some(token) = request.token {
            builder = builder.header("x-auth-token", token);
        }
        let body = request.body.map(Value::to_string).unwrap_or_default();
        let message = builder
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| failed(error.to_string()))?;
        let answer = self
            .pool
            .request(message)
            .await
            .map_err(|error| failed(chain(&error)))?;
        let status = answer.status().as_u16();
        let token = answer.headers().get("x-subject-token");
        let token = token.and_then(|token| Some(token.to_str().ok()?.to_owned()));
        let bytes = answer
            .into_body()
            .collect()
            .await
            .map_err(|error| failed(chain(&error)))?
            .to_bytes();
        // What isn't JSON is kept as text: errors of proxies, payloads of secrets.
        let body = match serde_json::from_slice(&bytes) {
            Ok(value) => value,
            Err(_) if bytes.is_empty() => Value::Null,
            Err(_) => Value::String(String::from_utf8_lossy(&bytes).into_owned()),
        };
        Ok(Answer {
            status,
            body,
            token,
        })
    }
}

// === impl Answer ===

impl Answer {
    /// Whether the status is of the 200s.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body, if the request was carried out.
    pub(super) fn successful(self, request: &str) -> Result<Value, StackError> {
        if self.is_success() {
            return Ok(self.body);
        }
        Err(StackError::Refused {
            request: request.to_owned(),
            status: self.status,
            body: self.body.to_string(),
        })
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
