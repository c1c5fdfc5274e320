//! Load balancers that Octavia has given up. Pure.

use std::net::IpAddr;

use landfall_model::plan::Plan;
use landfall_model::{Code, Intent, Reason};

use crate::names::listed;
use crate::objects::{Id, LoadBalancer, OperatingStatus};
use crate::observed::Observed;
use crate::record::{Record, was_noted};
use crate::step::Step;

/// A load balancer in ERROR takes no change but its deletion. One that nothing says was ever used
/// is recreated at once; for another, Octavia is first requested to repair it.
pub(super) fn broken(
    intent: &Intent,
    have: &Observed,
    balancer: &LoadBalancer,
    plan: &mut Plan<Step>,
) {
    let shared = !have.others.is_empty();
    if shared || is_published(intent, balancer) || may_serve(have, balancer) {
        fail_over(balancer, plan);
    } else {
        plan.push(
            Step::DeleteLoadBalancer {
                load_balancer: balancer.id.clone(),
                cascade: true,
            },
            "its creation failed, and it is created again",
        );
    }
}

pub(super) fn fail_over(balancer: &LoadBalancer, plan: &mut Plan<Step>) {
    let step = Step::FailOver {
        load_balancer: balancer.id.clone(),
    };
    plan.push(step, "Octavia reports it in ERROR");
}

/// Whether clients may know the load balancer: by an address of its family, by a name, or by what a
/// controller, be it another one, has written on the Service.
pub(super) fn is_published(intent: &Intent, balancer: &LoadBalancer) -> bool {
    let Some(spec) = &intent.load_balancer else {
        return false;
    };
    let held = &spec.address.held;
    let vip = balancer.vip_address;
    let known = |address: &IpAddr| vip.is_none_or(|vip| vip.is_ipv4() == address.is_ipv4());
    let served = Record::of(intent)
        .is_some_and(|record| record.balancer == balancer.id.as_str() && record.token != "-");
    // A status with a name in it says nothing of addresses.
    let noted = held.is_empty() && (was_noted(intent) || spec.hostname.is_some());
    held.iter().any(known) || served || noted
}

/// Whether a load balancer that Octavia has given up may go on to carry traffic. It says of the
/// members, and of what its own machines report, how the load balancer fares; only two words
/// mean that no client is served, and one of them also that some are.
pub(crate) fn may_serve(have: &Observed, balancer: &LoadBalancer) -> bool {
    match balancer.operating_status {
        OperatingStatus::Error => have.serves_in_part,
        OperatingStatus::Offline => false,
        _ => true,
    }
}

/// That a load balancer is in ERROR, and that a Service can't leave it to those that share it.
pub(crate) fn not_left(id: &Id) -> Reason {
    Reason::error(
        Code::LoadBalancerFailed,
        format!(
            "load balancer {id} is in ERROR, a failover did not help, and other Services use it, \
            so the Service can't leave it"
        ),
    )
    .remedy(
        "let an administrator of the cloud repair it; or delete the other Services, too, and \
            it is deleted with the last one",
    )
}

/// That a load balancer is in ERROR, and is not recreated for its Service because others use it.
pub(crate) fn not_rebuilt(id: &Id, others: &[String]) -> Reason {
    Reason::error(
        Code::LoadBalancerFailed,
        format!(
            "load balancer {id} is in ERROR and no failover has repaired it so far; it is not \
             recreated, because others use it ({}), and the failover is retried with backoff",
            listed(others)
        ),
    )
    .remedy(
        "let the cloud's operators repair it; or delete the other Services, too, or the tags of \
         those that are gone: it is recreated once no other uses it",
    )
}

/// That a load balancer is in ERROR, and is kept.
pub(crate) fn held(balancer: &LoadBalancer) -> Reason {
    let status = match balancer.operating_status.as_str() {
        "" => "nothing",
        "ERROR" => "ERROR because of some of its pools, while others reach members",
        status => status,
    };
    Reason::error(
        Code::LoadBalancerFailed,
        format!(
            "load balancer {} is in ERROR and a failover did not help; its operating status is \
            {status}, so it may still serve, and is kept",
            balancer.id
        ),
    )
    .remedy(
        "let an administrator of the cloud repair it; or delete it, and it is recreated behind the \
        same floating IP",
    )
}
