//! The answer that sends a client to the same resource under `https`. Pure. The host is the one
//! that
//! the client itself asked for, if it is one: nothing else in a request can choose it.

use std::net::Ipv6Addr;

use landfall_model::listener::Redirect;

use super::refusal::Refusal;

/// Where a client is sent, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RedirectTarget {
    pub(super) status: http::StatusCode,
    pub(super) location: String,
}

/// The answer to a request for this host, in origin form or `*`.
pub(super) fn elsewhere(
    redirect: Redirect,
    authority: &[u8],
    target: &str,
) -> Result<RedirectTarget, Refusal> {
    let host = host(authority).ok_or(Refusal::Malformed("the host is invalid"))?;
    let target = if target == "*" { "/" } else { target };
    if !target.starts_with('/') || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Refusal::Malformed("the target can't be repeated"));
    }
    let location = match redirect.port.get() {
        443 => format!("https://{host}{target}"),
        port => format!("https://{host}:{port}{target}"),
    };
    let status = http::StatusCode::from_u16(redirect.status.code());
    Ok(RedirectTarget {
        status: status.unwrap_or(http::StatusCode::PERMANENT_REDIRECT),
        location,
    })
}

/// The host of an authority without its port. Only names and addresses: what else may stand there
/// by the grammar of URIs, browsers read in ways of their own.
fn host(authority: &[u8]) -> Option<&str> {
    let authority = std::str::from_utf8(authority).ok()?;
    let (host, rest) = if let Some(inside) = authority.strip_prefix('[') {
        let (address, rest) = inside.split_once(']')?;
        address.parse::<Ipv6Addr>().ok()?;
        (authority.get(..address.len() + 2)?, rest)
    } else {
        let end = authority.find(':').unwrap_or(authority.len());
        authority.split_at_checked(end)?
    };
    let is_port = match rest.strip_prefix(':') {
        Some(port) => port.bytes().all(|byte| byte.is_ascii_digit()) && port.len() <= 5,
        None => rest.is_empty(),
    };
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_host = host.starts_with('[')
        || ((1..=253).contains(&host.len())
            && host.bytes().all(of_name)
            && !host.starts_with(['.', '-']));
    (is_port && is_host).then_some(host)
}

// === impl RedirectTarget ===

impl RedirectTarget {
    /// The whole response for an HTTP/1 client.
    pub(super) fn write(&self, keep_alive: bool, out: &mut Vec<u8>) {
        let reason = self.status.canonical_reason().unwrap_or_default();
        let close = if keep_alive {
            ""
        } else {
            "connection: close\r\n"
        };
        let text = format!(
            "HTTP/1.1 {} {reason}\r\nlocation: {}\r\ncontent-length: 0\r\n{close}\r\n",
            self.status.as_str(),
            self.location
        );
        out.extend_from_slice(text.as_bytes());
    }

    /// The same for HTTP/2.
    pub(super) fn response<T: Default>(&self) -> http::Response<T> {
        let mut response = http::Response::new(T::default());
        *response.status_mut() = self.status;
        if let Ok(location) = self.location.parse() {
            response
                .headers_mut()
                .insert(http::header::LOCATION, location);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use landfall_model::listener::RedirectStatus;

    use super::*;

    fn sent(port: u16, authority: &str, target: &str) -> Option<String> {
        let redirect = Redirect {
            status: RedirectStatus::Permanent,
            port: NonZeroU16::new(port).unwrap(),
        };
        let sent = elsewhere(redirect, authority.as_bytes(), target).ok()?;
        assert_eq!(sent.status, 308);
        Some(sent.location)
    }

    #[test]
    fn host_path_and_query_stay_and_the_port_becomes_the_other_one() {
        for (port, authority, target, location) in [
            (443, "web.example", "/a?b=c", "https://web.example/a?b=c"),
            (443, "web.example:8080", "/", "https://web.example/"),
            (8443, "web.example:80", "/", "https://web.example:8443/"),
            (
                8443,
                "[2001:db8::1]:80",
                "/x",
                "https://[2001:db8::1]:8443/x",
            ),
            (
                443,
                "192.0.2.1",
                "//evil.example",
                "https://192.0.2.1//evil.example",
            ),
            (443, "web.example:", "*", "https://web.example/"),
        ] {
            assert_eq!(sent(port, authority, target).as_deref(), Some(location));
        }
    }

    #[test]
    fn what_is_no_host_is_not_sent_anywhere() {
        for authority in [
            "",
            ":80",
            "user@evil.example",
            "web.example:80@evil.example",
            "web.example:80:90",
            "web.example/evil",
            "web.example\\evil",
            "web.example,evil",
            "web.example;evil",
            "[::1",
            "[::1]evil",
            "[evil]",
            ".evil",
            "web.example:999999",
        ] {
            assert_eq!(sent(443, authority, "/"), None, "{authority:?}");
        }
        assert_eq!(sent(443, "web.example", "evil"), None);
        assert_eq!(sent(443, "web.example", "/a\u{e9}"), None);
    }
}
