//! Random histories against a naive model: a flat list of claims, and scans.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_model::rows::Family;
use proptest::prelude::*;

use crate::testing::{ip, pool, selector, svc};
use crate::{
    Addresses, Allocator, BackendKey, Claimant, Decision, Pool, PoolName, PoolSet, PoolSpec,
    Refusal, Request, Restore, Terms, WantedFamilies, Why,
};

// --- What can happen ---

#[derive(Clone, Debug)]
enum Step {
    /// A Service with this wish is reconciled.
    Settle(Wish),
    Release(usize),
    /// The pools become those of this number.
    Pools(usize),
    /// The process restarts and reads the claims back, rotated by this much.
    Restart(usize),
}

#[derive(Clone, Debug)]
struct Wish {
    service: usize,
    families: WantedFamilies,
    asks: Vec<usize>,
    from_pool: Option<&'static str>,
    label: bool,
    key: usize,
    backend: usize,
    ports: Vec<u16>,
}

const ASKABLE: [&str; 8] = [
    "10.0.0.0",
    "10.0.0.1",
    "10.0.1.0",
    "10.0.1.1",
    "fd00::",
    "fd00::1",
    "fd01::",
    "192.0.2.1",
];

fn pools(number: usize) -> Vec<PoolSpec> {
    match number {
        0 => vec![],
        1 => vec![
            pool("a", "10.0.0.0/30, fd00::/126"),
            pool("b", "10.0.1.0-10.0.1.2"),
        ],
        2 => vec![
            pool("a", "10.0.0.0/30").avoiding(),
            pool("b", "10.0.1.2/32, 10.0.1.0/31, fd01::/127").priority(3),
            pool("c", "fd00::/64").manual(),
        ],
        3 => vec![
            pool("b", "10.0.0.0-10.0.0.2, fd00::/127").services_with(selector("l=l")),
            pool("c", "10.0.1.0/31, fd01::/127").priority(1),
            pool("d", "10.0.0.3/32"),
        ],
        _ => vec![
            pool("z", "fd00::1-fd00::2, 10.0.0.1/32"),
            pool("a", "10.0.1.1/32, fd01::/48"),
        ],
    }
}

fn wish() -> impl Strategy<Value = Wish> {
    let families = prop_oneof![
        3 => Just(WantedFamilies::Only(Family::V4)),
        1 => Just(WantedFamilies::Only(Family::V6)),
        2 => Just(WantedFamilies::RequireDual),
        1 => Just(WantedFamilies::PreferDual { first: Family::V4 }),
        1 => Just(WantedFamilies::PreferDual { first: Family::V6 }),
    ];
    let asks = prop_oneof![
        3 => Just(vec![]),
        1 => prop::collection::vec(0..ASKABLE.len(), 1..3),
    ];
    let from_pool = prop_oneof![
        4 => Just(None),
        1 => prop::sample::select(vec!["a", "b", "c", "none"]).prop_map(Some),
    ];
    (
        0usize..7,
        families,
        asks,
        from_pool,
        any::<bool>(),
        0usize..3,
        0usize..4,
        ports(),
    )
        .prop_map(
            |(service, families, asks, from_pool, label, key, backend, ports)| Wish {
                service,
                families,
                asks,
                from_pool,
                label,
                key,
                backend,
                ports,
            },
        )
}

fn ports() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(1u16..5, 0..3)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => wish().prop_map(Step::Settle),
        2 => (0usize..7).prop_map(Step::Release),
        1 => (0usize..5).prop_map(Step::Pools),
        1 => (0usize..7).prop_map(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

impl Wish {
    fn request(&self) -> Request {
        let mut request = svc(&format!("s{}", self.service))
            .families(self.families)
            .key(["", "k", "k"][self.key])
            .ports(&self.ports)
            .labelled(if self.label { "l=l" } else { "" });
        // Mostly Cluster; Local with and without a selector.
        request = match self.backend {
            0 | 1 => request,
            2 => request.local("app=x"),
            _ => request.local(""),
        };
        request.addresses = self.asks.iter().map(|index| ip(ASKABLE[*index])).collect();
        request.pool = self.from_pool.map(PoolName::new);
        request
    }
}

fn set(specs: &[PoolSpec]) -> PoolSet {
    PoolSet::new(
        specs
            .iter()
            .map(|spec| Pool::parse(spec).unwrap())
            .collect(),
    )
    .unwrap()
}

// --- The naive model ---

#[derive(Clone, Debug, Default)]
struct Naive {
    pools: Vec<Pool>,
    /// By name of the Service.
    claims: BTreeMap<String, (Terms, Addresses)>,
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
    fn free_or_shareable(&self, service: &str, terms: &Terms, address: IpAddr) -> bool {
        self.claims
            .iter()
            .filter(|(other, (_, held))| *other != service && held.contains(address))
            .all(|(_, (others, _))| may_share(terms, others))
    }

    fn is_held(&self, address: IpAddr) -> bool {
        self.claims.values().any(|(_, held)| held.contains(address))
    }

    fn pool_of(&self, address: IpAddr) -> Option<&Pool> {
        self.pools.iter().find(|pool| {
            pool.entries()
                .iter()
                .any(|entry| entry.range().contains(address))
        })
    }

    /// The first addresses of a pool in listed order: more than all Services together can hold.
    fn scan(pool: &Pool, family: Family) -> Vec<IpAddr> {
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
    fn first_claim(&self, request: &Request) -> Option<Addresses> {
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
    fn may_stay(&self, request: &Request, address: IpAddr) -> bool {
        let name = request.claimant.service.to_string();
        let in_order = self
            .pool_of(address)
            .is_some_and(|pool| pool.admits(request).is_ok() && !pool.avoids(address));
        (in_order || self.pools.is_empty())
            && request.families.includes(Family::of(address))
            && self.free_or_shareable(&name, &request.claimant.terms, address)
    }
}

// --- Running both ---

struct Run {
    allocator: Allocator,
    naive: Naive,
    /// The order in which pools are handed over must not matter.
    reversed: bool,
    log: Vec<String>,
}

impl Run {
    fn new(reversed: bool) -> Self {
        let mut run = Self {
            allocator: Allocator::default(),
            naive: Naive::default(),
            reversed,
            log: Vec::new(),
        };
        run.pools(1);
        run
    }

    fn pools(&mut self, number: usize) {
        let mut specs = pools(number);
        if self.reversed {
            specs.reverse();
        }
        self.naive.pools = specs
            .iter()
            .map(|spec| Pool::parse(spec).unwrap())
            .collect();
        self.allocator.set_pools(set(&specs));
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Pools(number) => self.pools(*number),
            Step::Release(service) => {
                let request = svc(&format!("s{service}"));
                let released = self.allocator.release(request.uid());
                let expected = self
                    .naive
                    .claims
                    .remove(&request.claimant.service.to_string());
                assert_eq!(
                    released.map(|claim| claim.addresses),
                    expected.map(|claim| claim.1)
                );
            }
            Step::Restart(rotation) => self.restart(*rotation),
            Step::Settle(wish) => self.settle(&wish.request()),
        }
        self.check();
    }

    fn restart(&mut self, rotation: usize) {
        let claims = self.allocator.claims();
        let mut durable: Vec<Restore> = claims
            .iter()
            .map(|claim| Restore {
                claimant: Arc::clone(&claim.claimant),
                addresses: claim.addresses.iter().collect(),
                pool: claim.pool.clone(),
                requested: Addresses::NONE,
            })
            .collect();
        if !durable.is_empty() {
            let middle = rotation % durable.len();
            durable.rotate_left(middle);
        }
        let mut fresh = Allocator::new(self.allocator.pools().clone());
        assert_eq!(fresh.restore_all(durable), vec![]);
        // A claim in a renamed pool learns the new name here, or at its next proposal.
        let held = |allocator: &Allocator| -> Vec<(Arc<Claimant>, Addresses)> {
            let claims = allocator.claims().into_iter();
            claims
                .map(|claim| (Arc::clone(&claim.claimant), claim.addresses))
                .collect()
        };
        assert_eq!(held(&fresh), held(&self.allocator));
        assert_eq!(fresh.counters(), self.allocator.counters());
        self.allocator = fresh;
    }

    fn settle(&mut self, request: &Request) {
        let name = request.claimant.service.to_string();
        let held = self.allocator.holds(request);
        let before = format!("{:?}", self.allocator.claims());
        let proposal = self.allocator.propose(request);
        assert_eq!(
            proposal,
            self.allocator.propose(request),
            "proposing is pure"
        );
        assert_eq!(
            before,
            format!("{:?}", self.allocator.claims()),
            "proposing is pure"
        );
        self.log.push(format!("{proposal:?}"));

        if held.is_empty() && request.addresses.is_empty() {
            let expected = self.naive.first_claim(request);
            assert_eq!(
                proposal.as_ref().ok().map(|p| p.addresses),
                expected,
                "{request:?}"
            );
        }
        let Ok(proposal) = proposal else {
            assert!(
                held.is_empty(),
                "who holds something is never answered with an error"
            );
            return;
        };
        let staying: Addresses = held
            .iter()
            .filter(|address| self.naive.may_stay(request, *address))
            .collect();
        match &proposal.decision {
            Decision::Keep | Decision::Gain { .. } => {
                assert!(proposal.addresses.contains_all(&held));
                assert_eq!(staying, held, "what is kept may stay");
            }
            Decision::Claim => assert!(held.is_empty()),
            Decision::Drop { why, .. } => {
                assert_ne!(proposal.addresses, held);
                assert!(staying != held || matches!(why, Why::PoolsSplit { .. }));
            }
            Decision::GiveUp { from, .. } => {
                assert_eq!(*from, held);
                assert!(
                    staying.is_empty(),
                    "nothing that may stay is given up: {proposal:?}"
                );
                assert!(proposal.unmet.is_some());
            }
            Decision::Move { from, .. } => {
                assert_eq!(*from, held);
                if !request.addresses.is_empty() {
                    assert_eq!(proposal.addresses, request.addresses);
                }
            }
        }
        if proposal.decision != Decision::Keep && !proposal.addresses.is_empty() {
            let pools: Vec<Option<&PoolName>> = proposal
                .addresses
                .iter()
                .map(|address| self.naive.pool_of(address).map(Pool::name))
                .collect();
            let expected = proposal.pool.as_ref();
            assert!(
                self.naive.pools.is_empty() || pools.iter().all(|pool| *pool == expected),
                "all addresses are in the pool that is told: {proposal:?}"
            );
        }
        let addresses = self.allocator.settle(request).unwrap().addresses;
        self.naive.claims.remove(&name);
        if !addresses.is_empty() {
            self.naive
                .claims
                .insert(name, (request.claimant.terms.clone(), addresses));
        }
    }

    fn check(&self) {
        let claims = self.allocator.claims();
        let held: BTreeMap<String, (Terms, Addresses)> = claims
            .iter()
            .map(|claim| {
                let claimant = &claim.claimant;
                (
                    claimant.service.to_string(),
                    (claimant.terms.clone(), claim.addresses),
                )
            })
            .collect();
        assert_eq!(held, self.naive.claims);
        for (name, (terms, addresses)) in &held {
            for address in addresses.iter() {
                assert!(
                    self.naive.free_or_shareable(name, terms, address),
                    "{address} is held by Services that may not share it: {held:?}"
                );
                let holders: Vec<String> = self
                    .allocator
                    .holders(address)
                    .iter()
                    .map(|h| h.service.to_string())
                    .collect();
                let expected: Vec<String> = held
                    .iter()
                    .filter(|(_, (_, addresses))| addresses.contains(address))
                    .map(|(name, _)| name.clone())
                    .collect();
                assert_eq!(holders, expected);
            }
        }
        for counters in self.allocator.counters() {
            let pool = self
                .naive
                .pools
                .iter()
                .find(|p| *p.name() == counters.pool)
                .unwrap();
            let mut taken: Vec<IpAddr> = held
                .values()
                .flat_map(|(_, addresses)| addresses.iter())
                .filter(|address| {
                    self.naive
                        .pool_of(*address)
                        .is_some_and(|p| p.name() == pool.name())
                })
                .collect();
            taken.sort_unstable();
            taken.dedup();
            let count = |family| i64::try_from(taken.iter().filter(|a| Family::of(**a) == family).count()).unwrap();
            assert_eq!(counters.assigned_ipv4, count(Family::V4));
            assert_eq!(counters.assigned_ipv6, count(Family::V6));
            let free = Naive::scan(pool, Family::V4);
            let free = free.iter().filter(|address| !taken.contains(address)).count();
            let free = i64::try_from(free).unwrap();
            assert_eq!(counters.available_ipv4, free);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn every_history_agrees_with_the_naive_model(steps in steps()) {
        let mut run = Run::new(false);
        for step in &steps {
            run.step(step);
        }
    }

    #[test]
    fn the_order_in_which_pools_arrive_changes_nothing(steps in steps()) {
        let mut runs = [false, true].map(Run::new);
        for step in &steps {
            for run in &mut runs {
                run.step(step);
            }
        }
        let [forward, backward] = runs;
        prop_assert_eq!(forward.log, backward.log);
        prop_assert_eq!(forward.allocator.claims(), backward.allocator.claims());
    }

    #[test]
    fn whatever_order_claims_are_released_in_all_is_free_again(
        order in Just((0..40usize).collect::<Vec<_>>()).prop_shuffle(),
        dual in prop::collection::vec(any::<bool>(), 40),
    ) {
        let specs = [pool("a", "10.0.0.0/26, fd00::/64"), pool("b", "10.0.1.0/28, fd01::/124")];
        let mut allocator = Allocator::new(set(&specs));
        let untouched = allocator.counters();
        let request = |number: usize| {
            let request = svc(&format!("s{number}")).ports(&[number as u16 % 3 + 1]);
            let request = if number.is_multiple_of(4) { request.key("k") } else { request };
            if dual[number] { request.require_dual() } else { request }
        };
        for number in 0..40 {
            allocator.give(&request(number));
        }
        for number in &order {
            allocator.release(request(*number).uid()).unwrap();
        }
        prop_assert_eq!(allocator.counters(), untouched);
        prop_assert!(allocator.claims().is_empty());
        let first: Vec<IpAddr> = allocator.give(&request(0).require_dual()).iter().collect();
        prop_assert_eq!(first, vec![ip("10.0.0.0"), ip("fd00::")]);
    }

    #[test]
    fn restored_claims_do_not_depend_on_their_order(
        claims in prop::collection::vec((0usize..7, wish(), 0usize..8, 0usize..8), 0..12),
        rotation in 0usize..12,
    ) {
        let durable: Vec<Restore> = claims
            .iter()
            .enumerate()
            .map(|(number, (_, wish, first, second))| {
                let request = Wish { service: number, ..wish.clone() }.request();
                Restore {
                    claimant: Arc::clone(&request.claimant),
                    addresses: vec![ip(ASKABLE[*first]), ip(ASKABLE[*second])],
                    pool: None,
                    requested: request.addresses,
                }
            })
            .collect();
        let mut rotated = durable.clone();
        if !rotated.is_empty() {
            let middle = rotation % rotated.len();
            rotated.rotate_left(middle);
        }
        let mut results = Vec::new();
        for durable in [durable, rotated] {
            let mut allocator = Allocator::new(set(&pools(2)));
            let refused: Vec<(String, Refusal)> = allocator
                .restore_all(durable)
                .into_iter()
                .map(|(claimant, refusal)| (claimant.service.to_string(), refusal))
                .collect();
            results.push((format!("{:?}", allocator.claims()), refused));
        }
        prop_assert_eq!(&results[0], &results[1]);
    }
}
