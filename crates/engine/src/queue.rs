//! The queue of Services that wait for a pass: each at most once, none twice at the same time.
//!
//! A state machine without a clock: every method that depends on time takes `now`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use landfall_model::ServiceKey;

/// Keys waiting, delayed, and being worked on.
#[derive(Debug, Default)]
pub struct Queue {
    ready: VecDeque<ServiceKey>,
    is_ready: HashSet<ServiceKey>,
    delayed: BTreeSet<(Instant, ServiceKey)>,
    due: HashMap<ServiceKey, Instant>,
    running: BTreeMap<ServiceKey, Rerun>,
}

/// What follows when a running pass ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rerun {
    No,
    AtOnce,
}

/// Room for keys that an empty queue keeps.
const ROOM: usize = 64;

// === impl Queue ===

impl Queue {
    /// Asks for a pass as soon as possible. A delay that was set before is forgotten.
    pub fn push(&mut self, key: &ServiceKey) {
        if let Some(rerun) = self.running.get_mut(key) {
            *rerun = Rerun::AtOnce;
            return;
        }
        if let Some(at) = self.due.remove(key) {
            self.delayed.remove(&(at, key.clone()));
        }
        if self.is_ready.insert(key.clone()) {
            self.ready.push_back(key.clone());
        }
    }

    /// Asks for a pass after a delay, unless one is due sooner.
    pub fn push_after(&mut self, key: &ServiceKey, delay: Duration, now: Instant) {
        if self.is_ready.contains(key) || self.running.get(key) == Some(&Rerun::AtOnce) {
            return;
        }
        let at = now + delay;
        match self.due.get(key) {
            Some(&sooner) if sooner <= at => return,
            Some(&later) => {
                self.delayed.remove(&(later, key.clone()));
            }
            None => {}
        }
        self.due.insert(key.clone(), at);
        self.delayed.insert((at, key.clone()));
    }

    /// Takes the next key whose time has come; it counts as running until [`Queue::finish`].
    pub fn take(&mut self, now: Instant) -> Option<ServiceKey> {
        while let Some((at, key)) = self.delayed.first().cloned() {
            if at > now {
                break;
            }
            self.delayed.remove(&(at, key.clone()));
            self.due.remove(&key);
            self.push(&key);
        }
        let key = self.ready.pop_front()?;
        self.is_ready.remove(&key);
        if self.ready.is_empty() {
            // Everybody may have stood in line: once, for the most part.
            self.ready.shrink_to(ROOM);
            self.is_ready.shrink_to(ROOM);
        }
        self.running.insert(key.clone(), Rerun::No);
        Some(key)
    }

    /// Ends a pass. A key that was pushed meanwhile is ready again.
    pub fn finish(&mut self, key: &ServiceKey) {
        if self.running.remove(key) == Some(Rerun::AtOnce) {
            self.push(key);
        }
    }

    /// Whether a pass over it has begun and not ended.
    pub fn is_running(&self, key: &ServiceKey) -> bool {
        self.running.contains_key(key)
    }

    /// When to call [`Queue::take`] next if nothing is pushed before.
    pub fn next_due(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }

    /// Whether a pass could start right away.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// How many keys wait for a pass that could start now.
    pub fn depth(&self) -> usize {
        self.ready.len()
    }

    /// Whether nothing waits without a delay and nothing runs.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("default", name)
    }

    #[test]
    fn a_key_pushed_twice_is_taken_once() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.push(&key("a"));
        queue.push(&key("a"));
        assert_eq!(queue.take(now), Some(key("a")));
        assert_eq!(queue.take(now), None);
    }

    #[test]
    fn a_key_pushed_while_it_runs_runs_again_afterwards_and_not_beside() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.push(&key("a"));
        assert_eq!(queue.take(now), Some(key("a")));
        queue.push(&key("a"));
        assert_eq!(queue.take(now), None);
        queue.finish(&key("a"));
        assert_eq!(queue.take(now), Some(key("a")));
        queue.finish(&key("a"));
        assert!(queue.is_idle());
    }

    #[test]
    fn a_delayed_key_comes_when_it_is_due_and_a_push_brings_it_forward() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let later = Duration::from_secs(5);
        queue.push_after(&key("a"), later, now);
        queue.push_after(&key("b"), later * 2, now);
        assert_eq!(queue.take(now), None);
        assert_eq!(queue.next_due(), Some(now + later));
        queue.push(&key("b"));
        assert_eq!(queue.take(now), Some(key("b")));
        assert_eq!(queue.take(now + later), Some(key("a")));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn the_sooner_of_two_delays_counts() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.push_after(&key("a"), Duration::from_secs(9), now);
        queue.push_after(&key("a"), Duration::from_secs(1), now);
        queue.push_after(&key("a"), Duration::from_secs(5), now);
        assert_eq!(queue.next_due(), Some(now + Duration::from_secs(1)));
        assert_eq!(queue.take(now + Duration::from_secs(1)), Some(key("a")));
        assert_eq!(queue.take(now + Duration::from_secs(60)), None);
    }
}
