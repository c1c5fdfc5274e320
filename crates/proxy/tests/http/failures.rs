//! Members that fail, and clients that do.

use std::time::Duration;

use landfall_proxy::counters::Refusal;

use crate::scene::http2::{self, Http2Client};
use crate::scene::member::Puppet;
use crate::scene::{Client, Scene, Server, closed_address, until};

#[tokio::test]
async fn without_a_member_the_client_gets_a_retry_after() {
    let scene = Scene::start(&[]).await;
    let mut client = scene.client().await;
    for _ in 0..2 {
        let response = client.get("/").await;
        assert_eq!(response.status, 503);
        assert_eq!(response.field("retry-after"), Some("5"));
        assert_eq!(response.text(), "no member can serve at present\n");
    }
    assert_eq!(
        scene.state.counters().totals().refused(Refusal::NoMember),
        2
    );
    client
        .send("HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await;
    let head = client.head().await;
    assert_eq!(
        (head.status, head.field("connection")),
        (503, Some("close"))
    );
    client.closed().await;
}

#[tokio::test]
async fn a_member_that_cannot_be_reached_is_skipped() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[closed_address(), member.address]).await;
    let mut client = scene.client().await;
    for _ in 0..6 {
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody")
            .await;
        let response = client.response().await;
        assert_eq!(response.status, 200);
        assert!(response.text().ends_with("\n\nbody"));
    }
    assert_eq!(member.requests(), 6);
    assert!(scene.state.counters().totals().connect_failures >= 1);
}

#[tokio::test]
async fn when_no_member_can_be_reached_the_gateway_is_bad() {
    let scene = Scene::start(&[closed_address(), closed_address()]).await;
    let mut client = scene.client().await;
    let response = client.get("/").await;
    assert_eq!(
        (response.status, response.text()),
        (502, "the member failed\n")
    );
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody")
        .await;
    let response = client.response().await;
    assert_eq!(
        (response.status, response.field("connection")),
        (502, Some("close"))
    );
    client.closed().await;
}

#[tokio::test]
async fn a_member_that_is_silent_for_too_long_is_a_time_out() {
    let mut member = Puppet::start().await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.timeouts.member_data = Duration::from_millis(200);
    })
    .await;
    let mut client = scene.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut served = member.accept().await;
    let response = client.response().await;
    assert_eq!(response.status, 504);
    assert_eq!(response.text(), "the member timed out\n");
    served.request().await.unwrap();
    served.closed().await;
    assert_eq!(response.field("connection"), None, "the client may go on");
}

#[tokio::test]
async fn a_member_that_does_not_take_connections_is_a_time_out() {
    // A full accept queue: the kernel drops what comes after.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut fillers = Vec::new();
    for _ in 0..4 {
        let filler = tokio::net::TcpStream::connect(address);
        fillers.push(tokio::time::timeout(Duration::from_millis(100), filler).await);
    }
    let scene = Scene::start_with(&[address], |listener| {
        listener.timeouts.member_connect = Duration::from_millis(150);
    })
    .await;
    assert_eq!(scene.get("/").await.status, 504);
}

#[tokio::test]
async fn a_client_that_stops_in_its_request_is_given_up() {
    let mut member = Puppet::start().await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.timeouts.client_data = Duration::from_millis(500);
    })
    .await;
    // In the head: answered, without a member.
    let mut client = scene.client().await;
    client.send("GET / HTTP/1.1\r\nHost:").await;
    let response = client.response().await;
    assert_eq!(
        (response.status, response.field("connection")),
        (408, Some("close"))
    );
    client.closed().await;
    // In the body: answered, and the member learns that the rest won't come.
    let mut client = scene.client().await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
        .await;
    let mut served = member.accept().await;
    assert_eq!(client.response().await.status, 408);
    assert!(served.rest().await.ends_with(b"half"));
    // Between requests: just ended.
    let mut client = scene.client().await;
    client.closed().await;
}

#[tokio::test]
async fn a_slow_but_steady_client_is_not_given_up() {
    let member = Server::echo("only").await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.timeouts.client_data = Duration::from_millis(1500);
    })
    .await;
    let mut client = scene.client().await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
        .await;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        client.send("x").await;
    }
    assert_eq!(client.response().await.status, 200);
}

#[tokio::test]
async fn a_connection_that_the_member_closed_meanwhile_costs_no_request() {
    // Closes each connection after one answer, without saying so before.
    let member = Server::fixed("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true).await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    for _ in 0..50 {
        assert_eq!(client.get("/").await.status, 200);
    }
    assert_eq!(member.requests(), 50);
}

#[tokio::test]
async fn a_kept_connection_that_dies_under_a_request_is_replaced_only_if_that_does_no_harm() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (request, repeated) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
            false,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", false),
        (
            "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
            false,
        ),
    ] {
        let mut client = scene.client().await;
        client.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let mut served = member.accept().await;
        served.request().await.unwrap();
        served.send(ok).await;
        assert_eq!(client.response().await.status, 200);
        // The next request arrives, and the member dies.
        client.send(request).await;
        served.request().await.unwrap();
        drop(served);
        if repeated {
            let mut again = member.accept().await;
            again.request().await.unwrap();
            again
                .send("HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                .await;
            assert_eq!(client.response().await.status, 201);
        } else {
            assert_eq!(client.response().await.status, 502, "{request:?}");
        }
    }
}

#[tokio::test]
async fn a_request_that_kills_a_member_is_tried_elsewhere_only_if_that_does_no_harm() {
    let killed = Server::start(|mut conversation| async move {
        conversation.request().await;
    })
    .await;
    let member = Server::echo("other").await;
    let scene = Scene::start(&[killed.address, member.address]).await;
    let mut client = scene.client().await;
    assert_eq!(client.get("/").await.field("x-member"), Some("other"));
    assert_eq!((killed.requests(), member.requests()), (1, 1));

    let scene = Scene::start(&[killed.address, member.address]).await;
    let mut client = scene.client().await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        .await;
    assert_eq!(client.response().await.status, 502);
    assert_eq!((killed.requests(), member.requests()), (2, 1));
    assert_eq!(client.get("/").await.status, 200, "the client goes on");
}

#[tokio::test]
async fn a_client_that_resets_takes_its_request_from_the_member_whatever_it_said_after_it() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    for after in ["", "G"] {
        let mut client = scene.client().await;
        client
            .send(format!("GET / HTTP/1.1\r\nHost: a\r\n\r\n{after}"))
            .await;
        let mut served = member.accept().await;
        served.request().await.unwrap();
        client.stream().set_zero_linger().unwrap();
        drop(client);
        served.closed().await;
    }
}

#[tokio::test]
async fn a_response_that_breaks_off_does_not_look_whole() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf",
    ] {
        let member = Server::fixed(answer, true).await;
        let scene = Scene::start(&[member.address]).await;
        let mut client = scene.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(client.is_reset().await, "{answer:?}");
    }
}

#[tokio::test]
async fn an_invalid_response_is_a_bad_gateway() {
    for answer in [
        "SSH-2.0-OpenSSH_9.2p1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nhalf a he",
    ] {
        let member = Server::fixed(answer, true).await;
        let scene = Scene::start(&[member.address]).await;
        let mut client = scene.client().await;
        let response = client.get("/").await;
        assert_eq!(
            (response.status, response.field("connection")),
            (502, None),
            "{answer:?}"
        );
        assert_eq!(client.get("/").await.status, 502);
    }
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(70_000));
    let member = Server::fixed(endless, false).await;
    let scene = Scene::start(&[member.address]).await;
    assert_eq!(scene.get("/").await.status, 502);
}

#[tokio::test]
async fn a_member_that_says_more_than_its_answer_is_not_asked_again_on_that_connection() {
    let extra = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: \
                4\r\n\r\nevil";
    let member = Server::fixed(extra, false).await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    for _ in 0..3 {
        assert_eq!(client.get("/").await.text(), "ok");
    }
    assert_eq!(member.connections(), 3);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_exchange_along() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
        .await;
    let mut served = member.accept().await;
    while !served.line().await.is_empty() {}
    drop(client);
    served.is_reset().await;
    let pool = scene.state.pool();
    until("the member is free again", || pool.members()[0].open() == 0).await;
}

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
enum Exit {
    Close,
    Reset,
}

fn leave(mut client: Client, exit: Exit) {
    if matches!(exit, Exit::Reset) {
        client.stream().set_zero_linger().unwrap();
    }
    drop(client);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_from_the_member() {
    for exit in [Exit::Close, Exit::Reset] {
        let mut member = Puppet::start().await;
        let scene = Scene::start(&[member.address]).await;
        // While the member thinks, and while it answers.
        for begun in [false, true] {
            let mut client = scene.client().await;
            client
                .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody")
                .await;
            let mut served = member.accept().await;
            served.request().await.unwrap();
            if begun {
                served
                    .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
                    .await;
                client.head().await;
            }
            leave(client, exit);
            served.closed().await;
        }
    }
}

#[tokio::test]
async fn a_client_that_asks_again_before_it_is_answered_has_not_left() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut served = member.accept().await;
    served.request().await.unwrap();
    client.send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    for path in ["/1", "/2"] {
        if path == "/2" {
            let request = served.request().await.unwrap();
            assert!(request.head.starts_with("GET /2 "), "{}", request.head);
        }
        served
            .send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .await;
        assert_eq!(client.response().await.text(), "ok");
    }
}

#[tokio::test]
async fn a_response_until_the_end_that_is_reset_under_an_upload_does_not_look_whole() {
    for over_http2 in [false, true] {
        let mut member = Puppet::start().await;
        let scene = Scene::start(&[member.address]).await;
        let half = "HTTP/1.1 200 OK\r\n\r\nhalf";
        // Bytes wait on the proxy, so that a write meets the reset and not a read.
        let flood = vec![b'x'; 64 << 20];
        if over_http2 {
            let client = Http2Client::connect(scene.address).await;
            let asks = client.begin(http2::post("/", http2::text(flood)));
            let breaks = async {
                let mut served = member.accept().await;
                served.line().await;
                until_quiet(|| scene.state.counters().totals().bytes_in).await;
                served.send(half).await;
                served
            };
            let (response, mut served) = tokio::join!(asks, breaks);
            served.stream().set_zero_linger().unwrap();
            drop(served);
            assert!(http2::whole(response.unwrap()).await.is_err());
        } else {
            let mut client = scene.client().await;
            client
                .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n")
                .await;
            let mut served = member.accept().await;
            served.line().await;
            until_quiet(|| client.stream().try_write(&flood).unwrap_or(0)).await;
            served.send(half).await;
            assert_eq!(client.head().await.status, 200);
            served.stream().set_zero_linger().unwrap();
            drop(served);
            assert!(client.is_reset().await, "the response looks whole");
        }
    }
}

#[tokio::test]
async fn a_response_is_whole_though_more_was_asked_than_is_answered() {
    // More than the client's system takes while it does not read, less than the proxy's keeps.
    let body = "x".repeat(400 * 1024);
    let length = body.len();
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
    let member = Server::fixed(answer, false).await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    let last = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    // More than is read at once, so that some of it is there when the connection closes.
    client.send(last.to_owned() + &"z".repeat(64 * 1024)).await;
    until("passed on", || {
        scene.state.counters().totals().bytes_out > length as u64
    })
    .await;
    assert_eq!(client.response().await.body.len(), length);
    client.closed().await;
}

/// Waits until a count has been the same for a while.
async fn until_quiet<T: PartialEq + Copy>(mut count: impl FnMut() -> T) {
    let mut last = (count(), std::time::Instant::now());
    until("nothing more is taken", || {
        let now = count();
        if now != last.0 {
            last = (now, std::time::Instant::now());
        }
        last.1.elapsed() > std::time::Duration::from_millis(200)
    })
    .await;
}
