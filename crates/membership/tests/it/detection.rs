//! How fast a crash is known, and that nothing else is taken for one.

use std::time::Duration;

use crate::world::World;

fn died(world: &World) -> u64 {
    world.nodes.iter().map(|it| it.machine.counts().died).sum()
}

#[test]
fn a_crash_is_known_to_all_within_300_ms() {
    let many = crate::convergence::number("LANDFALL_CRASHES");
    for (count, few) in [(3, 100), (10, 100), (100, 10)] {
        let mut took = Vec::new();
        let mut world = World::new(count, 1);
        world.settle(Duration::from_secs(1)).unwrap();
        for _ in 0..many.unwrap_or(few) {
            let wait = world.random.u64(400..800);
            world.run(Duration::from_millis(wait));
            let node = world.random.usize(0..count);
            world.crash(node);
            took.push(world.settle(Duration::from_secs(1)).unwrap());
            world.restart(node);
            world.settle(Duration::from_secs(1)).unwrap();
        }
        took.sort_unstable();
        let (median, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
        println!(
            "{count} members, {} crashes: median {median:?}, p99 {p99:?}",
            took.len()
        );
        assert!(p99 <= Duration::from_millis(300), "{count}: {p99:?}");
    }
}

#[test]
fn crashes_of_many_at_once_are_known_to_the_others() {
    let mut world = World::new(60, 5);
    world.settle(Duration::from_secs(1)).unwrap();
    for node in 0..20 {
        world.crash(node);
    }
    let took = world.settle(Duration::from_secs(2)).unwrap();
    println!("20 of 60 at once: known after {took:?}");
    assert!(took <= Duration::from_millis(1_000), "{took:?}");
}

#[test]
fn a_node_that_was_paused_for_long_holds_it_against_no_other() {
    let mut world = World::new(10, 11);
    world.settle(Duration::from_secs(1)).unwrap();
    for _ in 0..20 {
        let node = world.random.usize(0..10);
        world.pause(node);
        world.run(Duration::from_secs(2));
        let before = world.nodes[node].machine.counts().died;
        world.resume(node);
        world.settle(Duration::from_secs(1)).unwrap();
        assert_eq!(world.nodes[node].machine.counts().died, before);
    }
}

#[test]
fn a_node_that_can_send_nothing_takes_no_other_for_dead() {
    let mut world = World::new(5, 13);
    world.settle(Duration::from_secs(1)).unwrap();
    world.network.unable.insert(2);
    world.run(Duration::from_secs(60));
    assert_eq!(world.nodes[2].machine.counts().died, 0);
    assert_eq!(world.nodes[2].machine.peers().len(), 4);
    // It is dead to the others, and alive again once it can be.
    assert_eq!(world.nodes[0].machine.peers().len(), 3);
    world.network.unable.clear();
    world.settle(Duration::from_secs(2)).unwrap();
    assert_eq!(world.nodes[0].machine.peers().len(), 4);
}

#[test]
fn pauses_of_busy_cores_and_lost_datagrams_kill_no_member() {
    let mut world = World::new(10, 13);
    world.settle(Duration::from_secs(1)).unwrap();
    world.network.loss = 0.01;
    world.network.late = 0.05;
    for _ in 0..600 {
        let node = world.random.usize(0..10);
        let pause = world.random.u64(10..100);
        world.pause(node);
        world.run(Duration::from_millis(pause));
        world.resume(node);
        world.run(Duration::from_millis(100 - pause));
    }
    let suspected: u64 = world
        .nodes
        .iter()
        .map(|it| it.machine.counts().suspected)
        .sum();
    println!("60 s of pauses up to 100 ms and 1 % loss: {suspected} suspicions");
    assert_eq!(died(&world), 0);
}

#[test]
fn a_cluster_costs_each_member_the_same_whatever_its_size() {
    let rate = |count: u64| {
        let mut world = World::new(count as usize, 17);
        world.settle(Duration::from_secs(1)).unwrap();
        // New members are sent everything, one after the other.
        world.run(Duration::from_millis(50 * count));
        let sent = |world: &World| world.nodes[0].machine.counts().sent;
        let before = sent(&world);
        world.run(Duration::from_secs(2));
        (sent(&world) - before) / 2
    };
    let (few, many) = (rate(10), rate(50));
    println!("datagrams per second and member: {few} of 10, {many} of 50");
    assert!(many <= few + 10, "{few} {many}");
}
