//! What can be said of a Service in its observed state: pure.

use std::net::IpAddr;

use landfall_addressing::remarks;
use landfall_model::ListenerKey;
use landfall_model::intent::{Intent, LoadBalancerSpec};
use landfall_model::provider::{ProviderStatus, Published};
use landfall_model::reason::{Code, Reason};
use landfall_model::status::IpMode;
use landfall_proxy::pool::Reach;

use crate::observed::Observed;
use crate::shortage::Shared;

/// Addresses, and why traffic does not flow if it does not.
pub fn status(want: &Intent, have: &Observed) -> ProviderStatus {
    let Some(spec) = &want.load_balancer else {
        return ProviderStatus::default();
    };
    let Published { ingress, marks } = published(spec, &have.addresses.held);
    let mut status = ProviderStatus {
        ingress,
        marks,
        ..ProviderStatus::default()
    };
    status.remarks = remarks(want, spec, &have.addresses);
    let opened = have.listeners.values();
    status
        .waiting
        .extend(opened.clone().filter_map(|it| it.problem.clone()));
    let refused = opened.filter_map(|it| it.refused.as_ref());
    let still_wanted = refused.filter(|(listener, _)| spec.listeners.contains(listener));
    status
        .remarks
        .extend(still_wanted.map(|(_, reason)| reason.clone()));
    status.waiting.extend(idle_pools(want, spec, have));
    let refused = have.short_of.map(Shared::reason);
    let refused = refused.map(|reason| (reason.code.as_str(), reason));
    status.notices.extend(refused);
    status
}

/// Returns what is published of addresses. Nodes never deliver the traffic themselves: it would
/// bypass the listener with its limits, weights, monitors and counters, and endpoints that only the
/// Service names are unknown to them.
pub fn published(spec: &LoadBalancerSpec, held: &[IpAddr]) -> Published {
    landfall_addressing::published(spec, held, IpMode::Proxy)
}

/// Listeners that accept connections and have no member for them.
fn idle_pools(want: &Intent, spec: &LoadBalancerSpec, have: &Observed) -> Vec<Reason> {
    let mut reasons: Vec<Reason> = Vec::new();
    for listener in &spec.listeners {
        let key = listener.key;
        match have.members.get(&key) {
            Some(Reach { total: 0, .. }) | None if listener.pool.members.is_empty() => {
                if let Some(reported) = reported_already(want, key) {
                    if !reasons.contains(reported) {
                        reasons.push(reported.clone());
                    }
                    continue;
                }
                let (code, message) = if spec.left_out.is_empty() {
                    (Code::NoEndpoints, format!("{key} has no endpoint"))
                } else {
                    (
                        Code::NoReadyEndpoints,
                        format!("{key} has no ready endpoint"),
                    )
                };
                let remedy = "add an EndpointSlice for the Service, or the annotation \
                              landfall.dev/endpoints";
                reasons.push(Reason::warning(code, message).remedy(remedy));
            }
            Some(Reach {
                serving: 0,
                total: total @ 1..,
                failure,
            }) => {
                let message = match failure {
                    Some(failure) => {
                        format!("{key}: connections to all of {total} members fail: {failure}")
                    }
                    None => format!("{key}: none of {total} members passes its check"),
                };
                let remedy = "the reason of each member is in `landfall explain`";
                reasons.push(Reason::warning(Code::NoHealthyMembers, message).remedy(remedy));
            }
            _ => {}
        }
    }
    reasons
}

/// What was found out about the endpoints of a port while the spec was resolved.
fn reported_already(want: &Intent, key: ListenerKey) -> Option<&Reason> {
    let of_this_port = |reason: &&Reason| {
        let value = reason.value.as_ref();
        value.is_none_or(|value| *value == key.to_string())
    };
    let about_endpoints =
        |reason: &&Reason| matches!(reason.code, Code::NoEndpoints | Code::NoReadyEndpoints);
    want.remarks
        .iter()
        .filter(about_endpoints)
        .find(of_this_port)
}
