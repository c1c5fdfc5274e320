//! A proxy with listeners on addresses of their own, and small servers as members. Everything ends
//! with the test.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU16, NonZeroUsize};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use landfall_model::listener::{Listener, Member};
use landfall_model::{ListenerKey, Protocol, ServiceKey, Uid};
use landfall_proxy::counters::{ListenerTotals, Refusal};
use landfall_proxy::{Applied, ListenError, ListenerId, ListenerStatus, Owner, Proxy, ProxyConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Nothing on a loopback interface takes this long, however busy the machine.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The port of every listener; their addresses differ.
const PORT: u16 = 8080;

/// A proxy with one listener.
pub struct Scene {
    pub proxy: Proxy,
    pub id: ListenerId,
    listener: Mutex<Listener>,
}

/// A TCP server.
pub struct Server {
    pub address: SocketAddr,
    accepted: Arc<AtomicU64>,
    open: Arc<AtomicU64>,
    received: Arc<Mutex<Vec<u8>>>,
    _tasks: JoinSet<()>,
}

/// What a server does with a connection.
#[derive(Clone, Debug)]
pub enum Manner {
    /// Sends back what it gets, and ends when the client does.
    Echo,
    /// Sends this at once, then ends.
    Say(Vec<u8>),
    /// Reads until the client ends, then sends this and ends.
    Answer(Vec<u8>),
    /// Reads and says nothing.
    Listen,
}

impl Scene {
    /// A proxy with two workers, and a TCP listener with these members.
    pub async fn tcp(members: &[SocketAddr]) -> Self {
        Self::start(Protocol::Tcp, loopback(), members, |_| {}).await
    }

    /// As [`Self::tcp`], with options.
    pub async fn tcp_with(members: &[SocketAddr], change: impl FnOnce(&mut Listener)) -> Self {
        Self::start(Protocol::Tcp, loopback(), members, change).await
    }

    /// A proxy with two workers, and a UDP listener with these members.
    pub async fn udp_with(members: &[SocketAddr], change: impl FnOnce(&mut Listener)) -> Self {
        Self::start(Protocol::Udp, loopback(), members, change).await
    }

    pub async fn start(
        protocol: Protocol,
        address: IpAddr,
        members: &[SocketAddr],
        change: impl FnOnce(&mut Listener),
    ) -> Self {
        let config = ProxyConfig {
            workers: NonZeroUsize::new(2),
            ..ProxyConfig::default()
        };
        Self::start_on(
            Proxy::start(config).unwrap(),
            protocol,
            address,
            members,
            change,
        )
        .await
    }

    pub async fn start_on(
        proxy: Proxy,
        protocol: Protocol,
        address: IpAddr,
        members: &[SocketAddr],
        change: impl FnOnce(&mut Listener),
    ) -> Self {
        let mut listener = Listener::new(protocol, NonZeroU16::new(PORT).unwrap());
        listener.pool.members = members.iter().copied().map(Member::new).collect();
        change(&mut listener);
        let id = ListenerId {
            address,
            key: listener.key,
        };
        assert_eq!(
            proxy.apply(id, &owner(), &listener).await.unwrap(),
            Applied::Opened
        );
        Self {
            proxy,
            id,
            listener: Mutex::new(listener),
        }
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.id.socket_address()
    }

    /// Changes the listener in place.
    pub async fn change(&self, change: impl FnOnce(&mut Listener)) -> Result<Applied, ListenError> {
        let mut listener = self.listener.lock().unwrap().clone();
        change(&mut listener);
        let applied = self.proxy.apply(self.id, &owner(), &listener).await?;
        *self.listener.lock().unwrap() = listener;
        Ok(applied)
    }

    /// The listener's row.
    pub fn status(&self) -> ListenerStatus {
        self.proxy
            .snapshot()
            .into_iter()
            .find(|row| row.id == self.id)
            .unwrap()
    }

    pub fn totals(&self) -> ListenerTotals {
        self.status().totals
    }

    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.totals().refused(refusal)
    }

    /// A new connection.
    pub async fn client(&self) -> TcpStream {
        connect(self.address()).await
    }

    /// A connection over which something has passed already, so that it surely has its member.
    pub async fn settled(&self) -> TcpStream {
        let mut client = self.client().await;
        echo(&mut client, b"ready").await;
        client
    }

    /// What the next connection receives.
    pub async fn receive(&self) -> Vec<u8> {
        read_all(&mut self.client().await).await
    }

    /// The members that answered each of `count` connections.
    pub async fn receive_many(&self, count: usize) -> Vec<String> {
        let mut answers = Vec::new();
        for _ in 0..count {
            answers.push(String::from_utf8(self.receive().await).unwrap());
        }
        answers
    }
}

impl Server {
    pub async fn start(manner: Manner) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), manner)
    }

    /// A server that says its name.
    pub async fn named(name: &str) -> Self {
        Self::start(Manner::Say(name.as_bytes().to_vec())).await
    }

    pub fn on(listener: TcpListener, manner: Manner) -> Self {
        let address = listener.local_addr().unwrap();
        let (accepted, open) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let received = Arc::new(Mutex::new(Vec::new()));
        let counts = (accepted.clone(), open.clone(), received.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (accepted, open, received) = counts;
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                open.fetch_add(1, Ordering::SeqCst);
                let (open, received, manner) = (open.clone(), received.clone(), manner.clone());
                connections.spawn(async move {
                    // How a connection ends is the client's business in every test.
                    let _ = manner.serve(stream, &received).await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self {
            address,
            accepted,
            open,
            received,
            _tasks: tasks,
        }
    }

    /// How many connections came.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }

    /// How many connections there are.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::SeqCst)
    }

    /// All bytes that came, of all connections.
    pub fn received(&self) -> Vec<u8> {
        self.received.lock().unwrap().clone()
    }
}

impl Manner {
    async fn serve(self, mut stream: TcpStream, received: &Mutex<Vec<u8>>) -> std::io::Result<()> {
        let mut room = vec![0; 64 * 1024];
        match self {
            Self::Say(words) => {
                stream.write_all(&words).await?;
                stream.shutdown().await?;
                while stream.read(&mut room).await? > 0 {}
            }
            Self::Echo | Self::Listen | Self::Answer(_) => loop {
                let count = stream.read(&mut room).await?;
                received.lock().unwrap().extend_from_slice(&room[..count]);
                match &self {
                    Self::Echo => stream.write_all(&room[..count]).await?,
                    Self::Answer(words) if count == 0 => stream.write_all(words).await?,
                    _ => {}
                }
                if count == 0 {
                    stream.shutdown().await?;
                    return Ok(());
                }
            },
        }
        Ok(())
    }
}

pub fn owner() -> Owner {
    Owner {
        uid: Uid::new("uid-of-shop/web"),
        service: ServiceKey::new("shop", "web"),
    }
}

pub fn key(protocol: Protocol, port: u16) -> ListenerKey {
    ListenerKey {
        protocol,
        port: NonZeroU16::new(port).unwrap(),
    }
}

/// A loopback address that no other test of this run has, nor (most likely) of another run.
pub fn loopback() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let run = std::process::id() % 16_000;
    let bits = 127 << 24 | (1 << 23) | run << 9 | (number % 510 + 1);
    IpAddr::V4(Ipv4Addr::from(bits))
}

/// An address on which nothing listens.
pub fn closed_address() -> SocketAddr {
    SocketAddr::new(loopback(), 9)
}

pub async fn connect(address: SocketAddr) -> TcpStream {
    in_time(TcpStream::connect(address)).await.unwrap()
}

/// Sends something and gets it back.
pub async fn echo(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
    let mut room = vec![0; bytes.len()];
    in_time(stream.read_exact(&mut room)).await.unwrap();
    assert_eq!(room, bytes);
}

/// Reads to the end of the stream.
pub async fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    in_time(stream.read_to_end(&mut bytes)).await.unwrap();
    bytes
}

/// Waits until the other side has ended, in whatever way. Returns whether it was in order.
pub async fn ended(stream: &mut TcpStream) -> bool {
    let mut bytes = Vec::new();
    in_time(stream.read_to_end(&mut bytes)).await.is_ok()
}

pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future)
        .await
        .expect("not in time")
}

/// Reads something until it is as wanted.
pub async fn until(what: &str, mut wanted: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !wanted() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// How often each name stands in a list, in the order of the names given.
pub fn tally<const N: usize>(list: &[String], names: [&str; N]) -> [usize; N] {
    names.map(|name| list.iter().filter(|it| *it == name).count())
}
