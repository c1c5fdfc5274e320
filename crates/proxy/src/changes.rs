//! What the data plane changed, and whose: a reader checks those Services and no others.

use std::collections::HashSet;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use landfall_model::Uid;
use tokio::sync::watch;

type Services = Mutex<HashSet<Uid>>;

/// The place where changes of listeners, pools and members are noted. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    version: watch::Sender<u64>,
    subscriptions: Mutex<Vec<Weak<Services>>>,
}

/// The Services that changed, for one reader. Clones share what is to be taken.
#[derive(Clone, Debug)]
pub struct Subscription {
    version: watch::Receiver<u64>,
    services: Arc<Services>,
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

    /// Returns what takes the Services that change from now on.
    pub fn subscribe(&self) -> Subscription {
        let services = Arc::<Services>::default();
        lock(&self.inner.subscriptions).push(Arc::downgrade(&services));
        Subscription {
            version: self.version(),
            services,
        }
    }

    /// Notes a change of the process that is of no single Service.
    pub(crate) fn raise(&self) {
        self.inner.version.send_modify(|version| *version += 1);
    }

    /// Notes a change of a Service.
    pub(crate) fn note(&self, service: &Uid) {
        lock(&self.inner.subscriptions).retain(|subscription| {
            let services = subscription.upgrade();
            if let Some(services) = &services {
                lock(services).insert(service.clone());
            }
            services.is_some()
        });
        self.raise();
    }

    /// Returns what notes changes of this Service.
    pub fn of(&self, service: &Uid) -> ChangesOf {
        ChangesOf {
            changes: self.clone(),
            service: service.clone(),
        }
    }
}

// === impl Subscription ===

impl Subscription {
    /// Waits until something changes; returns false once nothing can change any more.
    pub async fn changed(&mut self) -> bool {
        self.version.changed().await.is_ok()
    }

    /// Takes the Services that changed since they were taken last.
    pub fn take(&self) -> HashSet<Uid> {
        mem::take(&mut *lock(&self.services))
    }
}

// === impl ChangesOf ===

impl ChangesOf {
    /// Notes a change.
    pub(crate) fn note(&self) {
        self.changes.note(&self.service);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_changed_often_is_taken_once() {
        let changes = Changes::default();
        let reader = changes.subscribe();
        let (web, api) = (Uid::new("web"), Uid::new("api"));
        changes.of(&web).note();
        changes.note(&web);
        changes.note(&api);
        changes.raise();
        assert_eq!(*changes.version().borrow(), 4);
        assert_eq!(reader.take(), HashSet::from([web.clone(), api]));
        assert!(reader.take().is_empty());
        changes.note(&web);
        assert_eq!(reader.take(), HashSet::from([web]));
    }

    #[test]
    fn each_reader_takes_all_changes() {
        let changes = Changes::default();
        let (one, other) = (changes.subscribe(), changes.subscribe());
        let web = HashSet::from([Uid::new("web")]);
        changes.note(&Uid::new("web"));
        assert_eq!(one.take(), web);
        drop(one);
        assert_eq!(other.take(), web);
        changes.note(&Uid::new("web"));
        assert_eq!(other.take(), web);
        assert_eq!(lock(&changes.inner.subscriptions).len(), 1);
    }
}
