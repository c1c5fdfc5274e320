//! A data plane that opens no sockets: it only keeps which Service has which listener open. For
//! model tests of the whole controller, which play thousands of lives of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use landfall_model::Uid;
use landfall_proxy::{ListenerId, Owner};

/// Open listeners, and the Service of each.
pub type Listeners = BTreeMap<ListenerId, Owner>;

type OnOpen = dyn Fn(ListenerId, &Owner) + Send + Sync;

/// The data plane.
pub struct Memory {
    listeners: Mutex<Listeners>,
    on_open: Box<OnOpen>,
}

// === impl Memory ===

impl Memory {
    /// Makes one without listeners, which calls `on_open` before one opens or passes to another
    /// Service.
    pub fn new(on_open: impl Fn(ListenerId, &Owner) + Send + Sync + 'static) -> Self {
        Self {
            listeners: Mutex::default(),
            on_open: Box::new(on_open),
        }
    }

    /// Returns the listeners that are open.
    pub fn listeners(&self) -> Listeners {
        self.lock().clone()
    }

    pub(crate) fn owner(&self, id: ListenerId) -> Option<Uid> {
        self.lock().get(&id).map(|owner| owner.uid.clone())
    }

    pub(crate) fn open(&self, id: ListenerId, owner: &Owner) {
        if self.owner(id).as_ref() != Some(&owner.uid) {
            (self.on_open)(id, owner);
        }
        self.lock().insert(id, owner.clone());
    }

    /// Closes a listener, if it is this Service's.
    pub(crate) fn close(&self, id: ListenerId, owner: &Uid) {
        let mut listeners = self.lock();
        if listeners.get(&id).is_some_and(|it| it.uid == *owner) {
            listeners.remove(&id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("listeners", &self.listeners())
            .finish_non_exhaustive()
    }
}
