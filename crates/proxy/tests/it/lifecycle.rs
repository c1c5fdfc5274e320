//! Listeners come, change and go; members drain.

use std::time::{Duration, Instant};

use landfall_model::listener::{Certificates, Listener, Member, Mode};
use landfall_model::{Protocol, Uid};
use landfall_proxy::counters::Refusal;
use landfall_proxy::{Applied, ListenError, ListenerId, Owner, Proxy, ProxyConfig};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::scene::{
    Manner, Scene, Server, echo, ended, in_time, key, loopback, owner, read_all, until,
};

const SHORT: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_removed_member_keeps_its_connections_and_gets_no_new_ones() {
    let (old, new) = (
        Server::start(Manner::Echo).await,
        Server::start(Manner::Echo).await,
    );
    let scene = Scene::tcp(&[old.address]).await;
    let mut kept = scene.settled().await;
    let swap = scene.change(|listener| listener.pool.members = vec![Member::new(new.address)]);
    assert_eq!(swap.await.unwrap(), Applied::Changed);
    for _ in 0..4 {
        scene.settled().await;
    }
    echo(&mut kept, b"still here").await;
    assert_eq!((old.accepted(), new.accepted()), (1, 4));
    let row = |scene: &Scene| {
        let status = scene.status();
        let row = status
            .members
            .into_iter()
            .find(|row| row.address == old.address);
        row.map(|row| (row.leaving, row.serves, row.open))
    };
    assert_eq!(row(&scene), Some((true, false, 1)));
    drop(kept);
    until("forgotten", || row(&scene).is_none()).await;
}

#[tokio::test]
async fn when_the_drain_time_is_over_a_leaving_member_is_cut() {
    for how in [
        (|members: &mut Vec<Member>| drop(members.remove(0))) as fn(&mut Vec<Member>),
        |members| members[0].weight = 0,
        |members| members[0].draining = true,
    ] {
        let (old, new) = (
            Server::start(Manner::Echo).await,
            Server::start(Manner::Echo).await,
        );
        let scene = Scene::tcp_with(&[old.address], |listener| listener.drain = SHORT).await;
        let mut cut = scene.settled().await;
        scene
            .change(|listener| listener.pool.members.push(Member::new(new.address)))
            .await
            .unwrap();
        let mut kept = [scene.settled().await, scene.settled().await];
        let start = Instant::now();
        scene
            .change(|listener| how(&mut listener.pool.members))
            .await
            .unwrap();
        echo(&mut cut, b"for a while").await;
        let looks_whole = ended(&mut cut).await;
        assert!(!looks_whole && start.elapsed() >= SHORT);
        until("cut", || old.open() == 0).await;
        // Of these two, one has the old member.
        let mut alive = 0;
        for stream in &mut kept {
            alive += u32::from(stream.write_all(b"x").await.is_ok());
        }
        assert!(alive >= 1);
        assert_eq!(new.open(), 1);
    }
}

#[tokio::test]
async fn a_member_that_comes_back_in_time_is_not_cut() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| listener.drain = SHORT).await;
    let mut client = scene.settled().await;
    scene
        .change(|listener| listener.pool.members[0].weight = 0)
        .await
        .unwrap();
    scene
        .change(|listener| listener.pool.members[0].weight = 1)
        .await
        .unwrap();
    let start = Instant::now();
    while start.elapsed() < SHORT * 3 {
        echo(&mut client, b"still here").await;
        tokio::time::sleep(SHORT / 10).await;
    }
}

#[tokio::test]
async fn a_closed_listener_frees_its_port_and_lets_connections_end() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp(&[server.address]).await;
    let mut open = scene.settled().await;
    assert!(scene.proxy.close(scene.id, &owner().uid).await);
    assert!(!scene.proxy.close(scene.id, &owner().uid).await);
    assert!(TcpStream::connect(scene.address()).await.is_err());
    std::net::TcpListener::bind(scene.address()).unwrap();
    echo(&mut open, b"goes on").await;
    let status = scene.status();
    assert!(status.draining && status.open == 1);
    drop(open);
    until("gone", || scene.proxy.snapshot().is_empty()).await;
}

#[tokio::test]
async fn a_listener_that_passed_to_another_service_is_not_closed_by_the_earlier_one() {
    let (before, after) = (Server::named("before").await, Server::named("after").await);
    let scene = Scene::tcp(&[before.address]).await;
    // Of the same name, made after the first was deleted.
    let other = Owner {
        uid: Uid::new("another"),
        ..owner()
    };
    let mut listener = listener(8080);
    listener.pool.members = vec![Member::new(after.address)];
    assert_eq!(
        scene
            .proxy
            .apply(scene.id, &other, &listener)
            .await
            .unwrap(),
        Applied::Opened
    );
    assert!(!scene.proxy.close(scene.id, &owner().uid).await);
    assert_eq!(scene.receive().await, b"after");
    assert_eq!(scene.proxy.find(scene.id).unwrap().owner(), &other);
    assert!(scene.proxy.close(scene.id, &other.uid).await);
}

#[tokio::test]
async fn a_closed_listener_cuts_what_is_left_when_its_drain_time_is_over() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp_with(&[server.address], |listener| listener.drain = SHORT).await;
    let mut open = scene.settled().await;
    scene.proxy.close(scene.id, &owner().uid).await;
    ended(&mut open).await;
    until("gone", || {
        scene.proxy.snapshot().is_empty() && server.open() == 0
    })
    .await;
}

#[tokio::test]
async fn connections_that_wait_to_be_accepted_survive_the_close() {
    let server = Server::start(Manner::Answer(b"served".to_vec())).await;
    let scene = Scene::tcp(&[server.address]).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(scene.client().await);
    }
    scene.proxy.close(scene.id, &owner().uid).await;
    for client in &mut clients {
        client.shutdown().await.unwrap();
        assert_eq!(read_all(client).await, b"served");
    }
}

#[tokio::test]
async fn shutting_down_waits_for_connections_and_then_ends_everything() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp(&[server.address]).await;
    let mut open = scene.settled().await;
    let address = scene.address();
    let start = Instant::now();
    let (_, ()) = tokio::join!(ended(&mut open), in_time(scene.proxy.shutdown(SHORT)));
    assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
    assert!(TcpStream::connect(address).await.is_err());
    let late = scene.proxy.apply(scene.id, &owner(), &listener(8080)).await;
    assert!(
        matches!(late, Err(ListenError::ShuttingDown { .. })),
        "{late:?}"
    );
}

#[tokio::test]
async fn an_idle_data_plane_shuts_down_at_once() {
    let scene = Scene::tcp(&[]).await;
    let start = Instant::now();
    in_time(scene.proxy.shutdown(Duration::from_secs(3_600))).await;
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn the_port_binds_again_right_after_a_restart() {
    let server = Server::named("again").await;
    let address = loopback();
    for _ in 0..3 {
        let scene = Scene::start(Protocol::Tcp, address, &[server.address], |_| {}).await;
        assert_eq!(scene.receive().await, b"again");
        in_time(scene.proxy.shutdown(Duration::ZERO)).await;
    }
}

#[tokio::test]
async fn a_port_of_another_socket_is_in_use_even_if_that_would_share() {
    let id = ListenerId {
        address: loopback(),
        key: key(Protocol::Tcp, 8080),
    };
    let proxy = Proxy::start(ProxyConfig::default()).unwrap();
    let plain = std::net::TcpListener::bind(id.socket_address()).unwrap();
    let refused = proxy.apply(id, &owner(), &listener(8080)).await;
    assert!(
        matches!(refused, Err(ListenError::InUse { .. })),
        "{refused:?}"
    );
    drop(plain);
    let other = Proxy::start(ProxyConfig::default()).unwrap();
    assert_eq!(
        other.apply(id, &owner(), &listener(8080)).await.unwrap(),
        Applied::Opened
    );
    let refused = proxy.apply(id, &owner(), &listener(8080)).await;
    assert!(
        matches!(refused, Err(ListenError::InUse { .. })),
        "{refused:?}"
    );
    assert!(proxy.snapshot().is_empty());
    other.close(id, &owner().uid).await;
    assert_eq!(
        proxy.apply(id, &owner(), &listener(8080)).await.unwrap(),
        Applied::Opened
    );
}

#[tokio::test]
async fn what_cannot_be_served_says_why() {
    let proxy = Proxy::start(ProxyConfig::default()).unwrap();
    let apply = async |address: &str, listener: &Listener| {
        let id = ListenerId {
            address: address.parse().unwrap(),
            key: listener.key,
        };
        let error = proxy.apply(id, &owner(), listener).await.unwrap_err();
        (error.reason(), error.to_string())
    };
    let mut udp = listener(53);
    udp.key.protocol = Protocol::Udp;
    udp.mode = Mode::Http(landfall_model::listener::Http::default());
    let mut sctp = listener(80);
    sctp.key.protocol = Protocol::Sctp;
    let mut tls = listener(443);
    tls.mode = Mode::Tls {
        certificates: Certificates::default(),
    };
    assert_eq!(
        [
            apply("192.0.2.1", &listener(80)).await,
            apply("127.0.0.1", &udp).await,
            apply("127.0.0.1", &sctp).await,
            apply("127.0.0.1", &tls).await,
        ],
        [
            (
                "AddressNotHere",
                "192.0.2.1:80/TCP cannot be bound: the address is not on this machine".to_owned()
            ),
            (
                "ModeNeedsTcp",
                "127.0.0.1:53/UDP cannot be served: http needs TCP".to_owned()
            ),
            (
                "SctpUnsupported",
                "127.0.0.1:80/SCTP cannot be served: this data plane does not support SCTP"
                    .to_owned()
            ),
            (
                "CertificateUnusable",
                "127.0.0.1:443/TCP cannot speak TLS".to_owned()
            ),
        ]
    );
    assert!(proxy.snapshot().is_empty());
}

#[tokio::test]
async fn a_refused_change_leaves_the_listener_as_it_was() {
    let server = Server::named("as before").await;
    let scene = Scene::tcp(&[server.address]).await;
    let change = scene.change(|listener| {
        listener.pool.members.clear();
        listener.mode = Mode::Tls {
            certificates: Certificates::default(),
        };
    });
    let refused = change.await.unwrap_err();
    assert_eq!(refused.reason(), "CertificateUnusable");
    assert_eq!(scene.receive().await, b"as before");
}

#[tokio::test]
async fn applying_the_same_changes_nothing() {
    let server = Server::named("same").await;
    let scene = Scene::tcp(&[server.address]).await;
    let mut changes = scene.proxy.changes().version();
    changes.mark_unchanged();
    assert_eq!(scene.change(|_| {}).await.unwrap(), Applied::Unchanged);
    assert!(!changes.has_changed().unwrap());
    let change = scene.change(|listener| listener.pool.members[0].weight = 7);
    assert_eq!(change.await.unwrap(), Applied::Changed);
    assert!(changes.has_changed().unwrap());
    assert_eq!(scene.receive().await, b"same");
}

#[tokio::test]
async fn counters_show_what_passed() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp(&[server.address]).await;
    let mut client = scene.client().await;
    echo(&mut client, &[7; 1_000]).await;
    let status = scene.status();
    assert_eq!(
        (status.open, status.mode, status.draining),
        (1, "stream", false)
    );
    assert_eq!(
        (
            status.totals.connections,
            status.totals.refused(Refusal::NoMember)
        ),
        (1, 0)
    );
    drop(client);
    until("given back", || scene.status().open == 0).await;
    let status = scene.status();
    assert_eq!(
        (status.totals.bytes_in, status.totals.bytes_out),
        (1_000, 1_000)
    );
    let row = &status.members[0];
    assert_eq!((row.open, row.totals.connections), (0, 1));
    assert_eq!((row.totals.bytes_in, row.totals.bytes_out), (1_000, 1_000));
}

fn listener(port: u16) -> Listener {
    Listener::new(Protocol::Tcp, port.try_into().unwrap())
}
