//! Plays the rows on every side, each in a process of its own, and writes the table of what passes
//! where.
//!
//! `LANDFALL_ROWS=c01,l07` chooses rows, `all` takes every one, `rest` those that have not passed
//! and could, `stale` also those that passed before the provider or the engine changed: three to
//! five a minute pass on the real sides of a small machine.
//! `LANDFALL_ROWS_LEAVE=1` leaves their projects behind, which takes half the time; the next
//! `cargo xtask openstack` with fresh databases is rid of them. `LANDFALL_ROWS_AT_ONCE` of them
//! play side by side, each in a project of its own: they wait more than they work. `UPDATE_DOCS=1`
//! writes docs/openstack-conformance.md; cells of rows that were not played keep what an earlier
//! run left there. A record of runs (`LANDFALL_ROWS_RECORD`) with lines `SIDE TEST OUTCOME` counts
//! as earlier runs; a fourth word is the commit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{env, fs};

use crate::rig::stage::{IN_PART, ONLY_SIMULATED};

/// What became of one test on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// Something of the row is left out on this side.
    InPart,
    Failed,
    /// It asks for faults, virtual time or a look behind the API.
    Simulator,
    /// What it is about is not in this provider.
    Not,
    Slow,
}

/// The same, and the commit that it ran on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    outcome: Outcome,
    commit: Option<String>,
}

const SIDES: [&str; 3] = ["simulator", "amphora", "ovn"];

/// Played on the real sides where nothing is said.
const SAMPLE: &str = "c01,c03,c04,c11,s14";

/// Rows that play side by side where nothing is said.
const AT_ONCE: usize = 3;

const LONGEST: Duration = Duration::from_secs(600);

/// The rows of the specification, by priority.
const ROWS: [&str; 3] = [
    "C01 C02 C03 C04 C05 C07 C08 C09 C10 C11 C13 C14 C15 C17 C18 C26 A01 A02 A07 L01 L07 L11 L13 \
    L19 L21 L34 H01 H02 H03 H05 H10 F01 F02 F03 F05 F07 F10 F11 F29 F30 S02 S03 S04 S05 S06 S10 \
    G01 G02 G03 G05 R03 R04 R07",
    "C16 C20 C22 C23 C24 C25 C27 C30 C31 A03 A04 A05 A08 A09 A12 A14 A16 L03 L04 L05 L08 L09 L12 \
    L14 L15 L16 L18 L22 L24 L25 L26 L27 L31 L32 L33 L35 L36 L38 L39 L41 L42 H04 H08 H09 H11 F04 \
    F08 F12 F13 F14 F15 F16 F18 F19 F21 F22 F23 F25 F28 F31 F32 F33 S09 S11 S12 G04 G06 G08 G09 \
    G10 G11 G13 R05 R06 R08 R09 R10 R13 R15",
    "C29 A10 A11 A15 L06 L17 L23 L29 L43 L44 H12 F20 F26 F34 F35 S13 G12 G14 R14 R16",
];

/// What the provider ovn has not, and a row is about.
const NOT_IN_OVN: [(&str, &str); 29] = [
    (
        "c01",
        "provider amphora and allowed_cidrs are part of the row",
    ),
    ("c17", "amphorae that fail"),
    ("h03", "HTTP monitors"),
    ("h05", "HTTP monitors"),
    ("h10", "HTTP monitors"),
    ("l01", "allowed_cidrs"),
    ("l02", "allowed_cidrs"),
    ("l03", "allowed_cidrs"),
    ("l04", "allowed_cidrs"),
    ("l05", "allowed_cidrs"),
    ("l06", "allowed_cidrs"),
    ("l07", "timeouts of listeners"),
    ("l11", "HTTP"),
    ("l12", "HTTP"),
    ("l13", "TLS"),
    ("l14", "TLS"),
    ("l15", "TLS"),
    ("l16", "TLS"),
    ("l17", "TLS"),
    ("l18", "TLS"),
    ("l19", "PROXY"),
    ("l21", "PROXY"),
    ("l23", "PROXY"),
    ("l24", "other algorithms"),
    ("l25", "other algorithms"),
    ("l45", "TLS"),
    ("f29", "PROXY"),
    ("f30", "PROXY"),
    ("f34", "PROXY"),
];

/// Rows that are not played here, and the tests that show them.
const ELSEWHERE: [(&str, &str); 2] = [
    ("C31", "crates/landfall/tests/it/openstack.rs"),
    (
        "R10",
        "crates/openstack/tests/client/calls.rs, \
        r10_an_answer_is_waited_for_as_long_as_is_configured",
    ),
];

type Table = BTreeMap<(String, &'static str), Cell>;

#[test]
fn the_rows_hold_on_every_side() {
    let tests = rows_of_this_binary();
    let asked = env::var("LANDFALL_ROWS").unwrap_or_else(|_| SAMPLE.to_owned());
    let chosen: Vec<&String> = tests
        .iter()
        .filter(|test| {
            ["all", "rest", "stale"].contains(&asked.as_str())
                || ids(test)
                    .iter()
                    .any(|id| asked.split(',').any(|it| it == id))
        })
        .collect();
    let mut table = earlier(&tests);
    let done = |test: &String, side| {
        let Some(cell) = table.get(&(test.clone(), side)) else {
            return false;
        };
        match asked.as_str() {
            "rest" => cell.outcome.is_settled(),
            "stale" => cell.outcome.is_settled() && cell.is_current(),
            _ => false,
        }
    };
    let simulated = tests.iter().map(|test| (test.clone(), "simulator"));
    let real = SIDES[1..].iter().flat_map(|side| {
        let of_side = chosen.iter().filter(|test| !done(test, *side));
        of_side
            .map(|test| ((*test).clone(), *side))
            .collect::<Vec<_>>()
    });
    let mut rows: Vec<_> = simulated.chain(real).collect();
    // What matters most first, should the time not suffice.
    rows.sort_by_key(|(test, side)| {
        let known = table.contains_key(&(test.clone(), *side));
        (*side != "simulator", known, priority(test))
    });
    table.extend(play_all(rows));
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(page(), text(&tests, &table)).unwrap();
    }
    let failed: Vec<_> = table
        .iter()
        .filter(|((test, _), cell)| {
            chosen.contains(&test) && matches!(cell.outcome, Outcome::Failed | Outcome::Slow)
        })
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Tests that are called after a row.
fn rows_of_this_binary() -> Vec<String> {
    let output = this().arg("--list").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let mut tests: Vec<String> = names
        .filter(|name| !ids(name).is_empty())
        .map(str::to_owned)
        .collect();
    tests.sort_by_key(|test| place(test));
    tests
}

fn this() -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.env("RUST_BACKTRACE", "0").stdin(Stdio::null());
    command
}

/// The ids at the beginning of a name: `c07_and_c08_ports_...` has two.
fn ids(test: &str) -> Vec<String> {
    let name = test.rsplit("::").next().unwrap_or_default();
    let is_id = |part: &str| {
        part.len() == 3
            && part.starts_with(|c: char| "calhfsgr".contains(c))
            && part[1..].bytes().all(|c| c.is_ascii_digit())
    };
    let words = name
        .split('_')
        .take_while(|part| is_id(part) || *part == "and");
    words
        .filter(|part| is_id(part))
        .map(str::to_owned)
        .collect()
}

/// Rows in the order of the specification.
fn place(test: &str) -> (usize, String) {
    let first = ids(test)
        .first()
        .cloned()
        .unwrap_or_default()
        .to_uppercase();
    let all = ROWS.join(" ");
    let known = all.split_whitespace().position(|row| row == first);
    (known.unwrap_or(usize::MAX), test.to_owned())
}

/// The priority of a test's first row.
fn priority(test: &str) -> usize {
    let first = ids(test)
        .first()
        .cloned()
        .unwrap_or_default()
        .to_uppercase();
    let has = |rows: &&str| rows.split_whitespace().any(|row| row == first);
    ROWS.iter().position(has).unwrap_or(ROWS.len())
}

fn not_in_ovn(test: &str) -> bool {
    let of_ovn = ids(test);
    NOT_IN_OVN
        .iter()
        .any(|(row, _)| of_ovn.iter().any(|id| id == row))
}

/// Plays them side by side, in their order.
fn play_all(rows: Vec<(String, &'static str)>) -> Table {
    let at_once = env::var("LANDFALL_ROWS_AT_ONCE").map_or(AT_ONCE, |it| it.parse().unwrap());
    let (rows, table) = (Mutex::new(rows.into_iter()), Mutex::new(Table::new()));
    let commit = commit();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let Some((test, side)) = rows.lock().unwrap().next() else {
                        return;
                    };
                    let outcome = if side == "ovn" && not_in_ovn(&test) {
                        Outcome::Not
                    } else {
                        play(&test, side)
                    };
                    let cell = Cell {
                        outcome,
                        commit: outcome.is_result().then(|| commit.clone()),
                    };
                    let (word, commit) = (outcome.word().replace(' ', "-"), cell.commit());
                    println!("{side} {test} {word} {commit}");
                    table.lock().unwrap().insert((test, side), cell);
                }
            });
        }
    });
    table.into_inner().unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a process can't be waited for with a limit"
)]
fn play(test: &str, side: &str) -> Outcome {
    let mut log = tempfile::tempfile().unwrap();
    let mut child = this()
        .args(["--exact", "--show-output", test])
        .env("LANDFALL_SIDE", side)
        .stdout(log.try_clone().unwrap())
        .stderr(log.try_clone().unwrap())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > LONGEST {
            child.kill().unwrap();
            child.wait().unwrap();
            return Outcome::Slow;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut said = String::new();
    log.rewind().unwrap();
    log.read_to_string(&mut said).unwrap();
    if status.success() && said.contains(IN_PART) {
        Outcome::InPart
    } else if status.success() {
        Outcome::Passed
    } else if said.contains(ONLY_SIMULATED) {
        Outcome::Simulator
    } else {
        println!("{said}");
        Outcome::Failed
    }
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.current_dir(env!("CARGO_MANIFEST_DIR"));
    git
}

/// The commit that is checked out; with a plus sign where files differ from it.
fn commit() -> String {
    let describe = [
        "describe",
        "--always",
        "--abbrev=8",
        "--dirty=+",
        "--exclude=*",
    ];
    let output = git().args(describe).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openstack-conformance.md")
}

/// What earlier runs have left: the page, and a record.
fn earlier(tests: &[String]) -> Table {
    let mut table = Table::new();
    let page = fs::read_to_string(page()).unwrap_or_default();
    for line in page.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, rows, name, _, amphora, ovn, _] = cells.as_slice() else {
            continue;
        };
        let is = |test: &&String| sentence(test) == *name && heading(test) == *rows;
        let test = tests.iter().find(is);
        for (side, cell) in [("amphora", amphora), ("ovn", ovn)] {
            if let (Some(test), Some(cell)) = (test, Cell::read(cell)) {
                table.insert((test.clone(), side), cell);
            }
        }
    }
    let record = env::var("LANDFALL_ROWS_RECORD").ok();
    let record = record
        .map(|path| fs::read_to_string(path).unwrap())
        .unwrap_or_default();
    for line in record.lines() {
        let mut words = line.split_whitespace();
        let (side, test, outcome) = (words.next(), words.next(), words.next());
        let commit = words.next().map(str::to_owned);
        let side = SIDES.into_iter().find(|it| Some(*it) == side);
        let test = tests.iter().find(|it| Some(it.as_str()) == test);
        let outcome = outcome.and_then(Outcome::read);
        if let (Some(side), Some(test), Some(outcome)) = (side, test, outcome) {
            table.insert((test.clone(), side), Cell { outcome, commit });
        }
    }
    table
}

/// The ids of a test as the page has them.
fn heading(test: &str) -> String {
    ids(test).join(", ").to_uppercase()
}

fn sentence(test: &str) -> String {
    let name = test.rsplit("::").next().unwrap_or_default();
    let words = name
        .split('_')
        .skip_while(|part| *part == "and" || ids(part).len() == 1);
    words.collect::<Vec<_>>().join(" ")
}

fn text(tests: &[String], table: &Table) -> String {
    let mut text = String::from(
        "<!-- Written by the scenarios (crates/openstack/tests/scenarios/conformance.rs); do not \
        edit. -->\n\
        # Conformance of the OpenStack provider\n\n\
        What the provider `openstack` does, in comparison with cloud-provider-openstack\n\
        (\"the reference\"): each row is a scenario and a test, with its number in the\n\
        project's specification. It runs on a simulated cloud and, from the same code, on the\n\
        real programs of Keystone, Neutron and Octavia with the providers `amphora` and `ovn`.\n\
        These have no virtual machines there, so no traffic is forwarded.\n\n\
        - `passed`, `failed`: the result of the last run of the row on this side, and the\n  \
        commit that it ran on. One without a commit is older than the record of commits.\n\
        - `passed in part`: the test leaves out a part of the row on this side.\n\
        - `slow`: timed out after 10 minutes.\n\
        - `simulator only`: the row needs faults, virtual time or a state of the simulator.\n\
        - `n/a`: the provider does not have the feature of the row.\n\
        - `not run`: no run yet. It may pass or fail.\n\n",
    );
    let mut counts = BTreeMap::<(&str, &str), usize>::new();
    for test in tests {
        for side in SIDES {
            let word = table
                .get(&(test.clone(), side))
                .map_or("not run", |it| it.outcome.word());
            *counts.entry((side, word)).or_default() += 1;
        }
    }
    for side in SIDES {
        let of_side = counts.iter().filter(|((it, _), _)| *it == side);
        let words: Vec<_> = of_side
            .map(|((_, word), count)| format!("{count} {word}"))
            .collect();
        writeln!(text, "{side}: {}.\n", words.join(", ")).unwrap();
    }
    let played: BTreeSet<String> = tests.iter().flat_map(|test| ids(test)).collect();
    for (priority, rows) in ROWS.iter().enumerate() {
        let rows = rows.split_whitespace();
        let missing: Vec<_> = rows
            .filter(|row| !played.contains(&row.to_lowercase()))
            .filter(|row| ELSEWHERE.iter().all(|(elsewhere, _)| elsewhere != row))
            .collect();
        if !missing.is_empty() {
            let rows = missing.join(", ");
            writeln!(
                text,
                "Rows of priority {priority} without a test here: {rows}.\n"
            )
            .unwrap();
        }
    }
    for (row, tests) in ELSEWHERE {
        writeln!(text, "{row}: {tests}.\n").unwrap();
    }
    text.push_str("| row | | simulator | amphora | ovn |\n|---|---|---|---|---|\n");
    for test in tests {
        let rows = heading(test);
        let cells: Vec<_> = SIDES
            .iter()
            .map(|side| {
                table
                    .get(&(test.clone(), *side))
                    .map_or_else(|| "not run".to_owned(), Cell::text)
            })
            .collect();
        writeln!(
            text,
            "| {rows} | {} | {} |",
            sentence(test),
            cells.join(" | ")
        )
        .unwrap();
    }
    text
}

// === impl Cell ===

impl Cell {
    /// Reads a cell of the page.
    fn read(text: &str) -> Option<Self> {
        let last = text.rsplit_once(' ');
        let commit = last.filter(|(_, last)| is_commit(last));
        let outcome = Outcome::read(commit.map_or(text, |(outcome, _)| outcome))?;
        let commit = commit.map(|(_, commit)| commit.to_owned());
        Some(Self { outcome, commit })
    }

    fn text(&self) -> String {
        format!("{} {}", self.outcome.word(), self.commit())
            .trim()
            .to_owned()
    }

    fn commit(&self) -> &str {
        self.commit.as_deref().unwrap_or_default()
    }

    /// Whether neither the provider nor the engine has changed since.
    fn is_current(&self) -> bool {
        let Some(commit) = &self.commit else {
            return !self.outcome.is_result();
        };
        let commit = commit.trim_end_matches('+');
        let diff = ["diff", "--quiet", commit, "--", "src", "../engine/src"];
        git().args(diff).status().is_ok_and(|it| it.success())
    }
}

fn is_commit(word: &str) -> bool {
    let word = word.strip_suffix('+').unwrap_or(word);
    word.len() >= 8 && word.bytes().all(|c| c.is_ascii_hexdigit())
}

// === impl Outcome ===

impl Outcome {
    const ALL: [Self; 6] = [
        Self::Passed,
        Self::InPart,
        Self::Failed,
        Self::Simulator,
        Self::Not,
        Self::Slow,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::InPart => "passed in part",
            Self::Failed => "failed",
            Self::Simulator => "simulator only",
            Self::Not => "n/a",
            Self::Slow => "slow",
        }
    }

    /// Whether the row was played to its end.
    const fn is_result(self) -> bool {
        !matches!(self, Self::Simulator | Self::Not)
    }

    /// Whether there is nothing left to be played.
    const fn is_settled(self) -> bool {
        !matches!(self, Self::Failed | Self::Slow)
    }

    fn read(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|it| it.word() == word.replace('-', " "))
    }
}
