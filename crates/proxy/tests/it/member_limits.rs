//! Members that have as much as they may, and members that fail.

use std::time::Duration;

use landfall_proxy::counters::Refusal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::scene::{Manner, Scene, Server, closed_address, echo, ended, in_time, until};
use crate::tls::Trust;

#[tokio::test]
async fn what_exceeds_the_limit_of_all_members_waits_until_a_place_is_free() {
    let servers = [
        Server::start(Manner::Echo).await,
        Server::start(Manner::Echo).await,
    ];
    let scene = Scene::tcp_with(&servers.each_ref().map(|it| it.address), |listener| {
        listener.pool.protection.connections = Some(1);
        listener.pool.protection.queue_timeout = Duration::from_secs(600);
    })
    .await;
    let held = [scene.settled().await, scene.settled().await];
    let mut waiting = [scene.client().await, scene.client().await];
    for client in &mut waiting {
        client.write_all(b"a").await.unwrap();
    }
    until("in line", || scene.status().waiting == 2).await;
    let accepted = servers.each_ref().map(Server::accepted);
    assert_eq!(accepted, [1, 1], "each has what it may have");
    drop(held);
    let mut room = [0];
    for client in &mut waiting {
        in_time(client.read_exact(&mut room)).await.unwrap();
        assert_eq!(&room, b"a");
    }
    assert_eq!(scene.totals().refused, [0; Refusal::ALL.len()]);
}

#[tokio::test]
async fn a_full_line_and_a_long_wait_end_with_a_reset() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.pool.protection.connections = Some(1);
        listener.pool.protection.queue = 1;
        listener.pool.protection.queue_timeout = Duration::from_secs(600);
    })
    .await;
    let mut held = scene.settled().await;
    let mut waits = scene.client().await;
    until("in line", || scene.status().waiting == 1).await;
    let refused = tokio::net::TcpStream::connect(scene.address()).await;
    if let Ok(mut refused) = refused {
        assert!(!ended(&mut refused).await);
    }
    assert_eq!(scene.refused(Refusal::Queue), 1);
    scene
        .change(|listener| {
            listener.pool.protection.queue = 2;
            listener.pool.protection.queue_timeout = Duration::from_millis(20);
        })
        .await
        .unwrap();
    let late = tokio::net::TcpStream::connect(scene.address()).await;
    if let Ok(mut late) = late {
        assert!(!ended(&mut late).await);
    }
    assert_eq!(scene.refused(Refusal::Queue), 2);
    echo(&mut held, b"goes on").await;
    drop(held);
    echo(&mut waits, b"still in line, and served").await;
}

#[tokio::test]
async fn a_client_that_waited_longer_than_it_may_be_silent_is_served() {
    const SILENCE: Duration = Duration::from_millis(500);
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.timeouts.client_data = SILENCE;
        listener.pool.protection.connections = Some(1);
        listener.pool.protection.queue_timeout = Duration::from_secs(600);
    })
    .await;
    let mut held = scene.settled().await;
    let mut waits = scene.client().await;
    until("in line", || scene.status().waiting == 1).await;
    let start = std::time::Instant::now();
    while start.elapsed() < 2 * SILENCE {
        echo(&mut held, b"not silent").await;
    }
    drop(held);
    until("served", || server.accepted() == 2).await;
    echo(&mut waits, b"in time").await;
}

#[tokio::test]
async fn a_client_that_leaves_the_line_makes_way() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.pool.protection.connections = Some(1);
        listener.pool.protection.queue_timeout = Duration::from_secs(600);
    })
    .await;
    let held = scene.settled().await;
    let leaves = scene.client().await;
    until("in line", || scene.status().waiting == 1).await;
    leaves.set_zero_linger().unwrap();
    drop(leaves);
    until("gone", || scene.status().waiting == 0).await;
    drop(held);
    echo(&mut scene.client().await, b"served").await;
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn connections_whose_tls_ends_here_wait_as_well() {
    let (server, trust) = (Server::start(Manner::Echo).await, Trust::new());
    let scene = Scene::tcp_with(&[server.address], |listener| {
        listener.mode = trust.mode();
        listener.pool.protection.connections = Some(1);
        listener.pool.protection.queue_timeout = Duration::from_secs(600);
    })
    .await;
    let mut held = trust.client(scene.address()).await;
    held.write_all(b"a").await.unwrap();
    let mut room = [0];
    in_time(held.read_exact(&mut room)).await.unwrap();
    let mut waits = trust.client(scene.address()).await;
    waits.write_all(b"b").await.unwrap();
    until("in line", || scene.status().waiting == 1).await;
    drop(held);
    in_time(waits.read_exact(&mut room)).await.unwrap();
    assert_eq!(&room, b"b");
}

#[tokio::test]
async fn a_member_that_can_not_be_reached_is_left_out_and_shows_as_failing() {
    let (server, other) = (
        Server::start(Manner::Echo).await,
        Server::start(Manner::Echo).await,
    );
    let dead = closed_address();
    let scene = Scene::tcp_with(&[dead, server.address, other.address], |listener| {
        listener.pool.protection.outlier_failures = Some(1);
    })
    .await;
    let left_out = || {
        let members = scene.status().members;
        let dead = members.iter().find(|member| member.address == dead);
        dead.and_then(|member| member.left_out.clone())
    };
    while left_out().is_none() {
        echo(&mut scene.client().await, b"served by another").await;
    }
    let why = left_out().unwrap();
    assert_eq!(
        &*why,
        "ejected for 30 s after 1 failures in a row: connection refused"
    );
    let failures = scene.totals().connect_failures;
    for _ in 0..10 {
        echo(&mut scene.client().await, b"at the first try").await;
    }
    assert_eq!(scene.totals().connect_failures, failures);
}
