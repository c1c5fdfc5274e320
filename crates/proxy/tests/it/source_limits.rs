//! What one source may have of a listener.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use landfall_model::protection::Rate;
use landfall_proxy::counters::Refusal;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

use crate::scene::{Manner, Scene, Server, echo, ended, in_time, until};

/// So slow that no test sees one come back.
fn at_once(burst: u32) -> Rate {
    Rate {
        count: 1,
        period: Duration::from_secs(3600),
        burst,
    }
}

/// A connection from this address of the loopback network.
async fn from(address: [u8; 4], to: SocketAddr) -> TcpStream {
    try_from(address, to).await.unwrap()
}

async fn try_from(address: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::from(address)), 0);
    socket.bind(local).unwrap();
    in_time(socket.connect(to)).await
}

/// Whether a connection is reset, which may show while it is made.
async fn is_reset(connection: std::io::Result<TcpStream>) -> bool {
    match connection {
        Ok(mut stream) => !ended(&mut stream).await,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[tokio::test]
async fn a_source_with_too_many_connections_is_reset_and_another_is_served() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.source_limits.connections = Some(2);
    })
    .await;
    let mut first = from([127, 1, 0, 1], scene.address()).await;
    let mut second = from([127, 1, 0, 1], scene.address()).await;
    echo(&mut first, b"one").await;
    echo(&mut second, b"two").await;
    assert!(is_reset(try_from([127, 1, 0, 1], scene.address()).await).await);
    let mut other = from([127, 1, 0, 2], scene.address()).await;
    echo(&mut other, b"served").await;
    assert_eq!(scene.refused(Refusal::SourceLimit), 1);
    drop(first);
    until("given back", || scene.status().open == 2).await;
    let mut next = from([127, 1, 0, 1], scene.address()).await;
    echo(&mut next, b"served again").await;
}

#[tokio::test]
async fn a_source_that_connects_too_often_is_reset_until_the_rate_is_raised() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.source_limits.connection_rate = Some(at_once(3));
    })
    .await;
    for _ in 0..3 {
        echo(&mut scene.client().await, b"one of the burst").await;
    }
    assert!(is_reset(TcpStream::connect(scene.address()).await).await);
    assert_eq!(scene.refused(Refusal::SourceRate), 1);
    scene
        .change(|listener| listener.source_limits.connection_rate = None)
        .await
        .unwrap();
    echo(&mut scene.client().await, b"no limit").await;
}

#[tokio::test]
async fn clients_behind_a_trusted_peer_are_distinguished() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.accept_proxy_from = vec!["127.0.0.0/8".parse().unwrap()];
        listener.source_limits.connections = Some(1);
    })
    .await;
    let introduced = async |client: &str| {
        let mut stream = scene.client().await;
        let header = format!("PROXY TCP4 {client} 192.0.2.9 1000 80\r\n");
        stream.write_all(header.as_bytes()).await.unwrap();
        stream
    };
    let mut one = introduced("192.0.2.1").await;
    echo(&mut one, b"one").await;
    let mut two = introduced("192.0.2.2").await;
    echo(&mut two, b"two").await;
    let mut same = introduced("192.0.2.1").await;
    assert!(!ended(&mut same).await);
    assert_eq!(scene.refused(Refusal::SourceLimit), 1);
}

#[tokio::test]
async fn a_source_has_so_many_udp_flows() {
    let member = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::udp_with(&[member.local_addr().unwrap()], |listener| {
        listener.source_limits.connections = Some(1);
    })
    .await;
    let client = async |address: &str| {
        let socket = UdpSocket::bind((address, 0)).await.unwrap();
        socket.connect(scene.address()).await.unwrap();
        socket.send(b"hello").await.unwrap();
        socket
    };
    let _first = client("127.1.0.1").await;
    until("a flow", || scene.status().open == 1).await;
    let _second = client("127.1.0.1").await;
    until("refused", || scene.refused(Refusal::SourceLimit) == 1).await;
    let _other = client("127.1.0.2").await;
    until("another source", || scene.status().open == 2).await;
}
