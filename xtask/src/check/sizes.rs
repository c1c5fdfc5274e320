//! Limits that keep code readable: lines of a file, lines of a function, and circles of imports.
//!
//! What breaks a limit is in `sizes.baseline` with the number that it may have at most. An entry
//! that nothing needs any more is an error, so the list only gets shorter.

mod imports;
mod source;

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, bail};

use super::{Findings, sources};
use crate::place::Place;
use source::{Crate, SourceFile};

/// The lines of a file, tests left out.
const FILE: usize = 500;
/// The lines of a function, from its signature to its closing brace.
const FUNCTION: usize = 80;

const BASELINE: &str = include_str!("sizes.baseline");
const BASELINE_FILE: &str = "xtask/src/check/sizes.baseline";

/// The thing that breaks a limit, as the baseline names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    /// The path of a file.
    File(String),
    /// The path of a file, and a function in it.
    Function(String, String),
    /// The folder of a crate, and the parent of modules that import each other in a circle.
    Cycle(String, String),
}

/// A broken limit.
#[derive(Debug)]
struct Excess {
    /// Lines, or modules in circles.
    number: usize,
    /// Where the limit is broken, and what to do.
    explanation: String,
}

type Excesses = BTreeMap<Subject, Excess>;
type Allowed = BTreeMap<Subject, usize>;

/// Checks every Rust file of the checkout against the limits and the baseline.
pub fn check(place: &Place) -> anyhow::Result<Findings> {
    let mut crates: BTreeMap<String, Crate> = BTreeMap::new();
    let mut unreadable = None;
    sources::each(place, |path, text| {
        let Some((folder, _)) = source::module_of(path) else {
            return;
        };
        match SourceFile::parse(path, text) {
            Ok(file) => crates.entry(folder.to_owned()).or_default().add(file),
            Err(error) => unreadable = Some(error.context(format!("{path} can't be parsed"))),
        }
    })?;
    if let Some(error) = unreadable {
        return Err(error);
    }
    let mut excesses = Excesses::new();
    for (folder, mut sources) in crates {
        sources.drop_tests();
        measure(&folder, &sources, &mut excesses);
    }
    let mut findings = Findings::default();
    compare(&excesses, &baseline(BASELINE)?, &mut findings);
    Ok(findings)
}

/// Finds all that breaks a limit in one crate.
fn measure(folder: &str, sources: &Crate, excesses: &mut Excesses) {
    for file in sources.files() {
        if file.lines > FILE {
            let explanation = format!("{} lines; at most {FILE}: split it by subject", file.lines);
            let number = file.lines;
            excesses.insert(
                Subject::File(file.path.clone()),
                Excess {
                    number,
                    explanation,
                },
            );
        }
        for function in &file.functions {
            let number = function.lines;
            if number > FUNCTION {
                let explanation = format!("{number} lines; at most {FUNCTION}");
                excesses.insert(
                    Subject::Function(file.path.clone(), function.name.clone()),
                    Excess {
                        number,
                        explanation,
                    },
                );
            }
        }
    }
    for (parent, cycle) in imports::cycles(sources) {
        let explanation = format!(
            "modules import each other:\n  {}",
            cycle.imports.join("\n  ")
        );
        excesses.insert(
            Subject::Cycle(folder.to_owned(), parent),
            Excess {
                number: cycle.modules,
                explanation,
            },
        );
    }
}

/// Compares what was found with what the baseline allows.
fn compare(excesses: &Excesses, allowed: &Allowed, findings: &mut Findings) {
    for (subject, excess) in excesses {
        if allowed
            .get(subject)
            .is_none_or(|most| excess.number > *most)
        {
            let Excess {
                number,
                explanation,
            } = excess;
            findings
                .errors
                .push(format!("{subject} {number}: {explanation}"));
        }
    }
    for subject in allowed.keys().filter(|known| !excesses.contains_key(known)) {
        findings.errors.push(format!(
            "{subject}: within its limit now: remove it from {BASELINE_FILE}"
        ));
    }
}

/// Reads the baseline: lines of `file PATH LINES`, `function PATH NAME LINES` and
/// `cycle CRATE PARENT MODULES`.
fn baseline(text: &str) -> anyhow::Result<Allowed> {
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let (subject, number) = match words[..] {
                ["file", path, number] => (Subject::File(path.into()), number),
                ["function", path, name, number] => {
                    (Subject::Function(path.into(), name.into()), number)
                }
                ["cycle", folder, parent, number] => {
                    (Subject::Cycle(folder.into(), parent.into()), number)
                }
                _ => bail!("{BASELINE_FILE}: {line:?} is not an entry"),
            };
            let number = number
                .parse()
                .with_context(|| format!("{BASELINE_FILE}: {line:?}"))?;
            Ok((subject, number))
        })
        .collect()
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {path}"),
            Self::Function(path, name) => write!(f, "function {path} {name}"),
            Self::Cycle(folder, parent) => write!(f, "cycle {folder} {parent}"),
        }
    }
}

#[cfg(test)]
mod tests;
