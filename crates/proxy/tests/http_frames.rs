//! Responses of very small frames, and clients that do not read them. Alone in its process, so that
//! its memory can be measured.

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
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::scene::{Scene, Server};

const STREAMS: u8 = 20;

/// SETTINGS that open the window of each stream, and an update that opens that of the connection.
const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff\
    \0\0\x04\x08\0\0\0\0\0\x7f\xff\0\0";

/// GET / of the authority `a`.
const BLOCK: &[u8] = &[0x82, 0x86, 0x84, 0x01, 0x01, b'a'];

#[tokio::test]
async fn tiny_frames_that_a_client_does_not_read_take_little_memory() {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = sent.clone();
    let member = Server::start(move |mut conversation| {
        let counted = counted.clone();
        async move {
            conversation.request().await;
            conversation
                .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await;
            let chunks = "1\r\nx\r\n".repeat(1000);
            let stream = conversation.client().stream();
            while stream.write_all(chunks.as_bytes()).await.is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
    .await;
    let scene = Scene::start(&[member.address]).await;
    assert!(member.requests() == 0 && scene.state.pool().waiting() == 0);
    let before = resident();
    let mut client = TcpStream::connect(scene.address).await.unwrap();
    let mut request = OPENING.to_vec();
    for stream in 0..STREAMS {
        let head = [0, 0, 6, 1, 0b101, 0, 0, 0, 2 * stream + 1];
        request.extend_from_slice(&[&head[..], BLOCK].concat());
    }
    client.write_all(&request).await.unwrap();
    // Until no member can send any more.
    let mut last = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = sent.load(Ordering::Relaxed);
        if now == last && now > 0 {
            break;
        }
        last = now;
    }
    let grown = resident().saturating_sub(before);
    // Buffers toward members and of the library, and what each stream may have waiting.
    assert!(grown < u64::from(STREAMS) * 1024, "{grown} KiB");
    drop(client);
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
