//! Broken messages of HTTP clients and members: heads and bodies by themselves, and whole
//! connections, which must end, whatever was said.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use landfall_model::Protocol;
use landfall_model::listener::{Http, Listener, Mode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Runtime;

use super::fields::Forwarding;
use super::h1::body::{BadBody, Decoder, Framing, Kind};
use super::h1::head::{FieldBuffer, MAX_FIELDS};
use super::h1::request::RequestHead;
use super::h1::response::ResponseHead;
use super::refusal::Refusal;
use super::*;
use crate::listener::ListenerState;
use landfall_testkit::fuzz::{Random, Seeds, run};

/// Longer than any connection may take that no member serves.
const FOREVER: Duration = Duration::from_secs(3600);

/// A head without fields, split at its line ends: the request line, and two pieces that are empty.
const NO_FIELDS: usize = 3;

const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b": ",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b"#",
    b"*",
    b"?",
    b"://",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"Content-Length: 3\r\n",
    b"Content-Length: +3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Connection: close, x\r\n",
    b"Connection: upgrade\r\nUpgrade: x\r\n",
    b"Expect: 100-continue\r\n",
    b"Host: b\r\n",
    b"X-Forwarded-For: 192.0.2.1\r\n",
    b"0\r\n\r\n",
    b"FFFFFFFFFFFFFFFF\r\n",
    b"5;x=\"y\"\r\nhello\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

fn requests() -> Vec<Vec<u8>> {
    [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a.example:81/x?y HTTP/1.1\r\nHost: b\r\nAccept: */*\r\n\r\n",
        "OPTIONS * HTTP/1.0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: \
        a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: \
        y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade, x-a\r\nUpgrade: websocket\r\nX-A: \
        1\r\n\r\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn forwarding() -> Forwarding {
    let http = Http {
        forwarded_for: true,
        forwarded_proto: true,
        forwarded_port: true,
        ..Http::default()
    };
    Forwarding::new(http, "192.0.2.7:5000".parse().unwrap(), true, 8443)
}

#[test]
fn fuzz_http1_requests() {
    let messages = requests();
    let seeds = Seeds {
        messages: &messages,
        words: WORDS,
        longest: 2 * MAX_HEAD,
    };
    let forwarding = forwarding();
    run("http1-requests", |random| {
        let bytes = random.broken(seeds);
        let mut buffer = FieldBuffer::new();
        let Ok(Some(head)) = RequestHead::read(&bytes, &mut buffer) else {
            return;
        };
        let facts = head.facts();
        assert!(facts.length <= bytes.len());
        // What is written is one request, and the same one, however often it is read.
        let mut out = Vec::new();
        head.write(&forwarding, &mut out);
        let lines = |bytes: &[u8]| bytes.split(|&byte| byte == b'\n').count();
        let mut buffer = FieldBuffer::new();
        let again = match RequestHead::read(&out, &mut buffer) {
            // Beside as many fields as may come there is room for those of the proxy.
            Err(Refusal::HeadTooLarge) if lines(&out) > MAX_FIELDS + NO_FIELDS => return,
            again => again.unwrap().unwrap(),
        };
        assert_eq!(again.facts().length, out.len());
        assert_eq!(again.facts().framing, facts.framing);
        assert_eq!(again.facts().is_head, facts.is_head);
        let mut more = Vec::new();
        again.write(&forwarding, &mut more);
        assert_eq!(lines(&more), lines(&out));
        let _ = head.to_http2(&forwarding);
    });
}

#[test]
fn fuzz_http1_responses() {
    let messages = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\nConnection: x\r\nX: y\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 304 Not Modified\r\nConnection: keep-alive\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ]
    .map(|text| text.as_bytes().to_vec());
    let seeds = Seeds {
        messages: &messages,
        words: WORDS,
        longest: 2 * MAX_HEAD,
    };
    let mut buffer = FieldBuffer::new();
    let upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    let request = RequestHead::read(upgrade, &mut buffer)
        .unwrap()
        .unwrap()
        .facts();
    run("http1-responses", |random| {
        let bytes = random.broken(seeds);
        let mut buffer = FieldBuffer::new();
        if let Ok(Some(head)) = ResponseHead::read(&bytes, &mut buffer, request) {
            assert!(head.facts().length <= bytes.len());
            let _ = head.to_response();
        }
    });
}

/// The content of a body and what follows it, fed in parts.
fn decode(body: &[u8], mut part: impl FnMut() -> usize) -> Result<(Vec<u8>, usize, bool), BadBody> {
    let mut decoder = Decoder::new(Framing::Chunked);
    let (mut content, mut at) = (Vec::new(), 0);
    while at < body.len() && !decoder.is_done() {
        let end = (at + 1 + part()).min(body.len());
        while at < end && !decoder.is_done() {
            let piece = decoder.next(&body[at..end])?;
            assert!((1..=end - at).contains(&piece.length), "no step forward");
            if piece.kind == Kind::Data {
                content.extend_from_slice(&body[at..at + piece.length]);
            }
            at += piece.length;
        }
    }
    let _ = decoder.trailer_section();
    Ok((content, at, decoder.is_done()))
}

#[test]
fn fuzz_chunked_bodies() {
    let messages = [
        "0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX: y\r\n\r\n",
        "4;name=\"v\"\r\nWiki\r\nE\r\n in\r\n\r\nchunks.\r\n0\r\nDigest: x\r\n\r\nGET / \
        HTTP/1.1\r\n",
    ]
    .map(|text| text.as_bytes().to_vec());
    let seeds = Seeds {
        messages: &messages,
        words: WORDS,
        longest: 2 * MAX_HEAD,
    };
    run("chunked-bodies", |random| {
        let body = random.broken(seeds);
        let whole = decode(&body, || body.len());
        // However the bytes come, they mean the same.
        assert_eq!(decode(&body, || random.below(7)), whole);
    });
}

impl ClientStream for DuplexStream {
    fn abort(&mut self) {}

    fn agreed(&self) -> Option<&[u8]> {
        None
    }

    fn ends_by_itself(&self) -> bool {
        true
    }

    fn unacknowledged(&self) -> io::Result<usize> {
        Ok(0)
    }
}

/// A listener without members, on a clock that runs when nothing else does.
struct Place {
    runtime: Runtime,
    front: Arc<Front>,
}

impl Place {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let mut listener = Listener::new(Protocol::Tcp, NonZeroU16::MIN);
        listener.mode = Mode::Http(Http::default());
        let state = ListenerState::of_test([192, 0, 2, 1].into(), &listener);
        let _inside = runtime.enter();
        let front = Arc::new(Front::new(state));
        Self { runtime, front }
    }

    /// Serves a client that says this, in two parts, and then closes or keeps silent.
    fn serve(&self, bytes: &[u8], random: &mut Random) {
        let peer: SocketAddr = "192.0.2.7:5000".parse().unwrap();
        let (early, late) = bytes.split_at(random.below(bytes.len()));
        let (reads, closes) = (random.below(4) > 0, random.below(4) > 0);
        self.runtime.block_on(async {
            let (client, server) = tokio::io::duplex(16 * 1024);
            let (mut from, mut to) = tokio::io::split(client);
            let inbound = self.front.listener().inbound(peer);
            let speak = async {
                let _ = to.write_all(late).await;
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
            tokio::select! {
                () = serve(self.front.clone(), server, inbound, early, ()) => {}
                () = speak => {}
                () = listen => {}
                () = tokio::time::sleep(FOREVER) => panic!("the connection is stuck"),
            }
        });
    }
}

#[test]
fn fuzz_http1_connections() {
    let place = Place::new();
    let messages = requests();
    let seeds = Seeds {
        messages: &messages,
        words: WORDS,
        longest: 2 * MAX_HEAD,
    };
    run("http1-connections", |random| {
        let bytes = random.broken(seeds);
        place.serve(&bytes, random);
    });
}

/// Fields as HPACK writes them: `GET / http a`, from its static table and by name.
const FIELDS: &[&[u8]] = &[
    &[0x82],
    &[0x83],
    &[0x84],
    &[0x86],
    &[0x41, 1, b'a'],
    b"\0\x03abc\x01d",
    b"\x40\x03abc\x01d",
    b"\x0f\x0d\x015",
    &[0x3f, 0xe1, 0x1f],
    &[0xbe],
    &[0xff, 0xff, 0xff, 0xff, 0x7f],
    b"\0\x0aconnection\x05close",
    b"\x44\x02/#",
];

/// A frame that is well formed on the outside.
fn frame(random: &mut Random, out: &mut Vec<u8>) {
    let kind = random.below(11) as u8;
    let stream = [0_u32, 1, 1, 3, 5, 2, 0x7fff_ffff][random.below(7)];
    let flags = [0, 1, 4, 5, 8, 0x20, 0x25, random.byte()][random.below(8)];
    let mut payload = Vec::new();
    match kind {
        1 | 9 => {
            if random.below(2) == 0 {
                payload.extend_from_slice(&[0x82, 0x84, 0x86, 0x41, 1, b'a']);
            }
            for _ in 0..random.below(6) {
                payload.extend_from_slice(random.one(FIELDS));
            }
        }
        3 | 8 => {
            let number = [0, 1, 8, 65_535, 0x7fff_ffff, u32::MAX][random.below(6)];
            payload.extend_from_slice(&number.to_be_bytes());
        }
        4 if flags & 1 == 0 => {
            for _ in 0..random.below(4) {
                payload.extend_from_slice(&(random.below(8) as u16).to_be_bytes());
                let value = [0, 1, 100, 16_384, 65_535, u32::MAX][random.below(6)];
                payload.extend_from_slice(&value.to_be_bytes());
            }
        }
        6 => payload.extend_from_slice(&[7; 8]),
        _ => payload.resize(random.below(40), b'x'),
    }
    let length = (payload.len() as u32).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(&payload);
}

#[test]
fn fuzz_http2_frames() {
    let place = Place::new();
    run("http2-frames", |random| {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
        for _ in 0..random.below(12) {
            frame(random, &mut bytes);
        }
        if random.below(2) == 0 {
            let messages = [bytes];
            let seeds = Seeds {
                messages: &messages,
                words: FIELDS,
                longest: 2 * MAX_HEAD,
            };
            bytes = random.broken(seeds);
        }
        place.serve(&bytes, random);
    });
}
