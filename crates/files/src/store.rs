//! The store's handle: finalizers and statuses, written durably, many at a time.
//!
//! It takes the place of an API server, with what follows from that: a write returns when it would
//! survive a power cut, comes back as a fact like any other only then, and if it fails, it did not
//! happen. Writers that come while the disk is busy share the next batch.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use landfall_model::status::ServiceStatus;
use landfall_model::{ServiceKey, Uid};
use tokio::sync::{Notify, OwnedMutexGuard, oneshot};

use crate::blocking::Blocking;
use crate::registry::{Outdated, Registry, Request, Write};
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
    #[error("the Service {key} does not exist any more")]
    Outdated {
        /// Which one.
        key: ServiceKey,
    },
    /// The state could not be written. What was written before is still there.
    #[error(transparent)]
    State(Arc<StateError>),
    /// The process is about to end.
    #[error("the state was not written, because the process is stopping")]
    Stopping,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<SharedState>,
    changed: Notify,
    /// `None`: nothing is remembered beyond this process.
    disk: Arc<tokio::sync::Mutex<Option<StateDir>>>,
    state_file: Option<PathBuf>,
    blocking: Blocking,
}

/// What writers and the disk share.
#[derive(Debug)]
struct SharedState {
    registry: Registry,
    /// The callers that wait for the next batch.
    waiting: Vec<Waiter>,
    /// Whether a batch is on its way to the disk.
    is_writing: bool,
    /// Why the last one failed, if it did.
    failure: Option<Arc<StateError>>,
}

#[derive(Debug)]
struct Waiter {
    /// `None`: for some of what is not on the disk yet.
    request: Option<Request>,
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<(), StoreError>;

// === impl ManifestStore ===

impl ManifestStore {
    /// Remembers in `state`, or not at all.
    pub(crate) fn new(registry: Registry, state: Option<StateDir>, blocking: Blocking) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(SharedState {
                    registry,
                    waiting: Vec::new(),
                    is_writing: false,
                    failure: None,
                }),
                changed: Notify::new(),
                state_file: state.as_ref().map(StateDir::path),
                disk: Arc::new(tokio::sync::Mutex::new(state)),
                blocking,
            }),
        }
    }

    /// Puts the finalizer on a Service, and replaces its status where one is given, in one write:
    /// from now on it is not gone before [`Self::remove_finalizer`]. Returns when that is durable.
    pub async fn add_finalizer(
        &self,
        key: &ServiceKey,
        uid: &Uid,
        status: Option<&ServiceStatus>,
    ) -> Result<(), StoreError> {
        self.write(key, uid, Write::Finalizer(status.cloned()))
            .await
    }

    /// Takes the finalizer off a Service, which ends it if its manifest is gone. A Service that is
    /// gone already is a success.
    pub async fn remove_finalizer(&self, key: &ServiceKey, uid: &Uid) -> Result<(), StoreError> {
        self.write(key, uid, Write::NoFinalizer).await
    }

    /// Replaces the status of a Service. Returns when that is durable.
    pub async fn write_status(
        &self,
        key: &ServiceKey,
        uid: &Uid,
        status: &ServiceStatus,
    ) -> Result<(), StoreError> {
        self.write(key, uid, Write::Status(status.clone())).await
    }

    async fn write(&self, key: &ServiceKey, uid: &Uid, write: Write) -> Result<(), StoreError> {
        let request = Request {
            key: key.clone(),
            uid: uid.clone(),
            write,
        };
        self.commit(Some(request)).await
    }

    /// Writes some of what changed without a waiting caller: after each write [`Self::changed`]
    /// returns, and then it is time for more. After a failure it is tried again only `if_failed`.
    /// Returns why the last write failed, if it did.
    pub(crate) async fn flush(&self, if_failed: bool) -> Option<Arc<StateError>> {
        let (has_unwritten, failure) = self
            .shared
            .with(|state| (state.registry.has_unwritten(), state.failure.clone()));
        if has_unwritten && (failure.is_none() || if_failed) {
            // What it comes to stands in the state.
            let _ = self.commit(None).await;
        }
        self.shared.with(|state| state.failure.clone())
    }

    /// Whether the disk is at work, or does not answer.
    pub(crate) fn is_busy(&self) -> bool {
        self.shared.disk.try_lock().is_err()
    }

    /// Makes sure that the state directory is still held, and is there. Returns why not. While the
    /// disk is busy, there is nothing to find out.
    pub(crate) async fn keep_hold(&self) -> Option<String> {
        let mut disk = self.shared.disk.clone().try_lock_owned().ok()?;
        let kept = self.blocking().run(move || {
            let kept = disk.as_mut().map(StateDir::keep_hold)?;
            kept.err().map(|error| error.to_string())
        });
        // It fails only where the runtime goes down.
        kept.await.ok().flatten()
    }

    /// Changes the registry, and wakes the sender of facts.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Registry) -> R) -> R {
        let result = self.with(change);
        self.shared.changed.notify_one();
        result
    }

    /// Reads the registry.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut Registry) -> R) -> R {
        self.shared.with(|state| look(&mut state.registry))
    }

    /// Where work that blocks is done.
    pub(crate) fn blocking(&self) -> &Blocking {
        &self.shared.blocking
    }

    /// Keeps other writers from the disk.
    #[cfg(test)]
    pub(crate) async fn seize_disk(&self) -> OwnedMutexGuard<Option<StateDir>> {
        self.shared.disk.clone().lock_owned().await
    }

    /// Returns when something may have changed since it last returned. Cancel-safe.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Where the state is written.
    pub(crate) fn state_file(&self) -> Option<&PathBuf> {
        self.shared.state_file.as_ref()
    }

    /// Returns when a request is durable, or, without one, some of what changed before. The first
    /// caller that finds the disk free writes for all that wait.
    async fn commit(&self, request: Option<Request>) -> Answer {
        let now = Timestamp::now();
        let (answer, mut answered) = oneshot::channel();
        let has_to_wait = self.shared.with(|state| {
            let is_durable = match &request {
                Some(request) => state.registry.is_settled(request),
                None => !state.registry.has_unwritten(),
            };
            if is_durable && state.waiting.is_empty() && !state.is_writing {
                return false;
            }
            state.waiting.push(Waiter { request, answer });
            true
        });
        if !has_to_wait {
            return Ok(());
        }
        let disk = tokio::select! {
            biased;
            answer = &mut answered => return answer.unwrap_or(Err(StoreError::Stopping)),
            disk = self.shared.disk.clone().lock_owned() => disk,
        };
        // The guard goes along: were this future dropped now, no other caller may write before this
        // write has ended.
        let shared = self.shared.clone();
        let written = self.blocking().run(move || shared.write_batch(disk, now));
        if written.await.is_err() {
            return Err(StoreError::Stopping);
        }
        answered.await.unwrap_or(Err(StoreError::Stopping))
    }
}

// === impl Shared ===

impl Shared {
    fn with<R>(&self, look: impl FnOnce(&mut SharedState) -> R) -> R {
        // No code that holds the lock can leave the state half changed.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        look(&mut state)
    }

    /// Writes for all that wait, and answers them. Blocks.
    fn write_batch(&self, mut disk: OwnedMutexGuard<Option<StateDir>>, now: Timestamp) {
        let (requests, asked, flushed, batch) = self.with(|state| {
            let (mut requests, mut asked, mut flushed) = (Vec::new(), Vec::new(), Vec::new());
            for Waiter { request, answer } in std::mem::take(&mut state.waiting) {
                match request {
                    Some(request) => {
                        requests.push(request);
                        asked.push(answer);
                    }
                    None => flushed.push(answer),
                }
            }
            let batch = state.registry.begin(&requests, now);
            state.is_writing = true;
            (requests, asked, flushed, batch)
        });
        let written = match &mut *disk {
            Some(state) => {
                // A crash in between leaves an address with no record rather than with two.
                let gone = state.commit(&batch.gone);
                gone.and_then(|()| state.commit(&batch.changes))
            }
            None => Ok(()),
        };
        let (answered, is_news) = self.with(|state| {
            state.is_writing = false;
            match written {
                Ok(()) => {
                    state.failure = None;
                    (Ok(state.registry.finish(&requests, batch)), true)
                }
                Err(error) => {
                    state.registry.fail(batch);
                    let error = Arc::new(error);
                    let is_first = state.failure.replace(error.clone()).is_none();
                    (Err(error), is_first)
                }
            }
        });
        if is_news {
            self.changed.notify_one();
        }
        // The caller may have gone meanwhile, and then takes no answer.
        match answered {
            Ok(outcomes) => {
                for ((request, answer), outcome) in requests.into_iter().zip(asked).zip(outcomes) {
                    let key = request.key;
                    let outcome = outcome.map_err(|Outdated| StoreError::Outdated { key });
                    let _ = answer.send(outcome);
                }
                for answer in flushed {
                    let _ = answer.send(Ok(()));
                }
            }
            Err(error) => {
                for answer in asked.into_iter().chain(flushed) {
                    let _ = answer.send(Err(StoreError::State(error.clone())));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
