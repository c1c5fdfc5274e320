//! HTTP/2 connections to members (prior knowledge, RFC 9113 section 3.3): one per member, shared by many
//! requests. Never sends a request itself.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use landfall_model::listener::ProxyProtocol;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::http::content::RequestContent;
use crate::http::spawner::Spawner;
use crate::inbound::Inbound;

/// A connection that carries requests is asked for a sign of life this often, so that a member that
/// vanished does not hold them until their own time-outs.
const PING_EVERY: Duration = Duration::from_secs(20);

/// How long that sign may take.
const PING_WITHIN: Duration = Duration::from_secs(10);

/// Bytes that one response may be ahead of its client.
const STREAM_WINDOW: u32 = 256 * 1024;

/// The same for all responses of a connection together.
const CONNECTION_WINDOW: u32 = 2 * 1024 * 1024;

/// Bytes of one request's body that may wait to be sent.
const SEND_BUFFER: usize = 128 * 1024;

/// Connections by member.
#[derive(Debug, Default)]
pub(in crate::http) struct Links {
    cells: Mutex<HashMap<SocketAddr, Arc<OnceCell<Link>>>>,
}

/// One connection. Lives as long as anybody holds it.
#[derive(Clone, Debug)]
pub(in crate::http) struct Link {
    sender: SendRequest<RequestContent>,
    _driver: Arc<AbortOnDropHandle<()>>,
}

// === impl Links ===

impl Links {
    /// The connection to a member, made now if there is none. However many ask at the same time, one is
    /// made.
    pub(in crate::http) async fn get(
        &self,
        member: SocketAddr,
        within: Duration,
        introduce: Option<ProxyProtocol>,
        inbound: &Inbound,
    ) -> io::Result<Link> {
        let cell = self.cell(member);
        let link = cell.get_or_try_init(|| connect(member, within, introduce, inbound));
        // Whoever waits for another's try must not then wait for as many tries as there are others.
        match timeout(within, link).await {
            Ok(link) => link.cloned(),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Forgets connections that have ended and those to members that are not `usable`; requests under
    /// way go on. Tells whether any are left.
    pub(in crate::http) fn sweep(&self, usable: impl Fn(SocketAddr) -> bool) -> bool {
        let mut cells = self.cells();
        cells.retain(|&member, cell| usable(member) && !is_over(cell));
        !cells.is_empty()
    }

    /// Forgets everything; requests under way go on.
    pub(in crate::http) fn clear(&self) {
        self.cells().clear();
    }

    fn cell(&self, member: SocketAddr) -> Arc<OnceCell<Link>> {
        let mut cells = self.cells();
        let cell = cells.entry(member).or_default();
        if is_over(cell) {
            *cell = Arc::default();
        }
        cell.clone()
    }

    fn cells(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<OnceCell<Link>>>> {
        // Each operation leaves the map valid at every step.
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_over(cell: &OnceCell<Link>) -> bool {
    cell.get().is_some_and(|link| link.sender.is_closed())
}

// === impl Link ===

impl Link {
    /// What sends requests.
    pub(in crate::http) fn sender(&self) -> SendRequest<RequestContent> {
        self.sender.clone()
    }
}

async fn connect(
    member: SocketAddr,
    within: Duration,
    introduce: Option<ProxyProtocol>,
    inbound: &Inbound,
) -> io::Result<Link> {
    let stream = super::connect(member, within, introduce, inbound).await?;
    let streams = TaskTracker::new();
    let (sender, connection) = Builder::new(Spawner::new(streams.clone()))
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WITHIN)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(crate::http::MAX_HEAD as u32)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%member, %error, "HTTP/2 connection to a member ended");
        }
        streams.close();
        streams.wait().await;
    });
    Ok(Link {
        sender,
        _driver: Arc::new(AbortOnDropHandle::new(driver)),
    })
}
