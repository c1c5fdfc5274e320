//! Which version of a pool is used: the newest valid one. Pure.
//!
//! An address pool that breaks or vanishes behind an unreadable file must not move the Services on
//! it, also not over a restart. So the last valid version of every pool is remembered, and used as
//! long as the newest one can't be read or can't be used.

use std::collections::BTreeSet;
use std::sync::Arc;

use landfall_ipam::{Pool, PoolError, PoolName, PoolSet, PoolSpec};
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::PoolRow;

use crate::registry::Pools;

/// The pools of now.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Settled {
    /// What is reported.
    pub(crate) reported: Pools,
    /// The part of it that is valid: to be remembered.
    pub(crate) valid: Pools,
    /// Newest versions that are not used.
    pub(crate) refused: Vec<(Arc<PoolRow>, Reason)>,
    /// Pools that are in no readable file.
    pub(crate) unverified: Vec<String>,
}

/// Decides by what the files say, what was remembered, and whether a pool may stand in a file that
/// can't be read.
pub(crate) fn settle(
    fresh: &Pools,
    remembered: &Pools,
    may_hide: impl Fn(&str) -> bool,
) -> Settled {
    let mut settled = Settled::default();
    let established = established(remembered);
    let mut candidates: Vec<Pool> = Vec::new();
    for (name, row) in fresh {
        match Pool::parse(&PoolSpec::from(&**row)) {
            Ok(pool) => candidates.push(pool),
            Err(errors) => {
                let before = established.get(&PoolName::new(name));
                candidates.extend(before.cloned());
                if before.is_some() {
                    let refused = errors
                        .iter()
                        .map(|error| (row.clone(), refusal(row, error)));
                    settled.refused.extend(refused);
                }
            }
        }
    }
    for name in remembered.keys().filter(|name| !fresh.contains_key(*name)) {
        if may_hide(name)
            && let Some(pool) = established.get(&PoolName::new(name))
        {
            candidates.push(pool.clone());
            settled.unverified.push(name.clone());
        }
    }
    let (good, collisions) = PoolSet::keep_good(candidates, &established);
    let mut replaced = BTreeSet::new();
    for pool in good.iter() {
        let name = pool.name().as_str();
        let newest = fresh.get(name);
        let is_newest = newest.is_some_and(|row| is_pool(row, pool));
        let row = if is_newest {
            newest
        } else {
            remembered.get(name)
        };
        if let Some(row) = row {
            if !is_newest {
                replaced.insert(name.to_owned());
            }
            settled.reported.insert(name.to_owned(), row.clone());
            settled.valid.insert(name.to_owned(), row.clone());
        }
    }
    for error in &collisions {
        if let Some(row) = error.pool().and_then(|pool| fresh.get(pool.as_str()))
            && replaced.contains(&row.name)
        {
            settled.refused.push((row.clone(), refusal(row, error)));
        }
    }
    // What was never valid is validated, and spoken about, where pools are used.
    for (name, row) in fresh {
        settled
            .reported
            .entry(name.clone())
            .or_insert_with(|| row.clone());
    }
    settled
}

fn established(remembered: &Pools) -> PoolSet {
    let pools = remembered.values();
    let pools = pools.filter_map(|row| Pool::parse(&PoolSpec::from(&**row)).ok());
    PoolSet::keep_good(pools.collect(), &PoolSet::default()).0
}

fn is_pool(row: &PoolRow, pool: &Pool) -> bool {
    Pool::parse(&PoolSpec::from(row)).is_ok_and(|parsed| parsed == *pool)
}

fn refusal(row: &PoolRow, error: &PoolError) -> Reason {
    let message = format!(
        "{error}; the last valid version of IPAddressPool {} is used",
        row.name
    );
    let origin = row.source.as_ref().map(|source| source.document.clone());
    Reason::error(Code::InvalidPool, message)
        .remedy(error.remedy())
        .origin(origin)
}

#[cfg(test)]
mod tests;
