//! Planning: pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_ipam::{Decision, Proposal, Refusal, Request};
use landfall_model::intent::{Intent, LoadBalancerSpec};
use landfall_model::listener::{Listener, ListenerKey};
use landfall_model::plan::{Plan, Planned};
use landfall_model::reason::Reason;
use landfall_proxy::ListenerId;
use landfall_proxy::pool::Reach;

use crate::shortage::Shared;
use crate::step::Step;
use crate::{difference, standing};

/// What is held for one Service, and what the allocator would give it.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The addresses that it holds.
    pub held: Vec<IpAddr>,
    /// Addresses that it gave up and that stay reserved, because a record may still name them.
    pub leaving: Vec<IpAddr>,
    /// Whether its record may name other addresses than it holds.
    pub unrecorded: bool,
    /// The allocator's answer, for Services that want an address.
    pub answer: Option<Answer>,
    /// Its listeners.
    pub listeners: BTreeMap<ListenerId, Opened>,
    /// Its members, per listener.
    pub members: BTreeMap<ListenerKey, Reach>,
    /// Addresses that it shares with Services of other namespaces, which their pool does not let
    /// it.
    pub shared_by_exception: Vec<IpAddr>,
    /// What its clients are refused for the Service's share of.
    pub short_of: Option<Shared>,
}

/// A question to the allocator and its answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What was asked; `None` where the spec could not even be put as a question.
    pub request: Option<Request>,
    /// The Service holds its addresses on other terms (ports, sharing key) than it now has.
    pub retold: bool,
    /// What it would give, or why nothing.
    pub outcome: Result<Proposal, Refusal>,
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

impl Observed {
    /// Whether nothing is left of what it gave up.
    fn is_cleared(&self) -> bool {
        self.leaving.is_empty() && !self.unrecorded && self.listeners.is_empty()
    }
}

/// The steps from what is held to what is wanted.
pub fn plan(want: &Intent, have: &Observed) -> Result<Plan<Step>, Vec<Reason>> {
    let mut plan = Plan::default();
    let Some(spec) = &want.load_balancer else {
        for id in have.listeners.keys() {
            plan.push(
                Step::Close {
                    uid: want.uid.clone(),
                    id: *id,
                },
                "the Service needs none",
            );
        }
        if !have.held.is_empty() {
            let step = Step::Release {
                uid: want.uid.clone(),
                addresses: have.held.clone(),
            };
            plan.push(step, "the Service needs none");
        }
        return Ok(plan);
    };
    let (addresses, change) = plan_addresses(want, spec, have)?;
    // An address is claimed, and that is recorded, before a listener opens on it. It is given back
    // after its listeners are closed and no record names it any more.
    if addresses.is_empty() {
        plan_listeners(&mut plan, want, spec, have, &addresses);
        plan.steps.extend(change);
    } else {
        plan.steps.extend(change);
        plan_listeners(&mut plan, want, spec, have, &addresses);
    }
    let earlier = have.leaving.iter().chain(&have.held);
    let given_up: Vec<IpAddr> = earlier
        .filter(|address| !addresses.contains(address))
        .copied()
        .collect();
    if !given_up.is_empty() {
        let step = Step::Release {
            uid: want.uid.clone(),
            addresses: given_up,
        };
        plan.push(step, "no record names it any more");
    }
    Ok(plan)
}

/// Addresses, and the step after which a Service holds them, if one is needed.
type Holding = (Vec<IpAddr>, Option<Planned<Step>>);

/// What the Service holds in the end, and the step that makes and records it, if one is needed.
fn plan_addresses(
    want: &Intent,
    spec: &LoadBalancerSpec,
    have: &Observed,
) -> Result<Holding, Vec<Reason>> {
    let record = |addresses: Vec<IpAddr>| {
        let step = Step::Record {
            uid: want.uid.clone(),
            publish: standing::published(spec, &addresses),
            addresses: addresses.clone(),
        };
        let because = "it was claimed and may not be recorded yet";
        let step = have.unrecorded.then(|| planned(step, because.to_owned()));
        Ok((addresses, step))
    };
    let Some(answer) = &have.answer else {
        return record(have.held.clone());
    };
    let proposal = match &answer.outcome {
        Ok(proposal) => proposal,
        // A refused change keeps what is held, and its listeners go on being cared for. What was
        // given up is cleared away first.
        Err(_) if !have.held.is_empty() || !have.is_cleared() => {
            return record(have.held.clone());
        }
        Err(refusal) => return Err(vec![refusal_reason(want, refusal)]),
    };
    let addresses: Vec<IpAddr> = proposal.addresses.iter().collect();
    let because = match &proposal.decision {
        Decision::Keep if !answer.retold => return record(addresses),
        Decision::Keep => "its ports or its sharing key changed".to_owned(),
        Decision::Claim => "it has no address yet".to_owned(),
        Decision::Gain { .. } => "it gets the missing family".to_owned(),
        Decision::Drop { why, .. } | Decision::Move { why, .. } => why.to_string(),
        Decision::GiveUp { why, .. } => {
            let step = Step::Withdraw {
                uid: want.uid.clone(),
                addresses: have.held.clone(),
            };
            return Ok((addresses, Some(planned(step, why.to_string()))));
        }
    };
    let step = answer.request.as_ref().map(|request| {
        let step = Step::Claim {
            uid: want.uid.clone(),
            addresses: addresses.clone(),
            pool: proposal
                .pool
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            publish: standing::published(spec, &addresses),
            grant: Arc::new((request.clone(), proposal.clone())),
        };
        Planned {
            claims: true,
            ..planned(step, because)
        }
    });
    Ok((addresses, step))
}

fn planned(step: Step, because: String) -> Planned<Step> {
    Planned {
        step,
        because,
        members_only: false,
        claims: false,
    }
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

/// A refusal as a reason that names where the address was asked for.
pub fn refusal_reason(want: &Intent, refusal: &Refusal) -> Reason {
    let reason = refusal.reason();
    let Some(spec) = &want.load_balancer else {
        return reason;
    };
    let address = &spec.address;
    if address.requested.is_empty() || address.requested_by.is_empty() {
        return reason;
    }
    let requested: Vec<_> = address.requested.iter().map(ToString::to_string).collect();
    reason
        .at(address.requested_by.as_str())
        .value(requested.join(","))
}
