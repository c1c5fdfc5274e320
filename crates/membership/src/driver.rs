//! Runs the machine on a UDP socket. It decides nothing.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::machine::{Counts, Datagram, Machine, Own, OwnError, Peer, Settings};
use crate::packet::SessionId;
use crate::seal::Keys;
use crate::sending::Sending;

/// Room for a datagram; longer ones are none of ours.
const DATAGRAM: usize = 2_048;

/// Datagrams that are taken in a row before time is read.
const BATCH: usize = 64;

/// How long a socket rests that failed.
const REST: Duration = Duration::from_millis(2);

/// The time between two of the datagrams that say that this node leaves.
const REPEAT: Duration = Duration::from_millis(10);

/// How a node becomes a member.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the node.
    pub name: Arc<str>,
    /// Where datagrams are received.
    pub bind: SocketAddr,
    /// Where others send them.
    pub address: SocketAddr,
    /// Times and counts.
    pub settings: Settings,
}

/// What this node wants of its membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The keys.
    pub keys: Keys,
    /// Nodes that may be members, and where.
    pub seeds: BTreeMap<Arc<str>, SocketAddr>,
    /// What it reports to others.
    pub metadata: Arc<[u8]>,
}

/// What is known of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The other members.
    pub peers: BTreeMap<Arc<str>, Peer>,
    /// Grows when this node meets one that may have acted without it.
    pub reunions: u64,
}

/// A running task. It ends when no copy of this is left, too.
#[derive(Clone, Debug)]
pub struct Membership {
    wanted: watch::Sender<Wanted>,
    view: watch::Receiver<Arc<View>>,
    counts: watch::Receiver<Counts>,
    address: SocketAddr,
}

/// The other end of a membership that is known from elsewhere than datagrams.
#[derive(Debug)]
pub struct Feed {
    /// What this node wants, of which the metadata are for the others.
    pub wanted: watch::Receiver<Wanted>,
    /// What is known of the others.
    pub view: watch::Sender<Arc<View>>,
    _counts: watch::Sender<Counts>,
}

/// Why no task could be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No socket.
    #[error("cannot receive datagrams of other speakers on {0}")]
    Bind(SocketAddr, #[source] io::Error),
    /// No other would accept this node.
    #[error(transparent)]
    Own(#[from] OwnError),
    /// No session.
    #[error("the system gives no random numbers")]
    Random,
}

/// The task and all that it owns.
struct Task {
    socket: UdpSocket,
    machine: Machine,
    sending: Sending,
    wanted: watch::Receiver<Wanted>,
    view: watch::Sender<Arc<View>>,
    counts: watch::Sender<Counts>,
    revision: u64,
}

enum Woken {
    Stop,
    Readable,
    Wanted,
    Deadline,
}

// === impl Membership ===

impl Membership {
    /// Starts a task. When `stop` is cancelled, it says to the others that this node leaves, and
    /// ends.
    pub async fn start(
        config: Config,
        wanted: Wanted,
        tracker: &TaskTracker,
        stop: CancellationToken,
    ) -> Result<Self, StartError> {
        let failed = |error| StartError::Bind(config.bind, error);
        let socket = UdpSocket::bind(config.bind).await.map_err(failed)?;
        let bound = socket.local_addr().map_err(failed)?;
        let mut address = config.address;
        if address.port() == 0 {
            address.set_port(bound.port());
        }
        let (mut session, mut seed) = ([0; 16], [0; 8]);
        rand::fill(&mut session).map_err(|_| StartError::Random)?;
        rand::fill(&mut seed).map_err(|_| StartError::Random)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let own = Own {
            name: config.name,
            address,
            incarnation: since.map_or(0, |it| it.as_millis() as u64),
            metadata: Arc::clone(&wanted.metadata),
            session: SessionId(session),
            seed: u64::from_be_bytes(seed),
        };
        let now = Instant::now().into_std();
        let mut machine = Machine::new(config.settings, own, wanted.keys.clone(), now)?;
        machine.set_seeds(wanted.seeds.clone());
        let (wanted, wanted_there) = watch::channel(wanted);
        let (view_there, view) = watch::channel(Arc::default());
        let (counts_there, counts) = watch::channel(Counts::default());
        let task = Task {
            socket,
            machine,
            sending: Sending::new(config.settings.interval * 2),
            wanted: wanted_there,
            view: view_there,
            counts: counts_there,
            revision: 0,
        };
        tracker.spawn(task.run(stop));
        Ok(Self {
            wanted,
            view,
            counts,
            address,
        })
    }

    /// A membership without a task of its own, and what feeds it. `known`: what is known so far.
    pub fn fed(wanted: Wanted, known: View, address: SocketAddr) -> (Self, Feed) {
        let (wanted, wanted_there) = watch::channel(wanted);
        let (view_there, view) = watch::channel(Arc::new(known));
        let (counts_there, counts) = watch::channel(Counts::default());
        let membership = Self {
            wanted,
            view,
            counts,
            address,
        };
        let feed = Feed {
            wanted: wanted_there,
            view: view_there,
            _counts: counts_there,
        };
        (membership, feed)
    }

    /// Changes what this node wants. Of several changes in a row the task may see only the last.
    pub fn update(&self, change: impl FnOnce(&mut Wanted)) {
        self.wanted.send_if_modified(|wanted| {
            let before = wanted.clone();
            change(wanted);
            *wanted != before
        });
    }

    /// The other members, with changes.
    pub fn view(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    /// Counts since the start.
    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    /// Where others send datagrams.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

// === impl Task ===

impl Task {
    async fn run(mut self, stop: CancellationToken) {
        let mut room = vec![0; DATAGRAM];
        loop {
            match self.woken(&stop).await {
                Woken::Stop => break,
                Woken::Readable => self.receive(&mut room).await,
                Woken::Wanted => self.wanted(),
                Woken::Deadline => {}
            }
            let now = Instant::now().into_std();
            if self.machine.deadline() <= now {
                let sent = self.machine.expire(now);
                self.send(&sent);
            }
            self.publish();
        }
        for _ in 0..3 {
            let sent = self.machine.leave();
            self.send(&sent);
            tokio::time::sleep(REPEAT).await;
        }
    }

    /// Waits for the next thing to happen. All branches are cancel-safe.
    async fn woken(&mut self, stop: &CancellationToken) -> Woken {
        let deadline = Instant::from_std(self.machine.deadline());
        tokio::select! {
            () = stop.cancelled() => Woken::Stop,
            _ = self.socket.readable() => Woken::Readable,
            changed = self.wanted.changed() => match changed {
                Ok(()) => Woken::Wanted,
                Err(_dropped) => Woken::Stop,
            },
            () = tokio::time::sleep_until(deadline) => Woken::Deadline,
        }
    }

    async fn receive(&mut self, room: &mut [u8]) {
        for _ in 0..BATCH {
            match self.socket.try_recv_from(room) {
                Ok((length, from)) => {
                    let now = Instant::now().into_std();
                    let datagram = room.get(..length).unwrap_or_default();
                    let sent = self.machine.receive(now, from, datagram);
                    self.send(&sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // A port that nothing listens on says so by ICMP.
                    debug!(%error, "cannot receive datagrams");
                    return tokio::time::sleep(REST).await;
                }
            }
        }
    }

    fn wanted(&mut self) {
        let wanted = self.wanted.borrow_and_update().clone();
        self.machine.set_keys(wanted.keys);
        self.machine.set_seeds(wanted.seeds);
        match self.machine.set_metadata(wanted.metadata) {
            Ok(sent) => self.send(&sent),
            Err(error) => warn!(%error, "this node cannot report to others"),
        }
    }

    /// Sends without waiting: what does not fit is lost, as it may be on its way.
    fn send(&mut self, datagrams: &[Datagram]) {
        let now = Instant::now().into_std();
        for Datagram { to, bytes } in datagrams {
            match self.socket.try_send_to(bytes, *to) {
                Ok(_) => self.sending.note_sent(now),
                Err(error) => {
                    debug!(%to, %error, "a datagram was not sent");
                    if self.sending.is_unable(&error, now) {
                        self.machine.note_unsent(now);
                    }
                }
            }
        }
    }

    fn publish(&mut self) {
        self.counts.send_replace(self.machine.counts());
        let revision = self.machine.revision();
        if revision != self.revision {
            self.revision = revision;
            let view = View {
                peers: self.machine.peers(),
                reunions: self.machine.reunions(),
            };
            self.view.send_replace(Arc::new(view));
        }
    }
}
