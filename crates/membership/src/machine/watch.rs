//! Pings, suspicions and what follows from them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Machine, Settings};
use crate::member::Status;
use crate::packet::Kind;

/// Pings without an answer that are remembered.
const OUTSTANDING: usize = 64;

/// The pings of one member.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    /// When the next is sent.
    next: Instant,
    /// Those without an answer, with their numbers.
    outstanding: VecDeque<(u64, Instant)>,
    /// How long they may be without one. Grows where a suspicion was refuted: then only this node
    /// does not reach the member.
    timeout: Duration,
    /// It ends with the first answer: another node holds the member for dead.
    pub(super) is_once: bool,
}

// === impl Watch ===

impl Watch {
    pub(super) fn new(next: Instant, timeout: Duration) -> Self {
        Self {
            next,
            outstanding: VecDeque::new(),
            timeout,
            is_once: false,
        }
    }

    /// Until the first answer.
    pub(super) fn once(next: Instant, timeout: Duration) -> Self {
        Self {
            is_once: true,
            ..Self::new(next, timeout)
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.overdue_at().map_or(self.next, |at| at.min(self.next))
    }

    fn overdue_at(&self) -> Option<Instant> {
        let (_, sent) = self.outstanding.front()?;
        Some(*sent + self.timeout)
    }

    /// Takes an answer to a ping: those before it need none any more. Returns whether it was one.
    fn take_answer(&mut self, number: u64, timeout: Duration) -> bool {
        let place = self.outstanding.iter().position(|(it, _)| *it == number);
        if let Some(place) = place {
            self.outstanding.drain(..=place);
            self.timeout = timeout;
        }
        place.is_some()
    }
}

// === impl Machine ===

impl Machine {
    /// A node that did not run cannot say that others did not answer: their answers may wait, or
    /// its questions never left.
    pub(super) fn note_pause(&mut self, now: Instant) {
        let due = self.deadline().max(self.ran);
        let late = now.saturating_duration_since(due);
        self.ran = self.ran.max(now);
        if late < self.settings.pause {
            return;
        }
        self.counts.paused += 1;
        let Settings {
            interval,
            timeout,
            confirm,
            ..
        } = self.settings;
        if late + interval >= timeout + confirm {
            self.note_reunion();
        }
        for watch in self.watches.values_mut() {
            watch.next = now;
        }
        self.forgive(now);
    }

    /// Takes note that this node can send no datagram, to no other: that no answer comes says
    /// nothing of the others.
    pub fn note_unsent(&mut self, now: Instant) {
        self.forgive(now);
    }

    /// Waits for answers from now on.
    fn forgive(&mut self, now: Instant) {
        for watch in self.watches.values_mut() {
            watch.outstanding.clear();
        }
        let members = self.members.values_mut();
        for member in members.filter(|it| it.record.status == Status::Suspect) {
            member.since = now;
        }
    }

    /// Takes those for dead that did not refute it.
    pub(super) fn conclude(&mut self, now: Instant) {
        let is_over = |since: Instant, after| since + after <= now;
        let mut died = 0;
        for member in self.members.values_mut() {
            if member.record.status == Status::Suspect
                && is_over(member.since, self.settings.confirm)
            {
                member.record.status = Status::Dead;
                member.since = now;
                died += 1;
            }
        }
        if died > 0 {
            self.counts.died += died;
            self.set_ring(now);
        }
    }

    /// Pings the watched members, and suspects those that are overdue.
    pub(super) fn watch(&mut self, now: Instant) {
        let mut due = Vec::new();
        let mut overdue = Vec::new();
        for (name, watch) in &mut self.watches {
            if watch.overdue_at().is_some_and(|at| at <= now) {
                watch.outstanding.clear();
                watch.timeout = (watch.timeout * 2).min(self.settings.longest_timeout);
                overdue.push(Arc::clone(name));
            }
            if watch.next <= now {
                watch.next = now + self.settings.interval;
                due.push(Arc::clone(name));
            }
        }
        for name in overdue {
            self.suspect(now, &name);
        }
        for name in due {
            self.number += 1;
            if let Some(watch) = self.watches.get_mut(&name) {
                watch.outstanding.push_back((self.number, now));
                watch.outstanding.truncate(OUTSTANDING);
            }
            self.send(Kind::Ping, &name, self.number);
        }
    }

    fn suspect(&mut self, now: Instant, name: &Arc<str>) {
        let Some(member) = self.members.get_mut(name) else {
            return;
        };
        if member.record.status == Status::Alive {
            member.record.status = Status::Suspect;
            member.since = now;
            self.counts.suspected += 1;
            self.send_about(name);
        }
    }

    pub(super) fn take_answer(&mut self, name: &Arc<str>, number: u64) {
        let timeout = self.settings.timeout;
        if let Some(watch) = self.watches.get_mut(name)
            && watch.take_answer(number, timeout)
            && watch.is_once
        {
            self.watches.remove(name);
        }
    }
}
