//! Which clients may connect.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use landfall_model::Protocol;
use landfall_model::listener::{AllowedSources, Http, Listener, Mode};
use landfall_proxy::counters::Refusal;
use tokio::net::{TcpSocket, UdpSocket};

use crate::scene::{Manner, Scene, Server, echo, ended, in_time, read_all, until};

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
async fn connections_of_clients_that_are_no_longer_allowed_end_and_others_go_on() {
    let server = Server::start(Manner::Echo).await;
    for mode in [Mode::Stream, Mode::Http(Http::default())] {
        let stream = mode == Mode::Stream;
        let scene = Scene::tcp_with(&[server.address], |listener| listener.mode = mode).await;
        let from = async |client: &str| {
            let socket = TcpSocket::new_v4().unwrap();
            let client = client.parse().unwrap();
            socket.bind(SocketAddr::new(client, 0)).unwrap();
            in_time(socket.connect(scene.address())).await.unwrap()
        };
        let (mut kept, mut gone) = (from("127.7.3.4").await, from("127.8.3.4").await);
        if stream {
            echo(&mut kept, b"before").await;
            echo(&mut gone, b"before").await;
        }
        until("both are open", || scene.status().open == 2).await;
        let narrow = |listener: &mut Listener| listener.allowed = only(&["127.7.0.0/16"]);
        scene.change(narrow).await.unwrap();
        let in_order = ended(&mut gone).await;
        assert!(!in_order, "what is cut looks whole");
        until("one is open", || scene.status().open == 1).await;
        // A second change finds those that stayed.
        scene
            .change(|listener| listener.allowed = only(&["127.9.0.0/16"]))
            .await
            .unwrap();
        ended(&mut kept).await;
    }
}

#[tokio::test]
async fn flows_of_clients_that_are_no_longer_allowed_end() {
    let member = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::udp_with(&[member.local_addr().unwrap()], |_| {}).await;
    let client = UdpSocket::bind("127.8.3.4:0").await.unwrap();
    client.send_to(b"before", scene.address()).await.unwrap();
    let mut room = [0; 100];
    in_time(member.recv(&mut room)).await.unwrap();
    let narrow = |listener: &mut Listener| listener.allowed = only(&["127.7.0.0/16"]);
    scene.change(narrow).await.unwrap();
    until("the flow ended", || scene.status().open == 0).await;
    client.send_to(b"after", scene.address()).await.unwrap();
    until("refused", || scene.refused(Refusal::Source) == 1).await;
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
    assert_eq!(scene.receive().await, b"served");
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
    assert_eq!(scene.receive().await, b"served");
}
