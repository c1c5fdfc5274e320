use super::super::{Claim, Frame};
use super::*;

const ASKING: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const OURS: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn asked() -> Solicitation {
    Solicitation {
        source: address("fe80::1"),
        destination: address("ff02::1:ff00:7"),
        target: address("2001:db8::7"),
        mac: Some(ASKING),
    }
}

fn asked_frame() -> Vec<u8> {
    asked().frame(MacAddress::of_group(asked().destination), ASKING)
}

fn message(frame: &[u8]) -> Option<Message> {
    Frame::parse(frame).map(|it| it.message)
}

/// A frame with one byte changed and its checksum right again.
fn changed(mut frame: Vec<u8>, place: usize, value: u8) -> Vec<u8> {
    frame[place] = value;
    frame[56..58].fill(0);
    let part = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap());
    let sum = checksum(part(22), part(38), &frame[54..]);
    frame[56..58].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn a_probe_of_linux_is_read_with_its_checksum() {
    // Captured: it carries a nonce (RFC 7527).
    let frame = [
        &[0x33, 0x33, 0xff, 0x55, 0x96, 0x87][..],
        &[0xd2, 0xd7, 0x0a, 0x55, 0x96, 0x87],
        &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0x20, 0x3a, 0xff],
        &[0; 16],
        &[
            0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0x55, 0x96, 0x87,
        ],
        &[0x87, 0, 0x7a, 0xfd, 0, 0, 0, 0],
        &[
            0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0xd0, 0xd7, 0x0a, 0xff, 0xfe, 0x55, 0x96, 0x87,
        ],
        &[0x0e, 1, 0x95, 0x1f, 0xd9, 0x1e, 0x7d, 0x51],
    ];
    let probe = Solicitation::probe(address("fe80::d0d7:aff:fe55:9687"));
    assert_eq!(message(&frame.concat()), Some(Message::Solicitation(probe)));
}

#[test]
fn a_probe_is_written_byte_for_byte() {
    let probe = Solicitation::probe(address("fe80::2"));
    let frame = probe.frame(MacAddress::of_group(probe.destination), OURS);
    let expected = [
        &[0x33, 0x33, 0xff, 0, 0, 2][..],
        &[2, 0, 0, 0, 0, 2],
        &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255],
        &[0; 16],
        &[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 2],
        &[135, 0, 0x7c, 0x23, 0, 0, 0, 0],
        &[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
    ];
    assert_eq!(frame, expected.concat());
    assert_eq!(message(&frame), Some(Message::Solicitation(probe)));
}

#[test]
fn an_answer_goes_to_the_host_that_asks_and_overrides_caches() {
    let answer = asked().answer(OURS);
    let frame = answer.frame(ASKING, OURS);
    assert_eq!(frame[21], 255, "hop limit");
    assert_eq!(frame[54], 136);
    assert_eq!(frame[58], 0x60, "solicited and override, not router");
    assert_eq!(frame[78..], [2, 1, 2, 0, 0, 0, 0, 2]);
    assert_eq!(message(&frame), Some(Message::Advertisement(answer)));
    assert_eq!(answer.source, address("2001:db8::7"));
    assert_eq!(answer.destination, address("fe80::1"));
}

#[test]
fn an_answer_to_a_probe_goes_to_all_nodes_and_is_not_solicited() {
    let probe = Solicitation::probe(address("2001:db8::7"));
    let answer = probe.answer(OURS);
    assert_eq!(answer.destination, ALL_NODES);
    assert!(!answer.solicited && answer.overrides);
}

#[test]
fn what_is_written_is_read_with_padding_and_not_when_cut() {
    let frame = asked_frame();
    let expected = Some(Message::Solicitation(asked()));
    assert_eq!(message(&frame), expected);
    assert_eq!(message(&[&frame[..], &[7; 9]].concat()), expected);
    for length in 0..frame.len() {
        assert_eq!(message(&frame[..length]), None, "{length}");
    }
}

#[test]
fn a_unicast_question_may_leave_the_option_out() {
    let unicast = Solicitation {
        destination: asked().target,
        mac: None,
        ..asked()
    };
    let frame = unicast.frame(OURS, ASKING);
    assert_eq!(message(&frame), Some(Message::Solicitation(unicast)));
}

#[test]
fn a_message_that_a_router_forwarded_is_refused() {
    assert_eq!(message(&changed(asked_frame(), 21, 254)), None);
}

#[test]
fn what_section_7_1_of_rfc_4861_refuses_is_refused() {
    let refused = [
        (14, 0x40, "another version of IP"),
        (20, 17, "another protocol"),
        (22, 0xff, "a source that is a group"),
        (54, 137, "a redirect"),
        (55, 1, "a code"),
        (62, 0xff, "a target that is a group"),
        (79, 0, "an option without length"),
        (79, 2, "an option that is longer than the message"),
        (80, 3, "the address of a group"),
    ];
    for (place, value, what) in refused {
        assert_eq!(
            message(&changed(asked_frame(), place, value)),
            None,
            "{what}"
        );
    }
    let mut wrong_sum = asked_frame();
    wrong_sum[57] ^= 1;
    assert_eq!(message(&wrong_sum), None);
    let probe = Solicitation {
        source: Ipv6Addr::UNSPECIFIED,
        ..asked()
    };
    assert_eq!(message(&probe.frame(OURS, ASKING)), None, "with an option");
    let unicast = Solicitation {
        destination: asked().target,
        mac: None,
        ..probe
    };
    assert_eq!(message(&unicast.frame(OURS, ASKING)), None, "unicast probe");
    let elsewhere = Solicitation {
        destination: address("ff02::1:ff00:8"),
        ..asked()
    };
    assert_eq!(message(&elsewhere.frame(OURS, ASKING)), None, "other group");
}

#[test]
fn an_advertisement_to_a_group_is_never_solicited() {
    let said = Advertisement {
        solicited: true,
        ..Advertisement::unsolicited(address("fe80::1"), address("2001:db8::7"), ASKING)
    };
    assert_eq!(
        message(&said.frame(MacAddress::of_group(ALL_NODES), ASKING)),
        None
    );
}

#[test]
fn options_that_are_unknown_are_skipped() {
    // The nonce of RFC 3971, which Linux sends with every probe.
    let probe = Solicitation::probe(address("2001:db8::7"));
    let mut frame = probe.frame(OURS, ASKING);
    frame.extend_from_slice(&[14, 1, 1, 2, 3, 4, 5, 6]);
    frame[19] = 32;
    let frame = changed(frame, 14, 0x60);
    assert_eq!(message(&frame), Some(Message::Solicitation(probe)));
}

#[test]
fn claims_are_those_of_probes_and_advertisements() {
    let claim = |frame: &[u8]| Frame::parse(frame).unwrap().claim();
    assert_eq!(claim(&asked_frame()), None);
    let target = asked().target;
    let expected = Claim {
        address: target.into(),
        mac: ASKING,
        is_probe: true,
    };
    let probe = Solicitation::probe(target);
    assert_eq!(claim(&probe.frame(OURS, ASKING)), Some(expected));
    let said = Advertisement::unsolicited(address("fe80::1"), target, ASKING);
    let without = Advertisement { mac: None, ..said };
    let expected = Claim {
        is_probe: false,
        ..expected
    };
    assert_eq!(claim(&said.frame(OURS, ASKING)), Some(expected));
    assert_eq!(claim(&without.frame(OURS, ASKING)), Some(expected));
}

#[test]
fn the_group_of_an_address_has_its_last_24_bits() {
    let group = solicited_node(address("2001:db8::aa:bbcc:ddee"));
    assert_eq!(group, address("ff02::1:ffcc:ddee"));
    assert_eq!(
        MacAddress::of_group(group).0,
        [0x33, 0x33, 0xff, 0xcc, 0xdd, 0xee]
    );
}
