//! Bytes: whole, in order, and with their ends where they belong.

use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::scene::{Manner, Scene, Server, ended, in_time, read_all, until};

/// More than the receiver's system takes while the receiver does not read, and less than the
/// sender's keeps then.
pub const SOME: usize = 400 * 1024;

#[tokio::test]
async fn a_client_that_has_finished_still_gets_the_answer() {
    let server = Server::start(Manner::Answer(b"all of it".to_vec())).await;
    let scene = Scene::tcp(&[server.address]).await;
    let mut client = scene.client().await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut client).await, b"all of it");
    assert_eq!(server.received(), b"question");
}

#[tokio::test]
async fn a_member_that_has_finished_still_gets_what_the_client_says() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::tcp(&[listener.local_addr().unwrap()]).await;
    let mut client = scene.client().await;
    let (mut member, _) = in_time(listener.accept()).await.unwrap();
    member.write_all(b"bye").await.unwrap();
    member.shutdown().await.unwrap();
    assert_eq!(read_all(&mut client).await, b"bye");
    client.write_all(b"one thing more").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut member).await, b"one thing more");
    until("given back", || scene.status().open == 0).await;
}

#[tokio::test]
async fn what_a_member_said_arrives_though_it_is_gone_when_the_client_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::tcp(&[listener.local_addr().unwrap()]).await;
    let mut client = scene.client().await;
    let (mut member, _) = in_time(listener.accept()).await.unwrap();
    let said = vec![b'm'; SOME];
    in_time(member.write_all(&said)).await.unwrap();
    drop(member);
    until("passed on", || scene.totals().bytes_out == SOME as u64).await;
    // The first byte brings the member's reset, the second meets it, the third meets no member.
    for count in 1..=3 {
        client.write_all(b"c").await.unwrap();
        until("passed in", || scene.totals().bytes_in == count).await;
    }
    assert!(read_all(&mut client).await == said);
    drop(client);
    until("given back", || scene.status().open == 0).await;
}

#[tokio::test]
async fn what_a_client_said_arrives_though_it_is_gone_when_the_member_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::tcp(&[listener.local_addr().unwrap()]).await;
    let mut client = scene.client().await;
    let (mut member, _) = in_time(listener.accept()).await.unwrap();
    let said = vec![b'c'; SOME];
    in_time(client.write_all(&said)).await.unwrap();
    drop(client);
    until("passed in", || scene.totals().bytes_in == SOME as u64).await;
    for count in 1..=3 {
        member.write_all(b"m").await.unwrap();
        until("passed on", || scene.totals().bytes_out == count).await;
    }
    assert!(read_all(&mut member).await == said);
    // It may not go on for ever.
    let deserted = async { while member.write_all(&[b'm'; 1024]).await.is_ok() {} };
    in_time(deserted).await;
    until("given back", || scene.status().open == 0).await;
}

#[tokio::test]
async fn what_a_member_sends_first_reaches_the_client() {
    let server = Server::named("220 ready").await;
    let scene = Scene::tcp(&[server.address]).await;
    assert_eq!(scene.receive().await, b"220 ready");
}

#[tokio::test]
async fn long_streams_pass_whole_both_ways_at_once() {
    const LENGTH: u64 = 64 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::tcp(&[listener.local_addr().unwrap()]).await;
    let (from_client, to_member) = scene.client().await.into_split();
    let (member, _) = in_time(listener.accept()).await.unwrap();
    let (from_member, to_client) = member.into_split();
    let ways = [
        tokio::spawn(write_numbers(to_member, LENGTH, 1)),
        tokio::spawn(write_numbers(to_client, LENGTH, 2)),
        tokio::spawn(read_numbers(from_client, 2)),
        tokio::spawn(read_numbers(from_member, 1)),
    ];
    for way in ways {
        assert_eq!(in_time(way).await.unwrap(), LENGTH);
    }
    until("given back", || scene.status().open == 0).await;
    let totals = scene.totals();
    assert_eq!((totals.bytes_in, totals.bytes_out), (LENGTH, LENGTH));
}

#[tokio::test]
async fn a_receiver_that_pauses_gets_everything_in_the_end() {
    const LENGTH: u64 = 64 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::tcp(&[listener.local_addr().unwrap()]).await;
    let (from_client, _to_member) = scene.client().await.into_split();
    let (member, _) = in_time(listener.accept()).await.unwrap();
    let (_from_member, to_client) = member.into_split();
    let writer = tokio::spawn(write_numbers(to_client, LENGTH, 3));
    // Until nothing moves any more: all buffers on the way are full.
    let mut passed = 0;
    until("full", || {
        let now = scene.totals().bytes_out;
        let rests = now > 0 && now == passed;
        passed = now;
        if !rests {
            std::thread::yield_now();
        }
        rests
    })
    .await;
    assert!(!writer.is_finished());
    assert_eq!(in_time(read_numbers(from_client, 3)).await, LENGTH);
    assert_eq!(in_time(writer).await.unwrap(), LENGTH);
}

#[tokio::test]
async fn small_pieces_are_not_held_back() {
    const ROUNDS: u32 = 50;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::tcp(&[listener.local_addr().unwrap()]).await;
    let mut client = scene.client().await;
    client.set_nodelay(true).unwrap();
    let (mut member, _) = in_time(listener.accept()).await.unwrap();
    member.set_nodelay(true).unwrap();
    // Two pieces each way without an answer between them: held back, each second one would wait for
    // the other side's delayed acknowledgement, 40 ms.
    let start = std::time::Instant::now();
    for _ in 0..ROUNDS {
        for piece in 0..2u8 {
            client.write_all(&[piece]).await.unwrap();
            in_time(member.read_exact(&mut [0])).await.unwrap();
        }
        for piece in 0..2u8 {
            member.write_all(&[piece]).await.unwrap();
            in_time(client.read_exact(&mut [0])).await.unwrap();
        }
    }
    assert!(
        start.elapsed() < Duration::from_millis(35) * ROUNDS,
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn what_is_behind_an_urgent_byte_passes() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp(&[server.address]).await;
    // Copied and spliced, both from the first byte on, so that it is one event.
    for length in [3, 1 << 20] {
        for _ in 0..10 {
            let mut client = scene.client().await;
            let block = vec![b'a'; length];
            let (mut from, mut to) = client.split();
            let says = async {
                to.write_all(&block).await.unwrap();
                SockRef::from(to.as_ref()).send_out_of_band(b"!").unwrap();
                to.write_all(b"def").await.unwrap();
            };
            let mut room = vec![0; length + 3];
            let receives = in_time(from.read_exact(&mut room));
            tokio::join!(says, receives).1.unwrap();
            assert!(room.starts_with(&block) && room.ends_with(b"def"));
        }
    }
}

#[tokio::test]
async fn what_is_between_an_urgent_byte_and_the_end_passes() {
    const LENGTH: usize = 1 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::tcp(&[listener.local_addr().unwrap()]).await;
    for _ in 0..10 {
        let mut client = scene.client().await;
        let (mut member, _) = in_time(listener.accept()).await.unwrap();
        let says = async {
            client.write_all(&vec![b'a'; LENGTH]).await.unwrap();
            SockRef::from(&client).send_out_of_band(b"!").unwrap();
            client.write_all(b"def").await.unwrap();
            client.shutdown().await.unwrap();
        };
        let mut room = Vec::new();
        let receives = async {
            // The end is there before the urgent byte is come to.
            tokio::time::sleep(Duration::from_millis(50)).await;
            in_time(member.read_to_end(&mut room)).await.unwrap();
        };
        tokio::join!(says, receives);
        assert_eq!(room.len(), LENGTH + 3);
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_it_sends_anything_harms_no_member() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp(&[server.address]).await;
    for _ in 0..50 {
        drop(scene.client().await);
    }
    let mut client = scene.settled().await;
    client.shutdown().await.unwrap();
    assert!(ended(&mut client).await);
    until("given back", || {
        scene.status().open == 0 && server.open() == 0
    })
    .await;
}

#[tokio::test]
async fn sockets_that_are_used_again_carry_nothing_over() {
    let server = Server::start(Manner::Answer(b"done".to_vec())).await;
    let scene = Scene::tcp(&[server.address]).await;
    for number in 0..300u32 {
        let mut client = scene.client().await;
        client.write_all(&number.to_be_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(read_all(&mut client).await, b"done");
    }
    let expected: Vec<u8> = (0..300u32).flat_map(u32::to_be_bytes).collect();
    assert_eq!(server.received(), expected);
}

/// Byte `index` of stream `seed`.
fn byte(index: u64, seed: u64) -> u8 {
    let word = (index / 8 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ seed << 20);
    (word >> (8 * (index % 8))) as u8
}

async fn write_numbers(mut to: OwnedWriteHalf, length: u64, seed: u64) -> u64 {
    let mut at = 0;
    while at < length {
        // Pieces of changing sizes, up to 200 KiB.
        let piece = (at * 7 % 200_000 + 1).min(length - at);
        let bytes: Vec<u8> = (at..at + piece).map(|index| byte(index, seed)).collect();
        to.write_all(&bytes).await.unwrap();
        at += piece;
    }
    to.shutdown().await.unwrap();
    at
}

async fn read_numbers(mut from: OwnedReadHalf, seed: u64) -> u64 {
    let mut room = vec![0; 256 * 1024];
    let mut at = 0;
    loop {
        let count = from.read(&mut room).await.unwrap();
        if count == 0 {
            return at;
        }
        for (&got, index) in room[..count].iter().zip(at..) {
            assert_eq!(got, byte(index, seed), "byte {index}");
        }
        at += count as u64;
    }
}
