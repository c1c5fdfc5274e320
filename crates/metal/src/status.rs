//! What can be said of a Service in its observed state: pure.

use std::net::IpAddr;

use landfall_addressing::remarks;
use landfall_model::dialect::metallb::ALLOCATED_FROM_POOL;
use landfall_model::intent::{Intent, LoadBalancerSpec};
use landfall_model::provider::{ProviderStatus, Published};
use landfall_model::reason::{Code, Reason};
use landfall_model::status::IpMode;

use crate::observed::{Announced, Observed};
use crate::provider::DataPlane;

/// Addresses, and why no traffic can arrive if none can.
pub(crate) fn status(want: &Intent, have: &Observed, data_plane: DataPlane) -> ProviderStatus {
    let Some(spec) = &want.load_balancer else {
        return ProviderStatus::default();
    };
    let Published { ingress, marks } = published(spec, &have.addresses.held, data_plane);
    let mut status = ProviderStatus {
        ingress,
        marks,
        ..ProviderStatus::default()
    };
    // All addresses of a Service are of one pool.
    let pool = have.announced.iter().find_map(|it| it.pool.clone());
    let pool = pool.map(|pool| (ALLOCATED_FROM_POOL.to_owned(), pool));
    status.marks.extend(pool);
    status.remarks = remarks(want, spec, &have.addresses);
    for announced in &have.announced {
        status.waiting.extend(silence(spec, have, announced));
    }
    status.waiting.extend(without_endpoints(want, spec));
    status
}

/// Returns what is published of addresses. kube-proxy takes the addresses that it serves from the
/// status; those that speakers serve it must not intercept, on no node.
pub(crate) fn published(
    spec: &LoadBalancerSpec,
    held: &[IpAddr],
    data_plane: DataPlane,
) -> Published {
    let mode = match data_plane {
        DataPlane::KubeProxy => IpMode::Vip,
        DataPlane::Landfall => IpMode::Proxy,
    };
    landfall_addressing::published(spec, held, mode)
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
