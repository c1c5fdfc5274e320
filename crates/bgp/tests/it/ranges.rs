//! Routers of a range, on loopback: which of them a connection is of, and what becomes of them when
//! the configuration changes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use landfall_bgp::driver::{Neighbor, Speaker, Wanted};
use landfall_bgp::peer::{Mode, Peer, PeerAddress};
use landfall_bgp::route::Attributes;
use landfall_bgp::status::State;
use landfall_testkit::namespace::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::misbehaving::open;
use crate::node::{peer, routes};
use crate::router::Setup;
use crate::scenarios::V4;

/// A router of AS 65001 that connects from an address again and again.
fn router(from: Ipv4Addr, port: u16) {
    tokio::spawn(async move {
        loop {
            // The node may have ended the session, or the test.
            let _ended = session(from, port).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

async fn session(from: Ipv4Addr, port: u16) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = socket.connect(to).await?;
    let mut room = [0; 4096];
    let _open = stream.read(&mut room).await?;
    let says = open(&[1, 4, 0, 1, 0, 1, 65, 4, 0, 0, 0xfd, 0xe9]);
    stream.write_all(&says).await?;
    while stream.read(&mut room).await? > 0 {}
    Ok(())
}

fn neighbor(address: PeerAddress) -> Neighbor {
    let mut peer = Peer {
        address,
        mode: Mode::Passive,
        ..peer(&Setup::default())
    };
    peer.families.ipv6 = false;
    Neighbor {
        peer,
        routes: routes(&[V4], Attributes::default()),
    }
}

/// A port that nothing listens on.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The node, to which all of 127.0.0.0/8 may connect.
struct Node {
    speaker: Speaker,
    tracker: TaskTracker,
    stop: CancellationToken,
    port: u16,
}

impl Node {
    fn start(reserved: Vec<PeerAddress>) -> Self {
        let port = free_port();
        let range = PeerAddress::Range("127.0.0.0/8".parse().unwrap());
        let wanted = Wanted {
            listen: Some(port),
            peers: [("range".into(), neighbor(range))].into(),
            reserved,
            ..Wanted::default()
        };
        let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
        Self {
            speaker: Speaker::start(wanted, &tracker, stop.clone()),
            tracker,
            stop,
            port,
        }
    }

    fn state(&self, name: &str) -> Option<State> {
        let statuses = self.speaker.statuses();
        let statuses = statuses.borrow();
        statuses.get(name).map(|it| it.state)
    }

    async fn up(&self, name: &str) {
        until(name, || self.state(name) == Some(State::Established)).await;
    }

    async fn gone(&self, name: &str) {
        until(name, || self.state(name).is_none()).await;
    }

    async fn stop(self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

#[tokio::test]
async fn a_router_of_a_range_that_gets_a_peer_of_its_own_has_the_session_of_that_one() {
    let node = Node::start(Vec::new());
    let own = Ipv4Addr::new(127, 0, 0, 5);
    for from in [own, Ipv4Addr::new(127, 0, 0, 6)] {
        router(from, node.port);
    }
    node.up("range/127.0.0.5").await;
    node.up("range/127.0.0.6").await;
    let address = PeerAddress::Ip(IpAddr::from(own));
    node.speaker.update(|wanted| {
        wanted.peers.insert(Arc::from("own"), neighbor(address));
    });
    node.up("own").await;
    node.gone("range/127.0.0.5").await;
    assert_eq!(node.state("range/127.0.0.6"), Some(State::Established));
    // And back.
    node.speaker.update(|wanted| {
        wanted.peers.remove("own");
    });
    node.up("range/127.0.0.5").await;
    node.gone("own").await;
    node.stop().await;
}

#[tokio::test]
async fn a_router_whose_own_peer_is_not_complete_yet_has_no_session_of_the_range() {
    let own = Ipv4Addr::new(127, 0, 0, 7);
    let address = PeerAddress::Ip(IpAddr::from(own));
    let node = Node::start(vec![address.clone()]);
    let other = Ipv4Addr::new(127, 0, 0, 8);
    router(other, node.port);
    node.up("range/127.0.0.8").await;
    // The node ends its connection, which would last otherwise.
    let _how = session(own, node.port).await;
    router(own, node.port);
    assert_eq!(node.state("range/127.0.0.7"), None);
    node.speaker.update(|wanted| {
        wanted.reserved.clear();
        wanted.peers.insert(Arc::from("own"), neighbor(address));
    });
    node.up("own").await;
    // A session that the range has already ends as well.
    node.speaker.update(|wanted| {
        wanted.reserved.push(PeerAddress::Ip(IpAddr::from(other)));
    });
    node.gone("range/127.0.0.8").await;
    node.stop().await;
}

#[tokio::test]
async fn routers_of_a_range_that_is_gone_are_forgotten() {
    let node = Node::start(Vec::new());
    router(Ipv4Addr::new(127, 0, 0, 9), node.port);
    node.up("range/127.0.0.9").await;
    node.speaker.update(|wanted| wanted.peers.clear());
    node.gone("range/127.0.0.9").await;
    assert!(node.speaker.statuses().borrow().is_empty());
    node.stop().await;
}
