//! Bodies: where they end, that they arrive whole, and that nothing in them becomes a request.

use crate::scene::member::Puppet;
use crate::scene::{Scene, Server};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn a_chunked_request_arrives_with_its_trailers() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: Digest\r\n\r\n")
        .await;
    client.send("5\r\nhello\r\n").await;
    let mut served = member.accept().await;
    client
        .send("1;x=y\r\n!\r\n0\r\nDigest: d\r\nContent-Length: 99\r\n\r\n")
        .await;
    let request = served.request().await.unwrap();
    assert_eq!(
        request.head,
        "POST / HTTP/1.1\nHost: a\nTrailer: Digest\nTransfer-Encoding: chunked\n"
    );
    assert_eq!(
        (&request.body[..], request.trailers.as_str()),
        (&b"hello!"[..], "Digest: d\n")
    );
    served.send(OK).await;
    assert_eq!(client.response().await.text(), "ok");
    client.send("GET /next HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(
        served.request().await.unwrap().head,
        "GET /next HTTP/1.1\nHost: a\n"
    );
}

#[tokio::test]
async fn a_chunked_response_arrives_with_its_trailers() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: \
                  chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\nDigest: d\r\n\r\n";
    let member = Server::fixed(chunked, false).await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    for _ in 0..3 {
        let response = client.get("/").await;
        assert_eq!(
            (response.text(), response.trailers.as_str()),
            ("hello!", "Digest: d\n")
        );
    }
    assert_eq!(member.connections(), 1);
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_no_chunks() {
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n";
    let member = Server::fixed(chunked, false).await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client
        .send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        .await;
    assert_eq!(
        client.rest().await,
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello!"
    );
}

#[tokio::test]
async fn a_response_without_a_length_is_put_in_chunks() {
    let member = Server::fixed("HTTP/1.0 200 OK\r\nX: y\r\n\r\nuntil the end", true).await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    for _ in 0..2 {
        let response = client.get("/").await;
        assert_eq!(
            response.head,
            "HTTP/1.1 200 OK\nX: y\nTransfer-Encoding: chunked\n"
        );
        assert_eq!(response.text(), "until the end");
    }
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    assert!(
        client
            .rest()
            .await
            .ends_with(b"Connection: close\r\n\r\nuntil the end")
    );
}

#[tokio::test]
async fn a_client_may_wait_for_permission_to_send_its_body() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client
        .send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        .await;
    let mut served = member.accept().await;
    for line in [
        "PUT / HTTP/1.1",
        "Host: a",
        "Expect: 100-continue",
        "Content-Length: 4",
        "",
    ] {
        assert_eq!(served.line().await, line);
    }
    served
        .send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        .await;
    assert_eq!(client.head().await.head, "HTTP/1.1 100 Continue\n");
    assert_eq!(
        client.head().await.head,
        "HTTP/1.1 103 Early Hints\nLink: </x>\n"
    );
    client.send("body").await;
    assert_eq!(served.exactly(4).await, b"body");
    served.send(OK).await;
    let response = client.response().await;
    assert_eq!(
        (response.text(), response.field("connection")),
        ("ok", None)
    );
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    served.request().await.unwrap();
}

#[tokio::test]
async fn permission_may_be_refused() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client
        .send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        .await;
    let mut served = member.accept().await;
    while !served.line().await.is_empty() {}
    served
        .send("HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n")
        .await;
    let response = client.response().await;
    // Whether the body comes can't be known, so neither connection can be used again.
    assert_eq!(
        (response.status, response.field("connection")),
        (417, Some("close"))
    );
    client.closed().await;
    served.closed().await;
}

#[tokio::test]
async fn an_answer_that_comes_early_reaches_a_client_that_still_sends() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
        .await;
    client.send(vec![b'x'; 100_000]).await;
    let mut served = member.accept().await;
    while !served.line().await.is_empty() {}
    served
        .send("HTTP/1.1 413 Too Much\r\nContent-Length: 4\r\nConnection: close\r\n\r\nless")
        .await;
    drop(served);
    let response = client.response().await;
    assert_eq!((response.status, response.text()), (413, "less"));
    assert_eq!(response.field("connection"), Some("close"));
}

#[tokio::test]
async fn what_two_parsers_could_read_differently_is_refused_and_the_connection_closed() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[member.address]).await;
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for (status, head, body) in [
        (
            400,
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "0\r\n\r\n",
        ),
        (
            400,
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "0\r\n\r\n",
        ),
        (400, "Content-Length: 5\r\nContent-Length: 0\r\n", ""),
        (400, "Content-Length: 5,0\r\n", ""),
        (400, "Content-Length: +0\r\n", ""),
        (400, "X: y\r\n Transfer-Encoding: chunked\r\n", ""),
        (400, "X: y\r\n\tz\r\n", ""),
        (400, "Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
        (400, "Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"),
        (501, "Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
        (501, "Transfer-Encoding: identity\r\n", ""),
        (400, "Host: b\r\n", ""),
    ] {
        let mut client = scene.client().await;
        client
            .send(format!(
                "POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n{body}{smuggled}"
            ))
            .await;
        let response = client.response().await;
        assert_eq!(response.status, status, "{head:?}");
        assert_eq!(response.field("connection"), Some("close"), "{head:?}");
        client.closed().await;
    }
    for (version, head) in [
        ("1.0", "Host: a\r\nTransfer-Encoding: chunked\r\n"),
        ("1.1", "X: y\r\n"),
    ] {
        let mut client = scene.client().await;
        client
            .send(format!(
                "POST / HTTP/{version}\r\n{head}\r\n0\r\n\r\n{smuggled}"
            ))
            .await;
        assert_eq!(client.response().await.status, 400);
        client.closed().await;
    }
    assert_eq!(member.requests(), 0);
}

#[tokio::test]
async fn a_broken_chunk_is_refused_and_reaches_no_second_request() {
    for broken in [
        "x\r\n",
        "-1\r\nh\r\n",
        "1\nh\r\n",
        "2\r\nhel\r\n",
        "1;\n\r\nh\r\n",
        "0\r\n\n",
    ] {
        let mut member = Puppet::start().await;
        let scene = Scene::start(&[member.address]).await;
        let mut client = scene.client().await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        let mut served = member.accept().await;
        while !served.line().await.is_empty() {}
        client
            .send(format!(
                "3\r\nabc\r\n{broken}GET / HTTP/1.1\r\nHost: a\r\n\r\n"
            ))
            .await;
        let response = client.response().await;
        assert_eq!(
            (response.status, response.field("connection")),
            (400, Some("close")),
            "{broken:?}"
        );
        let seen = served.rest().await;
        assert!(
            !String::from_utf8_lossy(&seen).contains("GET"),
            "{broken:?}"
        );
    }
}

#[tokio::test]
async fn what_is_too_large_or_not_http_is_refused() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[member.address]).await;
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(40_000));
    let many = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "X: y\r\n".repeat(200)
    );
    for (status, request) in [
        (431, long.as_str()),
        (431, many.as_str()),
        (505, "GET / HTTP/1.9\r\nHost: a\r\n\r\n"),
        (
            405,
            "CONNECT db.internal:5432 HTTP/1.1\r\nHost: db.internal:5432\r\n\r\n",
        ),
        (400, "GET gopher://a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
        (400, "\u{16}\u{3}\u{1}\u{2}\r\n\r\n"),
    ] {
        let mut client = scene.client().await;
        client.try_send(request).await;
        let response = client.response().await;
        assert_eq!(
            response.status,
            status,
            "{}",
            &request[..request.len().min(30)]
        );
        assert_eq!(
            response.field("content-type"),
            Some("text/plain; charset=utf-8")
        );
        assert!(response.text().ends_with('\n'));
    }
    assert_eq!(member.requests(), 0);
}

#[tokio::test]
async fn a_head_may_come_in_drops() {
    let member = Server::echo("only").await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    for byte in "\r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi".bytes() {
        client.send([byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(
        client.response().await.text(),
        "POST / HTTP/1.1\nHost: a\nContent-Length: 2\n\nhi"
    );
}
