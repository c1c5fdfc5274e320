//! What is known of the session with a router.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use crate::error::SessionError;
use crate::peer::Families;

/// The session with a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its state.
    pub state: State,
    /// Since when it is in this state.
    pub since: Instant,
    /// Why it ended last, or why it does not come up, and when that was. Kept while it is
    /// established.
    pub last_error: Option<(Instant, SessionError)>,
    /// When the next attempt to connect begins, if there is one to come.
    pub next_attempt: Option<Instant>,
    /// What was agreed; only while it is established.
    pub agreed: Option<Agreed>,
    /// Prefixes that are desired.
    pub prefixes_wanted: usize,
    /// Prefixes that the router has been sent and that were not withdrawn.
    pub prefixes_sent: usize,
    /// Why some of those that are desired cannot be sent.
    pub unsent: Option<Unsent>,
    /// Announcements of prefixes that were received in this session. They are ignored.
    pub prefixes_received: u64,
    /// Counts since the peer was configured.
    pub counts: Counts,
}

/// States of a session (RFC 4271, 8.2.2), in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It waits before it connects.
    #[default]
    Idle,
    /// A TCP connection is on its way.
    Connect,
    /// It waits for a connection of the router.
    Active,
    /// OPEN was sent.
    OpenSent,
    /// OPEN was received and accepted.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

/// What both sides agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// This side's address and port.
    pub local: SocketAddr,
    /// The router's.
    pub remote: SocketAddr,
    /// The AS of the router.
    pub remote_asn: NonZeroU32,
    /// Its BGP identifier.
    pub remote_id: Ipv4Addr,
    /// After how long without a message the session ends; zero: never.
    pub hold: Duration,
    /// How often a KEEPALIVE is sent; zero: never.
    pub keepalive: Duration,
    /// Families of prefixes that both offer.
    pub families: Families,
    /// Capabilities of the router.
    pub capabilities: Capabilities,
    /// Whether the router keeps what it was sent while this process restarts: both sides offered
    /// graceful restart (RFC 4724), this one for all families that it offers.
    pub keeps_routes: bool,
}

/// Capabilities that a router offers, of those that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Families of prefixes (RFC 4760); IPv4 where it offers none.
    pub families: Families,
    /// AS numbers of four bytes (RFC 6793).
    pub four_octet_as: bool,
    /// It may ask for all routes again (RFC 2918).
    pub route_refresh: bool,
    /// Prefixes of IPv4 with next hops of IPv6 (RFC 8950).
    pub extended_next_hop: bool,
    /// How graceful restart is offered (RFC 4724).
    pub graceful_restart: Option<GracefulRestart>,
}

/// Graceful restart, as a router offers it (RFC 4724).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GracefulRestart {
    /// Whether it says that it restarted.
    pub restarted: bool,
    /// For how long its own routes shall be kept when it restarts.
    pub time: Duration,
    /// Families for which it keeps forwarding while it restarts.
    pub families: Families,
}

/// Why prefixes cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// How many.
    pub count: usize,
    /// Why the first of them cannot.
    pub why: Obstacle,
}

/// What keeps a prefix from being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The family was not agreed.
    #[error("the router does not take prefixes of this family")]
    Family,
    /// There is no next hop that fits.
    #[error("this side has no address of that family to announce as next hop")]
    NextHop,
    /// The attributes fill a message.
    #[error("there are more communities than fit into a message")]
    Size,
    /// It is not a prefix of unicast addresses, or has bits beyond its length.
    #[error("it is not a prefix of unicast addresses")]
    NotUnicast,
}

/// Counts since a peer was configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often the session was established.
    pub established: u64,
    /// OPEN messages sent.
    pub opens_sent: u64,
    /// OPEN messages received.
    pub opens_received: u64,
    /// NOTIFICATION messages sent.
    pub notifications_sent: u64,
    /// NOTIFICATION messages received.
    pub notifications_received: u64,
    /// UPDATE messages sent.
    pub updates_sent: u64,
    /// UPDATE messages received.
    pub updates_received: u64,
    /// UPDATE messages received with errors that do not end a session (RFC 7606).
    pub updates_malformed: u64,
    /// KEEPALIVE messages sent.
    pub keepalives_sent: u64,
    /// KEEPALIVE messages received.
    pub keepalives_received: u64,
    /// ROUTE-REFRESH messages received.
    pub refreshes_received: u64,
}

// === impl Status ===

impl Status {
    /// Returns for how long the session is established; `None` if it is not.
    pub fn uptime(&self, now: Instant) -> Option<Duration> {
        (self.state == State::Established).then(|| now.saturating_duration_since(self.since))
    }
}

// === impl State ===

impl State {
    /// Returns its name in RFC 4271.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::Connect => "Connect",
            Self::Active => "Active",
            Self::OpenSent => "OpenSent",
            Self::OpenConfirm => "OpenConfirm",
            Self::Established => "Established",
        }
    }
}

// === impl Counts ===

impl Counts {
    /// Returns the number of all messages that were sent.
    pub fn sent(&self) -> u64 {
        self.opens_sent + self.notifications_sent + self.updates_sent + self.keepalives_sent
    }

    /// Returns the number of all messages that were received.
    pub fn received(&self) -> u64 {
        self.opens_received
            + self.notifications_received
            + self.updates_received
            + self.keepalives_received
            + self.refreshes_received
    }
}
