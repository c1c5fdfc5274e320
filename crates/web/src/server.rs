//! Connections: how many, how long they may dawdle, and how they end. Knows no route.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use axum::response::IntoResponse as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use crate::answering::answers;
use crate::error::ApiError;
use crate::places::{PlaceHold, Places};
use crate::stall::Stall;
use crate::{Instance, Options, routes};

/// From the first byte (or the end of the last answer) to a whole request head. Also ends idle
/// connections; longer than the usual pause between two scrapes.
const HEAD_TIMEOUT: Duration = Duration::from_secs(65);

/// A client that takes nothing off our hands for this long is gone.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long answers under way may take once the endpoint closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// After a failed accept (no file descriptors left): time for something to be given back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the admin endpoint until cancelled, then lets answers under way end. Never fails: a
/// connection's trouble is its own.
pub async fn serve<I: Instance>(
    listener: TcpListener,
    instance: Arc<I>,
    options: Options,
    cancel: CancellationToken,
) {
    let router = routes::router(instance, options, cancel.clone());
    let places = Arc::new(Places::default());
    let tasks = TaskTracker::new();
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Further clients wait in the listen queue.
                    let seat = loop {
                        match places.take() {
                            Some(seat) => break Arc::new(seat),
                            None => places.wait().await,
                        }
                    };
                    let connection = connection(stream, router.clone(), seat, cancel.clone());
                    tasks.spawn(answers(connection));
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
        tracing::debug!(open = tasks.len(), "admin connections closed");
    }
}

async fn connection(
    stream: TcpStream,
    router: Router,
    seat: Arc<PlaceHold>,
    cancel: CancellationToken,
) {
    let ended = seat.ended.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let busy = seat.busy();
        let refused = seat.reserved && !routes::is_probe(request.uri().path());
        let answer = (!refused).then(|| router.clone().call(request));
        async move {
            let answer = match answer {
                Some(answer) => answer.await.unwrap_or_else(|never| match never {}),
                None => ApiError::busy("too many clients are connected").into_response(),
            };
            // Under way until the last byte of the body is gone.
            Ok::<_, Infallible>(answer.map(|body| {
                body.map_frame(move |frame| {
                    let _ = &busy;
                    frame
                })
            }))
        }
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
        // Nothing is under way on it.
        () = ended.cancelled() => return,
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

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::places::MOST;

    #[tokio::test]
    async fn where_all_places_are_busy_only_probes_are_answered() {
        let places = Arc::new(Places::default());
        let taken: Vec<Arc<PlaceHold>> = (0..MOST)
            .map(|_| Arc::new(places.take().unwrap()))
            .collect();
        let _busy: Vec<_> = taken.iter().map(PlaceHold::busy).collect();
        let router = Router::new()
            .route("/readyz", get(async || "ready"))
            .route("/metrics", get(async || "metrics"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let seat = Arc::new(places.take().unwrap());
        let serving = tokio::spawn(connection(stream, router, seat, CancellationToken::new()));
        let two = "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n\
                   GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        client.write_all(two.as_bytes()).await.unwrap();
        let mut answers = String::new();
        client.read_to_string(&mut answers).await.unwrap();
        serving.await.unwrap();
        let statuses: Vec<&str> = answers.matches("HTTP/1.1 200").collect();
        assert_eq!(statuses.len(), 1, "{answers}");
        assert!(answers.contains("content-length: 5\r\n"), "{answers}");
        assert!(answers.contains("HTTP/1.1 503"), "{answers}");
        assert!(
            answers.contains("too many clients are connected"),
            "{answers}"
        );
    }
}
