//! Whether a load balancer without marks, which has the name of a Service's, was made for it. Pure.
//!
//! Clusters in one project may have one name, so that a name alone proves nothing: what serves
//! another cluster is neither changed nor deleted.

use std::net::IpAddr;

use landfall_model::dialect::openstack::{LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID};
use landfall_model::{Code, Intent, Reason};

use super::is_before;
use crate::features::Features;
use crate::names::Names;
use crate::objects::LoadBalancer;
use crate::observed::{Content, Found};
use crate::record::Record;

/// Whether marks say that a load balancer was made for a Service, or by its cluster.
pub(crate) fn is_marked(names: &Names, balancer: &LoadBalancer) -> bool {
    let mut ours = names.cluster_tag.iter().chain([&names.uid_tag]);
    ours.any(|tag| balancer.tags.contains(tag))
}

/// Whether a Service notes that another load balancer served it: that its address leads here by
/// now proves nothing, for it may have been moved to another cluster's.
pub(crate) fn was_served_elsewhere(intent: &Intent, balancer: &LoadBalancer) -> bool {
    let recorded = Record::of(intent).map(|it| it.balancer);
    let noted = recorded.or_else(|| intent.marks.get(LOAD_BALANCER_ID).cloned());
    noted.is_some_and(|id| id != balancer.id.as_str())
}

/// The load balancer that only its name makes the Service's, as far as the Service says.
pub(crate) fn by_name_alone<'a>(
    intent: &Intent,
    names: &Names,
    features: Features,
    found: &'a Found,
) -> Option<&'a LoadBalancer> {
    let Found::One {
        balancer,
        owner: true,
        ..
    } = found
    else {
        return None;
    };
    // Without tags there are no marks, and manifests have no time at which a Service was made.
    if !features.tags() || intent.created.is_none() || is_marked(names, balancer) {
        return None;
    }
    let id = balancer.id.as_str();
    let given = intent.extensions.openstack.load_balancer.as_ref();
    let noted = given.is_some_and(|given| given.value == id)
        || intent
            .marks
            .get(LOAD_BALANCER_ID)
            .is_some_and(|it| it == id)
        || Record::of(intent).is_some_and(|it| it.balancer == id);
    let mut vips = balancer.vip_address.iter();
    let published = published(intent);
    let here = !was_served_elsewhere(intent, balancer) && vips.any(|it| published.contains(it));
    (!noted && !here).then_some(&**balancer)
}

/// The addresses at which clients reach the Service, as its status and a controller, be it another
/// one, say on it.
pub(crate) fn published(intent: &Intent) -> Vec<IpAddr> {
    let spec = intent.load_balancer.iter();
    let held = spec.flat_map(|spec| spec.address.held.iter().copied());
    held.chain(noted_addresses(intent)).collect()
}

/// The addresses that a controller, be it another one, has written on the Service.
pub(crate) fn noted_addresses(intent: &Intent) -> Vec<IpAddr> {
    let noted = intent.extensions.openstack.published.as_ref();
    let noted = noted.and_then(|given| given.value.parse().ok());
    annotated(intent).into_iter().chain(noted).collect()
}

/// The address in the Service's annotation.
pub(crate) fn annotated(intent: &Intent) -> Option<IpAddr> {
    intent.marks.get(LOAD_BALANCER_ADDRESS)?.parse().ok()
}

/// Why what is in a load balancer does not show that it was made for the Service, either. One that
/// has no members yet may be half made: then it is younger than the Service.
pub(crate) fn lacking(
    intent: &Intent,
    balancer: &LoadBalancer,
    content: &Content,
) -> Option<Reason> {
    let nodes = intent.load_balancer.iter().flat_map(|spec| &spec.nodes);
    let ours: Vec<IpAddr> = nodes
        .flat_map(|node| node.others.iter().copied().chain([node.address]))
        .collect();
    let why = match content {
        Content::AsWanted => return None,
        Content::Unread => "and what it serves is not known".to_owned(),
        Content::Graph(graph) => {
            let mut members = graph.members.values().flatten().peekable();
            if members.peek().is_none() {
                is_before(balancer.created_at.as_deref(), intent.created)
                    .then(|| "and it was created before the Service".to_owned())?
            } else if members.any(|it| it.address.is_some_and(|it| ours.contains(&it))) {
                return None;
            } else {
                "and none of its members is a node of this cluster".to_owned()
            }
        }
    };
    Some(unproven(balancer, &why))
}

/// What is said of a load balancer that nothing but its name makes a Service's.
pub(crate) fn unproven(balancer: &LoadBalancer, why: &str) -> Reason {
    Reason::error(
        Code::NotOurs,
        format!(
            "load balancer {} has the name of this Service's, carries no mark, {why}: it may be \
            another cluster's of the same --cluster-name",
            balancer.id
        ),
    )
    .remedy(
        "compare its members with the nodes: if it is left over, delete it; if it is this \
        cluster's, set loadbalancer.openstack.org/load-balancer-id to its id; if it is another \
        cluster's, give each cluster its own --cluster-name",
    )
}
