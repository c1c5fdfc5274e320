//! What would be done, without doing it: the same resolve, observe and plan as in production, step
//! by step on a copy of the provider that changes nothing outside itself.

use landfall_model::intent::Intent;
use landfall_model::plan::PlannedStep;
use landfall_model::provider::{Applied, Provider};
use landfall_model::reason::Reason;
use landfall_model::rows::ServiceRow;
use landfall_model::{ServiceKey, Uid};
use serde::{Deserialize, Serialize};

use crate::resolve::resolve;
use crate::select::{Classes, Ownership};
use crate::world::World;

/// What would happen to one Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePlan {
    /// Namespace and name.
    pub service: ServiceKey,
    /// The steps in order; empty: nothing to do.
    pub steps: Vec<PlannedStep>,
    /// Why the spec can't be had, and remarks.
    pub reasons: Vec<Reason>,
}

/// Plans for Services that are held and no longer there, then for every Service of the World that
/// is ours, by key. The sandboxes, one per instance, are changed as if the plans had been carried
/// out.
pub async fn dry_run<P: Provider>(
    sandboxes: &[P],
    world: &World,
    classes: &Classes,
    gone: &[(ServiceKey, Uid)],
) -> Vec<ServicePlan> {
    let mut plans = Vec::new();
    for (service, uid) in gone {
        plans.extend(removals(sandboxes, service, uid).await);
    }
    for row in world.services() {
        let row = &*row;
        let namespace = world.namespace(row.key.namespace());
        let namespace = namespace.map(AsRef::as_ref);
        let refused = |reasons| ServicePlan {
            service: row.key.clone(),
            steps: Vec::new(),
            reasons,
        };
        let mut plan = match classes.validate(row, namespace) {
            Ownership::SwitchedOff => continue,
            Ownership::NotOurs => {
                plans.extend(removals(sandboxes, &row.key, &row.uid).await);
                continue;
            }
            Ownership::UnknownClass => {
                plans.extend(removals(sandboxes, &row.key, &row.uid).await);
                refused(vec![classes.unknown(row, namespace)])
            }
            Ownership::Ours(instance) => {
                let Some(sandbox) = instance.of(sandboxes) else {
                    continue;
                };
                match resolve(row, world, sandbox.profile()) {
                    Ok(intent) => plan_one(sandbox, intent).await,
                    Err(reasons) => refused(reasons),
                }
            }
        };
        for reason in &mut plan.reasons {
            place(reason, row);
        }
        plans.push(plan);
    }
    plans
}

/// What would be given back of a Service that is not served (any more).
async fn removals<P: Provider>(
    sandboxes: &[P],
    service: &ServiceKey,
    uid: &Uid,
) -> Vec<ServicePlan> {
    let mut plans = Vec::new();
    for sandbox in sandboxes {
        let intent = Intent::removal(service.clone(), uid.clone());
        let plan = plan_one(sandbox, intent).await;
        if !plan.steps.is_empty() {
            plans.push(plan);
        }
    }
    plans
}

/// A provider knows fields and no files: a reason that names a field gets the field's place.
fn place(reason: &mut Reason, row: &ServiceRow) {
    if let (None, Some(field)) = (&reason.origin, &reason.field) {
        reason.origin = row.origin_of(field);
    }
}

async fn plan_one<P: Provider>(sandbox: &P, intent: Intent) -> ServicePlan {
    let mut outcome = ServicePlan {
        service: intent.service.clone(),
        steps: Vec::new(),
        reasons: intent.remarks.clone(),
    };
    let observed = match sandbox.observe(&intent).await {
        Ok(observed) => observed,
        Err(error) => {
            outcome.reasons.push(error.reason);
            return outcome;
        }
    };
    match sandbox.plan(&intent, &observed) {
        Ok(plan) => {
            outcome.steps = plan.describe();
            for planned in &plan.steps {
                match sandbox.apply(&planned.step).await {
                    Ok(Applied::Addressed(_)) => sandbox.on_recorded(&intent.uid),
                    Ok(Applied::Done | Applied::Later { .. } | Applied::Busy { .. }) => {}
                    Err(error) => outcome.reasons.push(error.reason),
                }
            }
            if intent.load_balancer.is_none() {
                sandbox.on_forgotten(&intent.uid);
            }
        }
        Err(reasons) => outcome.reasons.extend(reasons),
    }
    outcome
}
