//! Which pools an advertisement is for.

use std::collections::BTreeSet;

use landfall_ipam::Labels;

use crate::fields::Fields;
use crate::selectors::Selectors;

/// `ipAddressPools` and `ipAddressPoolSelectors`: pools by name, those by label, or all of them if
/// neither is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolChoice {
    /// Names. There may be no pool of some (yet).
    pub names: BTreeSet<String>,
    /// Selectors on labels of pools.
    pub selectors: Selectors,
}

// === impl PoolChoice ===

impl PoolChoice {
    pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Self {
        Self {
            names: fields.names("ipAddressPools"),
            selectors: Selectors::read(fields, "ipAddressPoolSelectors"),
        }
    }

    /// Returns whether a pool is among them.
    pub fn has(&self, name: &str, labels: &Labels) -> bool {
        let all = self.names.is_empty() && self.selectors.is_empty();
        all || self.names.contains(name) || self.selectors.any_matches(labels)
    }
}
