mod late;

use super::*;
use crate::packet::Message;
use crate::packet::arp::{Arp, Operation};
use crate::packet::ndp::{ALL_NODES, Advertisement, Solicitation};

const OURS: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const OURS_TOO: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const HOST: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x77]);
const PEER: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x99]);
const LINK_LOCAL: &str = "fe80::1";
const V4: &str = "10.0.0.7";
const V6: &str = "2001:db8::7";

/// A machine on a clock that only moves when the test lets it.
struct Scene {
    machine: Machine,
    start: Instant,
    now: Instant,
}

/// What a machine did and when, in milliseconds.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Gratuitous(u64, u32),
    Unsolicited(u64, u32),
    Probe(u64, u32),
    Report(u64, Event),
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn interface(name: &str, mac: MacAddress) -> Interface {
    Interface {
        name: name.to_owned(),
        mac,
        has_arp: true,
        link_local: Some(v6(LINK_LOCAL)),
    }
}

fn announcement(start: Start) -> Announcement {
    Announcement {
        interfaces: Scope::All,
        start,
        revision: 0,
    }
}

impl Scene {
    fn without_interfaces(settings: Settings) -> Self {
        let start = Instant::now();
        Self {
            machine: Machine::new(settings),
            start,
            now: start,
        }
    }

    /// One interface, eth0 with index 1.
    fn new() -> Self {
        let mut scene = Self::without_interfaces(Settings::default());
        scene.interfaces([(1, interface("eth0", OURS))]);
        scene
    }

    /// Announces both addresses and lets the first burst pass.
    fn announcing() -> Self {
        let mut scene = Self::new();
        scene.take_over(&[V4, V6]);
        scene.run(6_000);
        scene
    }

    fn interfaces(&mut self, interfaces: impl IntoIterator<Item = (u32, Interface)>) {
        let own = [OURS, OURS_TOO].into();
        let interfaces = interfaces.into_iter().collect();
        self.machine.set_interfaces(self.now, interfaces, own);
    }

    fn announce(&mut self, addresses: &[&str], announcement: &Announcement) {
        let all = addresses.iter().map(|it| (ip(it), announcement.clone()));
        self.machine.set_announcements(self.now, &all.collect());
    }

    fn take_over(&mut self, addresses: &[&str]) {
        self.announce(addresses, &announcement(Start::TakeOver));
    }

    fn receive(&mut self, frame: &[u8]) -> Vec<Output> {
        self.machine.receive(self.now, 1, frame)
    }

    /// Lets time pass and returns what happened in it.
    fn run(&mut self, millis: u64) -> Vec<Seen> {
        let end = self.now + Duration::from_millis(millis);
        let mut seen = Vec::new();
        while let Some(at) = self.machine.deadline().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            let elapsed = (self.now - self.start).as_millis() as u64;
            for output in self.machine.expire(self.now, 64) {
                seen.extend(self.seen(elapsed, output));
            }
        }
        self.now = end;
        seen
    }

    fn seen(&self, elapsed: u64, output: Output) -> Option<Seen> {
        let (interface, frame) = match output {
            Output::Report(_, event) => return Some(Seen::Report(elapsed, event)),
            Output::Send { interface, frame } => (interface, Frame::parse(&frame).unwrap()),
        };
        let mac = self.machine.interfaces()[&interface].mac;
        assert_eq!(frame.source, mac);
        match frame.message {
            Message::Arp(arp) if arp.sender.is_unspecified() => {
                assert_eq!(arp, Arp::probe(mac, "10.0.0.7".parse().unwrap()));
                Some(Seen::Probe(elapsed, interface))
            }
            Message::Arp(arp) => {
                let address = arp.sender;
                assert_eq!(arp, Arp::gratuitous(arp.operation, mac, address));
                assert_eq!(frame.destination, MacAddress::BROADCAST);
                // A round has two frames; the first stands for both.
                let is_first = arp.operation == Operation::Request;
                is_first.then_some(Seen::Gratuitous(elapsed, interface))
            }
            Message::Solicitation(asked) => {
                assert_eq!(asked, Solicitation::probe(v6(V6)));
                Some(Seen::Probe(elapsed, interface))
            }
            Message::Advertisement(said) => {
                let expected = Advertisement::unsolicited(v6(LINK_LOCAL), said.target, mac);
                assert_eq!(said, expected);
                assert_eq!(frame.destination, MacAddress::of_group(ALL_NODES));
                Some(Seen::Unsolicited(elapsed, interface))
            }
        }
    }

    fn state(&self, address: &str) -> State {
        self.machine.status()[&ip(address)].state
    }
}

fn request(target: &str) -> Arp {
    Arp {
        operation: Operation::Request,
        sender_mac: HOST,
        sender: [10, 0, 0, 1].into(),
        target_mac: MacAddress([0; 6]),
        target: target.parse().unwrap(),
    }
}

fn solicitation() -> Solicitation {
    Solicitation {
        source: v6("fe80::77"),
        destination: solicited_node(v6(V6)),
        target: v6(V6),
        mac: Some(HOST),
    }
}

fn sent(outputs: &[Output]) -> Option<Frame> {
    match outputs {
        [] => None,
        [
            Output::Send {
                interface: 1,
                frame,
            },
        ] => Frame::parse(frame),
        other => panic!("{other:?}"),
    }
}

fn conflict(event: &Output) -> Conflict {
    match event {
        Output::Report(_, Event::Refused(it) | Event::Disputed(it)) => *it,
        other => panic!("{other:?}"),
    }
}

// Answers.

#[test]
fn a_request_is_answered_to_all_stations_and_to_this_one_alone() {
    let mut scene = Scene::announcing();
    for to in [MacAddress::BROADCAST, OURS] {
        let answer = sent(&scene.receive(&request(V4).frame(to))).unwrap();
        assert_eq!((answer.source, answer.destination), (OURS, HOST));
        assert_eq!(answer.message, Message::Arp(request(V4).answer(OURS)));
    }
}

#[test]
fn what_is_not_a_question_to_this_node_about_its_address_is_not_answered() {
    let mut scene = Scene::announcing();
    let silent = [
        request(V4).frame(HOST),
        request(V4).frame(OURS_TOO),
        request("10.0.0.8").frame(MacAddress::BROADCAST),
        request("10.0.0.1").answer(HOST).frame(OURS),
        Arp {
            operation: Operation::Reply,
            ..request(V4)
        }
        .frame(OURS),
    ];
    for frame in silent {
        assert_eq!(sent(&scene.receive(&frame)), None, "{frame:?}");
    }
    let frame = request(V4).frame(MacAddress::BROADCAST);
    assert_eq!(scene.machine.receive(scene.now, 2, &frame), []);
}

#[test]
fn a_probe_of_another_host_is_answered_so_that_it_does_not_use_the_address() {
    let mut scene = Scene::announcing();
    let probe = Arp::probe(HOST, "10.0.0.7".parse().unwrap());
    let answer = sent(&scene.receive(&probe.frame(MacAddress::BROADCAST))).unwrap();
    assert_eq!(answer.destination, HOST);
    let probe = Solicitation::probe(v6(V6));
    let to = MacAddress::of_group(probe.destination);
    let answer = sent(&scene.receive(&probe.frame(to, HOST))).unwrap();
    assert_eq!(answer.destination, MacAddress::of_group(ALL_NODES));
    let Message::Advertisement(said) = answer.message else {
        panic!("{answer:?}");
    };
    assert!(!said.solicited && said.overrides);
    assert_eq!(said.mac, Some(OURS));
}

#[test]
fn a_solicitation_is_answered_with_the_option_without_it_and_as_unicast() {
    let mut scene = Scene::announcing();
    let group = MacAddress::of_group(solicitation().destination);
    let unicast = Solicitation {
        destination: v6(V6),
        ..solicitation()
    };
    let without = |asked| Solicitation { mac: None, ..asked };
    for (asked, to) in [
        (solicitation(), group),
        (unicast, OURS),
        (without(unicast), OURS),
        (without(solicitation()), group),
    ] {
        let answer = sent(&scene.receive(&asked.frame(to, HOST))).unwrap();
        assert_eq!((answer.source, answer.destination), (OURS, HOST));
        let Message::Advertisement(said) = answer.message else {
            panic!("{answer:?}");
        };
        assert_eq!(said, asked.answer(OURS));
        assert!(said.solicited && said.overrides);
        assert_eq!(said.destination, v6("fe80::77"));
    }
}

#[test]
fn a_solicitation_for_another_address_or_station_is_not_answered() {
    let mut scene = Scene::announcing();
    let other = Solicitation {
        target: v6("2001:db8:1::7"),
        ..solicitation()
    };
    // The same group, so the kernel delivers it here.
    assert_eq!(other.destination, solicited_node(other.target));
    let to = MacAddress::of_group(other.destination);
    assert_eq!(scene.receive(&other.frame(to, HOST)), []);
    assert_eq!(scene.receive(&solicitation().frame(OURS_TOO, HOST)), []);
    assert_eq!(
        scene.receive(&solicitation().frame(MacAddress::BROADCAST, HOST)),
        []
    );
}

#[test]
fn a_node_that_does_not_own_an_address_never_answers_for_it() {
    let mut scene = Scene::announcing();
    scene.take_over(&[V6]);
    let frame = request(V4).frame(MacAddress::BROADCAST);
    assert_eq!(scene.receive(&frame), []);
    let only_v6 = |seen: &Seen| matches!(seen, Seen::Unsolicited(..));
    assert!(scene.run(200_000).iter().all(only_v6));
    scene.take_over(&[]);
    assert_eq!(scene.run(200_000), []);
    assert_eq!(scene.machine.deadline(), None);
}

#[test]
fn an_address_is_answered_on_its_interfaces_only_and_a_change_takes_effect_at_once() {
    let mut scene = Scene::new();
    scene.interfaces([
        (1, interface("eth0", OURS)),
        (2, interface("eth1", OURS_TOO)),
    ]);
    let on = |name: &str| Announcement {
        interfaces: Scope::Only([name.to_owned()].into()),
        ..announcement(Start::TakeOver)
    };
    scene.announce(&[V4], &on("eth1"));
    assert_eq!(scene.run(0)[1..], [Seen::Gratuitous(0, 2)]);
    let frame = request(V4).frame(MacAddress::BROADCAST);
    assert_eq!(scene.machine.receive(scene.now, 1, &frame), []);
    assert_eq!(scene.machine.receive(scene.now, 2, &frame).len(), 1);
    scene.announce(&[V4], &on("eth0"));
    assert_eq!(scene.machine.receive(scene.now, 2, &frame), []);
    let probes = [0, 100, 200].map(|at| Seen::Probe(at, 1));
    assert_eq!(scene.run(299), probes, "no host was asked there yet");
    assert_eq!(scene.run(1), [Seen::Gratuitous(300, 1)]);
    assert_eq!(scene.machine.receive(scene.now, 1, &frame).len(), 1);
    assert_eq!(scene.machine.receive(scene.now, 2, &frame), []);
    scene.announce(&[V4], &on("eth7"));
    assert_eq!(scene.state(V4), State::Waiting);
    assert_eq!(scene.run(100_000), []);
}

// Announcements.

#[test]
fn an_address_is_announced_at_once_five_times_and_then_every_minute() {
    let mut scene = Scene::new();
    scene.take_over(&[V4]);
    let seen = scene.run(300_000);
    let rounds: Vec<u64> = seen[1..]
        .iter()
        .map(|seen| match seen {
            Seen::Gratuitous(at, 1) => *at,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(seen[0], Seen::Report(0, Event::Announced));
    assert_eq!(rounds[..5], [0, 1_100, 2_200, 3_300, 4_400]);
    let first = rounds[5] - rounds[4];
    assert!((30_000..=60_000).contains(&first), "{first}");
    let later: Vec<u64> = rounds[5..].windows(2).map(|it| it[1] - it[0]).collect();
    assert_eq!(later, vec![60_000; later.len()]);
    assert!(later.len() >= 3, "{rounds:?}");
}

#[test]
fn without_refresh_it_stops_after_the_burst() {
    let settings = Settings {
        refresh: None,
        ..Settings::default()
    };
    let mut scene = Scene::without_interfaces(settings);
    scene.interfaces([(1, interface("eth0", OURS))]);
    scene.take_over(&[V6]);
    let seen = scene.run(1_000_000);
    let rounds = [0, 1_100, 2_200, 3_300, 4_400].map(|at| Seen::Unsolicited(at, 1));
    assert_eq!(seen[1..], rounds);
    assert_eq!(scene.machine.deadline(), None);
}

#[test]
fn another_cause_makes_a_burst_longer_and_begins_one_that_is_over_again() {
    let mut scene = Scene::new();
    let with = |revision| Announcement {
        revision,
        ..announcement(Start::TakeOver)
    };
    scene.announce(&[V4], &with(1));
    assert_eq!(scene.run(2_000).len(), 3);
    scene.announce(&[V4], &with(2));
    let seen = scene.run(10_000);
    let rounds = [2_200, 3_300, 4_400, 5_500, 6_600].map(|at| Seen::Gratuitous(at, 1));
    assert_eq!(seen, rounds);
    scene.announce(&[V4], &with(3));
    assert_eq!(scene.run(0), [Seen::Gratuitous(12_000, 1)]);
    // The same again is no cause.
    scene.run(6_000);
    scene.announce(&[V4], &with(3));
    assert_eq!(scene.run(0), []);
}

#[test]
fn many_addresses_are_announced_in_parts_and_refreshed_apart() {
    let mut scene = Scene::new();
    let addresses: Vec<String> = (0..1_000)
        .map(|it| format!("10.1.{}.{}", it / 250, it % 250))
        .collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    scene.take_over(&addresses);
    let part = scene.machine.expire(scene.now, 64);
    assert!((64..70).contains(&part.len()), "{}", part.len());
    scene.run(6_000);
    let mut per_second = BTreeMap::<u64, usize>::new();
    for seen in scene.run(60_000) {
        if let Seen::Gratuitous(at, _) = seen {
            *per_second.entry(at / 1_000).or_default() += 1;
        }
    }
    assert_eq!(per_second.values().sum::<usize>(), 1_000);
    assert!(per_second.values().all(|it| *it < 100), "{per_second:?}");
}

#[test]
fn a_new_mac_address_is_used_and_made_known_at_once() {
    let mut scene = Scene::announcing();
    scene.interfaces([(1, interface("eth0", OURS_TOO))]);
    let seen = scene.run(0);
    assert_eq!(
        seen,
        [Seen::Gratuitous(6_000, 1), Seen::Unsolicited(6_000, 1)]
    );
    let answer = sent(&scene.receive(&request(V4).frame(MacAddress::BROADCAST))).unwrap();
    assert_eq!(answer.source, OURS_TOO);
    assert_eq!(scene.receive(&request(V4).frame(OURS)), []);
}

#[test]
fn an_interface_that_comes_later_announces_what_is_there() {
    let mut scene = Scene::without_interfaces(Settings::default());
    scene.take_over(&[V4, V6]);
    assert_eq!(scene.run(1_000), []);
    assert_eq!(scene.state(V4), State::Waiting);
    let without_ndp = Interface {
        link_local: None,
        ..interface("eth0", OURS)
    };
    scene.interfaces([(1, without_ndp)]);
    let announced = Seen::Report(1_000, Event::Announced);
    assert_eq!(scene.run(0), [announced, Seen::Gratuitous(1_000, 1)]);
    assert_eq!(scene.machine.groups(), [].into());
    scene.run(9_000);
    // Its link-local address arrives.
    scene.interfaces([(1, interface("eth0", OURS))]);
    let expected = [Seen::Gratuitous(10_000, 1), Seen::Probe(10_000, 1)];
    assert_eq!(scene.run(0), expected);
    let first = |seen: &Seen| matches!(seen, Seen::Report(10_300, Event::Announced));
    assert!(scene.run(300).iter().any(first));
    assert_eq!(scene.machine.groups(), [(1, v6("ff02::1:ff00:7"))].into());
    scene.interfaces([]);
    assert_eq!(scene.state(V6), State::Waiting);
    assert_eq!(scene.machine.groups(), [].into());
    assert_eq!(scene.run(100_000), []);
}

// Duplicate address detection.

#[test]
fn a_new_address_is_probed_before_it_is_announced() {
    for (address, round) in [
        (V4, Seen::Gratuitous(300, 1)),
        (V6, Seen::Unsolicited(300, 1)),
    ] {
        let mut scene = Scene::new();
        scene.announce(&[address], &announcement(Start::Probe));
        assert_eq!(scene.run(299), [0, 100, 200].map(|at| Seen::Probe(at, 1)));
        assert_eq!(scene.state(address), State::Probing);
        let frame = request(V4).frame(MacAddress::BROADCAST);
        assert_eq!(scene.receive(&frame), [], "not yet");
        assert_eq!(scene.run(1), [Seen::Report(300, Event::Announced), round]);
        assert_eq!(scene.state(address), State::Announcing);
    }
}

/// Frames of a host that has one of the addresses, or is about to use it.
fn claims(mac: MacAddress) -> Vec<Vec<u8>> {
    let target = "10.0.0.7".parse().unwrap();
    let claim = Arp {
        sender_mac: mac,
        sender: target,
        ..request("10.0.0.1")
    };
    let said = Advertisement::unsolicited(v6("fe80::77"), v6(V6), mac);
    let probe = Solicitation::probe(v6(V6));
    vec![
        claim.frame(MacAddress::BROADCAST),
        Arp::gratuitous(Operation::Reply, mac, target).frame(OURS),
        Arp::probe(mac, target).frame(MacAddress::BROADCAST),
        said.frame(MacAddress::of_group(ALL_NODES), mac),
        probe.frame(MacAddress::of_group(probe.destination), mac),
    ]
}

#[test]
fn an_address_that_another_host_has_or_probes_is_not_announced_and_probed_again_later() {
    for frame in claims(HOST) {
        let mut scene = Scene::new();
        scene.announce(&[V4, V6], &announcement(Start::Probe));
        scene.run(250);
        let outputs = scene.receive(&frame);
        let [report] = &outputs[..] else {
            panic!("{outputs:?}");
        };
        let Output::Report(address, Event::Refused(conflict)) = *report else {
            panic!("{report:?}");
        };
        assert_eq!((conflict.mac, conflict.interface), (HOST, 1));
        assert!(!conflict.is_peer);
        let status = &scene.machine.status()[&address];
        assert_eq!(status.state, State::Conflicted);
        assert_eq!(status.conflict, Some(conflict));
        scene.announce(&[&address.to_string()], &announcement(Start::Probe));
        // It may be gone soon; one that stays is asked ever more rarely.
        let mut now = 250;
        for wait in [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000] {
            now += wait;
            assert_eq!(scene.run(wait - 1), []);
            assert_eq!(scene.run(1), [Seen::Probe(now, 1)]);
            assert_eq!(scene.receive(&frame), []);
        }
        assert_eq!(scene.run(29_999), []);
        let probes = [30_000, 30_100, 30_200].map(|at| Seen::Probe(now + at, 1));
        assert_eq!(scene.run(300), probes);
        let seen = scene.run(1);
        assert_eq!(seen[0], Seen::Report(now + 30_300, Event::Announced));
    }
}

#[test]
fn an_address_that_a_host_had_is_announced_when_it_turns_out_to_be_a_node() {
    let mut scene = Scene::new();
    scene.announce(&[V4], &announcement(Start::Probe));
    for wait in [200, 400, 800, 0] {
        scene.receive(&claims(PEER)[0]);
        assert_eq!(scene.state(V4), State::Conflicted);
        scene.run(wait);
    }
    scene.machine.set_peers(scene.now, [HOST].into());
    assert_eq!(scene.run(100), []);
    scene.machine.set_peers(scene.now, [HOST, PEER].into());
    let probes = [1_500, 1_600, 1_700].map(|at| Seen::Probe(at, 1));
    assert_eq!(scene.run(250), probes);
    // It is about to give the address up.
    assert_eq!(scene.receive(&claims(PEER)[0]), []);
    let seen = scene.run(50);
    assert_eq!(seen[0], Seen::Report(1_800, Event::Announced));
}

#[test]
fn a_node_that_left_the_cluster_keeps_no_address_from_being_announced_for_some_minutes() {
    for (after, state) in [(599_999, State::Probing), (600_000, State::Conflicted)] {
        let mut scene = Scene::new();
        scene.machine.set_peers(scene.now, [PEER, HOST].into());
        scene.machine.set_peers(scene.now, [HOST].into());
        scene.run(after);
        scene.announce(&[V4], &announcement(Start::Probe));
        scene.receive(&claims(PEER)[0]);
        assert_eq!(scene.state(V4), state, "{after}");
    }
}

#[test]
fn what_is_asked_for_is_announced_without_a_probe_as_soon_as_it_is_to_be() {
    let mut scene = Scene::new();
    scene.announce(&[V4], &announcement(Start::Ask));
    let probes = [0, 100, 200].map(|at| Seen::Probe(at, 1));
    assert_eq!(scene.run(5_000), probes);
    assert_eq!(scene.state(V4), State::Probing);
    let frame = request(V4).frame(MacAddress::BROADCAST);
    assert_eq!(scene.receive(&frame), []);
    scene.announce(&[V4], &announcement(Start::Probe));
    let now = [
        Seen::Report(5_000, Event::Announced),
        Seen::Gratuitous(5_000, 1),
    ];
    assert_eq!(scene.run(0), now);
}

#[test]
fn what_is_to_be_announced_before_the_answers_had_their_time_waits_for_them() {
    let mut scene = Scene::new();
    scene.announce(&[V4], &announcement(Start::Ask));
    assert_eq!(scene.run(150), [0, 100].map(|at| Seen::Probe(at, 1)));
    scene.announce(&[V4], &announcement(Start::Probe));
    assert_eq!(scene.run(149), [Seen::Probe(200, 1)]);
    assert_eq!(scene.run(1)[0], Seen::Report(300, Event::Announced));
}

#[test]
fn a_host_that_answers_while_an_address_is_only_asked_for_keeps_it() {
    // While probes are sent, and after the last one.
    for after in [50, 1_000] {
        let mut scene = Scene::new();
        scene.announce(&[V4], &announcement(Start::Ask));
        scene.run(after);
        let outputs = scene.receive(&claims(HOST)[0]);
        assert!(matches!(
            outputs[..],
            [Output::Report(_, Event::Refused(_))]
        ));
        scene.announce(&[V4], &announcement(Start::Probe));
        assert_eq!(scene.state(V4), State::Conflicted);
        assert_eq!(scene.run(199), []);
    }
    // Another interface comes meanwhile: it is asked there, too.
    let mut scene = Scene::new();
    scene.announce(&[V4], &announcement(Start::Ask));
    scene.run(1_000);
    scene.interfaces([
        (1, interface("eth0", OURS)),
        (2, interface("eth1", OURS_TOO)),
    ]);
    let both = [Seen::Probe(1_000, 1), Seen::Probe(1_000, 2)];
    assert_eq!(scene.run(0), both);
    scene.interfaces([]);
    assert_eq!(scene.state(V4), State::Waiting);
}

#[test]
fn an_operator_can_claim_an_address_that_another_host_has() {
    let mut scene = Scene::new();
    scene.announce(&[V4], &announcement(Start::Probe));
    scene.receive(&claims(HOST)[0]);
    assert_eq!(scene.state(V4), State::Conflicted);
    scene.take_over(&[V4]);
    let now = [Seen::Report(0, Event::Announced), Seen::Gratuitous(0, 1)];
    assert_eq!(scene.run(0), now);
}

#[test]
fn frames_of_this_node_and_of_its_peers_are_no_conflict_while_probing() {
    for mac in [OURS_TOO, PEER] {
        let mut scene = Scene::new();
        scene.machine.set_peers(scene.now, [PEER].into());
        scene.announce(&[V4, V6], &announcement(Start::Probe));
        scene.run(100);
        for frame in claims(mac) {
            assert_eq!(scene.receive(&frame), []);
        }
        scene.run(300);
        assert_eq!(scene.state(V4), State::Announcing);
        assert_eq!(scene.state(V6), State::Announcing);
    }
}

#[test]
fn probing_begins_again_on_an_interface_that_comes_meanwhile() {
    let mut scene = Scene::without_interfaces(Settings::default());
    scene.announce(&[V4], &announcement(Start::Probe));
    assert_eq!(scene.run(500), []);
    scene.interfaces([(1, interface("eth0", OURS))]);
    assert_eq!(scene.run(150), [500, 600].map(|at| Seen::Probe(at, 1)));
    let both = [
        (1, interface("eth0", OURS)),
        (2, interface("eth1", OURS_TOO)),
    ];
    scene.interfaces(both);
    let probes: Vec<_> = [650, 750, 850]
        .iter()
        .flat_map(|at| [Seen::Probe(*at, 1), Seen::Probe(*at, 2)])
        .collect();
    assert_eq!(scene.run(299), probes);
    scene.interfaces([]);
    assert_eq!(scene.run(1_000), []);
    assert_eq!(scene.state(V4), State::Waiting);
}

// Conflicts later on.

#[test]
fn a_host_that_uses_an_address_is_reported_and_answered_by_a_defence() {
    for (frame, sent) in [(&claims(HOST)[0], 2), (&claims(HOST)[3], 1)] {
        let mut scene = Scene::announcing();
        let outputs = scene.receive(frame);
        assert_eq!(outputs.len(), 1 + sent, "{outputs:?}");
        let found = conflict(&outputs[0]);
        assert_eq!((found.mac, found.is_peer), (HOST, false));
        assert!(matches!(outputs[1], Output::Send { interface: 1, .. }));
        // Not more often than every 10 s, whatever the host does.
        scene.run(9_999);
        assert_eq!(scene.receive(frame), []);
        scene.run(1);
        assert_eq!(scene.receive(frame).len(), sent, "reported already");
        // After a while without a sign of it, it is another conflict.
        scene.run(30_000);
        assert_eq!(scene.receive(frame).len(), 1 + sent);
    }
}

#[test]
fn a_host_that_keeps_an_address_is_reported_once_and_another_host_again() {
    let mut scene = Scene::new();
    scene.announce(&[V4], &announcement(Start::Probe));
    let refused = |scene: &mut Scene, mac, wait| {
        let outputs = scene.receive(&claims(mac)[0]);
        assert_eq!(scene.state(V4), State::Conflicted);
        let probed = scene.run(wait);
        assert!(matches!(probed[..], [Seen::Probe(_, 1)]), "{probed:?}");
        outputs.len()
    };
    assert_eq!(refused(&mut scene, HOST, 200), 1);
    for wait in [400, 800, 1_600, 3_200, 6_400] {
        assert_eq!(refused(&mut scene, HOST, wait), 0);
    }
    assert_eq!(refused(&mut scene, PEER, 12_800), 1, "not known as a peer");
    scene.run(1_000);
    assert_eq!(scene.state(V4), State::Announcing);
}

#[test]
fn a_peer_that_still_announces_is_reported_and_left_alone() {
    let mut scene = Scene::announcing();
    scene.machine.set_peers(scene.now, [PEER].into());
    let outputs = scene.receive(&claims(PEER)[0]);
    let [report] = &outputs[..] else {
        panic!("{outputs:?}");
    };
    assert!(conflict(report).is_peer);
    assert_eq!(scene.state(V4), State::Announcing);
}

#[test]
fn what_a_peer_announced_meanwhile_is_announced_again_once_it_has_stopped() {
    for (address, frame) in [(V4, &claims(PEER)[0]), (V6, &claims(PEER)[3])] {
        let mut scene = Scene::new();
        scene.machine.set_peers(scene.now, [PEER].into());
        scene.take_over(&[address]);
        scene.run(10_000);
        scene.receive(frame);
        // In a planned move, this node is not the owner by now.
        assert_eq!(scene.run(2_199), []);
        assert_eq!(scene.run(1), [Seen::Probe(12_200, 1)]);
        // It does not answer.
        let again = scene.run(10_000);
        let [Seen::Gratuitous(12_400, 1) | Seen::Unsolicited(12_400, 1)] = again[..] else {
            panic!("{again:?}");
        };
    }
}

#[test]
fn an_address_that_a_peer_goes_on_to_announce_is_not_taken_from_it_but_asked_for_ever_less_often() {
    let settings = Settings {
        refresh: None,
        ..Settings::default()
    };
    let mut scene = Scene::without_interfaces(settings);
    scene.interfaces([(1, interface("eth0", OURS))]);
    scene.machine.set_peers(scene.now, [PEER].into());
    scene.take_over(&[V4]);
    scene.run(10_000);
    // It announces, and answers each question.
    let ask = |scene: &mut Scene| {
        scene.receive(&claims(PEER)[0]);
        let wait = scene.machine.deadline().unwrap() - scene.now;
        let wait = wait.as_millis() as u64;
        let asked = scene.run(wait);
        assert!(matches!(asked[..], [Seen::Probe(..)]), "{asked:?}");
        wait
    };
    let waits = [(); 6].map(|()| ask(&mut scene));
    assert_eq!(waits, [2_200, 4_400, 8_800, 15_000, 15_000, 15_000]);
    assert_eq!(scene.run(60_000).len(), 1, "it has stopped");
    assert_eq!(ask(&mut scene), 2_200, "another dispute");
}

#[test]
fn a_forged_claim_with_changing_stations_causes_one_report() {
    let mut scene = Scene::announcing();
    let mut outputs = Vec::new();
    for last in 0x80..=0xff {
        let frame = &claims(MacAddress([2, 0, 0, 0, 0, last]))[0];
        outputs.extend(scene.receive(frame));
    }
    assert_eq!(outputs.len(), 3, "a report and a defence of two frames");
}
