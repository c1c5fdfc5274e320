//! When two Services may hold one address.
//!
//! They may when both carry the same sharing key, are of one namespace (unless the pool lets others
//! share, too), their traffic reaches the same backends by the same policy, and no port of one is a
//! port of the other. Anything else is a clash.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use landfall_model::ListenerKey;

/// Text of [`BackendKey::Local`] without a selector. No selector reads so: it would have a `=`.
const LOCAL_WITHOUT_SELECTOR: &str = "Local";

/// The text by which Services declare that they may share an address. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharingKey(pub(crate) Arc<str>);

/// Where the traffic of a Service must arrive, as far as an address is concerned.
///
/// With `externalTrafficPolicy: Local` only nodes with a backend may attract traffic, so Services
/// that share an address must have the very same backends.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendKey {
    /// `externalTrafficPolicy: Cluster`: any node will do.
    #[default]
    Cluster,
    /// `externalTrafficPolicy: Local`: the canonical text of the pod selector.
    ///
    /// Empty when the Service has no selector: its endpoints are then written by hand, nothing
    /// proves that two such Services have the same ones, and so it shares with no other. (In the
    /// reference it looks like `Cluster` and shares with those.)
    Local(Arc<str>),
}

/// On which terms a Service holds its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Sharing key, if the Service has one.
    pub key: Option<SharingKey>,
    /// Backends.
    pub backend: BackendKey,
    /// Front ports.
    pub ports: BTreeSet<ListenerKey>,
}

/// Services of one group may share, as long as their ports differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Group {
    key: SharingKey,
    backend: BackendKey,
    /// `None`: Services of all namespaces.
    namespace: Option<Arc<str>>,
}

// === impl SharingKey ===

impl SharingKey {
    /// The key, unless the text is empty: an empty key shares with no other Service.
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.into()))
    }
}

impl fmt::Display for SharingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl BackendKey ===

impl BackendKey {
    /// The key that a text stands for, the inverse of [`text`](Self::text).
    pub fn from_text(text: &str) -> Self {
        match text {
            "" => Self::Cluster,
            LOCAL_WITHOUT_SELECTOR => Self::Local("".into()),
            selector => Self::Local(selector.into()),
        }
    }

    /// The key as one text, empty for `Cluster`.
    pub fn text(&self) -> &str {
        match self {
            Self::Cluster => "",
            Self::Local(selector) if selector.is_empty() => LOCAL_WITHOUT_SELECTOR,
            Self::Local(selector) => selector,
        }
    }

    /// The key of a Service with `externalTrafficPolicy: Local`.
    pub fn local(selector: &BTreeMap<String, String>) -> Self {
        let parts: Vec<String> = selector
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        Self::Local(parts.join(",").into())
    }
}

impl fmt::Display for BackendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("Cluster"),
            Self::Local(selector) if selector.is_empty() => f.write_str("Local without selector"),
            Self::Local(selector) => write!(f, "Local with selector {selector}"),
        }
    }
}

// === impl Terms ===

impl Terms {
    /// The group with which a Service of this namespace may share (`None`: of any); `None` when it
    /// shares with no other.
    pub(crate) fn group(&self, namespace: Option<&Arc<str>>) -> Option<Group> {
        let shareable = match &self.backend {
            BackendKey::Cluster => true,
            BackendKey::Local(selector) => !selector.is_empty(),
        };
        let key = self.key.clone().filter(|_| shareable)?;
        Some(Group {
            key,
            backend: self.backend.clone(),
            namespace: namespace.cloned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(key: &str, backend: BackendKey) -> Terms {
        Terms {
            key: SharingKey::new(key),
            backend,
            ports: BTreeSet::new(),
        }
    }

    fn selector(app: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("app".to_owned(), app.to_owned())])
    }

    #[test]
    fn without_a_key_there_is_no_group() {
        assert_eq!(terms("", BackendKey::Cluster).group(None), None);
    }

    #[test]
    fn groups_differ_by_key_and_by_backend() {
        let group = |key, backend| terms(key, backend).group(None).unwrap();
        let cluster = group("k", BackendKey::Cluster);
        assert_eq!(cluster, group("k", BackendKey::Cluster));
        assert_ne!(cluster, group("j", BackendKey::Cluster));
        assert_ne!(cluster, group("k", BackendKey::local(&selector("web"))));
        assert_ne!(
            group("k", BackendKey::local(&selector("web"))),
            group("k", BackendKey::local(&selector("api")))
        );
    }

    #[test]
    fn a_backend_key_survives_being_a_text() {
        let keys = [
            (BackendKey::Cluster, ""),
            (BackendKey::local(&BTreeMap::new()), "Local"),
            (BackendKey::local(&selector("web")), "app=web"),
        ];
        for (key, text) in keys {
            assert_eq!(key.text(), text);
            assert_eq!(BackendKey::from_text(text), key);
        }
    }

    #[test]
    fn local_without_a_selector_shares_with_no_service() {
        assert_eq!(
            terms("k", BackendKey::local(&BTreeMap::new())).group(None),
            None
        );
    }
}
