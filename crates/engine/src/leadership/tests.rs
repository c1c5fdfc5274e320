use proptest::prelude::*;

use super::*;

const TIMES: Times = Times {
    lease: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry: Duration::from_secs(2),
};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn held_by(holder: &str) -> Record {
    Record {
        holder: holder.to_owned(),
        lease: TIMES.lease,
    }
}

fn decided(record: Option<&Record>, renewed: Option<u64>, now: u64) -> Decision {
    let begin = begin();
    let standing = Standing {
        identity: "me",
        record,
        seen_at: begin,
        renewed_at: renewed.map(|at| begin + seconds(at)),
    };
    decide(&standing, &TIMES, begin + seconds(now))
}

/// The same for the whole test run, so that decisions can be compared.
fn begin() -> Instant {
    static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *BEGIN.get_or_init(Instant::now)
}

#[test]
fn a_lease_that_nobody_holds_is_acquired() {
    assert_eq!(decided(None, None, 0), Decision::Acquire);
    assert_eq!(decided(Some(&held_by("")), None, 0), Decision::Acquire);
    // Our own attempt, whose answer was lost.
    assert_eq!(decided(Some(&held_by("me")), None, 0), Decision::Acquire);
}

#[test]
fn anothers_lease_is_waited_for_from_when_it_was_seen() {
    let other = held_by("other");
    assert_eq!(
        decided(Some(&other), None, 0),
        Decision::Wait(begin() + seconds(15))
    );
    assert_eq!(
        decided(Some(&other), None, 14),
        Decision::Wait(begin() + seconds(15))
    );
    assert_eq!(decided(Some(&other), None, 15), Decision::Acquire);
    // What the holder asked for holds, even if it is longer than our own; a shorter one does not.
    let long = Record {
        lease: seconds(60),
        ..other.clone()
    };
    assert_eq!(
        decided(Some(&long), None, 15),
        Decision::Wait(begin() + seconds(60))
    );
    let short = Record {
        lease: seconds(1),
        ..other
    };
    assert_eq!(
        decided(Some(&short), None, 5),
        Decision::Wait(begin() + seconds(15))
    );
}

#[test]
fn a_leader_renews_in_time_and_steps_down_when_it_cant() {
    let mine = held_by("me");
    assert_eq!(
        decided(Some(&mine), Some(4), 5),
        Decision::Wait(begin() + seconds(6))
    );
    assert_eq!(decided(Some(&mine), Some(4), 6), Decision::Renew);
    assert_eq!(decided(Some(&mine), Some(4), 13), Decision::Renew);
    assert_eq!(decided(Some(&mine), Some(4), 14), Decision::StepDown);
}

#[test]
fn a_leader_whose_lease_another_holds_steps_down_at_once() {
    assert_eq!(
        decided(Some(&held_by("other")), Some(4), 5),
        Decision::StepDown
    );
    assert_eq!(decided(Some(&held_by("")), Some(4), 5), Decision::StepDown);
    assert_eq!(decided(None, Some(4), 5), Decision::StepDown);
}

/// A replica in an imagined cluster. Times are milliseconds; its own clock runs at a rate of its own.
struct Replica {
    name: String,
    /// Its milliseconds per thousand of everybody's.
    rate: u64,
    paused_until: u64,
    record: Option<Record>,
    version: u64,
    seen_at: Instant,
    renewed_at: Option<Instant>,
    request: Option<Request>,
}

/// A request under way.
struct Request {
    sent: Instant,
    /// The version it is to replace; `None`: it only reads.
    replaces: Option<u64>,
    arrives: u64,
    answered: u64,
    lost: bool,
    answer: Option<(Record, u64, bool)>,
}

/// What chance decides for one replica in one tick.
#[derive(Clone, Copy, Debug)]
struct Chance {
    pause: u64,
    there: u64,
    back: u64,
    lost: bool,
}

fn chance() -> impl Strategy<Value = Chance> {
    let pause = prop_oneof![20 => Just(0u64), 1 => 0..60_000u64];
    let latency = || prop_oneof![8 => 0..300u64, 2 => 0..14_000u64];
    (pause, latency(), latency(), prop::bool::weighted(0.1)).prop_map(
        |(pause, there, back, lost)| Chance {
            pause,
            there,
            back,
            lost,
        },
    )
}

impl Replica {
    fn clock(&self, now: u64) -> Instant {
        begin() + Duration::from_millis(now * self.rate / 1000)
    }

    /// Whether it would write now, if it ran now.
    fn would_write(&self, now: u64) -> bool {
        self.renewed_at
            .is_some_and(|at| self.clock(now) < at + TIMES.renew_deadline)
    }

    fn take_answer(&mut self, now: u64) {
        let Some(request) = self.request.take_if(|request| request.answered <= now) else {
            return;
        };
        let (false, Some((record, version, replaced))) = (request.lost, request.answer) else {
            return;
        };
        if version != self.version {
            self.seen_at = self.clock(now);
        }
        (self.record, self.version) = (Some(record), version);
        if replaced {
            self.renewed_at = Some(request.sent);
        }
    }

    fn act(&mut self, now: u64, chance: Chance) {
        let standing = Standing {
            identity: &self.name,
            record: self.record.as_ref(),
            seen_at: self.seen_at,
            renewed_at: self.renewed_at,
        };
        let decision = decide(&standing, &TIMES, self.clock(now));
        if decision == Decision::StepDown {
            self.renewed_at = None;
        }
        if self.request.is_some() {
            return;
        }
        self.request = Some(Request {
            sent: self.clock(now),
            replaces: matches!(decision, Decision::Acquire | Decision::Renew)
                .then_some(self.version),
            arrives: now + chance.there,
            answered: now + chance.there + chance.back,
            lost: chance.lost,
            answer: None,
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever the delays, losses and pauses, and although clocks run unevenly, no two replicas
    /// would write at the same moment; and without trouble one of them does.
    #[test]
    fn never_two_would_write_at_the_same_time(
        rates in proptest::collection::vec(900u64..1100, 2..5),
        chances in proptest::collection::vec(chance(), 600),
    ) {
        const TICK: u64 = 250;
        let mut server = (held_by(""), 1u64);
        let mut replicas: Vec<Replica> = rates
            .iter()
            .enumerate()
            .map(|(number, rate)| Replica {
                name: format!("replica-{number}"),
                rate: *rate,
                paused_until: 0,
                record: None,
                version: 0,
                seen_at: begin(),
                renewed_at: None,
                request: None,
            })
            .collect();
        let mut chances = chances.into_iter();
        let mut led = false;
        let mut calm = 0;
        for tick in 0..20_000u64 {
            let now = tick * TICK;
            for replica in &mut replicas {
                // The server answers also while the replica is paused.
                if let Some(request) = &mut replica.request
                    && request.arrives <= now
                    && request.answer.is_none()
                {
                    let replaced = request.replaces == Some(server.1);
                    if replaced {
                        server = (held_by(&replica.name), server.1 + 1);
                    }
                    request.answer = Some((server.0.clone(), server.1, replaced));
                }
                if replica.paused_until > now {
                    continue;
                }
                let none = Chance { pause: 0, there: 10, back: 10, lost: false };
                let chance = if tick % 4 == 0 { chances.next().unwrap_or(none) } else { none };
                if chance.pause > 0 {
                    replica.paused_until = now + chance.pause;
                    continue;
                }
                replica.take_answer(now);
                replica.act(now, chance);
            }
            let writers: Vec<&str> = replicas
                .iter()
                .filter(|replica| replica.would_write(now))
                .map(|replica| replica.name.as_str())
                .collect();
            prop_assert!(writers.len() <= 1, "at {now} ms: {writers:?}");
            calm = if chances.len() == 0 { calm + TICK } else { 0 };
            // Pauses and delays of the troubled time are over by then.
            if calm > 120_000 {
                led = true;
                prop_assert_eq!(writers.len(), 1, "nobody leads at {} ms", now);
            }
            if calm > 150_000 {
                break;
            }
        }
        prop_assert!(led, "the time without trouble was too short to tell");
    }
}
