//! Secret and container (Barbican API v1), without what they hold.

use serde::{Deserialize, Serialize};

use super::{Id, null_is_default};

/// A container: several secrets that belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Container {
    /// Its address, by which others name it.
    pub container_ref: String,
    /// Its name, which is not unique.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// What is in it.
    #[serde(deserialize_with = "null_is_default")]
    pub secret_refs: Vec<SecretRef>,
}

/// A secret in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretRef {
    /// What it is there: `certificate`, `private_key`, `intermediates`.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// Its address.
    pub secret_ref: String,
}

/// A secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Secret {
    /// Its address.
    pub secret_ref: String,
    /// Its name, which is not unique.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
}

/// The id in the address of a secret or container.
pub fn id_in(reference: &str) -> Id {
    let id = reference.trim_end_matches('/').rsplit('/').next();
    Id::new(id.unwrap_or_default())
}
