//! What members get to see, and which of them.

use landfall_model::listener::{Http, Mode, ProxyProtocol};
use landfall_sys::stream::unacknowledged;

use crate::scene::member::Puppet;
use crate::scene::{Client, EVERYTHING, Scene, Server, until};

#[tokio::test]
async fn requests_on_one_connection_are_spread_over_the_members() {
    let (first, second) = (Server::echo("first").await, Server::echo("second").await);
    let scene = Scene::start(&[first.address, second.address]).await;
    let mut client = scene.client().await;
    let mut names = Vec::new();
    for _ in 0..6 {
        names.push(client.get("/").await.field("x-member").unwrap().to_owned());
    }
    assert_eq!(
        names,
        ["first", "second", "first", "second", "first", "second"]
    );
    assert_eq!((first.requests(), second.requests()), (3, 3));
    assert_eq!(
        (first.connections(), second.connections()),
        (1, 1),
        "connections are kept"
    );
}

#[tokio::test]
async fn connections_to_members_are_shared_between_clients() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[member.address]).await;
    for _ in 0..5 {
        assert_eq!(scene.get("/").await.status, 200);
    }
    assert_eq!((member.requests(), member.connections()), (5, 1));
}

#[tokio::test]
async fn members_learn_about_the_client() {
    let member = Server::echo("only").await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.mode = Mode::Http(EVERYTHING);
    })
    .await;
    let port = scene.address.port();
    let mut client = scene.client().await;
    client
        .send(
            "GET /x HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: \
              198.51.100.1\r\nX-Forwarded-Proto: https\r\n\r\n",
        )
        .await;
    assert_eq!(
        client.response().await.text(),
        format!(
            "GET /x HTTP/1.1\nHost: shop.example\nX-Forwarded-For: 198.51.100.1, 127.0.0.1\n\
             X-Forwarded-Proto: http\nX-Forwarded-Port: {port}\n\n"
        )
    );
}

#[tokio::test]
async fn without_options_a_request_passes_as_it_is() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client
        .send("GET /a?b HTTP/1.1\r\nhost: shop.example\r\nX-Forwarded-For: 198.51.100.1\r\n\r\n")
        .await;
    assert_eq!(
        client.response().await.text(),
        "GET /a?b HTTP/1.1\nhost: shop.example\nX-Forwarded-For: 198.51.100.1\n\n"
    );
}

#[tokio::test]
async fn fields_for_one_hop_pass_in_neither_direction() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client
        .send(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Mine\r\nX-Mine: 1\r\n\
             Keep-Alive: timeout=9\r\nTE: trailers\r\nProxy-Connection: x\r\nX-Yours: 2\r\n\r\n",
        )
        .await;
    let mut served = member.accept().await;
    assert_eq!(
        served.request().await.unwrap().head,
        "GET / HTTP/1.1\nHost: a\nX-Yours: 2\n"
    );
    served
        .send(
            "HTTP/1.1 200 Fine\r\nConnection: X-Secret\r\nX-Secret: 1\r\nKeep-Alive: timeout=9\r\n\
             Content-Length: 2\r\nX-Open: 2\r\n\r\nok",
        )
        .await;
    let response = client.response().await;
    assert_eq!(
        response.head,
        "HTTP/1.1 200 Fine\nContent-Length: 2\nX-Open: 2\n"
    );
    assert_eq!(response.text(), "ok");
}

#[tokio::test]
async fn the_answer_to_head_has_a_length_and_no_body() {
    let member = Server::fixed("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false).await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    for _ in 0..2 {
        client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(
            client.head().await.head,
            "HTTP/1.1 200 OK\nContent-Length: 5\n"
        );
    }
    assert_eq!(member.connections(), 1);
}

#[tokio::test]
async fn answers_without_a_body_leave_the_connection_open() {
    let member = Server::fixed("HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", false).await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    for _ in 0..2 {
        assert_eq!(
            client.get("/").await.head,
            "HTTP/1.1 304 Not Modified\nETag: x\n"
        );
    }
    assert_eq!(member.connections(), 1);
}

#[tokio::test]
async fn a_websocket_passes_both_ways_after_the_switch() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client
        .send(
            "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: \
              websocket\r\nSec-WebSocket-Key: k\r\n\r\nearly",
        )
        .await;
    let mut served = member.accept().await;
    assert_eq!(
        served.request().await.unwrap().head,
        "GET /chat HTTP/1.1\nHost: a\nUpgrade: websocket\nSec-WebSocket-Key: k\nConnection: \
        upgrade\n"
    );
    served
        .send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: \
              Upgrade\r\n\r\nhello",
        )
        .await;
    assert_eq!(
        client.head().await.head,
        "HTTP/1.1 101 Switching Protocols\nUpgrade: websocket\nConnection: upgrade\n"
    );
    assert_eq!(client.exactly(5).await, b"hello");
    assert_eq!(served.exactly(5).await, b"early");
    for round in 0..3 {
        client.send(format!("ping {round}")).await;
        assert_eq!(served.exactly(6).await, format!("ping {round}").as_bytes());
        served.send(format!("pong {round}")).await;
        assert_eq!(client.exactly(6).await, format!("pong {round}").as_bytes());
    }
    client.finish().await;
    served.closed().await;
    served.send("bye").await;
    drop(served);
    assert_eq!(client.rest().await, b"bye");
}

#[tokio::test]
async fn after_the_switch_a_break_reaches_the_member_as_a_break() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
        .await;
    let mut served = member.accept().await;
    served.request().await.unwrap();
    served
        .send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")
        .await;
    assert_eq!(client.head().await.status, 101);
    client.stream().set_zero_linger().unwrap();
    drop(client);
    assert!(served.is_reset().await);
}

#[tokio::test]
async fn after_the_switch_a_member_s_last_words_arrive_though_the_client_goes_on() {
    // More than the client's system takes while it does not read, less than the proxy's keeps.
    const SOME: usize = 400 * 1024;
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
        .await;
    let mut served = member.accept().await;
    served.request().await.unwrap();
    served
        .send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")
        .await;
    assert_eq!(client.head().await.status, 101);
    served.send(vec![b'm'; SOME]).await;
    served.finish().await;
    let has_arrived = |client: &mut Client| unacknowledged(client.stream()).unwrap() == 0;
    until("the end has arrived", || has_arrived(&mut served)).await;
    drop(served);
    // The first piece brings the member's reset, a later one meets it.
    for _ in 0..200 {
        client.try_send("c").await;
        until("it has arrived", || has_arrived(&mut client)).await;
    }
    assert_eq!(client.rest().await.len(), SOME);
}

#[tokio::test]
async fn a_member_may_decline_to_switch() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
        .await;
    assert_eq!(client.response().await.status, 200);
    assert_eq!(client.get("/again").await.status, 200);
}

#[tokio::test]
async fn http_2_cannot_be_tunnelled_past_the_proxy() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client
        .send(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: \
              h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
        )
        .await;
    assert_eq!(
        client.response().await.text(),
        "GET / HTTP/1.1\nHost: a\n\n"
    );
}

#[tokio::test]
async fn proxy_headers_speak_for_one_client_only() {
    let mut member = Puppet::start().await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.pool.proxy_protocol = Some(ProxyProtocol::V1);
    })
    .await;
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let mut previous = None;
    for _ in 0..2 {
        let mut client = scene.client().await;
        let port = client.address().port();
        client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let mut served = member.accept().await;
        let expected = format!(
            "PROXY TCP4 127.0.0.1 127.0.0.1 {port} {}",
            scene.address.port()
        );
        assert_eq!(served.line().await, expected);
        assert_eq!(
            served.request().await.unwrap().head,
            "GET /1 HTTP/1.1\nHost: a\n"
        );
        served.send(answer).await;
        assert_eq!(client.response().await.status, 200);
        // The same client goes on over the same connection, without another header.
        client.send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(
            served.request().await.unwrap().head,
            "GET /2 HTTP/1.1\nHost: a\n"
        );
        served.send(answer).await;
        assert_eq!(client.response().await.status, 200);
        // It ends with its client.
        drop(client);
        served.closed().await;
        previous = Some(served);
    }
    drop(previous);
}

#[tokio::test]
async fn a_binary_proxy_header_is_sent_as_well() {
    let mut member = Puppet::start().await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.pool.proxy_protocol = Some(ProxyProtocol::V2);
    })
    .await;
    let mut client = scene.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut served = member.accept().await;
    let header = served.exactly(28).await;
    assert!(
        header
            .starts_with(b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01")
    );
    assert_eq!(header[24..26], client.address().port().to_be_bytes());
    assert_eq!(
        served.request().await.unwrap().head,
        "GET / HTTP/1.1\nHost: a\n"
    );
}

#[tokio::test]
async fn clients_of_http_1_0_are_served() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client
        .send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        .await;
    let response = client.response().await;
    // HTTP/1.1 takes no request without a host: an empty one says that there is none.
    assert_eq!(response.text(), "GET / HTTP/1.1\nHost: \n\n");
    assert_eq!(response.field("connection"), Some("keep-alive"));
    client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
    let response = client.response().await;
    assert_eq!(response.text(), "GET / HTTP/1.1\nHost: a\n\n");
    assert_eq!(response.field("connection"), Some("close"));
    client.closed().await;
}

#[tokio::test]
async fn options_of_one_listener_do_not_show_at_another_with_the_same_member() {
    let member = Server::echo("only").await;
    let plain = Scene::start(&[member.address]).await;
    let reporting = Scene::start_with(&[member.address], |listener| {
        listener.mode = Mode::Http(Http {
            forwarded_for: true,
            ..Http::default()
        });
    })
    .await;
    assert!(!plain.get("/").await.text().contains("X-Forwarded"));
    assert!(
        reporting
            .get("/")
            .await
            .text()
            .contains("X-Forwarded-For: 127.0.0.1")
    );
    assert!(!plain.get("/").await.text().contains("X-Forwarded"));
}

#[tokio::test]
async fn a_client_may_send_all_its_requests_at_once() {
    let (first, second) = (Server::echo("first").await, Server::echo("second").await);
    let scene = Scene::start(&[first.address, second.address]).await;
    let mut client = scene.client().await;
    let one = |number: usize| {
        format!("POST /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
    };
    client.send((0..20).map(one).collect::<String>()).await;
    for number in 0..20 {
        let response = client.response().await;
        assert!(
            response.text().starts_with(&format!("POST /{number} ")),
            "{}",
            response.text()
        );
        assert!(response.text().ends_with("\n\nabc"));
    }
    assert_eq!((first.requests(), second.requests()), (10, 10));
    client.finish().await;
    client.closed().await;
}

#[tokio::test]
async fn a_client_named_by_a_trusted_proxy_header_is_the_client() {
    let member = Server::echo("only").await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.mode = Mode::Http(EVERYTHING);
        listener.accept_proxy_from = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    let port = scene.address.port();
    let mut client = scene.client().await;
    client
        .send("PROXY TCP4 198.51.100.7 192.0.2.1 5555 443\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .await;
    let expected = format!(
        "GET / HTTP/1.1\nHost: a\nX-Forwarded-For: 198.51.100.7\nX-Forwarded-Proto: http\n\
         X-Forwarded-Port: {port}\n\n"
    );
    assert_eq!(client.response().await.text(), expected);
    assert_eq!(client.get("/").await.status, 200);
}

#[tokio::test]
async fn an_untrusted_client_is_identified_by_its_address_alone() {
    let member = Server::echo("only").await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.mode = Mode::Http(Http {
            forwarded_for: true,
            trusted_hops: Some(0),
            ..Http::default()
        });
    })
    .await;
    let mut client = scene.client().await;
    client
        .send(
            "GET / HTTP/1.1\r\n\
            Host: a\r\n\
            X-Forwarded-For: 6.6.6.6\r\n\
            Forwarded: for=6.6.6.6\r\n\
            X-Real-IP: 6.6.6.6\r\n\
            X-Forwarded-Proto: https\r\n\
            X-Forwarded-Host: b\r\n\
            X-Own: 1\r\n\
            \r\n",
        )
        .await;
    assert_eq!(
        client.response().await.text(),
        "GET / HTTP/1.1\nHost: a\nX-Own: 1\nX-Forwarded-For: 127.0.0.1\n\n"
    );
    let client = crate::scene::http2::Http2Client::connect(scene.address).await;
    let request = http::Request::get("http://a/")
        .header("x-forwarded-for", "6.6.6.6")
        .header("forwarded", "for=6.6.6.6")
        .header("x-forwarded-proto", "https")
        .body(crate::scene::http2::nothing())
        .unwrap();
    assert_eq!(
        client.ask(request).await.text(),
        "GET / HTTP/1.1\nhost: a\nx-forwarded-for: 127.0.0.1\n\n"
    );
}
