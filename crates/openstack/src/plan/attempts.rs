//! What earlier attempts leave of a plan: what was refused is left out, and what may have been
//! created already is waited for. Pure.

use landfall_model::Reason;
use landfall_model::plan::{Plan, Wait};

use crate::observed::{Failover, Found, Goal, Observed};
use crate::plan::LOAD_BALANCER;
use crate::plan::broken::{held, may_serve, not_left, not_rebuilt};
use crate::step::Step;

/// Returns a plan without what can't be requested again.
///
/// # Errors
/// Only a failover would help, and it is not possible.
pub(super) fn without_refused(
    have: &Observed,
    mut plan: Plan<Step>,
) -> Result<Plan<Step>, Vec<Reason>> {
    let attempts = &have.attempts;
    let leaves = matches!(have.goal, Goal::Gone { .. });
    let mut rebuilt = Vec::new();
    let mut kept = Vec::new();
    let serving = match &have.found {
        Found::One { balancer, .. } if may_serve(have, balancer) => Some(balancer),
        _ => None,
    };
    plan.steps.retain(|planned| match &planned.step {
        Step::UpdatePool {
            pool,
            changes,
            lenient: true,
            ..
        } => !attempts.is_refused_algorithm(pool, changes),
        Step::FailOver { load_balancer } => {
            let Failover::Useless { due } = attempts.failover else {
                return true;
            };
            let serving = serving.filter(|it| it.id == *load_balancer);
            let shared = leaves || !have.others.is_empty();
            if let Some(balancer) = serving {
                kept.push(held(balancer));
            } else if shared && due {
                return true;
            } else if leaves {
                // What others use is not taken from them.
                kept.push(not_left(load_balancer));
            } else if shared {
                kept.push(not_rebuilt(load_balancer, &have.others));
            } else {
                rebuilt.push(load_balancer.clone());
            }
            false
        }
        _ => true,
    });
    for load_balancer in rebuilt {
        plan.push(
            Step::DeleteLoadBalancer {
                load_balancer,
                cascade: true,
            },
            "Octavia reports that it serves no traffic, and a failover did not help; it is \
            recreated",
        );
    }
    if plan.is_empty() && !kept.is_empty() {
        return Err(kept);
    }
    Ok(plan)
}

/// Returns a plan with a wait where a load balancer may yet come of a request whose answer was
/// lost: it is not requested a second time, and its Service does not go without it.
pub(super) fn defer_while_create_is_unanswered(
    have: &Observed,
    mut plan: Plan<Step>,
) -> Plan<Step> {
    if !have.attempts.create_is_unanswered {
        return plan;
    }
    let creates = |step: &Step| matches!(step, Step::CreateLoadBalancer { .. });
    plan.steps.retain(|planned| !creates(&planned.step));
    plan.upcoming.clear();
    plan.waits.push(Wait {
        object: LOAD_BALANCER,
        id: "new".to_owned(),
        doing: "possibly being created",
        because: "the answer to the request was lost, and it may still be executed",
        // It was announced with the request.
        creates: false,
    });
    plan
}
