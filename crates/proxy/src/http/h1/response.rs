//! Heads of HTTP/1 responses (RFC 9112 section 4): read strictly, with everything worked out that
//! the proxy must know, and written again for the client. Pure.

use super::body::Framing;
use super::head::{ADDED, FieldBuffer, Fields, MAX_FIELDS, MAX_OPTIONS, Version, line, number};
use super::request::RequestFacts;
use crate::http::MAX_HEAD;
use crate::http::fields::{Field, list};

/// Most bytes of interim responses (1xx) ahead of one response. Each counts as a sign of life, so
/// that without a bound they keep a request for ever; 2,400 of the shortest fit.
const MAX_INTERIMS: usize = 2 * MAX_HEAD;

/// A response's head, read and found good.
pub(in crate::http) struct ResponseHead<'h, 'b> {
    reason: &'b str,
    fields: Fields<'h, 'b>,
    facts: ResponseFacts,
}

/// What there is to know about a response once its head is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct ResponseFacts {
    /// Bytes of the head.
    pub(in crate::http) length: usize,
    pub(in crate::http) status: u16,
    pub(in crate::http) framing: Framing,
    /// The member keeps the connection open.
    pub(in crate::http) keep_alive: bool,
}

/// What a member has said ahead of one response.
#[derive(Debug, Default)]
pub(in crate::http) struct Interims {
    bytes: usize,
}

/// How a response is to be written for its client.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct ResponseStyle {
    /// The client's version.
    pub(in crate::http) version: Version,
    /// The connection goes on after it.
    pub(in crate::http) keep_alive: bool,
    /// The body arrives without a known length and is to be put in chunks.
    pub(in crate::http) enchunk: bool,
}

/// An invalid response of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::http) enum BadResponse {
    #[error("the head of the response is broken")]
    Head,
    #[error("the head of the response has more than {MAX_FIELDS} fields")]
    TooManyFields,
    #[error("the response's Connection field has more than {MAX_OPTIONS} options")]
    TooManyOptions,
    #[error("the response's length is ambiguous")]
    Framing,
    #[error("the response switches protocols without a request to")]
    Unasked,
}

// === impl Interims ===

impl Interims {
    /// Counts an interim response. Returns whether the member may go on.
    pub(in crate::http) fn allow(&mut self, length: usize) -> bool {
        self.bytes = self.bytes.saturating_add(length);
        self.bytes <= MAX_INTERIMS
    }
}

// === impl ResponseHead ===

impl<'h, 'b> ResponseHead<'h, 'b> {
    /// Reads the head at the beginning of `bytes`, an answer to the given request; `None` while it
    /// is incomplete.
    pub(in crate::http) fn read(
        bytes: &'b [u8],
        buffer: &'h mut FieldBuffer<'b>,
        request: RequestFacts,
    ) -> Result<Option<Self>, BadResponse> {
        let mut response = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let parsed =
            config.parse_response_with_uninit_headers(&mut response, bytes, &mut buffer.fields);
        let length = match parsed {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(BadResponse::TooManyFields),
            Err(_) => return Err(BadResponse::Head),
        };
        let (Some(status), Some(version)) = (response.code, response.version) else {
            return Ok(None);
        };
        if status < 100 {
            return Err(BadResponse::Head);
        }
        let version = if version == 0 {
            Version::Http10
        } else {
            Version::Http11
        };
        let fields = Fields::classify(response.headers, &mut buffer.marks)
            .map_err(|_| BadResponse::TooManyOptions)?;
        if status == 101 && !request.upgrade {
            return Err(BadResponse::Unasked);
        }
        let framing = fields.response_framing(version, status, request.is_head)?;
        let facts = ResponseFacts {
            length,
            status,
            framing,
            keep_alive: framing != Framing::UntilClose && fields.connection().keeps_alive(version),
        };
        Ok(Some(Self {
            reason: response.reason.unwrap_or_default(),
            fields,
            facts,
        }))
    }

    pub(in crate::http) fn facts(&self) -> ResponseFacts {
        self.facts
    }

    /// The head for an HTTP/2 client.
    pub(in crate::http) fn to_response(&self) -> http::Response<()> {
        let mut response = http::Response::new(());
        *response.status_mut() =
            http::StatusCode::from_u16(self.facts.status).unwrap_or(http::StatusCode::BAD_GATEWAY);
        for (field, &kind) in self.fields.all.iter().zip(self.fields.kinds) {
            let passes = match kind {
                Field::Connection | Field::TransferEncoding | Field::HopByHop | Field::Upgrade => {
                    false
                }
                _ => !self.fields.is_nominated(field.name),
            };
            let name = http::HeaderName::from_bytes(field.name.as_bytes());
            let value = http::HeaderValue::from_bytes(field.value);
            if let (true, Ok(name), Ok(value)) = (passes, name, value) {
                response.headers_mut().append(name, value);
            }
        }
        response
    }

    /// Writes the head for an HTTP/1 client.
    pub(in crate::http) fn write(&self, style: ResponseStyle, out: &mut Vec<u8>) {
        let status = self.facts.status;
        let bodiless = matches!(status, 100..=199 | 204 | 304);
        out.reserve(self.facts.length + ADDED);
        status_line(status, self.reason, out);
        for (field, &kind) in self.fields.all.iter().zip(self.fields.kinds) {
            let passes = match kind {
                // RFC 9110 section 8.6 forbids it in some; 304 describes the 200 that would have
                // been.
                Field::ContentLength => !bodiless || status == 304,
                Field::Upgrade => status == 101 || status == 426,
                Field::Connection | Field::TransferEncoding | Field::HopByHop => false,
                Field::Host
                | Field::Expect
                | Field::ForwardedFor
                | Field::ForwardedProto
                | Field::ForwardedPort
                | Field::Vouching
                | Field::Lookalike
                | Field::Other => !self.fields.is_nominated(field.name),
            };
            if passes {
                line(field.name, field.value, out);
            }
        }
        // The answer to HEAD says how the one to GET would be framed.
        let chunked = self.fields.has(Field::TransferEncoding) && !bodiless;
        if (chunked || style.enchunk) && style.version == Version::Http11 {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        end(status, style, out);
    }
}

// === impl Fields ===

/// What only responses say.
impl Fields<'_, '_> {
    fn response_framing(
        &self,
        version: Version,
        status: u16,
        to_head: bool,
    ) -> Result<Framing, BadResponse> {
        let chunked = self.has(Field::TransferEncoding);
        let mut lengths = self.of(Field::ContentLength);
        let framing = match (chunked, lengths.next(), lengths.next()) {
            (true, None, _) if version == Version::Http11 => {
                let mut codings = self
                    .of(Field::TransferEncoding)
                    .flat_map(|field| list(field.value));
                match (codings.next(), codings.next()) {
                    (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => {
                        Framing::Chunked
                    }
                    _ => return Err(BadResponse::Framing),
                }
            }
            (false, Some(length), None) => {
                Framing::Length(number(length.value).ok_or(BadResponse::Framing)?)
            }
            (false, None, _) => Framing::UntilClose,
            _ => return Err(BadResponse::Framing),
        };
        Ok(match status {
            _ if to_head => Framing::Empty,
            100..=199 | 204 | 304 => Framing::Empty,
            _ => framing,
        })
    }
}

/// Writes the head of a response that came over HTTP/2, from which hop-by-hop fields were taken
/// out, for an HTTP/1 client.
pub(in crate::http) fn write_response(
    status: u16,
    headers: &http::HeaderMap,
    style: ResponseStyle,
    out: &mut Vec<u8>,
) {
    let reason = http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason());
    status_line(status, reason.unwrap_or_default(), out);
    for (name, value) in headers {
        // As above (RFC 9110 section 8.6).
        if *name != http::header::CONTENT_LENGTH || status != 204 {
            line(name.as_str(), value.as_bytes(), out);
        }
    }
    if style.enchunk && style.version == Version::Http11 {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    end(status, style, out);
}

fn status_line(status: u16, reason: &str, out: &mut Vec<u8>) {
    let digit = |place: u16| b'0' + (status / place % 10) as u8;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&[digit(100), digit(10), digit(1), b' ']);
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn end(status: u16, style: ResponseStyle, out: &mut Vec<u8>) {
    match (status, style.keep_alive, style.version) {
        (101, ..) => out.extend_from_slice(b"Connection: upgrade\r\n"),
        (100..=199, ..) | (_, true, Version::Http11) => {}
        (_, true, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (_, false, _) => out.extend_from_slice(b"Connection: close\r\n"),
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
