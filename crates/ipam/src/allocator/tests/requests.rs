use super::*;

#[test]
fn removing_the_request_keeps_the_address() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("web").asks("10.0.0.9"));
    let proposal = allocator.settle(&svc("web")).unwrap();
    assert_eq!(proposal.decision, Decision::Keep);
    assert_eq!(proposal.addresses, ips("10.0.0.9"));
}

#[test]
fn every_refused_request_keeps_the_held_address_and_says_why() {
    let cases = [
        (svc("web").asks("192.0.2.1"), Code::AddressNotInPool),
        (
            svc("web").asks("10.0.0.5 fd00::1"),
            Code::AddressFamilyMismatch,
        ),
        (svc("web").asks("10.0.2.1"), Code::PoolNotAllowed),
        (svc("web").asks("10.0.3.0"), Code::AddressAvoided),
        (
            svc("web").asks("10.0.0.5").in_pool("full"),
            Code::AddressNotInPool,
        ),
        (svc("web").in_pool("absent"), Code::PoolNotFound),
        (svc("web").in_pool("full"), Code::PoolExhausted),
        (svc("web").in_pool("six"), Code::NoAddressOfFamily),
        (svc("web").in_pool("theirs"), Code::PoolNotAllowed),
        (svc("web").require_dual(), Code::NoAddressOfFamily),
    ];
    for (request, code) in cases {
        let mut allocator = allocator([
            pool("a", "10.0.0.0/24"),
            pool("avoiding", "10.0.3.0/24").avoiding(),
            pool("full", "10.0.1.0/32").manual(),
            pool("six", "fd00::/120"),
            pool("theirs", "10.0.2.0/24").namespace("theirs"),
        ]);
        allocator.give(&svc("other").in_pool("full"));
        allocator.give(&svc("web").asks("10.0.0.77"));
        let proposal = allocator.settle(&request).unwrap();
        assert_eq!(proposal.decision, Decision::Keep, "{request:?}");
        assert_eq!(proposal.addresses, ips("10.0.0.77"), "{request:?}");
        assert_eq!(
            proposal.unmet.map(|refusal| refusal.code()),
            Some(code),
            "{request:?}"
        );
    }
}

#[test]
fn requested_addresses_of_two_pools_are_refused_with_both_names() {
    let allocator = allocator([pool("a", "10.0.0.0/24"), pool("six", "fd00::/120")]);
    assert_eq!(
        allocator.propose(&svc("web").require_dual().asks("10.0.0.1 fd00::1")),
        Err(Refusal::AddressesInTwoPools {
            first: ip("10.0.0.1"),
            first_pool: name("a"),
            second: ip("fd00::1"),
            second_pool: name("six"),
        })
    );
}

#[test]
fn one_requested_address_is_not_enough_for_a_dual_stack_service() {
    let allocator = allocator([pool("a", "10.0.0.0/24, fd00::/120")]);
    let families = WantedFamilies::PreferDual { first: Family::V4 };
    assert_eq!(
        allocator.propose(&svc("web").families(families).asks("10.0.0.1")),
        Err(Refusal::FamiliesMismatch {
            addresses: ips("10.0.0.1"),
            families
        })
    );
}

#[test]
fn a_service_that_waits_gets_a_reason_for_every_pool() {
    let mut allocator = allocator([
        pool("full", "10.0.0.0/32"),
        pool("hidden", "10.0.1.0/24").manual(),
        pool("labels", "10.0.2.0/24").services_with(selector("a=b")),
        pool("six", "fd00::/120"),
        pool("theirs", "10.0.3.0/24").namespace("theirs"),
    ]);
    allocator.give(&svc("other"));
    let refusal = allocator.propose(&svc("web")).unwrap_err();
    assert_eq!(
        refusal,
        Refusal::PoolsExhausted {
            families: WantedFamilies::Only(Family::V4),
            skipped: [
                ("full", Verdict::Full(Family::V4)),
                ("hidden", Verdict::NotAutomatic),
                ("labels", Verdict::NotForLabels),
                ("six", Verdict::LacksFamily(Family::V4)),
                ("theirs", Verdict::NotForNamespace),
            ]
            .map(|(pool, verdict)| SkippedPool {
                pool: name(pool),
                verdict
            })
            .into(),
        }
    );
    assert_eq!(
        refusal.to_string(),
        "no address pool has a free IPv4 address: full has no free IPv4, hidden serves only \
        Services that name it, labels serves other labels, six has no IPv4, theirs serves other \
        namespaces"
    );
}
