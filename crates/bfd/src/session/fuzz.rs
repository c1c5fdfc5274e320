//! Malformed and hostile packets: no panic, no session that is stuck, no flood.

use landfall_testkit::fuzz::{Seeds, run};

use super::tests::{Bench, packet, settings};
use super::*;
use crate::packet::authentication::{Key, Method};

/// Anything that a packet may carry, in any order of packets and pauses.
#[test]
fn fuzz_packets() {
    let key = Key::new(Method::MeticulousKeyedSha1, 7, b"secret").unwrap();
    let mut messages = Vec::new();
    for state in State::ALL {
        for is_poll in [false, true] {
            let plain = Control {
                is_poll,
                is_final: !is_poll,
                is_demand: state == State::Up,
                required_min_echo_rx: Micros(50_000),
                ..packet(state)
            };
            messages.push(plain.bytes());
            let mut sealed = Control {
                authentication: Some(key.section(9)),
                ..plain
            }
            .bytes();
            key.seal(&mut sealed);
            messages.push(sealed);
        }
    }
    let seeds = Seeds {
        messages: &messages,
        words: &[&[0; 4], &[0xff; 4], &[0, 0, 0, 11], &[5, 28, 7, 0]],
        longest: 80,
    };
    run("bfd-packets", |random| {
        let wanted = Settings {
            role: if random.below(4) == 0 {
                Role::Passive
            } else {
                Role::Active
            },
            demand: (random.below(4) == 0).then_some(Duration::from_secs(1)),
            echo: (random.below(2) == 0).then_some(Duration::from_millis(50)),
            authentication: (random.below(4) == 0).then(|| key.clone()),
            ..settings(50, 50, 1 + random.byte() % 4)
        };
        let is_active = wanted.role == Role::Active;
        let mut bench = Bench::new(wanted);
        for _ in 0..8 {
            let bytes = random.broken(seeds);
            if let Ok(packet) = Control::parse(&bytes) {
                assert_eq!(Control::parse(&packet.bytes()), Ok(packet));
                let _taken = bench.session.receive(&packet, &bytes, bench.now);
                // A packet is answered by a change and a final at most.
                assert!(bench.sent().len() <= 3);
            }
            let pause = Duration::from_millis(random.below(2_000) as u64);
            let steps = steps(&mut bench, pause);
            assert!(steps < 400, "{steps} deadlines in {pause:?}");
        }
        // Left alone, every session ends up Down, forgets the other side, and begins again.
        let hours = Duration::from_secs(2 * 4_294 * 255 + 10);
        bench.now += hours;
        bench.session.expire(bench.now);
        bench.session.expire(bench.now);
        let view = bench.session.view();
        if !bench.session.is_demand_active() {
            assert_eq!(view.state, State::Down);
            assert_eq!(view.remote_discriminator, None);
            assert_eq!(bench.session.send_deadline().is_some(), is_active);
        }
    });
}

/// Lets time pass deadline by deadline, each of which is after the one before.
fn steps(bench: &mut Bench, pause: Duration) -> usize {
    let end = bench.now + pause;
    let mut count = 0;
    while let Some(at) = bench.session.deadline().filter(|at| *at <= end) {
        bench.now = at.max(bench.now);
        bench.session.expire(bench.now);
        let next = bench.session.deadline();
        assert!(
            next.is_none_or(|next| next > bench.now),
            "stuck at a deadline"
        );
        count += 1;
    }
    bench.now = end;
    bench.session.take();
    count
}
