//! The store's handle: finalizers and statuses, written durably, many at a time.
//!
//! It takes the place of an API server, with what follows from that: a write returns when it would
//! survive a power cut, and comes back as a fact like anybody's.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use landfall_model::status::{Condition, ServiceStatus};
use landfall_model::{ServiceKey, Uid};
use tokio::sync::Notify;

use crate::registry::{Outdated, Registry};
use crate::state::{StateDir, StateError};

/// Finalizers and statuses of the Services of a [`crate::Manifests`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ManifestStore {
    shared: Arc<Shared>,
}

/// A write that did not happen.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The Service is gone, or another one has its name now.
    #[error("the Service {key} is not there any more")]
    Outdated {
        /// Which one.
        key: ServiceKey,
    },
    /// The state could not be written. What was written before is still there.
    #[error(transparent)]
    State(#[from] StateError),
    /// The process is about to end.
    #[error("the state was not written, because the process is stopping")]
    Stopping,
}

#[derive(Debug)]
struct Shared {
    registry: Mutex<Registry>,
    changed: Notify,
    /// `None`: nothing is remembered beyond this process.
    disk: Option<Arc<tokio::sync::Mutex<Disk>>>,
    state_file: Option<PathBuf>,
}

#[derive(Debug)]
struct Disk {
    state: StateDir,
    /// The revision that is on the disk.
    durable: u64,
}

// === impl ManifestStore ===

impl ManifestStore {
    /// Remembers in `state`, or not at all.
    pub(crate) fn new(registry: Registry, state: Option<StateDir>) -> Self {
        let state_file = state.as_ref().map(StateDir::path);
        let disk = state.map(|state| {
            let durable = registry.revision();
            Arc::new(tokio::sync::Mutex::new(Disk { state, durable }))
        });
        Self {
            shared: Arc::new(Shared {
                registry: Mutex::new(registry),
                changed: Notify::new(),
                disk,
                state_file,
            }),
        }
    }

    /// Puts the finalizer on a Service, with a condition where one is given: from now on it is not
    /// gone before [`Self::remove_finalizer`]. Returns when that is durable.
    pub async fn add_finalizer(
        &self,
        key: &ServiceKey,
        uid: &Uid,
        begun: Option<&Condition>,
    ) -> Result<(), StoreError> {
        let revision = self.change(|registry| registry.add_finalizer(key, uid, begun));
        self.commit(revision.map_err(|Outdated| outdated(key))?)
            .await
    }

    /// Takes the finalizer off a Service, which ends it if its manifest is gone. A Service that is
    /// gone already is a success.
    pub async fn remove_finalizer(&self, key: &ServiceKey, uid: &Uid) -> Result<(), StoreError> {
        let now = Timestamp::now();
        let revision = self.change(|registry| registry.remove_finalizer(key, uid, now));
        self.commit(revision).await
    }

    /// Replaces the status of a Service. Returns when that is durable.
    pub async fn write_status(
        &self,
        key: &ServiceKey,
        uid: &Uid,
        status: &ServiceStatus,
    ) -> Result<(), StoreError> {
        let revision = self.change(|registry| registry.write_status(key, uid, status));
        self.commit(revision.map_err(|Outdated| outdated(key))?)
            .await
    }

    /// Changes the registry, and wakes whoever tells of changes.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Registry) -> R) -> R {
        let result = self.with(change);
        self.shared.changed.notify_one();
        result
    }

    /// Looks at the registry.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut Registry) -> R) -> R {
        // No code that holds the lock can leave the registry half changed.
        let mut registry = self
            .shared
            .registry
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        look(&mut registry)
    }

    /// Returns when something may have changed since it last returned. Cancel-safe.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Where the state is written.
    pub(crate) fn state_file(&self) -> Option<&PathBuf> {
        self.shared.state_file.as_ref()
    }

    /// Returns when a revision is durable. Whoever comes first writes for all who wait.
    pub(crate) async fn commit(&self, revision: u64) -> Result<(), StoreError> {
        let Some(disk) = &self.shared.disk else {
            return Ok(());
        };
        let mut disk = disk.clone().lock_owned().await;
        if disk.durable >= revision {
            return Ok(());
        }
        let (revision, records) = self.with(|registry| (registry.revision(), registry.records()));
        // The guard goes along: were this future dropped now, nobody else may write before this
        // write has ended.
        let written = tokio::task::spawn_blocking(move || {
            disk.state.write(&records)?;
            disk.durable = revision;
            Ok(())
        });
        match written.await {
            Ok(result) => result.map_err(StoreError::State),
            Err(_) => Err(StoreError::Stopping),
        }
    }
}

fn outdated(key: &ServiceKey) -> StoreError {
    StoreError::Outdated { key: key.clone() }
}

#[cfg(test)]
mod tests;
