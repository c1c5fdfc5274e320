//! HTTP/2 clients, and members that speak HTTP/1.1.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use landfall_model::listener::{Mode, ProxyProtocol};
use landfall_proxy::counters::Refusal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::scene::http2::{
    Http2Client, certificates, frames, get, nothing, post, text, tls, whole,
};
use crate::scene::member::Puppet;
use crate::scene::{Client, EVERYTHING, Scene, Server, closed_address, until};

#[tokio::test]
async fn requests_of_one_connection_are_spread_over_the_members() {
    let (first, second) = (Server::echo("first").await, Server::echo("second").await);
    let scene = Scene::start(&[first.address, second.address]).await;
    let client = Http2Client::connect(scene.address).await;
    let mut names = Vec::new();
    for _ in 0..6 {
        names.push(
            client
                .ask(get("/"))
                .await
                .field("x-member")
                .unwrap()
                .to_owned(),
        );
    }
    assert_eq!(
        names,
        ["first", "second", "first", "second", "first", "second"]
    );
    assert_eq!((first.connections(), second.connections()), (1, 1));
}

#[tokio::test]
async fn members_see_an_ordinary_request_and_learn_about_the_client() {
    let member = Server::echo("only").await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.mode = Mode::Http(EVERYTHING);
    })
    .await;
    let client = Http2Client::connect(scene.address).await;
    let request = Request::get("http://shop.example:81/a?b=c")
        .header("cookie", "a=1")
        .header("x-forwarded-for", "198.51.100.1")
        .header("te", "trailers")
        .header("expect", "100-continue")
        .header("cookie", "b=2")
        .header("x-own", "1")
        .body(nothing())
        .unwrap();
    let response = client.ask(request).await;
    let seen = response.text();
    assert!(
        seen.starts_with("GET /a?b=c HTTP/1.1\nhost: shop.example:81\n"),
        "{seen}"
    );
    let mut fields: Vec<_> = seen
        .lines()
        .skip(2)
        .filter(|line| !line.is_empty())
        .collect();
    fields.sort_unstable();
    let port = format!("x-forwarded-port: {}", scene.address.port());
    assert_eq!(
        fields,
        [
            "cookie: a=1; b=2",
            "x-forwarded-for: 198.51.100.1, 127.0.0.1",
            port.as_str(),
            "x-forwarded-proto: http",
            "x-own: 1",
        ]
    );
}

#[tokio::test]
async fn alpn_decides_what_is_spoken_over_tls() {
    let member = Server::echo("only").await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.mode = Mode::Https {
            http: EVERYTHING,
            certificates: certificates("shop.example"),
        };
    })
    .await;
    let client = Http2Client::over(tls(scene.address, &["h2", "http/1.1"]).await).await;
    let response = client.ask(get("/")).await;
    assert!(
        response.text().contains("x-forwarded-proto: https\n"),
        "{}",
        response.text()
    );

    for offer in [&["http/1.1"][..], &[]] {
        let mut stream = tls(scene.address, offer).await;
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("X-Forwarded-Proto: https\n"), "{answer}");
    }
    let prior = Http2Client::over(tls(scene.address, &[]).await).await;
    assert_eq!(prior.ask(get("/")).await.status, 200);
}

#[tokio::test]
async fn a_body_of_known_length_passes_with_its_length() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[member.address]).await;
    let client = Http2Client::connect(scene.address).await;
    let response = client.ask(post("/", text("hello"))).await;
    assert!(
        response.text().contains("content-length: 5\n"),
        "{}",
        response.text()
    );
    assert!(response.text().ends_with("\n\nhello"));
    let response = client.ask(post("/", nothing())).await;
    assert!(
        response.text().contains("content-length: 0\n"),
        "{}",
        response.text()
    );
    assert_eq!(member.connections(), 1);
}

#[tokio::test]
async fn frames_become_chunks_and_chunks_become_frames_with_trailers() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let client = Http2Client::connect(scene.address).await;
    let (send, body) = frames();
    let asking = tokio::spawn(async move {
        let response = client.begin(post("/", body)).await.unwrap();
        (client, response)
    });
    send.send(Frame::data(Bytes::from_static(b"hello")))
        .await
        .unwrap();
    let mut served = member.accept().await;
    while !served.line().await.is_empty() {}
    assert_eq!(
        (served.line().await, served.line().await),
        ("5".to_owned(), "hello".to_owned())
    );
    served
        .send(
            "HTTP/1.1 103 Early\r\nX: y\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: \
              chunked\r\nKeep-Alive: x\r\n\r\n3\r\nabc\r\n",
        )
        .await;
    // Both directions go on at the same time.
    let (client, response) = asking.await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.headers().len()),
        (200, 0)
    );
    let mut trailers = HeaderMap::new();
    trailers.insert("digest", "d".parse().unwrap());
    trailers.insert("content-length", "9".parse().unwrap());
    send.send(Frame::data(Bytes::from_static(b"!")))
        .await
        .unwrap();
    send.send(Frame::trailers(trailers)).await.unwrap();
    drop(send);
    for line in ["1", "!", "0", "digest: d", ""] {
        assert_eq!(served.line().await, line);
    }
    served
        .send("2\r\nde\r\n0\r\nDigest: e\r\nHost: evil\r\n\r\n")
        .await;
    let response = whole(response).await.unwrap();
    assert_eq!(response.body, b"abcde");
    assert_eq!(response.trailers.len(), 1);
    assert_eq!(response.trailers["digest"], "e");
    // And the connection to the member is used again.
    let again = tokio::spawn(async move { client.ask(get("/again")).await });
    assert!(
        served
            .request()
            .await
            .unwrap()
            .head
            .starts_with("GET /again ")
    );
    served.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(again.await.unwrap().status, 204);
}

#[tokio::test]
async fn answers_end_where_http_1_says_they_end() {
    for (answer, close, body) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            false,
            "hello",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, ""),
        (
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
            false,
            "",
        ),
        (
            "HTTP/1.0 200 OK\r\n\r\nuntil the end",
            true,
            "until the end",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            false,
            "ok",
        ),
    ] {
        let member = Server::fixed(answer, close).await;
        let scene = Scene::start(&[member.address]).await;
        let client = Http2Client::connect(scene.address).await;
        for _ in 0..3 {
            assert_eq!(client.ask(get("/")).await.text(), body, "{answer:?}");
        }
        assert_eq!(
            member.connections(),
            if close { 3 } else { 1 },
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn the_answer_to_head_has_a_length_and_no_body() {
    let member = Server::fixed("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false).await;
    let scene = Scene::start(&[member.address]).await;
    let client = Http2Client::connect(scene.address).await;
    for _ in 0..2 {
        let request = Request::head("http://a/").body(nothing()).unwrap();
        let response = client.ask(request).await;
        assert_eq!(
            (response.field("content-length"), response.text()),
            (Some("5"), "")
        );
    }
    assert_eq!(member.connections(), 1);
}

#[tokio::test]
async fn many_requests_run_at_the_same_time() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[member.address]).await;
    let client = std::sync::Arc::new(Http2Client::connect(scene.address).await);
    let mut asking = JoinSet::new();
    for number in 0..150 {
        let client = client.clone();
        asking.spawn(async move {
            let response = client
                .ask(post(&format!("/{number}"), text("x".repeat(number))))
                .await;
            assert!(response.text().starts_with(&format!("POST /{number} ")));
            assert!(
                response
                    .text()
                    .ends_with(&format!("\n\n{}", "x".repeat(number)))
            );
        });
    }
    while let Some(done) = asking.join_next().await {
        done.unwrap();
    }
    assert_eq!(member.requests(), 150);
    let open = || scene.state.pool().status()[0].open;
    until("all requests are over", || open() == 0).await;
}

#[tokio::test]
async fn a_large_body_passes_whole() {
    const SIZE: usize = 24 << 20;
    let member = Server::start(|mut conversation| async move {
        let client = conversation.client();
        while !client.line().await.is_empty() {}
        client
            .send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"))
            .await;
        let mut left = SIZE;
        while left > 0 {
            let part = client.exactly(left.min(65_536)).await;
            left -= part.len();
            client.send(&part).await;
        }
    })
    .await;
    let scene = Scene::start(&[member.address]).await;
    let client = Http2Client::connect(scene.address).await;
    let part: Bytes = (0..65_536u32).map(|number| (number % 251) as u8).collect();
    let (send, body) = frames();
    let sending = part.clone();
    let sending = tokio::spawn(async move {
        for _ in 0..SIZE / sending.len() {
            send.send(Frame::data(sending.clone())).await.unwrap();
        }
    });
    let request = Request::post("http://a/")
        .header("content-length", SIZE)
        .body(body)
        .unwrap();
    let mut body = client.begin(request).await.unwrap().into_body();
    let mut at = 0;
    while let Some(frame) = body.frame().await {
        for byte in frame.unwrap().into_data().unwrap() {
            assert_eq!(byte, part[at % part.len()], "at {at}");
            at += 1;
        }
    }
    assert_eq!(at, SIZE);
    sending.await.unwrap();
}

#[tokio::test]
async fn failures_are_answered_as_over_http1() {
    let none = Scene::start(&[]).await;
    let response = Http2Client::connect(none.address).await.ask(get("/")).await;
    assert_eq!(
        (response.status, response.field("retry-after")),
        (503, Some("5"))
    );
    assert_eq!(response.text(), "no member can serve at present\n");

    let dead = Scene::start(&[closed_address()]).await;
    let client = Http2Client::connect(dead.address).await;
    assert_eq!(client.ask(get("/")).await.status, 502);
    let response = client.begin(post("/", text("x"))).await.unwrap();
    assert_eq!(response.status(), 502);
    let totals = dead.state.counters().totals();
    assert_eq!(
        (totals.refused(Refusal::NoMember), totals.responses),
        (2, [0, 0, 0, 0, 2])
    );
    let connect = Request::builder()
        .method(Method::CONNECT)
        .uri("db.internal:5432")
        .body(nothing())
        .unwrap();
    assert_eq!(client.begin(connect).await.unwrap().status(), 405);

    let puppet = Puppet::start().await;
    let silent = Scene::start_with(&[puppet.address], |listener| {
        listener.timeouts.member_data = Duration::from_millis(150);
    })
    .await;
    assert_eq!(
        Http2Client::connect(silent.address)
            .await
            .ask(get("/"))
            .await
            .status,
        504
    );

    let broken = Server::fixed("SMTP or so\r\n\r\n", true).await;
    let broken = Scene::start(&[broken.address]).await;
    assert_eq!(
        Http2Client::connect(broken.address)
            .await
            .ask(get("/"))
            .await
            .status,
        502
    );
}

#[tokio::test]
async fn a_response_that_breaks_off_does_not_look_whole() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    ] {
        let member = Server::fixed(answer, true).await;
        let scene = Scene::start(&[member.address]).await;
        let client = Http2Client::connect(scene.address).await;
        // The reset may overtake the head.
        if let Ok(response) = client.begin(get("/")).await {
            assert!(whole(response).await.is_err(), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn members_that_fail_are_replaced_as_over_http1() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[closed_address(), member.address]).await;
    let client = Http2Client::connect(scene.address).await;
    for _ in 0..4 {
        assert!(
            client
                .ask(post("/", text("body")))
                .await
                .text()
                .ends_with("\n\nbody")
        );
    }
    // Closes each connection after one answer, without saying so before.
    let closing = Server::fixed("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true).await;
    let scene = Scene::start(&[closing.address]).await;
    let client = Http2Client::connect(scene.address).await;
    for _ in 0..20 {
        assert_eq!(client.ask(get("/")).await.status, 200);
    }
    // Dies of a request that must not be repeated.
    let killed = Server::start(|mut conversation| async move {
        conversation.request().await;
    })
    .await;
    let scene = Scene::start(&[killed.address, member.address]).await;
    let client = Http2Client::connect(scene.address).await;
    assert_eq!(client.ask(post("/", nothing())).await.status, 502);
    assert_eq!(client.ask(get("/")).await.status, 200);
    assert_eq!(client.ask(get("/")).await.status, 200);
}

#[tokio::test]
async fn a_client_that_stops_in_its_body_is_given_up() {
    let mut member = Puppet::start().await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.timeouts.client_data = Duration::from_millis(500);
    })
    .await;
    let client = Http2Client::connect(scene.address).await;
    let (send, body) = frames();
    send.send(Frame::data(Bytes::from_static(b"half")))
        .await
        .unwrap();
    let response = client.begin(post("/", body)).await.unwrap();
    assert_eq!(response.status(), 408);
    let mut served = member.accept().await;
    assert!(String::from_utf8_lossy(&served.rest().await).ends_with("4\r\nhalf\r\n"));
    drop(send);
}

#[tokio::test]
async fn a_client_that_gives_a_request_up_takes_it_from_the_member() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let client = Http2Client::connect(scene.address).await;
    let asking = {
        let mut sender = client.sender.clone();
        tokio::spawn(async move { sender.send_request(get("/")).await.map(|_| ()) })
    };
    let mut served = member.accept().await;
    served.request().await.unwrap();
    asking.abort();
    served.closed().await;
    until("the member is free", || {
        scene.state.pool().status()[0].open == 0
    })
    .await;
}

#[tokio::test]
async fn a_closing_listener_lets_requests_end_and_takes_no_more() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let idle = Http2Client::connect(scene.address).await;
    let busy = Http2Client::connect(scene.address).await;
    let asking = tokio::spawn(async move {
        let response = busy.ask(get("/")).await;
        (busy, response)
    });
    let mut served = member.accept().await;
    served.request().await.unwrap();
    scene.close().await;
    idle.ended().await;
    served
        .send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .await;
    let (busy, response) = asking.await.unwrap();
    assert_eq!(response.text(), "ok");
    busy.ended().await;
}

#[tokio::test]
async fn an_idle_connection_ends() {
    let scene = Scene::start_with(&[], |listener| {
        listener.timeouts.client_data = Duration::from_millis(500);
    })
    .await;
    let client = Http2Client::connect(scene.address).await;
    assert_eq!(client.ask(get("/")).await.status, 503);
    client.ended().await;
}

#[tokio::test]
async fn proxy_headers_speak_for_one_client_only() {
    let mut member = Puppet::start().await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.pool.proxy_protocol = Some(ProxyProtocol::V1);
    })
    .await;
    for _ in 0..2 {
        let stream = tokio::net::TcpStream::connect(scene.address).await.unwrap();
        let port = stream.local_addr().unwrap().port();
        let client = Http2Client::over(stream).await;
        let asking = tokio::spawn(async move {
            assert_eq!(client.ask(get("/1")).await.status, 204);
            assert_eq!(client.ask(get("/2")).await.status, 204);
        });
        let mut served = member.accept().await;
        assert!(
            served
                .line()
                .await
                .starts_with(&format!("PROXY TCP4 127.0.0.1 127.0.0.1 {port} "))
        );
        for path in ["/1", "/2"] {
            assert!(
                served
                    .request()
                    .await
                    .unwrap()
                    .head
                    .starts_with(&format!("GET {path} "))
            );
            served.send("HTTP/1.1 204 No Content\r\n\r\n").await;
        }
        asking.await.unwrap();
        served.closed().await;
    }
}

/// One HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[tokio::test]
async fn a_client_that_resets_one_request_after_the_other_is_sent_away() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = Client::connect(scene.address).await;
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    flood.extend(frame(4, 0, 0, &[]));
    for number in 0..500 {
        // GET / over http at "a", and then: never mind.
        flood.extend(frame(
            1,
            0x5,
            2 * number + 1,
            &[0x82, 0x84, 0x86, 0x41, 0x01, b'a'],
        ));
        flood.extend(frame(3, 0, 2 * number + 1, &8u32.to_be_bytes()));
    }
    client.try_send(flood).await;
    let mut said = Vec::new();
    let _ = tokio::time::timeout(
        crate::scene::TIMEOUT,
        client.stream().read_to_end(&mut said),
    )
    .await
    .expect("the connection ends");
    let calm = frame(7, 0, 0, &[]);
    let goodbye = said
        .windows(5)
        .any(|window| window[..] == [calm[3], 0, 0, 0, 0]);
    assert!(goodbye, "a GOAWAY comes before the end");
    assert!(member.requests() < 500, "{}", member.requests());
}

#[tokio::test]
async fn a_client_whose_errors_have_its_requests_reset_is_sent_away() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = Client::connect(scene.address).await;
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    flood.extend(frame(4, 0, 0, &[]));
    for number in 0..500 {
        let stream = 2 * number + 1;
        let head = [0x82, 0x84, 0x86, 0x41, 0x01, b'a'];
        flood.extend(frame(1, 0x5, stream, &head));
        // More than a window can be, of that stream alone (CVE-2025-8671).
        flood.extend(frame(8, 0, stream, &0x7fff_ffff_u32.to_be_bytes()));
    }
    client.try_send(flood).await;
    let mut said = Vec::new();
    let ended = client.stream().read_to_end(&mut said);
    let _ = tokio::time::timeout(crate::scene::TIMEOUT, ended)
        .await
        .expect("the connection ends");
    let resets = said.windows(5).filter(|window| window[..2] == [4, 3]);
    assert!(resets.count() < 150, "it is sent away in time");
    assert!(member.requests() < 250, "{}", member.requests());
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[member.address]).await;
    let client = Http2Client::connect(scene.address).await;
    let request = Request::get("http://a/")
        .header("x-long", "x".repeat(60_000))
        .body(nothing())
        .unwrap();
    match client.begin(request).await {
        Ok(response) => assert_eq!(response.status(), 431),
        Err(error) => assert!(!error.is_timeout(), "{error}"),
    }
    assert_eq!(member.requests(), 0);
    assert!(nothing().is_end_stream());
}

#[tokio::test]
async fn an_answer_that_comes_early_reaches_a_client_that_still_sends() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let client = Http2Client::connect(scene.address).await;
    let (send, body) = frames();
    let asking = tokio::spawn(async move {
        let response = whole(client.begin(post("/", body)).await.unwrap())
            .await
            .unwrap();
        (client, response)
    });
    let part = Bytes::from(vec![b'x'; 65_536]);
    send.send(Frame::data(part.clone())).await.unwrap();
    let mut served = member.accept().await;
    while !served.line().await.is_empty() {}
    served
        .send("HTTP/1.1 413 Too Much\r\nContent-Length: 4\r\nConnection: close\r\n\r\nless")
        .await;
    drop(served);
    let (client, response) = asking.await.unwrap();
    assert_eq!((response.status, response.text()), (413, "less"));
    // What the client goes on to send is read: more than fits any window, and no reset comes.
    for _ in 0..20 {
        send.send(Frame::data(part.clone())).await.unwrap();
    }
    drop(send);
    client.ended().await;
}
