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
mod ledger;
mod manifests;
mod schedule;
mod validate;

use std::fmt::Write as _;

/// Played in every run of the tests.
const SCHEDULES: u64 = 1_000;

/// Where the seeds of every run begin.
const FIRST: u64 = 0;

/// Seeds of schedules that once found a violation. They mean something as long as `schedule` draws
/// what it draws: a change there calls for a new search, and for other seeds here.
const RECORDED: &[u64] = &[
    31, 209, 555, 732, 966, 1_852, 4_479, 4_590, 5_174, 7_746, 8_444, 8_892, 9_220, 9_829, 10_488,
];

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|error| panic!("{name}={text:?}: {error}")))
}

/// Schedules with a journal that are played in every run of the tests.
const JOURNAL_SCHEDULES: u64 = 40;

/// The same for schedules with a journal, as far as `manifests` draws what it draws.
const JOURNAL_RECORDED: &[u64] = &[
    23, 33, 57, 154, 161, 1_978, 3_759, 6_086, 6_696, 7_353, 7_696, 10_384,
];

/// The schedules of one kind.
struct Kind {
    play: fn(u64) -> schedule::Played,
    recorded: &'static [u64],
    schedules: u64,
}

#[expect(clippy::print_stdout, reason = "for the reader of a test's output")]
fn hold(kind: &Kind) {
    if let Some(seed) = number("LANDFALL_MODEL_SEED") {
        let played = (kind.play)(seed);
        println!("{}", played.story);
        assert_eq!(played.violations, [] as [String; 0], "seed {seed}");
        return;
    }
    let first = number("LANDFALL_MODEL_FIRST").unwrap_or(FIRST);
    let count = number("LANDFALL_MODEL_SCHEDULES").unwrap_or(kind.schedules);
    let seeds = kind.recorded.iter().copied().chain(first..first + count);
    let (mut failed, mut total) = (String::new(), schedule::Played::default());
    for seed in seeds {
        let played = (kind.play)(seed);
        total.settled += played.settled;
        total.writes += played.writes;
        total.crashes += played.crashes;
        total.refused += played.refused;
        total.opened += played.opened;
        total.faults += played.faults;
        if !played.violations.is_empty() {
            let _ = writeln!(failed, "seed {seed}: {}", played.violations.join("\n  "));
        }
    }
    println!(
        "{count} schedules from seed {first}: {} times settled, {} writes, {} refused, {} crashes \
         and changes of leader, {} faults of the disk, {} listeners opened",
        total.settled, total.writes, total.refused, total.crashes, total.faults, total.opened
    );
    let plays = total.settled >= count && total.crashes > 0;
    assert!(plays, "the schedules do nothing");
    assert!(failed.is_empty(), "{failed}");
}

#[test]
fn no_address_is_lost_or_taken_twice_whatever_happens() {
    hold(&Kind {
        play: schedule::play,
        recorded: RECORDED,
        schedules: SCHEDULES,
    });
}

#[test]
fn no_address_is_lost_or_taken_twice_whatever_happens_to_the_journal() {
    hold(&Kind {
        play: manifests::play,
        recorded: JOURNAL_RECORDED,
        schedules: JOURNAL_SCHEDULES,
    });
}

#[test]
fn a_service_that_is_put_back_on_a_full_disk_is_served_again_where_it_was() {
    for seed in 0..20 {
        let [before, between, after] = manifests::put_back_on_a_full_disk(seed);
        assert!(
            !before.is_empty() && between.is_empty(),
            "seed {seed}: {between:?}"
        );
        assert_eq!(after, before, "seed {seed}");
    }
}
