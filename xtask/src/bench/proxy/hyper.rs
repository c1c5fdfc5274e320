//! A reverse proxy for HTTP/1.1 on hyper, with what the comparison needs and nothing else: no
//! limits, no timeouts, no counters, no health. What Landfall's engine would cost if it were
//! replaced is more than this ([decision 0007](../../../../docs/decisions/0007-http1.md)).

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddrV4};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use clap::Args;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpSocket, TcpStream};

/// `bench hyper`
#[derive(Debug, Args)]
pub struct HyperArgs {
    /// Where clients connect
    #[arg(long)]
    listen: SocketAddrV4,
    /// Where requests go, in turn
    #[arg(long, value_delimiter = ',', required = true)]
    members: Vec<SocketAddrV4>,
}

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

type Sender = SendRequest<Incoming>;

/// A member with its idle connections.
#[derive(Debug)]
struct Member {
    address: SocketAddrV4,
    idle: Mutex<Vec<Sender>>,
}

/// Everything that connections share.
#[derive(Debug)]
struct Proxy {
    members: Vec<Arc<Member>>,
    next: AtomicUsize,
    port: HeaderValue,
}

/// A response whose connection is kept once it has ended.
struct Reply {
    body: Option<Incoming>,
    connection: Option<(Sender, Arc<Member>)>,
}

/// Serves until it is ended, on one thread.
pub fn run(args: &HyperArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(args))
}

async fn serve(args: &HyperArgs) -> anyhow::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(args.listen.into())?;
    let listener = socket.listen(4096)?;
    let members = args.members.iter().map(|address| {
        Arc::new(Member {
            address: *address,
            idle: Mutex::default(),
        })
    });
    let proxy = Arc::new(Proxy {
        members: members.collect(),
        next: AtomicUsize::new(0),
        port: HeaderValue::from(args.listen.port()),
    });
    loop {
        let (stream, client) = listener.accept().await?;
        tokio::spawn(connection(Arc::clone(&proxy), stream, client.ip()));
    }
}

async fn connection(proxy: Arc<Proxy>, stream: TcpStream, client: IpAddr) {
    let Ok(client) = HeaderValue::try_from(client.to_string()) else {
        return;
    };
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| {
        let (proxy, client) = (Arc::clone(&proxy), client.clone());
        async move {
            let reply = proxy.forward(request, client).await;
            Ok::<_, Infallible>(reply.unwrap_or_else(|_| {
                let mut response = Response::new(Reply {
                    body: None,
                    connection: None,
                });
                *response.status_mut() = StatusCode::BAD_GATEWAY;
                response
            }))
        }
    });
    // A connection that breaks shows at the client, which counts.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

// === impl Proxy ===

impl Proxy {
    async fn forward(
        &self,
        mut request: Request<Incoming>,
        client: HeaderValue,
    ) -> anyhow::Result<Response<Reply>> {
        let headers = request.headers_mut();
        remove_hop_by_hop(headers);
        headers.append(FORWARDED_FOR, client);
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static("http"));
        headers.insert(FORWARDED_PORT, self.port.clone());
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.members.len();
        let Some(member) = self.members.get(turn) else {
            anyhow::bail!("no members");
        };
        let mut sender = member.connection().await?;
        let (mut head, body) = sender.send_request(request).await?.into_parts();
        remove_hop_by_hop(&mut head.headers);
        let reply = Reply {
            body: Some(body),
            connection: Some((sender, Arc::clone(member))),
        };
        Ok(Response::from_parts(head, reply))
    }
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    headers.remove(CONNECTION);
    headers.remove(KEEP_ALIVE);
}

// === impl Member ===

impl Member {
    /// Returns a connection that was kept, or opens one.
    async fn connection(&self) -> anyhow::Result<Sender> {
        while let Some(mut kept) = self.take() {
            if kept.ready().await.is_ok() {
                return Ok(kept);
            }
        }
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn take(&self) -> Option<Sender> {
        self.idle().pop()
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Sender>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Reply ===

impl Body for Reply {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.is_end_stream()
            && let Some((sender, member)) = self.connection.take()
        {
            member.idle().push(sender);
        }
    }
}
