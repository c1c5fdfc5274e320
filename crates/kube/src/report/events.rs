//! Events: what happened, for people. Best effort, behind a bounded queue, and never in the way of
//! a pass.
//!
//! What waits for its turn is joined: of one reason at one Service the newest message waits, with a
//! count. The same thing said again within ten minutes becomes a count on the first event instead
//! of another one, and so do messages that differ, beyond the tenth of one reason. A Service that
//! says too much is cut short. Whatever is not sent as an event of its own is counted.

mod correlator;
mod occurrence;
mod queue;

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use landfall_engine::report::EventCounts;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::{self, Ask, JSON, MERGE};
use crate::connect::Connection;
use crate::error::ApiError;
use crate::lease::{WriteGuard, micro};
use crate::retry::dice;

use correlator::{Correlator, Sending};
pub(super) use occurrence::{Occurrence, Reporter};
use queue::Queue;

use super::permits::WritePermits;

/// Takes occurrences without ever waiting.
#[derive(Clone, Debug)]
pub(super) struct Announcer(Arc<Queue>);

/// Sends what the correlator says.
struct Sender {
    connection: Connection,
    guard: WriteGuard,
    reporter: Reporter,
    permits: WritePermits,
    correlator: Correlator,
}

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

// === impl Announcer ===

impl Announcer {
    pub(super) fn start(
        connection: Connection,
        guard: WriteGuard,
        reporter: Reporter,
        permits: WritePermits,
        tasks: &TaskTracker,
        cancel: CancellationToken,
    ) -> Self {
        let queue = Arc::new(Queue::default());
        let sender = Sender {
            connection,
            guard,
            reporter,
            permits,
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
        // The events of the last passes are still worth sending, as long as that does not delay the
        // end.
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
                let body = occurrence.body(name, note, *times, &self.reporter);
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
        let _permit = self.permits.later(namespace).await;
        let answer = api::request(&self.connection, ask, TIMEOUT);
        let answer = self.guard.while_allowed(answer).await;
        answer.ok_or(ApiError::NotLeading)?.map(drop)
    }
}

#[cfg(test)]
mod tests;
