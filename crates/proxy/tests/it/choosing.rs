//! Which member gets the next connection, seen from outside. The rules themselves are tested in the
//! pool.

use std::net::SocketAddr;
use std::time::Duration;

use landfall_model::Protocol;
use landfall_model::listener::{Algorithm, ClientAffinity, Member};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::scene::{Manner, Scene, Server, in_time, read_all, tally};

async fn from(client: SocketAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(client).unwrap();
    in_time(socket.connect(to)).await.unwrap()
}

/// One of many client addresses.
fn client(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 9, 9, number as u8 + 1], 0))
}

async fn received_by(client: SocketAddr, scene: &Scene) -> String {
    String::from_utf8(read_all(&mut from(client, scene.address()).await).await).unwrap()
}

#[tokio::test]
async fn connections_go_round_by_weight() {
    let (one, two) = (Server::named("one").await, Server::named("two").await);
    let scene = Scene::tcp_with(&[one.address, two.address], |listener| {
        listener.pool.members[1].weight = 3;
    })
    .await;
    let answers = scene.receive_many(40).await;
    assert_eq!(tally(&answers, ["one", "two"]), [10, 30]);
    assert_eq!((one.accepted(), two.accepted()), (10, 30));
}

#[tokio::test]
async fn a_busy_member_is_spared() {
    let (one, two) = (
        Server::start(Manner::Echo).await,
        Server::start(Manner::Echo).await,
    );
    let scene = Scene::tcp_with(&[one.address, two.address], |listener| {
        listener.pool.algorithm = Algorithm::LeastConnections;
    })
    .await;
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(scene.settled().await);
    }
    assert_eq!((one.open(), two.open()), (5, 5));
}

#[tokio::test]
async fn the_same_client_address_meets_the_same_member() {
    let servers = [
        Server::named("one").await,
        Server::named("two").await,
        Server::named("three").await,
    ];
    let addresses = servers.each_ref().map(|server| server.address);
    let scene = Scene::tcp_with(&addresses, |listener| {
        listener.pool.algorithm = Algorithm::SourceIp;
    })
    .await;
    let mut chosen = Vec::new();
    for number in 0..40 {
        let first = received_by(client(number), &scene).await;
        assert_eq!(received_by(client(number), &scene).await, first);
        chosen.push(first);
    }
    let spread = tally(&chosen, ["one", "two", "three"]);
    assert!(spread.iter().all(|&count| count > 0), "{spread:?}");
}

#[tokio::test]
async fn an_affine_client_keeps_its_member_and_moves_when_that_leaves() {
    let servers = [Server::named("one").await, Server::named("two").await];
    let addresses = servers.each_ref().map(|server| server.address);
    let scene = Scene::tcp_with(&addresses, |listener| {
        listener.pool.affinity = Some(ClientAffinity {
            timeout: Duration::from_secs(60),
        });
    })
    .await;
    let first = received_by(client(1), &scene).await;
    assert_ne!(received_by(client(2), &scene).await, first);
    for _ in 0..5 {
        assert_eq!(received_by(client(1), &scene).await, first);
    }
    let leaving = addresses[usize::from(first == "two")];
    let leave = scene.change(|listener| {
        listener
            .pool
            .members
            .retain(|member| member.address != leaving);
    });
    leave.await.unwrap();
    let then = received_by(client(1), &scene).await;
    assert_ne!(then, first);
    let come_back = scene.change(|listener| listener.pool.members.push(Member::new(leaving)));
    come_back.await.unwrap();
    for _ in 0..4 {
        assert_eq!(received_by(client(1), &scene).await, then);
    }
}

#[tokio::test]
async fn ipv6_members_and_listeners_serve_too() {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let six = Server::on(listener, Manner::Say(b"six".to_vec()));
    let scene = Scene::tcp(&[six.address]).await;
    assert_eq!(scene.receive().await, b"six");
    let four = Server::named("four").await;
    let address = "::1".parse().unwrap();
    let scene = Scene::start(Protocol::Tcp, address, &[four.address], |_| {}).await;
    assert_eq!(scene.receive().await, b"four");
}
