//! How a Service leaves: its load balancer goes, or what is the Service's on one that others use.
//! Pure.

use landfall_model::plan::Plan;

use super::waiting::{make_certain, wait};
use super::{Planned, certificates, diff, floating_ip, groups};
use crate::graph::Graph;
use crate::names::{KEEPS_FLOATING_IP, SERVICE_PREFIX};
use crate::notices::in_error;
use crate::objects::{Id, Listener, LoadBalancer, Monitor, Pool, Provisioning};
use crate::observed::{Content, Found, Observed};
use crate::plan::broken::fail_over;
use crate::plan::rename::tags_without;
use crate::requests::LoadBalancerRequest;
use crate::settings::Settings;
use crate::step::Step;

/// The steps after which nothing of the Service is left.
///
/// # Errors
/// Octavia takes no change of the load balancer, which others use.
pub(super) fn removal(have: &Observed, keep_floating_ip: bool, settings: &Settings) -> Planned {
    let mut plan = Plan::default();
    groups::leave(have, &mut plan);
    let (balancer, owner, made, surplus) = match &have.found {
        Found::One {
            balancer,
            owner,
            made,
            surplus,
        } => (balancer, owner, made, surplus),
        Found::Nothing => {
            // The load balancer is gone; what it left is not.
            floating_ip::release(have, keep_floating_ip, &mut plan);
            certificates::delete_unneeded(have, &mut plan);
            return Ok(plan);
        }
        // One of several is the Service's: a Service that lets it go now is never reconciled again.
        Found::Refused(reason) => return Err(vec![reason.clone()]),
    };
    delete_surplus(surplus, &mut plan);
    // One whose name is an older one has that name for a tag.
    let old = owner.then_some(&balancer.name);
    let own: Vec<&String> = old.into_iter().chain([&have.names.load_balancer]).collect();
    let broken = balancer.provisioning_status == Provisioning::Error;
    let shared = is_shared(have, balancer, *owner, &own);
    let uses = balancer.tags.iter().any(|tag| own.contains(&tag));
    let delete = *made && !shared && (*owner || uses);
    match balancer.provisioning_status {
        Provisioning::Active | Provisioning::Error => {}
        status => {
            wait(balancer, status, &mut plan);
            return Ok(plan);
        }
    }
    if delete {
        let keep = keep_floating_ip || (!*owner && is_kept(balancer));
        floating_ip::release(have, keep, &mut plan);
        // What is in ERROR can't be taken apart.
        let cascade = settings.conf.cascade_delete || broken;
        if !cascade {
            take_apart(have, balancer, *owner, true, &mut plan);
        }
        plan.push(
            Step::DeleteLoadBalancer {
                load_balancer: balancer.id.clone(),
                cascade,
            },
            "no Service uses it any more",
        );
        return Ok(plan);
    }
    if broken && *owner && uses {
        fail_over(balancer, &mut plan);
        return Ok(plan);
    }
    if broken && uses && plan.is_empty() {
        return Err(vec![in_error(&balancer.id, *owner)]);
    }
    if broken {
        return Ok(plan);
    }
    take_apart(have, balancer, *owner, false, &mut plan);
    if plan.is_empty() && !have.assumed {
        certificates::delete_unneeded(have, &mut plan);
    }
    // While its last change is only taken to be done, something may yet stay behind.
    if uses && !(plan.is_empty() && have.assumed) {
        let mut tags = tags_without(have, balancer, &own, settings);
        note_kept(&mut tags, *owner, keep_floating_ip);
        leave(balancer, tags, &mut plan);
    }
    make_certain(have, balancer, &mut plan);
    Ok(plan)
}

/// Appends what leaves a load balancer to others: the tags that it has afterwards.
fn leave(balancer: &LoadBalancer, tags: Vec<String>, plan: &mut Plan<Step>) {
    plan.push(
        Step::UpdateLoadBalancer {
            load_balancer: balancer.id.clone(),
            changes: LoadBalancerRequest {
                tags: Some(tags),
                ..LoadBalancerRequest::default()
            },
            seen: balancer.tags.clone(),
        },
        "the Service leaves the load balancer",
    );
}

/// Whether the Service for which a load balancer was made wanted its floating IP kept when it left.
fn is_kept(balancer: &LoadBalancer) -> bool {
    balancer.tags.iter().any(|tag| tag == KEEPS_FLOATING_IP)
}

/// Marks a load balancer with what the Service for which it was made wants of its floating IP.
fn note_kept(tags: &mut Vec<String>, owner: bool, keep: bool) {
    tags.retain(|tag| !owner || tag != KEEPS_FLOATING_IP);
    tags.extend((owner && keep).then(|| KEEPS_FLOATING_IP.to_owned()));
}

/// Whether others use a load balancer. `own` are the tags by which the Service has marked it. In
/// one that was made for another Service, what carries no tag is not this Service's, either: a
/// person, or the reference without tags, has made it.
fn is_shared(have: &Observed, balancer: &LoadBalancer, owner: bool, own: &[&String]) -> bool {
    let broken = balancer.provisioning_status == Provisioning::Error;
    // Services that are being removed can't leave it while it is in ERROR, and need it no more.
    let leaves = |tag: &String| own.contains(&tag) || (broken && have.leaving.contains(tag));
    let of_others = |tag: &String| tag.starts_with(SERVICE_PREFIX) && !leaves(tag);
    let none = Graph::default();
    let graph = match &have.content {
        Content::Graph(graph) => &**graph,
        Content::AsWanted | Content::Unread => &none,
    };
    // A tag of the load balancer can be lost; those of its listeners are still there.
    let listeners = || have.listeners.iter().chain(&graph.listeners);
    let of_us = |it: &Listener| it.tags.iter().any(leaves);
    let unclaimed = || {
        let served = |pool: &Pool| {
            let name = &have.names.load_balancer;
            pool.name.ends_with(&**name)
                || listeners().any(|it| {
                    of_us(it)
                        && (it.default_pool_id.as_ref() == Some(&pool.id)
                            || pool.listeners.iter().any(|of| of.id == it.id))
                })
        };
        listeners().any(|it| !of_us(it)) || !graph.pools.iter().all(served)
    };
    let of_listeners = listeners().flat_map(|it| &it.tags);
    balancer.tags.iter().chain(of_listeners).any(of_others) || (!owner && unclaimed())
}

pub(super) fn delete_surplus(surplus: &[Id], plan: &mut Plan<Step>) {
    for id in surplus {
        let step = Step::DeleteLoadBalancer {
            load_balancer: id.clone(),
            cascade: true,
        };
        plan.push(step, "a repeated request created it for the Service");
    }
}

/// Whether nothing of the Service is in the load balancer, as far as is known.
pub(crate) fn has_left(have: &Observed, balancer: &LoadBalancer, owner: bool) -> bool {
    let mut plan = Plan::default();
    take_apart(have, balancer, owner, false, &mut plan);
    plan.is_empty()
}

/// Deletes listeners one by one: all, or those of the Service.
pub(super) fn take_apart(
    have: &Observed,
    balancer: &LoadBalancer,
    owner: bool,
    everything: bool,
    plan: &mut Plan<Step>,
) {
    let Content::Graph(graph) = &have.content else {
        return;
    };
    if everything {
        let lb = || balancer.id.clone();
        // Octavia takes no change of the monitor of a pool in ERROR. It goes with the pool.
        let stuck = |monitor: &&Monitor| {
            let mut pools = graph.pools.iter();
            pools.any(|pool| {
                pool.healthmonitor_id.as_ref() == Some(&monitor.id)
                    && pool.provisioning_status == Provisioning::Error
            })
        };
        for monitor in graph.monitors.iter().filter(|it| !stuck(it)) {
            let step = Step::DeleteMonitor {
                load_balancer: lb(),
                monitor: monitor.id.clone(),
            };
            plan.push(step, "no Service uses it any more");
        }
        for pool in &graph.pools {
            let step = Step::DeletePool {
                load_balancer: lb(),
                pool: pool.id.clone(),
            };
            plan.push(step, "no Service uses it any more");
        }
        for listener in &graph.listeners {
            let step = Step::DeleteListener {
                load_balancer: lb(),
                listener: listener.id.clone(),
            };
            plan.push(step, "no Service uses it any more");
        }
        return;
    }
    if let Some(diff) = diff(have, balancer, owner) {
        diff.leave(plan);
    }
}
