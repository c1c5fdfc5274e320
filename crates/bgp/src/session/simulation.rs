//! A thousand routers in virtual time. Each is a session of this crate as well, which may begin
//! connections, too; the network between delays, refuses, loses and cuts, or the router is silent
//! or sends garbage, for some minutes. A session never rests without something to come, those with
//! good routers notice nothing of the others, and in the end all carry all routes.
//!
//! `LANDFALL_BGP_SEEDS=N` plays so many worlds, `LANDFALL_BGP_FIRST=N` begins with another.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::tests::{BOTH, asn, connection, peer, routes};
use super::*;
use crate::peer::{Families, Password, RemoteAsn};

const ROUTERS: usize = 1_000;

/// For how long some are faulty. Longer than it takes to notice that a connection is lost.
const FAULTY: Duration = Duration::from_mins(4);

/// How long it may take after that until all is well: the longest wait for an OPEN and for the
/// next attempt, and once more, because a collision may end the first one.
const SETTLED: Duration = Duration::from_mins(2);

const BEFORE: u8 = 5;
const AFTER: u8 = 9;

const NODE: usize = 0;
const ROUTER: usize = 1;

/// What is wrong with a router or the way to it, with the reason that the node has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Refuses,
    /// As with a wrong password.
    Unanswered,
    /// TCP connections come up, and nothing is sent.
    Silent,
    /// Connections are lost without an end, time and again.
    Lost,
    Garbage,
    Flaps,
    WrongAs,
    NoFamily,
}

const FAULTS: [(Fault, &str); 8] = [
    (Fault::Refuses, "ConnectionRefused"),
    (Fault::Unanswered, "ConnectTimeout"),
    (Fault::Silent, "HoldTimerExpired"),
    (Fault::Lost, "HoldTimerExpired"),
    (Fault::Garbage, "InvalidMessage"),
    (Fault::Flaps, "ConnectionClosed"),
    (Fault::WrongAs, "BadPeerAS"),
    (Fault::NoFamily, "NoCommonFamily"),
];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake,
    Refused {
        from: usize,
        attempt: u64,
    },
    /// A SYN.
    Knocks {
        from: usize,
        attempt: u64,
    },
    /// A SYN-ACK.
    Answered {
        from: usize,
        attempt: u64,
        wire: usize,
    },
    Arrives {
        wire: usize,
        to: usize,
        bytes: Vec<u8>,
    },
    Ends {
        wire: usize,
        to: usize,
    },
    Disturb,
    Announce,
    Repaired,
}

/// The node and one router.
struct Pair {
    number: usize,
    fault: Option<(Fault, &'static str)>,
    ends: [End; 2],
    wires: Vec<Wire>,
    delay: Duration,
    wake_at: Option<Instant>,
    /// Why the node had no session.
    reasons: BTreeSet<&'static str>,
}

struct End {
    session: Session,
    dialing: Option<u64>,
    attempts: u64,
}

/// A TCP connection.
struct Wire {
    links: [Option<LinkId>; 2],
    is_lost: bool,
}

struct World {
    start: Instant,
    now: Instant,
    random: fastrand::Rng,
    queue: BinaryHeap<Reverse<(Instant, u64, usize, Event)>>,
    queued: u64,
}

// === impl World ===

impl World {
    fn is_faulty(&self) -> bool {
        self.now < self.start + FAULTY
    }

    fn after(&mut self, wait: Duration, pair: usize, event: Event) {
        self.queued += 1;
        let at = self.now + wait;
        self.queue.push(Reverse((at, self.queued, pair, event)));
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.random.u64(from..to))
    }
}

// === impl Pair ===

impl Pair {
    fn new(number: usize, world: &mut World) -> Self {
        // One of three is as it should be.
        let place = (number / 3) % FAULTS.len();
        let fault = (!number.is_multiple_of(3)).then(|| FAULTS[place]);
        let restart = world.random.u8(0..4) == 0;
        let graceful_restart = restart.then_some(Duration::from_mins(2));
        let mut node = Peer {
            graceful_restart,
            ..peer()
        };
        let mut router = Peer {
            asn: asn(65_001),
            remote_asn: RemoteAsn::Number(node.asn),
            mode: if world.random.bool() {
                Mode::Active
            } else {
                Mode::Passive
            },
            router_id: [10, 0, 0, if world.random.bool() { 0 } else { 2 }].into(),
            ..node.clone()
        };
        match fault.map(|it| it.0) {
            Some(Fault::Unanswered) => node.password = Password::new("wrong").ok(),
            Some(Fault::WrongAs) => router.asn = asn(65_099),
            Some(Fault::NoFamily) => {
                node.families.ipv6 = false;
                router.families = Families {
                    ipv4: false,
                    ipv6: true,
                };
            }
            _ => {}
        }
        let (seed, now) = (world.random.u64(..), world.now);
        let end = |peer, routes| End {
            session: Session::new(peer, routes, seed, now),
            dialing: None,
            attempts: 0,
        };
        let mut new = Self {
            number,
            fault,
            ends: [end(node, routes(BEFORE)), end(router, Arc::default())],
            wires: Vec::new(),
            delay: world.millis(1, 150),
            wake_at: None,
            reasons: BTreeSet::new(),
        };
        new.disturb_later(world);
        world.after(FAULTY / 2, number, Event::Announce);
        world.after(FAULTY, number, Event::Repaired);
        new.pump(world);
        new
    }

    fn has(&self, fault: Fault, world: &World) -> bool {
        world.is_faulty() && self.fault.is_some_and(|it| it.0 == fault)
    }

    fn disturb_later(&self, world: &mut World) {
        if self.has(Fault::Flaps, world) || self.has(Fault::Lost, world) {
            let wait = world.millis(5_000, 60_000);
            world.after(wait, self.number, Event::Disturb);
        }
    }

    fn take(&mut self, event: Event, world: &mut World) {
        let now = world.now;
        match event {
            Event::Wake => {
                if self.wake_at.is_some_and(|at| at <= now) {
                    self.wake_at = None;
                }
                for end in &mut self.ends {
                    if end.session.deadline().is_some_and(|at| at <= now) {
                        end.session.expire(now);
                    }
                }
            }
            Event::Refused { from, attempt } => {
                let end = &mut self.ends[from];
                if end.dialing == Some(attempt) {
                    end.dialing = None;
                    let (kind, why) = (ConnectProblem::Refused, "refused".to_owned());
                    end.session.connect_failed(kind, why, now);
                }
            }
            Event::Knocks { from, attempt } => {
                let to = 1 - from;
                let session = &mut self.ends[to].session;
                let id = session.accepted(connection(Side::Incoming), now);
                let mut links = [None; 2];
                links[to] = id;
                let wire = self.wires.len();
                self.wires.push(Wire {
                    links,
                    is_lost: false,
                });
                let event = Event::Answered {
                    from,
                    attempt,
                    wire,
                };
                world.after(self.delay, self.number, event);
            }
            Event::Answered {
                from,
                attempt,
                wire,
            } => {
                let end = &mut self.ends[from];
                if end.dialing == Some(attempt) {
                    end.dialing = None;
                    let id = end.session.connected(connection(Side::Outgoing), now);
                    self.wires[wire].links[from] = Some(id);
                } else {
                    self.finish(wire, from, world);
                }
            }
            Event::Arrives { wire, to, bytes } => {
                let wire = &self.wires[wire];
                if let Some(id) = wire.links[to].filter(|_| !wire.is_lost) {
                    self.ends[to].session.received(id, &bytes, now);
                }
            }
            Event::Ends { wire, to } => {
                let wire = &mut self.wires[wire];
                if !wire.is_lost
                    && let Some(id) = wire.links[to].take()
                {
                    self.ends[to].session.closed(id, None, now);
                }
            }
            Event::Disturb => self.disturb(world),
            Event::Announce => self.ends[NODE].session.announce(routes(AFTER), Drain::Off),
            Event::Repaired => {
                for end in &mut self.ends {
                    let repaired = Peer {
                        families: BOTH,
                        asn: if end.session.peer().remote_asn == RemoteAsn::Number(asn(65_000)) {
                            asn(65_001)
                        } else {
                            asn(65_000)
                        },
                        password: None,
                        ..end.session.peer().clone()
                    };
                    end.session.configure(repaired, now);
                }
            }
        }
        self.pump(world);
        self.check();
    }

    fn disturb(&mut self, world: &mut World) {
        let is_lost = self.has(Fault::Lost, world);
        for place in 0..self.wires.len() {
            if is_lost {
                self.wires[place].is_lost = true;
            } else {
                self.finish(place, NODE, world);
                self.finish(place, ROUTER, world);
            }
        }
        self.disturb_later(world);
    }

    /// The other end learns that the connection ended.
    fn finish(&self, wire: usize, from: usize, world: &mut World) {
        if from == NODE || !self.has(Fault::Silent, world) {
            let to = 1 - from;
            world.after(self.delay, self.number, Event::Ends { wire, to });
        }
    }

    /// Does what a driver does, until there is nothing more to do.
    fn pump(&mut self, world: &mut World) {
        for end in [NODE, ROUTER] {
            while let Some(action) = self.ends[end].session.next_action() {
                self.act(end, action, world);
            }
            for wire in 0..self.wires.len() {
                let Some(id) = self.wires[wire].links[end] else {
                    continue;
                };
                while let Some(bytes) = self.ends[end].session.transmit(id, world.now) {
                    self.send(wire, end, bytes, world);
                }
                self.ends[end].session.sent(id);
            }
        }
        let error = self.ends[NODE].session.status().last_error;
        self.reasons.extend(error.map(|(_, error)| error.reason()));
        let deadlines = self.ends.iter().filter_map(|it| it.session.deadline());
        if let Some(at) = deadlines.min()
            && self.wake_at.is_none_or(|before| at < before)
        {
            self.wake_at = Some(at);
            let wait = at.saturating_duration_since(world.now);
            world.after(wait, self.number, Event::Wake);
        }
    }

    fn act(&mut self, from: usize, action: Action, world: &mut World) {
        match action {
            Action::Connect => {
                let end = &mut self.ends[from];
                assert!(end.dialing.is_none(), "two attempts at once");
                end.attempts += 1;
                let attempt = end.attempts;
                end.dialing = Some(attempt);
                if self.has(Fault::Refuses, world) {
                    let event = Event::Refused { from, attempt };
                    world.after(self.delay * 2, self.number, event);
                } else if !self.has(Fault::Unanswered, world) {
                    world.after(self.delay, self.number, Event::Knocks { from, attempt });
                }
            }
            Action::Abort => self.ends[from].dialing = None,
            Action::Close(id, last) => {
                let is_it = |it: &Wire| it.links[from] == Some(id);
                let wire = self.wires.iter().position(is_it).expect("it is open");
                if let Some(last) = last {
                    self.send(wire, from, last, world);
                }
                self.wires[wire].links[from] = None;
                self.finish(wire, from, world);
            }
            Action::Rekey => {}
        }
    }

    fn send(&self, wire: usize, from: usize, mut bytes: Vec<u8>, world: &mut World) {
        let to = 1 - from;
        if from == ROUTER && self.has(Fault::Silent, world) {
            return;
        }
        if from == ROUTER && self.has(Fault::Garbage, world) {
            // Also within the marker, or as a message that is not known.
            let at = world.random.usize(..bytes.len());
            bytes[at] = !bytes[at];
        }
        // As TCP may divide it.
        let rest = bytes.split_off(world.random.usize(..bytes.len()));
        for bytes in [bytes, rest] {
            let event = Event::Arrives { wire, to, bytes };
            world.after(self.delay, self.number, event);
        }
    }

    /// Checks what is always so.
    fn check(&self) {
        let node = &self.ends[NODE];
        let status = node.session.status();
        let open = self.wires.iter().filter(|it| it.links[NODE].is_some());
        assert!(open.count() <= 3);
        assert!(
            node.session.deadline().is_some() || node.dialing.is_some(),
            "stuck: {:?} {status:?}",
            self.fault
        );
        if let Some((_, error)) = status.last_error {
            assert!(!error.to_string().is_empty() && !error.remedy().is_empty());
        }
    }

    /// Checks what is so in the end.
    fn check_end(&self, world: &World) {
        let statuses = [NODE, ROUTER].map(|it| self.ends[it].session.status());
        let [node, router] = &statuses;
        let states = (node.state, router.state);
        let both = (State::Established, State::Established);
        assert_eq!(states, both, "{:?} {statuses:?}", self.fault);
        let open = self.wires.iter().filter(|it| it.links != [None, None]);
        let open: Vec<_> = open.filter(|it| !it.is_lost).collect();
        assert_eq!(open.len(), 1, "{:?}", self.fault);
        assert_eq!(node.prefixes_sent, usize::from(AFTER));
        assert!(router.prefixes_received >= u64::from(AFTER));
        if let Some((_, reason)) = self.fault {
            assert!(
                self.reasons.contains(reason),
                "{reason}: {:?}",
                self.reasons
            );
            return;
        }
        assert_eq!(self.reasons, BTreeSet::new(), "{node:?}");
        assert_eq!((node.counts.established, router.counts.established), (1, 1));
        assert_eq!(router.prefixes_received, u64::from(AFTER));
        let uptime = node.uptime(world.now).unwrap();
        assert!(uptime + Duration::from_secs(5) > FAULTY + SETTLED);
    }
}

/// Plays a world, and returns how many sessions were established in it.
fn play(seed: u64) -> u64 {
    let start = Instant::now();
    let mut world = World {
        start,
        now: start,
        random: fastrand::Rng::with_seed(seed),
        queue: BinaryHeap::new(),
        queued: 0,
    };
    let new = |number| Pair::new(number, &mut world);
    let mut pairs: Vec<_> = (0..ROUTERS).map(new).collect();
    let end = start + FAULTY + SETTLED;
    while let Some(Reverse((at, _, pair, event))) = world.queue.pop()
        && at < end
    {
        world.now = at;
        pairs[pair].take(event, &mut world);
    }
    for pair in &pairs {
        pair.check_end(&world);
    }
    let counts = pairs.iter().map(|it| it.ends[NODE].session.status().counts);
    counts.map(|it| it.established).sum()
}

#[test]
fn a_thousand_routers_of_which_some_fail_have_all_routes_in_the_end() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let first = number("LANDFALL_BGP_FIRST").unwrap_or(0);
    for seed in first..first + number("LANDFALL_BGP_SEEDS").unwrap_or(1) {
        let established = play(seed);
        println!("world {seed}: {established} sessions were established");
        assert!(established > ROUTERS as u64);
    }
}
