//! How a flow begins: admission, member and socket.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use landfall_model::Protocol;
use landfall_sys::address::RawAddress;
use landfall_sys::datagram;
use landfall_sys::epoll::Watch;

use super::super::pump::would_block;
use super::super::slab::Key;
use super::super::{Subject, Tools, millis};
use super::Flows;
use super::flow::Flow;
use crate::budget::Cost;
use crate::counters::Refusal;
use crate::inbound::Inbound;
use crate::listener::{ListenerConfig, ListenerState};
use crate::pool::Lease;
use crate::proxy_protocol::{Header, Origin, Parsed};
use crate::shortage::Shortage;

impl Flows {
    /// The first datagram of a flow.
    pub(super) fn begin(
        &mut self,
        (port, peer, (place, hops)): (Key, SocketAddr, (usize, u8)),
        trusted: bool,
        config: &ListenerConfig,
        listener: Arc<ListenerState>,
        tools: &Tools,
    ) {
        let mut bytes = self.batch.bytes(place);
        let mut inbound = listener.inbound(peer);
        // Replies to one of our own listeners, or to a member, would go round for ever. There are
        // none to port 0.
        if self.own.contains(&peer) || config.would_go_round(peer) || peer.port() == 0 {
            return listener.refuse(inbound.client, Refusal::Source);
        }
        if trusted {
            bytes = match take_header(bytes, &mut inbound) {
                Ok(payload) => payload,
                Err(refusal) => return listener.refuse(inbound.client, refusal),
            };
        }
        if !config.allows(inbound.client.ip()) {
            return listener.refuse(inbound.client, Refusal::Source);
        }
        let Some(mut place_in_gate) = listener.gate().enter() else {
            return listener.refuse(inbound.client, Refusal::Limit);
        };
        if let Err(refusal) = place_in_gate.validate(&listener, inbound.client.ip()) {
            return listener.refuse(inbound.client, refusal);
        }
        // Trusted peers bring the clients of many.
        let source = (!trusted).then(|| listener.account().flow_source(inbound.client.ip()));
        self.buffer.clear();
        if let Some(version) = config.listener.pool.proxy_protocol {
            let header = Header::new(version, Protocol::Udp, inbound.client, inbound.local);
            self.buffer.extend_from_slice(header.as_bytes());
        }
        self.buffer.extend_from_slice(bytes);
        let received = bytes.len() as u64;
        let excess = place_in_gate.take(Cost::Flow, source).err();
        if excess.is_some_and(|excess| !self.can_make_room(port, source, excess)) {
            return listener.refuse(inbound.client, Refusal::Share);
        }
        let (lease, socket) = match self.reach(port, &listener, (inbound.client, hops)) {
            Ok(reached) => reached,
            Err(refusal) => return listener.refuse(inbound.client, refusal),
        };
        // Only now: a datagram that no member takes must end no flow.
        if let Some(excess) = excess
            && !self.make_room((port, source), excess, &mut place_in_gate)
        {
            return listener.refuse(inbound.client, Refusal::Share);
        }
        let idle = millis(config.listener.timeouts.client_data).max(1);
        let raw_peer = RawAddress::new(peer);
        let now = tools.now;
        let mut note = listener.note(inbound.client);
        if let Some(note) = &mut note {
            note.facts().member = Some(lease.address());
        }
        let flow = Flow {
            port,
            peer,
            raw_peer,
            socket,
            listener,
            lease,
            hops,
            idle,
            last_active: now,
            source,
            client: inbound.client,
            began: now,
            note,
            place: place_in_gate,
        };
        self.insert(flow, received, tools);
    }

    /// Returns a member that took the first datagram, and the socket toward it.
    fn reach(
        &mut self,
        port: Key,
        listener: &Arc<ListenerState>,
        first: (SocketAddr, u8),
    ) -> Result<(Lease, OwnedFd), Refusal> {
        let mut reached = reach(listener, first, &self.buffer);
        if matches!(reached, Err(Unreached::Here(Shortage::Ports))) && self.end_oldest_of(port) {
            // Others on this machine have the ports: with one of its own back it may do.
            reached = reach(listener, first, &self.buffer);
        }
        reached.map_err(|unreached| match unreached {
            Unreached::Members(refusal) => refusal,
            Unreached::Here(shortage) => {
                // What a client can bring about with one datagram says nothing of the process.
                if !matches!(shortage, Shortage::Size | Shortage::Denied) {
                    listener.account().budget().fell_short();
                }
                Refusal::Local
            }
        })
    }

    /// Adds a flow whose first datagram was sent.
    fn insert(&mut self, mut flow: Flow, received: u64, tools: &Tools) {
        let (port, peer) = (flow.port, flow.peer);
        let expires = flow.last_active + u64::from(flow.idle);
        flow.listener.counters().mine().connected();
        flow.count(received, 0);
        let key = self.table.insert_with(|_| flow);
        let Some(flow) = self.table.get_mut(key) else {
            return;
        };
        let token = Subject::Flow(key).token();
        if let Err(error) = tools.epoll.add(&flow.socket, token, Watch::Reading) {
            tracing::warn!(%error, "a flow cannot be polled");
            self.table.remove(key);
            return;
        }
        let is_common = flow.place.is_common();
        if let Some(port) = self.ports.get_mut(port) {
            port.known.insert(peer, key);
        }
        if is_common {
            self.count_common(port, |count| count + 1);
        }
        self.times.set(key.index, expires);
    }
}

/// Takes the addresses of a trusted peer's PROXY header, and returns the payload after it.
fn take_header<'a>(bytes: &'a [u8], inbound: &mut Inbound) -> Result<&'a [u8], Refusal> {
    let Parsed::Header(origin, length) = Parsed::read(bytes, Protocol::Udp) else {
        return Err(Refusal::ProxyHeader);
    };
    if let Origin::Client {
        source,
        destination,
    } = origin
    {
        inbound.client = source;
        inbound.local = destination;
    }
    Ok(bytes.get(length..).unwrap_or_default())
}

/// Why no member got the first datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unreached {
    /// None could be reached, or may have more.
    Members(Refusal),
    /// This side could not send.
    Here(Shortage),
}

/// Chooses a member and sends it the first datagram.
fn reach(
    listener: &ListenerState,
    (client, hops): (SocketAddr, u8),
    bytes: &[u8],
) -> Result<(Lease, OwnedFd), Unreached> {
    let mut tried = Vec::new();
    while tried.len() < crate::dial::MAX_TRIES {
        let picked = listener.pool().try_pick(client, &tried);
        let lease = picked.map_err(|why| Unreached::Members(why.into()))?;
        let sent = datagram::connected(lease.member().raw_address()).and_then(|socket| {
            datagram::set_hops(&socket, lease.address().ip(), hops)?;
            match datagram::send(&socket, bytes) {
                // Lost, as on any full link.
                Err(error) if !would_block(&error) => Err(error),
                _ => Ok(socket),
            }
        });
        match sent {
            Ok(socket) => {
                lease.connected();
                return Ok((lease, socket));
            }
            Err(error) => {
                lease.failed(&error);
                listener.counters().mine().connect_failed(&error);
                if let Some(shortage) = Shortage::of(&error) {
                    // It would be the same with every other member.
                    return Err(Unreached::Here(shortage));
                }
                tracing::debug!(member = %lease.address(), %error, "member accepts no datagrams");
                tried.push(lease.address());
            }
        }
    }
    Err(Unreached::Members(Refusal::NoMember))
}
