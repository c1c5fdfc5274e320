//! HTTP/2 clients that open all windows, ask for much and read nothing. Alone in its process, so
//! that its memory can be measured.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy knows tests by their attribute only, and these stand in helpers of tests"
)]

#[path = "http/scene/mod.rs"]
#[expect(dead_code, reason = "the other HTTP tests use the rest")]
mod scene;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use landfall_proxy::ProxyConfig;
use tokio::io::AsyncWriteExt;
use tokio::time::{Duration, sleep};

use crate::scene::{Client, Scene, Server, until};

/// As the program has it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const CLIENTS: u64 = 12;
const STREAMS: u8 = 100;
const MIB: u64 = 1 << 20;

/// SETTINGS that open the window of each stream, and an update that opens that of the connection.
const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff\
    \0\0\x04\x08\0\0\0\0\0\x7f\xff\0\0";

/// GET / of the authority `a`.
const BLOCK: &[u8] = &[0x82, 0x86, 0x84, 0x01, 0x01, b'a'];

#[tokio::test]
async fn streams_that_clients_do_not_read_take_little_memory_and_no_more_than_there_is() {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = sent.clone();
    let member = Server::start(move |mut conversation| {
        let counted = counted.clone();
        async move {
            if conversation
                .request()
                .await
                .is_some_and(|it| it.head.starts_with("GET /short"))
            {
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                return conversation.send(answer).await;
            }
            conversation
                .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await;
            let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
            let stream = conversation.client().stream();
            while stream.write_all(chunk.as_bytes()).await.is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
    .await;
    let config = ProxyConfig {
        memory: Some(24 * MIB),
        ..ProxyConfig::default()
    };
    let scene = Scene::start_by(config, &[member.address], |_| {}).await;
    let before = resident();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = scene.client().await;
        let mut request = OPENING.to_vec();
        for stream in 0..STREAMS {
            let head = [0, 0, 6, 1, 0b101, 0, 0, 0, 2 * stream + 1];
            request.extend_from_slice(&[&head[..], BLOCK].concat());
        }
        client.send(&request).await;
        clients.push(client);
    }
    // Until no member can send any more.
    let mut last = 0;
    loop {
        sleep(Duration::from_millis(500)).await;
        let now = sent.load(Ordering::Relaxed);
        if now == last && now > 0 {
            break;
        }
        last = now;
    }
    let grown = resident().saturating_sub(before);
    let pressure = scene.proxy.pressure();
    assert!(
        pressure.memory <= pressure.memory_limit && pressure.shortages > 0,
        "{pressure:?}"
    );
    // Members and clients live in this process, too.
    assert!(
        grown < 90 * 1024,
        "{grown} KiB for {} MiB",
        pressure.memory / MIB
    );
    // A client elsewhere has a request under way as if there were no others.
    let mut other = Client::over(scene.client_from(2).await.unwrap());
    assert_eq!(other.get("/short").await.status, 200);
    drop((clients, other));
    until("all is given back", || scene.proxy.pressure().memory == 0).await;
}

/// Resident memory in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
