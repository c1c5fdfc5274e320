//! Two machines and the wires between them, in virtual time.

use std::collections::BTreeMap;
use std::num::{NonZeroU8, NonZeroU32};
use std::time::{Duration, Instant};

use landfall_bfd::packet::{Control, State};
use landfall_bfd::session::{Change, Output, Session, Settings};

/// Both machines.
pub struct World {
    pub now: Instant,
    pub sides: [Side; 2],
    flying: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    count: u64,
    random: fastrand::Rng,
}

/// A machine, and the wire that leaves it.
pub struct Side {
    pub session: Session,
    pub wire: Wire,
    /// When packets left.
    pub sent: Vec<Instant>,
    /// When the last packet arrived.
    pub received: Option<Instant>,
    pub changes: Vec<(Instant, Change)>,
}

/// What happens to packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wire {
    pub delay: Duration,
    /// A random time on top.
    pub variation: Duration,
    /// The part of packets, in percent, that is lost.
    pub loss: u32,
    /// All but one in so many are lost.
    pub keeps_one_in: Option<u64>,
    pub is_cut: bool,
    /// Packets so far.
    pub carried: u64,
}

pub fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub fn settings(transmit: u64, receive: u64, multiplier: u8) -> Settings {
    Settings {
        transmit_interval: ms(transmit),
        receive_interval: ms(receive),
        detect_multiplier: NonZeroU8::new(multiplier).unwrap(),
        ..Settings::default()
    }
}

// === impl World ===

impl World {
    pub fn new(settings: [Settings; 2], seed: u64) -> Self {
        let now = Instant::now();
        let mut number = 0;
        let sides = settings.map(|settings| {
            number += 1;
            let id = NonZeroU32::new(number).unwrap();
            Side {
                session: Session::new(settings, id, seed + u64::from(number), now),
                wire: Wire::default(),
                sent: Vec::new(),
                received: None,
                changes: Vec::new(),
            }
        });
        Self {
            now,
            sides,
            flying: BTreeMap::new(),
            count: 0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// A world in which both are Up, and have agreed on their intervals.
    pub fn up(settings: [Settings; 2], seed: u64) -> Self {
        let mut world = Self::new(settings, seed);
        world.run(Duration::from_secs(10));
        assert_eq!(world.states(), [State::Up; 2]);
        world.forget();
        world
    }

    pub fn states(&self) -> [State; 2] {
        [0, 1].map(|side| self.sides[side].session.view().state)
    }

    /// Forgets what happened so far.
    pub fn forget(&mut self) {
        for side in &mut self.sides {
            side.sent.clear();
            side.changes.clear();
        }
    }

    /// The number of changes of both.
    pub fn changes(&self) -> usize {
        self.sides.iter().map(|it| it.changes.len()).sum()
    }

    pub fn configure(&mut self, side: usize, settings: Settings) {
        self.sides[side].session.configure(settings, self.now);
        self.collect(side);
    }

    /// Lets time pass.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let arrival = self.flying.keys().next().map(|(at, _)| *at);
            let deadlines = self.sides.iter().filter_map(|it| it.session.deadline());
            let next = deadlines.chain(arrival).min();
            let Some(next) = next.filter(|at| *at <= end) else {
                break;
            };
            self.now = next.max(self.now);
            // What came is taken first, as the driver does.
            while let Some(entry) = self.flying.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let (to, bytes) = entry.remove();
                self.arrive(to, &bytes);
            }
            for side in 0..2 {
                self.sides[side].session.expire(self.now);
                self.collect(side);
            }
        }
        self.now = end;
    }

    fn arrive(&mut self, to: usize, bytes: &[u8]) {
        let side = &mut self.sides[to];
        let packet = Control::parse(bytes).unwrap();
        if side.session.receive(&packet, bytes, self.now).is_ok() {
            side.received = Some(self.now);
        }
        self.collect(to);
    }

    fn collect(&mut self, from: usize) {
        for output in self.sides[from].session.take() {
            let side = &mut self.sides[from];
            match output {
                Output::Change(change) => side.changes.push((self.now, change)),
                Output::Echo(_) => {}
                Output::Control(bytes) => {
                    side.sent.push(self.now);
                    let random = &mut self.random;
                    if let Some(delay) = side.wire.carry(random) {
                        self.count += 1;
                        let at = (self.now + delay, self.count);
                        self.flying.insert(at, (1 - from, bytes));
                    }
                }
            }
        }
    }
}

// === impl Wire ===

impl Wire {
    /// How long a packet takes, unless it is lost.
    fn carry(&mut self, random: &mut fastrand::Rng) -> Option<Duration> {
        self.carried += 1;
        let is_kept = self
            .keeps_one_in
            .is_none_or(|it| self.carried.is_multiple_of(it));
        if self.is_cut || !is_kept || random.u32(0..100) < self.loss {
            return None;
        }
        let most = self.variation.as_micros() as u64;
        Some(self.delay + Duration::from_micros(random.u64(0..=most)))
    }
}
