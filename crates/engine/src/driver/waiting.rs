//! Services that wait for what another one holds: an address, a port, a part of a quota.
//!
//! They stand in line in the order in which they were first refused. One that is
//! called and refused again comes back to its place.

use std::collections::{BTreeMap, HashMap};

use landfall_model::ServiceKey;
use landfall_model::reason::{Reason, Severity};

use crate::instance::InstanceId;

/// The lines, one per provider instance.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The place of each that waits.
    places: HashMap<ServiceKey, Place>,
    /// Those that have not been called since they were last refused.
    line: BTreeMap<Place, ServiceKey>,
    last: u64,
    /// How often those that wait for each instance were called.
    calls: HashMap<InstanceId, u64>,
}

/// An instance, and a number that grows.
type Place = (InstanceId, u64);

// === impl Waiting ===

impl Waiting {
    /// Puts a Service in the line of an instance: at its old place, or at the end.
    pub(super) fn join(&mut self, key: &ServiceKey, instance: InstanceId) {
        let known = self.places.get(key).copied();
        let place = match known {
            Some(place) if place.0 == instance => place,
            _ => {
                self.leave(key);
                self.last += 1;
                (instance, self.last)
            }
        };
        self.places.insert(key.clone(), place);
        self.line.insert(place, key.clone());
    }

    /// Takes a Service out that waits no more.
    pub(super) fn leave(&mut self, key: &ServiceKey) {
        if let Some(place) = self.places.remove(key) {
            self.line.remove(&place);
        }
    }

    /// Returns how often those that wait for an instance were called.
    pub(super) fn calls(&self, instance: InstanceId) -> u64 {
        self.calls.get(&instance).copied().unwrap_or_default()
    }

    /// Calls all that wait for an instance, the longest wait first.
    pub(super) fn call(&mut self, instance: InstanceId) -> Vec<ServiceKey> {
        *self.calls.entry(instance).or_default() += 1;
        let called = self
            .line
            .extract_if((instance, 0)..=(instance, u64::MAX), |_, _| true);
        called.map(|(_, key)| key).collect()
    }
}

/// Returns whether something that another Service releases may resolve one of these reasons.
pub(super) fn waits(reasons: &[Reason]) -> bool {
    let mut errors = reasons.iter().filter(|it| it.severity == Severity::Error);
    errors.any(|reason| reason.code.awaits_release())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(position: usize) -> InstanceId {
        InstanceId::all(&[(); 3]).nth(position).unwrap()
    }

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("default", name)
    }

    #[test]
    fn the_services_that_wait_longest_are_queued_first_and_keep_their_place() {
        let mut waiting = Waiting::default();
        for name in ["z", "m", "a"] {
            waiting.join(&key(name), instance(0));
        }
        assert_eq!(waiting.call(instance(0)), [key("z"), key("m"), key("a")]);
        assert_eq!(waiting.call(instance(0)), [], "they were called already");
        waiting.join(&key("a"), instance(0));
        waiting.join(&key("new"), instance(0));
        waiting.join(&key("z"), instance(0));
        assert_eq!(waiting.call(instance(0)), [key("z"), key("a"), key("new")]);
    }

    #[test]
    fn only_services_that_wait_for_the_instance_are_queued() {
        let mut waiting = Waiting::default();
        for (name, position) in [("a", 0), ("b", 1), ("c", 2), ("d", 1)] {
            waiting.join(&key(name), instance(position));
        }
        assert_eq!(waiting.call(instance(1)), [key("b"), key("d")]);
        waiting.leave(&key("a"));
        assert_eq!(waiting.call(instance(0)), []);
        assert_eq!(waiting.call(instance(2)), [key("c")]);
    }

    #[test]
    fn a_service_that_passes_to_another_instance_waits_there_from_then_on() {
        let mut waiting = Waiting::default();
        waiting.join(&key("a"), instance(0));
        waiting.join(&key("b"), instance(1));
        waiting.join(&key("a"), instance(1));
        assert_eq!(waiting.call(instance(0)), []);
        assert_eq!(waiting.call(instance(1)), [key("b"), key("a")]);
    }
}
