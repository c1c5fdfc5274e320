//! Where a load balancer is with our last change of it.

use tokio::time::Instant;

/// Where a load balancer is with our last change of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It was seen to be done, or there was none.
    #[default]
    Settled,
    /// Octavia accepted it. Once the time is over that a change usually takes, it is taken to be
    /// done.
    Assumed {
        since: Instant,
        /// When it was last seen not to be done.
        busy_at: Option<Instant>,
    },
    /// Octavia accepted it, and it takes longer than usual: it is waited for.
    Changing {
        since: Instant,
        /// When it was last seen not to be done.
        busy_at: Option<Instant>,
    },
    /// Its outcome is not known, or it is no usual one: it is waited for, and its time says nothing
    /// of others.
    Unverified { since: Instant },
}

// === impl Phase ===

impl Phase {
    /// The phase after a change was accepted.
    pub(super) fn accepted(now: Instant) -> Self {
        Self::Assumed {
            since: now,
            busy_at: None,
        }
    }

    pub(crate) fn is_settled(self) -> bool {
        self == Self::Settled
    }

    /// When the change was sent.
    pub(crate) fn since(self) -> Option<Instant> {
        match self {
            Self::Settled => None,
            Self::Assumed { since, .. }
            | Self::Changing { since, .. }
            | Self::Unverified { since } => Some(since),
        }
    }

    /// Notes that the change is no usual one.
    pub(super) fn wait_for(&mut self) {
        if let Some(since) = self.since() {
            *self = Self::Unverified { since };
        }
    }

    /// Notes that the change is not taken to be done any more, and returns whether it was.
    pub(super) fn stop_assuming(&mut self) -> bool {
        let Self::Assumed { since, busy_at } = *self else {
            return false;
        };
        *self = Self::Changing { since, busy_at };
        true
    }

    /// Notes that the load balancer was seen to be busy.
    pub(super) fn seen_busy(&mut self, at: Instant) {
        if let Self::Assumed { busy_at, .. } | Self::Changing { busy_at, .. } = self {
            *busy_at = Some(at);
        }
    }
}
