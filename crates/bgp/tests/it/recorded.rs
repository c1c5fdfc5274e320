//! Sessions with FRR, BIRD and GoBGP as they went over the wire, replayed byte by byte: lines of
//! microseconds, what happened, and bytes. What the session was given is given to a new one at the
//! same times; what it did and sent has to be the same.
//!
//! `RECORD_SESSIONS=1 cargo test -p landfall-bgp --test it recorded` records them again, as root.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_bgp::NextHops;
use landfall_bgp::peer::Peer;
use landfall_bgp::route::{Attributes, Drain, Routes};
use landfall_bgp::session::{Action, Connection, LinkId, Session, Side};
use landfall_bgp::status::{State, Status};

use crate::lab::{NODE, NODE_V6, ROUTER, is_inside};
use crate::node::{ip, peer, routes};
use crate::router::{Kind, Router, Setup};
use crate::scenarios::{V4, V6, attributes};

const FRR: &str = include_str!("recorded/frr.txt");
const BIRD: &str = include_str!("recorded/bird.txt");
const GOBGP: &str = include_str!("recorded/gobgp.txt");

/// The seed of the jitter.
const SEED: u64 = 20;

/// When what is announced changes, after the session began. A KEEPALIVE of each side comes before.
const CHANGE: Duration = Duration::from_secs(4);

/// When the router ends the session.
const END: Duration = Duration::from_secs(5);

/// A session with a log.
struct Player {
    session: Session,
    start: Instant,
    link: Option<LinkId>,
    log: String,
}

fn setup() -> Setup {
    Setup {
        graceful_restart: true,
        announced: 3,
        ..Setup::default()
    }
}

/// What is announced: at first, and after the change.
fn announced(place: usize) -> Arc<Routes> {
    match place {
        0 => routes(&[V4, V6, "198.51.100.0/24"], attributes()),
        _ => routes(&[V4, "203.0.113.0/24"], Attributes::default()),
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    text.as_bytes().chunks(2).map(byte).collect()
}

// === impl Player ===

impl Player {
    fn new(peer: Peer) -> Self {
        let start = Instant::now();
        Self {
            session: Session::new(peer, announced(0), SEED, start),
            start,
            link: None,
            log: String::new(),
        }
    }

    /// Gives the session one thing. Returns what it does then, line by line.
    fn play(
        &mut self,
        after: Duration,
        what: &str,
        argument: &str,
    ) -> Vec<(&'static str, Vec<u8>)> {
        let now = self.start + after;
        self.note(after, what, argument);
        match what {
            "expire" => self.session.expire(now),
            "connected" => {
                let connection = Connection {
                    side: Side::Outgoing,
                    local: argument.parse().unwrap(),
                    remote: SocketAddr::new(ip(ROUTER), 179),
                    next_hops: NextHops {
                        ipv4: NODE.parse().ok(),
                        ipv6: NODE_V6.parse().ok(),
                        link_local: None,
                    },
                };
                self.link = Some(self.session.connected(connection, now));
            }
            "received" => {
                let link = self.link.unwrap();
                self.session.received(link, &unhex(argument), now);
            }
            "closed" => {
                let link = self.link.take().unwrap();
                self.session.closed(link, None, now);
            }
            "announce" => self.session.announce(announced(1), Drain::Off),
            _ => panic!("{what}?"),
        }
        let mut done = Vec::new();
        while let Some(action) = self.session.next_action() {
            match action {
                Action::Connect => done.push(("connect", Vec::new())),
                Action::Close(_, last) => {
                    self.link = None;
                    done.push(("close", last.unwrap_or_default()));
                }
                Action::Abort | Action::Rekey => panic!("{action:?}"),
            }
        }
        if let Some(link) = self.link {
            while let Some(bytes) = self.session.transmit(link, now) {
                done.push(("sent", bytes));
            }
            self.session.sent(link);
        }
        for (what, bytes) in &done {
            self.note(after, what, &hex(bytes));
        }
        done
    }

    fn note(&mut self, after: Duration, what: &str, argument: &str) {
        let line = format!("{} {what} {argument}", after.as_micros());
        writeln!(self.log, "{}", line.trim_end()).unwrap();
    }
}

/// Plays a session with a router that runs, and returns its log.
fn record(kind: Kind) -> String {
    let router = Router::start(kind, setup());
    // Its program is to listen.
    let listens = "grep -qE ':00B3 [0-9A-F]+:0000 0A' /proc/net/tcp /proc/net/tcp6";
    router.host.sh(&format!(
        "timeout 60 sh -c \"until {listens}; do sleep 0.05; done\""
    ));
    let mut stream = TcpStream::connect((ip(ROUTER), 179)).unwrap();
    let mut player = Player::new(peer(&setup()));
    let micros = |start: Instant| Duration::from_micros(start.elapsed().as_micros() as u64);
    let (start, mut room) = (player.start, [0; 4096]);
    let local = stream.local_addr().unwrap().to_string();
    player.play(micros(start), "expire", "");
    let mut done = player.play(micros(start), "connected", &local);
    let (mut is_changed, mut is_ended) = (false, false);
    loop {
        for (what, bytes) in done {
            assert_eq!(what, "sent");
            stream.write_all(&bytes).unwrap();
        }
        let after = micros(start);
        if !is_changed && after >= CHANGE {
            is_changed = true;
            done = player.play(after, "announce", "");
            continue;
        }
        if !is_ended && after >= END {
            is_ended = true;
            router.end_session();
        }
        if player
            .session
            .deadline()
            .is_some_and(|at| at <= start + after)
        {
            done = player.play(after, "expire", "");
            continue;
        }
        stream
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        done = match stream.read(&mut room) {
            Ok(0) => break drop(player.play(micros(start), "closed", "")),
            Ok(length) => player.play(micros(start), "received", &hex(&room[..length])),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Vec::new()
            }
            Err(error) => panic!("{error}"),
        };
        if player.link.is_none() {
            break;
        }
    }
    player.log
}

/// What a new session does that is given the same. Returns its log, and its status before the
/// router ended it and in the end.
fn replay(recorded: &str) -> (String, Option<Status>, Status) {
    let mut player = Player::new(peer(&setup()));
    let mut last_up = None;
    for line in recorded.lines() {
        let mut words = line.split(' ');
        let after = Duration::from_micros(words.next().unwrap().parse().unwrap());
        let (what, argument) = (words.next().unwrap(), words.next().unwrap_or_default());
        if !matches!(what, "sent" | "connect" | "close") {
            player.play(after, what, argument);
        }
        let status = player.session.status();
        if status.state == State::Established {
            last_up = Some(status);
        }
    }
    (player.log, last_up, player.session.status())
}

/// Compares, after recording it again if that is wanted.
fn check(kind: Kind, test: &str, file: &str, recorded: &str) {
    let mut recorded = recorded.to_owned();
    if std::env::var_os("RECORD_SESSIONS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/recorded");
        let path = path.join(file);
        if is_inside(&format!("recorded::{test}")) {
            return std::fs::write(path, record(kind)).unwrap();
        }
        recorded = std::fs::read_to_string(path).unwrap();
    }
    let (log, up, end) = replay(&recorded);
    for (number, (ours, theirs)) in log.lines().zip(recorded.lines()).enumerate() {
        assert_eq!(ours, theirs, "line {}", number + 1);
    }
    assert_eq!(log.lines().count(), recorded.lines().count());
    // It was a whole session: both sides announced, kept it alive, and the router ended it.
    let up = up.unwrap();
    // FRR returns what it was sent.
    assert!(up.prefixes_received >= 3 && up.counts.updates_malformed == 0);
    assert_eq!((up.prefixes_wanted, up.prefixes_sent), (2, 2));
    assert!(up.counts.keepalives_received >= 2 && up.counts.keepalives_sent >= 2);
    let agreed = up.agreed.unwrap();
    assert!(agreed.capabilities.four_octet_as && agreed.capabilities.route_refresh);
    assert!(agreed.capabilities.graceful_restart.is_some());
    let (_, error) = end.last_error.unwrap();
    assert_eq!(error.reason(), "NotificationReceived", "{error}");
}

#[test]
fn a_session_with_frr_takes_the_same_course_again() {
    let test = "a_session_with_frr_takes_the_same_course_again";
    check(Kind::Frr, test, "frr.txt", FRR);
}

#[test]
fn a_session_with_bird_takes_the_same_course_again() {
    let test = "a_session_with_bird_takes_the_same_course_again";
    check(Kind::Bird, test, "bird.txt", BIRD);
}

#[test]
fn a_session_with_gobgp_takes_the_same_course_again() {
    let test = "a_session_with_gobgp_takes_the_same_course_again";
    check(Kind::Gobgp, test, "gobgp.txt", GOBGP);
}
