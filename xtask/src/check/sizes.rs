//! Limits that keep code readable: lines of a file, lines of a function, and circles of imports.

mod imports;
mod source;

use std::collections::BTreeMap;

use super::{Findings, sources};
use crate::place::Place;
use source::{Crate, SourceFile};

/// The lines of a file, tests left out.
const FILE: usize = 500;
/// The lines of a function, from its signature to its closing brace.
const FUNCTION: usize = 80;

/// Checks every Rust file of the checkout against the limits.
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
    let mut findings = Findings::default();
    for (folder, mut sources) in crates {
        sources.drop_tests();
        measure(&folder, &sources, &mut findings.errors);
    }
    Ok(findings)
}

/// Finds all that breaks a limit in one crate.
fn measure(folder: &str, sources: &Crate, errors: &mut Vec<String>) {
    for file in sources.files() {
        let path = &file.path;
        if file.lines > FILE {
            errors.push(format!(
                "file {path}: {} lines; at most {FILE}: split it by subject",
                file.lines
            ));
        }
        let long = file.functions.iter().filter(|it| it.lines > FUNCTION);
        errors.extend(long.map(|it| {
            let (name, lines) = (&it.name, it.lines);
            format!("function {path} {name}: {lines} lines; at most {FUNCTION}")
        }));
    }
    for (parent, cycle) in imports::cycles(sources) {
        errors.push(format!(
            "{} modules of {folder} {parent} import each other:\n  {}",
            cycle.modules,
            cycle.imports.join("\n  ")
        ));
    }
}

#[cfg(test)]
mod tests;
