//! Two machines: what each finds out about the other, and when.

use std::time::Duration;

use landfall_bfd::packet::State;
use landfall_bfd::packet::authentication::{Key, Method};
use landfall_bfd::session::{Cause, Role, Settings};
use proptest::prelude::*;

use crate::world::{Wire, World, ms, settings};

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn two_sides_come_up_within_the_first_packets() {
    for (one, other) in [
        (Role::Active, Role::Active),
        (Role::Active, Role::Passive),
        (Role::Passive, Role::Active),
    ] {
        let with = |role| Settings {
            role,
            ..settings(50, 50, 3)
        };
        let mut world = World::new([with(one), with(other)], 1);
        world.run(ms(10));
        assert_eq!(world.states(), [State::Up; 2], "{one:?} {other:?}");
    }
    let passive = Settings {
        role: Role::Passive,
        ..settings(50, 50, 3)
    };
    let mut world = World::new([passive.clone(), passive], 1);
    world.run(MINUTE);
    assert_eq!(world.states(), [State::Down; 2]);
}

#[test]
fn each_side_sends_as_often_as_the_other_accepts() {
    let mut world = World::up([settings(50, 300, 3), settings(100, 200, 3)], 2);
    world.run(MINUTE);
    assert_eq!(world.changes(), 0);
    for (side, interval) in [(0, 200), (1, 300)] {
        let gaps = world.sides[side].sent.windows(2).map(|it| it[1] - it[0]);
        let gaps: Vec<Duration> = gaps.collect();
        assert!(gaps.len() > 150);
        let (least, most) = (ms(interval * 3 / 4), ms(interval));
        assert!(gaps.iter().all(|gap| (least..=most).contains(gap)));
        // Jitter is spread over its range, not a constant.
        let mean = gaps.iter().sum::<Duration>() / gaps.len() as u32;
        let middle = (least + most) / 2;
        assert!(mean.abs_diff(middle) < ms(interval) / 20, "{mean:?}");
    }
}

#[test]
fn a_cut_is_found_exactly_after_the_detection_time() {
    for (one, other, times) in [
        (settings(50, 50, 3), settings(50, 50, 3), [150, 150]),
        (settings(50, 50, 3), settings(100, 200, 5), [500, 600]),
        (settings(300, 10, 1), settings(20, 60, 2), [40, 300]),
    ] {
        let mut world = World::up([one, other], 3);
        for side in &mut world.sides {
            side.wire.is_cut = true;
        }
        world.run(MINUTE);
        assert_eq!(world.states(), [State::Down; 2]);
        for (side, time) in world.sides.iter().zip(times) {
            let (at, change) = side.changes[0];
            assert_eq!(change.cause, Cause::Silence(ms(time)));
            assert_eq!(at - side.received.unwrap(), ms(time));
            assert_eq!(side.changes.len(), 1);
        }
    }
}

#[test]
fn a_cut_of_one_direction_takes_both_sides_down() {
    let mut world = World::up([settings(50, 50, 3), settings(50, 50, 3)], 4);
    world.sides[0].wire.is_cut = true;
    world.run(ms(200));
    assert_eq!(world.states(), [State::Down; 2]);
    let [(_, change)] = world.sides[1].changes[..] else {
        panic!("{:?}", world.sides[1].changes)
    };
    assert_eq!(change.cause, Cause::Silence(ms(150)));
    // The first side is notified, and does not have to miss anything.
    let (_, change) = world.sides[0].changes[0];
    assert!(matches!(change.cause, Cause::Neighbor(_)), "{change:?}");
    // It comes no further than Init and back while packets go one way only.
    world.run(MINUTE);
    assert!(!world.states().contains(&State::Up));
    world.sides[0].wire.is_cut = false;
    world.run(ms(3_000));
    assert_eq!(world.states(), [State::Up; 2]);
}

#[test]
fn a_side_that_restarts_is_noticed_and_comes_up_again() {
    let mut world = World::up([settings(50, 50, 3), settings(50, 50, 3)], 5);
    let other = World::new([settings(50, 50, 3), settings(50, 50, 3)], 77);
    let [_, restarted] = other.sides;
    world.sides[1].session = restarted.session;
    world.run(ms(2_000));
    assert_eq!(world.states(), [State::Up; 2]);
    let (_, change) = world.sides[0].changes[0];
    assert!(change.is_failure(), "{change:?}");
}

#[test]
fn all_packets_but_one_in_the_multiplier_may_be_lost() {
    for multiplier in 2..=5 {
        let mut world = World::up([settings(50, 50, multiplier), settings(50, 50, 3)], 6);
        world.sides[0].wire.keeps_one_in = Some(multiplier.into());
        world.run(10 * MINUTE);
        assert_eq!(world.changes(), 0, "{multiplier}");
    }
}

#[test]
fn demand_mode_of_both_sides_is_silent_and_still_finds_a_cut() {
    let demand = || Settings {
        demand: Some(ms(1_000)),
        ..settings(50, 50, 3)
    };
    let mut world = World::up([demand(), demand()], 7);
    world.run(MINUTE);
    assert_eq!(world.changes(), 0);
    for side in &world.sides {
        // A poll and an answer each second, instead of 20 packets and more.
        assert!(
            (100..=150).contains(&side.sent.len()),
            "{}",
            side.sent.len()
        );
    }
    world.sides[0].wire.is_cut = true;
    world.run(ms(1_200));
    // The way back works, so that one side may be at Init.
    assert!(!world.states().contains(&State::Up));
    world.sides[0].wire.is_cut = false;
    world.run(ms(3_000));
    assert_eq!(world.states(), [State::Up; 2]);
}

#[test]
fn a_session_survives_turning_demand_mode_on_and_off() {
    let mut world = World::up([settings(50, 50, 3), settings(50, 50, 3)], 8);
    for demand in [Some(ms(700)), None, Some(ms(5_000)), None] {
        let changed = Settings {
            demand,
            ..settings(50, 50, 3)
        };
        world.configure(0, changed);
        world.run(MINUTE);
        assert_eq!(world.changes(), 0, "{demand:?}");
    }
}

#[test]
fn keys_that_differ_keep_a_session_down_and_a_new_key_lets_it_come_up() {
    for method in [Method::KeyedSha1, Method::MeticulousKeyedSha1] {
        let with = |secret: &[u8]| Settings {
            authentication: Some(Key::new(method, 1, secret).unwrap()),
            ..settings(50, 50, 3)
        };
        let mut world = World::new([with(b"one"), with(b"other")], 9);
        world.run(MINUTE);
        assert_eq!(world.states(), [State::Down; 2]);
        world.configure(1, with(b"one"));
        world.run(ms(2_000));
        assert_eq!(world.states(), [State::Up; 2]);
        world.forget();
        world.run(10 * MINUTE);
        assert_eq!(world.changes(), 0);
    }
}

#[test]
fn admin_down_is_announced_and_ends_with_its_setting() {
    let mut world = World::up([settings(50, 50, 3), settings(50, 50, 3)], 10);
    world.configure(
        0,
        Settings {
            is_admin_down: true,
            ..settings(50, 50, 3)
        },
    );
    world.run(MINUTE);
    assert_eq!(world.states(), [State::AdminDown, State::Down]);
    let (_, change) = world.sides[1].changes[0];
    assert_eq!(change.cause, Cause::NeighborAdministrator);
    world.configure(0, settings(50, 50, 3));
    world.run(ms(2_000));
    assert_eq!(world.states(), [State::Up; 2]);
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let times = [50_u64, 100, 300, 700, 1_000, 2_500];
    let time = move || proptest::sample::select(times.to_vec());
    (time(), time(), 2_u8..6).prop_map(|(tx, rx, multiplier)| settings(tx, rx, multiplier))
}

proptest! {
    /// No change of intervals on either side, at any time, ends a session that works: this is what
    /// Poll Sequences are for.
    #[test]
    fn changes_of_settings_never_end_a_session(
        first in [any_settings(), any_settings()],
        changes in proptest::collection::vec((0_usize..2, any_settings(), 0_u64..4_000), 1..20),
        seed in 0_u64..1_000,
        delay in 0_u64..10,
    ) {
        let mut world = World::up(first, seed);
        for side in &mut world.sides {
            side.wire.delay = ms(delay);
        }
        for (side, settings, pause) in changes {
            world.configure(side, settings);
            world.run(ms(pause));
        }
        world.run(MINUTE);
        prop_assert_eq!(world.changes(), 0);
        // In the end each side uses what was set last.
        for side in 0..2 {
            let [own, other] = [side, 1 - side].map(|it| world.sides[it].session.settings());
            let view = world.sides[side].session.view();
            let transmit = own.transmit_interval.max(other.receive_interval);
            let receive = own.receive_interval.max(other.transmit_interval);
            prop_assert_eq!(view.transmit_interval, transmit);
            let time = receive * u32::from(other.detect_multiplier.get());
            prop_assert_eq!(view.detection_time, Some(time));
        }
    }

    /// A wire that delays packets, each as long as a part of the interval, ends no session.
    #[test]
    fn jitter_and_delay_end_no_session(
        both in [any_settings(), any_settings()],
        seed in 0_u64..1_000,
        delays in [0_u64..200, 0_u64..200],
        variations in [0_u64..50, 0_u64..50],
    ) {
        let mut world = World::up(both, seed);
        for (side, (delay, variation)) in delays.into_iter().zip(variations).enumerate() {
            world.sides[side].wire = Wire {
                delay: ms(delay),
                variation: ms(variation),
                ..Wire::default()
            };
        }
        // The longer way itself may have ended it, once.
        world.run(Duration::from_secs(20));
        let before = world.changes();
        world.run(10 * MINUTE);
        prop_assert_eq!(world.changes(), before);
    }

    /// Whatever a bad wire did: once it works again, both sides come up, and stay so.
    #[test]
    fn no_loss_leaves_a_session_stuck(
        both in [any_settings(), any_settings()],
        seed in 0_u64..1_000,
        losses in [0_u32..100, 0_u32..100],
        demands in [any::<bool>(), any::<bool>()],
    ) {
        let both = [0, 1].map(|side| Settings {
            demand: demands[side].then_some(ms(2_000)),
            ..both[side].clone()
        });
        let mut world = World::new(both, seed);
        for (side, loss) in losses.into_iter().enumerate() {
            world.sides[side].wire.loss = loss;
        }
        world.run(2 * MINUTE);
        for side in &mut world.sides {
            side.wire.loss = 0;
        }
        world.run(MINUTE);
        prop_assert_eq!(world.states(), [State::Up; 2]);
        world.forget();
        world.run(MINUTE);
        prop_assert_eq!(world.changes(), 0);
    }
}
