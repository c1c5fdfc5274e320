//! The stream of changes.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{DEADLINE, Served};
use crate::stage::scenes;

async fn open(served: &Served) -> TcpStream {
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let request = format!(
        "GET /api/v1/events HTTP/1.1\r\nHost: {}\r\n\r\n",
        served.address
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads until the text is there, and returns all that was read.
async fn read_until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut read = String::new();
    let reading = async {
        let mut part = vec![0; 4096];
        while !read.contains(wanted) {
            let count = stream.read(&mut part).await.unwrap();
            assert!(count > 0, "ended after {read}");
            read.push_str(&String::from_utf8_lossy(&part[..count]));
        }
    };
    tokio::time::timeout(DEADLINE, reading)
        .await
        .expect("in time");
    read
}

#[tokio::test]
async fn a_stream_begins_with_the_present_state_and_reports_changes() {
    let served = Served::new(scenes::empty()).await;
    let mut stream = open(&served).await;
    let first = read_until(&mut stream, "\"change\":1}").await;
    assert!(
        first
            .to_lowercase()
            .contains("content-type: text/event-stream"),
        "{first}"
    );
    assert!(first.contains("event: change\n"), "{first}");
    served.stage.play(scenes::shop());
    read_until(&mut stream, "\"change\":2}").await;
}

#[tokio::test]
async fn changes_that_come_together_are_reported_as_one() {
    let served = Served::new(scenes::empty()).await;
    let mut stream = open(&served).await;
    read_until(&mut stream, "\"change\":1}").await;
    for _ in 0..50 {
        served.stage.play(scenes::empty());
    }
    let reported = read_until(&mut stream, "\"change\":51}").await;
    assert!(reported.matches("event: change").count() <= 2, "{reported}");
}

#[tokio::test]
async fn there_are_only_so_many_streams_and_a_place_is_given_back() {
    let served = Served::new(scenes::empty()).await;
    let mut streams = Vec::new();
    for _ in 0..64 {
        let mut stream = open(&served).await;
        read_until(&mut stream, "\"change\":1}").await;
        streams.push(stream);
    }
    assert_eq!(
        served.get("/api/v1/events").await.refusal(),
        (503, "Busy".into())
    );
    assert_eq!(served.get("/healthz").await.status, 200);

    drop(streams);
    let reopened = async {
        loop {
            let mut stream = open(&served).await;
            let mut part = vec![0; 4096];
            let count = stream.read(&mut part).await.unwrap();
            if part[..count].starts_with(b"HTTP/1.1 200") {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, reopened)
        .await
        .expect("a place is free again");
}
