//! Texts of several parts into values: endpoints, weights, headers, redirects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;

use super::options::{EndpointSpec, ForwardedHeaders, MemberRef};
use super::value::{Refusal, is_dns_name, items, number};
use crate::listener::{Redirect, RedirectStatus};

/// `off`, or `301` or `308` and where needed `port=N`.
pub(super) fn redirect(text: &str) -> Result<Option<Redirect>, Refusal> {
    let refuse = || {
        Refusal::new(
            "not a redirect",
            "write 301 or 308, then port=N if TLS is not on port 443, such as 308 port=8443; or \
            off",
        )
    };
    let mut words = text.split_whitespace();
    let status = match words.next() {
        Some("off") if words.next().is_none() => return Ok(None),
        Some("301") => RedirectStatus::Moved,
        Some("308") => RedirectStatus::Permanent,
        _ => return Err(refuse()),
    };
    let port = match words.next().map(|word| word.strip_prefix("port=")) {
        None => "443",
        Some(Some(port)) => port,
        Some(None) => return Err(refuse()),
    };
    let port: NonZeroU16 = port.parse().map_err(|_| refuse())?;
    if words.next().is_some() {
        return Err(refuse());
    }
    Ok(Some(Redirect { status, port }))
}

/// `none`, or some of `for`, `proto`, `port`.
pub(super) fn forwarded_headers(text: &str) -> Result<ForwardedHeaders, Refusal> {
    let mut headers = ForwardedHeaders::NONE;
    if text.trim() == "none" {
        return Ok(headers);
    }
    for item in items(text)? {
        match item {
            "for" => headers.client = true,
            "proto" => headers.proto = true,
            "port" => headers.port = true,
            _ => {
                return Err(Refusal::new(
                    format!("{item:?} is no forwarded header"),
                    "write some of for, proto, port with commas between them, or none",
                ));
            }
        }
    }
    Ok(headers)
}

/// `HOST:PORT[ weight=N][ backup]`, with commas between them.
pub(super) fn endpoints(text: &str) -> Result<Vec<EndpointSpec>, Refusal> {
    let mut endpoints = Vec::new();
    let mut seen = BTreeSet::new();
    for item in items(text)? {
        let endpoint = endpoint(item)?;
        if !seen.insert(endpoint.address) {
            return Err(Refusal::new(
                format!("{} is listed twice", endpoint.address),
                "name each endpoint once; weight=N gives one a larger share",
            ));
        }
        endpoints.push(endpoint);
    }
    Ok(endpoints)
}

fn endpoint(item: &str) -> Result<EndpointSpec, Refusal> {
    let mut words = item.split_whitespace();
    let mut spec = EndpointSpec {
        address: socket_address(words.next().unwrap_or_default())?,
        weight: None,
        backup: false,
    };
    for word in words {
        match word.split_once('=') {
            Some(("weight", weight)) if spec.weight.is_none() => {
                spec.weight = Some(self::weight(weight)?);
            }
            None if word == "backup" => spec.backup = true,
            _ => {
                return Err(Refusal::new(
                    format!("{word:?} can't follow an endpoint"),
                    "write HOST:PORT, then weight=N or backup if needed, then a comma",
                ));
            }
        }
    }
    Ok(spec)
}

fn socket_address(text: &str) -> Result<SocketAddr, Refusal> {
    let address = match text.parse::<SocketAddr>() {
        Ok(address) => SocketAddr::new(address.ip().to_canonical(), address.port()),
        Err(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), localhost_port(text)?),
    };
    if address.port() == 0 || address.ip().is_unspecified() || address.ip().is_multicast() {
        return Err(Refusal::new(
            format!("{text} is not an address of a host"),
            "write the address of a host and a port from 1 to 65535",
        ));
    }
    Ok(address)
}

/// The port of `localhost:PORT`; anything else that is no socket address is refused by what it is.
fn localhost_port(text: &str) -> Result<u16, Refusal> {
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        let example = SocketAddr::new(address, 8080);
        return Err(Refusal::new(
            format!("{text:?} has no port"),
            format!("write it with a port, such as {example}"),
        ));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(Refusal::new(
            format!("{text:?} is no endpoint"),
            "write HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080",
        ));
    };
    if host.contains(':') {
        return Err(Refusal::new(
            format!("{text:?} is no endpoint"),
            "write an IPv6 address in brackets, such as [2001:db8::1]:8080",
        ));
    }
    let Ok(port) = port.parse::<u16>() else {
        return Err(Refusal::new(
            format!("{port:?} is no port"),
            "write a number from 1 to 65535 after the colon",
        ));
    };
    if host != "localhost" {
        return Err(Refusal::new(
            format!("{host:?} is a name, and names are not resolved"),
            "write its IP address, or localhost for 127.0.0.1",
        ));
    }
    Ok(port)
}

fn weight(text: &str) -> Result<u16, Refusal> {
    number(text, 0..=256).map_err(|_| {
        Refusal::new(
            format!("{text:?} is no weight"),
            "write a number from 0 (gets no new connections) to 256",
        )
    })
}

/// `ADDRESS=N` or `POD-NAME=N`, with commas between them.
pub(super) fn weights(text: &str) -> Result<BTreeMap<MemberRef, u16>, Refusal> {
    let mut weights = BTreeMap::new();
    for item in items(text)? {
        let Some((member, weight)) = item.rsplit_once('=') else {
            return Err(Refusal::new(
                format!("{item:?} gives no weight"),
                "write ADDRESS=N or POD-NAME=N with N from 0 to 256",
            ));
        };
        let member = member_ref(member.trim())?;
        let weight = self::weight(weight.trim())?;
        if let Some(other) = weights.insert(member.clone(), weight)
            && other != weight
        {
            return Err(Refusal::new(
                format!("{member} has two weights"),
                "give each member one weight",
            ));
        }
    }
    Ok(weights)
}

/// Members with commas between them.
pub(super) fn members(text: &str) -> Result<BTreeSet<MemberRef>, Refusal> {
    items(text)?.into_iter().map(member_ref).collect()
}

fn member_ref(text: &str) -> Result<MemberRef, Refusal> {
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(MemberRef::Address(address.to_canonical()));
    }
    if is_dns_name(text) {
        return Ok(MemberRef::Name(text.to_owned()));
    }
    Err(Refusal::new(
        format!("{text:?} is neither an address nor the name of a pod"),
        "name a member by its IP address (without a port) or by its pod's name",
    ))
}
