//! What the proxy itself answers instead of a member: status, a short plain body, nothing else.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::access_log;
use crate::pool::Unavailable;

/// When a client may try again after no member could serve it: about one round of checks.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why a request gets no answer from a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The request is not HTTP, or two parsers could read it differently.
    #[error("bad request: {0}")]
    Malformed(&'static str),
    /// `CONNECT`: this is no forward proxy.
    #[error("CONNECT is not possible here")]
    Connect,
    /// The client did not send the rest of its request.
    #[error("the request did not arrive in time")]
    ClientTimeout,
    /// Too many or too long fields.
    #[error("the head of the request is too large")]
    HeadTooLarge,
    /// A transfer coding other than chunked.
    #[error("this transfer coding is not supported")]
    Coding,
    /// An HTTP version other than 1.0, 1.1 and 2.
    #[error("this version of HTTP is not supported")]
    Version,
    /// Members were tried, and failed.
    #[error("the member failed")]
    MemberFailed,
    /// No member can serve at present.
    #[error("no member can serve at present")]
    NoMember,
    /// As many requests as a member may have from here at once are under way.
    #[error("too many concurrent requests")]
    Busy,
    /// The Service or the client has its share of the process's descriptors or memory.
    #[error("too many connections are in use")]
    Share,
    /// A member did not answer in time.
    #[error("the member timed out")]
    MemberTimeout,
    /// Each member has as many requests as it may, and too many wait or this one did for too long.
    #[error("every member is at its limit")]
    Crowded,
    /// The source sent more requests than it may; it may try again after so many seconds.
    #[error("too many requests from one source")]
    TooMany(NonZeroU32),
}

// === impl Refusal ===

impl From<Unavailable> for Refusal {
    fn from(why: Unavailable) -> Self {
        match why {
            Unavailable::NoMember | Unavailable::Retries => Self::NoMember,
            Unavailable::Full => Self::Crowded,
        }
    }
}

impl Refusal {
    /// The response's status.
    pub(super) fn status(self) -> http::StatusCode {
        match self {
            Self::Malformed(_) => http::StatusCode::BAD_REQUEST,
            Self::Connect => http::StatusCode::METHOD_NOT_ALLOWED,
            Self::ClientTimeout => http::StatusCode::REQUEST_TIMEOUT,
            Self::HeadTooLarge => http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Coding => http::StatusCode::NOT_IMPLEMENTED,
            Self::Version => http::StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::MemberFailed => http::StatusCode::BAD_GATEWAY,
            Self::NoMember | Self::Busy | Self::Crowded | Self::Share => {
                http::StatusCode::SERVICE_UNAVAILABLE
            }
            Self::MemberTimeout => http::StatusCode::GATEWAY_TIMEOUT,
            Self::TooMany(_) => http::StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// One word for the access log.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::Connect => "connect",
            Self::ClientTimeout => "client_timeout",
            Self::HeadTooLarge => "head_too_large",
            Self::Coding => "coding",
            Self::Version => "version",
            Self::MemberFailed => access_log::MEMBER_FAILED,
            Self::NoMember => "no_member",
            Self::Busy => "limit",
            Self::Share => "share",
            Self::Crowded => "queue",
            Self::TooMany(_) => "source_rate",
            Self::MemberTimeout => "member_timeout",
        }
    }

    /// Whether a member should have answered and none did.
    pub(super) fn is_for_want_of_members(self) -> bool {
        match self {
            Self::MemberFailed | Self::NoMember | Self::MemberTimeout => true,
            Self::Malformed(_)
            | Self::Connect
            | Self::ClientTimeout
            | Self::HeadTooLarge
            | Self::Coding
            | Self::Version
            | Self::Busy
            | Self::Crowded
            | Self::Share
            | Self::TooMany(_) => false,
        }
    }

    /// The whole body: one line of text.
    pub(super) fn body(self) -> String {
        format!("{self}\n")
    }

    /// Fields beside those that frame the message.
    pub(super) fn fields(self) -> impl Iterator<Item = (&'static str, String)> {
        let retry_after = match self {
            Self::NoMember | Self::Busy | Self::Crowded | Self::Share => {
                Some(RETRY_AFTER.as_secs())
            }
            Self::TooMany(seconds) => Some(u64::from(seconds.get())),
            _ => None,
        };
        let retry_after = retry_after.map(|seconds| ("retry-after", seconds.to_string()));
        // RFC 9110 section 15.5.6 wants to know what is allowed where a method is not.
        let allow = matches!(self, Self::Connect).then(|| {
            (
                "allow",
                "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH, TRACE".to_owned(),
            )
        });
        [("content-type", "text/plain; charset=utf-8".to_owned())]
            .into_iter()
            .chain(retry_after)
            .chain(allow)
    }

    /// The whole response for an HTTP/1 client, which asked with `HEAD` or not.
    pub(super) fn write(self, to_head: bool, keep_alive: bool, out: &mut Vec<u8>) {
        let (status, body) = (self.status(), self.body());
        let mut line = |parts: [&str; 4]| {
            for part in parts {
                out.extend_from_slice(part.as_bytes());
            }
            out.extend_from_slice(b"\r\n");
        };
        line([
            "HTTP/1.1 ",
            status.as_str(),
            " ",
            status.canonical_reason().unwrap_or_default(),
        ]);
        for (name, value) in self.fields() {
            line([name, ": ", &value, ""]);
        }
        line(["content-length: ", &body.len().to_string(), "", ""]);
        if !keep_alive {
            line(["connection: ", "close", "", ""]);
        }
        line([""; 4]);
        if !to_head {
            out.extend_from_slice(body.as_bytes());
        }
    }

    /// The same for HTTP/2.
    pub(super) fn response(self) -> http::Response<String> {
        let mut response = http::Response::new(self.body());
        *response.status_mut() = self.status();
        for (name, value) in self.fields() {
            if let Ok(value) = value.parse() {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}
