//! Signatures of requests: `EXO2-HMAC-SHA256`.
//!
//! A request is signed over its method, path, body, the parameters of its query and the time at
//! which the signature expires; host and headers are not covered.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use landfall_rest::Url;

/// What a signature covers.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// The method, in upper case.
    pub method: &'a str,
    /// The path as it is sent, with its escapes and the prefix `/v2`, without the query.
    pub path: &'a str,
    /// The query as it is sent, or nothing.
    pub query: &'a str,
    /// The body as it is sent, or nothing.
    pub body: &'a [u8],
    /// When the signature expires, in seconds since 1970.
    pub expires: i64,
}

/// How long a signature is valid.
pub const VALIDITY: Duration = Duration::from_secs(600);

// === impl Signed ===

impl Signed<'_> {
    /// Returns the header `Authorization` that proves the key.
    pub fn header(&self, key: &str, secret: &str) -> String {
        let parameters = self.parameters();
        let names: Vec<_> = parameters.keys().map(String::as_str).collect();
        let names = match names.as_slice() {
            [] => String::new(),
            names => format!(",signed-query-args={}", names.join(";")),
        };
        let signature = STANDARD.encode(mac(secret, &self.message_of(&parameters)));
        let expires = self.expires;
        format!("EXO2-HMAC-SHA256 credential={key}{names},expires={expires},signature={signature}")
    }

    /// Returns the bytes that are authenticated.
    pub fn message(&self) -> Vec<u8> {
        self.message_of(&self.parameters())
    }

    fn message_of(&self, parameters: &BTreeMap<String, String>) -> Vec<u8> {
        let mut message = format!("{} {}\n", self.method, self.path).into_bytes();
        message.extend_from_slice(self.body);
        message.push(b'\n');
        for value in parameters.values() {
            message.extend_from_slice(value.as_bytes());
        }
        // No header is ever signed: its segment is empty.
        message.extend_from_slice(format!("\n\n{}", self.expires).as_bytes());
        message
    }

    /// Returns the parameters that are signed, decoded: those that occur once.
    fn parameters(&self) -> BTreeMap<String, String> {
        let pairs = parse(self.query);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, _) in &pairs {
            *counts.entry(name).or_default() += 1;
        }
        pairs
            .iter()
            .filter(|(name, _)| counts.get(name.as_str()) == Some(&1))
            .cloned()
            .collect()
    }
}

/// Splits a query into its parameters, decoded.
fn parse(query: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    // The host never matters.
    if let Ok(mut url) = Url::parse("http://localhost/") {
        url.set_query(Some(query));
        pairs.extend(
            url.query_pairs()
                .map(|(name, value)| (name.into(), value.into())),
        );
    }
    pairs
}

fn mac(secret: &str, message: &[u8]) -> hmac::Tag {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hmac::sign(&key, message)
}

#[cfg(test)]
mod tests;
