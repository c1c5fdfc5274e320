//! Calls by what they are for.

use std::collections::BTreeMap;
use std::fmt;

/// One call of a program to the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub method: String,
    /// With `{id}` for every id.
    pub path: String,
    /// Keystone's: no work of the cloud's on load balancers.
    pub login: bool,
}

/// How many calls there were of each sort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub writes: usize,
    /// Reads of load balancers themselves after the first, whether of one or of all.
    pub polls: usize,
    pub reads: usize,
    pub routes: BTreeMap<String, usize>,
}

// === impl Counts ===

impl Counts {
    /// Sorts calls; logins are left out.
    pub fn of(calls: &[Call]) -> Self {
        let mut counts = Self::default();
        let mut looked = false;
        for call in calls.iter().filter(|call| !call.login) {
            let reads = matches!(call.method.as_str(), "GET" | "HEAD");
            if !reads {
                counts.writes += 1;
            } else if call.is_of_load_balancers() && looked {
                counts.polls += 1;
            } else {
                counts.reads += 1;
                looked |= call.is_of_load_balancers();
            }
            let route = format!("{} {}", call.method, call.path);
            *counts.routes.entry(route).or_default() += 1;
        }
        counts
    }

    pub fn all(&self) -> usize {
        self.writes + self.polls + self.reads
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            writes,
            polls,
            reads,
            ..
        } = self;
        write!(out, "{} ({writes} + {polls} + {reads})", self.all())
    }
}

// === impl Call ===

impl Call {
    /// The path as it was sent: ids are put aside.
    pub fn new(method: &str, path: &str, login: bool) -> Self {
        let parts = path.split('/').filter(|part| !part.is_empty());
        let parts = parts.map(|part| if is_id(part) { "{id}" } else { part });
        Self {
            method: method.to_owned(),
            path: format!("/{}", parts.collect::<Vec<_>>().join("/")),
            login,
        }
    }

    fn is_of_load_balancers(&self) -> bool {
        let path = self.path.strip_suffix("/{id}").unwrap_or(&self.path);
        path.ends_with("/lbaas/loadbalancers")
    }
}

/// A UUID, with or without hyphens.
fn is_id(part: &str) -> bool {
    matches!(part.len(), 32 | 36) && part.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}
