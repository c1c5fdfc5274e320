//! Which node answers: takeover, conflicts, and silence of all others.

use std::collections::BTreeSet;

use landfall_l2::driver::Wanted;
use landfall_l2::fsm::{Event, Settings, Start, State};
use landfall_l2::mac::MacAddress;
use landfall_l2::packet::Message;
use landfall_l2::packet::arp::{Arp, Operation};
use landfall_l2::packet::ndp::Solicitation;

use crate::lab::{Host, SWITCH, Station, V4, V6, both, ip, is_inside, quick, until};

fn request(station: &Station) -> Vec<u8> {
    let request = Arp {
        operation: Operation::Request,
        sender_mac: station.mac(),
        sender: [10, 0, 0, 99].into(),
        target_mac: MacAddress([0; 6]),
        target: V4.parse().unwrap(),
    };
    request.frame(MacAddress::BROADCAST)
}

fn solicitation(station: &Station) -> Vec<u8> {
    let asked = Solicitation {
        source: "fe80::99".parse().unwrap(),
        mac: Some(station.mac()),
        ..Solicitation::probe(V6.parse().unwrap())
    };
    asked.frame(MacAddress::of_group(asked.destination), station.mac())
}

#[tokio::test]
async fn of_three_nodes_only_the_owner_answers_a_thousand_questions() {
    let name = "ownership::of_three_nodes_only_the_owner_answers_a_thousand_questions";
    if !is_inside(name, SWITCH) {
        return;
    }
    let client = Host::connect(1);
    let hosts = [2, 3, 4].map(Host::connect);
    let nodes = [0, 1, 2].map(|it| hosts[it].node(quick()));
    nodes[1].announcer.set(both(Start::TakeOver));
    nodes[1].all(State::Announcing).await;
    let station = client.station();
    for number in 1..=500 {
        station.send(&request(&station));
        station.send(&solicitation(&station));
        until("answers", || station.answers().len() >= 2 * number).await;
    }
    let answers = station.answers();
    assert_eq!(answers.len(), 1_000);
    let sources: BTreeSet<_> = answers.iter().map(|it| it.source).collect();
    assert_eq!(sources, [hosts[1].mac].into());
}

#[tokio::test]
async fn a_neighbour_follows_an_address_to_its_next_owner() {
    let name = "ownership::a_neighbour_follows_an_address_to_its_next_owner";
    if !is_inside(name, SWITCH) {
        return;
    }
    let client = Host::connect(1);
    let hosts = [2, 3].map(Host::connect);
    let [first, second] = [0, 1].map(|it| hosts[it].node(Settings::default()));
    first.announcer.set(both(Start::TakeOver));
    first.all(State::Announcing).await;
    let knows = |address: &str, host: &Host| {
        client
            .neighbour(address)
            .contains(&format!("lladdr {}", host.mac))
    };
    for address in [V4, V6] {
        client.send(address);
        until("the first owner is known", || knows(address, &hosts[0])).await;
    }
    drop(first);
    second.announcer.set(both(Start::TakeOver));
    for address in [V4, V6] {
        // The client asks nothing.
        until("the next owner is known", || knows(address, &hosts[1])).await;
    }
}

#[tokio::test]
async fn an_address_that_a_host_uses_is_reported_and_not_announced_until_it_is_free() {
    let name =
        "ownership::an_address_that_a_host_uses_is_reported_and_not_announced_until_it_is_free";
    if !is_inside(name, SWITCH) {
        return;
    }
    let (other, host) = (Host::connect(1), Host::connect(2));
    other.sh(&format!(
        "ip address add {V4}/24 dev eth0; ip address add {V6}/64 dev eth0"
    ));
    let (station, mut node) = (other.station(), host.node(quick()));
    node.announcer.set(both(Start::Probe));
    let mut refused = BTreeSet::new();
    while refused.len() < 2 {
        let report = node.report().await;
        let Event::Refused(conflict) = report.event else {
            panic!("{report:?}");
        };
        assert_eq!(conflict.mac, other.mac);
        refused.insert(report.address);
    }
    assert_eq!(refused, [ip(V4), ip(V6)].into());
    // Nothing but probes was sent.
    let is_silent = || {
        station
            .frames()
            .iter()
            .all(|(_, frame)| match frame.message {
                Message::Arp(arp) => arp.sender != V4.parse::<std::net::Ipv4Addr>().unwrap(),
                Message::Advertisement(said) => said.target.to_string() != V6,
                Message::Solicitation(_) => true,
            })
    };
    assert!(is_silent());
    other.sh(&format!(
        "ip address del {V4}/24 dev eth0; ip address del {V6}/64 dev eth0"
    ));
    assert!(is_silent());
    node.all(State::Announcing).await;
    let view = node.view();
    assert!(view.addresses.values().all(|it| it.conflict.is_some()));
}

#[tokio::test]
async fn a_host_that_takes_an_announced_address_is_reported_and_defended_against() {
    let name = "ownership::a_host_that_takes_an_announced_address_is_reported_and_defended_against";
    if !is_inside(name, SWITCH) {
        return;
    }
    let (other, host, client) = (Host::connect(1), Host::connect(2), Host::connect(3));
    let mut node = host.node(quick());
    node.announcer.set(both(Start::Probe));
    node.all(State::Announcing).await;
    for _ in 0..2 {
        assert_eq!(node.report().await.event, Event::Announced);
    }
    client.send(V4);
    other.sh(&format!(
        "ip address add {V4}/24 dev eth0; arping -q -c 1 -U -I eth0 {V4}"
    ));
    let report = node.report().await;
    let Event::Disputed(conflict) = report.event else {
        panic!("{report:?}");
    };
    assert_eq!(
        (report.address, conflict.mac, conflict.is_peer),
        (ip(V4), other.mac, false)
    );
    // Clients learn at once that nothing changed.
    let lladdr = format!("lladdr {}", host.mac);
    until("the defence", || client.neighbour(V4).contains(&lladdr)).await;
}

#[tokio::test]
async fn a_node_that_gave_an_address_up_is_silent_at_once() {
    let name = "ownership::a_node_that_gave_an_address_up_is_silent_at_once";
    if !is_inside(name, SWITCH) {
        return;
    }
    let (client, host) = (Host::connect(1), Host::connect(2));
    let (station, node) = (client.station(), host.node(Settings::default()));
    node.announcer.set(both(Start::TakeOver));
    node.all(State::Announcing).await;
    let mut one = both(Start::TakeOver);
    one.announcements.remove(&ip(V6));
    node.announcer.set(one);
    until("one address", || node.view().addresses.len() == 1).await;
    station.send(&solicitation(&station));
    station.send(&request(&station));
    until("an answer", || !station.answers().is_empty()).await;
    node.announcer.set(Wanted::default());
    until("no address", || node.view().addresses.is_empty()).await;
    let before = station.frames().len();
    station.send(&solicitation(&station));
    station.send(&request(&station));
    // The kernel of the node answers for its own address, after it got both questions.
    let own = Arp {
        operation: Operation::Request,
        sender_mac: station.mac(),
        sender: [10, 0, 0, 99].into(),
        target_mac: MacAddress([0; 6]),
        target: [10, 0, 0, 2].into(),
    };
    station.send(&own.frame(MacAddress::BROADCAST));
    let answer = Message::Arp(own.answer(host.mac));
    until("the answer of the kernel", || {
        station.answers().iter().any(|it| it.message == answer)
    })
    .await;
    let after = station.frames().split_off(before);
    let ours = after.iter().filter(|(_, frame)| match frame.message {
        Message::Arp(arp) => arp.sender.to_string() == V4,
        Message::Advertisement(said) => said.target.to_string() == V6,
        Message::Solicitation(_) => false,
    });
    assert_eq!(ours.count(), 0, "{after:?}");
}
