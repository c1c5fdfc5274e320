//! Errors of a cloud's API, sorted by what can be done about them.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use landfall_model::provider::Retry;
use serde_json::{Map, Value};

/// A request that was not carried out, or of which that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// What can be done about it.
    pub kind: ErrorKind,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// The server's own words, shortened, or ours when it had none.
    pub message: String,
    /// The server's name for the error, such as `OverQuota`.
    pub code: Option<Box<str>>,
    /// The method and path of the request: `POST /v2/lbaas/listeners`.
    pub request: String,
    /// The delay that the server asks for, bounded.
    pub retry_after: Option<Duration>,
    /// The location that a redirect names.
    pub redirect: Option<Box<str>>,
    /// The id under which the server logs the request.
    pub request_id: Option<Box<str>>,
}

/// What can be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The object is being changed, or in a state in which it can't be changed.
    Busy,
    /// Another object is in the way, and stays so.
    Conflict,
    /// The object does not exist, or can't be seen.
    NotFound,
    /// The credentials do not allow it.
    Forbidden,
    /// The quota is used up.
    Quota,
    /// The network has no address left.
    NoAddresses,
    /// The body is larger than the server reads: split it, if possible.
    TooLarge,
    /// The body was larger than the server reads. The limit was lowered, so that the next one is
    /// half as large at most.
    Halved,
    /// The server does not accept the content of the request.
    Invalid,
    /// The cloud can't do it, or this version of it can't.
    Unsupported,
    /// The credentials are wrong, or not valid any more.
    Unauthorized,
    /// The object was changed since it was read.
    Stale,
    /// The server asks to slow down.
    Throttled,
    /// The server failed. The request may have been carried out.
    Unavailable,
    /// The server could not be reached: the request has not been carried out.
    Unreachable,
    /// There was no answer: the request may have been carried out.
    Lost,
    /// The answer is not one of this API. The request may have been carried out.
    Unreadable,
    /// The cloud does not have the service.
    NoService,
    /// The configured address redirects to another one.
    Moved,
}

/// How the servers of a cloud word their errors.
#[derive(Clone, Copy, Debug)]
pub struct ErrorFormat {
    /// The header with the id of the request, in lower case.
    pub request_id: &'static str,
    /// Finds the message in a JSON object.
    pub read: fn(&Map<String, Value>) -> ErrorBody,
    /// Sorts what the status alone does not sort, by message and code.
    pub classify: fn(StatusCode, &str, Option<&str>) -> Option<ErrorKind>,
}

/// The readable part of the body of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorBody {
    /// The message; `None`: not a body in the form of this API.
    pub message: Option<String>,
    /// The server's name for the error.
    pub code: Option<String>,
}

/// A longer delay that a server asks for counts as this.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// Characters of a server's message that are kept.
const MAX_MESSAGE: usize = 500;
/// The delay after "too many requests" without a `Retry-After`, for the one that failed.
const RETRY_THROTTLED: Duration = Duration::from_secs(5);

// === impl ErrorFormat ===

impl ErrorFormat {
    /// The usual shapes: `message`, `error` (a text, or an object with a message), `detail`,
    /// `title` (RFC 9457).
    pub const COMMON: Self = Self {
        request_id: "x-request-id",
        read: |body| {
            let text = |key: &str| body.get(key).and_then(Value::as_str);
            let inner = |key: &str| body.get("error")?.get(key)?.as_str();
            let message = text("message")
                .or_else(|| text("error"))
                .or_else(|| inner("message"))
                .or_else(|| text("detail"))
                .or_else(|| text("title"));
            ErrorBody {
                message: message.map(str::to_owned),
                code: text("code").or_else(|| inner("code")).map(str::to_owned),
            }
        },
        classify: |_, _, _| None,
    };
}

// === impl ErrorKind ===

impl ErrorKind {
    /// Returns a stable word for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Conflict => "conflict",
            Self::NotFound => "not_found",
            Self::Forbidden => "forbidden",
            Self::Quota => "quota",
            Self::NoAddresses => "no_addresses",
            Self::TooLarge => "too_large",
            Self::Halved => "halved",
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::Unauthorized => "unauthorized",
            Self::Stale => "stale",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::Unreachable => "unreachable",
            Self::Lost => "lost",
            Self::Unreadable => "unreadable",
            Self::NoService => "no_service",
            Self::Moved => "moved",
        }
    }

    /// Sorts an answer by its status. `in_form`: its body is one of this API. A 404 in another form
    /// is a proxy's, about another object.
    fn of(status: StatusCode, in_form: bool, has_retry_after: bool) -> Self {
        match status.as_u16() {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 | 410 if in_form => Self::NotFound,
            409 => Self::Conflict,
            412 => Self::Stale,
            413 | 429 | 503 if has_retry_after => Self::Throttled,
            429 => Self::Throttled,
            413 => Self::TooLarge,
            408 => Self::Lost,
            501 => Self::Unsupported,
            500..=599 => Self::Unavailable,
            400 | 402 | 405 | 406 | 411 | 414..=428 | 430..=499 => Self::Invalid,
            _ => Self::Unreadable,
        }
    }
}

// === impl ApiError ===

impl ApiError {
    /// Returns whether the same request may succeed later without a change of anything else.
    pub fn is_transient(&self) -> bool {
        match self.kind {
            ErrorKind::Busy
            | ErrorKind::Halved
            | ErrorKind::Stale
            | ErrorKind::Throttled
            | ErrorKind::Unavailable
            | ErrorKind::Unreachable
            | ErrorKind::Lost
            | ErrorKind::Unreadable => true,
            ErrorKind::Conflict
            | ErrorKind::NotFound
            | ErrorKind::Forbidden
            | ErrorKind::Quota
            | ErrorKind::NoAddresses
            | ErrorKind::TooLarge
            | ErrorKind::Invalid
            | ErrorKind::Unsupported
            | ErrorKind::Unauthorized
            | ErrorKind::NoService
            | ErrorKind::Moved => false,
        }
    }

    /// Returns whether the request may have been carried out nevertheless.
    pub fn may_be_done(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Unavailable | ErrorKind::Lost | ErrorKind::Unreadable
        )
    }

    /// Returns when another try is worth while.
    pub fn retry(&self) -> Retry {
        match self.kind {
            ErrorKind::Throttled => Retry::After(self.retry_after.unwrap_or(RETRY_THROTTLED)),
            ErrorKind::Stale | ErrorKind::Halved => Retry::Now,
            _ => Retry::Backoff,
        }
    }

    /// Makes an error in our own words.
    pub fn ours(kind: ErrorKind, request: &str, message: impl Into<String>) -> Self {
        Self {
            kind,
            status: None,
            message: shortened(&message.into()),
            code: None,
            request: request.to_owned(),
            retry_after: None,
            redirect: None,
            request_id: None,
        }
    }

    /// Makes an error in the server's words, of any length.
    pub fn answered(
        format: &ErrorFormat,
        request: &str,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Self {
        let (read, text) = match serde_json::from_slice(body) {
            Ok(Value::Object(body)) => {
                let read = (format.read)(&body);
                let text = read.message.as_deref().unwrap_or_default().trim();
                let text = text.to_owned();
                (read, text)
            }
            _ => (ErrorBody::default(), plain(&String::from_utf8_lossy(body))),
        };
        let in_form = read.message.is_some();
        let redirect = headers
            .get(http::header::LOCATION)
            .filter(|_| status.is_redirection())
            .and_then(|to| to.to_str().ok());
        let retry_after = retry_after(headers);
        let kind = (format.classify)(status, &text, read.code.as_deref())
            .unwrap_or_else(|| ErrorKind::of(status, in_form, retry_after.is_some()));
        let message = if status.is_redirection() {
            let to = redirect.unwrap_or("nowhere");
            format!("redirected to {to}, which is not followed")
        } else if text.is_empty() {
            status.canonical_reason().unwrap_or("no message").to_owned()
        } else {
            text
        };
        Self {
            kind,
            status: Some(status.as_u16()),
            message,
            code: read.code.map(String::into_boxed_str),
            request: request.to_owned(),
            retry_after,
            redirect: redirect.map(Box::from),
            request_id: request_id(format, headers),
        }
    }

    /// Returns the request and what was answered: equal for each occurrence, unlike the text with
    /// the request's id.
    pub fn without_id(&self) -> String {
        let status = self.status.map(|status| format!("{status} "));
        let status = status.unwrap_or_default();
        format!("{}: {status}{}", self.request, self.message)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_id())?;
        if let Some(id) = &self.request_id {
            write!(f, " ({id})")?;
        }
        Ok(())
    }
}

impl std::error::Error for ApiError {}

/// Returns the id under which the server logs a request.
pub(super) fn request_id(format: &ErrorFormat, headers: &HeaderMap) -> Option<Box<str>> {
    let id = headers.get(format.request_id)?.to_str().ok()?;
    Some(id.chars().take(100).collect())
}

/// Reads `Retry-After`: seconds, or a date by the server's own clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?;
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
    }
    let then = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    let now = headers.get(http::header::DATE)?.to_str().ok()?;
    let now = jiff::fmt::rfc2822::parse(now).ok()?.timestamp();
    let time = Duration::try_from(then.duration_since(now)).unwrap_or_default();
    Some(time.min(MAX_RETRY_AFTER))
}

/// Removes the tags of HTML from a text.
fn plain(html: &str) -> String {
    let mut text = String::new();
    let mut tag = false;
    for letter in html.chars().take(10 * MAX_MESSAGE) {
        match letter {
            '<' => {
                tag = true;
                text.push(' ');
            }
            '>' => tag = false,
            _ if !tag => text.push(letter),
            _ => {}
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the beginning of a long text.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
