//! What is excluded, reserved and disabled.

use super::*;
use crate::PoolSpec;

fn with(name: &str, entries: &str, excluded: &str, reserved: &[(&str, &str)]) -> PoolSpec {
    let mut spec = pool(name, entries);
    let excluded = excluded.split(',').filter(|it| !it.is_empty());
    spec.excluded = excluded.map(str::to_owned).collect();
    let reserved = reserved.iter();
    spec.reserved = reserved
        .map(|(range, services)| ((*range).to_owned(), (*services).to_owned()))
        .collect();
    spec
}

fn disabled(mut spec: PoolSpec) -> PoolSpec {
    spec.disabled = true;
    spec
}

#[test]
fn an_excluded_address_is_not_in_the_pool() {
    let parts = "10.0.0.0,10.0.0.2-10.0.0.5";
    let mut allocator = allocator([with("a", "10.0.0.0/29", parts, &[])]);
    for (service, address) in [("a", "10.0.0.1"), ("b", "10.0.0.6"), ("c", "10.0.0.7")] {
        assert_eq!(allocator.give(&svc(service)), ips(address));
    }
    assert!(matches!(
        allocator.propose(&svc("d")),
        Err(Refusal::PoolsExhausted { .. })
    ));
    assert!(matches!(
        allocator.propose(&svc("d").asks("10.0.0.3")),
        Err(Refusal::AddressNotInPool { .. })
    ));
}

#[test]
fn what_is_excluded_later_is_left_as_if_the_pool_had_shrunk() {
    let mut allocator = allocator([pool("a", "10.0.0.0/30")]);
    assert_eq!(allocator.give(&svc("web")), ips("10.0.0.0"));
    allocator.set_pools(pool_set([with("a", "10.0.0.0/30", "10.0.0.0/31", &[])]));
    let proposal = allocator.settle(&svc("web")).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.2"));
    assert!(matches!(
        proposal.decision,
        Decision::Move {
            why: Why::PoolShrunk { .. },
            ..
        }
    ));
}

#[test]
fn what_one_pool_excludes_another_may_have() {
    let mut allocator = allocator([
        with("a", "10.0.0.0/24", "10.0.0.128/25", &[]),
        pool("b", "10.0.0.128/25"),
    ]);
    assert_eq!(allocator.give(&svc("web").in_pool("b")), ips("10.0.0.128"));
}

#[test]
fn the_anycast_address_of_an_ipv6_prefix_stays_aside_and_a_part_has_none_of_its_own() {
    let mut allocator = allocator([with("a", "fd00::/126", "fd00::1", &[])]);
    let six = |name: &str| svc(name).v6();
    assert_eq!(allocator.give(&six("a")), ips("fd00::2"));
    assert_eq!(allocator.give(&six("b")), ips("fd00::3"));
    assert!(allocator.propose(&six("c")).is_err());
}

#[test]
fn a_reserved_address_is_for_its_services_only_and_they_get_it_first() {
    let reserved = [("10.0.0.0", "shop/web"), ("10.0.0.2/31", "shop")];
    let mut allocator = allocator([with("a", "10.0.0.0/29", "", &reserved)]);
    assert_eq!(allocator.give(&svc("other/web")), ips("10.0.0.1"));
    assert_eq!(allocator.give(&svc("other/api")), ips("10.0.0.4"));
    assert_eq!(allocator.give(&svc("shop/web")), ips("10.0.0.0"));
    assert_eq!(allocator.give(&svc("shop/api")), ips("10.0.0.2"));
    assert_eq!(allocator.give(&svc("shop/two")), ips("10.0.0.3"));
    assert_eq!(
        allocator.give(&svc("shop/three")),
        ips("10.0.0.5"),
        "when its reserved ones are used up, it gets any"
    );
    let refusal = allocator
        .propose(&svc("other/c").asks("10.0.0.3"))
        .unwrap_err();
    assert_eq!(
        refusal,
        Refusal::AddressReserved {
            address: ip("10.0.0.3"),
            pool: name("a"),
        }
    );
    assert!(!refusal.to_string().contains("shop"), "{refusal}");
    // A released one is free for its Services again.
    allocator.release(svc("shop/api").uid());
    assert_eq!(allocator.give(&svc("other/d")), ips("10.0.0.6"));
    assert_eq!(allocator.give(&svc("shop/four")), ips("10.0.0.2"));
}

#[test]
fn a_service_keeps_an_address_that_is_reserved_for_others_later() {
    let mut allocator = allocator([pool("a", "10.0.0.0/30")]);
    assert_eq!(allocator.give(&svc("other/web")), ips("10.0.0.0"));
    let reserved = [("10.0.0.0/31", "shop")];
    allocator.set_pools(pool_set([with("a", "10.0.0.0/30", "", &reserved)]));
    assert_eq!(allocator.give(&svc("other/web")), ips("10.0.0.0"));
    assert_eq!(allocator.give(&svc("shop/web")), ips("10.0.0.1"));
}

#[test]
fn a_disabled_pool_gives_out_nothing_and_takes_nothing_away() {
    let mut allocator = allocator([pool("a", "10.0.0.0/30"), pool("b", "10.0.1.0/30")]);
    assert_eq!(allocator.give(&svc("web")), ips("10.0.0.0"));
    allocator.set_pools(pool_set([
        disabled(pool("a", "10.0.0.0/30")),
        pool("b", "10.0.1.0/30"),
    ]));
    assert_eq!(allocator.give(&svc("web")), ips("10.0.0.0"));
    assert_eq!(allocator.give(&svc("new")), ips("10.0.1.0"));
    for request in [svc("x").asks("10.0.0.2"), svc("x").in_pool("a")] {
        assert_eq!(
            allocator.propose(&request).unwrap_err(),
            Refusal::PoolDisabled { pool: name("a") }
        );
    }
    allocator.set_pools(pool_set([disabled(pool("a", "10.0.0.0/30"))]));
    let refusal = allocator.propose(&svc("y")).unwrap_err();
    assert!(refusal.to_string().contains("a is disabled"), "{refusal}");
}

#[test]
fn parts_that_can_not_be_read_are_errors_of_the_pool() {
    for (excluded, reserved, message) in [
        ("10.0.0.300", &[][..], "excluded-addresses"),
        ("10.0.0.9-10.0.0.1", &[][..], "excluded-addresses"),
        ("", &[("nonsense", "shop")][..], "reserved-addresses"),
        ("", &[("10.0.0.1", "")][..], "no namespace and no Service"),
        (
            "",
            &[("10.0.0.1", "shop/web/x")][..],
            "no namespace and no Service",
        ),
    ] {
        let spec = with("a", "10.0.0.0/24", excluded, reserved);
        let errors = crate::Pool::parse(&spec).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].to_string().contains(message), "{}", errors[0]);
        assert!(!errors[0].remedy().is_empty());
    }
}
