//! HTTP/2 clients that ask for much and take little, played frame by frame.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::scene::{Client, Scene, Server, until};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

/// One HTTP/2 frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `GET / HTTP/1.1` in HTTP/2, at "a".
pub fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, 0x5, stream, &[0x82, 0x84, 0x86, 0x41, 0x01, b'a'])
}

/// The beginning of a connection whose streams have this window.
pub fn beginning(window: u32) -> Vec<u8> {
    let window = [&[0, 4][..], &window.to_be_bytes()].concat();
    [PREFACE, &frame(SETTINGS, 0, 0, &window)].concat()
}

/// The next frame: its kind, stream and payload.
pub async fn next(client: &mut Client) -> (u8, u32, Vec<u8>) {
    let head = client.exactly(9).await;
    rest(client, &head).await
}

async fn rest(client: &mut Client, head: &[u8]) -> (u8, u32, Vec<u8>) {
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    (head[3], stream, client.exactly(length).await)
}

/// Answers every request with so many bytes.
async fn large(bytes: usize) -> Server {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
    Server::fixed([head.as_bytes(), &vec![b'x'; bytes]].concat(), false).await
}

async fn impatient(member: &Server) -> Scene {
    Scene::start_with(&[member.address], |listener| {
        listener.timeouts.client_data = Duration::from_millis(600);
    })
    .await
}

/// Reads on until each of these streams was reset, and does something whenever a frame has come.
async fn resets(client: &mut Client, streams: &[u32]) -> usize {
    let mut left: BTreeSet<u32> = streams.iter().copied().collect();
    let mut taken = 0;
    while !left.is_empty() {
        match next(client).await {
            (RESET, stream, reason) => {
                assert_eq!(reason, 8u32.to_be_bytes(), "the reason of stream {stream}");
                assert!(left.remove(&stream));
            }
            (DATA, _, payload) => taken += payload.len(),
            _ => {}
        }
    }
    taken
}

#[tokio::test]
async fn a_client_that_never_opens_its_window_loses_its_streams() {
    let member = large(1 << 20).await;
    let scene = impatient(&member).await;
    let mut client = scene.client().await;
    client.send(beginning(0)).await;
    let streams: Vec<u32> = (0..50).map(|number| 2 * number + 1).collect();
    for &stream in &streams {
        client.send(get(stream)).await;
    }
    until("all have asked", || member.requests() == 50).await;
    // What else it says does not help.
    client.send(frame(PING, 0, 0, &[1; 8])).await;
    assert_eq!(resets(&mut client, &streams).await, 0);
    let open = || scene.state.pool().status()[0].open;
    until("the member is free", || open() == 0).await;
    // It is still a client like any other.
    client
        .send(frame(WINDOW_UPDATE, 0, 0, &(1u32 << 20).to_be_bytes()))
        .await;
    client.send(get(101)).await;
    client
        .send(frame(WINDOW_UPDATE, 0, 101, &(1u32 << 21).to_be_bytes()))
        .await;
    let mut taken = 0;
    while taken < 1 << 20 {
        if let (DATA, 101, payload) = next(&mut client).await {
            taken += payload.len();
        }
    }
}

#[tokio::test]
async fn a_window_that_opens_by_a_byte_at_a_time_does_not_keep_a_stream() {
    let member = large(1 << 20).await;
    let scene = impatient(&member).await;
    let mut client = scene.client().await;
    client.send(beginning(0)).await;
    client.send(get(1)).await;
    let mut taken = 0;
    loop {
        // A byte more whenever nothing has come for a moment.
        match tokio::time::timeout(Duration::from_millis(20), client.exactly(9)).await {
            Ok(head) => match rest(&mut client, &head).await {
                (RESET, 1, _) => break,
                (DATA, 1, payload) => taken += payload.len(),
                _ => {}
            },
            Err(_) => {
                client
                    .try_send(frame(WINDOW_UPDATE, 0, 1, &1u32.to_be_bytes()))
                    .await;
            }
        }
        assert!(taken < 1024, "{taken} bytes are no trickle");
    }
}

#[tokio::test]
async fn a_response_that_was_handed_over_and_is_not_taken_ends_the_connection() {
    let member = large(10_000).await;
    let scene = impatient(&member).await;
    let mut client = scene.client().await;
    client.send(beginning(1)).await;
    client.send(get(1)).await;
    until("it has asked", || member.requests() == 1).await;
    let mut ping = 0u64;
    while client
        .stream()
        .try_write(&frame(PING, 0, 0, &ping.to_be_bytes()))
        .is_ok()
    {
        ping += 1;
        assert!(ping < 2000, "the connection ends");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_client_learns_how_many_requests_it_may_send_at_once() {
    let member = Server::start(|mut conversation| async move {
        conversation.request().await;
        conversation.request().await;
    })
    .await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client.send(beginning(65_535)).await;
    for number in 0..130 {
        client.send(get(2 * number + 1)).await;
    }
    let mut refused = 0;
    while refused < 30 {
        match next(&mut client).await {
            (RESET, _, reason) => {
                assert_eq!(reason, 7u32.to_be_bytes(), "it may ask again later");
                refused += 1;
            }
            (SETTINGS, _, settings) => assert!(
                settings.is_empty()
                    || settings
                        .chunks(6)
                        .any(|setting| setting == [0, 3, 0, 0, 0, 100])
            ),
            _ => {}
        }
    }
    until("the others have asked", || member.connections() == 100).await;
}

#[tokio::test]
async fn a_path_is_a_path() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[member.address]).await;
    for (method, path, status) in [
        ("GET", "?x", 400),
        ("GET", "*", 400),
        ("OPTIONS", "*", 200),
        ("OPTIONS", "?*", 400),
        ("GET", "/?x", 200),
    ] {
        let mut client = scene.client().await;
        client.send(beginning(65_535)).await;
        // Names and values as they are: no Huffman code, nothing for the table.
        let literal = |name: &str, value: &str| {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            [
                &[0, name.len() as u8][..],
                name,
                &[value.len() as u8],
                value,
            ]
            .concat()
        };
        let fields = [
            literal(":method", method),
            literal(":path", path),
            literal(":scheme", "http"),
            literal(":authority", "a"),
        ]
        .concat();
        client.send(frame(HEADERS, 0x5, 1, &fields)).await;
        let answered = loop {
            if let (HEADERS, 1, fields) = next(&mut client).await {
                break fields[0];
            }
        };
        // The first field is the status: 8 and 12 in the static table are 200 and 400.
        let wanted = if status == 200 { 0x88 } else { 0x8c };
        assert_eq!(answered, wanted, "{method} {path}");
    }
}
