//! Services with several addresses of a family: the allocator holds one of each for a claimant, so
//! that such a Service has several, with an identity for each part of its claim. Pure.

use std::net::IpAddr;

use landfall_ipam::Restore;
use landfall_model::Uid;
use landfall_model::intent::{Claim, MOST_ADDRESSES};

use crate::request::restore;

/// Returns the identities of all parts that a claim may have, that of the Service first.
pub(crate) fn all(service: &Uid) -> impl Iterator<Item = Uid> + use<'_> {
    (0..usize::from(MOST_ADDRESSES)).map(|number| part(service, number))
}

/// Returns the identity of one part.
pub(crate) fn part(service: &Uid, number: usize) -> Uid {
    match number {
        0 => service.clone(),
        further => Uid::new(&format!("{} {further}", service.as_str())),
    }
}

/// Returns the Service of a part. Identities of Services have no spaces.
pub(crate) fn service_of(part: &Uid) -> Uid {
    let service = part.as_str().split(' ').next();
    Uid::new(service.unwrap_or_default())
}

/// Splits a claim on record into parts with at most one address of each family.
pub(crate) fn split(claim: &Claim) -> Vec<Restore> {
    let addresses = claim.addresses.iter().map(IpAddr::to_canonical);
    let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = addresses.partition(IpAddr::is_ipv4);
    let parts = (0..v4.len().max(v6.len())).map(|number| {
        let pair = [v4.get(number), v6.get(number)];
        let claim = Claim {
            uid: part(&claim.uid, number),
            addresses: pair.into_iter().flatten().copied().collect(),
            ..claim.clone()
        };
        restore(&claim)
    });
    parts.collect()
}
