//! How many requests one source may send.

use std::time::Duration;

use landfall_model::listener::{Http, Mode};
use landfall_model::protection::Rate;
use landfall_proxy::counters::Refusal;

use crate::scene::http2::{self, Http2Client};
use crate::scene::{Scene, Server};

/// So slow that no test sees one come back.
fn at_once(burst: u32) -> Rate {
    Rate {
        count: 1,
        period: Duration::from_secs(3600),
        burst,
    }
}

#[tokio::test]
async fn a_source_that_asks_too_often_learns_when_to_retry() {
    let server = Server::echo("one").await;
    let scene = Scene::start_with(&[server.address], |listener| {
        listener.source_limits.request_rate = Some(at_once(2));
    })
    .await;
    let mut client = scene.client().await;
    assert_eq!(client.get("/").await.status, 200);
    assert_eq!(scene.get("/").await.status, 200);
    let refused = client.get("/").await;
    assert_eq!(refused.status, 429);
    let wait: u32 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!((3500..=3600).contains(&wait), "{wait}");
    // The connection goes on.
    assert_eq!(client.get("/").await.status, 429);
    let over_http2 = Http2Client::connect(scene.address).await;
    let refused = over_http2.ask(http2::get("/")).await;
    assert_eq!(refused.status, 429);
    assert!(refused.field("retry-after").is_some());
    let totals = scene.state.counters().totals();
    assert_eq!(totals.refused(Refusal::SourceRate), 3);
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn with_trusted_hops_the_source_is_the_client_that_the_outermost_proxy_named() {
    let server = Server::echo("one").await;
    let scene = Scene::start_with(&[server.address], |listener| {
        listener.mode = Mode::Http(Http {
            trusted_hops: Some(2),
            ..Http::default()
        });
        listener.source_limits.request_rate = Some(at_once(1));
    })
    .await;
    let mut client = scene.client().await;
    let mut ask = async |forwarded: &str| {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {forwarded}\r\n\r\n");
        client.send(head).await;
        client.response().await.status
    };
    assert_eq!(ask("192.0.2.1, 10.0.0.1").await, 200);
    assert_eq!(ask("192.0.2.2, 10.0.0.1").await, 200);
    assert_eq!(ask("192.0.2.2, 10.0.0.1").await, 429);
    // What a client wrote before them changes nothing.
    assert_eq!(ask("203.0.113.7, 192.0.2.1, 10.0.0.1").await, 429);
    // Nonsense counts for the peer.
    assert_eq!(ask("unknown, 10.0.0.1").await, 200);
    assert_eq!(ask("?, 10.0.0.1").await, 429);
    let over_http2 = Http2Client::connect(scene.address).await;
    let ask = async |forwarded: &str| {
        let mut request = http2::get("/");
        let value = forwarded.parse().unwrap();
        request.headers_mut().insert("x-forwarded-for", value);
        over_http2.ask(request).await.status
    };
    assert_eq!(ask("192.0.2.1, 10.0.0.1").await, 429);
    assert_eq!(ask("192.0.2.3, 10.0.0.1").await, 200);
}
