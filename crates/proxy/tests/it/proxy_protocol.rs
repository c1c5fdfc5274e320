//! The PROXY protocol, toward members and from trusted peers.

use std::net::SocketAddr;

use landfall_model::listener::{Algorithm, AllowedSources, ProxyProtocol};
use landfall_proxy::counters::Refusal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::scene::{Manner, Scene, Server, closed_address, ended, in_time, read_all, until};

fn v1(client: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let (from, to) = (client.ip(), local.ip());
    format!(
        "PROXY TCP4 {from} {to} {} {}\r\n",
        client.port(),
        local.port()
    )
    .into_bytes()
}

fn v2(client: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (client, local) else {
        unreachable!()
    };
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend(from.ip().octets());
    header.extend(to.ip().octets());
    header.extend(from.port().to_be_bytes());
    header.extend(to.port().to_be_bytes());
    header
}

#[tokio::test]
async fn members_learn_the_address_of_the_client() {
    for (version, header) in [
        (
            ProxyProtocol::V1,
            v1 as fn(SocketAddr, SocketAddr) -> Vec<u8>,
        ),
        (ProxyProtocol::V2, v2),
    ] {
        let server = Server::start(Manner::Answer(b"ok".to_vec())).await;
        // The first member fails, so the header must reach the second one whole.
        let scene = Scene::tcp_with(&[closed_address(), server.address], |listener| {
            listener.pool.proxy_protocol = Some(version);
        })
        .await;
        let mut client = scene.client().await;
        let mut expected = header(client.local_addr().unwrap(), scene.address());
        expected.extend(b"hello");
        client.write_all(b"hello").await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(read_all(&mut client).await, b"ok");
        assert_eq!(server.received(), expected);
        assert_eq!(scene.totals().bytes_in, 5);
    }
}

#[tokio::test]
async fn a_member_that_speaks_first_gets_the_header_without_a_word_of_the_client() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.pool.proxy_protocol = Some(ProxyProtocol::V1);
    })
    .await;
    let mut client = scene.client().await;
    let expected = v1(client.local_addr().unwrap(), scene.address());
    let mut room = vec![0; expected.len()];
    in_time(client.read_exact(&mut room)).await.unwrap();
    assert_eq!(room, expected);
}

#[tokio::test]
async fn the_header_can_be_switched_without_touching_open_connections() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp(&[server.address]).await;
    let mut plain = scene.settled().await;
    let switch = scene.change(|listener| listener.pool.proxy_protocol = Some(ProxyProtocol::V1));
    switch.await.unwrap();
    crate::scene::echo(&mut plain, b"as before").await;
    let mut client = scene.client().await;
    let expected = v1(client.local_addr().unwrap(), scene.address());
    let mut room = vec![0; expected.len()];
    in_time(client.read_exact(&mut room)).await.unwrap();
    assert_eq!(room, expected);
}

#[tokio::test]
async fn a_trusted_peer_s_word_is_passed_on() {
    let (client, wanted) = (
        "203.0.113.9:4711".parse().unwrap(),
        "198.51.100.1:443".parse().unwrap(),
    );
    for header in [v1(client, wanted), v2(client, wanted)] {
        let server = Server::start(Manner::Answer(b"ok".to_vec())).await;
        let scene = Scene::tcp_with(&[server.address], |listener| {
            listener.accept_proxy_from = vec!["127.0.0.0/8".parse().unwrap()];
            listener.pool.proxy_protocol = Some(ProxyProtocol::V2);
        })
        .await;
        let mut peer = scene.client().await;
        // In pieces, so that the header is complete only with the last.
        for piece in header.chunks(5) {
            peer.write_all(piece).await.unwrap();
            peer.set_nodelay(true).unwrap();
            tokio::task::yield_now().await;
        }
        peer.write_all(b"hello").await.unwrap();
        peer.shutdown().await.unwrap();
        assert_eq!(read_all(&mut peer).await, b"ok");
        let mut expected = v2(client, wanted);
        expected.extend(b"hello");
        assert_eq!(server.received(), expected);
    }
}

#[tokio::test]
async fn the_named_client_is_the_one_that_is_checked() {
    let server = Server::start(Manner::Answer(b"ok".to_vec())).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.accept_proxy_from = vec!["127.0.0.0/8".parse().unwrap()];
        listener.allowed = AllowedSources::Only(["203.0.113.0/24".parse().unwrap()].into());
        listener.pool.algorithm = Algorithm::SourceIp;
    })
    .await;
    let answer = async |header: &[u8]| {
        let mut peer = scene.client().await;
        peer.write_all(header).await.unwrap();
        // Refused, the peer may get a reset.
        let _ = peer.shutdown().await;
        let mut bytes = Vec::new();
        let _ = in_time(peer.read_to_end(&mut bytes)).await;
        bytes
    };
    let wanted = "198.51.100.1:443".parse().unwrap();
    assert_eq!(
        answer(&v1("203.0.113.9:1".parse().unwrap(), wanted)).await,
        b"ok"
    );
    assert_eq!(
        answer(&v1("203.0.114.9:1".parse().unwrap(), wanted)).await,
        b""
    );
    until("counted", || scene.refused(Refusal::Source) == 1).await;
    // Speaking for itself, the peer is validated as any client.
    assert_eq!(answer(b"PROXY UNKNOWN\r\n").await, b"");
    until("counted", || scene.refused(Refusal::Source) == 2).await;
    assert_eq!(scene.refused(Refusal::ProxyHeader), 0);
}

#[tokio::test]
async fn a_trusted_peer_without_a_header_is_refused() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.accept_proxy_from = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    let mut wrong = scene.client().await;
    wrong.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    ended(&mut wrong).await;
    until("counted", || scene.refused(Refusal::ProxyHeader) == 1).await;
    let mut cut_short = scene.client().await;
    cut_short.write_all(b"PROXY TCP4 203.0.").await.unwrap();
    cut_short.shutdown().await.unwrap();
    ended(&mut cut_short).await;
    until("counted", || scene.refused(Refusal::ProxyHeader) == 2).await;
    // One that says nothing at all has a few seconds.
    ended(&mut scene.client().await).await;
    until("counted", || scene.refused(Refusal::ProxyHeader) == 3).await;
    assert_eq!(server.accepted(), 0);
    until("given back", || scene.status().open == 0).await;
}

#[tokio::test]
async fn a_header_of_an_untrusted_peer_is_only_bytes() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.accept_proxy_from = vec!["192.0.2.0/24".parse().unwrap()];
    })
    .await;
    let mut client = scene.client().await;
    let header = v1("203.0.113.9:1".parse().unwrap(), scene.address());
    crate::scene::echo(&mut client, &header).await;
}
