//! Sockets toward members. A socket whose connection both sides have ended in order is dissolved
//! and used for the next member connection: that saves making a socket, its file and its
//! registration, about a tenth of what a short connection costs. Owns spare sockets; never chooses
//! a member.

use std::io;
use std::net::SocketAddr;

use landfall_sys::address::RawAddress;
use landfall_sys::epoll::{Epoll, Watch};
use landfall_sys::stream::{Half, Stream, unacknowledged};

use crate::ports;

/// How many spare sockets of each family a worker keeps, however many descriptors there are.
const MAX_SPARES: usize = 128;

const NO_USER: u32 = u32::MAX;

/// After the windows were of no use to a member, so many connections to it look into none.
const SHORT: u32 = 256;

/// A socket toward a member, registered for events under its own number for as long as it lives.
#[derive(Debug)]
pub(super) struct MemberSocket {
    pub(super) stream: Stream,
    number: u32,
    v6: bool,
    nodelay: bool,
    /// It has a port of its own, also while it is not connected.
    has_port: bool,
}

/// All member sockets of a worker: which connection uses which, and the spare ones.
#[derive(Debug)]
pub(super) struct MemberSockets {
    /// Place of the connection that uses the outlet with this number, and since which pass.
    users: Vec<(u32, u32)>,
    /// How many spare sockets of each family are kept.
    most_spares: usize,
    /// The present pass of the engine.
    pass: u32,
    free: Vec<u32>,
    spare_v4: Vec<MemberSocket>,
    spare_v6: Vec<MemberSocket>,
    /// The member that ports were last short for, and how many connections are to know.
    short: Option<(SocketAddr, u32)>,
}

// === impl MemberSocket ===

impl MemberSocket {
    /// Sends small pieces at once from now on.
    pub(super) fn set_nodelay(&mut self) {
        if !self.nodelay {
            // Without it, pieces are only later.
            self.nodelay = self.stream.set_nodelay().is_ok();
        }
    }
}

// === impl MemberSockets ===

impl MemberSockets {
    /// No socket yet; at most `spares` of each family are kept.
    pub(super) fn new(spares: usize) -> Self {
        Self {
            users: Vec::new(),
            most_spares: spares.min(MAX_SPARES),
            pass: 0,
            free: Vec::new(),
            spare_v4: Vec::new(),
            spare_v6: Vec::new(),
            short: None,
        }
    }

    /// A socket that connects to a member, for the connection at place `user`. Its events carry
    /// `token` of its number.
    pub(super) fn connect(
        &mut self,
        epoll: &Epoll,
        member: SocketAddr,
        address: &RawAddress,
        user: u32,
        token: impl Fn(u32) -> u64,
    ) -> io::Result<MemberSocket> {
        let v6 = member.is_ipv6();
        let mut attempt = self.first_attempt(member);
        loop {
            let member_socket = self.open(epoll, v6, address, user, attempt, &token)?;
            attempt += 1;
            match member_socket.stream.connect(address) {
                Ok(()) => return Ok(member_socket),
                Err(error) => {
                    self.close(member_socket, false);
                    if !ports::is_shortage(&error) || attempt >= ports::ATTEMPTS {
                        return Err(error);
                    }
                    if attempt == ports::WINDOWS_TRIED {
                        self.short = Some((member, SHORT));
                    }
                }
            }
        }
    }

    /// With which attempt a connection to a member begins.
    fn first_attempt(&mut self, member: SocketAddr) -> u32 {
        match &mut self.short {
            Some((short, left)) if *short == member && *left > 0 => {
                *left -= 1;
                ports::WINDOWS_TRIED
            }
            _ => 0,
        }
    }

    /// A socket, at the first attempt a spare one if there is one.
    fn open(
        &mut self,
        epoll: &Epoll,
        v6: bool,
        address: &RawAddress,
        user: u32,
        attempt: u32,
        token: impl Fn(u32) -> u64,
    ) -> io::Result<MemberSocket> {
        let spares = if v6 {
            &mut self.spare_v6
        } else {
            &mut self.spare_v4
        };
        if attempt == 0
            && let Some(member_socket) = spares.pop()
        {
            self.assign(member_socket.number, user);
            return Ok(member_socket);
        }
        let stream = Stream::new(address)?;
        let has_port = ports::ready(&stream, v6, attempt)?;
        let number = self.free.pop().unwrap_or_else(|| {
            self.users.push((NO_USER, 0));
            (self.users.len() - 1) as u32
        });
        if let Err(error) = epoll.add(&stream, token(number), Watch::Both) {
            self.free.push(number);
            return Err(error);
        }
        self.assign(number, user);
        Ok(MemberSocket {
            stream,
            number,
            v6,
            nodelay: false,
            has_port,
        })
    }

    /// A pass begins, with events that were fetched before it.
    pub(super) fn begin_pass(&mut self) {
        self.pass = self.pass.wrapping_add(1);
    }

    /// Whose socket an event of this number is about. An event of this pass is older than a use
    /// that began in it: it is about an earlier one.
    pub(super) fn user(&self, number: u32) -> Option<u32> {
        let &(user, since) = self.users.get(number as usize)?;
        (user != NO_USER && since != self.pass).then_some(user)
    }

    /// Takes back a socket on which both sides sent their end. Kept if the member has acknowledged
    /// everything, which makes the connection's end certain; closed otherwise.
    pub(super) fn take_back(&mut self, member_socket: MemberSocket) {
        let spares = if member_socket.v6 {
            &mut self.spare_v6
        } else {
            &mut self.spare_v4
        };
        let reusable = spares.len() < self.most_spares
            && !member_socket.has_port
            && unacknowledged(&member_socket.stream).is_ok_and(|count| count == 0)
            && member_socket.stream.disconnect().is_ok();
        if reusable {
            if let Some(user) = self.users.get_mut(member_socket.number as usize) {
                user.0 = NO_USER;
            }
            spares.push(member_socket);
        } else {
            self.close(member_socket, false);
        }
    }

    /// Closes a socket; with `reset`, the member sees that the connection broke.
    pub(super) fn close(&mut self, member_socket: MemberSocket, reset: bool) {
        if reset && member_socket.stream.set_reset_on_close().is_err() {
            // The next best signal.
            let _ = member_socket.stream.shutdown(Half::Both);
        }
        self.assign(member_socket.number, NO_USER);
        self.free.push(member_socket.number);
        drop(member_socket);
    }

    fn assign(&mut self, number: u32, user: u32) {
        if let Some(place) = self.users.get_mut(number as usize) {
            *place = (user, self.pass);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_event_of_an_earlier_use_does_not_reach_the_next_user() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let member = listener.local_addr().unwrap();
        let (epoll, address) = (Epoll::new().unwrap(), RawAddress::new(member));
        let mut member_sockets = MemberSockets::new(0);
        let open = |member_sockets: &mut MemberSockets, user| {
            let v6 = member.is_ipv6();
            let opened = member_sockets.open(&epoll, v6, &address, user, 0, u64::from);
            opened.unwrap()
        };
        let first = open(&mut member_sockets, 7);
        let number = first.number;
        member_sockets.begin_pass();
        assert_eq!(member_sockets.user(number), Some(7));
        member_sockets.close(first, false);
        let second = open(&mut member_sockets, 8);
        assert_eq!(second.number, number);
        assert_eq!(member_sockets.user(number), None);
        member_sockets.begin_pass();
        assert_eq!(member_sockets.user(number), Some(8));
    }
}
