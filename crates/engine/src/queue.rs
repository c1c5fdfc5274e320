//! A queue of keys that wait for work: each at most once, none twice at the same time.
//!
//! A key whose time has come waits for a slot of its lane (for a Service: of its provider
//! instance), where namespaces have turns: a namespace with many keys delays those of another one
//! by few. A key that must not be taken before a certain time is held until then, whatever is
//! requested meanwhile. A delay debounces: what is pushed again before it is over is one entry.
//!
//! A state machine without a clock: every method that depends on time takes `now`. It knows
//! neither Services nor leaders, so that each role of a process has queues of its own.

mod line;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

pub use line::{Line, Turn};

/// Keys waiting, delayed, held, and being worked on.
#[derive(Debug)]
pub struct Queue<K> {
    /// Those whose time has come; it is not known yet whose slots they need.
    ready: VecDeque<K>,
    /// Those among them that come before all others.
    first: VecDeque<K>,
    /// All that are in `ready` or in a lane's line.
    is_ready: HashSet<K>,
    delayed: BTreeSet<(Instant, K)>,
    due: HashMap<K, Instant>,
    /// Keys that are not taken before a time.
    held: HashMap<K, Instant>,
    running: HashMap<K, Running>,
    lanes: Vec<Lane<K>>,
    /// The lane that comes next.
    next_lane: usize,
}

/// Slots of their own, and the keys that wait for one.
#[derive(Debug)]
struct Lane<K> {
    /// Work at the same time.
    slots: usize,
    running: usize,
    line: Line<K>,
}

/// Work in progress.
#[derive(Debug)]
struct Running {
    lane: usize,
    /// Whether another one follows at once.
    again: bool,
}

/// Room for keys that an empty queue keeps.
const ROOM: usize = 64;

// === impl Queue ===

impl<K: Clone + Eq + Hash + Ord + Turn> Queue<K> {
    /// An empty queue with a lane for each of these numbers of slots.
    pub fn new(slots: &[usize]) -> Self {
        let lane = |slots: &usize| Lane::new(*slots);
        let lanes = if slots.is_empty() { &[1] } else { slots };
        Self {
            ready: VecDeque::new(),
            first: VecDeque::new(),
            is_ready: HashSet::new(),
            delayed: BTreeSet::new(),
            due: HashMap::new(),
            held: HashMap::new(),
            running: HashMap::new(),
            lanes: lanes.iter().map(lane).collect(),
            next_lane: 0,
        }
    }

    /// Requests work as soon as possible. A delay that was set before is forgotten, a hold is
    /// not.
    pub fn push(&mut self, key: &K) {
        if self.make_ready(key) {
            self.ready.push_back(key.clone());
        }
    }

    /// Requests work as soon as possible, before all that is ready already.
    pub fn push_first(&mut self, key: &K) {
        if self.make_ready(key) {
            self.first.push_front(key.clone());
        }
    }

    /// Requests work after a delay, unless one is due sooner.
    pub fn push_after(&mut self, key: &K, delay: Duration, now: Instant) {
        self.push_at(key, now + delay);
    }

    /// Requests work, unless one is due already: that one will do.
    pub fn push_unless_due(&mut self, key: &K) {
        if !self.due.contains_key(key) {
            self.push(key);
        }
    }

    /// Requests work after a delay; before that none is started, whatever requests it.
    pub fn hold(&mut self, key: &K, delay: Duration, now: Instant) {
        let until = now + delay;
        let held = self.held.entry(key.clone()).or_insert(until);
        *held = until.max(*held);
        self.push_at(key, until);
    }

    /// Takes the next key whose time has come and for which there is a slot in its lane; it counts
    /// as running until [`Queue::finish`].
    pub fn take(&mut self, now: Instant, lane_of: impl Fn(&K) -> usize) -> Option<K> {
        self.ripen(now);
        self.requeue_moved(&lane_of);
        self.line_up(now, &lane_of);
        let (key, lane) = self.next_in_line(now)?;
        self.is_ready.remove(&key);
        self.held.remove(&key);
        if self.ready.is_empty() && self.ready.capacity() > ROOM {
            // All keys may have stood in line: once, for the most part.
            self.ready.shrink_to(ROOM);
            self.is_ready.shrink_to(ROOM);
        }
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.running += 1;
        }
        let running = Running { lane, again: false };
        self.running.insert(key.clone(), running);
        Some(key)
    }

    /// Ends work. A key that was pushed meanwhile is ready again.
    pub fn finish(&mut self, key: &K) {
        let Some(ended) = self.running.remove(key) else {
            return;
        };
        if let Some(lane) = self.lanes.get_mut(ended.lane) {
            lane.running = lane.running.saturating_sub(1);
        }
        if ended.again {
            self.push(key);
        }
    }

    /// Returns whether work on it has begun and not ended.
    pub fn is_running(&self, key: &K) -> bool {
        self.running.contains_key(key)
    }

    /// When to call [`Queue::take`] next if nothing is pushed and no reconcile ends before. Always
    /// after the time of the last call.
    pub fn next_due(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }

    /// How many keys wait for a slot and whose time has come.
    pub fn depth(&self) -> usize {
        self.is_ready.len()
    }

    /// Makes those ready whose time has come, whether or not there is a slot for them: what is due
    /// must not be due over and over.
    fn ripen(&mut self, now: Instant) {
        while let Some((at, _)) = self.delayed.first()
            && *at <= now
        {
            if let Some((_, key)) = self.delayed.pop_first() {
                self.due.remove(&key);
                self.push(&key);
            }
        }
    }

    /// Whether the key is to be put among those that are ready.
    fn make_ready(&mut self, key: &K) -> bool {
        if let Some(running) = self.running.get_mut(key) {
            running.again = true;
            return false;
        }
        if let Some(at) = self.due.remove(key) {
            self.delayed.remove(&(at, key.clone()));
        }
        self.is_ready.insert(key.clone())
    }

    fn push_at(&mut self, key: &K, at: Instant) {
        let runs_again = self.running.get(key).is_some_and(|running| running.again);
        if self.is_ready.contains(key) || runs_again {
            return;
        }
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

    /// The first in the line of a lane that has a free slot, lanes in turn. One that is held
    /// since it got there goes back.
    fn next_in_line(&mut self, now: Instant) -> Option<(K, usize)> {
        let lanes = self.lanes.len();
        for step in 0..lanes {
            let number = (self.next_lane + step) % lanes;
            while let Some(lane) = self.lanes.get_mut(number)
                && lane.is_free()
                && let Some(key) = lane.line.pop()
            {
                if !self.holds_back(&key, now) {
                    self.next_lane = (number + 1) % lanes;
                    return Some((key, number));
                }
            }
        }
        None
    }

    /// Lets those at the heads of lines whose lane is another one by now look for it again.
    fn requeue_moved(&mut self, lane_of: &impl Fn(&K) -> usize) {
        let last = self.lanes.len() - 1;
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            while lane.is_free()
                && let Some(key) = lane.line.peek()
                && lane_of(key).min(last) != number
                && let Some(key) = lane.line.pop()
            {
                self.first.push_front(key);
            }
        }
    }

    /// Puts all that are ready in the lines of their lanes, so that none has to wait until those
    /// that were in line before have had their turns.
    fn line_up(&mut self, now: Instant, lane_of: &impl Fn(&K) -> usize) {
        let last = self.lanes.len() - 1;
        while let Some(key) = self.first.pop_back() {
            if !self.holds_back(&key, now)
                && let Some(lane) = self.lanes.get_mut(lane_of(&key).min(last))
            {
                lane.line.push_first(key);
            }
        }
        while let Some(key) = self.ready.pop_front() {
            if !self.holds_back(&key, now)
                && let Some(lane) = self.lanes.get_mut(lane_of(&key).min(last))
            {
                lane.line.push_back(key);
            }
        }
    }

    /// Puts a key that is held back until its hold is over; says whether it is.
    fn holds_back(&mut self, key: &K, now: Instant) -> bool {
        let held = self.held.get(key).copied().filter(|until| *until > now);
        if let Some(until) = held {
            self.is_ready.remove(key);
            self.push_at(key, until);
        }
        held.is_some()
    }
}

// === impl Lane ===

impl<K: Turn> Lane<K> {
    fn new(slots: usize) -> Self {
        Self {
            slots: slots.max(1),
            running: 0,
            line: Line::default(),
        }
    }

    fn is_free(&self) -> bool {
        self.running < self.slots
    }
}

#[cfg(test)]
mod tests;
