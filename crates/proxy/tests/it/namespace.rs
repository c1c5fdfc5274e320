//! What takes another network than that of the machine: tests that run once more in a network
//! namespace of their own, which ends with them. Making one takes root; without it they fail.

use std::net::{IpAddr, UdpSocket as StdSocket};
use std::num::{NonZeroU16, NonZeroUsize};
use std::process::Command;

use landfall_model::Protocol;
use landfall_model::listener::{Listener, Member};
use landfall_proxy::counters::Refusal;
use landfall_proxy::{ListenError, ListenerId, Proxy, ProxyConfig};
use tokio::net::UdpSocket;

use crate::scene::{Manner, Scene, Server, echo, in_time, owner, until};

/// Says to a test that it runs in the namespace.
const WITHIN: &str = "LANDFALL_TEST_NAMESPACE";

/// Runs a test of this program in a namespace that these commands prepare. Returns whether it is
/// to run here.
fn is_within(name: &str, prepare: &str) -> bool {
    if std::env::var_os(WITHIN).is_some() {
        return true;
    }
    let script = format!("ip link set lo up; {prepare}; exec \"$@\"");
    let ended = Command::new("unshare")
        .args(["--net", "sh", "-euc", &script, "net"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(WITHIN, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && text.contains("1 passed"),
        "as root? {text}{errors}"
    );
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_flows_leaves_ports_for_others_and_members_without_blame() {
    let ports = "echo 20000 21999 > /proc/sys/net/ipv4/ip_local_port_range";
    let name = "namespace::a_flood_of_flows_leaves_ports_for_others_and_members_without_blame";
    if !is_within(name, ports) {
        return;
    }
    let config = ProxyConfig {
        workers: NonZeroUsize::new(2),
        files: NonZeroUsize::new(100_000),
        ..ProxyConfig::default()
    };
    let member = UdpSocket::bind("127.0.0.1:53").await.unwrap();
    let members = [member.local_addr().unwrap()];
    let address = IpAddr::from([127, 9, 0, 1]);
    let proxy = Proxy::start(config).unwrap();
    let scene = Scene::start_on(proxy, Protocol::Udp, address, &members, |_| {}).await;
    // Clients on ports outside of the range, so that what is missing is missing to the proxy.
    for number in 0..3_000_u16 {
        let client = StdSocket::bind(("127.8.0.1", 30_000 + number)).unwrap();
        client.send_to(b"flood", scene.address()).unwrap();
        let mut room = [0; 16];
        in_time(member.recv(&mut room)).await.unwrap();
    }
    let pressure = scene.proxy.pressure();
    assert!(
        pressure.flow_limit == 1_000 && pressure.flows <= 1_000,
        "{pressure:?}"
    );
    assert!(pressure.flows > 500, "{pressure:?}");
    let own: Vec<_> = (0..200).map(|_| StdSocket::bind("127.0.0.1:0")).collect();
    assert!(own.iter().all(Result::is_ok), "the host's own sockets");
    let status = scene.status();
    assert_eq!(status.members[0].totals.connect_failures, 0);
    assert_eq!(status.totals.connect_failures, 0);
    assert_eq!(scene.refused(Refusal::Local), 0);
}

#[tokio::test]
async fn without_a_free_port_members_are_not_blamed() {
    let ports = "echo 20000 20063 > /proc/sys/net/ipv4/ip_local_port_range";
    let name = "namespace::without_a_free_port_members_are_not_blamed";
    if !is_within(name, ports) {
        return;
    }
    let mut taken = Vec::new();
    while let Ok(socket) = StdSocket::bind("0.0.0.0:0") {
        taken.push(socket);
        assert!(taken.len() <= 64, "ports without end");
    }
    let member = UdpSocket::bind("127.0.0.1:53").await.unwrap();
    let scene = Scene::udp_with(&[member.local_addr().unwrap()], |_| {}).await;
    let client = StdSocket::bind("127.8.0.1:30000").unwrap();
    client.send_to(b"a", scene.address()).unwrap();
    until("refused", || scene.refused(Refusal::Local) == 1).await;
    let status = scene.status();
    assert_eq!(status.members[0].totals.connect_failures, 0);
    assert_eq!(status.members[0].failing, None);
    drop(taken);
    client.send_to(b"b", scene.address()).unwrap();
    in_time(member.recv(&mut [0; 16])).await.unwrap();
}

#[tokio::test]
async fn an_address_of_a_local_ipv6_route_is_served_and_another_is_refused() {
    let route = "ip -6 route add local fd00:77::/64 dev lo";
    let name = "namespace::an_address_of_a_local_ipv6_route_is_served_and_another_is_refused";
    if !is_within(name, route) {
        return;
    }
    let server = Server::start(Manner::Echo).await;
    let routed = "fd00:77::5".parse().unwrap();
    let scene = Scene::start(Protocol::Tcp, routed, &[server.address], |_| {}).await;
    echo(&mut scene.client().await, b"served").await;
    let mut listener = Listener::new(Protocol::Tcp, NonZeroU16::new(8080).unwrap());
    listener.pool.members = vec![Member::new(server.address)];
    let id = ListenerId {
        address: "fd00:78::5".parse().unwrap(),
        key: listener.key,
    };
    let refused = scene
        .proxy
        .apply(id, &owner(), &listener)
        .await
        .unwrap_err();
    assert!(
        matches!(refused, ListenError::AddressNotHere { .. }),
        "{refused}"
    );
}
