//! A bitmap with levels of summary: the lowest clear bit in one step per level of 64.
//!
//! ```text
//!  level 2            [ 0 ]                      bit = the word below is all ones
//!  level 1   [ 1 1 0 ... ][ ... ]                bit = the word below is all ones
//!  level 0   [64 bits][64 bits][64 bits] ...     bit = taken
//! ```
//!
//! A /16 is 1,024 words, 16 and 1: 8.1 KiB and three steps. Bits past the end count as taken, so
//! that a full bitmap is all ones at every level.

const WORD: usize = u64::BITS as usize;

/// A fixed number of bits, all clear at first.
#[derive(Clone, Debug)]
pub(crate) struct Bitmap {
    length: usize,
    ones: usize,
    levels: Vec<Box<[u64]>>,
}

impl Bitmap {
    pub(crate) fn new(length: usize) -> Self {
        let mut levels = Vec::new();
        let mut bits = length;
        loop {
            let words = bits.div_ceil(WORD);
            let mut level = vec![0u64; words].into_boxed_slice();
            if !bits.is_multiple_of(WORD)
                && let Some(last) = level.last_mut()
            {
                *last = u64::MAX << (bits % WORD);
            }
            levels.push(level);
            if words <= 1 {
                break;
            }
            bits = words;
        }
        Self {
            length,
            ones: 0,
            levels,
        }
    }

    /// Sets a bit; false when it was set already or lies outside.
    pub(crate) fn set(&mut self, index: usize) -> bool {
        if index >= self.length || self.contains(index) {
            return false;
        }
        let mut position = index;
        for level in &mut self.levels {
            let Some(word) = level.get_mut(position / WORD) else {
                break;
            };
            *word |= 1 << (position % WORD);
            if *word != u64::MAX {
                break;
            }
            position /= WORD;
        }
        self.ones += 1;
        true
    }

    /// Clears a bit; false when it was clear already or lies outside.
    pub(crate) fn clear(&mut self, index: usize) -> bool {
        if index >= self.length || !self.contains(index) {
            return false;
        }
        let mut position = index;
        for level in &mut self.levels {
            let Some(word) = level.get_mut(position / WORD) else {
                break;
            };
            let was_full = *word == u64::MAX;
            *word &= !(1 << (position % WORD));
            if !was_full {
                break;
            }
            position /= WORD;
        }
        self.ones -= 1;
        true
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        index < self.length
            && self
                .levels
                .first()
                .and_then(|level| level.get(index / WORD))
                .is_some_and(|word| word >> (index % WORD) & 1 == 1)
    }

    pub(crate) fn lowest_clear(&self) -> Option<usize> {
        if self.is_full() {
            return None;
        }
        let mut position = 0;
        for level in self.levels.iter().rev() {
            let word = level.get(position)?;
            position = position * WORD + word.trailing_ones() as usize;
        }
        Some(position)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.ones == self.length
    }

    /// Heap bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.levels
            .iter()
            .map(|level| size_of_val::<[u64]>(level))
            .sum::<usize>()
            + self.levels.capacity() * size_of::<Box<[u64]>>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bitmap_of_no_bits_is_full() {
        let bitmap = Bitmap::new(0);
        assert!(bitmap.is_full());
        assert_eq!(bitmap.lowest_clear(), None);
    }

    #[test]
    fn an_index_outside_is_neither_set_nor_cleared() {
        let mut bitmap = Bitmap::new(70);
        assert!(!bitmap.set(70));
        assert!(!bitmap.set(127));
        assert!(!bitmap.clear(70));
        assert!(!bitmap.contains(70));
        assert_eq!(bitmap.lowest_clear(), Some(0));
    }

    #[test]
    fn bits_fill_from_the_lowest_and_the_lowest_freed_comes_next() {
        for length in [1, 63, 64, 65, 4095, 4096, 4097, 65_536] {
            let mut bitmap = Bitmap::new(length);
            for expected in 0..length {
                assert_eq!(bitmap.lowest_clear(), Some(expected));
                assert!(bitmap.set(expected));
            }
            assert!(bitmap.is_full(), "{length}");
            assert_eq!(bitmap.lowest_clear(), None, "{length}");
            assert!(bitmap.clear(length - 1));
            assert!(bitmap.clear(length / 2) || length == 1);
            assert_eq!(bitmap.lowest_clear(), Some(length / 2));
        }
    }

    #[test]
    fn a_slash_16_takes_less_than_nine_kibibytes() {
        assert!(Bitmap::new(65_536).bytes() < 9 * 1024);
    }

    proptest! {
        #[test]
        fn any_sequence_of_sets_and_clears_agrees_with_a_plain_set(
            length in 1usize..9000,
            steps in prop::collection::vec((any::<bool>(), 0usize..9100), 0..400),
        ) {
            let mut bitmap = Bitmap::new(length);
            let mut model = BTreeSet::new();
            for (set, index) in steps {
                if set {
                    prop_assert_eq!(bitmap.set(index), index < length && model.insert(index));
                } else {
                    prop_assert_eq!(bitmap.clear(index), model.remove(&index));
                }
                prop_assert_eq!(bitmap.contains(index), model.contains(&index));
                prop_assert_eq!(bitmap.lowest_clear(), (0..length).find(|i| !model.contains(i)));
                prop_assert_eq!(bitmap.is_full(), model.len() == length);
            }
        }
    }
}
