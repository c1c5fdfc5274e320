//! Rules over files: their size, and code that is not allowed in them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use super::{Findings, extension};
use crate::place::Place;

/// The lines of any file. Code outside of tests has a lower limit: see `sizes`.
const TOO_LONG: usize = 1000;
/// What people write by hand, and so what has to stay readable.
const WRITTEN: &[&str] = &["rs", "js", "css", "html", "sh", "py"];

/// In Rust sources. Split, so that this file does not break its own rules.
const NOT_IN_RUST: &[(&str, &str)] = &[
    (concat!("to", "do!("), "every feature is real"),
    (concat!("unimple", "mented!("), "every feature is real"),
    (concat!("dbg", "!("), "use tracing"),
];
/// An attribute, so only where a line begins with it.
const NOT_ON_TESTS: &str = "#[ignore";

/// Only landfall-sys may lift the ban on unsafe code.
const LIFTS_UNSAFE: &[&str] = &[
    concat!("allow(", "unsafe_code"),
    concat!("expect(", "unsafe_code"),
    concat!("warn(", "unsafe_code"),
];
const SYS: &str = "crates/sys/";

/// Paths that only one machine has.
const ONE_MACHINE: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];
/// Where such a path is not ours but part of what is described.
const MAY_NAME_PATHS: &[&str] = &["Cargo.lock"];

/// Validates every file of the checkout that is or may become tracked.
pub fn validate(place: &Place) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    each(place, |path, text| validate_file(path, text, &mut findings))?;
    Ok(findings)
}

/// Calls `check` with path and text of every such file.
pub fn each(place: &Place, mut check: impl FnMut(&str, &str)) -> anyhow::Result<()> {
    for path in files(&place.root)? {
        let bytes = match fs::read(place.root.join(&path)) {
            Ok(bytes) => bytes,
            // Deleted, but not yet in a commit.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("{path} can't be read")),
        };
        // Pictures have no lines.
        if let Ok(text) = std::str::from_utf8(&bytes) {
            check(&path, text);
        }
    }
    Ok(())
}

fn files(root: &Path) -> anyhow::Result<Vec<String>> {
    let output = Command::new("git")
        .current_dir(root)
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
            Ok(text
                .split('\0')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect())
        }
        // An unpacked archive, or no git: everything that is here.
        _ => {
            let mut found = Vec::new();
            walk(root, "", &mut found)?;
            Ok(found)
        }
    }
}

fn walk(root: &Path, below: &str, found: &mut Vec<String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().context("a file's name is not UTF-8")?;
        let path = if below.is_empty() {
            name.to_owned()
        } else {
            format!("{below}/{name}")
        };
        let kind = entry.file_type()?;
        if kind.is_dir() && ![".git", "target"].contains(&name) {
            walk(root, &path, found)?;
        } else if kind.is_file() {
            found.push(path);
        }
    }
    Ok(())
}

fn validate_file(path: &str, text: &str, findings: &mut Findings) {
    let extension = extension(path);
    if extension.is_some_and(|extension| WRITTEN.contains(&extension)) {
        let lines = text.lines().count();
        if lines > TOO_LONG {
            findings.errors.push(format!(
                "{path}: {lines} lines; at most {TOO_LONG}: split it by subject"
            ));
        }
    }
    for (index, line) in text.lines().enumerate() {
        let mut refuse = |word: &str, why: &str| {
            findings
                .errors
                .push(format!("{path}:{}: `{word}`: {why}", index + 1));
        };
        if !MAY_NAME_PATHS.contains(&path) {
            for machine in ONE_MACHINE
                .iter()
                .filter(|machine| names_path(line, machine))
            {
                refuse(machine, "a path of one machine");
            }
        }
        if extension == Some("rs") {
            let code = line.split("//").next().unwrap_or(line);
            for (word, why) in NOT_IN_RUST.iter().filter(|(word, _)| code.contains(word)) {
                refuse(word, why);
            }
            if code.trim_start().starts_with(NOT_ON_TESTS) {
                refuse(NOT_ON_TESTS, "a test that doesn't run proves nothing");
            }
            for word in LIFTS_UNSAFE.iter().filter(|word| code.contains(*word)) {
                if !path.starts_with(SYS) {
                    refuse(word, "unsafe code lives in landfall-sys");
                }
            }
        }
    }
}

/// Whether an absolute path begins like this, and not just some longer path or address.
fn names_path(line: &str, machine: &str) -> bool {
    line.match_indices(machine).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        !before.is_some_and(|before| before.is_alphanumeric() || "._-}~>*".contains(before))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validated(path: &str, text: &str) -> Findings {
        let mut findings = Findings::default();
        validate_file(path, text, &mut findings);
        findings
    }

    #[test]
    fn a_very_long_file_is_an_error() {
        assert_eq!(validated("a.rs", &"\n".repeat(1000)), Findings::default());
        assert_eq!(
            validated("a.rs", &"\n".repeat(1001)).errors,
            ["a.rs: 1001 lines; at most 1000: split it by subject"]
        );
        assert_eq!(validated("a.md", &"\n".repeat(1001)), Findings::default());
    }

    #[test]
    fn a_test_that_does_not_run_is_an_error_with_its_line() {
        let attribute = "    #[ignore = \"slow\"]";
        assert_eq!(
            validated("a.rs", &format!("#[test]\n{attribute}\n")).errors,
            [format!(
                "a.rs:2: `#[{}`: a test that doesn't run proves nothing",
                "ignore"
            )]
        );
        assert_eq!(
            validated("a.rs", &format!("// {attribute}")),
            Findings::default()
        );
    }

    #[test]
    fn unsafe_code_is_allowed_in_one_crate() {
        let line = concat!("#![expect(", "unsafe_code, reason = \"sockets\")]");
        assert_eq!(
            validated("crates/sys/src/lib.rs", line),
            Findings::default()
        );
        assert_eq!(validated("crates/proxy/src/lib.rs", line).errors.len(), 1);
    }

    #[test]
    fn a_path_of_one_machine_is_an_error_and_a_part_of_a_path_is_not() {
        let path = concat!("see /wo", "rk/main");
        assert_eq!(validated("a.md", path).errors.len(), 1);
        assert_eq!(
            validated("a.md", concat!("see target/wo", "rk/main")),
            Findings::default()
        );
        assert_eq!(
            validated("a.md", concat!("~/wo", "rk/")),
            Findings::default()
        );
    }
}
