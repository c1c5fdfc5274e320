use proptest::prelude::*;

use super::*;

const DELAY: Duration = Duration::from_secs(5);

fn timing(max_retries: u8, max_retries_down: u8) -> Timing {
    Timing {
        delay: DELAY,
        max_retries,
        max_retries_down,
    }
}

fn member(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], number))
}

/// Carries out the next check of a pool's only member with the given result.
fn check(schedule: &mut Schedule, verdict: Verdict) -> Option<Transition> {
    let now = schedule.next_deadline().unwrap();
    let [order] = schedule.due(now)[..] else {
        panic!("one check is due")
    };
    schedule.finished(order, verdict, now)
}

/// A schedule of one member, brought into a health.
fn in_health(health: Health, timing: Timing) -> Schedule {
    let mut schedule = Schedule::start(timing, [member(1)], Instant::now());
    match health {
        Health::Unknown => {}
        Health::Up => assert!(check(&mut schedule, Verdict::Good).is_some()),
        Health::Down => assert!(check(&mut schedule, Verdict::Bad).is_some()),
    }
    assert_eq!(schedule.health(member(1)), Some(health));
    schedule
}

fn joined(timing: Timing) -> Schedule {
    let now = Instant::now();
    let mut schedule = Schedule::start(timing, [], now);
    schedule.update(timing, Change::TimingOnly, [member(1)], now);
    schedule
}

#[test]
fn each_health_answers_every_result_as_the_table_says() {
    use Health::{Down, Unknown, Up};
    use Verdict::{Bad, Good, Unclear};
    let cases: &[(Health, &[Verdict], Health)] = &[
        (Unknown, &[Good], Up),
        (Unknown, &[Bad], Down),
        (Unknown, &[Unclear], Unknown),
        (Unknown, &[Unclear, Bad], Down),
        (Up, &[Good], Up),
        (Up, &[Bad, Bad], Up),
        (Up, &[Bad, Bad, Bad], Down),
        (Up, &[Bad, Bad, Good, Bad, Bad], Up),
        (Up, &[Bad, Bad, Unclear, Bad], Down),
        (Up, &[Unclear, Unclear, Unclear, Unclear], Up),
        (Down, &[Bad, Bad, Bad], Down),
        (Down, &[Good], Down),
        (Down, &[Good, Good], Up),
        (Down, &[Good, Bad, Good], Down),
        (Down, &[Good, Unclear, Good], Up),
    ];
    for (from, verdicts, to) in cases {
        let mut schedule = in_health(*from, timing(2, 3));
        let mut last = None;
        for verdict in *verdicts {
            assert_eq!(
                last, None,
                "{from:?} {verdicts:?}: only the last result decides"
            );
            last = check(&mut schedule, *verdict);
        }
        assert_eq!(
            schedule.health(member(1)),
            Some(*to),
            "{from:?} {verdicts:?}"
        );
        let transition = (from != to).then_some(Transition {
            from: *from,
            to: *to,
        });
        assert_eq!(last, transition, "{from:?} {verdicts:?}");
    }
}

#[test]
fn a_member_that_joins_later_needs_as_many_failures_as_any_other() {
    let mut schedule = joined(timing(1, 3));
    assert_eq!(check(&mut schedule, Verdict::Bad), None);
    assert_eq!(check(&mut schedule, Verdict::Bad), None);
    let down = Transition {
        from: Health::Unknown,
        to: Health::Down,
    };
    assert_eq!(check(&mut schedule, Verdict::Bad), Some(down));
}

#[test]
fn every_member_is_due_when_the_pool_starts_and_none_twice() {
    let now = Instant::now();
    let mut schedule = Schedule::start(timing(1, 3), [member(1), member(2)], now);
    assert_eq!(schedule.next_deadline(), Some(now));
    let orders = schedule.due(now);
    assert_eq!(
        orders.iter().map(|order| order.member).collect::<Vec<_>>(),
        [member(1), member(2)]
    );
    assert_eq!(schedule.due(now + DELAY * 9), []);
    assert_eq!(schedule.next_deadline(), None);
}

#[test]
fn checks_spread_after_the_first_and_then_keep_the_delay() {
    let start = Instant::now();
    let members: Vec<_> = (1..=100).map(member).collect();
    let mut schedule = Schedule::start(timing(1, 3), members.clone(), start);
    for order in schedule.due(start) {
        schedule.finished(order, Verdict::Good, start);
    }
    let mut seconds = BTreeMap::new();
    for _ in &members {
        let now = schedule.next_deadline().unwrap();
        assert!((start + DELAY / 2..start + DELAY).contains(&now));
        for order in schedule.due(now) {
            schedule.finished(order, Verdict::Good, now + Duration::from_secs(1));
            let again = schedule.members[&order.member].due_at();
            assert_eq!(
                again,
                Some(now + DELAY),
                "counted from the start of the check"
            );
            *seconds.entry((now - start).as_millis() / 250).or_insert(0) += 1;
        }
    }
    assert!(
        seconds.len() >= 9 && seconds.values().all(|&count| count <= 25),
        "{seconds:?}"
    );
}

#[test]
fn a_check_that_took_longer_than_the_delay_is_followed_at_once() {
    let start = Instant::now();
    let mut schedule = Schedule::start(timing(1, 3), [member(1)], start);
    let order = schedule.due(start)[0];
    let late = start + DELAY * 3;
    schedule.finished(order, Verdict::Good, late);
    assert_eq!(schedule.next_deadline(), Some(late));
}

#[test]
fn an_update_keeps_members_that_stay_and_checks_new_ones_at_once() {
    let mut schedule = in_health(Health::Down, timing(2, 3));
    let planned = schedule.next_deadline().unwrap();
    let now = planned.checked_sub(Duration::from_secs(1)).unwrap();
    schedule.update(
        timing(2, 3),
        Change::TimingOnly,
        [member(1), member(2)],
        now,
    );
    assert_eq!(
        schedule.all().collect::<Vec<_>>(),
        [(member(1), Health::Down), (member(2), Health::Unknown)]
    );
    let orders = schedule.due(now);
    assert_eq!(orders.len(), 1);
    assert_eq!(orders[0].member, member(2));
    assert_eq!(schedule.next_deadline(), Some(planned));
}

#[test]
fn a_member_that_left_is_forgotten_and_its_late_result_is_not_taken() {
    let now = Instant::now();
    let mut schedule = Schedule::start(timing(1, 1), [member(1)], now);
    let order = schedule.due(now)[0];
    schedule.update(timing(1, 1), Change::TimingOnly, [], now);
    assert_eq!(schedule.finished(order, Verdict::Bad, now), None);
    assert_eq!(
        (schedule.all().count(), schedule.next_deadline()),
        (0, None)
    );

    schedule.update(timing(1, 1), Change::TimingOnly, [member(1)], now);
    let again = schedule.due(now)[0];
    assert!(!schedule.awaits(order) && schedule.awaits(again));
    assert_eq!(schedule.finished(order, Verdict::Bad, now), None);
    assert_eq!(schedule.health(member(1)), Some(Health::Unknown));
}

#[test]
fn a_shorter_delay_takes_hold_at_once() {
    let mut schedule = in_health(Health::Up, timing(1, 3));
    let now = Instant::now();
    let short = Timing {
        delay: Duration::from_millis(100),
        ..timing(1, 3)
    };
    schedule.update(short, Change::TimingOnly, [member(1)], now);
    assert_eq!(schedule.next_deadline(), Some(now + short.delay));
}

#[test]
fn another_question_keeps_health_but_is_asked_at_once_and_restarts_the_count() {
    let mut schedule = in_health(Health::Up, timing(1, 3));
    check(&mut schedule, Verdict::Bad);
    check(&mut schedule, Verdict::Bad);
    let now = Instant::now();
    schedule.update(timing(1, 3), Change::Question, [member(1)], now);
    assert_eq!(schedule.health(member(1)), Some(Health::Up));
    assert_eq!(schedule.next_deadline(), Some(now));
    assert_eq!(check(&mut schedule, Verdict::Bad), None);
    assert_eq!(check(&mut schedule, Verdict::Bad), None);
    assert!(check(&mut schedule, Verdict::Bad).is_some());
}

#[test]
fn a_result_to_the_question_before_is_not_taken() {
    let now = Instant::now();
    let mut schedule = Schedule::start(timing(1, 1), [member(1)], now);
    let order = schedule.due(now)[0];
    schedule.update(timing(1, 1), Change::Question, [member(1)], now);
    assert_eq!(schedule.finished(order, Verdict::Bad, now), None);
    assert_eq!(schedule.due(now).len(), 1);
}

fn verdicts() -> impl Strategy<Value = Vec<Verdict>> {
    let verdict = prop_oneof![
        3 => Just(Verdict::Good),
        3 => Just(Verdict::Bad),
        1 => Just(Verdict::Unclear),
    ];
    prop::collection::vec(verdict, 0..60)
}

proptest! {
    /// A naive model: looks back over the whole history instead of counting.
    #[test]
    fn health_follows_the_last_results_in_a_row(
        up in 1u8..=10,
        down in 1u8..=10,
        with_pool in any::<bool>(),
        history in verdicts(),
    ) {
        let mut schedule = if with_pool {
            in_health(Health::Unknown, timing(up, down))
        } else {
            joined(timing(up, down))
        };
        let mut clear = Vec::new();
        let mut health = Health::Unknown;
        for verdict in history {
            let transition = check(&mut schedule, verdict);
            if verdict != Verdict::Unclear {
                clear.push(verdict);
            }
            let row = |wanted| clear.iter().rev().take_while(|&&found| found == wanted).count();
            let decided = match health {
                _ if verdict == Verdict::Unclear => None,
                Health::Unknown if row(Verdict::Good) > 0 => Some(Health::Up),
                Health::Unknown if with_pool && row(Verdict::Bad) > 0 => Some(Health::Down),
                Health::Unknown | Health::Up if row(Verdict::Bad) >= usize::from(down) => {
                    Some(Health::Down)
                }
                Health::Down if row(Verdict::Good) >= usize::from(up) => Some(Health::Up),
                _ => None,
            };
            prop_assert_eq!(transition, decided.map(|to| Transition { from: health, to }));
            health = decided.unwrap_or(health);
            prop_assert_eq!(schedule.health(member(1)), Some(health));
        }
    }

    #[test]
    fn no_member_ever_waits_longer_than_the_delay(
        steps in prop::collection::vec((0u64..12_000, any::<bool>(), 0u16..4), 1..80),
    ) {
        let start = Instant::now();
        let mut now = start;
        let mut schedule = Schedule::start(timing(1, 3), (0..4).map(member), start);
        let mut running: Vec<Order> = Vec::new();
        for (pass, finish, count) in steps {
            now += Duration::from_millis(pass);
            running.extend(schedule.due(now));
            if finish {
                for order in running.drain(..) {
                    schedule.finished(order, Verdict::Good, now);
                }
            } else {
                schedule.update(timing(1, 3), Change::TimingOnly, (0..count).map(member), now);
            }
            for checked in schedule.members.values() {
                match checked.phase {
                    Phase::Waiting { until } => prop_assert!(until <= now + DELAY),
                    Phase::Running { since, .. } => prop_assert!(since <= now),
                }
            }
        }
    }
}
