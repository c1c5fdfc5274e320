//! Memory for buffers that runs short: what is refused, and what is not.

use std::sync::Arc;

use landfall_model::listener::{Http, Listener, Mode};
use landfall_proxy::ProxyConfig;
use landfall_proxy::counters::Refusal;
use tokio::sync::Barrier;

use crate::http2_flow::{beginning, frame};
use crate::scene::http2::{Http2Client, Http2Server, get, text};
use crate::scene::{Client, Scene, Server, until};

/// A listener whose buffers may take so many MiB.
async fn within(mebibytes: u64, member: &Server) -> Scene {
    let config = ProxyConfig {
        memory: Some(mebibytes << 20),
        ..ProxyConfig::default()
    };
    Scene::start_by(config, &[member.address], |_| {}).await
}

#[tokio::test]
async fn long_heads_above_the_share_of_a_client_are_refused_and_other_clients_are_served() {
    let member = Server::echo("only").await;
    let scene = within(4, &member).await;
    // A byte more than the smallest buffer has room for.
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(16 * 1024));
    let refused = || scene.state.counters().totals().refused(Refusal::Share);
    let mut clients = Vec::new();
    let bytes_in = || scene.state.counters().totals().bytes_in;
    while refused() == 0 {
        let counted = bytes_in();
        let mut client = scene.client().await;
        client.send(&head).await;
        until("it is read", || bytes_in() - counted >= 16 * 1024).await;
        clients.push(client);
        assert!(clients.len() < 200, "nothing was refused");
    }
    assert!(clients.len() > 32, "only {} were served", clients.len());
    assert_eq!(clients.pop().unwrap().response().await.status, 503);
    let pressure = scene.proxy.pressure();
    assert!(pressure.memory <= pressure.memory_limit && pressure.shortages > 0);
    // What needs no more than any connection is served, and so is another client.
    assert_eq!(scene.get("/").await.status, 200);
    let mut other = Client::over(scene.client_from(2).await.unwrap());
    other.send(format!("{head}\r\n\r\n")).await;
    assert_eq!(other.response().await.status, 200);
    drop((clients, other));
    until("all is given back", || scene.proxy.pressure().memory == 0).await;
}

#[tokio::test]
async fn long_heads_whose_member_does_not_answer_count_as_those_that_are_not_whole() {
    let member = Server::start(|mut conversation| async move {
        while let Some(request) = conversation.request().await {
            if request.head.starts_with("GET /short") {
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                conversation.send(answer).await;
            }
        }
    })
    .await;
    let scene = within(4, &member).await;
    let head = |path| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
            "x".repeat(20_000)
        )
    };
    let refused = || scene.state.counters().totals().refused(Refusal::Share);
    let mut clients = Vec::new();
    while refused() == 0 {
        let mut client = scene.client().await;
        client.send(head("/")).await;
        clients.push(client);
        let asked = || member.requests() == clients.len() || refused() > 0;
        until("it is asked or refused", asked).await;
        assert!(clients.len() < 200, "nothing was refused");
    }
    assert!(clients.len() > 32, "only {} were served", clients.len());
    assert_eq!(clients.pop().unwrap().response().await.status, 503);
    // What needs no more than any connection is served, and so is another client.
    assert_eq!(scene.get("/short").await.status, 200);
    let mut other = Client::over(scene.client_from(2).await.unwrap());
    other.send(head("/short")).await;
    assert_eq!(other.response().await.status, 200);
    drop((clients, other));
    until("all is given back", || scene.proxy.pressure().memory == 0).await;
}

#[tokio::test]
async fn many_short_fields_of_http2_requests_count_with_what_each_takes_beside_its_bytes() {
    const REQUESTS: u32 = 50;
    const FIELDS: u32 = 900;
    let member = Server::start(|mut conversation| async move {
        conversation.request().await;
        std::future::pending::<()>().await;
    })
    .await;
    let scene = within(64, &member).await;
    let digit = |number: u32| b"abcdefghijklmnopqrstuvwxyz0123456789"[(number % 36) as usize];
    let mut block = vec![0x82, 0x86, 0x84, 0x01, 0x01, b'a'];
    for number in 0..FIELDS {
        // A name of three letters, and nothing behind it.
        block.extend([0, 3, b'x', digit(number), digit(number / 36), 0]);
    }
    let mut client = scene.client().await;
    client.send(beginning(65_535)).await;
    for number in 0..REQUESTS {
        client.send(frame(1, 0x5, 2 * number + 1, &block)).await;
    }
    until("all are asked", || member.requests() == REQUESTS as usize).await;
    let each = scene.proxy.pressure().memory / u64::from(REQUESTS);
    assert!(each > u64::from(FIELDS) * 150, "{each}");
    drop(client);
    until("all is given back", || scene.proxy.pressure().memory == 0).await;
}

fn http2(listener: &mut Listener) {
    listener.mode = Mode::Http(Http {
        member_http2: true,
        ..Http::default()
    });
}

/// Members that take a request at a time on each connection, and answer as soon as there are so
/// many.
async fn one_at_a_time(requests: usize) -> Http2Server {
    let barrier = Arc::new(Barrier::new(requests));
    Http2Server::start_allowing(Some(1), move |_| {
        let barrier = barrier.clone();
        async move {
            barrier.wait().await;
            http::Response::new(text("hello"))
        }
    })
    .await
}

#[tokio::test]
async fn connections_to_members_hold_a_place_as_long_as_they_are_open_and_make_room() {
    const CLIENTS: usize = 6;
    let member = one_at_a_time(CLIENTS).await;
    let config = ProxyConfig {
        files: std::num::NonZeroUsize::new(1024),
        ..ProxyConfig::default()
    };
    let scene = Scene::start_by(config, &[member.address], http2).await;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let client = Http2Client::connect(scene.address).await;
        clients.spawn(async move { client.ask(get("/")).await.status });
    }
    assert_eq!(clients.join_all().await, [200; CLIENTS]);
    assert_eq!(member.open(), CLIENTS);
    let held = || scene.proxy.pressure().used as usize;
    until("the clients have left", || held() == CLIENTS).await;
    assert_eq!(member.open(), CLIENTS);
    // Clients of several addresses take all that is left.
    let mut rude = Vec::new();
    for number in 0..500_usize {
        rude.push(scene.client_from(2 + (number % 8) as u8).await);
    }
    until("connections that carry nothing are closed", || {
        member.open() == 0
    })
    .await;
}
