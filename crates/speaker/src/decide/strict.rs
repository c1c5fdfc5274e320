//! What matters where nodes must be able to serve what they announce.

use std::collections::{BTreeMap, BTreeSet};

use landfall_l2::election::Subnet;
use landfall_model::rows::NodeRow;

use super::Decider;

// === impl Decider ===

impl Decider {
    /// Takes the subnets of the interfaces of this node.
    pub fn take_subnets(&mut self, subnets: BTreeMap<String, BTreeSet<Subnet>>) {
        if self.is_strict && self.subnets.as_ref() != Some(&subnets) {
            self.subnets = Some(subnets);
            self.take_reported();
        }
    }

    /// Returns the subnets that this node reaches by interfaces which are to be relied on; `None`:
    /// that is not known, or does not matter.
    pub(super) fn subnets(&self, unsteady: &BTreeSet<String>) -> Option<BTreeSet<Subnet>> {
        let interfaces = self.subnets.as_ref()?.iter();
        let steady = interfaces.filter(|(name, _)| !unsteady.contains(*name));
        Some(steady.flat_map(|(_, subnets)| subnets).copied().collect())
    }

    /// Returns whether a node is about to go, so that others are to be elected.
    pub(super) fn is_to_avoid(&self, row: &NodeRow) -> bool {
        self.is_strict && self.router.is_leaving(row)
    }
}
