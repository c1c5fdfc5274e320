//! The task for one router: it owns the connections of a session.

use std::future::{pending, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use landfall_sys::interfaces;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::address::next_hops;
use super::connect::{self, Connected};
use super::{Neighbor, Statuses};
use crate::route::Drain;
use crate::session::{Action, End, LinkId, Session};
use crate::status::{State, Status};

/// Room for what is read at once.
const READ: usize = 64 * 1024;

/// Bytes that are written at once, if there are so many.
const WRITE: usize = 64 * 1024;

/// For how long a connection lives on so that its last message arrives.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// From one look for next hops to the next: addresses come after a session, and are replaced.
const FOLLOW: Duration = Duration::from_secs(5);

/// What the task is asked to do.
#[derive(Debug)]
pub(super) enum Command {
    BfdDown,
    Reset(String),
}

/// What the task is given.
pub(super) struct Inputs {
    pub neighbor: watch::Receiver<(Neighbor, Drain)>,
    pub commands: mpsc::Receiver<Command>,
    pub incoming: mpsc::Receiver<TcpStream>,
    /// How many more connections of all routers may live on for their last message.
    pub closings: Arc<Semaphore>,
    /// The router is no longer configured.
    pub removed: CancellationToken,
}

/// The task and all that it owns.
pub(super) struct Task {
    name: Arc<str>,
    inputs: Inputs,
    statuses: watch::Sender<Arc<Statuses>>,
    tracker: TaskTracker,
    session: Session,
    shown: Option<Status>,
    wires: Vec<Wire>,
    /// When next hops are to be found again.
    follow_at: tokio::time::Instant,
    dialing: Option<Pin<Box<dyn Future<Output = Connected> + Send>>>,
    room: Box<[u8]>,
}

/// A connection with what is still to be written to it.
struct Wire {
    id: LinkId,
    stream: TcpStream,
    outgoing: Vec<u8>,
    written: usize,
}

enum Woken {
    Stop,
    Removed,
    Neighbor,
    Command(Command),
    Incoming(TcpStream),
    Connected(Connected),
    Ready(usize),
    Deadline,
    Follow,
}

// === impl Task ===

impl Task {
    pub fn new(
        name: Arc<str>,
        mut inputs: Inputs,
        statuses: watch::Sender<Arc<Statuses>>,
        tracker: TaskTracker,
    ) -> Self {
        let (neighbor, drain) = inputs.neighbor.borrow_and_update().clone();
        let now = Instant::now();
        let mut session = Session::new(neighbor.peer, neighbor.routes, fastrand::u64(..), now);
        let routes = Arc::clone(session.routes());
        session.announce(routes, drain);
        Self {
            name,
            inputs,
            statuses,
            tracker,
            session,
            shown: None,
            wires: Vec::new(),
            follow_at: tokio::time::Instant::now() + FOLLOW,
            dialing: None,
            room: vec![0; READ].into_boxed_slice(),
        }
    }

    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            self.pump();
            match self.woken(&stop).await {
                Woken::Stop => {
                    let drain = self.inputs.neighbor.borrow().1;
                    let end = if drain == Drain::All {
                        End::Shutdown("this node shuts down".to_owned())
                    } else {
                        End::Restart
                    };
                    break self.session.end(end, Instant::now());
                }
                Woken::Removed => break self.session.end(End::Removed, Instant::now()),
                Woken::Neighbor => self.neighbor(),
                Woken::Command(command) => {
                    let end = match command {
                        Command::BfdDown => End::BfdDown,
                        Command::Reset(text) => End::Reset(text),
                    };
                    self.session.end(end, Instant::now());
                }
                Woken::Incoming(stream) => self.incoming(stream),
                Woken::Connected(connected) => self.connected(connected),
                Woken::Ready(place) => self.receive(place),
                Woken::Deadline => self.session.expire(Instant::now()),
                Woken::Follow => self.follow(),
            }
        }
        self.transfer();
        self.say(&self.session.status());
        // Another task may have the name already, of a router that was forgotten and is back.
        self.statuses.send_if_modified(|all| {
            let is_own = all.get(&self.name) == self.shown.as_ref();
            if is_own {
                Arc::make_mut(all).remove(&self.name);
            }
            is_own
        });
    }

    /// Waits for the next thing to happen. All branches are cancel-safe.
    async fn woken(&mut self, stop: &CancellationToken) -> Woken {
        let deadline = self.session.deadline().map(tokio::time::Instant::from_std);
        let (wires, dialing) = (&self.wires, &mut self.dialing);
        // Prefixes of the connection's own family have its address.
        let families = self.session.peer().families;
        let follows = !wires.is_empty() && families.ipv4 && families.ipv6;
        tokio::select! {
            () = stop.cancelled() => Woken::Stop,
            changed = self.inputs.neighbor.changed() => match changed {
                Ok(()) => Woken::Neighbor,
                Err(_dropped) if self.inputs.removed.is_cancelled() => Woken::Removed,
                // The supervisor ended, at a stop or by a panic: a new process is to be started,
                // for which routers keep the routes.
                Err(_dropped) => Woken::Stop,
            },
            Some(command) = self.inputs.commands.recv() => Woken::Command(command),
            Some(stream) = self.inputs.incoming.recv() => Woken::Incoming(stream),
            connected = async {
                match dialing {
                    Some(dialing) => dialing.await,
                    None => pending().await,
                }
            } => Woken::Connected(connected),
            place = poll_fn(|cx| ready(wires, cx)) => Woken::Ready(place),
            () = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => pending().await,
                }
            } => Woken::Deadline,
            () = tokio::time::sleep_until(self.follow_at), if follows => Woken::Follow,
        }
    }

    fn neighbor(&mut self) {
        let (neighbor, drain) = self.inputs.neighbor.borrow_and_update().clone();
        self.session.configure(neighbor.peer, Instant::now());
        self.session.announce(neighbor.routes, drain);
    }

    /// Finds the next hops again.
    fn follow(&mut self) {
        self.follow_at = tokio::time::Instant::now() + FOLLOW;
        match interfaces::addresses() {
            Ok(all) => {
                let peer = self.session.peer().clone();
                self.session
                    .follow_next_hops(|it| next_hops(&peer, it.local, &all));
            }
            Err(error) => debug!(peer = %self.name, %error, "next hops stay as they are"),
        }
    }

    fn incoming(&mut self, stream: TcpStream) {
        match connect::accepted(self.session.peer(), stream) {
            Ok((stream, connection)) => {
                if let Some(id) = self.session.accepted(connection, Instant::now()) {
                    self.wires.push(Wire::new(id, stream));
                }
            }
            Err(failure) => debug!(peer = %self.name, ?failure, "a connection was not accepted"),
        }
    }

    fn connected(&mut self, connected: Connected) {
        self.dialing = None;
        let now = Instant::now();
        match connected {
            Ok((stream, connection)) => {
                let id = self.session.connected(connection, now);
                self.wires.push(Wire::new(id, stream));
            }
            Err(failure) => self.session.connect_failed(failure.kind, failure.why, now),
        }
    }

    fn receive(&mut self, place: usize) {
        let Some(wire) = self.wires.get_mut(place) else {
            return;
        };
        let read = wire.stream.try_read(&mut self.room);
        let (id, now) = (wire.id, Instant::now());
        match read {
            Ok(0) => self.session.closed(id, None, now),
            Ok(length) => {
                let bytes = self.room.get(..length).unwrap_or_default();
                self.session.received(id, bytes, now);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => self.session.closed(id, Some(error.to_string()), now),
        }
    }

    /// Does what is to be done now, and shows what is new.
    fn pump(&mut self) {
        self.transfer();
        self.show();
    }

    /// Does what the session asks for, and writes what there is room for.
    fn transfer(&mut self) {
        self.act_all();
        let now = Instant::now();
        for wire in &mut self.wires {
            if let Err(error) = wire.write(&mut self.session, now) {
                self.session.closed(wire.id, Some(error.to_string()), now);
            }
        }
        self.act_all();
        // Those that the router ended.
        let session = &self.session;
        self.wires.retain(|wire| session.has(wire.id));
    }

    fn act_all(&mut self) {
        while let Some(action) = self.session.next_action() {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Connect => {
                let peer = self.session.peer().clone();
                self.dialing = Some(Box::pin(connect::connect(peer)));
            }
            Action::Abort => self.dialing = None,
            Action::Close(id, last) => {
                if let Some(place) = self.wires.iter().position(|wire| wire.id == id) {
                    let wire = self.wires.swap_remove(place);
                    let permit = Arc::clone(&self.inputs.closings).try_acquire_owned();
                    match (last, permit) {
                        (Some(last), Ok(permit)) => {
                            self.tracker.spawn(async move {
                                wire.close(last).await;
                                drop(permit);
                            });
                        }
                        (Some(last), Err(_none_left)) => wire.close_at_once(&last),
                        (None, _) => {}
                    }
                }
            }
            Action::Rekey => {
                for wire in &self.wires {
                    if let Err(error) = connect::rekey(self.session.peer(), &wire.stream) {
                        warn!(peer = %self.name, %error, "the password could not be changed");
                    }
                }
            }
        }
    }

    fn show(&mut self) {
        let status = self.session.status();
        if self.shown.as_ref() == Some(&status) {
            return;
        }
        self.say(&status);
        self.shown = Some(status.clone());
        self.statuses.send_modify(|all| {
            Arc::make_mut(all).insert(Arc::clone(&self.name), status);
        });
    }

    /// Logs what is new.
    fn say(&self, status: &Status) {
        let before = self.shown.as_ref();
        let state = before.map_or(State::Idle, |it| it.state);
        if status.state != state && status.state.max(state) == State::Established {
            info!(peer = %self.name, from = state.name(), to = status.state.name(), "BGP session");
        }
        if let Some((_, error)) = &status.last_error
            && before.is_none_or(|it| it.last_error.as_ref().is_none_or(|(_, it)| it != error))
        {
            let (reason, remedy) = (error.reason(), error.remedy());
            warn!(peer = %self.name, %error, reason, remedy, "no BGP session");
        }
    }
}

/// Returns a connection on which there is something to read or, if something is to be written,
/// room.
fn ready(wires: &[Wire], cx: &mut Context<'_>) -> Poll<usize> {
    for (place, wire) in wires.iter().enumerate() {
        let readable = wire.stream.poll_read_ready(cx).is_ready();
        let writes = wire.written < wire.outgoing.len();
        if readable || writes && wire.stream.poll_write_ready(cx).is_ready() {
            return Poll::Ready(place);
        }
    }
    Poll::Pending
}

// === impl Wire ===

impl Wire {
    fn new(id: LinkId, stream: TcpStream) -> Self {
        Self {
            id,
            stream,
            outgoing: Vec::new(),
            written: 0,
        }
    }

    /// Writes until there is no room, or nothing to write.
    fn write(&mut self, session: &mut Session, now: Instant) -> io::Result<()> {
        loop {
            if self.written == self.outgoing.len() {
                self.outgoing.clear();
                self.written = 0;
                session.sent(self.id);
                while self.outgoing.len() < WRITE
                    && let Some(message) = session.transmit(self.id, now)
                {
                    self.outgoing.extend_from_slice(&message);
                }
                if self.outgoing.is_empty() {
                    return Ok(());
                }
            }
            let rest = self.outgoing.get(self.written..).unwrap_or_default();
            match self.stream.try_write(rest) {
                Ok(length) => self.written += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes the last message, after what was begun, as far as there is room, and ends the
    /// connection.
    fn close_at_once(mut self, last: &[u8]) {
        let mut rest = self.outgoing.split_off(self.written);
        rest.extend_from_slice(last);
        if let Err(error) = self.stream.try_write(&rest) {
            debug!(%error, "the last message was not sent");
        }
    }

    /// Writes the last message, after what was begun, and ends the connection so that the router
    /// can read it.
    async fn close(mut self, last: Vec<u8>) {
        let rest = self.outgoing.split_off(self.written);
        let closing = async {
            self.stream.write_all(&rest).await?;
            self.stream.write_all(&last).await?;
            self.stream.shutdown().await?;
            let mut room = [0; 4096];
            while self.stream.read(&mut room).await? > 0 {}
            io::Result::Ok(())
        };
        if let Ok(Err(error)) = tokio::time::timeout(LAST_WORDS, closing).await {
            debug!(%error, "the last message may not have arrived");
        }
    }
}
