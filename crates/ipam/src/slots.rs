//! The taken and free places of one range, in whichever form suits its size.

use crate::bitmap::Bitmap;
use crate::ranges::Runs;

/// Up to this many places a bitmap is used: 128 KiB and four levels at most.
const BITMAP_PLACES: u128 = 1 << 20;

/// Places numbered from 0.
#[derive(Clone, Debug)]
pub(crate) enum Slots {
    Small(Bitmap),
    Huge(Runs),
}

impl Slots {
    /// Places 0 to `last`; none at all for `None`.
    pub(crate) fn new(last: Option<u128>) -> Self {
        match last {
            None => Self::Small(Bitmap::new(0)),
            Some(last) if last < BITMAP_PLACES => Self::Small(Bitmap::new(last as usize + 1)),
            Some(last) => Self::Huge(Runs::new(last)),
        }
    }

    /// Takes a place; false when it was taken already or does not exist.
    pub(crate) fn take(&mut self, place: u128) -> bool {
        match self {
            Self::Small(bitmap) => usize::try_from(place).is_ok_and(|place| bitmap.set(place)),
            Self::Huge(runs) => runs.set(place),
        }
    }

    /// Gives a place back; false when it was free already or does not exist.
    pub(crate) fn free(&mut self, place: u128) -> bool {
        match self {
            Self::Small(bitmap) => usize::try_from(place).is_ok_and(|place| bitmap.clear(place)),
            Self::Huge(runs) => runs.clear(place),
        }
    }

    pub(crate) fn lowest_free(&self) -> Option<u128> {
        match self {
            Self::Small(bitmap) => bitmap.lowest_clear().map(|place| place as u128),
            Self::Huge(runs) => runs.lowest_clear(),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Small(bitmap) => bitmap.is_full(),
            Self::Huge(runs) => runs.is_full(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Small(bitmap) => bitmap.bytes(),
            Self::Huge(runs) => runs.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_changes_at_a_million_places_and_behaves_the_same_on_both_sides() {
        for last in [BITMAP_PLACES - 1, BITMAP_PLACES] {
            let mut slots = Slots::new(Some(last));
            assert_eq!(matches!(slots, Slots::Huge(_)), last == BITMAP_PLACES);
            assert!(slots.take(0));
            assert!(!slots.take(0));
            assert!(slots.take(last));
            assert!(!slots.take(last + 1));
            assert_eq!(slots.lowest_free(), Some(1));
            assert!(slots.free(0));
            assert!(!slots.free(0));
            assert_eq!(slots.lowest_free(), Some(0));
        }
    }

    #[test]
    fn no_places_at_all_is_full() {
        let mut slots = Slots::new(None);
        assert!(slots.is_full());
        assert_eq!(slots.lowest_free(), None);
        assert!(!slots.take(0));
    }
}
