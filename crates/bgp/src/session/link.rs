//! One connection with a router, from OPEN to the end.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::backoff::jittered;
use super::connection::{Connection, LinkId, Side};
use crate::advertise::{Advertiser, NextHops};
use crate::error::SessionError;
use crate::notification::{Notification, code};
use crate::status::{Agreed, Counts, State};
use crate::wire;
use crate::wire::open::Offer;
use crate::wire::received::Context;

/// How long an OPEN of the router may take, and the KEEPALIVE after it without a hold time. RFC
/// 4271 suggests four minutes, but says that it is a suggestion: a router that is silent for half
/// a minute is not there.
const OPEN_HOLD: Duration = Duration::from_secs(30);

/// For how long a router may take nothing at least (RFC 9687).
const SEND_HOLD: Duration = Duration::from_mins(8);

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    pub id: LinkId,
    pub side: Side,
    pub connection: Connection,
    pub phase: Phase,
    inbox: Vec<u8>,
    /// Bytes at the start of the inbox that were read.
    taken: usize,
    outbox: VecDeque<Vec<u8>>,
    hold: Duration,
    hold_at: Option<Instant>,
    keepalive_at: Option<Instant>,
    /// When the router has taken nothing for too long.
    pub stuck_at: Option<Instant>,
}

/// How far it is.
#[derive(Debug)]
pub(super) enum Phase {
    /// OPEN was sent.
    OpenSent,
    /// The router's OPEN was accepted.
    OpenConfirm(Box<Agreed>),
    /// Routes are exchanged.
    Established(Box<Established>),
}

/// A session that is established.
#[derive(Debug)]
pub(super) struct Established {
    pub agreed: Agreed,
    pub context: Context,
    pub advertiser: Advertiser,
    pub prefixes_received: u64,
}

// === impl Link ===

impl Link {
    /// Begins with an OPEN.
    pub fn new(id: LinkId, connection: Connection, offer: &Offer, now: Instant) -> Self {
        Self {
            id,
            side: connection.side,
            connection,
            phase: Phase::OpenSent,
            inbox: Vec::new(),
            taken: 0,
            outbox: [offer.write()].into(),
            hold: OPEN_HOLD,
            hold_at: Some(now + OPEN_HOLD),
            keepalive_at: None,
            stuck_at: None,
        }
    }

    pub fn state(&self) -> State {
        match self.phase {
            Phase::OpenSent => State::OpenSent,
            Phase::OpenConfirm(_) => State::OpenConfirm,
            Phase::Established(_) => State::Established,
        }
    }

    pub fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established(_))
    }

    pub fn keeps_routes(&self) -> bool {
        matches!(&self.phase, Phase::Established(it) if it.agreed.keeps_routes)
    }

    /// Returns whether a router that begins another connection has lost this one, as one that
    /// restarts gracefully has (RFC 4724, 4.2). Without a hold time nothing else ends a session
    /// whose router lost its power, and it would be refused for ever.
    pub fn gives_way(&self) -> bool {
        self.keeps_routes() || (self.is_established() && self.hold.is_zero())
    }

    pub fn next_hops(&self) -> NextHops {
        self.connection.next_hops
    }

    /// Takes which addresses can be next hops from now on.
    pub fn set_next_hops(&mut self, next_hops: NextHops) {
        self.connection.next_hops = next_hops;
        if let Phase::Established(established) = &mut self.phase {
            established.advertiser.set_next_hops(next_hops);
        }
    }

    /// Answers an OPEN, and begins with the timers that were agreed.
    pub fn confirm(&mut self, agreed: Agreed, now: Instant) {
        self.outbox.push_back(wire::keepalive());
        self.hold = agreed.hold;
        self.hold_at = Some(now + self.timeout());
        self.keepalive_at = (!agreed.keepalive.is_zero()).then(|| now + agreed.keepalive);
        self.phase = Phase::OpenConfirm(Box::new(agreed));
    }

    /// Takes bytes that were received.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.inbox.drain(..self.taken);
        self.taken = 0;
        self.inbox.extend_from_slice(bytes);
    }

    /// Returns the next whole message, if there is one.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, Notification> {
        let left = self.inbox.get(self.taken..).unwrap_or_default();
        let Some(length) = wire::first(left)? else {
            return Ok(None);
        };
        let message = left.get(..length).unwrap_or_default().to_vec();
        self.taken += length;
        Ok(Some(message))
    }

    /// Returns how long a message may take while the session is not established. Without a hold
    /// time a router that never confirms would keep it from coming up for ever.
    fn timeout(&self) -> Duration {
        if self.hold.is_zero() {
            OPEN_HOLD
        } else {
            self.hold
        }
    }

    /// Notes that a message was received.
    pub fn restart_hold(&mut self, now: Instant) {
        self.hold_at = (!self.hold.is_zero()).then(|| now + self.hold);
    }

    fn keepalive(&self) -> Duration {
        match &self.phase {
            Phase::OpenSent => Duration::ZERO,
            Phase::OpenConfirm(agreed) => agreed.keepalive,
            Phase::Established(established) => established.agreed.keepalive,
        }
    }

    pub fn has_to_send(&self) -> bool {
        let routes = match &self.phase {
            Phase::Established(established) => established.advertiser.is_pending(),
            Phase::OpenSent | Phase::OpenConfirm(_) => false,
        };
        routes || !self.outbox.is_empty()
    }

    pub fn transmit(
        &mut self,
        counts: &mut Counts,
        random: &mut fastrand::Rng,
        now: Instant,
    ) -> Option<Vec<u8>> {
        let message = match (self.outbox.pop_front(), &mut self.phase) {
            (Some(message), _) => message,
            (None, Phase::Established(established)) => {
                let message = established.advertiser.next()?;
                counts.updates_sent += 1;
                self.sending(random, now);
                return Some(message);
            }
            (None, Phase::OpenSent | Phase::OpenConfirm(_)) => return None,
        };
        match self.phase {
            Phase::OpenSent => counts.opens_sent += 1,
            Phase::OpenConfirm(_) | Phase::Established(_) => counts.keepalives_sent += 1,
        }
        self.sending(random, now);
        Some(message)
    }

    /// Any message shows that this side is there, so the next KEEPALIVE can wait.
    fn sending(&mut self, random: &mut fastrand::Rng, now: Instant) {
        let keepalive = self.keepalive();
        if !keepalive.is_zero() {
            self.keepalive_at = Some(now + jittered(keepalive, random));
        }
        let longest = SEND_HOLD.max(self.hold * 2);
        self.stuck_at = Some(now + longest);
    }

    pub fn deadline(&self) -> Option<Instant> {
        let timers = [self.hold_at, self.keepalive_at, self.stuck_at];
        timers.into_iter().flatten().min()
    }

    /// Lets time pass. Returns why it is to be closed, if it is.
    pub fn expire(&mut self, now: Instant) -> Option<(Notification, SessionError)> {
        let is_over = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_over(self.hold_at) {
            let why = Notification::new(code::HOLD_TIMER, 0, []);
            return Some((why, SessionError::HoldTimer(self.timeout())));
        }
        if is_over(self.stuck_at) {
            let why = Notification::new(code::SEND_HOLD_TIMER, 0, []);
            let longest = SEND_HOLD.max(self.hold * 2);
            return Some((why, SessionError::SendHoldTimer(longest)));
        }
        if is_over(self.keepalive_at) {
            if self.outbox.is_empty() {
                self.outbox.push_back(wire::keepalive());
            }
            self.keepalive_at = Some(now + self.keepalive());
        }
        None
    }
}
