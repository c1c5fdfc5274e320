//! Backends for the demo, inside this process: a few HTTP servers that say their name, one of them
//! failing its health check, and UDP servers that send back what they get.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Where the backends listen. Those of one kind share a port and differ in their address, as pods
/// of one Deployment do.
#[derive(Clone, Debug)]
pub struct Backends {
    /// HTTP backends in the order a, b, c.
    pub http: Vec<SocketAddr>,
    /// One more HTTP backend, on the same port, whose health check fails.
    pub failing: SocketAddr,
    /// UDP backends in the order a, b.
    pub udp: Vec<SocketAddr>,
}

/// The names of the healthy HTTP backends.
pub const HTTP_NAMES: [&str; 3] = ["web-a", "web-b", "web-c"];
/// The name of the HTTP backend whose health check fails.
pub const FAILING_NAME: &str = "web-sick";
/// The names of the UDP backends.
pub const UDP_NAMES: [&str; 2] = ["echo-a", "echo-b"];

/// How many ports are tried until one is free on every address.
const TRIES: usize = 50;

#[derive(Clone, Debug)]
struct Identity {
    name: &'static str,
    healthy: bool,
}

/// Starts all backends; they end with `cancel`.
pub async fn start(tasks: &TaskTracker, cancel: &CancellationToken) -> anyhow::Result<Backends> {
    let http = bind_tcp(HTTP_NAMES.len() + 1)
        .await
        .context("starting the HTTP backends")?;
    let udp = bind_udp(UDP_NAMES.len())
        .await
        .context("starting the UDP backends")?;
    let http_addresses = http
        .iter()
        .map(TcpListener::local_addr)
        .collect::<Result<Vec<_>, _>>()?;
    let udp_addresses = udp
        .iter()
        .map(UdpSocket::local_addr)
        .collect::<Result<Vec<_>, _>>()?;

    let names = HTTP_NAMES
        .iter()
        .map(|name| (*name, true))
        .chain([(FAILING_NAME, false)]);
    for (listener, (name, healthy)) in http.into_iter().zip(names) {
        let router = router(Identity { name, healthy });
        let cancelled = cancel.clone().cancelled_owned();
        tasks.spawn(async move {
            if let Err(error) = axum::serve(listener, router)
                .with_graceful_shutdown(cancelled)
                .await
            {
                tracing::warn!(%error, "a demo backend stopped");
            }
        });
    }
    for (socket, name) in udp.into_iter().zip(UDP_NAMES) {
        let cancel = cancel.clone();
        tasks.spawn(async move { cancel.run_until_cancelled(echo(socket, name)).await });
    }
    let (failing, http) = http_addresses
        .split_last()
        .context("there is at least one HTTP backend")?;
    Ok(Backends {
        http: http.to_vec(),
        failing: *failing,
        udp: udp_addresses,
    })
}

fn router(identity: Identity) -> Router {
    Router::new()
        .route("/healthz", get(health))
        .fallback(check_clouds)
        .with_state(Arc::new(identity))
}

async fn health(State(identity): State<Arc<Identity>>) -> (StatusCode, &'static str) {
    if identity.healthy {
        (StatusCode::OK, "ok\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "this backend fails on purpose\n",
        )
    }
}

async fn check_clouds(State(identity): State<Arc<Identity>>, headers: HeaderMap) -> String {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match header("x-forwarded-for") {
        Some(client) => format!(
            "{} sees client {client} over {} on port {}\n",
            identity.name,
            header("x-forwarded-proto").unwrap_or("?"),
            header("x-forwarded-port").unwrap_or("?"),
        ),
        None => format!("{} says hello\n", identity.name),
    }
}

async fn echo(socket: UdpSocket, name: &str) {
    let mut buffer = vec![0; 65_536];
    while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
        let mut answer = format!("{name}: ").into_bytes();
        answer.extend_from_slice(buffer.get(..length).unwrap_or_default());
        if let Err(error) = socket.send_to(&answer, client).await {
            tracing::debug!(%error, "a demo answer got lost");
        }
    }
}

fn address(index: usize) -> IpAddr {
    let last = u8::try_from(index + 1).unwrap_or(u8::MAX);
    IpAddr::V4(Ipv4Addr::new(127, 76, 0, last))
}

async fn bind_tcp(count: usize) -> anyhow::Result<Vec<TcpListener>> {
    for _ in 0..TRIES {
        let first = TcpListener::bind((address(0), 0)).await?;
        let port = first.local_addr()?.port();
        let mut listeners = vec![first];
        for index in 1..count {
            match TcpListener::bind((address(index), port)).await {
                Ok(listener) => listeners.push(listener),
                Err(_) => break,
            }
        }
        if listeners.len() == count {
            return Ok(listeners);
        }
    }
    anyhow::bail!("no port was free on {count} loopback addresses")
}

async fn bind_udp(count: usize) -> anyhow::Result<Vec<UdpSocket>> {
    for _ in 0..TRIES {
        let first = UdpSocket::bind((address(0), 0)).await?;
        let port = first.local_addr()?.port();
        let mut sockets = vec![first];
        for index in 1..count {
            match UdpSocket::bind((address(index), port)).await {
                Ok(socket) => sockets.push(socket),
                Err(_) => break,
            }
        }
        if sockets.len() == count {
            return Ok(sockets);
        }
    }
    anyhow::bail!("no port was free on {count} loopback addresses")
}
