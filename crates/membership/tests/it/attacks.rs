//! Datagrams of those that hold no key, and repeated ones.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use landfall_membership::machine::{Machine, Own, Settings};
use landfall_membership::packet::SessionId;
use landfall_membership::seal::{Key, Keys};

use crate::world::{World, address, name};

const ELSEWHERE: ([u8; 4], u16) = ([192, 0, 2, 1], 9);

#[test]
fn everything_that_was_ever_sent_changes_nothing_when_it_is_repeated() {
    let mut world = World::new(5, 1);
    world.recorded = Some(Vec::new());
    world.settle(Duration::from_secs(1)).unwrap();
    world.report(2, b"other");
    world.crash(3);
    world.run(Duration::from_secs(1));
    world.leave(4);
    world.restart(3);
    world.run(Duration::from_secs(1));
    world.crash(3);
    world.restart(0);
    world.run(Duration::from_secs(2));
    assert_eq!(world.difference(), None);
    let recorded = world.recorded.take().unwrap();
    assert!(recorded.len() > 1_000);
    let before = world.revisions();
    let from = SocketAddr::from(ELSEWHERE);
    for (_, bytes) in &recorded {
        for node in [0, 1, 2] {
            world.arrive(node, from, bytes.clone());
        }
    }
    world.run(Duration::from_secs(1));
    assert_eq!(world.revisions(), before);
    assert_eq!(world.difference(), None);
}

#[test]
fn one_that_holds_another_key_is_no_member() {
    let now = Instant::now();
    let machine = |node: usize, secret: &[u8]| {
        let own = Own {
            name: name(node),
            address: address(node),
            incarnation: 1,
            metadata: [].into(),
            session: SessionId([node as u8 + 1; 16]),
            seed: 1,
        };
        let keys = Keys {
            first: Key::new(secret).unwrap(),
            others: Vec::new(),
        };
        let mut machine = Machine::new(Settings::default(), own, keys, now).unwrap();
        machine.set_seeds((0..2).map(|it| (name(it), address(it))).collect());
        machine
    };
    let mut one = machine(0, b"the key of the cluster");
    let mut other = machine(1, b"the key of another one");
    let sent = other.expire(now);
    assert_eq!(sent.len(), 1);
    for datagram in sent {
        assert!(one.receive(now, address(1), &datagram.bytes).is_empty());
    }
    assert!(one.peers().is_empty());
    assert_eq!(one.counts().unknown_key, 1);
}

#[test]
fn a_node_that_comes_back_under_another_name_answers_for_that_name_only() {
    for seed in 0..20 {
        let mut world = World::new(4, seed);
        world.settle(Duration::from_secs(1)).unwrap();
        world.crash(2);
        // At once: no other has noticed, and all ask the address after the name that it had.
        world.restart_as(2, "renamed");
        world.run(Duration::from_secs(1));
        for node in [0, 1, 3] {
            let peers = world.nodes[node].machine.peers();
            assert!(!peers.contains_key(&name(2)), "seed {seed}: {peers:?}");
            assert_eq!(peers["renamed"].address, address(2), "seed {seed}");
            assert_eq!(peers.len(), 3, "seed {seed}");
        }
        let peers = world.nodes[2].machine.peers();
        let others: Vec<_> = [0, 1, 3].map(name).into();
        assert!(peers.keys().eq(&others), "seed {seed}: {peers:?}");
    }
}

#[test]
fn two_nodes_of_one_name_disturb_no_other() {
    for seed in 0..20 {
        let mut world = World::new(5, seed);
        world.settle(Duration::from_secs(1)).unwrap();
        let revisions = |world: &World| [0, 1].map(|node| world.nodes[node].machine.counts().died);
        world.crash(4);
        world.run(Duration::from_secs(1));
        let before = revisions(&world);
        world.restart_as(4, "node-3");
        world.run(Duration::from_secs(3));
        for node in [0, 1] {
            let peers = world.nodes[node].machine.peers();
            for other in [0, 1, 2].into_iter().filter(|it| *it != node) {
                assert!(peers.contains_key(&name(other)), "seed {seed}: {peers:?}");
            }
        }
        println!("seed {seed}: {before:?}, {:?}", revisions(&world));
    }
}

#[test]
fn a_flood_of_repeated_greetings_gets_few_answers() {
    let mut world = World::new(3, 1);
    world.recorded = Some(Vec::new());
    world.settle(Duration::from_secs(1)).unwrap();
    let recorded = world.recorded.take().unwrap();
    let hello = recorded.iter().find(|(to, _)| *to == 1).unwrap().1.clone();
    world.run(Duration::from_secs(1));
    let before = world.nodes[1].machine.counts().sent;
    for _ in 0..10_000 {
        world.arrive(1, SocketAddr::from(ELSEWHERE), hello.clone());
    }
    let sent = world.nodes[1].machine.counts().sent - before;
    assert!(sent <= 500, "{sent}");
    assert_eq!(world.difference(), None);
}
