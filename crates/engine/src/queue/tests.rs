use landfall_model::ServiceKey;
use proptest::prelude::*;

use super::*;

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

fn queue() -> Queue<ServiceKey> {
    Queue::new(&[16])
}

fn take(queue: &mut Queue<ServiceKey>, now: Instant) -> Option<ServiceKey> {
    queue.take(now, |_| 0)
}

#[test]
fn a_key_pushed_twice_is_taken_once() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.push(&key("a"));
    queue.push(&key("a"));
    assert_eq!(take(&mut queue, now), Some(key("a")));
    assert_eq!(take(&mut queue, now), None);
}

#[test]
fn a_key_pushed_while_it_runs_runs_again_afterwards_and_not_beside() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.push(&key("a"));
    assert_eq!(take(&mut queue, now), Some(key("a")));
    queue.push(&key("a"));
    assert_eq!(take(&mut queue, now), None);
    queue.finish(&key("a"));
    assert_eq!(take(&mut queue, now), Some(key("a")));
    queue.finish(&key("a"));
    assert_eq!(take(&mut queue, now), None);
    assert_eq!(queue.depth(), 0);
}

#[test]
fn a_delayed_key_comes_when_it_is_due_and_a_push_brings_it_forward() {
    let (mut queue, now) = (queue(), Instant::now());
    let later = Duration::from_secs(5);
    queue.push_after(&key("a"), later, now);
    queue.push_after(&key("b"), later * 2, now);
    assert_eq!(take(&mut queue, now), None);
    assert_eq!(queue.next_due(), Some(now + later));
    queue.push(&key("b"));
    assert_eq!(take(&mut queue, now), Some(key("b")));
    assert_eq!(take(&mut queue, now + later), Some(key("a")));
    assert_eq!(queue.next_due(), None);
}

#[test]
fn the_sooner_of_two_delays_counts() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.push_after(&key("a"), Duration::from_secs(9), now);
    queue.push_after(&key("a"), Duration::from_secs(1), now);
    queue.push_after(&key("a"), Duration::from_secs(5), now);
    assert_eq!(queue.next_due(), Some(now + Duration::from_secs(1)));
    assert_eq!(
        take(&mut queue, now + Duration::from_secs(1)),
        Some(key("a"))
    );
    assert_eq!(take(&mut queue, now + Duration::from_secs(60)), None);
}

#[test]
fn a_held_key_is_not_taken_before_its_time_however_often_it_is_pushed() {
    let (mut queue, now) = (queue(), Instant::now());
    let hold = Duration::from_secs(30);
    queue.hold(&key("a"), hold, now);
    for push in [Queue::push, Queue::push_first, Queue::push_unless_due] {
        push(&mut queue, &key("a"));
        assert_eq!(take(&mut queue, now + hold / 2), None);
        assert_eq!(queue.next_due(), Some(now + hold));
    }
    assert_eq!(take(&mut queue, now + hold), Some(key("a")));
}

#[test]
fn what_is_due_while_every_slot_is_taken_is_due_no_more() {
    let (mut queue, now) = (Queue::new(&[1]), Instant::now());
    queue.push(&key("a"));
    assert_eq!(take(&mut queue, now), Some(key("a")));
    queue.push_after(&key("b"), Duration::from_secs(1), now);
    let later = now + Duration::from_secs(2);
    assert_eq!(take(&mut queue, later), None);
    assert_eq!(queue.next_due(), None);
    queue.finish(&key("a"));
    assert_eq!(take(&mut queue, later), Some(key("b")));
}

#[test]
fn a_lane_without_a_free_slot_holds_up_no_other() {
    let (mut queue, now) = (Queue::new(&[1, 1]), Instant::now());
    let lane_of = |key: &ServiceKey| usize::from(key.name().starts_with("other"));
    for name in ["a", "b", "other"] {
        queue.push(&key(name));
    }
    assert_eq!(queue.take(now, lane_of), Some(key("a")));
    assert_eq!(queue.take(now, lane_of), Some(key("other")));
    assert_eq!(queue.take(now, lane_of), None);
    queue.finish(&key("other"));
    assert_eq!(queue.take(now, lane_of), None);
    queue.finish(&key("a"));
    assert_eq!(queue.take(now, lane_of), Some(key("b")));
}

#[test]
fn a_key_that_waits_for_a_slot_of_a_lane_that_it_left_takes_one_of_its_new_lane() {
    let (mut queue, now) = (Queue::new(&[1, 1]), Instant::now());
    queue.push(&key("a"));
    queue.push(&key("b"));
    assert_eq!(queue.take(now, |_| 0), Some(key("a")));
    assert_eq!(queue.take(now, |_| 0), None);
    queue.push(&key("c"));
    assert_eq!(queue.take(now, |_| 1), Some(key("c")));
    queue.finish(&key("a"));
    assert_eq!(queue.take(now, |_| 1), None);
    queue.finish(&key("c"));
    assert_eq!(queue.take(now, |_| 1), Some(key("b")));
}

#[test]
fn a_namespace_with_many_keys_delays_those_of_another_one_by_one() {
    let (mut queue, now) = (Queue::new(&[1, 1]), Instant::now());
    (0..10_000).for_each(|number| queue.push(&key(&format!("crowd-{number}"))));
    // Some of them are in line already, and one is at work.
    assert_eq!(take(&mut queue, now), Some(key("crowd-0")));
    assert_eq!(take(&mut queue, now), None);
    let other = ServiceKey::new("other", "web");
    queue.push(&other);
    queue.finish(&key("crowd-0"));
    assert_eq!(take(&mut queue, now), Some(key("crowd-1")));
    queue.finish(&key("crowd-1"));
    assert_eq!(take(&mut queue, now), Some(other));
}

#[test]
fn a_lane_with_many_keys_delays_those_of_another_one_by_one() {
    let (mut queue, now) = (Queue::new(&[1, 1]), Instant::now());
    let lane_of = |key: &ServiceKey| usize::from(key.name().starts_with("other"));
    for name in ["a", "b", "c", "other"] {
        queue.push(&key(name));
    }
    let mut order = Vec::new();
    while let Some(key) = queue.take(now, lane_of) {
        order.push(key.name().to_owned());
        queue.finish(&key);
    }
    assert_eq!(order, ["a", "other", "b", "c"]);
}

#[derive(Clone, Debug)]
enum Act {
    Push(u8),
    PushFirst(u8),
    PushUnlessDue(u8),
    PushAfter(u8, u64),
    Take,
    Finish(u8),
    /// The end of a pass whose provider asked for a pause.
    FinishHeld(u8, u64),
    Pass(u64),
}

/// What is to be expected of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    asked: Option<Instant>,
    held: Option<Instant>,
    runs: bool,
}

const KEYS: u8 = 6;
const LANES: usize = 2;
const SLOTS: usize = 2;

fn act() -> impl Strategy<Value = Act> {
    let key = || 0..KEYS;
    prop_oneof![
        3 => key().prop_map(Act::Push),
        1 => key().prop_map(Act::PushFirst),
        1 => key().prop_map(Act::PushUnlessDue),
        2 => (key(), 0..50u64).prop_map(|(key, delay)| Act::PushAfter(key, delay)),
        5 => Just(Act::Take),
        3 => key().prop_map(Act::Finish),
        2 => (key(), 1..50u64).prop_map(|(key, delay)| Act::FinishHeld(key, delay)),
        2 => (0..20u64).prop_map(Act::Pass),
    ]
}

fn name(number: u8) -> ServiceKey {
    key(&number.to_string())
}

fn number(key: &ServiceKey) -> usize {
    key.name().parse().unwrap()
}

/// A queue, and beside it what is expected of it.
struct Trial {
    queue: Queue<ServiceKey>,
    now: Instant,
    keys: [Expected; KEYS as usize],
}

impl Trial {
    fn ask(&mut self, key: u8, at: Instant) {
        let asked = &mut self.keys[usize::from(key)].asked;
        *asked = Some(asked.map_or(at, |before| before.min(at)));
    }

    fn when(expected: Expected) -> Option<Instant> {
        let asked = expected.asked.filter(|_| !expected.runs)?;
        Some(expected.held.map_or(asked, |held| held.max(asked)))
    }

    fn lane_has_room(&self, lane: usize) -> bool {
        let in_lane = (0..self.keys.len()).filter(|it| it % LANES == lane);
        in_lane.filter(|it| self.keys[*it].runs).count() < SLOTS
    }

    /// Takes, and holds what came against what was to be expected.
    fn take(&mut self) -> bool {
        let now = self.now;
        let taken = self.queue.take(now, |key| number(key) % LANES);
        let Some(taken) = taken else {
            for (number, expected) in self.keys.iter().enumerate() {
                let is_due = Self::when(*expected).is_some_and(|at| at <= now);
                assert!(
                    !(is_due && self.lane_has_room(number % LANES)),
                    "{number} was forgotten: {expected:?}"
                );
                if let Some(at) = Self::when(*expected).filter(|at| *at > now) {
                    let wakes = self.queue.next_due();
                    assert!(
                        wakes.is_some_and(|it| it <= at),
                        "{number} is slept through"
                    );
                }
            }
            let next = self.queue.next_due();
            assert!(next.is_none_or(|at| at > now), "it would spin");
            return false;
        };
        let number = number(&taken);
        assert!(self.lane_has_room(number % LANES), "more than the slots");
        let expected = &mut self.keys[number];
        assert!(!expected.runs, "{number} runs twice");
        let when = Self::when(*expected);
        assert!(when.is_some_and(|at| at <= now), "{number}: {expected:?}");
        *expected = Expected {
            runs: true,
            ..Expected::default()
        };
        true
    }

    fn finish(&mut self, key: u8, hold: Option<u64>) {
        if !std::mem::take(&mut self.keys[usize::from(key)].runs) {
            return;
        }
        if let Some(hold) = hold {
            let hold = Duration::from_millis(hold);
            self.keys[usize::from(key)].held = Some(self.now + hold);
            self.ask(key, self.now + hold);
            self.queue.hold(&name(key), hold, self.now);
        }
        self.queue.finish(&name(key));
    }

    fn act(&mut self, act: &Act) {
        let now = self.now;
        match *act {
            Act::Push(key) => {
                self.ask(key, now);
                self.queue.push(&name(key));
            }
            Act::PushFirst(key) => {
                self.ask(key, now);
                self.queue.push_first(&name(key));
            }
            Act::PushUnlessDue(key) => {
                let expected = self.keys[usize::from(key)];
                self.queue.push_unless_due(&name(key));
                if expected.asked.is_none() {
                    self.ask(key, now);
                }
            }
            Act::PushAfter(key, delay) => {
                let delay = Duration::from_millis(delay);
                self.ask(key, now + delay);
                self.queue.push_after(&name(key), delay, now);
            }
            Act::Take => drop(self.take()),
            Act::Finish(key) => self.finish(key, None),
            Act::FinishHeld(key, hold) => self.finish(key, Some(hold)),
            Act::Pass(time) => self.now += Duration::from_millis(time),
        }
    }
}

proptest! {
    #[test]
    fn no_key_is_lost_taken_twice_at_once_or_before_its_hold_is_over(
        acts in prop::collection::vec(act(), 0..80),
    ) {
        let mut trial = Trial {
            queue: Queue::new(&[SLOTS; LANES]),
            now: Instant::now(),
            keys: Default::default(),
        };
        for act in &acts {
            trial.act(act);
        }
        trial.now += Duration::from_secs(1);
        for _ in 0..2 {
            loop {
                (0..KEYS).for_each(|key| trial.finish(key, None));
                if !trial.take() {
                    break;
                }
            }
        }
        let left: Vec<_> = trial.keys.iter().filter(|it| it.asked.is_some()).collect();
        prop_assert!(left.is_empty(), "{left:?}");
        prop_assert_eq!(trial.queue.depth(), 0);
        prop_assert_eq!(trial.queue.next_due(), None);
    }
}
