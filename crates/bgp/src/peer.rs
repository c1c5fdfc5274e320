//! What is configured for one router.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use ipnet::IpNet;

/// A router, and how the session with it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The AS that the router sees: `localASN` where there is one, `myASN` otherwise. It alone
    /// stands in the path of routes to routers of other ASes.
    pub asn: NonZeroU32,
    /// The AS of the router.
    pub remote_asn: RemoteAsn,
    /// Where the router is.
    pub address: PeerAddress,
    /// Its TCP port.
    pub port: u16,
    /// The address from which connections begin; `None`: the kernel chooses.
    pub source: Option<IpAddr>,
    /// Which side connects.
    pub mode: Mode,
    /// The BGP identifier of this side: not 0.0.0.0.
    pub router_id: Ipv4Addr,
    /// Timers.
    pub timers: Timers,
    /// The key of TCP MD5 (RFC 2385).
    pub password: Option<Password>,
    /// How far the router may be.
    pub hops: Hops,
    /// The VRF device that connections are bound to.
    pub vrf: Option<String>,
    /// The families of prefixes that are offered.
    pub families: Families,
    /// For how long the router shall keep routes while this process restarts (RFC 4724), at most
    /// 4095 s; `None`: not at all.
    pub graceful_restart: Option<Duration>,
}

/// The AS of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAsn {
    /// This one.
    Number(NonZeroU32),
    /// Whatever it says, if it is this side's.
    Internal,
    /// Whatever it says, if it is not this side's.
    External,
}

/// Where a router is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// At this address.
    Ip(IpAddr),
    /// At the other end of this interface, at a link-local address that its router advertisements
    /// reveal.
    Interface(String),
    /// Any that begins a session from an address of this range: each is a peer of its own, named
    /// after this one and its address. No session is begun by this side.
    Range(IpNet),
}

/// Which side connects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// This one; connections of the router are accepted as well where this process listens.
    #[default]
    Active,
    /// Only the router.
    Passive,
}

/// How far a router may be, which decides the TTL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hops {
    /// On the same link where it is of another AS: a TTL of 1; anywhere in the same AS.
    #[default]
    Direct,
    /// Anywhere.
    Multihop,
    /// At most so many hops away, which is verified (GTSM, RFC 5082): packets that come from
    /// farther away are dropped, and the router may do the same.
    Within(u8),
}

/// Timers of a session, as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// After how long without a message the session ends: whole seconds, 3 to 65535; zero: never.
    /// The router may ask for less.
    pub hold: Duration,
    /// How often a KEEPALIVE is sent; `None`: a third of the hold time. Never less often than that.
    pub keepalive: Option<Duration>,
    /// The longest time between two attempts to connect. The first ones follow sooner.
    pub connect: Duration,
}

/// Families of prefixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    /// IPv4 unicast.
    pub ipv4: bool,
    /// IPv6 unicast.
    pub ipv6: bool,
}

/// A key of TCP MD5, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Box<str>);

/// Why a text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// It is empty.
    #[error("an empty password")]
    Empty,
    /// It is longer than the kernel takes.
    #[error("a password of more than {} bytes", Password::LONGEST)]
    TooLong,
}

// === impl Peer ===

impl Peer {
    /// Returns whether only the password differs, which does not end a session.
    pub fn differs_in_password_only(&self, other: &Self) -> bool {
        let without = |peer: &Self| Self {
            password: None,
            ..peer.clone()
        };
        self.password != other.password && without(self) == without(other)
    }
}

// === impl RemoteAsn ===

impl RemoteAsn {
    /// Returns whether a router of that AS is the one that is configured.
    pub(crate) fn accepts(self, own: NonZeroU32, got: NonZeroU32) -> bool {
        match self {
            Self::Number(number) => number == got,
            Self::Internal => own == got,
            Self::External => own != got,
        }
    }
}

// === impl Timers ===

impl Default for Timers {
    fn default() -> Self {
        Self {
            hold: Duration::from_secs(90),
            keepalive: None,
            connect: Duration::from_secs(30),
        }
    }
}

// === impl Families ===

impl Families {
    /// Returns those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            ipv4: self.ipv4 && other.ipv4,
            ipv6: self.ipv6 && other.ipv6,
        }
    }
}

// === impl Password ===

impl Password {
    /// The most bytes that the kernel takes (`TCP_MD5SIG_MAXKEYLEN`).
    pub const LONGEST: usize = 80;

    /// Takes a text as it is.
    pub fn new(text: &str) -> Result<Self, PasswordError> {
        if text.is_empty() {
            return Err(PasswordError::Empty);
        }
        if text.len() > Self::LONGEST {
            return Err(PasswordError::TooLong);
        }
        Ok(Self(text.into()))
    }

    /// Reveals it, to what computes with it.
    pub fn reveal(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(...)")
    }
}
