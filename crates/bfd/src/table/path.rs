//! What a session runs over.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::Datagram;

/// What a session runs over. Two sessions differ in some part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// The address of the other side.
    pub peer: IpAddr,
    /// Whether routers are between.
    pub hops: Hops,
    /// The interface to the other side. Link-local addresses need one.
    pub interface: Option<Arc<str>>,
    /// The VRF.
    pub vrf: Option<Arc<str>>,
    /// The address of this side; the kernel's choice if left out.
    pub local: Option<IpAddr>,
}

/// Whether routers are between two systems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hops {
    /// None: RFC 5881.
    #[default]
    Single,
    /// Maybe some: RFC 5883.
    Multi,
}

// === impl Path ===

impl Path {
    /// Returns a path to a neighbour, without anything that it need not state.
    pub fn to(peer: IpAddr) -> Self {
        Self {
            peer,
            hops: Hops::Single,
            interface: None,
            vrf: None,
            local: None,
        }
    }

    /// Returns whether a datagram can have come over the path.
    pub(super) fn is_way_of(&self, datagram: &Datagram<'_>) -> bool {
        self.peer == datagram.from
            && self.hops == datagram.hops
            && self.vrf.as_deref() == datagram.vrf
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.peer)?;
        if let Some(interface) = &self.interface {
            write!(f, "%{interface}")?;
        }
        if let Some(vrf) = &self.vrf {
            write!(f, " in VRF {vrf}")?;
        }
        if self.hops == Hops::Multi {
            f.write_str(" over several hops")?;
        }
        Ok(())
    }
}
