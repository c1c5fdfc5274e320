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
mod content;
mod fields;
mod front;
mod h1;
mod h2;
mod over_http2;
mod refusal;
mod spawner;
mod upstream;
mod watchdog;

use std::sync::Arc;

use self::buffer::Buffer;
pub use self::front::{ClientStream, Front};
use crate::inbound::Inbound;

/// Most bytes in a head. More than any honest client sends, and what others (nginx: 4 x 8 KiB) take.
const MAX_HEAD: usize = 32 * 1024;

/// Serves a client until its connection ends. `early` was read from it already.
pub async fn serve<S: ClientStream>(front: Arc<Front>, client: S, inbound: Inbound, early: &[u8]) {
    let early = Buffer::holding(early);
    if client.agreed() == Some(b"h2") {
        return h2::run(front, client, inbound, early).await;
    }
    let connection = h1::Connection::new(front.clone(), client, inbound, early);
    if let Some((client, early)) = connection.run().await {
        h2::run(front, client, inbound, early).await;
    }
}
