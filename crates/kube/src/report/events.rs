//! Events: what happened, for people. Best effort, behind a bounded queue, and never in the way of
//! a pass.
//!
//! What waits for its turn is joined: of one reason at one Service the newest message waits, with a
//! count. The same thing said again within ten minutes becomes a count on the first event instead
//! of another one, and so do messages that differ, beyond the tenth of one reason. A Service that
//! says too much is cut short. Whatever is not sent as an event of its own is counted.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::Method;
use jiff::Timestamp;
use landfall_engine::report::{Event, EventCounts};
use landfall_model::rows::ServiceRow;
use landfall_model::{ServiceKey, Uid};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::{self, ApiError, Ask, JSON, MERGE};
use crate::connect::Connection;
use crate::lease::{WriteGuard, micro};
use crate::retry::dice;

/// Something that happened to a Service at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Occurrence {
    saying: EventKey,
    key: ServiceKey,
    version: Option<Arc<str>>,
    at: Timestamp,
}

/// What is said, whenever it is said.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EventKey {
    uid: Uid,
    reason: &'static str,
    warning: bool,
    message: String,
}

/// Takes occurrences without ever waiting.
#[derive(Debug)]
pub(super) struct Announcer(Arc<Queue>);

/// What is shared with the task that sends.
#[derive(Debug, Default)]
struct Queue {
    pending: Mutex<Pending>,
    filled: Notify,
}

/// What is still to be sent: pure.
#[derive(Debug, Default)]
struct Pending {
    order: VecDeque<Kind>,
    waiting: HashMap<Kind, (Occurrence, u32)>,
    counts: EventCounts,
    /// Occurrences are being dropped, and that was logged.
    overflowing: bool,
}

/// Occurrences that are joined while they wait.
type Kind = (Uid, &'static str);

/// What to send: pure.
#[derive(Debug, Default)]
struct Correlator {
    series: HashMap<EventKey, Series>,
    /// Hashes of the messages of one reason.
    similar: HashMap<Kind, Similar>,
    budgets: HashMap<Uid, Budget>,
}

#[derive(Clone, Debug)]
struct Series {
    name: String,
    count: u32,
    last: Instant,
}

#[derive(Clone, Debug)]
struct Similar {
    messages: HashSet<u64>,
    last: Instant,
}

/// How much a Service may still say.
#[derive(Clone, Copy, Debug)]
struct Budget {
    left: f64,
    at: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Sending {
    /// A new event of this name, with this message, for so many occurrences.
    Create(String, String, u32),
    /// It was said before, so many times by now.
    Count(String, u32),
    /// Nothing: it has said too much.
    Nothing,
}

/// Sends what the correlator says.
struct Sender {
    connection: Connection,
    guard: WriteGuard,
    instance: String,
    correlator: Correlator,
}

const WINDOW: Duration = Duration::from_secs(600);
/// As Kubernetes' own clients have it: so many at once, and one more per five minutes.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_secs(300);

/// Messages of one reason at one Service that are events of their own, as Kubernetes' own clients
/// have it.
const DISTINCT: usize = 10;

/// Reasons at Services that may wait at once: enough for one event of each of as many Services.
const QUEUE: usize = 16_384;
/// Sayings and budgets that are remembered; the longest unheard go first.
const MOST: usize = 2048;
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long what is queued may take at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
const PAUSES: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
];
/// The longest that the API server may ask to be left alone for.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

const CONTROLLER: &str = "landfall.dev/controller";
/// The API server's limits.
const LONGEST_NOTE: usize = 1024;
const LONGEST_INSTANCE: usize = 128;

// === impl Occurrence ===

impl Occurrence {
    pub(super) fn now(service: &ServiceRow, event: &Event) -> Self {
        Self {
            saying: EventKey {
                uid: service.uid.clone(),
                reason: event.reason,
                warning: event.warning,
                message: shortened(&event.message, LONGEST_NOTE),
            },
            key: service.key.clone(),
            version: service.resource_version.clone(),
            at: Timestamp::now(),
        }
    }

    fn body(&self, name: &str, note: &str, count: u32, instance: &str) -> Value {
        let mut regarding = json!({
            "apiVersion": "v1", "kind": "Service", "namespace": self.key.namespace(),
            "name": self.key.name(), "uid": self.saying.uid.as_str(),
        });
        if let Some(version) = &self.version {
            regarding["resourceVersion"] = (**version).into();
        }
        let mut body = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": self.key.namespace()},
            "eventTime": micro(self.at),
            "reportingController": CONTROLLER,
            "reportingInstance": shortened(instance, LONGEST_INSTANCE),
            "action": action_of(self.saying.reason),
            "reason": self.saying.reason,
            "type": if self.saying.warning { "Warning" } else { "Normal" },
            "note": shortened(note, LONGEST_NOTE),
            "regarding": regarding,
        });
        if count > 1 {
            body["series"] = json!({"count": count, "lastObservedTime": micro(self.at)});
        }
        body
    }
}

fn shortened(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    format!(
        "{}…",
        &text[..text.floor_char_boundary(longest - '…'.len_utf8())]
    )
}

/// What was being done when it happened.
fn action_of(reason: &str) -> &'static str {
    if reason.starts_with("Ensur") {
        "Ensure"
    } else if reason.starts_with("Delet") {
        "Delete"
    } else {
        "Sync"
    }
}

// === impl EventKey ===

impl EventKey {
    /// What stands for every message of the reason.
    fn combined(self) -> Self {
        Self {
            message: String::new(),
            ..self
        }
    }
}

// === impl Announcer ===

impl Announcer {
    pub(super) fn start(
        connection: Connection,
        guard: WriteGuard,
        instance: &str,
        tasks: &TaskTracker,
        cancel: CancellationToken,
    ) -> Self {
        let queue = Arc::new(Queue::default());
        let instance = instance.to_owned();
        let sender = Sender {
            connection,
            guard,
            instance,
            correlator: Correlator::default(),
        };
        tasks.spawn(sender.run(queue.clone(), cancel));
        Self(queue)
    }

    pub(super) fn announce(&self, occurrence: Occurrence) {
        self.0.with(|pending| pending.push(occurrence));
        self.0.filled.notify_one();
    }

    pub(super) fn counts(&self) -> EventCounts {
        self.0.with(|pending| pending.counts)
    }
}

// === impl Queue ===

impl Queue {
    fn with<R>(&self, look: impl FnOnce(&mut Pending) -> R) -> R {
        // No code that holds the lock can leave it half changed.
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        look(&mut pending)
    }

    fn pop(&self) -> Option<(Occurrence, u32)> {
        self.with(Pending::pop)
    }

    /// Counts occurrences that are told by the count of another event.
    fn note_aggregated(&self, count: u32) {
        self.with(|pending| pending.counts.aggregated += u64::from(count));
    }

    fn note_dropped(&self, count: u32) {
        self.with(|pending| pending.counts.dropped += u64::from(count));
    }
}

// === impl Pending ===

impl Pending {
    fn push(&mut self, occurrence: Occurrence) {
        let kind = (occurrence.saying.uid.clone(), occurrence.saying.reason);
        if let Some((newest, count)) = self.waiting.get_mut(&kind) {
            *newest = occurrence;
            *count = count.saturating_add(1);
            self.counts.aggregated += 1;
        } else if self.waiting.len() < QUEUE {
            self.order.push_back(kind.clone());
            self.waiting.insert(kind, (occurrence, 1));
        } else {
            self.counts.dropped += 1;
            if !std::mem::replace(&mut self.overflowing, true) {
                tracing::warn!(
                    waiting = QUEUE,
                    "more events than the API server accepts; some are dropped and counted"
                );
            }
        }
    }

    fn pop(&mut self) -> Option<(Occurrence, u32)> {
        let kind = self.order.pop_front()?;
        self.overflowing &= self.waiting.len() > QUEUE / 2;
        self.waiting.remove(&kind)
    }
}

// === impl Correlator ===

impl Correlator {
    /// What to send for something that happened so many times. `fresh` is a name that no event has.
    fn take(
        &mut self,
        occurrence: &Occurrence,
        times: u32,
        fresh: String,
        now: Instant,
    ) -> Sending {
        self.prune(now);
        if !self.spend(&occurrence.saying.uid, now) {
            return Sending::Nothing;
        }
        let combined = self.is_one_of_many(&occurrence.saying, now);
        let saying = occurrence.saying.clone();
        let saying = if combined { saying.combined() } else { saying };
        match self.series.get_mut(&saying) {
            Some(series) if now.duration_since(series.last) < WINDOW => {
                series.count = series.count.saturating_add(times);
                series.last = now;
                Sending::Count(series.name.clone(), series.count)
            }
            _ => {
                let series = Series {
                    name: fresh.clone(),
                    count: times,
                    last: now,
                };
                self.series.insert(saying, series);
                let message = &occurrence.saying.message;
                let note = if combined {
                    format!("(combined from similar events): {message}")
                } else {
                    message.clone()
                };
                Sending::Create(fresh, note, times)
            }
        }
    }

    /// Returns whether a message is one too many of its reason.
    fn is_one_of_many(&mut self, saying: &EventKey, now: Instant) -> bool {
        let mut hasher = DefaultHasher::new();
        saying.message.hash(&mut hasher);
        let kind = (saying.uid.clone(), saying.reason);
        let similar = self.similar.entry(kind).or_insert_with(|| Similar {
            messages: HashSet::new(),
            last: now,
        });
        if now.duration_since(similar.last) >= WINDOW {
            similar.messages.clear();
        }
        similar.last = now;
        let message = hasher.finish();
        if similar.messages.len() < DISTINCT {
            similar.messages.insert(message);
        }
        !similar.messages.contains(&message)
    }

    /// The event that was counted on is gone: the next one is a first again.
    fn forget(&mut self, occurrence: &Occurrence) {
        self.series.remove(&occurrence.saying);
        self.series.remove(&occurrence.saying.clone().combined());
    }

    fn spend(&mut self, uid: &Uid, now: Instant) -> bool {
        let budget = self.budgets.entry(uid.clone()).or_insert(Budget {
            left: BURST,
            at: now,
        });
        let refilled = now.duration_since(budget.at).as_secs_f64() / REFILL.as_secs_f64();
        budget.left = (budget.left + refilled).min(BURST);
        budget.at = now;
        let may = budget.left >= 1.0;
        if may {
            budget.left -= 1.0;
        }
        may
    }

    fn prune(&mut self, now: Instant) {
        if self.series.len() >= MOST {
            self.series
                .retain(|_, series| now.duration_since(series.last) < WINDOW);
            prune_oldest(&mut self.series, |series| series.last);
        }
        if self.similar.len() >= MOST {
            prune_oldest(&mut self.similar, |similar| similar.last);
        }
        if self.budgets.len() >= MOST {
            prune_oldest(&mut self.budgets, |budget| budget.at);
        }
    }
}

/// Leaves room: drops the older half of a map that is full.
fn prune_oldest<K, V>(map: &mut HashMap<K, V>, age: impl Fn(&V) -> Instant) {
    if map.len() < MOST {
        return;
    }
    let mut ages: Vec<Instant> = map.values().map(&age).collect();
    ages.sort_unstable();
    if let Some(middle) = ages.get(ages.len() / 2).copied() {
        map.retain(|_, value| age(value) > middle);
    }
}

// === impl Sender ===

impl Sender {
    async fn run(mut self, queue: Arc<Queue>, cancel: CancellationToken) {
        while !cancel.is_cancelled() {
            if let Some((occurrence, times)) = queue.pop() {
                self.send(&queue, occurrence, times).await;
                continue;
            }
            tokio::select! {
                () = cancel.cancelled() => break,
                () = queue.filled.notified() => {}
            }
        }
        // What the last passes said is still worth telling, as long as it does not hold up the end.
        let rest = async {
            while let Some((occurrence, times)) = queue.pop() {
                self.send(&queue, occurrence, times).await;
            }
        };
        let _cut_short = tokio::time::timeout(FLUSH_TIMEOUT, rest).await;
    }

    async fn send(&mut self, queue: &Queue, occurrence: Occurrence, times: u32) {
        let fresh = format!("{}.{:016x}", occurrence.key.name(), dice());
        let mut sending = self
            .correlator
            .take(&occurrence, times, fresh, Instant::now());
        match sending {
            Sending::Create(..) => {}
            // The others were counted while they waited.
            Sending::Count(..) => queue.note_aggregated(1),
            Sending::Nothing => queue.note_dropped(1),
        }
        let mut pauses = PAUSES.into_iter();
        loop {
            let error = match self.try_send(&occurrence, &sending).await {
                Ok(()) => return,
                Err(error) => error,
            };
            if let (Sending::Count(name, times), true) = (&sending, error.is_not_found()) {
                // The API server keeps events for an hour or so.
                let note = occurrence.saying.message.clone();
                sending = Sending::Create(name.clone(), note, *times);
                continue;
            }
            let lasting = error
                .code()
                .is_some_and(|code| (400..500).contains(&code) && code != 429);
            match pauses.next() {
                Some(pause) if !lasting && error != ApiError::NotLeading => {
                    let asked = error.retry_after().unwrap_or_default();
                    tokio::time::sleep(asked.min(LONGEST_PAUSE).max(pause)).await;
                }
                _ => {
                    self.correlator.forget(&occurrence);
                    queue.note_dropped(1);
                    tracing::debug!(service = %occurrence.key, %error, "an event was lost");
                    return;
                }
            }
        }
    }

    async fn try_send(&self, occurrence: &Occurrence, sending: &Sending) -> Result<(), ApiError> {
        let namespace = occurrence.key.namespace();
        let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let ask = match sending {
            Sending::Nothing => return Ok(()),
            Sending::Create(name, note, times) => {
                let body = occurrence.body(name, note, *times, &self.instance);
                Ask::send(
                    Method::POST,
                    events,
                    JSON,
                    &body,
                    "create events.events.k8s.io",
                )
            }
            Sending::Count(name, count) => {
                let body =
                    json!({"series": {"count": count, "lastObservedTime": micro(occurrence.at)}});
                let path = format!("{events}/{name}");
                Ask::send(
                    Method::PATCH,
                    path,
                    MERGE,
                    &body,
                    "patch events.events.k8s.io",
                )
            }
        };
        let answer = api::request(&self.connection, ask, TIMEOUT);
        let answer = self.guard.while_allowed(answer).await;
        answer.ok_or(ApiError::NotLeading)?.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use landfall_testkit::svc;

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

    fn minutes(count: u64) -> Duration {
        Duration::from_secs(60 * count)
    }

    #[test]
    fn the_same_again_is_counted_and_later_told_anew() {
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
        let body = what.body("a", "no", 3, "replica-1");
        assert_eq!(body["series"]["count"], 3);
        assert_eq!(what.body("a", "no", 1, "replica-1").get("series"), None);
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
        assert_eq!((pending.order.len(), pending.waiting.len()), (QUEUE, QUEUE));
        assert_eq!(pending.pop().unwrap(), (occurrence("web-0", "again"), 2));
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
        let body = long.body("web.1", &"é".repeat(2000), 1, &"i".repeat(300));
        let length = |key: &str| body[key].as_str().unwrap().len();
        assert!(length("note") <= LONGEST_NOTE && length("reportingInstance") <= LONGEST_INSTANCE);
        assert!(body["note"].as_str().unwrap().ends_with('…'));
        assert_eq!(body["type"], "Warning");
        assert_eq!(body["eventTime"], "1970-01-01T00:00:00.000000Z");
        assert_eq!(action_of("EnsuredLoadBalancer"), "Ensure");
        assert_eq!(action_of("DeletingLoadBalancer"), "Delete");
        assert_eq!(action_of("SyncLoadBalancerFailed"), "Sync");
    }
}
