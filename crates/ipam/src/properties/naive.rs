//! The naive model: a flat list of claims, and scans.

use std::collections::BTreeMap;
use std::net::IpAddr;

use landfall_model::rows::Family;

use crate::{Addresses, BackendKey, Pool, Request, Terms, WantedFamilies};

#[derive(Clone, Debug, Default)]
pub(super) struct Naive {
    pub(super) pools: Vec<Pool>,
    /// By name of the Service.
    pub(super) claims: BTreeMap<String, (Terms, Addresses)>,
}

fn may_share(a: &Terms, b: &Terms) -> bool {
    let cluster_or_selector =
        a.backend == BackendKey::Cluster || a.backend != BackendKey::Local("".into());
    a.key.is_some()
        && a.key == b.key
        && a.backend == b.backend
        && cluster_or_selector
        && a.ports.is_disjoint(&b.ports)
}

impl Naive {
    pub(super) fn free_or_shareable(&self, service: &str, terms: &Terms, address: IpAddr) -> bool {
        self.claims
            .iter()
            .filter(|(other, (_, held))| *other != service && held.contains(address))
            .all(|(_, (others, _))| may_share(terms, others))
    }

    fn is_held(&self, address: IpAddr) -> bool {
        self.claims.values().any(|(_, held)| held.contains(address))
    }

    pub(super) fn pool_of(&self, address: IpAddr) -> Option<&Pool> {
        self.pools.iter().find(|pool| {
            pool.entries()
                .iter()
                .any(|entry| entry.range().contains(address))
        })
    }

    /// The first addresses of a pool in listed order: more than all Services together can hold.
    pub(super) fn scan(pool: &Pool, family: Family) -> Vec<IpAddr> {
        let mut all = Vec::new();
        for entry in pool
            .entries()
            .iter()
            .filter(|entry| entry.range().family() == family)
        {
            let mut address = entry.range().first();
            for _ in 0..20 {
                if !entry.range().contains(address) {
                    break;
                }
                if !pool.avoids(address) {
                    all.push(address);
                }
                address = match address {
                    IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() + 1).into()),
                    IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() + 1).into()),
                };
            }
        }
        all
    }

    fn offer(&self, pool: &Pool, family: Family, request: &Request) -> Option<IpAddr> {
        let name = request.claimant.service.to_string();
        let terms = &request.claimant.terms;
        let all = Self::scan(pool, family);
        let shareable = |address: &&IpAddr| {
            self.is_held(**address) && self.free_or_shareable(&name, terms, **address)
        };
        let shared = all.iter().filter(shareable).min();
        shared
            .or_else(|| all.iter().find(|address| !self.is_held(**address)))
            .copied()
    }

    /// What a Service that holds nothing and asks for no address should get.
    pub(super) fn first_claim(&self, request: &Request) -> Option<Addresses> {
        let usable = |pool: &&Pool| pool.admits(request).is_ok();
        let mut tiers: Vec<Vec<&Pool>> = vec![vec![], vec![]];
        if let Some(wanted) = &request.pool {
            tiers[0] = self
                .pools
                .iter()
                .filter(|pool| pool.name() == wanted)
                .filter(usable)
                .collect();
        } else {
            for pool in self
                .pools
                .iter()
                .filter(|pool| pool.auto_assign())
                .filter(usable)
            {
                tiers[usize::from(pool.allocation().is_none())].push(pool);
            }
            tiers[0].sort_by_key(|pool| {
                let priority = pool.allocation().map_or(0, crate::Allocation::priority);
                (if priority == 0 { i64::MAX } else { priority }, pool.name())
            });
            tiers[1].sort_by_key(|pool| pool.name());
        }
        let one = |pool: &Pool, family| self.offer(pool, family, request).map(Addresses::from);
        let two = |pool: &Pool| {
            let v6 = self.offer(pool, Family::V6, request)?;
            one(pool, Family::V4).map(|v4| v4.with(v6))
        };
        tiers.iter().find_map(|tier| match request.families {
            WantedFamilies::Only(family) => tier.iter().find_map(|pool| one(pool, family)),
            WantedFamilies::RequireDual => tier.iter().find_map(|pool| two(pool)),
            WantedFamilies::PreferDual { first } => {
                let second = if first == Family::V4 {
                    Family::V6
                } else {
                    Family::V4
                };
                tier.iter()
                    .find_map(|pool| two(pool))
                    .or_else(|| tier.iter().find_map(|pool| one(pool, first)))
                    .or_else(|| tier.iter().find_map(|pool| one(pool, second)))
            }
        })
    }

    /// Whether a held address may stay, apart from the address of the other family.
    pub(super) fn may_stay(&self, request: &Request, address: IpAddr) -> bool {
        let name = request.claimant.service.to_string();
        let in_order = self
            .pool_of(address)
            .is_some_and(|pool| pool.admits(request).is_ok() && !pool.avoids(address));
        (in_order || self.pools.is_empty())
            && request.families.includes(Family::of(address))
            && self.free_or_shareable(&name, &request.claimant.terms, address)
    }
}
