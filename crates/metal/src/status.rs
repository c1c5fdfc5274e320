//! What can be said of a Service in its observed state: pure.

use std::net::IpAddr;

use landfall_addressing::{missing_family, remarks};
use landfall_model::dialect::metallb::ALLOCATED_FROM_POOL;
use landfall_model::intent::{Intent, LoadBalancerSpec};
use landfall_model::provider::{ProviderStatus, Published};
use landfall_model::reason::{Code, Reason};
use landfall_model::status::IpMode;

use crate::data_plane::DataPlane;
use crate::events::ADDITIONAL_ASSIGN_FAILED;
use crate::observed::{Announced, Observed};

/// Addresses, and why no traffic can arrive if none can.
pub(crate) fn status(want: &Intent, have: &Observed, data_plane: DataPlane) -> ProviderStatus {
    let Some(spec) = &want.load_balancer else {
        return ProviderStatus::default();
    };
    let held = &have.addresses.held;
    let Published { ingress, marks } = published(spec, have, held, data_plane);
    let mut status = ProviderStatus {
        ingress,
        marks,
        ..ProviderStatus::default()
    };
    status.remarks = remarks(want, spec, &have.addresses);
    let lacking = missing_family(want, spec, &have.addresses);
    let lacking = lacking.map(|reason| (ADDITIONAL_ASSIGN_FAILED, reason));
    status.notices.extend(lacking);
    // Before it holds any: those that it is about to get.
    let matters = |it: &&Announced| held.is_empty() || held.contains(&it.address);
    for announced in have.announced.iter().filter(matters) {
        status.waiting.extend(silence(spec, have, announced));
    }
    status.waiting.extend(without_endpoints(want, spec));
    status
}

/// Returns what is published of addresses, with their pool. kube-proxy takes the addresses that it
/// serves from the status; those that speakers serve it must not intercept, on no node.
///
/// MetalLB publishes addresses that a Service asks for in the order of their texts, and elects by
/// the first one: in another order they would move to another node.
pub(crate) fn published(
    spec: &LoadBalancerSpec,
    have: &Observed,
    held: &[IpAddr],
    data_plane: DataPlane,
) -> Published {
    let mode = match data_plane {
        DataPlane::KubeProxy => IpMode::Vip,
        DataPlane::Landfall => IpMode::Proxy,
    };
    // All addresses of a Service are of one pool.
    let of_them = |it: &&Announced| held.contains(&it.address);
    let mut announced = have.announced.iter().filter(of_them);
    let pool = announced.find_map(|it| it.pool.clone());
    let pool = pool.map(|pool| (ALLOCATED_FROM_POOL.to_owned(), pool));
    let mut held = held.to_vec();
    if !spec.address.requested.is_empty() {
        held.sort_by_cached_key(ToString::to_string);
    }
    let mut published = landfall_addressing::published(spec, &held, mode);
    published.marks.extend(pool);
    published
}

/// Returns why no node announces an address, whatever the nodes.
fn silence(spec: &LoadBalancerSpec, have: &Observed, announced: &Announced) -> Option<Reason> {
    let Announced {
        address,
        pool,
        by_l2,
        by_bgp,
        ..
    } = announced;
    // Without its pool it is about to move, which is reported with the claim.
    let pool = pool.as_ref()?;
    if *by_bgp > 0 {
        return None;
    }
    if *by_l2 > 0 {
        return (announced.l2_selects_services && spec.address.sharing_key.is_some()).then(|| {
            let message = format!(
                "{address} is not announced: an L2Advertisement with serviceSelectors applies to \
                 it, and a Service with a sharing key can't be selected by its labels"
            );
            Reason::warning(Code::NotAnnounced, message)
                .remedy("remove the sharing key, or serviceSelectors of the L2Advertisement")
        });
    }
    let message = if have.has_advertisements {
        format!(
            "{address} is not announced: no L2Advertisement or BGPAdvertisement is for pool {pool} \
             and this Service"
        )
    } else {
        format!("{address} is not announced: there is no L2Advertisement or BGPAdvertisement")
    };
    let remedy = format!(
        "create an L2Advertisement for pool {pool}, or a BGPAdvertisement and a BGPPeer; one \
         without a spec announces all pools on all nodes"
    );
    Some(Reason::warning(Code::NotAnnounced, message).remedy(remedy))
}

/// Returns that the Service has no endpoint: then no node announces its addresses.
fn without_endpoints(want: &Intent, spec: &LoadBalancerSpec) -> Option<Reason> {
    let mut listeners = spec.listeners.iter();
    if listeners.any(|listener| !listener.pool.members.is_empty()) {
        return None;
    }
    let about_endpoints =
        |reason: &&Reason| matches!(reason.code, Code::NoEndpoints | Code::NoReadyEndpoints);
    if let Some(reported) = want.remarks.iter().find(about_endpoints) {
        return Some(reported.clone());
    }
    let (code, message) = if spec.left_out.is_empty() {
        (Code::NoEndpoints, "the Service has no endpoint")
    } else {
        (Code::NoReadyEndpoints, "the Service has no ready endpoint")
    };
    let remedy = "start pods that the selector of the Service matches; the address stays meanwhile";
    Some(Reason::warning(code, message).remedy(remedy))
}
