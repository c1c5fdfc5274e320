//! Members that speak HTTP/2 with prior knowledge, for clients of both kinds.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Frame;
use landfall_model::listener::{Http, Listener, Mode, ProxyProtocol};
use landfall_proxy::counters::Refusal;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::scene::http2::{Http2Client, Http2Server, frames, get, nothing, post, text, whole};
use crate::scene::member::{Conversation, Puppet};
use crate::scene::{Scene, Server, TIMEOUT, closed_address, until};

const HEADERS: u8 = 1;

/// `:status: 204`, as HPACK writes it.
const NO_CONTENT: u8 = 0x89;

fn http2(listener: &mut Listener) {
    listener.mode = Mode::Http(Http {
        forwarded_for: true,
        member_http2: true,
        ..Http::default()
    });
}

#[tokio::test]
async fn a_client_of_http_1_is_served_by_members_of_http_2() {
    let (first, second) = (
        Http2Server::echo("first").await,
        Http2Server::echo("second").await,
    );
    let scene = Scene::start_with(&[first.address, second.address], http2).await;
    let mut client = scene.client().await;
    for name in ["first", "second", "first", "second"] {
        client
            .send(
                "GET /a?b HTTP/1.1\r\nHost: shop.example\r\nConnection: x-mine\r\nX-Mine: \
                  1\r\nX-Own: 1\r\n\r\n",
            )
            .await;
        let response = client.response().await;
        assert_eq!(response.status, 200);
        assert_eq!(response.field("x-member"), Some(name));
        assert_eq!(
            response.text(),
            "GET http://shop.example/a?b\nx-own: 1\nx-forwarded-for: 127.0.0.1\n\n"
        );
    }
    assert_eq!((first.connections(), second.connections()), (1, 1));
}

#[tokio::test]
async fn bodies_and_trailers_pass_from_http_1_to_http_2_and_back() {
    let member = Http2Server::echo("only").await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let mut client = scene.client().await;
    for _ in 0..2 {
        client
            .send(
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \
                  chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\nDigest: d\r\n\r\n",
            )
            .await;
        let response = client.response().await;
        assert!(
            response.text().ends_with("\n\nhello!"),
            "{}",
            response.text()
        );
        assert_eq!(response.trailers, "digest: d\n");
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
            .await;
        assert!(client.response().await.text().ends_with("\n\nabc"));
    }
    client
        .send("POST / HTTP/1.0\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
        .await;
    assert!(client.rest().await.ends_with(b"\n\nabc"));
}

#[tokio::test]
async fn trailers_pass_from_http_2_to_http_2_without_those_that_frame_or_vouch() {
    let member = Http2Server::echo("only").await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let client = Http2Client::connect(scene.address).await;
    let forged = [
        "x-forwarded-for",
        "x-forwarded-client-cert",
        "x_real_ip",
        "authorization",
        "cookie",
    ];
    for (honest, left) in [(&["digest"][..], 1), (&[], 0)] {
        let mut trailers = HeaderMap::new();
        for name in forged.iter().chain(honest) {
            trailers.insert(*name, http::HeaderValue::from_static("v"));
        }
        let (sender, body) = frames();
        tokio::spawn(async move {
            let data = Frame::data(bytes::Bytes::from_static(b"hello"));
            sender.send(data).await.unwrap();
            sender.send(Frame::trailers(trailers)).await.unwrap();
        });
        let answer = client.ask(post("/", body)).await;
        assert!(answer.text().ends_with("\n\nhello"), "{}", answer.text());
        assert_eq!(answer.trailers.len(), left, "{:?}", answer.trailers);
        assert_eq!(answer.trailers.contains_key("digest"), left == 1);
    }
}

#[tokio::test]
async fn a_large_body_passes_from_http_1_to_http_2_and_back() {
    let member = Http2Server::start(|request: Request<_>| async move {
        // Answers while it listens.
        let (sender, body) = frames();
        tokio::spawn(async move {
            let mut incoming: hyper::body::Incoming = request.into_body();
            while let Some(Ok(frame)) = incoming.frame().await {
                if sender.send(frame).await.is_err() {
                    return;
                }
            }
        });
        Response::new(body)
    })
    .await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let mut client = scene.client().await;
    let body: Vec<u8> = (0..4 << 20)
        .map(|number: u32| (number % 251) as u8)
        .collect();
    client
        .send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ))
        .await;
    // A client that does not read would stall everything, by design: so it does both.
    let mut sent = 0;
    let mut received = Vec::new();
    let response = loop {
        let end = (sent + 65_536).min(body.len());
        client.send(&body[sent..end]).await;
        sent = end;
        if sent >= 512 * 1024 {
            break client.head().await;
        }
    };
    assert_eq!(response.status, 200);
    while received.len() < body.len() {
        let end = (sent + 65_536).min(body.len());
        client.send(&body[sent..end]).await;
        sent = end;
        let size = usize::from_str_radix(&client.line().await, 16).unwrap();
        received.extend(client.exactly(size).await);
        assert_eq!(client.line().await, "");
    }
    assert!(received == body);
    assert_eq!(client.line().await, "0");
}

#[tokio::test]
async fn head_and_empty_answers_leave_a_client_of_http_1_connected() {
    let member = Http2Server::start(|request: Request<hyper::body::Incoming>| async move {
        let builder = Response::builder();
        match request.uri().path() {
            "/none" => builder.status(204).body(nothing()).unwrap(),
            _ => builder
                .header("content-length", "5")
                .body(text("hello"))
                .unwrap(),
        }
    })
    .await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let mut client = scene.client().await;
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(
        client.head().await.head,
        "HTTP/1.1 200 OK\ncontent-length: 5\n"
    );
    assert_eq!(client.get("/none").await.head, "HTTP/1.1 204 No Content\n");
    assert_eq!(client.get("/").await.text(), "hello");
}

#[tokio::test]
async fn a_call_of_grpc_shape_passes_in_both_directions_at_once() {
    let member = Http2Server::start(|request: Request<hyper::body::Incoming>| async move {
        assert_eq!(request.headers()["te"], "trailers");
        let (sender, body) = frames();
        tokio::spawn(async move {
            let mut incoming = request.into_body();
            while let Some(Ok(frame)) = incoming.frame().await {
                let Ok(data) = frame.into_data() else { break };
                let upper = Bytes::from(data.to_ascii_uppercase());
                sender.send(Frame::data(upper)).await.unwrap();
            }
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            sender.send(Frame::trailers(trailers)).await.unwrap();
        });
        Response::builder()
            .header("content-type", "application/grpc")
            .body(body)
            .unwrap()
    })
    .await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let client = Http2Client::connect(scene.address).await;
    let (send, body) = frames();
    let request = Request::post("http://shop.example/Call")
        .header("te", "trailers")
        .body(body)
        .unwrap();
    let mut response = client.begin(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/grpc");
    for word in ["one", "two", "three"] {
        send.send(Frame::data(Bytes::from_static(word.as_bytes())))
            .await
            .unwrap();
        let received = response
            .body_mut()
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap();
        assert_eq!(received, word.to_uppercase().as_bytes());
    }
    drop(send);
    let end = whole(response).await.unwrap();
    assert_eq!(
        (end.body.len(), &end.trailers["grpc-status"]),
        (0, &"0".parse().unwrap())
    );
}

#[tokio::test]
async fn many_requests_share_few_connections_to_a_member() {
    let member = Http2Server::echo("only").await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let client = std::sync::Arc::new(Http2Client::connect(scene.address).await);
    let mut asking = JoinSet::new();
    for number in 0..120 {
        let client = client.clone();
        asking.spawn(async move {
            let response = client.ask(post(&format!("/{number}"), text("body"))).await;
            assert!(
                response
                    .text()
                    .starts_with(&format!("POST http://shop.example/{number}\n"))
            );
            assert!(response.text().ends_with("\n\nbody"));
        });
    }
    while let Some(done) = asking.join_next().await {
        done.unwrap();
    }
    assert!((1..=2).contains(&member.connections()));
    assert_eq!(member.requests(), 120);
    until("all are over", || scene.state.pool().status()[0].open == 0).await;
}

#[tokio::test]
async fn clients_that_do_not_read_hold_up_no_others() {
    const SIZE: usize = 4_000_000;
    let member = Http2Server::start(|_| async { Response::new(text(vec![b'x'; SIZE])) }).await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let mut sleepers = Vec::new();
    for number in 0..40 {
        let client = Http2Client::connect(scene.address).await;
        let response = client.begin(get(&format!("/{number}"))).await.unwrap();
        sleepers.push((client, response));
    }
    let client = Http2Client::connect(scene.address).await;
    assert_eq!(client.ask(get("/")).await.body.len(), SIZE);
    assert_eq!(scene.get("/").await.body.len(), SIZE);
    drop(sleepers);
}

#[tokio::test]
async fn a_member_that_takes_few_requests_at_once_gets_more_connections() {
    for (allowed, wanted) in [(100, 4..=5), (10, 25..=27), (1, 250..=256)] {
        let (go, gone) = tokio::sync::watch::channel(false);
        let member = Http2Server::start_allowing(Some(allowed), move |_| {
            let mut gone = gone.clone();
            async move {
                gone.wait_for(|&gone| gone).await.unwrap();
                Response::new(text("ok"))
            }
        })
        .await;
        let scene = Scene::start_with(&[member.address], http2).await;
        let mut asking = JoinSet::new();
        for _ in 0..5 {
            let client = std::sync::Arc::new(Http2Client::connect(scene.address).await);
            for _ in 0..50 {
                let client = client.clone();
                asking.spawn(async move { client.ask(get("/")).await.status });
            }
        }
        // None waits for another's answer.
        until("all have asked", || member.requests() == 250).await;
        assert!(
            wanted.contains(&member.connections()),
            "{}",
            member.connections()
        );
        go.send(true).unwrap();
        while let Some(status) = asking.join_next().await {
            assert_eq!(status.unwrap(), 200);
        }
    }
}

#[tokio::test]
async fn requests_beyond_the_bound_of_connections_are_refused_and_counted() {
    let member = Http2Server::start_allowing(Some(1), |_| std::future::pending()).await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let mut asking = JoinSet::new();
    for _ in 0..4 {
        let client = std::sync::Arc::new(Http2Client::connect(scene.address).await);
        for _ in 0..64 {
            let client = client.clone();
            asking.spawn(async move { client.begin(get("/")).await.map(|_| ()) });
        }
    }
    until("all have asked", || member.requests() == 256).await;
    let response = scene.get("/").await;
    assert_eq!(
        (response.status, response.field("retry-after")),
        (503, Some("5"))
    );
    let refused = scene.state.counters().totals().refused(Refusal::Limit);
    assert_eq!(refused, 1);
    // It is no failure of the member.
    assert_eq!(scene.state.pool().status()[0].totals.connect_failures, 0);
}

/// SETTINGS that allow so many requests at once.
fn settings(allowed: u8) -> Vec<u8> {
    let head = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0];
    [&head[..], &[allowed]].concat()
}

/// Serves a connection: takes no further request with each answer, until it is to do so `again`.
async fn serve_one_each(mut conversation: Conversation, mut again: watch::Receiver<bool>) {
    conversation.send(settings(100)).await;
    let mut preface = [0; 24];
    let mut read = conversation
        .client()
        .stream()
        .read_exact(&mut preface)
        .await;
    while read.is_ok() {
        let shuts = !*again.borrow_and_update();
        tokio::select! {
            _ = conversation.client().stream().peek(&mut preface[..1]) => {}
            _ = again.changed() => {
                conversation.send(settings(100)).await;
                continue;
            }
        }
        let stream = conversation.client().stream();
        let mut head = [0; 9];
        read = stream.read_exact(&mut head).await;
        let mut payload = vec![0; usize::from(head[2])];
        if read.is_ok() {
            read = stream.read_exact(&mut payload).await;
        }
        if read.is_ok() && head[3] == HEADERS {
            let before = if shuts { settings(0) } else { Vec::new() };
            let answer = [0, 0, 1, HEADERS, 0b101, 0, 0, 0, head[8], NO_CONTENT];
            conversation.send([&before[..], &answer].concat()).await;
        }
    }
}

#[tokio::test]
async fn a_member_that_takes_no_requests_gets_few_connections_and_its_clients_an_answer_at_once() {
    let member = Server::start(|mut conversation| async move {
        conversation.send(settings(0)).await;
        std::future::pending::<()>().await;
    })
    .await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let client = Http2Client::connect(scene.address).await;
    for asked in 1..=20 {
        let (old, new) = (scene.get("/").await, client.ask(get("/")).await);
        assert_eq!((old.status, new.status), (503, 503));
        assert_eq!(new.field("retry-after"), Some("5"));
        let refused = scene.state.counters().totals().refused(Refusal::Limit);
        assert_eq!(refused, 2 * asked);
    }
    assert_eq!(member.connections(), 4);
    // It is no failure of the member.
    assert_eq!(scene.state.pool().status()[0].totals.connect_failures, 0);
}

#[tokio::test]
async fn a_member_that_stops_taking_requests_gets_few_connections_until_it_takes_them_again() {
    let (go, again) = watch::channel(false);
    let member = Server::start(move |conversation| serve_one_each(conversation, again.clone()));
    let member = member.await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let mut came = Vec::new();
    for _ in 0..20 {
        came.push(scene.get("/").await.status);
    }
    assert_eq!(came, [&[204; 4][..], &[503; 16]].concat());
    go.send(true).unwrap();
    let served = async { while scene.get("/").await.status != 204 {} };
    timeout(TIMEOUT, served).await.expect("it is used again");
    assert_eq!(member.connections(), 4);
}

#[tokio::test]
async fn a_request_that_one_member_does_not_take_goes_to_another() {
    let shut = Server::start(|mut conversation| async move {
        conversation.send(settings(0)).await;
        std::future::pending::<()>().await;
    })
    .await;
    let member = Http2Server::echo("other").await;
    let scene = Scene::start_with(&[shut.address, member.address], http2).await;
    let client = Http2Client::connect(scene.address).await;
    for _ in 0..10 {
        let answer = client.ask(post("/", text("body"))).await;
        assert!(answer.text().ends_with("\n\nbody"), "{}", answer.text());
        assert_eq!(scene.get("/").await.field("x-member"), Some("other"));
    }
}

#[tokio::test]
async fn failures_of_members_are_reported_to_clients_of_both_kinds() {
    let scene = Scene::start_with(&[closed_address()], http2).await;
    assert_eq!(scene.get("/").await.status, 502);
    assert_eq!(
        Http2Client::connect(scene.address)
            .await
            .ask(get("/"))
            .await
            .status,
        502
    );

    let scene = Scene::start_with(&[], http2).await;
    assert_eq!(scene.get("/").await.status, 503);

    let stuck = Http2Server::start(|_| std::future::pending()).await;
    let scene = Scene::start_with(&[stuck.address], |listener| {
        http2(listener);
        listener.timeouts.member_data = Duration::from_millis(150);
    })
    .await;
    assert_eq!(scene.get("/").await.status, 504);
    assert_eq!(
        Http2Client::connect(scene.address)
            .await
            .ask(get("/"))
            .await
            .status,
        504
    );

    // Speaks HTTP/1, to the great surprise of both.
    let wrong = Server::echo("old").await;
    let scene = Scene::start_with(&[wrong.address], http2).await;
    assert_eq!(scene.get("/").await.status, 502);
}

#[tokio::test]
async fn a_member_that_cannot_be_reached_is_skipped_with_the_whole_body() {
    let member = Http2Server::echo("only").await;
    let scene = Scene::start_with(&[closed_address(), member.address], http2).await;
    let mut old = scene.client().await;
    let new = Http2Client::connect(scene.address).await;
    for _ in 0..4 {
        old.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody")
            .await;
        assert!(old.response().await.text().ends_with("\n\nbody"));
        assert!(
            new.ask(post("/", text("body")))
                .await
                .text()
                .ends_with("\n\nbody")
        );
    }
}

#[tokio::test]
async fn a_broken_body_of_a_client_is_refused_and_not_passed_on_as_whole() {
    let member = Http2Server::echo("only").await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let mut client = scene.client().await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nx\r\n")
        .await;
    let response = client.response().await;
    assert_eq!(
        (response.status, response.field("connection")),
        (400, Some("close"))
    );
}

#[tokio::test]
async fn a_proxy_header_goes_ahead_of_the_preface() {
    let mut member = Puppet::start().await;
    let scene = Scene::start_with(&[member.address], |listener| {
        http2(listener);
        listener.pool.proxy_protocol = Some(ProxyProtocol::V1);
    })
    .await;
    let mut client = scene.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut served = member.accept().await;
    let port = client.address().port();
    assert!(
        served
            .line()
            .await
            .starts_with(&format!("PROXY TCP4 127.0.0.1 127.0.0.1 {port} "))
    );
    assert_eq!(served.line().await, "PRI * HTTP/2.0");
}

#[tokio::test]
async fn a_client_that_waits_for_permission_gets_it() {
    let member = Http2Server::echo("only").await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let mut client = scene.client().await;
    client
        .send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        .await;
    assert_eq!(client.head().await.head, "HTTP/1.1 100 Continue\n");
    client.send("body").await;
    let response = client.response().await;
    assert!(response.text().ends_with("\n\nbody"), "{}", response.text());
    assert!(!response.text().contains("expect"), "{}", response.text());
}

#[tokio::test]
async fn a_client_of_http_1_that_leaves_takes_its_request_from_the_member() {
    let (begun, mut news) = tokio::sync::mpsc::channel(1);
    let member = Http2Server::start(move |_| {
        let begun = begun.clone();
        async move {
            // Dropped when the request is taken away.
            let (_held, gone) = tokio::sync::oneshot::channel::<()>();
            begun.send(gone).await.unwrap();
            std::future::pending().await
        }
    })
    .await;
    let scene = Scene::start_with(&[member.address], http2).await;
    let mut client = scene.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let gone = news.recv().await.unwrap();
    drop(client);
    let gone = tokio::time::timeout(crate::scene::TIMEOUT, gone).await;
    assert!(gone.expect("the request ends").is_err());
    until("the member is free", || {
        scene.state.pool().status()[0].open == 0
    })
    .await;
}
