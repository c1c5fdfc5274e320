//! What a cloud answers when it doesn't do what was asked, sorted by what can be done about it.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde_json::Value;

/// A request that was not carried out, or of which that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// What can be done about it.
    pub kind: ErrorKind,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// The server's own words, shortened, or ours when it had none.
    pub message: String,
    /// Neutron's name for it, such as `OverQuota`.
    pub code: Option<Box<str>>,
    /// What was asked: `POST /v2/lbaas/listeners`.
    pub request: String,
    /// When the server wants to be asked again; never later than it is, whatever it says.
    pub retry_after: Option<Duration>,
    /// Where the server says that it is instead.
    pub redirect: Option<Box<str>>,
    /// Under which the server's log has it.
    pub request_id: Option<Box<str>>,
}

/// What can be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The load balancer is being changed, or in a state in which it can't be: look at its status.
    Busy,
    /// Something else stands against it, and will tomorrow.
    Conflict,
    /// It isn't there, or can't be seen.
    NotFound,
    /// These credentials may not.
    Forbidden,
    /// The project's quota is used up.
    Quota,
    /// The network has no address left.
    NoAddresses,
    /// The body is larger than the service reads: split it, if that can be.
    TooLarge,
    /// The body was larger than the service reads, and is half as large at most when it is planned
    /// anew.
    Halved,
    /// The service doesn't accept what it says.
    Invalid,
    /// The provider of the load balancer, or this version of the service, can't do it.
    Unsupported,
    /// The credentials are wrong, or no longer valid.
    Unauthorized,
    /// The object was changed since it was read.
    Stale,
    /// The service asks for quiet.
    Throttled,
    /// The service failed. It may have been done.
    Unavailable,
    /// The service could not be reached: it has not been done.
    Unreachable,
    /// There was no answer: it may have been done.
    Lost,
    /// The answer is not what the service answers. It may have been done.
    Unreadable,
    /// The catalog does not list the service.
    NoService,
    /// Keystone is elsewhere: the configuration names an address that sends away.
    Moved,
}

/// A service that asks for more quiet than this is asked again all the same.
pub(super) const LONGEST_QUIET: Duration = Duration::from_secs(300);
/// Of the server's words, so many characters are kept.
const LONGEST_MESSAGE: usize = 500;

// === impl ErrorKind ===

impl ErrorKind {
    /// A stable word for metrics.
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

    /// Sorts an answer by its status and words.
    fn of(status: StatusCode, words: &Words, hushed: bool) -> Self {
        let text = words.text.as_str();
        let is = |code: &str| words.code.as_deref() == Some(code);
        let no_addresses = is("IpAddressGenerationFailure")
            || is("ExternalIpAddressExhausted")
            || text.contains("No more IP addresses")
            || text.contains("Unable to find any IP address on external network");
        let quota = is("OverQuota")
            || text.contains("Quota exceeded for resources")
            || text.contains("Quota has been met")
            || text.contains("uota exceeded");
        match status.as_u16() {
            401 => Self::Unauthorized,
            403 | 409 | 413 if quota => Self::Quota,
            400 | 403 | 409 if no_addresses => Self::NoAddresses,
            403 => Self::Forbidden,
            // A 404 in words that are not of these services is some proxy's, about some other
            // thing.
            404 | 410 if words.own => Self::NotFound,
            409 if text.contains("is immutable") || text.contains("Invalid state ") => Self::Busy,
            409 => Self::Conflict,
            412 => Self::Stale,
            413 | 429 | 503 if hushed => Self::Throttled,
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
    /// Whether the same request may succeed later without anybody doing anything about it.
    pub fn is_passing(&self) -> bool {
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

    /// Whether the request may have been carried out all the same.
    pub fn may_be_done(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Unavailable | ErrorKind::Lost | ErrorKind::Unreadable
        )
    }

    /// An error in our own words.
    pub(super) fn ours(kind: ErrorKind, request: &str, message: impl Into<String>) -> Self {
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

    /// An error in the server's words, of any length.
    pub(super) fn answered(
        request: &str,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Self {
        let mut words = Words::read(body);
        let to = headers.get(http::header::LOCATION);
        let to = to
            .filter(|_| status.is_redirection())
            .and_then(|to| to.to_str().ok());
        if status.is_redirection() {
            let to = to.unwrap_or("nowhere");
            words.text = format!("redirected to {to}, which is not followed");
        } else if words.text.is_empty() {
            let text = status.canonical_reason().unwrap_or("no message");
            text.clone_into(&mut words.text);
        }
        let retry_after = retry_after(headers);
        Self {
            kind: ErrorKind::of(status, &words, retry_after.is_some()),
            status: Some(status.as_u16()),
            message: words.text,
            code: words.code.map(String::into_boxed_str),
            request: request.to_owned(),
            retry_after,
            redirect: to.map(Box::from),
            request_id: request_id(headers),
        }
    }
}

impl ApiError {
    /// What was asked and what was answered: the same words each time it is, unlike the text with
    /// the request's id.
    pub fn in_words(&self) -> String {
        let status = self.status.map(|status| format!("{status} "));
        let status = status.unwrap_or_default();
        format!("{}: {status}{}", self.request, self.message)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_words())?;
        if let Some(id) = &self.request_id {
            write!(f, " ({id})")?;
        }
        Ok(())
    }
}

impl std::error::Error for ApiError {}

/// The id under which the services log a request.
pub(super) fn request_id(headers: &HeaderMap) -> Option<Box<str>> {
    let id = headers.get("x-openstack-request-id")?.to_str().ok()?;
    Some(id.chars().take(100).collect())
}

/// Seconds, or a date: the latter by the server's own clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?;
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds).min(LONGEST_QUIET));
    }
    let then = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    let now = headers.get(http::header::DATE)?.to_str().ok()?;
    let now = jiff::fmt::rfc2822::parse(now).ok()?.timestamp();
    let time = Duration::try_from(then.duration_since(now)).unwrap_or_default();
    Some(time.min(LONGEST_QUIET))
}

/// What a server says about an error.
#[derive(Debug, Default)]
struct Words {
    text: String,
    code: Option<String>,
    /// In a form that these services use.
    own: bool,
}

// === impl Words ===

impl Words {
    /// Octavia: `faultstring`; Neutron: `NeutronError.message`; Keystone: `error.message`;
    /// Barbican: `description`; older services and proxies: an object with `message` under any one
    /// name.
    fn read(body: &[u8]) -> Self {
        let Ok(Value::Object(body)) = serde_json::from_slice(body) else {
            return Self {
                text: plain(&String::from_utf8_lossy(body)),
                ..Self::default()
            };
        };
        let inner = body
            .get("NeutronError")
            .or_else(|| body.get("error"))
            .or_else(|| body.values().find(|value| value["message"].is_string()));
        let text = ["faultstring", "message", "description"]
            .iter()
            .find_map(|key| body.get(*key).and_then(Value::as_str))
            .or_else(|| inner.and_then(|inner| inner["message"].as_str().or(inner.as_str())))
            .or_else(|| body.get("title").and_then(Value::as_str));
        let code = inner.and_then(|inner| inner["type"].as_str());
        Self {
            text: text.unwrap_or_default().trim().to_owned(),
            code: code.map(ToOwned::to_owned),
            own: text.is_some(),
        }
    }
}

/// Text without the tags of HTML.
fn plain(html: &str) -> String {
    let mut text = String::new();
    let mut tag = false;
    for letter in html.chars().take(10 * LONGEST_MESSAGE) {
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

/// The beginning of a long text.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
