//! Connections with a router, as their driver sees them.

use std::net::SocketAddr;

use super::Session;
use crate::advertise::NextHops;

/// A connection of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(u64);

/// Which side began a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This one.
    Outgoing,
    /// The router.
    Incoming,
}

/// A connection that came up.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// Which side began it.
    pub side: Side,
    /// This side's address.
    pub local: SocketAddr,
    /// The router's.
    pub remote: SocketAddr,
    /// Addresses that can be next hops.
    pub next_hops: NextHops,
}

// === impl LinkId ===

impl LinkId {
    /// Returns the one after it.
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

// === impl Session ===

impl Session {
    /// Takes which addresses can be next hops of each connection from now on. Routes that get
    /// another one are sent again.
    pub fn follow_next_hops(&mut self, find: impl Fn(&Connection) -> NextHops) {
        for link in &mut self.links {
            link.set_next_hops(find(&link.connection));
        }
    }
}
