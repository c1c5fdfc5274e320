//! Heads of HTTP/1 requests (RFC 9112 section 3): read strictly, with everything worked out that
//! the proxy must know, and written again for the member. Pure.

use std::borrow::Cow;

use super::body::Framing;
use super::head::{ADDED, FieldBuffer, Fields, Version, is_host, line, number};
use crate::access_log::Note;
use crate::http::fields::{Field, Forwarding, list};
use crate::http::refusal::Refusal;

/// A request's head, read and found good.
pub(in crate::http) struct RequestHead<'h, 'b> {
    method: &'b str,
    /// Origin form, or `*`.
    target: Cow<'b, str>,
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
    /// The client waits for permission before it sends the body (RFC 9110 section 10.1.1).
    pub(in crate::http) expects_permission: bool,
    /// The client asks to go on with another protocol.
    pub(in crate::http) upgrade: bool,
}

// === impl RequestHead ===

impl<'h, 'b> RequestHead<'h, 'b> {
    /// Reads the head at the beginning of `bytes`; `None` while it is incomplete.
    pub(in crate::http) fn read(
        bytes: &'b [u8],
        buffer: &'h mut FieldBuffer<'b>,
    ) -> Result<Option<Self>, Refusal> {
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(bytes, &mut buffer.fields);
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
        let fields = Fields::classify(request.headers, &mut buffer.marks)
            .map_err(|_| Refusal::Malformed("the Connection field has too many options"))?;
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
            expects_permission: version == Version::Http11
                && !framing.is_empty()
                && fields.of(Field::Expect).any(|field| {
                    list(field.value).any(|value| value.eq_ignore_ascii_case(b"100-continue"))
                }),
            // Where a body comes first, the switch could not be distinguished from the body's end.
            upgrade: connection.upgrade
                && version == Version::Http11
                && framing.is_empty()
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

    /// The address that it is counted for.
    pub(in crate::http) fn source(&self, forwarding: &Forwarding) -> std::net::IpAddr {
        let earlier: Vec<&[u8]> = self
            .fields
            .of(Field::ForwardedFor)
            .map(|field| field.value)
            .collect();
        forwarding.source(earlier.into_iter())
    }

    /// Notes what is asked for.
    pub(in crate::http) fn describe(&self, note: &mut Note) {
        let version = match self.facts.version {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        };
        note.asked(version, (self.method, &self.target), |name| {
            if name == "host"
                && let Some(authority) = self.authority
            {
                return Some(authority.as_bytes());
            }
            let mut all = self.fields.all.iter();
            let found = all.find(|field| field.name.eq_ignore_ascii_case(name));
            found.map(|field| field.value)
        });
    }

    /// The host that is asked for, with its port if there is one.
    pub(in crate::http) fn host(&self) -> Option<&'b [u8]> {
        let field = || self.fields.of(Field::Host).next().map(|field| field.value);
        self.authority.map(str::as_bytes).or_else(field)
    }

    /// Origin form, or `*`.
    pub(in crate::http) fn target(&self) -> &str {
        &self.target
    }

    /// Writes the head for an HTTP/1.1 member.
    pub(in crate::http) fn write(&self, forwarding: &Forwarding, out: &mut Vec<u8>) {
        // In one piece, and with what is added of the client.
        out.reserve(self.facts.length + ADDED);
        for part in [self.method, " ", &self.target, " HTTP/1.1\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        // Without one, as HTTP/1.0 may be, it is empty (RFC 9112 section 3.2): members of HTTP/1.1
        // refuse what has none.
        if self.authority.is_some() || self.host().is_none() {
            let authority = self.authority.unwrap_or_default();
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
        let authority = self.host().unwrap_or_default();
        let mut uri = http::Uri::builder().scheme(http::uri::Scheme::HTTP);
        if !authority.is_empty() {
            uri = uri.authority(authority);
        }
        let malformed = || Refusal::Malformed("the target or Host is broken");
        let uri = uri
            .path_and_query(&*self.target)
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
                // Permission is given from here: what a member says ahead of its answer is not
                // read over HTTP/2.
                && name != http::header::EXPECT
            {
                headers.append(name, value);
            }
        });
        let earlier = self.fields.of(Field::ForwardedFor);
        for field in earlier.filter(|_| forwarding.replaces(Field::ForwardedFor)) {
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
                Field::Connection
                | Field::TransferEncoding
                | Field::HopByHop
                | Field::Lookalike => false,
                Field::ForwardedFor
                | Field::ForwardedProto
                | Field::ForwardedPort
                | Field::Vouching => {
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

// === impl Fields ===

/// What only requests say.
impl Fields<'_, '_> {
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

    /// An upgrade to HTTP/2, of any draft, would be between client and member, past everything that
    /// is done here. So would one to TLS, in which HTTP goes on (RFC 2817).
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
                let begins = |with: &[u8]| {
                    let first = name.get(..with.len());
                    first.is_some_and(|first| first.eq_ignore_ascii_case(with))
                };
                begins(b"h2") || begins(b"http") || begins(b"tls")
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
            // A zero in front makes it an octal number to some.
            (false, Some(length), None) => number(length.value)
                .filter(|_| length.value.len() == 1 || !length.value.starts_with(b"0"))
                .map(Framing::Length)
                .ok_or(Refusal::Malformed("the Content-Length field is broken")),
            (false, Some(_), Some(_)) => {
                Err(Refusal::Malformed("more than one Content-Length field"))
            }
            (false, None, _) => Ok(Framing::Empty),
        }
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
            expects_permission: false,
            upgrade: false,
        }
    }

    /// Whether the request can be sent again as it is: twice does no harm, and no part of it is
    /// gone.
    pub(in crate::http) fn may_be_repeated(self) -> bool {
        self.is_idempotent && self.framing == Framing::Empty
    }
}

/// Writes the head of a request that came over HTTP/2, from which hop-by-hop fields and `Host` were
/// taken out, for an HTTP/1.1 member. Returns how its body, if any, is to be framed.
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
        if name != http::header::COOKIE && name != http::header::CONTENT_LENGTH {
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
        Some(length) => {
            // Once, however often it was said: h2 has made sure that it was always the same.
            let length = length.unwrap_or_default();
            line("content-length", length.to_string().as_bytes(), out);
            Framing::Length(length)
        }
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

/// The target as a member is to see it, and the authority in it (RFC 9112 section 3.2).
fn target<'b>(method: &str, target: &'b str) -> Result<(Cow<'b, str>, Option<&'b str>), Refusal> {
    if method == "CONNECT" {
        return Err(Refusal::Connect);
    }
    let refused = Refusal::Malformed("the request target is broken");
    // No target has a fragment (RFC 9112 section 3.2): where it begins, servers disagree.
    if target.contains('#') {
        return Err(refused);
    }
    if target.starts_with('/') || (target == "*" && method == "OPTIONS") {
        return Ok((target.into(), None));
    }
    let (scheme, rest) = target.split_once("://").ok_or(refused)?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(refused);
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.is_empty() || !is_host(authority.as_bytes()) {
        return Err(refused);
    }
    let target = match path {
        "" if method == "OPTIONS" => "*".into(),
        "" => "/".into(),
        path if path.starts_with('/') => path.into(),
        // A query alone: its path is empty, which is the root (RFC 9110 section 4.2.3).
        query => format!("/{query}").into(),
    };
    Ok((target, Some(authority)))
}

#[cfg(test)]
mod tests;
