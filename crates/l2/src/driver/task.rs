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
use tracing::{debug, error, warn};

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

/// After so many errors in a row, for so long, a socket is of no use: the task ends, so that
/// another node announces.
const MOST_ERRORS: u32 = 100;
const LONGEST_ERROR: Duration = Duration::from_secs(1);

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
    /// A filter could not be set.
    is_deaf: bool,
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
            is_deaf: false,
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
        let mut errors = Errors::default();
        self.list_links();
        loop {
            let woken = self.woken(&stop, &mut frames, &mut messages).await;
            let [arp, ndp] = &frames;
            let now = Instant::now();
            match woken {
                Woken::Stop => return,
                Woken::Frame(received, protocol) => {
                    let (errors, room) = match protocol {
                        Protocol::Arp => (&mut errors.arp, arp),
                        Protocol::Ndp => (&mut errors.ndp, ndp),
                    };
                    if let Some(received) = errors.pass(received, now).await {
                        self.frame(&received, room, now);
                    }
                }
                Woken::Links(received) => {
                    if let Some(received) = errors.links.pass(received, now).await {
                        self.links(&received, &messages, now);
                    }
                }
                Woken::Wanted => self.wanted(now),
                Woken::Deadline => self.deadline(now),
            }
            self.publish();
            if errors.are_too_many(now) {
                return error!("a socket gives nothing but errors: this node stops announcing");
            }
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

    fn frame(&mut self, received: &packet::Received, room: &[u8], now: Instant) {
        if let Some(frame) = room.get(..received.length) {
            let outputs = self
                .machine
                .receive(now.into_std(), received.interface, frame);
            self.put_out(outputs);
        }
    }

    fn links(&mut self, received: &netlink::Received, room: &[u8], now: Instant) {
        let length = match received {
            netlink::Received::Messages(length) => *length,
            netlink::Received::Lost => {
                debug!("changes of links were lost; they are listed again");
                return self.list_links();
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
        self.has_news |= std::mem::take(&mut self.machine.has_news);
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
                self.has_news |= !std::mem::replace(&mut self.is_deaf, true);
                return;
            }
        }
        self.has_news |= std::mem::take(&mut self.is_deaf);
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
                is_deaf: self.is_deaf,
            };
            self.channels.view.send_replace(Arc::new(view));
        }
    }
}

/// The errors in a row of each socket.
#[derive(Debug, Default)]
struct Errors {
    arp: Row,
    ndp: Row,
    links: Row,
}

/// Errors of a socket in a row: how many, and when the first of them came.
#[derive(Debug, Default)]
struct Row {
    count: u32,
    since: Option<Instant>,
}

// === impl Errors ===

impl Errors {
    /// Returns whether a socket is of no use.
    fn are_too_many(&self, now: Instant) -> bool {
        let rows = [&self.arp, &self.ndp, &self.links];
        rows.iter().any(|row| row.is_too_long(now))
    }
}

// === impl Row ===

impl Row {
    /// Returns what was received. After an error waits a little, so that it takes no CPU.
    async fn pass<T>(&mut self, received: io::Result<T>, now: Instant) -> Option<T> {
        match received {
            Ok(received) => {
                *self = Self::default();
                Some(received)
            }
            Err(error) => {
                if self.count == 0 {
                    warn!(%error, "cannot receive frames, or follow links");
                }
                self.count = self.count.saturating_add(1);
                self.since.get_or_insert(now);
                tokio::time::sleep(FULL).await;
                None
            }
        }
    }

    fn is_too_long(&self, now: Instant) -> bool {
        let lasts = self.since.is_some_and(|since| now >= since + LONGEST_ERROR);
        lasts && self.count >= MOST_ERRORS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn fail(row: &mut Row, times: u32, now: Instant) {
        for _ in 0..times {
            let error = io::Error::from(io::ErrorKind::NetworkDown);
            assert_eq!(row.pass::<()>(Err(error), now).await, None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_is_given_up_after_many_errors_in_a_row_that_last() {
        let (mut errors, began) = (Errors::default(), Instant::now());
        let later = began + LONGEST_ERROR;
        fail(&mut errors.ndp, 2 * MOST_ERRORS, began).await;
        assert!(!errors.are_too_many(began), "at once");
        assert!(errors.are_too_many(later));
        assert_eq!(errors.ndp.pass(Ok(7), later).await, Some(7));
        assert!(!errors.are_too_many(later));
        // Two errors with nothing between them are few, however long it takes.
        fail(&mut errors.arp, 1, began).await;
        fail(&mut errors.arp, 1, later).await;
        assert!(!errors.are_too_many(later));
    }
}
