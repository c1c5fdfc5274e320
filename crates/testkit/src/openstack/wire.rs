//! A request as the services see it, and the answers that they give: each service with the error
//! shape of its own.

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};

/// An object as it is kept and shown.
pub(super) type Row = Map<String, Value>;

/// Which of the four services a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Keystone.
    Identity,
    /// Neutron.
    Network,
    /// Octavia.
    LoadBalancer,
    /// Barbican.
    KeyManager,
}

impl Service {
    /// All of them, in the order of the catalog.
    pub const ALL: [Self; 4] = [
        Self::Identity,
        Self::Network,
        Self::LoadBalancer,
        Self::KeyManager,
    ];

    /// The type in the catalog.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Network => "network",
            Self::LoadBalancer => "load-balancer",
            Self::KeyManager => "key-manager",
        }
    }
}

/// One request, taken apart.
pub(super) struct Ask<'a> {
    pub method: &'a Method,
    /// The path after the service's base, split at slashes, without empty parts.
    pub path: Vec<&'a str>,
    pub query: Vec<(String, String)>,
    pub body: Value,
    pub token: Option<&'a str>,
    pub if_match: Option<&'a str>,
    /// The project that the token is for.
    pub project: String,
    /// The URL up to the query, for links to further pages.
    pub url: String,
}

impl Ask<'_> {
    /// The first value of a query parameter.
    pub fn param(&self, key: &str) -> Option<&str> {
        let hit = self.query.iter().find(|(name, _)| name == key);
        hit.map(|(_, value)| value.as_str())
    }

    /// The object inside the body's envelope.
    pub fn inner(&self, envelope: &str) -> Option<&Row> {
        self.body.get(envelope)?.as_object()
    }
}

/// An answer, good or bad.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub status: u16,
    pub body: Bytes,
    pub headers: Vec<(&'static str, String)>,
}

/// What a handler gives: `Err` is a refusal, which changed nothing.
pub(super) type Handled = Result<Reply, Reply>;

impl Reply {
    pub fn json(status: u16, body: &Value) -> Self {
        let body = serde_json::to_vec(body).unwrap_or_default();
        Self {
            status,
            body: Bytes::from(body),
            headers: Vec::new(),
        }
    }

    pub fn empty(status: u16) -> Self {
        Self {
            status,
            body: Bytes::new(),
            headers: Vec::new(),
        }
    }

    /// Octavia's error.
    pub fn balancer(status: u16, text: impl Into<String>) -> Self {
        let code = if status >= 500 { "Server" } else { "Client" };
        let text: String = text.into();
        Self::json(
            status,
            &json!({"faultcode": code, "faultstring": text, "debuginfo": null}),
        )
    }

    /// Neutron's error.
    pub fn network(status: u16, kind: &str, text: impl Into<String>) -> Self {
        let text: String = text.into();
        Self::json(
            status,
            &json!({"NeutronError": {"type": kind, "message": text, "detail": ""}}),
        )
    }

    /// Keystone's error, which Barbican nearly shares.
    pub fn identity(status: u16, title: &str, text: &str) -> Self {
        Self::json(
            status,
            &json!({"error": {"code": status, "message": text, "title": title}}),
        )
    }
}

/// The text of a field, empty if it is null or missing.
pub(super) fn text<'a>(row: &'a Row, key: &str) -> &'a str {
    row.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Takes a query apart; `+` and percent signs are decoded.
pub(super) fn parse_query(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        })
        .collect()
}

/// Undoes percent encoding. A broken escape stays as it is.
pub(super) fn decode(text: &str) -> String {
    if !text.contains(['%', '+']) {
        return text.to_owned();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        let escaped = tail.get(..2).filter(|_| first == b'%');
        let value = escaped
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match value {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None if first == b'+' => bytes.push(b' '),
            None => bytes.push(first),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Percent encoding for links, all but what is harmless everywhere.
pub(super) fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~,".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}
