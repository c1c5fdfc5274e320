//! ARP beside real kernels.

use landfall_l2::fsm::{Settings, Start, State};
use landfall_l2::mac::MacAddress;
use landfall_l2::packet::Message;
use landfall_l2::packet::arp::{Arp, Operation};

use crate::lab::{Host, SWITCH, V4, both, is_inside, until};

#[tokio::test]
async fn a_kernel_and_arping_find_the_node_that_announces() {
    if !is_inside(
        "arp::a_kernel_and_arping_find_the_node_that_announces",
        SWITCH,
    ) {
        return;
    }
    let (client, host) = (Host::connect(1), Host::connect(2));
    let node = host.node(Settings::default());
    node.announcer.set(both(Start::TakeOver));
    node.all(State::Announcing).await;
    client.send(V4);
    let lladdr = format!("lladdr {} REACHABLE", host.mac);
    until("the kernel knows it", || {
        client.neighbour(V4).contains(&lladdr)
    })
    .await;
    let said = client.sh(&format!("arping -c 3 -w 5 -I eth0 {V4}"));
    assert!(said.contains("Received 3 response"), "{said}");
    assert!(
        said.to_lowercase().contains(&format!("[{}]", host.mac)),
        "{said}"
    );
    // It probes for duplicates as a host that comes up with the address would.
    let probed = client.sh(&format!(
        "arping -D -c 2 -w 5 -I eth0 {V4} || echo it is used"
    ));
    assert!(probed.contains("it is used"), "{probed}");
}

#[tokio::test]
async fn only_requests_to_this_node_for_its_address_are_answered() {
    if !is_inside(
        "arp::only_requests_to_this_node_for_its_address_are_answered",
        SWITCH,
    ) {
        return;
    }
    let (client, host) = (Host::connect(1), Host::connect(2));
    let (station, node) = (client.station(), host.node(Settings::default()));
    node.announcer.set(both(Start::TakeOver));
    node.all(State::Announcing).await;
    let request = |target: &str| Arp {
        operation: Operation::Request,
        sender_mac: station.mac(),
        sender: [10, 0, 0, 99].into(),
        target_mac: MacAddress([0; 6]),
        target: target.parse().unwrap(),
    };
    let reply = Arp {
        operation: Operation::Reply,
        ..request(V4)
    };
    // The switch does not know this station and sends the frame to all ports.
    let elsewhere = MacAddress([2, 0, 0, 0, 0xee, 0xee]);
    station.send(&request(V4).frame(elsewhere));
    station.send(&request("10.0.0.8").frame(MacAddress::BROADCAST));
    station.send(&reply.frame(host.mac));
    station.send(&request(V4).frame(MacAddress::BROADCAST)[..41]);
    // Frames keep their order: an answer to one above would come before those to these.
    station.send(&request(V4).frame(MacAddress::BROADCAST));
    station.send(&request(V4).frame(host.mac));
    let answers = || {
        let answers = station.answers().into_iter();
        answers
            .filter(|it| matches!(it.message, Message::Arp(_)))
            .collect::<Vec<_>>()
    };
    until("two answers", || answers().len() >= 2).await;
    for answer in answers() {
        assert_eq!(answer.source, host.mac);
        assert_eq!(answer.message, Message::Arp(request(V4).answer(host.mac)));
    }
    assert_eq!(answers().len(), 2);
}

#[tokio::test]
async fn gratuitous_arp_has_the_form_and_the_rhythm_of_metallb() {
    if !is_inside(
        "arp::gratuitous_arp_has_the_form_and_the_rhythm_of_metallb",
        SWITCH,
    ) {
        return;
    }
    let (client, host) = (Host::connect(1), Host::connect(2));
    let (station, node) = (client.station(), host.node(Settings::default()));
    let witness = client.lines("tcpdump", &["-lnni", "eth0", "arp"]);
    witness.until(&["listening on eth0"]).await;
    until("links are known", || {
        node.announcer.links().borrow().links.len() == 2
    })
    .await;
    let start = std::time::Instant::now();
    node.announcer.set(both(Start::TakeOver));
    let seen = || {
        let frames = station.frames().into_iter();
        let frames = frames.filter_map(|(at, frame)| match frame.message {
            Message::Arp(arp) if arp.sender == arp.target => Some((at, arp.operation, frame)),
            _ => None,
        });
        frames.collect::<Vec<_>>()
    };
    until("five rounds", || seen().len() >= 10).await;
    let address = V4.parse().unwrap();
    let mut rounds = vec![start];
    for (place, (at, operation, frame)) in seen().into_iter().enumerate() {
        let arp = Arp::gratuitous(operation, host.mac, address);
        assert_eq!(frame.message, Message::Arp(arp));
        assert_eq!(frame.destination, MacAddress::BROADCAST);
        let expected = [Operation::Request, Operation::Reply][place % 2];
        assert_eq!(operation, expected);
        rounds.push(at);
    }
    // The exact times are those of the tests of the state machine; a busy machine adds to them.
    let late = std::time::Duration::from_secs(2);
    assert!(rounds[1] - rounds[0] < late, "{rounds:?}");
    for pair in rounds[1..].chunks(2).collect::<Vec<_>>().windows(2) {
        let interval = pair[1][0] - pair[0][0];
        let least = std::time::Duration::from_millis(1_000);
        assert!(least < interval && interval < least + late, "{rounds:?}");
    }
    let request = format!("Request who-has {V4} (ff:ff:ff:ff:ff:ff)");
    let reply = format!("Reply {V4} is-at {}", host.mac);
    witness.until(&[&request, &reply, &request, &reply]).await;
}
