//! Messages that are broken in ways that readers get wrong: no panic, and no session that is stuck.

use landfall_testkit::fuzz::{Seeds, run};

use super::tests::{asn, connection, peer, router, routes};
use super::*;
use crate::route::{Attributes, Community, LargeCommunity};
use crate::wire;
use crate::wire::open::Offer;
use crate::wire::received::Context;
use crate::wire::update::{Announcement, NextHop, Style, withdraw};

/// Good messages of a router.
fn messages() -> Vec<Vec<u8>> {
    let graceful = Offer {
        graceful_restart: Some((Duration::from_secs(60), true)),
        ..router()
    };
    let attributes = Attributes {
        communities: (0..9).map(|it| Community(it, it)).collect(),
        large_communities: (0..9).map(|it| LargeCommunity(it, it, it)).collect(),
        ..Attributes::default()
    };
    let style = Style {
        path: Some(asn(65_001)),
        four_octet_as: true,
    };
    let ipv4: Vec<_> = routes(9).keys().copied().collect();
    let ipv6 = [
        "2001:db8::/64".parse().unwrap(),
        "2001:db8::7/128".parse().unwrap(),
    ];
    let classic = NextHop::Classic([10, 0, 0, 2].into());
    let long = NextHop::Ipv6("2001:db8::2".parse().unwrap(), "fe80::2".parse().ok());
    let mut refresh = withdraw(&[], true);
    refresh[18] = 5;
    vec![
        router().write(),
        graceful.write(),
        wire::keepalive(),
        wire::notification(&Notification::cease(2, "maintenance")),
        refresh,
        withdraw(&ipv4, true),
        withdraw(&ipv6, false),
        withdraw(&[], false),
        Announcement::new(&attributes, classic, true, style).write(&ipv4),
        Announcement::new(&attributes, long, false, style).write(&ipv6),
        Announcement::new(&attributes, long, true, style).write(&ipv4),
    ]
}

const WORDS: &[&[u8]] = &[
    &[0xff; 16],
    &[0, 0],
    &[0xff, 0xff],
    &[0, 1, 1],
    &[0, 2, 1],
    &[0x40, 1, 1, 0],
    &[0x80, 14],
    &[0x90, 15, 0, 3, 0, 2, 1],
    &[255, 255],
    &[65, 4],
    &[64, 2],
    &[128],
];

#[test]
fn fuzz_messages() {
    let messages = messages();
    let seeds = Seeds {
        messages: &messages,
        words: WORDS,
        longest: 5_000,
    };
    let mut read = 0_u64;
    run("bgp-messages", |random| {
        let bytes = random.broken(seeds);
        let context = Context {
            internal: random.below(2) == 0,
            four_octet_as: random.below(2) == 0,
        };
        let Ok(Some(length)) = wire::first(&bytes) else {
            return;
        };
        read += 1;
        if let Err(why) = wire::read(&bytes[..length], context) {
            assert!((1..=3).contains(&why.code), "{why}");
            assert!(!why.to_string().is_empty());
            assert!(wire::notification(&why).len() <= wire::LONGEST);
        }
    });
    assert!(read > 100);
}

#[test]
fn fuzz_sessions() {
    let messages = messages();
    let seeds = Seeds {
        messages: &messages,
        words: WORDS,
        longest: 5_000,
    };
    let mut now = Instant::now();
    let graceful = Peer {
        graceful_restart: Some(Duration::from_secs(60)),
        ..peer()
    };
    let mut session = Session::new(graceful, routes(9), 1, now);
    let mut links: Vec<LinkId> = Vec::new();
    let mut dialing = false;
    let mut established = 0_u64;
    run("bgp-sessions", |random| {
        match random.below(12) {
            0 => links.extend(session.accepted(connection(Side::Incoming), now)),
            1 => {
                now += Duration::from_millis(random.below(20_000) as u64);
                session.expire(now);
            }
            2 => {
                let drains = [Drain::Off, Drain::Off, Drain::Forgetful, Drain::All];
                let drain = drains[random.below(drains.len())];
                session.announce(routes(random.below(20) as u8), drain);
            }
            _ => {}
        }
        for id in links.clone() {
            let bytes = match random.below(4) {
                0 => random.broken(seeds),
                1 | 2 => messages[0].clone(),
                _ => wire::keepalive(),
            };
            session.received(id, &bytes, now);
            if random.below(3) > 0 {
                while session.transmit(id, now).is_some() {}
                session.sent(id);
            }
        }
        while let Some(action) = session.next_action() {
            match action {
                Action::Connect => dialing = true,
                Action::Abort => dialing = false,
                Action::Close(id, _) => links.retain(|it| *it != id),
                Action::Rekey => {}
            }
        }
        if dialing && random.below(2) == 0 {
            dialing = false;
            links.push(session.connected(connection(Side::Outgoing), now));
        }
        assert!(links.len() <= 3);
        assert!(dialing || session.deadline().is_some());
        established = session.status().counts.established;
    });
    assert!(established > 10, "{established}");
}
