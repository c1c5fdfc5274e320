//! Random histories: what is announced, what comes through interfaces, and time.

use proptest::prelude::*;

use super::*;
use crate::packet::arp::{Arp, Operation};
use crate::packet::ndp::{Advertisement, Solicitation};
use crate::packet::{Frame, Message};

#[derive(Clone, Debug)]
enum Step {
    Announce(Vec<(u8, bool, bool)>),
    Interfaces(Vec<(u8, u8)>),
    Receive {
        interface: u8,
        kind: u8,
        target: u8,
        mac: u8,
    },
    Pass(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let announced = prop::collection::vec((0..6_u8, any::<bool>(), any::<bool>()), 0..6);
    let interfaces = prop::collection::vec((1..4_u8, 0..6_u8), 0..3);
    let received = (1..4_u8, 0..8_u8, 0..6_u8, 0..8_u8);
    prop_oneof![
        announced.prop_map(Step::Announce),
        interfaces.prop_map(Step::Interfaces),
        received.prop_map(|(interface, kind, target, mac)| {
            Step::Receive {
                interface,
                kind,
                target,
                mac,
            }
        }),
        received_time().prop_map(Step::Pass),
    ]
}

fn received_time() -> impl Strategy<Value = u16> {
    prop_oneof![0..400_u16, 0..60_000_u16]
}

fn mac(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, number])
}

/// The even ones are IPv4, the odd ones IPv6.
fn address(number: u8) -> IpAddr {
    if number.is_multiple_of(2) {
        [10, 0, 0, number].into()
    } else {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()).into()
    }
}

/// Stations 0 to 3 are this node, 4 and 5 peers, the others hosts.
fn frame(kind: u8, target: u8, station: u8) -> Vec<u8> {
    let station = mac(station);
    match address(target) {
        IpAddr::V4(target) => {
            let ask = Arp {
                operation: Operation::Request,
                sender_mac: station,
                sender: [10, 9, 9, 9].into(),
                target_mac: MacAddress([0; 6]),
                target,
            };
            match kind {
                0..4 => ask.frame(MacAddress::BROADCAST),
                4 => ask.frame(mac(kind & 3)),
                5 => Arp::probe(station, target).frame(MacAddress::BROADCAST),
                _ => {
                    Arp::gratuitous(Operation::Reply, station, target).frame(MacAddress::BROADCAST)
                }
            }
        }
        IpAddr::V6(target) => {
            let probe = Solicitation::probe(target);
            let ask = Solicitation {
                source: "fe80::9".parse().unwrap(),
                ..probe
            };
            let to = MacAddress::of_group(probe.destination);
            match kind {
                0..4 => ask.frame(to, station),
                4 => ask.frame(mac(kind & 3), station),
                5 => probe.frame(to, station),
                _ => Advertisement::unsolicited(ask.source, target, station).frame(to, station),
            }
        }
    }
}

/// Which address a frame makes known as ours.
fn made_known(frame: &[u8]) -> Option<IpAddr> {
    match Frame::parse(frame).unwrap().message {
        Message::Arp(arp) => (!arp.sender.is_unspecified()).then_some(arp.sender.into()),
        Message::Advertisement(said) => Some(said.target.into()),
        Message::Solicitation(_) => None,
    }
}

struct Model {
    machine: Machine,
    now: Instant,
    announced: BTreeMap<IpAddr, Announcement>,
    interfaces: BTreeMap<u32, Interface>,
    /// When each interface came.
    came: BTreeMap<u32, Instant>,
    /// When each address was taken over.
    taken: BTreeMap<IpAddr, Instant>,
}

impl Model {
    /// Whatever is sent is about an announced address, on an interface of it, from that interface,
    /// and never while another host refuses the address. On an interface that came after the
    /// address was taken over, hosts had the time to answer.
    fn check(&self, outputs: &[Output]) {
        for output in outputs {
            let (interface, frame) = match output {
                Output::Send { interface, frame } => (interface, frame),
                Output::Report(address, _) => {
                    assert!(self.announced.contains_key(address));
                    continue;
                }
            };
            let through = &self.interfaces[interface];
            let parsed = Frame::parse(frame).unwrap();
            assert_eq!(parsed.source, through.mac);
            if let Some(address) = made_known(frame) {
                let announcement = &self.announced[&address];
                assert!(announcement.interfaces.contains(&through.name));
                let status = &self.machine.status()[&address];
                assert_eq!(status.state, State::Announcing);
                assert!(status.interfaces.contains(&through.name));
                let came = self.came[interface];
                let is_taken = self.taken.get(&address).is_some_and(|at| *at >= came);
                assert!(is_taken || came + Duration::from_millis(300) <= self.now);
            }
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Announce(wanted) => {
                let announcement = |probes, on_first: bool| Announcement {
                    interfaces: if on_first {
                        Scope::Only(["eth1".to_owned()].into())
                    } else {
                        Scope::All
                    },
                    start: if probes {
                        Start::Probe
                    } else {
                        Start::TakeOver
                    },
                    revision: 0,
                };
                let wanted = wanted.into_iter();
                let before = std::mem::take(&mut self.announced);
                self.announced = wanted
                    .map(|(number, probes, first)| (address(number), announcement(probes, first)))
                    .collect();
                self.taken.retain(|it, _| self.announced.contains_key(it));
                for (address, it) in &self.announced {
                    let was = before.get(address).map(|it| it.start);
                    if it.start == Start::TakeOver && was != Some(Start::TakeOver) {
                        self.taken.insert(*address, self.now);
                    }
                }
                self.machine.set_announcements(self.now, &self.announced);
            }
            Step::Interfaces(interfaces) => {
                let interface = |(index, number): (u8, u8)| {
                    let interface = Interface {
                        name: format!("eth{index}"),
                        mac: mac(number & 3),
                        has_arp: true,
                        link_local: (number < 3).then(|| "fe80::1".parse().unwrap()),
                    };
                    (u32::from(index), interface)
                };
                self.interfaces = interfaces.into_iter().map(interface).collect();
                self.came.retain(|it, _| self.interfaces.contains_key(it));
                for index in self.interfaces.keys() {
                    self.came.entry(*index).or_insert(self.now);
                }
                let own = (0..4).map(mac).collect();
                let interfaces = self.interfaces.clone();
                self.machine.set_interfaces(self.now, interfaces, own);
            }
            Step::Receive {
                interface,
                kind,
                target,
                mac,
            } => {
                let frame = frame(kind, target, mac);
                let outputs = self.machine.receive(self.now, interface.into(), &frame);
                assert!(outputs.len() <= 3);
                self.check(&outputs);
            }
            Step::Pass(millis) => {
                let end = self.now + Duration::from_millis(millis.into());
                while let Some(at) = self.machine.deadline().filter(|at| *at <= end) {
                    self.now = at.max(self.now);
                    let outputs = self.machine.expire(self.now, 16);
                    self.check(&outputs);
                    assert!(
                        self.machine.deadline() > Some(self.now)
                            || outputs.len() >= 16
                            || self.machine.deadline().is_none()
                    );
                }
                self.now = end;
            }
        }
    }
}

proptest! {
    #[test]
    fn only_what_is_announced_is_ever_made_known(
        steps in prop::collection::vec(step(), 0..40),
    ) {
        let mut machine = Machine::new(Settings::default());
        machine.set_peers(Instant::now(), [mac(4), mac(5)].into());
        machine.set_interfaces(Instant::now(), BTreeMap::new(), (0..4).map(mac).collect());
        let mut model = Model {
            machine,
            now: Instant::now(),
            announced: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            came: BTreeMap::new(),
            taken: BTreeMap::new(),
        };
        for step in steps {
            model.take(step);
            // Deadlines are exactly those of the addresses that are there.
            let deadlines = model.machine.entries.iter();
            let deadlines = deadlines.filter_map(|(address, it)| Some((it.due()?, *address)));
            prop_assert_eq!(deadlines.collect::<BTreeSet<_>>(), model.machine.due.clone());
            let known: Vec<_> = model.machine.entries.keys().collect();
            prop_assert_eq!(known, model.announced.keys().collect::<Vec<_>>());
        }
    }
}
