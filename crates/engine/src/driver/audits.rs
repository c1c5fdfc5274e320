//! Reads everything that an instance holds. They go on beside the loop, and none waits for
//! another instance's.

use std::collections::HashMap;
use std::time::Duration;

use landfall_model::Uid;
use landfall_model::provider::{Provider, ProviderError};
use tokio::task::{self, JoinError, JoinSet};

use super::Engine;
use crate::instance::InstanceId;
use crate::report::Report;

/// The looks that go on: at most one per instance.
#[derive(Debug, Default)]
pub(super) struct Audits {
    tasks: JoinSet<Found>,
    instances: HashMap<task::Id, InstanceId>,
}

/// What a look found; `None`: it took too long.
type Found = Option<Result<Vec<Uid>, ProviderError>>;

/// The longest that a look may take. It reads some lists; a cloud that gives none in this time has
/// hung up without saying so.
const LIMIT: Duration = Duration::from_mins(10);

// === impl Audits ===

impl Audits {
    /// The next end of an audit, and its instance. Never, where none is running.
    pub(super) async fn join_next(&mut self) -> (Option<InstanceId>, Result<Found, JoinError>) {
        let Some(end) = self.tasks.join_next_with_id().await else {
            return std::future::pending().await;
        };
        let id = end.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        (self.instances.remove(&id), end.map(|(_, found)| found))
    }

    fn goes_on(&self, instance: InstanceId) -> bool {
        self.instances.values().any(|it| *it == instance)
    }
}

// === impl Engine ===

impl<P: Provider, R: Report> Engine<P, R> {
    /// Reads everything, but for instances where the last look still goes on.
    pub(super) fn start_audit(&mut self) {
        for (instance, provider) in InstanceId::enumerate(&self.handle.providers) {
            if self.audits.goes_on(instance) {
                continue;
            }
            let provider = provider.clone();
            let look = async move { tokio::time::timeout(LIMIT, provider.audit()).await.ok() };
            let task = self.audits.tasks.spawn(look);
            self.audits.instances.insert(task.id(), instance);
        }
    }

    pub(super) fn take_audit(
        &mut self,
        (instance, end): (Option<InstanceId>, Result<Found, JoinError>),
    ) {
        let instance = instance.and_then(|it| self.config.classes.name(it));
        let changed = match end {
            Ok(Some(Ok(changed))) => changed,
            Ok(Some(Err(error))) => return tracing::warn!(instance, %error, "the audit failed"),
            Ok(None) => {
                let minutes = LIMIT.as_secs() / 60;
                return tracing::warn!(instance, "the audit timed out after {minutes} minutes");
            }
            Err(error) => {
                return tracing::error!(instance, %error, "the audit panicked; this is a bug");
            }
        };
        for key in changed.iter().filter_map(|uid| self.by_uid.get(uid)) {
            tracing::info!(service = %key, "the audit found drift");
            self.queue.push(key);
        }
    }
}
