//! What the pages of conformance have in common: tests by row, their results, and the commit.

use std::collections::BTreeMap;
use std::process::Command;

/// Returns the commit that is checked out, shortened.
///
/// # Panics
///
/// Where there is no git.
#[expect(clippy::expect_used, reason = "a page without its commit is none")]
pub fn commit() -> String {
    let output = Command::new("git")
        .args(["rev-parse", "--short=7", "HEAD"])
        .output()
        .expect("git starts");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns the numbers at the beginning of the name of a test: with the prefix `row`,
/// `row_19_and_row_20_nodes_are_asked` has two. With another prefix they follow it at once: `s19`.
pub fn numbers(test: &str, prefix: &str) -> Vec<u16> {
    split(test, prefix).0
}

/// Returns the name of a test as a sentence, without its numbers.
pub fn sentence(test: &str, prefix: &str) -> String {
    split(test, prefix).1
}

fn split(test: &str, prefix: &str) -> (Vec<u16>, String) {
    let name = test.rsplit("::").next().unwrap_or_default();
    let mut numbers = Vec::new();
    let mut words = name.split('_');
    let mut rest = words.clone();
    while let Some(word) = words.next() {
        let number: Option<u16> = match word.strip_prefix(prefix) {
            Some("") => words.next().and_then(|word| word.parse().ok()),
            Some(number) => number.parse().ok(),
            None => None,
        };
        if number.is_none() && word != "and" {
            break;
        }
        numbers.extend(number);
        rest = words.clone();
    }
    (numbers, rest.collect::<Vec<_>>().join(" "))
}

/// Returns the tests that a test binary printed that it has run, and which passed.
pub fn outcomes(printed: &str) -> BTreeMap<String, bool> {
    let outcome = |line: &str| {
        let (test, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
        Some((test.to_owned(), outcome == "ok"))
    };
    printed.lines().filter_map(outcome).collect()
}

/// Returns the rows of a page without their results, which are those of its last run.
pub fn without_results(page: &str) -> Vec<String> {
    let rows = page.lines().filter_map(|line| line.rsplit_once(" | "));
    rows.map(|(row, _)| row.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_test_are_at_its_beginning() {
        let test = "pools::row_19_and_row_20_of_3_pools_one_is_used";
        assert_eq!(numbers(test, "row"), [19, 20]);
        assert_eq!(sentence(test, "row"), "of 3 pools one is used");
        let test = "s7_and_s8_nothing_is_left";
        assert_eq!(numbers(test, "s"), [7, 8]);
        assert_eq!(sentence(test, "s"), "nothing is left");
        assert_eq!(numbers("and_now_s9", "s"), [] as [u16; 0]);
    }

    #[test]
    fn a_test_passed_if_it_is_ok_and_not_if_it_is_ignored() {
        let printed = "running 3 tests\ntest a ... ok\ntest b ... FAILED\ntest c ... ignored\n";
        let outcomes: Vec<_> = outcomes(printed).into_values().collect();
        assert_eq!(outcomes, [true, false, false]);
    }
}
