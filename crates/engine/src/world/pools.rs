//! Address pools: from all sources, and which of them are in force.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::{PoolOrigin, PoolRow, ResourceRow};
use landfall_model::wire::accepted_pool;

/// The pools that sources have reported, by where they come from and by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Pools {
    reported: BTreeMap<(PoolOrigin, String), Arc<PoolRow>>,
    /// Parts of sources in which pools may stand that can't be read.
    unreadable: BTreeSet<Arc<str>>,
    /// Those in force, by name.
    in_force: Vec<Arc<PoolRow>>,
    /// Whether the fallback has been given out of.
    fell_back: bool,
    /// Addresses of the fallback that an earlier process gave out, as Services have them on record;
    /// `None`: it was not looked for yet.
    on_record: Option<BTreeSet<IpAddr>>,
    /// First and last addresses of what may be given out of.
    spans: BTreeSet<(IpAddr, IpAddr)>,
}

/// The name of the fallback where another pool has its own.
const SECOND_NAME: &str = "fallback";

// === impl Pools ===

impl Pools {
    /// Takes a pool in; says whether that is news.
    pub(super) fn insert(&mut self, row: &Arc<PoolRow>) -> bool {
        let key = (row.origin, row.name.clone());
        let old = self.reported.insert(key, row.clone());
        old.as_ref() != Some(row)
    }

    /// Takes a pool of a source back; says whether that is news.
    pub(super) fn remove(&mut self, name: String) -> bool {
        self.reported.remove(&(PoolOrigin::Source, name)).is_some()
    }

    /// Notes whether a part of a source can't be read; says whether that is news.
    pub(super) fn set_incomplete(&mut self, part: Arc<str>, incomplete: bool) -> bool {
        let before = self.incomplete();
        if incomplete {
            self.unreadable.insert(part);
        } else {
            self.unreadable.remove(&part);
        }
        before != self.incomplete()
    }

    /// Whether pools may be missing.
    pub(super) fn incomplete(&self) -> bool {
        !self.unreadable.is_empty()
    }

    /// The objects that pools were made of, by name.
    pub(super) fn resources(&self) -> impl Iterator<Item = &Arc<ResourceRow>> {
        let reported = self.reported.values();
        reported.filter_map(|row| row.resource.as_ref())
    }

    /// The pools in force, by name.
    pub(super) fn in_force(&self) -> &[Arc<PoolRow>] {
        &self.in_force
    }

    /// Returns the ranges of the fallback, while it is not known what an earlier process gave out
    /// of it.
    pub(super) fn unknown_fallback(&self) -> Option<Vec<IpNet>> {
        let mut reported = self.reported.values();
        let fallback = reported.find(|row| row.origin == PoolOrigin::Fallback)?;
        let ranges = fallback.addresses.iter();
        Some(ranges.filter_map(|range| range.parse().ok()).collect())
            .filter(|_| !self.fell_back && self.on_record.is_none())
    }

    /// Takes what an earlier process may have given out of the fallback: it did if no other pool
    /// has it now. What is given out later is not of the fallback.
    pub(super) fn note_on_record(&mut self, mut addresses: BTreeSet<IpAddr>) {
        let reported = self.reported.values();
        let others: Vec<_> = reported
            .filter(|row| row.origin != PoolOrigin::Fallback)
            .collect();
        addresses.retain(|address| !others.iter().any(|row| has(row, *address)));
        self.on_record = Some(addresses);
    }

    /// Decides which pools are in force; `home` is the instance of those that name none. Returns
    /// what is wrong with the others.
    ///
    /// Of two with one name the configured one counts. The fallback serves only where no other pool
    /// gives its addresses to all Services, and never while pools may be missing: their Services
    /// would move there. Once another pool comes, the fallback keeps those that it has and takes no
    /// more; so it does after a restart, but for addresses that are in another pool by now.
    pub(super) fn settle(&mut self, home: Option<&str>) -> Vec<Reason> {
        let mut problems = Vec::new();
        let mut by_name: BTreeMap<&str, Arc<PoolRow>> = BTreeMap::new();
        let real = self
            .reported
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
            .reported
            .values()
            .find(|row| row.origin == PoolOrigin::Fallback);
        // Pools of the command line have the name of the fallback.
        let taken = |name: &str| by_name.contains_key(name);
        let name = fallback.map(|row| {
            if taken(&row.name) {
                SECOND_NAME
            } else {
                &row.name
            }
        });
        let name = name.filter(|name| !taken(name));
        if let (Some(fallback), Some(name)) = (fallback, name) {
            if !served && name == fallback.name && (self.fell_back || self.unreadable.is_empty()) {
                self.fell_back = true;
                by_name.insert(name, fallback.clone());
            } else if self.fell_back {
                let closed = PoolRow {
                    auto_assign: false,
                    name: name.to_owned(),
                    ..PoolRow::clone(fallback)
                };
                by_name.insert(name, Arc::new(closed));
            } else {
                let elsewhere = |address: &IpAddr| by_name.values().any(|row| has(row, *address));
                let kept: Vec<String> = self
                    .on_record
                    .iter()
                    .flatten()
                    .filter(|address| !elsewhere(address))
                    .map(|address| IpNet::from(*address).to_string())
                    .collect();
                if !kept.is_empty() {
                    let closed = PoolRow {
                        auto_assign: false,
                        avoid_buggy: false,
                        addresses: kept,
                        name: name.to_owned(),
                        ..PoolRow::clone(fallback)
                    };
                    by_name.insert(name, Arc::new(closed));
                }
            }
        }
        self.in_force = by_name.into_values().collect();
        self.settle_spans();
        problems
    }

    /// Whether an address is in a pool, so that a listener may be there.
    pub(super) fn cover(&self, address: IpAddr) -> bool {
        let mut spans = self.spans.iter();
        spans.any(|(first, last)| *first <= address && address <= *last)
    }

    /// Where pools may be missing, or one can't be read, Services keep addresses of the pools from
    /// before, and so do the spans.
    fn settle_spans(&mut self) {
        let texts = self.in_force.iter().flat_map(|row| &row.addresses);
        let read: Vec<_> = texts.map(|text| span(text)).collect();
        let keep = self.incomplete() || read.is_empty() || read.contains(&None);
        if !keep {
            self.spans.clear();
        }
        self.spans.extend(read.into_iter().flatten());
        // What a pool had that is not valid any more, as it was recorded.
        let resources = self.in_force.iter().filter_map(|it| it.resource.as_ref());
        let accepted = resources.filter_map(|it| accepted_pool(it));
        let texts = accepted.flat_map(|row| row.addresses);
        self.spans.extend(texts.filter_map(|text| span(&text)));
    }
}

/// The first and the last address of an entry of a pool. Whether a pool can have it is for the
/// allocator to say, which takes nothing that can't be read here.
fn span(text: &str) -> Option<(IpAddr, IpAddr)> {
    let address = |text: &str| text.trim().parse::<IpAddr>().ok();
    if let Some((first, last)) = text.split_once('-') {
        let (first, last) = (address(first)?, address(last)?);
        return (first.is_ipv4() == last.is_ipv4() && first <= last).then_some((first, last));
    }
    let net: IpNet = text.trim().parse().ok()?;
    Some((net.network(), net.broadcast()))
}

/// Whether a pool has an address, as far as its ranges can be read.
fn has(pool: &PoolRow, address: IpAddr) -> bool {
    let mut spans = pool.addresses.iter().filter_map(|range| span(range));
    spans.any(|(first, last)| first <= address && address <= last)
}

fn namesake(row: &PoolRow) -> Reason {
    let origin = row.source.as_ref().map(|it| it.origin_of("metadata.name"));
    let name = &row.name;
    Reason::error(
        Code::InvalidPool,
        format!("the configuration also has a pool {name}, which takes precedence"),
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
        assert!(pools.set_incomplete("pools.yaml".into(), true));
        assert!(!pools.set_incomplete("more.yaml".into(), true), "no news");
        assert_eq!(settled(&mut pools), [] as [&str; 0]);
        pools.set_incomplete("pools.yaml".into(), false);
        assert_eq!(settled(&mut pools), [] as [&str; 0]);
        assert!(pools.set_incomplete("more.yaml".into(), false));
        assert_eq!(settled(&mut pools), ["default"]);
        // Nothing is taken away because of pools that become unknown later.
        pools.set_incomplete("pools.yaml".into(), true);
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
    fn after_a_restart_the_fallback_keeps_what_is_on_record_unless_another_pool_has_it() {
        let mut pools = Pools::default();
        let fallback = PoolRow {
            addresses: vec!["127.77.0.0/24".to_owned()],
            ..PoolRow::clone(&fallback())
        };
        pools.insert(&Arc::new(fallback));
        assert_eq!(
            pools.unknown_fallback(),
            Some(vec!["127.77.0.0/24".parse().unwrap()])
        );
        let on_record = ["127.77.0.1", "127.77.0.9", "127.77.0.200"];
        pools.note_on_record(on_record.iter().map(|it| it.parse().unwrap()).collect());
        assert_eq!(pools.unknown_fallback(), None);
        for (public, kept) in [
            (
                "192.0.2.0/24",
                &["127.77.0.1/32", "127.77.0.200/32", "127.77.0.9/32"][..],
            ),
            ("127.77.0.8/29", &["127.77.0.1/32", "127.77.0.200/32"]),
            ("127.77.0.1 - 127.77.0.100", &["127.77.0.200/32"]),
            ("127.77.0.0/16", &[]),
        ] {
            let row = PoolRow {
                addresses: vec![public.to_owned()],
                ..PoolRow::clone(&pool("public", PoolOrigin::Configured, None))
            };
            pools.insert(&Arc::new(row));
            pools.settle(Some("edge"));
            assert_eq!(pools.in_force().len(), 1 + usize::from(!kept.is_empty()));
            let closed = pools.in_force().iter().find(|row| row.name == "default");
            let mut addresses = closed.map_or_else(Vec::new, |row| row.addresses.clone());
            addresses.sort();
            assert_eq!(addresses, kept, "{public}");
            assert!(closed.is_none_or(|row| !row.auto_assign));
        }
    }

    #[test]
    fn a_range_of_two_families_or_with_its_ends_reversed_covers_nothing() {
        for range in [
            "10.0.0.1-2001:db8::1",
            "2001:db8::9-2001:db8::1",
            "10.0.0.9-10.0.0.1",
        ] {
            assert_eq!(span(range), None, "{range}");
            let mut pools = Pools::default();
            let row = PoolRow {
                addresses: vec!["192.0.2.0/24".to_owned(), range.to_owned()],
                ..PoolRow::clone(&pool("public", PoolOrigin::Source, None))
            };
            pools.insert(&Arc::new(row));
            pools.settle(None);
            assert!(pools.cover("192.0.2.7".parse().unwrap()));
            for outside in ["10.0.0.5", "172.16.0.1", "::1", "2001:db8::5"] {
                assert!(!pools.cover(outside.parse().unwrap()), "{range}: {outside}");
            }
        }
    }

    #[test]
    fn beside_a_pool_of_its_own_name_the_fallback_has_another_one() {
        let mut pools = Pools::default();
        pools.insert(&fallback());
        pools.insert(&pool("default", PoolOrigin::Configured, None));
        assert_eq!(settled(&mut pools), ["default"]);
        pools.note_on_record(["127.77.0.1".parse().unwrap()].into());
        assert_eq!(settled(&mut pools), ["default", "(fallback)"]);
        pools.insert(&pool("fallback", PoolOrigin::Configured, None));
        assert_eq!(settled(&mut pools), ["default", "fallback"]);
    }

    #[test]
    fn of_two_pools_with_one_name_the_configured_one_counts_and_the_other_is_reported() {
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
