//! What all HTTP connections of one listener on one worker share: idle connections to members, and the
//! word that the listener is closing. Decides nothing about a request.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall_model::listener::{Http, ProxyProtocol, Timeouts};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use super::refusal::Refusal;
use super::upstream::{Idle, Links};
use crate::counters;
use crate::listener::ListenerState;
use crate::pool::{Health, Lease};

/// How often idle connections are looked through, while there are any.
const SWEEP: Duration = Duration::from_secs(2);

/// Nobody lives to see a longer time-out.
const LONGEST_WAIT: Duration = Duration::from_secs(366 * 24 * 3600);

/// A client's connection, plain or with TLS ended.
pub trait ClientStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Makes the connection end with an error for the client instead of as if all were said.
    fn abort(&mut self);

    /// The protocol agreed on by ALPN.
    fn agreed(&self) -> Option<&[u8]>;
}

/// One listener's HTTP side on one worker.
#[derive(Debug)]
pub struct Front {
    listener: Arc<ListenerState>,
    shared: Arc<Shared>,
    _keeper: AbortOnDropHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    idle: Idle,
    links: Links,
    /// A copy of the listener's word that lies in this worker's cache.
    draining: AtomicBool,
    /// The keeper is looking through connections now and then.
    awake: AtomicBool,
    filled: Notify,
}

/// What a request needs to know of the configuration in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) http: Http,
    pub(super) timeouts: Timeouts,
    pub(super) introduce: Option<ProxyProtocol>,
}

// === impl ClientStream ===

impl ClientStream for TcpStream {
    fn abort(&mut self) {
        // A reset; should the option fail, the client sees an early end instead.
        let _ = self.set_zero_linger();
    }

    fn agreed(&self) -> Option<&[u8]> {
        None
    }
}

impl<S: ClientStream> ClientStream for TlsStream<S> {
    fn abort(&mut self) {
        self.get_mut().0.abort();
    }

    fn agreed(&self) -> Option<&[u8]> {
        self.get_ref().1.alpn_protocol()
    }
}

// === impl Front ===

impl Front {
    /// The HTTP side of a listener on the worker that calls. Must be called inside its runtime.
    pub fn new(listener: Arc<ListenerState>) -> Self {
        let shared = Arc::new(Shared::default());
        let keeper = tokio::spawn(keep(shared.clone(), listener.clone()));
        Self {
            listener,
            shared,
            _keeper: AbortOnDropHandle::new(keeper),
        }
    }

    /// The listener that it belongs to.
    pub(super) fn listener(&self) -> &Arc<ListenerState> {
        &self.listener
    }

    /// Whether connections are to end after what they are doing.
    pub(super) fn is_draining(&self) -> bool {
        self.shared.draining.load(Ordering::Relaxed)
    }

    /// Idle connections to members.
    pub(super) fn idle(&self) -> &Idle {
        &self.shared.idle
    }

    /// Keeps a connection to a member for the next request.
    pub(super) fn keep(&self, member: SocketAddr, stream: TcpStream) {
        if !self.is_draining() && self.shared.idle.put(member, stream) {
            self.shared.filled.notify_one();
        }
    }

    /// HTTP/2 connections to members.
    pub(super) fn links(&self) -> &Links {
        &self.shared.links
    }

    /// There is an HTTP/2 connection to a member, which may have to be swept away one day.
    pub(super) fn linked(&self) {
        if !self.shared.awake.load(Ordering::Relaxed) {
            self.shared.filled.notify_one();
        }
    }

    /// Counts a member that could not be reached, and tells what that means for the client.
    pub(super) fn connect_failed(&self, lease: &Lease, error: &io::Error) -> Refusal {
        lease.failed(error);
        self.listener.counters().mine().connect_failed();
        let (listener, member) = (self.listener.id(), lease.address());
        tracing::debug!(%listener, %member, %error, "connect failed");
        match error.kind() {
            io::ErrorKind::TimedOut => Refusal::MemberTimeout,
            _ => Refusal::MemberFailed,
        }
    }

    /// Counts a response that begins.
    pub(super) fn responded(&self, status: u16) {
        self.listener.counters().mine().responded(status);
    }

    /// Counts a response that is given from here.
    pub(super) fn refused(&self, refusal: Refusal) {
        let counters = self.listener.counters().mine();
        counters.responded(refusal.status().as_u16());
        if refusal.is_for_want_of_members() {
            counters.refused(counters::Refusal::NoMember);
        }
    }

    /// What is configured at present.
    pub(super) fn settings(&self) -> Settings {
        let config = self.listener.config();
        Settings {
            // A listener that speaks no HTTP any more: open connections go on without extras.
            http: config.listener.mode.http().unwrap_or_default(),
            timeouts: bounded(config.listener.timeouts),
            introduce: config.listener.pool.proxy_protocol,
        }
    }
}

/// Time-outs that can be added to any moment.
fn bounded(timeouts: Timeouts) -> Timeouts {
    Timeouts {
        client_data: timeouts.client_data.min(LONGEST_WAIT),
        member_connect: timeouts.member_connect.min(LONGEST_WAIT),
        member_data: timeouts.member_data.min(LONGEST_WAIT),
        tcp_inspect: timeouts.tcp_inspect,
    }
}

// === impl Shared ===

impl Shared {
    /// Closes idle connections that are of no use any more. Tells whether any are left.
    fn sweep(&self, listener: &ListenerState) -> bool {
        let members = listener.pool().members();
        let usable = |address| {
            members.iter().any(|member| {
                member.address() == address
                    && member.health() != Health::Down
                    && !member.is_leaving()
            })
        };
        let some_left = self.idle.sweep(usable) | self.links.sweep(usable);
        self.awake.store(some_left, Ordering::Relaxed);
        some_left
    }
}

async fn keep(shared: Arc<Shared>, listener: Arc<ListenerState>) {
    loop {
        let some_left = shared.sweep(&listener);
        tokio::select! {
            () = listener.closing().cancelled() => break,
            () = shared.filled.notified(), if !some_left => {}
            () = tokio::time::sleep(SWEEP), if some_left => {}
        }
    }
    shared.draining.store(true, Ordering::Relaxed);
    shared.idle.clear();
    shared.links.clear();
}
