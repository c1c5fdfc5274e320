//! Datagrams that were received before: one window over the numbers of each session (RFC 4303,
//! section 3.4.3).

use std::collections::HashMap;

use crate::packet::SessionId;

/// Numbers behind the highest that are distinguished; what is older is taken for repeated.
const WIDTH: u64 = 1_024;

/// Sessions with a window.
const SESSIONS: usize = 4_096;

/// The windows of all sessions.
#[derive(Clone, Debug, Default)]
pub struct Windows(HashMap<SessionId, Window>);

#[derive(Clone, Debug, Default)]
struct Window {
    /// The number after the highest that was received.
    end: u64,
    /// A bit for each number, at its place modulo the width.
    seen: [u64; (WIDTH / 64) as usize],
}

// === impl Windows ===

impl Windows {
    /// Takes a number. Returns whether it is new.
    pub fn take(&mut self, session: SessionId, number: u64) -> bool {
        self.0.entry(session).or_default().take(number)
    }

    /// Returns the number of sessions.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no room for another session. Then the receiver must begin a session
    /// of its own, with new windows.
    pub fn is_full(&self) -> bool {
        self.0.len() >= SESSIONS
    }
}

// === impl Window ===

impl Window {
    fn take(&mut self, number: u64) -> bool {
        if number == u64::MAX || number.saturating_add(WIDTH) < self.end {
            return false;
        }
        let passed = self.end.max(number.saturating_sub(WIDTH - 1));
        for skipped in passed..number.saturating_add(1) {
            self.set(skipped, false);
        }
        self.end = self.end.max(number + 1);
        if self.end - number > WIDTH {
            return false;
        }
        !self.set(number, true)
    }

    /// Sets the bit of a number and returns what it was.
    fn set(&mut self, number: u64, to: bool) -> bool {
        let at = number % WIDTH;
        let bit = 1_u64 << (at % 64);
        let Some(word) = self.seen.get_mut((at / 64) as usize) else {
            return true;
        };
        let was = *word & bit != 0;
        *word = if to { *word | bit } else { *word & !bit };
        was
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_is_new_once() {
        let mut window = Window::default();
        assert!(window.take(5) && window.take(3));
        assert!(!window.take(5) && !window.take(3));
        assert!(window.take(5 + WIDTH) && !window.take(5) && window.take(6));
        assert!(!window.take(u64::MAX));
    }

    #[test]
    fn sessions_do_not_know_the_numbers_of_each_other() {
        let mut windows = Windows::default();
        assert!(windows.take(SessionId([1; 16]), 1) && windows.take(SessionId([2; 16]), 1));
        assert!(!windows.take(SessionId([1; 16]), 1) && !windows.is_full());
    }

    proptest! {
        #[test]
        fn no_number_is_new_twice_and_none_within_the_window_is_lost(
            numbers in prop::collection::vec(0..4_000_u64, 1..300)
        ) {
            let mut window = Window::default();
            let mut seen = BTreeSet::new();
            for number in numbers {
                let is_recent = seen.last().is_none_or(|highest| number + WIDTH > *highest);
                let expected = is_recent && !seen.contains(&number);
                prop_assert_eq!(window.take(number), expected, "{}", number);
                if is_recent {
                    seen.insert(number);
                }
            }
        }
    }
}
