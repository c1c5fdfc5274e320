//! Clients that do not read what members over HTTP/2 send in small frames.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use landfall_model::listener::{Http, Listener, Mode};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, mpsc};

use crate::http2_flow::{beginning, frame, get, next};
use crate::scene::http2::{Http2Client, Http2Server, TestBody, frames, post, text, whole};
use crate::scene::{Client, Scene, Server, until};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// A body in frames of these lengths, which are counted, and end with the last of them.
struct Pieces {
    lengths: Box<dyn Iterator<Item = usize> + Send + Sync>,
    sent: Arc<AtomicUsize>,
    at: u8,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(length) = self.lengths.next() else {
            return Poll::Ready(None);
        };
        self.sent.fetch_add(1, Ordering::SeqCst);
        self.at = self.at.wrapping_add(1);
        Poll::Ready(Some(Ok(Frame::data(vec![self.at; length].into()))))
    }
}

fn pieces<I>(lengths: I, sent: &Arc<AtomicUsize>) -> TestBody
where
    I: Iterator<Item = usize> + Send + Sync + 'static,
{
    let (lengths, sent) = (Box::new(lengths), sent.clone());
    Pieces {
        lengths,
        sent,
        at: 0,
    }
    .boxed()
}

fn http2(listener: &mut Listener) {
    listener.mode = Mode::Http(Http {
        member_http2: true,
        ..Http::default()
    });
    listener.pool.protection.outlier_failures = Some(1);
}

/// A member that answers what is posted when it may, and anything else in frames of 20 bytes
/// without end, which are counted.
async fn tiny(may: &Arc<Semaphore>, sent: &Arc<AtomicUsize>) -> Http2Server {
    let (may, sent) = (may.clone(), sent.clone());
    Http2Server::start(move |request| {
        let (may, sent) = (may.clone(), sent.clone());
        async move {
            if request.method() == http::Method::POST {
                may.acquire().await.unwrap().forget();
                return Response::new(text("hello"));
            }
            Response::new(pieces(std::iter::repeat(20), &sent))
        }
    })
    .await
}

/// Frames of 20 bytes of which a client that does not read lets no more than this come: what a
/// response may be ahead, in the proxy and in the member.
const AHEAD: usize = 3000;

/// Asks for something else of a member while other clients do not read, and after that.
async fn others_are_served(
    scene: &Scene,
    (member, may): (&Http2Server, &Semaphore),
    stalls: impl AsyncFnOnce(),
) {
    let other = Http2Client::connect(scene.address).await;
    let asked = member.requests();
    // Nothing that could be sent again.
    let asking = tokio::spawn(async move { other.ask(post("/", text("body"))).await.status });
    until("it has asked", || member.requests() > asked).await;
    stalls().await;
    may.add_permits(2);
    assert_eq!(asking.await.unwrap(), 200);
    let other = Http2Client::connect(scene.address).await;
    assert_eq!(other.ask(post("/", text("body"))).await.status, 200);
    let status = &scene.state.pool().status()[0];
    assert!(status.left_out.is_none(), "{status:?}");
    assert_eq!(member.connections(), 1);
}

#[tokio::test]
async fn small_frames_that_a_client_does_not_read_end_no_response() {
    const STREAMS: u32 = 8;
    let (may, sent) = (Arc::new(Semaphore::new(0)), Arc::default());
    let member = tiny(&may, &sent).await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let mut client = scene.client().await;
    let stalls = async || {
        client.send(beginning(0)).await;
        for number in 0..STREAMS {
            client.send(get(2 * number + 1)).await;
        }
        let most = STREAMS as usize * AHEAD;
        until("windows are full", || sent.load(Ordering::SeqCst) > most).await;
    };
    others_are_served(&scene, (&member, &may), stalls).await;
    // It goes on where it stood.
    for stream in [0, 3] {
        let window = (1u32 << 20).to_be_bytes();
        client.send(frame(WINDOW_UPDATE, 0, stream, &window)).await;
    }
    let mut taken = 0;
    while taken < 300_000 {
        match next(&mut client).await {
            (DATA, 3, payload) => taken += payload.len(),
            (RESET, stream, _) => panic!("a reset of {stream} after {taken} bytes"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn small_frames_that_clients_of_http_1_do_not_read_end_no_response() {
    const CLIENTS: usize = 8;
    let (may, sent) = (Arc::new(Semaphore::new(0)), Arc::default());
    let member = tiny(&may, &sent).await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let mut clients: Vec<Client> = Vec::new();
    let stalls = async || {
        for _ in 0..CLIENTS {
            // One for which little waits in the kernel.
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            socket2::SockRef::from(&socket).set_tcp_mss(536).unwrap();
            let mut client = Client::over(socket.connect(scene.address).await.unwrap());
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            clients.push(client);
        }
        until("windows are full", || {
            sent.load(Ordering::SeqCst) > CLIENTS * AHEAD
        })
        .await;
    };
    others_are_served(&scene, (&member, &may), stalls).await;
    assert_eq!(scene.state.pool().status()[0].open as usize, CLIENTS);
}

#[tokio::test]
async fn what_is_read_ahead_reaches_a_client_whole_and_in_order() {
    // Short ones, long ones, and both by turns.
    let lengths = || {
        let short = || std::iter::repeat_n(20, 2000);
        let mixed = (0..200).map(|number| if number % 3 == 0 { 9000 } else { 300 });
        short().chain(mixed).chain(short()).chain([1])
    };
    let sent = Arc::<AtomicUsize>::default();
    let counted = sent.clone();
    let member = Http2Server::start(move |_| {
        let body = pieces(lengths(), &counted);
        async move { Response::new(body) }
    })
    .await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let mut client = scene.client().await;
    client.send(beginning(0)).await;
    client.send(get(1)).await;
    until("it is read ahead", || sent.load(Ordering::SeqCst) > 2000).await;
    for stream in [0, 1] {
        let window = (1u32 << 24).to_be_bytes();
        client.send(frame(WINDOW_UPDATE, 0, stream, &window)).await;
    }
    let mut wanted = Vec::new();
    for (number, length) in lengths().enumerate() {
        wanted.extend(vec![(number + 1) as u8; length]);
    }
    let mut taken = Vec::new();
    while taken.len() < wanted.len() {
        match next(&mut client).await {
            (DATA, 1, payload) => taken.extend(payload),
            (RESET, ..) => panic!("a reset after {} bytes", taken.len()),
            _ => {}
        }
    }
    assert!(taken == wanted);
    let mut old = scene.client().await;
    assert_eq!(old.get("/").await.body, wanted);
}

#[tokio::test]
async fn responses_that_clients_reset_leave_their_connection_in_use() {
    const STREAMS: usize = 120;
    let member = tiny(&Arc::new(Semaphore::new(0)), &Arc::default()).await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let client = Http2Client::connect(scene.address).await;
    for _ in 0..STREAMS {
        let mut body = client.begin(any()).await.unwrap().into_body();
        // While it flows, some of it is on its way.
        let mut taken = 0;
        while taken < 20_000 {
            taken += body
                .frame()
                .await
                .unwrap()
                .unwrap()
                .data_ref()
                .unwrap()
                .len();
        }
    }
    assert_eq!((member.requests(), member.connections()), (STREAMS, 1));
}

fn any() -> http::Request<TestBody> {
    crate::scene::http2::get("/")
}

/// A member that calls `serve` with each connection and the first request on it, and reads on.
async fn member<F>(
    serve: impl Fn(SendResponse<Bytes>) -> F + Clone + Send + Sync + 'static,
    goodbye: bool,
) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let accepted = Arc::<AtomicUsize>::default();
    let counted = accepted.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = socket.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let serve = serve.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_, respond))) = connection.accept().await {
                    tokio::spawn(serve(respond));
                    if goodbye {
                        connection.graceful_shutdown();
                    }
                }
            });
        }
    });
    (address, accepted)
}

#[tokio::test]
async fn a_response_that_its_member_resets_does_not_look_whole() {
    for reason in [Reason::CANCEL, Reason::NO_ERROR, Reason::INTERNAL_ERROR] {
        let taken = Arc::new(Semaphore::new(0));
        let resets = taken.clone();
        let part = move |mut respond: SendResponse<Bytes>| {
            let resets = resets.clone();
            async move {
                let mut body = respond.send_response(Response::new(()), false).unwrap();
                body.send_data(Bytes::from_static(b"part"), false).unwrap();
                resets.acquire().await.unwrap().forget();
                body.send_reset(reason);
            }
        };
        let (address, _) = member(part, false).await;
        let scene = Scene::start_with(&[address], http2).await;
        let client = Http2Client::connect(scene.address).await;
        let mut response = client.begin(any()).await.unwrap();
        response.frame().await.unwrap().unwrap();
        taken.add_permits(1);
        assert!(whole(response).await.is_err(), "{reason:?}");
        let mut old = scene.client().await;
        old.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        while old.line().await != "part" {}
        taken.add_permits(1);
        assert!(old.is_reset().await, "{reason:?}");
    }
}

#[tokio::test]
async fn a_member_that_takes_no_more_requests_gets_the_next_one_on_another_connection() {
    let begun = |mut respond: SendResponse<Bytes>| async move {
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        body.send_data(Bytes::from_static(b"begun"), false).unwrap();
        std::future::pending::<()>().await;
    };
    let (address, accepted) = member(begun, true).await;
    let scene = Scene::start_with(&[address], http2).await;
    let client = Http2Client::connect(scene.address).await;
    let mut kept = Vec::new();
    // The goodbye may come after the next request.
    while accepted.load(Ordering::SeqCst) < 5 {
        let asked = client.begin(post("/", text("body"))).await;
        let mut body = asked.unwrap().into_body();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(&frame.data_ref().unwrap()[..], b"begun");
        kept.push(body);
    }
}

/// A member of one request at a time and of this window for each. It answers at once, and then
/// reads what it gets; sends how each request ended. Counts its connections.
async fn early(window: u32) -> (SocketAddr, mpsc::Receiver<Ended>, Arc<AtomicUsize>) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let (ended, ends) = mpsc::channel(16);
    let accepted = Arc::<AtomicUsize>::default();
    let counted = accepted.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = socket.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let ended = ended.clone();
            tokio::spawn(async move {
                let mut server = h2::server::Builder::new();
                server.initial_window_size(window).max_concurrent_streams(1);
                let mut connection = server.handshake::<_, Bytes>(stream).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let ended = ended.clone();
                    tokio::spawn(async move {
                        respond.send_response(Response::new(()), true).unwrap();
                        let mut body = request.into_body();
                        let mut taken = Vec::new();
                        let end = loop {
                            match body.data().await {
                                None => break Ok(taken),
                                Some(Ok(data)) => taken.extend_from_slice(&data),
                                Some(Err(error)) => break Err(error.reason()),
                            }
                        };
                        ended.send(end).await.unwrap();
                    });
                }
            });
        }
    });
    (address, ends, accepted)
}

/// The content of a request, or why there was no more of it.
type Ended = Result<Vec<u8>, Option<Reason>>;

async fn end(ends: &mut mpsc::Receiver<Ended>) -> Ended {
    tokio::time::timeout(crate::scene::TIMEOUT, ends.recv())
        .await
        .expect("it ends in time")
        .unwrap()
}

#[tokio::test]
async fn a_request_that_goes_on_after_its_response_keeps_its_place() {
    let (address, mut ends, accepted) = early(65_535).await;
    let scene = Scene::start_with(&[address], http2).await;
    let client = Http2Client::connect(scene.address).await;
    let (content, body) = frames();
    content.send(Frame::data("begun".into())).await.unwrap();
    assert_eq!(client.ask(post("/", body)).await.status, 200);
    assert_eq!(client.ask(any()).await.status, 200);
    assert_eq!(end(&mut ends).await, Ok(Vec::new()));
    assert_eq!(accepted.load(Ordering::SeqCst), 2);
    content.send(Frame::data(" and over".into())).await.unwrap();
    drop(content);
    assert_eq!(end(&mut ends).await, Ok(b"begun and over".to_vec()));
    assert_eq!(client.ask(any()).await.status, 200);
    assert_eq!(accepted.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn what_a_member_does_not_take_of_a_request_ends_after_the_response() {
    // None of a request that goes on, and some of one that is whole.
    for window in [0, 1] {
        let (address, mut ends, _) = early(window).await;
        let scene = Scene::start_with(&[address], |listener| {
            http2(listener);
            listener.timeouts.member_data = Duration::from_millis(150);
        })
        .await;
        let client = Http2Client::connect(scene.address).await;
        let (content, body) = frames();
        content.send(Frame::data("begun".into())).await.unwrap();
        let content = (window == 0).then_some(content);
        assert_eq!(client.ask(post("/", body)).await.status, 200);
        assert_eq!(end(&mut ends).await, Err(Some(Reason::CANCEL)), "{window}");
        drop(content);
    }
}

#[tokio::test]
async fn a_request_over_http_1_that_breaks_off_after_its_response_does_not_look_whole() {
    let (address, mut ends, _) = early(65_535).await;
    let scene = Scene::start_with(&[address], http2).await;
    let mut client = scene.client().await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n")
        .await;
    assert_eq!(client.response().await.status, 200);
    assert_eq!(end(&mut ends).await, Err(Some(Reason::CANCEL)));
}

/// How a client's connection ended with an upload in frames of this length that its member does not
/// take: by the reason of a GOAWAY, or not at all.
async fn uploads(length: usize) -> Option<u8> {
    let member = Server::start(|mut conversation| async move {
        // The window of a stream is none.
        let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
        conversation.send(settings).await;
        std::future::pending::<()>().await;
    })
    .await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let mut client = scene.client().await;
    let post = frame(HEADERS, 0x4, 1, &[0x83, 0x84, 0x86, 0x41, 0x01, b'a']);
    client
        .send([beginning(65_535), post, get(3)].concat())
        .await;
    let piece = frame(DATA, 0, 1, &vec![b'x'; length]);
    client.try_send(piece.repeat(60_000 / length)).await;
    client.try_send(frame(PING, 0, 0, &[0; 8])).await;
    loop {
        match next(&mut client).await {
            (GO_AWAY, _, payload) => return Some(payload[7]),
            (PING, ..) => return None,
            _ => {}
        }
    }
}

#[tokio::test]
async fn small_frames_of_an_upload_that_its_member_does_not_take_end_its_clients_connection() {
    const ENHANCE_YOUR_CALM: u8 = 11;
    assert_eq!(uploads(20).await, Some(ENHANCE_YOUR_CALM));
    assert_eq!(uploads(300).await, None);
}
