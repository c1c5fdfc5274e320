//! Sockets that receive control packets: one for each family, port and VRF that a session needs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use landfall_sys::arrival;
use socket2::{Domain, Protocol, Socket, Type};

use crate::table::{Datagram, Hops, Path, Wanted};

/// The port of single hops (RFC 5881, section 4).
const SINGLE_HOP: u16 = 3784;

/// The port of multihop sessions (RFC 5883, section 5).
const MULTIHOP: u16 = 4784;

/// Datagrams that one socket gives in a row. More than any number of sessions sends while the
/// thread sleeps; a flood waits behind the other sockets.
const BATCH: usize = 1_024;

/// Room for a datagram: longer than any packet, and what is longer still is cut.
const ROOM: usize = 512;

/// What a socket is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    is_ipv6: bool,
    hops: Hops,
    vrf: Option<Arc<str>>,
    /// Whether sockets of several VRFs have the port. Otherwise it has one owner, so that a second
    /// daemon on the node is noticed.
    is_shared: bool,
}

/// The sockets, and why others could not be opened.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    open: BTreeMap<Place, Socket>,
    faults: BTreeMap<Place, String>,
    is_shared: bool,
}

// === impl Hops ===

impl Hops {
    /// The port that packets are sent to.
    pub(super) fn port(self) -> u16 {
        match self {
            Self::Single => SINGLE_HOP,
            Self::Multi => MULTIHOP,
        }
    }
}

// === impl Place ===

impl Place {
    fn of(path: &Path, is_shared: bool) -> Self {
        Self {
            is_ipv6: path.peer.is_ipv6(),
            hops: path.hops,
            vrf: path.vrf.clone(),
            is_shared,
        }
    }

    fn open(&self) -> io::Result<Socket> {
        let (domain, any) = if self.is_ipv6 {
            (Domain::IPV6, IpAddr::V6(Ipv6Addr::UNSPECIFIED))
        } else {
            (Domain::IPV4, IpAddr::V4(Ipv4Addr::UNSPECIFIED))
        };
        let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        if self.is_ipv6 {
            socket.set_only_v6(true)?;
        }
        if self.is_shared {
            socket.set_reuse_address(true)?;
        }
        if let Some(vrf) = &self.vrf {
            socket.bind_device(Some(vrf.as_bytes()))?;
        }
        arrival::report(&socket, self.is_ipv6)?;
        socket.bind(&SocketAddr::new(any, self.hops.port()).into())?;
        Ok(socket)
    }
}

// === impl Listeners ===

impl Listeners {
    /// Opens what is needed and missing, and closes what is not needed.
    pub(super) fn follow(&mut self, wanted: &Wanted) {
        self.is_shared = wanted.keys().any(|path| path.vrf.is_some());
        let place = |path| Place::of(path, self.is_shared);
        let places: BTreeSet<Place> = wanted.keys().map(place).collect();
        self.open.retain(|place, _| places.contains(place));
        self.faults.clear();
        for place in places {
            if self.open.contains_key(&place) {
                continue;
            }
            match place.open() {
                Ok(socket) => {
                    self.open.insert(place, socket);
                }
                Err(error) => {
                    let port = place.hops.port();
                    let hint = match error.kind() {
                        io::ErrorKind::AddrInUse => "; does another BFD daemon run on this node?",
                        _ => "",
                    };
                    let fault = format!("cannot receive on UDP port {port}: {error}{hint}");
                    self.faults.insert(place, fault);
                }
            }
        }
    }

    /// Why no packet of a path can be received.
    pub(super) fn fault(&self, path: &Path) -> Option<String> {
        self.faults.get(&Place::of(path, self.is_shared)).cloned()
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.open.values().map(AsFd::as_fd)
    }

    /// Takes the datagrams that are there.
    pub(super) fn receive(&self, mut take: impl FnMut(&Datagram<'_>)) {
        let mut room = [0; ROOM];
        for (place, socket) in &self.open {
            for _ in 0..BATCH {
                // An error of a datagram that was sent is none of a socket that only receives.
                let Ok(arrival) = arrival::receive(socket, &mut room) else {
                    break;
                };
                take(&Datagram {
                    from: arrival.from.ip(),
                    to: arrival.to,
                    interface: arrival.interface,
                    hops: place.hops,
                    vrf: place.vrf.as_deref(),
                    ttl: arrival.hops,
                    bytes: room.get(..arrival.length).unwrap_or_default(),
                });
            }
        }
    }
}
