//! The password of a session, in a Secret.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use landfall_model::ServiceKey;
use serde::Deserialize;

use crate::api::{self, Ask};
use crate::connect::Connection;
use crate::error::ApiError;

/// The longest that reading it may take.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The type of a Secret with a password.
const TYPE: &str = "kubernetes.io/basic-auth";

const KEY: &str = "password";

/// Why there is no password.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// The Secret could not be read.
    #[error("Secret {0} can't be read: {1}")]
    Unread(ServiceKey, #[source] ApiError),
    /// There is no such Secret.
    #[error("there is no Secret {0}")]
    Missing(ServiceKey),
    /// It is of another type.
    #[error("Secret {0} is of type {1:?} and not {TYPE}")]
    Type(ServiceKey, String),
    /// It has no text under the key.
    #[error("Secret {0} has no text under the key {KEY}")]
    Key(ServiceKey),
}

#[derive(Deserialize)]
struct Secret {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

/// Returns the password that a Secret of type `kubernetes.io/basic-auth` holds.
pub async fn password(connection: &Connection, key: &ServiceKey) -> Result<String, PasswordError> {
    let (namespace, name) = (key.namespace(), key.name());
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
    let ask = Ask::get(path, "get secrets");
    let secret: Secret = match api::request_json(connection, ask, TIMEOUT).await {
        Ok(secret) => secret,
        Err(error) if error.is_not_found() => return Err(PasswordError::Missing(key.clone())),
        Err(error) => return Err(PasswordError::Unread(key.clone(), error)),
    };
    if secret.kind != TYPE {
        return Err(PasswordError::Type(key.clone(), secret.kind));
    }
    let encoded = secret.data.get(KEY);
    let decoded = encoded.and_then(|text| STANDARD.decode(text).ok());
    let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| PasswordError::Key(key.clone()))
}
