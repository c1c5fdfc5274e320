//! Planning: pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_addressing::plan_removal;
use landfall_model::intent::{Intent, LoadBalancerSpec};
use landfall_model::listener::{Listener, ListenerKey};
use landfall_model::plan::Plan;
use landfall_model::reason::Reason;
use landfall_proxy::ListenerId;

use crate::observed::Observed;
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
    // What can fail for reasons outside this process comes last, and what exists is kept current
    // before anything new is tried.
    let mut opening = Plan::default();
    for (id, listener) in wanted_listeners(spec, addresses) {
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
    plan_closing(&mut opening, want, spec, have, addresses);
    plan.steps.append(&mut opening.steps);
}

/// Returns each listener of the Service on each of its addresses.
fn wanted_listeners(
    spec: &LoadBalancerSpec,
    addresses: &[IpAddr],
) -> BTreeMap<ListenerId, Arc<Listener>> {
    let mut wanted = BTreeMap::new();
    for listener in &spec.listeners {
        let (key, listener) = (listener.key, Arc::new(listener.clone()));
        for address in addresses {
            let address = *address;
            wanted.insert(ListenerId { address, key }, listener.clone());
        }
    }
    wanted
}

fn plan_closing(
    plan: &mut Plan<Step>,
    want: &Intent,
    spec: &LoadBalancerSpec,
    have: &Observed,
    addresses: &[IpAddr],
) {
    let keys: Vec<ListenerKey> = spec.listeners.iter().map(|listener| listener.key).collect();
    for id in have.listeners.keys() {
        let because = if !addresses.contains(&id.address) {
            "the Service has released this address"
        } else if !keys.contains(&id.key) {
            "the Service has no such port any more"
        } else {
            continue;
        };
        let (uid, id) = (want.uid.clone(), *id);
        plan.push(Step::Close { uid, id }, because);
    }
}
