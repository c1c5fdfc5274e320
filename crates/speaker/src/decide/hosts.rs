//! Addresses that other hosts have: they are not announced, and their packets are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use landfall_l2::fsm::{State, Status};

use super::Decider;

// === impl Decider ===

impl Decider {
    /// Takes what becomes of the addresses that this node is elected for.
    pub fn take_announced(&mut self, announced: &BTreeMap<IpAddr, Status>) {
        let mut refused = BTreeSet::new();
        for (address, status) in announced {
            match status.state {
                State::Announcing => self.board.set_announced(*address),
                // It is asked again, and a conflict of a time before was over then.
                State::Conflicted | State::Probing if status.conflict.is_some() => {
                    refused.insert(*address);
                }
                State::Conflicted | State::Probing | State::Waiting => {}
            }
        }
        if refused != self.refused {
            self.refused = refused;
            self.take_reported();
        }
    }

    /// Leaves the packets of addresses alone that other hosts have.
    pub(super) fn leave_to_hosts(&mut self) {
        if let Some(plane) = &mut self.plane {
            plane.take_refused(self.board.refused(&self.refused));
        }
    }
}
