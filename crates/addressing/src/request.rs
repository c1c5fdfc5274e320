//! Requests to the allocator, from Intents and from claims on record.

use std::net::IpAddr;
use std::sync::Arc;

use landfall_ipam::{
    Addresses, BackendKey, Claimant, PoolName, Refusal, Request, Restore, SharingKey, Terms,
    WantedFamilies,
};
use landfall_model::intent::{Claim, Intent, LoadBalancerSpec};

/// Makes the request of a Service, for these of the addresses that it asks for.
pub(crate) fn request(
    want: &Intent,
    spec: &LoadBalancerSpec,
    asked: &[IpAddr],
) -> Result<Request, Refusal> {
    let address = &spec.address;
    let mut requested = Addresses::NONE;
    for asked in asked {
        if requested.insert(*asked).is_some() {
            return Err(Refusal::TooManyAddresses {
                addresses: address.requested.clone(),
            });
        }
    }
    Ok(Request {
        claimant: Arc::new(Claimant {
            uid: want.uid.clone(),
            service: want.service.clone(),
            terms: Terms {
                key: address.sharing_key.as_deref().and_then(SharingKey::new),
                backend: BackendKey::from_text(&address.backend_key),
                ports: spec.listeners.iter().map(|listener| listener.key).collect(),
            },
        }),
        namespace_labels: address.namespace_labels.clone(),
        labels: address.labels.clone(),
        families: WantedFamilies::of_service(&address.families, address.policy)?,
        addresses: requested,
        pool: address.pool.as_deref().map(PoolName::new),
    })
}

/// Makes the request to restore a claim on record.
pub(crate) fn restore(claim: &Claim) -> Restore {
    let mut requested = Addresses::NONE;
    for address in &claim.requested {
        requested.insert(*address);
    }
    Restore {
        claimant: Arc::new(Claimant {
            uid: claim.uid.clone(),
            service: claim.service.clone(),
            terms: Terms {
                key: claim.sharing_key.as_deref().and_then(SharingKey::new),
                backend: BackendKey::from_text(&claim.backend_key),
                ports: claim.ports.iter().copied().collect(),
            },
        }),
        addresses: claim.addresses.clone(),
        pool: None,
        requested,
    }
}
