//! Neighbour Discovery beside real kernels.

use landfall_l2::fsm::{Settings, Start, State};
use landfall_l2::mac::MacAddress;
use landfall_l2::packet::Message;
use landfall_l2::packet::ndp::Solicitation;

use crate::lab::{Host, SWITCH, V6, both, is_inside, until};

#[tokio::test]
async fn a_kernel_and_ndisc6_find_the_node_that_announces() {
    if !is_inside(
        "ndp::a_kernel_and_ndisc6_find_the_node_that_announces",
        SWITCH,
    ) {
        return;
    }
    let (client, host) = (Host::connect(1), Host::connect(2));
    let node = host.node(Settings::default());
    let witness = client.lines("tcpdump", &["-lnnvvi", "eth0", "icmp6"]);
    witness.until(&["listening on eth0"]).await;
    node.announcer.set(both(Start::TakeOver));
    node.all(State::Announcing).await;
    client.send(V6);
    let lladdr = format!("lladdr {} REACHABLE", host.mac);
    until("the kernel knows it", || {
        client.neighbour(V6).contains(&lladdr)
    })
    .await;
    let said = client.sh(&format!("ndisc6 -1 {V6} eth0"));
    assert!(
        said.to_lowercase().contains(&host.mac.to_string()),
        "{said}"
    );
    let unsolicited = format!("neighbor advertisement, length 32, tgt is {V6}, Flags [override]");
    let answer = format!("tgt is {V6}, Flags [solicited, override]");
    witness.until(&["[icmp6 sum ok]", &unsolicited]).await;
    witness.until(&["[icmp6 sum ok]", &answer]).await;
    assert!(!witness.text().contains("bad icmp6 cksum"));
}

#[tokio::test]
async fn a_kernel_that_verifies_its_neighbour_by_unicast_gets_an_answer() {
    let name = "ndp::a_kernel_that_verifies_its_neighbour_by_unicast_gets_an_answer";
    if !is_inside(name, SWITCH) {
        return;
    }
    let (client, host) = (Host::connect(1), Host::connect(2));
    client.sh(
        "cd /proc/sys/net/ipv6/neigh/eth0; echo 300 > base_reachable_time_ms; \
        echo 1 > delay_first_probe_time; echo 200 > retrans_time_ms",
    );
    let node = host.node(Settings {
        // Nothing that the node says by itself is to make the neighbour reachable.
        refresh: None,
        burst: std::time::Duration::ZERO,
        ..Settings::default()
    });
    node.announcer.set(both(Start::TakeOver));
    node.all(State::Announcing).await;
    let (station, states) = (host.station(), client.lines("ip", &["monitor", "neigh"]));
    let end = std::time::Instant::now() + std::time::Duration::from_secs(15);
    let of_address = || {
        let text = states.text();
        let lines = text.lines().filter(|line| line.starts_with(V6));
        let state = |line: &str| line.split_whitespace().last().unwrap().to_owned();
        lines.map(state).collect::<Vec<_>>()
    };
    let verified = |states: &[String]| {
        let probe = states.iter().position(|it| it == "PROBE");
        probe.is_some_and(|at| states[at..].iter().any(|it| it == "REACHABLE"))
    };
    while !verified(&of_address()) {
        assert!(std::time::Instant::now() < end, "{}", states.text());
        client.send(V6);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let seen = of_address();
    assert!(!seen.iter().any(|it| it == "FAILED"), "{seen:?}");
    // The questions were asked of the node alone.
    let unicast = station.frames().into_iter().any(|(_, frame)| {
        let to_address = |asked: Solicitation| asked.destination.to_string() == V6;
        frame.destination == host.mac
            && matches!(frame.message, Message::Solicitation(it) if to_address(it))
    });
    assert!(unicast);
}

#[tokio::test]
async fn solicitations_without_the_option_are_answered_and_malformed_ones_are_not() {
    let name = "ndp::solicitations_without_the_option_are_answered_and_malformed_ones_are_not";
    if !is_inside(name, SWITCH) {
        return;
    }
    let (client, host) = (Host::connect(1), Host::connect(2));
    let (station, node) = (client.station(), host.node(Settings::default()));
    node.announcer.set(both(Start::TakeOver));
    node.all(State::Announcing).await;
    let probe = Solicitation::probe(V6.parse().unwrap());
    let group = MacAddress::of_group(probe.destination);
    let asked = Solicitation {
        source: "fe80::99".parse().unwrap(),
        ..probe
    };
    let mut forwarded = asked.frame(group, station.mac());
    forwarded[21] = 64;
    station.send(&forwarded);
    let mut broken = asked.frame(group, station.mac());
    broken[57] ^= 1;
    station.send(&broken);
    station.send(&asked.frame(group, station.mac()));
    let answers = || {
        let answers = station
            .answers()
            .into_iter()
            .filter_map(|it| match it.message {
                Message::Advertisement(said) if said.target.to_string() == V6 => {
                    Some((it.source, said))
                }
                _ => None,
            });
        answers.collect::<Vec<_>>()
    };
    until("an answer", || !answers().is_empty()).await;
    let [(source, said)] = answers()[..] else {
        panic!("{:?}", answers());
    };
    assert_eq!(source, host.mac);
    assert!(said.solicited && said.overrides);
    assert_eq!(said.mac, Some(host.mac));
    assert_eq!(said.source.to_string(), V6);
}

#[tokio::test]
async fn a_kernel_that_configures_the_address_finds_that_it_is_used() {
    let name = "ndp::a_kernel_that_configures_the_address_finds_that_it_is_used";
    if !is_inside(name, SWITCH) {
        return;
    }
    let (client, host) = (Host::connect(1), Host::connect(2));
    let node = host.node(Settings::default());
    node.announcer.set(both(Start::TakeOver));
    node.all(State::Announcing).await;
    client.sh("echo 1 > /proc/sys/net/ipv6/conf/all/accept_dad; \
        echo 1 > /proc/sys/net/ipv6/conf/eth0/accept_dad");
    client.sh(&format!("ip address add {V6}/64 dev eth0"));
    let state = || client.sh(&format!("ip address show dev eth0 to {V6}"));
    until("duplicate address detection ends", || {
        !state().contains(" tentative") || state().contains("dadfailed")
    })
    .await;
    assert!(state().contains("dadfailed"), "{}", state());
}

#[tokio::test]
async fn unsolicited_advertisements_have_the_form_and_the_rhythm_of_metallb() {
    let name = "ndp::unsolicited_advertisements_have_the_form_and_the_rhythm_of_metallb";
    if !is_inside(name, SWITCH) {
        return;
    }
    let (client, host) = (Host::connect(1), Host::connect(2));
    let (station, node) = (client.station(), host.node(Settings::default()));
    until("links are known", || {
        node.announcer.links().borrow().links.len() == 2
    })
    .await;
    node.announcer.set(both(Start::TakeOver));
    let seen = || {
        let frames = station.frames().into_iter();
        let frames = frames.filter_map(|(at, frame)| match frame.message {
            Message::Advertisement(said) if said.target.to_string() == V6 => {
                Some((at, said, frame))
            }
            _ => None,
        });
        frames.collect::<Vec<_>>()
    };
    until("five rounds", || seen().len() >= 5).await;
    let all_nodes = "ff02::1".parse().unwrap();
    for (_, said, frame) in seen() {
        assert_eq!(frame.source, host.mac);
        assert_eq!(frame.destination, MacAddress::of_group(all_nodes));
        assert_eq!(said.destination, all_nodes);
        assert_eq!(said.mac, Some(host.mac));
        assert!(!said.solicited && said.overrides);
    }
    // The exact times are those of the tests of the state machine; a busy machine adds to them.
    let times: Vec<_> = seen().into_iter().map(|(at, ..)| at).collect();
    let least = std::time::Duration::from_millis(1_000);
    for pair in times.windows(2) {
        assert!(pair[1] - pair[0] > least, "{times:?}");
    }
}
