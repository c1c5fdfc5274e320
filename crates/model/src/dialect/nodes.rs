//! Which nodes are members, by their labels.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::value::Refusal;

/// Labels that a node must have, as cloud-provider-openstack writes them: `env=prod, zone`.
/// Without any, every node is one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeSelector(BTreeMap<String, String>);

// === impl NodeSelector ===

impl NodeSelector {
    /// Reads `key=value`, `key=` or `key`, with commas between them.
    ///
    /// # Errors
    /// A label without a key.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut labels = BTreeMap::new();
        for item in text.split(',').map(str::trim) {
            if item.is_empty() {
                continue;
            }
            let (key, value) = item.split_once('=').unwrap_or((item, ""));
            let (key, value) = (key.trim(), value.trim());
            if key.is_empty() {
                return Err(Refusal::new(
                    format!("{item:?} names no label"),
                    "write labels as KEY=VALUE or KEY, with commas between them",
                ));
            }
            labels.insert(key.to_owned(), value.to_owned());
        }
        Ok(Self(labels))
    }

    /// Whether a node is chosen. `label` gives the value of one of its labels.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0
            .iter()
            .all(|(key, value)| label(key).is_some_and(|it| value.is_empty() || it == value))
    }
}

impl fmt::Display for NodeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            if value.is_empty() {
                write!(f, "{comma}{key}")?;
            } else {
                write!(f, "{comma}{key}={value}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chooses(selector: &str, labels: &[(&str, &'static str)]) -> bool {
        let selector = NodeSelector::parse(selector).unwrap();
        selector.matches(|key| {
            labels
                .iter()
                .find(|(it, _)| *it == key)
                .map(|(_, value)| *value)
        })
    }

    #[test]
    fn a_value_must_be_equal_and_a_bare_key_must_be_there() {
        let labels = [("env", "prod"), ("zone", "a")];
        assert!(chooses("env=prod, zone", &labels));
        assert!(chooses("zone=", &labels));
        assert!(!chooses("env=test", &labels));
        assert!(!chooses("rack", &labels));
        assert!(!chooses("env", &[]));
    }

    #[test]
    fn every_demand_must_be_met() {
        let node = [("pool", "edge"), ("gpu", ""), ("expr", "a=b")];
        for (selector, expected) in [
            ("pool=edge , gpu", true),
            ("pool = edge", true),
            ("gpu=", true),
            // Of two demands on one label the last counts.
            ("pool=core,pool=edge", true),
            ("expr=a=b", true),
            ("Pool=edge", false),
            ("pool=edge,zone", false),
            ("gpu=yes", false),
        ] {
            assert_eq!(chooses(selector, &node), expected, "{selector:?}");
        }
    }

    #[test]
    fn an_empty_selector_chooses_every_node() {
        assert!(chooses("", &[]));
        assert!(chooses(" , ", &[]));
    }

    #[test]
    fn a_label_without_a_key_is_refused() {
        assert!(NodeSelector::parse("=prod").is_err());
    }
}
