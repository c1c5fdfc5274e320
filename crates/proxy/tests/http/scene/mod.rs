//! A listener with members, a raw client and small servers to talk to. Everything ends with the test.

pub mod client;
pub mod http2;
pub mod member;

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_model::listener::{Http, Listener, Member, Mode};
use landfall_model::{ListenerKey, Protocol, ServiceKey};
use landfall_proxy::http::Front;
use landfall_proxy::{Inbound, ListenerConfig, ListenerId, ListenerState};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::client::{Client, Response};
pub use self::member::Server;

/// Nothing on a loopback interface takes this long, however busy the machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A listener that serves.
pub struct Scene {
    pub address: SocketAddr,
    pub state: Arc<ListenerState>,
    _tasks: JoinSet<()>,
}

/// All fields added.
pub const EVERYTHING: Http = Http {
    forwarded_for: true,
    forwarded_proto: true,
    forwarded_port: true,
    member_http2: false,
};

impl Scene {
    /// A listener with default options and these members.
    pub async fn start(members: &[SocketAddr]) -> Self {
        Self::start_with(members, |_| {}).await
    }

    /// A listener with options.
    pub async fn start_with(members: &[SocketAddr], change: impl FnOnce(&mut Listener)) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let mut listener = Listener::new(Protocol::Tcp, NonZeroU16::new(address.port()).unwrap());
        listener.mode = Mode::Http(Http::default());
        listener.pool.members = members.iter().copied().map(Member::new).collect();
        change(&mut listener);
        let key = ListenerKey {
            protocol: Protocol::Tcp,
            port: listener.key.port,
        };
        let id = ListenerId {
            address: address.ip(),
            key,
        };
        let config = ListenerConfig::new(id, &listener).unwrap();
        let sender = watch::Sender::new(0);
        let owner = ServiceKey::new("shop", "web");
        let state = Arc::new(ListenerState::new(id, owner, config, 1, sender));
        let front = Arc::new(Front::new(state.clone()));
        let mut tasks = JoinSet::new();
        let accepting = state.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = socket.accept() => {
                        let (stream, peer) = accepted.unwrap();
                        let inbound = accepting.inbound(peer);
                        let (front, config) = (front.clone(), accepting.config_full());
                        connections.spawn(serve(front, config, stream, inbound));
                    }
                    Some(ended) = connections.join_next() => ended.unwrap(),
                }
            }
        });
        Self {
            address,
            state,
            _tasks: tasks,
        }
    }

    /// A new connection to the listener.
    pub async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// One request on a connection of its own.
    pub async fn get(&self, path: &str) -> Response {
        self.client().await.get(path).await
    }
}

async fn serve(
    front: Arc<Front>,
    config: Arc<ListenerConfig>,
    stream: TcpStream,
    mut inbound: Inbound,
) {
    let Some(termination) = &config.termination else {
        return landfall_proxy::http::serve(front, stream, inbound, b"").await;
    };
    inbound.secure = true;
    if let Ok(stream) = termination.accept(stream, PATIENCE).await {
        landfall_proxy::http::serve(front, stream, inbound, b"").await;
    }
}

/// An address of this machine on which nobody listens.
pub fn nobody() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

/// Looks at something until it is as wanted.
pub async fn until(what: &str, mut wanted: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !wanted() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
