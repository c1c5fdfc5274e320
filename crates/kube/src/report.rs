//! What the engine writes back: finalizers, status and events of Services, in the API server.
//!
//! Everything goes through `services/status`, so that no right to change a Service's spec is needed.
//! Nothing is written that is there already, nothing that is others', and nothing at all unless the
//! [`WriteGuard`] allows it. Who wrote stands in the `User-Agent` of the [`Connection`].

mod events;
mod patch;

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use http::Method;
use landfall_engine::report::{Event, Report, ReportError};
use landfall_model::rows::ServiceRow;
use landfall_model::status::{Condition, ServiceStatus};
use landfall_model::{ServiceKey, Uid, wire};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::{self, ApiError, Ask, STRATEGIC_MERGE};
use crate::connect::Connection;
use crate::lease::WriteGuard;

use events::{Announcer, Occurrence};
use patch::{Live, finalizer_patch, release_patch, status_patch};

/// Reports to the API server.
#[derive(Debug)]
pub struct KubeReports {
    connection: Connection,
    guard: WriteGuard,
    recent: Mutex<Recent>,
    events: Announcer,
}

/// What the API server answered to our own writes, until the watch has caught up with them.
#[derive(Debug, Default)]
struct Recent {
    live: HashMap<Uid, Live>,
    order: VecDeque<Uid>,
}

/// What became of a Service that could not be written.
enum Now {
    /// It is the same Service, and looks like this.
    Same { live: Box<Live>, deleting: bool },
    /// It is gone, or another one of its name is there.
    Gone,
}

/// A watch is rarely further behind than this many of our own writes; if it is, a write costs a
/// second look.
const MOST_RECENT: usize = 1024;

/// The longest that a single write may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// How often one write may meet somebody else's.
const ATTEMPTS: usize = 3;

/// The manager of our fields.
const MANAGER: &str = "landfall";

// === impl KubeReports ===

impl KubeReports {
    /// Reports as `instance`: the name that events carry. Events are sent by a task of the tracker's,
    /// which ends, after what is queued, when cancelled.
    pub fn new(
        connection: Connection,
        guard: WriteGuard,
        instance: &str,
        tasks: &TaskTracker,
        cancel: &CancellationToken,
    ) -> Self {
        let events = Announcer::start(
            connection.clone(),
            guard.clone(),
            instance,
            tasks,
            cancel.clone(),
        );
        Self {
            connection,
            guard,
            recent: Mutex::default(),
            events,
        }
    }

    /// Events that were dropped because the API server was too slow for them.
    pub fn dropped_events(&self) -> u64 {
        self.events.dropped()
    }

    async fn patch(&self, service: &ServiceRow, body: &Value) -> Result<Live, ApiError> {
        let patience = self
            .guard
            .allows()
            .ok_or(ApiError::NotLeading)?
            .min(PATIENCE);
        let path = format!("{}/status?fieldManager={MANAGER}", path_of(&service.key));
        let what = "patch services/status";
        let ask = Ask::send(Method::PATCH, path, STRATEGIC_MERGE, body, what);
        let answer: wire::Service = api::request_json(&self.connection, ask, patience).await?;
        Ok(Live::of_answer(answer))
    }

    async fn look(&self, service: &ServiceRow) -> Result<Now, ApiError> {
        let ask = Ask::get(path_of(&service.key), "get services");
        let answer: wire::Service = match api::request_json(&self.connection, ask, PATIENCE).await {
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

    fn live(&self, service: &ServiceRow) -> Live {
        let told = Live::of_row(service);
        match self.recent.lock() {
            Ok(mut recent) => recent.newer_than(&service.uid, told),
            Err(_) => told,
        }
    }

    fn remember(&self, service: &ServiceRow, live: Live) {
        if let Ok(mut recent) = self.recent.lock() {
            recent.remember(&service.uid, live);
        }
    }

    fn forget(&self, service: &ServiceRow) {
        if let Ok(mut recent) = self.recent.lock() {
            recent.live.remove(&service.uid);
        }
    }
}

impl Report for KubeReports {
    async fn add_finalizer(
        &self,
        service: &ServiceRow,
        begun: Option<&Condition>,
    ) -> Result<(), ReportError> {
        const WHAT: &str = "finalizer";
        if self.live(service).finalized {
            return Ok(());
        }
        let error = match self
            .patch(service, &finalizer_patch(service.uid.as_str(), begun))
            .await
        {
            Ok(live) => {
                self.remember(service, live);
                return Ok(());
            }
            Err(error) if error.is_not_found() => return Err(ReportError::Conflict { what: WHAT }),
            Err(error) => error,
        };
        if !may_be_another(&error) {
            return Err(failed(WHAT, &error));
        }
        match self.look(service).await {
            // Nothing may be added to what is being deleted.
            Ok(Now::Gone | Now::Same { deleting: true, .. }) => {
                Err(ReportError::Conflict { what: WHAT })
            }
            Ok(Now::Same { live, .. }) => {
                self.remember(service, *live);
                Err(failed(WHAT, &error))
            }
            Err(error) => Err(failed(WHAT, &error)),
        }
    }

    async fn remove_finalizer(&self, service: &ServiceRow) -> Result<(), ReportError> {
        const WHAT: &str = "finalizer";
        let mut live = self.live(service);
        for _ in 0..ATTEMPTS {
            let body = release_patch(service.uid.as_str(), &live);
            let error = match self.patch(service, &body).await {
                Ok(_) => {
                    self.forget(service);
                    return Ok(());
                }
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => error,
            };
            if !may_be_another(&error) {
                return Err(failed(WHAT, &error));
            }
            match self.look(service).await {
                Ok(Now::Gone) => return Ok(()),
                Ok(Now::Same { live: newer, .. }) => {
                    self.remember(service, (*newer).clone());
                    if !error.is_conflict() {
                        return Err(failed(WHAT, &error));
                    }
                    live = *newer;
                }
                Err(error) => return Err(failed(WHAT, &error)),
            }
        }
        Err(ReportError::Conflict { what: WHAT })
    }

    async fn write_status(
        &self,
        service: &ServiceRow,
        status: &ServiceStatus,
    ) -> Result<(), ReportError> {
        const WHAT: &str = "status";
        let mut live = self.live(service);
        for _ in 0..ATTEMPTS {
            let Some(body) = status_patch(service.uid.as_str(), &live, status) else {
                return Ok(());
            };
            let error = match self.patch(service, &body).await {
                Ok(live) => {
                    self.remember(service, live);
                    return Ok(());
                }
                Err(error) if error.is_not_found() => {
                    return Err(ReportError::Conflict { what: WHAT });
                }
                Err(error) => error,
            };
            if !may_be_another(&error) {
                return Err(failed(WHAT, &error));
            }
            match self.look(service).await {
                Ok(Now::Gone) => return Err(ReportError::Conflict { what: WHAT }),
                Ok(Now::Same { live: newer, .. }) if error.is_conflict() => {
                    // Somebody wrote in between: what they put there has to stay, too.
                    self.remember(service, (*newer).clone());
                    live = *newer;
                }
                Ok(Now::Same { .. }) => return Err(failed(WHAT, &error)),
                Err(error) => return Err(failed(WHAT, &error)),
            }
        }
        Err(ReportError::Conflict { what: WHAT })
    }

    async fn event(&self, service: &ServiceRow, event: &Event) {
        self.events.announce(Occurrence::now(service, event));
    }
}

/// Whether a refusal may mean that the Service of this name is another one by now, or has changed.
fn may_be_another(error: &ApiError) -> bool {
    matches!(
        error,
        ApiError::Refused {
            code: 409 | 422,
            ..
        }
    )
}

fn failed(what: &'static str, error: &ApiError) -> ReportError {
    ReportError::Failed {
        what,
        why: error.to_string(),
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
    /// Whatever is newer: what the watch told, or what our own last write was answered with.
    fn newer_than(&mut self, uid: &Uid, told: Live) -> Live {
        let Some(answered) = self.live.get(uid) else {
            return told;
        };
        if is_newer(answered, &told) {
            return answered.clone();
        }
        self.live.remove(uid);
        told
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
