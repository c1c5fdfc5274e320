//! What is published of addresses, and what is reported of a claim: pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use landfall_ipam::Refusal;
use landfall_model::intent::{Intent, LoadBalancerSpec};
use landfall_model::provider::Published;
use landfall_model::reason::{Code, Reason, Severity};
use landfall_model::rows::{Family, FamilyPolicy};
use landfall_model::status::{HELD_ADDRESSES, IngressAddress, IpMode};

use crate::addressing::Holdings;

/// Returns what is published of addresses. A host name stands in their place, and an annotation
/// records them beside it.
pub fn published(spec: &LoadBalancerSpec, held: &[IpAddr], mode: IpMode) -> Published {
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
        ip_mode: Some(mode),
        ..IngressAddress::default()
    };
    held.iter().map(entry).collect::<Vec<_>>().into()
}

/// Returns what a Service that holds addresses should know of its claim.
pub fn remarks(want: &Intent, spec: &LoadBalancerSpec, have: &Holdings) -> Vec<Reason> {
    let mut remarks = Vec::new();
    match have.answer.as_ref().map(|answer| &answer.outcome) {
        Some(Err(refusal)) if !have.held.is_empty() => {
            remarks.push(refusal_reason(want, refusal));
        }
        Some(Ok(_)) => remarks.extend(unmet(want, spec, have)),
        Some(Err(_)) | None => {}
    }
    remarks.extend(have.shared_by_exception.iter().map(shared_by_exception));
    remarks
}

/// Returns why a Service that prefers both families has one of them; it is among the remarks.
pub fn missing_family(want: &Intent, spec: &LoadBalancerSpec, have: &Holdings) -> Option<Reason> {
    let prefers = spec.address.policy == FamilyPolicy::PreferDualStack && !have.held.is_empty();
    let unmet = unmet(want, spec, have).filter(|_| prefers)?;
    (unmet.severity == Severity::Warning && unmet.code != Code::PoolsIncomplete).then_some(unmet)
}

/// Returns the part of a request that can't be had while the rest can.
fn unmet(want: &Intent, spec: &LoadBalancerSpec, have: &Holdings) -> Option<Reason> {
    let proposal = have.answer.as_ref()?.outcome.as_ref().ok()?;
    let refusal = proposal.unmet.as_ref()?;
    Some(Reason {
        severity: severity(spec, have, refusal),
        ..refusal_reason(want, refusal)
    })
}

/// Returns a refusal as a reason that names where the address was requested.
pub(crate) fn refusal_reason(want: &Intent, refusal: &Refusal) -> Reason {
    let reason = refusal.reason();
    let Some(spec) = &want.load_balancer else {
        return reason;
    };
    let address = &spec.address;
    if address.requested.is_empty() || address.requested_by.is_empty() {
        return reason;
    }
    let requested: Vec<_> = address.requested.iter().map(ToString::to_string).collect();
    reason
        .at(address.requested_by.as_str())
        .value(requested.join(","))
}

/// Makes the remark that an address stays shared although it could not be shared like that today.
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

/// Returns the severity of an unmet part: one family serves a Service that only prefers both.
fn severity(spec: &LoadBalancerSpec, have: &Holdings, refusal: &Refusal) -> Severity {
    // Nothing is wrong with the Service.
    if matches!(refusal, Refusal::PoolsIncomplete) {
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
