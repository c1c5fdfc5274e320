//! A proxy with one listener, members, a raw client and small servers to talk to. Everything ends
//! with the test.

pub mod client;
pub mod http2;
pub mod member;

use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU16, NonZeroUsize};
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_model::listener::{Http, Listener, Member, Mode};
use landfall_model::{ListenerKey, Protocol, ServiceKey, Uid};
use landfall_proxy::access_log::AccessLog;
use landfall_proxy::{Applied, ListenError, ListenerId, ListenerState, Owner, Proxy, ProxyConfig};
use tokio::net::{TcpSocket, TcpStream};

pub use self::client::{Client, Response};
pub use self::member::Server;

/// Nothing on a loopback interface takes this long, however busy the machine.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// A listener that serves, on one worker.
pub struct Scene {
    pub address: SocketAddr,
    pub state: Arc<ListenerState>,
    pub proxy: Proxy,
    listener: Listener,
}

/// All fields added.
pub const EVERYTHING: Http = Http {
    forwarded_for: true,
    forwarded_proto: true,
    forwarded_port: true,
    member_http2: false,
    trusted_hops: None,
};

impl Scene {
    /// A listener with default options and these members.
    pub async fn start(members: &[SocketAddr]) -> Self {
        Self::start_with(members, |_| {}).await
    }

    /// A listener with options.
    pub async fn start_with(members: &[SocketAddr], change: impl FnOnce(&mut Listener)) -> Self {
        Self::start_logging(None, members, change).await
    }

    /// A listener with options and an access log.
    pub async fn start_logging(
        access_log: Option<Arc<AccessLog>>,
        members: &[SocketAddr],
        change: impl FnOnce(&mut Listener),
    ) -> Self {
        let config = ProxyConfig {
            access_log,
            ..ProxyConfig::default()
        };
        Self::start_by(config, members, change).await
    }

    /// A listener with options, of a data plane that is run like this.
    pub async fn start_by(
        config: ProxyConfig,
        members: &[SocketAddr],
        change: impl FnOnce(&mut Listener),
    ) -> Self {
        let config = ProxyConfig {
            workers: NonZeroUsize::new(1),
            ..config
        };
        let proxy = Proxy::start(config).unwrap();
        let mut listener = Listener::new(Protocol::Tcp, NonZeroU16::MIN);
        listener.mode = Mode::Http(Http::default());
        listener.pool.members = members.iter().copied().map(Member::new).collect();
        change(&mut listener);
        loop {
            // Another program may take the port between this and the listener.
            let address = closed_address();
            listener.key.port = NonZeroU16::new(address.port()).unwrap();
            match proxy.apply(id(&listener), &owner(), &listener).await {
                Ok(_) => {
                    let state = proxy.find(id(&listener)).unwrap();
                    return Self {
                        address,
                        state,
                        proxy,
                        listener,
                    };
                }
                Err(ListenError::InUse { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Changes the listener in place.
    pub async fn change(
        &mut self,
        change: impl FnOnce(&mut Listener),
    ) -> Result<Applied, ListenError> {
        let mut listener = self.listener.clone();
        change(&mut listener);
        let applied = self.proxy.apply(id(&listener), &owner(), &listener).await?;
        self.listener = listener;
        Ok(applied)
    }

    /// Closes the listener.
    pub async fn close(&self) {
        assert!(self.proxy.close(id(&self.listener), &owner().uid).await);
    }

    /// A new connection to the listener.
    pub async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// A new connection from one of many addresses of this machine.
    pub async fn client_from(&self, number: u8) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, number], 0)))?;
        socket.connect(self.address).await
    }

    /// One request on a connection of its own.
    pub async fn get(&self, path: &str) -> Response {
        self.client().await.get(path).await
    }
}

fn id(listener: &Listener) -> ListenerId {
    let key = ListenerKey {
        protocol: Protocol::Tcp,
        port: listener.key.port,
    };
    ListenerId {
        address: IpAddr::from([127, 0, 0, 1]),
        key,
    }
}

fn owner() -> Owner {
    Owner {
        uid: Uid::new("uid-of-shop/web"),
        service: ServiceKey::new("shop", "web"),
    }
}

/// An address of this machine on which nothing listens.
pub fn closed_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

/// Reads something until it is as wanted.
pub async fn until(what: &str, mut wanted: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !wanted() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
