//! Events: what happened, for people. Best effort, behind a bounded queue, and never in the way of a
//! pass.
//!
//! The same thing said again within ten minutes becomes a count on the first event instead of
//! another one, and a Service that says too much is cut short.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use jiff::Timestamp;
use landfall_engine::report::Event;
use landfall_model::rows::ServiceRow;
use landfall_model::{ServiceKey, Uid};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::{self, ApiError, Ask, JSON, MERGE};
use crate::connect::Connection;
use crate::lease::{WriteGuard, micro};
use crate::retry::dice;

/// Something that happened to a Service at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Occurrence {
    saying: Saying,
    key: ServiceKey,
    version: Option<Arc<str>>,
    at: Timestamp,
}

/// What is said, whenever it is said.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Saying {
    uid: Uid,
    reason: &'static str,
    warning: bool,
    message: String,
}

/// Takes occurrences without ever waiting.
#[derive(Debug)]
pub(super) struct Announcer {
    queue: mpsc::Sender<Occurrence>,
    dropped: Arc<AtomicU64>,
}

/// What to send: pure.
#[derive(Debug, Default)]
struct Correlator {
    series: HashMap<Saying, Series>,
    budgets: HashMap<Uid, Budget>,
}

#[derive(Clone, Debug)]
struct Series {
    name: String,
    count: u32,
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
    /// A new event of this name.
    Create(String),
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

const QUEUE: usize = 256;
/// Sayings and budgets that are remembered; the longest unheard go first.
const MOST: usize = 2048;
const PATIENCE: Duration = Duration::from_secs(10);
/// How long what is queued may take at the end.
const FAREWELL: Duration = Duration::from_secs(3);
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

const CONTROLLER: &str = "landfall.dev/controller";
/// The API server's limits.
const LONGEST_NOTE: usize = 1024;
const LONGEST_INSTANCE: usize = 128;

// === impl Occurrence ===

impl Occurrence {
    pub(super) fn now(service: &ServiceRow, event: &Event) -> Self {
        Self {
            saying: Saying {
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

    fn body(&self, name: &str, instance: &str) -> Value {
        let mut regarding = json!({
            "apiVersion": "v1", "kind": "Service", "namespace": self.key.namespace(),
            "name": self.key.name(), "uid": self.saying.uid.as_str(),
        });
        if let Some(version) = &self.version {
            regarding["resourceVersion"] = (**version).into();
        }
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": self.key.namespace()},
            "eventTime": micro(self.at),
            "reportingController": CONTROLLER,
            "reportingInstance": shortened(instance, LONGEST_INSTANCE),
            "action": action_of(self.saying.reason),
            "reason": self.saying.reason,
            "type": if self.saying.warning { "Warning" } else { "Normal" },
            "note": self.saying.message,
            "regarding": regarding,
        })
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

// === impl Announcer ===

impl Announcer {
    pub(super) fn start(
        connection: Connection,
        guard: WriteGuard,
        instance: &str,
        tasks: &TaskTracker,
        cancel: CancellationToken,
    ) -> Self {
        let (queue, occurrences) = mpsc::channel(QUEUE);
        let instance = instance.to_owned();
        let sender = Sender {
            connection,
            guard,
            instance,
            correlator: Correlator::default(),
        };
        tasks.spawn(sender.run(occurrences, cancel));
        Self {
            queue,
            dropped: Arc::default(),
        }
    }

    pub(super) fn announce(&self, occurrence: Occurrence) {
        if let Err(error) = self.queue.try_send(occurrence) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, "an event was dropped");
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

// === impl Correlator ===

impl Correlator {
    /// What to send for an occurrence. `fresh` is a name that no event has.
    fn take(&mut self, occurrence: &Occurrence, fresh: String, now: Instant) -> Sending {
        self.prune(now);
        if !self.spend(&occurrence.saying.uid, now) {
            return Sending::Nothing;
        }
        match self.series.get_mut(&occurrence.saying) {
            Some(series) if now.duration_since(series.last) < WINDOW => {
                series.count = series.count.saturating_add(1);
                series.last = now;
                Sending::Count(series.name.clone(), series.count)
            }
            _ => {
                let series = Series {
                    name: fresh.clone(),
                    count: 1,
                    last: now,
                };
                self.series.insert(occurrence.saying.clone(), series);
                Sending::Create(fresh)
            }
        }
    }

    /// The event that was counted on is gone: the next one is a first again.
    fn forget(&mut self, occurrence: &Occurrence) {
        self.series.remove(&occurrence.saying);
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
    async fn run(mut self, mut occurrences: mpsc::Receiver<Occurrence>, cancel: CancellationToken) {
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                occurrence = occurrences.recv() => match occurrence {
                    Some(occurrence) => self.send(occurrence).await,
                    None => return,
                },
            }
        }
        // What the last passes said is still worth telling, as long as it does not hold up the end.
        occurrences.close();
        let rest = async {
            while let Some(occurrence) = occurrences.recv().await {
                self.send(occurrence).await;
            }
        };
        let _cut_short = tokio::time::timeout(FAREWELL, rest).await;
    }

    async fn send(&mut self, occurrence: Occurrence) {
        let fresh = format!("{}.{:016x}", occurrence.key.name(), dice());
        let mut sending = self.correlator.take(&occurrence, fresh, Instant::now());
        let mut pauses = PAUSES.into_iter();
        loop {
            let error = match self.try_send(&occurrence, &sending).await {
                Ok(()) => return,
                Err(error) => error,
            };
            if let (Sending::Count(name, _), true) = (&sending, error.is_not_found()) {
                // The API server keeps events for an hour or so.
                sending = Sending::Create(name.clone());
                continue;
            }
            let lasting = error
                .code()
                .is_some_and(|code| (400..500).contains(&code) && code != 429);
            match pauses.next() {
                Some(pause) if !lasting && error != ApiError::NotLeading => {
                    tokio::time::sleep(pause).await;
                }
                _ => {
                    self.correlator.forget(&occurrence);
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
            Sending::Create(name) => {
                let body = occurrence.body(name, &self.instance);
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
        let patience = self
            .guard
            .allows()
            .ok_or(ApiError::NotLeading)?
            .min(PATIENCE);
        api::request(&self.connection, ask, patience)
            .await
            .map(drop)
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
            correlator.take(what, fresh.to_owned(), begin + minutes(after))
        };
        let (no, other) = (occurrence("web", "no"), occurrence("web", "other"));
        assert_eq!(take(&no, "a", 0), Sending::Create("a".to_owned()));
        assert_eq!(take(&no, "b", 9), Sending::Count("a".to_owned(), 2));
        assert_eq!(take(&other, "c", 9), Sending::Create("c".to_owned()));
        assert_eq!(take(&no, "d", 18), Sending::Count("a".to_owned(), 3));
        assert_eq!(take(&no, "e", 28), Sending::Create("e".to_owned()));
    }

    #[test]
    fn a_service_that_says_too_much_is_cut_short_and_no_other() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        let mut sent = |service: &str, number: u32, now| {
            let what = occurrence(service, &number.to_string());
            correlator.take(&what, "x".to_owned(), now) != Sending::Nothing
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
            correlator.take(&what, "x".to_owned(), now + Duration::from_millis(number));
        }
        assert!(correlator.series.len() <= MOST && correlator.budgets.len() <= MOST);
    }

    #[test]
    fn an_event_fits_into_the_api_servers_limits() {
        let long = occurrence("web", &"é".repeat(2000));
        let body = long.body("web.1", &"i".repeat(300));
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
