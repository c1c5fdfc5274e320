//! The connection limit.

use std::time::Duration;

use landfall_proxy::counters::Refusal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::scene::{Manner, Scene, Server, echo, in_time, until};

#[tokio::test]
async fn connections_beyond_the_limit_wait_until_another_ends() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.connection_limit = Some(2);
    })
    .await;
    let first = scene.settled().await;
    let mut second = scene.settled().await;
    // The kernel completes their handshakes; nothing accepts them.
    let mut waiting = [scene.client().await, scene.client().await];
    for client in &mut waiting {
        client.write_all(b"a").await.unwrap();
    }
    let mut room = [0];
    let early = tokio::time::timeout(Duration::from_millis(100), waiting[0].read(&mut room)).await;
    assert!(early.is_err(), "served beyond the limit");
    assert_eq!((scene.status().open, server.accepted()), (2, 2));
    echo(&mut second, b"goes on").await;
    drop(first);
    drop(second);
    for client in &mut waiting {
        in_time(client.read_exact(&mut room)).await.unwrap();
        assert_eq!(&room, b"a");
    }
    assert_eq!(scene.totals().refused, [0; Refusal::ALL.len()]);
}

#[tokio::test]
async fn a_raised_limit_lets_waiting_connections_in() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.connection_limit = Some(1);
    })
    .await;
    let mut first = scene.settled().await;
    let mut second = scene.client().await;
    second.write_all(b"a").await.unwrap();
    // Only once the listener has noticed that it is full is there something to show.
    until("full", || scene.status().open == 1).await;
    scene
        .change(|listener| listener.connection_limit = None)
        .await
        .unwrap();
    let mut room = [0];
    in_time(second.read_exact(&mut room)).await.unwrap();
    echo(&mut first, b"both serve").await;
    // A lower limit ends no connection.
    scene
        .change(|listener| listener.connection_limit = Some(1))
        .await
        .unwrap();
    echo(&mut first, b"still").await;
    echo(&mut second, b"still").await;
}

#[tokio::test]
async fn many_waiting_connections_are_all_served_in_the_end() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.connection_limit = Some(3);
    })
    .await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..60 {
        let address = scene.address();
        tasks.spawn(async move {
            let mut client = crate::scene::connect(address).await;
            echo(&mut client, b"my turn").await;
        });
    }
    in_time(tasks.join_all()).await;
    assert_eq!(scene.totals().connections, 60);
    until("given back", || scene.status().open == 0).await;
}
