use proptest::prelude::*;

use super::*;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len() as u16;
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = 16 + body.len() as u32;
    let header = [
        &length.to_ne_bytes()[..],
        &kind.to_ne_bytes(),
        &flags.to_ne_bytes(),
        &sequence.to_ne_bytes(),
        &[0; 4],
        body,
    ];
    header.concat()
}

/// A link that is up and can broadcast.
fn link_of(family: u8, index: u32, name: &str, more: &[u8]) -> Vec<u8> {
    let mut body = vec![family, 0];
    body.extend_from_slice(&ETHERNET.to_ne_bytes());
    body.extend_from_slice(&index.to_ne_bytes());
    body.extend_from_slice(&0x1_0003_u32.to_ne_bytes());
    body.extend_from_slice(&[0; 4]);
    body.extend(attribute(LINK_NAME, format!("{name}\0").as_bytes()));
    body.extend(attribute(LINK_MAC, &[2, 0, 0, 0, 0, index as u8]));
    // One that no version of this code knows.
    body.extend(attribute(0x3ff0, &[1, 2, 3]));
    body.extend_from_slice(more);
    body
}

fn link(index: u32, name: &str) -> Vec<u8> {
    link_of(0, index, name, &[])
}

fn address_with(index: u32, text: &str, flags: u32) -> Vec<u8> {
    let address: IpAddr = text.parse().unwrap();
    let mut body = vec![0, 64, flags as u8, 0];
    body.extend_from_slice(&index.to_ne_bytes());
    let octets = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    body.extend(attribute(PEER, &octets));
    body.extend(attribute(FLAGS, &flags.to_ne_bytes()));
    body
}

fn address(index: u32, text: &str) -> Vec<u8> {
    address_with(index, text, 0x80)
}

/// Answers a request for a list with these bodies.
fn answer(request: &[u8], bodies: &[Vec<u8>], flags: u16) -> Vec<u8> {
    let kind = u16::from_ne_bytes(number(&request[4..]).unwrap());
    let sequence = u32::from_ne_bytes(number(&request[8..]).unwrap());
    assert_eq!(
        request.len() as u32,
        u32::from_ne_bytes(number(request).unwrap())
    );
    let new = kind - 2;
    let listed = bodies
        .iter()
        .map(|it| message(new, 2 | flags, sequence, it));
    let done = message(DONE, 2, sequence, &[0; 4]);
    listed.chain([done]).flatten().collect()
}

fn started(links: &[Vec<u8>], addresses: &[Vec<u8>]) -> Follow {
    let mut follow = Follow::default();
    let request = follow.begin();
    list(&mut follow, &request, links, addresses);
    follow
}

fn list(follow: &mut Follow, request: &[u8], links: &[Vec<u8>], addresses: &[Vec<u8>]) {
    let progress = follow.take(&answer(request, links, 0));
    assert!(!progress.is_changed, "addresses are missing");
    let progress = follow.take(&answer(&progress.request.unwrap(), addresses, 0));
    let complete = Progress {
        is_changed: true,
        ..Progress::default()
    };
    assert_eq!(progress, complete);
}

fn names(follow: &Follow) -> Vec<&str> {
    let links = follow.table().links.values();
    links.map(|link| link.name.as_str()).collect()
}

fn addresses(follow: &Follow, index: u32) -> Vec<String> {
    let addresses = &follow.table().links[&index].addresses;
    addresses.iter().map(|it| it.address.to_string()).collect()
}

#[test]
fn links_and_addresses_are_listed_one_after_the_other() {
    let links = [link(1, "lo"), link(2, "eth0")];
    let follow = started(&links, &[address(2, "192.0.2.1"), address(2, "fe80::1")]);
    assert_eq!(names(&follow), ["lo", "eth0"]);
    assert_eq!(addresses(&follow, 2), ["192.0.2.1", "fe80::1"]);
    let eth0 = &follow.table().links[&2];
    assert_eq!(eth0.mac, Some(MacAddress([2, 0, 0, 0, 0, 2])));
    assert!(eth0.is_up && eth0.has_carrier && eth0.can_broadcast);
    assert!(!eth0.has_master && !eth0.is_without_arp);
}

#[test]
fn changes_are_reported_once() {
    let mut follow = started(&[link(2, "eth0")], &[]);
    let changed =
        |follow: &mut Follow, kind, body: &[u8]| follow.take(&message(kind, 0, 0, body)).is_changed;
    let with_master = link_of(0, 2, "eth0", &attribute(LINK_MASTER, &5_u32.to_ne_bytes()));
    assert!(changed(&mut follow, NEW_LINK, &with_master));
    assert!(follow.table().links[&2].has_master);
    assert!(!changed(&mut follow, NEW_LINK, &with_master));
    assert!(changed(&mut follow, NEW_LINK, &link(2, "eth0")));
    assert!(!follow.table().links[&2].has_master);
    assert!(changed(&mut follow, NEW_ADDRESS, &address(2, "fe80::1")));
    assert!(changed(
        &mut follow,
        DELETED_ADDRESS,
        &address(2, "fe80::1")
    ));
    assert_eq!(addresses(&follow, 2), [""; 0]);
    assert!(changed(&mut follow, DELETED_LINK, &link(2, "eth0")));
    assert_eq!(names(&follow), [""; 0]);
}

#[test]
fn an_address_counts_once_the_kernel_has_probed_it() {
    let mut follow = started(&[link(2, "eth0")], &[address_with(2, "fe80::1", 0xc0)]);
    assert_eq!(addresses(&follow, 2), [""; 0]);
    follow.take(&message(NEW_ADDRESS, 0, 0, &address(2, "fe80::1")));
    assert_eq!(addresses(&follow, 2), ["fe80::1"]);
    let duplicated = address_with(2, "fe80::1", 0x08);
    follow.take(&message(NEW_ADDRESS, 0, 0, &duplicated));
    assert_eq!(addresses(&follow, 2), [""; 0]);
}

#[test]
fn a_link_that_leaves_its_bridge_is_not_gone() {
    let mut follow = started(&[link(2, "eth0")], &[address(2, "fe80::1")]);
    let of_bridge = link_of(7, 2, "eth0", &[]);
    let progress = follow.take(&message(DELETED_LINK, 0, 0, &of_bridge));
    assert!(!progress.is_changed);
    assert_eq!(addresses(&follow, 2), ["fe80::1"]);
}

#[test]
fn after_lost_messages_what_is_not_listed_any_more_is_gone() {
    let links = [link(2, "eth0"), link(3, "eth1")];
    let both = [
        address(2, "fe80::1"),
        address(2, "fe80::2"),
        address(3, "fe80::3"),
    ];
    let mut follow = started(&links, &both);
    let request = follow.begin();
    // What is known stays until the lists are complete.
    assert_eq!(names(&follow), ["eth0", "eth1"]);
    list(&mut follow, &request, &links[..1], &both[1..2]);
    assert_eq!(names(&follow), ["eth0"]);
    assert_eq!(addresses(&follow, 2), ["fe80::2"]);
}

#[test]
fn a_list_that_changed_while_it_was_sent_is_asked_for_again() {
    let mut follow = Follow::default();
    let request = follow.begin();
    let progress = follow.take(&answer(&request, &[link(2, "eth0")], INTERRUPTED));
    let request = progress.request.unwrap();
    assert_eq!(request[4..6], GET_LINK.to_ne_bytes());
    list(&mut follow, &request, &[link(2, "eth0")], &[]);
}

#[test]
fn a_refusal_is_reported_and_answers_to_older_requests_are_not_taken() {
    let mut follow = Follow::default();
    let older = follow.begin();
    let request = follow.begin();
    assert_eq!(follow.take(&answer(&older, &[], 0)), Progress::default());
    let sequence = u32::from_ne_bytes(number(&request[8..]).unwrap());
    let refused = message(ERROR, 0, sequence, &(-16_i32).to_ne_bytes());
    assert_eq!(follow.take(&refused).failed, Some(-16));
}

proptest! {
    #[test]
    fn any_bytes_are_taken_without_a_panic(
        good in prop::collection::vec(any::<bool>(), 0..4),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut all: Vec<u8> = good
            .iter()
            .flat_map(|is_link| {
                if *is_link {
                    message(NEW_LINK, 0, 0, &link(2, "eth0"))
                } else {
                    message(NEW_ADDRESS, 0, 0, &address(2, "fe80::1"))
                }
            })
            .chain(bytes)
            .collect();
        for (place, byte) in changes {
            if !all.is_empty() {
                let place = place.index(all.len());
                all[place] = byte;
            }
        }
        let mut follow = started(&[link(2, "eth0")], &[]);
        follow.take(&all);
    }
}

#[test]
fn an_event_of_wireless_extensions_leaves_the_link_as_it_was() {
    let mut follow = Follow::default();
    let request = follow.begin();
    let progress = follow.take(&answer(&request, &[link(2, "wlan0")], 0));
    follow.take(&answer(&progress.request.unwrap(), &[], 0));
    let before = follow.table().clone();
    let mut body = vec![0, 0];
    body.extend_from_slice(&ETHERNET.to_ne_bytes());
    body.extend_from_slice(&2_u32.to_ne_bytes());
    body.extend_from_slice(&0x1_0003_u32.to_ne_bytes());
    body.extend_from_slice(&[0; 4]);
    body.extend(attribute(LINK_NAME, b"wlan0\0"));
    body.extend(attribute(11, &[0; 16]));
    follow.take(&message(NEW_LINK, 0, 0, &body));
    assert_eq!(follow.table(), &before);
}
