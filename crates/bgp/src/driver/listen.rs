//! Sockets on which routers begin connections.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Neighbor, Wanted, connect};
use crate::peer::{Password, PeerAddress};

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
