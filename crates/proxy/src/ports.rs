//! Local ports of connections to members: which ones a socket may get, and what to do when there is
//! none. Never connects.
//!
//! The side that ends a connection first keeps its port for a minute (TIME-WAIT), and toward
//! members that is mostly this side, because clients end first. The kernel takes such a port again
//! only on loopback, unless `net.ipv4.tcp_tw_reuse` is 1. Left to itself it reads the even ports
//! first: once those 14,116 are used it reads all of them for each new connection, which takes
//! milliseconds, and nothing else is served meanwhile. So:
//!
//! - each socket chooses within a window, which is short to look through, and takes the next window
//!   when that one is used up;
//! - when two windows are used up, it is given a port. The kernel then lets the new connection
//!   follow the one in TIME-WAIT, whose segments TCP timestamps distinguish from its own. Ports
//!   take turns, so that a member has had time to forget the last connection. Only the last eighth
//!   of all ports is given so, because the kernel chooses such ports for no other program. Such a
//!   socket is never spare: it would come from the same port each time, and keep it while it is not
//!   connected.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use landfall_sys::local_port;

/// How many sockets are tried for one connection while ports are short.
pub(crate) const ATTEMPTS: u32 = 6;

/// How many of them choose within a window, before the others are given a port.
pub(crate) const WINDOWS_TRIED: u32 = 2;

/// How many ports are asked for, because other programs have some.
const PORTS_TRIED: u32 = 16;

/// Which part of all ports is given: while it is in TIME-WAIT, the kernel chooses none of them for
/// other programs.
const PART: u32 = 8;

/// About so many windows there are.
const WINDOWS: u32 = 64;

/// The ports of this machine for connections to others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ports {
    first: u16,
    count: u32,
    /// Kept for others by the administrator: the kernel gives them only on request.
    reserved: Vec<(u16, u16)>,
}

/// Readies a new socket for one of the [`ATTEMPTS`] to connect. Returns whether it has a port now,
/// which it keeps.
pub(crate) fn ready(socket: impl AsFd, v6: bool, attempt: u32) -> io::Result<bool> {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let socket = socket.as_fd();
    let turn = || TURN.fetch_add(1, Ordering::Relaxed);
    // Without it, ports that are in use are only not given again.
    let _ = local_port::share(socket);
    let Some(ports) = Ports::of_this_machine() else {
        return Ok(false);
    };
    if attempt < WINDOWS_TRIED {
        let (first, last) = ports.window(turn());
        // An older kernel chooses among all ports.
        let _ = local_port::choose_within(socket, first, last);
        return Ok(false);
    }
    take(
        socket,
        v6,
        (0..PORTS_TRIED).filter_map(|_| ports.port(turn())),
    )
}

/// Whether a failure to connect means that there was no port.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse
    )
}

fn take(
    socket: BorrowedFd<'_>,
    v6: bool,
    candidates: impl Iterator<Item = u16>,
) -> io::Result<bool> {
    let mut outcome = Err(io::ErrorKind::AddrNotAvailable.into());
    for port in candidates {
        outcome = local_port::take(socket, port, v6).map(|()| true);
        if !outcome.as_ref().is_err_and(is_shortage) {
            break;
        }
    }
    outcome
}

// === impl Ports ===

impl Ports {
    /// As they were when the first connection was made.
    fn of_this_machine() -> Option<&'static Self> {
        static PORTS: OnceLock<Option<Ports>> = OnceLock::new();
        let read = || Some(Self::new(local_port::range().ok()?, local_port::reserved()));
        PORTS.get_or_init(read).as_ref()
    }

    fn new((first, last): (u16, u16), reserved: Vec<(u16, u16)>) -> Self {
        Self {
            first,
            count: u32::from(last.saturating_sub(first)) + 1,
            reserved,
        }
    }

    /// The first and the last port of a window. Windows take turns, and together they are all
    /// ports.
    fn window(&self, turn: u32) -> (u16, u16) {
        let windows = WINDOWS.min(self.count / 2).max(1);
        let number = turn % windows;
        let begin = |number: u32| u32::from(self.first) + self.count * number / windows;
        (begin(number) as u16, (begin(number + 1) - 1) as u16)
    }

    /// A port of the last ones, unless it is reserved.
    fn port(&self, turn: u32) -> Option<u16> {
        let span = (self.count / PART).max(1);
        let port = (u32::from(self.first) + self.count - span + turn % span) as u16;
        let is_reserved = |&(first, last): &(u16, u16)| (first..=last).contains(&port);
        (!self.reserved.iter().any(is_reserved)).then_some(port)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use landfall_sys::address::RawAddress;
    use landfall_sys::stream::Stream;

    use super::*;

    #[test]
    fn windows_are_all_ports_and_no_port_twice() {
        for range in [(32_768, 60_999), (1024, 65_535), (40_000, 40_003), (5, 5)] {
            let ports = Ports::new(range, Vec::new());
            let windows = WINDOWS.min(ports.count / 2).max(1);
            let mut next = u32::from(range.0);
            for turn in 0..windows {
                let (first, last) = ports.window(turn);
                assert_eq!(u32::from(first), next, "{range:?}");
                next = u32::from(last) + 1;
            }
            assert_eq!(next, u32::from(range.1) + 1, "{range:?}");
            assert_eq!(ports.window(windows), ports.window(0));
        }
    }

    #[test]
    fn ports_are_taken_of_the_last_eighth_and_reserved_ones_are_not() {
        let ports = Ports::new((100, 179), vec![(171, 173), (179, 179)]);
        let taken: Vec<u16> = (0..20).filter_map(|turn| ports.port(turn)).collect();
        let once = [170, 174, 175, 176, 177, 178];
        assert_eq!(taken, [once, once].concat());
        assert_eq!(Ports::new((7, 7), Vec::new()).port(3), Some(7));
        assert_eq!(Ports::new((1, 65_535), Vec::new()).port(8190), Some(65_535));
    }

    #[test]
    fn a_port_that_another_program_has_is_skipped() {
        let (theirs, free) = (listener(), listener());
        let (theirs, ours) = (theirs.1, drop_first(free));
        let member = listener();
        let socket = Stream::new(&RawAddress::new(member.0)).unwrap();
        local_port::share(&socket).unwrap();
        let taken = theirs.local_addr().unwrap().port();
        assert!(take(socket.as_fd(), false, [taken, ours].into_iter()).unwrap());
        socket.connect(&RawAddress::new(member.0)).unwrap();
        assert_eq!(member.1.accept().unwrap().1.port(), ours);
    }

    #[test]
    fn where_others_have_all_ports_the_shortage_is_reported() {
        let (address, _theirs) = listener();
        let socket = Stream::new(&RawAddress::new(address)).unwrap();
        let refused = take(socket.as_fd(), false, std::iter::once(address.port())).unwrap_err();
        assert!(is_shortage(&refused), "{refused}");
        let refused = take(socket.as_fd(), false, std::iter::empty()).unwrap_err();
        assert!(is_shortage(&refused), "{refused}");
    }

    fn listener() -> (std::net::SocketAddr, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (listener.local_addr().unwrap(), listener)
    }

    /// A port that was free a moment ago.
    fn drop_first((address, listener): (std::net::SocketAddr, TcpListener)) -> u16 {
        drop(listener);
        address.port()
    }
}
