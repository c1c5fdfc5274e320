//! Services with several addresses of a family: the allocator holds one of each for a claimant, so
//! that such a Service has several, with an identity for each part of its claim. Pure.

use std::net::IpAddr;

use landfall_ipam::Restore;
use landfall_model::Uid;
use landfall_model::intent::{Claim, MOST_ADDRESSES};

use crate::request::restore;

/// So many parts a claim has at most.
pub(crate) const MOST: usize = MOST_ADDRESSES as usize;

/// Returns the identities of all parts that a claim may have, that of the Service first.
pub(crate) fn all(service: &Uid) -> impl Iterator<Item = Uid> + use<'_> {
    (0..MOST).map(|number| part(service, number))
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

/// Splits a claim on record into parts with at most one address of each family. What is beyond the
/// most that a Service can have is left out.
pub(crate) fn split(claim: &Claim) -> Vec<Restore> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for address in claim.addresses.iter().map(IpAddr::to_canonical) {
        let family = if address.is_ipv4() { &mut v4 } else { &mut v6 };
        if family.len() < MOST && !family.contains(&address) {
            family.push(address);
        }
    }
    // Also a claim of nothing replaces the one before.
    let count = v4.len().max(v6.len()).max(1);
    let parts = (0..count).map(|number| {
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
