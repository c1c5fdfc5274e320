use jiff::Timestamp;
use landfall_engine::report::Event;
use landfall_model::{ServiceKey, Uid};
use landfall_testkit::svc;

use super::correlator::{DISTINCT, MOST};
use super::occurrence::{LONGEST_INSTANCE, LONGEST_NOTE, action_of};
use super::queue::{Pending, QUEUE};
use super::*;

fn occurrence(service: &str, message: &str) -> Occurrence {
    let event = Event {
        reason: "SyncLoadBalancerFailed",
        warning: true,
        message: message.to_owned(),
    };
    let row = svc(service).with(|row| row.uid = Uid::new(service)).row();
    Occurrence {
        at: Timestamp::UNIX_EPOCH,
        ..Occurrence::now(&row, &event)
    }
}

fn reporter(instance: &str) -> Reporter {
    Reporter {
        controller: "landfall.dev/controller",
        instance: instance.to_owned(),
    }
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

#[test]
fn a_repeated_event_is_counted_and_after_a_while_created_again() {
    let mut correlator = Correlator::default();
    let begin = Instant::now();
    let mut take = |what: &Occurrence, fresh: &str, after| {
        correlator.take(what, 1, fresh.to_owned(), begin + minutes(after))
    };
    let create = |name: &str, note: &str| Sending::Create(name.to_owned(), note.to_owned(), 1);
    let (no, other) = (occurrence("web", "no"), occurrence("web", "other"));
    assert_eq!(take(&no, "a", 0), create("a", "no"));
    assert_eq!(take(&no, "b", 9), Sending::Count("a".to_owned(), 2));
    assert_eq!(take(&other, "c", 9), create("c", "other"));
    assert_eq!(take(&no, "d", 18), Sending::Count("a".to_owned(), 3));
    assert_eq!(take(&no, "e", 28), create("e", "no"));
}

#[test]
fn what_happened_several_times_before_it_was_sent_is_counted() {
    let mut correlator = Correlator::default();
    let now = Instant::now();
    let what = occurrence("web", "no");
    assert_eq!(
        correlator.take(&what, 3, "a".to_owned(), now),
        Sending::Create("a".to_owned(), "no".to_owned(), 3)
    );
    assert_eq!(
        correlator.take(&what, 2, "b".to_owned(), now),
        Sending::Count("a".to_owned(), 5)
    );
    let body = what.body("a", "no", 3, &reporter("replica-1"));
    assert_eq!(body["series"]["count"], 3);
    assert_eq!(
        what.body("a", "no", 1, &reporter("replica-1"))
            .get("series"),
        None
    );
}

#[test]
fn messages_of_one_reason_that_never_end_become_one_event() {
    let mut correlator = Correlator::default();
    let now = Instant::now();
    let mut take = |number: usize| {
        let what = occurrence("web", &format!("request {number}"));
        correlator.take(&what, 1, format!("e{number}"), now)
    };
    for number in 0..DISTINCT {
        assert!(matches!(take(number), Sending::Create(..)), "{number}");
    }
    assert_eq!(
        take(10),
        Sending::Create(
            "e10".to_owned(),
            "(combined from similar events): request 10".to_owned(),
            1
        )
    );
    assert_eq!(take(11), Sending::Count("e10".to_owned(), 2));
    assert_eq!(take(3), Sending::Count("e3".to_owned(), 2));
}

#[test]
fn what_waits_is_joined_and_what_is_too_much_is_counted() {
    let mut pending = Pending::default();
    for number in 0..3 {
        pending.push(occurrence("web", &number.to_string()));
    }
    pending.push(occurrence("api", "no"));
    let (first, times) = pending.pop().unwrap();
    assert_eq!((first, times), (occurrence("web", "2"), 3));
    assert_eq!(pending.pop().unwrap(), (occurrence("api", "no"), 1));
    assert_eq!(pending.pop(), None);
    let of = |pending: &Pending| (pending.counts.aggregated, pending.counts.dropped);
    assert_eq!(of(&pending), (2, 0));
    for number in 0..QUEUE + 5 {
        pending.push(occurrence(&format!("web-{number}"), "no"));
    }
    pending.push(occurrence("web-0", "again"));
    assert_eq!(of(&pending), (3, 5));
    assert_eq!(pending.waiting.len(), QUEUE);
    assert_eq!(pending.pop().unwrap(), (occurrence("web-0", "again"), 2));
}

#[test]
fn a_namespace_with_many_events_neither_drops_nor_delays_those_of_another() {
    let mut pending = Pending::default();
    let of = |service: &str, namespace: &str| {
        let mut occurrence = occurrence(service, "no");
        occurrence.key = ServiceKey::new(namespace, service);
        occurrence
    };
    for number in 0..QUEUE {
        pending.push(of(&format!("web-{number}"), "many"));
    }
    for name in ["one", "two"] {
        pending.push(of(name, "few"));
    }
    assert_eq!(pending.waiting.len(), QUEUE);
    assert_eq!(pending.counts.dropped, 2);
    let sent = |it: Option<(Occurrence, u32)>| it.unwrap().0.key.to_string();
    let sent: Vec<String> = (0..4).map(|_| sent(pending.pop())).collect();
    assert_eq!(sent, ["many/web-0", "few/one", "many/web-1", "few/two"]);
    let left = std::iter::from_fn(|| pending.pop()).count();
    assert_eq!(left, QUEUE - 4);
    assert!(pending.waiting.is_empty());
}

#[test]
fn a_service_that_says_too_much_is_cut_short_and_no_other() {
    let mut correlator = Correlator::default();
    let now = Instant::now();
    let mut sent = |service: &str, number: u32, now| {
        let what = occurrence(service, &number.to_string());
        correlator.take(&what, 1, "x".to_owned(), now) != Sending::Nothing
    };
    let count = (0..100).filter(|number| sent("loud", *number, now)).count();
    assert_eq!(count, 25);
    assert!(sent("calm", 0, now));
    assert!(!sent("loud", 101, now + minutes(4)));
    assert!(sent("loud", 102, now + minutes(10)));
}

#[test]
fn memory_of_what_was_said_is_bounded() {
    let mut correlator = Correlator::default();
    let now = Instant::now();
    for number in 0..10_000 {
        let what = occurrence(&format!("web-{number}"), "no");
        correlator.take(
            &what,
            1,
            "x".to_owned(),
            now + Duration::from_millis(number),
        );
    }
    let kept = [
        correlator.series.len(),
        correlator.similar.len(),
        correlator.budgets.len(),
    ];
    assert!(kept.iter().all(|kept| *kept <= MOST), "{kept:?}");
}

#[test]
fn an_event_fits_into_the_api_servers_limits() {
    let long = occurrence("web", &"é".repeat(2000));
    let body = long.body("web.1", &"é".repeat(2000), 1, &reporter(&"i".repeat(300)));
    let length = |key: &str| body[key].as_str().unwrap().len();
    assert!(length("note") <= LONGEST_NOTE && length("reportingInstance") <= LONGEST_INSTANCE);
    assert!(body["note"].as_str().unwrap().ends_with('…'));
    assert_eq!(body["type"], "Warning");
    assert_eq!(body["eventTime"], "1970-01-01T00:00:00.000000Z");
    assert_eq!(action_of("EnsuredLoadBalancer"), "Ensure");
    assert_eq!(action_of("DeletingLoadBalancer"), "Delete");
    assert_eq!(action_of("SyncLoadBalancerFailed"), "Sync");
}
