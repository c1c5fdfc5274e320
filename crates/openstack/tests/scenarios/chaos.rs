//! Random stories under random faults: afterwards every Service has what it asks for, or says why
//! not.
//!
//! `LANDFALL_TEST_SEED=17` runs one story, `LANDFALL_TEST_SCHEDULES=10000` that many.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use landfall_openstack::Groups;
use landfall_testkit::openstack::{Chaos, Fate, Fault, Settle, Sim, Start};

use crate::cluster::Mishap;
use crate::foreign_objects;
use crate::image;
use crate::rig::Rig;
use crate::shapes::{Dice, Story};
use crate::verdict::{Verdict, picture};

/// As many as a debug build runs in half a minute.
const STORIES: u64 = 100;

/// So many writes are shown of a story that failed.
const LAST: usize = 40;

/// Stories that failed once, run after the first ones. What happens in them changes with the code.
const FAILED_ONCE: [u64; 30] = [
    440, 590, 932, 943, 982, 1012, 1094, 3131, 3246, 4690, 4870, 5492, 7376, 7523, 7873, 8114,
    8208, 8234, 8451, 10584, 11474, 19888, 22413, 4755, 4955, 4958, 5306, 6183, 8616, 8683,
];

/// Sums over all stories.
#[derive(Default)]
struct Sums {
    faults: AtomicUsize,
    calls: AtomicUsize,
    reasons: AtomicUsize,
    services: AtomicUsize,
}

/// What went wrong in one story.
type Problems = Vec<String>;

#[test]
fn whatever_happens_services_converge_or_say_why_not() {
    let number = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().unwrap());
    let seed = number("LANDFALL_TEST_SEED");
    let seeds: Vec<u64> = if let Some(seed) = seed {
        vec![seed]
    } else {
        let end = number("LANDFALL_TEST_SCHEDULES").unwrap_or(STORIES);
        let again = FAILED_ONCE.into_iter().filter(|seed| *seed >= end);
        (0..end).chain(again).collect()
    };
    let next = AtomicUsize::new(0);
    let sums = Sums::default();
    let report = || {
        let mut failed = Vec::new();
        loop {
            let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) else {
                return failed;
            };
            let seed = *seed;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build();
            let problems = runtime.unwrap().block_on(story(seed, &sums));
            if !problems.is_empty() {
                failed.push((seed, problems));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut failed: Vec<(u64, Problems)> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(report)).collect();
        all.into_iter().flat_map(|it| it.join().unwrap()).collect()
    });
    failed.sort();
    let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    println!(
        "{} stories, {} calls, {} faults, {} Services in the end, {} of them with a Reason; {} \
        failed",
        seeds.len(),
        of(&sums.calls),
        of(&sums.faults),
        of(&sums.services),
        of(&sums.reasons),
        failed.len()
    );
    let mut text = String::new();
    for (seed, problems) in failed.iter().take(if seed.is_some() { 1 } else { 12 }) {
        let all = problems.join("\n");
        writeln!(text, "LANDFALL_TEST_SEED={seed} replays this:\n{all}\n").unwrap();
    }
    assert!(failed.is_empty(), "{} stories failed\n{text}", failed.len());
}

pub fn world(seed: u64, dice: &mut Dice) -> Rig {
    let sim = Sim::with(&Start {
        seed,
        epoch: Some(1_800_000_000),
        ..Start::default()
    });
    let settle = Settle::all(Duration::from_millis(500 + 500 * dice.below(6) as u64));
    let failover = dice.once_in(2);
    sim.configure(|settings| {
        settings.settle = settle;
        settings.failover_allowed = failover;
    });
    let mut conf = String::new();
    if !dice.once_in(3) {
        conf.push_str("manage-security-groups=true\n");
    }
    if dice.once_in(3) {
        conf.push_str("cascade-delete=false\n");
    }
    if dice.once_in(6) {
        conf.push_str("provider-requires-serial-api-calls=true\n");
    }
    let mut rig = Rig::in_world(sim, &conf);
    if dice.once_in(2) {
        rig.settings.groups = Groups::PerCluster;
    }
    rig
}

/// Faults of the cloud and of the cluster, counted; some calls never end.
pub fn unleash(rig: &Rig, seed: u64, faults: &Arc<AtomicUsize>) {
    let sim = &rig.sim;
    let chaos = Chaos::new(seed);
    let (mut calls, mut locks) = (chaos.calls(), chaos.locks());
    let mut dice = Dice::new(seed ^ 0xdead);
    let count = faults.clone();
    sim.on_call(move |call| {
        let fault = if dice.once_in(150) {
            Some(Fault::HangAfter)
        } else if dice.once_in(200) {
            Some(Fault::HangBefore)
        } else {
            calls(call)
        };
        count.fetch_add(usize::from(fault.is_some()), Ordering::Relaxed);
        fault
    });
    let (mut dice, count) = (Dice::new(seed ^ 0xbeef), faults.clone());
    rig.cluster.on_write(move || {
        let mishap = match dice.below(60) {
            0 | 1 => Some(Mishap::Refused),
            2 | 3 => Some(Mishap::Lost),
            _ => None,
        };
        count.fetch_add(usize::from(mishap.is_some()), Ordering::Relaxed);
        mishap
    });
    let count = faults.clone();
    sim.on_lock(move |write, id| {
        let fate = locks(write, id);
        count.fetch_add(usize::from(fate != Fate::Active), Ordering::Relaxed);
        fate
    });
}

async fn story(seed: u64, sums: &Sums) -> Problems {
    let mut dice = Dice::new(seed);
    let mut rig = world(seed, &mut dice);
    let ports = rig.sim.ports();
    let of_node = ports.iter().find(|it| it["name"] == "a");
    if dice.once_in(2) {
        foreign_objects::settle_in(&rig.sim, of_node.and_then(|it| it["id"].as_str()));
    }
    let foreign = rig.sim.snapshot_foreign();
    let mut story = Story::new(seed);
    let faults = Arc::new(AtomicUsize::new(0));
    unleash(&rig, seed, &faults);
    rig.start();
    story.create(&mut rig);
    for _ in 0..4 + dice.below(12) {
        story.go_on(&mut rig);
        let pause = match dice.below(3) {
            0 => dice.below(20),
            1 => dice.below(2_000),
            _ => dice.below(40_000),
        };
        rig.wait(Duration::from_millis(pause as u64)).await;
        if dice.once_in(6) {
            story.reported.push("restart".to_owned());
            rig.kill();
            rig.wait(Duration::from_millis(dice.below(5_000) as u64))
                .await;
            rig.start();
        }
    }
    rig.sim.heal();
    rig.cluster.on_write(|| None);
    rig.wait(Duration::from_secs(900)).await;
    let shall = calm(&rig, seed, &story).await;
    let verdict = Verdict {
        rig: &rig,
        shapes: &story.shapes,
        is: picture(&rig),
        shall,
    };
    let (mut problems, reasons) = verdict.pass();
    for name in story.shapes.keys() {
        rig.cluster.delete(name);
    }
    rig.wait(Duration::from_secs(600)).await;
    let left = picture(&rig);
    if !image::is_bare(&left) {
        problems.push(format!("left behind: {left:#}"));
    }
    if !rig.cluster.services().is_empty() {
        let there = rig.cluster.services();
        let there: Vec<_> = there.iter().map(|it| (&it.key, &it.status)).collect();
        problems.push(format!("Services do not go: {there:?}"));
    }
    if rig.sim.snapshot_foreign() != foreign {
        problems.push("something of others was touched".to_owned());
    }
    let add = |to: &AtomicUsize, count| to.fetch_add(count, Ordering::Relaxed);
    add(&sums.faults, faults.load(Ordering::Relaxed));
    add(&sums.calls, rig.sim.call_count());
    add(&sums.reasons, reasons);
    add(&sums.services, story.shapes.len());
    if !problems.is_empty() {
        problems.push(story.reported.join("\n"));
        problems.push(last_calls(&rig.sim));
    }
    problems
}

/// What was written last.
fn last_calls(sim: &Sim) -> String {
    let calls = sim.calls();
    let writes = calls.iter().filter(|it| it.is_write());
    let lines = writes.map(|it| {
        let (at, query) = (it.at.as_secs_f64(), &it.query);
        format!("{at:8.1} s {} {}?{query} {}", it.method, it.path, it.status)
    });
    let lines: Vec<String> = lines.collect();
    lines[lines.len().saturating_sub(LAST)..].join("\n")
}

/// The cloud of the same Services and nodes where nothing ever went wrong.
async fn calm(rig: &Rig, seed: u64, story: &Story) -> serde_json::Value {
    let mut calm = world(seed, &mut Dice::new(seed));
    for (name, address) in &story.nodes {
        if !["a", "b"].contains(&name.as_str()) {
            calm.add_node(name, address);
        }
    }
    for name in ["a", "b"] {
        if !story.nodes.contains_key(name) {
            calm.cluster.remove_node(name);
        }
    }
    calm.settings.clone_from(&rig.settings);
    for shape in story.shapes.values() {
        calm.cluster.apply(&shape.build(true).row());
    }
    calm.start();
    calm.wait(Duration::from_secs(120)).await;
    picture(&calm)
}
