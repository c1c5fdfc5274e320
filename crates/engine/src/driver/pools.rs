//! Which pools are in force, and whose they are.

use std::ops::Deref;

use landfall_model::provider::Provider;
use landfall_model::reason::Reason;

use super::Engine;
use crate::report::Report;
use crate::select::Classes;
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
}

/// Decides which pools are in force, and hands each instance its own. Returns what is wrong with
/// any.
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
        provider.set_pools_incomplete(world.pools_incomplete());
        problems.extend(provider.set_pools(pools));
    }
    problems
}
