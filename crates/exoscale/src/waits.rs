//! What has to end in the cloud before more is changed.

use landfall_model::plan::Wait;

use crate::objects::{Id, LoadBalancer, LoadBalancerState, ServiceState};

/// The kind of object that is waited for.
const LOAD_BALANCER: &str = "load balancer";

/// Returns the wait for an NLB.
pub(crate) fn for_load_balancer(id: impl Into<String>, doing: &'static str) -> Wait {
    Wait {
        object: LOAD_BALANCER,
        id: id.into(),
        doing,
        because: "a load balancer takes one change at a time",
        creates: doing == CREATED,
    }
}

/// What a new NLB does.
pub(crate) const CREATED: &str = "being created";

/// Returns the wait for an NLB by its state.
pub(crate) fn of_state(load_balancer: &LoadBalancer) -> Wait {
    for_load_balancer(
        load_balancer.id.as_str(),
        doing(load_balancer).unwrap_or(CREATED),
    )
}

/// Returns what an NLB is doing; `None`: it takes changes.
pub(crate) fn doing(load_balancer: &LoadBalancer) -> Option<&'static str> {
    match load_balancer.state {
        LoadBalancerState::Creating => return Some(CREATED),
        LoadBalancerState::Deleting => return Some("being deleted"),
        LoadBalancerState::Migrating => return Some("being migrated"),
        LoadBalancerState::Migrated
        | LoadBalancerState::Running
        | LoadBalancerState::Error
        | LoadBalancerState::Other(_) => {}
    }
    let mut services = load_balancer.services.iter();
    let changing = services.any(|it| {
        matches!(
            it.state,
            ServiceState::Creating | ServiceState::Updating | ServiceState::Deleting
        )
    });
    changing.then_some("being changed")
}

/// Returns the id of what is waited for.
pub(crate) fn id(wait: &Wait) -> Id {
    Id::from(wait.id.as_str())
}
