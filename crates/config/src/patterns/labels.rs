//! Label selectors: which nodes become members.

use std::collections::BTreeMap;

/// Demands on labels, as `node-selector` writes them: `pool=edge,gpu`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    demands: BTreeMap<String, String>,
}

impl LabelSelector {
    /// Reads `key=value`, `key=` and `key`, separated by commas; the latter two ask for the key
    /// alone. Every text is one; the empty one asks for nothing. Of two demands on one key the last
    /// counts.
    pub fn parse(text: &str) -> Self {
        let items = text.split(',').map(str::trim);
        let demands = items.filter(|item| !item.is_empty()).map(|item| {
            let (key, value) = item.split_once('=').unwrap_or((item, ""));
            (key.to_owned(), value.to_owned())
        });
        Self {
            demands: demands.collect(),
        }
    }

    /// Whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.demands.is_empty()
    }

    /// Keys and values; an empty value asks for the key alone.
    pub fn demands(&self) -> impl Iterator<Item = (&str, &str)> {
        let demands = self.demands.iter();
        demands.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether labels fulfil every demand.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.demands.iter().all(|(key, value)| {
            let label = labels.get(key);
            label.is_some_and(|label| value.is_empty() || label == value)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn every_demand_must_be_met() {
        let node = labels(&[("pool", "edge"), ("gpu", ""), ("expr", "a=b")]);
        for (selector, expected) in [
            ("", true),
            (" , ", true),
            ("pool=edge", true),
            ("pool", true),
            ("pool=", true),
            ("gpu", true),
            ("pool=edge , gpu", true),
            ("expr=a=b", true),
            ("pool=core", false),
            ("Pool=edge", false),
            ("pool=edge,zone", false),
            ("gpu=yes", false),
        ] {
            assert_eq!(
                LabelSelector::parse(selector).matches(&node),
                expected,
                "{selector:?}"
            );
        }
    }

    #[test]
    fn a_node_without_labels_matches_only_the_empty_selector() {
        assert!(LabelSelector::parse("").matches(&labels(&[])));
        assert!(!LabelSelector::parse("pool").matches(&labels(&[])));
    }

    proptest! {
        #[test]
        fn labels_match_the_selector_that_names_them(
            pairs in proptest::collection::btree_map("[a-z./-]{1,6}", "[a-zA-Z0-9.-]{0,6}", 0..5),
            text in any::<String>(),
        ) {
            let items: Vec<_> = pairs.iter().map(|(key, value)| format!(" {key}={value}")).collect();
            let selector = LabelSelector::parse(&items.join(","));
            prop_assert!(selector.matches(&pairs));
            prop_assert_eq!(selector.demands().count(), pairs.len());
            for key in pairs.keys() {
                let mut fewer = pairs.clone();
                fewer.remove(key);
                prop_assert!(!selector.matches(&fewer));
            }
            // Any text at all can be read.
            let _ = LabelSelector::parse(&text).matches(&pairs);
        }
    }
}
