//! What a load balancer is called and marked with, kept up with the cluster and the Services that
//! use it. Pure.

use landfall_model::Intent;
use landfall_model::plan::Plan;

use crate::graph::Graph;
use crate::names::{SERVICE_PREFIX, UID_PREFIX, child_prefix, cluster_of, renamed};
use crate::objects::{Id, LoadBalancer};
use crate::observed::{Content, Goal, Observed};
use crate::requests::{
    ListenerRequest, LoadBalancerRequest, MonitorRequest, PoolRequest, tags_of_new,
};
use crate::settings::Settings;
use crate::step::Step;

/// Follows the cluster to its new name: children first, the load balancer last, so that a crash in
/// between is found again. Load balancers that other clusters share keep their names.
pub(super) fn rename(
    have: &Observed,
    balancer: &LoadBalancer,
    settings: &Settings,
    plan: &mut Plan<Step>,
) {
    let old = cluster_of(&balancer.name);
    let lb = balancer.id.clone();
    // What other clusters have on it is theirs.
    let new_name = |name: &str, before: &str| {
        let ours = name.strip_prefix(before).and_then(cluster_of) == old;
        renamed(name, before, &settings.cluster).filter(|_| ours)
    };
    let because = || format!("the cluster's name is now {}", settings.cluster);
    if let Content::Graph(graph) = &have.content {
        rename_children(graph, &lb, &new_name, &because(), plan);
    }
    let mut changes = LoadBalancerRequest {
        name: Some(have.names.load_balancer.clone()),
        ..LoadBalancerRequest::default()
    };
    if have.features.tags() {
        let mut tags = retag(&balancer.tags, &new_name);
        for tag in tags_of_new(&have.names, &[]) {
            if !tags.contains(&tag) {
                tags.push(tag);
            }
        }
        changes.tags = Some(tags);
    }
    plan.push(
        Step::UpdateLoadBalancer {
            load_balancer: lb,
            changes,
            seen: balancer.tags.clone(),
        },
        because(),
    );
}

/// The new name of what has the old one after a prefix; `None`: it stays.
type NewName<'a> = dyn Fn(&str, &str) -> Option<String> + 'a;

fn retag(tags: &[String], new_name: &NewName<'_>) -> Vec<String> {
    let tags = tags.iter().filter(|tag| !tag.is_empty());
    tags.map(|tag| new_name(tag, "").unwrap_or_else(|| tag.clone()))
        .collect()
}

fn rename_children(
    graph: &Graph,
    lb: &Id,
    new_name: &NewName<'_>,
    because: &str,
    plan: &mut Plan<Step>,
) {
    let child_name = |kind: &str, name: &str| new_name(name, child_prefix(kind, name)?);
    for monitor in &graph.monitors {
        if let Some(name) = child_name("monitor", &monitor.name) {
            let step = Step::UpdateMonitor {
                load_balancer: lb.clone(),
                monitor: monitor.id.clone(),
                changes: MonitorRequest {
                    name: Some(name),
                    ..MonitorRequest::default()
                },
            };
            plan.push(step, because);
        }
    }
    for pool in &graph.pools {
        if let Some(name) = child_name("pool", &pool.name) {
            let step = Step::UpdatePool {
                load_balancer: lb.clone(),
                pool: pool.id.clone(),
                changes: Box::new(PoolRequest {
                    name: Some(name),
                    ..PoolRequest::default()
                }),
                lenient: false,
            };
            plan.push(step, because);
        }
    }
    for listener in &graph.listeners {
        if let Some(name) = child_name("listener", &listener.name) {
            let changes = Box::new(ListenerRequest {
                name: Some(name),
                tags: Some(retag(&listener.tags, new_name)),
                ..ListenerRequest::default()
            });
            let step = Step::UpdateListener {
                load_balancer: lb.clone(),
                listener: listener.id.clone(),
                changes,
            };
            plan.push(step, because);
        }
    }
}

/// The Service's tag on the load balancer, and with it, as the list is written anyway, those of our
/// own. Marks of our own, which older builds and other controllers leave out, are no change of
/// their own: they come when something else `changes`.
pub(super) fn tag(
    intent: &Intent,
    have: &Observed,
    balancer: &LoadBalancer,
    owner: bool,
    changes: bool,
    plan: &mut Plan<Step>,
) {
    if !have.features.tags() {
        return;
    }
    let extra = intent.extensions.openstack.load_balancer_tags.as_ref();
    let extra: &[String] = extra.map_or(&[], |given| &given.value);
    let missing = |tag: &String| !balancer.tags.contains(tag);
    let sharer = shared_by(have, balancer).filter(|_| !owner);
    let of_owner = have.names.cluster_tag.iter().chain([&have.names.uid_tag]);
    let unmarked = if owner {
        of_owner.into_iter().any(missing)
    } else {
        sharer.as_ref().is_some_and(missing)
    };
    let unmarked = changes && unmarked;
    // It keeps floating IPs away, and those that come from it.
    let mark = have.names.internal_tag();
    let inside = !owner && is_internal(have);
    let marks = inside == missing(&mark);
    if !missing(&have.names.load_balancer) && !extra.iter().any(missing) && !unmarked && !marks {
        return;
    }
    let mut tags: Vec<String> = balancer
        .tags
        .iter()
        .filter(|tag| !tag.is_empty() && (inside || **tag != mark))
        .cloned()
        .collect();
    let ours = if owner {
        tags_of_new(&have.names, extra)
    } else {
        let mut ours = vec![have.names.load_balancer.clone()];
        ours.extend(sharer);
        ours.extend(inside.then_some(mark));
        ours.extend(extra.iter().cloned());
        ours
    };
    for tag in ours {
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    let because = if missing(&have.names.load_balancer) || extra.iter().any(missing) {
        "the tag of the Service is missing"
    } else {
        "marks of the cluster and the Service are missing"
    };
    let step = Step::UpdateLoadBalancer {
        load_balancer: balancer.id.clone(),
        changes: LoadBalancerRequest {
            tags: Some(tags),
            ..LoadBalancerRequest::default()
        },
        seen: balancer.tags.clone(),
    };
    plan.push(step, because);
}

/// Whether the Service is to be reached from inside only.
fn is_internal(have: &Observed) -> bool {
    match &have.goal {
        Goal::Exists(target) => target.choice.internal,
        Goal::Gone { .. } => false,
    }
}

/// The mark of our cluster on a load balancer that was made for a Service of another one, or by a
/// controller that leaves no mark: that cluster's name may be ours, too. What a person made belongs
/// to no cluster.
fn shared_by(have: &Observed, balancer: &LoadBalancer) -> Option<String> {
    let made = balancer.name.starts_with(SERVICE_PREFIX)
        || balancer.tags.iter().any(|it| it.starts_with(UID_PREFIX));
    let of_us = have.names.cluster_tag.as_ref();
    let of_us = of_us.is_some_and(|tag| balancer.tags.contains(tag));
    have.names.sharer_tag().filter(|_| made && !of_us)
}

/// The tags of a load balancer without those of a Service that leaves it, and without our cluster's
/// when no other Service of the cluster is left on it. `own` are the names under which the Service
/// has marked it.
pub(super) fn tags_without(
    have: &Observed,
    balancer: &LoadBalancer,
    own: &[&String],
    settings: &Settings,
) -> Vec<String> {
    let names = &have.names;
    let mark = names.internal_tag();
    let leaves = |tag: &&String| own.contains(tag) || [&names.uid_tag, &mark].contains(tag);
    // The Service that it was made for is another cluster's, which may have the name of ours.
    let theirs = names.of_another_cluster(&balancer.tags);
    let of_us = |tag: &&String| {
        let ours = cluster_of(tag) == Some(settings.cluster.as_str());
        ours && !(theirs && **tag == balancer.name)
    };
    let stay = || {
        let tags = balancer.tags.iter().filter(|tag| !tag.is_empty());
        tags.filter(|tag| !leaves(tag))
    };
    let last = !stay().any(|tag| of_us(&tag));
    let sharer = names.sharer_tag();
    let cluster = |tag: &&String| [&names.cluster_tag, &sharer].contains(&&Some((*tag).clone()));
    let stay = stay().filter(|tag| !(last && cluster(tag)));
    stay.cloned().collect()
}
