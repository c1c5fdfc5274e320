//! Services with several addresses of a family: the allocator holds one of each for a claimant, so
//! that such a Service has several, with an identity for each part of its claim. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use landfall_ipam::Restore;
use landfall_model::Uid;
use landfall_model::intent::Claim;
use landfall_model::rows::MOST_ADDRESSES;

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

/// Distributes the addresses that a Service asks for to its parts: one that holds such an address
/// goes on asking for it.
pub(crate) fn distribute(
    requested: &[IpAddr],
    parts: impl Iterator<Item = (usize, Vec<IpAddr>)>,
) -> BTreeMap<usize, Vec<IpAddr>> {
    let mut asked: Vec<(usize, Vec<IpAddr>)> = parts
        .map(|(number, mut held)| {
            held.retain(|address| requested.contains(address));
            (number, held)
        })
        .collect();
    for address in requested {
        if asked.iter().any(|(_, its)| its.contains(address)) {
            continue;
        }
        let lacks = |its: &[IpAddr]| its.iter().all(|it| it.is_ipv4() != address.is_ipv4());
        // What has no place is too much for any.
        let place = asked.iter().position(|(_, its)| lacks(its));
        if let Some((_, its)) = asked.get_mut(place.unwrap_or(0)) {
            its.push(*address);
        }
    }
    asked.into_iter().collect()
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
    let has_what_it_asks_for = claim
        .requested
        .iter()
        .all(|it| claim.addresses.contains(it));
    let parts = (0..count).map(|number| {
        let pair = [v4.get(number), v6.get(number)];
        let addresses: Vec<IpAddr> = pair.into_iter().flatten().copied().collect();
        let of_it = |address: &&IpAddr| !has_what_it_asks_for || addresses.contains(address);
        let claim = Claim {
            uid: part(&claim.uid, number),
            requested: claim.requested.iter().filter(of_it).copied().collect(),
            addresses,
            ..claim.clone()
        };
        restore(&claim)
    });
    parts.collect()
}
