//! The listeners of all Services in the data plane: opened, changed and closed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_model::listener::{Listener, Mode};
use landfall_model::provider::{Applied, ProviderError, Retry, Scope};
use landfall_model::reason::{Code, Reason};
use landfall_model::{ServiceKey, Uid};
use landfall_proxy::{ListenError, ListenerConfig, ListenerId, ListenerState, Owner, Proxy};
use tokio_util::task::TaskTracker;

use crate::failure::listen_failure;
use crate::observed::Opened;
use crate::quota::Quota;
use crate::state::State;
use crate::step::Step;

/// What carries the traffic.
#[derive(Clone, Debug)]
pub(crate) enum Carrier {
    DataPlane(Arc<Proxy>),
    #[cfg(feature = "memory")]
    Memory(Arc<crate::memory::Memory>),
    /// Nothing: this is a dry run.
    Nothing,
}

/// Listeners, what is known of them, and what carries their traffic.
#[derive(Debug)]
pub(crate) struct Listeners {
    carrier: Carrier,
    /// Shared with changes of sockets that outlive the reconcile which began them.
    state: Arc<Mutex<State>>,
    quota: Arc<Mutex<Quota>>,
    /// Changes of sockets in flight. A reconcile that is broken off leaves its own to end by
    /// itself.
    changes: TaskTracker,
}

/// The addresses at which a provider has listeners.
#[derive(Clone, Debug)]
pub struct OpenAddresses {
    state: Arc<Mutex<State>>,
}

// === impl OpenAddresses ===

impl OpenAddresses {
    /// Returns them as they are now.
    pub fn now(&self) -> BTreeSet<IpAddr> {
        let state = locked(&self.state);
        let open = state.all().filter(|(_, _, it)| it.problem.is_none());
        open.map(|(_, id, _)| id.address).collect()
    }
}

// === impl Listeners ===

impl Listeners {
    pub(crate) fn new(carrier: Carrier, state: State, quota: Quota) -> Self {
        Self {
            carrier,
            state: Arc::new(Mutex::new(state)),
            quota: Arc::new(Mutex::new(quota)),
            changes: TaskTracker::new(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    pub(crate) fn quota(&self) -> MutexGuard<'_, Quota> {
        locked(&self.quota)
    }

    pub(crate) fn addresses(&self) -> OpenAddresses {
        OpenAddresses {
            state: Arc::clone(&self.state),
        }
    }

    /// Returns the data plane, if there is one.
    pub(crate) fn proxy(&self) -> Option<&Arc<Proxy>> {
        match &self.carrier {
            Carrier::DataPlane(proxy) => Some(proxy),
            #[cfg(feature = "memory")]
            Carrier::Memory(_) => None,
            Carrier::Nothing => None,
        }
    }

    /// Closes all listeners. No reconcile may run.
    pub(crate) async fn close_all(&self) {
        // A change that outlived its reconcile must not open anything later.
        self.changes.close();
        self.changes.wait().await;
        self.changes.reopen();
        self.state().forget_everything();
        self.quota().clear();
        if let Some(proxy) = self.proxy() {
            proxy.close_all().await;
        }
    }

    /// Carries out a step that is about a listener.
    pub(crate) async fn apply(&self, step: &Step) -> Result<Applied, ProviderError> {
        match step {
            Step::Open {
                uid,
                service,
                id,
                listener,
            }
            | Step::Change {
                uid,
                service,
                id,
                listener,
                ..
            } => self.serve(uid, service, *id, listener).await,
            Step::Close { uid, id } => {
                self.close(*id, uid).await;
                Ok(Applied::Done)
            }
            Step::Address(_) => Ok(Applied::Done),
        }
    }

    /// Opens a listener or changes it in place.
    async fn serve(
        &self,
        uid: &Uid,
        service: &ServiceKey,
        id: ListenerId,
        listener: &Arc<Listener>,
    ) -> Result<Applied, ProviderError> {
        let owner = Owner {
            uid: uid.clone(),
            service: service.clone(),
        };
        let taken = self.quota().take(id, service);
        let is_new = match taken {
            Ok(is_new) => is_new,
            Err(reason) => {
                let problem = Some(Reason::clone(&reason));
                self.state().note(uid, id, listener.clone(), problem);
                return Err(ProviderError {
                    reason: *reason,
                    retry: Retry::Backoff,
                    scope: Scope::Step,
                });
            }
        };
        let Err(error) = self.carry(id, &owner, listener, is_new, None).await else {
            return Ok(Applied::Done);
        };
        let failure = listen_failure(&error);
        let opened = self.observed(&self.state(), uid).remove(&id);
        let Some(serving) = opened.filter(|it| it.problem.is_none()) else {
            let problem = Some(failure.reason.clone());
            self.state().note(uid, id, listener.clone(), problem);
            return Err(failure);
        };
        // A listener that serves goes on with what it had.
        if matches!(error, ListenError::Certificate { .. }) {
            let kept = Arc::new(with_mode_of(&serving.listener, listener));
            let refused = Some((listener.clone(), failure.reason.clone()));
            if self.carry(id, &owner, &kept, false, refused).await.is_ok() {
                return Err(ProviderError {
                    retry: Retry::Now,
                    ..failure
                });
            }
        }
        Err(failure)
    }

    /// Lets a listener serve in this way, and notes that it does. `is_new`: its place was taken for
    /// this, and is given back if it fails; `refused`: in place of a newer version, and why.
    async fn carry(
        &self,
        id: ListenerId,
        owner: &Owner,
        listener: &Arc<Listener>,
        is_new: bool,
        refused: Option<(Arc<Listener>, Reason)>,
    ) -> Result<(), ListenError> {
        let quota = self.quota.clone();
        let give_back = move |_: &ListenError| {
            if is_new {
                locked(&quota).closed(id);
            }
        };
        let note = {
            let (uid, listener) = (owner.uid.clone(), listener.clone());
            move |state: &mut State| match refused {
                Some(refused) => state.note_refused(&uid, id, listener, refused),
                None => state.note(&uid, id, listener, None),
            }
        };
        match &self.carrier {
            Carrier::DataPlane(proxy) => {
                let (proxy, owner, listener) = (proxy.clone(), owner.clone(), listener.clone());
                let (state, quota) = (self.state.clone(), self.quota.clone());
                // A pass may be broken off at any moment, and a change of sockets must not be: it
                // is a task of its own, which ends by itself within moments. So does the note of
                // it: what is open and not noted would never be closed.
                let change = async move {
                    let applied = proxy.apply(id, &owner, &listener).await;
                    applied.inspect_err(give_back)?;
                    let mut state = locked(&state);
                    // It may have passed to another Service meanwhile.
                    if proxy.find(id).is_some_and(|it| it.owner().uid == owner.uid) {
                        locked(&quota).opened(id, &owner.service);
                        note(&mut state);
                    }
                    Ok(())
                };
                let changed = self.changes.spawn(change).await;
                changed.unwrap_or(Err(ListenError::ShuttingDown { id }))
            }
            #[cfg(feature = "memory")]
            Carrier::Memory(memory) => {
                ListenerConfig::new(id, listener).inspect_err(give_back)?;
                memory.open(id, owner);
                self.quota().opened(id, &owner.service);
                note(&mut self.state());
                Ok(())
            }
            Carrier::Nothing => {
                ListenerConfig::new(id, listener).inspect_err(give_back)?;
                self.quota().opened(id, &owner.service);
                note(&mut self.state());
                Ok(())
            }
        }
    }

    /// Closes a listener, if it is this Service's.
    async fn close(&self, id: ListenerId, owner: &Uid) {
        if self.carries(owner, id) {
            self.quota().closed(id);
        }
        match &self.carrier {
            Carrier::DataPlane(proxy) => {
                let (proxy, owner) = (proxy.clone(), owner.clone());
                // As above.
                let closing = self
                    .changes
                    .spawn(async move { proxy.close(id, &owner).await });
                let _closed = closing.await;
            }
            #[cfg(feature = "memory")]
            Carrier::Memory(memory) => memory.close(id, owner),
            Carrier::Nothing => {}
        }
        self.state().forget(owner, id);
    }

    /// Whether the data plane has this listener, and for this Service.
    pub(crate) fn carries(&self, service: &Uid, id: ListenerId) -> bool {
        match &self.carrier {
            Carrier::DataPlane(_) => self.find(service, id).is_some(),
            #[cfg(feature = "memory")]
            Carrier::Memory(memory) => memory.owner(id).as_ref() == Some(service),
            Carrier::Nothing => true,
        }
    }

    /// A listener of a Service, live.
    pub(crate) fn find(&self, service: &Uid, id: ListenerId) -> Option<Arc<ListenerState>> {
        let listener = self.proxy()?.find(id)?;
        (listener.owner().uid == *service).then_some(listener)
    }

    /// The listeners of a Service as they are noted, except that one which the data plane does not
    /// have for it does not serve.
    pub(crate) fn observed(
        &self,
        state: &State,
        service: &Uid,
    ) -> BTreeMap<ListenerId, Arc<Opened>> {
        let mut listeners = state.listeners(service);
        for (id, opened) in &mut listeners {
            if opened.problem.is_none() && !self.carries(service, *id) {
                let message = format!("{id} is not open any more");
                let problem = Reason::warning(Code::ListenFailed, message);
                Arc::make_mut(opened).problem = Some(problem);
            }
        }
        listeners
    }
}

/// The newest version with the certificates of the one that serves (or its whole mode, where that
/// one has none): its members and options must not wait for a certificate.
fn with_mode_of(serving: &Listener, newest: &Listener) -> Listener {
    let mut kept = newest.clone();
    kept.mode = serving.mode.clone();
    kept.pool.tls.clone_from(&serving.pool.tls);
    match (&mut kept.mode, &newest.mode) {
        (Mode::Https { http, .. }, Mode::Https { http: wanted, .. }) => *http = *wanted,
        (Mode::Stream | Mode::Tls { .. } | Mode::Http(_) | Mode::Https { .. }, _) => {}
    }
    kept
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
