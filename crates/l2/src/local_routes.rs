//! Routes by which a node takes packets to addresses that none of its interfaces has.
//!
//! ```text
//!   rules: TCP, UDP and ICMP ──> table 7947 ──> local 192.0.2.7 dev lo
//!   anything else, so also ARP ──> the tables of the node, as before
//! ```
//!
//! A local route in the table `local`, or the address on any interface, would make the kernel
//! answer ARP for it on all interfaces, of every node that is ready to serve it. The rules are for
//! IP protocols, and the kernel's lookup for ARP has none: only the speaker that owns an address
//! answers for it, and a node can take it over without a change of its routes.
//!
//! Routes and rules carry a protocol number and a table of Landfall's. What does not is another's,
//! and stays.

mod message;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use landfall_sys::netlink::{NetlinkSocket, Received};

use self::message::{Answer, Family};

/// The table of routing that has Landfall's routes.
pub const TABLE: u32 = 7947;

/// The priority of the rules that lead there: behind the table `local`, before all usual ones.
pub const PRIORITY: u32 = 76;

/// The origin (`rtm_protocol`) of Landfall's routes and rules.
pub const ORIGIN: u8 = 76;

/// Room for messages of the kernel, which sends at most 32 KiB at once.
const ROOM: usize = 1 << 16;

/// Why routes can't be set.
#[derive(Debug, thiserror::Error)]
pub enum RoutesError {
    /// No socket.
    #[error("cannot open a socket for routes")]
    Socket(#[source] io::Error),
    /// No rules.
    #[error("cannot add rules for routing (it takes the capability NET_ADMIN and Linux 4.17)")]
    Rules(#[source] io::Error),
    /// No list.
    #[error("cannot list routes")]
    List(#[source] io::Error),
}

/// Landfall's routes in the network namespace of the process.
#[derive(Debug)]
pub struct LocalRoutes {
    socket: NetlinkSocket,
    /// What programs of this node that name no source connect from.
    source: Ipv4Addr,
    families: BTreeSet<Family>,
    held: BTreeSet<IpAddr>,
    sequence: u32,
    room: Vec<u8>,
}

// === impl LocalRoutes ===

impl LocalRoutes {
    /// Adds the rules, and finds the routes that an earlier process left. `source`: an IPv4 address
    /// of this node, from which its own programs connect to an address.
    ///
    /// # Errors
    /// Rules can't be added, mostly for want of the capability.
    pub async fn open(source: Ipv4Addr) -> Result<Self, RoutesError> {
        let socket = NetlinkSocket::open(0).map_err(RoutesError::Socket)?;
        let mut routes = Self {
            socket,
            source,
            families: BTreeSet::new(),
            held: BTreeSet::new(),
            sequence: 0,
            room: vec![0; ROOM],
        };
        for family in [Family::V4, Family::V6] {
            match routes.add_rules(family).await {
                Ok(()) => drop(routes.families.insert(family)),
                // A machine without IPv6.
                Err(error) if family == Family::V6 && is_without_family(&error) => {}
                Err(error) => return Err(RoutesError::Rules(error)),
            }
        }
        routes.refresh().await.map_err(RoutesError::List)?;
        Ok(routes)
    }

    /// The addresses that have a route.
    pub const fn held(&self) -> &BTreeSet<IpAddr> {
        &self.held
    }

    /// Reads again which routes there are, and adds the rules if they are gone.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn refresh(&mut self) -> io::Result<()> {
        let mut held = BTreeSet::new();
        for family in self.families.clone() {
            self.add_rules(family).await?;
            let sequence = self.next();
            let found = self.ask(message::list_routes(family, sequence)).await?;
            held.extend(found);
        }
        self.held = held;
        Ok(())
    }

    /// Adds and removes routes until exactly these addresses have one. Returns what failed.
    pub async fn set(&mut self, wanted: &BTreeSet<IpAddr>) -> BTreeMap<IpAddr, io::Error> {
        let mut failed = BTreeMap::new();
        for address in self.held.difference(wanted).copied().collect::<Vec<_>>() {
            match self.remove(address).await {
                Ok(()) => drop(self.held.remove(&address)),
                Err(error) => drop(failed.insert(address, error)),
            }
        }
        for address in wanted.difference(&self.held).copied().collect::<Vec<_>>() {
            match self.add(address).await {
                Ok(()) => drop(self.held.insert(address)),
                Err(error) => drop(failed.insert(address, error)),
            }
        }
        failed
    }

    /// Removes routes and rules.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn close(mut self) -> io::Result<()> {
        let failed = self.set(&BTreeSet::new()).await;
        for family in self.families.clone() {
            for protocol in family.protocols() {
                let sequence = self.next();
                self.ask(message::remove_rule(family, protocol, sequence))
                    .await?;
            }
        }
        match failed.into_values().next() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    async fn add_rules(&mut self, family: Family) -> io::Result<()> {
        for protocol in family.protocols() {
            let sequence = self.next();
            let added = self.ask(message::add_rule(family, protocol, sequence));
            already(added.await.map(drop), io::ErrorKind::AlreadyExists)?;
        }
        Ok(())
    }

    /// Another's route for the same address does the same, and stays the other's.
    async fn add(&mut self, address: IpAddr) -> io::Result<()> {
        let source = match address {
            IpAddr::V4(_) => Some(self.source),
            // Source addresses of IPv6 are chosen by scope and prefix (RFC 6724).
            IpAddr::V6(_) => None,
        };
        let sequence = self.next();
        let added = self.ask(message::add_route(address, source, sequence));
        already(added.await.map(drop), io::ErrorKind::AlreadyExists)
    }

    async fn remove(&mut self, address: IpAddr) -> io::Result<()> {
        let sequence = self.next();
        let removed = self.ask(message::remove_route(address, sequence)).await;
        match removed {
            // ESRCH: there is none.
            Err(error) if error.raw_os_error() == Some(3) => Ok(()),
            removed => removed.map(drop),
        }
    }

    fn next(&mut self) -> u32 {
        // Never 0, the number of what is not asked for.
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.sequence
    }

    /// Sends a request and returns what it lists, once the kernel has answered all of it.
    async fn ask(&mut self, request: Vec<u8>) -> io::Result<Vec<IpAddr>> {
        self.socket.send(&request)?;
        let mut listed = Vec::new();
        loop {
            let length = match self.socket.receive(&mut self.room).await? {
                Received::Messages(length) => length,
                Received::Lost => return Err(io::Error::other("answers of the kernel were lost")),
            };
            let received = self.room.get(..length).unwrap_or_default();
            for answer in message::answers(received, self.sequence) {
                match answer {
                    Answer::Route(address) => listed.push(address),
                    Answer::Done => return Ok(listed),
                    Answer::Refused(code) => return Err(io::Error::from_raw_os_error(code)),
                }
            }
        }
    }
}

/// Whether the kernel knows no such family.
fn is_without_family(error: &io::Error) -> bool {
    // EOPNOTSUPP and EAFNOSUPPORT.
    matches!(error.raw_os_error(), Some(95 | 97))
}

/// Takes for done what was so before.
fn already(outcome: io::Result<()>, kind: io::ErrorKind) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == kind => Ok(()),
        outcome => outcome,
    }
}

/// Returns the IPv4 address from which programs of a node connect to addresses that it serves: that
/// of the node, or loopback where it has none.
pub const fn source_of(node: IpAddr) -> Ipv4Addr {
    match node {
        IpAddr::V4(node) => node,
        IpAddr::V6(_) => Ipv4Addr::LOCALHOST,
    }
}
