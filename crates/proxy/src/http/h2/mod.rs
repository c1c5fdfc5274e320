//! HTTP/2 clients (RFC 9113): hyper carries the connection, each request goes its own way to a
//! member.

mod answer;
mod ending;
mod over_http1;
pub(super) mod response;
mod streams;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::HeaderValue;
use http::request::Parts;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::task::TaskTracker;

use self::ending::{Ending, Turn};
use self::streams::Streams;
use super::MAX_HEAD;
use super::buffer::Buffer;
use super::content::{Progress, RequestContent};
use super::fields::Forwarding;
use super::front::{ClientStream, Front, Settings};
use super::record::Record;
use super::refusal::Refusal;
use super::share::{OF_CLIENT, ReadShare};
use super::upstream::{Idle, Links, Own};
use crate::access_log;
use crate::budget::Extra;
use crate::budget::units::UNIT;
use crate::counters;
use crate::inbound::Inbound;
use crate::memory::ConnectionMemory;
use crate::tls::MemberStream;

/// Requests that one client may have open at once, and with that its connections to members: bounds
/// what it can ask of members and memory. What RFC 9113 section 6.5.2 names as the least is 100;
/// browsers open no more than that.
const MAX_STREAMS: u32 = 100;

/// Streams that a client opened and reset before they were checked. More in a row than any client
/// cancels in practice end the connection (CVE-2023-44487, rapid reset).
const MAX_PENDING_RESETS: usize = 20;

/// Streams that had to be reset because of the client's own errors, after which the connection ends
/// (RUSTSEC-2024-0003). Each may have begun a request at a member (CVE-2025-8671), so no more than
/// a client may have open at once.
const MAX_ERROR_RESETS: usize = MAX_STREAMS as usize;

/// The same for trusted load balancers in front, which keep one connection for many clients.
const MAX_ERROR_RESETS_IN_FRONT: usize = 1024;

/// Bytes of request bodies that one client may be ahead of the members, per stream and in all:
/// bounds the memory that slow members can cost.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// Bytes of one response that may wait for its client.
const SEND_BUFFER: usize = 64 * 1024;

/// A client is asked for a sign of life no more often than this, however short its timeout.
const LEAST_PING_INTERVAL: Duration = Duration::from_secs(5);

/// How long that sign may take.
const PING_WITHIN: Duration = Duration::from_secs(20);

/// How long a connection that was asked to end may take when nothing is left to do.
const LINGER: Duration = Duration::from_secs(2);

/// Units of memory that a request takes in any case: the buffer for its response, and a chunk of it
/// that waits.
const REQUEST: u32 = 2;

/// Bytes that a field of a request takes beside its own: its place in a map of which a part is
/// free, and what the allocator adds. Measured: 130 to 160.
const FIELD: usize = 160;

/// A head that takes no more than this costs nothing: it is there before what [`REQUEST`] is for.
const SMALL_HEAD: usize = UNIT;

/// What the requests of one client share.
#[derive(Debug)]
struct Client {
    front: Arc<Front>,
    inbound: Inbound,
    /// Tasks of requests under way.
    streams: TaskTracker,
    /// What they hold of memory.
    ledger: Arc<ConnectionMemory>,
    /// Connections to members that carry the PROXY header of this client.
    own_idle: Own,
    own_links: Links,
    /// Requests under way, and requests ever begun.
    busy: AtomicUsize,
    begun: AtomicU64,
    /// Bytes that went to the client, and whether more would not fit.
    written: AtomicU64,
    clogged: AtomicBool,
    /// The client was asked to send no more requests: the end of the connection is one in order.
    goodbye: AtomicBool,
}

/// Counts a request as under way until dropped.
#[derive(Debug)]
struct Busy {
    client: Arc<Client>,
    /// Whether none was when it began: the client's place has a descriptor for one member.
    alone: bool,
    /// Units of memory that it holds; `None`: there are none for it.
    units: Option<u32>,
    record: Record,
    /// How far its content has come, where that is noted.
    progress: Option<Arc<Progress>>,
}

/// The client's connection, with what was read from it before, and counted.
struct Wire<S> {
    client: S,
    early: Buffer,
    shared: Arc<Client>,
    share: ReadShare,
    /// Its end was sent, and it is read on until then.
    lingers: Option<Pin<Box<Sleep>>>,
}

/// Serves a client until its connection ends. `early` was read from it already.
pub(super) async fn run<S: ClientStream>(
    front: Arc<Front>,
    mut client: S,
    inbound: Inbound,
    early: Buffer,
) {
    let settings = front.settings();
    let time_limit = settings.timeouts.client_data;
    let most_errors = match settings.http.trusted_hops {
        Some(1..) => MAX_ERROR_RESETS_IN_FRONT,
        _ => MAX_ERROR_RESETS,
    };
    let payer = match early.payer() {
        Some(payer) => payer.clone(),
        None => front.payer(&inbound),
    };
    let Some(ledger) = ConnectionMemory::open(payer) else {
        let counters = front.listener().counters().mine();
        counters.refused(counters::Refusal::Share);
        client.abort();
        return;
    };
    let shared = Arc::new(Client::new(front.clone(), inbound, ledger));
    let asked = shared.clone();
    let service = service_fn(move |request| {
        let client = asked.clone();
        async move { Ok::<_, Infallible>(answer::answer(client, request).await) }
    });
    let tasks = shared.streams.clone();
    let streams = Streams::new(tasks.clone(), Some(shared.ledger.clone()));
    let mut builder = Builder::new(streams.clone());
    builder
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(most_errors)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(MAX_HEAD as u32)
        .keep_alive_interval(time_limit.max(LEAST_PING_INTERVAL))
        .keep_alive_timeout(PING_WITHIN);
    let wire = Wire::new(client, early, shared.clone());
    {
        let mut connection = pin!(builder.serve_connection(TokioIo::new(wire), service));
        let mut closing = pin!(front.listener().closing().cancelled());
        let mut ending = Ending::new(Instant::now());
        poll_fn(|context| {
            loop {
                if let Poll::Ready(ended) = connection.as_mut().poll(context) {
                    if let Err(error) = ended {
                        tracing::debug!(client = %inbound.client, %error,
                            "HTTP/2 connection ended");
                    }
                    return Poll::Ready(());
                }
                let closes = !ending.has_begun()
                    && (front.is_draining() || closing.as_mut().poll(context).is_ready());
                match ready!(ending.poll(closes, &front, &shared, &streams, context)) {
                    Turn::Again => {}
                    Turn::SayGoodbye => connection.as_mut().graceful_shutdown(),
                    Turn::Stuck => {
                        tracing::debug!(client = %inbound.client, "responses are not read");
                        return Poll::Ready(());
                    }
                    Turn::Over => return Poll::Ready(()),
                }
            }
        })
        .await;
    }
    tasks.close();
    tasks.wait().await;
}

// === impl Client ===

impl Client {
    fn new(front: Arc<Front>, inbound: Inbound, ledger: ConnectionMemory) -> Self {
        Self {
            front,
            inbound,
            streams: TaskTracker::new(),
            ledger: Arc::new(ledger),
            own_idle: Own::default(),
            own_links: Links::default(),
            busy: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            written: AtomicU64::new(0),
            clogged: AtomicBool::new(false),
            goodbye: AtomicBool::new(false),
        }
    }

    /// What bodies of requests need of it.
    fn uploads(&self) -> (TaskTracker, Arc<ConnectionMemory>) {
        (self.streams.clone(), self.ledger.clone())
    }

    /// What is forwarded to members, by the options in force.
    fn forwarding(&self, settings: Settings) -> Forwarding {
        let port = self.front.listener().id().key.port.get();
        Forwarding::new(
            settings.http,
            self.inbound.client,
            self.inbound.secure,
            port,
        )
    }

    fn idle(&self, settings: Settings) -> &Idle {
        if settings.introduce.is_some() {
            self.own_idle.idle()
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

    /// Takes a descriptor for a connection to a member. The first request at a time needs none.
    fn hold(&self, alone: bool) -> Result<Option<Extra>, Refusal> {
        if alone {
            return Ok(None);
        }
        let extra = self
            .front
            .extra(&self.inbound, (self.own_idle.idle(), &self.own_links));
        extra.map(Some).ok_or(Refusal::Share)
    }

    /// The same for a connection that stays open after the request, and serves others: it takes one
    /// in any case. Without, the first request has one for itself.
    fn hold_link(&self, alone: bool) -> Result<Option<Extra>, Refusal> {
        let hold = self.hold(false);
        if alone && hold.is_err() {
            return Ok(None);
        }
        hold
    }

    /// Keeps a connection to a member for the next request.
    fn keep(&self, member: SocketAddr, stream: MemberStream) {
        if self.front.settings().introduce.is_some() {
            let account = self.front.listener().account();
            self.own_idle.put(member, stream, account);
        } else {
            self.front.keep(member, stream);
        }
    }
}

// === impl Busy ===

impl Busy {
    fn new(client: Arc<Client>, asked: &Parts, content: &RequestContent) -> Self {
        let alone = client.busy.fetch_add(1, Ordering::Relaxed) == 0;
        client.begun.fetch_add(1, Ordering::Relaxed);
        let units = REQUEST + head_units(asked);
        let units = client.ledger.take(units).then_some(units);
        let mut note = client.front.listener().note(client.inbound.client);
        let progress = note.as_mut().map(|note| {
            let target = asked.uri.path_and_query().map_or("", |path| path.as_str());
            note.asked("HTTP/2.0", (asked.method.as_str(), target), |name| {
                let authority = asked.uri.authority().filter(|_| name == "host");
                let authority = authority.map(|authority| authority.as_str().as_bytes());
                authority.or_else(|| asked.headers.get(name).map(HeaderValue::as_bytes))
            });
            // Streams that end without a word of their own were reset, or lost their connection.
            note.facts().end = access_log::CLIENT_ABORT;
            content.progress()
        });
        Self {
            client,
            alone,
            units,
            record: Record::begin(note),
            progress,
        }
    }

    /// Whether there is memory for it.
    fn is_paid(&self) -> bool {
        self.units.is_some()
    }
}

/// Units of memory that the head of a request takes beyond what each does: it is here, and on its
/// way to the member.
fn head_units(asked: &Parts) -> u32 {
    let fields = asked.headers.iter();
    let taken: usize = fields
        .map(|(name, value)| 2 * (name.as_str().len() + value.len()) + FIELD)
        .sum();
    match taken {
        ..=SMALL_HEAD => 0,
        _ => taken.div_ceil(UNIT) as u32,
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.client.ledger.give_back(self.units.unwrap_or(0));
        self.client.busy.fetch_sub(1, Ordering::Relaxed);
        if let Some(progress) = &self.progress {
            self.record.passed(progress.bytes(), 0);
        }
        self.record.over(&self.client.front);
    }
}

// === impl Wire ===

impl<S: ClientStream> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.early.is_empty() {
            let count = self.early.bytes().len().min(buffer.remaining());
            buffer.put_slice(self.early.bytes().get(..count).unwrap_or_default());
            self.early.consume(count);
            self.early.release();
            return Poll::Ready(Ok(()));
        }
        ready!(self.share.poll(context));
        let most = CONNECTION_WINDOW as usize;
        ready!(self.shared.ledger.poll_read(most, context));
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.client).poll_read(context, buffer);
        let count = buffer.filled().len() - before;
        let counters = self.shared.front.listener().counters();
        counters.mine().passed(count as u64, 0);
        self.shared.ledger.read(count);
        self.share.took(count);
        polled
    }
}

impl<S: ClientStream> Wire<S> {
    fn new(client: S, early: Buffer, shared: Arc<Client>) -> Self {
        Self {
            client,
            early,
            shared,
            share: ReadShare::new(OF_CLIENT),
            lingers: None,
        }
    }

    fn written(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let clogged = &self.shared.clogged;
        clogged.store(polled.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(Ok(count)) = polled {
            let counters = self.shared.front.listener().counters();
            counters.mine().passed(0, count as u64);
            self.shared
                .written
                .fetch_add(count as u64, Ordering::Relaxed);
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

    /// Sends the end. What a client says of the windows while it reads the last response must be
    /// read: the kernel would answer it with a reset, which can destroy what is on its way.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.lingers.is_none() {
            ready!(Pin::new(&mut this.client).poll_shutdown(context))?;
            if !this.shared.goodbye.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
        }
        let until = this.lingers.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut room = [0; 1024];
        while until.as_mut().poll(context).is_pending() {
            ready!(this.share.poll(context));
            let mut room = ReadBuf::new(&mut room);
            match ready!(Pin::new(&mut this.client).poll_read(context, &mut room)) {
                Ok(()) if !room.filled().is_empty() => this.share.took(room.filled().len()),
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}
