//! The start of a node: whether others announce what it is elected for.

use landfall_l2::election::{self, Node};
use landfall_l2::fsm::Start;

use super::{Board, NEW};

// === impl Board ===

impl Board {
    /// From now on what is there at the start counts as announced.
    pub fn assume_announced(&mut self) {
        self.is_announced_at_start = true;
    }

    /// Takes that everything is known that was there at the start.
    pub fn set_current(&mut self) {
        self.begin();
        self.is_current = true;
    }

    /// Decides for what this node is elected for at its start whether another node announces it:
    /// the one that is elected without this one, unless it reports a host that has the address.
    /// What no node is elected for is announced by none. A second time, what came since the first
    /// counts as new: the one that is elected may have it for a moment only.
    pub fn begin(&mut self) {
        // Reports may have come before the addresses that they are about.
        self.apply_refused();
        if self.is_announced_at_start {
            return;
        }
        self.has_begun = true;
        let others = self.nodes.iter().filter(|it| *it.name != *self.own);
        let others: Vec<Node> = others.cloned().collect();
        let mut addresses = std::mem::take(&mut self.addresses);
        for (address, elected) in &mut addresses {
            let announces = match elected.owner.as_deref() {
                Some(owner) if *owner != *self.own => continue,
                Some(_) if elected.is_unasked => false,
                Some(_) => {
                    let services = self.services_of(*address, elected);
                    let election = election::elect(*address, &services, &others, self.rules);
                    let owner = election.owner();
                    owner.is_some() && !self.is_refused(*address, owner)
                }
                None => {
                    elected.is_unasked = true;
                    false
                }
            };
            if announces {
                elected.unsettled = 0;
                elected.start = Start::TakeOver;
            } else {
                elected.unsettled = elected.unsettled.max(NEW);
                elected.start = Start::Probe;
            }
        }
        self.addresses = addresses;
    }
}
