//! What a controller writes, as the API server's audit log has it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use landfall_testkit::cluster::{Audit, AuditEntry, Cluster};

use super::WAITING;

/// The writes of one user since it was made, and what they mean.
pub struct Writes {
    user: &'static str,
    audit: Audit,
    tally: Tally,
}

/// What the entries of the audit log add up to.
#[derive(Default)]
struct Tally {
    /// Attempts, by verb, resource and what came of them.
    counts: BTreeMap<String, usize>,
    /// Services that have an address: their status was written.
    addressed: HashSet<String>,
    last_addressed: Option<Instant>,
    /// Services whose status may have been written, and when that was answered: a server that fails
    /// does not say whether it did it before.
    uncertain: HashMap<String, Instant>,
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
            tally: Tally::default(),
        }
    }

    /// Reads what came since the last time, and returns how many writes those were.
    pub fn look(&mut self) -> io::Result<usize> {
        let mut count = 0;
        for entry in self.audit.take()? {
            if entry.is_of(self.user) {
                self.tally.add(&entry, Instant::now());
                count += 1;
            } else if entry.verb == "delete" && entry.resource == "services" {
                self.tally.freed.get_or_insert_with(Instant::now);
            }
        }
        Ok(count)
    }

    /// Takes note of a Service that has an address, whatever the log has of it.
    pub fn observe(&mut self, service: &str) {
        self.tally.observe(service, Instant::now());
    }

    /// The Services that have an address, the one that waits apart.
    pub fn addressed(&self) -> usize {
        self.tally.addressed.len()
    }

    /// When the last of them got it.
    pub const fn last_addressed(&self) -> Option<Instant> {
        self.tally.last_addressed
    }

    /// How long the one that waits had to, once an address was free.
    pub const fn waited(&self) -> Option<Duration> {
        self.tally.waited
    }

    /// How many writes were for the one that waits, events apart.
    pub const fn of_waiting(&self) -> usize {
        self.tally.of_waiting
    }
}

impl fmt::Display for Writes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.tally.counts;
        write!(out, "{} writes", counts.values().sum::<usize>())?;
        for (kind, count) in counts {
            write!(out, ", {count} {kind}")?;
        }
        Ok(())
    }
}

// === impl Tally ===

impl Tally {
    /// Counts a write that was answered by then.
    fn add(&mut self, entry: &AuditEntry, now: Instant) {
        let outcome = match entry.code {
            ..400 => "",
            400..500 => " refused",
            500.. => " failed",
        };
        let kind = format!("{} {}{outcome}", entry.verb, entry.resource);
        *self.counts.entry(kind).or_default() += 1;
        if entry.name == WAITING {
            self.of_waiting += 1;
        }
        if entry.resource != "services/status" {
            return;
        }
        match entry.code {
            ..400 => self.address(&entry.name, now),
            400..500 => {}
            500.. => {
                self.uncertain.insert(entry.name.clone(), now);
            }
        }
    }

    /// Takes note of an address that a Service is seen to have by now.
    fn observe(&mut self, service: &str, now: Instant) {
        let at = self.uncertain.get(service).copied();
        let is_after = |at: &Instant| service != WAITING || self.freed.is_some_and(|it| it <= *at);
        self.address(service, at.filter(is_after).unwrap_or(now));
    }

    fn address(&mut self, service: &str, at: Instant) {
        self.uncertain.remove(service);
        if service == WAITING {
            if let (None, Some(freed)) = (self.waited, self.freed) {
                self.waited = Some(at.duration_since(freed));
            }
        } else if self.addressed.insert(service.to_owned()) {
            self.last_addressed = self.last_addressed.max(Some(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(name: &str, code: u16) -> AuditEntry {
        AuditEntry {
            user: "controller".to_owned(),
            user_agent: String::new(),
            verb: "patch".to_owned(),
            resource: "services/status".to_owned(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
            code,
            received: String::new(),
            answered: String::new(),
            uri: String::new(),
        }
    }

    #[test]
    fn a_write_that_is_done_and_answered_with_504_counts_once_its_address_is_seen() {
        let begin = Instant::now();
        let at = |second| begin + Duration::from_secs(second);
        let mut tally = Tally::default();
        tally.add(&patch("web-1", 200), at(1));
        tally.add(&patch("web-2", 504), at(2));
        tally.add(&patch("web-3", 409), at(3));
        assert_eq!(tally.addressed.len(), 1);
        for name in ["web-1", "web-2"] {
            tally.observe(name, at(20));
        }
        // Not when it was asked for.
        assert_eq!(
            (tally.addressed.len(), tally.last_addressed),
            (2, Some(at(2)))
        );
        let counts: Vec<_> = tally
            .counts
            .iter()
            .map(|(kind, count)| (&**kind, *count))
            .collect();
        let kinds = [
            ("patch services/status", 1),
            ("patch services/status failed", 1),
            ("patch services/status refused", 1),
        ];
        assert_eq!(counts, kinds);
        // No entry of it was seen at all.
        tally.observe("web-3", at(30));
        assert_eq!(
            (tally.addressed.len(), tally.last_addressed),
            (3, Some(at(30)))
        );
    }

    #[test]
    fn the_one_that_waits_has_waited_until_its_write_was_answered() {
        let begin = Instant::now();
        let at = |second| begin + Duration::from_secs(second);
        let waited = |written: u64| {
            let mut tally = Tally {
                freed: Some(at(10)),
                ..Tally::default()
            };
            tally.add(&patch(WAITING, 504), at(written));
            assert_eq!(tally.waited, None);
            tally.observe(WAITING, at(30));
            (
                tally.waited.unwrap().as_secs(),
                tally.of_waiting,
                tally.addressed.len(),
            )
        };
        assert_eq!(waited(12), (2, 1, 0));
        // That one was something else.
        assert_eq!(waited(5), (20, 1, 0));
    }
}
