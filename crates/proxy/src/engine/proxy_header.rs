//! Connections of trusted peers before their PROXY header is complete. The header is checked
//! where it is, in the kernel's queue, and exactly its bytes are taken out; the next reader of the
//! connection next finds only what the client sent.

use std::net::SocketAddr;
use std::sync::Arc;

use landfall_model::Protocol;
use landfall_sys::epoll::{Event, Watch};
use landfall_sys::stream::Stream;

use super::pump::would_block;
use super::slab::Key;
use super::{Engine, Subject};
use crate::counters::Refusal;
use crate::listener::{ListenerState, Place};
use crate::proxy_protocol::{MAX_HEADER, Origin, Parsed};

/// How long a trusted peer may take for its header, in milliseconds. It is the first thing that it
/// sends, and it knows it before it connects.
const TIMEOUT: u64 = 3_000;

/// A connection that must begin with a header.
#[derive(Debug)]
pub(super) struct ProxyHeaderReader {
    acceptor: Key,
    stream: Stream,
    peer: SocketAddr,
    listener: Arc<ListenerState>,
    place: Place,
}

impl Engine {
    pub(super) fn await_proxy_header(
        &mut self,
        acceptor: Key,
        stream: Stream,
        peer: SocketAddr,
        listener: Arc<ListenerState>,
        place: Place,
    ) {
        let proxy_header = ProxyHeaderReader {
            acceptor,
            stream,
            peer,
            listener,
            place,
        };
        let key = self.proxy_headers.insert_with(|_| proxy_header);
        let Some(proxy_header) = self.proxy_headers.get_mut(key) else {
            return;
        };
        let token = Subject::ProxyHeaderReader(key).token();
        if self
            .tools
            .epoll
            .add(&proxy_header.stream, token, Watch::Reading)
            .is_err()
        {
            self.proxy_headers.remove(key);
            return;
        }
        self.proxy_header_times
            .set(key.index, self.tools.now + TIMEOUT);
    }

    /// News of a peer that has a header to send.
    pub(super) fn read_proxy_header(&mut self, key: Key, event: Event) {
        let Some(proxy_header) = self.proxy_headers.get_mut(key) else {
            return;
        };
        let buffer = self.tools.buffer.get_mut(..MAX_HEADER).unwrap_or_default();
        let seen = match proxy_header.stream.peek(buffer) {
            Ok(count) => buffer.get(..count).unwrap_or_default(),
            Err(error) if would_block(&error) => return,
            Err(_) => return self.refuse_proxy_header(key),
        };
        match Parsed::read(seen, Protocol::Tcp) {
            Parsed::Header(origin, length) => {
                let taken = proxy_header
                    .stream
                    .receive(buffer.get_mut(..length).unwrap_or_default());
                if taken.is_ok_and(|count| count == length) {
                    self.accept_proxy_header(key, origin);
                } else {
                    self.refuse_proxy_header(key);
                }
            }
            Parsed::Incomplete if !event.is_read_closed() => {}
            Parsed::Incomplete | Parsed::Invalid => self.refuse_proxy_header(key),
        }
    }

    pub(super) fn refuse_proxy_header(&mut self, key: Key) {
        self.proxy_header_times.clear(key.index);
        if let Some(proxy_header) = self.proxy_headers.remove(key) {
            let (listener, peer) = (proxy_header.listener.id(), proxy_header.peer);
            tracing::debug!(%listener, %peer, "no valid PROXY header");
            proxy_header.listener.refuse(peer, Refusal::ProxyHeader);
        }
    }

    fn accept_proxy_header(&mut self, key: Key, origin: Origin) {
        self.proxy_header_times.clear(key.index);
        let Some(proxy_header) = self.proxy_headers.remove(key) else {
            return;
        };
        let ProxyHeaderReader {
            acceptor,
            stream,
            peer,
            listener,
            place,
        } = proxy_header;
        // The next engine watches it in its own way.
        if self.tools.epoll.remove(&stream).is_err() {
            return;
        }
        let mut inbound = listener.inbound(peer);
        if let Origin::Client {
            source,
            destination,
        } = origin
        {
            inbound.client = source;
            inbound.local = destination;
        }
        self.welcome(acceptor, stream, inbound, listener, place);
    }
}
