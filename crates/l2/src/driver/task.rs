//! The task: everything that happens comes in here, and what follows from it goes out.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use landfall_sys::netlink::{self, NetlinkSocket};
use landfall_sys::packet::{self, PacketSocket};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::filter::{Protocol, program};
use super::groups::Groups;
use super::{Losses, Report, View, Wanted};
use crate::fsm::{Machine, Output};
use crate::interfaces::{Exclusions, Follow, LinkTable, eligible};
use crate::packet::ETHER_TYPE_ARP;

/// Outputs between two checks of the sockets, so that answers do not wait for announcements.
const BATCH: usize = 64;

/// How long frames wait that the kernel has no room for.
const FULL: Duration = Duration::from_millis(2);

/// The time between two tries of what failed for a reason that lasts.
const RETRY: Duration = Duration::from_secs(1);

/// Room for a frame: the filter lets no more through.
const FRAME: usize = 2_048;

/// Room for messages of netlink: what the kernel sends at once.
const MESSAGES: usize = 1 << 16;

/// The sockets.
#[derive(Debug)]
pub struct Sockets {
    /// For ARP.
    pub arp: PacketSocket,
    /// For Neighbour Discovery.
    pub ndp: PacketSocket,
    /// For links and addresses.
    pub netlink: NetlinkSocket,
}

/// The other ends of what an announcer holds.
#[derive(Debug)]
pub struct Channels {
    /// What is to be announced.
    pub wanted: watch::Receiver<Arc<Wanted>>,
    /// What is announced.
    pub view: watch::Sender<Arc<View>>,
    /// The links.
    pub links: watch::Sender<Arc<LinkTable>>,
    /// What happened.
    pub reports: mpsc::Sender<Report>,
}

/// The task and all that it owns.
#[derive(Debug)]
pub struct Task {
    sockets: Sockets,
    exclusions: Exclusions,
    machine: Machine,
    channels: Channels,
    follow: Follow,
    groups: Groups,
    /// The interfaces whose frames the filters let through; `None`: not all filters are set.
    filtered: Option<Vec<u32>>,
    /// Frames for which the kernel has no room. Nothing is announced before they are gone, so
    /// there are never more than a batch makes.
    backlog: VecDeque<(u32, Vec<u8>)>,
    losses: Losses,
    /// When something that failed is tried again.
    retry: Option<Instant>,
    has_news: bool,
}

/// What woke the task.
enum Woken {
    Stop,
    Frame(io::Result<packet::Received>, Protocol),
    Links(io::Result<netlink::Received>),
    Wanted,
    Deadline,
}

// === impl Task ===

impl Task {
    /// A task that has not begun.
    pub fn new(
        sockets: Sockets,
        exclusions: Exclusions,
        machine: Machine,
        channels: Channels,
    ) -> Self {
        Self {
            sockets,
            exclusions,
            machine,
            channels,
            follow: Follow::default(),
            groups: Groups::default(),
            filtered: None,
            backlog: VecDeque::new(),
            losses: Losses::default(),
            retry: None,
            has_news: false,
        }
    }

    /// Runs until it is stopped, or until there is no announcer any more.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut frames = [vec![0; FRAME], vec![0; FRAME]];
        let mut messages = vec![0; MESSAGES];
        self.list_links();
        loop {
            let woken = self.woken(&stop, &mut frames, &mut messages).await;
            let [arp, ndp] = &frames;
            let now = Instant::now();
            match woken {
                Woken::Stop => return,
                Woken::Frame(received, Protocol::Arp) => self.frame(received, arp, now).await,
                Woken::Frame(received, Protocol::Ndp) => self.frame(received, ndp, now).await,
                Woken::Links(received) => self.links(received, &messages, now).await,
                Woken::Wanted => self.wanted(now),
                Woken::Deadline => self.deadline(now),
            }
            self.publish();
        }
    }

    /// Waits for the next thing to happen. All branches are cancel-safe; which of several comes
    /// first is random, so that no flood keeps another one out.
    async fn woken(
        &mut self,
        stop: &CancellationToken,
        [arp, ndp]: &mut [Vec<u8>; 2],
        messages: &mut [u8],
    ) -> Woken {
        let at = self.next_deadline();
        let deadline = async {
            match at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => Woken::Stop,
            received = self.sockets.arp.receive(arp) => Woken::Frame(received, Protocol::Arp),
            received = self.sockets.ndp.receive(ndp) => Woken::Frame(received, Protocol::Ndp),
            received = self.sockets.netlink.receive(messages) => Woken::Links(received),
            changed = self.channels.wanted.changed() => match changed {
                Ok(()) => Woken::Wanted,
                Err(_dropped) => Woken::Stop,
            },
            () = deadline => Woken::Deadline,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let machine = if self.backlog.is_empty() {
            self.machine.deadline().map(Instant::from_std)
        } else {
            Some(Instant::now() + FULL)
        };
        machine.into_iter().chain(self.retry).min()
    }

    async fn frame(&mut self, received: io::Result<packet::Received>, room: &[u8], now: Instant) {
        let received = match received {
            Ok(received) => received,
            Err(error) => {
                warn!(%error, "cannot receive frames");
                return tokio::time::sleep(FULL).await;
            }
        };
        if let Some(frame) = room.get(..received.length) {
            let outputs = self
                .machine
                .receive(now.into_std(), received.interface, frame);
            self.put_out(outputs);
        }
    }

    async fn links(&mut self, received: io::Result<netlink::Received>, room: &[u8], now: Instant) {
        let length = match received {
            Ok(netlink::Received::Messages(length)) => length,
            Ok(netlink::Received::Lost) => {
                debug!("changes of links were lost; they are listed again");
                return self.list_links();
            }
            Err(error) => {
                warn!(%error, "cannot follow links");
                return tokio::time::sleep(FULL).await;
            }
        };
        let progress = self.follow.take(room.get(..length).unwrap_or_default());
        if let Some(request) = progress.request {
            self.request(&request);
        }
        if let Some(error) = progress.failed {
            warn!(error, "the kernel does not list links");
            self.retry = Some(now + RETRY);
        }
        if !progress.is_changed {
            return;
        }
        let table = self.follow.table();
        let interfaces = eligible(table, &self.exclusions);
        self.channels.links.send_replace(Arc::new(table.clone()));
        let own = table.own();
        self.machine.set_interfaces(now.into_std(), interfaces, own);
        self.filter(now);
        self.join(now);
        self.has_news = true;
    }

    fn wanted(&mut self, now: Instant) {
        let wanted = Arc::clone(&self.channels.wanted.borrow_and_update());
        self.machine.set_peers(now.into_std(), wanted.peers.clone());
        let announcements = &wanted.announcements;
        self.machine
            .set_announcements(now.into_std(), announcements);
        self.join(now);
        self.has_news = true;
    }

    fn deadline(&mut self, now: Instant) {
        if self.retry.is_some_and(|at| at <= now) {
            self.retry = None;
            self.list_links();
            self.filter(now);
            self.join(now);
        }
        while let Some((interface, frame)) = self.backlog.pop_front() {
            if let Err(frame) = self.send(interface, frame) {
                return self.backlog.push_front((interface, frame));
            }
        }
        let outputs = self.machine.expire(now.into_std(), BATCH);
        self.put_out(outputs);
    }

    fn put_out(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send { interface, frame } => {
                    if let Err(frame) = self.send(interface, frame) {
                        self.backlog.push_back((interface, frame));
                        // Questions that come meanwhile are answered again when they are repeated.
                        while self.backlog.len() > 8 * BATCH {
                            self.backlog.pop_front();
                            self.losses.frames += 1;
                        }
                    }
                }
                Output::Report(address, event) => {
                    self.has_news = true;
                    let report = Report { address, event };
                    // Without a reader there is nothing to lose.
                    if let Err(TrySendError::Full(_)) = self.channels.reports.try_send(report) {
                        self.losses.reports += 1;
                    }
                }
            }
        }
    }

    /// Sends a frame. Gives it back if there is no room for it now.
    fn send(&mut self, interface: u32, frame: Vec<u8>) -> Result<(), Vec<u8>> {
        let is_arp = frame.get(12..14) == Some(&ETHER_TYPE_ARP.to_be_bytes());
        let socket = if is_arp {
            &self.sockets.arp
        } else {
            &self.sockets.ndp
        };
        match socket.send(interface, &frame) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(frame),
            Err(error) => {
                // The interface has just gone down or away; netlink says so next.
                debug!(interface, %error, "a frame was not sent");
                self.losses.frames += 1;
                Ok(())
            }
        }
    }

    fn join(&mut self, now: Instant) {
        let failed = self.groups.set(&self.machine.groups());
        if let Some(((interface, group), error)) = failed.first() {
            warn!(interface, %group, %error, count = failed.len(), "cannot join groups");
            self.losses.joins += failed.len() as u64;
            self.retry = Some(now + RETRY);
        }
    }

    /// Lets frames of the interfaces through.
    fn filter(&mut self, now: Instant) {
        let interfaces: Vec<u32> = self.machine.interfaces().keys().copied().collect();
        if self.filtered.as_ref() == Some(&interfaces) {
            return;
        }
        self.filtered = None;
        let Sockets { arp, ndp, .. } = &self.sockets;
        for (socket, protocol) in [(arp, Protocol::Arp), (ndp, Protocol::Ndp)] {
            if let Err(error) = socket.filter(&program(protocol, interfaces.iter())) {
                warn!(%error, "cannot change the filter of a packet socket");
                self.retry = Some(now + RETRY);
                return;
            }
        }
        self.filtered = Some(interfaces);
    }

    fn list_links(&mut self) {
        let request = self.follow.begin();
        self.request(&request);
    }

    fn request(&mut self, request: &[u8]) {
        if let Err(error) = self.sockets.netlink.send(request) {
            warn!(%error, "cannot ask for links");
            self.retry = Some(Instant::now() + RETRY);
        }
    }

    fn publish(&mut self) {
        if std::mem::take(&mut self.has_news) {
            let view = View {
                addresses: self.machine.status(),
                losses: self.losses,
            };
            self.channels.view.send_replace(Arc::new(view));
        }
    }
}
