//! One address that is announced, and when it does something next.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use super::correction::{Correction, Due};
use super::{Announcement, Conflict, Event, Settings, Start, State};
use crate::mac::MacAddress;

/// An address.
#[derive(Clone, Debug)]
pub struct Entry {
    /// How it is to be announced.
    pub wanted: Announcement,
    /// The interfaces on which it can be.
    pub usable: BTreeSet<u32>,
    /// The last conflict.
    pub conflict: Option<Conflict>,
    phase: Phase,
    /// When the phase does something next.
    next: Option<Instant>,
    /// Those of the interfaces on which it waits while it is announced on others, or about to be:
    /// a host there has it, or may have it, as they came later.
    late: BTreeMap<u32, Late>,
    was_announced: bool,
    defended: Option<Instant>,
    correction: Correction,
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
    /// There is an interface that is not late.
    Announcing {
        burst_until: Instant,
        is_refreshing: bool,
    },
    Conflicted,
}

/// An interface on which hosts are asked while the address is announced on others.
#[derive(Clone, Copy, Debug)]
struct Late {
    /// When the next probe is due, or the last one was not answered.
    at: Instant,
    left: u8,
    /// How often a host there had it in a row.
    refusals: u32,
    /// The host there that was reported.
    reported: Option<MacAddress>,
}

/// What an entry does when its time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Asks on these interfaces whether another host has the address.
    Probe(BTreeSet<u32>),
    /// Makes the address known.
    Announce {
        /// For the first time.
        is_first: bool,
        /// On these interfaces.
        on: BTreeSet<u32>,
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

/// Returns a number from 0 to 255 that differs between addresses, so that what began together is
/// not refreshed together.
pub fn spread(address: IpAddr) -> u8 {
    let bits = match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let folded = (bits ^ bits >> 64) as u64;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

// === impl Entry ===

impl Entry {
    /// An address that is not announced yet.
    pub const fn new(wanted: Announcement) -> Self {
        Self {
            wanted,
            usable: BTreeSet::new(),
            conflict: None,
            phase: Phase::Waiting,
            next: None,
            late: BTreeMap::new(),
            was_announced: false,
            defended: None,
            correction: Correction::NONE,
            reported: None,
            refused_by: None,
            refusals: 0,
        }
    }

    /// What it is doing.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Waiting => State::Waiting,
            Phase::Probing { .. } | Phase::Clear => State::Probing,
            Phase::Announcing { .. } => State::Announcing,
            Phase::Conflicted => State::Conflicted,
        }
    }

    /// Returns what is shown of it and changes without a report: its state, and on how many
    /// interfaces it is.
    pub fn shown(&self) -> (State, usize) {
        (self.state(), self.interfaces().count())
    }

    /// When it does something next.
    pub fn due(&self) -> Option<Instant> {
        let late = self.late.values().map(|it| it.at);
        late.chain(self.next).chain(self.correction.due()).min()
    }

    /// The interfaces on which it is, or will be first.
    pub fn interfaces(&self) -> impl Iterator<Item = u32> {
        let usable = self.usable.iter().copied();
        usable.filter(|it| !self.late.contains_key(it))
    }

    /// Returns whether questions that come through an interface are answered.
    pub fn answers_on(&self, interface: u32) -> bool {
        matches!(self.phase, Phase::Announcing { .. })
            && self.usable.contains(&interface)
            && !self.late.contains_key(&interface)
    }

    /// Returns whether one of these stations has it, so that it is not announced.
    pub fn is_refused_by(&self, stations: &BTreeSet<MacAddress>) -> bool {
        let host = self.conflict.map(|it| it.mac);
        matches!(self.phase, Phase::Conflicted) && host.is_some_and(|it| stations.contains(&it))
    }

    /// Asks again at once, if another host had it.
    pub fn ask_again(&mut self, now: Instant) {
        self.next = Some(now);
    }

    /// Takes the interfaces on which it can be announced, of which some are as good as new.
    /// `takes_over`: from now on another node's announcement is taken over. That is known of the
    /// interfaces that are there, and of none that comes later: meanwhile a host may have taken the
    /// address there.
    pub fn review(
        &mut self,
        now: Instant,
        usable: BTreeSet<u32>,
        fresh: &BTreeSet<u32>,
        takes_over: bool,
        settings: &Settings,
    ) {
        let come: Vec<u32> = usable.difference(&self.usable).copied().collect();
        let is_on_new = !come.is_empty() || usable.iter().any(|it| fresh.contains(it));
        self.usable = usable;
        self.late.retain(|index, _| self.usable.contains(index));
        match (self.phase, self.wanted.start) {
            (Phase::Announcing { .. }, _) => {
                let new = Late::new(now, settings);
                self.late.extend(come.into_iter().map(|index| (index, new)));
                if self.is_on_none() {
                    // A dispute of before is no refusal.
                    self.conflict = None;
                    self.probe(now, settings);
                } else if self.interfaces().any(|index| fresh.contains(&index)) {
                    self.announce(now, settings);
                }
            }
            _ if takes_over && !self.usable.is_empty() => {
                self.late.clear();
                self.announce(now, settings);
            }
            // It may be free on an interface that came, which doesn't wait for the next question.
            (Phase::Conflicted, _) if come.is_empty() && !takes_over => {}
            _ if is_on_new || self.is_on_none() => self.probe(now, settings),
            (Phase::Clear, Start::Probe) => self.announce(now, settings),
            _ => {}
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
        if std::mem::take(is_refreshing) {
            self.next = Some(now);
        }
    }

    /// Does what is due.
    pub fn expire(&mut self, now: Instant, settings: &Settings, spread: u8) -> Action {
        if self.next.is_none_or(|at| at > now) {
            return match self.correction.take(now, settings) {
                Some(due) => self.correct(due),
                None => self.ask_late(now, settings),
            };
        }
        match &mut self.phase {
            Phase::Waiting | Phase::Clear => {
                self.next = None;
                Action::Nothing
            }
            Phase::Conflicted => {
                self.probe(now, settings);
                Action::Nothing
            }
            Phase::Probing { left: 0 } if self.wanted.start == Start::Ask => {
                (self.phase, self.next) = (Phase::Clear, None);
                Action::Nothing
            }
            Phase::Probing { left: 0 } => {
                self.announce(now, settings);
                Action::Nothing
            }
            Phase::Probing { left } => {
                *left -= 1;
                self.next = Some(now + settings.probe_interval);
                Action::Probe(self.interfaces().collect())
            }
            Phase::Announcing {
                burst_until,
                is_refreshing,
            } => {
                let is_first = !std::mem::replace(&mut self.was_announced, true);
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
                let on = self.interfaces().collect();
                Action::Announce { is_first, on }
            }
        }
    }

    /// Announces once more what another node announced meanwhile, if that has stopped.
    fn correct(&self, due: Due) -> Action {
        let on = self.interfaces().collect();
        match (self.phase, due) {
            (Phase::Announcing { .. }, Due::Ask) => Action::Probe(on),
            (Phase::Announcing { .. }, Due::Announce) => Action::Announce {
                is_first: false,
                on,
            },
            _ => Action::Nothing,
        }
    }

    /// Asks on a late interface, or announces there, too, what no host had.
    fn ask_late(&mut self, now: Instant, settings: &Settings) -> Action {
        let mut late = self.late.iter_mut();
        let Some((&index, it)) = late.find(|(_, it)| it.at <= now) else {
            return Action::Nothing;
        };
        if it.left == 0 {
            self.late.remove(&index);
            if matches!(self.phase, Phase::Announcing { .. }) {
                self.announce(now, settings);
            }
            return Action::Nothing;
        }
        it.left -= 1;
        it.at = now + settings.probe_interval;
        Action::Probe(BTreeSet::from([index]))
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
        if self.late.contains_key(&conflict.interface) && (!was_peer || is_probe) {
            let event = (!was_peer).then(|| self.refuse_late(conflict, settings));
            return Reaction {
                event: event.flatten(),
                defends: false,
            };
        }
        match self.phase {
            Phase::Waiting => Reaction::default(),
            // A peer that still has the address is about to give it up, and one that is cut off
            // keeps no address from this side.
            Phase::Probing { .. } | Phase::Clear if was_peer => Reaction::default(),
            // The address is announced where no host has it.
            Phase::Probing { .. } | Phase::Clear
                if self.interfaces().any(|it| it != conflict.interface) =>
            {
                let mut late = Late::new(now, settings);
                late.refusals = self.refusals;
                late.postpone(now, settings);
                self.late.insert(conflict.interface, late);
                Reaction::default()
            }
            Phase::Probing { .. } | Phase::Clear => {
                self.late.clear();
                self.conflict = Some(conflict);
                self.phase = Phase::Conflicted;
                self.was_announced = false;
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
                self.correction.plan(was_peer, now, before, settings);
                let goes_on = before.is_some_and(|it| {
                    it.mac == conflict.mac && now < it.last + settings.conflict_retry
                });
                let last = self
                    .defended
                    .is_some_and(|at| now < at + settings.defence_interval);
                let is_late = self.late.contains_key(&conflict.interface);
                let defends = !conflict.is_peer && !last && !is_late;
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

    /// A host claims the address on a late interface and keeps it there. Returns what is reported:
    /// each host once, and none before the address is announced elsewhere.
    fn refuse_late(&mut self, conflict: Conflict, settings: &Settings) -> Option<Event> {
        let now = conflict.last;
        let late = self.late.get_mut(&conflict.interface)?;
        late.refuse(now, settings);
        if late.reported == Some(conflict.mac) || !matches!(self.phase, Phase::Announcing { .. }) {
            return None;
        }
        let event = self.report(now, Event::RefusedOn(conflict), settings)?;
        if let Some(late) = self.late.get_mut(&conflict.interface) {
            late.reported = Some(conflict.mac);
        }
        self.conflict = Some(conflict);
        Some(event)
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

    /// Returns whether there is no interface on which it is announced, or about to be.
    fn is_on_none(&self) -> bool {
        self.interfaces().next().is_none()
    }

    /// Asks on all interfaces that are not late, or on all that there are, as soon as there is one.
    fn probe(&mut self, now: Instant, settings: &Settings) {
        if self.is_on_none() {
            self.late.clear();
        }
        if self.usable.is_empty() {
            (self.phase, self.next) = (Phase::Waiting, None);
        } else {
            let left = settings.probes;
            self.phase = Phase::Probing { left };
            self.next = Some(now);
        }
    }

    fn announce(&mut self, now: Instant, settings: &Settings) {
        self.refused_by = None;
        self.refusals = 0;
        self.phase = Phase::Announcing {
            burst_until: now + settings.burst,
            is_refreshing: false,
        };
        self.next = Some(now);
    }
}

// === impl Late ===

impl Late {
    const fn new(now: Instant, settings: &Settings) -> Self {
        Self {
            at: now,
            left: settings.probes,
            refusals: 0,
            reported: None,
        }
    }

    /// A host there has the address: it is asked again later.
    fn refuse(&mut self, now: Instant, settings: &Settings) {
        // Not once per message of the host.
        if self.left < settings.probes {
            self.postpone(now, settings);
        }
    }

    fn postpone(&mut self, now: Instant, settings: &Settings) {
        self.at = now + settings.retry_after(self.refusals);
        self.left = settings.probes;
        self.refusals = self.refusals.saturating_add(1);
    }
}
