//! Members that cannot be reached, and connections that break.

use std::time::{Duration, Instant};

use landfall_model::listener::{Check, Monitor};
use landfall_proxy::Health;
use landfall_proxy::breaks::Break;
use landfall_proxy::counters::Refusal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use crate::scene::{Manner, Scene, Server, closed_address, ended, in_time, until};

#[tokio::test]
async fn without_a_member_a_connection_is_closed_at_once_and_counted() {
    let scene = Scene::tcp(&[]).await;
    for _ in 0..3 {
        ended(&mut scene.client().await).await;
    }
    until("counted", || scene.refused(Refusal::NoMember) == 3).await;
    assert_eq!(scene.totals().connections, 0);
    until("given back", || scene.status().open == 0).await;
}

#[tokio::test]
async fn when_all_members_are_down_connections_are_refused_until_one_is_up() {
    let server = Server::named("up").await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        let mut monitor = Monitor::new(Check::Tcp);
        // One check at the start and none for the rest of the test.
        monitor.delay = Duration::from_secs(3_600);
        listener.pool.monitor = Some(monitor);
    })
    .await;
    let state = scene.proxy.find(scene.id).unwrap();
    let health = || state.pool().members()[0].health();
    until("first check", || health() == Health::Up).await;
    assert_eq!(scene.receive().await, b"up");
    state
        .pool()
        .set_health(server.address, Health::Down, "test");
    assert_eq!(scene.receive().await, b"");
    until("counted", || scene.refused(Refusal::NoMember) == 1).await;
    state.pool().set_health(server.address, Health::Up, "test");
    assert_eq!(scene.receive().await, b"up");
}

#[tokio::test]
async fn a_connection_finds_the_member_that_can_be_reached() {
    let server = Server::named("here").await;
    let gone = [closed_address(), closed_address()];
    let scene = Scene::tcp(&[gone[0], gone[1], server.address]).await;
    for _ in 0..6 {
        assert_eq!(scene.receive().await, b"here");
    }
    let totals = scene.totals();
    assert_eq!(
        (totals.connections, totals.refused(Refusal::NoMember)),
        (6, 0)
    );
    // Failed once, a member is asked last for a while.
    assert!(totals.connect_failures >= 2);
    let status = scene.status();
    let failures: Vec<u64> = status
        .members
        .iter()
        .map(|row| row.totals.connect_failures)
        .collect();
    assert!(
        failures[0] > 0 && failures[1] > 0 && failures[2] == 0,
        "{failures:?}"
    );
}

#[tokio::test]
async fn when_no_member_can_be_reached_at_most_three_are_tried() {
    let gone: Vec<_> = (0..5).map(|_| closed_address()).collect();
    let scene = Scene::tcp(&gone).await;
    ended(&mut scene.client().await).await;
    until("counted", || scene.refused(Refusal::NoMember) == 1).await;
    assert_eq!(scene.totals().connect_failures, 3);
}

#[tokio::test]
async fn what_a_client_said_reaches_the_member_that_is_tried_second() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp(&[closed_address(), server.address]).await;
    let mut client = scene.client().await;
    client.write_all(b"hello").await.unwrap();
    let mut room = [0; 5];
    in_time(client.read_exact(&mut room)).await.unwrap();
    assert_eq!(&room, b"hello");
}

#[tokio::test]
async fn a_member_that_does_not_answer_the_handshake_is_given_up() {
    let silent = Unresponsive::start().await;
    let server = Server::named("other").await;
    let scene = Scene::tcp_with(&[silent.address, server.address], |listener| {
        listener.timeouts.member_connect = Duration::from_millis(150);
    })
    .await;
    assert_eq!(scene.receive().await, b"other");
    assert_eq!(scene.totals().connect_failures, 1);
}

#[tokio::test]
async fn a_client_that_breaks_off_breaks_the_member_s_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::tcp(&[listener.local_addr().unwrap()]).await;
    let mut client = scene.client().await;
    let (mut member, _) = in_time(listener.accept()).await.unwrap();
    client.write_all(b"x").await.unwrap();
    in_time(member.read_exact(&mut [0])).await.unwrap();
    client.set_zero_linger().unwrap();
    drop(client);
    assert!(!ended(&mut member).await, "the member saw an orderly end");
    until("given back", || scene.status().open == 0).await;
}

#[tokio::test]
async fn a_member_that_breaks_off_breaks_the_client_s_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::tcp(&[listener.local_addr().unwrap()]).await;
    let mut client = scene.client().await;
    let (mut member, _) = in_time(listener.accept()).await.unwrap();
    client.write_all(b"x").await.unwrap();
    in_time(member.read_exact(&mut [0])).await.unwrap();
    member.set_zero_linger().unwrap();
    drop(member);
    assert!(!ended(&mut client).await, "the client saw an orderly end");
    until("given back", || scene.status().open == 0).await;
}

/// A port that answers no handshake: its accept queue is full.
struct Unresponsive {
    address: std::net::SocketAddr,
    _listener: TcpListener,
    _waiting: Vec<tokio::task::JoinHandle<()>>,
}

impl Unresponsive {
    async fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        // The kernel takes one more than the backlog; those beyond wait in vain.
        for _ in 0..2 {
            let stream = crate::scene::connect(address).await;
            waiting.push(tokio::spawn(async move {
                let _keep = stream;
                std::future::pending::<()>().await;
            }));
        }
        Self {
            address,
            _listener: listener,
            _waiting: waiting,
        }
    }
}

#[tokio::test]
async fn streams_that_break_are_counted_by_the_side_that_broke_them() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::tcp(&[listener.local_addr().unwrap()]).await;
    for how in [Break::ClientReset, Break::MemberReset] {
        let mut client = scene.client().await;
        client.write_all(b"x").await.unwrap();
        let (mut member, _) = in_time(listener.accept()).await.unwrap();
        in_time(member.read_exact(&mut [0])).await.unwrap();
        let (breaks, mut sees) = match how {
            Break::ClientReset => (client, member),
            _ => (member, client),
        };
        breaks.set_zero_linger().unwrap();
        drop(breaks);
        ended(&mut sees).await;
        until("counted", || scene.totals().broken[how as usize] == 1).await;
    }
    assert_eq!(scene.totals().broken.iter().sum::<u64>(), 2);
}

#[tokio::test]
async fn a_member_that_resets_an_upload_has_not_ended_in_order() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::tcp(&[listener.local_addr().unwrap()]).await;
    let mut client = scene.client().await;
    let (mut member, _) = in_time(listener.accept()).await.unwrap();
    // Bytes wait on the proxy, so that a write meets the reset and not a read.
    let (block, mut wrote) = (vec![b'x'; 1 << 20], Instant::now());
    until("nothing more is taken", || {
        if client.try_write(&block).is_ok() {
            wrote = Instant::now();
        }
        wrote.elapsed() > Duration::from_millis(200)
    })
    .await;
    member.write_all(b"half").await.unwrap();
    in_time(client.read_exact(&mut [0; 4])).await.unwrap();
    member.set_zero_linger().unwrap();
    drop(member);
    until("counted", || scene.totals().broken.iter().sum::<u64>() == 1).await;
    assert_eq!(scene.totals().broken[Break::MemberReset as usize], 1);
    assert!(!ended(&mut client).await, "the answer looks whole");
    until("given back", || scene.status().open == 0).await;
}

#[tokio::test]
async fn an_upload_that_is_late_does_not_look_whole_to_a_member_that_has_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::tcp_with(&[listener.local_addr().unwrap()], |listener| {
        listener.timeouts.client_data = Duration::from_millis(300);
    })
    .await;
    let mut client = scene.client().await;
    let (mut member, _) = in_time(listener.accept()).await.unwrap();
    in_time(member.shutdown()).await.unwrap();
    assert_eq!(in_time(client.read(&mut [0])).await.unwrap(), 0);
    client.write_all(b"half").await.unwrap();
    in_time(member.read_exact(&mut [0; 4])).await.unwrap();
    assert!(!ended(&mut member).await, "the upload looks whole");
}
