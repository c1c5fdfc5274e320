//! Listening sockets: one per worker on the same port, which no other process holds.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};

use crate::routes;

/// How many connections may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Room for datagrams that arrive in a burst; the kernel caps it at `net.core.rmem_max`.
const DATAGRAM_ROOM: usize = 1 << 20;

/// Which addresses a socket may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addresses {
    /// Those that the kernel takes as this machine's.
    #[default]
    Local,
    /// Any (`IP_TRANSPARENT`, which takes the capability `NET_ADMIN` or `NET_RAW`): what is sent to
    /// it arrives as soon as a route of whatever table brings it here.
    Any,
}

/// Opens `count` TCP sockets that share one port. Fails with "address in use" if any other socket
/// holds the port, even one of the same user that would be willing to share.
pub fn tcp(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    Addresses::Local.tcp(address, count)
}

/// Opens `count` more sockets on a port that sockets of this user hold already, of this process or
/// of another one that opened them with [`tcp`] or this function. Connections go to either until
/// one of the two closes its own.
pub fn more_tcp(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    Addresses::Local.more_tcp(address, count)
}

/// Begins no more handshakes on a listening socket: the kernel drops SYN segments, which their
/// clients send again after a second (RFC 6298, section 2) and which then reach the sockets that
/// listen on the port at that time. Handshakes under way end, and what waits in the queue stays.
/// Affects every copy of the socket, also those of other processes.
pub fn end_handshakes(socket: &TcpListener) -> io::Result<()> {
    // Instructions of the kernel's classic BPF, applied to the TCP header: of SYN and ACK in byte
    // 13, only SYN is set.
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    SockRef::from(socket).attach_filter(&[
        SockFilter::new(LOAD_BYTE, 0, 0, 13),
        SockFilter::new(AND, 0, 0, 0x12),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, 0x02),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ])
}

// === impl Addresses ===

impl Addresses {
    /// As [`tcp`], with any of these addresses.
    pub fn tcp(self, address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
        let one = |position| one_tcp(self, address, position > 0);
        (0..count).map(one).collect()
    }

    /// As [`more_tcp`], with any of these addresses.
    pub fn more_tcp(self, address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
        (0..count).map(|_| one_tcp(self, address, true)).collect()
    }

    /// As [`udp`], with any of these addresses.
    pub fn udp(self, address: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>> {
        let one = |position| one_udp(self, address, position > 0);
        (0..count).map(one).collect()
    }

    /// As [`more_udp`], with any of these addresses.
    pub fn more_udp(self, address: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>> {
        (0..count).map(|_| one_udp(self, address, true)).collect()
    }
}

fn one_tcp(addresses: Addresses, address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = bind(addresses, address, Type::STREAM, shared)?;
    // Inherited by accepted connections, which saves a call for each.
    socket.set_tcp_nodelay(true)?;
    socket.listen(BACKLOG)?;
    share(&socket)?;
    Ok(socket.into())
}

/// As [`tcp`], for UDP.
pub fn udp(address: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>> {
    Addresses::Local.udp(address, count)
}

/// As [`more_tcp`], for UDP.
pub fn more_udp(address: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>> {
    Addresses::Local.more_udp(address, count)
}

fn one_udp(addresses: Addresses, address: SocketAddr, shared: bool) -> io::Result<UdpSocket> {
    let socket = bind(addresses, address, Type::DGRAM, shared)?;
    share(&socket)?;
    // A smaller buffer still serves; bursts then lose datagrams earlier.
    let _ = socket.set_recv_buffer_size(DATAGRAM_ROOM);
    Ok(socket.into())
}

/// The first socket takes the port for itself alone, and only then lets others share it: two
/// processes that open a port at the same moment can't both get it.
fn share(socket: &Socket) -> io::Result<()> {
    socket.set_reuse_port(true)
}

/// Whether a local route brings an IPv6 address here that no interface has. To bind one takes leave
/// that is not given for any other address: a listener there would get no client.
fn is_routed(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V6(address) => routes::is_local(address).unwrap_or(false),
        IpAddr::V4(_) => false,
    }
}

fn bind(addresses: Addresses, address: SocketAddr, kind: Type, shared: bool) -> io::Result<Socket> {
    let protocol = if kind == Type::STREAM {
        Protocol::TCP
    } else {
        Protocol::UDP
    };
    let socket = Socket::new(
        Domain::for_address(address),
        kind.nonblocking(),
        Some(protocol),
    )?;
    if kind == Type::STREAM {
        // Remains of earlier connections (TIME-WAIT) must not keep a restarted process out. On UDP
        // the same option would let two sockets have the port.
        socket.set_reuse_address(true)?;
    }
    if shared {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    match (addresses, address) {
        (Addresses::Local, _) => {}
        (Addresses::Any, SocketAddr::V4(_)) => socket.set_ip_transparent_v4(true)?,
        (Addresses::Any, SocketAddr::V6(_)) => socket.set_ip_transparent_v6(true)?,
    }
    match socket.bind(&address.into()) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable && is_routed(address) => {
            rustix::net::sockopt::set_ipv6_freebind(&socket, true)?;
            socket.bind(&address.into())?;
        }
        bound => bound?,
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn sockets_of_one_opening_share_the_port_and_others_are_kept_out() {
        let mine = tcp("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let address = mine[0].local_addr().unwrap();
        let refused = tcp(address, 2).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(mine);
        assert_eq!(tcp(address, 2).unwrap().len(), 2);
    }

    #[test]
    fn a_udp_port_of_a_socket_that_would_share_is_in_use() {
        let mine = udp("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let address = mine[0].local_addr().unwrap();
        assert_eq!(
            udp(address, 2).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        drop(mine);
        assert_eq!(udp(address, 2).unwrap().len(), 2);
    }

    #[test]
    fn a_replica_that_takes_over_opens_a_port_beside_the_one_that_still_serves() {
        let (address, mine) = free_port(|address| tcp(address, 2));
        let theirs = more_tcp(address, 2).unwrap();
        drop(mine);
        let _client = std::net::TcpStream::connect(address).unwrap();
        let accepted = theirs.iter().filter(|it| it.accept().is_ok()).count();
        assert_eq!(accepted, 1);
        let (address, _mine) = free_port(|address| udp(address, 2));
        assert_eq!(more_udp(address, 2).unwrap().len(), 2);
    }

    #[test]
    fn a_socket_that_begins_no_handshakes_gives_what_waits_and_leaves_the_rest_to_others() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let mine = tcp(address.parse().unwrap(), 1).unwrap().remove(0);
            let address = mine.local_addr().unwrap();
            let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(100));
            let _waits = connect().unwrap();
            end_handshakes(&mine).unwrap();
            assert_eq!(connect().unwrap_err().kind(), io::ErrorKind::TimedOut);
            mine.accept().unwrap();
            let beside = more_tcp(address, 1).unwrap().remove(0);
            let comes = std::thread::spawn(move || TcpStream::connect(address).unwrap());
            drop(mine);
            let _client = comes.join().unwrap();
            beside.accept().unwrap();
        }
    }

    #[test]
    fn beside_a_socket_that_does_not_share_no_port_is_opened() {
        let exclusive = TcpListener::bind("127.0.0.1:0").unwrap();
        let refused = more_tcp(exclusive.local_addr().unwrap(), 1).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        let exclusive = UdpSocket::bind("127.0.0.1:0").unwrap();
        let refused = more_udp(exclusive.local_addr().unwrap(), 1).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn every_socket_of_a_port_gets_its_share_of_connections() {
        let (address, sockets) = free_port(|address| tcp(address, 2));
        let clients: Vec<_> = (0..64)
            .map(|_| std::net::TcpStream::connect(address).unwrap())
            .collect();
        let accepted: Vec<usize> = sockets
            .iter()
            .map(|socket| std::iter::from_fn(|| socket.accept().ok()).count())
            .collect();
        assert_eq!(accepted.iter().sum::<usize>(), clients.len());
        assert!(accepted.iter().all(|count| *count > 0), "{accepted:?}");
    }

    #[test]
    fn every_socket_of_a_port_gets_its_share_of_datagrams() {
        let (address, sockets) = free_port(|address| udp(address, 2));
        for _ in 0..64 {
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client.send_to(b"x", address).unwrap();
        }
        let received: Vec<usize> = sockets
            .iter()
            .map(|socket| std::iter::from_fn(|| socket.recv(&mut [0]).ok()).count())
            .collect();
        assert_eq!(received.iter().sum::<usize>(), 64);
        assert!(received.iter().all(|count| *count > 0), "{received:?}");
    }

    #[test]
    fn of_many_that_open_a_port_at_once_one_gets_it() {
        for _ in 0..50 {
            let (address, mine) = free_port(|address| tcp(address, 1));
            drop(mine);
            let race = std::sync::Barrier::new(4);
            let opened = std::thread::scope(|scope| {
                let racers: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            race.wait();
                            let sockets = tcp(address, 2);
                            race.wait();
                            sockets.is_ok()
                        })
                    })
                    .collect();
                racers
                    .into_iter()
                    .filter_map(|it| it.join().ok())
                    .filter(|it| *it)
                    .count()
            });
            assert!(opened <= 1, "{opened} share {address}");
        }
    }

    /// Opens sockets on a port that is free.
    fn free_port<T>(open: impl Fn(SocketAddr) -> io::Result<Vec<T>>) -> (SocketAddr, Vec<T>) {
        loop {
            let probe = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = probe.local_addr().unwrap();
            drop(probe);
            if let Ok(sockets) = open(address) {
                return (address, sockets);
            }
        }
    }

    #[test]
    fn as_root_an_address_that_no_interface_has_can_be_had_in_advance() {
        for address in ["192.0.2.1:7949", "[2001:db8::1]:7949"] {
            let address = address.parse().unwrap();
            assert_eq!(Addresses::Any.tcp(address, 2).unwrap().len(), 2);
            assert_eq!(Addresses::Any.udp(address, 2).unwrap().len(), 2);
        }
    }

    #[test]
    fn an_address_of_another_machine_cannot_be_bound() {
        let refused = tcp("192.0.2.1:80".parse().unwrap(), 1).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
