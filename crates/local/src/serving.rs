//! Serving of Services whose addresses are given: listeners and what they need, without claims.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use landfall_model::limits::Limits;
use landfall_model::listener::Listener;
use landfall_model::plan::Plan;
use landfall_model::provider::ProviderError;
use landfall_model::view::ListenerView;
use landfall_model::{ServiceKey, Uid};
use landfall_proxy::Proxy;

use crate::carrier::{Carrier, Listeners};
use crate::live;
use crate::plan::WantedListeners;
use crate::quota::Quota;
use crate::state::State;

/// Serves Services at addresses that something else assigns.
#[derive(Debug)]
pub struct Serving {
    listeners: Listeners,
}

// === impl Serving ===

impl Serving {
    /// Serves with this data plane, within these limits. It has no listener yet.
    pub fn new(proxy: Arc<Proxy>, limits: Limits) -> Self {
        let mut quota = Quota::default();
        quota.limit(limits.ports_per_namespace);
        let carrier = Carrier::DataPlane(proxy);
        Self {
            listeners: Listeners::new(carrier, State::default(), quota),
        }
    }

    /// Lets a Service have these listeners on each of these addresses, and no others. Listeners
    /// that it has no more drain.
    ///
    /// # Errors
    /// What could not be done; all the rest was.
    pub async fn serve(
        &self,
        uid: &Uid,
        service: &ServiceKey,
        listeners: &[Listener],
        addresses: &[IpAddr],
    ) -> Result<(), Vec<ProviderError>> {
        let have = self.listeners.observed(&self.listeners.state(), uid);
        let wanted = WantedListeners {
            uid,
            service,
            listeners,
            addresses,
        };
        let mut plan = Plan::default();
        wanted.plan(&mut plan, &have);
        let mut failed = Vec::new();
        for planned in &plan.steps {
            failed.extend(self.listeners.apply(&planned.step).await.err());
        }
        if failed.is_empty() {
            Ok(())
        } else {
            Err(failed)
        }
    }

    /// Returns the Services whose listener the data plane does not have, and lets members that
    /// failed have connections again.
    pub fn audit(&self) -> Vec<Uid> {
        let state = self.listeners.state();
        let mut lost = Vec::new();
        for (uid, id, opened) in state.all() {
            match self.listeners.find(uid, *id) {
                Some(listener) => listener.pool().forget_failures(Instant::now()),
                None if opened.problem.is_none() => lost.push(uid.clone()),
                None => {}
            }
        }
        lost.dedup();
        lost
    }

    /// The listeners of a Service, live.
    pub fn live(&self, service: &Uid) -> Vec<ListenerView> {
        live::listeners(&self.listeners, service)
    }
}
