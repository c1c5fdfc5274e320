//! Memory for buffers that runs short: what is refused, and what is not.

use landfall_proxy::ProxyConfig;
use landfall_proxy::counters::Refusal;

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
