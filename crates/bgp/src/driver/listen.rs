//! Sockets on which routers begin connections.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Neighbor, Wanted, connect};
use crate::peer::{Mode, Password, Peer, PeerAddress};

/// From one attempt to listen to the next, where another program has the port, and from one to
/// accept a connection to the next, where none can be.
const AGAIN: Duration = Duration::from_secs(1);

/// The sockets, of both families.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    port: Option<u16>,
    sockets: Vec<TcpListener>,
    /// When it is attempted again to listen; `None`: all sockets are there.
    retry_at: Option<Instant>,
    keys: BTreeMap<IpNet, Password>,
}

// === impl Listeners ===

impl Listeners {
    /// Listens as configured, with the passwords of all routers.
    pub fn adjust(&mut self, wanted: &Wanted) {
        let now = Instant::now();
        if self.port != wanted.listen {
            self.port = wanted.listen;
            self.sockets.clear();
            self.keys.clear();
            self.retry_at = self.port.map(|_| now);
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.open(now);
        }
        let keys: BTreeMap<_, _> = wanted.peers.values().filter_map(key_of).collect();
        for (from, _) in self.keys.iter().filter(|(it, _)| !keys.contains_key(it)) {
            self.set(from, None);
        }
        for (from, key) in &keys {
            if self.keys.get(from) != Some(key) {
                self.set(from, Some(key));
            }
        }
        self.keys = keys;
    }

    /// Listens where it does not yet. The program that had the port may end: an earlier speaker of
    /// this node, for example.
    fn open(&mut self, now: Instant) {
        let is_first = self.retry_at == Some(now);
        self.retry_at = None;
        for is_ipv6 in [false, true] {
            let is_open =
                |it: &TcpListener| it.local_addr().is_ok_and(|it| it.is_ipv6() == is_ipv6);
            let Some(port) = self.port.filter(|_| !self.sockets.iter().any(is_open)) else {
                continue;
            };
            match connect::listen(port, is_ipv6) {
                Ok(socket) => {
                    info!(port, is_ipv6, "accepts BGP connections");
                    self.sockets.push(socket);
                }
                Err(error) => {
                    if is_first {
                        warn!(port, is_ipv6, %error, "cannot accept BGP connections yet");
                    }
                    self.retry_at = Some(now + AGAIN);
                }
            }
        }
        for (from, key) in &self.keys {
            self.set(from, Some(key));
        }
    }

    /// Waits until it is to be attempted again to listen.
    pub async fn retry(&self) {
        match self.retry_at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    fn set(&self, from: &IpNet, key: Option<&Password>) {
        let of_family = |it: &&TcpListener| {
            let own = it.local_addr();
            own.is_ok_and(|own| own.is_ipv6() == from.addr().is_ipv6())
        };
        for socket in self.sockets.iter().filter(of_family) {
            if let Err(error) = connect::listen_key(socket, from, key) {
                warn!(%from, %error, "the password of a router is not asked for");
            }
        }
    }

    /// Waits for a connection. Where none can be accepted, for want of descriptors for example, it
    /// is attempted again after a while: the socket stays ready, and asking it at once would keep a
    /// core busy and everything else on this thread waiting.
    pub async fn accept(&self) -> (TcpStream, SocketAddr) {
        loop {
            match self.accept_next().await {
                Ok(accepted) => return accepted,
                Err(error) => warn!(%error, "a router's connection was not accepted"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn accept_next(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|cx| {
            for socket in &self.sockets {
                if let Poll::Ready(accepted) = socket.poll_accept(cx) {
                    return Poll::Ready(accepted);
                }
            }
            Poll::Pending
        })
        .await
    }
}

fn key_of(neighbor: &Neighbor) -> Option<(IpNet, Password)> {
    let from = match neighbor.peer.address {
        PeerAddress::Ip(address) => address.into(),
        PeerAddress::Range(network) => network,
        PeerAddress::Interface(_) => return None,
    };
    Some((from, neighbor.peer.password.clone()?))
}

/// Returns the name of the router that connects from an address.
pub(super) fn name_of(wanted: &Wanted, from: SocketAddr) -> Option<Arc<str>> {
    let is_it = |address: &PeerAddress| match (address, from) {
        (PeerAddress::Ip(address), from) => *address == from.ip(),
        (PeerAddress::Interface(name), SocketAddr::V6(from)) => {
            let index = landfall_sys::interfaces::index(name);
            from.ip().is_unicast_link_local() && index == Some(from.scope_id())
        }
        (PeerAddress::Interface(_), SocketAddr::V4(_)) | (PeerAddress::Range(_), _) => false,
    };
    let peers = wanted.peers.iter().filter(|(_, it)| it.peer.vrf.is_none());
    let mut exact = peers.clone().filter(|(_, it)| is_it(&it.peer.address));
    if let Some((name, _)) = exact.next() {
        return Some(Arc::clone(name));
    }
    // Of several ranges the narrowest.
    let ranges = peers.filter_map(|(name, it)| match it.peer.address {
        PeerAddress::Range(network) if network.contains(&from.ip()) => Some((network, name)),
        _ => None,
    });
    let (_, name) = ranges.max_by_key(|(network, _)| network.prefix_len())?;
    Some(format!("{name}{OF_RANGE}{}", from.ip()).into())
}

/// Stands between the name of a range and the address of a router.
const OF_RANGE: char = '/';

/// Returns the name of the peer as it is configured: for a router of a range that of the range.
pub fn configured(name: &str) -> &str {
    name.split_once(OF_RANGE).map_or(name, |(range, _)| range)
}

/// Returns a router by its name, which may be one of a range; `None`: it is not wanted.
pub(super) fn neighbor_of(wanted: &Wanted, name: &str) -> Option<Neighbor> {
    let neighbor = wanted.peers.get(configured(name))?;
    let PeerAddress::Range(network) = neighbor.peer.address else {
        return Some(neighbor.clone()).filter(|_| configured(name) == name);
    };
    let (_, address) = name.split_once(OF_RANGE)?;
    let address: IpAddr = address.parse().ok()?;
    let peer = Peer {
        address: PeerAddress::Ip(address),
        mode: Mode::Passive,
        ..neighbor.peer.clone()
    };
    let routes = Arc::clone(&neighbor.routes);
    network
        .contains(&address)
        .then_some(Neighbor { peer, routes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::peer;

    fn wanted(peers: &[(&str, PeerAddress)]) -> Wanted {
        let neighbor = |address: &PeerAddress| Neighbor {
            peer: Peer {
                address: address.clone(),
                ..peer()
            },
            routes: Arc::default(),
        };
        let peers = peers.iter();
        Wanted {
            peers: peers
                .map(|(name, it)| ((*name).into(), neighbor(it)))
                .collect(),
            ..Wanted::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_gives_no_connection_is_asked_again_after_a_while_and_not_at_once() {
        let socket = connect::listen(0, false).unwrap();
        // From now on it is always ready, and always fails.
        socket2::SockRef::from(&socket)
            .shutdown(std::net::Shutdown::Both)
            .unwrap();
        let listeners = Listeners {
            sockets: vec![socket],
            ..Listeners::default()
        };
        assert!(listeners.accept_next().await.is_err());
        let others = async {
            for _ in 0..10 {
                tokio::time::sleep(AGAIN).await;
            }
        };
        tokio::select! {
            biased;
            _ = listeners.accept() => panic!("there was no connection"),
            () = others => {}
        }
    }

    #[tokio::test]
    async fn a_port_that_another_program_has_is_listened_on_once_that_ends() {
        let other = connect::listen(0, false).unwrap();
        let port = other.local_addr().unwrap().port();
        let wanted = Wanted {
            listen: Some(port),
            ..Wanted::default()
        };
        let mut listeners = Listeners::default();
        let is_open = |it: &Listeners| {
            it.sockets
                .iter()
                .any(|it| it.local_addr().unwrap().is_ipv4())
        };
        listeners.adjust(&wanted);
        assert!(!is_open(&listeners));
        drop(other);
        let opened = async {
            while !is_open(&listeners) {
                listeners.retry().await;
                listeners.adjust(&wanted);
            }
        };
        tokio::time::timeout(Duration::from_secs(60), opened)
            .await
            .unwrap();
    }

    #[test]
    fn a_router_is_found_by_its_address_or_the_narrowest_range_around_it() {
        let range = |text: &str| PeerAddress::Range(text.parse().unwrap());
        let wanted = wanted(&[
            ("one", PeerAddress::Ip([10, 0, 0, 1].into())),
            ("narrow", range("10.0.0.0/24")),
            ("wide", range("10.0.0.0/8")),
        ]);
        for (from, name) in [
            ("10.0.0.1:7", Some("one")),
            ("10.0.0.2:7", Some("narrow/10.0.0.2")),
            ("10.0.1.2:7", Some("wide/10.0.1.2")),
            ("192.0.2.1:7", None),
            ("[2001:db8::1]:7", None),
        ] {
            let found = name_of(&wanted, from.parse().unwrap());
            assert_eq!(found.as_deref(), name, "{from}");
            let Some(found) = found else { continue };
            let neighbor = neighbor_of(&wanted, &found).unwrap();
            let address: SocketAddr = from.parse().unwrap();
            assert_eq!(neighbor.peer.address, PeerAddress::Ip(address.ip()));
        }
        // A range is no router, a router has no others, and none is outside of its range.
        for name in [
            "narrow",
            "one/10.0.0.1",
            "narrow/10.0.1.2",
            "narrow/x",
            "gone/10.0.0.2",
        ] {
            assert!(neighbor_of(&wanted, name).is_none(), "{name}");
        }
    }
}
