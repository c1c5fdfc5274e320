//! What the data plane changed, and whose: a reader reads those Services and at no others.

use std::collections::HashSet;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_model::Uid;
use tokio::sync::watch;

/// Services whose listeners, pools or members changed since they were taken last. Clones share
/// them.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    version: watch::Sender<u64>,
    services: Mutex<HashSet<Uid>>,
}

/// The changes of one Service.
#[derive(Clone, Debug)]
pub struct ChangesOf {
    changes: Changes,
    service: Uid,
}

// === impl Changes ===

impl Changes {
    /// A number that grows with every change.
    pub fn version(&self) -> watch::Receiver<u64> {
        self.inner.version.subscribe()
    }

    /// Takes the Services that changed.
    pub fn take(&self) -> HashSet<Uid> {
        mem::take(&mut *self.services())
    }

    /// Notes a change of the process that is of no single Service.
    pub(crate) fn raise(&self) {
        self.inner.version.send_modify(|version| *version += 1);
    }

    /// Notes a change of a Service.
    pub(crate) fn note(&self, service: &Uid) {
        self.services().insert(service.clone());
        self.raise();
    }

    /// Returns what notes changes of this Service.
    pub fn of(&self, service: &Uid) -> ChangesOf {
        ChangesOf {
            changes: self.clone(),
            service: service.clone(),
        }
    }

    fn services(&self) -> MutexGuard<'_, HashSet<Uid>> {
        let services = self.inner.services.lock();
        services.unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ChangesOf ===

impl ChangesOf {
    /// Notes a change.
    pub(crate) fn note(&self) {
        self.changes.note(&self.service);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_changed_often_is_taken_once() {
        let changes = Changes::default();
        let version = changes.version();
        let (web, api) = (Uid::new("web"), Uid::new("api"));
        changes.of(&web).note();
        changes.note(&web);
        changes.note(&api);
        changes.raise();
        assert_eq!(*version.borrow(), 4);
        assert_eq!(changes.take(), HashSet::from([web.clone(), api]));
        assert!(changes.take().is_empty());
        changes.note(&web);
        assert_eq!(changes.take(), HashSet::from([web]));
    }
}
