//! One session as a state machine without I/O and clock (RFC 5880, section 6).
//!
//! A session takes packets ([`Session::receive`]) and time ([`Session::expire`]), says when it
//! wants to be called next ([`Session::deadline`]), and leaves what is to be sent or reported in
//! [`Session::take`]. Deadlines are derived from what is in force at the moment, never stored: a
//! change of an interval is in effect at once wherever the RFC does not say otherwise.

mod authentication;
mod change;
mod receive;
mod settings;
mod timing;
mod transmit;

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use self::authentication::Sequences;
use self::timing::{Intervals, Poll, Sent};
use crate::packet::{Control, Diagnostic, Micros, State};

pub use self::change::{Cause, Change};
pub use self::receive::Discard;
pub use self::settings::{Role, Settings};

/// The state of one session.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    discriminator: NonZeroU32,
    token: u64,
    random: fastrand::Rng,
    created: Instant,
    state: State,
    diagnostic: Diagnostic,
    remote: Remote,
    /// What packets of this side state.
    advertised: Intervals,
    /// What timers of this side use: what was advertised before, until a Poll Sequence ends.
    effective: Intervals,
    poll: Poll,
    /// Something changed while a Poll Sequence ran: it needs another one.
    poll_again: bool,
    /// When the other side was verified last, in demand mode.
    verified: Instant,
    sent: Option<Sent>,
    received: Option<Instant>,
    echo: Echo,
    returns_echoes: bool,
    sequences: Sequences,
    announce: bool,
    closing: Option<Instant>,
    output: Vec<Output>,
}

/// What the other side said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Remote {
    discriminator: Option<NonZeroU32>,
    state: State,
    diagnostic: Diagnostic,
    is_demand: bool,
    detect_multiplier: u8,
    desired_min_tx: Micros,
    required_min_rx: Micros,
    required_min_echo_rx: Micros,
}

/// Echoes of this side.
#[derive(Clone, Copy, Debug, Default)]
struct Echo {
    sent: Option<Sent>,
    /// When one came back last. Until one did, none is missed: a router may advertise that it
    /// returns echoes and have its forwarding off.
    returned: Option<Instant>,
}

/// What is to be done for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a control packet.
    Control(Vec<u8>),
    /// Send an echo with this token.
    Echo(u64),
    /// Report a change of the state.
    Change(Change),
}

/// What is known of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The state of this side.
    pub state: State,
    /// The state of the other side, as it said last.
    pub remote_state: State,
    /// Why this side left Up last.
    pub diagnostic: Diagnostic,
    /// Why the other side left Up last.
    pub remote_diagnostic: Diagnostic,
    /// This side's name for the session.
    pub discriminator: NonZeroU32,
    /// The other side's name for it.
    pub remote_discriminator: Option<NonZeroU32>,
    /// The interval between packets of this side, before jitter.
    pub transmit_interval: Duration,
    /// How long the other side may be silent, if it was received before.
    pub detection_time: Option<Duration>,
    /// The interval between echoes, if they come back.
    pub echo_interval: Option<Duration>,
}

// === impl Session ===

impl Session {
    /// Creates a session that is down. Its name must differ from those of all other sessions of
    /// this system; the seed decides jitter, token and the first sequence number.
    pub fn new(settings: Settings, discriminator: NonZeroU32, seed: u64, now: Instant) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let settings = settings.clamp();
        let is_admin_down = settings.is_admin_down;
        let intervals = Intervals::of(&settings, false, false);
        let mut session = Self {
            settings,
            discriminator,
            token: random.u64(..),
            created: now,
            state: State::Down,
            diagnostic: Diagnostic::None,
            remote: Remote::default(),
            advertised: intervals,
            effective: intervals,
            poll: Poll::Idle,
            poll_again: false,
            verified: now,
            sent: None,
            received: None,
            echo: Echo::default(),
            returns_echoes: true,
            sequences: Sequences::new(random.u32(..)),
            random,
            announce: false,
            closing: None,
            output: Vec::new(),
        };
        if is_admin_down {
            session.state = State::AdminDown;
            session.diagnostic = Diagnostic::AdministrativelyDown;
        }
        session
    }

    /// Replaces the settings. Intervals change by a Poll Sequence while the session is Up.
    pub fn configure(&mut self, settings: Settings, now: Instant) {
        if self.settings.authentication != settings.authentication {
            self.sequences.forget();
        }
        let was_demand = self.is_demand_active();
        self.settings = settings.clamp();
        if was_demand != self.is_demand_active() {
            // The other side learns of it by the next packet, and is given time to react.
            self.received = self.received.map(|_| now);
            self.verified = now;
            self.announce = true;
            self.begin_poll();
        }
        if self.settings.is_admin_down {
            self.change(State::AdminDown, Cause::Administrator, now);
        } else if self.state == State::AdminDown {
            self.change(State::Down, Cause::Administrator, now);
        }
        self.closing = None;
        self.settle(now);
    }

    /// States whether this system returns echoes of the other side.
    pub fn set_returns_echoes(&mut self, returns: bool, now: Instant) {
        if self.returns_echoes != returns {
            self.returns_echoes = returns;
            self.announce = self.settings.echo.is_some();
            self.settle(now);
        }
    }

    /// Takes the session down for good. It still announces that, until [`Session::is_closed`].
    pub fn close(&mut self, now: Instant) {
        if self.closing.is_some() {
            return;
        }
        let rest = self.transmit_interval() * u32::from(self.settings.detect_multiplier.get());
        let knows_us = self.remote.discriminator.is_some();
        self.change(State::AdminDown, Cause::Administrator, now);
        self.closing = Some(if knows_us { now + rest } else { now });
        self.settle(now);
    }

    /// Sends a packet at once, beside the periodic ones.
    pub fn repeat(&mut self, now: Instant) {
        self.announce = true;
        self.settle(now);
    }

    /// Returns whether the session was closed.
    pub fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Returns whether a session that was closed has nothing left to announce.
    pub fn is_closed(&self, now: Instant) -> bool {
        self.closing.is_some_and(|end| end <= now)
    }

    /// Does what is due. To be called when [`Session::deadline`] is reached, after all packets that
    /// came until then were given to [`Session::receive`].
    pub fn expire(&mut self, now: Instant) {
        if self.detection_deadline().is_some_and(|at| at <= now) {
            let cause = if self.is_demand_active() {
                Cause::NoAnswer(self.poll_timeout())
            } else {
                Cause::Silence(self.detection_time().unwrap_or_default())
            };
            self.diagnostic = Diagnostic::DetectionTimeExpired;
            self.remote.forget();
            self.change(State::Down, cause, now);
        }
        if self.echo_deadline().is_some_and(|at| at <= now) {
            let missed = self.echo_timeout().unwrap_or_default();
            self.diagnostic = Diagnostic::EchoFailed;
            self.change(State::Down, Cause::NoEcho(missed), now);
        }
        if self.forget_deadline().is_some_and(|at| at <= now) {
            self.remote.forget();
        }
        if self.sequence_deadline().is_some_and(|at| at <= now) {
            self.sequences.forget();
        }
        if self.demand_deadline().is_some_and(|at| at <= now) {
            self.begin_poll();
            self.announce = true;
        }
        if self.echo_send_deadline().is_some_and(|at| at <= now) {
            self.send_echo(now);
        }
        self.negotiate();
        if self.send_deadline().is_some_and(|at| at <= now) {
            self.send(now);
        }
        self.settle(now);
    }

    /// Returns when [`Session::expire`] has something to do; nothing if only a packet can change
    /// that. A session that is closed is to be dropped then.
    pub fn deadline(&self) -> Option<Instant> {
        [
            self.detection_deadline(),
            self.echo_deadline(),
            self.forget_deadline(),
            self.sequence_deadline(),
            self.demand_deadline(),
            self.echo_send_deadline(),
            self.send_deadline(),
            self.closing,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Takes what is to be done, in order.
    pub fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.output)
    }

    /// Returns what is known of the session.
    pub fn view(&self) -> View {
        View {
            state: self.state,
            remote_state: self.remote.state,
            diagnostic: self.diagnostic,
            remote_diagnostic: self.remote.diagnostic,
            discriminator: self.discriminator,
            remote_discriminator: self.remote.discriminator,
            transmit_interval: self.transmit_interval(),
            detection_time: self.detection_time(),
            echo_interval: self.echo.returned.and(self.echo_interval()),
        }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the state, if it is another one.
    fn change(&mut self, to: State, cause: Cause, now: Instant) {
        let from = std::mem::replace(&mut self.state, to);
        if from == to {
            return;
        }
        match to {
            State::AdminDown => self.diagnostic = Diagnostic::AdministrativelyDown,
            State::Down if from == State::AdminDown => self.diagnostic = Diagnostic::None,
            // A session that is Up has no reason to be down, and says so.
            State::Up => self.diagnostic = Diagnostic::None,
            State::Down | State::Init => {}
        }
        if to != State::Up {
            self.echo = Echo::default();
            self.end_polls();
        }
        self.verified = now;
        self.announce = true;
        self.output.push(Output::Change(Change { from, to, cause }));
    }

    /// Draws the consequences of whatever happened: negotiates intervals and sends what cannot
    /// wait.
    fn settle(&mut self, now: Instant) {
        self.negotiate();
        if std::mem::take(&mut self.announce) && self.may_announce() {
            self.send(now);
        }
    }
}

// === impl Remote ===

impl Remote {
    /// Forgets what it asked for: what comes next may be another system, which has to be reached.
    /// Its interval stays, because the time until its sequence number is forgotten follows from it.
    fn forget(&mut self) {
        *self = Self {
            diagnostic: self.diagnostic,
            detect_multiplier: self.detect_multiplier,
            desired_min_tx: self.desired_min_tx,
            ..Self::default()
        };
    }
}

impl Default for Remote {
    /// What is assumed until the first packet (section 6.8.1).
    fn default() -> Self {
        Self {
            discriminator: None,
            state: State::Down,
            diagnostic: Diagnostic::None,
            is_demand: false,
            detect_multiplier: 1,
            desired_min_tx: Micros(0),
            required_min_rx: Micros(1),
            required_min_echo_rx: Micros(0),
        }
    }
}

impl From<&Control> for Remote {
    fn from(packet: &Control) -> Self {
        Self {
            discriminator: Some(packet.my_discriminator),
            state: packet.state,
            diagnostic: packet.diagnostic,
            is_demand: packet.is_demand,
            detect_multiplier: packet.detect_multiplier,
            desired_min_tx: packet.desired_min_tx,
            required_min_rx: packet.required_min_rx,
            required_min_echo_rx: packet.required_min_echo_rx,
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
