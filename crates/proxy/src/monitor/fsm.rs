//! When the members of one pool are checked, and what the results make of them. Pure: no socket, no
//! timer, every method takes `now`.
//!
//! ```text
//!             first good check                 max_retries_down failed in a row
//!   Unknown ────────────────────> Up ────────────────────────────────────────────> Down
//!      │                           ^                                                │
//!      │                           └────────────────────────────────────────────────┘
//!      │                                     max_retries good in a row
//!      └─> Down: after one failed check for members that came with the pool, else after
//!                max_retries_down failed in a row
//! ```
//!
//! An `Unknown` member counts as usable until proven bad, so that a new pool serves from its first
//! moment. For the same reason a single failed check is proof enough when the pool starts: a member
//! that is dead from the beginning should not get three checks' worth of traffic.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::pool::Health;

/// How often to check, and how many equal results in a row decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From the start of one check to the start of the next.
    pub delay: Duration,
    /// Good checks in a row that bring a member back; zero counts as one.
    pub max_retries: u8,
    /// Failed checks in a row that take a member out; zero counts as one.
    pub max_retries_down: u8,
}

/// What one check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The member answered as it should.
    Good,
    /// It did not.
    Bad,
    /// The check itself could not be carried out (no file descriptor, say): says nothing about the
    /// member.
    Unclear,
}

/// A member's health changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Before.
    pub from: Health,
    /// After.
    pub to: Health,
}

/// A check to carry out now. Its result comes back through [`Schedule::finished`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Which member.
    pub member: SocketAddr,
    /// Distinguishes this check from earlier ones of a member that left and came back, and from
    /// checks begun under other rules.
    pub ticket: u64,
}

/// Whether a change of the monitor leaves earlier results worth something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Same question to the members, possibly at other intervals.
    TimingOnly,
    /// Another question (type, path, codes, port, protocol): health stays until new results
    /// overrule it, the counting in a row starts again and all members are checked at once.
    Question,
}

/// The checks of one pool.
#[derive(Debug)]
pub struct Schedule {
    timing: Timing,
    members: BTreeMap<SocketAddr, Checked>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Checked {
    health: Health,
    /// Results in a row that speak against the present health.
    streak: u8,
    /// The first bad result decides while the health is unknown.
    hasty: bool,
    phase: Phase,
    /// Whether a check was ever begun; the second one is moved to spread the load.
    begun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting { until: Instant },
    Running { since: Instant, ticket: u64 },
}

// === impl Schedule ===

impl Schedule {
    /// The checks of a pool that starts now: all members are due at once, and one failed check is
    /// enough to take one of them out.
    pub fn start(
        timing: Timing,
        members: impl IntoIterator<Item = SocketAddr>,
        now: Instant,
    ) -> Self {
        let mut schedule = Self {
            timing,
            members: BTreeMap::new(),
            next_ticket: 0,
        };
        for member in members {
            schedule.members.insert(member, Checked::new(true, now));
        }
        schedule
    }

    /// Takes over a change of members or monitor. Members that stay keep their health and their
    /// place in time, new ones are due at once, the others are forgotten.
    pub fn update(
        &mut self,
        timing: Timing,
        change: Change,
        members: impl IntoIterator<Item = SocketAddr>,
        now: Instant,
    ) {
        let mut before = std::mem::take(&mut self.members);
        for member in members {
            let checked = match before.remove(&member) {
                Some(mut checked) => {
                    match change {
                        Change::TimingOnly => checked.hurry(now + timing.delay),
                        Change::Question => checked.ask_again(now),
                    }
                    checked
                }
                None => Checked::new(false, now),
            };
            self.members.insert(member, checked);
        }
        self.timing = timing;
    }

    /// When [`Self::due`] has something to say next; `None` while every check is running.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.members.values().filter_map(Checked::due_at).min()
    }

    /// The checks to begin now, in the order of their members.
    pub fn due(&mut self, now: Instant) -> Vec<Order> {
        let mut orders = Vec::new();
        for (&member, checked) in &mut self.members {
            if checked.due_at().is_some_and(|at| at <= now) {
                let ticket = self.next_ticket;
                self.next_ticket += 1;
                checked.phase = Phase::Running { since: now, ticket };
                orders.push(Order { member, ticket });
            }
        }
        orders
    }

    /// Takes a result. Results that are not waited for any more change nothing: then `None`, as for
    /// a result that leaves the member as it is.
    pub fn finished(&mut self, order: Order, verdict: Verdict, now: Instant) -> Option<Transition> {
        let timing = self.timing;
        let checked = self.members.get_mut(&order.member)?;
        let Phase::Running { since, ticket } = checked.phase else {
            return None;
        };
        if ticket != order.ticket {
            return None;
        }
        let pause = if checked.begun {
            timing.delay
        } else {
            first_pause(order.member, timing.delay)
        };
        checked.begun = true;
        checked.phase = Phase::Waiting {
            until: (since + pause).max(now),
        };
        let from = checked.health;
        let to = checked.validate(verdict, timing);
        (from != to).then_some(Transition { from, to })
    }

    /// Whether a result would still be taken.
    pub fn awaits(&self, order: Order) -> bool {
        self.members.get(&order.member).is_some_and(|checked| {
            matches!(checked.phase, Phase::Running { ticket, .. } if ticket == order.ticket)
        })
    }

    /// The health of a member.
    pub fn health(&self, member: SocketAddr) -> Option<Health> {
        self.members.get(&member).map(|checked| checked.health)
    }

    /// All members with their health, by address.
    pub fn all(&self) -> impl Iterator<Item = (SocketAddr, Health)> + '_ {
        self.members
            .iter()
            .map(|(&member, checked)| (member, checked.health))
    }
}

// === impl Checked ===

impl Checked {
    fn new(hasty: bool, now: Instant) -> Self {
        Self {
            health: Health::Unknown,
            streak: 0,
            hasty,
            phase: Phase::Waiting { until: now },
            begun: false,
        }
    }

    fn due_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Waiting { until } => Some(until),
            Phase::Running { .. } => None,
        }
    }

    fn hurry(&mut self, latest: Instant) {
        if let Phase::Waiting { until } = &mut self.phase {
            *until = latest.min(*until);
        }
    }

    fn ask_again(&mut self, now: Instant) {
        self.streak = 0;
        self.begun = false;
        self.phase = Phase::Waiting { until: now };
    }

    fn validate(&mut self, verdict: Verdict, timing: Timing) -> Health {
        let (against, needed, other) = match (self.health, verdict) {
            (_, Verdict::Unclear) => return self.health,
            (Health::Unknown, Verdict::Good) => (true, 1, Health::Up),
            (Health::Unknown, Verdict::Bad) if self.hasty => (true, 1, Health::Down),
            (Health::Unknown | Health::Up, Verdict::Bad) => {
                (true, timing.max_retries_down, Health::Down)
            }
            (Health::Down, Verdict::Good) => (true, timing.max_retries, Health::Up),
            (Health::Up, Verdict::Good) => (false, 0, Health::Up),
            (Health::Down, Verdict::Bad) => (false, 0, Health::Down),
        };
        self.streak = if against {
            self.streak.saturating_add(1)
        } else {
            0
        };
        if against && self.streak >= needed.max(1) {
            self.health = other;
            self.streak = 0;
        }
        self.health
    }
}

/// The pause after a member's first check: between half and all of `delay`, by a hash of its
/// address, so that members that were all checked at once when the pool started drift apart and
/// stay so.
fn first_pause(member: SocketAddr, delay: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    member.hash(&mut hasher);
    let share = (hasher.finish() >> 11) as f64 / (1u64 << 53) as f64;
    delay.mul_f64(0.5 + share / 2.0)
}

#[cfg(test)]
mod tests;
