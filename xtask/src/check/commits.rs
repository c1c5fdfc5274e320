//! Subjects of commits: `area: imperative`, short enough for `git log --oneline`.

use std::process::Command;

use super::Findings;
use crate::place::Place;

/// The characters that a subject may have.
const MOST: usize = 72;
/// The commit after which subjects are checked.
const BASE: &str = include_str!("commits.base");
const BASE_FILE: &str = "xtask/src/check/commits.base";

/// Checks the subjects of all commits after the base.
pub fn check(place: &Place, findings: &mut Findings) {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(&place.root).args(arguments);
        let output = command.output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let base = BASE.trim();
    let history = History {
        has_base: git(&["merge-base", "--is-ancestor", base, "HEAD"]).is_some(),
        is_shallow: git(&["rev-parse", "--is-shallow-repository"]).as_deref() == Some("true"),
        named_by: git(&["log", "-1", "--format=%H", "--", BASE_FILE])
            .filter(|commit| !commit.is_empty()),
    };
    let (range, warning) = history.range(base);
    let Some(log) = git(&["log", "--no-merges", "--format=%h %s", &range]) else {
        let warning = "no history of git: subjects of commits are not checked";
        findings.warnings.push(warning.to_owned());
        return;
    };
    findings.warnings.extend(warning);
    check_log(&log, findings);
}

/// What a checkout has of the history.
struct History {
    /// Whether the base is an ancestor.
    has_base: bool,
    /// Whether older commits were not fetched.
    is_shallow: bool,
    /// The commit that changed the name of the base last.
    named_by: Option<String>,
}

impl History {
    /// Returns which commits to check, and what to report if that is not "all after the base".
    ///
    /// A shallow clone may lack the base, and a history that was rewritten has another one.
    fn range(&self, base: &str) -> (String, Option<String>) {
        if self.has_base {
            return (format!("{base}..HEAD"), None);
        }
        let missing = format!("{base} ({BASE_FILE}) is not in this history");
        match &self.named_by {
            Some(commit) if !self.is_shallow => (
                format!("{commit}..HEAD"),
                Some(format!("{missing}: commits after {commit} are checked")),
            ),
            _ => (
                "HEAD".to_owned(),
                Some(format!("{missing}: the commits that are here are checked")),
            ),
        }
    }
}

/// Checks lines of `%h %s`.
fn check_log(log: &str, findings: &mut Findings) {
    for line in log.lines() {
        let (commit, subject) = line.split_once(' ').unwrap_or((line, ""));
        if let Some(problem) = problem(subject) {
            findings
                .errors
                .push(format!("commit {commit}: {subject:?}: {problem}"));
        }
    }
}

/// Returns what is wrong with a subject.
fn problem(subject: &str) -> Option<String> {
    let length = subject.chars().count();
    if length > MOST {
        return Some(format!("{length} characters; at most {MOST}"));
    }
    let Some((area, rest)) = subject.split_once(": ") else {
        return Some("write `area: imperative`, such as `proxy: drain removed members`".to_owned());
    };
    let of_area =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if area.is_empty() || !area.chars().all(of_area) {
        return Some(format!(
            "{area:?} is not an area: write the crate's short name"
        ));
    }
    if !rest.starts_with(|letter: char| letter.is_lowercase()) {
        return Some("begin with a verb in lower case after the area".to_owned());
    }
    rest.ends_with('.')
        .then(|| "a subject has no full stop".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_an_area_and_a_verb() {
        for good in [
            "proxy: drain members that leave their pool",
            "docs: define every term in a glossary",
            "l2: answer ARP for two addresses",
        ] {
            assert_eq!(problem(good), None, "{good}");
        }
        for bad in [
            "Loop",
            "drain members",
            "Proxy: drain members",
            "the proxy: drain members",
            ": drain members",
            "proxy: ",
            "proxy: Drain members",
            "proxy: drain members.",
        ] {
            assert!(problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_subject_has_at_most_72_characters() {
        let subject = |length: usize| format!("proxy: {}", "ä".repeat(length - 7));
        assert_eq!(problem(&subject(72)), None);
        assert_eq!(problem(&subject(73)).unwrap(), "73 characters; at most 72");
    }

    #[test]
    fn without_the_base_the_commits_that_are_here_are_checked() {
        let history = |has_base, is_shallow, named_by: Option<&str>| {
            let named_by = named_by.map(str::to_owned);
            let history = History {
                has_base,
                is_shallow,
                named_by,
            };
            let (range, warning) = history.range("b");
            (range, warning.is_some())
        };
        assert_eq!(
            history(true, true, Some("c")),
            ("b..HEAD".to_owned(), false)
        );
        assert_eq!(history(false, true, Some("c")), ("HEAD".to_owned(), true));
        assert_eq!(
            history(false, false, Some("c")),
            ("c..HEAD".to_owned(), true)
        );
        assert_eq!(history(false, false, None), ("HEAD".to_owned(), true));
    }

    #[test]
    fn each_commit_is_named_with_its_problem() {
        let mut findings = Findings::default();
        check_log("aaa1111 web: show queues\nbbb2222 Loop\n", &mut findings);
        assert_eq!(
            findings.errors,
            [
                "commit bbb2222: \"Loop\": write `area: imperative`, such as \
              `proxy: drain removed members`"
            ]
        );
        assert!(findings.warnings.is_empty());
    }

    #[test]
    fn the_base_is_a_commit() {
        assert!(
            BASE.trim().len() == 40 && BASE.trim().chars().all(|digit| digit.is_ascii_hexdigit())
        );
    }
}
