//! Heads of HTTP/1 messages (RFC 9112 sections 2 to 6): read strictly, with everything worked out that
//! the proxy must know, and written again for the other side. Pure.

use std::mem::MaybeUninit;

use httparse::Header;

use super::body::Framing;
use crate::http::fields::{Field, Forwarding, list};
use crate::http::refusal::Refusal;

/// Most fields in a head.
pub(in crate::http) const MAX_FIELDS: usize = 100;

/// Room for the fields of one head.
pub(in crate::http) struct Room<'b> {
    fields: [MaybeUninit<Header<'b>>; MAX_FIELDS],
    kinds: [Field; MAX_FIELDS],
}

/// HTTP/1.x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::http) enum Version {
    Http10,
    Http11,
}

/// A request's head, read and found good.
pub(in crate::http) struct RequestHead<'h, 'b> {
    method: &'b str,
    /// Origin form, or `*`.
    target: &'b str,
    /// From an absolute target; replaces `Host` (RFC 9112 section 3.2.2).
    authority: Option<&'b str>,
    fields: Fields<'h, 'b>,
    facts: RequestFacts,
}

/// What there is to know about a request once its head is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct RequestFacts {
    /// Bytes of the head.
    pub(in crate::http) length: usize,
    pub(in crate::http) version: Version,
    pub(in crate::http) framing: Framing,
    /// The client means to send another request.
    pub(in crate::http) keep_alive: bool,
    /// `HEAD`: the response has no body, whatever it says.
    pub(in crate::http) is_head: bool,
    /// Sending it twice does no harm (RFC 9110 section 9.2.2).
    pub(in crate::http) is_idempotent: bool,
    /// The client asks to go on with another protocol.
    pub(in crate::http) upgrade: bool,
}

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

/// A member's response that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::http) enum BadResponse {
    #[error("the head of the response is broken")]
    Head,
    #[error("the head of the response has more than {MAX_FIELDS} fields")]
    TooManyFields,
    #[error("the response's length can't be told for sure")]
    Framing,
    #[error("the response switches protocols without being asked to")]
    Unasked,
}

struct Fields<'h, 'b> {
    all: &'h [Header<'b>],
    kinds: &'h [Field],
}

// === impl Room ===

impl Room<'_> {
    pub(in crate::http) fn new() -> Self {
        Self {
            fields: [const { MaybeUninit::uninit() }; MAX_FIELDS],
            kinds: [Field::Other; MAX_FIELDS],
        }
    }
}

// === impl RequestHead ===

impl<'h, 'b> RequestHead<'h, 'b> {
    /// Reads the head at the beginning of `bytes`; `None` while it is incomplete.
    pub(in crate::http) fn read(
        bytes: &'b [u8],
        room: &'h mut Room<'b>,
    ) -> Result<Option<Self>, Refusal> {
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(bytes, &mut room.fields);
        let length = match parsed {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(Refusal::HeadTooLarge),
            Err(httparse::Error::Version) => return Err(Refusal::Version),
            Err(_) => return Err(Refusal::Malformed("the head is broken")),
        };
        let (Some(method), Some(target), Some(version)) =
            (request.method, request.path, request.version)
        else {
            return Ok(None);
        };
        let version = if version == 0 {
            Version::Http10
        } else {
            Version::Http11
        };
        let fields = Fields::classify(request.headers, &mut room.kinds);
        let (target, authority) = self::target(method, target)?;
        fields.check_host(version)?;
        let connection = fields.connection();
        let framing = fields.request_framing(version)?;
        let facts = RequestFacts {
            length,
            version,
            framing,
            keep_alive: connection.keeps_alive(version),
            is_head: method == "HEAD",
            is_idempotent: matches!(
                method,
                "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"
            ),
            // Where a body comes first, the switch could not be told from the body's end.
            upgrade: connection.upgrade
                && version == Version::Http11
                && framing == Framing::Empty
                && fields.may_upgrade(),
        };
        Ok(Some(Self {
            method,
            target,
            authority,
            fields,
            facts,
        }))
    }

    pub(in crate::http) fn facts(&self) -> RequestFacts {
        self.facts
    }

    /// Writes the head for an HTTP/1.1 member.
    pub(in crate::http) fn write(&self, forwarding: &Forwarding, out: &mut Vec<u8>) {
        for part in [self.method, " ", self.target, " HTTP/1.1\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        if let Some(authority) = self.authority {
            line("Host", authority.as_bytes(), out);
        }
        self.each_field(forwarding, |name, value| line(name, value, out));
        self.each_earlier(forwarding, |before| forwarding.write(before, out));
        if self.facts.framing == Framing::Chunked {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        if self.facts.upgrade {
            out.extend_from_slice(b"Connection: upgrade\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The head as a request for an HTTP/2 member.
    pub(in crate::http) fn to_http2(
        &self,
        forwarding: &Forwarding,
    ) -> Result<http::Request<()>, Refusal> {
        let host = self.fields.of(Field::Host).next().map(|field| field.value);
        let authority = self
            .authority
            .map(str::as_bytes)
            .or(host)
            .unwrap_or_default();
        let mut uri = http::Uri::builder().scheme(http::uri::Scheme::HTTP);
        if !authority.is_empty() {
            uri = uri.authority(authority);
        }
        let malformed = || Refusal::Malformed("the target or Host is broken");
        let uri = uri
            .path_and_query(self.target)
            .build()
            .map_err(|_| malformed())?;
        let mut request = http::Request::builder()
            .method(self.method)
            .version(http::Version::HTTP_2)
            .uri(uri)
            .body(())
            .map_err(|_| malformed())?;
        let headers = request.headers_mut();
        self.each_field(forwarding, |name, value| {
            let name = http::HeaderName::from_bytes(name.as_bytes());
            let value = http::HeaderValue::from_bytes(value);
            if let (Ok(name), Ok(value)) = (name, value)
                && name != http::header::HOST
                && name != http::header::UPGRADE
            {
                headers.append(name, value);
            }
        });
        for field in self.fields.of(Field::ForwardedFor) {
            if let Ok(value) = http::HeaderValue::from_bytes(field.value) {
                headers.append("x-forwarded-for", value);
            }
        }
        forwarding.insert(headers);
        Ok(request)
    }

    /// The fields that pass as they are.
    fn each_field(&self, forwarding: &Forwarding, mut take: impl FnMut(&str, &[u8])) {
        for (field, &kind) in self.fields.all.iter().zip(self.fields.kinds) {
            let passes = match kind {
                Field::Host => self.authority.is_none(),
                Field::ContentLength => true,
                Field::Upgrade => self.facts.upgrade,
                // Means nothing in HTTP/1.0 (RFC 9110 section 10.1.1).
                Field::Expect => self.facts.version == Version::Http11,
                Field::Connection | Field::TransferEncoding | Field::HopByHop => false,
                Field::ForwardedFor | Field::ForwardedProto | Field::ForwardedPort => {
                    !forwarding.replaces(kind) && !self.fields.is_nominated(field.name)
                }
                Field::Other => !self.fields.is_nominated(field.name),
            };
            if passes {
                take(field.name, field.value);
            }
        }
    }

    /// Hands over what earlier proxies said in `X-Forwarded-For`, where it is to be continued.
    fn each_earlier(&self, forwarding: &Forwarding, take: impl FnOnce(&[&[u8]])) {
        if !forwarding.replaces(Field::ForwardedFor) || !self.fields.has(Field::ForwardedFor) {
            return take(&[]);
        }
        let earlier: Vec<_> = self
            .fields
            .of(Field::ForwardedFor)
            .map(|field| field.value)
            .collect();
        take(&earlier);
    }
}

// === impl RequestFacts ===

impl RequestFacts {
    /// Those of a request that came over HTTP/2 and goes on framed like this.
    pub(in crate::http) fn of_http2(method: &http::Method, framing: Framing) -> Self {
        Self {
            length: 0,
            version: Version::Http11,
            framing,
            keep_alive: true,
            is_head: method == http::Method::HEAD,
            is_idempotent: method.is_idempotent(),
            upgrade: false,
        }
    }

    /// Whether the request can be sent again as it is: twice does no harm, and no part of it is gone.
    pub(in crate::http) fn may_be_repeated(self) -> bool {
        self.is_idempotent && self.framing == Framing::Empty
    }
}

// === impl ResponseHead ===

impl<'h, 'b> ResponseHead<'h, 'b> {
    /// Reads the head at the beginning of `bytes`, an answer to the given request; `None` while it is
    /// incomplete.
    pub(in crate::http) fn read(
        bytes: &'b [u8],
        room: &'h mut Room<'b>,
        request: RequestFacts,
    ) -> Result<Option<Self>, BadResponse> {
        let mut response = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let parsed =
            config.parse_response_with_uninit_headers(&mut response, bytes, &mut room.fields);
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
        let fields = Fields::classify(response.headers, &mut room.kinds);
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
        status_line(status, self.reason, out);
        for (field, &kind) in self.fields.all.iter().zip(self.fields.kinds) {
            let passes = match kind {
                // RFC 9110 section 8.6 forbids it in some; 304 tells of the 200 that would have been.
                Field::ContentLength => !bodiless || status == 304,
                Field::Upgrade => status == 101 || status == 426,
                Field::Connection | Field::TransferEncoding | Field::HopByHop => false,
                Field::Host
                | Field::Expect
                | Field::ForwardedFor
                | Field::ForwardedProto
                | Field::ForwardedPort
                | Field::Other => !self.fields.is_nominated(field.name),
            };
            if passes {
                line(field.name, field.value, out);
            }
        }
        // The answer to HEAD tells how the one to GET would be framed.
        let chunked = self.fields.has(Field::TransferEncoding) && !bodiless;
        if (chunked || style.enchunk) && style.version == Version::Http11 {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        end(status, style, out);
    }
}

/// Writes the head of a request that came over HTTP/2, from which hop-by-hop fields and `Host` were taken
/// out, for an HTTP/1.1 member. Tells how its body, if any, is to be framed.
pub(in crate::http) fn write_request(
    parts: &http::request::Parts,
    authority: &str,
    is_empty: bool,
    out: &mut Vec<u8>,
) -> Framing {
    let path = parts
        .uri
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    for part in [parts.method.as_str(), " ", path, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    line("host", authority.as_bytes(), out);
    for (name, value) in &parts.headers {
        if name != http::header::COOKIE {
            line(name.as_str(), value.as_bytes(), out);
        }
    }
    // Cookies may come in pieces, which HTTP/1.1 does not know (RFC 9113 section 8.2.3).
    let cookies: Vec<_> = parts.headers.get_all(http::header::COOKIE).iter().collect();
    if !cookies.is_empty() {
        let pieces: Vec<_> = cookies.iter().map(|cookie| cookie.as_bytes()).collect();
        line("cookie", &pieces.join(&b"; "[..]), out);
    }
    let length = parts.headers.get(http::header::CONTENT_LENGTH);
    let framing = match length.map(|length| number(length.as_bytes())) {
        Some(length) => Framing::Length(length.unwrap_or_default()),
        None if is_empty => Framing::Empty,
        None => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Framing::Chunked
        }
    };
    let wants_length = matches!(parts.method.as_str(), "POST" | "PUT" | "PATCH");
    if framing == Framing::Empty && wants_length {
        out.extend_from_slice(b"content-length: 0\r\n");
    }
    out.extend_from_slice(b"\r\n");
    framing
}

/// Writes the head of a response that came over HTTP/2, from which hop-by-hop fields were taken out,
/// for an HTTP/1 client.
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
        line(name.as_str(), value.as_bytes(), out);
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

fn line(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The target as a member is to see it, and the authority in it (RFC 9112 section 3.2).
fn target<'b>(method: &str, target: &'b str) -> Result<(&'b str, Option<&'b str>), Refusal> {
    if method == "CONNECT" {
        return Err(Refusal::Connect);
    }
    if target.starts_with('/') || (target == "*" && method == "OPTIONS") {
        return Ok((target, None));
    }
    let refused = Refusal::Malformed("the request target is broken");
    let (scheme, rest) = target.split_once("://").ok_or(refused)?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(refused);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.is_empty() || !is_host(authority.as_bytes()) {
        return Err(refused);
    }
    match path {
        "" if method == "OPTIONS" => Ok(("*", Some(authority))),
        "" => Ok(("/", Some(authority))),
        path if path.starts_with('/') => Ok((path, Some(authority))),
        _ => Err(refused),
    }
}

/// Whether a value may stand in `Host`: a name, an address, a port; nothing that could end up as another
/// field, path or user (RFC 3986 section 3.2.2).
pub(in crate::http) fn is_host(value: &[u8]) -> bool {
    value
        .iter()
        .all(|&byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(&byte))
}

// === impl Fields ===

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    close: bool,
    keep_alive: bool,
    upgrade: bool,
}

impl<'h, 'b> Fields<'h, 'b> {
    fn classify(all: &'h [Header<'b>], kinds: &'h mut [Field; MAX_FIELDS]) -> Self {
        for (field, kind) in all.iter().zip(kinds.iter_mut()) {
            *kind = Field::of(field.name.as_bytes());
        }
        Self { all, kinds }
    }

    fn of(&self, wanted: Field) -> impl Iterator<Item = &'h Header<'b>> {
        let found = self
            .all
            .iter()
            .zip(self.kinds)
            .filter(move |&(_, &kind)| kind == wanted);
        found.map(|(field, _)| field)
    }

    fn has(&self, wanted: Field) -> bool {
        self.of(wanted).next().is_some()
    }

    fn connection(&self) -> Connection {
        let mut connection = Connection::default();
        for option in self
            .of(Field::Connection)
            .flat_map(|field| list(field.value))
        {
            connection.close |= option.eq_ignore_ascii_case(b"close");
            connection.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            connection.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
        connection
    }

    /// Whether `Connection` says that a field is for this hop only.
    fn is_nominated(&self, name: &str) -> bool {
        self.of(Field::Connection)
            .flat_map(|field| list(field.value))
            .any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    }

    fn check_host(&self, version: Version) -> Result<(), Refusal> {
        let mut hosts = self.of(Field::Host);
        match (hosts.next(), hosts.next(), version) {
            (Some(_), Some(_), _) => Err(Refusal::Malformed("more than one Host field")),
            (Some(host), None, _) if !is_host(host.value) => {
                Err(Refusal::Malformed("the Host field is broken"))
            }
            (None, _, Version::Http11) => Err(Refusal::Malformed("the Host field is missing")),
            _ => Ok(()),
        }
    }

    /// An upgrade to HTTP/2 would be between client and member, past everything that is done here.
    fn may_upgrade(&self) -> bool {
        let mut protocols = self
            .of(Field::Upgrade)
            .flat_map(|field| list(field.value))
            .peekable();
        protocols.peek().is_some()
            && !protocols.any(|protocol| {
                let name = protocol
                    .split(|&byte| byte == b'/')
                    .next()
                    .unwrap_or_default();
                [&b"h2c"[..], b"h2", b"http"]
                    .iter()
                    .any(|http| name.eq_ignore_ascii_case(http))
            })
    }

    /// RFC 9112 section 6.3, and stricter where that leaves a choice.
    fn request_framing(&self, version: Version) -> Result<Framing, Refusal> {
        let chunked = self.has(Field::TransferEncoding);
        let mut lengths = self.of(Field::ContentLength);
        match (chunked, lengths.next(), lengths.next()) {
            (true, Some(_), _) => Err(Refusal::Malformed(
                "both Transfer-Encoding and Content-Length",
            )),
            (true, None, _) if version == Version::Http10 => {
                Err(Refusal::Malformed("Transfer-Encoding in HTTP/1.0"))
            }
            (true, None, _) => {
                let mut codings = self
                    .of(Field::TransferEncoding)
                    .flat_map(|field| list(field.value));
                match (codings.next(), codings.next()) {
                    (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => {
                        Ok(Framing::Chunked)
                    }
                    (Some(coding), _) if !coding.eq_ignore_ascii_case(b"chunked") => {
                        Err(Refusal::Coding)
                    }
                    _ => Err(Refusal::Malformed("the Transfer-Encoding field is broken")),
                }
            }
            (false, Some(length), None) => number(length.value)
                .map(Framing::Length)
                .ok_or(Refusal::Malformed("the Content-Length field is broken")),
            (false, Some(_), Some(_)) => {
                Err(Refusal::Malformed("more than one Content-Length field"))
            }
            (false, None, _) => Ok(Framing::Empty),
        }
    }

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

impl Connection {
    fn keeps_alive(self, version: Version) -> bool {
        !self.close && (self.keep_alive || version == Version::Http11)
    }
}

/// Digits and nothing but digits.
fn number(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
