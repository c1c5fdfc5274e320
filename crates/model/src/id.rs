//! Identities: the name of a Service for people, and its unique id.

mod by_namespace;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use by_namespace::ByNamespace;

/// Namespace and name of an object, shown as `namespace/name`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ServiceKey {
    namespace: Arc<str>,
    name: Arc<str>,
}

/// The Kubernetes UID of a Service: survives renames of everything else, never used twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uid(Arc<str>);

/// A text that should have been `namespace/name` and is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not of the form NAMESPACE/NAME")]
pub struct InvalidServiceKey(String);

// === impl ServiceKey ===

impl ServiceKey {
    /// The key of `namespace/name`.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of names that others hold too.
    pub fn shared(namespace: &Arc<str>, name: &Arc<str>) -> Self {
        Self {
            namespace: namespace.clone(),
            name: name.clone(),
        }
    }

    /// The namespace, to be held by others too.
    pub fn shared_namespace(&self) -> &Arc<str> {
        &self.namespace
    }

    /// The name, to be held by others too.
    pub fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for ServiceKey {
    type Err = InvalidServiceKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self::new(namespace, name))
            }
            _ => Err(InvalidServiceKey(text.to_owned())),
        }
    }
}

impl TryFrom<String> for ServiceKey {
    type Error = InvalidServiceKey;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ServiceKey> for String {
    fn from(key: ServiceKey) -> Self {
        key.to_string()
    }
}

// === impl Uid ===

impl Uid {
    /// Wraps a UID as the API server (or the manifest source) gave it.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text of the UID.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_prints_as_it_parses() {
        let key: ServiceKey = "shop/web".parse().unwrap();
        assert_eq!(key, ServiceKey::new("shop", "web"));
        assert_eq!(key.to_string(), "shop/web");
    }

    #[test]
    fn a_key_without_both_parts_is_refused() {
        for text in ["", "web", "/web", "shop/", "a/b/c"] {
            assert!(
                text.parse::<ServiceKey>().is_err(),
                "{text:?} should be refused"
            );
        }
    }
}
