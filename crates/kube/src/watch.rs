//! One kind of object, followed for ever: listed once, watched from there, and found again after
//! whatever went wrong.
//!
//! ```text
//!            ┌──── 410, no place to go on from, to be renewed ────┐
//!            v                                                    │
//!  list (streamed, else paged) ──> watch ──> end, break, silence ─┤
//!            ^                       ^                            │
//!            └── broken off          └──────── go on from there ──┘
//! ```
//!
//! Nothing is sent while the API server is unavailable; what has been sent remains valid.

mod kind;
mod known;
mod lines;
mod list_failures;
mod outcome;
mod renewal;
mod shares;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use kube::client::Body;
use landfall_model::rows::Fact;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api::{self, Ask};
use crate::config::SourceConfig;
use crate::connect::Connection;
use crate::error::{self, ApiError, StatusShape};
use crate::health::HealthReport;
use crate::retry::{Retry, dice};

pub(crate) use kind::Kind;
use known::Known;
use lines::Lines;
use list_failures::ListFailures;
pub(crate) use renewal::{Listings, Renewal, answered};
use wire::{Bookmark, Event, EventKind, Page};

/// Follows one kind.
pub(crate) struct Watcher {
    connection: Connection,
    config: Arc<SourceConfig>,
    known: Known,
    facts: mpsc::Sender<Fact>,
    health: HealthReport,
    /// Requests that everything is listed again, and is notified when it is known.
    renewal: Renewal,
    /// How Services fare; `None`: these are they.
    services: Option<Listings>,
    /// From where the watch goes on; `None`: everything has to be listed.
    resume_from: Option<String>,
    streaming: bool,
    /// Whether everything is listed again and no attempt was made yet.
    is_first: bool,
    retry: Retry,
    list_failures: ListFailures,
    complaint: Option<String>,
    denied: bool,
    missing_since: Option<Instant>,
    /// The last logged number of address pools.
    pools: Option<usize>,
}

/// How one request came to its end.
enum End {
    /// As watches do, or broken: to be taken up again from where it was.
    Over,
    /// Everything is to be listed again.
    Outdated,
    /// The first attempt to list everything again was not answered.
    Unanswered,
    /// The server no longer knows the past from where it should go on.
    Expired(ApiError),
    /// The server has no streamed lists.
    NoStreaming,
    /// Something else.
    Failed(ApiError),
    /// The receiver of the facts is gone.
    ReceiverClosed,
}

/// A server that has just been started may take its time for the first answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The same for the first attempt to list everything again: an idle connection that has stalled
/// answers nothing, and the next attempt takes another one.
const FIRST_TIMEOUT: Duration = Duration::from_secs(2);

/// A page of a list that is longer is asked for in parts: one tenant can make thousands of objects
/// of megabytes.
const LONGEST_PAGE: usize = 32 * 1024 * 1024;

/// A watch that ends sooner than this, without a word, is not taken up again at once.
const TOO_SHORT: Duration = Duration::from_secs(1);

// === impl Watcher ===

impl Watcher {
    pub(crate) fn new(
        connection: Connection,
        config: Arc<SourceConfig>,
        kind: Kind,
        facts: mpsc::Sender<Fact>,
        health: HealthReport,
        renewal: Renewal,
        services: Option<Listings>,
    ) -> Self {
        Self {
            streaming: config.streaming,
            connection,
            config,
            known: Known::new(kind),
            facts,
            health,
            renewal,
            services,
            resume_from: None,
            is_first: false,
            retry: Retry::default(),
            list_failures: ListFailures::default(),
            complaint: None,
            denied: false,
            missing_since: None,
            pools: None,
        }
    }

    /// Follows until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        // What is dropped half-way is a request or a fact without a receiver.
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.follow() => {}
        }
        self.health.recovered(&self.known.kind().to_string());
    }

    /// All objects that it sent are deleted again: the kind is not needed any more.
    pub(crate) async fn run_then_forget(mut self, cancel: CancellationToken) {
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.follow() => {}
        }
        self.health.recovered(&self.known.kind().to_string());
        let mut facts = Vec::new();
        self.known.forget_all(|fact| facts.push(fact));
        if self.denied {
            facts.extend(self.access_problem(Vec::new()));
        }
        let _receiver_closed = self.report(facts).await;
    }

    async fn follow(&mut self) {
        loop {
            let begun = Instant::now();
            if self.renewal.begin() {
                self.resume_from = None;
                self.is_first = true;
            }
            let lists = self.resume_from.is_none();
            let end = self.round().await;
            // Not at once: a tenant can make room as often as it likes, and a list costs all.
            if matches!(end, End::Over) && self.known.take_freed() {
                self.resume_from = None;
            }
            let pause = match end {
                End::ReceiverClosed => return,
                End::Outdated => Duration::ZERO,
                End::Unanswered => {
                    self.note_lapse(begun);
                    Duration::ZERO
                }
                End::Over if begun.elapsed() > TOO_SHORT => Duration::ZERO,
                End::Over => self.retry.next(dice()),
                // A list that expires page after page is one that fails, and is reported.
                End::Expired(error) if lists => match self.take_failure(error, begun).await {
                    Some(pause) => pause,
                    None => return,
                },
                End::Expired(_) => {
                    self.resume_from = None;
                    if begun.elapsed() > TOO_SHORT {
                        Duration::ZERO
                    } else {
                        self.note_lapse(begun);
                        self.retry.next(dice())
                    }
                }
                End::NoStreaming => {
                    self.streaming = false;
                    self.resume_from = None;
                    Duration::ZERO
                }
                End::Failed(error) => match self.take_failure(error, begun).await {
                    Some(pause) => pause,
                    None => return,
                },
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.renewal.asked() => {}
            }
        }
    }

    /// One request, from its beginning to its end.
    async fn round(&mut self) -> End {
        if self.resume_from.is_none()
            && !self.streaming
            && let Err(end) = self.list().await
        {
            return end;
        }
        let listing = self.resume_from.is_none();
        let ask = Ask::get(
            self.watch_path(),
            format!("watch {}", self.known.kind().resource()),
        );
        let is_first = std::mem::take(&mut self.is_first);
        let opened = tokio::select! {
            opened = api::open(&self.connection, ask, time_limit(is_first)) => opened,
            () = self.renewal.asked() => return End::Outdated,
        };
        let body = match opened {
            Ok(body) => body,
            Err(ApiError::Timeout(_)) if is_first => return End::Unanswered,
            Err(error) => return end_of(error, listing && self.streaming),
        };
        if listing {
            self.known.begin_listing();
        } else {
            self.take_success();
        }
        if self.take_access().await.is_err() {
            return End::ReceiverClosed;
        }
        self.read(body, listing).await
    }

    fn watch_path(&self) -> String {
        let path = self.known.kind().path();
        // Spread, so that the watches of all replicas do not end together.
        let longest = self.config.longest_watch.as_secs().max(2);
        let seconds = longest / 2 + dice() % (longest / 2 + 1);
        let common = format!("{path}watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}");
        match &self.resume_from {
            Some(version) => format!("{common}&resourceVersion={version}"),
            None => format!("{common}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        }
    }

    async fn read(&mut self, mut body: Body, mut listing: bool) -> End {
        let mut lines = Lines::default();
        loop {
            // A list has no reason to pause.
            let silence = self.config.longest_silence;
            let silence = if listing {
                silence.min(TIMEOUT)
            } else {
                silence
            };
            // What was begun to be sent is sent to its end.
            let frame = tokio::select! {
                frame = tokio::time::timeout(silence, body.frame()) => frame,
                () = self.renewal.asked() => return End::Outdated,
            };
            let frame = match frame {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return self.broken(listing, &error::chain(&error)),
                Ok(None) => return self.broken(listing, "it ended"),
                Err(_) => return self.broken(listing, "timed out"),
            };
            let Some(bytes) = frame.data_ref() else {
                continue;
            };
            let mut facts = Vec::new();
            let mut end = None;
            let was_listing = listing;
            let cut = lines.push(bytes, |line| {
                if end.is_none() {
                    end = self.take_line(line, &mut listing, &mut facts);
                }
            });
            if self.report(facts).await.is_err() {
                return End::ReceiverClosed;
            }
            if !listing {
                // Not earlier: a list that breaks again and again is no success.
                if was_listing {
                    self.take_success();
                    self.log_pools();
                }
                self.note_answered();
                self.retry.reset();
            }
            if let Some(end) = end {
                return end;
            }
            if cut.is_err() {
                return End::Failed(self.unreadable("a line is longer than any object".to_owned()));
            }
        }
    }

    /// What it means that no more comes: to a watch little, to a list that it came to nothing.
    fn broken(&self, listing: bool, why: &str) -> End {
        if listing {
            return End::Failed(self.unreadable(format!("the list is incomplete: {why}")));
        }
        tracing::debug!(kind = self.known.kind().resource(), why, "a watch failed");
        End::Over
    }

    /// Takes one line of a watch; an end if it was its last.
    fn take_line(&mut self, line: &[u8], listing: &mut bool, facts: &mut Vec<Fact>) -> Option<End> {
        let event: Event<'_> = match serde_json::from_slice(line) {
            Ok(event) => event,
            // A server that dies amid a line.
            Err(error) => return Some(End::Failed(self.unreadable(error.to_string()))),
        };
        match event.kind {
            EventKind::Added | EventKind::Modified => {
                self.take_object(event.object, !*listing, facts);
            }
            EventKind::Deleted => {
                if let Ok(object) = self.known.kind().validate(event.object.get()) {
                    self.known.delete(&object.key, |fact| facts.push(fact));
                    if !*listing {
                        self.resume_from = Some(object.resume_from);
                    }
                }
            }
            EventKind::Bookmark => {
                let bookmark: Bookmark = match serde_json::from_str(event.object.get()) {
                    Ok(bookmark) => bookmark,
                    Err(error) => return Some(End::Failed(self.unreadable(error.to_string()))),
                };
                if *listing {
                    if !bookmark.ends_listing() {
                        // A server that does not know what was asked for.
                        return Some(End::NoStreaming);
                    }
                    *listing = false;
                    self.known.end_listing(|fact| facts.push(fact));
                }
                self.resume_from = Some(bookmark.metadata.resource_version);
            }
            EventKind::Error => {
                let shape: StatusShape =
                    serde_json::from_str(event.object.get()).unwrap_or_default();
                let what = format!("watch {}", self.known.kind().resource());
                return Some(end_of(error::of_status_shape(what, shape), false));
            }
            EventKind::Unknown => {}
        }
        None
    }

    fn take_object(&mut self, json: &RawValue, resume: bool, facts: &mut Vec<Fact>) {
        match self.known.kind().validate(json.get()) {
            Ok(object) => {
                if resume {
                    self.resume_from = Some(object.resume_from.clone());
                }
                self.known.apply(object, |fact| facts.push(fact));
            }
            // Not even a name: there is no object to speak of.
            Err(error) => {
                tracing::warn!(kind = self.known.kind().resource(), %error,
                    "an object without a name was skipped");
            }
        }
    }

    /// Lists everything, page by page.
    async fn list(&mut self) -> Result<(), End> {
        let what = format!("list {}", self.known.kind().resource());
        let path = self.known.kind().path();
        let mut next = String::new();
        let mut objects = self.config.page;
        self.known.begin_listing();
        loop {
            let mut path = format!("{path}limit={objects}");
            if !next.is_empty() {
                path.push_str("&continue=");
                path.push_str(&next);
            }
            let ask = Ask::get(path, what.as_str());
            let is_first = std::mem::take(&mut self.is_first);
            let most = if objects > 1 {
                LONGEST_PAGE
            } else {
                usize::MAX
            };
            let answer =
                api::request_within(&self.connection, ask, time_limit(is_first), most).await;
            let bytes = answer.map_err(|error| match error {
                ApiError::Timeout(_) if is_first => End::Unanswered,
                error => end_of(error, false),
            })?;
            let Some(bytes) = bytes else {
                objects = (objects / 4).max(1);
                continue;
            };
            objects = objects.saturating_mul(2).min(self.config.page);
            let page: Page<'_> = serde_json::from_slice(&bytes)
                .map_err(|error| End::Failed(self.unreadable(error.to_string())))?;
            let mut facts = Vec::new();
            for item in page.items.iter().flatten() {
                self.take_object(item, false, &mut facts);
            }
            let more = page.metadata.next_page.filter(|next| !next.is_empty());
            if more.is_none() {
                self.known.end_listing(|fact| facts.push(fact));
                self.resume_from = page.metadata.resource_version;
            }
            self.report(facts).await.map_err(|()| End::ReceiverClosed)?;
            match more {
                Some(more) => next = more,
                None => break,
            }
        }
        self.note_answered();
        self.log_pools();
        Ok(())
    }

    /// Logs where address pools were looked for, and how many there are: those of another
    /// namespace would be missed without a word.
    fn log_pools(&mut self) {
        let Kind::Resources { namespace, .. } = self.known.kind() else {
            return;
        };
        if !self.known.kind().is_pools() {
            return;
        }
        let pools = self.known.len();
        if self.pools != Some(pools) {
            tracing::info!(
                namespace,
                pools,
                "looked for MetalLB's IPAddressPool objects"
            );
        }
        self.pools = Some(pools);
    }

    async fn report(&self, facts: Vec<Fact>) -> Result<(), ()> {
        for fact in facts {
            self.facts.send(fact).await.map_err(drop)?;
        }
        Ok(())
    }

    fn unreadable(&self, why: String) -> ApiError {
        ApiError::Unreadable {
            what: format!("watch {}", self.known.kind().resource()),
            why,
        }
    }
}

fn time_limit(is_first: bool) -> Duration {
    if is_first { FIRST_TIMEOUT } else { TIMEOUT }
}

/// What an error of the server means to a watch.
fn end_of(error: ApiError, asked_for_streaming: bool) -> End {
    match &error {
        ApiError::Refused { code: 410, .. } => End::Expired(error),
        // From before a restore of the store, which has not come as far yet.
        ApiError::Refused {
            code: 504 | 500,
            message,
            ..
        } if message.contains("Too large resource version") => End::Expired(error),
        ApiError::Refused {
            code: 400 | 422, ..
        } if asked_for_streaming => End::NoStreaming,
        _ => End::Failed(error),
    }
}
