//! The addresses that other hosts have, as their owners say.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use landfall_l2::election::fingerprint;

use super::Board;

// === impl Board ===

impl Board {
    /// Returns the addresses that other hosts have. `own`: those that this node found so.
    ///
    /// Of other nodes only fingerprints are known. One that fits several addresses of its owner
    /// says of none of them that a host has it: addresses of equal fingerprints can be found, and
    /// a conflict at one must not take another down.
    pub fn refused(&self, own: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        let mut refused = BTreeSet::new();
        if own.is_empty() && self.refused.values().all(|it| it.addresses.is_empty()) {
            return refused;
        }
        let mut reported: BTreeMap<(&str, u32), Vec<IpAddr>> = BTreeMap::new();
        for (address, elected) in &self.addresses {
            let Some(owner) = elected.owner.as_deref() else {
                continue;
            };
            let print = fingerprint(*address);
            let of_owner = self.refused.get(owner);
            if *owner == *self.own {
                refused.extend(own.get(address));
            } else if of_owner.is_some_and(|it| it.addresses.contains(&print)) {
                reported.entry((owner, print)).or_default().push(*address);
            }
        }
        let clear = reported.into_values().filter(|fitting| fitting.len() == 1);
        refused.extend(clear.flatten());
        refused
    }
}
