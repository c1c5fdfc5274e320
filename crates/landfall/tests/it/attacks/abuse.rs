//! Ways to misuse an address, each as one client does it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::task::{JoinHandle, JoinSet};

use crate::backend::Backend;
use crate::lab::Lab;
use crate::manifest::{Svc, svc};
use crate::requests::{Identity, tls_over};
use crate::view::at;

/// Between two attempts of one client, and between two pieces of a flood: clients that run in the
/// test's own process are not to win by its processor time.
const PAUSE: Duration = Duration::from_millis(20);

/// Between two drops of what is sent slowly.
const DROP: Duration = Duration::from_millis(300);

/// How much of a flood is sent at once.
const PIECE: usize = 16 * 1024;

/// Streams that an HTTP/2 client opens: as many as it may.
const STREAMS: u32 = 100;

/// Sockets of one client that sends datagrams.
const FLOWS: usize = 40;

/// Connections that one client of a crowd opens at once.
const CROWD: usize = 64;

/// Ports of the Service that is misused: where limits are reached,
pub const STREAM: u16 = 9001;
pub const SOURCE: u16 = 9007;
pub const HASTY: u16 = 9008;
pub const REQUESTS: u16 = 9009;
pub const QUEUED: u16 = 9010;
pub const FEW: u16 = 9011;

/// and the others.
const HTTP: u16 = 9002;
const TUNNEL: u16 = 9003;
const TLS: u16 = 9004;
const TRUSTING: u16 = 9005;
const DATAGRAMS: u16 = 9006;

/// What an HTTP/2 client begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// GET / of the authority `a`, in HPACK.
const HEADERS: &[u8] = &[0x82, 0x86, 0x84, 0x01, 0x01, b'a'];

/// A way to misuse an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abuse {
    /// Connections that say nothing.
    Silence,
    /// Connections to an HTTP port that say nothing.
    SilentHttp,
    /// Heads that come a byte at a time.
    SlowHeads,
    /// Heads a byte longer than the smallest buffer, never ended.
    LongHeads,
    /// Requests without end, of which no answer is read.
    Pipelines,
    /// A chunk whose extension never ends.
    Extensions,
    /// Trailers that never end.
    Trailers,
    /// Connections that switch to another protocol and say nothing in it.
    Tunnels,
    /// The first bytes of a TLS hello.
    HalfHellos,
    /// Handshakes, each with another server name.
    Names,
    /// HTTP/2 streams whose window never opens, on connections that live.
    ClosedWindows,
    /// HTTP/2 SETTINGS without end.
    Settings,
    /// HTTP/2 PRIORITY without end.
    Priorities,
    /// An HTTP/2 head that is continued without end.
    Continuations,
    /// HTTP/2 requests that are reset at once.
    Resets,
    /// HTTP/2 PING without end.
    Pings,
    /// Datagrams of many sources.
    Datagrams,
    /// PROXY headers that name other people's addresses.
    Claims,
    /// PROXY headers that never end.
    EndlessClaims,
    /// More connections than there are descriptors.
    Crowd,
    /// More connections than one source may have at a port.
    SourceCrowd,
    /// Connections that come more often than a source may open them.
    Hasty,
    /// Requests that come more often than a source may send them.
    Requests,
    /// More connections than a member may have, and than may wait for it.
    Queue,
    /// More UDP flows than a port may have.
    Few,
}

/// Where a Service that is misused is served.
#[derive(Clone, Copy, Debug)]
pub struct Targets {
    address: IpAddr,
    /// A client for which others claim to speak.
    claimed: IpAddr,
}

/// A Service that is misused, and its members.
#[derive(Debug)]
pub struct Misused {
    _members: [Backend; 3],
    switching: JoinHandle<()>,
    manifest: String,
}

// === impl Misused ===

impl Misused {
    /// Starts the members. Idle connections end after `idle`.
    pub async fn set(lab: &Lab, name: &str, idle: &str) -> Self {
        let lines = Backend::lines("rude", lab.ranges.backend(101, 3001)).await;
        let web = Backend::http("rude", lab.ranges.backend(101, 3002)).await;
        let datagrams = Backend::datagrams("rude", lab.ranges.backend(101, 3003)).await;
        let switching = TcpListener::bind(lab.ranges.backend(101, 3004)).await;
        let switching = switching.unwrap();
        let identity = Identity::of(&["rude.example"]);
        let service = svc(name)
            .namespace("rude")
            .port("stream", "TCP", STREAM)
            .port("http", "TCP", HTTP)
            .port("tunnel", "TCP", TUNNEL)
            .port("tls", "TCP", TLS)
            .port("trusting", "TCP", TRUSTING)
            .port("datagrams", "UDP", DATAGRAMS)
            .port("source", "TCP", SOURCE)
            .port("hasty", "TCP", HASTY)
            .port("requests", "TCP", REQUESTS)
            .port("queued", "TCP", QUEUED)
            .port("few", "UDP", FEW)
            .option("endpoints", &lines.address.to_string())
            .option("endpoints.http", &web.address.to_string())
            .option("endpoints.datagrams", &datagrams.address.to_string())
            .option("endpoints.requests", &web.address.to_string())
            .option("endpoints.few", &datagrams.address.to_string())
            .option("mode.requests", "http")
            .option("source-connection-limit.source", "8")
            .option("source-connection-rate.hasty", "5/s")
            .option("source-request-rate.requests", "5/s")
            .option("member-connection-limit.queued", "4")
            .option("member-queue.queued", "4")
            .option("connection-limit.few", "4")
            .option(
                "endpoints.tunnel",
                &switching.local_addr().unwrap().to_string(),
            )
            .option("mode.http", "http")
            .option("mode.tunnel", "http")
            .option("mode.tls", "tls")
            .option("tls-secret.tls", "rude-tls")
            .option("accept-proxy-protocol-from.trusting", "127.0.0.0/8")
            .option("timeout-client-data", idle)
            .option("timeout-member-data", idle);
        let manifest = manifest(&service, &identity);
        Self {
            _members: [lines, web, datagrams],
            switching: tokio::spawn(switch(switching)),
            manifest,
        }
    }

    /// Its manifest.
    pub fn manifest(&self) -> &str {
        &self.manifest
    }

    /// Where it is served.
    pub async fn targets(&self, lab: &Lab, name: &str) -> Targets {
        let service = lab.ready(&format!("rude/{name}")).await;
        Targets {
            address: at(&service, STREAM).ip(),
            claimed: lab.ranges.client(1),
        }
    }
}

impl Drop for Misused {
    fn drop(&mut self) {
        self.switching.abort();
    }
}

// === impl Targets ===

impl Targets {
    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, port)
    }
}

fn manifest(service: &Svc, identity: &Identity) -> String {
    let secret = identity.secret("rude-tls").replace(
        "metadata: {name: rude-tls}",
        "metadata: {name: rude-tls, namespace: rude}",
    );
    format!("{}---\n{secret}", service.yaml())
}

/// A member that switches protocols and waits.
async fn switch(listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((mut stream, _)) = listener.accept() => {
                connections.spawn(async move {
                    let mut room = [0; 4096];
                    // A connection that breaks has ended, which is all that matters.
                    let _ = stream.read(&mut room).await;
                    let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                                  Upgrade: silence\r\n\r\n";
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = hold(stream).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

// === impl Abuse ===

impl Abuse {
    /// All of them.
    pub const ALL: [Self; 25] = [
        Self::Silence,
        Self::SilentHttp,
        Self::SlowHeads,
        Self::LongHeads,
        Self::Pipelines,
        Self::Extensions,
        Self::Trailers,
        Self::Tunnels,
        Self::HalfHellos,
        Self::Names,
        Self::ClosedWindows,
        Self::Settings,
        Self::Priorities,
        Self::Continuations,
        Self::Resets,
        Self::Pings,
        Self::Datagrams,
        Self::Claims,
        Self::EndlessClaims,
        Self::Crowd,
        Self::SourceCrowd,
        Self::Hasty,
        Self::Requests,
        Self::Queue,
        Self::Few,
    ];

    /// Whether it costs processor time more than anything else.
    pub fn is_busy(self) -> bool {
        match self {
            Self::Pipelines
            | Self::Extensions
            | Self::Trailers
            | Self::Names
            | Self::Settings
            | Self::Priorities
            | Self::Continuations
            | Self::Resets
            | Self::Pings
            | Self::Requests => true,
            Self::Silence
            | Self::SilentHttp
            | Self::SlowHeads
            | Self::LongHeads
            | Self::Tunnels
            | Self::HalfHellos
            | Self::ClosedWindows
            | Self::Datagrams
            | Self::Claims
            | Self::EndlessClaims
            | Self::Crowd
            | Self::SourceCrowd
            | Self::Hasty
            | Self::Queue
            | Self::Few => false,
        }
    }

    /// Misuses the target from an address until it is dropped, again whenever that ends.
    pub async fn go_on(self, targets: Targets, source: IpAddr) {
        for number in 0_u64.. {
            // To be refused is what should happen.
            let _ = self.once(&targets, source, number).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn once(self, targets: &Targets, source: IpAddr, number: u64) -> io::Result<()> {
        match self {
            Self::Silence => hold(connect(source, targets.at(STREAM)).await?).await,
            Self::SilentHttp => hold(connect(source, targets.at(HTTP)).await?).await,
            Self::SlowHeads => {
                let mut stream = connect(source, targets.at(HTTP)).await?;
                for byte in b"GET / HTTP/1.1\r\nX: ".iter().chain([b'x'].iter().cycle()) {
                    stream.write_all(&[*byte]).await?;
                    tokio::time::sleep(DROP).await;
                }
                Ok(())
            }
            Self::LongHeads => {
                let mut stream = connect(source, targets.at(HTTP)).await?;
                let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(16 * 1024));
                stream.write_all(head.as_bytes()).await?;
                hold(stream).await
            }
            Self::Pipelines => {
                let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
                pour(connect(source, targets.at(HTTP)).await?, "", request).await
            }
            Self::Extensions => {
                let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;";
                pour(connect(source, targets.at(HTTP)).await?, head, "x").await
            }
            Self::Trailers => {
                let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
                pour(connect(source, targets.at(HTTP)).await?, head, "X: x\r\n").await
            }
            Self::Tunnels => {
                let mut stream = connect(source, targets.at(TUNNEL)).await?;
                let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\
                               Upgrade: silence\r\n\r\n";
                stream.write_all(request.as_bytes()).await?;
                hold(stream).await
            }
            Self::HalfHellos => {
                let mut stream = connect(source, targets.at(TLS)).await?;
                stream.write_all(&[22, 3, 1, 2, 0, 1]).await?;
                hold(stream).await
            }
            Self::Names => {
                let name = format!("n{number}.example");
                let stream = connect(source, targets.at(TLS)).await?;
                tls_over(stream, &name, &[], &["h2"]).await.map(drop)
            }
            Self::ClosedWindows => self.windows(connect(source, targets.at(HTTP)).await?).await,
            Self::Settings
            | Self::Priorities
            | Self::Continuations
            | Self::Resets
            | Self::Pings => self.frames(connect(source, targets.at(HTTP)).await?).await,
            Self::Datagrams => datagrams(source, targets.at(DATAGRAMS)).await,
            Self::Few => datagrams(source, targets.at(FEW)).await,
            Self::Crowd => crowd(source, targets.at(STREAM)).await,
            Self::SourceCrowd => crowd(source, targets.at(SOURCE)).await,
            Self::Queue => crowd(source, targets.at(QUEUED)).await,
            Self::Hasty => connect(source, targets.at(HASTY)).await.map(drop),
            Self::Requests => {
                let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
                let mut stream = connect(source, targets.at(REQUESTS)).await?;
                stream.write_all(request.repeat(10).as_bytes()).await?;
                hold(stream).await
            }
            Self::Claims => {
                let mut stream = connect(source, targets.at(TRUSTING)).await?;
                let header = format!(
                    "PROXY TCP4 {} {} 1000 9005\r\n",
                    targets.claimed, targets.address
                );
                stream.write_all(header.as_bytes()).await?;
                hold(stream).await
            }
            Self::EndlessClaims => {
                let mut stream = connect(source, targets.at(TRUSTING)).await?;
                let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff";
                stream.write_all(header).await?;
                pour(stream, "", "x").await
            }
        }
    }

    /// Asks for as much as it may, lets nothing come, and shows that it lives.
    async fn windows(self, mut stream: TcpStream) -> io::Result<()> {
        let mut begin = PREFACE.to_vec();
        // SETTINGS_INITIAL_WINDOW_SIZE 0.
        begin.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
        for number in 0..STREAMS {
            begin.extend(frame(1, 5, 2 * number + 1, HEADERS));
        }
        stream.write_all(&begin).await?;
        let mut room = vec![0; PIECE];
        loop {
            tokio::select! {
                read = stream.read(&mut room) => {
                    if read? == 0 {
                        return Ok(());
                    }
                }
                () = tokio::time::sleep(DROP) => {
                    stream.write_all(&frame(6, 0, 0, &[0; 8])).await?;
                }
            }
        }
    }

    /// Sends frames that cost much and ask for nothing, and reads what comes.
    async fn frames(self, stream: TcpStream) -> io::Result<()> {
        let (mut read, mut write) = stream.into_split();
        let reads = async {
            let mut room = vec![0; PIECE];
            while read.read(&mut room).await? > 0 {}
            Ok::<_, io::Error>(())
        };
        let writes = async {
            let mut begin = [PREFACE, &frame(4, 0, 0, &[])].concat();
            if self == Self::Continuations {
                begin.extend(frame(1, 1, 1, HEADERS));
            }
            write.write_all(&begin).await?;
            let mut stream = 1;
            loop {
                let mut piece = Vec::new();
                while piece.len() < PIECE {
                    match self {
                        Self::Settings => piece.extend(frame(4, 0, 0, &[0, 3, 0, 0, 0, 9])),
                        Self::Priorities => piece.extend(frame(2, 0, stream, &[0, 0, 0, 0, 9])),
                        Self::Continuations => piece.extend(frame(9, 0, 1, &[0x82; 64])),
                        Self::Resets => {
                            piece.extend(frame(1, 5, stream, HEADERS));
                            piece.extend(frame(3, 0, stream, &[0, 0, 0, 8]));
                        }
                        _ => piece.extend(frame(6, 0, 0, &[0; 8])),
                    }
                    stream = (stream + 2) & 0x7fff_ffff;
                }
                write.write_all(&piece).await?;
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::select! {
            ended = reads => ended,
            ended = writes => ended,
        }
    }
}

/// Connects from an address.
pub async fn connect(source: IpAddr, target: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(target).await
}

/// Reads until the other side ends the connection.
async fn hold(mut stream: TcpStream) -> io::Result<()> {
    let mut room = [0; 1024];
    while stream.read(&mut room).await? > 0 {}
    Ok(())
}

/// Writes without end, and reads nothing.
async fn pour(mut stream: TcpStream, head: &str, again: &str) -> io::Result<()> {
    stream.write_all(head.as_bytes()).await?;
    let piece = again.repeat(PIECE / again.len());
    loop {
        stream.write_all(piece.as_bytes()).await?;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Opens connections and keeps those that it gets for as long as a client may be idle.
async fn crowd(source: IpAddr, target: SocketAddr) -> io::Result<()> {
    let mut connections = JoinSet::new();
    for _ in 0..CROWD {
        connections.spawn(async move { hold(connect(source, target).await?).await });
    }
    while connections.join_next().await.is_some() {}
    Ok(())
}

async fn datagrams(source: IpAddr, target: SocketAddr) -> io::Result<()> {
    let mut sockets = Vec::new();
    for _ in 0..FLOWS {
        let socket = UdpSocket::bind(SocketAddr::new(source, 0)).await?;
        socket.send_to(b"flood", target).await?;
        sockets.push(socket);
    }
    tokio::time::sleep(DROP).await;
    Ok(())
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}
