//! Sockets on which routers begin connections.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;

use tokio::net::{TcpListener, TcpStream};
use tracing::{debug, warn};

use super::{Wanted, connect};
use crate::peer::{Password, PeerAddress};

/// The sockets, of both families.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    port: Option<u16>,
    sockets: Vec<TcpListener>,
    keys: BTreeMap<IpAddr, Password>,
}

// === impl Listeners ===

impl Listeners {
    /// Listens as configured, with the passwords of all routers.
    pub fn adjust(&mut self, wanted: &Wanted) {
        if self.port != wanted.listen {
            self.port = wanted.listen;
            self.sockets.clear();
            self.keys.clear();
            for is_ipv6 in [false, true] {
                let Some(port) = self.port else { break };
                match connect::listen(port, is_ipv6) {
                    Ok(socket) => self.sockets.push(socket),
                    Err(error) => warn!(port, is_ipv6, %error, "cannot accept BGP connections"),
                }
            }
        }
        let keys: BTreeMap<_, _> = wanted.peers.values().filter_map(key_of).collect();
        for (address, _) in self.keys.iter().filter(|(it, _)| !keys.contains_key(it)) {
            self.set(*address, None);
        }
        for (address, key) in &keys {
            if self.keys.get(address) != Some(key) {
                self.set(*address, Some(key));
            }
        }
        self.keys = keys;
    }

    fn set(&self, address: IpAddr, key: Option<&Password>) {
        let of_family = |it: &&TcpListener| {
            let own = it.local_addr();
            own.is_ok_and(|own| own.is_ipv6() == address.is_ipv6())
        };
        for socket in self.sockets.iter().filter(of_family) {
            if let Err(error) = connect::listen_key(socket, address, key) {
                warn!(%address, %error, "the password of a router is not asked for");
            }
        }
    }

    /// Waits for a connection.
    pub async fn accept(&self) -> (TcpStream, SocketAddr) {
        poll_fn(|cx| {
            for socket in &self.sockets {
                while let Poll::Ready(accepted) = socket.poll_accept(cx) {
                    match accepted {
                        Ok(accepted) => return Poll::Ready(accepted),
                        Err(error) => debug!(%error, "a connection was not accepted"),
                    }
                }
            }
            Poll::Pending
        })
        .await
    }
}

fn key_of(neighbor: &super::Neighbor) -> Option<(IpAddr, Password)> {
    let PeerAddress::Ip(address) = neighbor.peer.address else {
        return None;
    };
    Some((address, neighbor.peer.password.clone()?))
}

/// Returns the name of the router that connects from an address.
pub(super) fn name_of(wanted: &Wanted, from: SocketAddr) -> Option<Arc<str>> {
    let is_it = |address: &PeerAddress| match (address, from) {
        (PeerAddress::Ip(address), from) => *address == from.ip(),
        (PeerAddress::Interface(name), SocketAddr::V6(from)) => {
            let index = landfall_sys::interfaces::index(name);
            from.ip().is_unicast_link_local() && index == Some(from.scope_id())
        }
        (PeerAddress::Interface(_), SocketAddr::V4(_)) => false,
    };
    let mut peers = wanted.peers.iter();
    let found = peers.find(|(_, it)| it.peer.vrf.is_none() && is_it(&it.peer.address));
    found.map(|(name, _)| Arc::clone(name))
}
