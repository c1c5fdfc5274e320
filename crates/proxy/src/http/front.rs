//! What all HTTP connections of one listener on one worker share: idle connections to members, and
//! the word that the listener is closing. Decides nothing about a request.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use landfall_model::listener::{Http, ProxyProtocol, Redirect, Timeouts};
use landfall_model::protection::Rate;
use landfall_sys::stream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use super::buffer;
use super::refusal::Refusal;
use super::upstream::{Idle, Links, NoLink};
use crate::admission::Excess;
use crate::budget::Extra;
use crate::counters::{self, Span};
use crate::inbound::Inbound;
use crate::listener::ListenerState;
use crate::memory::MemoryOwner;
use crate::pool::{Health, Lease};
use crate::tls::{MemberStream, TowardMembers};

/// How often idle connections are looked through, while there are any.
const SWEEP: Duration = Duration::from_secs(2);

/// Longer than any process runs.
const LONGEST_WAIT: Duration = Duration::from_secs(366 * 24 * 3600);

/// A client's connection, plain or with TLS ended.
pub trait ClientStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Makes the connection end with an error for the client instead of as if all were said.
    fn abort(&mut self);

    /// The protocol agreed on by ALPN.
    fn agreed(&self) -> Option<&[u8]>;

    /// Whether closing it is all that a client which has ended needs to see.
    fn ends_by_itself(&self) -> bool;

    /// How much of what was sent its system has not acknowledged, the end included.
    fn unacknowledged(&self) -> io::Result<usize>;

    /// Ready once the connection is known to be broken, however much of what the client said is
    /// still unread. May stay pending where only reading would show it.
    fn poll_broken(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
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
    pub(super) request_rate: Option<Rate>,
    pub(super) redirect: Option<Redirect>,
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

    fn ends_by_itself(&self) -> bool {
        true
    }

    fn unacknowledged(&self) -> io::Result<usize> {
        stream::unacknowledged(self)
    }
}

impl<S: ClientStream> ClientStream for TlsStream<S> {
    fn abort(&mut self) {
        self.get_mut().0.abort();
    }

    fn agreed(&self) -> Option<&[u8]> {
        self.get_ref().1.alpn_protocol()
    }

    fn ends_by_itself(&self) -> bool {
        false
    }

    fn unacknowledged(&self) -> io::Result<usize> {
        self.get_ref().0.unacknowledged()
    }

    fn poll_broken(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.get_mut().0.poll_broken(context)
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

    /// Whether the listener closes, also where that has just begun.
    pub(super) fn is_closing(&self) -> bool {
        self.is_draining() || self.listener.closing().is_cancelled()
    }

    /// Idle connections to members.
    pub(super) fn idle(&self) -> &Idle {
        &self.shared.idle
    }

    /// Keeps a connection to a member for the next request.
    pub(super) fn keep(&self, member: SocketAddr, stream: MemberStream) {
        if self.is_draining() {
            return;
        }
        let hold = self.listener.account().spare();
        if hold.is_some() && self.shared.idle.put(member, stream, hold) {
            self.shared.filled.notify_one();
        }
    }

    /// Takes a descriptor for a connection to a member, if need be that of one that is only kept
    /// for later: by `own`, which speak for one client, or by all.
    pub(super) fn extra(&self, inbound: &Inbound, own: (&Idle, &Links)) -> Option<Extra> {
        let account = self.listener.account();
        // As at the accept: trusted peers bring the clients of many.
        let direct = inbound.client == inbound.peer;
        let source = direct.then(|| account.budget().source(inbound.client.ip()));
        let mut taken = account.extra(source);
        // What is kept counts for no source.
        if matches!(taken, Err(Excess::Service | Excess::All)) {
            let (idle, links) = own;
            let closed = idle.close_beyond(0)
                || self.shared.idle.close_beyond(0)
                || links.close_idle()
                || self.shared.links.close_idle();
            if closed {
                taken = account.extra(source);
            }
        }
        taken.inspect_err(|_| account.budget().fell_short()).ok()
    }

    /// One that pays for the memory of a client's connection.
    pub(super) fn payer(&self, inbound: &Inbound) -> Arc<MemoryOwner> {
        MemoryOwner::new(self.listener.account().clone(), inbound)
    }

    /// HTTP/2 connections to members.
    pub(super) fn links(&self) -> &Links {
        &self.shared.links
    }

    /// A client's connection has ended, and with it what it took of memory.
    pub(super) fn ended(&self) {
        if buffer::much_is_free() {
            self.shared.filled.notify_one();
        }
    }

    /// There is an HTTP/2 connection to a member, which may have to be swept away one day.
    pub(super) fn linked(&self) {
        if !self.shared.awake.load(Ordering::Relaxed) {
            self.shared.filled.notify_one();
        }
    }

    /// Counts a member that could not be reached, and returns what that means for the client.
    pub(super) fn connect_failed(&self, lease: &Lease, error: &io::Error) -> Refusal {
        lease.failed(error);
        self.listener.counters().mine().connect_failed(error);
        let (listener, member) = (self.listener.id(), lease.address());
        tracing::debug!(%listener, %member, %error, "connect failed");
        match error.kind() {
            io::ErrorKind::TimedOut => Refusal::MemberTimeout,
            _ => Refusal::MemberFailed,
        }
    }

    /// Returns what it means for the client that a member gets no further request over HTTP/2.
    pub(super) fn no_link(&self, lease: &Lease, why: &NoLink) -> Refusal {
        match why {
            NoLink::Failed(error) => self.connect_failed(lease, error),
            NoLink::Full => Refusal::Busy,
            NoLink::Share => Refusal::Share,
        }
    }

    /// Lets a request of a source go on, or returns after how many seconds the next may come.
    pub(super) fn admit(&self, rate: Rate, source: IpAddr) -> Result<(), NonZeroU32> {
        let clients = self.listener.clients();
        clients
            .request(rate, source, Instant::now())
            .map_err(|wait| {
                let seconds = u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
                NonZeroU32::new(seconds).unwrap_or(NonZeroU32::MIN)
            })
    }

    /// Counts a response that begins.
    pub(super) fn responded(&self, status: u16) {
        self.listener.counters().mine().responded(status);
    }

    /// Measures how long something took.
    pub(super) fn took(&self, span: Span, time: Duration) {
        self.listener.counters().mine().took(span, time);
    }

    /// Counts a response that is given from here.
    pub(super) fn refused(&self, refusal: Refusal) {
        let counters = self.listener.counters().mine();
        counters.responded(refusal.status().as_u16());
        if refusal.is_for_want_of_members() {
            counters.refused(counters::Refusal::NoMember);
        } else if refusal == Refusal::Busy {
            counters.refused(counters::Refusal::Limit);
        } else if refusal == Refusal::Crowded {
            counters.refused(counters::Refusal::Queue);
        } else if matches!(refusal, Refusal::TooMany(_)) {
            counters.refused(counters::Refusal::SourceRate);
        } else if refusal == Refusal::Share {
            counters.refused(counters::Refusal::Share);
        }
    }

    /// TLS toward members, as it is configured at present.
    pub(super) fn toward_members(&self) -> Option<Arc<TowardMembers>> {
        self.listener.config().toward_members.clone()
    }

    /// What is configured at present.
    pub(super) fn settings(&self) -> Settings {
        let config = self.listener.config();
        Settings {
            // A listener that speaks no HTTP any more: open connections go on without extras.
            http: config.listener.mode.http().unwrap_or_default(),
            timeouts: bounded(config.listener.timeouts),
            introduce: config.listener.pool.proxy_protocol,
            request_rate: config.listener.source_limits.request_rate,
            redirect: config.listener.redirect,
        }
    }
}

/// Timeouts that can be added to any moment.
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
    /// Closes idle connections that are of no use any more. Returns whether any are left.
    fn sweep(&self, listener: &ListenerState) -> bool {
        if listener.account().is_scarce() {
            self.idle.clear();
            self.links.close_idle();
        }
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
        let much_is_free = buffer::much_is_free();
        let busy = shared.sweep(&listener) || much_is_free;
        tokio::select! {
            () = listener.closing().cancelled() => break,
            () = shared.filled.notified(), if !busy => {}
            () = tokio::time::sleep(SWEEP), if busy => {
                if much_is_free {
                    let _ = tokio::task::spawn_blocking(buffer::give_back).await;
                }
            }
        }
    }
    shared.draining.store(true, Ordering::Relaxed);
    shared.idle.clear();
    shared.links.clear();
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use crate::changes::Changes;
    use landfall_model::listener::{Listener, Member};
    use landfall_model::{Protocol, ServiceKey, Uid};
    use tokio::net::TcpListener;

    use super::*;
    use crate::budget::Budget;
    use crate::identity::{ListenerId, Owner};
    use crate::listener::ListenerConfig;

    #[tokio::test]
    async fn connections_that_are_only_kept_make_room() {
        let budget = Budget::new(256, 16);
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let member = server.local_addr().unwrap();
        let mut listener = Listener::new(Protocol::Tcp, NonZeroU16::MIN);
        listener.pool.members = vec![Member::new(member)];
        let id = ListenerId {
            address: "127.0.0.1".parse().unwrap(),
            key: listener.key,
        };
        let owner = Owner {
            uid: Uid::new("uid"),
            service: ServiceKey::new("shop", "web"),
        };
        let account = budget.account(&owner.uid, owner.service.namespace());
        let config = ListenerConfig::new(id, &listener).unwrap();
        let changes = Changes::default();
        let key = crate::pool::HashKey::new([0; 16], &owner.uid);
        let state = ListenerState::with_account(id, owner, config, 1, &changes, account, key);
        let front = Front::new(Arc::new(state));
        let mut far = Vec::new();
        for _ in 0..8 {
            front.keep(
                member,
                MemberStream::plain(TcpStream::connect(member).await.unwrap()),
            );
            far.push(server.accept().await.unwrap());
        }
        assert_eq!(budget.pressure().used, 8);
        let mut inbound = Inbound::direct(member, member);
        // Its peer brings the clients of many.
        inbound.client.set_port(1);
        let (idle, links) = (Idle::default(), Links::default());
        let mut taken = Vec::new();
        while let Some(extra) = front.extra(&inbound, (&idle, &links)) {
            taken.push(extra);
        }
        assert!(taken.len() > 8, "{}", taken.len());
        assert_eq!(budget.pressure().used as usize, taken.len());
        drop(taken);
        assert_eq!(budget.pressure().used, 0);
    }
}
