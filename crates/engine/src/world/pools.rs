//! Address pools: from all sources, and which of them are in force.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use landfall_model::reason::{Code, Reason};
use landfall_model::rows::{PoolOrigin, PoolRow};

/// The pools that sources have told, by where they come from and by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Pools {
    told: BTreeMap<(PoolOrigin, String), Arc<PoolRow>>,
    /// Parts of sources in which pools may stand that can't be read.
    doubtful: BTreeSet<Arc<str>>,
    /// Those in force, by name.
    in_force: Vec<Arc<PoolRow>>,
    /// Whether the fallback has been given out of.
    fell_back: bool,
}

// === impl Pools ===

impl Pools {
    /// Takes a pool in; says whether that is news.
    pub(super) fn insert(&mut self, row: &Arc<PoolRow>) -> bool {
        let key = (row.origin, row.name.clone());
        let old = self.told.insert(key, row.clone());
        old.as_ref() != Some(row)
    }

    /// Takes a pool of a source back; says whether that is news.
    pub(super) fn remove(&mut self, name: String) -> bool {
        self.told.remove(&(PoolOrigin::Source, name)).is_some()
    }

    /// Notes whether a part of a source can't be read; says whether that is news.
    pub(super) fn doubt(&mut self, part: Arc<str>, in_doubt: bool) -> bool {
        let before = self.in_doubt();
        if in_doubt {
            self.doubtful.insert(part);
        } else {
            self.doubtful.remove(&part);
        }
        before != self.in_doubt()
    }

    /// Whether pools may be missing.
    pub(super) fn in_doubt(&self) -> bool {
        !self.doubtful.is_empty()
    }

    /// The pools in force, by name.
    pub(super) fn in_force(&self) -> &[Arc<PoolRow>] {
        &self.in_force
    }

    /// Decides which pools are in force; `home` is the instance of those that name none. Returns what
    /// is wrong with the others.
    ///
    /// Of two with one name the configured one counts. The fallback serves only where no other pool
    /// gives its addresses to everybody, and never while pools may be missing: their Services would
    /// move there. Once another pool comes, the fallback keeps those that it has and takes no more.
    pub(super) fn settle(&mut self, home: Option<&str>) -> Vec<Reason> {
        let mut problems = Vec::new();
        let mut by_name: BTreeMap<&str, Arc<PoolRow>> = BTreeMap::new();
        let real = self
            .told
            .values()
            .filter(|row| row.origin != PoolOrigin::Fallback);
        for row in real {
            if by_name.contains_key(row.name.as_str()) {
                problems.push(namesake(row));
            } else {
                by_name.insert(&row.name, row.clone());
            }
        }
        let serves_everybody = |row: &Arc<PoolRow>| {
            let instance = row.instance.as_deref();
            row.auto_assign && (instance.is_none() || instance == home)
        };
        let served = by_name.values().any(serves_everybody);
        let fallback = self
            .told
            .values()
            .find(|row| row.origin == PoolOrigin::Fallback);
        if let Some(fallback) = fallback.filter(|row| !by_name.contains_key(row.name.as_str())) {
            if !served && (self.fell_back || self.doubtful.is_empty()) {
                self.fell_back = true;
                by_name.insert(&fallback.name, fallback.clone());
            } else if self.fell_back {
                let closed = PoolRow {
                    auto_assign: false,
                    ..PoolRow::clone(fallback)
                };
                by_name.insert(&fallback.name, Arc::new(closed));
            }
        }
        self.in_force = by_name.into_values().collect();
        problems
    }
}

fn namesake(row: &PoolRow) -> Reason {
    let origin = row.source.as_ref().map(|it| it.origin_of("metadata.name"));
    let name = &row.name;
    Reason::error(
        Code::InvalidPool,
        format!("the configuration has a pool {name}, too, which counts"),
    )
    .at("metadata.name")
    .value(name)
    .remedy("rename one of the two")
    .origin(origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, origin: PoolOrigin, instance: Option<&str>) -> Arc<PoolRow> {
        Arc::new(PoolRow {
            name: name.to_owned(),
            instance: instance.map(str::to_owned),
            auto_assign: true,
            origin,
            ..PoolRow::default()
        })
    }

    fn fallback() -> Arc<PoolRow> {
        pool("default", PoolOrigin::Fallback, None)
    }

    /// Names of pools in force; those that give nothing out by themselves in brackets.
    fn settled(pools: &mut Pools) -> Vec<String> {
        pools.settle(Some("edge"));
        let rows = pools.in_force().iter();
        rows.map(|row| {
            if row.auto_assign {
                row.name.clone()
            } else {
                format!("({})", row.name)
            }
        })
        .collect()
    }

    #[test]
    fn without_any_other_pool_the_fallback_serves() {
        let mut pools = Pools::default();
        pools.insert(&fallback());
        assert_eq!(settled(&mut pools), ["default"]);
        let elsewhere = pool("far", PoolOrigin::Configured, Some("inner"));
        pools.insert(&elsewhere);
        assert_eq!(settled(&mut pools), ["default", "far"]);
    }

    #[test]
    fn a_pool_of_the_home_instance_makes_the_fallback_needless() {
        for instance in [None, Some("edge")] {
            let mut pools = Pools::default();
            pools.insert(&fallback());
            pools.insert(&pool("public", PoolOrigin::Configured, instance));
            assert_eq!(settled(&mut pools), ["public"]);
        }
    }

    #[test]
    fn the_fallback_never_serves_while_pools_may_be_missing() {
        let mut pools = Pools::default();
        pools.insert(&fallback());
        assert!(pools.doubt("pools.yaml".into(), true));
        assert!(!pools.doubt("more.yaml".into(), true), "no news");
        assert_eq!(settled(&mut pools), [] as [&str; 0]);
        pools.doubt("pools.yaml".into(), false);
        assert_eq!(settled(&mut pools), [] as [&str; 0]);
        assert!(pools.doubt("more.yaml".into(), false));
        assert_eq!(settled(&mut pools), ["default"]);
        // Nothing is taken away for a doubt that comes later.
        pools.doubt("pools.yaml".into(), true);
        assert_eq!(settled(&mut pools), ["default"]);
    }

    #[test]
    fn a_fallback_that_is_withdrawn_keeps_those_that_it_serves() {
        let mut pools = Pools::default();
        pools.insert(&fallback());
        settled(&mut pools);
        pools.insert(&pool("public", PoolOrigin::Source, None));
        assert_eq!(settled(&mut pools), ["(default)", "public"]);
        pools.remove("public".to_owned());
        assert_eq!(settled(&mut pools), ["default"]);
    }

    #[test]
    fn of_two_pools_with_one_name_the_configured_one_counts_and_the_other_is_told() {
        let mut pools = Pools::default();
        pools.insert(&pool("public", PoolOrigin::Source, None));
        pools.insert(&pool("public", PoolOrigin::Configured, Some("inner")));
        let problems = pools.settle(None);
        assert_eq!(
            pools.in_force(),
            [pool("public", PoolOrigin::Configured, Some("inner"))]
        );
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].code, Code::InvalidPool);
        // That it goes takes nothing from the other.
        assert!(pools.remove("public".to_owned()));
        assert_eq!(pools.settle(None), []);
        assert_eq!(pools.in_force().len(), 1);
    }
}
