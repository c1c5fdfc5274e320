//! Listening sockets: one per worker on the same port, and a probe that nobody else holds it.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

/// How many connections may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Room for datagrams that arrive in a burst; the kernel caps it at `net.core.rmem_max`.
const DATAGRAM_ROOM: usize = 1 << 20;

/// Opens `count` TCP sockets that share one port. Fails with "address in use" if any other socket
/// holds the port, even one of the same user that would be willing to share.
pub fn tcp(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let probe = bind(address, Type::STREAM, false)?;
    drop(probe);
    let sockets = (0..count).map(|_| {
        let socket = bind(address, Type::STREAM, true)?;
        // Inherited by accepted connections, which saves a call for each.
        socket.set_tcp_nodelay(true)?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    });
    sockets.collect()
}

/// As [`tcp`], for UDP.
pub fn udp(address: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>> {
    let probe = bind(address, Type::DGRAM, false)?;
    drop(probe);
    let sockets = (0..count).map(|_| {
        let socket = bind(address, Type::DGRAM, true)?;
        // A smaller buffer still serves; bursts then lose datagrams earlier.
        let _ = socket.set_recv_buffer_size(DATAGRAM_ROOM);
        Ok(socket.into())
    });
    sockets.collect()
}

fn bind(address: SocketAddr, kind: Type, shared: bool) -> io::Result<Socket> {
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
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
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
    fn a_udp_port_of_somebody_who_would_share_is_in_use() {
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
    fn an_address_of_another_machine_cannot_be_bound() {
        let refused = tcp("192.0.2.1:80".parse().unwrap(), 1).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
