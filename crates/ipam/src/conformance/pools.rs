//! Which pool, and what happens when pools change: rows 19 to 25 and 40 to 45.

use super::*;

#[test]
fn row_19_a_pool_for_a_namespace_serves_it_first_and_no_other() {
    let mut allocator = allocator([
        pool("p", "10.0.0.1/32").namespace("ns1"),
        pool("q", "10.0.1.0/24"),
    ]);
    assert_eq!(allocator.give(&svc("ns2/web")), ips("10.0.1.0"));
    assert_eq!(allocator.give(&svc("ns1/web")), ips("10.0.0.1"));
    assert_eq!(
        allocator.give(&svc("ns1/api")),
        ips("10.0.1.1"),
        "p is used up"
    );
}

#[test]
fn row_20_a_service_that_loses_the_label_of_its_pool_moves() {
    let mut allocator = allocator([
        pool("p", "10.0.0.0/24").services_with(selector("tier=front")),
        pool("q", "10.0.1.0/24"),
    ]);
    assert_eq!(
        allocator.give(&svc("web").labelled("tier=front")),
        ips("10.0.0.0")
    );
    let proposal = allocator.settle(&svc("web")).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.1.0"));
    assert_eq!(
        proposal.decision,
        Decision::Move {
            from: ips("10.0.0.0"),
            why: Why::NotAllowed(Refusal::PoolNotForLabels {
                pool: name("p"),
                service: service("web"),
            }),
        }
    );
}

#[test]
fn row_21_a_namespace_and_a_label_are_both_needed() {
    let both = pool("p", "10.0.0.0/24")
        .namespace("ns1")
        .services_with(selector("tier=front"));
    let mut allocator = allocator([both, pool("q", "10.0.1.0/24")]);
    assert_eq!(allocator.give(&svc("ns1/a")), ips("10.0.1.0"));
    assert_eq!(
        allocator.give(&svc("ns2/b").labelled("tier=front")),
        ips("10.0.1.1")
    );
    assert_eq!(
        allocator.give(&svc("ns1/c").labelled("tier=front")),
        ips("10.0.0.0")
    );
}

#[test]
fn row_22_lower_priority_comes_first_and_unset_comes_last() {
    let mut allocator = allocator([
        pool("unset", "10.0.0.0/32").namespace("default"),
        pool("twenty", "10.0.1.0/32")
            .namespace("default")
            .priority(20),
        pool("ten", "10.0.2.0/32").namespace("default").priority(10),
    ]);
    let given = ["s1", "s2", "s3"].map(|name| allocator.give(&svc(name)));
    assert_eq!(given, [ips("10.0.2.0"), ips("10.0.1.0"), ips("10.0.0.0")]);
}

#[test]
fn row_23_a_pool_with_only_a_priority_comes_before_plain_pools_for_everybody() {
    let mut allocator = allocator([
        pool("a", "10.0.0.0/24"),
        pool("z", "10.0.1.0/24").priority(50),
    ]);
    assert_eq!(allocator.give(&svc("any/web")), ips("10.0.1.0"));
}

#[test]
fn row_25_of_equal_pools_the_first_by_name_is_used_on_every_run() {
    // The reference takes either.
    for _ in 0..20 {
        let mut allocator = allocator([pool("b", "10.0.1.0/24"), pool("a", "10.0.0.0/24")]);
        assert_eq!(allocator.give(&svc("web")), ips("10.0.0.0"));
    }
}

#[test]
fn row_40_when_its_pool_is_deleted_a_service_moves_to_another() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24"), pool("b", "10.0.1.0/24")]);
    allocator.give(&svc("web"));
    allocator.set_pools(pool_set([pool("b", "10.0.1.0/24")]));
    let proposal = allocator.settle(&svc("web")).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.1.0"));
    assert_eq!(
        proposal.decision,
        Decision::Move {
            from: ips("10.0.0.0"),
            why: Why::PoolGone {
                address: ip("10.0.0.0"),
                pool: Some(name("a"))
            },
        }
    );
}

#[test]
fn row_41_without_any_pool_addresses_are_kept_and_the_same_when_a_pool_returns() {
    // The reference empties every status within milliseconds and permutes the addresses later.
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    let names = ["s1", "s2", "s3"];
    let given = names.map(|name| allocator.give(&svc(name)));
    allocator.set_pools(PoolSet::default());
    for (name, held) in names.into_iter().zip(given) {
        let proposal = allocator.settle(&svc(name)).unwrap();
        assert_eq!(proposal.addresses, held);
        assert_eq!(proposal.decision, Decision::Keep);
        assert_eq!(proposal.unmet, Some(Refusal::NoPools));
    }
    assert_eq!(allocator.propose(&svc("new")), Err(Refusal::NoPools));
    allocator.set_pools(pool_set([pool("a", "10.0.0.0/24")]));
    assert_eq!(names.map(|name| allocator.give(&svc(name))), given);
    assert_eq!(allocator.give(&svc("new")), ips("10.0.0.3"));
}

#[test]
fn row_41_a_restart_without_pools_keeps_what_the_status_says() {
    let mut allocator = Allocator::default();
    assert_eq!(allocator.restore(&restore("web", "10.0.0.9")), vec![]);
    let proposal = allocator.settle(&svc("web")).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.9"));
    assert_eq!(proposal.unmet, Some(Refusal::NoPools));
}

#[test]
fn row_43_a_service_outside_of_its_shrunk_pool_moves() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("web"));
    allocator.set_pools(pool_set([pool("a", "10.0.0.8-10.0.0.9")]));
    let proposal = allocator.settle(&svc("web")).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.8"));
    assert_eq!(
        proposal.decision,
        Decision::Move {
            from: ips("10.0.0.0"),
            why: Why::PoolShrunk {
                address: ip("10.0.0.0"),
                pool: name("a")
            },
        }
    );
}

#[test]
fn row_45_the_four_counters_follow_and_a_large_ipv6_pool_saturates() {
    let counters = |allocator: &Allocator| -> Vec<[i64; 4]> {
        let of = |c: Counters| {
            [
                c.assigned_ipv4,
                c.available_ipv4,
                c.assigned_ipv6,
                c.available_ipv6,
            ]
        };
        allocator.counters().into_iter().map(of).collect()
    };
    let mut allocator = allocator([
        pool("a", "10.0.0.0/24, fd00::-fd00::ff").avoiding(),
        pool("big", "fd01::/48").manual(),
        pool("n-flat", "10.1.0.0/16").manual().avoiding(),
    ]);
    let untouched = [[0, 254, 0, 256], [0, 0, 0, i64::MAX], [0, 254 * 256, 0, 0]];
    assert_eq!(counters(&allocator), untouched);
    allocator.give(&svc("dual").require_dual().key("k"));
    allocator.give(&svc("sharing").require_dual().key("k").ports(&[81]));
    allocator.give(&svc("big").v6().in_pool("big"));
    assert_eq!(
        counters(&allocator),
        [[1, 253, 1, 255], [0, 0, 1, i64::MAX], [0, 254 * 256, 0, 0]]
    );
    for name in ["dual", "sharing", "big"] {
        allocator.release(svc(name).uid());
    }
    assert_eq!(counters(&allocator), untouched);
}

#[test]
fn row_45_avoiding_buggy_addresses_subtracts_nothing_from_ipv6() {
    // The reference subtracts two per 256 addresses from IPv6 prefixes of 24 bits or shorter too.
    let allocator = allocator([
        pool("large", "fd00::/16").avoiding(),
        pool("small", "fe00::/112").avoiding(),
    ]);
    let available: Vec<i64> = allocator
        .counters()
        .into_iter()
        .map(|counters| counters.available_ipv6)
        .collect();
    // Of a prefix, the anycast address of routers is not given out.
    assert_eq!(available, [i64::MAX, 65_535]);
}

#[test]
fn a_pool_limited_by_a_selector_that_matches_no_namespace_is_closed_to_all() {
    // The reference opens it to every Service that names it.
    let allocator = allocator([pool("a", "10.0.0.0/24").namespaces_with(exists("team"))]);
    let request = svc("web").in_pool("a");
    assert_eq!(
        allocator.propose(&request),
        Err(Refusal::PoolNotForNamespace {
            pool: name("a"),
            namespace: "default".into()
        })
    );
    assert!(
        allocator
            .propose(&request.in_namespace_labelled("team=x"))
            .is_ok()
    );
}
