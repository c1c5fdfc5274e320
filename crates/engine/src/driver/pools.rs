//! Which pools are in force, and whose they are; custom resources for the instances that read them.

use std::ops::Deref;
use std::time::Instant;

use landfall_model::ServiceKey;
use landfall_model::provider::Provider;
use landfall_model::reason::Reason;

use super::Engine;
use crate::report::Report;
use crate::select::{Classes, Ownership};
use crate::world::World;

impl<P: Provider, R: Report> Engine<P, R> {
    /// Hands each instance its pools.
    pub(super) fn set_pools(&mut self) {
        let providers = &self.handle.providers;
        let world = self.world.world_mut();
        self.pool_problems = hand_out_pools(world, &self.config.classes, providers);
    }

    /// Lets pools that have changed come into force.
    pub(super) fn apply_pools(&mut self) {
        self.pools.clear();
        if self.at_work {
            self.set_pools();
            self.push_all();
            self.note_problems();
        }
    }

    /// Takes a change of other custom resources, which is of no interest to instances that read
    /// none.
    pub(super) fn note_resources(&mut self, now: Instant) {
        let mut providers = self.handle.providers.iter();
        if providers.any(|it| !it.profile().resources.is_empty()) {
            self.resources.push(now);
        }
    }

    /// Lets custom resources that have changed come into force, for the Services of instances that
    /// read any.
    pub(super) fn apply_resources(&mut self) {
        self.resources.clear();
        if self.at_work {
            self.set_pools();
            let keys = self.world.keys();
            let keys: Vec<ServiceKey> = keys.filter(|key| self.rests_on_resources(key)).collect();
            self.push_gently(&keys);
            self.note_problems();
        }
    }

    fn rests_on_resources(&self, key: &ServiceKey) -> bool {
        let Some(affiliation) = self.world.affiliation(key) else {
            return false;
        };
        let namespace = self.world.namespace(key.namespace());
        let classes = &self.config.classes;
        match classes.validate_affiliation(affiliation, namespace.map(AsRef::as_ref)) {
            Ownership::Ours(instance) => {
                let provider = instance.of(&self.handle.providers);
                provider.is_some_and(|it| !it.profile().resources.is_empty())
            }
            Ownership::NotOurs | Ownership::SwitchedOff | Ownership::UnknownClass => false,
        }
    }
}

/// Decides which pools are in force, and hands each instance its own, and the custom resources that
/// it reads. Returns what is wrong with any.
pub fn hand_out_pools<P: Provider>(
    world: &mut World,
    classes: &Classes,
    providers: &[impl Deref<Target = P>],
) -> Vec<Reason> {
    let takes = providers.iter().map(|it| it.profile().takes_pools);
    let takes: Vec<bool> = takes.collect();
    let home = classes.home_of_pools(&takes);
    let mut problems = world.settle_pools(home.and_then(|home| classes.name(home)));
    let shares = classes.share_pools(world.pools(), &takes);
    for (provider, pools) in providers.iter().zip(&shares) {
        let kinds = provider.profile().resources;
        if !kinds.is_empty() {
            let resources: Vec<_> = world.resources(kinds).cloned().collect();
            problems.extend(provider.set_resources(&resources));
        }
        provider.set_pools_incomplete(world.pools_incomplete());
        problems.extend(provider.set_pools(pools));
    }
    problems
}
