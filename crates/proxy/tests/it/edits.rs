//! Changes while traffic runs: no client notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use landfall_model::Protocol;
use landfall_model::listener::{Algorithm, AllowedSources, ClientAffinity, Member, ProxyProtocol};
use landfall_proxy::counters::Refusal;
use landfall_proxy::{Applied, ListenerId};
use tokio::task::JoinSet;

use crate::scene::{Manner, Scene, Server, connect, echo, in_time, key, owner, until};

/// Connections that live through all changes.
const LONG: usize = 200;

/// Connections that are made while changes go on.
const SHORT: u64 = 4_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_fails_while_listeners_and_pools_change() {
    let servers = [
        Server::start(Manner::Echo).await,
        Server::start(Manner::Echo).await,
        Server::start(Manner::Echo).await,
    ];
    let addresses = servers.each_ref().map(|server| server.address);
    let scene = Scene::tcp(&addresses).await;
    let (address, done) = (scene.address(), Arc::new(AtomicBool::new(false)));
    let mut long = JoinSet::new();
    for number in 0..LONG {
        let done = done.clone();
        long.spawn(async move {
            let mut client = connect(address).await;
            let mut rounds = 0u64;
            while !done.load(Ordering::Relaxed) {
                echo(&mut client, format!("{number}.{rounds}").as_bytes()).await;
                rounds += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            rounds
        });
    }
    until("settled", || scene.status().open as usize >= LONG).await;
    let made = Arc::new(AtomicU64::new(0));
    let mut short = JoinSet::new();
    for _ in 0..16 {
        let made = made.clone();
        short.spawn(async move {
            while made.fetch_add(1, Ordering::Relaxed) < SHORT {
                let mut client = connect(address).await;
                echo(&mut client, b"a question").await;
            }
        });
    }
    let mut edits = 0usize;
    while made.load(Ordering::Relaxed) < SHORT {
        edit(&scene, addresses, edits).await;
        edits += 1;
    }
    in_time(short.join_all()).await;
    done.store(true, Ordering::Relaxed);
    let rounds = in_time(long.join_all()).await;
    assert_eq!(rounds.len(), LONG);
    assert!(rounds.iter().all(|&rounds| rounds > 0));
    let totals = scene.totals();
    assert_eq!(
        (totals.connections, totals.refused),
        (LONG as u64 + SHORT, [0; Refusal::ALL.len()])
    );
    assert!(edits >= 12, "only {edits} edits");
}

/// One of many changes that leave this listener able to serve.
async fn edit(scene: &Scene, addresses: [std::net::SocketAddr; 3], number: usize) {
    let all = || addresses.map(Member::new).to_vec();
    let change = scene.change(|listener| {
        let pool = &mut listener.pool;
        match number % 12 {
            0 => pool.members.truncate(1),
            1 => pool.members = all(),
            2 => pool.members[0].weight = 0,
            3 => pool.members[1].draining = true,
            4 => pool.members[0].weight = 5,
            5 => pool.members.rotate_left(1),
            6 => pool.algorithm = Algorithm::LeastConnections,
            7 => {
                pool.affinity = Some(ClientAffinity {
                    timeout: Duration::from_secs(5),
                });
            }
            8 => listener.timeouts.client_data = Duration::from_secs(40 + number as u64 % 7),
            9 => {
                let loopback_sources = ["127.0.0.0/8".parse().unwrap()].into();
                listener.allowed = AllowedSources::Only(loopback_sources);
            }
            10 => listener.connection_limit = Some(100_000),
            _ => {
                pool.members = all();
                pool.affinity = None;
                pool.algorithm = Algorithm::SourceIpPort;
                listener.allowed = AllowedSources::All;
            }
        }
    });
    change.await.unwrap();
    // Another listener comes, changes and goes.
    let id = ListenerId {
        address: scene.id.address,
        key: key(Protocol::Tcp, 8081),
    };
    let mut other = landfall_model::Listener::new(Protocol::Tcp, id.key.port);
    other.pool.members = all();
    assert_eq!(
        scene.proxy.apply(id, &owner(), &other).await.unwrap(),
        Applied::Opened
    );
    echo(&mut connect(id.socket_address()).await, b"another").await;
    other.pool.proxy_protocol = Some(ProxyProtocol::V1);
    assert_eq!(
        scene.proxy.apply(id, &owner(), &other).await.unwrap(),
        Applied::Changed
    );
    assert!(scene.proxy.close(id, &owner().uid).await);
}
