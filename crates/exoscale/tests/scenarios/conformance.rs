//! The table of the scenarios: which test plays which, and the commit at which it passed.
//!
//! `UPDATE_DOCS=1` plays all of them and writes docs/exoscale-conformance.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The scenarios of the specification: number, class, name. C: as the reference on the wire. S:
/// safer than the reference. B: better than the reference.
const ROWS: &[(u16, char, &str)] = &[
    (1, 'C', "create minimal"),
    (2, 'C', "idempotent"),
    (3, 'C', "delete dedicated"),
    (4, 'C', "adopt by id"),
    (5, 'C', "async polling"),
    (7, 'S', "sync failure op"),
    (8, 'C', "signature"),
    (9, 'C', "zone endpoint"),
    (10, 'C', "NodePort change"),
    (11, 'C', "port change"),
    (13, 'C', "remove port"),
    (14, 'C', "single-port name drops"),
    (15, 'C', "UDP name"),
    (16, 'C', "TCP+UDP same port"),
    (17, 'C', "SCTP"),
    (19, 'C', "ETP Local port"),
    (20, 'C', "hc port precedence"),
    (21, 'B', "ETP Local mode"),
    (22, 'C', "hc tuning"),
    (23, 'C', "duration forms"),
    (25, 'C', "strategy passthrough"),
    (26, 'S', "bad enum"),
    (27, 'C', "inference one pool"),
    (28, 'C', "inference two pools"),
    (29, 'C', "inference none"),
    (31, 'S', "foreign node"),
    (32, 'C', "pool annotation"),
    (33, 'C', "pool change"),
    (34, 'S', "pool change to bad value"),
    (35, 'C', "SKS by name"),
    (37, 'C', "SKS errors"),
    (38, 'C', "external by id"),
    (39, 'C', "external by name"),
    (40, 'C', "external nothing"),
    (41, 'C', "external missing NLB"),
    (43, 'B', "external collision"),
    (44, 'B', "external port removal"),
    (45, 'C', "external case"),
    (46, 'C', "rename"),
    (47, 'B', "description update"),
    (49, 'B', "leftover uri"),
    (50, 'B', "pool object fuller than id"),
    (51, 'C', "stale id"),
    (52, 'S', "takeover guard"),
    (53, 'S', "crash after create"),
    (55, 'S', "name conflict"),
    (56, 'C', "delete, NLB gone"),
    (57, 'C', "delete with extra service"),
    (58, 'S', "delete without id annotation"),
    (59, 'S', "delete after port+type edit"),
    (61, 'S', "delete, sub-resource 404"),
    (62, 'S', "malformed id at delete"),
    (63, 'C', "type toggle"),
    (64, 'C', "class set"),
    (65, 'C', "node change"),
    (67, 'C', "multiple Services, one external NLB"),
    (68, 'S', "serialisation"),
    (69, 'S', "stuck op"),
    (70, 'S', "HTTP 429/503"),
    (71, 'S', "401 then rotated file"),
    (73, 'C', "env precedence"),
    (74, 'C', "zone precedence"),
    (75, 'C', "unknown zone"),
    (76, 'C', "status shape"),
    (77, 'S', "NLB without ip"),
    (79, 'S', "allocate NodePorts off"),
    (80, 'S', "11 ports"),
    (81, 'C', "ignored keys"),
    (82, 'C', "annotation merge"),
    (83, 'B', "drift"),
    (85, 'C', "UDP without probe"),
    (86, 'B', "https probe"),
    (87, 'S', "wrong nodepool id in annotation"),
    (88, 'C', "error body shapes"),
];

/// Scenarios that are played by other tests of this crate: what `cargo test` is to run.
const ELSEWHERE: &[(u16, &[&str])] = &[
    (8, &["--lib", "client::signature"]),
    (9, &["--test", "it", "credentials::only_the_zones"]),
    (71, &["--test", "it", "credentials::"]),
    (73, &["--lib", "client::settings"]),
    (74, &["--lib", "client::settings"]),
    (75, &["--test", "it", "credentials::a_zone"]),
];

fn this() -> Command {
    Command::new(env::current_exe().unwrap())
}

/// The numbers at the beginning of a name: `s19_s20_and_s21_nodes_...` has three.
fn numbers(test: &str) -> Vec<u16> {
    let name = test.rsplit("::").next().unwrap_or_default();
    let words = name.split('_').map_while(|word| {
        let number = word.strip_prefix('s').and_then(|it| it.parse().ok());
        (number.is_some() || word == "and").then_some(number)
    });
    words.flatten().collect()
}

/// The tests by number.
fn tests() -> BTreeMap<u16, Vec<String>> {
    let output = this().arg("--list").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut tests = BTreeMap::<u16, Vec<String>>::new();
    for test in text.lines().filter_map(|line| line.strip_suffix(": test")) {
        for number in numbers(test) {
            tests.entry(number).or_default().push(test.to_owned());
        }
    }
    tests
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/exoscale-conformance.md")
}

/// What is in the page in place of the commit.
fn commit() -> String {
    let output = Command::new("git")
        .args(["rev-parse", "--short=7", "HEAD"])
        .output();
    let output = output.unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn sentence(test: &str) -> String {
    let name = test.rsplit("::").next().unwrap_or_default();
    let words = name.split('_').skip_while(|word| {
        let rest = word.strip_prefix('s').unwrap_or("x");
        *word == "and" || rest.parse::<u16>().is_ok()
    });
    words.collect::<Vec<_>>().join(" ")
}

fn text(tests: &BTreeMap<u16, Vec<String>>, result: impl Fn(&str) -> String) -> String {
    let mut text = String::from(
        "<!-- Written by the scenarios (crates/exoscale/tests/scenarios/conformance.rs); do not \
        edit. -->\n\
        # Conformance of the Exoscale provider\n\n\
        What the provider `exoscale` does, in comparison with Exoscale's cloud controller\n\
        manager: each row is a scenario and a test on a simulated Exoscale, of which every\n\
        request and answer is validated against the published description of the API. None has\n\
        run on the real Exoscale.\n\n\
        Class C: the same requests as Exoscale's controller. S: safer than it, on purpose. B:\n\
        what it does not have. The result names the commit at which the test passed.\n\n\
        | | class | scenario | tests | result |\n|---|---|---|---|---|\n",
    );
    for (number, class, name) in ROWS {
        let elsewhere = ELSEWHERE.iter().find(|(row, _)| row == number);
        let (played, result) = match (tests.get(number), elsewhere) {
            (Some(tests), _) => {
                let sentences: Vec<_> = tests.iter().map(|it| sentence(it)).collect();
                let results: Vec<_> = tests.iter().map(|it| result(it)).collect();
                (sentences.join("; "), results.join("; "))
            }
            (None, Some((_, run))) => {
                let run = run.join(" ");
                (format!("`{run}`"), result(&run))
            }
            (None, None) => ("none".to_owned(), "-".to_owned()),
        };
        writeln!(
            text,
            "| {number} | {class} | {name} | {played} | {result} |"
        )
        .unwrap();
    }
    text
}

/// Plays the scenarios, and returns which passed.
fn play() -> BTreeMap<String, bool> {
    let output = this()
        .args([
            "--skip",
            "conformance",
            "--skip",
            "each_write::",
            "--skip",
            "crash::",
            "--skip",
            "chaos::",
        ])
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines = printed.lines().filter_map(|line| {
        let (test, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
        Some((test.to_owned(), outcome == "ok"))
    });
    lines.chain(ELSEWHERE.iter().map(elsewhere)).collect()
}

/// Plays tests of another binary; whether there are some and all passed.
fn elsewhere((_, run): &(u16, &[&str])) -> (String, bool) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["test", "-p", env!("CARGO_PKG_NAME")])
        .args(*run);
    let output = cargo.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let some = !printed.contains("running 0 tests");
    (run.join(" "), some && output.status.success())
}

#[test]
fn every_scenario_has_a_test_and_the_page_lists_them() {
    let tests = tests();
    if env::var_os("UPDATE_DOCS").is_some() {
        let (played, commit) = (play(), commit());
        let result = |test: &str| match played.get(test) {
            Some(true) => format!("passed, {commit}"),
            Some(false) => "failed".to_owned(),
            None => "not run".to_owned(),
        };
        fs::write(page(), text(&tests, result)).unwrap();
    }
    let missing: Vec<u16> = ROWS
        .iter()
        .filter(|(number, class, _)| *class != 'B' && !tests.contains_key(number))
        .map(|(number, ..)| *number)
        .filter(|number| ELSEWHERE.iter().all(|(row, _)| row != number))
        .collect();
    assert_eq!(missing, Vec::<u16>::new(), "scenarios without a test");
    // Results aside, which are those of the last run.
    let without_results = |page: &str| -> Vec<String> {
        let rows = page.lines().filter_map(|line| line.rsplit_once(" | "));
        rows.map(|(row, _)| row.to_owned()).collect()
    };
    let expected = text(&tests, |_| String::new());
    let page = fs::read_to_string(page()).unwrap();
    assert_eq!(
        without_results(&page),
        without_results(&expected),
        "UPDATE_DOCS=1"
    );
}
