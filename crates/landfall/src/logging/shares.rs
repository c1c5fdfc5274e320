//! How many lines a Service may write, and all those of its namespace. Its author decides how often
//! something is said of it: ports, members, a health check that turns ten times a second. Pure, as
//! far as time goes: it is given.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// So many lines of one Service at once, and one more each time that this has passed.
const SERVICE: Rate = Rate {
    burst: 200,
    each: Duration::from_secs(1),
};

/// The same of all Services of a namespace. It fits into what waits for a slow reader.
const NAMESPACE: Rate = Rate {
    burst: 4000,
    each: Duration::from_millis(50),
};

/// Fewer buckets than this are not worth being looked through for those that are full.
const KEPT: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: u32,
    each: Duration,
}

/// What each Service and namespace wrote lately, and what was dropped since the last report.
#[derive(Debug, Default)]
pub struct Shares {
    services: Buckets,
    namespaces: Buckets,
    /// By namespace, and there by Service.
    left_out: BTreeMap<String, BTreeMap<String, u64>>,
}

/// When each bucket is full again; one that is not named is full.
#[derive(Debug, Default)]
struct Buckets {
    full: HashMap<String, Duration>,
    /// How many there were after those that are full were last forgotten.
    kept: usize,
}

/// What was left out of one namespace.
#[derive(Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The Service of which most was left out.
    pub service: String,
    /// How many others there are.
    pub others: usize,
    /// Lines of all of them.
    pub lines: u64,
}

// === impl Shares ===

impl Shares {
    /// Takes a line of a Service, `namespace/name`, from what it may still write. Returns whether
    /// the line is to be written.
    pub fn take(&mut self, service: &str, now: Duration) -> bool {
        let namespace = service
            .split_once('/')
            .map_or("", |(namespace, _)| namespace);
        let own = self.services.after(service, SERVICE, now);
        let all = self.namespaces.after(namespace, NAMESPACE, now);
        let (Some(own), Some(all)) = (own, all) else {
            let services = self.left_out.entry(namespace.to_owned()).or_default();
            *services.entry(service.to_owned()).or_default() += 1;
            return false;
        };
        self.services.set(service, own, now);
        self.namespaces.set(namespace, all, now);
        true
    }

    /// Returns what was left out since the last time, by namespace.
    pub fn left_out(&mut self) -> Vec<LeftOut> {
        let namespaces = std::mem::take(&mut self.left_out).into_values();
        let reported = namespaces.filter_map(|services| {
            let (others, lines) = (services.len() - 1, services.values().sum());
            let most = services.into_iter().max_by_key(|(_, lines)| *lines);
            most.map(|(service, _)| LeftOut {
                service,
                others,
                lines,
            })
        });
        reported.collect()
    }
}

// === impl Buckets ===

impl Buckets {
    /// Returns when the bucket is full again after one more is taken from it; `None`: it is empty.
    fn after(&self, name: &str, rate: Rate, now: Duration) -> Option<Duration> {
        let full = self.full.get(name).copied().unwrap_or_default();
        let after = full.max(now) + rate.each;
        (after.saturating_sub(now) <= rate.each * rate.burst).then_some(after)
    }

    fn set(&mut self, name: &str, full: Duration, now: Duration) {
        if let Some(known) = self.full.get_mut(name) {
            *known = full;
            return;
        }
        if self.full.len() >= 2 * self.kept + KEPT {
            self.full.retain(|_, full| *full > now);
            self.kept = self.full.len();
        }
        self.full.insert(name.to_owned(), full);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1000);

    fn taken(shares: &mut Shares, service: &str, lines: usize, now: Duration) -> usize {
        (0..lines).filter(|_| shares.take(service, now)).count()
    }

    #[test]
    fn a_service_has_a_burst_and_then_a_line_per_second_and_others_have_theirs() {
        let mut shares = Shares::default();
        assert_eq!(taken(&mut shares, "default/loud", 10_000, START), 200);
        assert_eq!(taken(&mut shares, "default/calm", 200, START), 200);
        assert_eq!(taken(&mut shares, "other/loud", 200, START), 200);
        let later = START + Duration::from_secs(7);
        assert_eq!(taken(&mut shares, "default/loud", 10_000, later), 7);
        let much_later = START + Duration::from_secs(3600);
        assert_eq!(taken(&mut shares, "default/loud", 10_000, much_later), 200);
    }

    #[test]
    fn many_services_of_a_namespace_do_not_write_more_than_it_may() {
        let mut shares = Shares::default();
        let mut written = 0;
        for number in 0..1000 {
            written += taken(&mut shares, &format!("loud/{number}"), 50, START);
        }
        assert_eq!(written, 4000);
        // A name that was never seen has a bucket of its own, and the namespace has no other.
        assert_eq!(taken(&mut shares, "loud/new", 10, START), 0);
        assert_eq!(taken(&mut shares, "calm/web", 200, START), 200);
        let later = START + Duration::from_secs(1);
        assert_eq!(taken(&mut shares, "loud/new", 100, later), 20);
    }

    #[test]
    fn what_is_left_out_is_reported_once_per_namespace_with_the_service_that_logs_most() {
        let mut shares = Shares::default();
        assert_eq!(shares.left_out(), []);
        taken(&mut shares, "default/web", 1200, START);
        taken(&mut shares, "default/api", 203, START);
        taken(&mut shares, "other/web", 201, START);
        taken(&mut shares, "silent/web", 200, START);
        let reported = |service: &str, others, lines| LeftOut {
            service: service.to_owned(),
            others,
            lines,
        };
        let expected = [
            reported("default/web", 1, 1003),
            reported("other/web", 0, 1),
        ];
        assert_eq!(shares.left_out(), expected);
        assert_eq!(shares.left_out(), []);
    }

    #[test]
    fn names_that_come_and_go_are_forgotten() {
        let mut shares = Shares::default();
        for number in 0..100_000_u32 {
            let now = START + Duration::from_millis(100) * number;
            assert!(shares.take(&format!("default/{number}"), now));
        }
        let kept = shares.services.full.len();
        assert!(kept < 2 * KEPT, "{kept}");
    }
}
