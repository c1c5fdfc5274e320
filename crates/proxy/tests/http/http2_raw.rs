//! Requests that no HTTP/2 library sends, made of bytes.

use std::sync::Arc;

use landfall_proxy::access_log::{AccessLog, Format, Sample};
use landfall_sys::stream::unacknowledged;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::scene::member::Puppet;
use crate::scene::{Scene, Server, TIMEOUT, until};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    /// An answer with this status, of some that HPACK has a number for, or zero.
    Answer(u16),
    /// The stream was reset.
    Reset,
    /// The connection was ended.
    Ended,
}

/// A frame of the first stream, or of none.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let stream = u8::from(kind == HEADERS);
    let head = [
        length[1], length[2], length[3], kind, flags, 0, 0, 0, stream,
    ];
    [&head[..], payload].concat()
}

/// A field whose name has no number, as it is.
fn field(name: &str, value: &[u8]) -> Vec<u8> {
    let length = |length: usize| u8::try_from(length).ok().filter(|it| *it < 127).unwrap();
    let (name_length, value_length) = (length(name.len()), length(value.len()));
    [
        &[0, name_length][..],
        name.as_bytes(),
        &[value_length],
        value,
    ]
    .concat()
}

/// A `GET` of a path with more fields.
fn get(path: &[u8], more: &[(&str, &[u8])]) -> Vec<u8> {
    let mut block = [&b"\x82\x86"[..], &field(":path", path)].concat();
    block.extend(field(":authority", b"shop"));
    for (name, value) in more {
        block.extend(field(name, value));
    }
    block
}

/// Sends one request that ends with its head.
async fn ask(scene: &Scene, block: &[u8]) -> Came {
    begin(scene, block, 0b101).await
}

/// Sends the head of a request with these flags.
async fn begin(scene: &Scene, block: &[u8], flags: u8) -> Came {
    let mut stream = TcpStream::connect(scene.address).await.unwrap();
    let head = frame(HEADERS, flags, block);
    let request = [PREFACE, &frame(4, 0, b""), &head].concat();
    stream.write_all(&request).await.unwrap();
    let answer = async {
        loop {
            let mut head = [0; 9];
            if stream.read_exact(&mut head).await.is_err() {
                return Came::Ended;
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            stream.read_exact(&mut payload).await.unwrap();
            match head[3] {
                HEADERS => {
                    let number = payload[0].checked_sub(0x88).map(usize::from);
                    let status = number.and_then(|it| [200, 204, 206, 304, 400].get(it).copied());
                    return Came::Answer(status.unwrap_or(0));
                }
                RESET => return Came::Reset,
                GO_AWAY => return Came::Ended,
                _ => {}
            }
        }
    };
    timeout(TIMEOUT, answer).await.expect("something in time")
}

#[tokio::test]
async fn the_last_response_of_a_listener_is_whole_though_its_client_opens_windows() {
    // More than the client's system takes while it does not read, less than the proxy's keeps.
    const SOME: usize = 400 * 1024;
    const WIDE: [u8; 4] = [0x40, 0, 0, 0];
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    let settings = frame(SETTINGS, 0, &[&[0, 4], &WIDE[..]].concat());
    let request = frame(HEADERS, 0b101, &get(b"/", &[]));
    client
        .send(
            [
                PREFACE,
                &settings,
                &frame(WINDOW_UPDATE, 0, &WIDE),
                &request,
            ]
            .concat(),
        )
        .await;
    let mut served = member.accept().await;
    served.request().await.unwrap();
    scene.close().await;
    loop {
        let head = client.exactly(9).await;
        let payload = client.exactly(head[2].into()).await;
        if head[3] == PING {
            client.send(frame(PING, 1, &payload)).await;
            break;
        }
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {SOME}\r\n\r\n");
    served.send(head).await;
    served.send(vec![b'x'; SOME]).await;
    let passed = || scene.state.counters().totals().bytes_out;
    until("passed on", || passed() > SOME as u64).await;
    for _ in 0..200 {
        client
            .try_send(frame(WINDOW_UPDATE, 0, &[0, 0, 0, 1]))
            .await;
        let mut left = || unacknowledged(client.stream()).unwrap();
        until("it has arrived", || left() == 0).await;
    }
    client.finish().await;
    assert!(client.rest().await.len() > SOME);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fragment_in_the_path_of_an_http2_request_is_seen_by_neither_member_nor_log() {
    let mut member = Puppet::start().await;
    let (log, lines) = AccessLog::new(Format::Json, Sample::ALL, false);
    let log = Some(Arc::new(log));
    let scene = Scene::start_logging(log, &[member.address], |_| {}).await;
    let request = get(b"/public#/../private?x", &[]);
    let answers = async {
        let mut served = member.accept().await;
        let head = served.request().await.unwrap().head;
        served
            .send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await;
        head
    };
    let (came, head) = tokio::join!(ask(&scene, &request), answers);
    assert_eq!(came, Came::Answer(200));
    assert!(head.starts_with("GET /public HTTP/1.1\n"), "{head}");
    let line = tokio::task::block_in_place(|| lines.recv_timeout(TIMEOUT)).unwrap();
    let line = String::from_utf8(line).unwrap();
    assert!(line.contains("\"target\":\"/public\""), "{line}");
}

#[tokio::test]
async fn what_http1_could_not_say_reaches_no_member_from_http2() {
    let member = Server::echo("one").await;
    let scene = Scene::start(&[member.address]).await;
    assert_eq!(ask(&scene, &get(b"/", &[])).await, Came::Answer(200));
    for path in [
        &b"/a b"[..],
        b"/ HTTP/1.1\r\nx: y",
        b"/\r\n",
        b"/\0",
        b"/a\x7fb",
        b"",
        b"*",
        b"a",
        b"http://other/",
    ] {
        let came = ask(&scene, &get(path, &[])).await;
        assert_ne!(came, Came::Answer(200), "{}", path.escape_ascii());
    }
    for (name, value) in [
        ("transfer-encoding", &b"chunked"[..]),
        ("connection", b"x"),
        ("keep-alive", b"1"),
        ("proxy-connection", b"x"),
        ("upgrade", b"h2c"),
        ("te", b"chunked"),
        ("Upper", b"x"),
        ("with blank", b"x"),
        ("with:colon", b"x"),
        ("x", b"a\r\ny: z"),
        ("x", b"a\0"),
        ("x\r\ny", b"z"),
        ("content-length", b"1"),
        ("content-length", b"+0"),
        (":path", b"/twice"),
        (":method", b"POST"),
        (":authority", b"twice"),
        (":scheme", b"https"),
        (":status", b"200"),
        (":unknown", b"x"),
        (":protocol", b"websocket"),
        ("", b"x"),
    ] {
        let came = ask(&scene, &get(b"/", &[(name, value)])).await;
        let value = value.escape_ascii();
        assert_ne!(came, Came::Answer(200), "{name:?}: {value}");
    }
    // Less than nothing to programs that know a sign.
    let length = ("content-length", &b"9223372036854775808"[..]);
    let came = begin(&scene, &get(b"/", &[length]), 0b100).await;
    assert_eq!(came, Came::Answer(400));
    assert_eq!(member.requests(), 1);
}
