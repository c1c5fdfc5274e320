//! Changes that are acted upon together, once none has followed for a while.

use std::time::{Duration, Instant};

/// Changes that come within a short time, as one. A state machine without a clock.
#[derive(Clone, Debug)]
pub struct Debounce {
    /// How long no change may follow.
    quiet: Duration,
    /// The longest that a change waits for others.
    longest: Duration,
    first: Option<Instant>,
    due: Option<Instant>,
}

// === impl Debounce ===

impl Debounce {
    /// Returns one that has seen no change.
    pub const fn new(quiet: Duration, longest: Duration) -> Self {
        Self {
            quiet,
            longest,
            first: None,
            due: None,
        }
    }

    /// Takes a change.
    pub fn push(&mut self, now: Instant) {
        let first = *self.first.get_or_insert(now);
        self.due = Some((now + self.quiet).min(first + self.longest));
    }

    /// Returns when to act, if there was a change.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Forgets the changes: they are acted upon.
    pub fn clear(&mut self) {
        (self.first, self.due) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_wait_for_each_other_but_not_for_ever() {
        let ms = Duration::from_millis;
        let begin = Instant::now();
        let mut debounce = Debounce::new(ms(100), ms(250));
        assert_eq!(debounce.due(), None);
        debounce.push(begin);
        assert_eq!(debounce.due(), Some(begin + ms(100)));
        debounce.push(begin + ms(90));
        assert_eq!(debounce.due(), Some(begin + ms(190)));
        debounce.push(begin + ms(180));
        assert_eq!(debounce.due(), Some(begin + ms(250)));
        debounce.clear();
        assert_eq!(debounce.due(), None);
    }
}
