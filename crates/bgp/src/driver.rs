//! Runs sessions on sockets: a task for each router. It decides nothing.

mod address;
mod connect;
mod listen;
mod neighbor;
mod routers;
mod task;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::peer::{Peer, PeerAddress};
use crate::route::{Drain, Routes};
use crate::status::{State, Status};
use listen::Listeners;
use task::{Command, Inputs, Task};

pub use routers::configured;

/// Commands to a task that wait at most; more are dropped, because the first one says it all.
const COMMANDS: usize = 4;

/// Connections that wait for their session at most.
const INCOMING: usize = 4;

/// Routers of a range at most.
const ROUTERS: usize = 64;

/// Connections at most that live on so that their last message arrives. One more ends at once: its
/// router has the message, unless the node is slow or the way is lossy.
const CLOSINGS: usize = 256;

/// For how long a router of a range is known that has no session, and does not attempt to begin
/// one: long enough for alerts and for those that search for it.
const FORGET: Duration = Duration::from_mins(15);

/// From one check for routers to forget to the next.
const CHECK: Duration = Duration::from_mins(1);

/// What is known of each session, by the name of the peer: of a router of a range by that of the
/// range, a slash and its address.
pub type Statuses = BTreeMap<Arc<str>, Status>;

/// Why connections that routers begin are refused, by the name of the peer as it is configured.
pub type Refusals = BTreeMap<Arc<str>, Refusal>;

/// Why connections that a router begins are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// They would not be signed, though there is a password; why nothing asks for it.
    Unsigned(String),
    /// The router has no password, and the kernel drops them: it asks for the password of this
    /// range, which is around the router. There is no way to exempt one from that.
    Keyed(IpNet),
    /// The router alone is to begin sessions, and nothing listens; why.
    Closed(String),
}

/// What shall be announced, and to which routers.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The port on which connections of the routers are accepted; `None`: this process does not
    /// listen, and leaves the port to other programs of the node.
    pub listen: Option<u16>,
    /// The routers, by name.
    pub peers: BTreeMap<Arc<str>, Neighbor>,
    /// Routers, and ranges of them, of which no connection is taken though a range around them may
    /// be among the peers: of what their sessions are to be made, such as a password, is not known.
    pub reserved: Vec<PeerAddress>,
    /// Which routers are asked to prefer other paths.
    pub drain: Drain,
}

/// A router and what it is sent.
#[derive(Clone, Debug)]
pub struct Neighbor {
    /// How the session is made. Only a change of the password leaves a session as it is.
    pub peer: Peer,
    /// All routes. Add a router only when they are known: they are taken to be complete, and after
    /// a graceful restart the router drops what is not among them.
    pub routes: Arc<Routes>,
}

/// Running sessions. When no copy of this is left, they end as at a restart.
#[derive(Clone, Debug)]
pub struct Speaker {
    wanted: watch::Sender<Wanted>,
    statuses: watch::Receiver<Arc<Statuses>>,
    refusals: watch::Receiver<Refusals>,
    commands: mpsc::Sender<(Arc<str>, Command)>,
}

/// The task that begins and ends the others.
struct Supervisor {
    wanted: watch::Receiver<Wanted>,
    statuses: watch::Sender<Arc<Statuses>>,
    refusals: watch::Sender<Refusals>,
    commands: mpsc::Receiver<(Arc<str>, Command)>,
    tasks: BTreeMap<Arc<str>, Running>,
    /// When routers are to be forgotten next.
    check_at: Instant,
    listeners: Listeners,
    closings: Arc<Semaphore>,
    tracker: TaskTracker,
}

/// A task for one router.
struct Running {
    neighbor: watch::Sender<(Neighbor, Drain)>,
    commands: mpsc::Sender<Command>,
    incoming: mpsc::Sender<TcpStream>,
    /// When its router was there last: it connected, or had a session.
    seen: Instant,
    /// How many sessions it had by then.
    sessions: u64,
    removed: CancellationToken,
}

// === impl Speaker ===

impl Speaker {
    /// Begins all sessions. When `stop` is cancelled, they end: those with routers that agreed to
    /// graceful restart so that these keep the routes, unless all are asked to prefer other paths;
    /// all others with a Cease, whose text says that this node shuts down.
    pub fn start(wanted: Wanted, tracker: &TaskTracker, stop: CancellationToken) -> Self {
        let (wanted, wanted_there) = watch::channel(wanted);
        let (statuses_there, statuses) = watch::channel(Arc::default());
        let (refusals_there, refusals) = watch::channel(Refusals::new());
        let (commands, commands_there) = mpsc::channel(COMMANDS);
        let supervisor = Supervisor {
            wanted: wanted_there,
            statuses: statuses_there,
            refusals: refusals_there,
            commands: commands_there,
            tasks: BTreeMap::new(),
            check_at: Instant::now() + CHECK,
            listeners: Listeners::new(connect::listen_key),
            closings: Arc::new(Semaphore::new(CLOSINGS)),
            tracker: tracker.clone(),
        };
        tracker.spawn(supervisor.run(stop));
        Self {
            wanted,
            statuses,
            refusals,
            commands,
        }
    }

    /// Changes what shall be announced. Of several changes in a row the sessions may see only the
    /// last.
    pub fn update(&self, change: impl FnOnce(&mut Wanted)) {
        self.wanted.send_modify(change);
    }

    /// Returns what is known of each session, with changes.
    pub fn statuses(&self) -> watch::Receiver<Arc<Statuses>> {
        self.statuses.clone()
    }

    /// Returns why connections that routers begin are refused, with changes.
    pub fn refusals(&self) -> watch::Receiver<Refusals> {
        self.refusals.clone()
    }

    /// Ends the session with a router at once, because BFD reports that the path to it is down
    /// (RFC 5882). It is attempted again.
    pub async fn bfd_down(&self, peer: &Arc<str>) {
        let command = (Arc::clone(peer), Command::BfdDown);
        // Without a receiver there is no session either.
        let _ = self.commands.send(command).await;
    }

    /// Ends the session with a router and begins it again; the text is for its operators.
    pub async fn reset(&self, peer: &Arc<str>, text: String) {
        let command = (Arc::clone(peer), Command::Reset(text));
        let _ = self.commands.send(command).await;
    }
}

// === impl Supervisor ===

impl Supervisor {
    async fn run(mut self, stop: CancellationToken) {
        loop {
            self.adjust(&stop);
            let has_range = self.tasks.keys().any(|name| routers::is_of_range(name));
            tokio::select! {
                () = stop.cancelled() => return,
                (stream, from) = self.listeners.accept() => self.take(stream, from, &stop),
                () = self.listeners.retry() => {}
                () = tokio::time::sleep_until(self.check_at), if has_range => {
                    self.check_at = Instant::now() + CHECK;
                    self.forget();
                }
                changed = self.wanted.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                command = self.commands.recv() => {
                    let Some((name, command)) = command else { return };
                    if let Some(running) = self.tasks.get(&name) {
                        // A full queue holds a command that ends the session already.
                        let _ = running.commands.try_send(command);
                    }
                }
            }
        }
    }

    /// Hands a connection to the task of its router.
    fn take(&mut self, stream: TcpStream, from: SocketAddr, stop: &CancellationToken) {
        let (name, is_refused) = {
            let wanted = self.wanted.borrow();
            let name = routers::name_of(&wanted, from);
            let neighbor = name.as_deref().map(routers::configured);
            let neighbor = neighbor.and_then(|name| wanted.peers.get(name));
            let is_refused = neighbor.is_some_and(|it| self.listeners.refuses(it));
            (name, is_refused)
        };
        let Some(name) = name else {
            debug!(%from, "a connection of no router that is configured");
            return;
        };
        if is_refused {
            debug!(%from, %name, "a connection without the router's password");
            return;
        }
        if let Some(running) = self.task_of(&name, stop) {
            running.seen = Instant::now();
            // A router that connects so often can wait.
            drop(running.incoming.try_send(stream));
        }
    }

    /// Begins, changes and ends tasks.
    fn adjust(&mut self, stop: &CancellationToken) {
        let wanted = self.wanted.borrow_and_update().clone();
        self.listeners.adjust(&wanted);
        let refusals = wanted.peers.iter();
        let refusals = refusals.filter_map(|(name, neighbor)| {
            let why = self.listeners.refusal(neighbor)?;
            Some((Arc::clone(name), why))
        });
        let refusals: Refusals = refusals.collect();
        self.refusals.send_if_modified(|before| {
            let differs = *before != refusals;
            *before = refusals;
            differs
        });
        self.tasks.retain(|name, running| {
            let Some(neighbor) = routers::neighbor_of(&wanted, name) else {
                running.removed.cancel();
                return false;
            };
            let new = (neighbor, wanted.drain);
            running.neighbor.send_if_modified(|old| {
                let differs = old.0.peer != new.0.peer
                    || !Arc::ptr_eq(&old.0.routes, &new.0.routes)
                    || old.1 != new.1;
                if differs {
                    *old = new;
                }
                differs
            });
            true
        });
        for name in wanted.peers.keys() {
            if !self.tasks.contains_key(name)
                && let Some(neighbor) = routers::neighbor_of(&wanted, name)
            {
                self.begin(name, (neighbor, wanted.drain), stop);
            }
        }
    }

    /// Returns the task of a router that connects; one of a range may be new.
    fn task_of(&mut self, name: &Arc<str>, stop: &CancellationToken) -> Option<&mut Running> {
        if !self.tasks.contains_key(name) {
            let new = {
                let wanted = self.wanted.borrow();
                (routers::neighbor_of(&wanted, name)?, wanted.drain)
            };
            if !self.make_room(routers::configured(name)) {
                return None;
            }
            self.begin(name, new, stop);
        }
        self.tasks.get_mut(name)
    }

    /// Makes room for another router of a range: the one goes that is the farthest from a session,
    /// and of several the one that was there the longest time ago. Others may be about to have one,
    /// however many connect. Returns whether there is room.
    fn make_room(&mut self, range: &str) -> bool {
        let all = self.tasks.iter();
        let of_it = all.filter(|(name, _)| routers::configured(name) == range);
        if of_it.clone().count() < ROUTERS {
            return true;
        }
        let statuses = self.statuses.borrow().clone();
        let idle = of_it.filter(|(name, _)| !is_up(&statuses, name));
        let oldest = idle.min_by_key(|(name, running)| {
            // One that was begun just now shows nothing yet, and has a connection.
            let state = statuses.get(&**name).map_or(State::OpenSent, |it| it.state);
            (state, running.seen)
        });
        let oldest = oldest.map(|(name, _)| Arc::clone(name));
        let gone = oldest.and_then(|name| self.tasks.remove(&name));
        gone.is_some_and(|running| {
            running.removed.cancel();
            true
        })
    }

    /// Forgets routers of ranges that are no longer there.
    fn forget(&mut self) {
        let statuses = self.statuses.borrow().clone();
        let now = Instant::now();
        self.tasks.retain(|name, running| {
            if !routers::is_of_range(name) {
                return true;
            }
            // A session may have come and gone since the last check.
            let sessions = statuses.get(name).map_or(0, |it| it.counts.established);
            let had_session = std::mem::replace(&mut running.sessions, sessions) != sessions;
            if had_session || is_up(&statuses, name) {
                running.seen = now;
            }
            let stays = now.saturating_duration_since(running.seen) < FORGET;
            if !stays {
                running.removed.cancel();
            }
            stays
        });
    }

    fn begin(&mut self, name: &Arc<str>, new: (Neighbor, Drain), stop: &CancellationToken) {
        let (neighbor, neighbor_there) = watch::channel(new);
        let (commands, commands_there) = mpsc::channel(COMMANDS);
        let (incoming, incoming_there) = mpsc::channel(INCOMING);
        let inputs = Inputs {
            neighbor: neighbor_there,
            commands: commands_there,
            incoming: incoming_there,
            closings: Arc::clone(&self.closings),
            removed: CancellationToken::new(),
        };
        let removed = inputs.removed.clone();
        let (statuses, tracker) = (self.statuses.clone(), self.tracker.clone());
        let task = Task::new(Arc::clone(name), inputs, statuses, tracker);
        self.tracker.spawn(task.run(stop.clone()));
        let running = Running {
            neighbor,
            commands,
            incoming,
            seen: Instant::now(),
            sessions: 0,
            removed,
        };
        self.tasks.insert(Arc::clone(name), running);
    }
}

fn is_up(statuses: &Statuses, name: &str) -> bool {
    let status = statuses.get(name);
    status.is_some_and(|it| it.state == State::Established)
}

#[cfg(test)]
mod tests;
