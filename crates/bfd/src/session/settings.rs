//! What a session shall do.

use std::num::NonZeroU8;
use std::time::Duration;

use crate::packet::authentication::Key;

/// The shortest interval of any kind; shorter ones become this long.
const SHORTEST: Duration = Duration::from_millis(10);

/// The longest interval of any kind.
const LONGEST: Duration = Duration::from_mins(60);

/// What a session shall do. Intervals have 10 ms to an hour; others become the nearest of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The interval between packets that are sent while the session is Up.
    pub transmit_interval: Duration,
    /// The shortest interval between packets that are accepted.
    pub receive_interval: Duration,
    /// The number of missed packets after which the other side reports this one down.
    pub detect_multiplier: NonZeroU8,
    /// Which side begins.
    pub role: Role,
    /// Demand mode: instead of periodic packets of the other side, a Poll Sequence at this interval
    /// verifies the way.
    pub demand: Option<Duration>,
    /// The interval between echoes, if both sides support them. Single hop and IPv4 only.
    pub echo: Option<Duration>,
    /// The key of all packets.
    pub authentication: Option<Key>,
    /// The smallest TTL or hop limit with which packets of a multihop session are accepted.
    pub minimum_ttl: u8,
    /// The session is held down.
    pub is_admin_down: bool,
}

/// Which side begins to send (section 6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// This one, or both.
    #[default]
    Active,
    /// The other side; this one is silent until it receives a packet.
    Passive,
}

// === impl Settings ===

impl Default for Settings {
    /// The values of FRR, which MetalLB's `BFDProfile` falls back to.
    fn default() -> Self {
        Self {
            transmit_interval: Duration::from_millis(300),
            receive_interval: Duration::from_millis(300),
            detect_multiplier: NonZeroU8::MIN.saturating_add(2),
            role: Role::Active,
            demand: None,
            echo: None,
            authentication: None,
            minimum_ttl: 254,
            is_admin_down: false,
        }
    }
}

impl Settings {
    /// Brings intervals into their range.
    pub(super) fn clamp(self) -> Self {
        let clamp = |interval: Duration| interval.clamp(SHORTEST, LONGEST);
        Self {
            transmit_interval: clamp(self.transmit_interval),
            receive_interval: clamp(self.receive_interval),
            demand: self.demand.map(clamp),
            echo: self.echo.map(clamp),
            ..self
        }
    }
}
