//! The whole controller against a model: engine, provider `local` and allocator over an API server
//! that loses, refuses and delays writes, with edits, crashes and changes of leader in between, and
//! other programs that take finalizers and addresses away or hold Services back.
//!
//! Each schedule comes from a number, its seed. What must hold at every moment is checked at every
//! write and at every listener that opens; what must hold once nothing changes any more is checked
//! whenever a schedule lets everything settle. A violation prints its seed and what led to it;
//! `LANDFALL_MODEL_SEED=N` plays that schedule alone.
//!
//! `LANDFALL_MODEL_SCHEDULES=N` plays more of them, `LANDFALL_MODEL_FIRST=N` others.

#![expect(
    clippy::unwrap_used,
    reason = "a schedule that can't be played is a failed test"
)]

mod api;
mod judge;
mod schedule;

use std::fmt::Write as _;

/// Played in every run of the tests.
const SCHEDULES: u64 = 1_000;

/// Where the seeds of every run begin.
const FIRST: u64 = 0;

/// Seeds of schedules that once found a violation. They mean something as long as `schedule` draws
/// what it draws: a change there calls for a new search, and for other seeds here.
const RECORDED: &[u64] = &[
    31, 209, 555, 732, 966, 1_852, 4_479, 4_590, 5_174, 8_892, 9_220, 9_829, 10_488,
];

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|error| panic!("{name}={text:?}: {error}")))
}

#[test]
fn no_address_is_lost_or_taken_twice_whatever_happens() {
    if let Some(seed) = number("LANDFALL_MODEL_SEED") {
        let played = schedule::play(seed);
        println!("{}", played.story);
        assert_eq!(played.violations, [] as [String; 0], "seed {seed}");
        return;
    }
    let first = number("LANDFALL_MODEL_FIRST").unwrap_or(FIRST);
    let count = number("LANDFALL_MODEL_SCHEDULES").unwrap_or(SCHEDULES);
    let seeds = RECORDED.iter().copied().chain(first..first + count);
    let (mut failed, mut settled, mut writes, mut crashes) = (String::new(), 0, 0, 0);
    for seed in seeds {
        let played = schedule::play(seed);
        settled += played.settled;
        writes += played.writes;
        crashes += played.crashes;
        if !played.violations.is_empty() {
            let _ = writeln!(failed, "seed {seed}: {}", played.violations.join("\n  "));
        }
    }
    println!(
        "{count} schedules from seed {first}: {settled} times settled, {writes} writes, {crashes} \
         crashes and changes of leader"
    );
    assert!(settled >= count && crashes > 0, "the schedules do nothing");
    assert!(failed.is_empty(), "{failed}");
}
