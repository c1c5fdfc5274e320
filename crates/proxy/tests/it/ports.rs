//! Local ports toward members that run short. Each test runs in a network namespace of its own,
//! which takes root, with 200 ports for connections to others, where the kernel gives none again
//! that is in TIME-WAIT: so it is over any real link.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use landfall_model::listener::Check;
use landfall_proxy::dial;
use landfall_proxy::monitor::check::{Question, check};
use landfall_proxy::monitor::failure::Sign;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::scene::{Manner, Scene, Server, TIMEOUT, echo, read_all};

/// Set in the process that runs inside.
const INSIDE: &str = "LANDFALL_TEST_FEW_PORTS";

const PORTS: std::ops::RangeInclusive<u16> = 40_000..=40_199;

const SETUP: &str = "ip link set lo up \
    && echo 40000 40199 > /proc/sys/net/ipv4/ip_local_port_range \
    && echo 40007 > /proc/sys/net/ipv4/ip_local_reserved_ports \
    && echo 0 > /proc/sys/net/ipv4/tcp_tw_reuse && exec \"$0\" \"$@\"";

/// Runs a test of this program again where ports are few. True: this is that run.
fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let ended = Command::new("unshare")
        .args(["--net", "sh", "-c", SETUP])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && words.contains("1 passed"),
        "as root? {words}{errors}"
    );
    false
}

/// A client with an address of its own, so that clients do not run short of ports.
async fn client(number: u16, to: SocketAddr) -> TcpStream {
    let [high, low] = number.to_be_bytes();
    let socket = TcpSocket::new_v4().unwrap();
    let address = Ipv4Addr::new(127, 2, high, low);
    socket.bind((address, 10_000).into()).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn a_member_is_reached_while_every_port_toward_it_is_in_time_wait() {
    if !inside("ports::a_member_is_reached_while_every_port_toward_it_is_in_time_wait") {
        return;
    }
    let server = Server::start(Manner::Echo).await;
    let scene = Scene::tcp(&[server.address]).await;
    for number in 0..1_000 {
        let mut client = client(number, scene.address()).await;
        echo(&mut client, b"to the member and back").await;
        client.shutdown().await.unwrap();
        assert_eq!(read_all(&mut client).await, b"", "connection {number}");
    }
    assert_eq!(server.accepted(), 1_000);
}

#[tokio::test]
async fn what_dials_for_itself_reaches_a_member_through_ports_in_time_wait() {
    if !inside("ports::what_dials_for_itself_reaches_a_member_through_ports_in_time_wait") {
        return;
    }
    let server = Server::start(Manner::Echo).await;
    for number in 0..600 {
        let mut member = dial::connect(server.address, TIMEOUT).await.unwrap();
        let port = member.local_addr().unwrap().port();
        assert!(PORTS.contains(&port) && port != 40_007, "{number}: {port}");
        member.shutdown().await.unwrap();
        assert_eq!(read_all(&mut member).await, b"");
    }
    assert_eq!(server.accepted(), 600);
}

#[tokio::test]
async fn without_any_port_the_shortage_is_reported_and_not_a_timeout() {
    if !inside("ports::without_any_port_the_shortage_is_reported_and_not_a_timeout") {
        return;
    }
    let server = Server::start(Manner::Listen).await;
    let mut open = Vec::new();
    let refused = loop {
        match dial::connect(server.address, TIMEOUT).await {
            Ok(member) => open.push(member),
            Err(refused) => break refused,
        }
        assert!(open.len() <= PORTS.count(), "more connections than ports");
    };
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrNotAvailable);
    // Two windows of 64 are looked through and six ports tried: few ports may be left over.
    assert!(open.len() > PORTS.count() / 2, "{} connections", open.len());
    // Ports whose connections have ended on both sides serve again.
    for mut member in open {
        member.shutdown().await.unwrap();
        assert_eq!(read_all(&mut member).await, b"");
    }
    dial::connect(server.address, TIMEOUT).await.unwrap();
}

#[tokio::test]
async fn a_member_is_checked_while_every_port_toward_it_is_in_time_wait() {
    if !inside("ports::a_member_is_checked_while_every_port_toward_it_is_in_time_wait") {
        return;
    }
    let server = Server::start(Manner::Echo).await;
    for _ in 0..2 * PORTS.count() {
        let mut member = dial::connect(server.address, TIMEOUT).await.unwrap();
        member.shutdown().await.unwrap();
        assert_eq!(read_all(&mut member).await, b"");
    }
    let left_to_itself = TcpStream::connect(server.address).await.unwrap_err();
    assert_eq!(left_to_itself.kind(), std::io::ErrorKind::AddrNotAvailable);
    let question = Question {
        check: Check::Tcp,
        http2: false,
        introduce: None,
        tls: None,
        host: None,
        body: None,
        port: None,
    };
    for _ in 0..50 {
        let seen = check(&question, server.address, TIMEOUT).await;
        assert_eq!(seen, Ok(Sign::Connected));
    }
}
