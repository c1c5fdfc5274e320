//! When an address is announced again because another node announced it, too.

use std::time::Instant;

use super::{Conflict, Settings};

/// The next such announcement, and how many there were in a row.
#[derive(Clone, Copy, Debug)]
pub struct Correction {
    at: Option<Instant>,
    count: u32,
}

impl Correction {
    /// None is due.
    pub const NONE: Self = Self { at: None, count: 0 };

    /// When it is due.
    pub const fn due(&self) -> Option<Instant> {
        self.at
    }

    /// Returns whether it is due, and takes it for done.
    pub fn take(&mut self, now: Instant) -> bool {
        self.at.take_if(|at| *at <= now).is_some()
    }

    /// Plans one if it was another node that announced the address, after the conflict `before`:
    /// hosts send there, also when it has stopped. It comes not before this node would know that
    /// the address moves, and ever later while both announce it: each time connections may break.
    pub fn plan(
        &mut self,
        is_by_node: bool,
        now: Instant,
        before: Option<Conflict>,
        settings: &Settings,
    ) {
        if !is_by_node || self.at.is_some() {
            return;
        }
        let longest = settings.conflict_retry;
        if before.is_none_or(|it| now >= it.last + 4 * longest) {
            self.count = 0;
        }
        let doubled = 2_u32.saturating_pow(self.count.saturating_add(1));
        let wait = settings.round_interval.saturating_mul(doubled);
        self.at = Some(now + wait.min(longest));
        self.count = self.count.saturating_add(1);
    }
}
