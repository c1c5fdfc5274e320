//! Intervals, Poll Sequences and deadlines (RFC 5880, sections 6.5, 6.6 and 6.8.2 to 6.8.5).

use std::time::{Duration, Instant};

use super::{Session, Settings};
use crate::packet::State;

/// The shortest interval between packets of a session that is not Up, and of one that echoes
/// verify.
const SLOW: Duration = Duration::from_secs(1);

/// The intervals of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Intervals {
    pub(super) transmit: Duration,
    pub(super) receive: Duration,
}

/// A Poll Sequence of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Poll {
    /// None.
    Idle,
    /// No packet of it was sent yet.
    Begun,
    /// It has no answer since.
    Sent(Instant),
}

/// When something was sent, and the part of the interval, in thousandths, until it is sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) at: Instant,
    jitter: u32,
}

// === impl Intervals ===

impl Intervals {
    /// Returns what a session advertises.
    pub(super) fn of(settings: &Settings, is_up: bool, has_echoes: bool) -> Self {
        let slow = |is_slow, interval: Duration| {
            if is_slow {
                interval.max(SLOW)
            } else {
                interval
            }
        };
        Self {
            transmit: slow(!is_up, settings.transmit_interval),
            receive: slow(has_echoes, settings.receive_interval),
        }
    }
}

// === impl Sent ===

impl Sent {
    /// Draws how long it is until the next: 75 % to 100 % of the interval, or to 90 % where one
    /// packet that is missed ends the session.
    pub(super) fn new(at: Instant, detect_multiplier: u8, random: &mut fastrand::Rng) -> Self {
        let most = if detect_multiplier == 1 { 900 } else { 1_000 };
        Self {
            at,
            jitter: random.u32(750..=most),
        }
    }

    fn next(&self, interval: Duration) -> Instant {
        self.at + interval * self.jitter / 1_000
    }
}

// === impl Session ===

impl Session {
    /// Brings what is advertised up to date, and what timers use as far as that may not wait for
    /// the other side (section 6.8.3).
    pub(super) fn negotiate(&mut self) {
        let is_up = self.state == State::Up;
        let has_echoes = is_up && self.echo.returned.is_some();
        let wanted = Intervals::of(&self.settings, is_up, has_echoes);
        if wanted != self.advertised {
            self.advertised = wanted;
            self.announce = true;
            self.begin_poll();
        }
        if !is_up || self.poll == Poll::Idle {
            self.effective = self.advertised;
        } else {
            // Sending less often, and expecting more often, wait until the other side knows.
            let (new, old) = (self.advertised, self.effective);
            self.effective = Intervals {
                transmit: new.transmit.min(old.transmit),
                receive: new.receive.max(old.receive),
            };
        }
    }

    /// Begins a Poll Sequence, or notes that one is needed after the one that runs.
    pub(super) fn begin_poll(&mut self) {
        match self.poll {
            // Without a receiver there is nothing to agree on.
            Poll::Idle if self.remote.discriminator.is_some() => self.poll = Poll::Begun,
            Poll::Idle | Poll::Begun => {}
            Poll::Sent(_) => self.poll_again = true,
        }
    }

    /// Notes that a packet of the Poll Sequence was sent.
    pub(super) fn note_poll(&mut self, now: Instant) {
        if self.poll == Poll::Begun {
            self.poll = Poll::Sent(now);
        }
    }

    /// Ends the Poll Sequence, if its packets were sent.
    pub(super) fn end_poll(&mut self, now: Instant) {
        if let Poll::Sent(_) = self.poll {
            self.verified = now;
            self.poll = if std::mem::take(&mut self.poll_again) {
                Poll::Begun
            } else {
                Poll::Idle
            };
        }
    }

    /// Drops all Poll Sequences: what they were about is no longer so.
    pub(super) fn end_polls(&mut self) {
        (self.poll, self.poll_again) = (Poll::Idle, false);
    }

    /// Returns whether this side needs no periodic packets of the other (section 6.6).
    pub(super) fn is_demand_active(&self) -> bool {
        self.settings.demand.is_some() && self.are_both_up() && self.remote.required_min_rx.0 != 0
    }

    /// Returns whether the other side needs no periodic packets of this one.
    pub(super) fn is_remote_demand_active(&self) -> bool {
        self.remote.is_demand && self.are_both_up()
    }

    fn are_both_up(&self) -> bool {
        (self.state, self.remote.state) == (State::Up, State::Up)
    }

    /// The interval between packets of this side, before jitter.
    pub(super) fn transmit_interval(&self) -> Duration {
        let accepted = self.remote.required_min_rx.duration();
        self.effective.transmit.max(accepted)
    }

    /// How long the other side may be silent (section 6.8.4).
    pub(super) fn detection_time(&self) -> Option<Duration> {
        self.received?;
        let interval = self.remote.desired_min_tx.duration();
        let interval = interval.max(self.effective.receive);
        Some(interval * u32::from(self.remote.detect_multiplier))
    }

    /// How long a Poll Sequence may have no answer in demand mode.
    pub(super) fn poll_timeout(&self) -> Duration {
        self.transmit_interval() * u32::from(self.settings.detect_multiplier.get())
    }

    /// The interval between echoes, while they are sent.
    pub(super) fn echo_interval(&self) -> Option<Duration> {
        let accepted = self.remote.required_min_echo_rx;
        let is_active = self.state == State::Up && accepted.0 != 0;
        let interval = self.settings.echo.filter(|_| is_active)?;
        Some(interval.max(accepted.duration()))
    }

    /// How long no echo may come back.
    pub(super) fn echo_timeout(&self) -> Option<Duration> {
        let multiplier = u32::from(self.settings.detect_multiplier.get());
        Some(self.echo_interval()? * multiplier)
    }

    /// When the other side is missed.
    pub(super) fn detection_deadline(&self) -> Option<Instant> {
        if self.is_demand_active() {
            return match self.poll {
                Poll::Sent(since) => Some(since + self.poll_timeout()),
                Poll::Idle | Poll::Begun => None,
            };
        }
        let is_expected = matches!(self.state, State::Init | State::Up);
        self.received
            .filter(|_| is_expected)?
            .checked_add(self.detection_time()?)
    }

    /// When the other side's name is forgotten in a session that is down (section 6.8.1).
    pub(super) fn forget_deadline(&self) -> Option<Instant> {
        let is_down = matches!(self.state, State::AdminDown | State::Down);
        self.remote.discriminator.filter(|_| is_down)?;
        self.received?.checked_add(self.detection_time()?)
    }

    /// When the other side's sequence number is forgotten.
    pub(super) fn sequence_deadline(&self) -> Option<Instant> {
        let is_known = self.sequences.is_known() && !self.is_demand_active();
        self.received
            .filter(|_| is_known)?
            .checked_add(self.detection_time()? * 2)
    }

    /// When the next Poll Sequence of demand mode begins.
    pub(super) fn demand_deadline(&self) -> Option<Instant> {
        let is_due = self.is_demand_active() && self.poll == Poll::Idle;
        let interval = self.settings.demand.filter(|_| is_due)?;
        Some(self.verified + interval)
    }

    /// When echoes are missed.
    pub(super) fn echo_deadline(&self) -> Option<Instant> {
        Some(self.echo.returned? + self.echo_timeout()?)
    }

    /// When the next echo is sent.
    pub(super) fn echo_send_deadline(&self) -> Option<Instant> {
        let interval = self.echo_interval()?;
        Some(
            self.echo
                .sent
                .map_or(self.verified, |sent| sent.next(interval)),
        )
    }

    /// When the next periodic packet is sent (section 6.8.7).
    pub(super) fn send_deadline(&self) -> Option<Instant> {
        if !self.may_send() || self.is_remote_demand_active() && self.poll == Poll::Idle {
            return None;
        }
        let interval = self.transmit_interval();
        Some(self.sent.map_or(self.created, |sent| sent.next(interval)))
    }
}
