//! What runs an HTTP/2 connection to a member: opens it, looks after it while it carries requests,
//! and says goodbye when nothing holds it any more. Knows nothing about requests.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::wire::{LastRead, Wire};
use crate::budget::Extra;
use crate::http::backpressure::{STREAM_WINDOW, TrackedBytes};

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

/// Stands for the number of requests that a member takes before it has said it. No setting does:
/// it has 32 bits, and without it another number stands for no limit.
const UNSAID: usize = usize::MAX - 1;

/// A connection that carries requests and was silent for this long is asked for a sign of life, so
/// that a member that vanished does not hold them until their own timeouts.
const PING_EVERY: Duration = Duration::from_secs(20);

/// How long that sign may take.
const PING_WITHIN: Duration = Duration::from_secs(10);

/// How long a connection that nothing holds any more may take to end.
const CLOSING: Duration = Duration::from_secs(2);

/// A connection that has to be run, and is closed when it is dropped.
#[derive(Debug)]
pub(super) struct Driver<S: Stream> {
    open: Open<S>,
    last_read: LastRead,
}

/// A connection that its driver runs, and that others may close.
#[derive(Debug)]
pub(super) struct Open<S: Stream>(Arc<Mutex<Option<Held<S>>>>);

/// A connection, and its descriptor: that is free when the socket is closed, and no sooner.
#[derive(Debug)]
struct Held<S: Stream> {
    connection: Connection<Wire<S>, TrackedBytes>,
    _hold: Option<Extra>,
}

/// What a connection can be made of.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// Opens a connection over a stream that has a descriptor. Returns what sends requests, and how
/// many at once the member takes.
pub(super) async fn open<S: Stream>(
    stream: S,
    hold: Option<Extra>,
) -> io::Result<(SendRequest<TrackedBytes>, Driver<S>, usize)> {
    let wire = Wire::new(stream);
    let last_read = wire.last_read();
    let (sender, mut connection) = Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        // No request gets the connection before the member has said how many it takes.
        .initial_max_send_streams(UNSAID)
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
            (UNSAID, Poll::Pending) => Poll::Pending,
            (places, Poll::Pending) => Poll::Ready(Ok(places)),
        }
    });
    let places = places.await?;
    let with_descriptor = Held {
        connection,
        _hold: hold,
    };
    let driver = Driver {
        open: Open(Arc::new(Mutex::new(Some(with_descriptor)))),
        last_read,
    };
    Ok((sender, driver, places))
}

// === impl Driver ===

impl<S: Stream> Driver<S> {
    /// The connection, for others.
    pub(super) fn connection(&self) -> Open<S> {
        self.open.clone()
    }

    /// Runs the connection until it ends, until its member has vanished, or until it is `closing`:
    /// then it is closed in order. Says how many requests the member takes whenever something has
    /// moved, and asks whether any is under way.
    pub(super) async fn run(
        self,
        closing: CancellationToken,
        mut takes: impl FnMut(usize),
        is_busy: impl Fn() -> bool,
    ) -> io::Result<()> {
        let pings = self.open.ping_pong();
        let mut ended = pin!(poll_fn(|context| self.open.poll(&mut takes, context)));
        tokio::select! {
            ended = &mut ended => return ended,
            () = vanished(pings, &self.last_read, is_busy) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            () = closing.cancelled() => {}
        }
        timeout(CLOSING, ended).await?
    }
}

impl<S: Stream> Drop for Driver<S> {
    fn drop(&mut self) {
        drop(self.open.take());
    }
}

// === impl Open ===

impl<S: Stream> Open<S> {
    /// Closes the connection and gives back its descriptor, if it had not ended. The member gets a
    /// GOAWAY, if there is room for that. Returns whether it is closed by this call.
    pub(super) fn close(&self) -> bool {
        let Some(mut held) = self.take() else {
            return false;
        };
        let mut context = Context::from_waker(Waker::noop());
        let _ = Pin::new(&mut held.connection).poll(&mut context);
        true
    }

    /// Ready when it has ended, or was closed.
    fn poll(
        &self,
        takes: &mut impl FnMut(usize),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut held = self.lock();
        let Some(Held { connection, .. }) = &mut *held else {
            return Poll::Ready(Ok(()));
        };
        let polled = Pin::new(&mut *connection).poll(context);
        let places = connection.max_concurrent_send_streams();
        drop(held);
        takes(places);
        polled.map_err(io::Error::other)
    }

    fn ping_pong(&self) -> Option<PingPong> {
        self.lock().as_mut()?.connection.ping_pong()
    }

    /// Takes it out, so that it is dropped while the lock is free.
    fn take(&self) -> Option<Held<S>> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Held<S>>> {
        // It is a connection or none at every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Stream> Clone for Open<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
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
