//! A router, whichever program it is.

use std::net::IpAddr;

use crate::lab::{Host, NODE, NODE_V6, ROUTER, ROUTER_V6};
use crate::{bird, frr, gobgp};

/// The program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Frr,
    Bird,
    Gobgp,
}

/// How it is configured. It is of AS 65001 unless `asn` says otherwise.
#[derive(Clone, Debug)]
pub struct Setup {
    pub asn: u32,
    pub node_asn: u32,
    /// Whether the session is one of IPv6.
    pub over_ipv6: bool,
    /// Whether IPv4 may have next hops of IPv6 (RFC 8950; only FRR can do without).
    pub extended_next_hop: bool,
    pub password: Option<String>,
    /// Whether packets from farther away than one hop are dropped (RFC 5082).
    pub gtsm: bool,
    pub graceful_restart: bool,
    /// Whether it connects, and does not only wait for connections.
    pub active: bool,
    /// Whether it finds the node by the interface (only with FRR).
    pub unnumbered: bool,
    /// Whether it knows nodes only by the range of their addresses (only with FRR).
    pub by_range: bool,
    /// Prefixes that the router announces.
    pub announced: usize,
}

/// A router that runs.
pub struct Router {
    pub kind: Kind,
    pub host: Host,
    pub setup: Setup,
    programs: Vec<crate::lab::Program>,
}

/// What a router knows of a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub next_hop: Option<IpAddr>,
    pub local_preference: Option<u32>,
    pub path: Vec<u32>,
    pub communities: Vec<(u16, u16)>,
    pub large_communities: Vec<(u32, u32, u32)>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            asn: 65_001,
            node_asn: 65_000,
            over_ipv6: false,
            extended_next_hop: true,
            password: None,
            gtsm: false,
            graceful_restart: false,
            active: false,
            unnumbered: false,
            by_range: false,
            announced: 0,
        }
    }
}

impl Setup {
    pub fn node(&self) -> &'static str {
        if self.over_ipv6 { NODE_V6 } else { NODE }
    }

    pub fn router(&self) -> &'static str {
        if self.over_ipv6 { ROUTER_V6 } else { ROUTER }
    }

    /// Prefixes that the router announces.
    pub fn prefixes(&self) -> impl Iterator<Item = String> {
        (0..self.announced).map(|it| format!("172.16.{}.{}/32", it / 250, it % 250))
    }
}

impl Router {
    /// Starts a router on a host of its own.
    pub fn start(kind: Kind, setup: Setup) -> Self {
        let mut router = Self {
            kind,
            host: Host::connect(),
            setup,
            programs: Vec::new(),
        };
        router.restart();
        router
    }

    /// Kills it, and starts it again.
    pub fn restart(&mut self) {
        self.programs.clear();
        self.programs = match self.kind {
            Kind::Frr => frr::start(&self.host, &self.setup),
            Kind::Bird => bird::start(&self.host, &self.setup),
            Kind::Gobgp => gobgp::start(&self.host, &self.setup),
        };
    }

    /// Returns what it knows of a prefix; `None`: nothing.
    pub fn route(&self, prefix: &str) -> Option<Seen> {
        match self.kind {
            Kind::Frr => frr::route(&self.host, prefix),
            Kind::Bird => bird::route(&self.host, prefix),
            Kind::Gobgp => gobgp::route(&self.host, prefix),
        }
    }

    /// Asks the node for all routes again.
    pub fn refresh(&self) {
        match self.kind {
            Kind::Frr => frr::refresh(&self.host),
            Kind::Bird => bird::refresh(&self.host),
            Kind::Gobgp => unreachable!("it keeps what it received"),
        }
    }

    /// Lets its operator end the session.
    pub fn end_session(&self) {
        match self.kind {
            Kind::Frr => frr::end_session(&self.host),
            Kind::Bird => bird::end_session(&self.host),
            Kind::Gobgp => gobgp::end_session(&self.host),
        }
    }
}
