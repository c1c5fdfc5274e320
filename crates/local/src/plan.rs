//! Planning: pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_addressing::plan_removal;
use landfall_model::intent::Intent;
use landfall_model::listener::{Listener, ListenerKey};
use landfall_model::plan::Plan;
use landfall_model::reason::Reason;
use landfall_model::{ServiceKey, Uid};
use landfall_proxy::ListenerId;

use crate::observed::{Observed, Opened};
use crate::step::Step;
use crate::{difference, status};

/// Plans the steps from what is held to what is wanted.
pub fn plan(want: &Intent, have: &Observed) -> Result<Plan<Step>, Vec<Reason>> {
    let mut listeners = Plan::default();
    let addresses = match &want.load_balancer {
        None => {
            for id in have.listeners.keys() {
                let (uid, id) = (want.uid.clone(), *id);
                listeners.push(Step::Close { uid, id }, "the Service needs none");
            }
            plan_removal(want, &have.addresses)
        }
        Some(spec) => {
            let in_use = !have.listeners.is_empty();
            let publish = |addresses: &[IpAddr]| status::published(spec, addresses);
            let plan = landfall_addressing::plan(want, &have.addresses, in_use, publish)?;
            let wanted = WantedListeners {
                uid: &want.uid,
                service: &want.service,
                listeners: &spec.listeners,
                addresses: &plan.addresses,
            };
            wanted.plan(&mut listeners, &have.listeners);
            plan
        }
    };
    listeners.steps = addresses.around(listeners.steps);
    Ok(listeners)
}

/// The listeners that a Service is to have.
pub struct WantedListeners<'a> {
    /// Identity of the Service.
    pub uid: &'a Uid,
    /// The Service.
    pub service: &'a ServiceKey,
    /// How they are to be; on each address all of them.
    pub listeners: &'a [Listener],
    /// The addresses.
    pub addresses: &'a [IpAddr],
}

// === impl WantedListeners ===

impl WantedListeners<'_> {
    /// Plans the steps that lead there from the listeners that it has.
    pub fn plan(&self, plan: &mut Plan<Step>, have: &BTreeMap<ListenerId, Arc<Opened>>) {
        // What can fail for reasons outside this process comes last, and what exists is kept
        // current before anything new is tried.
        let mut opening = Plan::default();
        for (id, listener) in self.wanted() {
            let (uid, service) = (self.uid.clone(), self.service.clone());
            match have.get(&id) {
                Some(opened) if opened.problem.is_none() => {
                    let refused = opened.refused.as_ref().map(|(listener, _)| listener);
                    if opened.listener == listener || refused == Some(&listener) {
                        continue;
                    }
                    let changes = difference::between(&opened.listener, &listener);
                    let members_only = difference::of_members_only(&opened.listener, &listener);
                    let step = Step::Change {
                        uid,
                        service,
                        id,
                        changes,
                        listener,
                    };
                    if members_only {
                        plan.push_members(step, "its endpoints changed");
                    } else {
                        plan.push(step, "the Service or its endpoints changed");
                    }
                }
                Some(_) => opening.push(
                    Step::Open {
                        uid,
                        service,
                        id,
                        listener,
                    },
                    "it could not be opened before",
                ),
                None => opening.push(
                    Step::Open {
                        uid,
                        service,
                        id,
                        listener,
                    },
                    "the Service has this port and no listener is open",
                ),
            }
        }
        self.plan_closing(&mut opening, have);
        plan.steps.append(&mut opening.steps);
    }

    /// Returns each listener of the Service on each of its addresses.
    fn wanted(&self) -> BTreeMap<ListenerId, Arc<Listener>> {
        let mut wanted = BTreeMap::new();
        for listener in self.listeners {
            let (key, listener) = (listener.key, Arc::new(listener.clone()));
            for address in self.addresses {
                let address = *address;
                wanted.insert(ListenerId { address, key }, listener.clone());
            }
        }
        wanted
    }

    fn plan_closing(&self, plan: &mut Plan<Step>, have: &BTreeMap<ListenerId, Arc<Opened>>) {
        let keys: Vec<ListenerKey> = self.listeners.iter().map(|listener| listener.key).collect();
        for id in have.keys() {
            let because = if !self.addresses.contains(&id.address) {
                "the Service has released this address"
            } else if !keys.contains(&id.key) {
                "the Service has no such port any more"
            } else {
                continue;
            };
            let (uid, id) = (self.uid.clone(), *id);
            plan.push(Step::Close { uid, id }, because);
        }
    }
}
