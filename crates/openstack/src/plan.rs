//! What is to be done for a Service, in order. Pure.
//!
//! What needs no lock of the load balancer comes first, because the first change of the load
//! balancer ends the pass.

mod attempts;
mod broken;
mod certificates;
pub(crate) mod diff;
mod drift;
mod floating_ip;
mod groups;
pub(crate) mod members;
mod removal;
mod rename;
mod tags;
mod waiting;

use landfall_model::plan::{Plan, Planned as PlannedWith};
use landfall_model::{Code, Intent, Reason, Severity};

use crate::names::SERVICE_PREFIX;
use crate::notices::in_error;
use crate::objects::{LoadBalancer, Provisioning};
use crate::observed::{Content, Found, Goal, Observed, Secondary};
use crate::ownership::find::would_be_ours;
use crate::refusal::Refusals;
use crate::requests::{Extent, LoadBalancerRequest};
use crate::settings::Settings;
use crate::step::Step;
use crate::target::Target;
use attempts::{defer_while_create_is_unanswered, without_refused};
use broken::broken;
use diff::{Diff, has_predecessors};
use removal::{delete_surplus, removal};
use rename::{rename, tag};
use waiting::{await_others, make_certain, wait};

pub(crate) use drift::drift;
pub(crate) use removal::has_left;
pub(crate) use waiting::is_for_status;

/// The kind of object that is waited for.
pub(crate) const LOAD_BALANCER: &str = "load balancer";

/// What the members of a load balancer take of a request, besides the rest.
const MARGIN: usize = 1024;

/// Plans the steps toward what is wanted of all load balancers of a Service.
///
/// # Errors
/// Why it can't be had. What is there stays as it is.
pub(crate) fn plan(intent: &Intent, have: &Observed, settings: &Settings) -> Planned {
    let beside = have.beside.iter();
    let beside = beside.map(|part| (part, plan_one(&part.intent, &part.have, settings)));
    together(have, plan_one(intent, have, settings), beside.collect())
}

/// Plans the steps toward what is wanted of one load balancer.
fn plan_one(intent: &Intent, have: &Observed, settings: &Settings) -> Planned {
    let planned = without_refused(have, toward_goal(intent, have, settings)?)?;
    Ok(defer_while_create_is_unanswered(have, planned))
}

fn toward_goal(intent: &Intent, have: &Observed, settings: &Settings) -> Planned {
    let planned = match &have.goal {
        Goal::Gone { keep_floating_ip } => removal(have, *keep_floating_ip, settings),
        Goal::Exists(target) => spec(intent, have, target, settings),
    };
    match (planned, &have.found) {
        // A refusal ends the reconcile: it must not rest on what is only taken to be so.
        (Err(_), Found::One { balancer, .. }) if have.assumed => {
            let mut plan = Plan::default();
            make_certain(have, balancer, &mut plan);
            Ok(plan)
        }
        (planned, _) => planned,
    }
}

/// A step that is planned.
type PlannedStep = PlannedWith<Step>;

/// What planning comes to: steps, or why there are none.
type Planned = Result<Plan<Step>, Vec<Reason>>;

/// The plan for all load balancers of a Service, from those for each: Octavia is at work on several
/// at a time.
///
/// # Errors
/// Why the Service can't have what it wants, and nothing is left to do but that.
fn together(have: &Observed, mut first: Planned, beside: Vec<(&Secondary, Planned)>) -> Planned {
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
    let beside = beside
        .into_iter()
        .map(|(part, planned)| (planned, may_begin || is_begun(&part.have)));
    for (planned, wanted) in std::iter::once((first, true)).chain(beside) {
        match planned {
            Ok(part) if wanted => plan.append(part),
            Ok(_) => {}
            Err(reasons) => {
                let new = |reason: &Reason| !refusals.contains(reason);
                let reasons: Vec<Reason> = reasons.into_iter().filter(new).collect();
                refusals.extend(reasons);
            }
        }
    }
    if plan.is_empty() && !refusals.is_empty() {
        return Err(refusals);
    }
    Ok(plan)
}

fn spec(
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
        return follow(have, target, errors);
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
        certificates::create(have, &mut plan);
        if target.listeners.iter().any(|it| it.pending) {
            return if plan.is_empty() {
                Err(vec![no_certificate()])
            } else {
                Ok(plan)
            };
        }
        // While Octavia makes it, the nodes get their group.
        groups::open(intent, have, &mut plan);
        create(intent, have, target, settings, &mut plan);
        floating_ip::foresee(intent, target, &mut plan);
        return Ok(plan);
    };
    certificates::create(have, &mut plan);
    groups::plan(intent, have, &mut plan);
    delete_surplus(surplus, &mut plan);
    match balancer.provisioning_status {
        Provisioning::Active => {}
        Provisioning::Error if *owner => {
            broken(intent, have, balancer, &mut plan);
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
        join(have, balancer, settings)?;
    }
    if *owner && would_be_ours(&have.names, &settings.cluster, balancer) {
        let mut renaming = Plan::default();
        rename(have, balancer, settings, &mut renaming);
        return spare_refused(have, target, balancer, renaming, plan);
    }
    serve(intent, have, target, balancer, *owner, plan)
}

/// Appends the change of names. What the cloud refuses of it comes last, when it is time, and keeps
/// no member from following the nodes. The load balancer itself gets its name after everything in
/// it: by the old one all is found again.
fn spare_refused(
    have: &Observed,
    target: &Target,
    balancer: &LoadBalancer,
    renaming: Plan<Step>,
    mut plan: Plan<Step>,
) -> Planned {
    let refusals = &have.attempts.refusals;
    let refused = |planned: &PlannedStep| refusals.of(&planned.step);
    if !renaming.steps.iter().any(|it| refused(it).is_some()) {
        plan.steps.extend(renaming.steps);
        return Ok(plan);
    }
    if let Some(diff) = diff(have, balancer, true) {
        diff.follow(&target.listeners, &mut plan);
    }
    let mut held = Vec::new();
    for planned in renaming.steps {
        let last = matches!(planned.step, Step::UpdateLoadBalancer { .. });
        match refused(&planned).filter(|it| !it.due) {
            Some(refusal) => held.push(refusal.reason.clone()),
            None if last && !held.is_empty() => {}
            None => plan.steps.push(planned),
        }
    }
    if plan.is_empty() && !have.assumed {
        return Err(held);
    }
    make_certain(have, balancer, &mut plan);
    Ok(plan)
}

/// Appends what makes the load balancer, which takes changes, serve as wanted.
fn serve(
    intent: &Intent,
    have: &Observed,
    target: &Target,
    balancer: &LoadBalancer,
    owner: bool,
    mut plan: Plan<Step>,
) -> Planned {
    // Nodes that are not reachable yet don't take the place of pods.
    let keep = groups::opens(have, &plan);
    let diff = diff(have, balancer, owner).map(|diff| Diff { keep, ..diff });
    let mut changes = Plan::default();
    let mut held = Vec::new();
    if let Some(diff) = &diff {
        match diff.plan(&target.listeners, &mut changes) {
            Ok(refused) => held = refused,
            Err(taken) => return follow(have, target, taken),
        }
    }
    let mut addressing = Plan::default();
    let addressed = floating_ip::plan(intent, have, target, balancer, owner, &mut addressing);
    // A refusal ends the pass where a floating IP is taken away: members come first.
    let last = addressing.steps.iter().any(|it| !it.step.stands_alone());
    let (first, last) = if last {
        (Plan::default(), addressing)
    } else {
        (addressing, Plan::default())
    };
    plan.steps.extend(first.steps);
    tags::plan(intent, have, owner, &mut plan);
    let joined = owner || balancer.tags.contains(&have.names.load_balancer);
    // What can't be reached there does not begin to use the load balancer of others.
    if !joined {
        addressed.clone()?;
    }
    let mut tags = Plan::default();
    tag(
        intent,
        have,
        balancer,
        owner,
        !changes.is_empty(),
        &mut tags,
    );
    let refused = tags.steps.first();
    let refused = refused.and_then(|it| have.attempts.refusals.of(&it.step));
    match refused {
        Some(refusal) if !refusal.due => {
            held.push(refusal.reason.clone());
            // What is not marked as the Service's could not be found again.
            if joined {
                plan.steps.extend(changes.steps);
            }
        }
        Some(_) if joined => {
            plan.steps.extend(changes.steps);
            plan.steps.extend(tags.steps);
        }
        Some(_) | None => {
            plan.steps.extend(tags.steps);
            plan.steps.extend(changes.steps);
        }
    }
    if plan.is_empty() && last.is_empty() && !have.assumed {
        certificates::delete_unneeded(have, &mut plan);
    }
    plan.steps.extend(last.steps);
    await_others(have, target, balancer, owner, &mut plan);
    // An address that can't be had keeps nothing else from being done.
    if plan.is_empty() && !have.assumed {
        addressed?;
        if !held.is_empty() {
            return Err(held);
        }
    }
    make_certain(have, balancer, &mut plan);
    Ok(plan)
}

/// What the Service asks for now can't be had. What it has got goes on serving, on the nodes that
/// there are.
fn follow(
    have: &Observed,
    target: &Target,
    refusals: Vec<Reason>,
) -> Result<Plan<Step>, Vec<Reason>> {
    let mut plan = Plan::default();
    if let Found::One {
        balancer, owner, ..
    } = &have.found
    {
        let diff = diff(have, balancer, *owner);
        match (balancer.provisioning_status, diff) {
            (Provisioning::Active, Some(diff)) => {
                groups::follow(have, &mut plan);
                diff.follow(&target.listeners, &mut plan);
            }
            (status, _) if status.is_pending() => wait(balancer, status, &mut plan),
            _ => {}
        }
    }
    if plan.is_empty() {
        return Err(refusals);
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
            keep: false,
            refusals: &have.attempts.refusals,
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
            let none = Refusals::default();
            let diff = Diff {
                refusals: &none,
                ..diff
            };
            let pending = target.listeners.iter().any(|it| it.pending);
            diff.plan(&target.listeners, &mut plan).is_ok()
                && plan.is_empty()
                && !pending
                && !has_predecessors(&target.listeners, diff.graph)
        }
    }
}

fn create(
    intent: &Intent,
    have: &Observed,
    target: &Target,
    settings: &Settings,
    plan: &mut Plan<Step>,
) {
    let extra = intent.extensions.openstack.load_balancer_tags.as_ref();
    let extra = extra.map(|given| given.value.clone()).unwrap_or_default();
    let body = |extent| {
        LoadBalancerRequest::new(
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
        let size = serde_json::to_string(&whole).map_or(0, |text| text.len());
        if size + MARGIN <= have.body_limit {
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
        body: Box::new(request),
        holds,
    };
    plan.push(step, "the Service has no load balancer");
}

/// Whether a Service may use a load balancer that is not its own.
fn join(have: &Observed, balancer: &LoadBalancer, settings: &Settings) -> Result<(), Vec<Reason>> {
    let refuse = |message: String, remedy: &str| {
        let reason = Reason::error(Code::NotOurs, message)
            .at_annotation(landfall_model::dialect::openstack::LOAD_BALANCER_ID)
            .value(balancer.id.as_str())
            .remedy(remedy);
        Err(vec![reason])
    };
    if !have.features.tags() {
        return refuse(
            format!(
                "sharing a load balancer needs tags, from version 2.5 of Octavia's API; this one \
                has {}",
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
    Ok(())
}

/// Nothing to prove the server's name with.
fn no_certificate() -> Reason {
    Reason::error(
        Code::CertificateNotFound,
        "a port terminates TLS, and its Secret can't be read yet",
    )
    .at("landfall.dev/tls-secret")
    .remedy("no action is needed if the API server is about to answer; else check the Secret")
}

/// Nothing to send traffic to.
pub(crate) fn no_nodes() -> Reason {
    Reason::error(
        Code::NoEligibleNodes,
        "no node is eligible as a member, so no traffic can be forwarded",
    )
    .remedy("check which nodes are excluded by labels, by the node selector, or by their addresses")
}
