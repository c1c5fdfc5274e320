//! When what failed and works again is to be relied on. Pure: the time comes in.
//!
//! A failure counts at once. What works again counts after a pause, which doubles from failure to
//! failure, so that addresses do not move to and fro with a cable that is loose.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The pause after a first failure, and the longest.
const FIRST: Duration = Duration::from_secs(3);
const LONGEST: Duration = Duration::from_secs(60);

/// After this long without another failure it is a first one again.
const FORGET: Duration = Duration::from_secs(300);

/// What can fail on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// An interface that announced is down, or gone.
    Interface(String),
    /// Serving an address.
    Address(IpAddr),
    /// The sockets receive nothing.
    Sockets,
    /// What delivers packets on this node, by its own account.
    DataPlane,
}

/// What failed, and for how long it is not to be relied on.
#[derive(Debug, Default)]
pub struct Steadiness {
    failures: BTreeMap<Part, Failure>,
    /// The interfaces that were there, but for those that are forgotten.
    interfaces: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug)]
struct Failure {
    /// The pause once it works.
    pause: Duration,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// It fails, since then.
    Failing(Instant),
    /// It works, and may be relied on from then on.
    Works(Instant),
}

// === impl Steadiness ===

impl Steadiness {
    /// Takes the interfaces that announce, and what else fails.
    pub fn take(&mut self, now: Instant, present: &BTreeSet<String>, failing: BTreeSet<Part>) {
        self.forget(now);
        let gone = self.interfaces.difference(present).cloned();
        let failing: BTreeSet<Part> = gone.map(Part::Interface).chain(failing).collect();
        self.interfaces.extend(present.iter().cloned());
        for part in &failing {
            let failure = self.failures.entry(part.clone()).or_insert(Failure {
                // Doubled below.
                pause: FIRST / 2,
                state: State::Works(now),
            });
            if matches!(failure.state, State::Works(_)) {
                failure.pause = (failure.pause * 2).min(LONGEST);
                failure.state = State::Failing(now);
            }
        }
        for (part, failure) in &mut self.failures {
            if matches!(failure.state, State::Failing(_)) && !failing.contains(part) {
                failure.state = State::Works(now + failure.pause);
            }
        }
    }

    /// Forgets failures of long ago, and interfaces that did not come back.
    fn forget(&mut self, now: Instant) {
        let Self {
            failures,
            interfaces,
        } = self;
        failures.retain(|part, failure| match (part, failure.state) {
            (_, State::Works(from)) => now < from + FORGET,
            (Part::Interface(name), State::Failing(since)) if now >= since + FORGET => {
                interfaces.remove(name);
                false
            }
            (_, State::Failing(_)) => true,
        });
    }

    /// Returns what is not to be relied on.
    pub fn unsteady(&self, now: Instant) -> BTreeSet<Part> {
        let unsteady = self.failures.iter().filter(|(_, it)| match it.state {
            State::Failing(_) => true,
            State::Works(from) => now < from,
        });
        unsteady.map(|(part, _)| part.clone()).collect()
    }

    /// Returns when the next part may be relied on again.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let failures = self.failures.values();
        let due = failures.filter_map(|it| match it.state {
            State::Works(from) if now < from => Some(from),
            _ => None,
        });
        due.min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn eth0() -> BTreeSet<String> {
        BTreeSet::from(["eth0".to_owned()])
    }

    fn down() -> BTreeSet<Part> {
        BTreeSet::from([Part::Interface("eth0".to_owned())])
    }

    /// Down for a second; returns how long it is not relied on after it is up.
    fn flap(steady: &mut Steadiness, now: &mut Instant) -> Duration {
        steady.take(*now, &BTreeSet::new(), BTreeSet::new());
        assert_eq!(steady.unsteady(*now), down());
        assert_eq!(steady.next(*now), None);
        *now += SECOND;
        steady.take(*now, &eth0(), BTreeSet::new());
        let due = steady.next(*now).unwrap();
        let pause = due - *now;
        assert_eq!(
            steady.unsteady(due.checked_sub(Duration::from_nanos(1)).unwrap()),
            down()
        );
        assert_eq!(steady.unsteady(due), BTreeSet::new());
        *now = due;
        pause
    }

    #[test]
    fn what_is_there_from_the_start_and_what_is_new_is_relied_on_at_once() {
        let (mut steady, now) = (Steadiness::default(), Instant::now());
        steady.take(now, &eth0(), BTreeSet::new());
        let both = BTreeSet::from(["eth0".to_owned(), "eth1".to_owned()]);
        steady.take(now, &both, BTreeSet::new());
        assert_eq!(steady.unsteady(now), BTreeSet::new());
    }

    #[test]
    fn the_pause_doubles_from_failure_to_failure_and_is_short_again_after_a_calm_time() {
        let (mut steady, mut now) = (Steadiness::default(), Instant::now());
        steady.take(now, &eth0(), BTreeSet::new());
        let pauses: Vec<u64> = (0..7)
            .map(|_| flap(&mut steady, &mut now).as_secs())
            .collect();
        assert_eq!(pauses, [3, 6, 12, 24, 48, 60, 60]);
        now += FORGET;
        assert_eq!(flap(&mut steady, &mut now), FIRST);
    }

    #[test]
    fn an_interface_that_does_not_come_back_is_forgotten() {
        let (mut steady, now) = (Steadiness::default(), Instant::now());
        steady.take(now, &eth0(), BTreeSet::new());
        steady.take(now, &BTreeSet::new(), BTreeSet::new());
        steady.take(now + FORGET, &BTreeSet::new(), BTreeSet::new());
        assert_eq!(steady.unsteady(now + FORGET), BTreeSet::new());
        assert!(steady.interfaces.is_empty() && steady.failures.is_empty());
    }

    #[test]
    fn an_address_that_can_not_be_served_is_unsteady_until_a_pause_after_it_can() {
        let (mut steady, now) = (Steadiness::default(), Instant::now());
        let failing = BTreeSet::from([Part::Address(IpAddr::from([192, 0, 2, 1])), Part::Sockets]);
        steady.take(now, &eth0(), failing.clone());
        // As long as it lasts, it is one failure.
        steady.take(now + FORGET * 2, &eth0(), failing.clone());
        assert_eq!(steady.unsteady(now + FORGET * 2), failing);
        let end = now + FORGET * 2;
        steady.take(end, &eth0(), BTreeSet::new());
        assert_eq!(steady.next(end), Some(end + FIRST));
        assert_eq!(steady.unsteady(end + FIRST), BTreeSet::new());
    }

    proptest! {
        #[test]
        fn whatever_happens_it_is_relied_on_at_most_a_minute_after_it_works(
            changes in prop::collection::vec((any::<bool>(), 0..90_u64), 1..60)
        ) {
            let (mut steady, mut now) = (Steadiness::default(), Instant::now());
            steady.take(now, &eth0(), BTreeSet::new());
            for (is_up, after) in changes {
                now += SECOND * u32::try_from(after).unwrap();
                let present = if is_up { eth0() } else { BTreeSet::new() };
                steady.take(now, &present, BTreeSet::new());
                if is_up {
                    prop_assert!(steady.next(now).is_none_or(|due| due <= now + LONGEST));
                    prop_assert!(steady.unsteady(now + LONGEST).is_empty());
                } else {
                    let known = steady.interfaces.contains("eth0");
                    prop_assert_eq!(steady.unsteady(now).is_empty(), !known);
                }
            }
        }
    }
}
