//! A listener that is there against the one that is wanted. Pure.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::transport;
use crate::bodies::TIMEOUTS;
use crate::objects::Listener;
use crate::target::{HEADERS, WantedListener};

pub(crate) fn same_port(wanted: &WantedListener, listener: &Listener) -> bool {
    wanted.port == listener.protocol_port && wanted.transport == transport(&listener.protocol)
}

/// Those tags and these; `None`: they are all there.
pub(crate) fn with_tags(there: &[String], wanted: &[String]) -> Option<Value> {
    if wanted.iter().all(|tag| there.contains(tag)) {
        return None;
    }
    let mut tags: Vec<&String> = there.iter().filter(|tag| !tag.is_empty()).collect();
    for tag in wanted {
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    Some(json!(tags))
}

pub(crate) fn listener_changes(listener: &Listener, wanted: &WantedListener) -> Map<String, Value> {
    let mut changes = Map::new();
    if let Some(tags) = with_tags(&listener.tags, &wanted.tags) {
        changes.insert("tags".into(), tags);
    }
    if listener.connection_limit.unwrap_or(-1) != wanted.connection_limit {
        changes.insert("connection_limit".into(), wanted.connection_limit.into());
    }
    if let Some(headers) = header_changes(listener, wanted) {
        changes.insert("insert_headers".into(), headers);
    }
    if listener.default_tls_container_ref != wanted.tls {
        changes.insert("default_tls_container_ref".into(), json!(wanted.tls));
    }
    if let Some(timeouts) = wanted.timeouts {
        let there = [
            listener.timeout_client_data,
            listener.timeout_member_connect,
            listener.timeout_member_data,
            listener.timeout_tcp_inspect,
        ];
        for ((key, is), shall) in TIMEOUTS.into_iter().zip(there).zip(timeouts) {
            if is != Some(shall) {
                changes.insert(key.into(), shall.into());
            }
        }
    }
    if let Some(allowed) = &wanted.allowed
        && !admits(listener.allowed_cidrs.as_deref(), allowed)
    {
        changes.insert("allowed_cidrs".into(), json!(allowed));
    }
    changes
}

/// Whether those are let in that shall be. A list of nobody lets in everybody.
fn admits(there: Option<&[String]>, wanted: &BTreeSet<String>) -> bool {
    let normal = |text: &String| match text.parse::<IpNet>() {
        Ok(prefix) => prefix.trunc().to_string(),
        Err(_) => text.clone(),
    };
    let there: BTreeSet<String> = there.unwrap_or_default().iter().map(normal).collect();
    let everybody = |text: &String| text == "0.0.0.0/0" || text == "::/0";
    there == wanted.iter().map(normal).collect()
        || (there.is_empty() && wanted.iter().all(everybody))
}

/// The headers, where those that are ours to set are not as wanted. Others stay.
fn header_changes(listener: &Listener, wanted: &WantedListener) -> Option<Value> {
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
    Some(json!(headers))
}
