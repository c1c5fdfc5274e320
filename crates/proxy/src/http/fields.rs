//! Which header fields a proxy must not pass on (RFC 9110 section 7.6.1), and which ones it adds.
//! Pure; the same rules for heads as bytes (HTTP/1) and as maps (HTTP/2).

use std::net::{IpAddr, SocketAddr};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use landfall_model::listener::Http;

/// Field names that mean something to the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Host,
    Connection,
    ContentLength,
    TransferEncoding,
    Upgrade,
    Expect,
    /// `TE`, `Keep-Alive`, `Proxy-Connection`, `HTTP2-Settings`: for the next hop only.
    HopByHop,
    ForwardedFor,
    ForwardedProto,
    ForwardedPort,
    /// `Forwarded`, `X-Real-IP` and every other `X-Forwarded-`: what else proxies say of a client.
    Vouching,
    /// One of the fields above with `_` for `-`. What reads fields as CGI does takes it for that
    /// field; no client needs it.
    Lookalike,
    /// Everything else: passes unread.
    Other,
}

/// What the fields that the proxy adds say about one client connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forwarding {
    http: Http,
    client: IpAddr,
    secure: bool,
    port: u16,
}

const REAL_IP: &str = "X-Real-IP";
const FORWARDED: &str = "X-Forwarded-";
const FORWARDED_FOR: &str = "X-Forwarded-For";
const FORWARDED_PROTO: &str = "X-Forwarded-Proto";
const FORWARDED_PORT: &str = "X-Forwarded-Port";

// === impl Field ===

impl Field {
    /// The field of a name, in any case.
    pub(super) fn of(name: &[u8]) -> Self {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        match name.len() {
            2 if is("te") => Self::HopByHop,
            4 if is("host") => Self::Host,
            6 if is("expect") => Self::Expect,
            7 if is("upgrade") => Self::Upgrade,
            9 if is("forwarded") || is(REAL_IP) => Self::Vouching,
            10 if is("connection") => Self::Connection,
            10 if is("keep-alive") => Self::HopByHop,
            14 if is("content-length") => Self::ContentLength,
            14 if is("http2-settings") => Self::HopByHop,
            15 if is(FORWARDED_FOR) => Self::ForwardedFor,
            16 if is("proxy-connection") => Self::HopByHop,
            16 if is(FORWARDED_PORT) => Self::ForwardedPort,
            17 if is("transfer-encoding") => Self::TransferEncoding,
            17 if is(FORWARDED_PROTO) => Self::ForwardedProto,
            _ if begins_with(name, FORWARDED) => Self::Vouching,
            _ if name.contains(&b'_') => Self::behind_underscores(name),
            _ => Self::Other,
        }
    }

    fn behind_underscores(name: &[u8]) -> Self {
        let hyphen = |byte: &u8| if *byte == b'_' { b'-' } else { *byte };
        let plain: Vec<u8> = name.iter().map(hyphen).collect();
        match Self::of(&plain) {
            Self::Other => Self::Other,
            _ => Self::Lookalike,
        }
    }
}

fn begins_with(name: &[u8], beginning: &str) -> bool {
    let start = name.get(..beginning.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(beginning.as_bytes()))
}

/// The members of a comma-separated list, without empty ones (RFC 9110 section 5.6.1).
pub(super) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty())
}

/// Whether a trailer field may be passed on: fields that frame, route or vouch for a message only
/// count in its head, and some servers would take them from here as if they stood there (RFC 9110
/// section 6.5.1).
pub(super) fn allowed_in_trailers(name: &[u8]) -> bool {
    matches!(Field::of(name), Field::Other)
        && ![
            "trailer",
            "authorization",
            "cookie",
            "set-cookie",
            "content-encoding",
            "content-type",
            "content-range",
        ]
        .iter()
        .any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

/// Takes out of the trailers of a request what may not be passed on.
pub(super) fn strip_trailers(trailers: &mut HeaderMap) {
    let goes = |name: &&HeaderName| !allowed_in_trailers(name.as_str().as_bytes());
    let gone: Vec<HeaderName> = trailers.keys().filter(goes).cloned().collect();
    for name in gone {
        trailers.remove(name);
    }
}

// === impl Forwarding ===

impl Forwarding {
    /// What is forwarded about a client of a port.
    pub(super) fn new(http: Http, client: SocketAddr, secure: bool, port: u16) -> Self {
        Self {
            http,
            client: client.ip().to_canonical(),
            secure,
            port,
        }
    }

    /// Whether the field of a request does not pass as it is: the proxy's own replaces it, or
    /// no proxy that could have written it is believed.
    pub(super) fn replaces(&self, field: Field) -> bool {
        let believes_none = self.http.trusted_hops == Some(0);
        match field {
            Field::ForwardedFor => self.http.forwarded_for || self.http.trusted_hops.is_some(),
            Field::ForwardedProto => self.http.forwarded_proto || believes_none,
            Field::ForwardedPort => self.http.forwarded_port || believes_none,
            Field::Vouching => believes_none,
            _ => false,
        }
    }

    /// Writes the added lines. `before` holds the values of the request's own `X-Forwarded-For`
    /// fields, which stay in front of the client's address: one line for members that read only
    /// one.
    pub(super) fn write(&self, before: &[&[u8]], out: &mut Vec<u8>) {
        if !before.is_empty() {
            let client = self.forwarded_for(before);
            if !client.is_empty() {
                push_all(out, &[FORWARDED_FOR.as_bytes(), b": ", &client, b"\r\n"]);
            }
        } else if self.http.forwarded_for {
            push_all(out, &[FORWARDED_FOR.as_bytes(), b": "]);
            push_address(out, self.client);
            out.extend_from_slice(b"\r\n");
        }
        if self.http.forwarded_proto {
            let scheme = self.scheme().as_bytes();
            push_all(out, &[FORWARDED_PROTO.as_bytes(), b": ", scheme, b"\r\n"]);
        }
        if self.http.forwarded_port {
            push_all(out, &[FORWARDED_PORT.as_bytes(), b": "]);
            push_number(out, self.port);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Does the same to a map.
    pub(super) fn insert(&self, headers: &mut HeaderMap) {
        if self.http.forwarded_proto {
            let scheme = HeaderValue::from_static(self.scheme());
            headers.insert(HeaderName::from_static("x-forwarded-proto"), scheme);
        }
        if self.http.forwarded_port {
            let port = HeaderValue::from(self.port);
            headers.insert(HeaderName::from_static("x-forwarded-port"), port);
        }
        if self.replaces(Field::ForwardedFor) {
            let name = HeaderName::from_static("x-forwarded-for");
            let before: Vec<_> = headers
                .get_all(&name)
                .iter()
                .map(HeaderValue::as_bytes)
                .collect();
            let value = self.forwarded_for(&before);
            // Made of values and an address, so it is always one.
            match HeaderValue::from_bytes(&value) {
                Ok(value) if !value.is_empty() => drop(headers.insert(name, value)),
                Ok(_) | Err(_) => drop(headers.remove(name)),
            }
        }
    }

    /// Takes out of a map what the client may not say of itself.
    pub(super) fn strip(&self, headers: &mut HeaderMap) {
        let goes = |name: &&HeaderName| match Field::of(name.as_str().as_bytes()) {
            Field::Lookalike => true,
            // What is kept of it is forwarded with the client's own address.
            Field::ForwardedFor => false,
            field => self.replaces(field),
        };
        let gone: Vec<HeaderName> = headers.keys().filter(goes).cloned().collect();
        for name in gone {
            headers.remove(name);
        }
    }

    /// The address that a request is counted for: the one that the outermost believed proxy named,
    /// else the peer's.
    pub(super) fn source<'a>(&self, before: impl DoubleEndedIterator<Item = &'a [u8]>) -> IpAddr {
        let hops = usize::from(self.http.trusted_hops.unwrap_or(0));
        let named = before.rev().flat_map(|value| {
            let all: Vec<&[u8]> = list(value).collect();
            all.into_iter().rev()
        });
        // Where fewer stand there than there are proxies, the first is as far as it goes.
        let named = named.take(hops).last();
        named
            .and_then(|address| std::str::from_utf8(address).ok())
            .and_then(|address| address.parse().ok())
            .unwrap_or(self.client)
    }

    /// The client after those before it that are believed; empty where it is not to be forwarded.
    fn forwarded_for(&self, before: &[&[u8]]) -> Vec<u8> {
        let all: Vec<&[u8]>;
        let before = match self.http.trusted_hops {
            None if self.http.forwarded_for => before,
            None => &[],
            Some(hops) => {
                // The one in front wrote the last address, and so on.
                all = before.iter().flat_map(|value| list(value)).collect();
                let first = all.len().saturating_sub(usize::from(hops));
                all.get(first..).unwrap_or_default()
            }
        };
        let client = self.http.forwarded_for.then(|| self.client.to_string());
        let client = client.as_deref().unwrap_or_default().as_bytes();
        let said: Vec<&[u8]> = before
            .iter()
            .copied()
            .chain([client])
            .filter(|address| !address.is_empty())
            .collect();
        said.join(&b", "[..])
    }

    fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }
}

fn push_all(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// Writes an address, for every request: most are of IPv4, and formatting machinery takes longer
/// than all other lines together.
fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            let [first, rest @ ..] = address.octets();
            push_number(out, first.into());
            for octet in rest {
                out.push(b'.');
                push_number(out, octet.into());
            }
        }
        IpAddr::V6(address) => out.extend_from_slice(address.to_string().as_bytes()),
    }
}

fn push_number(out: &mut Vec<u8>, number: u16) {
    for unit in [10_000, 1000, 100, 10] {
        if number >= unit {
            out.push(b'0' + (number / unit % 10) as u8);
        }
    }
    out.push(b'0' + (number % 10) as u8);
}

/// Takes out of a map what is for one hop only, with everything that `Connection` names. Keeps
/// `TE: trailers` where the next hop speaks HTTP/2, because gRPC members insist on it.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap, keep_te_trailers: bool) {
    let nominated: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| list(value.as_bytes()))
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        // Framing and routing of the message are not for its sender to switch off.
        .filter(|name| *name != header::CONTENT_LENGTH && *name != header::HOST)
        .collect();
    let wants_trailers = keep_te_trailers
        && headers
            .get_all(header::TE)
            .iter()
            .flat_map(|value| list(value.as_bytes()))
            .any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
    for name in nominated {
        headers.remove(name);
    }
    for name in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
    ] {
        headers.remove(name);
    }
    if wants_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Http = Http {
        forwarded_for: true,
        forwarded_proto: true,
        forwarded_port: true,
        member_http2: false,
        trusted_hops: None,
    };

    fn forwarding(http: Http) -> Forwarding {
        Forwarding::new(http, "[::ffff:192.0.2.7]:5000".parse().unwrap(), true, 8443)
    }

    fn written(forwarding: &Forwarding, before: &[&[u8]]) -> String {
        let mut out = Vec::new();
        forwarding.write(before, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn map(fields: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn fields(headers: &HeaderMap) -> Vec<(&str, &str)> {
        headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect()
    }

    #[test]
    fn the_client_is_named_after_those_before_it() {
        assert_eq!(
            written(&forwarding(ALL), &[]),
            "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 8443\r\n"
        );
        assert_eq!(
            written(
                &forwarding(ALL),
                &[b"198.51.100.1", b"", b"203.0.113.2, 10.0.0.1"]
            ),
            "X-Forwarded-For: 198.51.100.1, 203.0.113.2, 10.0.0.1, 192.0.2.7\r\n\
             X-Forwarded-Proto: https\r\nX-Forwarded-Port: 8443\r\n"
        );
        assert_eq!(
            written(&forwarding(Http::default()), &[b"198.51.100.1"]),
            ""
        );
    }

    #[test]
    fn a_map_gets_the_same_fields() {
        let mut headers = map(&[
            ("x-forwarded-for", "198.51.100.1"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-for", "203.0.113.2"),
        ]);
        forwarding(ALL).insert(&mut headers);
        assert_eq!(
            fields(&headers),
            [
                ("x-forwarded-for", "198.51.100.1, 203.0.113.2, 192.0.2.7"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-port", "8443"),
            ]
        );
        let mut untouched = map(&[("x-forwarded-for", "198.51.100.1")]);
        forwarding(Http::default()).insert(&mut untouched);
        assert_eq!(fields(&untouched), [("x-forwarded-for", "198.51.100.1")]);
    }

    #[test]
    fn as_many_proxies_are_believed_as_are_trusted() {
        let before = [&b"6.6.6.6, 198.51.100.1"[..], b"203.0.113.2"];
        let with = |hops, forwarded_for| {
            let http = Http {
                forwarded_for,
                trusted_hops: Some(hops),
                ..Http::default()
            };
            let written = written(&forwarding(http), &before);
            let mut headers = map(&[
                ("x-forwarded-for", "6.6.6.6, 198.51.100.1"),
                ("x-forwarded-for", "203.0.113.2"),
            ]);
            forwarding(http).insert(&mut headers);
            let in_map = headers.get("x-forwarded-for");
            let in_map =
                in_map.map(|value| format!("X-Forwarded-For: {}\r\n", value.to_str().unwrap()));
            assert_eq!(in_map.unwrap_or_default(), written);
            written
        };
        assert_eq!(with(0, true), "X-Forwarded-For: 192.0.2.7\r\n");
        assert_eq!(with(0, false), "");
        assert_eq!(with(1, true), "X-Forwarded-For: 203.0.113.2, 192.0.2.7\r\n");
        assert_eq!(with(1, false), "X-Forwarded-For: 203.0.113.2\r\n");
        assert_eq!(
            with(2, true),
            "X-Forwarded-For: 198.51.100.1, 203.0.113.2, 192.0.2.7\r\n"
        );
        assert_eq!(
            with(10, true),
            "X-Forwarded-For: 6.6.6.6, 198.51.100.1, 203.0.113.2, 192.0.2.7\r\n"
        );
    }

    #[test]
    fn where_none_is_believed_nothing_that_vouches_passes() {
        let said = [
            ("forwarded", "for=6.6.6.6"),
            ("x-real-ip", "6.6.6.6"),
            ("x-forwarded-host", "evil"),
            ("x-forwarded-client-cert", "By=evil"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-port", "1"),
            ("x-own", "1"),
        ];
        let left = |hops| {
            let forwarding = forwarding(Http {
                trusted_hops: hops,
                ..Http::default()
            });
            let mut headers = map(&said);
            forwarding.strip(&mut headers);
            headers.len()
        };
        assert_eq!((left(Some(0)), left(Some(1)), left(None)), (1, 7, 7));
    }

    #[test]
    fn what_looks_like_a_field_that_vouches_or_frames_never_passes() {
        let mut headers = map(&[
            ("x_forwarded_for", "6.6.6.6"),
            ("x-forwarded_proto", "https"),
            ("x_forwarded_client_cert", "By=evil"),
            ("x_real-ip", "6.6.6.6"),
            ("transfer_encoding", "chunked"),
            ("content_length", "5"),
            ("my_own", "1"),
        ]);
        forwarding(Http::default()).strip(&mut headers);
        assert_eq!(fields(&headers), [("my_own", "1")]);
    }

    #[test]
    fn only_enabled_fields_are_replaced() {
        let only_proto = forwarding(Http {
            forwarded_proto: true,
            ..Http::default()
        });
        assert!(only_proto.replaces(Field::ForwardedProto));
        assert!(!only_proto.replaces(Field::ForwardedFor));
        assert!(!only_proto.replaces(Field::ForwardedPort));
        assert!(!only_proto.replaces(Field::Other));
    }

    #[test]
    fn what_is_for_one_hop_goes_and_nothing_else() {
        let mut headers = map(&[
            ("host", "a.example"),
            ("connection", "close, X-Private"),
            ("connection", "content-length,host"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers, gzip"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABkAAQAAP__"),
            ("content-length", "5"),
            ("x-public", "2"),
        ]);
        let mut for_http2 = headers.clone();
        strip_hop_by_hop(&mut headers, false);
        let kept = [
            ("host", "a.example"),
            ("content-length", "5"),
            ("x-public", "2"),
        ];
        for (name, value) in kept {
            assert_eq!(headers.get(name).unwrap(), value);
        }
        assert_eq!(headers.len(), kept.len(), "{headers:?}");
        strip_hop_by_hop(&mut for_http2, true);
        assert_eq!(for_http2.get("te").unwrap(), "trailers");
        assert_eq!(for_http2.len(), kept.len() + 1);
    }

    #[test]
    fn fields_are_known_in_any_case() {
        for (name, field) in [
            ("HOST", Field::Host),
            ("Te", Field::HopByHop),
            ("Keep-alive", Field::HopByHop),
            ("content-LENGTH", Field::ContentLength),
            ("X-FORWARDED-PROTO", Field::ForwardedProto),
            ("X-Forwarded-Host", Field::Vouching),
            ("X-REAL-ip", Field::Vouching),
            ("forwarded", Field::Vouching),
            ("X-Forwarded-Hist", Field::Vouching),
            ("X-Forwarded", Field::Other),
            ("X_Forwarded-FOR", Field::Lookalike),
            ("Transfer_Encoding", Field::Lookalike),
            ("X_Own", Field::Other),
            ("", Field::Other),
        ] {
            assert_eq!(Field::of(name.as_bytes()), field, "{name}");
        }
    }

    #[test]
    fn lists_are_taken_apart() {
        let members: Vec<_> = list(b" a ,, b;q=1,\t").collect();
        assert_eq!(members, [&b"a"[..], b"b;q=1"]);
        assert_eq!(list(b"").count(), 0);
    }
}
