//! Coarse deadlines for very many things at little cost: a ring of lists, one per [`TICK`]. Setting
//! and clearing are O(1) and touch nothing but the entry's neighbours. Pure; takes `now`.
//!
//! Meant for lazy use: what is due is asked about its real deadline and set again, so activity does
//! not touch the wheel. Deadlines beyond one turn of the ring come due early, after one turn.

/// How coarse deadlines are, in milliseconds. They come due up to this much late, never early
/// (except beyond one turn).
pub(crate) const TICK: u64 = 32;

const SLOTS: usize = 2048;
const NONE: u32 = u32::MAX;

/// Deadlines of things that are known by a small number.
#[derive(Debug)]
pub(crate) struct Wheel {
    heads: Box<[u32; SLOTS]>,
    /// One bit per slot that has entries.
    used: [u64; SLOTS / 64],
    links: Vec<Link>,
    /// The first tick that may have entries.
    next: u64,
    /// Nothing is due before this tick.
    soonest: u64,
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    slot: u32,
    before: u32,
    after: u32,
}

// === impl Wheel ===

impl Wheel {
    /// An empty wheel whose time begins now, in milliseconds.
    pub(crate) fn new(now: u64) -> Self {
        Self {
            heads: Box::new([NONE; SLOTS]),
            used: [0; SLOTS / 64],
            links: Vec::new(),
            next: now / TICK,
            soonest: u64::MAX,
            count: 0,
        }
    }

    /// Sets the deadline of `index`, replacing any that it had.
    pub(crate) fn set(&mut self, index: u32, at: u64) {
        self.clear(index);
        let tick = at
            .div_ceil(TICK)
            .clamp(self.next, self.next + SLOTS as u64 - 1);
        let slot = tick as usize % SLOTS;
        let place = index as usize;
        if self.links.len() <= place {
            self.links.resize(
                place + 1,
                Link {
                    slot: NONE,
                    before: NONE,
                    after: NONE,
                },
            );
        }
        let after = self.heads[slot];
        self.links[place] = Link {
            slot: slot as u32,
            before: NONE,
            after,
        };
        if let Some(first) = self.links.get_mut(after as usize) {
            first.before = index;
        }
        self.heads[slot] = index;
        self.used[slot / 64] |= 1 << (slot % 64);
        self.count += 1;
        self.soonest = self.soonest.min(tick);
    }

    /// Takes away the deadline of `index`, if it has one.
    pub(crate) fn clear(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index as usize) else {
            return;
        };
        let Link {
            slot,
            before,
            after,
        } = std::mem::replace(
            link,
            Link {
                slot: NONE,
                before: NONE,
                after: NONE,
            },
        );
        if slot == NONE {
            return;
        }
        self.count -= 1;
        if let Some(after) = self.links.get_mut(after as usize) {
            after.before = before;
        }
        if let Some(before) = self.links.get_mut(before as usize) {
            before.after = after;
            return;
        }
        let slot = slot as usize;
        self.heads[slot] = after;
        if after == NONE {
            self.used[slot / 64] &= !(1 << (slot % 64));
        }
    }

    /// Moves what is due by now from the wheel to `due`.
    pub(crate) fn expire(&mut self, now: u64, due: &mut Vec<u32>) {
        let tick = now / TICK;
        if tick < self.soonest {
            self.next = self.next.max(tick);
            return;
        }
        if self.count > 0 {
            let last = tick.min(self.next + SLOTS as u64 - 1);
            while self.next <= last {
                let slot = self.next as usize % SLOTS;
                while self.heads[slot] != NONE {
                    let index = self.heads[slot];
                    self.clear(index);
                    due.push(index);
                }
                self.next += 1;
            }
        }
        self.next = self.next.max(tick + 1);
        self.soonest = self.first_used().unwrap_or(u64::MAX);
    }

    /// When to call [`Self::expire`] next, in milliseconds: never too late, but too early where
    /// what would have been due was cleared.
    pub(crate) fn next(&self) -> Option<u64> {
        (self.count > 0).then_some(self.soonest.saturating_mul(TICK))
    }

    /// The first tick that has entries.
    fn first_used(&self) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let start = self.next as usize % SLOTS;
        let words = SLOTS / 64;
        // The word that `start` stands in is checked twice: its upper part first, its lower last.
        for step in 0..=words {
            let place = (start / 64 + step) % words;
            let mut word = self.used[place];
            if step == 0 {
                word &= u64::MAX << (start % 64);
            }
            if step == words {
                word &= !(u64::MAX << (start % 64));
            }
            if word != 0 {
                let slot = place * 64 + word.trailing_zeros() as usize;
                let ahead = (slot + SLOTS - start) % SLOTS;
                return Some(self.next + ahead as u64);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn due(wheel: &mut Wheel, now: u64) -> Vec<u32> {
        let mut due = Vec::new();
        wheel.expire(now, &mut due);
        due.sort_unstable();
        due
    }

    #[test]
    fn nothing_is_due_before_its_time() {
        let mut wheel = Wheel::new(1_000);
        wheel.set(3, 1_100);
        let at = wheel.next().unwrap();
        assert!((1_100..1_100 + TICK).contains(&at), "{at}");
        assert_eq!(due(&mut wheel, 1_099), Vec::<u32>::new());
        assert_eq!(due(&mut wheel, at), [3]);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn a_deadline_beyond_one_turn_comes_back_after_one_turn() {
        let mut wheel = Wheel::new(0);
        wheel.set(0, 10 * TICK * SLOTS as u64);
        let at = wheel.next().unwrap();
        assert_eq!(at, TICK * (SLOTS as u64 - 1));
        assert_eq!(due(&mut wheel, at), [0]);
    }

    #[test]
    fn a_long_pause_loses_nothing() {
        let mut wheel = Wheel::new(0);
        for index in 0..10 {
            wheel.set(index, u64::from(index) * 1_000);
        }
        assert_eq!(due(&mut wheel, 1 << 40), (0..10).collect::<Vec<_>>());
        wheel.set(1, 5);
        assert_eq!(due(&mut wheel, (1 << 40) + TICK), [1]);
    }

    #[derive(Clone, Debug)]
    enum Action {
        Set(u32, u64),
        Clear(u32),
        Pass(u64),
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            (0u32..20, 0u64..60_000).prop_map(|(index, ahead)| Action::Set(index, ahead)),
            (0u32..20).prop_map(Action::Clear),
            (0u64..5_000).prop_map(Action::Pass),
        ]
    }

    proptest! {
        #[test]
        fn everything_comes_due_once_and_at_most_a_tick_late(
            actions in prop::collection::vec(action(), 0..200),
        ) {
            let mut now = 77;
            let mut wheel = Wheel::new(now);
            let mut model = BTreeMap::new();
            for action in actions {
                match action {
                    Action::Set(index, ahead) => {
                        wheel.set(index, now + ahead);
                        model.insert(index, now + ahead);
                    }
                    Action::Clear(index) => {
                        wheel.clear(index);
                        model.remove(&index);
                    }
                    Action::Pass(time) => {
                        now += time;
                        for index in due(&mut wheel, now) {
                            let at = model.remove(&index);
                            prop_assert!(at.is_some_and(|at| at <= now));
                        }
                        for &at in model.values() {
                            prop_assert!(at + TICK >= now, "{} is late at {}", at, now);
                        }
                    }
                }
                prop_assert_eq!(wheel.next().is_none(), model.is_empty());
                if let (Some(next), Some(&first)) = (wheel.next(), model.values().min()) {
                    prop_assert!(next < first.max(now) + 2 * TICK);
                }
            }
            // Asked whenever it wants to be, it hands out everything, and soon.
            for _ in 0..3 * model.len() + 3 {
                if let Some(next) = wheel.next() {
                    now = now.max(next);
                    for index in due(&mut wheel, now) {
                        model.remove(&index);
                    }
                }
            }
            prop_assert!(model.is_empty());
        }
    }
}
