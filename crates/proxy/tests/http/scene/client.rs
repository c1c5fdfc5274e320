//! A client that sends exactly the given bytes, and returns exactly what it receives.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::TIMEOUT;
use super::member::Request;

/// A connection to the listener (or, with [`Client::over`], to anything).
pub struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

/// A response, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// The raw trailer section.
    pub trailers: String,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(address).await.unwrap(),
            read: Vec::new(),
        }
    }

    /// The other end of a connection, as a server has it.
    pub fn over(stream: TcpStream) -> Self {
        Self {
            stream,
            read: Vec::new(),
        }
    }

    /// The next request, whole; `None` when the connection ends before one begins.
    pub async fn request(&mut self) -> Option<Request> {
        while !self.read.windows(4).any(|four| four == b"\r\n\r\n") {
            if self.stream.read_buf(&mut self.read).await.ok()? == 0 {
                return None;
            }
        }
        let mut head = String::new();
        loop {
            match self.line().await {
                line if line.is_empty() => break,
                line => head.extend([&line, "\n"]),
            }
        }
        let mut request = Request {
            head,
            body: Vec::new(),
            trailers: String::new(),
        };
        if let Some(length) = request.field("content-length") {
            let length = length.parse().unwrap();
            request.body = self.exactly(length).await;
        } else if request.field("transfer-encoding").is_some() {
            (request.body, request.trailers) = self.chunks().await;
        }
        Some(request)
    }

    async fn chunks(&mut self) -> (Vec<u8>, String) {
        let (mut body, mut trailers) = (Vec::new(), String::new());
        loop {
            let size = self.line().await;
            let size = size.split(';').next().unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            if size == 0 {
                break;
            }
            body.extend(self.exactly(size).await);
            assert_eq!(self.line().await, "");
        }
        loop {
            match self.line().await {
                line if line.is_empty() => return (body, trailers),
                line => trailers.extend([&line, "\n"]),
            }
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.stream.local_addr().unwrap()
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends where the other side may be gone already.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    pub async fn finish(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// One GET on this connection.
    pub async fn get(&mut self, path: &str) -> Response {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\n\r\n"))
            .await;
        self.response().await
    }

    /// The next response to anything but HEAD.
    pub async fn response(&mut self) -> Response {
        let mut response = self.head().await;
        let field = |name: &str| response.field(name).map(str::to_owned);
        if response.status < 200 || response.status == 204 || response.status == 304 {
            return response;
        }
        if let Some(length) = field("content-length") {
            response.body = self.exactly(length.parse().unwrap()).await;
        } else if field("transfer-encoding").is_some() {
            (response.body, response.trailers) = self.chunks().await;
        } else {
            response.body = self.rest().await;
        }
        response
    }

    /// The head of a response.
    pub async fn head(&mut self) -> Response {
        let mut head = String::new();
        loop {
            let line = self.line().await;
            if line.is_empty() {
                break;
            }
            head.extend([&line, "\n"]);
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response {
            status,
            head,
            body: Vec::new(),
            trailers: String::new(),
        }
    }

    /// Everything up to the end of the connection.
    pub async fn rest(&mut self) -> Vec<u8> {
        let read = self.stream.read_to_end(&mut self.read);
        timeout(TIMEOUT, read)
            .await
            .expect("the connection ends")
            .expect("it ends in order");
        std::mem::take(&mut self.read)
    }

    /// Whether the connection ends with an error rather than in order. Throws away what comes
    /// before.
    pub async fn is_reset(&mut self) -> bool {
        let read = self.stream.read_to_end(&mut self.read);
        timeout(TIMEOUT, read)
            .await
            .expect("the connection ends")
            .is_err()
    }

    /// Waits for the end of the connection, before which nothing may come.
    pub async fn closed(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.rest().await), "");
    }

    pub async fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.read.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.read.drain(..end + 2).take(end).collect();
                return String::from_utf8(line).unwrap();
            }
            self.more().await;
        }
    }

    pub async fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count {
            self.more().await;
        }
        self.read.drain(..count).collect()
    }

    async fn more(&mut self) {
        let read = self.stream.read_buf(&mut self.read);
        let count = timeout(TIMEOUT, read)
            .await
            .expect("an answer in time")
            .unwrap();
        assert_ne!(
            count,
            0,
            "the connection ended after {:?}",
            String::from_utf8_lossy(&self.read)
        );
    }

    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

impl Response {
    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (other, value) = line.split_once(": ")?;
            other.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}
