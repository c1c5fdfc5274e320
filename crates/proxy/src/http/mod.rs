//! HTTP/1.1 and HTTP/2 listeners: every request picks its member. Bodies stream both ways and are never
//! held whole; connections to members are kept and shared.
//!
//! ```text
//!   client ── HTTP/1 ── h1: own parser, bytes pass through ──┬── HTTP/1.1 ── member
//!          └─ HTTP/2 ── h2: hyper                          ──┴── HTTP/2 (prior knowledge)
//! ```
//!
//! HTTP/1 on both sides, nearly all traffic, runs in one task per client without any hand-over: the head
//! is read strictly and written anew, the body goes from the buffer that it was read into to the other
//! socket. Never looks into a body and never stores one.

mod buffer;
mod fields;
mod front;
mod h1;
mod refusal;
mod upstream;
mod watchdog;

pub use front::{ClientStream, Front};

use std::sync::Arc;

use self::buffer::Buffer;
use crate::inbound::Inbound;

/// Serves a client until its connection ends. `early` was read from it already.
pub async fn serve<S: ClientStream>(front: Arc<Front>, client: S, inbound: Inbound, early: &[u8]) {
    h1::Connection::new(front, client, inbound, Buffer::holding(early))
        .run()
        .await;
}
