//! The Services whose clients are refused because descriptors, ports or memory run short: named
//! once when it begins, and again when none was refused for a while. So a flood is one event on the
//! Service. Pure.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use landfall_model::Uid;
use landfall_model::reason::{Code, Reason};
use tokio::time::Instant;

/// The interval at which refusals are counted.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// After this long without a refusal it is over, so that it is reported no more often than this.
const CALM: Duration = Duration::from_secs(600);

/// What was seen of each Service until now. Pure.
#[derive(Debug, Default)]
pub(crate) struct Shortages {
    rows: HashMap<Uid, Row>,
    /// Whether it was checked before. What the first check counts was reported by the process that
    /// served before this provider.
    looked: bool,
    /// How often anything was refused in the whole process.
    all: u64,
    /// Whether that had risen at the last check.
    rising: bool,
}

#[derive(Debug, Default)]
struct Row {
    refused: u64,
    /// When the number last rose, until it is over.
    rose: Option<Instant>,
}

/// What all Services share, of which one of them has its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Descriptors for listeners and connections.
    pub descriptors: u32,
    /// UDP flows.
    pub flows: u32,
}

// === impl Shortages ===

impl Shortages {
    /// Whether a look can find anything: with ten thousand Services it is some work. `all`: how
    /// often anything was refused in the whole process.
    pub(crate) fn is_due(&mut self, all: u64, now: Instant) -> bool {
        let rises = std::mem::replace(&mut self.all, all) != all;
        // A refusal is counted in the whole process before it is counted at its listener.
        let rose = std::mem::replace(&mut self.rising, rises);
        rises || rose || !self.looked || self.rows.values().any(|row| row.is_over(now))
    }

    /// Takes how many clients of each Service were refused ever. Returns the Services of which it
    /// began, or is over.
    pub(crate) fn look(&mut self, refused: BTreeMap<Uid, u64>, now: Instant) -> Vec<Uid> {
        self.rows.retain(|uid, _| refused.contains_key(uid));
        let looked = std::mem::replace(&mut self.looked, true);
        let mut turned = Vec::new();
        for (uid, refused) in refused {
            let row = self.rows.entry(uid.clone()).or_default();
            let before = row.rose;
            // A listener that closes takes its count along.
            if refused > std::mem::replace(&mut row.refused, refused) && looked {
                row.rose = Some(now);
            }
            if row.is_over(now) {
                row.rose = None;
            }
            if before.is_some() != row.rose.is_some() {
                turned.push(uid);
            }
        }
        turned
    }

    /// Returns the Services whose clients are refused.
    pub(crate) fn refusing(&self) -> Vec<Uid> {
        let refusing = self.rows.iter().filter(|(_, row)| row.rose.is_some());
        refusing.map(|(uid, _)| uid.clone()).collect()
    }

    /// Whether clients of the Service are refused.
    pub(crate) fn has(&self, service: &Uid) -> bool {
        self.rows.get(service).is_some_and(|row| row.rose.is_some())
    }
}

// === impl Row ===

impl Row {
    /// Whether clients were refused, and none for a while.
    fn is_over(&self, now: Instant) -> bool {
        self.rose.is_some_and(|at| now.duration_since(at) >= CALM)
    }
}

// === impl Shared ===

impl Shared {
    /// Says that clients are refused. Without numbers that change, each of which would be an event.
    pub(crate) fn reason(self) -> Reason {
        let Self { descriptors, flows } = self;
        let message = format!(
            "clients are refused: of the {descriptors} file descriptors that all Services have for \
             their connections, of the {flows} UDP flows, or of the memory for buffers, this \
             Service, its namespace or a client of it has its share"
        );
        Reason::warning(Code::Overloaded, message).remedy(
            "look for clients that open too much, or let the process have more file descriptors",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_reported_once_and_its_end_after_ten_minutes_without_refusals() {
        let (mut seen, start) = (Shortages::default(), Instant::now());
        let (web, api) = (Uid::new("web"), Uid::new("api"));
        let mut reported = Vec::new();
        for look in 0..1000 {
            let now = start + INTERVAL * look;
            // From before; then a flood with pauses of half a minute, and then nothing.
            let refused = 7 + u64::from(look.min(200) / 6 * 30);
            let refused = BTreeMap::from([(web.clone(), refused), (api.clone(), 0)]);
            for uid in seen.look(refused, now) {
                assert_eq!(uid, web);
                reported.push((look, seen.has(&web)));
            }
            assert!(!seen.has(&api));
        }
        assert_eq!(reported, [(6, true), (198 + 120, false)]);
    }

    #[test]
    fn services_are_checked_after_refusals_and_when_their_end_is_due_and_at_no_other_time() {
        let (mut seen, start) = (Shortages::default(), Instant::now());
        let web = Uid::new("web");
        let refused = |count| BTreeMap::from([(web.clone(), count)]);
        assert!(seen.is_due(0, start));
        seen.look(refused(0), start);
        assert!(!seen.is_due(0, start));
        assert!(seen.is_due(3, start));
        assert_eq!(seen.look(refused(3), start), std::slice::from_ref(&web));
        assert!(seen.is_due(3, start), "it may have been counted since");
        seen.look(refused(3), start);
        assert!(!seen.is_due(3, start));
        assert!(!seen.is_due(3, start + CALM - INTERVAL));
        assert!(seen.is_due(3, start + CALM));
        assert_eq!(
            seen.look(refused(3), start + CALM),
            std::slice::from_ref(&web)
        );
        assert!(!seen.is_due(3, start + CALM));
    }

    #[test]
    fn a_new_service_is_reported_and_one_that_closes_a_listener_is_not() {
        let (mut seen, now) = (Shortages::default(), Instant::now());
        let web = Uid::new("web");
        let refused = |count| BTreeMap::from([(web.clone(), count)]);
        assert_eq!(seen.look(refused(90), now), []);
        assert_eq!(seen.look(refused(30), now), []);
        assert_eq!(seen.look(refused(31), now), std::slice::from_ref(&web));
        assert_eq!(seen.look(BTreeMap::new(), now), []);
        assert!(!seen.has(&web));
        assert_eq!(seen.look(refused(5), now), std::slice::from_ref(&web));
    }
}
