//! One address that is announced, and when it does something next.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{Announcement, Conflict, Event, Settings, Start, State};
use crate::mac::MacAddress;

/// An address.
#[derive(Clone, Debug)]
pub struct Entry {
    /// How it is to be announced.
    pub wanted: Announcement,
    /// The interfaces on which it can be.
    pub usable: BTreeSet<u32>,
    /// When it does something next.
    pub next: Option<Instant>,
    /// The last conflict.
    pub conflict: Option<Conflict>,
    phase: Phase,
    defended: Option<Instant>,
    reported: Option<Instant>,
    /// The host whose refusal was reported.
    refused_by: Option<MacAddress>,
    /// How often it was refused in a row.
    refusals: u32,
}

/// What an address is doing, with what only that needs.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Waiting,
    Probing {
        left: u8,
    },
    /// No host has it, and it is not to be announced yet.
    Clear,
    Announcing {
        burst_until: Instant,
        was_announced: bool,
        is_refreshing: bool,
    },
    Conflicted,
}

/// What an entry does when its time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Asks whether another host has the address.
    Probe,
    /// Makes the address known.
    Announce {
        /// For the first time.
        is_first: bool,
    },
    /// Waits for something else.
    Nothing,
}

/// What an entry does when another host claims the address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaction {
    /// What is reported.
    pub event: Option<Event>,
    /// The address is announced at once on the interface that the claim came through.
    pub defends: bool,
}

// === impl Entry ===

impl Entry {
    /// An address that is not announced yet.
    pub const fn new(wanted: Announcement) -> Self {
        Self {
            wanted,
            usable: BTreeSet::new(),
            next: None,
            conflict: None,
            phase: Phase::Waiting,
            defended: None,
            reported: None,
            refused_by: None,
            refusals: 0,
        }
    }

    /// What it is doing.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Announcing { .. } if self.usable.is_empty() => State::Waiting,
            Phase::Waiting => State::Waiting,
            Phase::Probing { .. } | Phase::Clear => State::Probing,
            Phase::Announcing { .. } => State::Announcing,
            Phase::Conflicted => State::Conflicted,
        }
    }

    /// Returns whether questions that come through an interface are answered.
    pub fn answers_on(&self, interface: u32) -> bool {
        matches!(self.phase, Phase::Announcing { .. }) && self.usable.contains(&interface)
    }

    /// Returns whether one of these stations has it, so that it is not announced.
    pub fn is_refused_by(&self, stations: &BTreeSet<MacAddress>) -> bool {
        let host = self.conflict.map(|it| it.mac);
        matches!(self.phase, Phase::Conflicted) && host.is_some_and(|it| stations.contains(&it))
    }

    /// Takes the interfaces on which it can be announced, of which some are as good as new.
    pub fn review(
        &mut self,
        now: Instant,
        usable: BTreeSet<u32>,
        fresh: &BTreeSet<u32>,
        settings: &Settings,
    ) {
        let is_on_new = usable
            .iter()
            .any(|index| fresh.contains(index) || !self.usable.contains(index));
        self.usable = usable;
        match (self.phase, self.wanted.start) {
            (Phase::Announcing { was_announced, .. }, _) => {
                if self.usable.is_empty() {
                    self.next = None;
                } else if is_on_new {
                    self.announce(now, was_announced, settings);
                }
            }
            (_, Start::TakeOver) => {
                self.announce(now, false, settings);
                if self.usable.is_empty() {
                    self.next = None;
                }
            }
            (Phase::Conflicted, _) => {}
            (Phase::Waiting | Phase::Probing { .. } | Phase::Clear, start) => {
                if self.usable.is_empty() {
                    (self.phase, self.next) = (Phase::Waiting, None);
                } else if is_on_new {
                    self.probe(now, settings);
                } else if matches!((self.phase, start), (Phase::Clear, Start::Probe)) {
                    self.announce(now, false, settings);
                }
            }
        }
    }

    /// Makes the address known once more: a burst that goes on takes longer, and one that is over
    /// begins again.
    pub fn trigger(&mut self, now: Instant, settings: &Settings) {
        let Phase::Announcing {
            burst_until,
            is_refreshing,
            ..
        } = &mut self.phase
        else {
            return;
        };
        *burst_until = now + settings.burst;
        if !std::mem::take(is_refreshing) || self.usable.is_empty() {
            return;
        }
        self.next = Some(now);
    }

    /// Does what is due.
    pub fn expire(&mut self, now: Instant, settings: &Settings, spread: u8) -> Action {
        match &mut self.phase {
            Phase::Waiting | Phase::Clear => {
                self.next = None;
                Action::Nothing
            }
            Phase::Conflicted => {
                if self.usable.is_empty() {
                    (self.phase, self.next) = (Phase::Waiting, None);
                } else {
                    self.probe(now, settings);
                }
                Action::Nothing
            }
            Phase::Probing { left: 0 } if self.wanted.start == Start::Ask => {
                (self.phase, self.next) = (Phase::Clear, None);
                Action::Nothing
            }
            Phase::Probing { left: 0 } => {
                self.announce(now, false, settings);
                Action::Nothing
            }
            Phase::Probing { left } => {
                *left -= 1;
                self.next = Some(now + settings.probe_interval);
                Action::Probe
            }
            Phase::Announcing {
                burst_until,
                was_announced,
                is_refreshing,
            } => {
                let is_first = !std::mem::replace(was_announced, true);
                let next = now + settings.round_interval;
                if next <= *burst_until {
                    self.next = Some(next);
                } else {
                    let is_later = std::mem::replace(is_refreshing, true);
                    self.next = settings.refresh.map(|whole| {
                        // The first time anywhere in the second half.
                        let half = whole / 2;
                        let first = half + half * u32::from(spread) / 256;
                        now + if is_later { whole } else { first }
                    });
                }
                Action::Announce { is_first }
            }
        }
    }

    /// Another host claims the address, or only probes for it. `was_peer`: it is a node, or was one
    /// not long ago.
    pub fn claimed(
        &mut self,
        conflict: Conflict,
        is_probe: bool,
        was_peer: bool,
        settings: &Settings,
    ) -> Reaction {
        if !self.usable.contains(&conflict.interface) {
            return Reaction::default();
        }
        let now = conflict.last;
        match self.phase {
            Phase::Waiting => Reaction::default(),
            // A peer that still has the address is about to give it up, and one that is cut off
            // keeps no address from this side.
            Phase::Probing { .. } | Phase::Clear if was_peer => Reaction::default(),
            Phase::Probing { .. } | Phase::Clear => {
                self.conflict = Some(conflict);
                self.phase = Phase::Conflicted;
                self.next = Some(now + settings.retry_after(self.refusals));
                self.refusals = self.refusals.saturating_add(1);
                let mut event = None;
                // Once, and not once per retry.
                if self.refused_by != Some(conflict.mac) {
                    event = self.report(now, Event::Refused(conflict), settings);
                    self.refused_by = event.map(|_| conflict.mac);
                }
                Reaction {
                    event,
                    defends: false,
                }
            }
            // The answer to a probe defends the address.
            Phase::Conflicted | Phase::Announcing { .. } if is_probe => Reaction::default(),
            Phase::Conflicted => {
                self.conflict = Some(conflict);
                Reaction::default()
            }
            Phase::Announcing { .. } => {
                let before = self.conflict.replace(conflict);
                let goes_on = before.is_some_and(|it| {
                    it.mac == conflict.mac && now < it.last + settings.conflict_retry
                });
                let last = self
                    .defended
                    .is_some_and(|at| now < at + settings.defence_interval);
                let defends = !conflict.is_peer && !last;
                if defends {
                    self.defended = Some(now);
                }
                let event = if goes_on {
                    None
                } else {
                    self.report(now, Event::Disputed(conflict), settings)
                };
                Reaction { event, defends }
            }
        }
    }

    /// An event, unless the last one about this address was a moment ago.
    fn report(&mut self, now: Instant, event: Event, settings: &Settings) -> Option<Event> {
        if self
            .reported
            .is_some_and(|at| now < at + settings.defence_interval)
        {
            return None;
        }
        self.reported = Some(now);
        Some(event)
    }

    fn probe(&mut self, now: Instant, settings: &Settings) {
        let left = settings.probes;
        self.phase = Phase::Probing { left };
        self.next = Some(now);
    }

    fn announce(&mut self, now: Instant, was_announced: bool, settings: &Settings) {
        self.refused_by = None;
        self.refusals = 0;
        self.phase = Phase::Announcing {
            burst_until: now + settings.burst,
            was_announced,
            is_refreshing: false,
        };
        self.next = Some(now);
    }
}
