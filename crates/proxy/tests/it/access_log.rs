//! What is noted and measured of connections and flows.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use landfall_model::Protocol;
use landfall_model::listener::{AllowedSources, Listener};
use landfall_proxy::access_log::{AccessLog, Format, Sample};
use landfall_proxy::counters::Span;
use landfall_proxy::{Proxy, ProxyConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;

use crate::scene::{
    Manner, Scene, Server, TIMEOUT, closed_address, connect, in_time, loopback, until,
};

/// A listener, and the lines about it.
async fn logged(
    protocol: Protocol,
    members: &[SocketAddr],
    change: impl FnOnce(&mut Listener),
) -> (Scene, Receiver<Vec<u8>>) {
    let (log, lines) = AccessLog::new(Format::Json, Sample::ALL, false);
    let config = ProxyConfig {
        workers: NonZeroUsize::new(1),
        access_log: Some(Arc::new(log)),
        ..ProxyConfig::default()
    };
    let proxy = Proxy::start(config).unwrap();
    let scene = Scene::start_on(proxy, protocol, loopback(), members, change).await;
    (scene, lines)
}

fn next(lines: &Receiver<Vec<u8>>) -> String {
    let line = tokio::task::block_in_place(|| lines.recv_timeout(TIMEOUT));
    String::from_utf8(line.unwrap()).unwrap()
}

fn has(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_one_line_when_it_ends() {
    let server = Server::start(Manner::Echo).await;
    let (scene, lines) = logged(Protocol::Tcp, &[server.address], |_| {}).await;
    let mut client = connect(scene.address()).await;
    let address = client.local_addr().unwrap();
    client.write_all(b"hello").await.unwrap();
    in_time(client.read_exact(&mut [0; 5])).await.unwrap();
    assert!(lines.try_recv().is_err());
    client.shutdown().await.unwrap();
    in_time(client.read_to_end(&mut Vec::new())).await.unwrap();
    has(
        &next(&lines),
        &[
            &format!("\"client\":\"{address}\",\"member\":\"{}\"", server.address),
            "\"end\":\"ok\",\"bytesIn\":5,\"bytesOut\":5,\"duration\":",
        ],
    );
    let state = scene.proxy.find(scene.id).unwrap();
    for span in [Span::Connect, Span::Connection] {
        assert_eq!(state.counters().times(span).unwrap().count, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_turned_away_is_a_line_with_the_reason() {
    let (scene, lines) = logged(Protocol::Tcp, &[closed_address()], |_| {}).await;
    drop(connect(scene.address()).await);
    has(&next(&lines), &["\"end\":\"no_member\",\"bytesIn\":0"]);
    let only = AllowedSources::Only(["192.0.2.0/24".parse().unwrap()].into());
    scene
        .change(|listener| listener.allowed = only)
        .await
        .unwrap();
    drop(connect(scene.address()).await);
    has(&next(&lines), &["\"end\":\"source\""]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_is_one_line_when_it_ends() {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let member = server.local_addr().unwrap();
    let idle = |listener: &mut Listener| listener.timeouts.client_data = Duration::from_millis(50);
    let (scene, lines) = logged(Protocol::Udp, &[member], idle).await;
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.send_to(b"ping", scene.address()).await.unwrap();
    let (_, proxy) = in_time(server.recv_from(&mut [0; 9])).await.unwrap();
    server.send_to(b"answer", proxy).await.unwrap();
    in_time(client.recv_from(&mut [0; 9])).await.unwrap();
    has(
        &next(&lines),
        &[
            "/UDP\"",
            &format!("\"member\":\"{member}\""),
            "\"end\":\"ok\",\"bytesIn\":4,\"bytesOut\":6",
        ],
    );
    let state = scene.proxy.find(scene.id).unwrap();
    let measured = || state.counters().times(Span::Connection).is_some();
    until("measured", measured).await;
}
