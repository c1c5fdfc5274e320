//! Clients that begin long heads and never end them. Alone in its process, so that its memory can
//! be measured.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy knows tests by their attribute only, and these stand in helpers of tests"
)]

#[path = "http/scene/mod.rs"]
#[expect(dead_code, reason = "the other HTTP tests use the rest")]
mod scene;

use tokio::process::Command;

use crate::scene::{Scene, Server, until};

/// As the program has it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const CLIENTS: u64 = 1000;

/// Makes the allocator give nothing back by itself.
const KEEPING: (&str, &str) = ("_RJEM_MALLOC_CONF", "dirty_decay_ms:-1,muzzy_decay_ms:-1");

#[tokio::test]
async fn a_flood_of_long_heads_takes_little_memory_and_leaves_none_behind() {
    if std::env::var_os(KEEPING.0).is_none() {
        let mut again = Command::new(std::env::current_exe().unwrap());
        let again = again.env(KEEPING.0, KEEPING.1).arg("--nocapture");
        assert!(again.status().await.unwrap().success());
        return;
    }
    let limit = landfall_sys::limits::raise_open_files().unwrap();
    assert!(limit > 2 * CLIENTS + 100, "{limit} descriptors are too few");
    let member = Server::echo("only").await;
    let scene = Scene::start(&[member.address]).await;
    assert_eq!(scene.get("/").await.status, 200);
    let before = resident();

    // A byte more than the smallest buffer has room for.
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(16 * 1024));
    let read = |clients: u64| clients * head.len() as u64;
    let bytes_in = || scene.state.counters().totals().bytes_in;
    let counted = bytes_in();
    let mut clients = Vec::new();
    for number in 1..=CLIENTS {
        let mut client = scene.client().await;
        client.send(&head).await;
        clients.push(client);
        if number % 100 == 0 {
            until("all is read", || bytes_in() - counted >= read(number)).await;
        }
    }
    let peak = resident() - before;
    assert!(peak < CLIENTS * 44, "{peak} KiB for {CLIENTS} clients");
    assert_eq!(scene.get("/").await.status, 200);

    drop(clients);
    // Buffers for the next clients stay: 7 MiB at most.
    until("memory is given back", || resident() < before + 9 * 1024).await;
    assert_eq!(scene.get("/").await.status, 200);
}

/// Resident memory in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
