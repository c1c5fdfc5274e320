//! Facts about an accepted connection that everything behind the accept needs. Plain data.

use std::net::SocketAddr;

/// The ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// The client: named by the PROXY protocol header of a trusted peer, else the peer itself.
    /// Allowed sources, `SOURCE_IP`, affinity and forwarding headers go by this one.
    pub client: SocketAddr,
    /// The other end of the TCP connection.
    pub peer: SocketAddr,
    /// The address and port that the client wanted: the listener's own, or the PROXY header's.
    pub local: SocketAddr,
    /// Whether TLS ends here.
    pub secure: bool,
}

// === impl Inbound ===

impl Inbound {
    /// A connection whose peer is the client.
    pub fn direct(peer: SocketAddr, local: SocketAddr) -> Self {
        Self {
            client: peer,
            peer,
            local,
            secure: false,
        }
    }
}
