//! A plan follows from its arguments alone: whatever else happens between two calls, the second
//! one returns what the first one returned, and what a process without memory returns.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use landfall_engine::{World, resolve};
use landfall_model::plan::Plan;
use landfall_model::provider::Provider;
use landfall_model::{Intent, Reason};
use landfall_openstack::{Observed, OpenStack, Step};

use crate::chaos::{unleash, world};
use crate::rig::{Rig, cloud};
use crate::shapes::{Dice, Story};

/// Stories from whose states plans are made.
const STORIES: u64 = 20;
/// Plans that are made at least.
const PLANS: usize = 1_000;
/// Plans that are not empty at least.
const WITH_STEPS: usize = 50;

/// A state, and what was planned from it by a process that knows nothing else.
struct Sample {
    want: Intent,
    have: Observed,
    alone: Result<Plan<Step>, Vec<Reason>>,
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_the_same_whatever_happens_between_two_calls() {
    let (mut plans, mut with_steps, mut refused) = (0, 0, 0);
    for seed in 0..STORIES {
        let mut rig = world(seed, &mut Dice::new(seed));
        let mut story = Story::new(seed);
        unleash(&rig, seed, &Arc::new(AtomicUsize::new(0)));
        rig.start();
        story.create(&mut rig);
        let mut samples = Vec::new();
        for _ in 0..10 {
            story.go_on(&mut rig);
            let pause = story.dice.below(20_000) as u64;
            rig.wait(Duration::from_millis(pause)).await;
            let provider = rig.provider.clone().unwrap();
            // Faults may make it fail; it is the memory that an audit changes that matters here.
            let _ = provider.audit().await;
            for want in intents(&rig, &provider) {
                // A dry run reads the cloud, and applies nothing.
                let Ok(have) = provider.observe(&want).await else {
                    continue;
                };
                let client = cloud(&rig.sim, Some("alone/1"));
                let alone = OpenStack::new(client, rig.settings.clone()).plan(&want, &have);
                with_steps += usize::from(alone.as_ref().is_ok_and(|it| !it.is_empty()));
                refused += usize::from(alone.is_err());
                samples.push(Sample { want, have, alone });
            }
            for Sample { want, have, alone } in &samples {
                assert_eq!(provider.plan(want, have), *alone, "seed {seed}: {have:#?}");
                plans += 1;
            }
        }
    }
    assert!(plans >= PLANS, "{plans} plans");
    assert!(with_steps >= WITH_STEPS, "{with_steps} plans with steps");
    assert!(refused > 0, "no plan was refused");
}

/// What the Services of the cluster want at this moment.
fn intents(rig: &Rig, provider: &OpenStack) -> Vec<Intent> {
    let mut world = World::default();
    for fact in rig.cluster.facts() {
        world.apply(fact);
    }
    let services = rig.cluster.services();
    let wanted = services
        .iter()
        .filter_map(|row| resolve(row, &world, provider.profile()).ok());
    wanted.collect()
}
