//! What is announced to routers.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::shared::SharedMap;

/// The prefixes for one router, each with its attributes. Many prefixes with the same attributes
/// should share them.
pub type Routes = SharedMap<IpNet, Arc<Attributes>>;

/// Attributes of a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attributes {
    /// The next hop; `None`: this side's address of the session, or of its interface where the
    /// families differ.
    pub next_hop: Option<IpAddr>,
    /// The local preference, which only routers of the same AS see; `None`: 100.
    pub local_preference: Option<u32>,
    /// Communities (RFC 1997).
    pub communities: BTreeSet<Community>,
    /// Large communities (RFC 8092).
    pub large_communities: BTreeSet<LargeCommunity>,
}

/// A community (RFC 1997), written `A:B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Community(pub u16, pub u16);

/// A large community (RFC 8092), written `A:B:C`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LargeCommunity(pub u32, pub u32, pub u32);

/// Which routers are asked to prefer other paths (RFC 8326), before this node withdraws its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drain {
    /// None.
    #[default]
    Off,
    /// Those that do not keep the routes while this process restarts (RFC 4724). Which these are is
    /// decided by each session: what is configured is not what a router agreed to.
    Forgetful,
    /// All, because this process is not to come back soon.
    All,
}

// === impl Drain ===

impl Drain {
    /// Returns whether a router is asked. `keeps_routes`: whether it agreed to graceful restart.
    pub fn concerns(self, keeps_routes: bool) -> bool {
        match self {
            Self::Off => false,
            Self::Forgetful => !keeps_routes,
            Self::All => true,
        }
    }
}

// === impl Attributes ===

impl Attributes {
    /// The local preference where none is configured.
    pub const LOCAL_PREFERENCE: u32 = 100;

    /// Returns them as announced before the end of a maintenance window begins (RFC 8326): with
    /// the community that asks routers to prefer other paths, and the lowest local preference.
    #[must_use]
    pub fn drained(&self) -> Self {
        let mut drained = self.clone();
        drained.communities.insert(Community::GRACEFUL_SHUTDOWN);
        drained.local_preference = Some(0);
        drained
    }
}

// === impl Community ===

impl Community {
    /// `GRACEFUL_SHUTDOWN` (RFC 8326).
    pub const GRACEFUL_SHUTDOWN: Self = Self(0xffff, 0);

    /// Returns it as it is sent.
    pub(crate) fn number(self) -> u32 {
        u32::from(self.0) << 16 | u32::from(self.1)
    }
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0, self.1)
    }
}

// === impl LargeCommunity ===

impl fmt::Display for LargeCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.0, self.1, self.2)
    }
}
