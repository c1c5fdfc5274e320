//! Servers that stand in for members.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Client, TIMEOUT};

/// A server whose connections are served by a function.
pub struct Server {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

/// A member that the test itself plays.
pub struct Puppet {
    pub address: SocketAddr,
    connections: mpsc::Receiver<TcpStream>,
    _tasks: JoinSet<()>,
}

/// A request as a server got it.
#[derive(Clone, Debug)]
pub struct Request {
    pub head: String,
    pub body: Vec<u8>,
    pub trailers: String,
}

impl Server {
    /// Calls `serve` with each connection.
    pub async fn start<F>(serve: impl Fn(Conversation) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(AtomicUsize::new(0));
        let (accepted, asked) = (connections.clone(), requests.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = socket.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let conversation = Conversation {
                    client: Client::over(stream),
                    requests: asked.clone(),
                };
                serving.spawn(serve(conversation));
            }
        });
        Self {
            address,
            connections,
            requests,
            _tasks: tasks,
        }
    }

    /// Answers every request with its name, and the request's head and body as body.
    pub async fn echo(name: &'static str) -> Self {
        Self::start(move |mut conversation| async move {
            while let Some(request) = conversation.request().await {
                let body = [request.head.as_bytes(), b"\n", &request.body].concat();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nX-Member: {name}\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                conversation.send([head.as_bytes(), &body].concat()).await;
            }
        })
        .await
    }

    /// Answers every request with these bytes, and then ends the connection if asked to.
    pub async fn fixed(answer: impl Into<Vec<u8>>, close: bool) -> Self {
        let answer: Vec<u8> = answer.into();
        Self::start(move |mut conversation| {
            let answer = answer.clone();
            async move {
                while conversation.request().await.is_some() {
                    conversation.send(&answer).await;
                    if close {
                        return;
                    }
                }
            }
        })
        .await
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Requests read so far.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Puppet {
    pub async fn start() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let (sender, connections) = mpsc::channel(64);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((stream, _)) = socket.accept().await {
                if sender.send(stream).await.is_err() {
                    return;
                }
            }
        });
        Self {
            address,
            connections,
            _tasks: tasks,
        }
    }

    /// The next connection that is made to it.
    pub async fn accept(&mut self) -> Client {
        let next = timeout(TIMEOUT, self.connections.recv());
        Client::over(next.await.expect("a connection in time").unwrap())
    }
}

/// A connection that a server got.
pub struct Conversation {
    client: Client,
    requests: Arc<AtomicUsize>,
}

impl Conversation {
    /// The next request; `None` when the connection ends.
    pub async fn request(&mut self) -> Option<Request> {
        let request = self.client.request().await?;
        self.requests.fetch_add(1, Ordering::SeqCst);
        Some(request)
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.client.stream().write_all(bytes.as_ref()).await;
    }

    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Request {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (other, value) = line.split_once(": ")?;
            other.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}
