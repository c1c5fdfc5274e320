//! What would be done, without doing it: the same resolve, observe and plan as in production, step
//! by step on a copy of the provider that changes nothing outside itself.

use landfall_model::intent::Intent;
use landfall_model::plan::PlannedStep;
use landfall_model::provider::Provider;
use landfall_model::reason::Reason;
use landfall_model::{ServiceKey, Uid};
use serde::{Deserialize, Serialize};

use crate::resolve::resolve;
use crate::select::{Belongs, Classes};
use crate::world::World;

/// What would happen to one Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePlan {
    /// Namespace and name.
    pub service: ServiceKey,
    /// The steps in order; empty: nothing to do.
    pub steps: Vec<PlannedStep>,
    /// Why the wish can't be had, and remarks.
    pub reasons: Vec<Reason>,
}

/// Plans for Services that are held and no longer there, then for every Service of the World that is
/// ours, by key. The sandboxes, one per instance, are changed as if the plans had been carried out.
pub async fn dry_run<P: Provider>(
    sandboxes: &[P],
    world: &World,
    classes: &Classes,
    gone: &[(ServiceKey, Uid)],
) -> Vec<ServicePlan> {
    let mut plans = Vec::new();
    for (service, uid) in gone {
        for sandbox in sandboxes {
            let intent = Intent::removal(service.clone(), uid.clone());
            let plan = plan_one(sandbox, intent).await;
            if sandboxes.len() == 1 || !plan.steps.is_empty() {
                plans.push(plan);
            }
        }
    }
    for row in world.services() {
        let namespace = world.namespace(row.key.namespace());
        let Belongs::Ours(instance) = classes.judge(row, namespace.map(AsRef::as_ref)) else {
            continue;
        };
        let Some(sandbox) = sandboxes.get(instance) else {
            continue;
        };
        plans.push(match resolve(row, world, sandbox.capabilities()) {
            Ok(intent) => plan_one(sandbox, intent).await,
            Err(reasons) => ServicePlan {
                service: row.key.clone(),
                steps: Vec::new(),
                reasons,
            },
        });
    }
    plans
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
                if let Err(error) = sandbox.apply(&planned.step).await {
                    outcome.reasons.push(error.reason);
                }
            }
        }
        Err(reasons) => outcome.reasons.extend(reasons),
    }
    outcome
}
