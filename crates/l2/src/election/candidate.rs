//! Which nodes take part in the election of an address.

use super::{Node, NotAnnounced, Rules, Service};

/// Returns why a node is no candidate for the address of a Service; `None` if it is one.
pub fn refusal(service: &Service<'_>, node: &Node, rules: Rules) -> Option<NotAnnounced> {
    if let Some(reason) = refusal_of_service(service) {
        return Some(reason);
    }
    let selects = |it: &&super::Advertisement| it.nodes.contains(&node.name);
    if !service.advertisements.iter().any(selects) {
        return Some(NotAnnounced::NoMatchingAdvertisement);
    }
    if !node.is_alive {
        return Some(NotAnnounced::NotAMember);
    }
    if node.network_unavailable {
        return Some(NotAnnounced::NodeNetworkUnavailable);
    }
    if node.excluded && !rules.ignore_exclude_label {
        return Some(NotAnnounced::NodeLabeledExcludeBalancers);
    }
    if service.is_local && !service.endpoint_nodes.contains(&node.name) {
        return Some(NotAnnounced::NoLocalEndpoints);
    }
    if rules.must_be_able_to_serve && !node.is_able_to_serve {
        return Some(NotAnnounced::NotAbleToServe);
    }
    None
}

/// Returns why no node at all is a candidate for the address of a Service.
pub(super) fn refusal_of_service(service: &Service<'_>) -> Option<NotAnnounced> {
    if !service.has_endpoints {
        return Some(NotAnnounced::NoEndpoints);
    }
    if service.advertisements.is_empty() {
        return Some(NotAnnounced::NoMatchingAdvertisement);
    }
    let by_service = service.advertisements.iter().any(|it| it.selects_services);
    if service.has_sharing_key && by_service {
        return Some(NotAnnounced::SharedAddressWithServiceSelector);
    }
    None
}

/// Returns how much the advertisements of a Service prefer a node. One counts only for nodes that
/// it selects.
pub(super) fn preference(service: &Service<'_>, node: &str) -> u64 {
    let selecting = service
        .advertisements
        .iter()
        .filter(|it| it.nodes.contains(node));
    let weights = selecting.filter_map(|it| it.preferences.get(node));
    weights.map(|weight| u64::from(*weight)).sum()
}
