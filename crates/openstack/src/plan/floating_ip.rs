//! The floating IP of a Service: found, made, led here, kept or given back. Pure.

use landfall_model::plan::{Plan, Upcoming};
use landfall_model::rows::Family;
use landfall_model::{Code, Intent, Reason};

use crate::names::{floating_ip_beside, owner_of_floating_ip};
use crate::objects::{FloatingIp, Id, LoadBalancer};
use crate::observed::{Addressing, Observed};
use crate::requests::{FloatingIpRequest, OrNull};
use crate::step::Step;
use crate::target::{Target, further_v4, is_floating, requested};

/// Appends how a load balancer that is yet to be made is going to be reached from outside.
pub(crate) fn foresee(intent: &Intent, target: &Target, plan: &mut Plan<Step>) {
    let four = target.choice.families.contains(&Family::V4);
    if target.choice.internal || !four {
        return;
    }
    let requested = intent.load_balancer.as_ref().and_then(requested);
    let what = match (requested, &target.choice.floating.network) {
        (Some(address), _) => format!("then attach floating IP {address} to it"),
        (None, Some(network)) => format!("then attach a floating IP of network {network} to it"),
        (None, None) => "then attach a floating IP of the external network to it".to_owned(),
    };
    let because = "the Service is external";
    plan.upcoming.push(Upcoming { what, because });
}

/// Appends what makes the right floating IP lead to the load balancer.
///
/// # Errors
/// There can't be one.
pub(crate) fn plan(
    intent: &Intent,
    have: &Observed,
    target: &Target,
    balancer: &LoadBalancer,
    owner: bool,
    plan: &mut Plan<Step>,
) -> Result<(), Vec<Reason>> {
    let view = &have.addressing;
    if !is_floating(target, balancer) {
        // What leads here leads to the listeners of others, too.
        if owner && have.others.is_empty() {
            unneeded(have, target, plan);
        }
        return Ok(());
    }
    match (&view.attached, owner) {
        (Some(_), false) => Ok(()),
        (Some(attached), true) => {
            let keep = target.choice.keep_floating_ip;
            replace(intent, have, keep, attached, balancer, plan)
        }
        (None, false) => Err(vec![
            Reason::error(
                Code::CloudObjectNotFound,
                "the load balancer has no floating IP, and a Service that shares it gets none of \
                its own",
            )
            .at_annotation(landfall_model::dialect::openstack::LOAD_BALANCER_ID)
            .value(balancer.id.as_str())
            .remedy("give the load balancer a floating IP"),
        ]),
        (None, true) => attach_or_create(intent, have, target, balancer, plan),
    }
}

/// Gives back, or detaches, the floating IP of a Service that needs none.
fn unneeded(have: &Observed, target: &Target, plan: &mut Plan<Step>) {
    let view = &have.addressing;
    let keep = target.choice.keep_floating_ip;
    if let Some(attached) = &view.attached {
        let because = if target.choice.internal {
            "the Service is internal"
        } else {
            "the Service needs no IPv4 address"
        };
        if is_its(have, attached) && !keep {
            plan.push(delete(attached), because);
        } else {
            plan.push(detach(attached), because);
        }
    }
    // One that was attached here until it was detached by hand.
    let spare = view.spare.as_ref().filter(|it| {
        let made_for_it = it.description == have.names.floating_ip;
        made_for_it && !view.spare_is_kept && !keep
    });
    if let Some(spare) = spare {
        plan.push(delete(spare), "the Service needs no floating IP");
    }
}

/// Puts the address that is asked for in the place of the one that is attached.
fn replace(
    intent: &Intent,
    have: &Observed,
    keep: bool,
    attached: &FloatingIp,
    balancer: &LoadBalancer,
    plan: &mut Plan<Step>,
) -> Result<(), Vec<Reason>> {
    let view = &have.addressing;
    let requested = intent.load_balancer.as_ref().and_then(requested);
    if requested.is_none_or(|address| address == attached.floating_ip_address) {
        // Another address was asked for, and has taken its place.
        let because = "another address has replaced it";
        if let Some(spare) = view.spare.as_ref().filter(|_| requested.is_some()) {
            if is_its(have, spare) && !view.spare_is_kept && !keep {
                plan.push(delete(spare), because);
            } else if spare.port_id.is_some() {
                plan.push(detach(spare), because);
            }
        }
        return Ok(());
    }
    let Some(other) = &view.requested else {
        // Asked for is an address that is not there; what works goes on working.
        return Err(vec![not_there(intent)]);
    };
    // What serves is given back only once the other is attached. Neutron lets one of each network
    // be.
    let in_its_place = other.floating_network_id == attached.floating_network_id;
    if let Some(reason) = unattachable(intent, view, other)
        && (in_its_place || other.port_id.is_some())
    {
        return Err(vec![reason]);
    }
    if in_its_place {
        let because = format!("{} requests another address", field(intent));
        plan.push(detach(attached), because);
    }
    let before = Some(attached).filter(|_| in_its_place);
    attach(other, before, balancer, plan);
    Ok(())
}

/// Attaches the floating IP that is there, or makes one.
fn attach_or_create(
    intent: &Intent,
    have: &Observed,
    target: &Target,
    balancer: &LoadBalancer,
    plan: &mut Plan<Step>,
) -> Result<(), Vec<Reason>> {
    let view = &have.addressing;
    if view.held_by.is_some() {
        return Ok(());
    }
    let requested = intent.load_balancer.as_ref().and_then(requested);
    if let Some(there) = &view.requested {
        match (unattachable(intent, view, there), &view.spare) {
            (None, _) => attach(there, None, balancer, plan),
            // What served before goes on serving.
            (Some(_), Some(spare)) => attach(spare, None, balancer, plan),
            (Some(reason), None) => return Err(vec![reason]),
        }
        return Ok(());
    }
    if let Some(spare) = view.spare.as_ref().filter(|_| requested.is_none()) {
        attach(spare, None, balancer, plan);
        return Ok(());
    }
    if let Some(problem) = &view.problem {
        return Err(vec![problem.clone()]);
    }
    let (Some(network), Some(port)) = (&view.network, &balancer.vip_port_id) else {
        return Ok(());
    };
    let body = |subnet: Option<&Id>| FloatingIpRequest {
        floating_network_id: Some(network.clone()),
        port_id: Some(OrNull::Set(port.clone())),
        description: Some(have.names.floating_ip.clone()),
        subnet_id: subnet.cloned(),
        fixed_ip_address: further_v4(target, balancer),
        floating_ip_address: requested,
    };
    let bodies = if view.subnets.is_empty() {
        vec![body(None)]
    } else {
        let subnets = view.subnets.iter();
        subnets.map(|subnet| body(Some(subnet))).collect()
    };
    plan.push(Step::CreateFloatingIp { bodies }, "the Service is external");
    Ok(())
}

/// The load balancer that must be gone before the floating IP can lead to this one.
pub(crate) fn awaited<'a>(
    have: &'a Observed,
    target: &Target,
    balancer: &LoadBalancer,
    owner: bool,
) -> Option<&'a Id> {
    let view = &have.addressing;
    let wanted = owner && is_floating(target, balancer) && view.attached.is_none();
    view.held_by.as_ref().filter(|_| wanted)
}

/// Appends what gives the Service's floating IP back.
pub(crate) fn release(have: &Observed, keep: bool, plan: &mut Plan<Step>) {
    if keep {
        return;
    }
    let view = &have.addressing;
    let spare = view.spare.iter().filter(|_| !view.spare_is_kept);
    let made = view.attached.iter().chain(spare);
    for floating_ip in made.filter(|it| is_its(have, it)) {
        plan.push(delete(floating_ip), "no Service uses it any more");
    }
}

/// Whether a Service controller made a floating IP for this Service, whatever the cluster was
/// called then, or for any of this cluster: one of another cluster that a person attached here is
/// only lent.
fn is_its(have: &Observed, floating_ip: &FloatingIp) -> bool {
    let Some((service, cluster)) = owner_of_floating_ip(&floating_ip.description) else {
        return false;
    };
    let balancer = have.found.balancer();
    let of_owner = balancer.and_then(|it| floating_ip_beside(&it.description));
    let mut its = of_owner
        .iter()
        .chain([&have.names.floating_ip])
        .filter_map(|description| owner_of_floating_ip(description));
    its.any(|it| it.0 == service || it.1 == cluster)
}

fn attach(
    floating_ip: &FloatingIp,
    instead_of: Option<&FloatingIp>,
    balancer: &LoadBalancer,
    plan: &mut Plan<Step>,
) {
    // Without the port, Neutron would take the request for its opposite.
    let Some(port) = &balancer.vip_port_id else {
        return;
    };
    let step = Step::AttachFloatingIp {
        floating_ip: floating_ip.id.clone(),
        address: floating_ip.floating_ip_address,
        was_at: floating_ip.port_id.clone(),
        port: port.clone(),
        instead_of: instead_of.map(|it| it.id.clone()),
    };
    plan.push(step, "it is the Service's, and not attached");
}

fn delete(floating_ip: &FloatingIp) -> Step {
    Step::DeleteFloatingIp {
        floating_ip: floating_ip.id.clone(),
        address: floating_ip.floating_ip_address,
        was_at: floating_ip.port_id.clone(),
    }
}

fn detach(floating_ip: &FloatingIp) -> Step {
    Step::DetachFloatingIp {
        floating_ip: floating_ip.id.clone(),
        address: floating_ip.floating_ip_address,
        was_at: floating_ip.port_id.clone(),
    }
}

fn field(intent: &Intent) -> String {
    let spec = intent.load_balancer.as_ref();
    spec.map(|spec| spec.address.requested_by.clone())
        .unwrap_or_default()
}

/// Why the floating IP that is asked for can't lead here.
fn unattachable(intent: &Intent, view: &Addressing, floating_ip: &FloatingIp) -> Option<Reason> {
    if floating_ip.port_id.is_some() {
        return Some(in_use(intent, floating_ip));
    }
    let why = view.refused.as_ref()?;
    let reason = Reason::error(
        Code::ProviderFailed,
        format!("the floating IP can't be attached, and is retried within the hour: {why}"),
    );
    let address = floating_ip.floating_ip_address.to_string();
    Some(
        reason
            .at(field(intent))
            .value(address)
            .remedy("request another address, or correct what the cloud reports"),
    )
}

fn in_use(intent: &Intent, floating_ip: &FloatingIp) -> Reason {
    Reason::error(
        Code::FloatingIpInUse,
        format!(
            "the floating IP {} is in use",
            floating_ip.floating_ip_address
        ),
    )
    .at(field(intent))
    .value(floating_ip.floating_ip_address.to_string())
    .remedy("free it, or request another address")
}

fn not_there(intent: &Intent) -> Reason {
    let address = intent.load_balancer.as_ref().and_then(requested);
    let address = address.map(|it| it.to_string()).unwrap_or_default();
    Reason::error(
        Code::CloudObjectNotFound,
        "the project has no floating IP of this address; the existing one stays in service",
    )
    .at(field(intent))
    .value(address)
    .remedy("create the floating IP in the project, or request another address")
}
