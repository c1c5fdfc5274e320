//! What a listener is known by, and the Service that it belongs to. Data only.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use landfall_model::{ListenerKey, Protocol, ServiceKey, Uid};

/// The identity of a listener: the address and the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId {
    /// The address that clients connect to.
    pub address: IpAddr,
    /// Protocol and port.
    pub key: ListenerKey,
}

/// The Service that a listener belongs to. Its identity decides which Service may change and close
/// the listener; its name is for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its identity.
    pub uid: Uid,
    /// Its name.
    pub service: ServiceKey,
}

// === impl ListenerId ===

impl ListenerId {
    /// What a socket of this address and protocol listens on; `None` for port 0.
    pub fn of(address: SocketAddr, protocol: Protocol) -> Option<Self> {
        let port = NonZeroU16::new(address.port())?;
        Some(Self {
            address: address.ip(),
            key: ListenerKey { protocol, port },
        })
    }

    /// Address and port.
    pub fn socket_address(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.key.port.get())
    }
}

impl fmt::Display for ListenerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.socket_address(), self.key.protocol)
    }
}

// === impl Owner ===

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.service.fmt(f)
    }
}
