//! What a controller writes, as the API server's audit log has it.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use landfall_testkit::cluster::{Audit, AuditEntry, Cluster};

use super::WAITING;

/// The writes of one user since it was made, and what they mean.
pub struct Writes {
    user: &'static str,
    audit: Audit,
    /// By verb and resource.
    counts: BTreeMap<String, usize>,
    /// Services whose status was written.
    addressed: HashSet<String>,
    of_waiting: usize,
    /// When the first Service was deleted by another user.
    freed: Option<Instant>,
    waited: Option<Duration>,
}

// === impl Writes ===

impl Writes {
    /// Counts from now on.
    pub fn of(user: &'static str, cluster: &Cluster) -> Self {
        Self {
            user,
            audit: cluster.audit(),
            counts: BTreeMap::new(),
            addressed: HashSet::new(),
            of_waiting: 0,
            freed: None,
            waited: None,
        }
    }

    /// Reads what came since the last time, and returns how many writes those were.
    pub fn look(&mut self) -> io::Result<usize> {
        let mut count = 0;
        for entry in self.audit.take()? {
            if entry.is_of(self.user) {
                self.add(&entry);
                count += 1;
            } else if entry.verb == "delete" && entry.resource == "services" {
                self.freed.get_or_insert_with(Instant::now);
            }
        }
        Ok(count)
    }

    fn add(&mut self, entry: &AuditEntry) {
        let refused = if entry.code < 400 { "" } else { " refused" };
        let kind = format!("{} {}{refused}", entry.verb, entry.resource);
        *self.counts.entry(kind).or_default() += 1;
        let is_status = entry.resource == "services/status" && entry.code < 400;
        if entry.name == WAITING {
            self.of_waiting += 1;
            if let (true, None, Some(freed)) = (is_status, self.waited, self.freed) {
                self.waited = Some(freed.elapsed());
            }
        } else if is_status {
            self.addressed.insert(entry.name.clone());
        }
    }

    /// The Services whose status was written, the one that waits apart.
    pub fn addressed(&self) -> usize {
        self.addressed.len()
    }

    /// How long the one that waits had to, once an address was free.
    pub const fn waited(&self) -> Option<Duration> {
        self.waited
    }

    /// How many writes were for the one that waits, events apart.
    pub const fn of_waiting(&self) -> usize {
        self.of_waiting
    }
}

impl fmt::Display for Writes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: usize = self.counts.values().sum();
        write!(out, "{all} writes")?;
        for (kind, count) in &self.counts {
            write!(out, ", {count} {kind}")?;
        }
        Ok(())
    }
}
