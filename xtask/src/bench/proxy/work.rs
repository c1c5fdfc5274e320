//! What is asked for at a port, and the addresses of the proxies and of their members.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Behind every listener but that of the link.
pub const MEMBERS: u8 = 8;

/// What is asked for at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Short messages over TCP.
    Small,
    /// As many bytes as go through, toward the client.
    Bulk,
    /// HTTP/1.1 requests.
    Http,
    /// Short messages over TCP, with one member behind a link.
    Link,
}

impl Work {
    pub const ALL: [Self; 4] = [Self::Small, Self::Bulk, Self::Http, Self::Link];

    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Bulk => "bulk",
            Self::Http => "http",
            Self::Link => "link",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Small => 7001,
            Self::Bulk => 7002,
            Self::Http => 7003,
            Self::Link => 7004,
        }
    }
}

/// Addresses of one proxy and of its members, all its own: the kernel remembers ended connections
/// per address for a minute, and none shall pay for another's.
#[derive(Clone, Copy, Debug)]
pub struct Addresses(pub u8);

impl Addresses {
    pub fn proxy(self) -> Ipv4Addr {
        Ipv4Addr::new(127, 91, self.0, 1)
    }

    pub fn listener(self, work: Work) -> SocketAddrV4 {
        SocketAddrV4::new(self.proxy(), work.port())
    }

    pub fn admin(self) -> SocketAddrV4 {
        SocketAddrV4::new(self.proxy(), 7000)
    }

    pub fn members(self, work: Work) -> impl Iterator<Item = SocketAddrV4> {
        let (first, second, count) = match work {
            Work::Small | Work::Bulk | Work::Http => (127, 90, MEMBERS),
            Work::Link => (10, 91, 1),
        };
        (1..=count).map(move |last| {
            SocketAddrV4::new(Ipv4Addr::new(first, second, self.0, last), work.port())
        })
    }
}
