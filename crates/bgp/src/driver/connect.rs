//! TCP connections with routers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;

use ipnet::IpNet;
use landfall_sys::{bgp, interfaces};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::address::next_hops;
use super::neighbor;
use crate::error::ConnectProblem;
use crate::peer::{Hops, Password, Peer, PeerAddress, RemoteAsn};
use crate::session::{Connection, Side};

/// Why a connection did not come up.
#[derive(Debug)]
pub(super) struct Failure {
    pub kind: ConnectProblem,
    pub why: String,
}

/// A connection that came up.
pub(super) type Connected = Result<(TcpStream, Connection), Failure>;

/// The most hops, and what GTSM asks for.
const ALL_HOPS: u8 = 255;

/// Connections that wait to be accepted.
pub(super) const BACKLOG: i32 = 64;

/// Connects to a router.
pub(super) async fn connect(peer: Peer) -> Connected {
    let to = find(&peer).await?;
    let socket = socket(&peer, to)?;
    let stream = socket.connect(to).await.map_err(|error| Failure {
        kind: kind_of(&error),
        why: format!("{to}: {error}"),
    })?;
    described(&peer, stream, Side::Outgoing)
}

/// Takes a connection that a router began.
pub(super) fn accepted(peer: &Peer, stream: TcpStream) -> Connected {
    let is_ipv6 = stream.peer_addr().is_ok_and(|it| it.is_ipv6());
    set_hops(peer, &stream, is_ipv6).map_err(|it| failed("TTL", &it))?;
    if peer.password.is_some() {
        // It may have come before the listening socket asked for the key: then it has none.
        rekey(peer, &stream).map_err(|it| failed("TCP MD5", &it))?;
    }
    described(peer, stream, Side::Incoming)
}

/// Uses the password of a peer on a connection with it.
pub(super) fn rekey(peer: &Peer, stream: &TcpStream) -> io::Result<()> {
    set_key(stream, stream.peer_addr()?.ip(), peer.password.as_ref())
}

fn described(peer: &Peer, stream: TcpStream, side: Side) -> Connected {
    let ends = stream
        .local_addr()
        .and_then(|it| Ok((it, stream.peer_addr()?)));
    let (local, remote) = ends.map_err(|it| failed("socket", &it))?;
    // Small messages are not held back for larger ones.
    stream
        .set_nodelay(true)
        .map_err(|it| failed("socket", &it))?;
    let all = interfaces::addresses().map_err(|it| failed("addresses", &it))?;
    let connection = Connection {
        side,
        local,
        remote,
        next_hops: next_hops(peer, local, &all),
    };
    Ok((stream, connection))
}

/// Returns where a router is; one at the end of an interface is waited for.
async fn find(peer: &Peer) -> Result<SocketAddr, Failure> {
    let interface = match &peer.address {
        PeerAddress::Ip(address) => return Ok(SocketAddr::new(*address, peer.port)),
        PeerAddress::Interface(interface) => interface,
        PeerAddress::Range(network) => {
            return Err(Failure {
                kind: ConnectProblem::Other,
                why: format!("a router of {network} is to begin the session"),
            });
        }
    };
    let index = interfaces::index(interface).ok_or_else(|| Failure {
        kind: ConnectProblem::Interface,
        why: format!("there is no interface {interface}"),
    })?;
    let address = neighbor::find(index).await.map_err(|error| Failure {
        kind: match error.kind() {
            io::ErrorKind::TimedOut => ConnectProblem::NoNeighbor,
            _ => kind_of(&error),
        },
        why: format!("{interface}: {error}"),
    })?;
    Ok(SocketAddrV6::new(address, peer.port, 0, index).into())
}

fn socket(peer: &Peer, to: SocketAddr) -> Result<TcpSocket, Failure> {
    let domain = Domain::for_address(to);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP));
    let socket = socket.map_err(|it| failed("socket", &it))?;
    socket
        .set_nonblocking(true)
        .map_err(|it| failed("socket", &it))?;
    if let Some(vrf) = &peer.vrf {
        socket
            .bind_device(Some(vrf.as_bytes()))
            .map_err(|error| Failure {
                kind: match error.raw_os_error() {
                    Some(ENODEV) => ConnectProblem::Interface,
                    _ => kind_of(&error),
                },
                why: format!("VRF {vrf}: {error}"),
            })?;
    }
    set_hops(peer, &socket, to.is_ipv6()).map_err(|it| failed("TTL", &it))?;
    set_key(&socket, to.ip(), peer.password.as_ref()).map_err(|it| failed("TCP MD5", &it))?;
    if let Some(source) = peer.source {
        let from = SocketAddr::new(source, 0);
        socket.bind(&from.into()).map_err(|error| Failure {
            kind: match error.kind() {
                // Of another family, or no address of this node.
                io::ErrorKind::AddrNotAvailable | io::ErrorKind::InvalidInput => {
                    ConnectProblem::Source
                }
                _ => kind_of(&error),
            },
            why: format!("source {source}: {error}"),
        })?;
    }
    Ok(TcpSocket::from_std_stream(socket.into()))
}

/// `ENODEV` of Linux.
const ENODEV: i32 = 19;

fn set_key(socket: impl AsFd, peer: IpAddr, password: Option<&Password>) -> io::Result<()> {
    let key = password.map(Password::reveal).unwrap_or_default();
    match bgp::set_md5_key(socket, peer, key) {
        // A kernel without TCP MD5 has no key to remove.
        Err(_) if key.is_empty() => Ok(()),
        other => other,
    }
}

fn set_hops(peer: &Peer, socket: &impl AsFd, is_ipv6: bool) -> io::Result<()> {
    let internal = match peer.remote_asn {
        RemoteAsn::Number(number) => number == peer.asn,
        RemoteAsn::Internal => true,
        RemoteAsn::External => false,
    };
    let ttl = match peer.hops {
        Hops::Direct if !internal => 1,
        Hops::Direct | Hops::Multihop | Hops::Within(_) => ALL_HOPS,
    };
    let options = SockRef::from(socket);
    if is_ipv6 {
        options.set_unicast_hops_v6(ttl.into())?;
    } else {
        options.set_ttl_v4(ttl.into())?;
    }
    match peer.hops {
        Hops::Within(hops) => {
            let least = ALL_HOPS - hops.max(1) + 1;
            bgp::set_least_ttl(socket, is_ipv6, least)
        }
        Hops::Direct | Hops::Multihop => Ok(()),
    }
}

fn failed(what: &str, error: &io::Error) -> Failure {
    Failure {
        kind: kind_of(error),
        why: format!("{what}: {error}"),
    }
}

fn kind_of(error: &io::Error) -> ConnectProblem {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
            ConnectProblem::Refused
        }
        io::ErrorKind::TimedOut => ConnectProblem::Timeout,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            ConnectProblem::Unreachable
        }
        io::ErrorKind::PermissionDenied => ConnectProblem::Permission,
        _ => ConnectProblem::Other,
    }
}

/// Opens a socket that accepts connections of routers on a port, of one family.
pub(super) fn listen(port: u16, is_ipv6: bool) -> io::Result<TcpListener> {
    let address = if is_ipv6 {
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))
    } else {
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))
    };
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if is_ipv6 {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Asks for a key from routers that connect from these addresses, or no longer.
pub(super) fn listen_key(
    listener: &TcpListener,
    from: &IpNet,
    password: Option<&Password>,
) -> io::Result<()> {
    if from.prefix_len() == from.max_prefix_len() {
        return set_key(listener, from.addr(), password);
    }
    let key = password.map(Password::reveal).unwrap_or_default();
    bgp::set_md5_key_of_prefix(listener, (from.network(), from.prefix_len()), key)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::session::tests::peer;

    #[tokio::test]
    async fn a_connection_that_came_before_its_key_was_asked_for_is_taken_signed_only() {
        let listener = listen(0, false).unwrap();
        let to = (Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
        let mut plain = TcpStream::connect(to).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let keyed = Peer {
            password: Some(Password::new("secret").unwrap()),
            ..peer()
        };
        let (stream, _) = accepted(&keyed, stream).unwrap();
        plain.write_all(b"not signed").await.unwrap();
        // The same host with the key, whose bytes would come later.
        let own = IpAddr::from(Ipv4Addr::LOCALHOST);
        listen_key(&listener, &own.into(), keyed.password.as_ref()).unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        set_key(&socket, own, keyed.password.as_ref()).unwrap();
        let mut signed = socket.connect(to.into()).await.unwrap();
        let (other, _) = listener.accept().await.unwrap();
        let (mut other, _) = accepted(&keyed, other).unwrap();
        signed.write_all(b"signed").await.unwrap();
        let mut room = [0; 6];
        other.read_exact(&mut room).await.unwrap();
        assert_eq!(&room, b"signed");
        let read = stream.try_read(&mut room);
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
