//! Options of sockets that BGP asks for: keys of TCP (RFC 2385), the least TTL (RFC 5082), and
//! which messages of `ICMPv6` are received.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use crate::address::RawAddress;
use crate::{check, size_of};

/// `struct tcp_md5sig` of `linux/tcp.h`, which libc does not have.
#[repr(C)]
struct Md5Key {
    /// `struct __kernel_sockaddr_storage`.
    address: RawAddress,
    rest: [u8; 128 - std::mem::size_of::<RawAddress>()],
    flags: u8,
    prefix_length: u8,
    key_length: u16,
    interface: libc::c_int,
    key: [u8; LONGEST_KEY],
}

/// `TCP_MD5SIG_FLAG_PREFIX`, which libc does not have.
const FLAG_PREFIX: u8 = 1;

/// `TCP_MD5SIG_MAXKEYLEN`.
pub const LONGEST_KEY: usize = 80;

/// Signs all segments to and from an address with a key, and takes no others; without a key no
/// longer. On a connection it replaces the key that it has. A listening socket may have a key for
/// each of many addresses; they must be of the socket's family.
pub fn set_md5_key(socket: impl AsFd, peer: IpAddr, key: &[u8]) -> io::Result<()> {
    set_key(socket, peer, None, key)
}

/// Asks for a key from all addresses that begin with so many bits of this one, on a listening
/// socket; without a key no longer.
pub fn set_md5_key_of_prefix(
    socket: impl AsFd,
    (address, length): (IpAddr, u8),
    key: &[u8],
) -> io::Result<()> {
    set_key(socket, address, Some(length), key)
}

fn set_key(socket: impl AsFd, peer: IpAddr, prefix: Option<u8>, key: &[u8]) -> io::Result<()> {
    if key.len() > LONGEST_KEY {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut all = [0; LONGEST_KEY];
    if let Some(room) = all.get_mut(..key.len()) {
        room.copy_from_slice(key);
    }
    let value = Md5Key {
        address: RawAddress::new(SocketAddr::new(peer, 0)),
        rest: [0; 128 - std::mem::size_of::<RawAddress>()],
        flags: prefix.map_or(0, |_| FLAG_PREFIX),
        prefix_length: prefix.unwrap_or_default(),
        key_length: key.len() as u16,
        interface: 0,
        key: all,
    };
    let option = prefix.map_or(libc::TCP_MD5SIG, |_| libc::TCP_MD5SIG_EXT);
    let set = set(socket, libc::IPPROTO_TCP, option, &value);
    match set {
        // There was none to remove.
        Err(error) if key.is_empty() && error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

/// Drops packets whose TTL is lower when they arrive, so that none from farther away gets through.
pub fn set_least_ttl(socket: impl AsFd, is_ipv6: bool, ttl: u8) -> io::Result<()> {
    let value = libc::c_int::from(ttl);
    if is_ipv6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT, &value)
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_MINTTL, &value)
    }
}

/// Lets a raw socket of `ICMPv6` receive messages of one type only.
pub fn only_icmpv6(socket: impl AsFd, kind: u8) -> io::Result<()> {
    let mut blocked = [u32::MAX; 8];
    if let Some(word) = blocked.get_mut(usize::from(kind >> 5)) {
        *word &= !(1 << (kind & 31));
    }
    set(socket, libc::IPPROTO_ICMPV6, ICMP6_FILTER, &blocked)
}

/// Of `linux/icmpv6.h`.
const ICMP6_FILTER: libc::c_int = 1;

fn set<T>(socket: impl AsFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` lives across the call and is as long as stated.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>(),
        )
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use socket2::{Domain, SockAddr, Socket, Type};

    use super::*;

    fn connect(to: SocketAddr, key: &[u8]) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        set_md5_key(&socket, to.ip(), key)?;
        socket.connect_timeout(&SockAddr::from(to), Duration::from_millis(300))?;
        Ok(socket.into())
    }

    #[test]
    fn only_a_client_with_the_key_can_connect() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let to = listener.local_addr().unwrap();
            set_md5_key(&listener, to.ip(), b"secret").unwrap();
            assert!(connect(to, b"wrong").is_err());
            assert!(connect(to, b"").is_err());
            let mut client = connect(to, b"secret").unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(b"one").unwrap();
            let mut room = [0; 3];
            server.read_exact(&mut room).unwrap();
            // Both sides change it while they are connected.
            set_md5_key(&client, to.ip(), b"other").unwrap();
            set_md5_key(&server, to.ip(), b"other").unwrap();
            client.write_all(b"two").unwrap();
            server.read_exact(&mut room).unwrap();
            assert_eq!(&room, b"two");
            set_md5_key(&listener, to.ip(), b"").unwrap();
            connect(to, b"").unwrap();
        }
    }

    #[test]
    fn a_key_of_an_address_counts_more_than_one_of_a_range_from_which_nothing_is_exempt() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let from = |last: u8, key: &[u8]| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let own = SocketAddr::from(([127, 0, 0, last], 0));
            socket.bind(&own.into()).unwrap();
            set_md5_key(&socket, to.ip(), key).unwrap();
            let limit = Duration::from_millis(300);
            socket.connect_timeout(&to.into(), limit).is_ok()
        };
        set_md5_key_of_prefix(&listener, ([127, 0, 0, 0].into(), 8), b"range").unwrap();
        set_md5_key(&listener, [127, 0, 0, 2].into(), b"own").unwrap();
        assert!(from(2, b"own") && !from(2, b"range") && !from(2, b""));
        assert!(from(3, b"range") && !from(3, b""));
        // Without a key of its own it is one of the range again.
        set_md5_key(&listener, [127, 0, 0, 2].into(), b"").unwrap();
        assert!(from(2, b"range") && !from(2, b""));
    }

    #[test]
    fn a_key_that_is_too_long_is_refused_and_none_can_be_removed_twice() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let peer = IpAddr::from([127, 0, 0, 1]);
        assert!(set_md5_key(&socket, peer, &[b'k'; 81]).is_err());
        set_md5_key(&socket, peer, &[b'k'; 80]).unwrap();
        set_md5_key(&socket, peer, b"").unwrap();
        set_md5_key(&socket, peer, b"").unwrap();
    }

    #[test]
    fn packets_with_a_lower_ttl_do_not_arrive() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_least_ttl(&listener, false, 255).unwrap();
        let to = listener.local_addr().unwrap();
        let near = |ttl| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_ttl_v4(ttl).unwrap();
            socket.connect_timeout(&SockAddr::from(to), Duration::from_millis(300))
        };
        assert!(near(254).is_err());
        near(255).unwrap();
        let ipv6 = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
        set_least_ttl(&ipv6, true, 255).unwrap();
    }
}
