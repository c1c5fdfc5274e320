//! What can be said of a Service in its observed state: pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use landfall_ipam::Refusal;
use landfall_model::ListenerKey;
use landfall_model::intent::{Intent, LoadBalancerSpec};
use landfall_model::provider::{ProviderStatus, Published};
use landfall_model::reason::{Code, Reason, Severity};
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_model::status::{HELD_ADDRESSES, IngressAddress, IpMode};
use landfall_proxy::pool::Reach;

use crate::plan::{Observed, refusal_reason};
use crate::shortage::Shared;

/// Addresses, and why traffic does not flow if it does not.
pub fn standing(want: &Intent, have: &Observed) -> ProviderStatus {
    let Some(spec) = &want.load_balancer else {
        return ProviderStatus::default();
    };
    let Published { ingress, marks } = published(spec, &have.held);
    let mut standing = ProviderStatus {
        ingress,
        marks,
        ..ProviderStatus::default()
    };
    if let Some(answer) = &have.answer {
        match &answer.outcome {
            Err(refusal) if !have.held.is_empty() => {
                standing.remarks.push(refusal_reason(want, refusal));
            }
            Ok(proposal) => {
                let unmet = proposal.unmet.iter().map(|refusal| Reason {
                    severity: severity(spec, have, refusal),
                    ..refusal_reason(want, refusal)
                });
                standing.remarks.extend(unmet);
            }
            Err(_) => {}
        }
    }
    let shared = have.shared_by_exception.iter();
    standing.remarks.extend(shared.map(shared_by_exception));
    let opened = have.listeners.values();
    standing
        .waiting
        .extend(opened.clone().filter_map(|it| it.problem.clone()));
    let refused = opened.filter_map(|it| it.refused.as_ref());
    let still_wanted = refused.filter(|(listener, _)| spec.listeners.contains(listener));
    standing
        .remarks
        .extend(still_wanted.map(|(_, reason)| reason.clone()));
    standing.waiting.extend(idle_pools(want, spec, have));
    let refused = have.short_of.map(Shared::reason);
    let refused = refused.map(|reason| (reason.code.as_str(), reason));
    standing.notices.extend(refused);
    standing
}

/// An address that stays shared although it could not be shared like that today.
fn shared_by_exception(address: &IpAddr) -> Reason {
    Reason::warning(
        Code::AddressNotShareable,
        format!(
            "{address} is already shared with a Service of another namespace; it stays so until it \
            is released, because the address pool now allows sharing within one namespace only"
        ),
    )
    .remedy(
        "set shareAcrossNamespaces in the pool of landfall.yaml, or the annotation \
         landfall.dev/share-across-namespaces: \"true\" on the IPAddressPool, or move one of the \
         Services to an address of its own",
    )
}

/// Who merely prefers both families is served as wished with one.
fn severity(spec: &LoadBalancerSpec, have: &Observed, refusal: &Refusal) -> Severity {
    // Nothing is wrong with the Service.
    if matches!(refusal, Refusal::PoolsInDoubt) {
        return Severity::Warning;
    }
    let lacking = match refusal {
        Refusal::PoolFull { family, .. }
        | Refusal::NamespaceFull { family, .. }
        | Refusal::PoolLacksFamily { family, .. } => Some(*family),
        _ => None,
    };
    let held = have.held.iter().map(|address| Family::of(*address));
    let second = lacking.is_some_and(|lacking| held.clone().all(|family| family != lacking));
    if second && held.count() > 0 && spec.address.policy == FamilyPolicy::PreferDualStack {
        Severity::Warning
    } else {
        Severity::Error
    }
}

/// What is published of addresses. A host name stands in their place, and a mark records them
/// beside it. Nodes never deliver the traffic themselves: it would pass by the listener with its
/// limits, weights, monitors and counters, and endpoints that only the Service names are unknown to
/// them.
pub fn published(spec: &LoadBalancerSpec, held: &[IpAddr]) -> Published {
    if held.is_empty() {
        return Published::default();
    }
    if let Some(hostname) = &spec.hostname {
        let addresses: Vec<String> = held.iter().map(ToString::to_string).collect();
        return Published {
            ingress: vec![IngressAddress {
                hostname: Some(hostname.clone()),
                ..IngressAddress::default()
            }],
            marks: BTreeMap::from([(HELD_ADDRESSES.to_owned(), addresses.join(","))]),
        };
    }
    let entry = |address: &IpAddr| IngressAddress {
        ip: Some(*address),
        ip_mode: Some(IpMode::Proxy),
        ..IngressAddress::default()
    };
    held.iter().map(entry).collect::<Vec<_>>().into()
}

/// Listeners that accept connections and have nobody to give them to.
fn idle_pools(want: &Intent, spec: &LoadBalancerSpec, have: &Observed) -> Vec<Reason> {
    let mut reasons: Vec<Reason> = Vec::new();
    for listener in &spec.listeners {
        let key = listener.key;
        match have.members.get(&key) {
            Some(Reach { total: 0, .. }) | None if listener.pool.members.is_empty() => {
                if let Some(told) = told_already(want, key) {
                    if !reasons.contains(told) {
                        reasons.push(told.clone());
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
fn told_already(want: &Intent, key: ListenerKey) -> Option<&Reason> {
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
