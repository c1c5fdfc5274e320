//! Planning: pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_addressing::{Holdings, plan_removal};
use landfall_model::intent::{Intent, LoadBalancerSpec};
use landfall_model::listener::{Listener, ListenerKey};
use landfall_model::plan::Plan;
use landfall_model::reason::Reason;
use landfall_proxy::ListenerId;
use landfall_proxy::pool::Reach;

use crate::shortage::Shared;
use crate::step::Step;
use crate::{difference, status};

/// What is held for one Service, and what the allocator would assign to it.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Its addresses.
    pub addresses: Holdings,
    /// Its listeners.
    pub listeners: BTreeMap<ListenerId, Opened>,
    /// Its members, per listener.
    pub members: BTreeMap<ListenerKey, Reach>,
    /// The share of the data plane that the Service exceeds, so that its clients are refused.
    pub short_of: Option<Shared>,
}

/// A listener that was opened, or that should be and could not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// How it is.
    pub listener: Arc<Listener>,
    /// Why it does not serve.
    pub problem: Option<Reason>,
    /// A newer version that the data plane did not take as it is, and why. Until it changes it is
    /// not tried again, and `listener` goes on serving.
    pub refused: Option<(Arc<Listener>, Reason)>,
}

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
            plan_listeners(&mut listeners, want, spec, have, &plan.addresses);
            plan
        }
    };
    listeners.steps = addresses.around(listeners.steps);
    Ok(listeners)
}

fn plan_listeners(
    plan: &mut Plan<Step>,
    want: &Intent,
    spec: &LoadBalancerSpec,
    have: &Observed,
    addresses: &[IpAddr],
) {
    let (uid, service) = (&want.uid, &want.service);
    let mut wanted = BTreeMap::new();
    for listener in &spec.listeners {
        let listener = Arc::new(listener.clone());
        for address in addresses {
            wanted.insert(
                ListenerId {
                    address: *address,
                    key: listener.key,
                },
                listener.clone(),
            );
        }
    }
    // What can fail for reasons outside this process comes last, and what exists is kept current
    // before anything new is tried.
    let mut opening = Plan::default();
    for (id, listener) in wanted {
        let (uid, service) = (uid.clone(), service.clone());
        match have.listeners.get(&id) {
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
    let keys: Vec<ListenerKey> = spec.listeners.iter().map(|listener| listener.key).collect();
    for id in have.listeners.keys() {
        let because = if !addresses.contains(&id.address) {
            "the Service has released this address"
        } else if !keys.contains(&id.key) {
            "the Service has no such port any more"
        } else {
            continue;
        };
        opening.push(
            Step::Close {
                uid: uid.clone(),
                id: *id,
            },
            because,
        );
    }
    plan.steps.append(&mut opening.steps);
}
