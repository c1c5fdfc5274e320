//! Connections: how many, how long they may dawdle, and how they end. Knows no route.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use crate::guard::Names;
use crate::stall::Stall;
use crate::{Instance, routes};

/// Far more than people, probes and scrapers need, far less than the data plane's sockets. Further
/// clients wait in the listen queue.
const MOST_CONNECTIONS: usize = 256;

/// From the first byte (or the end of the last answer) to a whole request head. Also ends idle
/// connections; longer than the usual pause between two scrapes.
const HEAD_TIMEOUT: Duration = Duration::from_secs(65);

/// A client that takes nothing off our hands for this long is gone.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long answers under way may take once the endpoint closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// After a failed accept (no file descriptors left): time for something to be given back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the endpoint needs to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Names under which it answers beside `localhost` and IP addresses; see [`crate::guard`].
    pub names: Names,
}

/// Serves the admin endpoint until cancelled, then lets answers under way end. Never fails: a
/// connection's trouble is its own.
pub async fn serve<I: Instance>(
    listener: TcpListener,
    instance: Arc<I>,
    options: Options,
    cancel: CancellationToken,
) {
    let router = routes::router(instance, options.names, cancel.clone());
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let tasks = TaskTracker::new();
    let accepting = async {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let connection = connection(stream, router.clone(), cancel.clone());
                    tasks.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "admin endpoint can't accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    // Cancel-safe: a connection that was accepted is in a task before the next await.
    tokio::select! {
        () = cancel.cancelled() => {}
        () = accepting => {}
    }
    drop(listener);
    tasks.close();
    if tokio::time::timeout(CLOSE_TIMEOUT, tasks.wait())
        .await
        .is_err()
    {
        tracing::debug!(open = tasks.len(), "admin connections cut");
    }
}

async fn connection(stream: TcpStream, router: Router, cancel: CancellationToken) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = router.clone().call(request);
        async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(|never| match never {})) }
    });
    let io = TokioIo::new(Stall::new(stream, STALL_TIMEOUT));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(64)
        .serve_connection(io, service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = cancel.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(CLOSE_TIMEOUT, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "admin connection ended early");
    }
}
