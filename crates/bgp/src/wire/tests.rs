use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use ipnet::IpNet;
use netgauze_bgp_pkt::path_attribute::{MpReach, MpUnreach, PathAttributeValue};
use netgauze_bgp_pkt::wire::deserializer::BgpParsingContext;
use netgauze_bgp_pkt::{BgpMessage, update::BgpUpdateMessage};
use netgauze_parse_utils::reader::SliceReader;
use netgauze_parse_utils::traits::ParseFromWithOneInput as _;

use super::open::{Offer, Open};
use super::received::{Malformed, Received};
use super::update::{Announcement, NextHop, Style};
use super::*;
use crate::peer::Families;
use crate::route::{Attributes, Community, LargeCommunity};
use crate::status::Capabilities;

const BOTH: Families = Families {
    ipv4: true,
    ipv6: true,
};

fn asn(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn offer(number: u32, graceful_restart: Option<(Duration, bool)>) -> Offer {
    Offer {
        asn: asn(number),
        hold: 90,
        id: Ipv4Addr::new(10, 0, 0, 1),
        families: BOTH,
        graceful_restart,
    }
}

fn read_open(message: &[u8]) -> Result<Open, Notification> {
    match read(message, internal(false))? {
        Message::Open(open) => Ok(open),
        other => panic!("{other:?}"),
    }
}

fn internal(internal: bool) -> Context {
    Context {
        internal,
        four_octet_as: true,
    }
}

/// An OPEN of AS 65001 with these optional parameters, behind their length.
fn open_with(parameters: &[u8]) -> Vec<u8> {
    let mut body = vec![4, 0xfd, 0xe9, 0, 90, 10, 0, 0, 2];
    body.extend_from_slice(parameters);
    framed(OPEN, &body)
}

fn refused(of: Result<Open, Notification>) -> (u8, u8) {
    let refused = of.unwrap_err();
    (refused.code, refused.subcode)
}

pub(crate) fn decode(message: &[u8], four_octet_as: bool) -> BgpUpdateMessage {
    let mut context = BgpParsingContext::asn2_default();
    context.set_asn4(four_octet_as);
    match BgpMessage::parse(&mut SliceReader::new(message), &mut context).unwrap() {
        BgpMessage::Update(update) => update,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_open_says_what_is_offered() {
    let written = offer(4_200_000_000, Some((Duration::from_secs(120), true))).write();
    let open = read_open(&written).unwrap();
    assert_eq!(open.asn, asn(4_200_000_000));
    assert_eq!((open.hold, open.id), (90, Ipv4Addr::new(10, 0, 0, 1)));
    let Capabilities {
        families,
        four_octet_as,
        route_refresh,
        extended_next_hop,
        graceful_restart,
    } = open.capabilities;
    assert_eq!(families, BOTH);
    assert!(four_octet_as && route_refresh && extended_next_hop);
    let restart = graceful_restart.unwrap();
    assert!(restart.restarted);
    assert_eq!(restart.time, Duration::from_secs(120));
    assert_eq!(restart.families, BOTH);
    // The field of two bytes cannot hold it (RFC 6793).
    assert_eq!(written.get(20..22).unwrap(), 23_456_u16.to_be_bytes());
}

#[test]
fn a_restart_time_is_cut_to_what_there_is_room_for() {
    let written = offer(65_000, Some((Duration::from_hours(9), false))).write();
    let restart = read_open(&written).unwrap().capabilities.graceful_restart;
    assert_eq!(restart.unwrap().time, Duration::from_secs(4095));
    assert!(!restart.unwrap().restarted);
}

#[test]
fn a_router_without_capabilities_exchanges_prefixes_of_ipv4() {
    let open = read_open(&open_with(&[0])).unwrap();
    assert_eq!(open.asn, asn(65_001));
    assert!(open.capabilities.families.ipv4 && !open.capabilities.families.ipv6);
    assert!(!open.capabilities.four_octet_as);
}

#[test]
fn capabilities_that_are_unknown_or_malformed_hide_no_others() {
    // Of an unknown family; unknown; too short; then AS 70000 and IPv6.
    let capabilities = [
        &[1, 4, 0x40, 0x04, 0, 71][..],
        &[200, 3, 1, 2, 3],
        &[1, 1, 9],
        &[65, 4, 0, 1, 0x11, 0x70],
        &[1, 4, 0, 2, 0, 1],
    ]
    .concat();
    let length = capabilities.len() as u8;
    let one = [&[length + 2, 2, length][..], &capabilities].concat();
    let open = read_open(&open_with(&one)).unwrap();
    assert_eq!(open.asn, asn(70_000));
    assert!(open.capabilities.families.ipv6 && !open.capabilities.families.ipv4);
    // The same in the form for more parameters (RFC 9072).
    let wide = [&[255, 255, 0, length + 3, 2, 0, length][..], &capabilities].concat();
    assert_eq!(read_open(&open_with(&wide)).unwrap(), open);
}

#[test]
fn an_open_that_is_against_the_protocol_is_refused_by_its_subcode() {
    let body = |bytes: &[u8]| read_open(&framed(OPEN, bytes));
    let version = body(&[3, 0xfd, 0xe9, 0, 90, 10, 0, 0, 2, 0]);
    assert_eq!(version.unwrap_err().data.as_ref(), [0, 4]);
    let hold = body(&[4, 0xfd, 0xe9, 0, 2, 10, 0, 0, 2, 0]);
    assert_eq!(refused(hold), (2, 6));
    for id in [[0, 0, 0, 0], [224, 0, 0, 1], [255, 255, 255, 255]] {
        let bytes = [&[4, 0xfd, 0xe9, 0, 90][..], &id, &[0]].concat();
        assert_eq!(refused(body(&bytes)), (2, 3));
    }
    assert_eq!(refused(body(&[4, 0, 0, 0, 90, 10, 0, 0, 2, 0])), (2, 2));
    assert_eq!(refused(body(&[4, 0, 0])), (2, 0));
    // Authentication (deprecated); a length that is not true; half a capability.
    assert_eq!(refused(read_open(&open_with(&[3, 1, 1, 0]))), (2, 4));
    assert_eq!(refused(read_open(&open_with(&[9, 2, 0]))), (2, 0));
    assert_eq!(refused(read_open(&open_with(&[4, 2, 2, 65, 4]))), (2, 0));
    assert_eq!(refused(read_open(&open_with(&[3, 2, 9, 1]))), (2, 0));
}

#[test]
fn a_message_is_taken_when_all_of_it_is_there() {
    let mut buffer = keepalive();
    for length in 0..buffer.len() {
        assert_eq!(first(&buffer[..length]), Ok(None));
    }
    buffer.extend_from_slice(&[0xff; 4]);
    assert_eq!(first(&buffer), Ok(Some(19)));
    assert_eq!(read(&keepalive(), internal(false)), Ok(Message::Keepalive));
}

#[test]
fn a_header_that_is_against_the_protocol_is_refused_before_the_rest_is_there() {
    let error = |buffer: &[u8]| {
        let error = first(buffer).unwrap_err();
        (error.code, error.subcode, error.data.to_vec())
    };
    assert_eq!(error(b"GET / HTTP/1.1"), (1, 1, vec![]));
    let mut marker = keepalive();
    marker[3] = 0;
    assert_eq!(error(&marker), (1, 1, vec![]));
    let with = |length: u16, kind: u8| {
        let mut header = vec![0xff; 16];
        header.extend_from_slice(&length.to_be_bytes());
        header.push(kind);
        error(&header)
    };
    assert_eq!(with(18, 4), (1, 2, vec![0, 18]));
    assert_eq!(with(20, 4), (1, 2, vec![0, 20]));
    assert_eq!(with(28, 1), (1, 2, vec![0, 28]));
    assert_eq!(with(22, 2), (1, 2, vec![0, 22]));
    assert_eq!(with(20, 3), (1, 2, vec![0, 20]));
    assert_eq!(with(4097, 2), (1, 2, vec![0x10, 1]));
    assert_eq!(with(19, 9), (1, 3, vec![9]));
}

#[test]
fn notifications_and_refreshes_are_read() {
    let sent = Notification::cease(2, "window");
    let read = |bytes: &[u8]| read(bytes, internal(false));
    assert_eq!(read(&notification(&sent)), Ok(Message::Notification(sent)));
    let refresh = |body: &[u8]| read(&framed(ROUTE_REFRESH, body));
    assert_eq!(refresh(&[0, 1, 0, 1]), Ok(Message::Refresh(Refresh::Ipv4)));
    assert_eq!(refresh(&[0, 2, 0, 1]), Ok(Message::Refresh(Refresh::Ipv6)));
    assert_eq!(refresh(&[0, 1, 1, 1]), Ok(Message::Refresh(Refresh::Other)));
    let long = Notification::new(6, 1, vec![7; 9000]);
    assert_eq!(notification(&long).len(), LONGEST);
}

#[test]
fn an_update_of_one_prefix_has_the_bytes_of_rfc_4271() {
    let prefixes = nets(&["192.0.2.7/32"]);
    let next_hop = NextHop::Classic(Ipv4Addr::new(10, 0, 0, 1));
    let external = Style {
        path: Some(asn(65_000)),
        four_octet_as: true,
    };
    let written = Announcement::new(&Attributes::default(), next_hop, true, external);
    let expected = [
        &[0xff; 16][..],
        &[0, 48, 2, 0, 0, 0, 20],
        &[0x40, 1, 1, 0],
        &[0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe8],
        &[0x40, 3, 4, 10, 0, 0, 1],
        &[32, 192, 0, 2, 7],
    ]
    .concat();
    assert_eq!(written.write(&prefixes), expected);
    let style = Style {
        path: None,
        four_octet_as: true,
    };
    let attributes = Attributes {
        communities: [Community(65_000, 7), Community::GRACEFUL_SHUTDOWN].into(),
        large_communities: [LargeCommunity(70_000, 1, 2)].into(),
        local_preference: Some(300),
        ..Attributes::default()
    };
    let written = Announcement::new(&attributes, next_hop, true, style);
    let expected = [
        &[0xff; 16][..],
        &[0, 75, 2, 0, 0, 0, 47],
        &[0x40, 1, 1, 0],
        &[0x40, 2, 0],
        &[0x40, 3, 4, 10, 0, 0, 1],
        &[0x40, 5, 4, 0, 0, 1, 0x2c],
        &[0xc0, 8, 8, 0xfd, 0xe8, 0, 7, 0xff, 0xff, 0, 0],
        &[0xc0, 32, 12, 0, 1, 0x11, 0x70, 0, 0, 0, 1, 0, 0, 0, 2],
        &[32, 192, 0, 2, 7],
    ]
    .concat();
    assert_eq!(written.write(&prefixes), expected);
}

#[test]
fn a_router_with_short_as_numbers_gets_the_long_one_beside() {
    let style = |number| Style {
        path: Some(asn(number)),
        four_octet_as: false,
    };
    let next_hop = NextHop::Classic(Ipv4Addr::new(10, 0, 0, 1));
    let paths = |number| {
        let written = Announcement::new(&Attributes::default(), next_hop, true, style(number));
        let decoded = decode(&written.write(&nets(&["192.0.2.7/32"])), false);
        let values = decoded
            .path_attributes()
            .iter()
            .map(|it| it.value().clone());
        let path = |it| match it {
            PathAttributeValue::AsPath(path) => Some(Vec::<u32>::from(path)),
            PathAttributeValue::As4Path(path) => {
                let segments = path.segments().iter();
                Some(segments.flat_map(|it| it.as_numbers().to_vec()).collect())
            }
            _ => None,
        };
        values.filter_map(path).collect::<Vec<_>>()
    };
    assert_eq!(paths(65_000), [[65_000]]);
    assert_eq!(paths(65_536), [[23_456], [65_536]]);
}

#[test]
fn prefixes_of_ipv6_and_next_hops_of_ipv6_stand_in_mp_reach_nlri() {
    let global: Ipv6Addr = "2001:db8::1".parse().unwrap();
    let local: Ipv6Addr = "fe80::1".parse().unwrap();
    let style = Style {
        path: Some(asn(65_000)),
        four_octet_as: true,
    };
    let written = |next_hop, ipv4, prefixes: &[&str]| {
        let announcement = Announcement::new(&Attributes::default(), next_hop, ipv4, style);
        let message = announcement.write(&nets(prefixes));
        let read = Received::read(&message[HEADER..], internal(false)).unwrap();
        assert_eq!(read.announced, prefixes.len() as u64);
        let decoded = decode(&message, true);
        let first = decoded.path_attributes().first().unwrap().value().clone();
        assert!(decoded.nlri().is_empty());
        first
    };
    let two = NextHop::Ipv6(global, Some(local));
    match written(two, false, &["2001:db8:1::/64", "2001:db8:2::7/128"]) {
        PathAttributeValue::MpReach(MpReach::Ipv6Unicast {
            next_hop_global,
            next_hop_local,
            nlri,
        }) => {
            assert_eq!((next_hop_global, next_hop_local), (global, Some(local)));
            assert_eq!(nlri.len(), 2);
        }
        other => panic!("{other:?}"),
    }
    match written(NextHop::Ipv6(local, None), true, &["192.0.2.7/32"]) {
        PathAttributeValue::MpReach(MpReach::Ipv4Unicast { next_hop, nlri, .. }) => {
            assert_eq!(next_hop, IpAddr::V6(local));
            assert_eq!(nlri.len(), 1);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn withdrawals_and_end_of_rib_markers_are_read_as_such() {
    let read = |message: &[u8]| Received::read(&message[HEADER..], internal(false)).unwrap();
    let ipv4 = update::withdraw(&nets(&["192.0.2.7/32", "198.51.100.0/24"]), true);
    assert_eq!(read(&ipv4).withdrawn, 2);
    let ipv6 = update::withdraw(&nets(&["2001:db8::7/128"]), false);
    assert_eq!(read(&ipv6).withdrawn, 1);
    match decode(&ipv6, true)
        .path_attributes()
        .first()
        .unwrap()
        .value()
    {
        PathAttributeValue::MpUnreach(MpUnreach::Ipv6Unicast { nlri }) => assert_eq!(nlri.len(), 1),
        other => panic!("{other:?}"),
    }
    for ipv4 in [true, false] {
        let marker = update::withdraw(&[], ipv4);
        assert!(read(&marker).end_of_rib);
        assert!(decode(&marker, true).end_of_rib().is_some());
    }
    assert!(!read(&ipv4).end_of_rib && !read(&ipv6).end_of_rib);
}

#[test]
fn messages_are_filled_and_never_too_long() {
    let many: Vec<IpNet> = (0..3000_u32)
        .map(|it| IpNet::new_assert(Ipv4Addr::from_bits(0x0a00_0000 + it).into(), 32))
        .collect();
    let style = Style {
        path: Some(asn(65_000)),
        four_octet_as: true,
    };
    let next_hop = NextHop::Classic(Ipv4Addr::new(10, 0, 0, 1));
    let announcement = Announcement::new(&Attributes::default(), next_hop, true, style);
    let count = announcement.fit(&many);
    let message = announcement.write(&many[..count]);
    assert!(
        (LONGEST - 5..=LONGEST).contains(&message.len()),
        "{}",
        message.len()
    );
    let count = update::fit_to_withdraw(&many);
    let message = update::withdraw(&many[..count], true);
    assert!(count > 800 && message.len() <= LONGEST);
    let many: Vec<IpNet> = (0..3000_u32)
        .map(|it| IpNet::new_assert(Ipv6Addr::from_bits(it.into()).into(), 128))
        .collect();
    let count = update::fit_to_withdraw(&many);
    let message = update::withdraw(&many[..count], false);
    assert!(message.len() > LONGEST - 17 && message.len() <= LONGEST);
    let local = Some(Ipv6Addr::LOCALHOST);
    let next_hop = NextHop::Ipv6(Ipv6Addr::LOCALHOST, local);
    let announcement = Announcement::new(&Attributes::default(), next_hop, false, style);
    let count = announcement.fit(&many);
    let message = announcement.write(&many[..count]);
    assert!(message.len() > LONGEST - 17 && message.len() <= LONGEST);
}

/// The body of an UPDATE that announces 192.0.2.7/32 with these attributes.
fn update_with(attributes: &[&[u8]]) -> Vec<u8> {
    let attributes = attributes.concat();
    let mut body = vec![0, 0];
    body.extend_from_slice(&(attributes.len() as u16).to_be_bytes());
    body.extend_from_slice(&attributes);
    body.extend_from_slice(&[32, 192, 0, 2, 7]);
    body
}

const ORIGIN: &[u8] = &[0x40, 1, 1, 0];
const PATH: &[u8] = &[0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe9];
const HOP: &[u8] = &[0x40, 3, 4, 10, 0, 0, 2];
const PREFERENCE: &[u8] = &[0x40, 5, 4, 0, 0, 0, 100];

fn malformed(attributes: &[&[u8]], context: Context) -> Option<Malformed> {
    let received = Received::read(&update_with(attributes), context).unwrap();
    let withdrawn = u64::from(matches!(received.malformed, Some(Malformed::Withdraw(_))));
    assert_eq!(
        (received.announced, received.withdrawn),
        (1 - withdrawn, withdrawn)
    );
    received.malformed
}

#[test]
fn attributes_with_errors_withdraw_prefixes_or_are_discarded_and_end_no_session() {
    let external = internal(false);
    let good = [ORIGIN, PATH, HOP];
    assert_eq!(malformed(&good, external), None);
    let with = |bad: &[u8]| malformed(&[ORIGIN, PATH, HOP, bad], external);
    assert_eq!(
        malformed(&[PATH, HOP], external),
        Some(Malformed::Withdraw(1))
    );
    assert_eq!(
        malformed(&[ORIGIN, HOP], external),
        Some(Malformed::Withdraw(2))
    );
    assert_eq!(
        malformed(&[ORIGIN, PATH], external),
        Some(Malformed::Withdraw(3))
    );
    // ORIGIN 3; ORIGIN optional; AS_PATH with half a number, of an unknown kind, without numbers.
    for (kind, bad) in [
        (1, &[0x40, 1, 1, 3][..]),
        (1, &[0xc0, 1, 1, 0]),
        (2, &[0x40, 2, 4, 2, 1, 0, 0]),
        (2, &[0x40, 2, 6, 9, 1, 0, 0, 0, 1]),
        (2, &[0x40, 2, 2, 2, 0]),
        (3, &[0x40, 3, 3, 1, 2, 3]),
    ] {
        let mut all = vec![bad];
        all.extend(good.iter().filter(|it| it[1] != kind));
        assert_eq!(malformed(&all, external), Some(Malformed::Withdraw(kind)));
    }
    for (kind, bad) in [
        (4, &[0x80, 4, 3, 0, 0, 1][..]),
        (8, &[0xc0, 8, 3, 0, 0, 1]),
        (8, &[0xc0, 8, 0]),
        (16, &[0xc0, 16, 4, 0, 0, 0, 1]),
        (32, &[0xc0, 32, 4, 0, 0, 0, 1]),
    ] {
        assert_eq!(with(bad), Some(Malformed::Withdraw(kind)));
    }
    for (kind, bad) in [
        (5, &[0x40, 5, 1, 9][..]),
        (6, &[0x40, 6, 1, 0]),
        (7, &[0xc0, 7, 1, 0]),
        (9, &[0x80, 9, 1, 0]),
        (17, &[0xc0, 17, 1, 0]),
        (18, &[0xc0, 18, 1, 0]),
    ] {
        assert_eq!(with(bad), Some(Malformed::Discard(kind)));
    }
    // Unknown optional ones are ignored, and of two of a kind the first one counts.
    assert_eq!(with(&[0x80, 99, 1, 0]), None);
    assert_eq!(with(&[0x40, 1, 1, 9]), None);
    // A length beyond the attributes.
    assert_eq!(with(&[0x40, 8, 200, 0]), Some(Malformed::Withdraw(0)));
    let from_inside = internal(true);
    assert_eq!(malformed(&good, from_inside), Some(Malformed::Withdraw(5)));
    let all = [ORIGIN, PATH, HOP, PREFERENCE];
    assert_eq!(malformed(&all, from_inside), None);
    let bad_list = [ORIGIN, PATH, HOP, PREFERENCE, &[0x80, 10, 1, 0]];
    assert_eq!(
        malformed(&bad_list, from_inside),
        Some(Malformed::Withdraw(10))
    );
}

#[test]
fn an_update_whose_prefixes_cannot_be_found_ends_the_session() {
    let error = |body: &[u8]| Received::read(body, internal(false)).unwrap_err().subcode;
    assert_eq!(error(&[0]), 1);
    assert_eq!(error(&[0, 9, 0, 0]), 1);
    assert_eq!(error(&[0, 0, 0, 9]), 1);
    assert_eq!(error(&[0, 0, 0, 0, 33, 1, 2, 3, 4, 5]), 10);
    assert_eq!(error(&[0, 0, 0, 0, 24, 1, 2]), 10);
    assert_eq!(error(&[0, 2, 24, 1, 0, 0]), 10);
    let reach = |value: &[u8]| {
        let attribute = [&[0x80, 14, value.len() as u8][..], value].concat();
        Received::read(&update_with(&[&attribute]), internal(false))
    };
    let ipv6 = |rest: &[u8]| reach(&[&[0, 2, 1][..], rest].concat()).unwrap_err().subcode;
    assert_eq!(ipv6(&[]), 9);
    assert_eq!(ipv6(&[4, 1, 2, 3, 4, 0]), 9);
    assert_eq!(ipv6(&[16, 1, 2]), 9);
    let hop = [&[16][..], &[0; 17], &[129, 0]].concat();
    assert_eq!(ipv6(&hop), 9);
    let twice = [&[0x80, 15, 3, 0, 2, 1][..], &[0x80, 15, 3, 0, 2, 1]];
    let twice = Received::read(&update_with(&twice), internal(false));
    assert_eq!(twice.unwrap_err().subcode, 1);
    // A family that was not agreed is not read.
    assert!(reach(&[0x40, 0x04, 71, 4, 1, 2, 3, 4, 0, 255]).is_ok());
    // A well-known attribute that is unknown.
    let unknown = Received::read(&update_with(&[&[0x40, 99, 1, 0]]), internal(false));
    assert_eq!(unknown.unwrap_err().subcode, 2);
}
