//! Random histories against a naive model.

mod naive;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use landfall_model::rows::Family;
use proptest::prelude::*;

use self::naive::Naive;
use self::steps::{ASKABLE, Step, pools, request, set, steps};
use crate::testing::{ip, pool, svc};
use crate::{
    Addresses, Allocator, Decision, Pool, PoolName, Refusal, Request, Restore, Terms, Why,
};

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
            Step::Settle(request) => self.settle(&request.request()),
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
        assert_eq!(fresh.claims(), self.allocator.claims());
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
                "a holder of something is never answered with an error"
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
                "all addresses are in the pool that is named: {proposal:?}"
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
            let count = |family| {
                i64::try_from(taken.iter().filter(|a| Family::of(**a) == family).count()).unwrap()
            };
            let mut of_namespaces: BTreeMap<&str, BTreeSet<IpAddr>> = BTreeMap::new();
            for (name, (_, addresses)) in &held {
                let namespace = name.split_once('/').unwrap().0;
                let v4 = addresses.get(Family::V4).filter(|it| taken.contains(it));
                of_namespaces.entry(namespace).or_default().extend(v4);
            }
            let largest = of_namespaces.values().map(BTreeSet::len).max();
            let largest = i64::try_from(largest.unwrap_or_default()).unwrap();
            assert_eq!(counters.largest_ipv4, largest);
            assert_eq!(counters.assigned_ipv4, count(Family::V4));
            assert_eq!(counters.assigned_ipv6, count(Family::V6));
            let free = Naive::scan(pool, Family::V4);
            let free = free
                .iter()
                .filter(|address| !taken.contains(address))
                .count();
            let free = i64::try_from(free).unwrap();
            assert_eq!(counters.available_ipv4, free);
        }
    }
}

proptest! {
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
        let specs = [pool("a", "10.0.0.0/26, fd00::-fd00::ffff:ffff:ffff:ffff"), pool("b",
            "10.0.1.0/28, fd01::-fd01::f")];
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
        claims in prop::collection::vec((0usize..7, request(), 0usize..8, 0usize..8), 0..12),
        rotation in 0usize..12,
    ) {
        let durable: Vec<Restore> = claims
            .iter()
            .enumerate()
            .map(|(number, (_, request, first, second))| {
                let request = request.clone().of(number).request();
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

    #[test]
    fn after_a_restart_every_proposal_is_what_it_was(
        requests in prop::collection::vec(request(), 7),
        number in 0usize..5,
        rotation in 0usize..7,
    ) {
        let requests: Vec<Request> = requests
            .into_iter()
            .enumerate()
            .map(|(service, request)| request.of(service).request())
            .collect();
        let mut before = Allocator::new(set(&pools(1)));
        for request in &requests {
            let _ = before.settle(request);
        }
        // Pools may have changed while nothing ran.
        before.set_pools(set(&pools(number)));
        let mut durable: Vec<Restore> = requests
            .iter()
            .filter_map(|request| before.held(request.uid()).map(|claim| (request, claim)))
            .map(|(request, claim)| Restore {
                claimant: Arc::clone(&claim.claimant),
                addresses: claim.addresses.iter().collect(),
                pool: claim.pool.clone(),
                requested: request.addresses,
            })
            .collect();
        let middle = rotation.min(durable.len());
        durable.rotate_left(middle);
        let mut after = Allocator::new(set(&pools(number)));
        prop_assert_eq!(after.restore_all(durable), vec![]);
        for request in &requests {
            let proposal = after.propose(request);
            prop_assert_eq!(&proposal, &before.propose(request));
            if number == 1 && let Ok(proposal) = proposal {
                // A Service may meanwhile share what was taken when it was asked first.
                let held = after.holds(request);
                prop_assert!(held.is_empty() || proposal.addresses.contains_all(&held));
            }
        }
    }
}
