//! Interfaces that come, go and change while addresses are announced.

use landfall_l2::driver::Config;
use landfall_l2::fsm::{Settings, Start, State};
use landfall_l2::interfaces::{CONTAINER_NETWORKS, Exclusions};
use landfall_l2::packet::Message;

use crate::lab::{Host, SWITCH, V4, V6, both, ip, is_inside, until};

#[tokio::test]
async fn a_new_mac_address_of_the_node_reaches_its_neighbours() {
    let name = "interfaces::a_new_mac_address_of_the_node_reaches_its_neighbours";
    if !is_inside(name, SWITCH) {
        return;
    }
    let (client, host) = (Host::connect(1), Host::connect(2));
    let node = host.node(Settings::default());
    node.announcer.set(both(Start::TakeOver));
    node.all(State::Announcing).await;
    let knows = |address: &str, mac: &str| client.neighbour(address).contains(mac);
    for address in [V4, V6] {
        client.send(address);
        until("the first", || knows(address, &host.mac.to_string())).await;
    }
    host.sh("ip link set eth0 address 02:00:00:00:ee:02");
    for address in [V4, V6] {
        until("the new one", || knows(address, "02:00:00:00:ee:02")).await;
    }
}

#[tokio::test]
async fn addresses_are_announced_on_an_interface_as_soon_as_it_is_there() {
    let name = "interfaces::addresses_are_announced_on_an_interface_as_soon_as_it_is_there";
    if !is_inside(name, SWITCH) {
        return;
    }
    let (client, host) = (Host::connect(1), Host::connect(2));
    host.sh("ip link set eth0 down");
    let node = host.node(Settings::default());
    node.announcer.set(both(Start::TakeOver));
    node.all(State::Waiting).await;
    host.sh("ip link set eth0 up");
    node.all(State::Announcing).await;
    for address in [V4, V6] {
        client.send(address);
        let lladdr = format!("lladdr {}", host.mac);
        until("the node is found", || {
            client.neighbour(address).contains(&lladdr)
        })
        .await;
    }
    let groups = host.sh("cat /proc/net/igmp6");
    assert!(
        groups.contains("ff0200000000000000000001ff000007"),
        "{groups}"
    );
    // The link-local address alone goes away: ARP goes on.
    host.sh("ip -6 address flush dev eth0 scope link");
    until("NDP ends", || {
        node.view().addresses[&ip(V6)].state == State::Waiting
    })
    .await;
    assert_eq!(node.view().addresses[&ip(V4)].state, State::Announcing);
    host.sh("ip link delete eth0");
    node.all(State::Waiting).await;
}

#[tokio::test]
async fn behind_a_bridge_of_the_node_every_question_is_answered_once() {
    let name = "interfaces::behind_a_bridge_of_the_node_every_question_is_answered_once";
    if !is_inside(name, SWITCH) {
        return;
    }
    let (client, host) = (Host::connect(1), Host::connect(2));
    host.sh(
        "ip address flush dev eth0; ip link add br0 type bridge; ip link set eth0 master br0; \
        ip link set br0 up",
    );
    let node = host.node(Settings::default());
    node.announcer.set(both(Start::TakeOver));
    until("the bridge announces", || {
        let view = node.view();
        let on_bridge = |it: &landfall_l2::fsm::Status| it.interfaces == ["br0"];
        view.addresses.len() == 2
            && view
                .addresses
                .values()
                .all(|it| it.state == State::Announcing && on_bridge(it))
    })
    .await;
    let station = client.station();
    let said = client.sh(&format!(
        "arping -c 3 -w 5 -I eth0 {V4}; ndisc6 -1 {V6} eth0"
    ));
    assert!(said.contains("Received 3 response"), "{said}");
    let counts = || {
        let answers = station.answers();
        let of_ndp = |message: &Message| match message {
            Message::Advertisement(said) => said.target.to_string() == V6,
            _ => false,
        };
        let arp = answers
            .iter()
            .filter(|it| matches!(it.message, Message::Arp(_)));
        let ndp = answers.iter().filter(|it| of_ndp(&it.message));
        (arp.count(), ndp.count())
    };
    // The station reads what came a moment later.
    until("each question is answered", || {
        let (arp, ndp) = counts();
        arp >= 3 && ndp >= 1
    })
    .await;
    assert_eq!(counts(), (3, 1));
}

#[tokio::test]
async fn nothing_is_sent_on_interfaces_of_container_networks() {
    let name = "interfaces::nothing_is_sent_on_interfaces_of_container_networks";
    if !is_inside(name, SWITCH) {
        return;
    }
    let (client, host) = (Host::connect(1), Host::connect(2));
    let mut witnesses = Vec::new();
    for inner in ["docker0", "veth1234"] {
        let client_end = format!("to-{inner}");
        host.sh(&format!(
            "ip link add {inner} type veth peer name {client_end} netns {}; ip link set {inner} up",
            client.pid()
        ));
        client.sh(&format!("ip link set {client_end} up"));
        let witness = client.lines("tcpdump", &["-lnni", &client_end, "arp"]);
        witness
            .until(&[&format!("listening on {client_end}")])
            .await;
        witnesses.push(witness);
    }
    let node = host.node_with(Config {
        exclusions: Exclusions::new(CONTAINER_NETWORKS).unwrap(),
        ..Config::default()
    });
    node.announcer.set(both(Start::TakeOver));
    node.all(State::Announcing).await;
    let interfaces = &node.view().addresses[&ip(V4)].interfaces;
    assert_eq!(*interfaces, ["eth0"]);
    client.sh(&format!("arping -c 1 -w 5 -I eth0 {V4}"));
    for inner in ["docker0", "veth1234"] {
        // No answer, and the frame that asks is there: the witness sees this cable.
        client.sh(&format!(
            "arping -D -c 1 -w 1 -I to-{inner} {V4} | grep 'Received 0 response'"
        ));
    }
    for witness in &witnesses {
        witness.until(&[&format!("Request who-has {V4}")]).await;
        assert!(!witness.text().contains(&format!("Reply {V4}")));
        // A gratuitous request has the address as its sender's, too, which is printed last.
        assert!(!witness.text().contains(&format!(" {V4}, length")));
    }
}
