//! Descriptors that run short: which clients are refused, and which are not.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU16, NonZeroUsize};

use landfall_model::listener::{Listener, Member};
use landfall_model::{Protocol, ServiceKey, Uid};
use landfall_proxy::counters::Refusal;
use landfall_proxy::shortage::Shortage;
use landfall_proxy::{Applied, ListenError, ListenerId, Owner, Proxy, ProxyConfig};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UdpSocket};

use crate::scene::{Manner, Scene, Server, connect, echo, in_time, key, loopback, until};

fn proxy(files: usize) -> Proxy {
    let config = ProxyConfig {
        workers: NonZeroUsize::new(2),
        files: NonZeroUsize::new(files),
        ..ProxyConfig::default()
    };
    Proxy::start(config).unwrap()
}

/// A Service of the namespace before the slash, or of one that they share.
fn owner(name: &str) -> Owner {
    let (namespace, short) = name.split_once('/').unwrap_or(("other", name));
    Owner {
        uid: Uid::new(name),
        service: ServiceKey::new(namespace, short),
    }
}

/// How a client that is refused sees it.
async fn refusal(address: SocketAddr) -> ErrorKind {
    let client = async { TcpStream::connect(address).await?.read_u8().await };
    in_time(client).await.unwrap_err().kind()
}

async fn open(
    proxy: &Proxy,
    name: &str,
    port: u16,
    server: &Server,
) -> Result<ListenerId, ListenError> {
    let mut listener = Listener::new(Protocol::Tcp, NonZeroU16::new(port).unwrap());
    listener.pool.members = vec![Member::new(server.address)];
    let id = ListenerId {
        address: loopback(),
        key: listener.key,
    };
    let applied = proxy.apply(id, &owner(name), &listener).await?;
    assert_eq!(applied, Applied::Opened);
    Ok(id)
}

#[tokio::test]
async fn a_flood_of_one_service_is_refused_and_another_is_served() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::start_on(
        proxy(256),
        Protocol::Tcp,
        loopback(),
        &[server.address],
        |_| {},
    )
    .await;
    let other = open(&scene.proxy, "victim", 8081, &server).await.unwrap();
    let mut idle = Vec::new();
    while scene.refused(Refusal::Share) == 0 {
        idle.push(TcpStream::connect(scene.address()).await);
        assert!(idle.len() < 256, "nothing was refused");
    }
    let taken = scene.status().open;
    assert!(taken > 25, "one Service alone got {taken}");
    // Above its share it is refused at once, not left waiting.
    assert_eq!(refusal(scene.address()).await, ErrorKind::ConnectionReset);
    for _ in 0..5 {
        let mut client = connect(other.socket_address()).await;
        echo(&mut client, b"served").await;
    }
    let pressure = scene.proxy.pressure();
    assert!(
        pressure.used <= pressure.limit && pressure.shortages > 0,
        "{pressure:?}"
    );
    drop(idle);
    until("all given back", || scene.proxy.pressure().used == 0).await;
    scene.settled().await;
}

#[tokio::test]
async fn a_service_whose_ports_take_too_much_is_refused_and_another_is_opened() {
    let server = Server::start(Manner::Echo).await;
    let proxy = proxy(256);
    let mut refused = None;
    for port in 9_000..9_200 {
        if let Err(error) = open(&proxy, "greedy", port, &server).await {
            refused = Some((port, error));
            break;
        }
    }
    let (port, error) = refused.expect("some port is too many");
    assert!(matches!(error, ListenError::Descriptors { .. }), "{error}");
    assert!(port > 9_010, "refused at {port}");
    let id = open(&proxy, "modest", 8081, &server).await.unwrap();
    echo(&mut connect(id.socket_address()).await, b"served").await;
    let held = proxy.pressure().listeners;
    proxy.close(id, &owner("modest").uid).await;
    assert_eq!(proxy.pressure().listeners, held - 2);
}

#[tokio::test]
async fn ports_of_many_services_of_two_namespaces_leave_some_for_a_third() {
    let server = Server::start(Manner::Echo).await;
    let proxy = proxy(1024);
    let mut ports = 9_000..;
    for number in 0..10 {
        let name = format!("greedy-{}/{number}", number % 2);
        while open(&proxy, &name, ports.next().unwrap(), &server)
            .await
            .is_ok()
        {}
    }
    let taken = proxy.pressure().listeners;
    let mut opened = 0;
    while opened < 16 {
        let port = ports.next().unwrap();
        let id = open(&proxy, "modest/web", port, &server).await;
        let id = id.unwrap_or_else(|error| panic!("{opened} beside {taken}: {error}"));
        echo(&mut connect(id.socket_address()).await, b"served").await;
        opened += 1;
    }
}

#[tokio::test]
async fn a_datagram_that_is_too_large_is_not_the_members_failure() {
    let member = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let scene = Scene::udp_with(&[member.local_addr().unwrap()], |listener| {
        listener.pool.proxy_protocol = Some(landfall_model::listener::ProxyProtocol::V2);
    })
    .await;
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let large = vec![7; 65_507];
    client.send_to(&large, scene.address()).await.unwrap();
    until("too large", || {
        scene.totals().local_failures(Shortage::Size) == 1
    })
    .await;
    let status = scene.status();
    assert_eq!(status.totals.connect_failures, 0);
    assert_eq!(status.members[0].totals.connect_failures, 0);
    assert_eq!(scene.refused(Refusal::Local), 1);
    client.send_to(b"small", scene.address()).await.unwrap();
    let mut room = [0; 100];
    in_time(member.recv(&mut room)).await.unwrap();
}

#[tokio::test]
async fn a_service_with_its_share_of_flows_reuses_its_own_and_another_keeps_its_flow() {
    let member = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = member.local_addr().unwrap();
    tokio::spawn(async move {
        let mut room = [0; 100];
        while let Ok((count, from)) = member.recv_from(&mut room).await {
            let _ = member.send_to(&room[..count], from).await;
        }
    });
    let scene = Scene::start_on(proxy(160), Protocol::Udp, loopback(), &[address], |_| {}).await;
    let mut listener = Listener::new(Protocol::Udp, NonZeroU16::new(8081).unwrap());
    listener.pool.members = vec![Member::new(address)];
    let id = ListenerId {
        address: loopback(),
        key: key(Protocol::Udp, 8081),
    };
    scene
        .proxy
        .apply(id, &owner("victim"), &listener)
        .await
        .unwrap();
    let victim = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    victim.connect(id.socket_address()).await.unwrap();
    let mut room = [0; 100];
    victim.send(b"first").await.unwrap();
    in_time(victim.recv(&mut room)).await.unwrap();
    for _ in 0..200 {
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(scene.address()).await.unwrap();
        client.send(b"flood").await.unwrap();
        in_time(client.recv(&mut room)).await.unwrap();
    }
    let row = |id| {
        let rows = scene.proxy.snapshot();
        rows.into_iter().find(|row| row.id == id).unwrap()
    };
    assert!(row(scene.id).open < 40, "{}", row(scene.id).open);
    victim.send(b"again").await.unwrap();
    in_time(victim.recv(&mut room)).await.unwrap();
    assert_eq!((row(id).open, row(id).totals.connections), (1, 1));
}

#[tokio::test]
async fn a_service_that_had_more_than_its_share_now_is_goes_on_with_new_flows() {
    let member = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = member.local_addr().unwrap();
    tokio::spawn(async move {
        let mut room = [0; 100];
        while let Ok((count, from)) = member.recv_from(&mut room).await {
            let _ = member.send_to(&room[..count], from).await;
        }
    });
    let scene = Scene::start_on(proxy(1024), Protocol::Udp, loopback(), &[address], |_| {}).await;
    let exchange = async |to: SocketAddr| {
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(to).await.unwrap();
        client.send(b"flow").await.unwrap();
        let mut room = [0; 100];
        in_time(client.recv(&mut room)).await.unwrap();
    };
    let mut others = Vec::new();
    for port in 9_000..9_020 {
        let mut listener = Listener::new(Protocol::Udp, NonZeroU16::new(port).unwrap());
        listener.pool.members = vec![Member::new(address)];
        let id = ListenerId {
            address: loopback(),
            key: listener.key,
        };
        let owner = owner(&format!("other-{port}"));
        scene.proxy.apply(id, &owner, &listener).await.unwrap();
        others.push(id.socket_address());
    }
    for _ in 0..300 {
        exchange(scene.address()).await;
    }
    // Clients may meet with the same port.
    assert!(scene.status().open > 290, "{}", scene.status().open);
    // Now others want as much as they can get, each for itself.
    for other in others {
        for last in 1..=40 {
            let client = UdpSocket::bind((Ipv4Addr::new(127, 9, 9, last), 0))
                .await
                .unwrap();
            client.send_to(b"flood", other).await.unwrap();
        }
    }
    until("little is left", || {
        let pressure = scene.proxy.pressure();
        pressure.limit - pressure.used < 180
    })
    .await;
    let before = scene.status().open;
    for _ in 0..20 {
        exchange(scene.address()).await;
    }
    let after = scene.status().open;
    assert!(after >= before - 20, "{before}, then {after}");
}

#[tokio::test]
async fn a_refused_client_gets_a_reset() {
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::start_on(
        proxy(64),
        Protocol::Tcp,
        loopback(),
        &[server.address],
        |_| {},
    )
    .await;
    let mut held = Vec::new();
    while scene.refused(Refusal::Share) == 0 {
        held.push(TcpStream::connect(scene.address()).await);
    }
    assert_eq!(refusal(scene.address()).await, ErrorKind::ConnectionReset);
}
