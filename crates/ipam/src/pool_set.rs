//! All pools together: no address in two of them, and a fixed order to try them in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use landfall_model::rows::PoolRow;
use landfall_model::wire::accepted_pool;

use crate::entry::Entry;
use crate::pool::{Pool, PoolSpec};
use crate::pool_error::PoolError;
use crate::pool_name::PoolName;

/// Pools that do not collide. The order in which they were given leaves no trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSet {
    /// Sorted by name.
    pools: Vec<Pool>,
    /// Pools with `serviceAllocation` that assign by themselves, in order of priority and name.
    pinned: Vec<usize>,
    /// Pools without `serviceAllocation` that assign by themselves, in order of name.
    plain: Vec<usize>,
    /// By first address of each entry.
    spans: BTreeMap<IpAddr, Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    last: IpAddr,
    pool: usize,
    entry: usize,
}

impl PoolSet {
    /// Joins pools, or returns every collision.
    pub fn new(mut pools: Vec<Pool>) -> Result<Self, Vec<PoolError>> {
        pools.sort_by(|a, b| a.name().cmp(b.name()));
        let mut errors: Vec<PoolError> = pools
            .windows(2)
            .filter_map(|pair| match pair {
                [a, b] if a.name() == b.name() => Some(PoolError::DuplicatePool {
                    pool: a.name().clone(),
                }),
                _ => None,
            })
            .collect();
        errors.extend(PoolError::overlaps(pools.iter().flat_map(|pool| {
            pool.entries().iter().map(|entry| (pool.name(), entry))
        })));
        if errors.is_empty() {
            Ok(Self::of_sorted(pools))
        } else {
            Err(errors)
        }
    }

    /// Joins as many pools as fit together, so that one bad pool does not freeze the others.
    ///
    /// Pools that stay as they are in `established` come first, then those that changed, then new
    /// ones, each by name. A changed pool that collides stays as it was, if that still fits.
    pub fn keep_good(candidates: Vec<Pool>, established: &Self) -> (Self, Vec<PoolError>) {
        Self::keep_good_by_age(candidates, |_| None, established)
    }

    /// Joins as many pools of rows as fit together. A pool that can't be read stays as it is in
    /// `established`, or as it was recorded while it was valid; of pools that exclude each other,
    /// the older one comes first.
    pub fn of_rows(rows: &[Arc<PoolRow>], established: &Self) -> (Self, Vec<PoolError>) {
        let before;
        let established = if established.is_empty() {
            before = Self::before(rows);
            &before
        } else {
            established
        };
        let mut errors = Vec::new();
        let mut candidates = Vec::new();
        let mut unread = Vec::new();
        for row in rows {
            match Pool::parse(&PoolSpec::from(&**row)) {
                Ok(pool) => candidates.push(pool),
                Err(found) => {
                    errors.extend(found);
                    let known = established.get(&PoolName::new(&row.name)).cloned();
                    let resource = row.resource.as_ref();
                    unread.extend(if resource.is_some_and(|it| it.is_on_record()) {
                        accepted(row).or(known)
                    } else {
                        known.or_else(|| accepted(row))
                    });
                }
            }
        }
        let is_read = |name: &PoolName| candidates.iter().any(|pool| pool.name() == name);
        unread.retain(|pool| !is_read(pool.name()));
        candidates.extend(unread);
        let created = |name: &PoolName| created(rows, name);
        let (set, collisions) = Self::keep_good_by_age(candidates, created, established);
        errors.extend(collisions);
        (set, errors)
    }

    /// Returns the pools as they were before this process began, where it is recorded that one is
    /// not in force as it is written now; none otherwise.
    fn before(rows: &[Arc<PoolRow>]) -> Self {
        let recorded = |row: &Arc<PoolRow>| row.resource.as_ref()?.accepted.clone();
        if rows.iter().all(|row| recorded(row).is_none()) {
            return Self::default();
        }
        let pools = rows.iter().filter_map(|row| {
            let written = || Pool::parse(&PoolSpec::from(&**row)).ok();
            accepted(row).or_else(written)
        });
        let created = |name: &PoolName| created(rows, name);
        Self::keep_good_by_age(pools.collect(), created, &Self::default()).0
    }

    fn keep_good_by_age(
        candidates: Vec<Pool>,
        created: impl Fn(&PoolName) -> Option<Timestamp>,
        established: &Self,
    ) -> (Self, Vec<PoolError>) {
        let mut ranked: Vec<(u8, Pool, Option<&Pool>)> = candidates
            .into_iter()
            .map(|pool| {
                let before = established.get(pool.name());
                let rank = match before {
                    Some(before) if *before == pool => 0,
                    Some(_) => 1,
                    None => 2,
                };
                (rank, pool, before)
            })
            .collect();
        ranked.sort_by_cached_key(|(rank, pool, _)| {
            // Two pools of one name are distinguished by their content, never by order of arrival.
            // Those of the configuration have no age, and come first.
            let name = pool.name().clone();
            (*rank, created(&name), name, format!("{pool:?}"))
        });
        let mut errors = Vec::new();
        let mut good = Good::default();
        for (_, pool, before) in ranked {
            if let Err(error) = good.admit(&pool) {
                errors.push(error);
                if let Some(before) = before {
                    // The collision of the changed pool is reported already.
                    let _ = good.admit(before);
                }
            }
        }
        good.pools.sort_by(|a, b| a.name().cmp(b.name()));
        (Self::of_sorted(good.pools), errors)
    }

    fn of_sorted(pools: Vec<Pool>) -> Self {
        let automatic = || {
            pools
                .iter()
                .enumerate()
                .filter(|(_, pool)| pool.auto_assign())
                .map(|(i, _)| i)
        };
        let rank = |index: &usize| pools.get(*index).and_then(Pool::rank);
        let mut pinned: Vec<usize> = automatic().filter(|index| rank(index).is_some()).collect();
        // A stable sort: pools of one priority stay in the order of their names.
        pinned.sort_by_key(rank);
        let plain = automatic().filter(|index| rank(index).is_none()).collect();
        let spans = pools
            .iter()
            .enumerate()
            .flat_map(|(index, pool)| {
                pool.entries()
                    .iter()
                    .enumerate()
                    .map(move |(position, entry)| {
                        let range = entry.range();
                        let span = Span {
                            last: range.last(),
                            pool: index,
                            entry: position,
                        };
                        (range.first(), span)
                    })
            })
            .collect();
        Self {
            pools,
            pinned,
            plain,
            spans,
        }
    }

    /// Whether there is no pool at all.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// The pools, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Pool> {
        self.pools.iter()
    }

    /// The pool of this name.
    pub fn get(&self, name: &PoolName) -> Option<&Pool> {
        self.index_of(name).and_then(|index| self.pools.get(index))
    }

    /// The pool in which an address lies, whether or not that pool gives it out.
    pub fn pool_of(&self, address: IpAddr) -> Option<&Pool> {
        self.locate(address)
            .and_then(|(pool, _)| self.pools.get(pool))
    }

    pub(crate) fn at(&self, index: usize) -> Option<&Pool> {
        self.pools.get(index)
    }

    pub(crate) fn index_of(&self, name: &PoolName) -> Option<usize> {
        self.pools
            .binary_search_by(|pool| pool.name().cmp(name))
            .ok()
    }

    /// Numbers of the pool and of its entry in which an address lies.
    pub(crate) fn locate(&self, address: IpAddr) -> Option<(usize, usize)> {
        let (_, span) = self.spans.range(..=address).next_back()?;
        (address <= span.last).then_some((span.pool, span.entry))
    }

    /// Returns the pools that are assigned from without being named, in the order in which they
    /// are tried.
    pub fn by_priority(&self) -> impl Iterator<Item = &Pool> {
        let tiers = self.tiers().into_iter().flatten();
        tiers.filter_map(|index| self.at(*index))
    }

    /// The pools to try for a Service that names none, tier by tier.
    pub(crate) fn tiers(&self) -> [&[usize]; 2] {
        [&self.pinned, &self.plain]
    }

    pub(crate) fn names(&self) -> Vec<PoolName> {
        self.pools.iter().map(|pool| pool.name().clone()).collect()
    }
}

/// Returns a pool as it was recorded while it was valid.
fn accepted(row: &PoolRow) -> Option<Pool> {
    let row = accepted_pool(row.resource.as_ref()?)?;
    Pool::parse(&PoolSpec::from(&row)).ok()
}

/// Returns when a pool was made that is an object.
fn created(rows: &[Arc<PoolRow>], name: &PoolName) -> Option<Timestamp> {
    let row = rows.iter().find(|row| row.name == name.as_str())?;
    row.resource.as_ref()?.created
}

/// Pools that fit together so far.
#[derive(Default)]
struct Good {
    pools: Vec<Pool>,
    names: BTreeSet<PoolName>,
    entries: BTreeMap<IpAddr, (PoolName, Entry)>,
}

impl Good {
    fn admit(&mut self, pool: &Pool) -> Result<(), PoolError> {
        if self.names.contains(pool.name()) {
            return Err(PoolError::DuplicatePool {
                pool: pool.name().clone(),
            });
        }
        for entry in pool.entries() {
            // Those admitted do not overlap each other, so only the last one that begins before
            // this entry ends can reach into it.
            let rival = self.entries.range(..=entry.range().last()).next_back();
            if let Some((_, (other_pool, other))) = rival
                && other.range().last() >= entry.range().first()
            {
                return Err(PoolError::overlap(pool.name(), entry, other_pool, other));
            }
        }
        self.names.insert(pool.name().clone());
        self.entries.extend(
            pool.entries()
                .iter()
                .map(|entry| (entry.range().first(), (pool.name().clone(), entry.clone()))),
        );
        self.pools.push(pool.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
