//! The engine of one worker: a single task that serves every plain TCP connection and UDP flow of
//! the worker, and accepts for the other modes. Owns their sockets, time and memory. Never blocks,
//! and shares nothing with other workers but listeners' configuration, pools and counters.
//!
//! Why not a task per connection: on short connections nearly all the time goes to the kernel, and
//! most of the rest to what a task needs: its memory, two registrations, two deregistrations, a
//! timer. Here a connection is a row in a table, events come in batches from an epoll instance of
//! our own inside tokio's, deadlines are coarse and lazy, and sockets toward members are used
//! again.
//!
//! Memory: an idle connection costs a row of under 400 bytes here (measured: 341 bytes each with
//! 6,000 of them) and two sockets in the kernel; it holds no buffer. A connection whose receiver
//! takes nothing holds at most 64 KiB per direction here, or after its first 128 KiB a pipe in the
//! kernel: of 1 MiB while there are such, then of 256 KiB, all workers together at most 128 MiB,
//! and a quarter less than what a user without special rights may have. A UDP flow costs about 500
//! bytes and one socket.
//!
//! ```text
//!   commands ─┐            ┌─ acceptors ──> proxy headers (readers) ──┬─> connections (pump)
//!   deadlines ┼─> engine ──┤                                          └─> tasks: TLS, HTTP
//!   events ───┘            └─ ports (UDP) ──> flows
//! ```

mod accept;
mod client_socket;
mod connection;
mod copies;
mod flows;
mod lists;
mod member_socket;
mod pipes;
mod proxy_header;
mod pump;
pub(crate) mod slab;
mod subject;
mod tasks;
pub(crate) mod wheel;

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use landfall_sys::clock::coarse_millis;
use landfall_sys::epoll::{Epoll, Event, Events, Watch};
use landfall_sys::timer::Timer;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use self::accept::Acceptor;
use self::client_socket::ClientSockets;
use self::connection::{Connection, End, Step};
use self::copies::Copies;
use self::flows::Flows;
use self::lists::Lists;
use self::member_socket::MemberSockets;
use self::pipes::Pipes;
use self::proxy_header::ProxyHeaderReader;
use self::slab::{Key, Slab};
use self::subject::{Subject, client_token, member_token};
use self::wheel::Wheel;
use crate::identity::ListenerId;
use crate::listener::ListenerState;
use crate::pool::{Lease, Unavailable};

/// After this many passes without a pause, the runtime's other tasks have a turn.
const PASSES: usize = 8;

/// As [`PASSES`], where passes are long.
const TURN: Duration = Duration::from_millis(2);

/// How many bytes all connections together may move for the events of a pass, and as many again
/// where they had more than their share in the last one. One step may go beyond.
const BUDGET: u64 = 4 * 1024 * 1024;

/// How much the coarse clock may be behind the timer's, in milliseconds (a tick of 100 Hz). When
/// the timer fires, the deadline is to have passed on both.
const COARSENESS: u64 = 10;

/// A command to a worker.
#[derive(Debug)]
pub(crate) enum Command {
    /// Accept connections of a listener, on a socket that another process may have, too.
    OpenTcp(
        Arc<ListenerState>,
        TcpListener,
        bool,
        oneshot::Sender<io::Result<()>>,
    ),
    /// Serve datagrams of a listener.
    OpenUdp(
        Arc<ListenerState>,
        UdpSocket,
        oneshot::Sender<io::Result<()>>,
    ),
    /// Leave new handshakes to other sockets on a listener's port; those under way end.
    EndHandshakes(ListenerId, oneshot::Sender<()>),
    /// Close a listener's socket, after taking the connections that wait. Connections go on.
    Close(ListenerId, oneshot::Sender<()>),
    /// Leave a listener's sockets, with all that waits in them, to the process that has copies of
    /// them. Connections go on, and so do replies to UDP clients.
    Leave(ListenerId, oneshot::Sender<()>),
    /// Copy all sockets of listeners.
    Copy(oneshot::Sender<Copies>),
    /// A paused acceptor may go on.
    Resume(Key),
    /// A connection's wait in line for a member is over.
    Served(Key, Result<Lease, Unavailable>),
    /// End what a listener has of cut connections and flows, as its or a member's drain time is
    /// over, and those of clients that no range allows any more; those that rest end if it closes.
    Sweep(Arc<ListenerState>),
    /// Show that the worker works.
    Answer(oneshot::Sender<()>),
    /// End everything and return.
    Stop,
}

/// The engine of one worker.
pub(crate) struct Engine {
    commands: mpsc::Receiver<Command>,
    resume: mpsc::Sender<Command>,
    tools: Tools,
    events: Events,
    acceptors: Slab<Acceptor>,
    /// Where the sockets of each listener are, among thousands.
    acceptors_by_id: HashMap<ListenerId, Vec<Key>>,
    proxy_headers: Slab<ProxyHeaderReader>,
    /// Of tasks.
    client_sockets: ClientSockets,
    connections: Slab<Connection>,
    /// Which of them are of one listener, by where its state lies.
    connections_by_listener: Lists<usize>,
    proxy_header_times: Wheel,
    connection_times: Wheel,
    flows: Flows,
    /// Acceptors with more to accept.
    eager: Vec<Key>,
    /// Connections with more to move.
    busy: Vec<Key>,
    due: Vec<u32>,
    timer: Timer,
    /// For which deadline the timer is set.
    alarm: Option<u64>,
}

/// What connections use in turn.
struct Tools {
    epoll: Arc<Epoll>,
    buffer: Box<[u8]>,
    pipes: Pipes,
    member_sockets: MemberSockets,
    /// How many bytes may still be moved at present.
    budget: u64,
    now: u64,
}

/// How much a worker may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    /// Pipes.
    pub(crate) pipes: usize,
    /// Spare sockets toward members, of each family.
    pub(crate) spares: usize,
}

// === impl Engine ===

impl Engine {
    /// An engine that obeys `commands`, of which `resume` is a sender. Must be called inside the
    /// worker's runtime.
    pub(crate) fn new(
        commands: mpsc::Receiver<Command>,
        resume: mpsc::Sender<Command>,
        capacity: Capacity,
    ) -> io::Result<Self> {
        let now = coarse_millis();
        let (epoll, timer) = (Arc::new(Epoll::new()?), Timer::new()?);
        epoll.add(&timer, Subject::Time.token(), Watch::Reading)?;
        Ok(Self {
            commands,
            resume,
            client_sockets: ClientSockets::new(epoll.clone()),
            tools: Tools {
                epoll,
                buffer: vec![0; pump::BUFFER_SIZE].into_boxed_slice(),
                pipes: Pipes::new(capacity.pipes),
                member_sockets: MemberSockets::new(capacity.spares),
                budget: BUDGET,
                now,
            },
            events: Events::default(),
            acceptors: Slab::default(),
            acceptors_by_id: HashMap::new(),
            proxy_headers: Slab::default(),
            connections: Slab::default(),
            connections_by_listener: Lists::default(),
            proxy_header_times: Wheel::new(now),
            connection_times: Wheel::new(now),
            flows: Flows::new(now),
            eager: Vec::new(),
            busy: Vec::new(),
            due: Vec::new(),
            timer,
            alarm: None,
        })
    }

    /// Serves until it is stopped.
    pub(crate) async fn run(mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The worker may have rested since its last pass.
        self.tools.now = coarse_millis();
        while let Poll::Ready(command) = self.commands.poll_recv(cx) {
            match command {
                Some(Command::Stop) | None => return Poll::Ready(()),
                Some(command) => self.obey(command),
            }
        }
        let begun = Instant::now();
        for _ in 0..PASSES {
            self.tools.now = coarse_millis();
            self.expire();
            if self.is_caught_up() {
                match self.tools.epoll.poll_look(cx, &mut self.events) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => lose_sight(&error),
                    Poll::Pending => {
                        self.rest();
                        return Poll::Pending;
                    }
                }
            } else if let Err(error) = self.tools.epoll.look(&mut self.events) {
                lose_sight(&error);
            }
            self.pass();
            if begun.elapsed() >= TURN {
                break;
            }
        }
        // Not the runtime's "yield": that would make it look for events of its own every time.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether nothing is left over from the last pass.
    fn is_caught_up(&self) -> bool {
        self.busy.is_empty() && self.eager.is_empty() && !self.flows.is_eager()
    }

    /// Before waiting: makes sure that the next deadline ends the wait.
    fn rest(&mut self) {
        let times = [
            self.connection_times.next(),
            self.proxy_header_times.next(),
            self.flows.next(),
        ];
        let Some(next) = times.into_iter().flatten().min() else {
            return;
        };
        if self.alarm.is_none_or(|alarm| next < alarm) {
            match self.timer.set(next + COARSENESS) {
                Ok(()) => self.alarm = Some(next),
                Err(error) => tracing::error!(%error, "deadlines cannot be kept"),
            }
        }
    }

    /// Deals with the fetched events, and with what waited for the end of a pass.
    fn pass(&mut self) {
        self.tools.member_sockets.begin_pass();
        self.client_sockets.forget_gone();
        // What becomes busy in this pass waits for the end of the next.
        let busy = std::mem::take(&mut self.busy);
        self.tools.budget = BUDGET;
        let eager = std::mem::take(&mut self.eager);
        for place in 0..self.events.len() {
            if let Some(event) = self.events.get(place) {
                self.dispatch(event);
            }
        }
        self.flows.go_on(&mut self.tools);
        for key in eager {
            self.accept(key);
        }
        self.resume_busy(busy);
    }

    /// Goes on with connections that had more to move, in turn and as far as the budget goes.
    fn resume_busy(&mut self, busy: Vec<Key>) {
        self.tools.budget = BUDGET;
        let became_busy = std::mem::take(&mut self.busy);
        let mut waiting = busy.into_iter();
        while self.tools.budget > 0
            && let Some(key) = waiting.next()
        {
            self.with_connection(key, Connection::resume);
        }
        let resumed = std::mem::take(&mut self.busy);
        self.busy.extend(waiting);
        self.busy.extend(became_busy);
        self.busy.extend(resumed);
    }

    fn dispatch(&mut self, event: Event) {
        match Subject::of(event.token) {
            Some(Subject::Acceptor(key)) => self.accept(key),
            Some(Subject::ProxyHeaderReader(key)) => self.read_proxy_header(key, event),
            Some(Subject::Client(key)) => {
                self.with_connection(key, |connection, tools| {
                    connection.client_event(event, tools)
                });
            }
            Some(Subject::Member(number)) => {
                let user = self.tools.member_sockets.user(number);
                let key = user.and_then(|user| self.connections.key_at(user));
                if let Some(key) = key {
                    self.with_connection(key, |connection, tools| {
                        connection.member_event(event, tools)
                    });
                }
            }
            Some(Subject::Port(key)) => self.flows.port_event(key, &mut self.tools),
            Some(Subject::Flow(key)) => self.flows.flow_event(key, &mut self.tools),
            Some(Subject::Task(key)) => self.client_sockets.note(key, event),
            // Deadlines are checked in every pass.
            Some(Subject::Time) => self.alarm = None,
            None => {}
        }
    }

    /// Lets a connection do something, and sees to what follows.
    fn with_connection(&mut self, key: Key, act: impl FnOnce(&mut Connection, &mut Tools) -> Step) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        match act(connection, &mut self.tools) {
            Step::End(end) => self.end(key, end),
            step => {
                let deadline = connection.deadline();
                if deadline < connection.alarm {
                    connection.alarm = deadline;
                    self.connection_times.set(key.index, deadline);
                }
                match step {
                    Step::Again if connection.is_busy => {}
                    Step::Again => {
                        connection.is_busy = true;
                        self.busy.push(key);
                    }
                    Step::LineUp => self.line_up(key),
                    Step::Wait | Step::End(_) => {}
                }
            }
        }
    }

    /// Has a task wait in line for a connection, which ends with it.
    fn line_up(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let (listener, client) = connection.line();
        let resume = self.resume.clone();
        let waits = tokio::spawn(async move {
            let member = listener.pool().wait(client).await;
            let _ = resume.send(Command::Served(key, member)).await;
        });
        connection.wait(AbortOnDropHandle::new(waits));
    }

    fn end(&mut self, key: Key, end: End) {
        if let Some(connection) = self.connections.remove(key) {
            self.connection_times.clear(key.index);
            let listener = place_of(connection.listener());
            self.connections_by_listener.remove(listener, key.index);
            connection.finish(end, &mut self.tools);
        }
    }

    fn expire(&mut self) {
        let now = self.tools.now;
        let mut due = std::mem::take(&mut self.due);
        self.connection_times.expire(now, &mut due);
        for index in due.drain(..) {
            let Some(key) = self.connections.key_at(index) else {
                continue;
            };
            self.with_connection(key, |connection, tools| {
                connection.alarm = u64::MAX;
                if connection.deadline() <= now {
                    connection.expire(tools)
                } else {
                    Step::Wait
                }
            });
        }
        self.proxy_header_times.expire(now, &mut due);
        for index in due.drain(..) {
            if let Some(key) = self.proxy_headers.key_at(index) {
                self.refuse_proxy_header(key);
            }
        }
        self.due = due;
        self.flows.expire(now);
    }

    /// Ends what must not go on of a listener's connections and flows.
    fn sweep(&mut self, listener: &Arc<ListenerState>) {
        let places = self.connections_by_listener.of(place_of(listener));
        for place in places.collect::<Vec<_>>() {
            let key = self.connections.key_at(place);
            let connection = key.and_then(|key| self.connections.get_mut(key));
            let end = connection.and_then(|connection| connection.must_end());
            if let (Some(key), Some(end)) = (key, end) {
                self.end(key, end);
            }
        }
        self.client_sockets.sweep(listener);
        self.flows.sweep(listener.id());
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::OpenTcp(listener, socket, shared, done) => {
                let opened = self.open_acceptor(listener, socket, shared);
                // The receiver is gone only when the proxy itself is.
                let _ = done.send(opened);
            }
            Command::OpenUdp(listener, socket, done) => {
                let _ = done.send(self.flows.open(listener, socket, &self.tools));
            }
            Command::EndHandshakes(id, done) => {
                self.end_handshakes(id);
                let _ = done.send(());
            }
            Command::Close(id, done) => {
                self.close_acceptors(id);
                self.flows.close(id, &self.tools);
                let _ = done.send(());
            }
            Command::Leave(id, done) => {
                self.leave_acceptors(id);
                self.flows.leave(id, &self.tools);
                let _ = done.send(());
            }
            Command::Copy(done) => {
                let mut copies = self.copy_acceptors();
                copies.extend(self.flows.copy());
                let _ = done.send(copies);
            }
            Command::Resume(key) => self.resume_acceptor(key),
            Command::Served(key, member) => {
                self.with_connection(key, |connection, tools| connection.served(member, tools));
            }
            Command::Sweep(listener) => self.sweep(&listener),
            Command::Answer(done) => {
                let _ = done.send(());
            }
            Command::Stop => {}
        }
    }
}

/// Where the state of a listener lies, which identifies it for as long as it is held.
fn place_of(listener: &Arc<ListenerState>) -> usize {
    Arc::as_ptr(listener).addr()
}

/// The kernel does not report events: the next pass tries again.
fn lose_sight(error: &io::Error) {
    if error.kind() != io::ErrorKind::Interrupted {
        tracing::error!(%error, "events cannot be fetched");
    }
}

/// A duration in milliseconds, for coarse deadlines.
fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_idle_costs_no_more_than_stated() {
        assert!(
            size_of::<Option<Connection>>() <= 384,
            "{}",
            size_of::<Option<Connection>>()
        );
    }
}
