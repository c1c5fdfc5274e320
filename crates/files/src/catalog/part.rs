//! What one file contributes: what its newest version says, and what stays of earlier ones where
//! that can't be read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use landfall_model::reason::{Code, Origin, Reason, Severity};
use landfall_model::rows::{ServiceRow, SourceMap};

use super::{File, Finding};
use crate::manifest::{Content, Found, Object, ObjectKey};

/// What one file contributes.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: Arc<str>,
    /// What its newest version says.
    pub(super) fresh: Vec<Found>,
    /// What an earlier version said and the newest one neither repeats nor withdraws.
    pub(super) kept: Vec<Found>,
    pub(super) reasons: Vec<Reason>,
    /// Objects that stand in it and can't be used.
    pub(super) spoilt: BTreeMap<ObjectKey, Vec<Reason>>,
    /// Whether anything could be in it that could not be parsed.
    pub(super) unclear: bool,
    /// Whether there is not a single character in it.
    pub(super) is_empty: bool,
}

/// The largest number of kept objects that are listed.
pub(super) const NAMED: usize = 3;

// === impl Part ===

impl Part {
    /// Returns what a file contributes that was `old` before.
    pub(super) fn after(file: File, old: Option<Self>) -> Self {
        let File { name, finding } = file;
        match finding {
            Finding::Same => old.unwrap_or_else(|| Self::holding(name, Vec::new(), Vec::new())),
            Finding::Read(content) => Self::read(name, content, old),
            Finding::Empty => {
                // One that was never seen otherwise may have lost its content in a crash.
                let unclear = old.as_ref().is_none_or(|old| old.unclear);
                let mut former = old.map(Self::into_objects).unwrap_or_default();
                for found in &mut former {
                    // What was wrong with it is there no more.
                    found.mark_outdated(&[]);
                }
                let reasons = if former.is_empty() {
                    Vec::new()
                } else {
                    let reason = still_served(&name, &former, "the file is empty").remedy(
                        "to remove its objects, delete the file or write a comment into it",
                    );
                    vec![reason]
                };
                Self {
                    unclear,
                    is_empty: true,
                    ..Self::holding(name, former, reasons)
                }
            }
            Finding::Unreadable(reason) => {
                let mut former = old.map(Self::into_objects).unwrap_or_default();
                for found in &mut former {
                    found.mark_outdated(std::slice::from_ref(&reason));
                }
                let mut reasons = vec![reason];
                if !former.is_empty() {
                    reasons.push(still_served(&name, &former, "the file can't be read"));
                }
                Self {
                    unclear: true,
                    ..Self::holding(name, former, reasons)
                }
            }
        }
    }

    /// A file that says nothing itself.
    fn holding(name: Arc<str>, kept: Vec<Found>, reasons: Vec<Reason>) -> Self {
        Self {
            name,
            fresh: Vec::new(),
            kept,
            reasons,
            spoilt: BTreeMap::new(),
            unclear: false,
            is_empty: false,
        }
    }

    fn read(name: Arc<str>, content: Content, old: Option<Self>) -> Self {
        let Content {
            objects,
            spoilt,
            unclear,
            mut reasons,
        } = content;
        let fresh: BTreeSet<&ObjectKey> = objects.iter().map(|found| &found.key).collect();
        let mut kept: Vec<Found> = old
            .map(Self::into_objects)
            .unwrap_or_default()
            .into_iter()
            .filter(|found| !fresh.contains(&found.key))
            .filter(|found| unclear || spoilt.contains_key(&found.key))
            .collect();
        let errors = reasons.iter().filter(|it| it.severity == Severity::Error);
        // Where the file could not be taken apart, any of its errors may be the object's.
        let of_file: Vec<Reason> = errors.take(NAMED).cloned().collect();
        for found in &mut kept {
            let own = spoilt.get(&found.key).filter(|own| !own.is_empty());
            found.mark_outdated(own.unwrap_or(&of_file));
        }
        if !kept.is_empty() {
            reasons.push(still_served(&name, &kept, "the newest version has errors"));
        }
        Self {
            name,
            fresh: objects,
            kept,
            reasons,
            spoilt,
            unclear,
            is_empty: false,
        }
    }

    /// Everything in it, with repetitions.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Found> {
        self.fresh.iter().chain(&self.kept)
    }

    /// Everything it contributed, without repetition.
    fn into_objects(self) -> Vec<Found> {
        let fresh: BTreeSet<ObjectKey> = self.fresh.iter().map(|found| found.key.clone()).collect();
        let kept = self
            .kept
            .into_iter()
            .filter(|found| !fresh.contains(&found.key));
        let mut objects: Vec<Found> = Vec::with_capacity(self.fresh.len());
        let mut seen = BTreeSet::new();
        for found in self.fresh.into_iter().chain(kept) {
            if seen.insert(found.key.clone()) {
                objects.push(found);
            }
        }
        objects
    }
}

// === impl Found ===

impl Found {
    /// Notes on a Service why its newest version can't be used.
    fn mark_outdated(&mut self, why: &[Reason]) {
        let Object::Service(row) = &self.object else {
            return;
        };
        let Some(source) = &row.source else {
            return;
        };
        if source.newest_invalid == why {
            return;
        }
        let source = SourceMap {
            newest_invalid: why.to_vec(),
            ..SourceMap::clone(source)
        };
        self.object = Object::Service(Arc::new(ServiceRow {
            source: Some(Arc::new(source)),
            ..ServiceRow::clone(row)
        }));
    }
}

fn still_served(name: &Arc<str>, objects: &[Found], why: &str) -> Reason {
    let named: Vec<String> = objects
        .iter()
        .take(NAMED)
        .map(|found| found.key.to_string())
        .collect();
    let more = match objects.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let stay = match objects.len() {
        1 => "stays as it was",
        _ => "stay as they were",
    };
    Reason::warning(
        Code::ServingPreviousVersion,
        format!("{why}: {}{more} {stay}", named.join(", ")),
    )
    .origin(Some(Origin {
        file: name.clone(),
        line: 1,
    }))
}
