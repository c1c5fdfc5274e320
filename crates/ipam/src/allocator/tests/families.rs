use super::*;

#[test]
fn a_service_that_becomes_dual_stack_gains_the_other_family_in_its_pool() {
    let mut allocator = allocator([
        pool("a", "10.0.0.0/24, fd00::-fd00::ff"),
        pool("0", "fe00::-fe00::ff"),
    ]);
    allocator.give(&svc("web"));
    for request in [
        svc("web").require_dual(),
        svc("web").prefer_dual(Family::V6),
    ] {
        let mut allocator = allocator.clone();
        let proposal = allocator.settle(&request).unwrap();
        assert_eq!(proposal.addresses, ips("10.0.0.0 fd00::"));
        assert_eq!(
            proposal.decision,
            Decision::Gain {
                gained: ips("fd00::")
            }
        );
    }
}

#[test]
fn a_service_that_comes_to_require_both_moves_when_its_pool_has_but_one() {
    let mut allocator = allocator([
        pool("a", "10.0.0.0/24"),
        pool("dual", "10.0.1.0/24, fd00::-fd00::ff"),
    ]);
    allocator.give(&svc("web"));
    let proposal = allocator.settle(&svc("web").require_dual()).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.1.0 fd00::"));
    assert_eq!(
        proposal.decision,
        Decision::Move {
            from: ips("10.0.0.0"),
            why: Why::NeedsBothFamilies {
                pool: name("a"),
                missing: Family::V6
            },
        }
    );
}

#[test]
fn a_service_that_becomes_single_stack_keeps_the_address_of_that_family() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24, fd00::-fd00::ff")]);
    allocator.give(&svc("other").require_dual());
    allocator.give(&svc("web").require_dual());
    allocator.release(svc("other").uid());
    let proposal = allocator.settle(&svc("web").v6()).unwrap();
    assert_eq!(proposal.addresses, ips("fd00::1"));
    assert_eq!(
        proposal.decision,
        Decision::Drop {
            dropped: ips("10.0.0.1"),
            why: Why::FamilyNotWanted {
                address: ip("10.0.0.1")
            },
        }
    );
}

#[test]
fn a_service_that_prefers_both_and_loses_one_moves_to_another_dual_pool_if_there_is_one() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24, fd00::-fd00::ff")]);
    let request = svc("web").prefer_dual(Family::V4);
    allocator.give(&request);
    let gone = Why::PoolShrunk {
        address: ip("fd00::"),
        pool: name("a"),
    };

    let mut alone = allocator.clone();
    alone.set_pools(pool_set([pool("a", "10.0.0.0/24")]));
    let proposal = alone.settle(&request).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.0"));
    assert_eq!(
        proposal.decision,
        Decision::Drop {
            dropped: ips("fd00::"),
            why: gone.clone()
        }
    );

    allocator.set_pools(pool_set([
        pool("a", "10.0.0.0/24"),
        pool("dual", "10.0.1.0/24, fd01::-fd01::ff"),
    ]));
    let proposal = allocator.settle(&request).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.1.0 fd01::"));
    assert_eq!(
        proposal.decision,
        Decision::Move {
            from: ips("10.0.0.0 fd00::"),
            why: gone
        }
    );
}

#[test]
fn of_a_pair_that_lost_one_address_the_other_stays_when_its_pool_can_replace_it() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24, fd00::-fd00::ff")]);
    let request = svc("web").require_dual();
    allocator.give(&request);
    allocator.set_pools(pool_set([pool("a", "10.0.0.0/24, fd01::-fd01::ff")]));
    let proposal = allocator.settle(&request).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.0 fd01::"));
    assert!(matches!(
        proposal.decision,
        Decision::Move {
            why: Why::PoolShrunk { .. },
            ..
        }
    ));
}

#[test]
fn a_service_that_requires_both_keeps_the_one_that_is_left_when_no_pool_has_both() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24, fd00::-fd00::ff")]);
    let request = svc("web").require_dual();
    allocator.give(&request);
    allocator.set_pools(pool_set([pool("a", "10.0.0.0/24")]));
    let proposal = allocator.settle(&request).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.0"));
    assert!(matches!(proposal.decision, Decision::Drop { .. }));
    assert_eq!(proposal.unmet.unwrap().code(), Code::NoAddressOfFamily);
}

#[test]
fn when_its_pool_is_split_by_family_the_second_address_is_replaced() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24, fd00::-fd00::ff")]);
    let request = svc("web").prefer_dual(Family::V6);
    allocator.give(&request);
    allocator.set_pools(pool_set([
        pool("four", "10.0.0.0/24"),
        pool("six", "fd00::-fd00::ff, 10.0.1.0/24"),
    ]));
    let proposal = allocator.settle(&request).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.1.0 fd00::"));
    assert_eq!(proposal.pool, Some(name("six")));
    assert_eq!(
        proposal.decision.why(),
        Some(&Why::PoolsSplit {
            address: ip("10.0.0.0"),
            pool: name("four"),
            home: name("six"),
        })
    );
}

#[test]
fn of_a_split_pair_the_address_in_the_pool_with_both_families_stays() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24, fd00::-fd00::ff")]);
    let request = svc("web").require_dual();
    allocator.give(&svc("other").require_dual());
    allocator.give(&request);
    allocator.release(svc("other").uid());
    allocator.set_pools(pool_set([
        pool("four", "10.0.0.0/24"),
        pool("six", "fd00::-fd00::ff, 10.0.1.0/24"),
    ]));
    assert_eq!(allocator.give(&request), ips("10.0.1.0 fd00::1"));
}

#[test]
fn a_service_counts_its_own_address_among_those_it_can_have() {
    let mut allocator = allocator([pool("a", "10.0.0.0/32")]);
    allocator.give(&svc("web").key("k").ports(&[]));
    let proposal = allocator
        .settle(&svc("web").key("k").ports(&[80]).require_dual())
        .unwrap();
    assert_eq!(
        proposal.unmet,
        Some(Refusal::PoolsExhausted {
            families: WantedFamilies::RequireDual,
            skipped: vec![SkippedPool {
                pool: name("a"),
                verdict: Verdict::LacksFamily(Family::V6),
            }],
        })
    );
}

#[test]
fn a_service_that_prefers_both_is_served_tier_by_tier() {
    let mut allocator = allocator([
        pool("dual", "10.0.1.0/24, fd00::-fd00::ff"),
        pool("pinned", "10.0.0.0/24").namespace("default"),
    ]);
    let given = allocator.give(&svc("web").prefer_dual(Family::V6));
    assert_eq!(
        given,
        ips("10.0.0.0"),
        "pools that name the namespace come first"
    );
}
