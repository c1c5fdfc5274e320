//! Listening sockets pass from one data plane to another, as from one process to the next.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall_model::Protocol;
use landfall_model::listener::Listener;
use landfall_proxy::{Applied, ListenError, ListenerId, Proxy, ProxyConfig, Sockets};
use tokio::net::UdpSocket;

use crate::scene::{Manner, Scene, Server, connect, echo, in_time, loopback, owner};

const GRACE: Duration = Duration::from_secs(60);

fn data_plane(workers: usize) -> Proxy {
    let config = ProxyConfig {
        workers: NonZeroUsize::new(workers),
        ..ProxyConfig::default()
    };
    Proxy::start(config).unwrap()
}

/// The listener of a scene, for another data plane.
fn listener(scene: &Scene, server: &Server) -> Listener {
    let mut listener = Listener::new(scene.id.key.protocol, scene.id.key.port);
    listener.pool.members = vec![landfall_model::listener::Member::new(server.address)];
    listener
}

#[tokio::test]
async fn what_adopts_the_sockets_serves_on_while_open_connections_end_where_they_are() {
    // The first has two workers: there are fewer sockets than workers, as many, and more.
    for workers in [3, 2, 1] {
        let server = Server::start(Manner::Echo).await;
        let before = Scene::tcp(&[server.address]).await;
        let mut open = before.settled().await;
        let sockets = before.proxy.sockets().await.unwrap();
        assert_eq!(sockets.values().map(Vec::len).collect::<Vec<_>>(), [2]);
        let after = data_plane(workers);
        after.adopt(sockets);
        let wanted = listener(&before, &server);
        let opened = after.apply(before.id, &owner(), &wanted).await.unwrap();
        assert_eq!(
            (opened, after.drop_adopted(|_| false)),
            (Applied::Opened, 0)
        );
        let address = before.address();
        let retiring = async {
            before.proxy.retire(GRACE).await;
        };
        let clients = async {
            for _ in 0..64 {
                echo(&mut connect(address).await, b"new").await;
            }
            echo(&mut open, b"open").await;
            drop(open);
        };
        tokio::join!(in_time(retiring), clients);
        for _ in 0..16 {
            echo(&mut connect(address).await, b"newer").await;
        }
        after.shutdown(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn what_fails_to_take_over_takes_nothing_along() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp(&[server.address]).await;
    for opens in [true, false] {
        let other = data_plane(2);
        other.adopt(scene.proxy.sockets().await.unwrap());
        if opens {
            let wanted = listener(&scene, &server);
            other.apply(scene.id, &owner(), &wanted).await.unwrap();
            other.shutdown(Duration::ZERO).await;
        } else {
            assert_eq!(other.drop_adopted(|_| false), 1);
        }
        for _ in 0..16 {
            echo(&mut connect(scene.address()).await, b"still here").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_fails_while_replicas_serve_one_after_the_other_on_the_same_port() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp(&[server.address]).await;
    let (address, wanted) = (scene.address(), listener(&scene, &server));
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let done = done.clone();
            tokio::spawn(async move {
                let mut answers = 0;
                while !done.load(Ordering::Relaxed) {
                    echo(&mut connect(address).await, b"on").await;
                    answers += 1;
                }
                answers
            })
        })
        .collect();
    let mut current = scene.proxy;
    for _ in 0..20 {
        let config = ProxyConfig {
            beside: true,
            ..ProxyConfig::default()
        };
        let next = Proxy::start(config).unwrap();
        next.apply(scene.id, &owner(), &wanted).await.unwrap();
        in_time(current.shutdown(GRACE)).await;
        current = next;
    }
    done.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(in_time(client).await.unwrap() > 0);
    }
    current.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn sockets_of_another_process_are_counted_whether_they_have_a_listener_or_not() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp(&[server.address]).await;
    let after = data_plane(1);
    let limit = after.pressure().limit;
    let counts = || {
        let pressure = after.pressure();
        (limit - pressure.limit, pressure.listeners)
    };
    after.adopt(scene.proxy.sockets().await.unwrap());
    assert_eq!(counts(), (2, 0));
    let wanted = listener(&scene, &server);
    after.apply(scene.id, &owner(), &wanted).await.unwrap();
    // Both, although it has one worker.
    assert_eq!(counts(), (2, 2));
    after.close(scene.id, &owner().uid).await;
    assert_eq!(counts(), (0, 0));
    after.adopt(scene.proxy.sockets().await.unwrap());
    after.drop_adopted(|_| false);
    assert_eq!(counts(), (0, 0));
}

#[tokio::test]
async fn a_socket_that_is_not_what_it_is_said_to_be_is_not_adopted() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp(&[server.address]).await;
    let mut sockets = scene.proxy.sockets().await.unwrap();
    let one = sockets.remove(&scene.id).unwrap().remove(0);
    let elsewhere = ListenerId {
        address: loopback(),
        ..scene.id
    };
    let not_listening = socket2::Socket::new(
        socket2::Domain::IPV4,
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    );
    let other = data_plane(1);
    other.adopt(Sockets::from([(elsewhere, vec![one])]));
    other.adopt(Sockets::from([(
        scene.id,
        vec![not_listening.unwrap().into()],
    )]));
    let wanted = listener(&scene, &server);
    other.apply(elsewhere, &owner(), &wanted).await.unwrap();
    echo(&mut connect(elsewhere.socket_address()).await, b"its own").await;
    let refused = other.apply(scene.id, &owner(), &wanted).await.unwrap_err();
    assert!(matches!(refused, ListenError::InUse { .. }), "{refused}");
}

#[tokio::test]
async fn replies_to_udp_clients_go_on_after_the_socket_was_left() {
    let member = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = member.local_addr().unwrap();
    let before = Scene::udp_with(&[address], |_| {}).await;
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(before.address()).await.unwrap();
    let mut room = [0; 64];
    client.send(b"question").await.unwrap();
    let (_, flow) = in_time(member.recv_from(&mut room)).await.unwrap();

    let after = data_plane(2);
    after.adopt(before.proxy.sockets().await.unwrap());
    let mut wanted = Listener::new(Protocol::Udp, before.id.key.port);
    wanted.pool.members = vec![landfall_model::listener::Member::new(address)];
    after.apply(before.id, &owner(), &wanted).await.unwrap();
    let retiring = before.proxy.retire(GRACE);
    let rest = async {
        member.send_to(b"late answer", flow).await.unwrap();
        let count = in_time(client.recv(&mut room)).await.unwrap();
        assert_eq!(&room[..count], b"late answer");
        // The next question is the other one's, whose flow is a new one.
        loop {
            client.send(b"another").await.unwrap();
            let (_, from) = in_time(member.recv_from(&mut room)).await.unwrap();
            if from != flow {
                break;
            }
        }
    };
    tokio::select! {
        () = retiring => panic!("a flow was still open"),
        () = rest => {}
    }
}
