//! HTTP/1.1 and HTTP/2 listeners: every request picks its member. Bodies stream both ways and are
//! never held whole; connections to members are kept and shared.
//!
//! ```text
//!   client ── HTTP/1 ── h1: own parser, bytes pass through ──┬── HTTP/1.1 ── member
//!          └─ HTTP/2 ── h2: hyper                          ──┴── HTTP/2 (prior knowledge)
//! ```
//!
//! HTTP/1 on both sides, nearly all traffic, runs in one task per client without any hand-over: the
//! head is read strictly and rewritten, the body goes from the buffer that it was read into to
//! the other socket. Never looks into a body and never stores one.
//!
//! Toward members, HTTP/2 is the crate h2 without hyper's client: that opens the window of a
//! response as soon as some of it was read, which leaves what a client does not take either in h2,
//! where small frames use up a budget of the whole connection, or here, without a bound. It also
//! takes a response that was reset with `CANCEL` or `NO_ERROR` for whole.

mod backpressure;
mod buffer;
mod content;
mod fields;
mod front;
#[cfg(test)]
mod fuzz;
mod h1;
mod h2;
mod over_http2;
mod record;
mod redirect;
mod refusal;
mod share;
pub(crate) mod spawner;
mod upstream;
mod watchdog;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use self::buffer::Buffer;
pub use self::front::{ClientStream, Front};
use crate::inbound::Inbound;

/// Most bytes in a head. More than any honest client sends, and what others (nginx: 4 x 8 KiB)
/// take. Buffers grow to this and no further while they wait for the rest of a head.
const MAX_HEAD: usize = 32 * 1024;

/// Bytes of a body that are handed over to an HTTP/2 library at a time, at most: as much as a frame
/// holds. It takes all that it gets, whatever room it has.
const CHUNK: usize = 16 * 1024;

/// A member that ends a connection sooner than this after a request began gave up no client that
/// kept it waiting.
const KEPT_WAITING: Duration = Duration::from_secs(1);

/// Serves a client until its connection ends, and then drops `hold`. `early` was read from it
/// already.
///
/// Boxed, because callers that are generic over streams would otherwise hold room for each kind,
/// and because a task's future moves several times before it begins.
pub fn serve<S: ClientStream>(
    front: Arc<Front>,
    client: S,
    inbound: Inbound,
    early: &[u8],
    hold: impl Send + 'static,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    front.listener().counters().mine().connected();
    let early = Buffer::holding(early).paid_by(front.payer(&inbound));
    if client.agreed() == Some(b"h2") {
        return Box::pin(async move {
            Box::pin(h2::run(front.clone(), client, inbound, early)).await;
            front.ended();
            drop(hold);
        });
    }
    let mut connection = h1::Connection::new(front.clone(), client, inbound, early);
    Box::pin(async move {
        if connection.run().await == h1::Ended::SpeaksHttp2 {
            let (client, early) = connection.into_parts();
            Box::pin(h2::run(front.clone(), client, inbound, early)).await;
        } else {
            drop(connection);
        }
        front.ended();
        drop(hold);
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use landfall_model::Protocol;
    use landfall_model::listener::Listener;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    use crate::listener::ListenerState;

    #[tokio::test]
    async fn an_idle_connection_takes_little_memory() {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let listener = Listener::new(Protocol::Tcp, NonZeroU16::new(address.port()).unwrap());
        let state = ListenerState::of_test(address.ip(), &listener);
        let front = Arc::new(Front::new(state.clone()));
        let client = TcpStream::connect(address).await.unwrap();
        let inbound = state.inbound(client.local_addr().unwrap());
        let task = serve(front, client, inbound, b"", ());
        // Buffers, heads and everything about a request exist only while there is one.
        let size = std::mem::size_of_val(&*task);
        assert!(size <= 1176, "{size} bytes");
    }
}
