//! UDP: one connected socket toward a member for each flow, which is one client talking to one
//! listener. The listener's own socket, bound to the address that clients know, sends the replies.
//!
//! A flow ends when nothing came from either side for the client's idle time, when its member says
//! that nothing listens there (the next datagram then chooses again), when it is cut, or with its
//! listener: without the listener's socket there is no reply. Where there may be no more flows, a
//! listener's own flow that was silent for longest makes room: a Service that has its share uses it
//! again, and takes nothing from others. Where it has none, one of a Service above its minimum
//! does. What fails on this side, for want of ports say, is not held against members.
//!
//! PROXY protocol, version 2 only: toward members, the first datagram of a flow carries the header
//! and others do not. From trusted peers, the first datagram of a flow must carry one, which names
//! the client; others may, and one that names another client begins another flow.
//!
//! A datagram has one hop less toward the member than it came with, as behind a router (RFC 1812,
//! section 5.3.1): what comes back to a listener by a way that is not known here, through the
//! forwarding rules of a node say, goes round until it has none left, and not for ever. One that
//! comes with its last hop is refused. Answers have all hops: members make them, and they end at a
//! client.

mod begin;
mod flow;
mod room;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use landfall_model::Protocol;
use landfall_sys::datagram::{self, Batch};
use landfall_sys::epoll::Watch;

use super::copies::{Copies, copy};
use super::pump::would_block;
use super::slab::{Key, Slab};
use super::wheel::Wheel;
use super::{Subject, Tools};
use crate::counters::Refusal;
use crate::identity::ListenerId;
use crate::listener::ListenerState;
use crate::proxy_protocol::{Origin, Parsed};
use crate::recency::Recency;

use flow::Flow;

/// How many batches one socket may deliver before others have their turn.
const ROUNDS: usize = 8;

/// The most hops that a datagram has toward a member: what systems commonly begin with.
const MOST_HOPS: u8 = 64;

/// All UDP of a worker.
#[derive(Debug)]
pub(super) struct Flows {
    ports: Slab<Port>,
    ports_by_id: HashMap<ListenerId, Vec<Key>>,
    /// Ports by the number of their flows that are of the common part, without those with none.
    ranks: BTreeSet<(u32, u32)>,
    /// Where they listen.
    own: HashSet<SocketAddr>,
    table: Slab<Flow>,
    times: Wheel,
    batch: Batch,
    /// Room for a datagram behind its PROXY header.
    buffer: Vec<u8>,
    due: Vec<u32>,
    /// Sockets with more to read.
    eager: Vec<Subject>,
}

/// A listener's socket.
#[derive(Debug)]
struct Port {
    socket: UdpSocket,
    listener: Arc<ListenerState>,
    /// Which flow is whose, in order of last use.
    known: Recency<SocketAddr, Key>,
    /// How many of them are of the common part.
    common: u32,
}

// === impl Flows ===

impl Flows {
    pub(super) fn new(now: u64) -> Self {
        Self {
            ports: Slab::default(),
            ports_by_id: HashMap::new(),
            ranks: BTreeSet::new(),
            own: HashSet::new(),
            table: Slab::default(),
            times: Wheel::new(now),
            batch: Batch::default(),
            buffer: Vec::new(),
            due: Vec::new(),
            eager: Vec::new(),
        }
    }

    pub(super) fn open(
        &mut self,
        listener: Arc<ListenerState>,
        socket: UdpSocket,
        tools: &Tools,
    ) -> io::Result<()> {
        let id = listener.id();
        let key = self.ports.insert_with(|_| Port {
            socket,
            listener,
            known: Recency::new(usize::MAX),
            common: 0,
        });
        let Some(port) = self.ports.get_mut(key) else {
            return Ok(());
        };
        let token = Subject::Port(key).token();
        let added = datagram::report_hops(&port.socket, id.address.is_ipv6())
            .and_then(|()| tools.epoll.add(&port.socket, token, Watch::Reading));
        if added.is_err() {
            self.ports.remove(key);
        } else {
            self.ports_by_id.entry(id).or_default().push(key);
            self.own.insert(id.socket_address());
        }
        added
    }

    pub(super) fn close(&mut self, id: ListenerId, tools: &Tools) {
        for key in self.flows_of(id) {
            self.end(key);
        }
        for key in self.ports_by_id.remove(&id).unwrap_or_default() {
            if let Some(port) = self.ports.remove(key) {
                // Closing it would not end its events while another process has a copy.
                let _ = tools.epoll.remove(&port.socket);
            }
        }
        if id.key.protocol == Protocol::Udp {
            self.own.remove(&id.socket_address());
        }
    }

    /// Reads nothing more from clients of a listener. Replies to them still go through its socket.
    pub(super) fn leave(&mut self, id: ListenerId, tools: &Tools) {
        for &key in self.ports_by_id.get(&id).into_iter().flatten() {
            if let Some(port) = self.ports.get_mut(key) {
                let _ = tools.epoll.remove(&port.socket);
            }
            self.eager.retain(|subject| *subject != Subject::Port(key));
        }
    }

    /// The flows of a listener.
    fn flows_of(&mut self, id: ListenerId) -> Vec<Key> {
        let mut flows = Vec::new();
        for &key in self.ports_by_id.get(&id).into_iter().flatten() {
            if let Some(port) = self.ports.get_mut(key) {
                flows.extend(port.known.values().copied());
            }
        }
        flows
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

    /// Ends those flows of a listener that must not go on.
    pub(super) fn sweep(&mut self, id: ListenerId) {
        for key in self.flows_of(id) {
            if self.table.get_mut(key).is_some_and(|flow| flow.is_over()) {
                self.end(key);
            }
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
            let deadline = flow.last_active + u64::from(flow.idle);
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
            let is_older = std::mem::replace(&mut flow.last_active, tools.now) != tools.now;
            let bytes = (0..count)
                .map(|place| self.batch.bytes(place).len() as u64)
                .sum();
            flow.count(0, bytes);
            if let Some(port) = self.ports.get_mut(flow.port) {
                if is_older {
                    port.known.touch(&flow.peer);
                }
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
        let came_with = self.batch.hops(start);
        let hops = came_with.map_or(MOST_HOPS, |hops| (hops.saturating_sub(1)).min(MOST_HOPS));
        let Some(port) = self.ports.get_mut(port_key) else {
            return self.batch.len();
        };
        let listener = port.listener.clone();
        if hops == 0 {
            listener.refuse(listener.inbound(peer).client, Refusal::Hops);
            return start + 1;
        }
        let config = listener.config();
        let trusted = config.trusts(peer.ip());
        let mut flow_key = None;
        if let Some(&mut known) = port.known.get(&peer) {
            if self
                .table
                .get_mut(known)
                .is_some_and(|flow| flow.last_active != tools.now)
            {
                port.known.touch(&peer);
            }
            flow_key = Some(known);
        }
        if trusted
            && let Some(key) = flow_key
            && self.is_of_another(key, start)
        {
            self.end(key);
            flow_key = None;
        }
        let Some(key) = flow_key else {
            let first = (port_key, peer, (start, hops));
            self.begin(first, trusted, &config, listener.clone(), tools);
            return start + 1;
        };
        let mut end = start + 1;
        if let Some(flow) = self.table.get_mut(key) {
            flow.set_hops(hops);
        }
        if trusted {
            self.pass_stripped(key, start, tools.now);
        } else {
            let same = |place| {
                let (sender, hops) = (self.batch.sender(place), self.batch.hops(place));
                sender == Some(peer) && hops == came_with
            };
            while end < self.batch.len() && same(end) {
                end += 1;
            }
            self.pass(key, start..end, tools.now);
        }
        end
    }

    /// Whether a trusted peer's datagram names another client than the flow is of.
    fn is_of_another(&mut self, key: Key, place: usize) -> bool {
        let parsed = Parsed::read(self.batch.bytes(place), Protocol::Udp);
        let Parsed::Header(Origin::Client { source, .. }, _) = parsed else {
            return false;
        };
        self.table
            .get_mut(key)
            .is_some_and(|flow| flow.client != source)
    }

    /// Passes datagrams on as they are.
    fn pass(&mut self, key: Key, run: std::ops::Range<usize>, now: u64) {
        let Some(flow) = self.table.get_mut(key) else {
            return;
        };
        flow.last_active = now;
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
                    if !flow.fail(&error) {
                        return self.end(key);
                    }
                    // Only the first of them is certainly lost.
                    sent += 1;
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
        flow.last_active = now;
        let bytes = bytes.get(skip..).unwrap_or_default();
        flow.count(bytes.len() as u64, 0);
        if let Err(error) = datagram::send(&flow.socket, bytes)
            && !would_block(&error)
            && !flow.fail(&error)
        {
            self.end(key);
        }
    }

    fn end(&mut self, key: Key) {
        let Some(mut flow) = self.table.remove(key) else {
            return;
        };
        flow.note_end();
        self.times.clear(key.index);
        if let Some(port) = self.ports.get_mut(flow.port) {
            port.known.remove(&flow.peer);
        }
        if flow.place.is_common() {
            self.count_common(flow.port, |count| count.saturating_sub(1));
        }
    }
}

#[cfg(test)]
mod tests;
