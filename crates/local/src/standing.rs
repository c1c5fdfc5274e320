//! What can be said of a Service in its observed state: pure.

use std::net::IpAddr;

use landfall_model::intent::{Intent, LoadBalancerWish};
use landfall_model::provider::Standing;
use landfall_model::reason::{Code, Reason};
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
                standing.remarks.extend(
                    proposal
                        .unmet
                        .iter()
                        .map(|refusal| refusal_reason(want, refusal)),
                );
            }
            Err(_) => {}
        }
    }
    standing.waiting.extend(
        have.listeners
            .values()
            .filter_map(|opened| opened.problem.clone()),
    );
    standing.waiting.extend(idle_pools(wish, have));
    standing
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
fn idle_pools(wish: &LoadBalancerWish, have: &Observed) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for listener in &wish.listeners {
        let key = listener.key;
        match have.members.get(&key) {
            Some((0, 0)) | None if listener.pool.members.is_empty() => {
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
