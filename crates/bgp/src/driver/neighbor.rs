//! The router at the other end of a link without configured addresses: it and this node learn each
//! other's link-local address by router advertisements (RFC 4861).

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

/// How long one search takes; a router answers a solicitation within half a second.
const TIMEOUT: Duration = Duration::from_secs(8);

/// The time between two solicitations.
const REPEAT: Duration = Duration::from_secs(2);

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// A router solicitation without options. The kernel fills in the checksum.
const SOLICITATION: [u8; 8] = [133, 0, 0, 0, 0, 0, 0, 0];

const TYPE_ADVERTISEMENT: u8 = 134;

/// A router advertisement that offers nothing: a lifetime of zero is no default route.
const ADVERTISEMENT: [u8; 16] = [
    TYPE_ADVERTISEMENT,
    0,
    0,
    0,
    64,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
];

/// Waits for a router on an interface, and returns its link-local address.
pub(super) async fn find(interface: u32) -> io::Result<Ipv6Addr> {
    let socket = open(interface)?;
    let end = Instant::now() + TIMEOUT;
    let mut room = [0; 1500];
    let to = |group| SocketAddr::from(SocketAddrV6::new(group, 0, 0, interface));
    while Instant::now() < end {
        // Routers that wait for this node to be one learn its address by this.
        socket.send_to(&ADVERTISEMENT, to(ALL_NODES)).await?;
        socket.send_to(&SOLICITATION, to(ALL_ROUTERS)).await?;
        let until = end.min(Instant::now() + REPEAT);
        while let Ok(received) = timeout_at(until, socket.recv_from(&mut room)).await {
            let (_, from) = received?;
            if let SocketAddr::V6(from) = from
                && from.ip().is_unicast_link_local()
                && from.scope_id() == interface
            {
                return Ok(*from.ip());
            }
        }
    }
    let why = "no router advertisement was received";
    Err(io::Error::new(io::ErrorKind::TimedOut, why))
}

/// Opens a raw socket, which tokio reads and writes as one of UDP.
fn open(interface: u32) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    socket.set_nonblocking(true)?;
    socket.set_multicast_if_v6(interface)?;
    socket.set_multicast_hops_v6(255)?;
    socket.set_multicast_loop_v6(false)?;
    landfall_sys::bgp::set_least_ttl(&socket, true, 255)?;
    landfall_sys::bgp::only_icmpv6(&socket, TYPE_ADVERTISEMENT)?;
    UdpSocket::from_std(socket.into())
}
