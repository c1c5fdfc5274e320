//! Members over HTTP/2 that say one thing without end, beside one that serves.

use std::time::Duration;

use landfall_model::listener::{Http, Mode};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::http2_flow::frame;
use crate::scene::http2::Http2Server;
use crate::scene::{Scene, Server, TIMEOUT};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Bytes of a flood.
const FLOOD: usize = 1 << 20;

/// What is said once, and what is said then again and again.
struct Flood {
    name: &'static str,
    first: Vec<u8>,
    then: Vec<u8>,
}

fn flood(name: &'static str, first: Vec<u8>, then: Vec<u8>) -> Flood {
    Flood { name, first, then }
}

/// The head of a response to the first request.
fn head() -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 1, &[0x88])
}

fn floods() -> Vec<Flood> {
    let none = Vec::new;
    let window = |size: u8| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, size, 0]);
    let most = [0x7f, 0xff, 0xff, 0xff];
    let away = [&most[..], &[0; 4]].concat();
    let long = [&b"\x40\x01x\x7f\x81\x16"[..], &[b'v'; 2_944]].concat();
    let fields = [&[0x88], &long[..], &[0xbe; 10_000]].concat();
    vec![
        flood("PING", none(), frame(PING, 0, 0, &[7; 8])),
        flood("answers to no PING", none(), frame(PING, 1, 0, &[7; 8])),
        flood("SETTINGS", none(), [window(1), window(2)].concat()),
        flood("answers to no SETTINGS", none(), frame(SETTINGS, 1, 0, &[])),
        flood("GOAWAY", none(), frame(GO_AWAY, 0, 0, &away)),
        flood("WINDOW_UPDATE", none(), frame(WINDOW_UPDATE, 0, 0, &most)),
        flood(
            "windows of a stream",
            none(),
            frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        ),
        flood("RST_STREAM", none(), frame(RESET, 0, 1, &[0, 0, 0, 8])),
        flood(
            "resets after the end",
            frame(HEADERS, 5, 1, &[0x89]),
            frame(RESET, 0, 1, &[0; 4]),
        ),
        flood(
            "CONTINUATION",
            frame(HEADERS, 0, 1, &[0x88]),
            frame(CONTINUATION, 0, 1, &[]),
        ),
        flood("fields", none(), frame(HEADERS, END_HEADERS, 1, &fields)),
        flood(
            "interim responses",
            none(),
            frame(HEADERS, END_HEADERS, 1, b"\x08\x03103"),
        ),
        flood(
            "trailers",
            head(),
            frame(HEADERS, END_HEADERS, 1, b"\0\x01x\x01y"),
        ),
        flood("empty DATA", head(), frame(DATA, 0, 1, &[])),
        flood("DATA of a byte", head(), frame(DATA, 0, 1, b"x")),
        flood(
            "DATA after the end",
            head(),
            frame(DATA, END_STREAM, 1, b"x"),
        ),
        flood(
            "other responses",
            none(),
            frame(HEADERS, END_HEADERS, 99, &[0x88]),
        ),
        flood(
            "pushes",
            none(),
            frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x82]),
        ),
        flood("unknown frames", none(), frame(77, 0xff, 1, &[])),
    ]
}

/// A member that answers the first request of each connection with a flood.
async fn hostile(flood: &Flood) -> Server {
    let bytes = flood.then.repeat(FLOOD / flood.then.len());
    let bytes = [&flood.first[..], &bytes].concat();
    Server::start(move |mut conversation| {
        let bytes = bytes.clone();
        async move {
            conversation.send(frame(SETTINGS, 0, 0, &[])).await;
            let client = conversation.client();
            client.exactly(24).await;
            loop {
                let head = client.exactly(9).await;
                client.exactly(usize::from(head[2])).await;
                if head[3] == HEADERS {
                    break;
                }
            }
            conversation.send(&bytes).await;
            std::future::pending::<()>().await;
        }
    })
    .await
}

#[tokio::test]
async fn whatever_a_member_of_http_2_says_without_end_clients_of_others_are_served() {
    for flood in floods() {
        let (hostile, other) = (hostile(&flood).await, Http2Server::echo("other").await);
        let scene = Scene::start_with(&[hostile.address, other.address], |listener| {
            listener.mode = Mode::Http(Http {
                member_http2: true,
                ..Http::default()
            });
            listener.timeouts.member_data = Duration::from_millis(300);
        })
        .await;
        let mut served = 0;
        for _ in 0..3 {
            // Each member has one of them.
            let (first, second) = tokio::join!(scene.client(), scene.client());
            for mut client in [first, second] {
                client
                    .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                    .await;
                // One of the hostile member may break off.
                let mut answer = Vec::new();
                let read = client.stream().read_to_end(&mut answer);
                let _ = timeout(TIMEOUT, read).await.expect("it ends in time");
                served += usize::from(
                    answer.starts_with(b"HTTP/1.1 200 ") && {
                        let marks = answer.windows(15);
                        marks.into_iter().any(|it| it == b"x-member: other")
                    },
                );
            }
        }
        assert!(served >= 3, "{}: {served}", flood.name);
        assert!(hostile.connections() > 0);
    }
}
