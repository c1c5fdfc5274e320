//! What is to be done for a Service, in order. Pure.
//!
//! What needs no lock of the load balancer comes first, because the first change of the load balancer ends the
//! pass.

use landfall_model::plan::Plan;
use landfall_model::{Code, Intent, Reason, Severity};
use serde_json::{Map, Value, json};

use crate::bodies::{self, Extent};
use crate::diff::Diff;
use crate::find::would_be_ours;
use crate::names::{SERVICE_PREFIX, child_prefix, cluster_of, renamed};
use crate::objects::{Id, LoadBalancer, Monitor, Provisioning};
use crate::observe::in_error;
use crate::observed::{Beside, Content, Found, Goal, Observed, Target};
use crate::record::Record;
use crate::settings::Settings;
use crate::step::Step;
use crate::{address, groups};

/// What the members of a load balancer take of a request, besides the rest.
const MARGIN: usize = 1024;

/// The steps toward what is wanted.
///
/// # Errors
/// Why it can't be had. What is there stays as it is.
pub(crate) fn plan(
    intent: &Intent,
    have: &Observed,
    settings: &Settings,
) -> Result<Plan<Step>, Vec<Reason>> {
    let planned = match &have.goal {
        Goal::Gone { keep_floating_ip } => removal(have, *keep_floating_ip, settings),
        Goal::Exists(target) => wish(intent, have, target, settings),
    };
    match (planned, &have.found) {
        // Nobody would look again after a refusal: it must not rest on what is only taken to be so.
        (Err(_), Found::One { balancer, .. }) if have.assumed => {
            let mut plan = Plan::default();
            wait(balancer, Provisioning::PendingUpdate, &mut plan);
            Ok(plan)
        }
        (planned, _) => planned,
    }
}

/// What planning comes to: steps, or why there are none.
type Planned = Result<Plan<Step>, Vec<Reason>>;

/// The plan for all load balancers of a Service, from those for each. Waits come last, so that Octavia is at work
/// on several at a time.
///
/// # Errors
/// Why the Service can't have what it wants, and nothing is left to do but that.
pub(crate) fn together(
    have: &Observed,
    mut first: Planned,
    beside: Vec<(&Beside, Planned)>,
) -> Planned {
    let lacking = have.lacking.as_ref();
    let lacking = lacking.filter(|reason| reason.severity == Severity::Error);
    if beside.is_empty() && lacking.is_none() {
        return first;
    }
    let is_begun = |have: &Observed| {
        matches!(have.goal, Goal::Gone { .. }) || matches!(have.found, Found::One { .. })
    };
    let mut refusals = Vec::new();
    if let Some(reason) = lacking {
        if is_begun(have) {
            refusals.push(reason.clone());
        } else {
            first = Err(vec![reason.clone()]);
        }
    }
    // Of what can't be had whole, nothing is begun.
    let may_begin = first.is_ok();
    let mut plan = Plan::default();
    let mut waits = Vec::new();
    let beside = beside
        .into_iter()
        .map(|(part, planned)| (planned, may_begin || is_begun(&part.have)));
    for (planned, wanted) in std::iter::once((first, true)).chain(beside) {
        match planned {
            Ok(part) if wanted => {
                for planned in part.steps {
                    let waits_only = matches!(planned.step, Step::Await { .. });
                    let steps = if waits_only {
                        &mut waits
                    } else {
                        &mut plan.steps
                    };
                    steps.push(planned);
                }
            }
            Ok(_) => {}
            Err(reasons) => {
                let new = |reason: &Reason| !refusals.contains(reason);
                let reasons: Vec<Reason> = reasons.into_iter().filter(new).collect();
                refusals.extend(reasons);
            }
        }
    }
    plan.steps.extend(waits);
    if plan.is_empty() && !refusals.is_empty() {
        return Err(refusals);
    }
    Ok(plan)
}

fn wish(
    intent: &Intent,
    have: &Observed,
    target: &Target,
    settings: &Settings,
) -> Result<Plan<Step>, Vec<Reason>> {
    let mut plan = Plan::default();
    if let Found::Refused(reason) = &have.found {
        return Err(vec![reason.clone()]);
    }
    let errors = target.reasons.iter();
    let errors: Vec<Reason> = errors
        .filter(|reason| reason.severity == Severity::Error)
        .cloned()
        .collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    let Found::One {
        balancer,
        owner,
        surplus,
        ..
    } = &have.found
    else {
        if !target.has_nodes {
            return Err(vec![no_nodes()]);
        }
        groups::plan(intent, have, &mut plan);
        create(intent, have, target, settings, &mut plan);
        address::foresee(intent, target, &mut plan);
        return Ok(plan);
    };
    groups::plan(intent, have, &mut plan);
    delete_surplus(surplus, &mut plan);
    match balancer.provisioning_status {
        Provisioning::Active => {}
        Provisioning::Error if *owner => {
            broken(intent, balancer, &mut plan);
            return Ok(plan);
        }
        Provisioning::Error if plan.is_empty() => {
            return Err(vec![in_error(&balancer.id, *owner)]);
        }
        Provisioning::Error => return Ok(plan),
        status => {
            wait(balancer, status, &mut plan);
            return Ok(plan);
        }
    }
    if !owner {
        join(have, target, balancer, settings)?;
    }
    if *owner && would_be_ours(&have.names, &settings.cluster, balancer) {
        rename(have, balancer, settings, &mut plan);
        return Ok(plan);
    }
    let diff = diff(have, balancer, *owner);
    let mut graph_plan = Plan::default();
    if let Some(diff) = &diff {
        diff.plan(&target.listeners, &mut graph_plan)?;
    }
    let addressed = address::plan(intent, have, target, balancer, *owner, &mut plan);
    // Who can't be reached there does not begin to use the load balancer of others.
    if !owner && !balancer.tags.contains(&have.names.load_balancer) {
        addressed.clone()?;
    }
    tag(intent, have, balancer, *owner, &mut plan);
    plan.steps.extend(graph_plan.steps);
    if let Some(holder) = address::awaited(have, target, balancer, *owner) {
        let step = Step::Await {
            load_balancer: holder.clone(),
            doing: "being deleted".to_owned(),
        };
        plan.push_members(step, "the Service's floating IP leads there until then");
    }
    // An address that can't be had keeps nothing else from being done.
    if plan.is_empty() && !have.assumed {
        addressed?;
    }
    if have.assumed
        && plan
            .steps
            .iter()
            .all(|planned| planned.step.locks().is_none())
    {
        wait(balancer, Provisioning::PendingUpdate, &mut plan);
    }
    Ok(plan)
}

/// What the changes of the graph are made from, where it was read.
fn diff<'a>(have: &'a Observed, balancer: &'a LoadBalancer, owner: bool) -> Option<Diff<'a>> {
    match &have.content {
        Content::Graph(graph) => Some(Diff {
            balancer,
            owner,
            names: &have.names,
            features: have.features,
            body_limit: have.body_limit,
            serial: have.serial,
            graph,
        }),
        Content::AsWanted | Content::Unread => None,
    }
}

/// Whether the graph is known to need no change.
pub(crate) fn is_as_wanted(
    have: &Observed,
    target: &Target,
    balancer: &LoadBalancer,
    owner: bool,
) -> bool {
    match diff(have, balancer, owner) {
        None => matches!(have.content, Content::AsWanted),
        Some(diff) => {
            let mut plan = Plan::default();
            diff.plan(&target.listeners, &mut plan).is_ok() && plan.is_empty()
        }
    }
}

fn wait(balancer: &LoadBalancer, status: Provisioning, plan: &mut Plan<Step>) {
    let doing = match status {
        Provisioning::PendingCreate => "being made",
        Provisioning::PendingDelete | Provisioning::Deleted => "being deleted",
        _ => "being changed",
    };
    let step = Step::Await {
        load_balancer: balancer.id.clone(),
        doing: doing.to_owned(),
    };
    let because = "Octavia takes one change at a time";
    // To wait is no change of its own: what is waited for was told of.
    if status == Provisioning::PendingCreate {
        plan.push(step, because);
    } else {
        plan.push_members(step, because);
    }
}

fn create(
    intent: &Intent,
    have: &Observed,
    target: &Target,
    settings: &Settings,
    plan: &mut Plan<Step>,
) {
    let extra = intent.cloud.load_balancer_tags.as_ref();
    let extra = extra.map(|given| given.value.clone()).unwrap_or_default();
    let body = |extent| {
        bodies::load_balancer(
            &have.names,
            &target.choice,
            have.features,
            &extra,
            &target.additional,
            &target.listeners,
            extent,
        )
    };
    let mut holds = target.listeners.clone();
    let request = if settings.conf.provider_requires_serial_api_calls {
        holds.clear();
        body(Extent::Alone)
    } else {
        let whole = body(Extent::Everything);
        if whole.to_string().len() + MARGIN <= have.body_limit {
            whole
        } else {
            for listener in &mut holds {
                listener.pool.members.clear();
            }
            body(Extent::WithoutMembers)
        }
    };
    let step = Step::CreateLoadBalancer {
        service: intent.uid.clone(),
        name: have.names.load_balancer.clone(),
        body: request,
        holds,
    };
    plan.push(step, "the Service has no load balancer");
}

/// A load balancer in ERROR takes no change but its deletion. One that never had an address is made anew;
/// another is first offered to Octavia to be mended.
fn broken(intent: &Intent, balancer: &LoadBalancer, plan: &mut Plan<Step>) {
    if is_published(intent, balancer) {
        fail_over(balancer, plan);
    } else {
        plan.push(
            Step::DeleteLoadBalancer {
                load_balancer: balancer.id.clone(),
                cascade: true,
            },
            "it could not be made, and is made anew",
        );
    }
}

fn fail_over(balancer: &LoadBalancer, plan: &mut Plan<Step>) {
    let step = Step::FailOver {
        load_balancer: balancer.id.clone(),
    };
    plan.push(step, "Octavia says that it is broken");
}

/// Whether clients may know the load balancer: by an address of its family, or by a name.
fn is_published(intent: &Intent, balancer: &LoadBalancer) -> bool {
    let held = intent
        .load_balancer
        .iter()
        .flat_map(|wish| &wish.address.held);
    let vip = balancer.vip_address;
    let mut held = held.filter(|it| vip.is_none_or(|vip| vip.is_ipv4() == it.is_ipv4()));
    let served = Record::of(intent)
        .is_some_and(|record| record.balancer == balancer.id.as_str() && record.token != "-");
    held.next().is_some() || served
}

/// Whether a load balancer that Octavia has given up may go on to carry traffic. It says of the members, and of
/// what it hears from its own machines, how the load balancer fares; only two words mean that nobody is served.
pub(crate) fn may_serve(balancer: &LoadBalancer) -> bool {
    !matches!(balancer.operating_status.as_str(), "ERROR" | "OFFLINE")
}

/// That a load balancer is in ERROR, and is kept.
pub(crate) fn held(balancer: &LoadBalancer) -> Reason {
    let status = match balancer.operating_status.as_str() {
        "" => "nothing",
        status => status,
    };
    Reason::error(
        Code::LoadBalancerFailed,
        format!(
            "load balancer {} is in ERROR and no failover mends it; of its traffic Octavia says {status}, so that it \
             may go on to serve, and is kept",
            balancer.id
        ),
    )
    .remedy(
        "let the cloud's operators mend it; or delete it, and it is made anew behind the same floating IP",
    )
}

/// Whether a Service may use a load balancer that is not its own.
fn join(
    have: &Observed,
    target: &Target,
    balancer: &LoadBalancer,
    settings: &Settings,
) -> Result<(), Vec<Reason>> {
    let refuse = |message: String, remedy: &str| {
        let reason = Reason::error(Code::NotOurs, message)
            .at_annotation(landfall_model::status::LOAD_BALANCER_ID)
            .value(balancer.id.as_str())
            .remedy(remedy);
        Err(vec![reason])
    };
    if !have.features.tags() {
        return refuse(
            format!(
                "sharing a load balancer needs tags, from version 2.5 of Octavia's API on, which here is {}",
                have.features.version()
            ),
            "remove the annotation",
        );
    }
    if balancer.tags.contains(&have.names.load_balancer) {
        return Ok(());
    }
    let services = balancer
        .tags
        .iter()
        .filter(|tag| tag.starts_with(SERVICE_PREFIX))
        .count();
    let most = usize::try_from(settings.conf.max_shared_lb).unwrap_or(usize::MAX);
    if services + 1 > most {
        return refuse(
            format!("{services} Services use the load balancer, and at most {most} may"),
            "choose another load balancer, or raise max-shared-lb",
        );
    }
    if target.choice.internal {
        return refuse(
            "an internal Service can't share the load balancer of another".to_owned(),
            "remove one of the two annotations",
        );
    }
    Ok(())
}

/// Follows the cluster to its new name: children first, the load balancer last, so that a crash in between is
/// found again. Load balancers that other clusters share keep their names.
fn rename(have: &Observed, balancer: &LoadBalancer, settings: &Settings, plan: &mut Plan<Step>) {
    let old = cluster_of(&balancer.name);
    let lb = balancer.id.clone();
    // What other clusters have on it is theirs.
    let new_name = |name: &str, before: &str| {
        let ours = name.strip_prefix(before).and_then(cluster_of) == old;
        renamed(name, before, &settings.cluster).filter(|_| ours)
    };
    let retag = |tags: &[String]| -> Vec<String> {
        let tags = tags.iter().filter(|tag| !tag.is_empty());
        tags.map(|tag| new_name(tag, "").unwrap_or_else(|| tag.clone()))
            .collect()
    };
    let because = || format!("the cluster is called {} now", settings.cluster);
    if let Content::Graph(graph) = &have.content {
        let new_name = |kind: &str, name: &str| new_name(name, child_prefix(kind, name)?);
        let named = |name: String| Map::from_iter([("name".to_owned(), Value::from(name))]);
        for monitor in &graph.monitors {
            if let Some(name) = new_name("monitor", &monitor.name) {
                let step = Step::UpdateMonitor {
                    load_balancer: lb.clone(),
                    monitor: monitor.id.clone(),
                    changes: named(name),
                };
                plan.push(step, because());
            }
        }
        for pool in &graph.pools {
            if let Some(name) = new_name("pool", &pool.name) {
                let step = Step::UpdatePool {
                    load_balancer: lb.clone(),
                    pool: pool.id.clone(),
                    changes: named(name),
                    lenient: false,
                };
                plan.push(step, because());
            }
        }
        for listener in &graph.listeners {
            if let Some(name) = new_name("listener", &listener.name) {
                let mut changes = named(name);
                changes.insert("tags".to_owned(), json!(retag(&listener.tags)));
                let step = Step::UpdateListener {
                    load_balancer: lb.clone(),
                    listener: listener.id.clone(),
                    changes,
                };
                plan.push(step, because());
            }
        }
    }
    let name = have.names.load_balancer.as_str();
    let mut changes = Map::from_iter([("name".to_owned(), Value::from(name))]);
    if have.features.tags() {
        let mut tags = retag(&balancer.tags);
        for tag in bodies::tags_of_new(&have.names, &[]) {
            if !tags.contains(&tag) {
                tags.push(tag);
            }
        }
        changes.insert("tags".to_owned(), json!(tags));
    }
    plan.push(
        Step::UpdateLoadBalancer {
            load_balancer: lb,
            changes,
        },
        because(),
    );
}

/// The Service's tag on the load balancer, and with it, as the list is written anyway, those of our own.
fn tag(
    intent: &Intent,
    have: &Observed,
    balancer: &LoadBalancer,
    owner: bool,
    plan: &mut Plan<Step>,
) {
    if !have.features.tags() {
        return;
    }
    let extra = intent.cloud.load_balancer_tags.as_ref();
    let extra: &[String] = extra.map_or(&[], |given| &given.value);
    let missing = |tag: &String| !balancer.tags.contains(tag);
    if !missing(&have.names.load_balancer) && !extra.iter().any(missing) {
        return;
    }
    let mut tags: Vec<String> = balancer
        .tags
        .iter()
        .filter(|tag| !tag.is_empty())
        .cloned()
        .collect();
    let ours = if owner {
        bodies::tags_of_new(&have.names, extra)
    } else {
        [std::slice::from_ref(&have.names.load_balancer), extra].concat()
    };
    for tag in ours {
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    plan.push(
        Step::UpdateLoadBalancer {
            load_balancer: balancer.id.clone(),
            changes: Map::from_iter([("tags".to_owned(), json!(tags))]),
        },
        "the load balancer does not say that the Service uses it",
    );
}

fn removal(have: &Observed, keep_floating_ip: bool, settings: &Settings) -> Planned {
    let mut plan = Plan::default();
    groups::leave(have, &mut plan);
    let Found::One {
        balancer,
        owner,
        made,
        surplus,
    } = &have.found
    else {
        // The load balancer is gone; what it left is not.
        address::release(have, keep_floating_ip, &mut plan);
        return Ok(plan);
    };
    delete_surplus(surplus, &mut plan);
    // One whose name is an older one has that name for a tag.
    let old = owner.then_some(&balancer.name);
    let own: Vec<&String> = old.into_iter().chain([&have.names.load_balancer]).collect();
    let broken = balancer.provisioning_status == Provisioning::Error;
    // Who is about to leave can't, as long as it is in ERROR, and needs it no more.
    let leaves = |tag: &String| own.contains(&tag) || (broken && have.leaving.contains(tag));
    let shared = balancer
        .tags
        .iter()
        .any(|tag| tag.starts_with(SERVICE_PREFIX) && !leaves(tag));
    let delete = *made && !shared;
    match balancer.provisioning_status {
        Provisioning::Active | Provisioning::Error => {}
        status => {
            wait(balancer, status, &mut plan);
            return Ok(plan);
        }
    }
    if delete {
        address::release(have, keep_floating_ip, &mut plan);
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
    let uses = balancer.tags.iter().any(|tag| own.contains(&tag));
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
    // While its last change is only taken to be done, something may yet stay behind.
    if uses && !(plan.is_empty() && have.assumed) {
        let tags = balancer
            .tags
            .iter()
            .filter(|tag| !tag.is_empty() && !own.contains(tag) && **tag != have.names.uid_tag);
        let tags: Vec<&String> = tags.collect();
        plan.push(
            Step::UpdateLoadBalancer {
                load_balancer: balancer.id.clone(),
                changes: Map::from_iter([("tags".to_owned(), json!(tags))]),
            },
            "the Service leaves the load balancer",
        );
    }
    if have.assumed
        && plan
            .steps
            .iter()
            .all(|planned| planned.step.locks().is_none())
    {
        wait(balancer, Provisioning::PendingUpdate, &mut plan);
    }
    Ok(plan)
}

fn delete_surplus(surplus: &[Id], plan: &mut Plan<Step>) {
    for id in surplus {
        let step = Step::DeleteLoadBalancer {
            load_balancer: id.clone(),
            cascade: true,
        };
        plan.push(
            step,
            "it was made for the Service by a request that was repeated",
        );
    }
}

/// Whether nothing of the Service is in the load balancer, as far as is known.
pub(crate) fn has_left(have: &Observed, balancer: &LoadBalancer, owner: bool) -> bool {
    let mut plan = Plan::default();
    take_apart(have, balancer, owner, false, &mut plan);
    plan.is_empty()
}

/// Deletes listeners one by one: all, or those of the Service.
fn take_apart(
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

/// Nothing to send traffic to.
pub(crate) fn no_nodes() -> Reason {
    Reason::error(
        Code::NoEligibleNodes,
        "no node may be a member, so there is nothing to send traffic to",
    )
    .remedy("see which nodes are excluded by labels, by the node selector, or by their addresses")
}
