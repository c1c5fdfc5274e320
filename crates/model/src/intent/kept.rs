//! What a Service asks for, as it is kept for long and read rarely.

use super::AddressSpec;
use crate::rows::dense;

/// An [`AddressSpec`] that is kept as JSON, in less room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAddress(Box<[u8]>);

// === impl KeptAddress ===

impl KeptAddress {
    /// Keeps what is asked for.
    pub fn new(address: &AddressSpec) -> Option<Self> {
        let json = serde_json::to_vec(address).ok()?;
        Some(Self(dense::of(&json)))
    }

    /// Returns what is asked for.
    pub fn spec(&self) -> Option<AddressSpec> {
        serde_json::from_slice(&dense::open(&self.0)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Family, FamilyPolicy};

    #[test]
    fn what_is_asked_for_is_read_back_as_it_was() {
        let labels = |name: &str| [(name.to_owned(), "a".to_owned())].into();
        let spec = AddressSpec {
            namespace_labels: labels("of-namespace"),
            labels: labels("of-service"),
            families: vec![Family::V6, Family::V4],
            policy: FamilyPolicy::RequireDualStack,
            requested: vec!["2001:db8::1".parse().unwrap()],
            requested_by: "spec.loadBalancerIP".to_owned(),
            pool: Some("lan".to_owned()),
            count: 2,
            sharing_key: Some("key".to_owned()),
            backend_key: "app=web".to_owned(),
            held: vec!["192.0.2.1".parse().unwrap()],
        };
        let kept = KeptAddress::new(&spec).unwrap();
        assert_eq!(kept.spec(), Some(spec));
    }

    #[test]
    fn what_most_services_ask_for_takes_little_room() {
        let labels = |key: &str, name: &str| [(key.to_owned(), name.to_owned())].into();
        let spec = AddressSpec {
            namespace_labels: labels("kubernetes.io/metadata.name", "shop"),
            labels: labels("app", "web-123"),
            families: vec![Family::V4],
            policy: FamilyPolicy::SingleStack,
            requested: Vec::new(),
            requested_by: String::new(),
            pool: None,
            count: 1,
            sharing_key: None,
            backend_key: String::new(),
            held: vec!["10.90.1.123".parse().unwrap()],
        };
        let kept = KeptAddress::new(&spec).unwrap();
        assert!(kept.0.len() <= 70, "{}", kept.0.len());
    }
}
