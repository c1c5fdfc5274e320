//! A set of numbers kept as runs: for ranges too large for a bitmap.
//!
//! Memory follows what is taken, not how large the range is: a /48 of IPv6 costs nothing until the
//! first address is taken, and one entry as long as the taken addresses lie side by side, which
//! lowest-first makes the usual case.

use std::collections::BTreeMap;

/// Numbers from 0 to `last`, of which some are taken.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    last: u128,
    /// First and last number of each run; runs never touch.
    taken: BTreeMap<u128, u128>,
}

impl Runs {
    pub(crate) fn new(last: u128) -> Self {
        Self {
            last,
            taken: BTreeMap::new(),
        }
    }

    /// Takes a number; false when it was taken already or lies outside.
    pub(crate) fn set(&mut self, number: u128) -> bool {
        if number > self.last || self.contains(number) {
            return false;
        }
        let before = number.checked_sub(1).and_then(|end| self.run_of(end));
        let after = number
            .checked_add(1)
            .and_then(|start| self.taken.remove(&start));
        let start = before.map_or(number, |(start, _)| start);
        self.taken.insert(start, after.unwrap_or(number));
        true
    }

    /// Gives a number back; false when it was not taken.
    pub(crate) fn clear(&mut self, number: u128) -> bool {
        let Some((start, end)) = self.run_of(number) else {
            return false;
        };
        if start < number {
            self.taken.insert(start, number - 1);
        } else {
            self.taken.remove(&start);
        }
        if number < end {
            self.taken.insert(number + 1, end);
        }
        true
    }

    pub(crate) fn contains(&self, number: u128) -> bool {
        self.run_of(number).is_some()
    }

    pub(crate) fn lowest_clear(&self) -> Option<u128> {
        match self.taken.first_key_value() {
            Some((0, end)) => end.checked_add(1).filter(|next| *next <= self.last),
            Some(_) | None => Some(0),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.lowest_clear().is_none()
    }

    /// Heap bytes, near enough: the entries without the tree's slack.
    pub(crate) fn bytes(&self) -> usize {
        self.taken.len() * 2 * size_of::<u128>()
    }

    fn run_of(&self, number: u128) -> Option<(u128, u128)> {
        self.taken
            .range(..=number)
            .next_back()
            .filter(|(_, end)| **end >= number)
            .map(|(start, end)| (*start, *end))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_melt_into_one_run_and_a_gap_splits_it() {
        let mut runs = Runs::new(u128::MAX);
        for number in [0, 2, 1, 3] {
            assert!(runs.set(number));
        }
        assert_eq!(runs.taken, BTreeMap::from([(0, 3)]));
        assert_eq!(runs.lowest_clear(), Some(4));
        assert!(runs.clear(1));
        assert_eq!(runs.taken, BTreeMap::from([(0, 0), (2, 3)]));
        assert_eq!(runs.lowest_clear(), Some(1));
    }

    #[test]
    fn the_very_last_number_of_all_can_be_taken_and_given_back() {
        let mut runs = Runs::new(u128::MAX);
        assert!(runs.set(u128::MAX));
        assert!(!runs.set(u128::MAX));
        assert!(runs.set(u128::MAX - 1));
        assert!(runs.clear(u128::MAX));
        assert_eq!(runs.taken, BTreeMap::from([(u128::MAX - 1, u128::MAX - 1)]));
    }

    #[test]
    fn nothing_taken_costs_nothing() {
        assert_eq!(Runs::new(1 << 80).bytes(), 0);
    }

    proptest! {
        #[test]
        fn any_sequence_of_sets_and_clears_agrees_with_a_plain_set(
            last in 0u128..60,
            steps in prop::collection::vec((any::<bool>(), 0u128..64), 0..300),
        ) {
            let mut runs = Runs::new(last);
            let mut model = BTreeSet::new();
            for (set, number) in steps {
                if set {
                    prop_assert_eq!(runs.set(number), number <= last && model.insert(number));
                } else {
                    prop_assert_eq!(runs.clear(number), model.remove(&number));
                }
                prop_assert_eq!(runs.contains(number), model.contains(&number));
                prop_assert_eq!(runs.lowest_clear(), (0..=last).find(|n| !model.contains(n)));
                prop_assert_eq!(runs.is_full(), model.len() as u128 == last + 1);
                let mut previous: Option<u128> = None;
                for (start, end) in &runs.taken {
                    prop_assert!(start <= end && previous.is_none_or(|p| p + 1 < *start));
                    previous = Some(*end);
                }
            }
        }
    }
}
