//! One request and its answer: throttle, timeout, trace, count, and errors in the server's words.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, IF_MATCH, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout};
use tracing::{Instrument, Span, debug_span, field, trace};

use super::auth::Authorize;
use super::calls::{CallCount, CallKey, Calls};
use super::error::{ApiError, ErrorFormat, ErrorKind, request_id, shortened};
use super::throttle::Throttle;
use super::transport::{NoAnswer, Transport};

/// What all requests of a client share.
#[derive(Debug)]
pub struct Exchange {
    transport: Mutex<Transport>,
    calls: Calls,
    throttle: Throttle,
    user_agent: HeaderValue,
    errors: ErrorFormat,
    /// Secrets of credentials, which are cut out of everything that servers say.
    secrets: Mutex<Vec<SecretString>>,
}

/// A request.
pub struct ApiRequest<'a> {
    /// The method.
    pub method: Method,
    /// The address with its query.
    pub url: Url,
    /// The kind of object, for the counters.
    pub resource: &'static str,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// Adds the token or signature; `None`: sent without.
    pub auth: Option<&'a dyn Authorize>,
    /// The header `If-Match`.
    pub if_match: Option<String>,
    /// A body of JSON.
    pub body: Option<Bytes>,
    /// The bodies hold secrets: they are not traced.
    pub private: bool,
}

/// A successful answer. Its `Debug` shows neither headers nor body: these may be secrets.
pub struct ApiResponse {
    /// Its body.
    pub body: Bytes,
    /// Its headers.
    pub headers: HeaderMap,
    request_id: Option<Box<str>>,
}

/// The pause after "too many requests" without a `Retry-After`.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);
const REDACTED: &str = "[secret]";

impl fmt::Debug for ApiResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiResponse")
            .field("bytes", &self.body.len())
            .field("request_id", &self.request_id)
            .finish_non_exhaustive()
    }
}

// === impl ApiRequest ===

impl ApiRequest<'_> {
    /// Makes a request without credentials and body.
    pub fn new(method: Method, url: Url, resource: &'static str, timeout: Duration) -> Self {
        Self {
            method,
            url,
            resource,
            timeout,
            auth: None,
            if_match: None,
            body: None,
            private: false,
        }
    }

    /// Returns its name in errors: `POST /v2/lbaas/listeners`.
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.url.path())
    }

    fn build(self, user_agent: &HeaderValue) -> Result<Request<Bytes>, String> {
        let mut request = Request::new(self.body.unwrap_or_default());
        *request.uri_mut() = self
            .url
            .as_str()
            .parse()
            .map_err(|why: http::uri::InvalidUri| why.to_string())?;
        *request.method_mut() = self.method;
        let has_body = !request.body().is_empty();
        let json = HeaderValue::from_static("application/json");
        let headers = request.headers_mut();
        headers.insert(ACCEPT, json.clone());
        headers.insert(USER_AGENT, user_agent.clone());
        if has_body {
            headers.insert(CONTENT_TYPE, json);
        }
        if let Some(value) = self.if_match {
            let value = HeaderValue::try_from(value).map_err(|why| why.to_string())?;
            headers.insert(IF_MATCH, value);
        }
        if let Some(auth) = self.auth {
            auth.authorize(&mut request)?;
        }
        Ok(request)
    }
}

// === impl ApiResponse ===

impl ApiResponse {
    /// Reads the body as JSON.
    pub fn json<T: DeserializeOwned>(&self, request: &str) -> Result<T, ApiError> {
        serde_json::from_slice(&self.body).map_err(|why| self.unreadable(request, why.to_string()))
    }

    /// Makes the error that this answer is not one of this API.
    pub fn unreadable(&self, request: &str, why: impl Into<String>) -> ApiError {
        ApiError {
            request_id: self.request_id.clone(),
            ..ApiError::ours(ErrorKind::Unreadable, request, why)
        }
    }
}

// === impl Exchange ===

impl Exchange {
    /// Makes an exchange.
    pub fn new(transport: Transport, user_agent: HeaderValue, errors: ErrorFormat) -> Self {
        Self {
            transport: Mutex::new(transport),
            calls: Calls::default(),
            throttle: Throttle::new(),
            user_agent,
            errors,
            secrets: Mutex::default(),
        }
    }

    /// Sends requests another way from now on. Those on their way are not affected.
    pub fn reconnect(&self, transport: Transport) {
        *self.transport() = transport;
    }

    fn transport(&self) -> MutexGuard<'_, Transport> {
        self.transport
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts a secret of the credentials out of everything that servers say from now on.
    pub fn hide(&self, secret: &SecretString) {
        let mut secrets = self.secrets();
        if !secrets
            .iter()
            .any(|it| it.expose_secret() == secret.expose_secret())
        {
            secrets.push(secret.clone());
        }
    }

    fn secrets(&self) -> MutexGuard<'_, Vec<SecretString>> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counters of all requests so far.
    pub fn calls(&self) -> BTreeMap<CallKey, CallCount> {
        self.calls.snapshot()
    }

    /// Sends a request once.
    pub async fn send(&self, request: ApiRequest<'_>) -> Result<ApiResponse, ApiError> {
        let span = debug_span!(
            "cloud_request",
            method = %request.method,
            path = request.url.path(),
            status = field::Empty,
            request_id = field::Empty,
            milliseconds = field::Empty,
            error = field::Empty,
        );
        self.send_in_span(request).instrument(span).await
    }

    async fn send_in_span(&self, request: ApiRequest<'_>) -> Result<ApiResponse, ApiError> {
        let name = request.name();
        let private = request.private;
        let secret = request.auth.and_then(Authorize::secret);
        let (time_limit, resource) = (request.timeout, request.resource);
        let method = label(&request.method);
        let permit = self.throttle.acquire().await;
        let request = request
            .build(&self.user_agent)
            .map_err(|why| ApiError::ours(ErrorKind::Invalid, &name, why))?;
        if !private && !request.body().is_empty() {
            trace!(body = self.readable(request.body(), secret), "request");
        }
        let start = Instant::now();
        let transport = self.transport().clone();
        let answer = timeout(time_limit, transport.answer(request)).await;
        let time = start.elapsed();
        drop(permit);
        let result = match answer {
            Ok(Ok(answer)) => self.read(&name, answer, secret, private),
            Ok(Err(why)) => Err(self.no_answer(&name, why, secret)),
            Err(_) => {
                let why = format!("no answer within {} s", time_limit.as_secs_f32());
                Err(ApiError::ours(ErrorKind::Lost, &name, why))
            }
        };
        let outcome = result
            .as_ref()
            .map_or_else(|error| error.kind.as_str(), |_| "ok");
        let key = CallKey {
            method,
            resource,
            outcome,
        };
        self.calls.count(key, time);
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Span::current().record("milliseconds", milliseconds);
        match &result {
            Ok(_) => tracing::debug!("answered"),
            Err(error) => {
                Span::current().record("error", error.message.as_str());
                tracing::debug!("failed");
            }
        }
        result
    }

    fn no_answer(&self, name: &str, why: NoAnswer, secret: Option<&SecretString>) -> ApiError {
        let (kind, why) = match why {
            NoAnswer::Unreachable(why) => (ErrorKind::Unreachable, why),
            NoAnswer::Lost(why) => (ErrorKind::Lost, why),
            NoAnswer::TooLong => (ErrorKind::Unreadable, "the answer is too long".to_owned()),
        };
        ApiError::ours(kind, name, self.redacted(why, secret))
    }

    fn read(
        &self,
        name: &str,
        answer: http::Response<Bytes>,
        secret: Option<&SecretString>,
        private: bool,
    ) -> Result<ApiResponse, ApiError> {
        let (head, body) = answer.into_parts();
        let request_id = request_id(&self.errors, &head.headers);
        let span = Span::current();
        span.record("status", head.status.as_u16());
        if let Some(id) = &request_id {
            span.record("request_id", &**id);
        }
        if !private {
            trace!(body = self.readable(&body, secret), "answer");
        }
        // 300 comes with a list of versions.
        if head.status.is_success() || head.status == StatusCode::MULTIPLE_CHOICES {
            return Ok(ApiResponse {
                body,
                request_id,
                headers: head.headers,
            });
        }
        let mut error = ApiError::answered(&self.errors, name, head.status, &head.headers, &body);
        error.message = shortened(&self.redacted(error.message, secret));
        if error.kind == ErrorKind::Throttled {
            self.throttle
                .pause_for(error.retry_after.unwrap_or(DEFAULT_PAUSE));
        }
        Err(error)
    }

    /// Returns a body for the trace, if that is enabled.
    fn readable(&self, body: &Bytes, secret: Option<&SecretString>) -> Option<String> {
        tracing::enabled!(tracing::Level::TRACE)
            .then(|| self.redacted(String::from_utf8_lossy(body).into_owned(), secret))
    }

    /// Cuts our secrets out of what a server said: some repeat what they were sent.
    fn redacted(&self, mut text: String, secret: Option<&SecretString>) -> String {
        for secret in self.secrets().iter().chain(secret) {
            let secret = secret.expose_secret();
            if secret.is_empty() {
                continue;
            }
            text = text.replace(secret, REDACTED);
            // As it stands in a body: with quotes and backslashes escaped.
            let escaped = Value::from(secret).to_string();
            let escaped = escaped.trim_matches('"');
            if escaped != secret {
                text = text.replace(escaped, REDACTED);
            }
        }
        text
    }
}

/// Returns the label of a method.
fn label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}
