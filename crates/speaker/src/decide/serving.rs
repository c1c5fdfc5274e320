//! What routers are sent of the addresses that this node serves itself.

use std::collections::BTreeSet;
use std::net::IpAddr;

use landfall_model::ServiceKey;

use super::Decider;
use crate::steady::Part;

// === impl Decider ===

impl Decider {
    /// Takes the addresses whose packets this node takes, where it serves Services itself. Routers
    /// are sent no others.
    pub fn take_routed(&mut self, routed: &BTreeSet<IpAddr>) {
        if let Some(plane) = &mut self.plane {
            let changed = plane.take_routed(routed);
            self.take_facts_at(changed);
        }
    }

    fn take_facts_at(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        let holders = addresses.into_iter().flat_map(|it| self.board.holders(it));
        let keys: BTreeSet<ServiceKey> = holders.cloned().collect();
        if !keys.is_empty() {
            for key in &keys {
                self.take_facts_of(key);
            }
            self.router.settle();
        }
    }

    /// Withholds the routes of addresses that this node can't serve all of, where another one can.
    /// Where none can, a part is better than nothing.
    pub(super) fn leave_to_others(&mut self) {
        let unsteady = self.unsteady.iter().filter_map(|part| match part {
            Part::Address(address) => Some(*address),
            _ => None,
        });
        let left: BTreeSet<IpAddr> = unsteady.filter(|it| self.others_serve(*it)).collect();
        let before = std::mem::replace(&mut self.left, left);
        let changed = before.symmetric_difference(&self.left).copied();
        self.take_facts_at(changed.collect::<Vec<_>>());
    }

    /// Returns whether another node sends routers an address, and serves all of it.
    fn others_serve(&self, address: IpAddr) -> bool {
        let all = self.config.bgp_advertisements();
        let others = self.world.nodes().filter(|row| row.name != self.own);
        let mut able = others.filter(|row| {
            let node = self.board.node(&row.name);
            node.is_some_and(|it| it.is_alive && !it.inability.is_of_serving(address))
        });
        able.any(|node| {
            self.board.holders(address).any(|key| {
                let (row, facts) = (self.world.service(key), self.board.facts(key));
                row.zip(facts).is_some_and(|(row, facts)| {
                    let places = self.config.bgp_of(address, &row.labels).into_iter();
                    let mut advertised = places.filter_map(|place| all.get(place));
                    let has_endpoint =
                        !facts.is_local || facts.endpoint_nodes.contains(&*node.name);
                    has_endpoint
                        && !node.network_unavailable
                        && advertised.any(|it| it.of.advertisement.nodes.accepts(&node.labels))
                })
            })
        })
    }
}
