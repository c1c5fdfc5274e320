//! Clients of an address. Whatever they ask for ends before the deadline, if only as an error.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::time::timeout;

/// The longest that one exchange may take.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A connection to a backend that answers lines.
#[derive(Debug)]
pub struct Talk<S = TcpStream> {
    stream: BufReader<S>,
}

/// What such a backend answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The name of the backend.
    pub name: String,
    /// The peer that it sees at the other end of its connection.
    pub peer: SocketAddr,
    /// The PROXY header that came first: `none`, or version, source and destination.
    pub header: String,
    /// What it was sent.
    pub text: String,
}

/// An HTTP response.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// An HTTP connection.
#[derive(Debug)]
pub enum Browser {
    One(hyper::client::conn::http1::SendRequest<Empty<Bytes>>),
    Two(hyper::client::conn::http2::SendRequest<Empty<Bytes>>),
}

// === impl Talk ===

impl Talk {
    pub async fn to(at: SocketAddr) -> io::Result<Self> {
        Ok(Self::over(connect(at).await?))
    }

    /// From an address that the client has, too.
    pub async fn from(source: IpAddr, at: SocketAddr) -> io::Result<Self> {
        let socket = if at.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        // Ports of connections that ended a moment ago may be used again.
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::new(source, 0))?;
        let stream = within(socket.connect(at)).await?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }

    pub fn local(&self) -> SocketAddr {
        self.stream.get_ref().local_addr().unwrap()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Talk<S> {
    pub fn over(stream: S) -> Self {
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Sends a line and waits for its answer.
    pub async fn say(&mut self, text: &str) -> io::Result<Said> {
        within(async {
            self.stream
                .write_all(format!("{text}\n").as_bytes())
                .await?;
            self.stream.flush().await?;
            let mut line = String::new();
            self.stream.read_line(&mut line).await?;
            let said = Said::read(line.strip_suffix('\n').unwrap_or(""))?;
            if said.text == text {
                Ok(said)
            } else {
                Err(io::Error::other(format!("sent {text:?}, got {said:?}")))
            }
        })
        .await
    }

    /// Sends bytes and waits for no answer.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        within(self.stream.write_all(bytes)).await
    }

    /// Waits for the other side to end the connection, however it does.
    pub async fn ended(&mut self) {
        let mut rest = Vec::new();
        let ended = timeout(TIMEOUT, self.stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the connection is still open");
        assert!(rest.is_empty(), "unexpected: {rest:?}");
    }
}

// === impl Said ===

impl Said {
    fn read(line: &str) -> io::Result<Self> {
        let parts: Vec<&str> = line.splitn(4, '|').collect();
        let [name, peer, header, text] = parts[..] else {
            let kind = io::ErrorKind::UnexpectedEof;
            return Err(io::Error::new(kind, format!("no answer but {line:?}")));
        };
        Ok(Self {
            name: name.to_owned(),
            peer: peer.parse().map_err(io::Error::other)?,
            header: header.to_owned(),
            text: text.to_owned(),
        })
    }
}

/// One line on a connection of its own.
pub async fn say(at: SocketAddr, text: &str) -> io::Result<Said> {
    Talk::to(at).await?.say(text).await
}

/// The name of the member that answers on a connection of its own.
pub async fn member(at: SocketAddr) -> io::Result<String> {
    Ok(say(at, "name").await?.name)
}

/// The names of the members that answer, over so many connections of their own, sorted.
pub async fn roll_call(at: SocketAddr, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(member(at).await.unwrap());
    }
    names.sort();
    names
}

/// A socket that sends datagrams there.
pub async fn udp(at: SocketAddr) -> io::Result<UdpSocket> {
    let local: IpAddr = if at.is_ipv4() {
        std::net::Ipv4Addr::LOCALHOST.into()
    } else {
        std::net::Ipv6Addr::LOCALHOST.into()
    };
    let socket = UdpSocket::bind((local, 0)).await?;
    socket.connect(at).await?;
    Ok(socket)
}

/// Sends a datagram and waits for its answer.
pub async fn exchange(socket: &UdpSocket, text: &str) -> io::Result<Said> {
    within(async {
        socket.send(text.as_bytes()).await?;
        let mut buffer = vec![0; 65_536];
        let length = socket.recv(&mut buffer).await?;
        Said::read(&String::from_utf8_lossy(&buffer[..length]))
    })
    .await
}

/// One GET on a connection of its own.
pub async fn http(at: SocketAddr, path: &str) -> io::Result<Answer> {
    let mut browser = Browser::over(connect(at).await?).await?;
    browser.get(&at.to_string(), path, &[]).await
}

/// Connects without delay of small writes.
pub async fn connect(at: SocketAddr) -> io::Result<TcpStream> {
    let stream = within(TcpStream::connect(at)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

// === impl Browser ===

impl Browser {
    /// HTTP/1.1 over any connection.
    pub async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> io::Result<Self> {
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(io::Error::other)?;
        // It lives exactly as long as its sender.
        tokio::spawn(connection);
        Ok(Self::One(sender))
    }

    /// HTTP/2 over any connection.
    pub async fn over_h2(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> io::Result<Self> {
        let stream = TokioIo::new(stream);
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream);
        let (sender, connection) = handshake.await.map_err(io::Error::other)?;
        // It lives exactly as long as its sender.
        tokio::spawn(connection);
        Ok(Self::Two(sender))
    }

    /// One GET.
    pub async fn get(
        &mut self,
        host: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> io::Result<Answer> {
        let mut request = Request::get(match self {
            Self::One(_) => path.to_owned(),
            Self::Two(_) => format!("http://{host}{path}"),
        });
        if matches!(self, Self::One(_)) {
            request = request.header("host", host);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Empty::new()).map_err(io::Error::other)?;
        within(async {
            let response = match self {
                Self::One(sender) => {
                    sender.ready().await.map_err(io::Error::other)?;
                    sender.send_request(request).await
                }
                Self::Two(sender) => sender.send_request(request).await,
            };
            let (head, body) = response.map_err(io::Error::other)?.into_parts();
            let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
            Ok(Answer {
                status: head.status.as_u16(),
                body: String::from_utf8(body.to_vec()).map_err(io::Error::other)?,
            })
        })
        .await
    }
}

// === impl Answer ===

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{} {:?}: {error}", self.status, self.body))
    }

    /// A header that the backend saw; several of one name are joined by `, `.
    pub fn seen(&self, name: &str) -> Option<String> {
        let json = self.json();
        let headers = json["headers"].as_array().unwrap();
        let values: Vec<&str> = headers
            .iter()
            .filter(|pair| pair[0] == name)
            .map(|pair| pair[1].as_str().unwrap())
            .collect();
        (!values.is_empty()).then(|| values.join(", "))
    }
}

async fn within<T>(exchange: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(TIMEOUT, exchange).await {
        Ok(outcome) => outcome,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
    }
}
