//! Sessions with real routers, recorded and replayed: what a router sent then is handed to the
//! state machine byte by byte, and what this side sends has to be what it sent then.
//!
//! A line is a time in milliseconds, a mark and bytes: `<` what the router sent, `>` what was sent
//! to it because of the line before, `t` a timer, `!` a step of the scenario.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_bgp::NextHops;
use landfall_bgp::peer::Peer;
use landfall_bgp::route::{Attributes, Community, Routes};
use landfall_bgp::session::{Action, Connection, End, LinkId, Session, Side};
use landfall_bgp::status::{State, Status};

use crate::lab::{DEADLINE, NODE, NODE_V6, ROUTER};
use crate::node::{peer, routes};
use crate::router::{Router, Setup};

const SEED: u64 = 7;

/// When each step is taken, in milliseconds after the session came up.
const STEPS: [(u64, &str); 4] = [
    (200, "other routes"),
    (500, "drain"),
    (800, "withdraw"),
    (1100, "shutdown"),
];

/// A line of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    at: u64,
    event: Event,
    /// What was sent because of it.
    sent: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Connected,
    Received(Vec<u8>),
    Timer,
    Step(String),
}

/// The state machine with a clock of its own.
struct Machine {
    session: Session,
    began: Instant,
    link: LinkId,
    /// What was sent, and not taken yet.
    sent: Vec<u8>,
    is_closed: bool,
    /// How it was when it was established last.
    seen: Option<Status>,
}

fn first_routes() -> Arc<Routes> {
    let attributes = Attributes {
        communities: [Community(65_000, 7)].into(),
        ..Attributes::default()
    };
    routes(
        &["192.0.2.7/32", "192.0.2.8/32", "2001:db8:7::7/128"],
        attributes,
    )
}

fn other_routes() -> Arc<Routes> {
    routes(&["192.0.2.8/32", "198.51.100.0/24"], Attributes::default())
}

// === impl Machine ===

impl Machine {
    fn new(peer: Peer) -> Self {
        let began = Instant::now();
        let mut session = Session::new(peer, first_routes(), SEED, began);
        assert_eq!(session.next_action(), Some(Action::Connect));
        let connection = Connection {
            side: Side::Outgoing,
            local: format!("{NODE}:40000").parse().unwrap(),
            remote: format!("{ROUTER}:179").parse().unwrap(),
            next_hops: NextHops {
                ipv4: Some(NODE.parse().unwrap()),
                ipv6: Some(NODE_V6.parse().unwrap()),
                ..NextHops::default()
            },
        };
        let link = session.connected(connection, began);
        Self {
            session,
            began,
            link,
            sent: Vec::new(),
            is_closed: false,
            seen: None,
        }
    }

    fn at(&self, at: u64) -> Instant {
        self.began + Duration::from_millis(at)
    }

    fn take(&mut self, at: u64, event: &Event) {
        let now = self.at(at);
        match event {
            Event::Connected => {}
            Event::Received(bytes) => self.session.received(self.link, bytes, now),
            Event::Timer => self.session.expire(now),
            Event::Step(step) => match step.as_str() {
                "other routes" => self.session.announce(other_routes(), false),
                "drain" => self.session.announce(other_routes(), true),
                "withdraw" => self.session.announce(Arc::default(), true),
                "shutdown" => {
                    let why = "this node shuts down".to_owned();
                    self.session.end(End::Shutdown(why), now);
                }
                other => panic!("no step {other:?}"),
            },
        }
        self.settle(now);
    }

    /// Writes what there is to be sent.
    fn settle(&mut self, now: Instant) {
        while let Some(message) = self.session.transmit(self.link, now) {
            self.sent.extend_from_slice(&message);
        }
        self.session.sent(self.link);
        while let Some(message) = self.session.transmit(self.link, now) {
            self.sent.extend_from_slice(&message);
        }
        while let Some(action) = self.session.next_action() {
            if let Action::Close(_, last) = action {
                self.sent.extend(last.into_iter().flatten());
                self.is_closed = true;
            }
        }
        let status = self.session.status();
        if status.state == State::Established {
            self.seen = Some(status);
        }
    }
}

/// Plays the scenario with a router, and returns what happened.
fn record(router: &Router) -> Vec<Line> {
    let end = Instant::now() + DEADLINE;
    let mut stream = loop {
        match TcpStream::connect((ROUTER, 179)) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        std::thread::yield_now();
    };
    let pause = Duration::from_millis(5);
    stream.set_read_timeout(Some(pause)).unwrap();
    let mut machine = Machine::new(peer(&router.setup));
    let mut lines = Vec::new();
    let mut step = 0;
    let mut up_at = None;
    let mut room = [0; 4096];
    let mut first = Some(Event::Connected);
    while !machine.is_closed {
        assert!(Instant::now() < end, "{:?}", machine.session.status());
        let read = stream.read(&mut room).unwrap_or(0);
        let at = u64::try_from(machine.began.elapsed().as_millis()).unwrap();
        let is_due = machine
            .session
            .deadline()
            .is_some_and(|it| it <= machine.at(at));
        let next = STEPS.get(step).filter(|(after, _)| {
            let since = up_at.map(|up_at| at - up_at);
            since.is_some_and(|since| since >= *after)
        });
        let event = if let Some(event) = first.take() {
            event
        } else if read > 0 {
            Event::Received(room[..read].to_vec())
        } else if is_due {
            Event::Timer
        } else if let Some((_, name)) = next {
            step += 1;
            Event::Step((*name).to_owned())
        } else {
            continue;
        };
        assert!(
            event != Event::Connected || read == 0,
            "the router spoke first"
        );
        machine.take(at, &event);
        if up_at.is_none() && machine.session.status().state == State::Established {
            up_at = Some(at);
        }
        let sent = std::mem::take(&mut machine.sent);
        stream.write_all(&sent).unwrap();
        lines.push(Line { at, event, sent });
    }
    lines
}

/// Hands what was recorded to a new state machine, byte by byte.
fn replay(setup: &Setup, lines: &[Line]) -> Status {
    let mut machine = Machine::new(peer(setup));
    for (number, line) in lines.iter().enumerate() {
        match &line.event {
            Event::Received(bytes) => {
                for byte in bytes {
                    machine.take(line.at, &Event::Received(vec![*byte]));
                }
            }
            event => machine.take(line.at, event),
        }
        let sent = std::mem::take(&mut machine.sent);
        assert_eq!(
            hex(&sent),
            hex(&line.sent),
            "line {number}: {:?}",
            line.event
        );
    }
    assert!(machine.is_closed);
    machine.seen.unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(pair).collect()
}

fn written(lines: &[Line]) -> String {
    lines.iter().fold(String::new(), |mut text, line| {
        let at = line.at;
        match &line.event {
            Event::Connected => writeln!(text, "{at} ! connected").unwrap(),
            Event::Received(bytes) => writeln!(text, "{at} < {}", hex(bytes)).unwrap(),
            Event::Timer => writeln!(text, "{at} t").unwrap(),
            Event::Step(step) => writeln!(text, "{at} ! {step}").unwrap(),
        }
        if !line.sent.is_empty() {
            writeln!(text, "{at} > {}", hex(&line.sent)).unwrap();
        }
        text
    })
}

fn parsed(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ' ');
        let at = parts.next().unwrap().parse().unwrap();
        let (mark, rest) = (parts.next().unwrap(), parts.next().unwrap_or_default());
        let event = match mark {
            "!" if rest == "connected" => Event::Connected,
            "!" => Event::Step(rest.to_owned()),
            "<" => Event::Received(bytes(rest)),
            "t" => Event::Timer,
            _ => {
                lines.last_mut().unwrap().sent = bytes(rest);
                continue;
            }
        };
        lines.push(Line {
            at,
            event,
            sent: Vec::new(),
        });
    }
    lines
}

fn path(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    folder.join(name.to_lowercase()).with_extension("txt")
}

/// Records a session with a router and replays it; with `UPDATE_RECORDINGS` it is kept.
pub fn play(router: &Router) {
    let lines = record(router);
    let status = replay(&router.setup, &lines);
    assert_eq!(status.counts.established, 1);
    assert_eq!(parsed(&written(&lines)), lines);
    if std::env::var_os("UPDATE_RECORDINGS").is_some() {
        std::fs::write(path(&format!("{:?}", router.kind)), written(&lines)).unwrap();
    }
}
