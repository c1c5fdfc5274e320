//! Whether a Service may hold an address: what its pool, the share of its namespace and the other
//! holders say.

use std::net::IpAddr;

use landfall_model::rows::Family;

use super::Allocator;
use crate::pool::Pool;
use crate::pool_name::PoolName;
use crate::refusal::Refusal;
use crate::request::{Claimant, Request};
use crate::shares::Shares;
use crate::verdict::Verdict;

impl Allocator {
    /// Whether the Service may hold this address of this pool.
    pub(crate) fn validate(
        &self,
        request: &Request,
        pool: usize,
        address: IpAddr,
    ) -> Result<(), Refusal> {
        if let Some(pool) = self.pools.at(pool) {
            validate_admission(pool, request)?;
            if pool.avoids(address) {
                return Err(Refusal::AddressAvoided {
                    address,
                    pool: pool.name().clone(),
                });
            }
            self.validate_new(&request.claimant, pool, address)?;
        }
        self.validate_sharing(&request.claimant, address)?;
        self.validate_share(&request.claimant, pool, address)
    }

    /// Returns whether the pool gives the Service an address that is not its own.
    pub(crate) fn validate_new(
        &self,
        claimant: &Claimant,
        pool: &Pool,
        address: IpAddr,
    ) -> Result<(), Refusal> {
        if self.is_own(&claimant.uid, address) {
            return Ok(());
        }
        let name = || pool.name().clone();
        if pool.is_disabled() {
            return Err(Refusal::PoolDisabled { pool: name() });
        }
        if self.cools(address, &claimant.uid) {
            return Err(Refusal::AddressCooling {
                address,
                pool: name(),
            });
        }
        match pool.reservation_of(address) {
            Some(reservation) if !reservation.is_for(&claimant.service) => {
                Err(Refusal::AddressReserved {
                    address,
                    pool: name(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the namespace of the Service may hold this address beside those that it
    /// holds. One that replaces another one is not counted.
    pub(crate) fn validate_share(
        &self,
        claimant: &Claimant,
        pool: usize,
        address: IpAddr,
    ) -> Result<(), Refusal> {
        let (namespace, family) = (claimant.service.namespace(), Family::of(address));
        let Some(shares) = self.state(pool).map(|state| state.shares(family)) else {
            return Ok(());
        };
        let occupancy = self.occupied.get(&address);
        let holds = occupancy.is_some_and(|it| it.has_of(namespace));
        let gives_up = |held: IpAddr| {
            let occupancy = self.occupied.get(&held);
            let in_pool = self.pools.locate(held).is_some_and(|(of, _)| of == pool);
            in_pool && !occupancy.is_some_and(|it| it.has_beside(claimant))
        };
        let held = self.held_addresses(&claimant.uid).get(family);
        if !shares.is_used_up(namespace) || holds || held.is_some_and(gives_up) {
            return Ok(());
        }
        Err(self.used_up(pool, family, namespace))
    }

    /// Returns the refusal for a namespace that holds as many addresses as it may.
    pub(crate) fn used_up(&self, pool: usize, family: Family, namespace: &str) -> Refusal {
        let shares = self.state(pool).map(|state| state.shares(family));
        let name = self.pools.at(pool).map(|pool| pool.name().clone());
        Refusal::NamespaceFull {
            pool: name.unwrap_or_else(|| PoolName::new("")),
            family,
            namespace: namespace.to_owned(),
            held: shares.map_or(0, |it| it.held(namespace)),
            most: shares.and_then(Shares::most).unwrap_or(u128::MAX),
        }
    }

    /// Whether the Service may hold this address with all others that do.
    pub(crate) fn validate_sharing(
        &self,
        claimant: &Claimant,
        address: IpAddr,
    ) -> Result<(), Refusal> {
        let across = self
            .pools
            .pool_of(address)
            .is_some_and(Pool::shares_across_namespaces);
        self.validate_holders(claimant, address, across)
    }

    /// As [`Self::validate_sharing`]; `across`: with Services of other namespaces, too.
    pub(super) fn validate_holders(
        &self,
        claimant: &Claimant,
        address: IpAddr,
        across: bool,
    ) -> Result<(), Refusal> {
        let occupancy = self.occupied.get(&address);
        occupancy.map_or(Ok(()), |it| Ok(it.validate(address, claimant, across)?))
    }
}

/// Whether the pool serves the Service.
pub(crate) fn validate_admission(pool: &Pool, request: &Request) -> Result<(), Refusal> {
    pool.admits(request).map_err(|verdict| match verdict {
        Verdict::NotForLabels => Refusal::PoolNotForLabels {
            pool: pool.name().clone(),
            service: request.claimant.service.clone(),
        },
        Verdict::NotForNamespace
        | Verdict::NotAutomatic
        | Verdict::Disabled
        | Verdict::LacksFamily(_)
        | Verdict::NamespaceFull(_)
        | Verdict::Full(_) => Refusal::PoolNotForNamespace {
            pool: pool.name().clone(),
            namespace: request.claimant.service.namespace().to_owned(),
        },
    })
}
