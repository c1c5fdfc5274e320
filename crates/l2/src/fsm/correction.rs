//! What is done after another node announced an address, too: once it has stopped, the address is
//! announced again, because hosts still send there.

use std::time::Instant;

use super::{Conflict, Settings};

/// When that is checked next, and how often it was in a row.
#[derive(Clone, Copy, Debug)]
pub struct Correction {
    at: Option<Instant>,
    /// The other node was asked, and has until then to answer.
    is_asking: bool,
    count: u32,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Ask whether another node still has the address. That moves no host to this node.
    Ask,
    /// None has: announce it.
    Announce,
}

// === impl Correction ===

impl Correction {
    /// No other node announced the address.
    pub const NONE: Self = Self {
        at: None,
        is_asking: false,
        count: 0,
    };

    /// When something is due.
    pub const fn due(&self) -> Option<Instant> {
        self.at
    }

    /// Returns what is due by now.
    pub fn take(&mut self, now: Instant, settings: &Settings) -> Option<Due> {
        self.at.take_if(|at| *at <= now)?;
        if std::mem::take(&mut self.is_asking) {
            return Some(Due::Announce);
        }
        self.is_asking = true;
        self.at = Some(now + 2 * settings.probe_interval);
        Some(Due::Ask)
    }

    /// Plans to ask, if it was another node that announced the address, after the conflict
    /// `before`: not before this node would know that the address moves, and ever later while both
    /// announce it.
    pub fn plan(
        &mut self,
        is_by_node: bool,
        now: Instant,
        before: Option<Conflict>,
        settings: &Settings,
    ) {
        if !is_by_node || self.at.is_some() && !self.is_asking {
            return;
        }
        // An answer after half of the time still belongs to the dispute that is reported.
        let longest = settings.conflict_retry / 2;
        if before.is_none_or(|it| now >= it.last + 4 * longest) {
            self.count = 0;
        }
        let doubled = 2_u32.saturating_pow(self.count.saturating_add(1));
        let wait = settings.round_interval.saturating_mul(doubled);
        self.at = Some(now + wait.min(longest));
        self.is_asking = false;
        self.count = self.count.saturating_add(1);
    }
}
