//! Members that speak broken or hostile HTTP/2 to requests under way, each of which must end, and
//! leave nothing behind.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use hyper::body::Frame;
use landfall_model::Protocol;
use landfall_model::listener::{Http, Listener, Member, Mode, Timeouts};
use landfall_testkit::fuzz::{Random, Seeds, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::driver;
use super::links::Link;
use crate::http::content::{BodyFailed, RequestContent};
use crate::http::over_http2::{self, Sent as Asked};
use crate::listener::ListenerState;
use crate::pool::Lease;

/// Longer than anything may take for a member that does not answer.
const FOREVER: Duration = Duration::from_secs(3600);

/// As long as a connection may take to open.
const OPENS: Duration = Duration::from_secs(5);

/// What the frames of both directions begin with.
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

/// Fields of responses as HPACK writes them: statuses, lengths, and what is no field of a response.
const FIELDS: &[&[u8]] = &[
    &[0x88],
    &[0x89],
    &[0x8b],
    b"\x08\x03100",
    b"\x08\x03103",
    b"\x08\x03101",
    b"\x08\x03999",
    b"\x08\x01x",
    b"\0\x03abc\x01d",
    b"\x40\x03abc\x01d",
    b"\x0f\x0d\x015",
    b"\x0f\x0d\x010",
    b"\x0f\x0d\x02+5",
    b"\0\x0aconnection\x05close",
    b"\0\x02te\x08trailers",
    b"\0\x01A\x01b",
    b"\0\x07:method\x01b",
    &[0x82],
    &[0x3f, 0xe1, 0x1f],
    &[0x20],
    &[0xbe],
    &[0xff, 0xff, 0xff, 0xff, 0x7f],
];

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const PUSH_PROMISE: u8 = 5;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// One frame; a length of more than 24 bits does not occur.
fn write(out: &mut Vec<u8>, (kind, flags, stream): (u8, u8, u32), payload: &[u8]) {
    let length = (payload.len() as u32).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// A field that is long, and may be named again by a byte.
fn long_field(random: &mut Random) -> Vec<u8> {
    let length = [127, 3_000, 16_000, 40_000][random.below(4)];
    let mut field = vec![[0, 0x40][random.below(2)], 1, b'x', 0x7f];
    let mut rest = length - 127;
    while rest >= 128 {
        field.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    field.push(rest as u8);
    field.resize(field.len() + length, b'v');
    field
}

fn block(random: &mut Random) -> Vec<u8> {
    let mut block = Vec::new();
    if random.below(4) > 0 {
        block.push(0x88);
    }
    for _ in 0..random.below(4) {
        block.extend_from_slice(random.one(FIELDS));
    }
    if random.below(16) == 0 {
        block.extend(long_field(random));
        let again = [0, 1, 20, 3_000][random.below(4)];
        block.resize(block.len() + again, 0xbe);
    }
    block
}

/// A block of fields in HEADERS and as many CONTINUATION frames as it takes or may not take.
fn fields(random: &mut Random, out: &mut Vec<u8>, stream: u32) {
    let block = block(random);
    let part = [1, 10, 16_384, 16_384][random.below(4)];
    let ends = [0, END_STREAM][random.below(2)];
    let mut parts = block.chunks(part).peekable();
    let mut head = (HEADERS, ends, stream);
    while let Some(part) = parts.next() {
        if parts.peek().is_none() && random.below(32) > 0 {
            head.1 |= END_HEADERS;
        }
        write(out, head, part);
        head = (CONTINUATION, 0, stream);
    }
}

fn data(random: &mut Random, out: &mut Vec<u8>, stream: u32) {
    let length = [0, 0, 1, 5, 300, 4_095, 4_096, 16_384][random.below(8)];
    let flags = [0, 0, 0, END_STREAM, 8, 9][random.below(6)];
    let mut payload = vec![b'x'; length];
    if flags & 8 != 0 && random.below(4) > 0 {
        payload.splice(0..0, [random.below(4) as u8]);
        payload.resize(payload.len() + 3, 0);
    }
    write(out, (DATA, flags, stream), &payload);
}

/// A frame that is well formed on the outside.
fn any(random: &mut Random, out: &mut Vec<u8>, stream: u32) {
    let kind = random.below(11) as u8;
    let flags = [0, 0, 1, 4, 5, 8, 0x20, random.byte()][random.below(8)];
    // What concerns the connection is on none, mostly.
    let none = matches!(kind, 4 | 6 | 7) && random.below(16) > 0;
    let stream = if none { 0 } else { stream };
    let number = [0, 1, 3, 8, 65_535, 0x7fff_ffff, u32::MAX][random.below(7)].to_be_bytes();
    let mut payload = Vec::new();
    match kind {
        HEADERS | CONTINUATION => payload = block(random),
        RESET | WINDOW_UPDATE => payload.extend_from_slice(&number),
        PUSH_PROMISE => {
            payload.extend_from_slice(&[0, 0, 0, 2 * random.below(3) as u8]);
            payload.extend(block(random));
        }
        4 if flags & 1 == 0 => {
            for _ in 0..random.below(4) {
                payload.extend_from_slice(&(random.below(10) as u16).to_be_bytes());
                let value = [0, 1, 100, 16_384, 65_535, 0x7fff_ffff, u32::MAX][random.below(7)];
                payload.extend_from_slice(&value.to_be_bytes());
            }
        }
        4 => {}
        6 => payload.extend_from_slice(&[7; 8]),
        GO_AWAY => {
            payload.extend_from_slice(&number);
            payload.extend_from_slice(&[0, 0, 0, random.below(14) as u8]);
            payload.resize(payload.len() + random.below(40), b'x');
        }
        _ => payload.resize(random.below(40), b'x'),
    }
    payload.truncate(16_384);
    write(out, (kind, flags, stream), &payload);
}

/// Where a response is that a member sends.
#[derive(Clone, Copy, PartialEq)]
enum Sent {
    Nothing,
    Head,
    All,
}

/// The next frame of a response in order.
fn response(random: &mut Random, out: &mut Vec<u8>, stream: u32, sent: Sent) -> Sent {
    let ends = random.below(8) == 0;
    match sent {
        Sent::Nothing => {
            let mut block = random
                .one(&[&b"\x88"[..], b"\x88", b"\x89", b"\x08\x03103"])
                .to_vec();
            let is_interim = block.len() > 1;
            for _ in 0..random.below(3) {
                block.extend_from_slice(random.one(&[b"\0\x03abc\x01d", b"\x40\x03abc\x01d"]));
            }
            let end = u8::from(ends && !is_interim);
            write(out, (HEADERS, END_HEADERS | end, stream), &block);
            match (is_interim, ends) {
                (true, _) => Sent::Nothing,
                (false, true) => Sent::All,
                (false, false) => Sent::Head,
            }
        }
        Sent::Head if ends && random.below(2) == 0 => {
            write(
                out,
                (HEADERS, END_HEADERS | END_STREAM, stream),
                b"\0\x03abc\x01d",
            );
            Sent::All
        }
        Sent::Head => {
            let length = [0, 1, 5, 300, 4_095, 4_096, 16_384][random.below(7)];
            write(out, (DATA, u8::from(ends), stream), &vec![b'x'; length]);
            if ends { Sent::All } else { Sent::Head }
        }
        Sent::All => sent,
    }
}

/// What a member says after its SETTINGS: responses to so many requests, mostly, and anything.
fn frames(random: &mut Random, requests: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sent = vec![Sent::Nothing; requests];
    let hostile = [1, 8, 32, 64][random.below(4)];
    for _ in 0..random.below(24) {
        let at = random.below(requests);
        let before = out.len();
        if random.below(hostile) > 0 {
            sent[at] = response(random, &mut out, 2 * at as u32 + 1, sent[at]);
        } else {
            let stream = [1, 1, 1, 3, 5, 7, 9, 2, 0, 0x7fff_ffff][random.below(10)];
            match random.below(5) {
                0 => fields(random, &mut out, stream),
                1 => data(random, &mut out, stream),
                _ => any(random, &mut out, stream),
            }
        }
        // A flood of it, beyond every number that is counted to.
        if random.below(400) == 0 {
            let times = [20, 120, 1_100, 5_000][random.below(4)];
            let last = out.split_off(before);
            let times = times.min(256 * 1024 / last.len().max(1));
            out.extend(last.repeat(times));
        }
    }
    out
}

/// Where requests begin, on a clock that runs when nothing else does.
struct Place {
    runtime: Runtime,
    listener: Arc<ListenerState>,
}

/// What becomes of one request.
#[derive(Clone, Copy)]
struct Way {
    /// Frames of content, each of so many bytes.
    frames: usize,
    length: usize,
    /// How the content ends: with trailers, a failure, or not before long.
    end: usize,
    /// When the client goes, and how long it takes for each frame of the response.
    leaves: Option<Duration>,
    pause: Option<Duration>,
    is_head: bool,
}

impl Way {
    fn any(random: &mut Random) -> Self {
        let instants = [0, 1, 50, 20_000].map(Duration::from_millis);
        Self {
            frames: [0, 0, 1, 2, 40][random.below(5)],
            length: [0, 1, 700, 16_384][random.below(4)],
            end: random.below(6),
            leaves: (random.below(4) == 0).then(|| instants[random.below(4)]),
            pause: (random.below(4) == 0).then(|| instants[random.below(4)]),
            is_head: random.below(16) == 0,
        }
    }

    /// Asks a member for something, and takes what comes.
    async fn ask(self, link: Link, lease: Lease) {
        let asked = self.exchange(link, lease);
        match self.leaves {
            Some(leaves) => drop(timeout(leaves, asked).await),
            None => asked.await,
        }
    }

    async fn exchange(self, link: Link, lease: Lease) {
        let (sender, received) = mpsc::channel(1);
        let content = if self.frames == 0 {
            RequestContent::empty()
        } else {
            RequestContent::channel(received, None)
        };
        let mut request = Request::new(content);
        if self.is_head {
            *request.method_mut() = Method::HEAD;
        }
        *request.uri_mut() = http::Uri::from_static("http://shop.example/");
        *request.version_mut() = http::Version::HTTP_2;
        let asked = over_http2::send(link, lease, request, Timeouts::default());
        tokio::join!(self.send(sender), self.receive(asked));
    }

    async fn send(self, sender: mpsc::Sender<Result<Frame<Bytes>, BodyFailed>>) {
        for _ in 0..self.frames {
            let frame = Frame::data(Bytes::from(vec![b'x'; self.length]));
            if sender.send(Ok(frame)).await.is_err() {
                return;
            }
        }
        let end = match self.end {
            0 => Ok(Frame::trailers(HeaderMap::new())),
            1 => Err(BodyFailed::Client),
            2 => {
                sleep(Duration::from_secs(60)).await;
                return;
            }
            _ => return,
        };
        let _ = sender.send(end).await;
    }

    async fn receive(self, asked: impl Future<Output = Asked>) {
        let Asked::Response(response) = asked.await else {
            return;
        };
        assert!(response.status().as_u16() >= 200);
        let mut body = response.into_body();
        while let Some(Ok(_)) = body.frame().await {
            if let Some(pause) = self.pause {
                sleep(pause).await;
            }
        }
    }
}

impl Place {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let mut listener = Listener::new(Protocol::Tcp, NonZeroU16::MIN);
        listener.mode = Mode::Http(Http {
            member_http2: true,
            ..Http::default()
        });
        listener.pool.members = vec![Member::new("192.0.2.9:80".parse().unwrap())];
        Self {
            runtime,
            listener: ListenerState::of_test([192, 0, 2, 1].into(), &listener),
        }
    }

    /// Has a member answer so many requests: with `opening`, and with these bytes after them.
    fn serve(&self, requests: usize, opening: &[u8], bytes: &[u8], random: &mut Random) {
        self.runtime.block_on(async {
            let room = if random.below(64) == 0 {
                64
            } else {
                [1_024, 65_536][random.below(2)]
            };
            let (near, far) = tokio::io::duplex(room);
            let (reads, closes) = (random.below(4) > 0, random.below(4) > 0);
            let (early, late) = bytes.split_at(random.below(bytes.len() + 1));
            let (early, late) = (early.to_vec(), late.to_vec());
            let opening = opening.to_vec();
            let ways: Vec<_> = (0..requests).map(|_| Way::any(random)).collect();
            let member = tokio::spawn(act(far, [opening, early, late], reads, closes));
            let asked = timeout(FOREVER, self.ask(near, &ways)).await;
            asked.expect("something is stuck");
            member.abort();
            let _ = member.await;
            assert_eq!(self.listener.pool().status()[0].open, 0);
            // What was begun for a request ends without it.
            sleep(FOREVER).await;
            assert_eq!(self.runtime.metrics().num_alive_tasks(), 0);
        });
    }

    async fn ask(&self, near: DuplexStream, ways: &[Way]) {
        let Ok(Ok((sender, driver, _))) = timeout(OPENS, driver::open(near, None)).await else {
            return;
        };
        let closing = CancellationToken::new();
        let driver = tokio::spawn(driver.run(closing.clone(), |_| {}, || true));
        let mut asking = JoinSet::new();
        for way in ways {
            let client = "192.0.2.7:5000".parse().unwrap();
            let lease = self.listener.pool().take(client, &[]).await.unwrap();
            asking.spawn(way.ask(Link::by(sender.clone()), lease));
        }
        asking.join_all().await;
        drop(sender);
        closing.cancel();
        let _ = driver.await.expect("a panic");
    }
}

/// Plays a member: opens, and then says the rest in two parts, with time for the other side.
async fn act(far: DuplexStream, said: [Vec<u8>; 3], reads: bool, closes: bool) {
    let (mut from, mut to) = tokio::io::split(far);
    let speak = async {
        for bytes in said {
            let _ = to.write_all(&bytes).await;
            sleep(Duration::from_millis(1)).await;
        }
        if closes {
            let _ = to.shutdown().await;
        }
        std::future::pending::<()>().await;
    };
    let listen = async {
        let mut buffer = [0; 4096];
        while reads && !matches!(from.read(&mut buffer).await, Ok(0) | Err(_)) {}
        std::future::pending::<()>().await;
    };
    tokio::join!(speak, listen);
}

#[test]
fn fuzz_http2_members() {
    let place = Place::new();
    run("http2-members", |random| {
        let mut opening = SETTINGS.to_vec();
        if random.below(4) == 0 {
            opening.clear();
            let allowed = [0, 1, 2, 100][random.below(4)];
            write(&mut opening, (4, 0, 0), &[0, 3, 0, 0, 0, allowed]);
        }
        let requests = 1 + random.below(4);
        let mut bytes = frames(random, requests);
        match random.below(8) {
            0 => opening = std::mem::take(&mut bytes),
            1 | 2 if !bytes.is_empty() => {
                let messages = [bytes];
                let seeds = Seeds {
                    messages: &messages,
                    words: FIELDS,
                    longest: 256 * 1024,
                };
                bytes = random.broken(seeds);
            }
            _ => {}
        }
        place.serve(requests, &opening, &bytes, random);
    });
}
