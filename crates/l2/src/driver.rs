//! Runs the state machine on the interfaces of a network namespace: one task owns the sockets, the
//! list of links and the memberships in groups. It decides nothing.

mod filter;
mod groups;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_sys::netlink::NetlinkSocket;
use landfall_sys::packet::PacketSocket;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::filter::Protocol;
use self::task::{Sockets, Task};
use crate::fsm::{Announcement, Event, Machine, Settings, Status};
use crate::interfaces::{Exclusions, GROUPS, LinkTable};
use crate::mac::MacAddress;
use crate::packet::{ETHER_TYPE_ARP, ETHER_TYPE_IPV6};

/// Reports that may wait for their reader.
const REPORTS: usize = 1_024;

/// How to announce.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Times and counts.
    pub settings: Settings,
    /// Interfaces that never announce.
    pub exclusions: Exclusions,
}

/// Everything that is to be announced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The addresses.
    pub announcements: BTreeMap<IpAddr, Announcement>,
    /// The MAC addresses of the other nodes.
    pub peers: BTreeSet<MacAddress>,
}

/// What is announced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Each address.
    pub addresses: BTreeMap<IpAddr, Status>,
    /// What could not be done.
    pub losses: Losses,
    /// The sockets do not let through what arrives on the interfaces.
    pub is_deaf: bool,
}

/// Counts of what could not be done, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Frames that the kernel did not take.
    pub frames: u64,
    /// Reports for which there was no room.
    pub reports: u64,
    /// Joins of groups that failed. Without its group, questions about an IPv6 address may not
    /// arrive.
    pub joins: u64,
}

/// What happened to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The address.
    pub address: IpAddr,
    /// What happened.
    pub event: Event,
}

/// A running task that announces.
#[derive(Debug)]
pub struct Announcer {
    wanted: watch::Sender<Arc<Wanted>>,
    view: watch::Receiver<Arc<View>>,
    links: watch::Receiver<Arc<LinkTable>>,
}

/// Why no task could be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No socket for frames.
    #[error("cannot open a packet socket (it takes the capability NET_RAW)")]
    Packet(#[source] io::Error),
    /// No socket for links.
    #[error("cannot follow links and addresses")]
    Links(#[source] io::Error),
}

// === impl Announcer ===

impl Announcer {
    /// Starts a task that announces in the network namespace of the calling thread. It ends when
    /// `stop` is cancelled, and then no address is answered for.
    pub fn start(
        config: Config,
        tracker: &TaskTracker,
        stop: CancellationToken,
    ) -> Result<(Self, mpsc::Receiver<Report>), StartError> {
        let open = |protocol: Protocol, ether_type| {
            // Nothing, until there is an interface.
            PacketSocket::open(ether_type, &filter::program(protocol, [].iter()))
        };
        let sockets = Sockets {
            arp: open(Protocol::Arp, ETHER_TYPE_ARP).map_err(StartError::Packet)?,
            ndp: open(Protocol::Ndp, ETHER_TYPE_IPV6).map_err(StartError::Packet)?,
            netlink: NetlinkSocket::open(GROUPS).map_err(StartError::Links)?,
        };
        let (wanted, wanted_there) = watch::channel(Arc::default());
        let (view_there, view) = watch::channel(Arc::default());
        let (links_there, links) = watch::channel(Arc::default());
        let (reports_there, reports) = mpsc::channel(REPORTS);
        let task = Task::new(
            sockets,
            config.exclusions,
            Machine::new(config.settings),
            task::Channels {
                wanted: wanted_there,
                view: view_there,
                links: links_there,
                reports: reports_there,
            },
        );
        tracker.spawn(task.run(stop));
        let announcer = Self {
            wanted,
            view,
            links,
        };
        Ok((announcer, reports))
    }

    /// Replaces what is to be announced. The task applies the difference; of several calls in a row
    /// it may see only the last.
    pub fn set(&self, wanted: Wanted) {
        self.wanted.send_if_modified(|before| {
            let is_other = **before != wanted;
            if is_other {
                *before = Arc::new(wanted);
            }
            is_other
        });
    }

    /// What is announced, with changes.
    pub fn view(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    /// The links of this node, with changes. Empty until they are known.
    pub fn links(&self) -> watch::Receiver<Arc<LinkTable>> {
        self.links.clone()
    }
}
