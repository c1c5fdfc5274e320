//! A listener that is there against the one that is wanted. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use crate::objects::Listener;
use crate::requests::ListenerRequest;
use crate::target::{HEADERS, WantedListener};

pub(crate) fn same_port(wanted: &WantedListener, listener: &Listener) -> bool {
    wanted.port == listener.protocol_port && wanted.transport == listener.protocol.transport()
}

/// Those tags and these; `None`: they are all there.
pub(super) fn with_tags(there: &[String], wanted: &[String]) -> Option<Vec<String>> {
    if wanted.iter().all(|tag| there.contains(tag)) {
        return None;
    }
    let mut tags: Vec<String> = there
        .iter()
        .filter(|tag| !tag.is_empty())
        .cloned()
        .collect();
    for tag in wanted {
        if !tags.contains(tag) {
            tags.push(tag.clone());
        }
    }
    Some(tags)
}

/// What is wanted, unless that is what is there.
fn other<T: Clone + PartialEq>(wanted: Option<&T>, there: Option<&T>) -> Option<T> {
    wanted.filter(|_| wanted != there).cloned()
}

/// What is to be changed of a listener.
pub(crate) fn listener_changes(listener: &Listener, wanted: &WantedListener) -> ListenerRequest {
    let differs = |is: Option<u64>, shall: u64| (is != Some(shall)).then_some(shall);
    let mut changes = ListenerRequest {
        tags: with_tags(&listener.tags, &wanted.tags),
        insert_headers: header_changes(listener, wanted),
        ..ListenerRequest::default()
    };
    if listener.connection_limit.unwrap_or(-1) != wanted.connection_limit {
        changes.connection_limit = Some(wanted.connection_limit);
    }
    if listener.default_tls_container_ref != wanted.tls {
        changes.default_tls_container_ref = Some(wanted.tls.clone().into());
    }
    let others: BTreeSet<String> = listener.sni_container_refs.iter().cloned().collect();
    changes.sni_container_refs = other(wanted.sni.as_ref(), Some(&others));
    let versions = listener.tls_versions.iter().flatten().cloned();
    let versions: BTreeSet<String> = versions.collect();
    changes.tls_versions = other(wanted.tls_versions.as_ref(), Some(&versions));
    changes.tls_ciphers = other(wanted.tls_ciphers.as_ref(), listener.tls_ciphers.as_ref());
    changes.alpn_protocols = other(wanted.alpn.as_ref(), listener.alpn_protocols.as_ref());
    if let Some(shall) = wanted.timeouts {
        changes.timeout_client_data = differs(listener.timeout_client_data, shall.client_data);
        changes.timeout_member_connect =
            differs(listener.timeout_member_connect, shall.member_connect);
        changes.timeout_member_data = differs(listener.timeout_member_data, shall.member_data);
        changes.timeout_tcp_inspect = differs(listener.timeout_tcp_inspect, shall.tcp_inspect);
    }
    if let Some(allowed) = &wanted.allowed
        && !admits(listener.allowed_cidrs.as_deref(), allowed)
    {
        changes.allowed_cidrs = Some(allowed.clone());
    }
    changes
}

/// Whether those clients are let in that shall be. An empty list lets in all.
fn admits(there: Option<&[String]>, wanted: &BTreeSet<String>) -> bool {
    let normal = |text: &String| match text.parse::<IpNet>() {
        Ok(prefix) => prefix.trunc().to_string(),
        Err(_) => text.clone(),
    };
    let there: BTreeSet<String> = there.unwrap_or_default().iter().map(normal).collect();
    let all_clients = |text: &String| text == "0.0.0.0/0" || text == "::/0";
    there == wanted.iter().map(normal).collect()
        || (there.is_empty() && wanted.iter().all(all_clients))
}

/// The headers, where those that are ours to set are not as wanted. Others stay.
fn header_changes(
    listener: &Listener,
    wanted: &WantedListener,
) -> Option<BTreeMap<String, String>> {
    let is_set = |name: &str| {
        let value = listener.insert_headers.get(name);
        value.is_some_and(|value| value.eq_ignore_ascii_case("true"))
    };
    let managed = HEADERS.into_iter().filter(|name| wanted.manages(name));
    let differs = managed
        .clone()
        .any(|name| is_set(name) != wanted.headers.contains_key(name));
    if !differs {
        return None;
    }
    let mut headers = listener.insert_headers.clone();
    for name in managed {
        match wanted.headers.get(name) {
            Some(value) => headers.insert(name.to_owned(), value.clone()),
            None => headers.remove(name),
        };
    }
    Some(headers)
}
