//! Nodes and a network in virtual time: the same seed gives the same run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_membership::machine::{Datagram, Machine, Own, Settings};
use landfall_membership::packet::SessionId;
use landfall_membership::seal::{Key, Keys};

/// What the network does to datagrams.
#[derive(Clone, Debug)]
pub struct Network {
    /// The part that is lost.
    pub loss: f64,
    /// The part that arrives twice.
    pub duplicates: f64,
    /// The part that is late, and overtaken by others.
    pub late: f64,
    /// Pairs (from, to) between which nothing arrives.
    pub cut: BTreeSet<(usize, usize)>,
    /// Nodes that can send nothing, and know it.
    pub unable: BTreeSet<usize>,
}

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Runs,
    /// Nothing runs, but datagrams wait.
    Paused,
    Crashed,
}

pub struct Node {
    pub machine: Machine,
    pub state: State,
    pub metadata: Arc<[u8]>,
    life: u64,
    waiting: Vec<(SocketAddr, Vec<u8>)>,
    wakes: u64,
}

enum What {
    Arrive(usize, SocketAddr, Vec<u8>),
    Wake(usize, u64),
}

pub struct World {
    pub nodes: Vec<Node>,
    pub network: Network,
    pub random: fastrand::Rng,
    pub now: Duration,
    /// Everything that was sent, where a test asked for it.
    pub recorded: Option<Vec<(usize, Vec<u8>)>>,
    start: Instant,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    events: BTreeMap<u64, What>,
    number: u64,
}

pub fn name(node: usize) -> Arc<str> {
    format!("node-{node}").into()
}

pub fn address(node: usize) -> SocketAddr {
    let [high, low] = (node as u16).to_be_bytes();
    SocketAddr::from(([10, 0, high, low], 7947))
}

pub fn keys() -> Keys {
    Keys {
        first: Key::new(b"a key of these tests").unwrap(),
        others: Vec::new(),
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplicates: 0.0,
            late: 0.0,
            cut: BTreeSet::new(),
            unable: BTreeSet::new(),
        }
    }
}

impl World {
    pub fn new(count: usize, seed: u64) -> Self {
        let mut world = Self {
            nodes: Vec::new(),
            network: Network::default(),
            random: fastrand::Rng::with_seed(seed),
            now: Duration::ZERO,
            recorded: None,
            start: Instant::now(),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            number: 0,
        };
        for node in 0..count {
            let machine = world.machine(node, count, 1);
            world.nodes.push(Node {
                machine,
                state: State::Runs,
                metadata: Arc::from(&b"1"[..]),
                life: 1,
                waiting: Vec::new(),
                wakes: 0,
            });
            world.wake(node);
        }
        world
    }

    fn machine(&mut self, node: usize, count: usize, life: u64) -> Machine {
        self.machine_named(name(node), node, count, life)
    }

    fn machine_named(&mut self, name: Arc<str>, node: usize, count: usize, life: u64) -> Machine {
        let mut session = [0; 16];
        self.random.fill(&mut session);
        let own = Own {
            name,
            address: address(node),
            // Clocks differ, and may go back between two lives.
            incarnation: 1_000_000 + self.random.u64(0..100_000),
            metadata: life.to_string().into_bytes().into(),
            session: SessionId(session),
            seed: self.random.u64(..),
        };
        let now = self.start + self.now;
        let mut machine = Machine::new(Settings::default(), own, keys(), now).unwrap();
        machine.set_seeds((0..count).map(|it| (self::name(it), address(it))).collect());
        machine
    }

    fn push(&mut self, at: Duration, what: What) {
        self.number += 1;
        self.queue.push(Reverse((at, self.number)));
        self.events.insert(self.number, what);
    }

    fn wake(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        it.wakes += 1;
        let (at, wakes) = (it.machine.deadline(), it.wakes);
        let at = at.saturating_duration_since(self.start).max(self.now);
        // Timers are a little late.
        let at = at + Duration::from_micros(self.random.u64(0..1_000));
        self.push(at, What::Wake(node, wakes));
    }

    pub fn send(&mut self, from: usize, datagrams: Vec<Datagram>) {
        if self.network.unable.contains(&from) {
            if !datagrams.is_empty() {
                let now = self.start + self.now;
                self.nodes[from].machine.note_unsent(now);
            }
            return;
        }
        for Datagram { to, bytes } in datagrams {
            let SocketAddr::V4(v4) = to else {
                panic!("{to}")
            };
            let [_, _, high, low] = v4.ip().octets();
            let to = usize::from(u16::from_be_bytes([high, low]));
            if let Some(recorded) = &mut self.recorded {
                recorded.push((to, bytes.clone()));
            }
            let network = &self.network;
            if to >= self.nodes.len()
                || network.cut.contains(&(from, to))
                || self.random.f64() < network.loss
            {
                continue;
            }
            let copies = 1 + usize::from(self.random.f64() < network.duplicates);
            for _ in 0..copies {
                let mut wait = Duration::from_micros(self.random.u64(50..500));
                if self.random.f64() < self.network.late {
                    wait += Duration::from_millis(self.random.u64(0..40));
                }
                let arrive = What::Arrive(to, address(from), bytes.clone());
                self.push(self.now + wait, arrive);
            }
        }
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
            match self.events.remove(&number).unwrap() {
                What::Arrive(node, from, bytes) => self.arrive(node, from, bytes),
                What::Wake(node, wakes) => {
                    let it = &self.nodes[node];
                    if it.wakes == wakes && it.state == State::Runs {
                        self.expire(node);
                    }
                }
            }
        }
        self.now = end;
    }

    fn expire(&mut self, node: usize) {
        let now = self.start + self.now;
        let sent = self.nodes[node].machine.expire(now);
        self.send(node, sent);
        self.wake(node);
    }

    pub fn arrive(&mut self, node: usize, from: SocketAddr, bytes: Vec<u8>) {
        let now = self.start + self.now;
        let it = &mut self.nodes[node];
        match it.state {
            State::Runs => {
                let sent = it.machine.receive(now, from, &bytes);
                self.send(node, sent);
                self.wake(node);
            }
            State::Paused => it.waiting.push((from, bytes)),
            State::Crashed => {}
        }
    }

    pub fn pause(&mut self, node: usize) {
        if self.nodes[node].state == State::Runs {
            self.nodes[node].state = State::Paused;
        }
    }

    pub fn resume(&mut self, node: usize) {
        if self.nodes[node].state != State::Paused {
            return;
        }
        self.nodes[node].state = State::Runs;
        for (from, bytes) in std::mem::take(&mut self.nodes[node].waiting) {
            self.arrive(node, from, bytes);
        }
        self.wake(node);
    }

    pub fn crash(&mut self, node: usize) {
        self.nodes[node].state = State::Crashed;
        self.nodes[node].waiting.clear();
    }

    pub fn restart(&mut self, node: usize) {
        if self.nodes[node].state != State::Crashed {
            return;
        }
        let life = self.nodes[node].life + 1;
        let machine = self.machine(node, self.nodes.len(), life);
        let it = &mut self.nodes[node];
        it.machine = machine;
        it.life = life;
        it.metadata = life.to_string().into_bytes().into();
        it.state = State::Runs;
        self.wake(node);
    }

    /// Starts a crashed node under another name, with the address that it had.
    pub fn restart_as(&mut self, node: usize, name: &str) {
        self.restart(node);
        self.nodes[node].machine = self.machine_named(name.into(), node, self.nodes.len(), 1);
        self.wake(node);
    }

    pub fn leave(&mut self, node: usize) {
        if self.nodes[node].state == State::Runs {
            let sent = self.nodes[node].machine.leave();
            self.send(node, sent);
            self.crash(node);
        }
    }

    pub fn report(&mut self, node: usize, metadata: &[u8]) {
        if self.nodes[node].state == State::Runs {
            self.nodes[node].metadata = metadata.into();
            let sent = self.nodes[node].machine.set_metadata(metadata.into());
            self.send(node, sent.unwrap());
        }
    }

    pub fn running(&self) -> Vec<usize> {
        let nodes = 0..self.nodes.len();
        nodes
            .filter(|it| self.nodes[*it].state == State::Runs)
            .collect()
    }

    /// Says what some node sees that is not so; `None`: all see all that run, and only these.
    pub fn difference(&self) -> Option<String> {
        let running = self.running();
        for own in &running {
            let peers = self.nodes[*own].machine.peers();
            for other in &running {
                let is_there = peers.get(&name(*other)).map(|it| &it.metadata);
                let expected = (own != other).then(|| &self.nodes[*other].metadata);
                if is_there != expected {
                    return Some(format!(
                        "{own} sees {is_there:?} of {other}, not {expected:?}"
                    ));
                }
            }
            if peers.len() + 1 != running.len() {
                return Some(format!("{own} sees {} others", peers.len()));
            }
        }
        None
    }

    /// Runs until all see the same, and returns how long that took.
    pub fn settle(&mut self, longest: Duration) -> Result<Duration, String> {
        let start = self.now;
        loop {
            let took = self.now.saturating_sub(start);
            match self.difference() {
                None => return Ok(took),
                Some(difference) if took >= longest => return Err(difference),
                Some(_) => self.run(Duration::from_millis(5)),
            }
        }
    }

    pub fn revisions(&self) -> Vec<u64> {
        self.nodes.iter().map(|it| it.machine.revision()).collect()
    }
}
