//! What the engine writes back: finalizers, status and events of Services, in the API server.
//!
//! Everything goes through `services/status`, so that no right to change a Service's spec is
//! needed. Nothing is written that is there already, nothing that is others', and nothing at all
//! unless the [`WriteGuard`] allows it. The writer is named in the `User-Agent` of the
//! [`Connection`].

mod events;
mod own;
mod patch;
mod permits;
mod resources;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use http::Method;
use landfall_engine::report::{Event, EventCounts, Report, ReportError};
use landfall_model::rows::ServiceRow;
use landfall_model::status::ServiceStatus;
use landfall_model::{ServiceKey, Uid, wire};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::{self, Ask, STRATEGIC_MERGE};
use crate::connect::Connection;
use crate::error::ApiError;
use crate::lease::WriteGuard;

use events::{Announcer, Occurrence, Reporter};
pub use own::OwnReports;
use patch::{Live, finalizer_patch, hand_back_patch, release_patch, status_patch};
use permits::WritePermits;
pub use resources::ResourceReports;

/// Reports to the API server.
#[derive(Debug)]
pub struct KubeReports {
    connection: Connection,
    guard: WriteGuard,
    recent: Mutex<Recent>,
    events: Announcer,
    permits: WritePermits,
}

/// What the API server answered to our own writes, until the watch has caught up with them.
#[derive(Debug, Default)]
struct Recent {
    live: HashMap<Uid, Live>,
    order: VecDeque<Uid>,
    /// Services with a write that was sent and not answered: it may have been done, and the watch
    /// not have shown it yet.
    unanswered: HashSet<Uid>,
}

/// What became of a Service that could not be written.
enum Now {
    /// It is the same Service, and looks like this.
    Same { live: Box<Live>, deleting: bool },
    /// It is gone, or another one of its name is there.
    Gone,
}

/// What became of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// It is as it says.
    Done,
    /// The Service is gone, or another one of its name is there.
    Gone,
}

/// A watch is rarely further behind than this many of our own writes; if it is, a write costs a
/// second look.
const MOST_RECENT: usize = 1024;

/// The longest that a single write may take.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Passes at the same time. Most of them wait for their turn to write.
const AT_ONCE: usize = 1024;

/// How often one write may conflict with another program's.
const ATTEMPTS: usize = 3;

/// The manager of our fields.
pub(crate) const MANAGER: &str = "landfall";

// === impl KubeReports ===

impl KubeReports {
    /// Reports as `instance`: the name that events carry. Events are sent by a task of the
    /// tracker's, which ends, after what is queued, when cancelled.
    pub fn new(
        connection: Connection,
        guard: WriteGuard,
        instance: &str,
        tasks: &TaskTracker,
        cancel: &CancellationToken,
    ) -> Self {
        let permits = WritePermits::default();
        let events = Announcer::start(
            connection.clone(),
            guard.clone(),
            Reporter {
                controller: "landfall.dev/controller",
                instance: instance.to_owned(),
            },
            permits.clone(),
            tasks,
            cancel.clone(),
        );
        Self {
            connection,
            guard,
            recent: Mutex::default(),
            events,
            permits,
        }
    }

    /// Returns what reports on custom resources, as the same writer and within the same bounds.
    pub fn on_resources(&self) -> ResourceReports {
        ResourceReports {
            connection: self.connection.clone(),
            guard: self.guard.clone(),
            events: self.events.clone(),
            permits: self.permits.clone(),
        }
    }

    /// Takes the finalizer and our part of the status away, in one write, but for what is `left`
    /// for another controller to go on from. Repeating it writes nothing.
    pub async fn hand_back(
        &self,
        service: &ServiceRow,
        left: &ServiceStatus,
    ) -> Result<(), ReportError> {
        let uid = service.uid.as_str();
        let _permit = self.permits.later(service.key.namespace()).await;
        let patch = |live: &Live| hand_back_patch(uid, live, left);
        self.send(service, "finalizer", false, patch).await?;
        self.forget(service);
        Ok(())
    }

    async fn patch(&self, service: &ServiceRow, body: &Value) -> Result<Live, ApiError> {
        let path = format!("{}/status?fieldManager={MANAGER}", path_of(&service.key));
        let what = "patch services/status";
        let ask = Ask::send(Method::PATCH, path, STRATEGIC_MERGE, body, what);
        let answer = api::request_json(&self.connection, ask, TIMEOUT);
        let answer = self.guard.while_allowed(answer).await;
        let answer: wire::Service = answer.ok_or(ApiError::NotLeading)??;
        Ok(Live::of_answer(answer))
    }

    async fn look(&self, service: &ServiceRow) -> Result<Now, ApiError> {
        let ask = Ask::get(path_of(&service.key), "get services");
        let answer: wire::Service = match api::request_json(&self.connection, ask, TIMEOUT).await {
            Ok(answer) => answer,
            Err(error) if error.is_not_found() => return Ok(Now::Gone),
            Err(error) => return Err(error),
        };
        if answer.metadata.uid.as_deref() != Some(service.uid.as_str()) {
            return Ok(Now::Gone);
        }
        let deleting = answer.metadata.deletion_timestamp.is_some();
        Ok(Now::Same {
            live: Box::new(Live::of_answer(answer)),
            deleting,
        })
    }

    /// Sends the patch that `patch` makes of the Service as it is known, and once more over what
    /// other programs wrote in between: what they put there has to stay, too. `adds`: it puts
    /// something on that nothing which is being deleted may get.
    async fn send(
        &self,
        service: &ServiceRow,
        what: &'static str,
        adds: bool,
        patch: impl Fn(&Live) -> Option<Value>,
    ) -> Result<Sent, ReportError> {
        let mut live = self.live(service);
        if self.is_unanswered(service) {
            self.validate_lead(what)?;
            let now = self.look(service).await;
            match now.map_err(|error| failed(what, &error))? {
                Now::Gone => return Ok(Sent::Gone),
                Now::Same { live: newer, .. } => live = *newer,
            }
        }
        for _ in 0..ATTEMPTS {
            let Some(body) = patch(&live) else {
                self.note_unanswered(service, false);
                return Ok(Sent::Done);
            };
            self.validate_lead(what)?;
            // This may be the last that is known of it: a write can be given up at any time.
            self.note_unanswered(service, true);
            let error = match self.patch(service, &body).await {
                Ok(live) => {
                    self.note_unanswered(service, false);
                    self.remember(service, live);
                    return Ok(Sent::Done);
                }
                Err(error) => error,
            };
            self.note_unanswered(service, !is_refusal(&error));
            if !may_be_another(&error) {
                return Err(failed(what, &error));
            }
            let now = self.look(service).await;
            match now.map_err(|error| failed(what, &error))? {
                Now::Gone => return Ok(Sent::Gone),
                Now::Same { deleting: true, .. } if adds => break,
                Now::Same { live: newer, .. } => {
                    self.remember(service, (*newer).clone());
                    if !error.is_conflict() && !error.is_not_found() {
                        return Err(failed(what, &error));
                    }
                    live = *newer;
                }
            }
        }
        Err(ReportError::Conflict { what })
    }

    fn live(&self, service: &ServiceRow) -> Live {
        let reported = Live::of_row(service);
        match self.recent.lock() {
            Ok(mut recent) => recent.newer_than(&service.uid, reported),
            Err(_) => reported,
        }
    }

    fn remember(&self, service: &ServiceRow, live: Live) {
        if let Ok(mut recent) = self.recent.lock() {
            recent.remember(&service.uid, live);
        }
    }

    /// Makes sure that a write may begin: one that may not was never sent.
    fn validate_lead(&self, what: &'static str) -> Result<(), ReportError> {
        let lead = self.guard.allows().ok_or(ApiError::NotLeading);
        lead.map(drop).map_err(|error| failed(what, &error))
    }

    fn is_unanswered(&self, service: &ServiceRow) -> bool {
        let recent = self.recent.lock();
        recent.is_ok_and(|recent| recent.unanswered.contains(&service.uid))
    }

    fn note_unanswered(&self, service: &ServiceRow, unanswered: bool) {
        if let Ok(mut recent) = self.recent.lock() {
            if unanswered {
                recent.unanswered.insert(service.uid.clone());
            } else {
                recent.unanswered.remove(&service.uid);
            }
        }
    }

    fn forget(&self, service: &ServiceRow) {
        if let Ok(mut recent) = self.recent.lock() {
            recent.live.remove(&service.uid);
            recent.unanswered.remove(&service.uid);
        }
    }
}

impl Report for KubeReports {
    async fn add_finalizer(
        &self,
        service: &ServiceRow,
        status: Option<&ServiceStatus>,
    ) -> Result<(), ReportError> {
        let what = "finalizer";
        let uid = service.uid.as_str();
        let _permit = self.permits.first(service.key.namespace()).await;
        let patch = |live: &Live| finalizer_patch(uid, live, status);
        match self.send(service, what, true, patch).await? {
            Sent::Done => Ok(()),
            Sent::Gone => Err(ReportError::Conflict { what }),
        }
    }

    async fn remove_finalizer(&self, service: &ServiceRow) -> Result<(), ReportError> {
        let uid = service.uid.as_str();
        let _permit = self.permits.later(service.key.namespace()).await;
        let patch = |live: &Live| release_patch(uid, live);
        self.send(service, "finalizer", false, patch).await?;
        self.forget(service);
        Ok(())
    }

    async fn write_status(
        &self,
        service: &ServiceRow,
        status: &ServiceStatus,
    ) -> Result<(), ReportError> {
        let what = "status";
        let uid = service.uid.as_str();
        let _permit = self.permits.later(service.key.namespace()).await;
        let patch = |live: &Live| status_patch(uid, live, status);
        match self.send(service, what, false, patch).await? {
            Sent::Done => Ok(()),
            Sent::Gone => Err(ReportError::Conflict { what }),
        }
    }

    async fn event(&self, service: &ServiceRow, event: &Event) {
        self.events.announce(Occurrence::now(service, event));
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    fn event_counts(&self) -> EventCounts {
        self.events.counts()
    }
}

/// Whether a refusal may mean that the Service of this name is another one by now, or has changed.
fn may_be_another(error: &ApiError) -> bool {
    matches!(
        error,
        ApiError::Refused {
            code: 404 | 409 | 422,
            ..
        }
    )
}

fn failed(what: &'static str, error: &ApiError) -> ReportError {
    let why = error.to_string();
    if is_outage(error) {
        ReportError::Unavailable {
            what,
            why,
            unanswered: !is_refusal(error),
        }
    } else {
        ReportError::Failed { what, why }
    }
}

/// Whether the server has decided not to write.
fn is_refusal(error: &ApiError) -> bool {
    match error {
        ApiError::Refused { code, .. } => (400..500).contains(code),
        ApiError::Denied { .. } | ApiError::Unauthorized { .. } => true,
        _ => false,
    }
}

/// Whether it is not the object that can't be written, for all that is known.
fn is_outage(error: &ApiError) -> bool {
    match error {
        ApiError::Unreachable { .. } | ApiError::Timeout(_) | ApiError::Unauthorized { .. } => true,
        ApiError::Refused { code, .. } => matches!(code, 503 | 504),
        _ => false,
    }
}

fn path_of(key: &ServiceKey) -> String {
    format!(
        "/api/v1/namespaces/{}/services/{}",
        key.namespace(),
        key.name()
    )
}

// === impl Recent ===

impl Recent {
    /// The newer of what the watch reported and what our own last write was answered with.
    fn newer_than(&mut self, uid: &Uid, reported: Live) -> Live {
        let Some(answered) = self.live.get(uid) else {
            return reported;
        };
        if is_newer(answered, &reported) {
            return answered.clone();
        }
        self.live.remove(uid);
        reported
    }

    fn remember(&mut self, uid: &Uid, live: Live) {
        if self.live.insert(uid.clone(), live).is_none() {
            self.order.push_back(uid.clone());
        }
        while self.order.len() > MOST_RECENT {
            if let Some(oldest) = self.order.pop_front() {
                self.live.remove(&oldest);
            }
        }
    }
}

/// Resource versions of one kind grow, and are numbers.
fn is_newer(one: &Live, other: &Live) -> bool {
    let number = |live: &Live| {
        live.version
            .as_ref()
            .and_then(|text| text.parse::<u128>().ok())
    };
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one > other,
        (Some(_), None) => other.version.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use landfall_testkit::svc;

    use super::*;

    fn live(version: &str) -> Live {
        let row = svc("web")
            .with(|row| row.resource_version = Some(version.into()))
            .row();
        Live::of_row(&row)
    }

    #[test]
    fn our_own_answer_holds_until_the_watch_has_caught_up() {
        let mut recent = Recent::default();
        let uid = Uid::new("u");
        recent.remember(&uid, live("12"));
        assert_eq!(
            recent.newer_than(&uid, live("9")).version.as_deref(),
            Some("12")
        );
        assert_eq!(
            recent.newer_than(&uid, live("12")).version.as_deref(),
            Some("12")
        );
        assert!(recent.live.is_empty());
        assert_eq!(
            recent.newer_than(&uid, live("9")).version.as_deref(),
            Some("9")
        );
    }

    #[test]
    fn only_so_many_answers_are_kept() {
        let mut recent = Recent::default();
        for number in 0..3 * MOST_RECENT {
            recent.remember(&Uid::new(&number.to_string()), live("1"));
            recent.remember(&Uid::new("always"), live("1"));
        }
        assert!(recent.live.len() <= MOST_RECENT && recent.order.len() <= MOST_RECENT);
    }
}
