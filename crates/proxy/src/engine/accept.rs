//! Taking new connections from a listening socket, and letting them in or not. Pauses while the
//! listener's connection limit is reached, so that what is too much waits in the kernel's queue,
//! and while the process has no descriptors left.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use landfall_model::listener::Mode;
use landfall_sys::epoll::Watch;
use landfall_sys::listen;
use landfall_sys::stream::Stream;

use super::connection::Connection;
use super::copies::{Copies, copy};
use super::pump::would_block;
use super::slab::Key;
use super::{Command, Engine, Subject, client_token, place_of, tasks};
use crate::budget::Cost;
use crate::counters::Refusal;
use crate::http::{self, Front};
use crate::identity::ListenerId;
use crate::inbound::Inbound;
use crate::listener::{ListenerState, Place};
use crate::shortage::Shortage;

/// How many connections one listener may accept before other events have their turn.
const SHARE: usize = 64;

/// How often a listener that closes accepts its share: its whole queue, but no endless stream.
const LAST_SHARES: usize = 4096 / SHARE + 1;

/// How long to wait for descriptors when there are none.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket of this worker.
#[derive(Debug)]
pub(super) struct Acceptor {
    socket: TcpListener,
    listener: Arc<ListenerState>,
    /// Shared by the HTTP connections of this listener on this worker.
    front: Option<Arc<Front>>,
    paused: bool,
    /// Whether another process has, or may have, a copy of the socket.
    shared: bool,
}

impl Engine {
    pub(super) fn open_acceptor(
        &mut self,
        listener: Arc<ListenerState>,
        socket: TcpListener,
        shared: bool,
    ) -> io::Result<()> {
        let acceptor = Acceptor {
            socket,
            listener,
            front: None,
            paused: false,
            shared,
        };
        let id = acceptor.listener.id();
        let key = self.acceptors.insert_with(|_| acceptor);
        let Some(acceptor) = self.acceptors.get_mut(key) else {
            return Ok(());
        };
        let token = Subject::Acceptor(key).token();
        let added = self
            .tools
            .epoll
            .add(&acceptor.socket, token, Watch::Reading);
        if added.is_err() {
            self.acceptors.remove(key);
        } else {
            self.acceptors_by_id.entry(id).or_default().push(key);
        }
        added
    }

    /// Begins no more handshakes with clients of a listener, where that takes nothing from another
    /// process.
    pub(super) fn end_handshakes(&mut self, id: ListenerId) {
        for key in self.acceptors_by_id.get(&id).into_iter().flatten() {
            if let Some(acceptor) = self.acceptors.get_mut(*key)
                && !acceptor.shared
                && let Err(error) = listen::end_handshakes(&acceptor.socket)
            {
                tracing::debug!(listener = %id, %error, "handshakes go on until the socket closes");
            }
        }
    }

    /// Closes the sockets of a listener. Clients in their queue already are accepted first.
    pub(super) fn close_acceptors(&mut self, id: ListenerId) {
        for key in self.acceptors_by_id.remove(&id).unwrap_or_default() {
            let mut shares = 0..LAST_SHARES;
            while shares.next().is_some() && self.accept_some(key) == Accepted::More {}
            self.remove_acceptor(key);
        }
    }

    /// Gives up the sockets of a listener, with all clients in their queues.
    pub(super) fn leave_acceptors(&mut self, id: ListenerId) {
        for key in self.acceptors_by_id.remove(&id).unwrap_or_default() {
            self.remove_acceptor(key);
        }
    }

    /// Copies every listening socket.
    pub(super) fn copy_acceptors(&mut self) -> Copies {
        let keys = self.acceptors.keys_where(|_| true);
        let copies = keys.into_iter().filter_map(|key| {
            let acceptor = self.acceptors.get_mut(key)?;
            acceptor.shared = true;
            Some(copy(acceptor.listener.id(), &acceptor.socket))
        });
        copies.collect()
    }

    fn remove_acceptor(&mut self, key: Key) {
        if let Some(acceptor) = self.acceptors.remove(key) {
            // Closing it would not end its events while another process has a copy.
            let _ = self.tools.epoll.remove(&acceptor.socket);
        }
    }

    pub(super) fn resume_acceptor(&mut self, key: Key) {
        if let Some(acceptor) = self.acceptors.get_mut(key) {
            acceptor.paused = false;
            self.eager.push(key);
        }
    }

    /// Accepts what waits.
    pub(super) fn accept(&mut self, key: Key) {
        match self.accept_some(key) {
            Accepted::All => {}
            Accepted::More => self.eager.push(key),
            Accepted::Full(listener) => {
                let resume = self.resume.clone();
                let closing = listener.closing().clone();
                tokio::spawn(async move {
                    tokio::select! {
                        () = closing.cancelled() => {}
                        () = listener.gate().freed() => {
                            let _ = resume.send(Command::Resume(key)).await;
                        }
                    }
                });
            }
            Accepted::Shortage => {
                let resume = self.resume.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(SHORTAGE_PAUSE).await;
                    let _ = resume.send(Command::Resume(key)).await;
                });
            }
        }
    }

    fn accept_some(&mut self, key: Key) -> Accepted {
        for _ in 0..SHARE {
            let Some(acceptor) = self.acceptors.get_mut(key) else {
                return Accepted::All;
            };
            if acceptor.paused {
                return Accepted::All;
            }
            let listener = acceptor.listener.clone();
            let Some(mut place) = listener.gate().enter() else {
                acceptor.paused = true;
                return Accepted::Full(listener);
            };
            match Stream::accept(&acceptor.socket) {
                Ok((stream, peer)) => {
                    let Some(peer) = peer.get() else {
                        continue;
                    };
                    // Trusted peers bring the clients of many.
                    let trusted = listener.config().trusts(peer.ip());
                    let budget = listener.account().budget();
                    let source = (!trusted).then(|| budget.source(peer.ip()));
                    if place.take(Cost::Connection, source).is_err() {
                        listener.refuse(peer, Refusal::Share);
                        // Without it a refused client would cost a port in TIME-WAIT.
                        let _ = stream.set_reset_on_close();
                        continue;
                    }
                    self.admit(key, stream, (peer, trusted), listener, place);
                }
                Err(error) if would_block(&error) => return Accepted::All,
                Err(error) if is_shortage(&error) => {
                    acceptor.paused = true;
                    listener.account().budget().fell_short();
                    let counters = listener.counters().mine();
                    if let Some(shortage) = Shortage::of(&error) {
                        counters.fell_short(shortage);
                    }
                    tracing::debug!(listener = %listener.id(), %error, "accepting pauses");
                    return Accepted::Shortage;
                }
                // The connection was gone before it was taken.
                Err(error) => {
                    tracing::debug!(listener = %listener.id(), %error, "nothing accepted");
                }
            }
        }
        Accepted::More
    }

    fn admit(
        &mut self,
        acceptor: Key,
        stream: Stream,
        (peer, trusted): (SocketAddr, bool),
        listener: Arc<ListenerState>,
        place: Place,
    ) {
        if trusted {
            self.await_proxy_header(acceptor, stream, peer, listener, place);
        } else {
            let inbound = listener.inbound(peer);
            self.welcome(acceptor, stream, inbound, listener, place);
        }
    }

    /// Lets a client in whose identity is known.
    pub(super) fn welcome(
        &mut self,
        acceptor: Key,
        stream: Stream,
        mut inbound: Inbound,
        listener: Arc<ListenerState>,
        mut place: Place,
    ) {
        let config = listener.config();
        if !config.allows(inbound.client.ip()) {
            listener.refuse(inbound.client, Refusal::Source);
            return;
        }
        if let Err(refusal) = place.validate(&listener, inbound.client.ip()) {
            listener.refuse(inbound.client, refusal);
            let _ = stream.set_reset_on_close();
            return;
        }
        let passes = matches!(config.listener.mode, Mode::Stream);
        if passes && config.toward_members.is_none() {
            drop(config);
            self.begin(stream, &inbound, listener, place);
            return;
        }
        inbound.secure = config.termination.is_some();
        let speaks_http = config.listener.mode.http().is_some();
        let front = speaks_http.then(|| self.front(acceptor)).flatten();
        drop(config);
        let (client, sockets) = (inbound.client.ip(), &mut self.client_sockets);
        let socket = sockets.add(stream, client, &listener);
        let key = socket.key();
        let running = match front {
            Some(front) if !inbound.secure => {
                tokio::spawn(http::serve(front, socket, inbound, &[], place))
            }
            front => {
                let task = tasks::Task {
                    front,
                    config: listener.config_full(),
                    inbound,
                    place,
                };
                tokio::spawn(task.run(socket, listener))
            }
        };
        sockets.set_task(key, running.abort_handle());
    }

    fn begin(
        &mut self,
        stream: Stream,
        inbound: &Inbound,
        listener: Arc<ListenerState>,
        place: Place,
    ) {
        let (now, owner) = (self.tools.now, place_of(&listener));
        let key = self
            .connections
            .insert_with(|key| Connection::new(key, stream, inbound, listener, place, now));
        self.connections_by_listener.add(owner, key.index);
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let added = self
            .tools
            .epoll
            .add(connection.client(), client_token(key), Watch::Reading);
        if let Err(error) = added {
            tracing::warn!(%error, "a connection cannot be polled");
            self.connections.remove(key);
            self.connections_by_listener.remove(owner, key.index);
        } else {
            self.with_connection(key, Connection::begin);
        }
    }

    fn front(&mut self, acceptor: Key) -> Option<Arc<Front>> {
        let acceptor = self.acceptors.get_mut(acceptor)?;
        let front = acceptor
            .front
            .get_or_insert_with(|| Arc::new(Front::new(acceptor.listener.clone())));
        Some(front.clone())
    }
}

/// How far accepting went.
#[derive(Debug)]
enum Accepted {
    /// Nothing waits any more, or accepting pauses already.
    All,
    /// More may wait.
    More,
    /// The connection limit is reached.
    Full(Arc<ListenerState>),
    /// There are no descriptors or no memory.
    Shortage,
}

impl PartialEq for Accepted {
    fn eq(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

fn is_shortage(error: &io::Error) -> bool {
    // EMFILE, ENFILE, ENOBUFS, ENOMEM.
    matches!(error.raw_os_error(), Some(24 | 23 | 105 | 12))
}
