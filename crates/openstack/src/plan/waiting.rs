//! What is waited for. Pure.

use landfall_model::plan::{Plan, Wait};

use super::{LOAD_BALANCER, floating_ip, groups};
use crate::objects::{LoadBalancer, Provisioning};
use crate::observed::Observed;
use crate::step::Step;
use crate::target::Target;

/// What a load balancer is doing whose Service gets its address with this reconcile.
const PUBLISHING: &str = "about to be published";

/// Whether only this reconcile is waited for, and not a cloud.
pub(crate) fn is_for_status(wait: &Wait) -> bool {
    wait.doing == PUBLISHING
}

/// Appends what a load balancer that takes changes waits for: the floating IP that is attached
/// elsewhere, and the nodes that get their group after the address is published.
pub(super) fn await_others(
    have: &Observed,
    target: &Target,
    balancer: &LoadBalancer,
    owner: bool,
    plan: &mut Plan<Step>,
) {
    if let Some(holder) = floating_ip::awaited(have, target, balancer, owner) {
        plan.waits.push(Wait {
            object: LOAD_BALANCER,
            id: holder.as_str().to_owned(),
            doing: "being deleted",
            because: "the Service's floating IP is attached there until then",
            creates: false,
        });
    }
    if groups::waits_for_address(have) {
        plan.waits.push(Wait {
            object: LOAD_BALANCER,
            id: balancer.id.as_str().to_owned(),
            doing: PUBLISHING,
            because: "its nodes get their security group after that",
            creates: false,
        });
    }
}

/// Where nothing is to be changed of a load balancer that is only taken to be done with the last
/// change, it is checked whether it is.
pub(super) fn make_certain(have: &Observed, balancer: &LoadBalancer, plan: &mut Plan<Step>) {
    let mut steps = plan.steps.iter();
    if have.assumed && steps.all(|planned| planned.step.locks().is_none()) {
        wait(balancer, Provisioning::PendingUpdate, plan);
    }
}

/// Appends that a load balancer takes no change for now.
pub(super) fn wait(balancer: &LoadBalancer, status: Provisioning, plan: &mut Plan<Step>) {
    let doing = match status {
        Provisioning::PendingCreate => "being made",
        Provisioning::PendingDelete | Provisioning::Deleted => "being deleted",
        _ => "being changed",
    };
    plan.waits.push(Wait {
        object: LOAD_BALANCER,
        id: balancer.id.as_str().to_owned(),
        doing,
        because: "Octavia takes one change at a time",
        creates: status == Provisioning::PendingCreate,
    });
}
