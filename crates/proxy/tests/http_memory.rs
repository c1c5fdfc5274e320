//! Bodies pass through a listener without being held. Alone in its process, so that its memory
//! can be measured.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy knows tests by their attribute only, and these stand in helpers of tests"
)]

#[path = "http/scene/mod.rs"]
#[expect(dead_code, reason = "the other HTTP tests use the rest")]
mod scene;

use std::hash::{DefaultHasher, Hasher};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::scene::{Scene, Server};

/// A stream of bytes that never repeats where it could go unnoticed.
fn pattern(number: u64) -> [u8; 8192] {
    let mut block = [0; 8192];
    for (word, place) in block.chunks_mut(8).zip(0u64..) {
        word.copy_from_slice(
            &(number * 1024 + place)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .to_le_bytes(),
        );
    }
    block
}

const BLOCKS: u64 = 8192;

fn expected() -> u64 {
    let mut hasher = DefaultHasher::new();
    (0..BLOCKS).for_each(|number| hasher.write(&pattern(number)));
    hasher.finish()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_pass_whole_both_ways_in_little_memory() {
    // Sends back what it gets, at once, whatever comes first.
    let member = Server::start(|mut conversation| async move {
        let client = conversation.client();
        while !client.line().await.is_empty() {}
        client
            .send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                BLOCKS * 8192
            ))
            .await;
        let mut left = BLOCKS * 8192;
        while left > 0 {
            let part = client.exactly(left.min(8192) as usize).await;
            left -= part.len() as u64;
            client.send(&part).await;
        }
    })
    .await;
    let scene = Scene::start(&[member.address]).await;
    let stream = tokio::net::TcpStream::connect(scene.address).await.unwrap();
    let before = resident();
    let (mut read, mut write) = stream.into_split();
    let sending = tokio::spawn(async move {
        let head = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            BLOCKS * 8192
        );
        write.write_all(head.as_bytes()).await.unwrap();
        for number in 0..BLOCKS {
            write.write_all(&pattern(number)).await.unwrap();
        }
        write
    });
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(read.read_u8().await.unwrap());
    }
    let mut hasher = DefaultHasher::new();
    let mut left = BLOCKS * 8192;
    let mut part = vec![0; 8192];
    let mut peak = 0;
    while left > 0 {
        read.read_exact(&mut part).await.unwrap();
        hasher.write(&part);
        left -= part.len() as u64;
        if left.is_multiple_of(1 << 22) {
            peak = peak.max(resident());
        }
    }
    assert_eq!(hasher.finish(), expected());
    sending.await.unwrap();
    // All three parties live in this process; the body is 64 MiB.
    assert!(peak < before + 8 * 1024, "{before} KiB grew to {peak} KiB");
    let totals = scene.state.counters().totals();
    assert!(
        totals.bytes_in > BLOCKS * 8192 && totals.bytes_out > BLOCKS * 8192,
        "{totals:?}"
    );
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
