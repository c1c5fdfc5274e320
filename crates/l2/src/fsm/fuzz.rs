//! Malformed frames: no panic, and no answer to what does not ask for an announced address.

use landfall_testkit::fuzz::{Seeds, run};

use super::*;
use crate::packet::arp::{Arp, Operation};
use crate::packet::ndp::{Advertisement, Solicitation};
use crate::packet::{Frame, Message};

const OURS: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const HOST: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x77]);
const V4: [u8; 4] = [10, 0, 0, 7];
const V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);

fn messages() -> Vec<Vec<u8>> {
    let ask = Arp {
        operation: Operation::Request,
        sender_mac: HOST,
        sender: [10, 0, 0, 1].into(),
        target_mac: MacAddress([0; 6]),
        target: V4.into(),
    };
    let probe = Solicitation::probe(V6);
    let group = MacAddress::of_group(probe.destination);
    let source = "fe80::77".parse().unwrap();
    let asked = Solicitation {
        source,
        mac: Some(HOST),
        ..probe
    };
    let unicast = Solicitation {
        destination: V6,
        ..asked
    };
    let said = Advertisement::unsolicited(source, V6, HOST);
    vec![
        ask.frame(MacAddress::BROADCAST),
        ask.frame(OURS),
        ask.answer(HOST).frame(OURS),
        Arp::probe(HOST, V4.into()).frame(MacAddress::BROADCAST),
        Arp::gratuitous(Operation::Reply, HOST, V4.into()).frame(MacAddress::BROADCAST),
        probe.frame(group, HOST),
        asked.frame(group, HOST),
        unicast.frame(OURS, HOST),
        said.frame(group, HOST),
    ]
}

fn machine(now: Instant) -> Machine {
    let interface = Interface {
        name: "eth0".to_owned(),
        mac: OURS,
        has_arp: true,
        link_local: Some("fe80::1".parse().unwrap()),
    };
    let mut machine = Machine::new(Settings::default());
    machine.set_interfaces(now, [(1, interface)].into(), [OURS].into());
    let announcement = Announcement {
        interfaces: Scope::All,
        start: Start::TakeOver,
        revision: 0,
    };
    let addresses = [V4.into(), V6.into()].map(|it| (it, announcement.clone()));
    machine.set_announcements(now, &addresses.into());
    machine.expire(now, 64);
    machine
}

/// Writes the right checksum into most frames of IPv6, which would end there otherwise.
fn with_checksum(frame: &mut [u8]) {
    let Some((header, body)) = frame.split_at_mut_checked(54) else {
        return;
    };
    let length = usize::from(u16::from_be_bytes([header[18], header[19]]));
    let Some(body) = body.get_mut(..length).filter(|it| it.len() >= 4) else {
        return;
    };
    body[2..4].fill(0);
    let pseudo = [
        &header[22..54],
        &[0, 0, header[18], header[19], 0, 0, 0, 58],
        body,
    ]
    .concat();
    let mut sum = 0_u32;
    for pair in pseudo.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    body[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Whether bytes of an address are anywhere in a frame.
fn names(frame: &[u8], address: &[u8]) -> bool {
    frame.windows(address.len()).any(|it| it == address)
}

#[test]
fn fuzz_frames() {
    let start = Instant::now();
    let (mut machine, mut now) = (machine(start), start);
    let messages = messages();
    let seeds = Seeds {
        messages: &messages,
        words: &[
            &V4,
            &OURS.0,
            &[0xff; 6],
            &[0x86, 0xdd],
            &[1, 1],
            &[2, 1],
            &[0; 8],
        ],
        longest: 2048,
    };
    let mut answered = 0_u64;
    run("arp-ndp-frames", |random| {
        let mut frame = random.broken(seeds);
        if random.below(4) > 0 && frame.get(12) == Some(&0x86) {
            with_checksum(&mut frame);
        }
        now += Duration::from_millis(1);
        let outputs = machine.receive(now, 1 + random.below(2) as u32, &frame);
        let sent = outputs.iter().filter_map(|output| match output {
            Output::Send { interface, frame } => Some((*interface, frame)),
            Output::Report(..) => None,
        });
        for (interface, answer) in sent {
            answered += 1;
            assert_eq!(interface, 1);
            assert!(
                names(&frame, &V4) || names(&frame, &V6.octets()),
                "{frame:02x?}"
            );
            let answer = Frame::parse(answer).expect("a frame that is understood");
            assert_eq!(answer.source, OURS);
            match answer.message {
                Message::Arp(arp) => assert_eq!(arp.sender.octets(), V4),
                Message::Advertisement(said) => assert_eq!(said.target, V6),
                Message::Solicitation(_) => panic!("nothing is probed here"),
            }
        }
        // Time passes and nothing is lost by it.
        machine.expire(now, 64);
        assert_eq!(machine.status().len(), 2);
    });
    assert!(
        answered > 0,
        "every case was broken before it asked for anything"
    );
}
