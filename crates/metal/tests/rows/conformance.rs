//! The table of the rows: which tests play which, and the commit at which each passed.
//!
//! `UPDATE_DOCS=1` plays all of them and writes docs/bare-metal-conformance.md;
//! `UPDATE_DOCS=l2,ipam` plays those of these crates, and the results of the others stay.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use landfall_testkit::conformance::{commit, numbers, outcomes, sentence, without_results};

use crate::table::{ON_API_SERVER, ROWS, Relation};

/// The test binaries: the crate, and what `cargo test` is to run.
const SUITES: &[(&str, &[&str])] = &[
    ("ipam", &["-p", "landfall-ipam", "--lib"]),
    (
        "metal",
        &["-p", "landfall-metal", "--test", "rows", "--test", "it"],
    ),
    ("metallb", &["-p", "landfall-metallb", "--test", "it"]),
    ("l2", &["-p", "landfall-l2", "--lib", "--test", "it"]),
    (
        "membership",
        &["-p", "landfall-membership", "--lib", "--test", "it"],
    ),
    ("speaker", &["-p", "landfall-speaker", "--test", "it"]),
    ("kube", &["-p", "landfall-kube", "--lib", "--test", "it"]),
    ("landfall", &["-p", "landfall", "--test", "cluster"]),
    ("xtask", &["-p", "xtask"]),
];

/// A test: its crate and the name of its function.
type Test = (String, String);

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> PathBuf {
    workspace().join("docs/bare-metal-conformance.md")
}

/// The names of all functions of a crate that are tests, by their attribute.
fn tests_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_in(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            for pair in lines.windows(2) {
                let is_test =
                    pair[0].starts_with("#[test]") || pair[0].starts_with("#[tokio::test");
                let name = pair[1].trim_start_matches("async ").strip_prefix("fn ");
                if let (true, Some(name)) = (is_test, name) {
                    found.extend(name.split('(').next().map(str::to_owned));
                }
            }
        }
    }
}

/// The tests of each row: those that are called after it, and those that the table names.
fn tests() -> BTreeMap<u16, Vec<Test>> {
    let mut of_rows = BTreeMap::<u16, Vec<Test>>::new();
    for (name, _) in SUITES {
        let mut found = BTreeSet::new();
        let folder = match *name {
            "xtask" => workspace().join(name),
            name => workspace().join("crates").join(name),
        };
        tests_in(&folder.join("src"), &mut found);
        tests_in(&folder.join("tests"), &mut found);
        for test in &found {
            for number in numbers(test, "row") {
                let test = ((*name).to_owned(), test.clone());
                of_rows.entry(number).or_default().push(test);
            }
        }
        for (test, rows) in ON_API_SERVER
            .iter()
            .filter(|(test, _)| found.contains(*test))
        {
            for row in *rows {
                let test = ((*name).to_owned(), (*test).to_owned());
                of_rows.entry(*row).or_default().push(test);
            }
        }
        for row in ROWS {
            for named in row.tests {
                let (of, test) = named.split_once(' ').unwrap();
                if of == *name {
                    assert!(found.contains(test), "there is no test {named}");
                    let test = (of.to_owned(), test.to_owned());
                    of_rows.entry(row.number).or_default().push(test);
                }
            }
        }
    }
    of_rows
}

/// Plays tests, and returns which passed.
fn play(wanted: &BTreeSet<&Test>, crates: &str) -> BTreeMap<Test, bool> {
    let mut played = BTreeMap::new();
    for (name, arguments) in SUITES {
        let of_it = wanted.iter().filter(|(of, _)| of == name);
        let tests: Vec<&str> = of_it.map(|(_, test)| test.as_str()).collect();
        if tests.is_empty() || (crates != "1" && !crates.split(',').any(|it| it == *name)) {
            continue;
        }
        let output = Command::new(env!("CARGO"))
            .args(["test", "--locked", "--no-fail-fast"])
            .args(*arguments)
            .arg("--")
            .args(&tests)
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        for (path, passed) in outcomes(&printed) {
            let test = path.rsplit("::").next().unwrap_or_default().to_owned();
            played.insert(((*name).to_owned(), test), passed);
        }
    }
    played
}

fn line(result: impl Fn(&Test, &str) -> String, before: &str, test: &Test) -> String {
    let said = sentence(&test.1, "row");
    let line = format!("{before} | {}: {said}", test.0);
    let result = result(test, &line);
    format!("{line} | {result} |\n")
}

fn text(tests: &BTreeMap<u16, Vec<Test>>, result: impl Fn(&Test, &str) -> String) -> String {
    let mut text = String::from(
        "<!-- Written by the rows (crates/metal/tests/rows/conformance.rs); do not edit. -->\n\
        # Conformance of the bare metal provider\n\n\
        What controller and speakers do on bare metal, in comparison with MetalLB: each row is a\n\
        behaviour of MetalLB, with the tests that play it and the commit at which each passed.\n\
        Those of BGP are in [bgp-conformance.md](bgp-conformance.md). Kinds: U, a function\n\
        without I/O; K, a controller and an API; N, packets in network namespaces. Tests of\n\
        `landfall` run on a real kube-apiserver; those of `l2` and `speaker` whose kind is N are\n\
        verified by `arping`, `ndisc6`, `tcpdump` and real kernels.\n\n\
        *same*: as MetalLB. *differs*: on purpose; the table below says how.\n\n\
        | | kind | row | | test | result |\n|---|---|---|---|---|---|\n",
    );
    for row in ROWS {
        let relation = match row.relation {
            Relation::Same => "same",
            Relation::Differs => "differs",
        };
        let before = format!(
            "| {} | {} | {} | {relation}",
            row.number, row.kind, row.name
        );
        match tests.get(&row.number) {
            None => writeln!(text, "{before} | none | - |").unwrap(),
            Some(tests) => {
                for test in tests {
                    text.push_str(&line(&result, &before, test));
                }
            }
        }
    }
    text.push_str("\n## Differences and gaps\n\n| | row | |\n|---|---|---|\n");
    for row in ROWS.iter().filter(|row| !row.note.is_empty()) {
        writeln!(text, "| {} | {} | {} |", row.number, row.name, row.note).unwrap();
    }
    text
}

#[test]
fn each_row_has_a_test_or_says_why_not_and_the_page_lists_them() {
    let tests = tests();
    let earlier = fs::read_to_string(page()).unwrap_or_default();
    if let Ok(crates) = env::var("UPDATE_DOCS") {
        let wanted = tests.values().flatten().collect();
        let (played, commit) = (play(&wanted, &crates), commit());
        let before: BTreeMap<&str, &str> = earlier
            .lines()
            .filter_map(|line| line.strip_suffix(" |")?.rsplit_once(" | "))
            .collect();
        let result = |test: &Test, line: &str| match (played.get(test), before.get(line)) {
            (Some(true), _) => format!("passed, {commit}"),
            (Some(false), _) => "failed".to_owned(),
            (None, Some(earlier)) => (*earlier).to_owned(),
            (None, None) => "not run".to_owned(),
        };
        fs::write(page(), text(&tests, result)).unwrap();
    }
    let unplayed = ROWS.iter().filter(|row| !tests.contains_key(&row.number));
    let silent = unplayed.filter(|row| row.note.is_empty());
    let silent: Vec<u16> = silent.map(|row| row.number).collect();
    assert_eq!(silent, Vec::<u16>::new(), "rows without a test or a word");
    let differing = ROWS.iter().filter(|row| row.relation == Relation::Differs);
    let silent: Vec<u16> = differing
        .filter(|row| row.note.is_empty())
        .map(|row| row.number)
        .collect();
    assert_eq!(silent, Vec::<u16>::new(), "differences without a word");
    let page = fs::read_to_string(page()).unwrap();
    let expected = text(&tests, |_, _| String::new());
    assert_eq!(
        without_results(&page),
        without_results(&expected),
        "UPDATE_DOCS=1"
    );
}
