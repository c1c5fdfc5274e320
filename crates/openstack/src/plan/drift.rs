//! What another program has changed of a load balancer that was as the Service wants it. Pure.

use landfall_model::plan::Plan;
use landfall_model::{Intent, Severity};

use super::diff;
use super::diff::Diff;
use crate::objects::Provisioning;
use crate::observed::{Content, Found, Goal, Observed};
use crate::record::Record;
use crate::refusal::Refusals;
use crate::target::fingerprint;

/// The steps that put right what another program has changed; `None`: it can't be said, because the
/// Service asks for something else than what was last seen to be there, or nothing was read.
pub(crate) fn drift(intent: &Intent, have: &Observed) -> Option<Vec<String>> {
    let (
        Goal::Exists(target),
        Found::One {
            balancer, owner, ..
        },
    ) = (&have.goal, &have.found)
    else {
        return None;
    };
    let refused = target
        .reasons
        .iter()
        .any(|it| it.severity == Severity::Error);
    if have.assumed || refused || balancer.provisioning_status != Provisioning::Active {
        return None;
    }
    if target.listeners.iter().any(|it| it.pending) {
        return None;
    }
    if matches!(have.content, Content::AsWanted) {
        return Some(Vec::new());
    }
    let record = Record::of(intent)?;
    let now = fingerprint(&target.listeners);
    if record.balancer != balancer.id.as_str() || !record.is_of_shape(&now) {
        return None;
    }
    // Members may be others than on record, as those that follow nodes are not recorded.
    let whole = record.fingerprint == now;
    let none = Refusals::default();
    let diff = Diff {
        refusals: &none,
        ..diff(have, balancer, *owner)?
    };
    let mut plan = Plan::default();
    diff.plan(&target.listeners, &mut plan).ok()?;
    let steps = plan.steps.iter();
    let steps = steps.filter(|planned| whole || !planned.members_only);
    Some(steps.map(|planned| planned.step.to_string()).collect())
}
