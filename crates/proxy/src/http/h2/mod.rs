//! HTTP/2 clients (RFC 9113): hyper carries the connection, each request goes its own way to a member.

mod answer;
mod over_http1;
mod response;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::MAX_HEAD;
use super::buffer::Buffer;
use super::fields::Forwarding;
use super::front::{ClientStream, Front, Settings};
use super::spawner::Spawner;
use super::upstream::{Idle, Links};
use super::watchdog::Watchdog;
use crate::inbound::Inbound;

/// Requests that one client may have open at once: bounds what it can ask of members and memory. What
/// RFC 9113 section 6.5.2 names as the least is 100; browsers open no more than that.
const MAX_STREAMS: u32 = 200;

/// Streams that a client opened and reset before they were looked at. More in a row than anybody cancels
/// in earnest end the connection (CVE-2023-44487, rapid reset).
const MAX_PENDING_RESETS: usize = 20;

/// Streams that had to be reset because of the client's own errors, after which the connection ends
/// (RUSTSEC-2024-0003).
const MAX_ERROR_RESETS: usize = 1024;

/// Bytes of request bodies that one client may be ahead of the members, per stream and in all: bounds
/// the memory that slow members can cost.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// Bytes of one response that may wait for its client.
const SEND_BUFFER: usize = 64 * 1024;

/// A client is asked for a sign of life no more often than this, however short its time-out.
const LEAST_PING_INTERVAL: Duration = Duration::from_secs(5);

/// How long that sign may take.
const PING_WITHIN: Duration = Duration::from_secs(20);

/// How long a connection that was told to end may take when nothing is left to do.
const LINGER: Duration = Duration::from_secs(2);

/// What the requests of one client share.
#[derive(Debug)]
struct Client {
    front: Arc<Front>,
    inbound: Inbound,
    /// Tasks of requests under way.
    streams: TaskTracker,
    forwarding: Mutex<Arc<Forwarding>>,
    /// Connections to members that were told about this client.
    own_idle: Idle,
    own_links: Links,
    /// Requests under way, and requests ever begun.
    busy: AtomicUsize,
    begun: AtomicU64,
}

/// Counts a request as under way until dropped.
#[derive(Debug)]
struct Busy(Arc<Client>);

/// The client's connection, with what was read from it before, and counted.
struct Wire<S> {
    client: S,
    early: Buffer,
    front: Arc<Front>,
}

/// Serves a client until its connection ends. `early` was read from it already.
pub(super) async fn run<S: ClientStream>(
    front: Arc<Front>,
    client: S,
    inbound: Inbound,
    early: Buffer,
) {
    let patience = front.settings().timeouts.client_data;
    let shared = Arc::new(Client::new(front.clone(), inbound));
    let asked = shared.clone();
    let service = service_fn(move |request| {
        let client = asked.clone();
        async move { Ok::<_, Infallible>(answer::answer(client, request).await) }
    });
    let streams = shared.streams.clone();
    let mut builder = Builder::new(Spawner::new(streams.clone()));
    builder
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_ERROR_RESETS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(MAX_HEAD as u32)
        .keep_alive_interval(patience.max(LEAST_PING_INTERVAL))
        .keep_alive_timeout(PING_WITHIN);
    let wire = Wire {
        client,
        early,
        front: front.clone(),
    };
    {
        let mut connection = pin!(builder.serve_connection(TokioIo::new(wire), service));
        let mut closing = pin!(front.listener().closing().cancelled());
        let mut watchdog = Watchdog::default();
        let mut idle = (u64::MAX, Instant::now());
        let mut ending: Option<Instant> = None;
        poll_fn(|context| {
            loop {
                if let Poll::Ready(ended) = connection.as_mut().poll(context) {
                    if let Err(error) = ended {
                        tracing::debug!(client = %inbound.client, %error, "HTTP/2 connection ended");
                    }
                    return Poll::Ready(());
                }
                let over = ending.is_none()
                    && (front.is_draining() || closing.as_mut().poll(context).is_ready());
                let begun = shared.begun.load(Ordering::Relaxed);
                let busy = shared.busy.load(Ordering::Relaxed) > 0;
                let now = Instant::now();
                if busy || idle.0 != begun {
                    idle = (begun, now);
                }
                if over {
                    // Says goodbye, and goes on with what is under way.
                    connection.as_mut().graceful_shutdown();
                    ending = Some(now);
                    continue;
                }
                let patience = match ending {
                    Some(_) => LINGER,
                    None => front.settings().timeouts.client_data,
                };
                let deadline = ending.unwrap_or(idle.1).max(idle.1) + patience;
                match (watchdog.poll(deadline, context), ending) {
                    (Poll::Pending, _) => return Poll::Pending,
                    // The end of a request need not have woken this task: so it looks now and then.
                    (Poll::Ready(()), _) if busy => {}
                    (Poll::Ready(()), Some(_)) => return Poll::Ready(()),
                    (Poll::Ready(()), None) => {
                        connection.as_mut().graceful_shutdown();
                        ending = Some(now);
                    }
                }
            }
        })
        .await;
    }
    streams.close();
    streams.wait().await;
}

// === impl Client ===

impl Client {
    fn new(front: Arc<Front>, inbound: Inbound) -> Self {
        let forwarding = Arc::new(forwarding(&front, &inbound, front.settings()));
        Self {
            front,
            inbound,
            streams: TaskTracker::new(),
            forwarding: Mutex::new(forwarding),
            own_idle: Idle::default(),
            own_links: Links::default(),
            busy: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
        }
    }

    /// What members are told, by the options in force.
    fn forwarding(&self, settings: Settings) -> Arc<Forwarding> {
        let mut kept = self
            .forwarding
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if kept.options() != settings.http {
            *kept = Arc::new(forwarding(&self.front, &self.inbound, settings));
        }
        kept.clone()
    }

    fn idle(&self, settings: Settings) -> &Idle {
        if settings.introduce.is_some() {
            &self.own_idle
        } else {
            self.front.idle()
        }
    }

    fn links(&self, settings: Settings) -> &Links {
        if settings.introduce.is_some() {
            &self.own_links
        } else {
            self.front.links()
        }
    }

    /// Keeps a connection to a member for the next request.
    fn keep(&self, member: SocketAddr, stream: TcpStream) {
        if self.front.settings().introduce.is_some() {
            self.own_idle.put(member, stream);
        } else {
            self.front.keep(member, stream);
        }
    }
}

fn forwarding(front: &Front, inbound: &Inbound, settings: Settings) -> Forwarding {
    let port = front.listener().id().key.port.get();
    Forwarding::new(settings.http, inbound.client, inbound.secure, port)
}

// === impl Busy ===

impl Busy {
    fn new(client: Arc<Client>) -> Self {
        client.busy.fetch_add(1, Ordering::Relaxed);
        client.begun.fetch_add(1, Ordering::Relaxed);
        Self(client)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Wire ===

impl<S: ClientStream> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.early.is_empty() {
            let count = self.early.bytes().len().min(room.remaining());
            room.put_slice(self.early.bytes().get(..count).unwrap_or_default());
            self.early.consume(count);
            self.early.release();
            return Poll::Ready(Ok(()));
        }
        let before = room.filled().len();
        let polled = Pin::new(&mut self.client).poll_read(context, room);
        let count = room.filled().len() - before;
        self.front
            .listener()
            .counters()
            .mine()
            .passed(count as u64, 0);
        polled
    }
}

impl<S: ClientStream> Wire<S> {
    fn written(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = polled {
            self.front
                .listener()
                .counters()
                .mine()
                .passed(0, count as u64);
        }
        polled
    }
}

impl<S: ClientStream> AsyncWrite for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.client).poll_write(context, bytes);
        self.written(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.client).poll_write_vectored(context, parts);
        self.written(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.client.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.client).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.client).poll_shutdown(context)
    }
}
