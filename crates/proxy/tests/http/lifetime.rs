//! How connections begin to end, what is counted, and what is shared.

use std::time::Duration;

use crate::scene::member::Puppet;
use crate::scene::{Scene, Server, until};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn a_closing_listener_ends_idle_connections_at_once_and_busy_ones_after_their_answer() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let (mut idle, mut busy, mut late) = (
        scene.client().await,
        scene.client().await,
        scene.client().await,
    );
    for client in [&mut idle, &mut busy] {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    }
    late.send("GET /late HTTP/1.1\r\nHo").await;
    let (mut first, mut second) = (member.accept().await, member.accept().await);
    first.request().await.unwrap();
    second.request().await.unwrap();
    first.send(OK).await;
    let (mut idle, mut busy, mut second) = tokio::select! {
        _ = idle.response() => (idle, busy, second),
        _ = busy.response() => (busy, idle, second),
    };
    scene.close().await;
    idle.closed().await;
    first.closed().await;

    second.send(OK).await;
    let response = busy.response().await;
    assert_eq!(
        (response.text(), response.field("connection")),
        ("ok", Some("close"))
    );
    busy.closed().await;
    second.closed().await;

    // A request that had begun is still served.
    late.send("st: a\r\n\r\n").await;
    let mut third = member.accept().await;
    third.request().await.unwrap();
    third.send(OK).await;
    assert_eq!(late.response().await.field("connection"), Some("close"));
    late.closed().await;
}

#[tokio::test]
async fn everything_that_passes_is_counted() {
    let member = Server::fixed(OK, false).await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    for _ in 0..3 {
        client.send(request).await;
        assert_eq!(client.response().await.text(), "ok");
    }
    let (sent, answered) = (3 * request.len() as u64, 3 * OK.len() as u64);
    let counted = || {
        let (all, row) = (
            scene.state.counters().totals(),
            scene.state.pool().status().remove(0),
        );
        (
            all.bytes_in,
            all.bytes_out,
            row.totals.bytes_in,
            row.totals.bytes_out,
            row.totals.connections,
            row.open,
        )
    };
    let totals = scene.state.counters().totals();
    assert_eq!((totals.connections, totals.responses), (1, [0, 3, 0, 0, 0]));
    until("all is counted", || {
        counted() == (sent, answered, sent, answered, 3, 0)
    })
    .await;
}

#[tokio::test]
async fn a_member_counts_as_busy_exactly_while_a_request_runs() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    let open = || scene.state.pool().status()[0].open;
    assert_eq!(open(), 0);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut served = member.accept().await;
    served.request().await.unwrap();
    assert_eq!(open(), 1);
    served.send(OK).await;
    assert_eq!(client.response().await.text(), "ok");
    until("the request is over", || open() == 0).await;
}

#[tokio::test]
async fn a_request_ends_when_the_drain_time_of_its_member_is_over() {
    let mut member = Puppet::start().await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut served = member.accept().await;
    served.request().await.unwrap();
    scene.state.pool().cut_all();
    assert_eq!(client.response().await.status, 502);
    served.closed().await;
}

#[tokio::test]
async fn a_tunnel_ends_when_the_drain_time_of_its_member_is_over() {
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
    scene.state.pool().cut_all();
    assert!(client.is_reset().await);
}

#[tokio::test]
async fn a_side_that_has_its_end_is_not_reset_when_a_tunnel_is_cut() {
    for member_ends in [false, true] {
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
        let (whole, short) = if member_ends {
            served.finish().await;
            (&mut client, &mut served)
        } else {
            client.finish().await;
            (&mut served, &mut client)
        };
        whole.closed().await;
        scene.state.pool().cut_all();
        assert!(short.is_reset().await);
        let is_over = || scene.proxy.snapshot().iter().all(|row| row.open == 0);
        until("given back", is_over).await;
        let reset = whole.stream().take_error().unwrap();
        assert!(reset.is_none(), "{reset:?}, {member_ends}");
    }
}

#[tokio::test]
async fn a_silent_tunnel_ends() {
    let mut member = Puppet::start().await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.timeouts.client_data = Duration::from_millis(500);
        listener.timeouts.member_data = Duration::from_millis(1500);
    })
    .await;
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
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        client.send("x").await;
        assert_eq!(served.exactly(1).await, b"x");
    }
    assert!(client.is_reset().await);
}

#[tokio::test]
async fn a_client_that_wants_its_connection_closed_gets_that() {
    let member = Server::fixed(OK, false).await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await;
    assert_eq!(client.response().await.field("connection"), Some("close"));
    client.closed().await;
    assert_eq!(scene.get("/").await.text(), "ok");
    assert_eq!(
        member.connections(),
        1,
        "the member's connection is kept all the same"
    );
}

#[tokio::test]
async fn a_member_that_closes_is_noticed_by_the_proxy_and_not_by_the_client() {
    let member = Server::fixed(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        true,
    )
    .await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    for _ in 0..3 {
        assert_eq!(client.get("/").await.field("connection"), None);
    }
    assert_eq!(member.connections(), 3);
}
