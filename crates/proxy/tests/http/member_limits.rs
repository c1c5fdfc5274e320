//! Requests beyond what members may have, members that fail, and tries at other members.

use std::time::Duration;

use bytes::Bytes;
use hyper::body::Frame;
use landfall_model::listener::{Http, Mode};
use landfall_proxy::counters::Refusal;
use tokio::io::AsyncWriteExt;

use crate::scene::http2::{self, Http2Client, Http2Server};
use crate::scene::member::Puppet;
use crate::scene::{Client, Scene, Server, closed_address, until};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A listener whose member may have one request at a time.
async fn one_at_a_time(member: &Puppet) -> Scene {
    Scene::start_with(&[member.address], |listener| {
        listener.pool.protection.connections = Some(1);
        listener.pool.protection.queue = 2;
        listener.pool.protection.queue_timeout = Duration::from_secs(600);
    })
    .await
}

async fn ask(client: &mut Client, path: &str) {
    let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(head).await;
}

#[tokio::test]
async fn requests_wait_for_a_member_in_order_and_too_many_are_refused() {
    let mut member = Puppet::start().await;
    let scene = one_at_a_time(&member).await;
    let mut clients = [
        scene.client().await,
        scene.client().await,
        scene.client().await,
    ];
    let waiting = |count| {
        let state = scene.state.clone();
        async move { until("in line", || state.pool().waiting() == count).await }
    };
    ask(&mut clients[0], "/0").await;
    let mut served = member.accept().await;
    assert!(served.request().await.unwrap().head.starts_with("GET /0 "));
    for (number, client) in clients.iter_mut().enumerate().skip(1) {
        ask(client, &format!("/{number}")).await;
        waiting(number).await;
    }
    let refused = scene.get("/3").await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.field("retry-after"), Some("5"));
    assert_eq!(refused.text(), "every member is at its limit\n");
    let over_http2 = Http2Client::connect(scene.address).await;
    assert_eq!(over_http2.ask(http2::get("/4")).await.status, 503);
    let totals = scene.state.counters().totals();
    assert_eq!(totals.refused(Refusal::Queue), 2);
    for (number, client) in clients.iter_mut().enumerate() {
        served.send(OK).await;
        assert_eq!(client.response().await.status, 200);
        if number < 2 {
            let next = served.request().await.unwrap().head;
            assert!(next.starts_with(&format!("GET /{} ", number + 1)), "{next}");
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_the_line_is_not_served() {
    let mut member = Puppet::start().await;
    let scene = one_at_a_time(&member).await;
    let (mut first, mut leaves) = (scene.client().await, scene.client().await);
    ask(&mut first, "/first").await;
    let mut served = member.accept().await;
    served.request().await.unwrap();
    ask(&mut leaves, "/leaves").await;
    until("in line", || scene.state.pool().waiting() == 1).await;
    drop(leaves);
    until("gone", || scene.state.pool().waiting() == 0).await;
    served.send(OK).await;
    assert_eq!(first.response().await.status, 200);
    ask(&mut first, "/next").await;
    assert!(
        served
            .request()
            .await
            .unwrap()
            .head
            .starts_with("GET /next ")
    );
}

#[tokio::test]
async fn requests_of_http2_clients_wait_and_those_to_http2_members() {
    let member = Http2Server::echo("one").await;
    let scene = Scene::start_with(&[member.address], |listener| {
        listener.mode = Mode::Http(Http {
            member_http2: true,
            ..Http::default()
        });
        listener.pool.protection.connections = Some(1);
        listener.pool.protection.queue_timeout = Duration::from_secs(600);
    })
    .await;
    let (sender, body) = http2::frames();
    let over_http2 = Http2Client::connect(scene.address).await;
    let slow = over_http2.begin(http2::post("/slow", body));
    let mut over_http1 = scene.client().await;
    let others = async {
        until("taken", || scene.state.pool().status()[0].open == 1).await;
        ask(&mut over_http1, "/waits").await;
        until("in line", || scene.state.pool().waiting() == 1).await;
        drop(sender);
    };
    let (slow, ()) = tokio::join!(slow, others);
    assert_eq!(http2::whole(slow.unwrap()).await.unwrap().status, 200);
    assert_eq!(over_http1.response().await.status, 200);
    assert_eq!(over_http2.ask(http2::get("/next")).await.status, 200);
}

#[tokio::test]
async fn a_member_that_answers_with_errors_is_left_out() {
    let answer = "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n";
    let bad = Server::fixed(answer, false).await;
    let good = Server::echo("good").await;
    let scene = Scene::start_with(&[bad.address, good.address], |listener| {
        listener.pool.protection.outlier_failures = Some(3);
    })
    .await;
    let mut client = scene.client().await;
    let mut errors = 0;
    for _ in 0..40 {
        errors += u32::from(client.get("/").await.status == 503);
    }
    assert_eq!((errors, bad.requests()), (3, 3));
    let status = scene.state.pool().status();
    let of_bad = status.iter().find(|it| it.address == bad.address).unwrap();
    assert_eq!(
        of_bad.left_out.as_deref(),
        Some("ejected for 30 s after 3 failures in a row: it answers with status 503")
    );
    let over_http2 = Http2Client::connect(scene.address).await;
    for _ in 0..10 {
        assert_eq!(over_http2.ask(http2::get("/")).await.status, 200);
    }
}

#[tokio::test]
async fn a_member_that_gives_no_answer_is_left_out_for_all_clients() {
    for http2_client in [false, true] {
        let bad = Server::start(|mut conversation| async move {
            conversation.request().await;
        })
        .await;
        let good = Server::echo("good").await;
        let scene = Scene::start_with(&[bad.address, good.address], |listener| {
            listener.pool.protection.outlier_failures = Some(2);
        })
        .await;
        let over_http2 = Http2Client::connect(scene.address).await;
        for _ in 0..20 {
            // What is lost at one member is asked of the other.
            let status = if http2_client {
                over_http2.ask(http2::get("/")).await.status
            } else {
                scene.get("/").await.status
            };
            assert_eq!(status, 200);
        }
        assert_eq!(bad.requests(), 2);
    }
}

#[tokio::test]
async fn without_a_retry_budget_one_member_is_tried() {
    let scene = Scene::start_with(
        &[closed_address(), closed_address(), closed_address()],
        |listener| {
            listener.pool.protection.retry_budget = 0;
        },
    )
    .await;
    let failures = || scene.state.counters().totals().connect_failures;
    assert_eq!(scene.get("/").await.status, 502);
    assert_eq!(failures(), 1);
    let over_http2 = Http2Client::connect(scene.address).await;
    assert_eq!(over_http2.ask(http2::get("/")).await.status, 502);
    assert_eq!(failures(), 2);
}

#[tokio::test]
async fn a_pool_that_gives_no_answer_is_asked_little_more_than_once_per_request() {
    const CLIENTS: usize = 100;
    let mut members = [Puppet::start().await, Puppet::start().await];
    let scene = Scene::start(&members.each_ref().map(|it| it.address)).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = scene.client().await;
        ask(&mut client, "/").await;
        clients.push(client);
    }
    let mut asked = Vec::new();
    for member in &mut members {
        for _ in 0..CLIENTS / 2 {
            let mut conversation = member.accept().await;
            conversation.request().await.unwrap();
            asked.push(conversation);
        }
    }
    // All of them fail at once.
    drop(asked);
    let open = || {
        let status = scene.state.pool().status();
        status.iter().map(|member| member.open).sum::<u32>()
    };
    until("most gave up", || open() <= 30).await;
    let again = open();
    assert!((10..=30).contains(&again), "{again}");
}

/// A member that answers one request and then says for ever that it is at work, and a good one.
async fn beside_a_member_that_never_comes_to_an_end() -> (Server, Server, Scene) {
    let busy = Server::start(|mut conversation| async move {
        conversation.request().await;
        conversation.send(OK).await;
        while conversation.request().await.is_some() {
            let stream = conversation.client().stream();
            let interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
            while stream.write_all(interim).await.is_ok() {}
        }
    })
    .await;
    let good = Server::echo("good").await;
    let scene = Scene::start_with(&[busy.address, good.address], |listener| {
        listener.pool.protection.outlier_failures = Some(1);
        listener.timeouts.client_data = Duration::from_secs(600);
        listener.timeouts.member_data = Duration::from_secs(600);
    })
    .await;
    (busy, good, scene)
}

#[tokio::test]
async fn a_member_that_sends_interim_responses_without_end_is_given_up_and_left_out() {
    for http2_client in [false, true] {
        let (_busy, _good, scene) = beside_a_member_that_never_comes_to_an_end().await;
        let (mut over_http1, over_http2) = (
            scene.client().await,
            Http2Client::connect(scene.address).await,
        );
        let mut statuses = Vec::new();
        for _ in 0..12 {
            statuses.push(if http2_client {
                over_http2.ask(http2::get("/")).await.status
            } else {
                ask(&mut over_http1, "/").await;
                loop {
                    let response = over_http1.response().await;
                    if response.status != 103 {
                        break response.status;
                    }
                }
            });
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [[200; 11].as_slice(), &[502]].concat());
        let status = scene.state.pool().status();
        let why = status.iter().find_map(|it| it.left_out.clone()).unwrap();
        assert!(why.ends_with("it does not answer"), "{why}");
    }
}

#[tokio::test]
async fn a_member_may_say_many_times_that_it_is_at_work() {
    let interims = "HTTP/1.1 102 Processing\r\n\r\n".repeat(2000);
    let member = Server::fixed(format!("{interims}{OK}"), false).await;
    let scene = Scene::start(&[member.address]).await;
    let mut client = scene.client().await;
    ask(&mut client, "/").await;
    for _ in 0..2000 {
        assert_eq!(client.response().await.status, 102);
    }
    assert_eq!(client.response().await.status, 200);
    let over_http2 = Http2Client::connect(scene.address).await;
    assert_eq!(over_http2.ask(http2::get("/")).await.status, 200);
}

#[tokio::test]
async fn a_member_that_gives_up_a_slow_client_is_not_blamed() {
    for http2_client in [false, true] {
        let left_out = half_requests(http2_client, SLOW).await;
        assert_eq!(left_out, 0, "over HTTP/2: {http2_client}");
    }
}

#[tokio::test]
async fn a_member_that_ends_connections_at_once_is_left_out_though_clients_still_send() {
    for http2_client in [false, true] {
        let left_out = half_requests(http2_client, Duration::ZERO).await;
        assert_ne!(left_out, 0, "over HTTP/2: {http2_client}");
    }
}

/// Longer than a member waits that does not give up a slow client.
const SLOW: Duration = Duration::from_millis(1100);

/// Sends a half request, which a member gives up after this time. Returns how many members are left
/// out then.
async fn half_requests(http2_client: bool, after: Duration) -> usize {
    let mut members = [Puppet::start().await, Puppet::start().await];
    let addresses = members.each_ref().map(|it| it.address);
    let scene = Scene::start_with(&addresses, |listener| {
        listener.pool.protection.outlier_failures = Some(1);
    })
    .await;
    let [first, second] = &mut members;
    let mut over_http1 = scene.client().await;
    let over_http2 = Http2Client::connect(scene.address).await;
    let (frames, body) = http2::frames();
    let half = Frame::data(Bytes::from_static(b"half"));
    frames.send(half).await.unwrap();
    let asked = async {
        if http2_client {
            return over_http2.ask(http2::post("/", body)).await.status;
        }
        over_http1
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf\r\n")
            .await;
        over_http1.response().await.status
    };
    let gives_up = async {
        let mut served = tokio::select! {
            served = first.accept() => served,
            served = second.accept() => served,
        };
        while !served.line().await.ends_with("half") {}
        tokio::time::sleep(after).await;
    };
    let (status, ()) = tokio::join!(asked, gives_up);
    assert_eq!(status, 502);
    let status = scene.state.pool().status();
    status.iter().filter(|it| it.left_out.is_some()).count()
}
