//! Malformed, forged and repeated datagrams: no panic, and no change.

use std::net::SocketAddr;
use std::time::Duration;

use landfall_testkit::fuzz::{Seeds, run};

use super::tests::{machine, own_address};
use super::*;

/// Two members that know each other, and what they sent until then.
fn pair(now: Instant) -> (Machine, Machine, Vec<Vec<u8>>) {
    let (mut one, mut other) = (machine(1, now), machine(2, now));
    let mut sent = Vec::new();
    let mut time = now;
    for _ in 0..20 {
        time += Duration::from_millis(50);
        let mut of_one = one.expire(time);
        let mut of_other = other.expire(time);
        for _ in 0..4 {
            let to_other = std::mem::take(&mut of_one);
            let to_one = std::mem::take(&mut of_other);
            for datagram in to_other {
                of_other.extend(other.receive(time, own_address(1), &datagram.bytes));
                sent.push(datagram.bytes);
            }
            for datagram in to_one {
                of_one.extend(one.receive(time, own_address(2), &datagram.bytes));
                sent.push(datagram.bytes);
            }
        }
    }
    (one, other, sent)
}

#[test]
fn fuzz_datagrams() {
    let start = Instant::now();
    let (mut one, _, sent) = pair(start);
    assert_eq!(one.peers().len(), 1);
    let (own, peers, revision) = (one.own.clone(), one.peers(), one.revision());
    let header = sent[0][..5].to_vec();
    let seeds = Seeds {
        messages: &sent,
        words: &[&header, &[0; 16], &[0xff; 8]],
        longest: 2_048,
    };
    let now = start + Duration::from_secs(1);
    let accepted = one.counts().accepted;
    run("membership-datagrams", |random| {
        let datagram = random.broken(seeds);
        let from = SocketAddr::from(([192, 0, 2, 1], 9));
        let answers = one.receive(now, from, &datagram);
        // A hello that is repeated whole may be answered, with the session and no more.
        assert!(answers.len() <= 1);
        assert_eq!(one.own, own);
        assert_eq!(one.revision(), revision);
    });
    assert_eq!(one.peers(), peers);
    assert_eq!(one.counts().accepted, accepted);
    assert!(one.counts().forged > 0 && one.counts().replayed > 0);
}

/// A holder of the key may be of another version, or broken: no packet makes a panic, and there
/// are never more members than there is room for.
#[test]
fn fuzz_packets() {
    let start = Instant::now();
    let (mut one, mut other, _) = pair(start);
    let record = |status, name: &str| Record {
        name: name.into(),
        address: own_address(3),
        incarnation: 1 << 40,
        status,
        metadata: b"facts"[..].into(),
    };
    let messages: Vec<Vec<u8>> = [Kind::Session, Kind::Ping, Kind::Ack, Kind::News]
        .into_iter()
        .map(|kind| {
            let packet = Packet {
                kind,
                to: one.sealer.session(),
                number: 3,
                sender: other.own.clone(),
                records: [Status::Alive, Status::Suspect, Status::Dead, Status::Left]
                    .into_iter()
                    .flat_map(|status| ["node-1", "node-2", "node-3"].map(|it| record(status, it)))
                    .collect(),
            };
            packet.encode()
        })
        .collect();
    let seeds = Seeds {
        messages: &messages,
        words: &[&[0; 8], &[0xff; 8], b"node-1", &[4], &[6], &[1]],
        longest: 2_048,
    };
    let mut now = start + Duration::from_secs(1);
    run("membership-packets", |random| {
        now += Duration::from_millis(1);
        let packet = random.broken(seeds);
        let sealed = other.sealer.seal(&packet).unwrap();
        one.receive(now, own_address(2), &sealed);
        if one.deadline() <= now {
            one.expire(now);
        }
        assert!(one.members.len() <= MEMBERS && one.contacts.len() <= 64);
        assert!(one.windows.len() <= 2);
        assert_eq!(one.own.status, Status::Alive);
    });
    assert!(one.counts().accepted > 100);
}
