//! Backends inside the test: they send their name and the peer that they see, and count.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::lab::Lab;

/// A server that can be stopped and started again at its address.
#[derive(Debug)]
pub struct Backend {
    pub name: String,
    pub address: SocketAddr,
    kind: Kind,
    state: Arc<State>,
    task: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Lines,
    Http,
    Datagrams,
}

/// What a backend counts, and how it is to answer.
#[derive(Debug, Default)]
struct State {
    /// Connections ever, except those of monitors, which say nothing.
    served: AtomicUsize,
    /// Connections now.
    open: AtomicUsize,
    /// Answers its health check with 503.
    sick: AtomicBool,
    /// Answers to `/turns` ever.
    turns: AtomicUsize,
    /// Lets requests for `/hold` go on.
    release: Notify,
    /// Requests for `/hold` that wait.
    held: AtomicUsize,
}

/// The first bytes of a PROXY header of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// An open connection, as long as it lives.
struct Open(Arc<State>);

// === impl Backend ===

impl Backend {
    /// Answers each line with what [`crate::client::Said`] reads.
    pub async fn lines(name: &str, address: SocketAddr) -> Self {
        Self::of(Kind::Lines, name, address).await
    }

    /// Answers HTTP/1 and HTTP/2 requests with what they were, as JSON.
    pub async fn http(name: &str, address: SocketAddr) -> Self {
        Self::of(Kind::Http, name, address).await
    }

    /// Answers each datagram as [`Self::lines`] answers a line.
    pub async fn datagrams(name: &str, address: SocketAddr) -> Self {
        Self::of(Kind::Datagrams, name, address).await
    }

    async fn of(kind: Kind, name: &str, address: SocketAddr) -> Self {
        let mut backend = Self {
            name: name.to_owned(),
            address,
            kind,
            state: Arc::default(),
            task: None,
        };
        backend.start().await;
        backend
    }

    /// Listens (again). Port 0 is replaced by the port that was found.
    pub async fn start(&mut self) {
        assert!(self.task.is_none(), "{} runs already", self.name);
        let (name, state) = (self.name.clone(), self.state.clone());
        self.task = Some(match self.kind {
            Kind::Datagrams => {
                let socket = UdpSocket::bind(self.address).await.unwrap();
                self.address = socket.local_addr().unwrap();
                tokio::spawn(echo_datagrams(socket, name, state))
            }
            Kind::Lines => {
                let listener = TcpListener::bind(self.address).await.unwrap();
                self.address = listener.local_addr().unwrap();
                tokio::spawn(accept(listener, move |stream| {
                    echo_lines(stream, name.clone(), Open::of(&state))
                }))
            }
            Kind::Http => {
                let listener = TcpListener::bind(self.address).await.unwrap();
                self.address = listener.local_addr().unwrap();
                tokio::spawn(accept(listener, move |stream| {
                    serve_http(stream, name.clone(), Open::of(&state))
                }))
            }
        });
    }

    /// Closes everything, as a killed process would.
    pub async fn stop(&mut self) {
        let task = self.task.take().expect("it runs");
        task.abort();
        // It was cancelled, which is the point.
        let _ = task.await;
    }

    /// Connections (datagrams) that were served.
    pub fn served(&self) -> usize {
        self.state.served.load(Ordering::Relaxed)
    }

    /// Connections that are open now.
    pub fn open(&self) -> usize {
        self.state.open.load(Ordering::Relaxed)
    }

    /// Whether `/healthz` answers 503.
    pub fn sick(&self, sick: bool) {
        self.state.sick.store(sick, Ordering::Relaxed);
    }

    /// Requests for `/hold` that wait.
    pub fn held(&self) -> usize {
        self.state.held.load(Ordering::SeqCst)
    }

    /// Lets one request for `/hold` go on.
    pub fn release(&self) {
        self.state.release.notify_one();
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

// === impl Open ===

impl Open {
    fn of(state: &Arc<State>) -> Self {
        state.open.fetch_add(1, Ordering::Relaxed);
        Self(state.clone())
    }

    fn served(&self) {
        self.0.served.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Backends that answer lines, by name, on neighbouring addresses.
pub async fn pods(lab: &Lab, names: &[&str]) -> Vec<Backend> {
    let mut backends = Vec::new();
    for (name, number) in names.iter().zip(1..) {
        backends.push(Backend::lines(name, lab.ranges.backend(number, 3001)).await);
    }
    backends
}

async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.unwrap();
                stream.set_nodelay(true).unwrap();
                connections.spawn(serve(stream));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn echo_lines(stream: TcpStream, name: String, open: Open) {
    // A connection that breaks is the client's to notice.
    let Ok(peer) = stream.peer_addr() else {
        return;
    };
    let mut stream = BufReader::new(stream);
    let Ok(header) = read_header(&mut stream).await else {
        return;
    };
    let mut line = String::new();
    let mut first = true;
    while stream
        .read_line(&mut line)
        .await
        .is_ok_and(|length| length > 0)
    {
        if std::mem::take(&mut first) {
            open.served();
        }
        let answer = format!("{name}|{peer}|{header}|{line}");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
        line.clear();
    }
}

/// A PROXY header of either version, if there is one: `v1 SOURCE DESTINATION`, `v2 ...`, or `none`.
async fn read_header(stream: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let first = stream.fill_buf().await?;
    if first.first() == Some(&b'\r') {
        let mut head = [0; 16];
        stream.read_exact(&mut head).await?;
        let mut body = vec![0; usize::from(u16::from_be_bytes([head[14], head[15]]))];
        stream.read_exact(&mut body).await?;
        return Ok(version_two(&head, &body));
    }
    if first.starts_with(b"PROXY ") {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let words: Vec<&str> = line.trim_end_matches("\r\n").split(' ').collect();
        let [_, _, source, destination, source_port, destination_port] = words[..] else {
            return Ok(format!("v1 {line:?}"));
        };
        let socket = |address: &str, port: &str| {
            SocketAddr::new(address.parse().unwrap(), port.parse().unwrap())
        };
        let (source, destination) = (
            socket(source, source_port),
            socket(destination, destination_port),
        );
        return Ok(format!("v1 {source} {destination}"));
    }
    Ok("none".to_owned())
}

fn version_two(head: &[u8], body: &[u8]) -> String {
    assert_eq!(&head[..12], SIGNATURE);
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    match head[13] >> 4 {
        1 => {
            let address = |at: usize| <[u8; 4]>::try_from(&body[at..at + 4]).unwrap();
            let source = SocketAddr::from((address(0), port(8)));
            let destination = SocketAddr::from((address(4), port(10)));
            format!("v2 {source} {destination}")
        }
        2 => {
            let address = |at: usize| <[u8; 16]>::try_from(&body[at..at + 16]).unwrap();
            let source = SocketAddr::from((address(0), port(32)));
            let destination = SocketAddr::from((address(16), port(34)));
            format!("v2 {source} {destination}")
        }
        _ => "v2 local".to_owned(),
    }
}

async fn echo_datagrams(socket: UdpSocket, name: String, state: Arc<State>) {
    let mut buffer = vec![0; 65_536];
    loop {
        // An answer that no client takes shows as an error of the next call.
        let Ok((length, peer)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        let datagram = &buffer[..length];
        let (header, text) = if datagram.starts_with(SIGNATURE) {
            let end = 16 + usize::from(u16::from_be_bytes([datagram[14], datagram[15]]));
            let header = version_two(&datagram[..16], &datagram[16..end]);
            (header, &datagram[end..])
        } else {
            ("none".to_owned(), datagram)
        };
        if text.is_empty() {
            // A monitor's datagram.
            continue;
        }
        state.served.fetch_add(1, Ordering::Relaxed);
        let text = String::from_utf8_lossy(text);
        let answer = format!("{name}|{peer}|{header}|{text}");
        let _ = socket.send_to(answer.as_bytes(), peer).await;
    }
}

async fn serve_http(stream: TcpStream, name: String, open: Open) {
    let open = Arc::new(open);
    let service = service_fn(move |request: Request<Incoming>| {
        let (name, open) = (name.clone(), open.clone());
        async move { Ok::<_, Infallible>(answer(&name, &open, &request).await) }
    });
    // A connection that breaks is the client's to notice.
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(name: &str, open: &Open, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if path == "/healthz" {
        let sick = open.0.sick.load(Ordering::Relaxed);
        let mut response = Response::new(Full::default());
        if sick {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        return response;
    }
    if path == "/turns" {
        let mut response = Response::new(Full::default());
        if open
            .0
            .turns
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(2)
        {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        return response;
    }
    open.served();
    if path == "/hold" {
        open.0.held.fetch_add(1, Ordering::SeqCst);
        open.0.release.notified().await;
        open.0.held.fetch_sub(1, Ordering::SeqCst);
    }
    let headers: Vec<(String, String)> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    let body = serde_json::json!({
        "name": name,
        "method": request.method().as_str(),
        "target": request.uri().to_string(),
        "version": format!("{:?}", request.version()),
        "headers": headers,
    });
    Response::new(Full::new(body.to_string().into()))
}
