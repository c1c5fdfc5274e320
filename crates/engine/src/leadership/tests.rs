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
        serving: false,
        declares: false,
        unproven: false,
    }
}

/// A record that its holder made.
fn made_by(holder: &str) -> Record {
    Record {
        unproven: true,
        ..held_by(holder)
    }
}

fn decided(record: Option<&Record>, renewed: Option<u64>, now: u64) -> Decision {
    decided_if(record, renewed, now, false)
}

fn decided_if(record: Option<&Record>, renewed: Option<u64>, now: u64, blind: bool) -> Decision {
    let begin = begin();
    let standing = ReplicaView {
        identity: "me",
        record,
        seen_at: begin,
        never_seen: false,
        marked: true,
        first: false,
        renewed_at: renewed.map(|at| begin + seconds(at)),
        blind,
        able: true,
    };
    decide(&standing, &TIMES, begin + seconds(now))
}

/// The same for the whole test run, so that decisions can be compared.
fn begin() -> Instant {
    static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *BEGIN.get_or_init(Instant::now)
}

#[test]
fn a_lease_that_was_given_up_is_acquired() {
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
fn a_lease_of_our_own_that_is_longer_than_any_that_is_believed_holds() {
    let times = Times {
        lease: LONGEST_LEASE * 2,
        ..TIMES
    };
    let record = held_by("other");
    let standing = ReplicaView {
        identity: "me",
        record: Some(&record),
        seen_at: begin(),
        never_seen: false,
        marked: true,
        first: false,
        renewed_at: None,
        blind: false,
        able: true,
    };
    assert_eq!(
        decide(&standing, &times, begin()),
        Decision::Wait(begin() + LONGEST_LEASE * 2)
    );
}

#[test]
fn a_lease_that_is_not_there_is_waited_for_since_its_holder_may_not_know() {
    let ends = Decision::Wait(begin() + seconds(10));
    assert_eq!(decided(None, None, 0), ends);
    assert_eq!(decided(None, None, 9), ends);
    assert_eq!(decided(None, None, 10), Decision::Acquire);
}

#[test]
fn a_lease_that_was_never_there_is_made_at_once() {
    let view = |blind| ReplicaView {
        identity: "me",
        record: None,
        seen_at: begin(),
        never_seen: true,
        marked: false,
        first: false,
        renewed_at: None,
        blind,
        able: true,
    };
    assert_eq!(decide(&view(false), &TIMES, begin()), Decision::Acquire);
    let later = Decision::Wait(begin() + TIMES.retry);
    assert_eq!(decide(&view(true), &TIMES, begin()), later);
    let mut sight = Observation::new(begin());
    sight.take(None, true, &TIMES, begin());
    assert!(sight.has_never_seen());
    sight.take(Some(()), false, &TIMES, begin());
    sight.take(None, false, &TIMES, begin());
    assert!(!sight.has_never_seen());
}

#[test]
fn a_lease_that_a_replica_made_itself_is_held_for_a_while_before_it_leads() {
    let made = made_by("me");
    // A quarter longer than the renew deadline: clocks run unevenly.
    let ends = Decision::Wait(begin() + Duration::from_millis(12_500));
    assert_eq!(decided(Some(&made), None, 0), ends);
    assert_eq!(decided(Some(&made), None, 12), ends);
    assert_eq!(decided(Some(&made), None, 13), Decision::Acquire);
    // The leader of before has put it back.
    assert_eq!(decided(Some(&made), Some(4), 6), Decision::Renew);
}

/// What a replica decides that does not lead, and has seen this record since `begin`.
fn decided_by(marked: bool, first: bool, record: &Record, now: u64) -> Decision {
    let standing = ReplicaView {
        identity: "me",
        record: Some(record),
        seen_at: begin(),
        never_seen: false,
        marked,
        first,
        renewed_at: None,
        blind: false,
        able: true,
    };
    decide(&standing, &TIMES, begin() + seconds(now))
}

#[test]
fn the_first_replica_that_ever_leads_waits_for_none() {
    let made = made_by("me");
    assert_eq!(decided_by(true, true, &made, 0), Decision::Acquire);
    assert_eq!(
        decided_by(true, false, &made, 0),
        Decision::Wait(begin() + Duration::from_millis(12_500))
    );
}

#[test]
fn no_replica_leads_before_the_marker_exists() {
    for record in [made_by("me"), held_by("me"), held_by("")] {
        assert_eq!(decided_by(false, false, &record, 0), Decision::Mark);
    }
    let other = held_by("other");
    let wait = Decision::Wait(begin() + seconds(15));
    assert_eq!(decided_by(false, false, &other, 14), wait);
    assert_eq!(decided_by(false, false, &other, 15), Decision::Mark);
}

#[test]
fn a_replica_is_the_first_only_if_it_made_the_marker_and_nothing_is_served() {
    assert!(Marker::Made.is_first(Some(false)));
    assert!(!Marker::Made.is_first(Some(true)));
    assert!(!Marker::Made.is_first(None), "Services could not be read");
    assert!(!Marker::NotMade.is_first(Some(false)));
}

#[test]
fn a_leader_puts_a_deleted_lease_back_at_once() {
    assert_eq!(decided(None, Some(4), 5), Decision::Renew);
    assert_eq!(decided(None, Some(4), 13), Decision::Renew);
    // Too late: another one may have made it by now.
    assert_eq!(decided(None, Some(4), 14), Decision::StepDown);
}

#[test]
fn a_replica_that_is_not_able_takes_nothing_and_gives_up_what_it_holds() {
    let unable = |record: Option<&Record>, renewed: Option<u64>, now: u64| {
        let standing = ReplicaView {
            identity: "me",
            record,
            seen_at: begin(),
            never_seen: false,
            marked: true,
            first: false,
            renewed_at: renewed.map(|at| begin() + seconds(at)),
            blind: false,
            able: false,
        };
        decide(&standing, &TIMES, begin() + seconds(now))
    };
    let later = Decision::Wait(begin() + seconds(42));
    for record in [held_by(""), held_by("me"), held_by("other")] {
        assert_eq!(unable(Some(&record), None, 40), later, "{record:?}");
    }
    assert_eq!(unable(None, None, 40), later);
    let mine = held_by("me");
    assert_eq!(unable(Some(&mine), Some(4), 5), Decision::GiveUp);
    // It is not its own any more, or may not be.
    assert_eq!(
        unable(Some(&held_by("other")), Some(4), 5),
        Decision::StepDown
    );
    assert_eq!(unable(Some(&mine), Some(4), 14), Decision::StepDown);
}

#[test]
fn a_leader_that_does_not_come_to_work_lets_others_have_their_turn_and_waits_longer_the_next_time()
{
    let at = |count| begin() + seconds(count);
    let mut candidacy = Candidacy::new(&Times::default());
    assert_eq!(candidacy.validate(None, false, at(0)), (true, None));
    assert_eq!(
        candidacy.validate(Some(1), false, at(1)),
        (true, Some(at(61)))
    );
    assert_eq!(
        candidacy.validate(Some(1), false, at(60)),
        (true, Some(at(61)))
    );
    assert_eq!(
        candidacy.validate(Some(1), false, at(61)),
        (false, Some(at(76)))
    );
    assert_eq!(
        candidacy.validate(None, false, at(70)),
        (false, Some(at(76)))
    );
    // No other one wanted it: the term may be the same.
    assert_eq!(candidacy.validate(None, false, at(76)), (true, None));
    assert_eq!(
        candidacy.validate(Some(1), false, at(77)),
        (true, Some(at(197)))
    );
    // In a term that ends because another replica leads nothing has failed.
    assert_eq!(candidacy.validate(None, false, at(90)), (true, None));
    assert_eq!(
        candidacy.validate(Some(2), false, at(91)),
        (true, Some(at(211)))
    );
    assert_eq!(candidacy.validate(Some(2), true, at(100)), (true, None));
    assert_eq!(
        candidacy.validate(Some(2), false, at(101)),
        (true, Some(at(161)))
    );
}

#[test]
fn a_leader_that_loses_the_lead_for_moments_only_gets_no_longer_turn_by_that() {
    let at = |count| begin() + seconds(count);
    let mut candidacy = Candidacy::new(&Times::default());
    for second in (0..60).step_by(5) {
        let idle = candidacy.validate(Some(1), false, at(second));
        assert_eq!(idle, (true, Some(at(60))), "after {second} s");
        assert_eq!(
            candidacy.validate(None, false, at(second + 3)),
            (true, None)
        );
    }
    assert_eq!(
        candidacy.validate(Some(1), false, at(60)),
        (false, Some(at(75)))
    );
}

#[test]
fn others_have_their_turn_for_as_long_as_they_wait_for_a_lease_that_could_not_be_given_up() {
    let at = |count| begin() + seconds(count);
    for (lease, rest) in [(4, 15), (16, 16 + 8), (120, 120 + 60), (300, 300 + 150)] {
        let times = Times::of_lease(seconds(lease));
        let mut candidacy = Candidacy::new(&times);
        candidacy.validate(Some(1), false, at(0));
        let turn = seconds(60 + rest);
        let until = begin() + turn;
        let rests = candidacy.validate(Some(1), false, at(60));
        assert_eq!(rests, (false, Some(until)), "a Lease of {lease} s");
        // One that still names this replica, and was renewed last when it was given up.
        let unchanged = Record {
            lease: times.lease,
            ..held_by("me")
        };
        let follower = ReplicaView {
            identity: "other",
            record: Some(&unchanged),
            seen_at: at(60) + times.retry / 2,
            never_seen: false,
            marked: true,
            first: false,
            renewed_at: None,
            blind: false,
            able: true,
        };
        let look = begin() + turn.saturating_sub(times.retry / 2);
        assert_eq!(decide(&follower, &times, look), Decision::Acquire);
    }
}

#[test]
fn nothing_is_acquired_on_the_word_of_a_look_that_failed() {
    let other = held_by("other");
    let again = Decision::Wait(begin() + seconds(42));
    assert_eq!(decided_if(Some(&other), None, 40, true), again);
    assert_eq!(decided_if(None, None, 40, true), again);
    // The one that wrote last may try to go on: the API server refuses it if it was not the last.
    let mine = held_by("me");
    assert_eq!(decided_if(Some(&mine), None, 40, true), Decision::Acquire);
}

#[test]
fn a_holder_that_asks_for_years_is_waited_for_minutes() {
    let greedy = Record {
        lease: seconds(1 << 31),
        ..held_by("nonsense")
    };
    assert_eq!(
        decided(Some(&greedy), None, 5),
        Decision::Wait(begin() + LONGEST_LEASE)
    );
    assert_eq!(decided(Some(&greedy), None, 300), Decision::Acquire);
}

#[test]
fn the_usual_times_replace_a_dead_leader_within_five_seconds() {
    let usual = Times::default();
    assert_eq!(usual.validate(), Ok(()));
    // From its last renewal to the look that sees it, and then the whole Lease.
    assert!(usual.lease + usual.retry / 2 <= seconds(5));
    // One write a second.
    assert!(usual.retry >= seconds(1));
    for lease in 2..=300 {
        assert_eq!(Times::of_lease(seconds(lease)).validate(), Ok(()));
    }
}

#[test]
fn times_that_could_make_two_leaders_or_none_are_refused() {
    let millis = Duration::from_millis;
    let wrong = |lease: u64, deadline: u64, retry: u64| {
        let times = Times {
            lease: millis(lease),
            renew_deadline: millis(deadline),
            retry: millis(retry),
        };
        times.validate().unwrap_err()
    };
    assert!(wrong(1000, 600, 200).contains("from 2 to 300, not 1"));
    assert!(wrong(301_000, 600, 200).contains("not 301"));
    assert!(wrong(2500, 1200, 500).contains("whole number of seconds"));
    assert!(wrong(4000, 3300, 500).contains("renew deadline of 3.3 s"));
    assert!(wrong(4000, 4000, 500).contains("four fifths"));
    assert!(wrong(4000, 2500, 1300).contains("retry period of 1.3 s"));
    assert!(wrong(4000, 2500, 50).contains("shorter than 0.1 s"));
}

#[test]
fn time_during_which_nothing_was_seen_counts_for_no_one() {
    let mut sight = Observation::new(begin());
    assert!(sight.is_blind());
    let at = |second: u64| begin() + seconds(second);
    sight.take(Some("v1"), false, &TIMES, at(1));
    sight.take(Some("v1"), true, &TIMES, at(3));
    assert_eq!((sight.since(), sight.is_blind()), (at(1), false));
    // The API server was away, and its leader could not have renewed either.
    sight.fail();
    assert!(sight.is_blind());
    sight.take(Some("v1"), true, &TIMES, at(14));
    assert_eq!((sight.since(), sight.is_blind()), (at(14), false));
    sight.take(Some("v2"), false, &TIMES, at(15));
    assert_eq!((sight.since(), sight.seen()), (at(15), Some(&"v2")));
}

fn led() -> Course {
    let mut course = Course::default();
    assert_eq!(course.role(), Role::Standby);
    course.lead();
    assert_eq!(course.role(), Role::Leading { term: 1 });
    course
}

#[test]
fn a_leader_that_lost_its_lease_carries_on_until_another_one_serves() {
    let mut course = led();
    course.lose();
    assert_eq!(course.role(), Role::Carrying);
    let other = held_by("other");
    course.see(Some(&other), "me", true, begin());
    assert_eq!(course.role(), Role::Carrying);
    let serving = Record {
        serving: true,
        ..other
    };
    course.see(Some(&serving), "me", true, begin());
    assert_eq!(course.role(), Role::Standby);
    course.lead();
    assert_eq!(course.role(), Role::Leading { term: 2 });
}

#[test]
fn the_record_of_an_earlier_life_takes_nothing_from_a_replica_that_carries_from_its_start() {
    let earlier = Record {
        serving: true,
        ..held_by("me before")
    };
    let mut course = Course::carrying();
    for _ in 0..3 {
        course.see(Some(&earlier), "me", false, begin());
        assert_eq!(course.role(), Role::Carrying);
    }
    course.lead();
    assert_eq!(course.role(), Role::Leading { term: 1 });
    // Another one that lives renews it.
    let mut course = Course::carrying();
    let other = Record {
        serving: true,
        ..held_by("other")
    };
    course.see(Some(&other), "me", true, begin());
    assert_eq!(course.role(), Role::Carrying);
    course.see(Some(&other), "me", true, begin());
    assert_eq!(course.role(), Role::Standby);
}

#[test]
fn after_an_outage_in_which_no_other_led_the_term_goes_on() {
    let mut course = led();
    course.lose();
    course.see(Some(&held_by("me")), "me", false, begin());
    course.lead();
    assert_eq!(course.role(), Role::Leading { term: 1 });
}

#[test]
fn another_leader_is_noticed_even_if_it_was_never_seen() {
    // It took the Lease and gave it up again.
    let mut course = led();
    course.lose();
    course.see(Some(&held_by("")), "me", true, begin());
    course.lead();
    assert_eq!(course.role(), Role::Leading { term: 2 });
    // Whatever was in a Lease that is gone.
    course.lose();
    course.see(None, "me", true, begin());
    course.lead();
    assert_eq!(course.role(), Role::Leading { term: 3 });
    // Or in the one before a Lease that was made in the meantime.
    course.lose();
    course.see(Some(&made_by("me")), "me", true, begin());
    course.lead();
    assert_eq!(course.role(), Role::Leading { term: 4 });
}

#[test]
fn a_leader_that_puts_its_lease_back_has_not_lost_it() {
    let mut course = led();
    course.see(None, "me", true, begin());
    course.lead();
    assert_eq!(course.role(), Role::Leading { term: 1 });
}

#[test]
fn a_holder_of_a_version_that_does_not_say_so_is_taken_to_serve_after_a_while() {
    let mut course = led();
    course.lose();
    let other = held_by("other");
    let at = |second: u64| begin() + seconds(second);
    for second in [0, 10, 29] {
        course.see(Some(&other), "me", true, at(second));
        assert_eq!(course.role(), Role::Carrying, "after {second} s");
    }
    course.see(Some(&other), "me", false, at(30));
    assert_eq!(course.role(), Role::Standby);
}

#[test]
fn a_holder_that_says_that_it_does_not_serve_is_believed_for_as_long_as_it_says_so() {
    let mut lost = led();
    lost.lose();
    let idle = Record {
        declares: true,
        ..held_by("other")
    };
    let at = |second: u64| begin() + seconds(second);
    for mut course in [lost, Course::carrying()] {
        for second in 0..900 {
            course.see(Some(&idle), "me", true, at(second));
            assert_eq!(course.role(), Role::Carrying, "after {second} s");
        }
        let serving = Record {
            serving: true,
            ..idle.clone()
        };
        course.see(Some(&serving), "me", true, at(900));
        assert_eq!(course.role(), Role::Standby);
    }
}

#[test]
fn a_holder_that_does_nothing_is_never_taken_to_serve() {
    let mut course = led();
    course.lose();
    let nonsense = held_by("a typo");
    for second in [0, 30, 3000] {
        course.see(
            Some(&nonsense),
            "me",
            second == 0,
            begin() + seconds(second),
        );
        assert_eq!(course.role(), Role::Carrying);
    }
}

#[test]
fn a_successor_is_waited_for_as_long_as_there_may_be_one() {
    let waits = |record: Option<&Record>, now: u64| {
        awaits_successor(record, "me", begin(), &TIMES, begin() + seconds(now))
    };
    for unheld in [None, Some(&held_by("")), Some(&held_by("me"))] {
        assert!(waits(unheld, 5));
        assert!(!waits(unheld, 6), "no other replica is there");
    }
    assert!(waits(Some(&held_by("other")), 14));
    assert!(!waits(Some(&held_by("other")), 15));
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
}

/// A replica in an imagined cluster. Times are milliseconds; its own clock runs at a rate of its
/// own.
struct Replica {
    name: String,
    /// Its milliseconds per thousand of the true time.
    rate: u64,
    paused_until: u64,
    sight: Observation<(Record, u64)>,
    marked: bool,
    /// The version of the record that it made as the first.
    first: Option<u64>,
    renewed_at: Option<Instant>,
    request: Option<Request>,
}

/// What the server has: the record and its version.
type Stored = Option<(Record, u64)>;

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Read,
    Write,
    Mark,
}

/// A request under way.
struct Request {
    sent: Instant,
    purpose: Purpose,
    /// For a write: the version it is to replace; `None`: there is none.
    replaces: Option<u64>,
    arrives: u64,
    answered: u64,
    lost: bool,
    /// The record, and whether the write or the marker succeeded.
    answer: Option<(Stored, bool)>,
}

/// What chance decides for one replica in one tick.
#[derive(Clone, Copy, Debug)]
struct Chance {
    pause: u64,
    there: u64,
    back: u64,
    lost: bool,
    deleted: bool,
    restarted: bool,
}

impl Chance {
    /// A tick in which everything goes well.
    const NONE: Self = Self {
        pause: 0,
        there: 10,
        back: 10,
        lost: false,
        deleted: false,
        restarted: false,
    };
}

fn chance() -> impl Strategy<Value = Chance> {
    let pause = prop_oneof![20 => Just(0u64), 1 => 0..60_000u64];
    let latency = || prop_oneof![8 => 0..300u64, 2 => 0..14_000u64];
    let lost = prop::bool::weighted(0.1);
    let (deleted, restarted) = (prop::bool::weighted(0.04), prop::bool::weighted(0.04));
    let all = (pause, latency(), latency(), lost, deleted, restarted);
    all.prop_map(|(pause, there, back, lost, deleted, restarted)| Chance {
        pause,
        there,
        back,
        lost,
        deleted,
        restarted,
    })
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
        let (false, Some((stored, replaced))) = (request.lost, request.answer) else {
            return self.sight.fail();
        };
        if request.purpose == Purpose::Mark {
            self.marked = true;
            let made = self.sight.seen();
            let made = made.filter(|(record, _)| *record == made_by(&self.name));
            self.first = made.map(|it| it.1).filter(|_| replaced);
            return;
        }
        let same = self.sight.seen().map(|it| it.1) == stored.as_ref().map(|it| it.1);
        self.sight.take(stored, same, &TIMES, self.clock(now));
        let made = request.replaces.is_none();
        if replaced && (!made || self.renewed_at.is_some()) {
            self.renewed_at = Some(request.sent);
        }
    }

    fn act(&mut self, now: u64, chance: Chance) {
        let standing = ReplicaView {
            identity: &self.name,
            record: self.sight.seen().map(|it| &it.0),
            seen_at: self.sight.since(),
            never_seen: self.sight.has_never_seen(),
            marked: self.marked,
            first: self.first.is_some() && self.first == self.sight.seen().map(|it| it.1),
            renewed_at: self.renewed_at,
            blind: self.sight.is_blind(),
            able: true,
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
            purpose: match decision {
                Decision::Acquire | Decision::Renew => Purpose::Write,
                Decision::Mark => Purpose::Mark,
                Decision::Wait(_) | Decision::StepDown | Decision::GiveUp => Purpose::Read,
            },
            replaces: self.sight.seen().map(|it| it.1),
            arrives: now + chance.there,
            answered: now + chance.there + chance.back,
            lost: chance.lost,
            answer: None,
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever the delays, losses and pauses, and although clocks run unevenly, and the record is
    /// deleted and replicas are restarted now and then, no two replicas would write at the same
    /// moment; and without trouble one of them does. `fresh`: none led before.
    #[test]
    fn never_two_would_write_at_the_same_time(
        fresh in any::<bool>(),
        rates in proptest::collection::vec(900u64..1100, 2..5),
        chances in proptest::collection::vec(chance(), 600),
    ) {
        const TICK: u64 = 250;
        let mut server: Stored = (!fresh).then(|| (held_by(""), 1));
        let mut marker = false;
        let mut versions = 1;
        let mut lives = rates.len();
        let mut replicas: Vec<Replica> = rates
            .iter()
            .enumerate()
            .map(|(number, rate)| Replica {
                name: format!("replica-{number}"),
                rate: *rate,
                paused_until: 0,
                sight: Observation::new(begin()),
                marked: false,
                first: None,
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
                    let version = server.as_ref().map(|it| it.1);
                    let succeeds = match request.purpose {
                        Purpose::Read => false,
                        Purpose::Write => request.replaces == version,
                        Purpose::Mark => !std::mem::replace(&mut marker, true),
                    };
                    if succeeds && request.purpose == Purpose::Write {
                        versions += 1;
                        let record = match version {
                            Some(_) => held_by(&replica.name),
                            None => made_by(&replica.name),
                        };
                        server = Some((record, versions));
                    }
                    request.answer = Some((server.clone(), succeeds));
                }
                if replica.paused_until > now {
                    continue;
                }
                let chance = if tick % 4 == 0 { chances.next() } else { None };
                let chance = chance.unwrap_or(Chance::NONE);
                if chance.deleted {
                    server = None;
                }
                if chance.restarted {
                    lives += 1;
                    replica.name = format!("replica-{lives}");
                    replica.sight = Observation::new(replica.clock(now));
                    (replica.marked, replica.first) = (false, None);
                    replica.renewed_at = None;
                    replica.request = None;
                }
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
                prop_assert_eq!(writers.len(), 1, "no leader at {} ms", now);
            }
            if calm > 150_000 {
                break;
            }
        }
        prop_assert!(led, "the time without faults was too short");
    }
}
