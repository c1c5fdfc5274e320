//! What the endpoint does with clients that want too much, and how it ends.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{DEADLINE, Served};
use crate::stage::scenes;

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let served = Served::new(scenes::empty()).await;
    let request = format!(
        "POST /api/v1/plan HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: \
        9000000\r\n\r\n",
        served.address
    );
    assert_eq!(
        served.say(&request).await.refusal(),
        (413, "TooLarge".into())
    );
}

#[tokio::test]
async fn a_body_of_unknown_length_is_cut_at_the_limit() {
    let served = Served::new(scenes::empty()).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let head = format!(
        "POST /api/v1/plan HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n",
        served.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let endless = tokio::spawn(async move {
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        while writer.write_all(chunk.as_bytes()).await.is_ok() {}
    });
    let mut part = vec![0; 64];
    let count = tokio::time::timeout(DEADLINE, reader.read(&mut part))
        .await
        .unwrap()
        .unwrap();
    assert!(String::from_utf8_lossy(&part[..count]).starts_with("HTTP/1.1 413 "));
    drop(reader);
    tokio::time::timeout(DEADLINE, endless)
        .await
        .expect("the connection is closed")
        .unwrap();
}

#[tokio::test]
async fn half_a_request_does_not_keep_others_from_being_answered() {
    let served = Served::new(scenes::empty()).await;
    let mut dawdlers = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(b"GET /healthz HTT").await.unwrap();
        dawdlers.push(stream);
    }
    assert_eq!(served.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn idle_connections_make_room_for_probes_and_people() {
    let served = Served::new(scenes::empty()).await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(TcpStream::connect(served.address).await.unwrap());
    }
    assert_eq!(served.get("/healthz").await.status, 200);
    assert_eq!(served.get("/api/v1/instance").await.status, 200);
    // Those that have been idle longest were ended, and the newest were not.
    let mut byte = [0];
    let ended = tokio::time::timeout(DEADLINE, idle[0].read(&mut byte));
    assert_eq!(ended.await.unwrap().unwrap_or_default(), 0);
    let newest = idle.last_mut().unwrap();
    newest
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut part = [0; 15];
    newest.read_exact(&mut part).await.unwrap();
    assert_eq!(&part, b"HTTP/1.1 200 OK");
}

#[tokio::test]
async fn what_is_no_http_is_refused() {
    let served = Served::new(scenes::empty()).await;
    assert_eq!(served.say("\x16\x03\x01 hello\r\n\r\n").await.status, 400);
    let headers = "X-Many: 1\r\n".repeat(100);
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    assert_eq!(served.say(&many).await.status, 431);
}

#[tokio::test]
async fn it_ends_soon_even_with_readers_that_never_leave() {
    let mut served = Served::new(scenes::empty()).await;
    let idle = TcpStream::connect(served.address).await.unwrap();
    let mut reader = TcpStream::connect(served.address).await.unwrap();
    let request = format!(
        "GET /api/v1/events HTTP/1.1\r\nHost: {}\r\n\r\n",
        served.address
    );
    reader.write_all(request.as_bytes()).await.unwrap();
    let mut part = vec![0; 4096];
    assert!(reader.read(&mut part).await.unwrap() > 0);
    tokio::time::timeout(Duration::from_secs(10), served.stop())
        .await
        .expect("it ends");
    drop(idle);
    assert!(TcpStream::connect(served.address).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_ends_is_given_up() {
    let served = Served::new(scenes::empty()).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(b"GET /healthz HTT").await.unwrap();
    let began = tokio::time::Instant::now();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    let waited = began.elapsed().as_secs();
    assert!((65..70).contains(&waited), "closed after {waited} s");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_comes_is_given_up() {
    let served = Served::new(scenes::empty()).await;
    let began = tokio::time::Instant::now();
    let request = "POST /api/v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nkind";
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut part = vec![0; 4096];
    let count = stream.read(&mut part).await.unwrap();
    let answer = crate::harness::Answer::parse(&String::from_utf8_lossy(&part[..count]));
    assert_eq!(answer.refusal(), (408, "Timeout".into()));
    let waited = began.elapsed().as_secs();
    assert!((30..35).contains(&waited), "answered after {waited} s");
}

#[tokio::test]
async fn only_so_many_plans_are_taken_on_at_once() {
    let served = Served::new(scenes::empty()).await;
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let head = "POST /api/v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        waiting.push(stream);
    }
    let refused = async {
        while served.ask("POST", "/api/v1/plan", &[], "more").await.status != 503 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, refused)
        .await
        .expect("the fifth is refused");
    for stream in &mut waiting {
        stream.write_all(b"some").await.unwrap();
        let mut part = vec![0; 4096];
        let count = stream.read(&mut part).await.unwrap();
        let answer = crate::harness::Answer::parse(&String::from_utf8_lossy(&part[..count]));
        assert_eq!(answer.json(), json!({"bytes": 4, "prune": false}));
    }
    assert_eq!(
        served.ask("POST", "/api/v1/plan", &[], "more").await.status,
        200
    );
}
