//! Which flow makes room for a new one where there may be no more. Ends flows, begins none.

use super::{Flows, Key};
use crate::admission::Excess;
use crate::budget::Source;
use crate::listener::Place;

/// So many ports with the most flows above the minimum of their Service are checked for one that
/// is still above it.
const LOOKS: usize = 16;

impl Flows {
    /// Whether a flow may end in favour of a new one of this listener and source.
    pub(super) fn can_make_room(
        &mut self,
        port: Key,
        source: Option<Source>,
        excess: Excess,
    ) -> bool {
        self.giver(port, source, excess).is_some()
    }

    /// Takes what a new flow of a listener needs in place of what others give back.
    pub(super) fn make_room(
        &mut self,
        (port, source): (Key, Option<Source>),
        excess: Excess,
        place: &mut Place,
    ) -> bool {
        // A holder of more than its share, because others want more now, gives it back by and by.
        let rounds = if excess == Excess::All { 1 } else { 2 };
        for _ in 0..rounds {
            if let Some(giver) = self.giver(port, source, excess) {
                self.end_oldest_of(giver);
            }
        }
        place.take_again(source).is_ok()
    }

    /// The port whose oldest flow makes room: the same one, or where it has none and nothing is
    /// left, one whose Service is above its minimum.
    fn giver(&mut self, port: Key, source: Option<Source>, excess: Excess) -> Option<Key> {
        let own = match excess {
            Excess::Service | Excess::All => self.has_flows(port),
            // Not a flow of another client of the Service.
            Excess::Source => self.is_oldest_of(port, source),
        };
        match excess {
            _ if own => Some(port),
            Excess::All => self.port_with_most(),
            Excess::Service | Excess::Source => None,
        }
    }

    fn has_flows(&mut self, port: Key) -> bool {
        let port = self.ports.get_mut(port);
        port.is_some_and(|port| port.known.oldest().is_some())
    }

    fn is_oldest_of(&mut self, port: Key, source: Option<Source>) -> bool {
        let Some(port) = self.ports.get_mut(port) else {
            return false;
        };
        let oldest = port.known.oldest().map(|(_, key)| *key);
        oldest
            .and_then(|key| self.table.get_mut(key))
            .is_some_and(|flow| flow.source == source)
    }

    /// Ends the flow of a listener that was silent for longest. `false`: it has none.
    pub(super) fn end_oldest_of(&mut self, port: Key) -> bool {
        let oldest = self
            .ports
            .get_mut(port)
            .and_then(|port| port.known.pop_oldest());
        let Some((_, oldest)) = oldest else {
            return false;
        };
        self.end(oldest);
        true
    }

    /// The port with the most flows of the common part whose Service has more than its minimum.
    pub(super) fn port_with_most(&mut self) -> Option<Key> {
        let most = self.ranks.iter().rev().take(LOOKS);
        let most: Vec<u32> = most.map(|&(_, place)| place).collect();
        most.into_iter().find_map(|place| {
            let key = self.ports.key_at(place)?;
            let port = self.ports.get_mut(key)?;
            let is_above = port.listener.account().is_above_minimum();
            (is_above && self.has_flows(key)).then_some(key)
        })
    }

    /// Notes how many flows of a port are of the common part.
    pub(super) fn count_common(&mut self, key: Key, change: impl FnOnce(u32) -> u32) {
        let Some(port) = self.ports.get_mut(key) else {
            return;
        };
        let before = port.common;
        port.common = change(before);
        self.ranks.remove(&(before, key.index));
        if port.common > 0 {
            self.ranks.insert((port.common, key.index));
        }
    }
}
