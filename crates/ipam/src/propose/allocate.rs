//! New addresses for a Service: which pool, which address, and why none.

use std::net::IpAddr;

use landfall_model::rows::Family;

use super::{Case, Offer};
use crate::allocator::validate_admission;
use crate::family::{Addresses, WantedFamilies, other};
use crate::pool::Pool;
use crate::refusal::Refusal;
use crate::verdict::{SkippedPool, Verdict};

impl Case<'_> {
    /// New addresses from the requested pool, or from the first pool that can serve; with
    /// `both_only` also a Service that merely prefers both families gets both or nothing.
    pub(super) fn allocate(&self, both_only: bool) -> Result<Offer, Refusal> {
        let pools = self.allocator.pools();
        if let Some(index) = self.requested_pool()? {
            if let Some(pool) = pools.at(index) {
                validate_admission(pool, self.request)?;
            }
            let offer = self.best_of(&[index], both_only);
            return offer.ok_or_else(|| self.why_not_from(index));
        }
        let admitted = |tier: &[usize]| -> Vec<usize> {
            tier.iter()
                .copied()
                .filter(|index| {
                    pools
                        .at(*index)
                        .is_some_and(|pool| pool.admits(self.request).is_ok())
                })
                .collect()
        };
        pools
            .tiers()
            .into_iter()
            .find_map(|tier| self.best_of(&admitted(tier), both_only))
            .ok_or_else(|| self.why_from_none())
    }

    /// The best that any of these pools can give; of equals the first.
    fn best_of(&self, pools: &[usize], both_only: bool) -> Option<Offer> {
        let single = |family: Family| {
            pools.iter().find_map(|&pool| {
                let addresses = self.offer(pool, family)?.into();
                Some(Offer { addresses, pool })
            })
        };
        let both = || {
            pools.iter().find_map(|&pool| {
                let v4 = self.offer(pool, Family::V4)?;
                let v6 = self.offer(pool, Family::V6)?;
                Some(Offer {
                    addresses: Addresses::from(v4).with(v6),
                    pool,
                })
            })
        };
        match self.request.families {
            WantedFamilies::Only(family) => single(family),
            WantedFamilies::RequireDual => both(),
            WantedFamilies::PreferDual { .. } if both_only => both(),
            WantedFamilies::PreferDual { first } => both()
                .or_else(|| single(first))
                .or_else(|| single(other(first))),
        }
    }

    /// What the pool can give: an address that the Service has there already or gave up without
    /// being off the record, else another.
    pub(super) fn offer(&self, pool: usize, family: Family) -> Option<IpAddr> {
        let Self {
            allocator, request, ..
        } = self;
        let leaving = allocator.leaving(&request.claimant.uid);
        let leaving = leaving.into_iter().filter(|it| Family::of(*it) == family);
        let own = self.basis.get(family).into_iter();
        let mut own = own.chain(self.held.get(family)).chain(leaving);
        let own = own.find(|address| {
            let lies_in = allocator.pools().locate(*address);
            lies_in.is_some_and(|(of, _)| of == pool)
                && allocator.validate(request, pool, *address).is_ok()
        });
        let state = allocator.state(pool)?;
        let of = allocator.pools().at(pool)?;
        let shareable = |address: &IpAddr| {
            allocator
                .validate_sharing(&request.claimant, *address)
                .is_ok()
        };
        let within = |address: &IpAddr| {
            let claimant = &request.claimant;
            allocator.validate_new(claimant, of, *address).is_ok()
                && allocator.validate_share(claimant, pool, *address).is_ok()
        };
        let shared = || state.shared(family, &request.claimant).filter(shareable);
        own.or_else(|| shared().filter(within))
            .or_else(|| state.free(family, &request.claimant.service).filter(within))
    }

    /// What a pool that admits the Service can't give.
    fn shortage(&self, pool: usize) -> Option<Verdict> {
        let families = match self.request.families {
            WantedFamilies::Only(family) => vec![family],
            WantedFamilies::RequireDual => vec![Family::V4, Family::V6],
            WantedFamilies::PreferDual { first } => vec![first, other(first)],
        };
        let family = families
            .into_iter()
            .find(|family| self.offer(pool, *family).is_none())?;
        Some(self.shortage_of(pool, family))
    }

    /// Why the pool has no address of this family for the Service.
    pub(super) fn shortage_of(&self, pool: usize, family: Family) -> Verdict {
        let namespace = self.request.claimant.service.namespace();
        let of = self.allocator.pools().at(pool);
        if of.is_some_and(Pool::is_disabled) {
            return Verdict::Disabled;
        }
        match self.allocator.state(pool) {
            Some(state) if state.lacks(family) => Verdict::LacksFamily(family),
            Some(state) if state.shares(family).is_used_up(namespace) => {
                Verdict::NamespaceFull(family)
            }
            Some(_) => Verdict::Full(family),
            None => Verdict::LacksFamily(family),
        }
    }

    fn why_not_from(&self, index: usize) -> Refusal {
        let lead = Verdict::Full(self.request.families.lead());
        self.refusal(index, self.shortage(index).unwrap_or(lead))
    }

    /// A verdict on one pool, for a Service that could only be served from there.
    pub(super) fn refusal(&self, index: usize, verdict: Verdict) -> Refusal {
        let pool = self.name(index);
        match verdict {
            Verdict::LacksFamily(family) => Refusal::PoolLacksFamily { pool, family },
            Verdict::NamespaceFull(family) => {
                let namespace = self.request.claimant.service.namespace();
                self.allocator.used_up(index, family, namespace)
            }
            Verdict::Full(family) => Refusal::PoolFull { pool, family },
            Verdict::Disabled => Refusal::PoolDisabled { pool },
            Verdict::NotAutomatic | Verdict::NotForNamespace | Verdict::NotForLabels => {
                Refusal::PoolFull {
                    pool,
                    family: self.request.families.lead(),
                }
            }
        }
    }

    fn why_from_none(&self) -> Refusal {
        let mut skipped = Vec::new();
        for (index, pool) in self.allocator.pools().iter().enumerate() {
            let verdict = if pool.auto_assign() {
                pool.admits(self.request)
                    .err()
                    .or_else(|| self.shortage(index))
            } else {
                Some(Verdict::NotAutomatic)
            };
            skipped.extend(verdict.map(|verdict| SkippedPool {
                pool: pool.name().clone(),
                verdict,
            }));
        }
        let short = |pool: &SkippedPool| {
            matches!(
                pool.verdict,
                Verdict::Full(_) | Verdict::NamespaceFull(_) | Verdict::LacksFamily(_)
            )
        };
        if skipped.iter().any(short) {
            Refusal::PoolsExhausted {
                families: self.request.families,
                skipped,
            }
        } else {
            Refusal::NoPoolForService {
                service: self.request.claimant.service.clone(),
                skipped,
            }
        }
    }
}
