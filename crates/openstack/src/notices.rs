//! What is reported beside the state: facts that users know as events.

use std::time::Duration;

use landfall_model::dialect::Given;
use landfall_model::dialect::openstack::LOAD_BALANCER_ID;
use landfall_model::{Code, Intent, LoadBalancerSpec, Reason};

use crate::objects::{Id, LoadBalancer, PoolAlgorithm, Provisioning, server_of};
use crate::observed::{Found, Goal, Observed};
use crate::record::Record;
use crate::target::Notice;

/// Groups can't be put on nodes that are not of this cloud.
pub(crate) fn foreign_nodes_notice(spec: &LoadBalancerSpec) -> Option<Notice> {
    let foreign = |it: &&landfall_model::intent::NodeTarget| {
        it.provider_id.as_deref().and_then(server_of).is_none()
    };
    let mut names: Vec<&str> = spec
        .nodes
        .iter()
        .filter(foreign)
        .map(|it| &*it.name)
        .collect();
    if names.is_empty() {
        return None;
    }
    let count = names.len();
    names.truncate(20);
    Some((
        "LoadBalancerNodesUnguarded",
        Reason::warning(
            Code::InvalidCloudOption,
            format!(
                "{count} nodes are no servers of OpenStack by their providerID, and get no \
                security group: {}",
                names.join(", ")
            ),
        )
        .remedy("open the Service's NodePorts on them by other means"),
    ))
}

/// A Service that has a load balancer of its own does not leave it for another one that an
/// annotation names.
pub(crate) fn other_named(in_vain: Option<&Given<String>>, found: &Found) -> Option<Notice> {
    let Found::One {
        balancer, owner, ..
    } = found
    else {
        return None;
    };
    let given = in_vain?;
    let whose = if *owner { "has" } else { "uses" };
    let own = if *owner { " of its own" } else { "" };
    let message = format!(
        "the Service {whose} load balancer {}{own}, and keeps it: another one is not used instead",
        balancer.id
    );
    let reason = Reason::warning(Code::ConflictingOptions, message)
        .at_annotation(&given.annotation)
        .value(given.value.as_str())
        .remedy(
            "revert the change; to use the other one, delete the Service and recreate it with \
                the annotation",
        );
    Some(("LoadBalancerIdIgnored", reason))
}

/// That a Service can't be internal on the load balancer of another, be it from the beginning or
/// later: it is as open as its owner makes it.
pub(crate) fn exposed_by_owner(balancer: Option<&LoadBalancer>) -> Reason {
    let id = balancer.map(|it| it.id.as_str()).unwrap_or_default();
    Reason::error(
        Code::NotOurs,
        "an internal Service can't share the load balancer of another, whose floating IP would \
        expose it; an existing listener stays as it is",
    )
    .at_annotation(LOAD_BALANCER_ID)
    .value(id)
    .remedy(
        "remove one of the two annotations; to get an internal load balancer of its own, delete \
        the Service and recreate it without load-balancer-id",
    )
}

/// So many changes are named.
const NAMED_CHANGES: usize = 4;

/// That another program has changed a load balancer, and what is done about it.
pub(crate) fn drifted(id: &Id, steps: &[String]) -> Reason {
    let mut named: Vec<&str> = steps.iter().map(String::as_str).collect();
    named.truncate(NAMED_CHANGES);
    let more = match steps.len().saturating_sub(NAMED_CHANGES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Reason::warning(
        Code::Progressing,
        format!(
            "load balancer {id} was changed by another program; it is put right: {}{more}",
            named.join("; ")
        ),
    )
    .remedy("change the Service instead, or find out which program changes its load balancer")
}

/// That the load balancer that served the Service is gone.
pub(crate) fn lost(intent: &Intent, have: &Observed) -> Option<Reason> {
    let (Goal::Exists(_), Found::Nothing) = (&have.goal, &have.found) else {
        return None;
    };
    let record = Record::of(intent).filter(|it| !it.given && it.token != "-")?;
    Some(Reason::warning(
        Code::LoadBalancerFailed,
        format!(
            "load balancer {}, which served the Service, is gone; another one is created",
            record.balancer
        ),
    ))
}

/// That Octavia refused the algorithm that the Service asks for.
pub(crate) fn refused_algorithm(have: &Observed) -> Option<Notice> {
    let (Goal::Exists(target), Found::One { balancer, .. }) = (&have.goal, &have.found) else {
        return None;
    };
    let wanted = |algorithm: &PoolAlgorithm| {
        let mut listeners = target.listeners.iter();
        listeners.any(|it| *algorithm == it.pool.algorithm)
    };
    let here = |pool: &Id| balancer.pools.iter().any(|it| it.id == *pool);
    let mut refused = have.attempts.refused_algorithms.iter();
    let (_, (_, message)) =
        refused.find(|(pool, (algorithm, _))| here(pool) && wanted(algorithm))?;
    let reason = Reason::warning(
        Code::OptionNotSupported,
        format!("Octavia does not accept the algorithm: {message}"),
    )
    .remedy("choose one that the provider of the load balancer supports");
    Some(("LoadBalancerLbMethodUnknown", reason))
}

/// That no load balancer of those that were asked for came to work, and that Octavia is given time.
pub(crate) fn resting((count, _): (u32, Duration)) -> Reason {
    let what = if count == 1 {
        "the last load balancer".to_owned()
    } else {
        format!("each of the last {count} load balancers")
    };
    Reason::error(
        Code::LoadBalancerFailed,
        format!("{what} went to ERROR or was removed before it worked; another one is created"),
    )
    .remedy("the logs of Octavia have the cause")
}

/// A load balancer that is busy for longer than this is reported: no change of Octavia takes so
/// long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(270);

/// Octavia has given the load balancer up.
pub(crate) fn in_error(id: &Id, owner: bool) -> Reason {
    let reason = Reason::error(
        Code::LoadBalancerFailed,
        format!("Octavia reports load balancer {id} in ERROR"),
    );
    reason.remedy(if owner {
        "the logs of Octavia have the cause; it is failed over if that is allowed, or recreated \
        once it serves no client and no other Service"
    } else {
        "the logs of Octavia have the cause; it was created for another Service, which has it \
        failed over if that is allowed"
    })
}

/// Octavia does not come to an end with the load balancer, and takes no change meanwhile.
pub(crate) fn stuck(id: &Id, status: Provisioning) -> Reason {
    let doing = match status {
        Provisioning::PendingCreate => "PENDING_CREATE",
        Provisioning::PendingDelete => "PENDING_DELETE",
        _ => "PENDING_UPDATE",
    };
    Reason::error(
        Code::LoadBalancerFailed,
        format!(
            "load balancer {id} has been in {doing} for more than {} seconds",
            TIMEOUT.as_secs()
        ),
    )
    .remedy("the logs of Octavia have the cause; an administrator of the cloud can end it")
}
