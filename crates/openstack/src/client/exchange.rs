//! One request and its answer: the gate, the time-out, the trace, the count, and errors in the
//! server's words.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::time::{Instant, timeout};
use tracing::{Instrument, Span, debug_span, field, trace};

use super::calls::{CallKey, Calls};
use super::error::{ApiError, ErrorKind, request_id, shortened};
use super::gate::Gate;
use super::transport::{NoAnswer, Transport};

/// What all requests share.
pub(super) struct Exchange {
    pub transport: Transport,
    pub calls: Calls,
    gate: Gate,
    user_agent: HeaderValue,
    /// The secret of the credentials, to be cut out of what servers say.
    secret: SecretString,
}

/// A request.
pub(super) struct Ask<'a> {
    pub method: Method,
    pub url: Url,
    /// What is counted.
    pub resource: &'static str,
    pub time_limit: Duration,
    pub token: Option<&'a SecretString>,
    /// The token that is asked about.
    pub subject: Option<&'a SecretString>,
    pub if_match: Option<u64>,
    pub body: Option<Bytes>,
    /// The bodies hold secrets.
    pub private: bool,
}

/// A good answer.
pub(super) struct Answer {
    pub body: Bytes,
    pub request_id: Option<Box<str>>,
    headers: HeaderMap,
}

/// After "too many requests" that say no time.
const SHORT_QUIET: Duration = Duration::from_secs(1);
const CUT: &str = "[secret]";

// === impl Ask ===

impl Ask<'_> {
    pub fn new(method: Method, url: Url, resource: &'static str, time_limit: Duration) -> Self {
        Self {
            method,
            url,
            resource,
            time_limit,
            token: None,
            subject: None,
            if_match: None,
            body: None,
            private: false,
        }
    }

    /// For people: `POST /v2/lbaas/listeners`.
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
        let headers = request.headers_mut();
        headers.insert(
            http::header::ACCEPT,
            HeaderValue::from_static("application/json"),
        );
        headers.insert(http::header::USER_AGENT, user_agent.clone());
        if has_body {
            let json = HeaderValue::from_static("application/json");
            headers.insert(http::header::CONTENT_TYPE, json);
        }
        if let Some(revision) = self.if_match {
            let value = HeaderValue::try_from(format!("revision_number={revision}"));
            headers.insert(
                http::header::IF_MATCH,
                value.map_err(|why| why.to_string())?,
            );
        }
        for (name, token) in [
            ("x-auth-token", self.token),
            ("x-subject-token", self.subject),
        ] {
            if let Some(token) = token {
                let mut value = HeaderValue::try_from(token.expose_secret())
                    .map_err(|_| "the token can't stand in a header".to_owned())?;
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        Ok(request)
    }
}

// === impl Answer ===

impl Answer {
    /// The token that Keystone gives, which stands in a header.
    pub fn subject_token(&self) -> Option<SecretString> {
        let token = self.headers.get("x-subject-token")?.to_str().ok()?;
        Some(SecretString::from(token))
    }
}

// === impl Exchange ===

impl Exchange {
    pub fn new(transport: Transport, user_agent: HeaderValue, secret: SecretString) -> Self {
        Self {
            transport,
            calls: Calls::default(),
            gate: Gate::new(),
            user_agent,
            secret,
        }
    }

    /// Asks once.
    pub async fn ask(&self, ask: Ask<'_>) -> Result<Answer, ApiError> {
        let span = debug_span!(
            "cloud_request",
            method = %ask.method,
            path = ask.url.path(),
            status = field::Empty,
            request_id = field::Empty,
            milliseconds = field::Empty,
            error = field::Empty,
        );
        self.ask_in(ask).instrument(span).await
    }

    async fn ask_in(&self, ask: Ask<'_>) -> Result<Answer, ApiError> {
        let name = ask.name();
        let (token, private) = (ask.token, ask.private);
        let (time_limit, resource) = (ask.time_limit, ask.resource);
        let method = known(&ask.method);
        let request = ask
            .build(&self.user_agent)
            .map_err(|why| ApiError::ours(ErrorKind::Invalid, &name, why))?;
        if !private && !request.body().is_empty() {
            trace!(body = self.readable(request.body(), token), "asking");
        }
        let permit = self.gate.pass().await;
        let start = Instant::now();
        let answer = timeout(time_limit, self.transport.answer(request)).await;
        let time = start.elapsed();
        drop(permit);
        let result = match answer {
            Ok(Ok(answer)) => self.judge(&name, answer, token, private),
            Ok(Err(NoAnswer::Unreachable(why))) => Err(ApiError::ours(
                ErrorKind::Unreachable,
                &name,
                self.cut(why, token),
            )),
            Ok(Err(NoAnswer::Lost(why))) => {
                Err(ApiError::ours(ErrorKind::Lost, &name, self.cut(why, token)))
            }
            Ok(Err(NoAnswer::TooLong)) => {
                let why = "the answer is too long";
                Err(ApiError::ours(ErrorKind::Unreadable, &name, why))
            }
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

    fn judge(
        &self,
        name: &str,
        answer: http::Response<Bytes>,
        token: Option<&SecretString>,
        private: bool,
    ) -> Result<Answer, ApiError> {
        let (head, body) = answer.into_parts();
        let request_id = request_id(&head.headers);
        let span = Span::current();
        span.record("status", head.status.as_u16());
        if let Some(id) = &request_id {
            span.record("request_id", &**id);
        }
        if !private {
            trace!(body = self.readable(&body, token), "answer");
        }
        // 300 comes with a list of versions.
        if head.status.is_success() || head.status == StatusCode::MULTIPLE_CHOICES {
            return Ok(Answer {
                body,
                request_id,
                headers: head.headers,
            });
        }
        let mut error = ApiError::answered(name, head.status, &head.headers, &body);
        error.message = shortened(&self.cut(error.message, token));
        if error.kind == ErrorKind::Throttled {
            self.gate
                .throttle_for(error.retry_after.unwrap_or(SHORT_QUIET));
        }
        Err(error)
    }

    /// A body for the trace; only made when somebody reads it.
    fn readable(&self, body: &Bytes, token: Option<&SecretString>) -> Option<String> {
        tracing::enabled!(tracing::Level::TRACE)
            .then(|| self.cut(String::from_utf8_lossy(body).into_owned(), token))
    }

    /// What a server said, without our secrets: some repeat what they were sent.
    fn cut(&self, text: String, token: Option<&SecretString>) -> String {
        let mut text = text;
        for secret in [Some(&self.secret), token].into_iter().flatten() {
            let secret = secret.expose_secret();
            if secret.is_empty() {
                continue;
            }
            text = text.replace(secret, CUT);
            // As it stands in a body: with quotes and backslashes escaped.
            let escaped = Value::from(secret).to_string();
            let escaped = escaped.trim_matches('"');
            if escaped != secret {
                text = text.replace(escaped, CUT);
            }
        }
        text
    }
}

/// Methods that are used here, for labels.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}
