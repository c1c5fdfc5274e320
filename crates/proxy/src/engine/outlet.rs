//! Sockets toward members. A socket whose connection both sides have ended in order is dissolved and
//! used for the next member connection: that saves making a socket, its file and its registration,
//! about a tenth of what a short connection costs. Owns spare sockets; never chooses a member.

use std::io;
use std::net::SocketAddr;

use landfall_sys::address::RawAddress;
use landfall_sys::epoll::{Epoll, Watch};
use landfall_sys::stream::{Half, Stream};

/// How many spare sockets of each family a worker keeps.
const SPARES: usize = 128;

const NOBODY: u32 = u32::MAX;

/// A socket toward a member, registered for events under its own number for as long as it lives.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) stream: Stream,
    number: u32,
    v6: bool,
    nodelay: bool,
}

/// All member sockets of a worker: who uses which, and the spare ones.
#[derive(Debug, Default)]
pub(super) struct Outlets {
    /// Place of the connection that uses the outlet with this number.
    users: Vec<u32>,
    free: Vec<u32>,
    spare_v4: Vec<Outlet>,
    spare_v6: Vec<Outlet>,
}

// === impl Outlet ===

impl Outlet {
    /// Sends small pieces at once from now on.
    pub(super) fn set_nodelay(&mut self) {
        if !self.nodelay {
            // Without it, pieces are only later.
            self.nodelay = self.stream.set_nodelay().is_ok();
        }
    }
}

// === impl Outlets ===

impl Outlets {
    /// A socket for the connection at place `user`. Its events carry `token` of its number.
    pub(super) fn open(
        &mut self,
        epoll: &Epoll,
        member: SocketAddr,
        address: &RawAddress,
        user: u32,
        token: impl FnOnce(u32) -> u64,
    ) -> io::Result<Outlet> {
        let v6 = member.is_ipv6();
        let spare = if v6 {
            self.spare_v6.pop()
        } else {
            self.spare_v4.pop()
        };
        if let Some(outlet) = spare {
            self.assign(outlet.number, user);
            return Ok(outlet);
        }
        let stream = Stream::new(address)?;
        let number = self.free.pop().unwrap_or_else(|| {
            self.users.push(NOBODY);
            (self.users.len() - 1) as u32
        });
        if let Err(error) = epoll.add(&stream, token(number), Watch::Both) {
            self.free.push(number);
            return Err(error);
        }
        self.assign(number, user);
        Ok(Outlet {
            stream,
            number,
            v6,
            nodelay: false,
        })
    }

    /// Whose socket has this number.
    pub(super) fn user(&self, number: u32) -> Option<u32> {
        self.users
            .get(number as usize)
            .copied()
            .filter(|&user| user != NOBODY)
    }

    /// Takes back a socket on which both sides sent their end. Kept if the member has acknowledged
    /// everything, which makes the connection's end certain; closed otherwise.
    pub(super) fn take_back(&mut self, outlet: Outlet) {
        let spares = if outlet.v6 {
            &mut self.spare_v6
        } else {
            &mut self.spare_v4
        };
        let reusable = spares.len() < SPARES
            && outlet.stream.unacknowledged().is_ok_and(|count| count == 0)
            && outlet.stream.disconnect().is_ok();
        if reusable {
            if let Some(user) = self.users.get_mut(outlet.number as usize) {
                *user = NOBODY;
            }
            spares.push(outlet);
        } else {
            self.close(outlet, false);
        }
    }

    /// Closes a socket; with `reset`, the member is told that the connection broke.
    pub(super) fn close(&mut self, outlet: Outlet, reset: bool) {
        if reset && outlet.stream.set_reset_on_close().is_err() {
            // The next best way to tell.
            let _ = outlet.stream.shutdown(Half::Both);
        }
        self.assign(outlet.number, NOBODY);
        self.free.push(outlet.number);
        drop(outlet);
    }

    fn assign(&mut self, number: u32, user: u32) {
        if let Some(place) = self.users.get_mut(number as usize) {
            *place = user;
        }
    }
}
