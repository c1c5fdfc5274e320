//! Echoes: sent as whole IPv4 packets to the MAC address of the other side, and received the same
//! way, because the kernel takes no packet from the network that claims to be its own.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use landfall_sys::neighbour::mac_of;
use landfall_sys::packet::{Instruction, NetworkSocket};
use rustix::net::netdevice::index_to_name;

use crate::packet::echo::{ETHER_TYPE, Echo, PORT};
use crate::table::{Hops, Id, Path, Way};

/// Echoes that are taken in a row.
const BATCH: usize = 1_024;

/// How long a MAC address is used before the kernel is asked again.
const FRESH: Duration = Duration::from_secs(1);

/// The sockets, while any session wants echoes.
#[derive(Debug, Default)]
pub(super) struct Echoes {
    sockets: Option<(NetworkSocket, UdpSocket)>,
    /// Why there are none though they are wanted.
    fault: Option<String>,
    neighbors: BTreeMap<Id, Neighbor>,
}

#[derive(Clone, Copy, Debug)]
struct Neighbor {
    mac: [u8; 6],
    asked: Instant,
}

// === impl Echoes ===

impl Echoes {
    /// Opens the sockets if they are missing, or closes them. Without the capability `NET_RAW`
    /// there are no echoes.
    pub(super) fn follow(&mut self, is_wanted: bool) {
        if !is_wanted {
            *self = Self::default();
        } else if self.sockets.is_none() {
            let any = (Ipv4Addr::LOCALHOST, 0);
            let packets = NetworkSocket::open(ETHER_TYPE, &program());
            let both = packets.and_then(|packets| Ok((packets, UdpSocket::bind(any)?)));
            match both {
                Ok(both) => {
                    self.sockets = Some(both);
                    self.fault = None;
                }
                Err(error) => {
                    let fault = format!("cannot send echoes: {error}");
                    if self.fault.as_ref() != Some(&fault) {
                        tracing::warn!(%error, "BFD can send no echoes");
                    }
                    self.fault = Some(fault);
                }
            }
        }
    }

    /// Returns why no echo of a path can be sent; only single hops over IPv4 have echoes.
    pub(super) fn fault(&self, path: &Path) -> Option<String> {
        let has_echoes = path.hops == Hops::Single && path.peer.is_ipv4();
        self.fault.clone().filter(|_| has_echoes)
    }

    /// Forgets a session.
    pub(super) fn forget(&mut self, id: Id) {
        self.neighbors.remove(&id);
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(|(packets, _)| packets.as_fd())
    }

    /// Takes the echoes that are there.
    pub(super) fn receive(&self, mut take: impl FnMut(&Echo)) {
        let mut room = [0; 128];
        let Some((socket, _)) = &self.sockets else {
            return;
        };
        for _ in 0..BATCH {
            let Ok(received) = socket.receive(&mut room) else {
                break;
            };
            let packet = room.get(..received.length).unwrap_or_default();
            if let Some(echo) = Echo::parse(packet) {
                take(&echo);
            }
        }
    }

    /// Sends an echo of a session, from the port of its control packets.
    pub(super) fn send(
        &mut self,
        id: Id,
        port: u16,
        token: u64,
        path: &Path,
        way: Way,
    ) -> io::Result<()> {
        let (Some((packets, any)), IpAddr::V4(peer)) = (&self.sockets, path.peer) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let (Some(IpAddr::V4(address)), Some(interface)) = (way.local, way.interface) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let now = Instant::now();
        let known = self.neighbors.get(&id).copied();
        let mac = if let Some(neighbor) = known.filter(|it| now - it.asked < FRESH) {
            neighbor.mac
        } else {
            let name = index_to_name(any.as_fd(), interface)?;
            let mac = mac_of(any, peer, &name)?.ok_or(io::ErrorKind::HostUnreachable)?;
            self.neighbors.insert(id, Neighbor { mac, asked: now });
            mac
        };
        let echo = Echo {
            address,
            discriminator: id,
            token,
        };
        packets.send(interface, mac, &echo.packet(port))
    }
}

/// Lets UDP to the port of echoes through, if it is addressed to its own sender. All headers have
/// the usual length; others are no echoes of ours.
fn program() -> [Instruction; 10] {
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_HALF: u16 = 0x28;
    const LOAD_WORD: u16 = 0x20;
    const TO_X: u16 = 0x07;
    const EQUALS: u16 = 0x15;
    const EQUALS_X: u16 = 0x1d;
    const RETURN: u16 = 0x06;
    let load = |code, operand| Instruction {
        code,
        if_true: 0,
        if_false: 0,
        operand,
    };
    let check = |code, operand, if_false| Instruction {
        code,
        if_true: 0,
        if_false,
        operand,
    };
    [
        load(LOAD_BYTE, 9),
        check(EQUALS, 17, 7),
        load(LOAD_HALF, 22),
        check(EQUALS, PORT.into(), 5),
        load(LOAD_WORD, 12),
        load(TO_X, 0),
        load(LOAD_WORD, 16),
        check(EQUALS_X, 0, 1),
        load(RETURN, 128),
        load(RETURN, 0),
    ]
}
