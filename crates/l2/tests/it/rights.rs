//! What the process may do: `NET_RAW` and nothing else.

use std::time::Duration;

use landfall_l2::driver::{Announcer, Config, Losses};
use landfall_l2::fsm::{Event, Start, State};
use landfall_l2::mac::MacAddress;
use landfall_l2::packet::arp::{Arp, Operation};
use landfall_l2::packet::{ETHER_TYPE_ARP, Frame, Message};
use landfall_sys::packet::{Instruction, PacketSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::lab::{V4, both, ip, is_inside, until};

/// Two ends of a cable in one namespace; the second stands for another host.
const CABLE: &str = "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; \
    ip link add node type veth peer name other; ip link set node up; ip link set other up; \
    ip link show other >/dev/null;";

const NO_RIGHTS: &str = "setpriv --inh-caps=-all --bounding-set=-all";

#[tokio::test]
async fn announcing_takes_the_capability_net_raw_alone() {
    let name = "rights::announcing_takes_the_capability_net_raw_alone";
    if !is_inside(
        name,
        &format!("{CABLE} set -- {NO_RIGHTS},+net_raw \"$@\";"),
    ) {
        return;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    assert!(status.contains("CapEff:\t0000000000002000"), "{status}");
    let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
    let started = Announcer::start(Config::default(), &tracker, stop.clone());
    let (announcer, mut reports) = started.unwrap();
    announcer.set(both(Start::Probe));
    for _ in 0..2 {
        assert_eq!(reports.recv().await.unwrap().event, Event::Announced);
    }
    let view = announcer.view();
    until("announcing", || {
        view.borrow()
            .addresses
            .values()
            .all(|it| it.state == State::Announcing)
    })
    .await;
    assert_eq!(view.borrow().losses, Losses::default());
    let groups = std::fs::read_to_string("/proc/net/igmp6").unwrap();
    assert!(
        groups.contains("ff0200000000000000000001ff000007"),
        "{groups}"
    );
    let index = |name: &str| {
        let links = announcer.links();
        let links = links.borrow();
        let found = links.links.iter().find(|(_, link)| link.name == name);
        let (index, link) = found.unwrap();
        (*index, link.mac.unwrap())
    };
    let ((other, _), (_, node)) = (index("other"), index("node"));
    let all = Instruction {
        code: 6,
        if_true: 0,
        if_false: 0,
        operand: 2_048,
    };
    let host = PacketSocket::open(ETHER_TYPE_ARP, &[all]).unwrap();
    let asked = Arp {
        operation: Operation::Request,
        sender_mac: MacAddress([2, 0, 0, 0, 0, 0x77]),
        sender: [10, 0, 0, 99].into(),
        target_mac: MacAddress([0; 6]),
        target: V4.parse().unwrap(),
    };
    host.send(other, &asked.frame(MacAddress::BROADCAST))
        .unwrap();
    let expected = Message::Arp(asked.answer(node));
    let mut room = [0; 2_048];
    loop {
        let received = host.receive(&mut room);
        let received = tokio::time::timeout(Duration::from_secs(10), received).await;
        let received = received.expect("no answer").unwrap();
        let frame = Frame::parse(&room[..received.length]);
        if frame.is_some_and(|it| it.message == expected && it.source == node) {
            break;
        }
    }
    assert!(view.borrow().addresses.contains_key(&ip(V4)));
    stop.cancel();
    tracker.close();
    tracker.wait().await;
}

#[tokio::test]
async fn without_the_capability_the_error_names_it() {
    let name = "rights::without_the_capability_the_error_names_it";
    if !is_inside(name, &format!("{CABLE} set -- {NO_RIGHTS} \"$@\";")) {
        return;
    }
    let started = Announcer::start(
        Config::default(),
        &TaskTracker::new(),
        CancellationToken::new(),
    );
    let error = started.unwrap_err();
    assert!(error.to_string().contains("NET_RAW"), "{error}");
}
