//! Who may connect.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use landfall_model::Protocol;
use landfall_model::listener::AllowedSources;
use landfall_proxy::counters::Refusal;
use tokio::net::TcpSocket;

use crate::scene::{Scene, Server, ended, in_time, read_all, until};

fn only(prefixes: &[&str]) -> AllowedSources {
    AllowedSources::Only(
        prefixes
            .iter()
            .map(|text| text.parse().unwrap())
            .collect::<BTreeSet<_>>(),
    )
}

#[tokio::test]
async fn clients_outside_the_allowed_ranges_are_closed_before_a_byte_is_read() {
    let server = Server::named("served").await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.allowed = only(&["127.7.0.0/16", "2001:db8::/32"]);
    })
    .await;
    let from = async |client: &str| {
        let socket = TcpSocket::new_v4().unwrap();
        socket
            .bind(SocketAddr::new(client.parse().unwrap(), 0))
            .unwrap();
        in_time(socket.connect(scene.address())).await.unwrap()
    };
    assert_eq!(read_all(&mut from("127.7.3.4").await).await, b"served");
    for outside in ["127.6.255.255", "127.8.0.0"] {
        ended(&mut from(outside).await).await;
    }
    until("counted", || scene.refused(Refusal::Source) == 2).await;
    assert_eq!(server.accepted(), 1);
    until("given back", || scene.status().open == 0).await;
}

#[tokio::test]
async fn allowed_ranges_hold_for_ipv6_and_change_in_place() {
    let server = Server::named("served").await;
    let six = "::1".parse().unwrap();
    let scene = Scene::start(Protocol::Tcp, six, &[server.address], |listener| {
        listener.key.port = 8081.try_into().unwrap();
        listener.allowed = only(&["::2/128"]);
    })
    .await;
    ended(&mut scene.client().await).await;
    until("counted", || scene.refused(Refusal::Source) == 1).await;
    scene
        .change(|listener| listener.allowed = only(&["::/64"]))
        .await
        .unwrap();
    assert_eq!(scene.hear().await, b"served");
    scene
        .change(|listener| listener.allowed = only(&[]))
        .await
        .unwrap();
    ended(&mut scene.client().await).await;
    until("counted", || scene.refused(Refusal::Source) == 2).await;
    scene
        .change(|listener| listener.allowed = AllowedSources::All)
        .await
        .unwrap();
    assert_eq!(scene.hear().await, b"served");
}
