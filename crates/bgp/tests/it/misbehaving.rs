//! Routers that do what they should not, on loopback, beside one that is good: each is named with
//! its reason, and the good one notices nothing.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use landfall_bgp::driver::{Neighbor, Speaker, Wanted};
use landfall_bgp::peer::{Peer, PeerAddress, Timers};
use landfall_bgp::route::Attributes;
use landfall_bgp::status::State;
use landfall_testkit::namespace::until;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::node::{peer, routes};
use crate::router::Setup;
use crate::scenarios::V4;

/// Capabilities: IPv4; AS numbers of four octets.
const IPV4: [u8; 6] = [1, 4, 0, 1, 0, 1];
const ASN: [u8; 6] = [65, 4, 0, 0, 0xfd, 0xe9];

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xff; 16];
    bytes.extend(u16::try_from(19 + body.len()).unwrap().to_be_bytes());
    bytes.push(kind);
    bytes.extend(body);
    bytes
}

/// An OPEN of AS 65001 in two octets, with these capabilities, and a KEEPALIVE.
pub fn open(capabilities: &[u8]) -> Vec<u8> {
    let length = u8::try_from(capabilities.len()).unwrap();
    let mut body = vec![4, 0xfd, 0xe9, 0, 90, 10, 0, 0, 2, length + 2, 2, length];
    body.extend(capabilities);
    [message(1, &body), message(4, &[])].concat()
}

/// A router that says the same in each connection, and ends those that it does not hold.
fn router(says: Vec<u8>, holds: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let says = says.clone();
            std::thread::spawn(move || say(stream, &says, holds));
        }
    });
    address
}

/// Both ends may be gone at any time.
fn say(mut stream: TcpStream, says: &[u8], holds: bool) {
    let mut room = [0; 4096];
    let _ = stream.read(&mut room);
    let _ = stream.write_all(says);
    while holds && stream.read(&mut room).is_ok_and(|length| length > 0) {}
}

#[tokio::test]
async fn each_router_that_misbehaves_has_its_reason_and_a_good_one_notices_nothing() {
    let good = open(&[IPV4, ASN].concat());
    let mut of_other_as = ASN;
    of_other_as[5] += 1;
    let only_ipv6 = [1, 4, 0, 2, 0, 1];
    let routers = [
        ("good", router(good.clone(), true), ""),
        (
            "not there",
            SocketAddr::from(([127, 0, 0, 1], 1)),
            "ConnectionRefused",
        ),
        ("ends", router(Vec::new(), false), "ConnectionClosed"),
        (
            "speaks HTTP",
            router(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), true),
            "InvalidMessage",
        ),
        ("ends later", router(good, false), ""),
        (
            "is of another AS",
            router(open(&[IPV4, of_other_as].concat()), true),
            "BadPeerAS",
        ),
        (
            "has IPv6 only",
            router(open(&[only_ipv6, ASN].concat()), true),
            "NoCommonFamily",
        ),
    ];
    let setup = Setup::default();
    let neighbor = |at: SocketAddr| {
        let mut peer = Peer {
            address: PeerAddress::Ip(at.ip()),
            port: at.port(),
            source: Some(IpAddr::from([127, 0, 0, 1])),
            timers: Timers {
                connect: Duration::from_secs(1),
                ..Timers::default()
            },
            ..peer(&setup)
        };
        peer.families.ipv6 = false;
        Neighbor {
            peer,
            routes: routes(&[V4], Attributes::default()),
        }
    };
    let named = routers.iter();
    let named = named.map(|(name, at, _)| (Arc::<str>::from(*name), neighbor(*at)));
    let wanted = Wanted {
        peers: named.collect(),
        ..Wanted::default()
    };
    let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
    let speaker = Speaker::start(wanted, &tracker, stop.clone());
    let statuses = speaker.statuses();
    let status = |name: &str| statuses.borrow().get(name).cloned();
    for (name, _, reason) in routers.iter().filter(|(_, _, reason)| !reason.is_empty()) {
        until(name, || {
            let error = status(name).and_then(|it| it.last_error);
            error.is_some_and(|(_, it)| it.reason() == *reason && !it.remedy().is_empty())
        })
        .await;
    }
    until("the good one has all", || {
        status("good").is_some_and(|it| it.prefixes_sent == 1)
    })
    .await;
    // They are attempted again meanwhile.
    until("a second failure", || {
        status("ends later").is_some_and(|it| it.counts.opens_sent > 1)
    })
    .await;
    let good = status("good").unwrap();
    assert_eq!(
        (good.state, good.counts.established),
        (State::Established, 1)
    );
    assert_eq!(good.last_error, None);
    stop.cancel();
    tracker.close();
    tracker.wait().await;
}
