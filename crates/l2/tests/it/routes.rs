//! Routes to addresses that no interface has.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use landfall_l2::local_routes::LocalRoutes;
use landfall_sys::listen::Addresses;

use crate::lab::{Host, SWITCH, V4, V6, ip, is_inside};

/// A network between this namespace, which has 10.0.0.1, and hosts.
const NODE: &str = "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; \
    ip address add 10.0.0.1/24 dev switch; ip address add 2001:db8::1/64 dev switch;";

fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-euc", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn both() -> BTreeSet<IpAddr> {
    [ip(V4), ip(V6)].into()
}

async fn open() -> LocalRoutes {
    LocalRoutes::open(Ipv4Addr::new(10, 0, 0, 1)).await.unwrap()
}

fn table() -> String {
    sh("ip route show table 7947; ip -6 route show table 7947")
}

fn connects(to: &str) -> std::io::Result<TcpStream> {
    let to = SocketAddr::new(ip(to), 80);
    TcpStream::connect_timeout(&to, Duration::from_secs(2))
}

#[tokio::test]
async fn an_address_with_a_route_is_served_here_and_the_kernel_answers_no_arp_for_it() {
    let name = "routes::\
                an_address_with_a_route_is_served_here_and_the_kernel_answers_no_arp_for_it";
    if !is_inside(name, &format!("{SWITCH}{NODE}")) {
        return;
    }
    let client = Host::connect(2);
    let mut listeners = Vec::new();
    for address in both() {
        listeners.extend(Addresses::Any.tcp(SocketAddr::new(address, 80), 1).unwrap());
    }
    let mut routes = open().await;
    assert!(connects(V4).is_err(), "without a route it is elsewhere");
    assert!(routes.set(&both()).await.is_empty());

    // What runs on the node connects, from the address of the node.
    for (address, listener) in [V4, V6].iter().zip(&listeners) {
        let stream = connects(address).unwrap();
        let local = stream.local_addr().unwrap().ip();
        assert!(
            [ip("10.0.0.1"), ip("2001:db8::1")].contains(&local),
            "{local}"
        );
        drop(stream);
        listener.set_nonblocking(false).unwrap();
        listener.accept().unwrap();
    }
    // A host of the network finds no neighbour, until something answers for the address.
    for address in [V4, V6] {
        client.send(address);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    for address in [V4, V6] {
        let seen = client.neighbour(address);
        assert!(!seen.contains("lladdr"), "{seen}");
    }
    let mac = sh("ip -o link show switch | sed 's/.*ether \\([^ ]*\\).*/\\1/'");
    for address in [V4, V6] {
        client.sh(&format!(
            "ip neigh replace {address} lladdr {} dev eth0; \
             timeout 3 bash -c 'exec 3<>/dev/tcp/{address}/80'",
            mac.trim()
        ));
    }
    for listener in &listeners {
        listener.accept().unwrap();
    }
    routes.close().await.unwrap();
    assert_eq!(table(), "");
    assert!(!sh("ip rule; ip -6 rule").contains("7947"));
}

#[tokio::test]
async fn routes_of_an_earlier_process_are_found_and_those_of_others_stay() {
    let name = "routes::routes_of_an_earlier_process_are_found_and_those_of_others_stay";
    if !is_inside(name, &format!("{SWITCH}{NODE}")) {
        return;
    }
    // The process ended without a word.
    let mut routes = open().await;
    assert!(routes.set(&both()).await.is_empty());
    drop(routes);
    // A person has the address on an interface, and has a route in the same table.
    sh(&format!(
        "ip address add {V4}/32 dev switch; ip route add local 10.0.0.8 dev lo table 7947"
    ));
    let mut routes = open().await;
    assert_eq!(*routes.held(), both());
    let other = ip("10.0.0.8");
    assert!(routes.set(&[other].into()).await.is_empty(), "it is there");
    assert_eq!(*routes.held(), [other].into());
    // What is needed was removed, and comes back.
    sh("ip route flush table 7947; ip rule del pref 76 ipproto tcp");
    routes.refresh().await.unwrap();
    assert!(routes.held().is_empty());
    assert!(routes.set(&both()).await.is_empty());
    assert_eq!(table().lines().count(), 2, "{}", table());
    sh("ip route add local 10.0.0.8 dev lo table 7947");
    routes.close().await.unwrap();
    assert_eq!(table().trim(), "local 10.0.0.8 dev lo scope host");
    assert!(sh("ip address show dev switch").contains(V4));
}

#[tokio::test]
async fn without_the_capability_net_admin_the_error_names_it() {
    let name = "routes::without_the_capability_net_admin_the_error_names_it";
    let alone = "set -- setpriv --inh-caps=-all --bounding-set=-all,+net_raw \"$@\";";
    if !is_inside(name, alone) {
        return;
    }
    let error = LocalRoutes::open(Ipv4Addr::LOCALHOST).await.unwrap_err();
    assert!(error.to_string().contains("NET_ADMIN"), "{error}");
}
