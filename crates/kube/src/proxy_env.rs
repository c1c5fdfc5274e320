//! `HTTPS_PROXY` and `NO_PROXY`, as Go programs read them: pure.
//!
//! The client library validates `NO_PROXY` against the proxy instead of the server, and not at all
//! inside a cluster, so it is done here.

use std::net::IpAddr;

use http::Uri;
use ipnet::IpNet;

/// The proxy through which a server is reached; `None`: straight.
pub(crate) fn proxy_for(
    server: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, String> {
    let either = |upper: &str, lower: &str| {
        [upper, lower]
            .into_iter()
            .find_map(|name| variable(name).filter(|value| !value.is_empty()))
    };
    let Some(proxy) = either("HTTPS_PROXY", "https_proxy") else {
        return Ok(None);
    };
    let exceptions = either("NO_PROXY", "no_proxy").unwrap_or_default();
    if server
        .host()
        .is_none_or(|host| is_excepted(host, server.port_u16(), &exceptions))
    {
        return Ok(None);
    }
    // A bare `host:port` means a plain HTTP proxy.
    let proxy = if proxy.contains("://") {
        proxy
    } else {
        format!("http://{proxy}")
    };
    match proxy.parse() {
        Ok(uri) => Ok(Some(uri)),
        // The text may hold a password.
        Err(error) => Err(format!("HTTPS_PROXY is not a URL: {error}")),
    }
}

fn is_excepted(host: &str, port: Option<u16>, exceptions: &str) -> bool {
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    exceptions
        .split(',')
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .any(|exception| {
            if exception == "*" {
                return true;
            }
            if let (Some(address), Ok(prefix)) = (address, exception.parse::<IpNet>()) {
                return prefix.contains(&address);
            }
            let (name, only_port) = split_port(exception);
            if only_port.is_some_and(|only| Some(only) != port.or(Some(443))) {
                return false;
            }
            let name = name.to_ascii_lowercase();
            match (address, name.parse::<IpAddr>()) {
                (Some(address), Ok(excepted)) => address == excepted,
                (None, Err(_)) => is_under(&host, &name),
                _ => false,
            }
        })
}

/// `example.com` means itself and everything under it, `.example.com` only the latter.
fn is_under(host: &str, name: &str) -> bool {
    let name = name.strip_prefix('*').unwrap_or(name);
    match name.strip_prefix('.') {
        Some(_) => host.ends_with(name),
        None => {
            host == name
                || host
                    .strip_suffix(name)
                    .is_some_and(|rest| rest.ends_with('.'))
        }
    }
}

fn split_port(text: &str) -> (&str, Option<u16>) {
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        return (
            host,
            rest.strip_prefix(':').and_then(|port| port.parse().ok()),
        );
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => match port.parse() {
            Ok(port) => (host, Some(port)),
            Err(_) => (text, None),
        },
        _ => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(server: &str, exceptions: &str) -> Option<String> {
        let uri = server.parse().unwrap();
        let variable = |name: &str| match name {
            "https_proxy" => Some("http://user:pass@proxy.example.com:3128".to_owned()),
            "NO_PROXY" => Some(exceptions.to_owned()),
            _ => None,
        };
        proxy_for(&uri, variable)
            .unwrap()
            .map(|uri| uri.to_string())
    }

    #[test]
    fn a_server_is_reached_through_the_proxy_unless_it_is_excepted() {
        let through = Some("http://user:pass@proxy.example.com:3128/".to_owned());
        assert_eq!(proxy("https://10.96.0.1:443", ""), through);
        assert_eq!(
            proxy("https://10.96.0.1:443", "10.97.0.0/16,example.com"),
            through
        );
        assert_eq!(
            proxy("https://api.example.com", "ample.com, .api.example.com"),
            through
        );
        assert_eq!(
            proxy("https://api.example.com", "example.com:6443"),
            through
        );
        assert_eq!(proxy("https://10.96.0.1", "::1"), through);
        let straight = [
            ("https://10.96.0.1:443", "foo, 10.96.0.0/12"),
            ("https://10.96.0.1:443", "10.96.0.1"),
            ("https://10.96.0.1:443", "*"),
            ("https://API.example.com", "example.com"),
            ("https://api.example.com:6443", ".example.com:6443"),
            ("https://[fd00::1]:443", "fd00::/8"),
            ("https://[fd00::1]:443", "[fd00::1]:443"),
            ("https://127.0.0.1:6443", ""),
            ("https://localhost:6443", ""),
        ];
        for (server, exceptions) in straight {
            assert_eq!(
                proxy(server, exceptions),
                None,
                "{server} with {exceptions:?}"
            );
        }
    }

    #[test]
    fn a_bad_proxy_is_refused_without_showing_it() {
        let server = "https://10.96.0.1".parse().unwrap();
        let variable =
            |name: &str| (name == "HTTPS_PROXY").then(|| "http://u:secret@ x".to_owned());
        let error = proxy_for(&server, variable).unwrap_err();
        assert!(
            error.contains("HTTPS_PROXY") && !error.contains("secret"),
            "{error}"
        );
        let variable = |name: &str| (name == "HTTPS_PROXY").then(|| "proxy:3128".to_owned());
        let uri = proxy_for(&server, variable).unwrap().unwrap();
        assert_eq!(uri.to_string(), "http://proxy:3128/");
    }
}
