//! Which local port a socket that connects gets: one of the kernel's choice within a range, or a
//! given one.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use crate::address::RawAddress;
use crate::{check, size_of};

/// Not in libc's headers before Linux 6.3.
const IP_LOCAL_PORT_RANGE: libc::c_int = 51;

/// The file with the kernel's range, of the network namespace of the process that reads.
const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// The file with those of them that are reserved for explicit requests.
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

/// The first and the last of these ports where nothing else is configured.
pub const DEFAULT: (u16, u16) = (32_768, 60_999);

/// Returns the first and the last of the ports that the kernel chooses from.
pub fn range() -> io::Result<(u16, u16)> {
    let text = std::fs::read_to_string(RANGE)?;
    parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the first and the last port of each range that the kernel gives only on request
/// for a port of it.
pub fn reserved() -> Vec<(u16, u16)> {
    parse_list(&std::fs::read_to_string(RESERVED).unwrap_or_default())
}

fn parse_list(text: &str) -> Vec<(u16, u16)> {
    let ranges = text.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    ranges.collect()
}

fn parse(text: &str) -> Option<(u16, u16)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    let (first, last) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (first <= last).then_some((first, last))
}

/// Makes the kernel choose among the ports from `first` to `last`, and read each of them in
/// turn. Fails before Linux 6.3.
pub fn choose_within(socket: impl AsFd, first: u16, last: u16) -> io::Result<()> {
    let range = u32::from(last) << 16 | u32::from(first);
    set(socket, libc::SOL_IP, IP_LOCAL_PORT_RANGE, &range)
}

/// Lets a socket have a port that other sockets of this user have, too, if all of them say so, none
/// listens, and they are connected to others.
pub fn share(socket: impl AsFd) -> io::Result<()> {
    let one: libc::c_int = 1;
    set(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &one)
}

/// Gives a socket a port for as long as it lives. What is left of an ended connection (TIME-WAIT)
/// from this port to the same peer then gives way to a new one, where the peer sends TCP
/// timestamps.
pub fn take(socket: impl AsFd, port: u16, v6: bool) -> io::Result<()> {
    let any = if v6 {
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))
    } else {
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))
    };
    let any = RawAddress::new(any);
    // SAFETY: the address lives across the call and is as long as stated.
    check(unsafe { libc::bind(socket.as_fd().as_raw_fd(), any.as_ptr(), any.length()) }).map(drop)
}

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
    use std::net::TcpListener;

    use super::*;
    use crate::stream::Stream;

    #[test]
    fn a_range_is_read_as_the_kernel_writes_it() {
        assert_eq!(parse("32768\t60999\n"), Some((32_768, 60_999)));
        for broken in ["", "1", "2 1", "a b", "1 70000"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
        range().unwrap();
    }

    #[test]
    fn reserved_ports_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("\n"), []);
        assert_eq!(
            parse_list("8080,9148-9150,40000\n"),
            [(8080, 8080), (9148, 9150), (40_000, 40_000)]
        );
    }

    #[test]
    fn a_socket_connects_from_the_range_that_it_was_given() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let member = RawAddress::new(listener.local_addr().unwrap());
            let (first, _) = range().unwrap();
            // Other programs may have all ports of a window.
            let from = |window: u16| {
                let low = first + 100 * window;
                let socket = Stream::new(&member).unwrap();
                choose_within(&socket, low, low + 99).unwrap();
                socket.connect(&member).ok()?;
                let port = listener.accept().unwrap().1.port();
                assert!((low..low + 100).contains(&port), "{port} of {low}");
                Some(())
            };
            assert!((0..100).filter_map(from).count() > 0);
        }
    }

    #[test]
    fn two_sockets_of_a_port_reach_two_peers() {
        let peers = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = peers
            .each_ref()
            .map(|peer| RawAddress::new(peer.local_addr().unwrap()));
        let shared = || {
            let socket = Stream::new(&addresses[0]).unwrap();
            share(&socket).unwrap();
            socket
        };
        // Other programs, too, have some of the ports, and share none.
        let (port, _first, second) = (0..1000)
            .find_map(|_| {
                let (first, second) = (shared(), shared());
                first.connect(&addresses[0]).ok()?;
                let port = peers[0].accept().unwrap().1.port();
                take(&second, port, false).ok()?;
                Some((port, first, second))
            })
            .unwrap();
        let refused = second.connect(&addresses[0]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrNotAvailable);
        second.connect(&addresses[1]).unwrap();
        assert_eq!(peers[1].accept().unwrap().1.port(), port);
    }
}
