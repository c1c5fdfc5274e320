//! Datagrams: flows, replies, and their ends.

use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use landfall_model::Protocol;
use landfall_model::listener::{Algorithm, AllowedSources, Listener, Member, ProxyProtocol};
use landfall_proxy::ListenerId;
use landfall_proxy::counters::Refusal;
use landfall_proxy::{Proxy, ProxyConfig};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use crate::scene::{Scene, TIMEOUT, closed_address, in_time, loopback, owner, until};

/// A server that answers each datagram with its name and what it got.
struct Responder {
    address: SocketAddr,
    received: Arc<AtomicU64>,
    _task: JoinSet<()>,
}

impl Responder {
    async fn named(name: &'static str) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let received = Arc::new(AtomicU64::new(0));
        let count = received.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut room = vec![0; 65_536];
            while let Ok((length, from)) = socket.recv_from(&mut room).await {
                count.fetch_add(1, Ordering::SeqCst);
                let answer = [name.as_bytes(), b":", &room[..length]].concat();
                let _ = socket.send_to(&answer, from).await;
            }
        });
        Self {
            address,
            received,
            _task: task,
        }
    }
}

/// A client that asks until it gets an answer: any datagram may be lost.
struct Client(UdpSocket);

impl Client {
    async fn new(scene: &Scene) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        // Connected: only what the listener's address sends is received.
        socket.connect(scene.address()).await.unwrap();
        Self(socket)
    }

    async fn ask(&self, question: &[u8]) -> Vec<u8> {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        let mut room = vec![0; 65_536];
        while tokio::time::Instant::now() < deadline {
            self.0.send(question).await.unwrap();
            let wait = tokio::time::timeout(Duration::from_millis(300), self.0.recv(&mut room));
            if let Ok(Ok(length)) = wait.await {
                return room[..length].to_vec();
            }
        }
        panic!("no answer");
    }
}

#[tokio::test]
async fn a_flow_keeps_its_member_and_is_answered_from_the_listener_s_address() {
    let (one, two) = (Responder::named("one").await, Responder::named("two").await);
    let scene = Scene::udp_with(&[one.address, two.address], |_| {}).await;
    let clients = [Client::new(&scene).await, Client::new(&scene).await];
    let first = [clients[0].ask(b"a").await, clients[1].ask(b"a").await];
    assert_ne!(first[0], first[1]);
    for _ in 0..5 {
        assert_eq!(clients[0].ask(b"a").await, first[0]);
        assert_eq!(clients[1].ask(b"a").await, first[1]);
    }
    let status = scene.status();
    assert_eq!((status.open, status.totals.connections), (2, 2));
    assert!(status.totals.bytes_in >= 12 && status.totals.bytes_out >= 60);
}

#[tokio::test]
async fn datagrams_of_any_size_pass_whole() {
    let server = Responder::named("s").await;
    let scene = Scene::udp_with(&[server.address], |_| {}).await;
    let client = Client::new(&scene).await;
    for length in [0, 1, 1_400, 9_000, 60_000] {
        let question = vec![b'x'; length];
        assert_eq!(
            client.ask(&question).await,
            [b"s:".as_slice(), &question].concat()
        );
    }
}

#[tokio::test]
async fn a_burst_of_many_clients_is_served() {
    let (one, two) = (Responder::named("one").await, Responder::named("two").await);
    let scene = Scene::udp_with(&[one.address, two.address], |_| {}).await;
    let mut tasks = JoinSet::new();
    for number in 0..40u8 {
        let client = Client::new(&scene).await;
        tasks.spawn(async move {
            for round in 0..10u8 {
                let question = [number, round];
                let answer = client.ask(&question).await;
                // An answer to an earlier try of the same question is as good.
                assert!(answer.ends_with(&question) || answer.ends_with(&[number, round - 1]));
            }
        });
    }
    in_time(tasks.join_all()).await;
    assert_eq!(scene.totals().connections, 40);
}

#[tokio::test]
async fn an_idle_flow_is_forgotten_and_begins_again() {
    let server = Responder::named("s").await;
    let scene = Scene::udp_with(&[server.address], |listener| {
        listener.timeouts.client_data = Duration::from_millis(200);
    })
    .await;
    let client = Client::new(&scene).await;
    assert_eq!(client.ask(b"a").await, b"s:a");
    until("forgotten", || {
        scene.status().open == 0 && scene.status().members[0].open == 0
    })
    .await;
    assert_eq!(client.ask(b"b").await, b"s:b");
    assert_eq!(scene.totals().connections, 2);
}

#[tokio::test]
async fn a_flow_moves_on_when_nothing_listens_at_its_member() {
    let server = Responder::named("here").await;
    let scene = Scene::udp_with(&[closed_address(), server.address], |_| {}).await;
    for _ in 0..4 {
        assert_eq!(Client::new(&scene).await.ask(b"a").await, b"here:a");
    }
    assert!(scene.totals().connect_failures >= 1);
}

#[tokio::test]
async fn flows_of_a_member_that_leaves_are_cut_when_its_time_is_over() {
    let (old, new) = (Responder::named("old").await, Responder::named("new").await);
    let scene = Scene::udp_with(&[old.address], |listener| {
        listener.drain = Duration::from_millis(200);
    })
    .await;
    let client = Client::new(&scene).await;
    assert_eq!(client.ask(b"a").await, b"old:a");
    let swap = scene.change(|listener| listener.pool.members = vec![Member::new(new.address)]);
    swap.await.unwrap();
    until("cut", || scene.status().open == 0).await;
    // What was under way may still come first.
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while client.ask(b"b").await != b"new:b" {
        assert!(tokio::time::Instant::now() < deadline);
    }
}

#[tokio::test]
async fn a_draining_member_keeps_its_flows() {
    let (old, new) = (Responder::named("old").await, Responder::named("new").await);
    let scene = Scene::udp_with(&[old.address], |_| {}).await;
    let client = Client::new(&scene).await;
    assert_eq!(client.ask(b"a").await, b"old:a");
    let swap = scene.change(|listener| listener.pool.members = vec![Member::new(new.address)]);
    swap.await.unwrap();
    assert_eq!(client.ask(b"c").await, b"old:c");
    assert_eq!(Client::new(&scene).await.ask(b"a").await, b"new:a");
}

#[tokio::test]
async fn flows_beyond_the_limit_and_of_refused_sources_are_dropped_and_counted() {
    let server = Responder::named("s").await;
    let scene = Scene::udp_with(&[server.address], |listener| {
        listener.connection_limit = Some(1);
    })
    .await;
    let client = Client::new(&scene).await;
    assert_eq!(client.ask(b"a").await, b"s:a");
    let second = Client::new(&scene).await;
    second.0.send(b"b").await.unwrap();
    until("limited", || scene.refused(Refusal::Limit) == 1).await;
    assert_eq!(client.ask(b"c").await, b"s:c");
    let change = scene.change(|listener| {
        listener.connection_limit = None;
        listener.allowed = AllowedSources::Only(["192.0.2.0/24".parse().unwrap()].into());
    });
    change.await.unwrap();
    second.0.send(b"b").await.unwrap();
    until("refused", || scene.refused(Refusal::Source) == 1).await;
    // A client that was let in earlier is refused now, too.
    client.0.send(b"d").await.unwrap();
    until("refused", || scene.refused(Refusal::Source) == 2).await;
    scene
        .change(|listener| listener.pool.members.clear())
        .await
        .unwrap();
    scene
        .change(|listener| listener.allowed = AllowedSources::All)
        .await
        .unwrap();
    second.0.send(b"b").await.unwrap();
    until("no member", || scene.refused(Refusal::NoMember) == 1).await;
}

#[tokio::test]
async fn the_table_of_flows_is_bounded_and_the_most_idle_makes_room() {
    let server = Responder::named("s").await;
    let config = ProxyConfig {
        workers: NonZeroUsize::new(2),
        files: NonZeroUsize::new(288),
        ..ProxyConfig::default()
    };
    let proxy = Proxy::start(config).unwrap();
    let scene = Scene::start_on(proxy, Protocol::Udp, loopback(), &[server.address], |_| {}).await;
    let mut clients = Vec::new();
    for _ in 0..200 {
        let client = Client::new(&scene).await;
        assert_eq!(client.ask(b"a").await, b"s:a");
        clients.push(client);
        assert!(scene.status().open <= 128);
    }
    // Forgotten or not, every client is served.
    for client in &clients {
        assert_eq!(client.ask(b"a").await, b"s:a");
    }
}

#[tokio::test]
async fn the_first_datagram_of_a_flow_names_the_client_to_the_member() {
    let server = Responder::named("s").await;
    let scene = Scene::udp_with(&[server.address], |listener| {
        listener.pool.proxy_protocol = Some(ProxyProtocol::V1);
    })
    .await;
    let client = Client::new(&scene).await;
    let from = client.0.local_addr().unwrap();
    let mut expected = b"s:\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c".to_vec();
    expected.extend([127, 0, 0, 1]);
    let SocketAddr::V4(local) = scene.address() else {
        unreachable!()
    };
    expected.extend(local.ip().octets());
    expected.extend(from.port().to_be_bytes());
    expected.extend(local.port().to_be_bytes());
    expected.extend(b"first");
    assert_eq!(client.ask(b"first").await, expected);
    assert_eq!(client.ask(b"second").await, b"s:second");
}

#[tokio::test]
async fn a_trusted_peer_names_the_client_in_its_datagrams() {
    let server = Responder::named("s").await;
    let scene = Scene::udp_with(&[server.address], |listener| {
        listener.accept_proxy_from = vec!["127.0.0.0/8".parse().unwrap()];
        listener.allowed = AllowedSources::Only(["203.0.113.0/24".parse().unwrap()].into());
    })
    .await;
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c".to_vec();
    header.extend([203, 0, 113, 9, 198, 51, 100, 1, 1, 2, 3, 4]);
    let peer = Client::new(&scene).await;
    peer.0.send(b"without").await.unwrap();
    until("refused", || scene.refused(Refusal::ProxyHeader) == 1).await;
    let with = |text: &[u8]| [&header, text].concat();
    assert_eq!(peer.ask(&with(b"first")).await, b"s:first");
    assert_eq!(peer.ask(b"bare").await, b"s:bare");
    assert_eq!(peer.ask(&with(b"again")).await, b"s:again");
    assert_eq!(scene.totals().connections, 1);
    // Another client behind the same peer has a flow of its own, or is refused.
    header[19] = 10;
    let with = |text: &[u8]| [&header, text].concat();
    assert_eq!(peer.ask(&with(b"another")).await, b"s:another");
    assert_eq!((scene.totals().connections, scene.status().open), (2, 1));
    header[18] = 114;
    let refused_client = Client::new(&scene).await;
    refused_client
        .0
        .send(&[&header, b"x".as_slice()].concat())
        .await
        .unwrap();
    until("refused", || scene.refused(Refusal::Source) == 1).await;
}

#[tokio::test]
async fn closing_frees_the_port_and_ends_the_flows() {
    let server = Responder::named("s").await;
    let scene = Scene::udp_with(&[server.address], |_| {}).await;
    let client = Client::new(&scene).await;
    assert_eq!(client.ask(b"a").await, b"s:a");
    scene.proxy.close(scene.id, &owner().uid).await;
    std::net::UdpSocket::bind(scene.address()).unwrap();
    until("gone", || scene.proxy.snapshot().is_empty()).await;
    assert_eq!(server.received.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn tcp_and_udp_share_a_port_and_ipv6_serves_too() {
    let server = Responder::named("u").await;
    let stream = crate::scene::Server::named("t").await;
    let address = loopback();
    let tcp = Scene::start(Protocol::Tcp, address, &[stream.address], |_| {}).await;
    let udp = Scene::start(Protocol::Udp, address, &[server.address], |listener| {
        listener.pool.algorithm = Algorithm::SourceIpPort;
    })
    .await;
    assert_eq!(tcp.receive().await, b"t");
    assert_eq!(Client::new(&udp).await.ask(b"a").await, b"u:a");
    let six = Scene::start(
        Protocol::Udp,
        "::1".parse().unwrap(),
        &[server.address],
        |_| {},
    )
    .await;
    let client = UdpSocket::bind("[::1]:0").await.unwrap();
    client.connect(six.address()).await.unwrap();
    assert_eq!(Client(client).ask(b"six").await, b"u:six");
}

#[tokio::test]
async fn a_datagram_in_the_name_of_a_listener_of_ours_makes_no_loop() {
    let server = Responder::named("s").await;
    let scene = Scene::udp_with(&[server.address], |_| {}).await;
    let other = Listener::new(Protocol::Udp, NonZeroU16::new(53).unwrap());
    let id = ListenerId {
        address: scene.address().ip(),
        key: other.key,
    };
    scene.proxy.apply(id, &owner(), &other).await.unwrap();
    let other_socket = landfall_sys::listen::more_udp(id.socket_address(), 1).unwrap();
    other_socket[0].send_to(b"round?", scene.address()).unwrap();
    until("it is refused", || scene.refused(Refusal::Source) == 1).await;
    assert_eq!(server.received.load(Ordering::SeqCst), 0);
    // Another program may have the port once the listener is gone.
    assert!(scene.proxy.close(id, &owner().uid).await);
    other_socket[0].send_to(b"mine", scene.address()).unwrap();
    until("it is passed on", || {
        server.received.load(Ordering::SeqCst) == 1
    })
    .await;
}

#[tokio::test]
async fn a_datagram_in_the_name_of_a_member_makes_no_loop() {
    let members = [
        UdpSocket::bind("127.0.0.1:0").await.unwrap(),
        UdpSocket::bind("127.0.0.1:0").await.unwrap(),
    ];
    let addresses = members.each_ref().map(|it| it.local_addr().unwrap());
    let scene = Scene::udp_with(&addresses, |_| {}).await;
    for member in &members {
        member.send_to(b"round?", scene.address()).await.unwrap();
    }
    until("both are refused", || scene.refused(Refusal::Source) == 2).await;
    for member in &members {
        assert!(member.try_recv(&mut [0; 16]).is_err());
    }
    // One that is no member any more is a client like others.
    let pool = vec![Member::new(addresses[1])];
    scene
        .change(|listener| listener.pool.members = pool)
        .await
        .unwrap();
    members[0].send_to(b"mine", scene.address()).await.unwrap();
    let mut room = [0; 16];
    let count = in_time(members[1].recv(&mut room)).await.unwrap();
    assert_eq!(&room[..count], b"mine");
}
