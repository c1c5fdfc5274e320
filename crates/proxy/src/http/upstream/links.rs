//! HTTP/2 connections to members (prior knowledge, RFC 9113 section 3.3), each shared by as many
//! requests as the member allows and one connection serves well; further ones are made for more.
//! Never sends a request itself.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use h2::client::SendRequest;
use landfall_model::listener::ProxyProtocol;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::MAX_IDLE_TIME;
use super::driver::{self, MAX_REQUESTS, Open};
use crate::budget::Extra;
use crate::dial;
use crate::http::backpressure::TrackedBytes;
use crate::inbound::Inbound;
use crate::tls::{Inside, MemberStream, TowardMembers};

/// Connections to one member. A bound on descriptors, not a target.
const MAX_LINKS: usize = 256;

/// Connections to one member that take no requests at present (a limit of 0 in its
/// SETTINGS). More would be opened for nothing; a few may be ending while others serve.
const MAX_SHUT: usize = 4;

/// Connections by member.
#[derive(Debug, Default)]
pub(in crate::http) struct Links {
    lists: Mutex<HashMap<SocketAddr, Vec<Arc<Cell>>>>,
}

/// A place for a request on one connection, held until request and response are over.
#[derive(Debug)]
pub(in crate::http) struct Link {
    sender: SendRequest<TrackedBytes>,
    place: Place,
}

/// Why there is no connection for a request.
#[derive(Debug)]
pub(in crate::http) enum NoLink {
    /// The member could not be reached.
    Failed(io::Error),
    /// There are as many as there may be, and all are in use, or the member takes no requests.
    Full,
    /// The Service has its share of descriptors.
    Share,
}

/// One connection, or the try to make it.
#[derive(Debug)]
struct Cell {
    /// How its connection is secured.
    tls: Option<Arc<TowardMembers>>,
    opened: OnceCell<Connection>,
    /// Requests that hold a place, and how many may.
    taken: AtomicUsize,
    places: AtomicUsize,
    /// It has ended, or takes no more requests.
    over: AtomicBool,
    /// When the last place was given back.
    idle_since: Mutex<Instant>,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<TrackedBytes>,
    open: Open<MemberStream>,
    closing: CancellationToken,
    _closes: DropGuard,
    /// Its descriptor is that of the client that it was made for: it serves no other, and ends with
    /// the request.
    alone: bool,
}

#[derive(Debug)]
struct Place(Arc<Cell>);

/// The connection of a cell while it is run. Dropped, also by a panic, it is over.
#[derive(Debug)]
struct Runs(Weak<Cell>);

// === impl Links ===

impl Links {
    /// A place on a connection to a member, which is made now if none has a free place.
    /// However many ask at the same time, no more are made than are needed, and each makes one at
    /// most. `hold` is asked for the descriptor of a new one, and may name that of the client
    /// instead.
    pub(in crate::http) async fn get(
        &self,
        member: SocketAddr,
        within: Duration,
        introduce: Option<ProxyProtocol>,
        tls: Option<&Arc<TowardMembers>>,
        inbound: &Inbound,
        hold: impl Fn() -> Result<Option<Extra>, NoLink>,
    ) -> Result<Link, NoLink> {
        let deadline = Instant::now() + within;
        loop {
            let place = self.reserve(member, tls).ok_or(NoLink::Full)?;
            let cell = place.0.clone();
            let is_mine = AtomicBool::new(false);
            let connect = || async {
                is_mine.store(true, Ordering::Relaxed);
                let hold = hold()?;
                let tls = (cell.tls.as_ref(), Inside::Http2);
                let stream = dial::reach(member, within, introduce, tls, inbound).await;
                let connected = cell.connect(member, stream.map_err(NoLink::Failed)?, hold);
                connected.await.map_err(NoLink::Failed)
            };
            // One that waits for another's try must not then wait for as many as there are.
            match timeout_at(deadline, cell.opened.get_or_try_init(connect)).await {
                // The request that made it makes no other.
                Ok(Ok(_)) if is_mine.load(Ordering::Relaxed) && cell.is_shut() => {
                    return Err(NoLink::Full);
                }
                // The member may allow fewer requests than wait for the connection by now. The one
                // that made it stays, and others leave.
                Ok(Ok(_)) if !is_mine.load(Ordering::Relaxed) && !place.fits() => {}
                // One that waited for the client of another.
                Ok(Ok(it)) if it.alone && !is_mine.load(Ordering::Relaxed) => {}
                Ok(Ok(connection)) => match connection.takes_requests() {
                    Some(sender) => return Ok(Link { sender, place }),
                    None if is_mine.load(Ordering::Relaxed) => {
                        return Err(NoLink::Failed(io::ErrorKind::ConnectionReset.into()));
                    }
                    None => cell.over.store(true, Ordering::Relaxed),
                },
                Ok(Err(why)) => return Err(why),
                Err(_) => return Err(NoLink::Failed(io::ErrorKind::TimedOut.into())),
            }
        }
    }

    /// Forgets connections that have ended, that no request has used for a while, and those to
    /// members that are not `usable`; requests under way go on. Returns whether any are left.
    pub(in crate::http) fn sweep(&self, usable: impl Fn(SocketAddr) -> bool) -> bool {
        let now = Instant::now();
        let mut lists = self.lists();
        lists.retain(|&member, cells| {
            let usable = usable(member);
            cells.retain(|cell| usable && !cell.is_over() && cell.idle_time(now) < MAX_IDLE_TIME);
            !cells.is_empty()
        });
        !lists.is_empty()
    }

    /// Closes connections that carry nothing at present, so that their descriptors are free now.
    /// Returns whether there were any.
    pub(in crate::http) fn close_idle(&self) -> bool {
        let is_idle = |cell: &mut Arc<Cell>| cell.taken.load(Ordering::Relaxed) == 0;
        let idle: Vec<Arc<Cell>> = self
            .lists()
            .values_mut()
            .flat_map(|cells| cells.extract_if(.., is_idle))
            .collect();
        let mut closed = false;
        for cell in idle {
            let open = cell.opened.get().map(|connection| connection.open.clone());
            // What sends requests must be gone before the connection can end in order.
            drop(cell);
            closed |= open.is_some_and(|open| open.close());
        }
        closed
    }

    /// Forgets everything; requests under way go on.
    pub(in crate::http) fn clear(&self) {
        self.lists().clear();
    }

    /// The first free place, so that connections that are not needed come to rest.
    fn reserve(&self, member: SocketAddr, tls: Option<&Arc<TowardMembers>>) -> Option<Place> {
        let mut lists = self.lists();
        let cells = lists.entry(member).or_default();
        cells.retain(|cell| !cell.is_over());
        if let Some(place) = cells
            .iter()
            .filter(|it| it.is_by(tls))
            .find_map(Cell::enter)
        {
            return Some(place);
        }
        let shut = cells.iter().filter(|it| it.is_by(tls) && it.is_shut());
        if cells.len() >= MAX_LINKS || shut.count() >= MAX_SHUT {
            return None;
        }
        let cell = Arc::new(Cell::new(tls.cloned()));
        cells.push(cell.clone());
        cell.enter()
    }

    fn lists(&self) -> MutexGuard<'_, HashMap<SocketAddr, Vec<Arc<Cell>>>> {
        // Each operation leaves the map valid at every step.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Runs ===

impl Drop for Runs {
    fn drop(&mut self) {
        if let Some(cell) = self.0.upgrade() {
            cell.over.store(true, Ordering::Relaxed);
        }
    }
}

// === impl Link ===

impl Link {
    /// A place on a connection that is in no list.
    #[cfg(test)]
    pub(super) fn by(sender: SendRequest<TrackedBytes>) -> Self {
        let place = Place(Arc::new(Cell::new(None)));
        place.0.taken.store(1, Ordering::Relaxed);
        Self { sender, place }
    }

    /// What sends requests.
    pub(in crate::http) fn sender(&self) -> SendRequest<TrackedBytes> {
        self.sender.clone()
    }

    /// Whether the connection serves no other request, and ends with it.
    pub(in crate::http) fn is_alone(&self) -> bool {
        let opened = self.place.0.opened.get();
        opened.is_some_and(|connection| connection.alone)
    }

    /// Whether the connection is over TLS.
    pub(in crate::http) fn is_secure(&self) -> bool {
        self.place.0.tls.is_some()
    }
}

// === impl Cell ===

impl Cell {
    /// Whether it was made as connections are to be made now.
    fn is_by(&self, tls: Option<&Arc<TowardMembers>>) -> bool {
        match (&self.tls, tls) {
            (None, None) => true,
            (Some(mine), Some(tls)) => Arc::ptr_eq(mine, tls),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    fn new(tls: Option<Arc<TowardMembers>>) -> Self {
        Self {
            tls,
            opened: OnceCell::new(),
            taken: AtomicUsize::new(0),
            places: AtomicUsize::new(MAX_REQUESTS),
            over: AtomicBool::new(false),
            idle_since: Mutex::new(Instant::now()),
        }
    }

    /// Opens the connection over a stream, and runs it until it ends or its cell is gone.
    async fn connect(
        self: &Arc<Self>,
        member: SocketAddr,
        stream: MemberStream,
        hold: Option<Extra>,
    ) -> io::Result<Connection> {
        let alone = hold.is_none();
        let (sender, driver, places) = driver::open(stream, hold).await?;
        self.allow(places);
        let open = driver.connection();
        let closing = CancellationToken::new();
        let closes = closing.clone();
        let (of, runs) = (Arc::downgrade(self), Runs(Arc::downgrade(self)));
        tokio::spawn(async move {
            let takes = |places| {
                if let Some(cell) = of.upgrade() {
                    cell.allow(places);
                }
            };
            let is_busy = || {
                let cell = runs.0.upgrade();
                cell.is_some_and(|cell| cell.taken.load(Ordering::Relaxed) > 0)
            };
            if let Err(error) = driver.run(closes, takes, is_busy).await {
                tracing::debug!(%member, %error, "HTTP/2 connection to a member ended");
            }
        });
        Ok(Connection {
            sender,
            open,
            _closes: closing.clone().drop_guard(),
            closing,
            alone,
        })
    }

    fn enter(self: &Arc<Self>) -> Option<Place> {
        if self.opened.get().is_some_and(|it| it.alone) {
            return None;
        }
        let places = self.places.load(Ordering::Relaxed);
        let enter = |taken| (taken < places).then_some(taken + 1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let entered = self.taken.fetch_update(set, fetch, enter);
        entered.ok().map(|_| Place(self.clone()))
    }

    /// Takes no more requests at once than the member does.
    fn allow(&self, places: usize) {
        self.places
            .store(places.min(MAX_REQUESTS), Ordering::Relaxed);
    }

    /// Whether the member takes no requests on the connection at present.
    fn is_shut(&self) -> bool {
        self.opened.get().is_some() && self.places.load(Ordering::Relaxed) == 0
    }

    /// Whether the connection has ended, or its making has failed.
    fn is_over(&self) -> bool {
        match self.opened.get() {
            Some(_) => self.over.load(Ordering::Relaxed),
            None => self.taken.load(Ordering::Relaxed) == 0,
        }
    }

    /// How long it has carried nothing.
    fn idle_time(&self, now: Instant) -> Duration {
        if self.taken.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        now.duration_since(*self.idle_since())
    }

    fn idle_since(&self) -> MutexGuard<'_, Instant> {
        self.idle_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Connection ===

impl Connection {
    /// What sends requests; `None`: the member takes no more, or the connection has ended.
    fn takes_requests(&self) -> Option<SendRequest<TrackedBytes>> {
        let mut sender = self.sender.clone();
        let ready = sender.poll_ready(&mut Context::from_waker(Waker::noop()));
        (!matches!(ready, Poll::Ready(Err(_)))).then_some(sender)
    }
}

// === impl Place ===

impl Place {
    /// Whether the connection carries no more requests than it may.
    fn fits(&self) -> bool {
        self.0.taken.load(Ordering::Relaxed) <= self.0.places.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.0.taken.fetch_sub(1, Ordering::Relaxed) == 1 {
            *self.0.idle_since() = Instant::now();
            if let Some(connection) = self.0.opened.get()
                && connection.alone
            {
                connection.open.close();
                connection.closing.cancel();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io::Read;

    use http_body_util::Empty;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use landfall_model::Uid;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::watch;
    use tokio::task::JoinSet;

    use super::*;
    use crate::budget::{Account, Budget};

    const WITHIN: Duration = Duration::from_secs(20);

    /// SETTINGS without any.
    const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

    /// The type of a GOAWAY frame, and its length here.
    const GO_AWAY: (u8, usize) = (7, 17);

    /// A member over HTTP/2 that takes so many requests at once, and how many connections it has.
    async fn member(allowed: u32) -> (SocketAddr, watch::Receiver<usize>) {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let (counted, open) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((stream, _)) = socket.accept().await {
                let counted = counted.clone();
                counted.send_modify(|open| *open += 1);
                tokio::spawn(async move {
                    let none = |_| async {
                        Ok::<_, Infallible>(http::Response::new(Empty::<bytes::Bytes>::new()))
                    };
                    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .max_concurrent_streams(allowed)
                        .serve_connection(TokioIo::new(stream), service_fn(none))
                        .await;
                    counted.send_modify(|open| *open -= 1);
                });
            }
        });
        (address, open)
    }

    async fn closed(open: &mut watch::Receiver<usize>) {
        let closed = open.wait_for(|&open| open == 0);
        closed.await.expect("the member goes on");
    }

    fn account() -> (Arc<Budget>, Arc<Account>) {
        let budget = Budget::new(256, 16);
        let account = budget.account(&Uid::new("uid"), "shop");
        (budget, account)
    }

    /// A place on a connection, and the end of a member that says nothing after its SETTINGS.
    async fn link_and_its_end(links: &Links, account: &Arc<Account>) -> (Link, TcpStream) {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let member = socket.local_addr().unwrap();
        let inbound = Inbound::direct(member, member);
        let hold = || Ok(account.extra(None).ok());
        let get = links.get(member, WITHIN, None, None, &inbound, hold);
        let accept = async {
            let (mut far, _) = socket.accept().await.unwrap();
            far.write_all(SETTINGS).await.unwrap();
            far
        };
        let (link, far) = tokio::join!(get, accept);
        (link.unwrap(), far)
    }

    #[tokio::test]
    async fn a_connection_on_the_place_of_its_client_serves_no_other_and_ends_with_the_request() {
        let (member, mut open) = member(100).await;
        let (links, inbound) = (Links::default(), Inbound::direct(member, member));
        let get = || links.get(member, WITHIN, None, None, &inbound, || Ok(None));
        let both = tokio::join!(get(), get());
        let (first, second) = (both.0.unwrap(), both.1.unwrap());
        let third = get().await.unwrap();
        assert_eq!(*open.borrow(), 3);
        drop((first, second, third));
        let closed = tokio::time::timeout(WITHIN, closed(&mut open));
        closed.await.expect("they close");
    }

    #[tokio::test]
    async fn a_connection_holds_its_descriptor_until_its_socket_is_closed() {
        let (member, mut open) = member(100).await;
        let (links, inbound) = (Links::default(), Inbound::direct(member, member));
        let (budget, account) = account();
        let hold = || Ok(account.extra(None).ok());
        let get = links.get(member, WITHIN, None, None, &inbound, hold);
        let link = get.await.unwrap();
        tokio::time::pause();
        // As long as something may be sent, it does not end in order.
        let sender = link.sender();
        drop(link);
        links.clear();
        assert_eq!(budget.pressure().used, 1);
        closed(&mut open).await;
        assert_eq!(budget.pressure().used, 0);
        drop(sender);
    }

    #[tokio::test]
    async fn an_idle_connection_that_makes_room_is_closed_at_once_and_in_order() {
        let links = Links::default();
        let (budget, account) = account();
        let (link, far) = link_and_its_end(&links, &account).await;
        let mut far = far.into_std().unwrap();
        assert!(!links.close_idle());
        drop(link);
        assert_eq!(budget.pressure().used, 1);
        // Nothing else has its turn meanwhile.
        assert!(links.close_idle());
        assert_eq!(budget.pressure().used, 0);
        let mut sent = Vec::new();
        far.read_to_end(&mut sent).expect("it is closed");
        let last = sent.len() - GO_AWAY.1;
        assert_eq!(sent[last + 3], GO_AWAY.0);
        assert!(!links.close_idle());
    }

    #[tokio::test]
    async fn a_connection_that_has_ended_by_itself_makes_no_room() {
        let links = Links::default();
        let (budget, account) = account();
        drop(link_and_its_end(&links, &account).await);
        let ended = async {
            while budget.pressure().used > 0 {
                tokio::task::yield_now().await;
            }
        };
        let ended = tokio::time::timeout(WITHIN, ended);
        ended.await.expect("it ends");
        assert!(!links.close_idle());
    }

    #[test]
    fn a_connection_whose_task_panics_is_over() {
        let cell = Arc::new(Cell::new(None));
        let runs = Runs(Arc::downgrade(&cell));
        let task = std::thread::spawn(move || {
            let _runs = runs;
            panic!("the library does");
        });
        assert!(task.join().is_err());
        assert!(cell.over.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn no_request_makes_more_than_one_connection() {
        const REQUESTS: usize = 20;
        let (member, open) = member(1).await;
        let (links, inbound) = (Arc::<Links>::default(), Inbound::direct(member, member));
        let (_budget, account) = account();
        let mut asking = JoinSet::new();
        for _ in 0..REQUESTS {
            let (links, account) = (links.clone(), account.clone());
            asking.spawn(async move {
                let made = AtomicUsize::new(0);
                let hold = || {
                    made.fetch_add(1, Ordering::Relaxed);
                    Ok(account.extra(None).ok())
                };
                let link = links.get(member, WITHIN, None, None, &inbound, hold).await;
                (link.unwrap(), made.into_inner())
            });
        }
        let all = asking.join_all().await;
        assert!(all.iter().all(|&(_, made)| made <= 1));
        assert_eq!(*open.borrow(), REQUESTS);
    }
}
