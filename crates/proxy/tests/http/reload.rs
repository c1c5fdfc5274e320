//! Changes of a listener that is in use: what is open goes on, what comes next sees the change.

use std::error::Error;
use std::net::TcpListener;
use std::num::NonZeroU16;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Frame;
use landfall_model::listener::{Certificates, Check, Member, Mode, Monitor};
use landfall_proxy::Applied;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::scene::http2::{Http2Client, certificates, frames, get, post, tls};
use crate::scene::member::Puppet;
use crate::scene::{EVERYTHING, Scene, Server, until};

#[tokio::test]
async fn an_option_that_changes_counts_from_the_next_request_of_an_open_connection() {
    let member = Server::echo("only").await;
    let mut scene = Scene::start(&[member.address]).await;
    let mut old = scene.client().await;
    let new = Http2Client::connect(scene.address).await;
    assert!(!old.get("/").await.text().contains("X-Forwarded-For"));
    assert!(!new.ask(get("/")).await.text().contains("x-forwarded-for"));
    let change = scene
        .change(|listener| listener.mode = Mode::Http(EVERYTHING))
        .await;
    assert_eq!(change.unwrap(), Applied::Changed);
    assert!(
        old.get("/")
            .await
            .text()
            .contains("X-Forwarded-For: 127.0.0.1\n")
    );
    assert!(
        new.ask(get("/"))
            .await
            .text()
            .contains("x-forwarded-for: 127.0.0.1\n")
    );
}

#[tokio::test]
async fn members_that_come_and_go_are_met_by_the_next_request_of_an_open_connection() {
    let (first, second) = (Server::echo("first").await, Server::echo("second").await);
    let mut scene = Scene::start(&[first.address]).await;
    let mut client = scene.client().await;
    assert_eq!(client.get("/").await.field("x-member"), Some("first"));
    scene
        .change(|listener| listener.pool.members = vec![Member::new(second.address)])
        .await
        .unwrap();
    for _ in 0..4 {
        assert_eq!(client.get("/").await.field("x-member"), Some("second"));
    }
    assert_eq!(first.requests(), 1);
}

#[tokio::test]
async fn kept_connections_to_a_member_that_left_are_closed() {
    let mut member = Puppet::start().await;
    let mut scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut served = member.accept().await;
    served.request().await.unwrap();
    served.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(client.response().await.status, 204);
    scene
        .change(|listener| listener.pool.members.clear())
        .await
        .unwrap();
    served.closed().await;
    assert_eq!(client.get("/").await.status, 503);
}

#[tokio::test]
async fn a_request_under_way_to_a_member_that_left_is_answered() {
    let mut member = Puppet::start().await;
    let mut scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut served = member.accept().await;
    served.request().await.unwrap();
    scene
        .change(|listener| listener.pool.members.clear())
        .await
        .unwrap();
    served
        .send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .await;
    assert_eq!(client.response().await.text(), "ok");
}

#[tokio::test]
async fn a_member_whose_check_fails_gets_nothing_and_its_kept_connections_are_closed() {
    let mut sick = Puppet::start().await;
    let checked = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = NonZeroU16::new(checked.local_addr().unwrap().port());
    // Checked on a port of its own: while that is open, both are up.
    let monitor = Monitor {
        delay: Duration::from_millis(30),
        timeout: Duration::from_secs(10),
        max_retries_down: 2,
        port,
        ..Monitor::new(Check::Tcp)
    };
    let scene = Scene::start_with(&[sick.address], |listener| {
        listener.pool.monitor = Some(monitor);
    })
    .await;
    let mut client = scene.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut served = sick.accept().await;
    served.request().await.unwrap();
    served.send("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(client.response().await.status, 204);
    drop(checked);
    until("the member is down", || {
        !scene.state.pool().status()[0].serves
    })
    .await;
    served.closed().await;
    assert_eq!(client.get("/").await.status, 503);
}

/// The certificate that a connection got.
fn presented(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0]
        .clone()
        .into_owned()
}

async fn asks(stream: &mut TlsStream<TcpStream>) -> String {
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\n\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(answer).unwrap()
}

fn https(certificates: Certificates) -> Mode {
    Mode::Https {
        http: EVERYTHING,
        certificates,
    }
}

#[tokio::test]
async fn a_new_certificate_is_for_new_connections_and_open_ones_go_on() {
    let member = Server::echo("only").await;
    let old = certificates("old.example");
    let mut scene = Scene::start_with(&[member.address], |listener| {
        listener.mode = https(old.clone());
    })
    .await;
    let mut open = tls(scene.address, &[]).await;
    let busy = Http2Client::over(tls(scene.address, &["h2"]).await).await;
    assert!(asks(&mut open).await.starts_with("HTTP/1.1 200"));
    let (send, body) = frames();
    let asking = tokio::spawn(async move {
        let response = busy.begin(post("/", body)).await.unwrap();
        response.into_body().collect().await.unwrap().to_bytes()
    });
    send.send(Frame::data("before ".into())).await.unwrap();

    let change = scene
        .change(|listener| listener.mode = https(certificates("new.example")))
        .await;
    assert_eq!(change.unwrap(), Applied::Changed);
    let after = tls(scene.address, &[]).await;
    assert_ne!(presented(&after), presented(&open));
    assert!(asks(&mut open).await.starts_with("HTTP/1.1 200"));
    send.send(Frame::data("after".into())).await.unwrap();
    drop(send);
    assert!(asking.await.unwrap().ends_with(b"before after"));
}

#[tokio::test]
async fn a_bad_certificate_is_refused_and_the_good_one_goes_on() {
    let member = Server::echo("only").await;
    let good = certificates("shop.example");
    let mut scene = Scene::start_with(&[member.address], |listener| {
        listener.mode = https(good.clone());
    })
    .await;
    let before = presented(&tls(scene.address, &[]).await);
    let mut bad = (*good.0[0]).clone();
    bad.key_pem = certificates("other.example").0[0].key_pem.clone();
    let bad = Certificates(vec![std::sync::Arc::new(bad)]);
    let error = scene
        .change(|listener| listener.mode = https(bad))
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "CertificateUnusable");
    assert_eq!(
        error.source().unwrap().to_string(),
        "certificate shop/tls: the key in tls.key does not belong to the certificate in tls.crt"
    );
    let none = scene
        .change(|listener| listener.mode = https(Certificates::default()))
        .await;
    assert!(none.is_err());
    let mut stream = tls(scene.address, &[]).await;
    assert_eq!(presented(&stream), before);
    assert!(asks(&mut stream).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn plain_http_becomes_https_for_new_connections_only() {
    let member = Server::echo("only").await;
    let mut scene = Scene::start_with(&[member.address], |listener| {
        listener.mode = Mode::Http(EVERYTHING);
    })
    .await;
    let mut open = scene.client().await;
    assert!(
        open.get("/")
            .await
            .text()
            .contains("X-Forwarded-Proto: http\n")
    );
    scene
        .change(|listener| listener.mode = https(certificates("shop.example")))
        .await
        .unwrap();
    assert!(
        open.get("/")
            .await
            .text()
            .contains("X-Forwarded-Proto: http\n")
    );
    let mut stream = tls(scene.address, &[]).await;
    assert!(
        asks(&mut stream)
            .await
            .contains("X-Forwarded-Proto: https\n")
    );
}

#[tokio::test]
async fn tls_without_http_passes_bytes() {
    let mut member = Puppet::start().await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.mode = Mode::Tls {
            certificates: certificates("shop.example"),
        };
    })
    .await;
    let mut stream = tls(scene.address, &[]).await;
    stream.write_all(b"hello").await.unwrap();
    let mut served = member.accept().await;
    assert_eq!(served.exactly(5).await, b"hello");
    served.send("world").await;
    let mut received = [0; 5];
    stream.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"world");
}

#[tokio::test]
async fn a_client_that_speaks_no_tls_is_counted_and_gets_nothing() {
    let member = Server::echo("only").await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.mode = https(certificates("shop.example"));
    })
    .await;
    let mut client = scene.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    client.is_reset().await;
    let refused = || {
        scene
            .state
            .counters()
            .totals()
            .refused(landfall_proxy::counters::Refusal::Tls)
    };
    until("it is counted", || refused() == 1).await;
    assert_eq!(member.requests(), 0);
}
