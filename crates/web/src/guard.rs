//! Keeps web pages of others away from the endpoint, and our own page to itself.
//!
//! **DNS rebinding.** The endpoint has no password because it listens on loopback. A hostile page
//! could still read it through the visitor's browser: it makes its own name resolve to 127.0.0.1,
//! and the browser then takes the endpoint for that page's own server. The one thing such a request
//! can't hide is the name in `Host`. So a name is only answered when no outsider can point it
//! here: `localhost`, an IP address (rebinding needs a name), or a name that the operator listed.
//!
//! **Cross-site requests.** Browsers name in `Sec-Fetch-Site` the origin of a request. Pages of
//! another site get nothing but refusals, so they can't make the instance compute plans.
//!
//! Must never read a request's body.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;

/// Names, beside loopback names and IP addresses, under which the endpoint answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Arc<BTreeSet<String>>);

/// Scripts, styles and pictures come from the endpoint itself, connections go only back to it, and
/// nothing is inline. `'self'` does not cover forms, frames and base addresses: these are shut.
const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                   connect-src 'self'; base-uri 'none'; form-action 'none'; \
                   frame-ancestors 'none'";

const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");
const CROSS_ORIGIN_OPENER_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-opener-policy");

/// Refuses what a page of another site sent, and sets the headers that every answer carries.
pub(crate) async fn guard(State(names): State<Names>, request: Request, next: Next) -> Response {
    let mut response = match validate(&names, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    let headers = response.headers_mut();
    let fixed = [
        (CONTENT_SECURITY_POLICY, CSP),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"),
        (CROSS_ORIGIN_OPENER_POLICY, "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

fn validate(names: &Names, request: &Request) -> Result<(), ApiError> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let header = match (hosts.next(), hosts.next()) {
        (Some(host), None) => Some(host.to_str().unwrap_or_default()),
        // HTTP/1.0 knows no Host, and no browser speaks it.
        (None, _) if request.version() <= Version::HTTP_10 => None,
        // RFC 9112, section 3.2: exactly one.
        _ => {
            return Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "InvalidHost",
                "a request needs exactly one Host header",
            ));
        }
    };
    // RFC 9112, section 3.2.2: a name in the request target counts, whatever Host says.
    let target = request
        .uri()
        .authority()
        .map(axum::http::uri::Authority::as_str);
    for host in header.into_iter().chain(target) {
        if !names.covers(host) {
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "ForeignHost",
                format!(
                    "the Host {host:?} is neither a loopback name, nor an IP address, nor a name \
                     given to this instance; such requests are refused because a foreign web page \
                     could send them (DNS rebinding): use the address itself"
                ),
            ));
        }
    }
    if from_another_site(request.method(), request.headers()) {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "CrossSite",
            "cross-site requests are refused",
        ));
    }
    Ok(())
}

/// Whether a browser sent it for a page of another site, other than by following a link.
fn from_another_site(method: &Method, headers: &HeaderMap) -> bool {
    let says = |name: &str, value: &str| {
        headers
            .get(name)
            .is_some_and(|found| found.as_bytes() == value.as_bytes())
    };
    let foreign = says("sec-fetch-site", "cross-site") || says("sec-fetch-site", "same-site");
    let follows_link =
        says("sec-fetch-mode", "navigate") && matches!(*method, Method::GET | Method::HEAD);
    foreign && !follows_link
}

// === impl Names ===

impl Names {
    /// The given host names, without port, in any case.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let names = names.into_iter().map(|name| name.to_ascii_lowercase());
        Self(Arc::new(names.collect()))
    }

    /// Whether a `Host` value, with or without port, names this endpoint.
    pub fn covers(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else {
            return false;
        };
        if let Some(literal) = name.strip_prefix('[') {
            let literal = literal.strip_suffix(']').unwrap_or_default();
            // RFC 6874: a link-local address may carry its interface.
            let literal = literal.split('%').next().unwrap_or_default();
            return literal.parse::<std::net::Ipv6Addr>().is_ok();
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        matches!(name.parse::<IpAddr>(), Ok(IpAddr::V4(_)))
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.0.contains(&name)
    }
}

/// The host of `host`, `host:port`, `[v6]` or `[v6]:port`.
fn without_port(host: &str) -> Option<&str> {
    let end = match host.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at_checked(end)?;
    let port_is_number = port
        .strip_prefix(':')
        .is_some_and(|digits| digits.parse::<u16>().is_ok());
    (!name.is_empty() && (port.is_empty() || port_is_number)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names_and_addresses_are_covered() {
        let names = Names::default();
        for host in [
            "localhost",
            "LOCALHOST:9640",
            "localhost.:9640",
            "landfall.localhost",
            "127.0.0.1",
            "127.8.9.10:9640",
            "[::1]",
            "[::1]:9640",
            "192.0.2.7:9640",
            "[2001:db8::7]:80",
            "[fe80::1%25eth0]:9640",
        ] {
            assert!(names.covers(host), "{host} should be answered");
        }
    }

    #[test]
    fn names_that_others_can_point_here_are_not_covered() {
        let names = Names::default();
        for host in [
            "",
            ":80",
            "example.com",
            "127.0.0.1.example.com",
            "localhost.example.com",
            "notlocalhost",
            "localhost:port",
            "127.0.0.1:1:2",
            "user@127.0.0.1",
            "[::1",
            "[::1]evil",
            "[example.com]",
            "::1",
            "0x7f.1",
        ] {
            assert!(!names.covers(host), "{host:?} should be refused");
        }
    }

    #[test]
    fn the_operators_own_names_are_covered_in_any_case() {
        let names = Names::new(["Admin.Example.com".to_owned()]);
        assert!(names.covers("admin.example.COM:9640"));
        assert!(!names.covers("example.com"));
    }
}
