//! Verifies the signatures of requests. Written apart from the client's, from the description.

use std::collections::BTreeMap;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;

/// Longest time until a signature expires that is accepted.
const MAX_VALIDITY: i64 = 3600;

/// Verifies the signature of a request. `now` is in seconds since 1970.
pub(super) fn verify(
    request: &Request<Bytes>,
    keys: &BTreeMap<String, String>,
    now: i64,
) -> Result<(), String> {
    let header = request.headers().get("authorization");
    let header = header
        .and_then(|it| it.to_str().ok())
        .ok_or("no signature")?;
    let rest = header
        .strip_prefix("EXO2-HMAC-SHA256 ")
        .ok_or("another scheme")?;
    let mut fields = BTreeMap::new();
    for field in rest.split(',') {
        let (name, value) = field.split_once('=').ok_or("a field without value")?;
        if fields.insert(name, value).is_some() {
            return Err(format!("{name} occurs twice"));
        }
    }
    let mut take = |name: &str| fields.remove(name).ok_or(format!("no {name}"));
    let (key, expires) = (take("credential")?, take("expires")?);
    let signature = take("signature")?;
    let names = fields.remove("signed-query-args").unwrap_or_default();
    if let Some(name) = fields.keys().next() {
        return Err(format!("{name} is not known"));
    }
    let secret = keys.get(key).ok_or("the key is not known")?;
    let until: i64 = expires.parse().map_err(|_| "expires is no number")?;
    if until < now || until > now + MAX_VALIDITY {
        return Err(format!("the signature expires at {until}, it is {now}"));
    }
    let query = request.uri().query().unwrap_or_default();
    let signed = [
        format!("{} {}", request.method(), request.uri().path()).into_bytes(),
        request.body().to_vec(),
        values(query, names)?.into_bytes(),
        Vec::new(),
        expires.as_bytes().to_vec(),
    ]
    .join(&b'\n');
    let signature = STANDARD.decode(signature).map_err(|_| "no Base64")?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hmac::verify(&key, &signed, &signature).map_err(|_| "the signature is wrong".to_owned())
}

/// Joins the values of the signed parameters. Those that occur once must be signed, in order.
fn values(query: &str, names: &str) -> Result<String, String> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        found.entry(decoded(name)).or_default().push(decoded(value));
    }
    found.retain(|_, values| values.len() == 1);
    let expected: Vec<_> = found.keys().map(String::as_str).collect();
    if expected.join(";") != names {
        return Err(format!("signed-query-args is {names:?}"));
    }
    Ok(found.into_values().flatten().collect())
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let escaped = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, escaped) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = tail;
            }
            (byte, _) => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
