//! Address families: rows 32 to 39.

use super::*;

#[test]
fn row_32_required_dual_stack_gives_ipv4_before_ipv6() {
    let mut allocator = allocator([pool("a", "fd00::-fd00::ff, 10.0.0.0/24")]);
    let families =
        WantedFamilies::of_service(&[Family::V6, Family::V4], FamilyPolicy::RequireDualStack)
            .unwrap();
    let given = allocator.give(&svc("web").families(families));
    assert_eq!(
        given.iter().collect::<Vec<_>>(),
        [ip("10.0.0.0"), ip("fd00::")]
    );
}

#[test]
fn row_33_required_dual_stack_is_refused_by_a_pool_of_one_family() {
    let allocator = allocator([pool("a", "10.0.0.0/24")]);
    assert_eq!(
        allocator.propose(&svc("web").require_dual()),
        Err(Refusal::PoolsExhausted {
            families: WantedFamilies::RequireDual,
            skipped: vec![SkippedPool {
                pool: name("a"),
                verdict: Verdict::LacksFamily(Family::V6),
            }],
        })
    );
}

#[test]
fn row_34_preferred_dual_stack_chooses_the_pool_with_both() {
    let mut allocator = allocator([
        pool("a4", "10.0.0.0/24"),
        pool("b6", "fd00::-fd00::ff"),
        pool("c", "10.0.1.0/24, fd01::-fd01::ff"),
    ]);
    assert_eq!(
        allocator.give(&svc("web").prefer_dual(Family::V4)),
        ips("10.0.1.0 fd01::")
    );
}

#[test]
fn row_35_preferred_dual_stack_falls_back_to_the_first_family() {
    let mut allocator = allocator([pool("a4", "10.0.0.0/24"), pool("b6", "fd00::-fd00::ff")]);
    let proposal = allocator
        .settle(&svc("web").prefer_dual(Family::V6))
        .unwrap();
    assert_eq!(proposal.addresses, ips("fd00::"));
    assert_eq!(
        proposal.unmet,
        Some(Refusal::PoolLacksFamily {
            pool: name("b6"),
            family: Family::V4
        })
    );
}

#[test]
fn row_37_a_service_with_one_address_does_not_jump_to_a_new_dual_pool() {
    let mut allocator = allocator([pool("single", "10.0.0.0/24")]);
    let request = svc("web").prefer_dual(Family::V4);
    allocator.give(&request);
    allocator.set_pools(pool_set([
        pool("dual", "10.0.1.0/24, fd00::-fd00::ff"),
        pool("single", "10.0.0.0/24"),
    ]));
    let proposal = allocator.settle(&request).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.0"));
    assert_eq!(proposal.decision, Decision::Keep);
}

#[test]
fn row_38_preferring_both_on_a_single_stack_cluster_settles_at_one_address() {
    // The reference gives one, then two, then none, for ever.
    let families =
        WantedFamilies::of_service(&[Family::V4], FamilyPolicy::PreferDualStack).unwrap();
    let mut allocator = allocator([pool("dual", "10.0.0.0/24, fd00::-fd00::ff")]);
    let request = svc("web").families(families);
    assert_eq!(allocator.give(&request), ips("10.0.0.0"));
    for _ in 0..100 {
        let proposal = allocator.settle(&request).unwrap();
        assert_eq!(proposal.decision, Decision::Keep);
        assert_eq!(proposal.unmet, None);
    }
}

#[test]
fn row_39_requiring_both_with_one_cluster_address_is_refused() {
    let refusal =
        WantedFamilies::of_service(&[Family::V4], FamilyPolicy::RequireDualStack).unwrap_err();
    assert_eq!(
        refusal,
        Refusal::NotEnoughClusterIps {
            present: Family::V4
        }
    );
    assert_eq!(
        WantedFamilies::of_service(&[], FamilyPolicy::SingleStack),
        Err(Refusal::NoClusterIp)
    );
}

#[test]
fn a_pool_without_the_family_says_so() {
    // The reference says "not allowed" of an address that is not there.
    let allocator = allocator([pool("six", "fd00::-fd00::ff")]);
    let refusal = allocator.propose(&svc("web").in_pool("six")).unwrap_err();
    assert_eq!(refusal.to_string(), "pool six has no IPv4");
}
