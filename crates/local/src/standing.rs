//! What can be said of a Service in its observed state: pure.

use std::net::IpAddr;

use landfall_ipam::Refusal;
use landfall_model::ListenerKey;
use landfall_model::intent::{Intent, LoadBalancerWish};
use landfall_model::provider::Standing;
use landfall_model::reason::{Code, Reason, Severity};
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_model::status::{IngressAddress, IpMode};

use crate::plan::{Observed, refusal_reason};

/// Addresses, and why traffic does not flow if it does not.
pub fn standing(want: &Intent, have: &Observed) -> Standing {
    let Some(wish) = &want.load_balancer else {
        return Standing::default();
    };
    let mut standing = Standing {
        ingress: ingress(wish, &have.held),
        ..Standing::default()
    };
    if let Some(answer) = &have.answer {
        match &answer.outcome {
            Err(refusal) if !have.held.is_empty() => {
                standing.remarks.push(refusal_reason(want, refusal));
            }
            Ok(proposal) => {
                let unmet = proposal.unmet.iter().map(|refusal| Reason {
                    severity: severity(wish, have, refusal),
                    ..refusal_reason(want, refusal)
                });
                standing.remarks.extend(unmet);
            }
            Err(_) => {}
        }
    }
    let opened = have.listeners.values();
    standing
        .waiting
        .extend(opened.clone().filter_map(|it| it.problem.clone()));
    let refused = opened.filter_map(|it| it.refused.as_ref());
    let still_wanted = refused.filter(|(listener, _)| wish.listeners.contains(listener));
    standing
        .remarks
        .extend(still_wanted.map(|(_, reason)| reason.clone()));
    standing.waiting.extend(idle_pools(want, wish, have));
    standing
}

/// Who merely prefers both families is served as wished with one.
fn severity(wish: &LoadBalancerWish, have: &Observed, refusal: &Refusal) -> Severity {
    // Nothing is wrong with the Service.
    if matches!(refusal, Refusal::PoolsInDoubt) {
        return Severity::Warning;
    }
    let lacking = match refusal {
        Refusal::PoolFull { family, .. } | Refusal::PoolLacksFamily { family, .. } => Some(*family),
        _ => None,
    };
    let held = have.held.iter().map(|address| Family::of(*address));
    let second = lacking.is_some_and(|lacking| held.clone().all(|family| family != lacking));
    if second && held.count() > 0 && wish.address.policy == FamilyPolicy::PreferDualStack {
        Severity::Warning
    } else {
        Severity::Error
    }
}

/// Addresses without anything said about ports.
pub fn plain_ingress(addresses: &[IpAddr]) -> Vec<IngressAddress> {
    let entry = |address: &IpAddr| IngressAddress {
        ip: Some(*address),
        ip_mode: Some(IpMode::Vip),
        ..IngressAddress::default()
    };
    addresses.iter().map(entry).collect()
}

/// What is published. A host name stands in place of the addresses. Where the load balancer does
/// more to the traffic than to pass it on, nodes must not take the short cut around it.
fn ingress(wish: &LoadBalancerWish, held: &[IpAddr]) -> Vec<IngressAddress> {
    if held.is_empty() {
        return Vec::new();
    }
    if let Some(hostname) = &wish.hostname {
        return vec![IngressAddress {
            hostname: Some(hostname.clone()),
            ..IngressAddress::default()
        }];
    }
    let reworked = wish.listeners.iter().any(|listener| {
        listener.pool.proxy_protocol.is_some() || listener.mode.as_str() != "stream"
    });
    let mut entries = plain_ingress(held);
    if reworked {
        for entry in &mut entries {
            entry.ip_mode = Some(IpMode::Proxy);
        }
    }
    entries
}

/// Listeners that accept connections and have nobody to give them to.
fn idle_pools(want: &Intent, wish: &LoadBalancerWish, have: &Observed) -> Vec<Reason> {
    let mut reasons: Vec<Reason> = Vec::new();
    for listener in &wish.listeners {
        let key = listener.key;
        match have.members.get(&key) {
            Some((0, 0)) | None if listener.pool.members.is_empty() => {
                if let Some(told) = told_already(want, key) {
                    if !reasons.contains(told) {
                        reasons.push(told.clone());
                    }
                    continue;
                }
                let (code, message) = if wish.left_out.is_empty() {
                    (Code::NoEndpoints, format!("{key} has no endpoint"))
                } else {
                    (
                        Code::NoReadyEndpoints,
                        format!("{key} has no endpoint that is ready"),
                    )
                };
                let remedy = "add an EndpointSlice for the Service, or the annotation \
                              landfall.dev/endpoints";
                reasons.push(Reason::warning(code, message).remedy(remedy));
            }
            Some((0, total)) if *total > 0 => {
                let message = format!("{key}: none of {total} members passes its check");
                let remedy = "the reason of each member is in `landfall explain`";
                reasons.push(Reason::warning(Code::NoHealthyMembers, message).remedy(remedy));
            }
            _ => {}
        }
    }
    reasons
}

/// What was found out about the endpoints of a port while the wish was resolved.
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
