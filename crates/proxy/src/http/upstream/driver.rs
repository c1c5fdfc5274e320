//! What runs an HTTP/2 connection to a member: opens it, looks after it while it carries requests,
//! and says goodbye when nothing holds it any more. Knows nothing about requests.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Poll, ready};
use std::time::Duration;

use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::wire::{LastRead, Wire};
use crate::http::backpressure::{STREAM_WINDOW, TrackedBytes};
use crate::tls::MemberStream;

/// Requests that one connection carries at once, if the member allows as many.
pub(super) const MAX_REQUESTS: usize = 64;

/// Bytes of all responses of a connection together: there is room for each, so that clients that do
/// not read hold up no others.
const CONNECTION_WINDOW: u32 = MAX_REQUESTS as u32 * STREAM_WINDOW;

/// Bytes of one request's body that may wait to be sent.
const SEND_BUFFER: usize = 64 * 1024;

/// What the library may count for small frames that it holds, before it ends the connection:
/// without a bound. They are taken from it as they come, [`super::wire`] bounds what comes in
/// between, and what a member sends of responses that are not wanted any more is counted for ever.
const FRAME_BUDGET: usize = usize::MAX / 2;

/// Responses that were reset and of which some may still be on its way. The library takes a frame
/// of any that it has forgotten for the member's error, and ends the connection for a thousand.
const RESET_STREAMS: usize = 4096;

/// A connection that carries requests and was silent for this long is asked for a sign of life, so
/// that a member that vanished does not hold them until their own timeouts.
const PING_EVERY: Duration = Duration::from_secs(20);

/// How long that sign may take.
const PING_WITHIN: Duration = Duration::from_secs(10);

/// How long a connection that nothing holds any more may take to end.
const CLOSING: Duration = Duration::from_secs(2);

/// A connection that has to be run.
#[derive(Debug)]
pub(super) struct Driver {
    connection: Connection<Wire, TrackedBytes>,
    last_read: LastRead,
}

/// Opens a connection over a stream. Returns what sends requests, and how many at once the member
/// takes.
pub(super) async fn open(
    stream: MemberStream,
) -> io::Result<(SendRequest<TrackedBytes>, Driver, usize)> {
    let wire = Wire::new(stream);
    let last_read = wire.last_read();
    let (sender, mut connection) = Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        // No request goes out before the member has said how many it takes.
        .initial_max_send_streams(0)
        .max_send_buffer_size(SEND_BUFFER)
        .max_header_list_size(crate::http::MAX_HEAD as u32)
        .data_frame_budget(FRAME_BUDGET)
        .max_concurrent_reset_streams(RESET_STREAMS)
        .enable_push(false)
        .handshake(wire)
        .await
        .map_err(io::Error::other)?;
    let places = poll_fn(|context| {
        let ended = Pin::new(&mut connection).poll(context);
        match (connection.max_concurrent_send_streams(), ended) {
            (_, Poll::Ready(Err(error))) => Poll::Ready(Err(io::Error::other(error))),
            (_, Poll::Ready(Ok(()))) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            (0, Poll::Pending) => Poll::Pending,
            (places, Poll::Pending) => Poll::Ready(Ok(places)),
        }
    });
    let places = places.await?;
    let driver = Driver {
        connection,
        last_read,
    };
    Ok((sender, driver, places))
}

impl Driver {
    /// Runs the connection until it ends, until its member has vanished, or until it is `closing`:
    /// then it is closed in order, unless it must close at once. Says how many requests the member
    /// takes whenever something has moved, and asks whether any is under way.
    pub(super) async fn run(
        self,
        (closing, at_once): (CancellationToken, bool),
        mut takes: impl FnMut(usize),
        is_busy: impl Fn() -> bool,
    ) -> io::Result<()> {
        let mut connection = self.connection;
        let pings = connection.ping_pong();
        let mut ended = pin!(poll_fn(|context| {
            let ended = ready!(poll_moved(&mut connection, &mut takes, context));
            Poll::Ready(ended.map_err(io::Error::other))
        }));
        tokio::select! {
            ended = &mut ended => return ended,
            () = vanished(pings, &self.last_read, is_busy) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            () = closing.cancelled() => {}
        }
        if at_once {
            return Ok(());
        }
        timeout(CLOSING, ended).await?
    }
}

fn poll_moved(
    connection: &mut Connection<Wire, TrackedBytes>,
    takes: &mut impl FnMut(usize),
    context: &mut std::task::Context<'_>,
) -> Poll<Result<(), h2::Error>> {
    let polled = Pin::new(&mut *connection).poll(context);
    takes(connection.max_concurrent_send_streams());
    polled
}

/// Ends when the member gives no sign of life while requests wait for it.
async fn vanished(pings: Option<PingPong>, last_read: &LastRead, is_busy: impl Fn() -> bool) {
    let Some(mut pings) = pings else {
        // It is taken once.
        return std::future::pending().await;
    };
    loop {
        let due = last_read.get() + PING_EVERY;
        if Instant::now() < due {
            sleep_until(due).await;
        } else if is_busy() {
            match timeout(PING_WITHIN, pings.ping(Ping::opaque())).await {
                Ok(Ok(_)) => {}
                // It has ended, which its own future says.
                Ok(Err(_)) => return std::future::pending().await,
                Err(_) => return,
            }
        } else {
            sleep(PING_EVERY).await;
        }
    }
}
