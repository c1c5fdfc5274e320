//! What happens: a random schedule of faults and changes, and then a time without any.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::cluster::{FOREIGN_HOST, Service, addresses};
use crate::validate::{BOUND, LEARNED};
use crate::world::{Pause, SERVICES, World};

/// A schedule that was played.
#[derive(Debug, Default)]
pub struct Played {
    pub violations: Vec<String>,
    pub story: String,
    pub nodes: usize,
    pub faults: u64,
    pub outages: Vec<Duration>,
    pub longest_two: Duration,
    pub right: u64,
    pub questions_to_foreign_host: u64,
}

/// Longer than a start takes until its speaker takes part.
const START: Duration = Duration::from_millis(1_500);

/// Plays the schedule of a seed; `count`: with so many nodes.
pub fn play(seed: u64, count: Option<usize>) -> Played {
    let mut random = fastrand::Rng::with_seed(seed);
    let count = count.unwrap_or_else(|| match random.usize(0..100) {
        0..2 => random.usize(50..=100),
        2..12 => random.usize(10..50),
        _ => random.usize(3..10),
    });
    let mut world = World::new(count, random.u64(..));
    for number in 0..SERVICES {
        if world.random.u8(0..4) > 0 {
            let service = any_service(&mut world, number);
            world.cluster.put(number, service);
        }
    }
    let service = Service {
        addresses: addresses(FOREIGN_HOST),
        is_local: false,
        endpoints: BTreeSet::from([0]),
    };
    world.cluster.put(FOREIGN_HOST, service);
    for node in 0..count {
        world.start(node);
        if world.random.u8(0..8) == 0 {
            world.run(Duration::from_millis(20));
        }
    }
    if world.random.u8(0..4) > 0 {
        world.run(START + BOUND);
    }
    let faults = world.random.u64(3..14);
    for _ in 0..faults {
        disturb(&mut world);
        let wait = match world.random.u8(0..8) {
            0..4 => world.random.u64(0..300),
            4..7 => world.random.u64(300..900),
            _ => world.random.u64(900..2_500),
        };
        world.run(Duration::from_millis(wait));
    }
    recover(&mut world);
    world.run(START + LEARNED);
    let after = Duration::from_millis(500);
    world.run(after);
    let validator = world.validator;
    Played {
        questions_to_foreign_host: world.questions_to_foreign_host,
        violations: validator.violations,
        story: world.story,
        nodes: count,
        faults,
        outages: validator.outages,
        longest_two: validator.longest_two,
        right: validator.right,
    }
}

/// The end of all faults. Nodes that crashed may stay away.
fn recover(world: &mut World) {
    world.note("everything recovers");
    world.network.heal(world.now);
    for node in 0..world.nodes.len() {
        world.resume(node);
        world.set_port(node, true);
        world.thaw(node);
        if world.random.bool() {
            world.start(node);
        }
    }
}

fn any_service(world: &mut World, number: usize) -> Service {
    let is_local = world.random.u8(0..3) == 0;
    Service {
        addresses: addresses(number),
        is_local,
        endpoints: any_nodes(world),
    }
}

fn any_nodes(world: &mut World) -> BTreeSet<usize> {
    let count = world.nodes.len();
    let some = world.random.usize(0..4);
    (0..some).map(|_| world.random.usize(0..count)).collect()
}

/// One fault, or the end of some, or a change of the cluster.
fn disturb(world: &mut World) {
    let node = world.random.usize(0..world.nodes.len());
    match world.random.u8(0..24) {
        0..3 => world.crash(node),
        3..6 => world.start(node),
        6 => world.stop(node),
        7 => world.pause(node, Pause::Long),
        8 | 9 => {
            world.pause(node, Pause::Short);
            let pause = world.random.u64(5..60);
            world.run(Duration::from_millis(pause));
            if world.nodes[node].pause == Some(Pause::Short) {
                world.resume(node);
            }
        }
        10 => (0..world.nodes.len()).for_each(|node| world.resume(node)),
        11 => split(world),
        12 | 13 => cut(world, node),
        14 | 15 => {
            world.note("the network is whole again");
            world.network.heal(world.now);
        }
        16 => make_rough(world),
        17 => {
            let is_there = !world.nodes[node].has_port;
            world.set_port(node, is_there);
        }
        18 | 19 => freeze(world),
        _ => change(world, node),
    }
}

/// Two sides without each other; one may be a single node.
fn split(world: &mut World) {
    let count = world.nodes.len();
    let side = world.random.usize(1..=count / 2);
    // The nodes of a side have nothing in common.
    let mut nodes: Vec<usize> = (0..count).collect();
    world.random.shuffle(&mut nodes);
    let (one, other) = nodes.split_at(side);
    let cuts_frames = world.random.bool();
    world.note(&format!("{one:?} are cut off, with frames: {cuts_frames}"));
    world.validator.forget_outages();
    world.network.cuts_frames = cuts_frames;
    for one in one {
        for other in other {
            world.network.cut.extend([(*one, *other), (*other, *one)]);
        }
    }
}

/// Nothing leaves a node, or nothing reaches it, or one pair is cut in one direction.
fn cut(world: &mut World, node: usize) {
    let count = world.nodes.len();
    let other = world.random.usize(0..count);
    let which = world.random.u8(0..3);
    world.note(&format!("{node} is cut one-way: {which}, {other}"));
    world.validator.forget_outages();
    let all = (0..count).filter(|it| which < 2 || *it == other);
    let cut = all.map(|it| if which == 0 { (node, it) } else { (it, node) });
    world.network.cut.extend(cut);
}

fn make_rough(world: &mut World) {
    world.network.note(world.now);
    world.validator.forget_outages();
    let network = &mut world.network;
    network.loss = match world.random.u8(0..3) {
        0 => 0.3 * world.random.f64(),
        _ => 0.01 * world.random.f64(),
    };
    network.duplicates = world.random.f64();
    network.late = world.random.f64();
    let now = format!(
        "lost: {:.3}, twice: {:.3}, late: {:.3}",
        network.loss, network.duplicates, network.late
    );
    world.note(&now);
}

/// The API server is away for some or all, or there again.
fn freeze(world: &mut World) {
    let (all, is_away) = (world.random.bool(), world.random.u8(0..3) > 0);
    world.note(&format!(
        "the API server is away: {is_away}, for all: {all}"
    ));
    for node in 0..world.nodes.len() {
        if all || world.random.bool() {
            if is_away {
                world.freeze(node);
            } else {
                world.thaw(node);
            }
        }
    }
}

fn change(world: &mut World, node: usize) {
    let mut number = world.random.usize(0..SERVICES);
    // Now and then it is the one whose addresses a host has.
    if world.random.u8(0..4) == 0 {
        number = FOREIGN_HOST;
    }
    match world.random.u8(0..5) {
        0 if number != FOREIGN_HOST => {
            world.note(&format!("Service {number} is deleted"));
            world.cluster.delete(number);
        }
        1 => {
            let is_excluded = world.random.bool();
            world.note(&format!("{node} is excluded: {is_excluded}"));
            world.cluster.exclude(node, is_excluded);
        }
        _ => {
            let service = any_service(world, number);
            let (is_local, endpoints) = (service.is_local, &service.endpoints);
            world.note(&format!("Service {number}: {is_local}, {endpoints:?}"));
            world.cluster.put(number, service);
        }
    }
    world.publish();
}
