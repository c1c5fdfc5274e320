//! Random input for what reads the network or files: good messages, broken in ways that parsers get
//! wrong.
//! The same cases in every run of the tests; `cargo xtask fuzz` runs more of them.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "used in tests only, which print what they found"
)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Cases of each target in an ordinary run of the tests.
const FEW: u64 = 3_000;

/// Where the cases of an ordinary run begin.
const SEED: u64 = 15;

/// Memory in KiB that a long run may take beside what it has after its first cases.
const MAX_GROWTH: u64 = 64 * 1024;

/// A source of numbers (xorshift64*): the same seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// What cases are made of.
#[derive(Clone, Copy, Debug)]
pub struct Seeds<'s> {
    /// Good messages.
    pub messages: &'s [Vec<u8>],
    /// Words that mean something where they stand.
    pub words: &'s [&'s [u8]],
    /// Bytes that a case has at most.
    pub longest: usize,
}

// === impl Random ===

impl Random {
    fn new(seed: u64, case: u64) -> Self {
        let mixed = (seed << 40 ^ case).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self((mixed ^ mixed >> 32) | 1)
    }

    /// A number below `end`, or 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        (number as usize).checked_rem(end).unwrap_or_default()
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }

    /// One of several.
    pub fn one<'s, T: ?Sized>(&mut self, of: &[&'s T]) -> &'s T {
        of[self.below(of.len())]
    }

    /// Bytes that begin as a good message and need not go on so.
    pub fn broken(&mut self, seeds: Seeds<'_>) -> Vec<u8> {
        let mut bytes = seeds.messages[self.below(seeds.messages.len())].clone();
        for _ in 0..self.below(5) {
            let at = self.below(bytes.len() + 1);
            let end = (at + 1 + self.below(16)).min(bytes.len());
            match self.below(8) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 if at < bytes.len() => bytes[at] = self.byte(),
                2 => drop(bytes.drain(at..end)),
                3 => {
                    let part = bytes[at..end].to_vec();
                    let times = if self.below(64) == 0 {
                        self.below(4096)
                    } else {
                        1
                    };
                    bytes.splice(at..at, part.repeat(times));
                }
                4 | 5 if !seeds.words.is_empty() => {
                    let word = self.one(seeds.words).to_vec();
                    bytes.splice(at..at, word);
                }
                6 => {
                    let other = &seeds.messages[self.below(seeds.messages.len())];
                    let from = self.below(other.len());
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[from..]);
                }
                7 => bytes.truncate(at),
                _ => {}
            }
            bytes.truncate(seeds.longest);
        }
        bytes
    }
}

/// Runs all cases of a target. A case that fails is named with its number, which begins a run with
/// `LANDFALL_FUZZ_FIRST`.
pub fn run(target: &str, mut case: impl FnMut(&mut Random)) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let asked = number("LANDFALL_FUZZ_CASES");
    let first = number("LANDFALL_FUZZ_FIRST").unwrap_or(0);
    let seed = number("LANDFALL_FUZZ_SEED").unwrap_or(SEED);
    let cases = asked.unwrap_or(FEW);
    let mut settled = None;
    for at in first..first + cases {
        let mut random = Random::new(seed, at);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(&mut random))) {
            eprintln!("{target}: case {at} of seed {seed} failed");
            resume_unwind(panic);
        }
        if at == first + cases / 10 {
            settled = Some(resident());
        }
    }
    // In an ordinary run, other tests take memory at the same time.
    if let (Some(settled), Some(_)) = (settled, asked) {
        let now = resident();
        assert!(
            now < settled + MAX_GROWTH,
            "{target}: {settled} KiB became {now} KiB"
        );
        println!("{target}: {cases} cases, {now} KiB");
    }
}

/// Resident memory in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let size = line.unwrap().split_whitespace().nth(1);
    size.unwrap().parse().unwrap()
}

#[test]
fn cases_differ_and_come_again() {
    let messages = [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()];
    let seeds = Seeds {
        messages: &messages,
        words: &[b"\r\n"],
        longest: 100,
    };
    let cases = |seed| -> Vec<_> {
        let case = |at| Random::new(seed, at).broken(seeds);
        (0..1000).map(case).collect()
    };
    assert_eq!(cases(1), cases(1));
    assert_ne!(cases(1), cases(2));
    let mut distinct = cases(1);
    assert!(distinct.iter().all(|case| case.len() <= 100));
    distinct.sort();
    distinct.dedup();
    assert!(distinct.len() > 500, "{}", distinct.len());
}
