//! Nodes with speakers, the networks between them, their view of the cluster and a client, in
//! virtual time: the same seed gives the same run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use landfall_l2::election::Rules;
use landfall_l2::mac::MacAddress;
use landfall_l2::packet::Frame;
use landfall_membership::machine::Datagram;

use crate::cluster::{Cluster, FOREIGN_HOST, addresses, name};
use crate::life::{Birth, Life, Sent, address, mac};
use crate::network::{Client, Network, answer_of_foreign_host};
use crate::validate::{How, Seen, Validator};

/// What waits for a node that does not run, of each kind; the rest is lost, as in a socket.
const ROOM: usize = 256;

/// Numbers of Services.
pub const SERVICES: usize = 6;

/// The time between two moments at which the client asks and everything is validated.
const TICK: Duration = Duration::from_millis(10);

/// How a node's time differs from that of the world.
#[derive(Clone, Copy, Debug)]
struct Clock {
    offset: Duration,
    /// How much faster it runs, in millionths.
    faster: i64,
}

/// Why nothing runs on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// For so short that no other node may notice.
    Short,
    Long,
}

pub struct Node {
    pub life: Option<Life>,
    pub pause: Option<Pause>,
    /// Its view of the cluster does not change.
    pub is_frozen: bool,
    pub has_port: bool,
    lives: u64,
    datagrams: Vec<(SocketAddr, Vec<u8>)>,
    frames: Vec<Rc<[u8]>>,
    clock: Clock,
    timers: u64,
    is_deciding: bool,
    /// The changes of the cluster that it knows; `None`: it has not listed anything yet.
    known: Option<usize>,
}

enum What {
    Datagram(usize, SocketAddr, Vec<u8>),
    Frame(usize, Rc<[u8]>),
    Timer(usize, u64),
    Decide(usize, u64),
    /// The API server answers.
    Facts(usize, u64),
    Leave(usize, u64, u8),
    Tick,
}

pub struct World {
    pub cluster: Cluster,
    pub nodes: Vec<Node>,
    pub network: Network,
    pub random: fastrand::Rng,
    pub now: Duration,
    pub validator: Validator,
    pub story: String,
    client: Client,
    /// Pairs (node, other) of which the first ended while the other may not have been able to know
    /// what hosts learned of it last, with the address: hosts find out by probes of their own.
    /// Until they learn of another node.
    ///
    /// While frames between nodes are cut, none knows what a node announces. While datagrams alone
    /// are cut, two nodes hold each other for dead and both announce. Each receives that, and
    /// answers once per 10 s at most (RFC 5227, section 2.4), so that two such nodes do not send
    /// hosts to and fro all the time. The other may thus have announced last, and its end is no
    /// news: it was dead all along. That a node leaves reaches the others unless it is cut off.
    ended_apart: BTreeSet<(usize, usize, IpAddr)>,
    rules: Rules,
    start: Instant,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    events: BTreeMap<u64, What>,
    number: u64,
    /// How often nodes asked for the address of another host.
    pub questions_to_foreign_host: u64,
    /// The nodes that answered for each address last.
    answered: BTreeMap<IpAddr, Vec<usize>>,
}

// === impl Clock ===

impl Clock {
    fn at(self, now: Duration) -> Duration {
        let micros = now.as_micros() as i64;
        self.offset
            + Duration::from_micros((micros + micros * self.faster / 1_000_000).cast_unsigned())
    }

    /// Returns when it will be so late on this clock.
    fn when(self, own: Duration) -> Duration {
        let micros = own.saturating_sub(self.offset).as_micros() as i64;
        Duration::from_micros((micros * 1_000_000 / (1_000_000 + self.faster)).cast_unsigned() + 1)
    }
}

// === impl World ===

impl World {
    pub fn new(count: usize, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let rules = Rules {
            must_be_able_to_serve: random.bool(),
            ..Rules::default()
        };
        let mut world = Self {
            cluster: Cluster::new(count),
            nodes: Vec::new(),
            network: Network::default(),
            now: Duration::ZERO,
            validator: Validator::new(count),
            story: format!("{count} nodes, {rules:?}\n"),
            client: Client::default(),
            ended_apart: BTreeSet::new(),
            rules,
            start: Instant::now(),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            number: 0,
            questions_to_foreign_host: 0,
            answered: BTreeMap::new(),
            random,
        };
        for _ in 0..count {
            let clock = Clock {
                offset: Duration::from_secs(world.random.u64(0..100_000)),
                faster: world.random.i64(-1_000..1_000),
            };
            world.nodes.push(Node {
                life: None,
                pause: None,
                is_frozen: false,
                has_port: true,
                lives: 0,
                datagrams: Vec::new(),
                frames: Vec::new(),
                clock,
                timers: 0,
                is_deciding: false,
                known: None,
            });
        }
        world.push(Duration::ZERO, What::Tick);
        world
    }

    pub fn note(&mut self, what: &str) {
        let _ = writeln!(self.story, "{:9.3} {what}", self.now.as_secs_f64());
    }

    fn push(&mut self, after: Duration, what: What) {
        self.push_at(self.now + after, what);
    }

    fn push_at(&mut self, at: Duration, what: What) {
        self.number += 1;
        self.queue.push(Reverse((at.max(self.now), self.number)));
        self.events.insert(self.number, what);
    }

    fn local(&self, node: usize) -> Instant {
        self.start + self.nodes[node].clock.at(self.now)
    }

    fn micros(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(self.random.u64(least..most))
    }

    /// Lets this much time pass.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(Reverse((at, number))) = self.queue.peek().copied() {
            if at > end {
                break;
            }
            self.queue.pop();
            self.now = self.now.max(at);
            let what = self.events.remove(&number).unwrap();
            self.happen(what);
        }
        self.now = end;
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Datagram(node, from, bytes) => self.take_datagram(node, from, bytes),
            What::Frame(node, frame) => self.take_frame(node, frame),
            What::Timer(node, timer) => {
                if self.nodes[node].timers == timer && self.nodes[node].pause.is_none() {
                    self.expire(node);
                }
            }
            What::Decide(node, life) => self.decide(node, life),
            What::Facts(node, life) => self.take_facts(node, life),
            What::Leave(node, life, left) => self.leave_on(node, life, left),
            What::Tick => {
                self.tick();
                self.push(TICK, What::Tick);
            }
        }
    }

    // --- What a life does.

    fn take_datagram(&mut self, node: usize, from: SocketAddr, bytes: Vec<u8>) {
        let now = self.local(node);
        let it = &mut self.nodes[node];
        let Some(life) = &mut it.life else {
            return;
        };
        if it.pause.is_some() {
            if it.datagrams.len() < ROOM {
                it.datagrams.push((from, bytes));
            }
            return;
        }
        let sent = life.take_datagram(now, from, &bytes);
        self.send(node, sent);
        self.after(node);
    }

    fn take_frame(&mut self, node: usize, frame: Rc<[u8]>) {
        let now = self.local(node);
        let it = &mut self.nodes[node];
        let Some(life) = &mut it.life else {
            return;
        };
        if it.pause.is_some() {
            if it.frames.len() < ROOM {
                it.frames.push(frame);
            }
            return;
        }
        let sent = life.take_frame(now, &frame);
        let has_news = sent.has_news;
        self.send(node, sent);
        if has_news {
            self.decide_soon(node);
        }
        self.after(node);
    }

    fn expire(&mut self, node: usize) {
        let now = self.local(node);
        let Some(life) = &mut self.nodes[node].life else {
            return;
        };
        let mut sent = Sent::default();
        let was_ready = life.is_ready;
        let has_news = life.expire(now, &mut sent);
        let is_new = life.is_ready && !was_ready;
        self.send(node, sent);
        if is_new {
            self.note(&format!("{node} takes part"));
        }
        if has_news {
            self.decide_soon(node);
        }
        self.after(node);
    }

    /// The loop of a speaker is woken a moment later.
    fn decide_soon(&mut self, node: usize) {
        if !std::mem::replace(&mut self.nodes[node].is_deciding, true) {
            let after = self.micros(1, 1_000);
            let life = self.nodes[node].lives;
            self.push(after, What::Decide(node, life));
        }
    }

    fn decide(&mut self, node: usize, life: u64) {
        let now = self.local(node);
        let it = &mut self.nodes[node];
        if it.lives != life || it.pause.is_some() {
            return;
        }
        it.is_deciding = false;
        if let Some(life) = &mut it.life {
            let sent = life.decide(now);
            self.send(node, sent);
            self.after(node);
        }
    }

    /// Sets when a node does something next.
    fn after(&mut self, node: usize) {
        let start = self.start;
        let it = &mut self.nodes[node];
        let Some(life) = &it.life else {
            return;
        };
        it.timers += 1;
        let timer = it.timers;
        let is_stale = life.is_stale();
        let at = life.deadline().map(|at| it.clock.when(at - start));
        if let Some(at) = at {
            // Timers are a little late.
            let at = at + self.micros(0, 1_000);
            self.push_at(at, What::Timer(node, timer));
        }
        if is_stale {
            self.decide_soon(node);
        }
    }

    fn send(&mut self, from: usize, sent: Sent) {
        for Datagram { to, bytes } in sent.datagrams {
            let SocketAddr::V4(v4) = to else {
                panic!("{to}")
            };
            let [_, _, high, low] = v4.ip().octets();
            let to = usize::from(u16::from_be_bytes([high, low]));
            if to >= self.nodes.len()
                || !self.nodes[to].has_port
                || !self.nodes[from].has_port
                || self.network.cut.contains(&(from, to))
            {
                continue;
            }
            for after in self.journeys() {
                let what = What::Datagram(to, address(from), bytes.clone());
                self.push(after, what);
            }
        }
        for frame in sent.frames {
            self.send_frame(from, &frame.into());
        }
    }

    fn send_frame(&mut self, from: usize, frame: &Rc<[u8]>) {
        if !self.nodes[from].has_port {
            return;
        }
        let to = MacAddress(*frame.first_chunk().unwrap());
        if !to.is_unicast() && self.random.f64() >= self.network.loss {
            self.client.take_frame(frame);
        }
        self.meet_foreign_host(from, frame);
        for node in 0..self.nodes.len() {
            let is_cut = self.network.cuts_frames && self.network.cut.contains(&(from, node));
            let is_for = !to.is_unicast() || to == mac(node);
            if node == from || !is_for || is_cut || !self.nodes[node].has_port {
                continue;
            }
            for after in self.journeys() {
                self.push(after, What::Frame(node, Rc::clone(frame)));
            }
        }
    }

    /// A host that is no node has an address of the pool, and loses nothing.
    fn meet_foreign_host(&mut self, from: usize, frame: &Rc<[u8]>) {
        let Some(frame) = Frame::parse(frame) else {
            return;
        };
        let claim = frame.claim();
        let Some(claim) = claim.filter(|it| addresses(FOREIGN_HOST).contains(&it.address)) else {
            return;
        };
        if claim.is_probe {
            self.questions_to_foreign_host += 1;
            let answer = answer_of_foreign_host(&frame).unwrap().into();
            self.push(Duration::from_micros(200), What::Frame(from, answer));
        } else {
            let why = format!("{from} announces {}, which a host has", claim.address);
            self.note(&why);
            if let Some(life) = &self.nodes[from].life {
                let says = life.explain(claim.address);
                self.note(&format!("{from}: {says}"));
            }
            self.validator.violations.push(why);
        }
    }

    /// How long each copy of something is on its way.
    fn journeys(&mut self) -> Vec<Duration> {
        if self.random.f64() < self.network.loss {
            return Vec::new();
        }
        let copies = 1 + usize::from(self.random.f64() < self.network.duplicates);
        let mut all = Vec::new();
        for _ in 0..copies {
            let mut wait = self.micros(50, 500);
            if self.random.f64() < self.network.late {
                wait += self.micros(0, 40_000);
            }
            all.push(wait);
        }
        all
    }

    // --- The API server.

    /// Sends what was written to every node that the API server reaches.
    pub fn publish(&mut self) {
        for node in 0..self.nodes.len() {
            self.validator.touch(node);
            self.ask_for_facts(node);
        }
    }

    fn ask_for_facts(&mut self, node: usize) {
        if self.nodes[node].life.is_some() && !self.nodes[node].is_frozen {
            let after = self.micros(1_000, 80_000);
            let life = self.nodes[node].lives;
            self.push(after, What::Facts(node, life));
        }
    }

    fn take_facts(&mut self, node: usize, lives: u64) {
        let now = self.local(node);
        let it = &mut self.nodes[node];
        let Some(life) = &mut it.life else {
            return;
        };
        if it.lives != lives || it.is_frozen || it.pause.is_some() {
            return;
        }
        let facts = match it.known {
            None => self.cluster.list(),
            Some(known) => self.cluster.since(known),
        };
        it.known = Some(self.cluster.end());
        if !facts.is_empty() {
            life.take_facts(now, facts);
            self.decide_soon(node);
            self.after(node);
        }
    }

    /// The API server is gone for this node.
    pub fn freeze(&mut self, node: usize) {
        self.nodes[node].is_frozen = true;
    }

    pub fn thaw(&mut self, node: usize) {
        if std::mem::take(&mut self.nodes[node].is_frozen) {
            self.ask_for_facts(node);
        }
    }

    // --- Faults of nodes.

    pub fn start(&mut self, node: usize) {
        if self.nodes[node].life.is_some() {
            return;
        }
        let birth = Birth {
            node,
            // Clocks differ, and may go back between two lives.
            clock: 1_000_000_000 + self.now.as_millis() as u64 + self.random.u64(0..200_000),
            random: self.random.u128(..),
            now: self.local(node),
            rules: self.rules,
        };
        self.ended_apart.retain(|(ended, ..)| *ended != node);
        let it = &mut self.nodes[node];
        it.lives += 1;
        it.life = Some(Life::begin(birth, it.has_port));
        (it.known, it.is_deciding) = (None, false);
        self.note(&format!("{node} starts"));
        self.validator.touch(node);
        self.ask_for_facts(node);
        self.decide_soon(node);
        self.after(node);
    }

    pub fn crash(&mut self, node: usize) {
        if self.nodes[node].life.is_some() {
            self.note(&format!("{node} crashes"));
            let (cluster, network) = (&self.cluster, &self.network);
            let owned = self.validator.owned_by(node, self.now, cluster, network);
            self.end(node, false);
            self.validator.note_outages(owned, self.now);
        }
    }

    fn end(&mut self, node: usize, has_said_so: bool) {
        self.validator.touch(node);
        let Network {
            cut, cuts_frames, ..
        } = &self.network;
        let is_apart = |other: &usize| {
            *cuts_frames && !cut.is_empty()
                || cut.contains(&(node, *other))
                || !has_said_so && cut.contains(&(*other, node))
        };
        let learned = self.client.neighbours.iter();
        let learned = learned.filter(|(_, station)| **station == mac(node));
        for (address, _) in learned {
            let others = (0..self.nodes.len()).filter(is_apart);
            let apart = others.map(|other| (node, other, *address));
            self.ended_apart.extend(apart);
        }
        let it = &mut self.nodes[node];
        (it.life, it.pause) = (None, None);
        it.lives += 1;
        it.datagrams.clear();
        it.frames.clear();
    }

    /// Stops a speaker as a signal does.
    pub fn stop(&mut self, node: usize) {
        let it = &self.nodes[node];
        let life = it.lives;
        if it.pause.is_none() && it.life.as_ref().is_some_and(|it| !it.is_leaving) {
            self.note(&format!("{node} is stopped"));
            self.validator.touch(node);
            self.leave_on(node, life, 3);
        }
    }

    /// It says so three times, and announces meanwhile.
    fn leave_on(&mut self, node: usize, lives: u64, left: u8) {
        let it = &mut self.nodes[node];
        let Some(life) = it.life.as_mut().filter(|_| it.lives == lives) else {
            return;
        };
        if left == 0 {
            return self.end(node, true);
        }
        let sent = life.leave();
        self.send(node, sent);
        self.push(
            Duration::from_millis(10),
            What::Leave(node, lives, left - 1),
        );
    }

    pub fn pause(&mut self, node: usize, pause: Pause) {
        let it = &mut self.nodes[node];
        let may = it.life.as_ref().is_some_and(|it| !it.is_leaving) && it.pause.is_none();
        if !may {
            return;
        }
        it.pause = Some(pause);
        self.note(&format!("{node} is paused ({pause:?})"));
        if pause == Pause::Long {
            self.validator.touch(node);
        }
    }

    pub fn resume(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        let Some(pause) = it.pause.take() else {
            return;
        };
        let datagrams = std::mem::take(&mut it.datagrams);
        let frames = std::mem::take(&mut it.frames);
        if pause == Pause::Long {
            self.validator.touch(node);
        }
        self.note(&format!("{node} goes on"));
        // Which of its tasks runs first is left to chance.
        if self.random.bool() {
            self.expire(node);
        }
        let frames_first = self.random.bool();
        let take_frames = |world: &mut Self| {
            for frame in &frames {
                world.take_frame(node, Rc::clone(frame));
            }
        };
        if frames_first {
            take_frames(self);
        }
        for (from, bytes) in datagrams {
            self.take_datagram(node, from, bytes);
        }
        if !frames_first {
            take_frames(self);
        }
        self.nodes[node].is_deciding = false;
        self.decide_soon(node);
        self.ask_for_facts(node);
        self.after(node);
    }

    pub fn set_port(&mut self, node: usize, is_there: bool) {
        if self.nodes[node].has_port == is_there {
            return;
        }
        self.note(&format!("the port of {node}: {is_there}"));
        self.nodes[node].has_port = is_there;
        self.validator.touch(node);
        let now = self.local(node);
        if let Some(life) = &mut self.nodes[node].life {
            life.set_carrier(now, node, is_there);
            self.decide_soon(node);
            self.after(node);
        }
    }

    // --- What the client sees.

    fn tick(&mut self) {
        self.network.note(self.now);
        for node in 0..self.nodes.len() {
            let it = &self.nodes[node];
            let is_there = it.has_port && it.pause != Some(Pause::Long);
            let how = match it.life.as_ref().filter(|life| is_there && life.is_ready) {
                None => How::Absent,
                Some(life) if life.is_leaving => How::Behind,
                Some(_) if it.known == Some(self.cluster.end()) => How::Fine,
                Some(_) => How::Behind,
            };
            self.validator.see(node, how, self.now);
            if let Some(life) = &mut self.nodes[node].life {
                life.note_refusals();
            }
        }
        for number in 0..SERVICES {
            for address in addresses(number) {
                self.ask(address);
            }
        }
    }

    fn ask(&mut self, address: IpAddr) {
        let question = self.client.question(address);
        let mut answering = Vec::new();
        for node in 0..self.nodes.len() {
            let now = self.local(node);
            let it = &mut self.nodes[node];
            let Some(life) = it.life.as_mut().filter(|_| it.has_port) else {
                continue;
            };
            if it.pause.is_some() {
                continue;
            }
            let sent = life.take_frame(now, &question);
            if let Some(frame) = sent.frames.first() {
                assert_eq!(sent.frames.len(), 1);
                let says = life.decider.owner(address);
                if !it.is_deciding && says != Some(&name(node)) {
                    let why =
                        format!("{node} answers for {address} and holds {says:?} for its owner");
                    self.validator.violations.push(why);
                }
                self.client.take_answer(address, frame);
                answering.push(node);
            }
        }
        let neighbours = &self.client.neighbours;
        self.ended_apart
            .retain(|(node, _, address)| neighbours.get(address) == Some(&mac(*node)));
        let seen = Seen {
            now: self.now,
            address,
            answering: &answering,
            neighbour: self.client.neighbours.get(&address).copied(),
            is_paused: &|node| self.nodes[node].pause.is_some(),
            waits: &|node| {
                let local = self.start + self.nodes[node].clock.at(self.now);
                waits_for_unmet(&self.nodes, node, local, address)
            },
            ended_apart: &self.ended_apart,
        };
        let news = self.validator.validate(&seen, &self.cluster, &self.network);
        let before = self.answered.insert(address, answering.clone());
        if before.unwrap_or_default() != answering {
            self.note(&format!("{address} is answered by {answering:?}"));
        }
        if !news.is_empty() {
            for node in self.cluster.candidates(address) {
                if let Some(life) = &self.nodes[node].life {
                    let says = life.explain(address);
                    self.note(&format!("{node}: {says}"));
                }
            }
        }
        for violation in news {
            self.note(&violation);
        }
    }
}

/// Returns whether a node still leaves an address to another one that it never met and that has
/// ended.
fn waits_for_unmet(nodes: &[Node], node: usize, local: Instant, address: IpAddr) -> bool {
    let life = nodes[node].life.as_ref();
    let unmet = life.and_then(|it| it.unmet(local, address));
    unmet.is_some_and(|station| {
        let mut nodes = nodes.iter().enumerate();
        nodes.any(|(node, it)| mac(node) == station && it.life.is_none())
    })
}
