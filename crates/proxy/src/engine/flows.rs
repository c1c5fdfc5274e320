//! UDP: one connected socket toward a member for each flow, which is one client talking to one
//! listener. The listener's own socket, bound to the address that clients know, sends the replies.
//!
//! A flow ends when nothing came from either side for the client's idle time, when its member says that
//! nobody listens there (the next datagram then chooses anew), when it is cut, or with its listener:
//! without the listener's socket there is no reply. When a worker has all the flows that it may have,
//! the one that was silent for longest makes room.
//!
//! PROXY protocol, version 2 only: toward members, the first datagram of a flow carries the header and
//! others do not. From trusted peers, the first datagram of a flow must carry one, which names the
//! client; others may.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use landfall_model::Protocol;
use landfall_sys::address::RawAddress;
use landfall_sys::datagram::{self, Batch};
use landfall_sys::epoll::Watch;

use super::pump::would_block;
use super::slab::{Key, Slab};
use super::wheel::Wheel;
use super::{Copies, Subject, Tools, millis};
use crate::counters::Refusal;
use crate::listener::{ListenerConfig, ListenerId, ListenerState, Place};
use crate::pool::Lease;
use crate::proxy::copy;
use crate::proxy_protocol::{Header, Origin, Parsed};
use crate::recency::Recency;

/// How many batches one socket may deliver before others have their turn.
const ROUNDS: usize = 8;

/// All UDP of a worker.
#[derive(Debug)]
pub(super) struct Flows {
    ports: Slab<Port>,
    table: Slab<Flow>,
    /// Which flow is whose, in order of last use.
    known: Recency<(Key, SocketAddr), Key>,
    times: Wheel,
    batch: Batch,
    /// Room for a datagram behind its PROXY header.
    room: Vec<u8>,
    due: Vec<u32>,
    capacity: usize,
    /// Sockets with more to read.
    eager: Vec<Subject>,
}

/// A listener's socket.
#[derive(Debug)]
struct Port {
    socket: UdpSocket,
    listener: Arc<ListenerState>,
}

/// A client and its member.
#[derive(Debug)]
struct Flow {
    port: Key,
    peer: SocketAddr,
    raw_peer: RawAddress,
    socket: OwnedFd,
    listener: Arc<ListenerState>,
    lease: Lease,
    idle: u32,
    heard: u64,
    _place: Place,
}

// === impl Flows ===

impl Flows {
    pub(super) fn new(capacity: usize, now: u64) -> Self {
        Self {
            ports: Slab::default(),
            table: Slab::default(),
            known: Recency::new(capacity + 1),
            times: Wheel::new(now),
            batch: Batch::default(),
            room: Vec::new(),
            due: Vec::new(),
            capacity,
            eager: Vec::new(),
        }
    }

    pub(super) fn open(
        &mut self,
        listener: Arc<ListenerState>,
        socket: UdpSocket,
        tools: &Tools,
    ) -> io::Result<()> {
        let key = self.ports.insert_with(|_| Port { socket, listener });
        let Some(port) = self.ports.get_mut(key) else {
            return Ok(());
        };
        let added = tools
            .epoll
            .add(&port.socket, Subject::Port(key).token(), Watch::Reading);
        if added.is_err() {
            self.ports.remove(key);
        }
        added
    }

    pub(super) fn close(&mut self, id: ListenerId, tools: &Tools) {
        for key in self.table.keys_where(|flow| flow.listener.id() == id) {
            self.end(key);
        }
        for key in self.ports.keys_where(|port| port.listener.id() == id) {
            if let Some(port) = self.ports.remove(key) {
                // Closing it would not end its events while another process has a copy.
                let _ = tools.epoll.remove(&port.socket);
            }
        }
    }

    /// Reads nothing more from clients of a listener. Replies to them still go through its socket.
    pub(super) fn leave(&mut self, id: ListenerId, tools: &Tools) {
        for key in self.ports.keys_where(|port| port.listener.id() == id) {
            if let Some(port) = self.ports.get_mut(key) {
                let _ = tools.epoll.remove(&port.socket);
            }
            self.eager.retain(|subject| *subject != Subject::Port(key));
        }
    }

    /// Copies every listener's socket.
    pub(super) fn copy(&mut self) -> Copies {
        let keys = self.ports.keys_where(|_| true);
        let copies = keys.into_iter().filter_map(|key| {
            let port = self.ports.get_mut(key)?;
            Some(copy(port.listener.id(), &port.socket))
        });
        copies.collect()
    }

    /// Ends flows whose member's drain time is over.
    pub(super) fn sweep(&mut self) {
        for key in self.table.keys_where(|flow| flow.lease.is_cut()) {
            self.end(key);
        }
    }

    /// When [`Self::expire`] will next have something to do.
    pub(super) fn next(&self) -> Option<u64> {
        self.times.next()
    }

    pub(super) fn expire(&mut self, now: u64) {
        let mut due = std::mem::take(&mut self.due);
        self.times.expire(now, &mut due);
        for index in due.drain(..) {
            let Some(key) = self.table.key_at(index) else {
                continue;
            };
            let Some(flow) = self.table.get_mut(key) else {
                continue;
            };
            let deadline = flow.heard + u64::from(flow.idle);
            if deadline <= now {
                self.end(key);
            } else {
                self.times.set(index, deadline);
            }
        }
        self.due = due;
    }

    /// Whether sockets have more to read than their share of the last pass.
    pub(super) fn is_eager(&self) -> bool {
        !self.eager.is_empty()
    }

    /// Goes on with sockets that had more to read.
    pub(super) fn go_on(&mut self, tools: &mut Tools) {
        for subject in std::mem::take(&mut self.eager) {
            match subject {
                Subject::Port(key) => self.port_event(key, tools),
                Subject::Flow(key) => self.flow_event(key, tools),
                _ => {}
            }
        }
    }

    /// Datagrams from clients.
    pub(super) fn port_event(&mut self, key: Key, tools: &mut Tools) {
        for _ in 0..ROUNDS {
            let Some(port) = self.ports.get_mut(key) else {
                return;
            };
            let count = match self.batch.receive(&port.socket) {
                Ok(count) => count,
                Err(error) if would_block(&error) => return,
                // What the network says about an earlier reply.
                Err(_) => continue,
            };
            let mut place = 0;
            while place < count {
                place = self.take_run(key, place, tools);
            }
            if count < datagram::BATCH {
                return;
            }
        }
        self.eager.push(Subject::Port(key));
    }

    /// Replies of a member.
    pub(super) fn flow_event(&mut self, key: Key, tools: &mut Tools) {
        for _ in 0..ROUNDS {
            let Some(flow) = self.table.get_mut(key) else {
                return;
            };
            let count = match self.batch.receive(&flow.socket) {
                Ok(count) => count,
                Err(error) if would_block(&error) => return,
                Err(error) => {
                    flow.fail(&error);
                    return self.end(key);
                }
            };
            flow.heard = tools.now;
            let bytes = (0..count)
                .map(|place| self.batch.bytes(place).len() as u64)
                .sum();
            flow.count(0, bytes);
            if let Some(port) = self.ports.get_mut(flow.port) {
                let mut sent = 0;
                while sent < count {
                    // A datagram that cannot be sent now is lost, as on any full link.
                    let gone = self
                        .batch
                        .send(&port.socket, Some(&flow.raw_peer), sent..count);
                    sent += gone.unwrap_or(1).max(1);
                }
            }
            if count < datagram::BATCH {
                return;
            }
        }
        self.eager.push(Subject::Flow(key));
    }

    /// Passes on a run of datagrams of one client. Returns the place behind it.
    fn take_run(&mut self, port_key: Key, start: usize, tools: &mut Tools) -> usize {
        let Some(peer) = self.batch.sender(start) else {
            return start + 1;
        };
        let Some(port) = self.ports.get_mut(port_key) else {
            return self.batch.len();
        };
        let listener = port.listener.clone();
        let config = listener.config();
        let trusted = config.trusts(peer.ip());
        let mut flow_key = None;
        if let Some(&mut known) = self.known.get(&(port_key, peer)) {
            if self
                .table
                .get_mut(known)
                .is_some_and(|flow| flow.heard != tools.now)
            {
                self.known.touch(&(port_key, peer));
            }
            flow_key = Some(known);
        }
        let Some(key) = flow_key else {
            let first = (port_key, peer, start);
            self.begin(first, trusted, &config, listener.clone(), tools);
            return start + 1;
        };
        let mut end = start + 1;
        if trusted {
            self.pass_stripped(key, start, tools.now);
        } else {
            while end < self.batch.len() && self.batch.sender(end) == Some(peer) {
                end += 1;
            }
            self.pass(key, start..end, tools.now);
        }
        end
    }

    /// Passes datagrams on as they are.
    fn pass(&mut self, key: Key, run: std::ops::Range<usize>, now: u64) {
        let Some(flow) = self.table.get_mut(key) else {
            return;
        };
        flow.heard = now;
        let bytes = run
            .clone()
            .map(|place| self.batch.bytes(place).len() as u64)
            .sum();
        flow.count(bytes, 0);
        let mut sent = run.start;
        while sent < run.end {
            match self.batch.send(&flow.socket, None, sent..run.end) {
                Ok(count) => sent += count.max(1),
                // Lost, as on any full link.
                Err(error) if would_block(&error) => return,
                Err(error) => {
                    flow.fail(&error);
                    return self.end(key);
                }
            }
        }
    }

    /// Passes a trusted peer's datagram on, without a header that it may have again.
    fn pass_stripped(&mut self, key: Key, place: usize, now: u64) {
        let bytes = self.batch.bytes(place);
        let skip = match Parsed::read(bytes, Protocol::Udp) {
            Parsed::Header(_, length) => length,
            Parsed::Incomplete | Parsed::Invalid => 0,
        };
        let Some(flow) = self.table.get_mut(key) else {
            return;
        };
        flow.heard = now;
        let bytes = bytes.get(skip..).unwrap_or_default();
        flow.count(bytes.len() as u64, 0);
        if let Err(error) = datagram::send(&flow.socket, bytes)
            && !would_block(&error)
        {
            flow.fail(&error);
            self.end(key);
        }
    }

    /// The first datagram of a flow.
    fn begin(
        &mut self,
        (port, peer, place): (Key, SocketAddr, usize),
        trusted: bool,
        config: &ListenerConfig,
        listener: Arc<ListenerState>,
        tools: &Tools,
    ) {
        let counters = listener.counters();
        let mut bytes = self.batch.bytes(place);
        let mut inbound = listener.inbound(peer);
        if trusted {
            let Parsed::Header(origin, length) = Parsed::read(bytes, Protocol::Udp) else {
                return counters.mine().refused(Refusal::ProxyHeader);
            };
            if let Origin::Client {
                source,
                destination,
            } = origin
            {
                inbound.client = source;
                inbound.local = destination;
            }
            bytes = bytes.get(length..).unwrap_or_default();
        }
        if !config.allows(inbound.client.ip()) {
            return counters.mine().refused(Refusal::Source);
        }
        let Some(place_in_gate) = listener.gate().enter() else {
            return counters.mine().refused(Refusal::Limit);
        };
        self.room.clear();
        if let Some(version) = config.listener.pool.proxy_protocol {
            let header = Header::new(version, Protocol::Udp, inbound.client, inbound.local);
            self.room.extend_from_slice(header.as_bytes());
        }
        self.room.extend_from_slice(bytes);
        let Some((lease, socket)) = reach(&listener, inbound.client, &self.room) else {
            return counters.mine().refused(Refusal::NoMember);
        };
        let received = bytes.len() as u64;
        if self.known.len() >= self.capacity
            && let Some((_, oldest)) = self.known.pop_oldest()
        {
            self.end(oldest);
        }
        let idle = millis(config.listener.timeouts.client_data).max(1);
        let raw_peer = RawAddress::new(peer);
        let heard = tools.now;
        let flow = Flow {
            port,
            peer,
            raw_peer,
            socket,
            listener,
            lease,
            idle,
            heard,
            _place: place_in_gate,
        };
        flow.listener.counters().mine().connected();
        flow.count(received, 0);
        let key = self.table.insert_with(|_| flow);
        let Some(flow) = self.table.get_mut(key) else {
            return;
        };
        let token = Subject::Flow(key).token();
        if let Err(error) = tools.epoll.add(&flow.socket, token, Watch::Reading) {
            tracing::warn!(%error, "a flow cannot be watched");
            self.table.remove(key);
            return;
        }
        self.known.insert((port, peer), key);
        self.times.set(key.index, heard + u64::from(idle));
    }

    fn end(&mut self, key: Key) {
        let Some(flow) = self.table.remove(key) else {
            return;
        };
        self.times.clear(key.index);
        self.known.remove(&(flow.port, flow.peer));
    }
}

// === impl Flow ===

impl Flow {
    fn count(&self, bytes_in: u64, bytes_out: u64) {
        self.listener.counters().mine().passed(bytes_in, bytes_out);
        self.lease
            .member()
            .counters()
            .mine()
            .passed(bytes_in, bytes_out);
    }

    fn fail(&self, error: &io::Error) {
        self.lease.failed(error);
        self.listener.counters().mine().connect_failed();
        let (listener, member) = (self.listener.id(), self.lease.address());
        tracing::debug!(%listener, %member, %error, "member takes no datagrams");
    }
}

/// Chooses a member and sends it the first datagram.
fn reach(listener: &ListenerState, client: SocketAddr, bytes: &[u8]) -> Option<(Lease, OwnedFd)> {
    let mut tried = Vec::new();
    while tried.len() < crate::dial::MAX_TRIES {
        let lease = listener.pool().pick(client, &tried)?;
        let sent = datagram::connected(lease.member().raw_address()).and_then(|socket| {
            match datagram::send(&socket, bytes) {
                // Lost, as on any full link.
                Err(error) if !would_block(&error) => Err(error),
                _ => Ok(socket),
            }
        });
        match sent {
            Ok(socket) => {
                lease.connected();
                return Some((lease, socket));
            }
            Err(error) => {
                lease.failed(&error);
                listener.counters().mine().connect_failed();
                tracing::debug!(member = %lease.address(), %error, "member takes no datagrams");
                tried.push(lease.address());
            }
        }
    }
    None
}
