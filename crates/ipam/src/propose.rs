//! The decision: what one Service should hold now.
//!
//! In this order: what it holds is validated, address by address; then the request is checked, from
//! the most particular (these addresses) over the named pool to "any". A request that can't be had
//! leaves the Service with everything it may keep. Where its record does not name yet what it
//! holds, it counts as the holder of what the record names, if any of that may stay.
//!
//! ```text
//!  held ──validate──> kept (may stay) + why (first reason of what may not)
//!                    │
//!       addresses requested? ── yes ──> exactly these, or stay
//!                    │ no
//!       in the right pool?  ─── yes ──> complete the families there, or move to a pool with both
//!                    │ no
//!                    └────────────────> allocate again, or stay
//! ```

mod allocate;

use std::net::IpAddr;

use landfall_model::rows::Family;

use crate::allocator::Allocator;
use crate::family::{Addresses, WantedFamilies, other};
use crate::pool_name::PoolName;
use crate::proposal::{Decision, Proposal, Why};
use crate::refusal::Refusal;
use crate::request::Request;

/// One Service with its request and what it holds.
struct Case<'a> {
    allocator: &'a Allocator,
    request: &'a Request,
    held: Addresses,
    /// What it is to keep, where possible: what it holds, or what its record names instead.
    basis: Addresses,
    /// The part of `basis` that may stay as far as pools and other Services are concerned.
    kept: Addresses,
    /// The pool of `kept`.
    home: Option<usize>,
    /// Why `kept` is less than `basis`; `None` exactly when it is not.
    why: Option<Why>,
}

/// Addresses that can be had, all in one pool.
struct Offer {
    addresses: Addresses,
    pool: usize,
}

impl Allocator {
    /// Decides what a Service should hold now. Changes nothing; `Err` only for a Service that
    /// holds nothing and can't have anything.
    pub fn propose(&self, request: &Request) -> Result<Proposal, Refusal> {
        Case::open(self, request).decide()
    }
}

impl<'a> Case<'a> {
    /// Validates what the Service holds, or else is on record with.
    fn open(allocator: &'a Allocator, request: &'a Request) -> Self {
        let uid = &request.claimant.uid;
        let held = allocator.held_addresses(uid);
        // A claim that was never recorded is given up for what the record names all the time.
        let recorded = allocator.recorded(uid);
        let recorded = recorded.map(|basis| Self::validated(allocator, request, basis));
        recorded
            .filter(|case| !case.kept.is_empty())
            .unwrap_or_else(|| Self::validated(allocator, request, held))
    }

    fn validated(allocator: &'a Allocator, request: &'a Request, basis: Addresses) -> Self {
        let mut case = Self {
            allocator,
            request,
            held: allocator.held_addresses(&request.claimant.uid),
            basis,
            kept: Addresses::NONE,
            home: None,
            why: None,
        };
        let lead = request.families.lead();
        for address in [lead, other(lead)]
            .into_iter()
            .filter_map(|family| basis.get(family))
        {
            match case.may_stay(address) {
                Ok(pool) => {
                    case.kept.insert(address);
                    case.home = case.home.or(pool);
                }
                Err(why) => {
                    case.why.get_or_insert(why);
                }
            }
        }
        case
    }

    /// Whether a held address may stay, and in which pool it lies.
    fn may_stay(&self, address: IpAddr) -> Result<Option<usize>, Why> {
        let Self {
            allocator, request, ..
        } = self;
        if !request.families.includes(Family::of(address)) {
            return Err(Why::FamilyNotWanted { address });
        }
        if allocator.pools().is_empty() {
            // Nothing says that the address should go, except another Service.
            let verdict = allocator.validate_sharing(&request.claimant, address);
            return verdict.map(|()| None).map_err(Why::NotAllowed);
        }
        let Some((pool, _)) = allocator.pools().locate(address) else {
            if allocator.incomplete() {
                let verdict = allocator.validate_sharing(&request.claimant, address);
                return verdict.map(|()| None).map_err(Why::NotAllowed);
            }
            return Err(self.why_in_no_pool(address));
        };
        allocator
            .validate(request, pool, address)
            .map_err(Why::NotAllowed)?;
        match self.home {
            Some(home) if home != pool => Err(Why::PoolsSplit {
                address,
                pool: self.name(pool),
                home: self.name(home),
            }),
            _ => Ok(Some(pool)),
        }
    }

    fn why_in_no_pool(&self, address: IpAddr) -> Why {
        let noted = self
            .allocator
            .held(&self.request.claimant.uid)
            .and_then(|c| c.pool.clone());
        match noted {
            Some(pool) if self.allocator.pools().get(&pool).is_some() => {
                Why::PoolShrunk { address, pool }
            }
            pool => Why::PoolGone { address, pool },
        }
    }

    fn decide(self) -> Result<Proposal, Refusal> {
        if self.allocator.pools().is_empty() {
            return self.stay(Refusal::NoPools);
        }
        if !self.request.addresses.is_empty() {
            let addresses = self.request.addresses;
            return match self.requested_addresses() {
                Ok(offer) => Ok(self.take(&offer, Why::AddressesRequested { addresses })),
                Err(refusal) => self.stay(refusal),
            };
        }
        let requested = match self.requested_pool() {
            Ok(requested) => requested,
            Err(refusal) => return self.stay(refusal),
        };
        if self.home.is_none() && requested.is_none() && !self.kept.is_empty() {
            // Its pool may be one of those that are not known.
            return self.stay(Refusal::PoolsIncomplete);
        }
        match self.home {
            Some(home) if requested.is_none_or(|requested| requested == home) => {
                self.complete(home)
            }
            home => match self.allocate(false) {
                Ok(offer) => {
                    let from = self.name(home.unwrap_or(offer.pool));
                    let to = self.name(offer.pool);
                    Ok(self.take(&offer, Why::PoolRequested { from, to }))
                }
                Err(refusal) => self.stay(refusal),
            },
        }
    }

    // --- The request, from the most particular on ---

    fn requested_pool(&self) -> Result<Option<usize>, Refusal> {
        let Some(name) = &self.request.pool else {
            return Ok(None);
        };
        let pools = self.allocator.pools();
        pools
            .index_of(name)
            .map(Some)
            .ok_or_else(|| Refusal::UnknownPool {
                pool: name.clone(),
                known: pools.names(),
            })
    }

    fn requested_addresses(&self) -> Result<Offer, Refusal> {
        let Self {
            allocator, request, ..
        } = self;
        let addresses = request.addresses;
        if !request.families.equals_families_of(addresses) {
            return Err(Refusal::FamiliesMismatch {
                addresses,
                families: request.families,
            });
        }
        let requested = self.requested_pool()?;
        let mut found: Option<(usize, IpAddr)> = None;
        for address in addresses.iter() {
            let (pool, _) =
                allocator
                    .pools()
                    .locate(address)
                    .ok_or_else(|| Refusal::AddressNotInPool {
                        address,
                        known: allocator.pools().names(),
                    })?;
            if let Some(requested) = requested
                && requested != pool
            {
                return Err(Refusal::AddressInOtherPool {
                    address,
                    pool: self.name(pool),
                    requested: self.name(requested),
                });
            }
            match found {
                Some((first_pool, first)) if first_pool != pool => {
                    return Err(Refusal::AddressesInTwoPools {
                        first,
                        first_pool: self.name(first_pool),
                        second: address,
                        second_pool: self.name(pool),
                    });
                }
                _ => found = Some((pool, address)),
            }
            allocator.validate(request, pool, address)?;
        }
        // Families never ask for nothing, so an address was found; were none, no pool is right.
        let (pool, _) = found.ok_or(Refusal::FamiliesMismatch {
            addresses,
            families: request.families,
        })?;
        Ok(Offer { addresses, pool })
    }

    /// Keeps what is there and looks for the family that is missing.
    fn complete(&self, home: usize) -> Result<Proposal, Refusal> {
        let Self {
            request,
            kept,
            basis,
            ..
        } = self;
        let as_it_is = Offer {
            addresses: *kept,
            pool: home,
        };
        let why = |missing| Why::NeedsBothFamilies {
            pool: self.name(home),
            missing,
        };
        let Some(missing) = request.families.missing(*kept) else {
            return Ok(self.take(&as_it_is, why(request.families.lead())));
        };
        if let Some(address) = self.offer(home, missing) {
            let both = Offer {
                addresses: kept.with(address),
                pool: home,
            };
            return Ok(self.take(&both, why(missing)));
        }
        // A Service that only prefers both stays where it is, unless it had both and lost one.
        let required = request.families == WantedFamilies::RequireDual;
        if required || basis.len() > kept.len() {
            match self.allocate(true) {
                Ok(offer) => return Ok(self.take(&offer, why(missing))),
                Err(refusal) if required => return self.stay(refusal),
                Err(_) => {}
            }
        }
        Ok(self.take(&as_it_is, why(missing)))
    }

    // --- The answer ---

    /// The Service shall hold the offer. `otherwise` is why it leaves what it could keep.
    fn take(&self, offer: &Offer, otherwise: Why) -> Proposal {
        let Self { request, held, .. } = self;
        let addresses = offer.addresses;
        let why = || {
            let back = (addresses == self.kept && self.basis != *held)
                .then_some(Why::StillRecorded { addresses });
            self.why.clone().or(back).unwrap_or(otherwise)
        };
        let unmet = request.families.missing(addresses);
        let unmet =
            unmet.map(|missing| self.refusal(offer.pool, self.shortage_of(offer.pool, missing)));
        Proposal {
            addresses,
            pool: Some(self.name(offer.pool)),
            decision: decision(*held, addresses, why),
            unmet,
        }
    }

    /// The request can't be had: the Service keeps what it may keep.
    fn stay(&self, refusal: Refusal) -> Result<Proposal, Refusal> {
        let (addresses, held) = (self.kept, self.held);
        if held.is_empty() && addresses.is_empty() {
            return Err(refusal);
        }
        // Without a reason it keeps all of what it is on record with.
        let why = || {
            let why = self.why.clone();
            why.unwrap_or(Why::StillRecorded { addresses })
        };
        let decision = decision(held, addresses, why);
        let noted = || {
            self.allocator
                .held(&self.request.claimant.uid)
                .and_then(|c| c.pool.clone())
        };
        let pool = match self.home {
            Some(home) => Some(self.name(home)),
            None if addresses.is_empty() => None,
            None => noted(),
        };
        Ok(Proposal {
            addresses,
            pool,
            decision,
            unmet: Some(refusal),
        })
    }

    fn name(&self, pool: usize) -> PoolName {
        self.allocator
            .pools()
            .at(pool)
            .map_or_else(|| PoolName::new(""), |pool| pool.name().clone())
    }
}

/// Compares what a Service shall hold with what it holds.
fn decision(held: Addresses, addresses: Addresses, why: impl FnOnce() -> Why) -> Decision {
    if addresses == held {
        Decision::Keep
    } else if held.is_empty() {
        Decision::Claim
    } else if addresses.is_empty() {
        Decision::GiveUp {
            from: held,
            why: why(),
        }
    } else if addresses.contains_all(&held) {
        Decision::Gain {
            gained: addresses.without(&held),
        }
    } else if held.contains_all(&addresses) {
        Decision::Drop {
            dropped: held.without(&addresses),
            why: why(),
        }
    } else {
        Decision::Move {
            from: held,
            why: why(),
        }
    }
}
