//! Weighted turns: which member is next in `ROUND_ROBIN`. Pure.
//!
//! Every member has a virtual time at which it is due next; the earliest is chosen and moves on by
//! `CYCLE / weight`. Starting at half a step spreads a member's turns evenly over the cycle, and in
//! one cycle each member is due exactly `weight` times. One pick costs O(log n), whatever the
//! weights.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Virtual time of one cycle, in which each member is due as often as its weight says.
const CYCLE: u64 = 1 << 40;

/// Virtual time starts again beyond this, long before it could overflow.
const HORIZON: u64 = 1 << 62;

/// The order in which members are due.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    due: BinaryHeap<Reverse<Due>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: u64,
    index: u32,
    step: u64,
}

// === impl Turns ===

impl Turns {
    /// Turns of members with the given weights; zero counts as one.
    #[cfg(test)]
    pub(super) fn new(weights: impl IntoIterator<Item = u16>) -> Self {
        Self::resume(weights.into_iter().map(|weight| (weight, None)))
    }

    /// As [`Self::new`], where members that were there before bring along how far they had come
    /// ([`Self::positions`]), so that a change of the pool neither resets nor favours them.
    pub(super) fn resume(members: impl IntoIterator<Item = (u16, Option<u64>)>) -> Self {
        let members: Vec<_> = members.into_iter().collect();
        let start = members.iter().filter_map(|&(_, at)| at).min().unwrap_or(0);
        let due = members
            .into_iter()
            .zip(0..)
            .map(|((weight, at), index)| {
                let step = CYCLE / u64::from(weight.max(1));
                // Never more than one step ahead: a weight that grew must not wait for its old
                // turn.
                let ahead = at.map_or(step / 2, |at| (at - start).min(step));
                Reverse(Due {
                    at: ahead,
                    index,
                    step,
                })
            })
            .collect();
        Self { due }
    }

    /// When each member, by index, is due next.
    pub(super) fn positions(&self) -> impl Iterator<Item = (u32, u64)> {
        self.due.iter().map(|Reverse(due)| (due.index, due.at))
    }

    /// The member that is due first among those that `accept` takes. Those that it skips lose
    /// this turn: they are not owed a burst later.
    pub(super) fn next(&mut self, accept: impl Fn(usize) -> bool) -> Option<usize> {
        if self.due.peek().is_some_and(|Reverse(due)| due.at > HORIZON) {
            self.rebase();
        }
        let mut passed = Vec::new();
        let mut chosen = None;
        while let Some(mut first) = self.due.peek_mut() {
            let due = &mut first.0;
            let index = due.index as usize;
            if accept(index) {
                chosen = Some((index, due.at));
                due.at += due.step;
                break;
            }
            passed.push(PeekMut::pop(first));
        }
        let now = chosen.map(|(_, at)| at);
        for Reverse(mut due) in passed {
            if let Some(now) = now {
                due.at += (now - due.at).div_ceil(due.step) * due.step;
            }
            self.due.push(Reverse(due));
        }
        chosen.map(|(index, _)| index)
    }

    fn rebase(&mut self) {
        let Some(start) = self.due.peek().map(|Reverse(due)| due.at) else {
            return;
        };
        let moved = self.due.drain().map(|Reverse(due)| {
            Reverse(Due {
                at: due.at - start,
                ..due
            })
        });
        self.due = moved.collect::<Vec<_>>().into();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn picks(turns: &mut Turns, count: usize) -> Vec<usize> {
        (0..count).map(|_| turns.next(|_| true).unwrap()).collect()
    }

    #[test]
    fn equal_members_alternate() {
        assert_eq!(picks(&mut Turns::new([1, 1, 1]), 6), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_heavy_member_is_interleaved_not_served_in_a_row() {
        assert_eq!(picks(&mut Turns::new([3, 1]), 8), [0, 0, 1, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn no_member_is_chosen_when_all_are_excluded() {
        let mut turns = Turns::new([1, 2]);
        assert_eq!(turns.next(|_| false), None);
        assert_eq!(turns.next(|_| true), Some(1));
    }

    #[test]
    fn a_member_that_was_skipped_is_owed_nothing() {
        let mut turns = Turns::new([1, 1]);
        for _ in 0..100 {
            assert_eq!(turns.next(|index| index == 0), Some(0));
        }
        let later = picks(&mut turns, 10);
        assert!(
            later.iter().filter(|&&index| index == 1).count() <= 6,
            "{later:?}"
        );
    }

    #[test]
    fn turns_go_on_beyond_the_horizon() {
        let mut turns = Turns::new([2, 1]);
        for Reverse(due) in std::mem::take(&mut turns.due) {
            turns.due.push(Reverse(Due {
                at: due.at + HORIZON,
                ..due
            }));
        }
        assert_eq!(picks(&mut turns, 6), [0, 1, 0, 0, 1, 0]);
        assert!(turns.positions().all(|(_, at)| at < 4 * CYCLE));
    }

    #[test]
    fn a_rebuilt_pool_goes_on_where_it_was() {
        let mut turns = Turns::new([1, 1, 1]);
        assert_eq!(picks(&mut turns, 1), [0]);
        let at = |index| {
            turns
                .positions()
                .find(|&(other, _)| other == index)
                .map(|(_, at)| at)
        };
        let mut rebuilt = Turns::resume([(1, at(0)), (1, at(1)), (1, at(2))]);
        assert_eq!(picks(&mut rebuilt, 2), [1, 2]);
    }

    proptest! {
        #[test]
        fn one_cycle_serves_every_member_as_often_as_its_weight(
            weights in prop::collection::vec(1u16..=256, 1..12),
        ) {
            let mut turns = Turns::new(weights.iter().copied());
            let cycle: usize = weights.iter().map(|&weight| usize::from(weight)).sum();
            for _ in 0..3 {
                let mut served = vec![0u16; weights.len()];
                for index in picks(&mut turns, cycle) {
                    served[index] += 1;
                }
                prop_assert_eq!(&served, &weights);
            }
        }

        #[test]
        fn at_any_time_no_member_is_far_from_its_share(
            weights in prop::collection::vec(1u16..=256, 1..12),
            count in 1usize..2000,
        ) {
            let mut turns = Turns::new(weights.iter().copied());
            let total: f64 = weights.iter().copied().map(f64::from).sum();
            let mut served = vec![0u32; weights.len()];
            for index in picks(&mut turns, count) {
                served[index] += 1;
            }
            for (index, &weight) in weights.iter().enumerate() {
                let share = count as f64 * f64::from(weight) / total;
                // Midpoint deadlines bound the error by about half the number of members.
                let slack = 1.0 + weights.len() as f64 / 2.0;
                prop_assert!((f64::from(served[index]) - share).abs() <= slack);
            }
        }
    }
}
