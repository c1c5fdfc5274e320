//! Whatever happened, all live nodes see the same when the network is whole again.

use std::time::Duration;

use crate::world::{State, World};

/// The time after which all see the same.
const BOUND: Duration = Duration::from_secs(1);

/// Schedules in an ordinary run of the tests.
const FEW: u64 = 40;

pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Makes faults for some seconds, and then a whole network.
fn disturb(world: &mut World) {
    let count = world.nodes.len();
    for _ in 0..world.random.usize(3..12) {
        let node = world.random.usize(0..count);
        match world.random.usize(0..12) {
            0 => world.crash(node),
            1 | 2 => world.restart(node),
            3 => world.pause(node),
            4 => world.resume(node),
            5 => world.leave(node),
            6 => {
                // Two halves, or one node alone.
                let side = world.random.usize(1..=count / 2);
                for one in 0..side {
                    for other in side..count {
                        world.network.cut.extend([(one, other), (other, one)]);
                    }
                }
            }
            7 => {
                // Nothing leaves a node, or nothing reaches it, or one pair is cut one-way.
                let other = world.random.usize(0..count);
                let which = world.random.usize(0..3);
                let all = (0..count).filter(|it| which < 2 || *it == other);
                let cut = all.map(|it| if which == 0 { (node, it) } else { (it, node) });
                world.network.cut.extend(cut);
            }
            8 => world.network.loss = 0.3 * world.random.f64(),
            9 => world.network.duplicates = world.random.f64(),
            10 => world.network.late = world.random.f64(),
            _ => {
                let number = world.random.u8(..);
                world.report(node, &[node as u8, number]);
            }
        }
        let wait = world.random.u64(0..800);
        world.run(Duration::from_millis(wait));
    }
    world.network = crate::world::Network::default();
    for node in 0..count {
        world.resume(node);
    }
}

fn play(seed: u64) -> Duration {
    let mut random = fastrand::Rng::with_seed(seed);
    let count = match random.usize(0..20) {
        0 => random.usize(50..=100),
        1..4 => random.usize(10..50),
        _ => random.usize(3..10),
    };
    let mut world = World::new(count, seed);
    if random.bool() {
        world.run(Duration::from_secs(1));
    }
    disturb(&mut world);
    let settled = world.settle(BOUND);
    let took = settled.unwrap_or_else(|difference| {
        panic!("after {BOUND:?}: {difference}; LANDFALL_SEED={seed} repeats it")
    });
    // And nothing changes any more without a cause.
    world.run(Duration::from_millis(500));
    let before = world.revisions();
    world.run(Duration::from_secs(2));
    assert_eq!(world.revisions(), before, "LANDFALL_SEED={seed} repeats it");
    took
}

#[test]
fn all_live_nodes_see_the_same_after_any_schedule_of_faults() {
    if let Some(seed) = number("LANDFALL_SEED") {
        println!("settled after {:?}", play(seed));
        return;
    }
    let first = number("LANDFALL_FIRST").unwrap_or(0);
    let count = number("LANDFALL_SCHEDULES").unwrap_or(FEW);
    let mut took: Vec<Duration> = (first..first + count).map(play).collect();
    took.sort_unstable();
    let at = |part: usize| took[(took.len() - 1) * part / 1_000];
    println!(
        "{count} schedules settled after {:?} (median), {:?} (99 %), {:?} (longest)",
        at(500),
        at(990),
        at(1_000)
    );
}

#[test]
fn a_partition_moves_no_member_that_stays_on_this_side() {
    let mut world = World::new(10, 7);
    world.settle(BOUND).unwrap();
    for one in 0..5 {
        for other in 5..10 {
            world.network.cut.extend([(one, other), (other, one)]);
        }
    }
    world.run(Duration::from_secs(2));
    let seen = |world: &World| {
        let machines = world.nodes.iter().map(|it| &it.machine);
        machines.map(|it| it.peers().len()).collect::<Vec<_>>()
    };
    assert_eq!(seen(&world), [4; 10]);
    world.network = crate::world::Network::default();
    // While both sides find each other, none of the own side is missed.
    for _ in 0..200 {
        world.run(Duration::from_millis(5));
        for node in 0..10 {
            let side = if node < 5 { 0..5 } else { 5..10 };
            let peers = world.nodes[node].machine.peers();
            for other in side.filter(|it| *it != node) {
                assert!(peers.contains_key(&crate::world::name(other)), "{other}");
            }
        }
    }
    assert_eq!(world.difference(), None);
}

#[test]
fn a_node_that_leaves_is_gone_at_once_and_comes_back_when_it_starts() {
    let mut world = World::new(20, 3);
    world.settle(BOUND).unwrap();
    world.leave(4);
    let took = world.settle(BOUND).unwrap();
    assert!(took <= Duration::from_millis(5), "{took:?}");
    world.run(Duration::from_secs(3));
    world.restart(4);
    assert_eq!(world.nodes[4].state, State::Runs);
    let took = world.settle(BOUND).unwrap();
    assert!(took <= Duration::from_millis(200), "{took:?}");
}

/// The number of meetings that each node counted since `before`.
fn met(world: &World, before: &[u64]) -> Vec<u64> {
    let now = world.nodes.iter().map(|it| it.machine.reunions());
    now.zip(before).map(|(now, before)| now - before).collect()
}

#[test]
fn nodes_that_acted_without_each_other_notice_when_they_meet_again() {
    let mut world = World::new(4, 9);
    world.settle(BOUND).unwrap();
    world.run(Duration::from_secs(2));
    let reunions = |world: &World| -> Vec<u64> { met(world, &[0; 4]) };
    let before = reunions(&world);
    for other in 0..3 {
        world.network.cut.extend([(3, other), (other, 3)]);
    }
    world.run(Duration::from_secs(2));
    assert_eq!(met(&world, &before), [0; 4]);
    world.network = crate::world::Network::default();
    world.settle(BOUND).unwrap();
    let met_again = met(&world, &before);
    assert!(met_again.iter().all(|it| *it > 0), "{met_again:?}");

    // One that did not run held no other for dead, and learns that it was.
    let before = reunions(&world);
    world.pause(2);
    world.run(Duration::from_secs(2));
    world.resume(2);
    world.settle(BOUND).unwrap();
    let met_again = met(&world, &before);
    assert!(met_again.iter().all(|it| *it > 0), "{met_again:?}");
}

#[test]
fn a_planned_restart_and_a_suspicion_that_was_refuted_are_no_meetings() {
    let mut world = World::new(4, 5);
    world.settle(BOUND).unwrap();
    world.run(Duration::from_secs(2));
    let before = met(&world, &[0; 4]);
    world.leave(1);
    world.settle(BOUND).unwrap();
    world.restart(1);
    world.settle(BOUND).unwrap();
    // Only this node does not reach that one, so it suspects it, and learns that it is alive.
    world.network.cut.extend([(0, 2), (2, 0)]);
    world.run(Duration::from_secs(1));
    world.network = crate::world::Network::default();
    world.run(Duration::from_secs(1));
    let refuted = world.nodes[2].machine.counts().refuted;
    assert!(refuted > 0);
    let met = met(&world, &before);
    assert_eq!([met[0], met[2], met[3]], [0; 3]);
}

#[test]
fn a_node_without_a_speaker_is_greeted_seldom_and_one_that_starts_there_is_found_at_once() {
    let mut world = World::new(4, 21);
    world.crash(3);
    let greetings = |world: &mut World| {
        world.recorded = Some(Vec::new());
        world.run(Duration::from_secs(10));
        let recorded = world.recorded.take().unwrap();
        recorded.iter().filter(|(to, _)| *to == 3).count()
    };
    let at_first = greetings(&mut world);
    world.run(Duration::from_secs(25));
    let in_the_end = greetings(&mut world);
    println!("hellos in 10 s: {at_first} at first, {in_the_end} in the end");
    assert!(at_first >= 100 && (1..30).contains(&in_the_end));
    world.restart(3);
    let took = world.settle(BOUND).unwrap();
    assert!(took <= Duration::from_millis(200), "{took:?}");
}

#[test]
fn a_side_that_was_cut_off_for_long_is_found_as_soon_as_one_that_was_not() {
    let mut world = World::new(3, 22);
    world.settle(BOUND).unwrap();
    world.network.cut.extend([(0, 1), (1, 0), (0, 2), (2, 0)]);
    world.run(Duration::from_mins(11));
    world.network = crate::world::Network::default();
    let took = world.settle(BOUND).unwrap();
    assert!(took <= Duration::from_millis(500), "{took:?}");
}
