//! What is noted and measured of requests.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use landfall_proxy::access_log::{AccessLog, Format, Sample};
use landfall_proxy::counters::Span;

use crate::scene::http2::{Http2Client, get, post, text};
use crate::scene::member::Puppet;
use crate::scene::{Scene, Server, TIMEOUT};

/// A log of all lines, and what is written.
fn log() -> (Option<Arc<AccessLog>>, Receiver<Vec<u8>>) {
    let (log, lines) = AccessLog::new(Format::Json, Sample::ALL, false);
    (Some(Arc::new(log)), lines)
}

/// The next line. It may come a moment after the client has its response.
fn next(lines: &Receiver<Vec<u8>>) -> String {
    let line = tokio::task::block_in_place(|| lines.recv_timeout(TIMEOUT));
    String::from_utf8(line.unwrap()).unwrap()
}

fn has(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_is_a_line_with_what_passed() {
    let member = Server::fixed("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false).await;
    let (access_log, lines) = log();
    let scene = Scene::start_logging(access_log, &[member.address], |_| {}).await;
    let mut client = scene.client().await;
    let request = "POST /cart?secret=1 HTTP/1.1\r\nHost: shop\r\nUser-Agent: a\"b\r\n\
                   Content-Length: 5\r\n\r\nhello";
    for _ in 0..2 {
        client.send(request).await;
        client.response().await;
        let line = next(&lines);
        let (asked, member) = (request.len(), member.address);
        has(
            &line,
            &[
                "\"service\":\"shop/web\"",
                &format!("\"listener\":\"{}/TCP\"", scene.address),
                "\"client\":\"127.0.0.1:",
                "\"version\":\"HTTP/1.1\",\"method\":\"POST\",\"host\":\"shop\"",
                "\"target\":\"/cart\",\"userAgent\":\"a\\\"b\"",
                &format!("\"member\":\"{member}\",\"end\":\"ok\",\"status\":200"),
                &format!("\"bytesIn\":{asked},\"bytesOut\":40,\"firstByte\":0."),
            ],
        );
    }
    for span in [Span::FirstByte, Span::Request] {
        assert_eq!(scene.state.counters().times(span).unwrap().count, 2);
    }
    // The connection rests, and is no line of its own.
    assert!(lines.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_a_line_with_the_reason() {
    let (access_log, lines) = log();
    let scene = Scene::start_logging(access_log, &[], |_| {}).await;
    let mut client = scene.client().await;
    assert_eq!(client.get("/").await.status, 503);
    let line = next(&lines);
    has(
        &line,
        &["\"target\":\"/\"", "\"end\":\"no_member\",\"status\":503"],
    );
    assert!(!line.contains("\"member\":"), "{line}");
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
        .await;
    assert_eq!(client.response().await.status, 400);
    let line = next(&lines);
    has(&line, &["\"end\":\"malformed\",\"status\":400"]);
    assert!(!line.contains("target"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_side_that_broke_off_is_in_the_line() {
    let mut member = Puppet::start().await;
    let (access_log, lines) = log();
    let scene = Scene::start_logging(access_log, &[member.address], |_| {}).await;
    let mut leaving = scene.client().await;
    leaving.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut conversation = member.accept().await;
    conversation.request().await.unwrap();
    drop(leaving);
    has(
        &next(&lines),
        &["\"target\":\"/1\"", "\"end\":\"client_abort\""],
    );

    let mut client = scene.client().await;
    client.send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut conversation = member.accept().await;
    conversation.request().await.unwrap();
    conversation
        .send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        .await;
    drop(conversation);
    has(&next(&lines), &["\"end\":\"member_failed\",\"status\":200"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_over_http2_are_lines_too() {
    let member = Server::echo("only").await;
    let (access_log, lines) = log();
    let scene = Scene::start_logging(access_log, &[member.address], |_| {}).await;
    let client = Http2Client::connect(scene.address).await;
    let body = client.ask(post("/form?x=y", text("hello"))).await;
    let line = next(&lines);
    let sent = format!(
        "\"status\":200,\"bytesIn\":5,\"bytesOut\":{},",
        body.text().len()
    );
    has(
        &line,
        &[
            "\"version\":\"HTTP/2.0\",\"method\":\"POST\",\"host\":\"",
            "\"target\":\"/form\"",
            "\"end\":\"ok\"",
            &sent,
        ],
    );
    let counters = scene.state.counters();
    assert_eq!(counters.times(Span::Request).unwrap().count, 1);

    let mut silent = Puppet::start().await;
    let (access_log, lines) = log();
    let scene = Scene::start_logging(access_log, &[silent.address], |_| {}).await;
    let client = Http2Client::connect(scene.address).await;
    let taken = async {
        let mut conversation = silent.accept().await;
        conversation.request().await.unwrap();
        conversation
    };
    let conversation = tokio::select! {
        _ = client.begin(get("/held")) => panic!("an answer"),
        conversation = taken => conversation,
    };
    drop(client);
    has(
        &next(&lines),
        &["\"target\":\"/held\"", "\"end\":\"client_abort\""],
    );
    drop(conversation);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_over_http2_are_noted_as_others() {
    use crate::scene::http2::Http2Server;
    let member = Http2Server::echo("only").await;
    let (access_log, lines) = log();
    let scene = Scene::start_logging(access_log, &[member.address], |listener| {
        listener.mode = landfall_model::listener::Mode::Http(landfall_model::listener::Http {
            member_http2: true,
            ..Default::default()
        });
    })
    .await;
    scene.get("/one").await;
    has(
        &next(&lines),
        &[
            "HTTP/1.1",
            "\"target\":\"/one\"",
            "\"end\":\"ok\",\"status\":200",
        ],
    );
    let client = Http2Client::connect(scene.address).await;
    client.ask(get("/two")).await;
    has(
        &next(&lines),
        &[
            "HTTP/2.0",
            "\"target\":\"/two\"",
            "\"end\":\"ok\",\"status\":200",
        ],
    );
}
