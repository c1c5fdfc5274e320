//! `L2Advertisement` (`v1beta1`): which nodes announce the addresses of which pools by ARP and NDP.

use std::collections::{BTreeMap, BTreeSet};

use landfall_ipam::{LabelSelector, Labels};

use crate::fields::Fields;
use crate::pools::PoolChoice;
use crate::selectors::{self, Selectors};

/// An `L2Advertisement`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct L2Advertisement {
    /// The pools.
    pub pools: PoolChoice,
    /// The nodes; none: all.
    pub nodes: Selectors,
    /// The interfaces by exact name; none: all.
    pub interfaces: BTreeSet<String>,
    /// The Services; none: all.
    pub services: Selectors,
    /// Nodes that come before the others.
    pub preferences: Vec<Preference>,
}

/// One of `preferredNodeSelectors`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preference {
    /// From 1 to 100.
    pub weight: u8,
    /// The nodes.
    pub nodes: LabelSelector,
}

/// The nodes that an advertisement accepts, and the sum of the weights of those that it prefers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedNodes {
    /// Names.
    pub names: BTreeSet<String>,
    /// Sums above 0, by name.
    pub preferences: BTreeMap<String, u32>,
}

// === impl L2Advertisement ===

impl L2Advertisement {
    pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut preferences = Vec::new();
        fields.each("preferredNodeSelectors", |fields| {
            let weight = fields.number("weight", 1..=100);
            let nodes = selectors::read_one(fields, "preference");
            if !fields.has("weight") {
                fields.refuse_unseen("weight", "it is missing", "write a number from 1 to 100");
            }
            if !fields.has("preference") {
                fields.refuse_unseen("preference", "it is missing", "write a label selector");
            }
            if let (Some(weight), Some(nodes)) = (weight, nodes) {
                preferences.push(Preference { weight, nodes });
            }
        });
        Self {
            pools: PoolChoice::read(fields),
            nodes: Selectors::read(fields, "nodeSelectors"),
            interfaces: fields.names("interfaces"),
            services: Selectors::read(fields, "serviceSelectors"),
            preferences,
        }
    }

    /// Returns the sum of the weights with which it prefers a node; `None` if it does not accept
    /// the node.
    pub fn preference(&self, node: &Labels) -> Option<u32> {
        let preferred = self.preferences.iter().filter(|it| it.nodes.matches(node));
        let sum = preferred.fold(0u32, |sum, it| sum.saturating_add(it.weight.into()));
        self.nodes.accepts(node).then_some(sum)
    }

    /// Returns the nodes that it accepts among these.
    pub fn select<'n>(
        &self,
        nodes: impl IntoIterator<Item = (&'n str, &'n Labels)>,
    ) -> SelectedNodes {
        let mut selected = SelectedNodes::default();
        for (name, labels) in nodes {
            let Some(sum) = self.preference(labels) else {
                continue;
            };
            selected.names.insert(name.to_owned());
            if sum > 0 {
                selected.preferences.insert(name.to_owned(), sum);
            }
        }
        selected
    }
}
