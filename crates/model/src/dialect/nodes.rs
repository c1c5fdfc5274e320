//! Which nodes are members, by their labels.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::value::{Refusal, is_dns_name};

/// The longest name or value of a label.
const LONGEST: usize = 63;

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
    /// What no label can be, by the rules of Kubernetes: no node would ever be chosen.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut labels = BTreeMap::new();
        for item in text.split(',').map(str::trim) {
            if item.is_empty() {
                continue;
            }
            let (key, value) = item.split_once('=').unwrap_or((item, ""));
            let (key, value) = (key.trim(), value.trim());
            if !is_key(key) || !is_value(value) {
                return Err(Refusal::new(
                    format!("{item:?} is no label that a node can have"),
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

/// A name, and before it a DNS name and a slash where there is an owner of such names.
fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((owner, name)) => is_dns_name(owner) && is_name(name),
        None => is_name(text),
    }
}

fn is_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

fn is_name(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= LONGEST
        && end(text.bytes().next())
        && end(text.bytes().next_back())
        && text.bytes().all(inside)
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
        let node = [
            ("pool", "edge"),
            ("gpu", ""),
            ("example.org/zone", "a.b_C-1"),
        ];
        for (selector, expected) in [
            ("pool=edge , gpu", true),
            ("pool = edge", true),
            ("gpu=", true),
            // Of two demands on one label the last counts.
            ("pool=core,pool=edge", true),
            ("example.org/zone=a.b_C-1", true),
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
    fn what_no_label_can_be_is_refused() {
        let long = "a".repeat(64);
        for text in [
            "=prod",
            "🦀 =,;",
            "env=prod,;",
            "env=a=b",
            "env in (prod)",
            "env==prod",
            "!env",
            "env=-prod",
            "Example.org/env=prod",
            "/env",
            "a/b/c",
            &long,
            &format!("env={long}"),
        ] {
            assert!(NodeSelector::parse(text).is_err(), "{text:?}");
        }
    }
}
