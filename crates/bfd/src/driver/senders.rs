//! Sockets that send control packets: one for each session, with a source port of its own (RFC
//! 5881, section 4).

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::net::netdevice::name_to_index;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::packet::echo::TRAFFIC_CLASS;
use crate::table::{Id, Path};

/// The source ports that the RFC allows.
const PORTS: std::ops::RangeInclusive<u16> = 49_152..=u16::MAX;

/// Source ports that are tried before the next second.
const TRIES: usize = 64;

/// The TTL and hop limit of all packets that are sent.
const HOPS: u32 = 255;

/// The sockets, or why there is none.
#[derive(Debug, Default)]
pub(super) struct Senders {
    all: BTreeMap<Id, Sender>,
    random: fastrand::Rng,
}

#[derive(Debug)]
struct Sender {
    path: Arc<Path>,
    socket: Result<Open, String>,
}

#[derive(Debug)]
struct Open {
    socket: Socket,
    to: SockAddr,
    port: u16,
    /// The index of the interface that the path names.
    interface: Option<u32>,
}

// === impl Senders ===

impl Senders {
    /// Opens a socket for a session. Returns the index of the interface that its path names.
    pub(super) fn open(&mut self, id: Id, path: Arc<Path>) -> Option<u32> {
        let socket = open(&path, &mut self.random).map_err(|error| explain(&path, &error));
        let index = socket.as_ref().ok().and_then(|it| it.interface);
        self.all.insert(id, Sender { path, socket });
        index
    }

    pub(super) fn close(&mut self, id: Id) {
        self.all.remove(&id);
    }

    /// Opens again what could not be opened or was lost. Returns what was opened.
    pub(super) fn reopen(&mut self) -> Vec<(Id, Option<u32>)> {
        let failed = self.all.iter().filter(|(_, it)| it.socket.is_err());
        let failed: Vec<_> = failed.map(|(id, it)| (*id, Arc::clone(&it.path))).collect();
        let open = failed
            .into_iter()
            .map(|(id, path)| (id, self.open(id, path)));
        open.collect()
    }

    /// Sends a packet. Never blocks.
    pub(super) fn send(&mut self, id: Id, bytes: &[u8]) -> io::Result<()> {
        let missing = io::ErrorKind::NotConnected;
        let sender = self.all.get_mut(&id).ok_or(missing)?;
        let open = sender.socket.as_ref().map_err(|_| missing)?;
        let Err(error) = open.socket.send_to(bytes, &open.to) else {
            return Ok(());
        };
        // Those pass; after others, such as an interface that is gone, the socket may be of no use.
        let passes = [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionRefused];
        if !passes.contains(&error.kind()) {
            sender.socket = Err(explain(&sender.path, &error));
        }
        Err(error)
    }

    /// The source port of a session.
    pub(super) fn port(&self, id: Id) -> Option<u16> {
        self.all.get(&id)?.socket.as_ref().ok().map(|it| it.port)
    }

    /// Why packets cannot be sent, by path.
    pub(super) fn faults(&self) -> impl Iterator<Item = (&Path, String)> {
        let failed = |it: &'_ Sender| it.socket.as_ref().err().cloned();
        self.all
            .values()
            .filter_map(move |it| Some((&*it.path, failed(it)?)))
    }
}

fn explain(path: &Path, error: &io::Error) -> String {
    format!("cannot send to {path}: {error}")
}

fn open(path: &Path, random: &mut fastrand::Rng) -> io::Result<Open> {
    let (domain, any) = match path.peer {
        IpAddr::V4(_) => (Domain::IPV4, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        IpAddr::V6(_) => (Domain::IPV6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
    };
    let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if path.peer.is_ipv4() {
        socket.set_ttl_v4(HOPS)?;
        socket.set_tos_v4(TRAFFIC_CLASS.into())?;
    } else {
        socket.set_unicast_hops_v6(HOPS)?;
        socket.set_tclass_v6(TRAFFIC_CLASS.into())?;
    }
    let index = path.interface.as_deref();
    let index = index
        .map(|name| name_to_index(socket.as_fd(), name))
        .transpose()?;
    if let Some(device) = path.interface.as_ref().or(path.vrf.as_ref()) {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    let scope = index.unwrap_or_default();
    let port = bind(&socket, path.local.unwrap_or(any), scope, random)?;
    let to = SockAddr::from(address(path.peer, path.hops.port(), scope));
    Ok(Open {
        socket,
        to,
        port,
        interface: index,
    })
}

/// Binds to a free source port.
fn bind(socket: &Socket, local: IpAddr, scope: u32, random: &mut fastrand::Rng) -> io::Result<u16> {
    let mut last = io::ErrorKind::AddrInUse.into();
    for _ in 0..TRIES {
        let port = random.u16(PORTS);
        match socket.bind(&address(local, port, scope).into()) {
            Ok(()) => return Ok(port),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Returns an address with its interface, where it takes one.
fn address(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, port, 0, scope).into()
        }
        ip => SocketAddr::new(ip, port),
    }
}
