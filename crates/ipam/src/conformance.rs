//! The allocation rows of the conformance table, by their numbers.
//!
//! Where a row differs from the reference on purpose, the test says so.

use landfall_model::rows::{Family, FamilyPolicy};
use landfall_model::{Code, ServiceKey};

use crate::testing::{allocator, exists, ip, ips, name, pool, pool_set, selector, svc};
use crate::{
    Allocator, Counters, Decision, PassedOver, PoolSet, Refusal, Restore, Verdict, WantedFamilies,
    Why, parse_requested_addresses,
};

fn service(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

fn restore(name: &str, addresses: &str) -> Restore {
    Restore {
        claimant: svc(name).claimant,
        addresses: addresses.split_whitespace().map(ip).collect(),
        pool: None,
        requested: ips(""),
    }
}

#[test]
fn row_01_the_first_service_gets_the_first_address() {
    let mut allocator = allocator([pool("a", "10.0.0.0/30")]);
    let proposal = allocator.settle(&svc("web")).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.0"));
    assert_eq!(proposal.pool, Some(name("a")));
    assert_eq!(proposal.decision, Decision::Claim);
    assert_eq!(proposal.unmet, None);
}

#[test]
fn row_02_a_range_is_used_up_in_order_and_then_the_next_service_is_refused() {
    let mut allocator = allocator([pool("a", "10.0.0.5 - 10.0.0.7")]);
    let given = ["s1", "s2", "s3"].map(|name| allocator.give(&svc(name)));
    assert_eq!(given, [ips("10.0.0.5"), ips("10.0.0.6"), ips("10.0.0.7")]);
    let refusal = allocator.propose(&svc("s4")).unwrap_err();
    assert_eq!(
        refusal,
        Refusal::PoolsExhausted {
            families: WantedFamilies::Only(Family::V4),
            passed_over: vec![PassedOver {
                pool: name("a"),
                verdict: Verdict::Full(Family::V4),
            }],
        }
    );
    assert_eq!(refusal.code(), Code::PoolExhausted);
}

#[test]
fn row_03_host_bits_of_a_prefix_are_masked() {
    let mut allocator = allocator([pool("a", "198.51.100.10/24")]);
    assert_eq!(allocator.give(&svc("web")), ips("198.51.100.0"));
}

#[test]
fn row_04_buggy_addresses_are_never_given_and_refused_on_request() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24").avoiding()]);
    for number in 1..=254 {
        let given = allocator.give(&svc(&format!("s{number}")));
        assert_eq!(given, ips(&format!("10.0.0.{number}")));
    }
    assert!(allocator.propose(&svc("one-more")).is_err());
    for address in ["10.0.0.0", "10.0.0.255"] {
        assert_eq!(
            allocator.propose(&svc("asking").asks(address)),
            Err(Refusal::AddressAvoided {
                address: ip(address),
                pool: name("a")
            })
        );
    }
}

#[test]
fn row_05_a_released_address_goes_to_the_service_that_waits() {
    let mut allocator = allocator([pool("a", "10.0.0.1/32")]);
    assert_eq!(allocator.give(&svc("a")), ips("10.0.0.1"));
    assert!(allocator.propose(&svc("b")).is_err());
    let released = allocator.release(svc("a").uid()).unwrap();
    assert_eq!(released.addresses, ips("10.0.0.1"));
    assert_eq!(allocator.give(&svc("b")), ips("10.0.0.1"));
}

#[test]
fn row_07_a_restart_changes_no_address_and_a_new_service_takes_a_free_one() {
    let mut before = allocator([pool("a", "10.0.0.0/26")]);
    let names: Vec<String> = (0..50).map(|number| format!("s{number:02}")).collect();
    for name in &names {
        before.give(&svc(name));
    }
    // A hole in the middle, which a restart must not lose either.
    before.release(svc("s20").uid());
    let durable: Vec<Restore> = before
        .claims()
        .into_iter()
        .map(|claim| Restore {
            claimant: claim.claimant.clone(),
            addresses: claim.addresses.iter().collect(),
            pool: claim.pool.clone(),
            requested: ips(""),
        })
        .collect();
    let mut after = allocator([pool("a", "10.0.0.0/26")]);
    assert_eq!(after.restore_all(durable), vec![]);
    assert_eq!(after.give(&svc("new")), ips("10.0.0.20"));
    for name in names.iter().filter(|name| *name != "s20") {
        let proposal = after.propose(&svc(name)).unwrap();
        assert_eq!(proposal.decision, Decision::Keep);
        assert_eq!(proposal.addresses, before.holds(&svc(name)));
    }
}

#[test]
fn row_08_a_requested_address_is_given_although_its_pool_does_not_assign_by_itself() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24").manual()]);
    assert_eq!(
        allocator.give(&svc("web").asks("10.0.0.77")),
        ips("10.0.0.77")
    );
    assert_eq!(
        allocator.propose(&svc("other")),
        Err(Refusal::NoPoolForService {
            service: service("other"),
            passed_over: vec![PassedOver {
                pool: name("a"),
                verdict: Verdict::NotAutomatic
            }],
        })
    );
}

#[test]
fn row_09_the_field_in_the_spec_asks_as_the_annotation_does() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    let mut request = svc("web");
    request.addresses = parse_requested_addresses(&[
        ("metallb.io/loadBalancerIPs", ""),
        ("spec.loadBalancerIP", "10.0.0.9"),
    ])
    .unwrap();
    assert_eq!(allocator.give(&request), ips("10.0.0.9"));
}

#[test]
fn row_10_asking_in_both_places_is_an_error_that_names_both() {
    let refusal = parse_requested_addresses(&[
        ("metallb.io/loadBalancerIPs", "10.0.0.9"),
        ("spec.loadBalancerIP", "10.0.0.9"),
    ])
    .unwrap_err();
    assert_eq!(
        refusal,
        Refusal::AddressesSetTwice {
            key: "metallb.io/loadBalancerIPs".into(),
            other: "spec.loadBalancerIP".into(),
        }
    );
    assert_eq!(refusal.code(), Code::ConflictingOptions);
}

#[test]
fn row_11_an_address_in_no_pool_is_refused_by_name() {
    let allocator = allocator([pool("a", "10.0.0.0/24"), pool("b", "10.0.1.0/24")]);
    let refusal = allocator
        .propose(&svc("web").asks("192.0.2.1"))
        .unwrap_err();
    assert_eq!(
        refusal,
        Refusal::AddressNotInPool {
            address: ip("192.0.2.1"),
            known: vec![name("a"), name("b")],
        }
    );
    assert!(refusal.to_string().contains("192.0.2.1"));
}

#[test]
fn row_13_a_change_to_a_free_address_moves_the_service() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("web").asks("10.0.0.5"));
    let proposal = allocator.settle(&svc("web").asks("10.0.0.6")).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.6"));
    assert_eq!(
        proposal.decision,
        Decision::Move {
            from: ips("10.0.0.5"),
            why: Why::AddressesRequested {
                addresses: ips("10.0.0.6")
            },
        }
    );
    assert!(allocator.holders(ip("10.0.0.5")).is_empty());
}

#[test]
fn row_14_a_change_to_a_taken_address_keeps_the_old_one() {
    // The reference takes the old address away and speaks of sharing keys.
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("other").asks("10.0.0.6"));
    allocator.give(&svc("web").asks("10.0.0.5"));
    let proposal = allocator.settle(&svc("web").asks("10.0.0.6")).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.5"));
    assert_eq!(proposal.decision, Decision::Keep);
    let refusal = proposal.unmet.unwrap();
    assert_eq!(
        refusal,
        Refusal::AddressTaken {
            address: ip("10.0.0.6"),
            holder: service("other")
        }
    );
    assert_eq!(refusal.to_string(), "10.0.0.6 is held by default/other");
}

#[test]
fn row_15_the_requested_pool_is_used_and_a_change_of_it_moves() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24"), pool("b", "10.0.1.0/24")]);
    assert_eq!(allocator.give(&svc("web").in_pool("b")), ips("10.0.1.0"));
    let proposal = allocator.settle(&svc("web").in_pool("a")).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.0"));
    assert_eq!(
        proposal.decision,
        Decision::Move {
            from: ips("10.0.1.0"),
            why: Why::PoolRequested {
                from: name("b"),
                to: name("a")
            },
        }
    );
}

#[test]
fn row_16_an_address_of_one_pool_with_the_name_of_another_is_refused() {
    let allocator = allocator([pool("a", "10.0.0.0/24"), pool("b", "10.0.1.0/24")]);
    assert_eq!(
        allocator.propose(&svc("web").asks("10.0.0.1").in_pool("b")),
        Err(Refusal::AddressInOtherPool {
            address: ip("10.0.0.1"),
            pool: name("a"),
            requested: name("b"),
        })
    );
}

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
fn row_26_services_with_one_key_and_different_ports_share() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    assert_eq!(
        allocator.give(&svc("x").key("k").ports(&[80])),
        ips("10.0.0.0")
    );
    assert_eq!(
        allocator.give(&svc("y").key("k").ports(&[81])),
        ips("10.0.0.0")
    );
    let holders: Vec<_> = allocator
        .holders(ip("10.0.0.0"))
        .into_iter()
        .map(|h| h.service.clone())
        .collect();
    assert_eq!(holders, [service("x"), service("y")]);
}

#[test]
fn row_27_services_with_one_key_and_one_port_get_different_addresses() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("x").key("k").ports(&[80]));
    assert_eq!(
        allocator.give(&svc("y").key("k").ports(&[80, 81])),
        ips("10.0.0.1")
    );
    let refusal = allocator
        .propose(&svc("z").key("k").ports(&[80]).asks("10.0.0.0"))
        .unwrap_err();
    assert_eq!(
        refusal,
        Refusal::SharingPortsClash {
            address: ip("10.0.0.0"),
            holder: service("x"),
            ports: crate::testing::tcp(&[80]).into_iter().collect(),
        }
    );
}

#[test]
fn row_28_one_port_number_of_two_protocols_can_be_shared() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    assert_eq!(
        allocator.give(&svc("tcp").key("dns").ports(&[53])),
        ips("10.0.0.0")
    );
    assert_eq!(
        allocator.give(&svc("udp").key("dns").udp(53)),
        ips("10.0.0.0")
    );
}

#[test]
fn row_29_a_requested_address_with_another_key_is_refused() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("x").key("k").asks("10.0.0.7"));
    let refusal = allocator
        .propose(&svc("y").key("j").ports(&[81]).asks("10.0.0.7"))
        .unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "10.0.0.7 is held by default/x with the sharing key \"k\", and the sharing key here is \
         \"j\""
    );
}

#[test]
fn row_31_who_turns_local_alone_loses_the_shared_address_until_the_other_follows() {
    let first = || svc("first").key("k").ports(&[80]);
    let second = || svc("second").key("k").ports(&[81]);
    let mut allocator = allocator([pool("a", "10.0.0.1/32")]);
    allocator.give(&first());
    assert_eq!(allocator.give(&second()), ips("10.0.0.1"));

    let proposal = allocator.settle(&second().local("app=web")).unwrap();
    let Decision::GiveUp {
        from,
        why: Why::NotAllowed(refusal),
    } = proposal.decision
    else {
        panic!("{:?}", proposal.decision);
    };
    assert_eq!(from, ips("10.0.0.1"));
    assert!(
        matches!(refusal, Refusal::SharingBackendDiffers { .. }),
        "{refusal:?}"
    );
    assert_eq!(allocator.holds(&first()), ips("10.0.0.1"));

    assert_eq!(allocator.give(&first().local("app=web")), ips("10.0.0.1"));
    assert_eq!(allocator.give(&second().local("app=web")), ips("10.0.0.1"));
}

#[test]
fn row_31_with_room_in_the_pool_the_one_that_turned_moves() {
    let mut allocator = allocator([pool("a", "10.0.0.0/30")]);
    allocator.give(&svc("first").key("k").ports(&[80]));
    allocator.give(&svc("second").key("k").ports(&[81]));
    let second = svc("second").key("k").ports(&[81]).local("app=web");
    let proposal = allocator.settle(&second).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.1"));
    assert!(matches!(proposal.decision, Decision::Move { .. }));
}

#[test]
fn row_32_required_dual_stack_gives_ipv4_before_ipv6() {
    let mut allocator = allocator([pool("a", "fd00::/120, 10.0.0.0/24")]);
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
            passed_over: vec![PassedOver {
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
        pool("b6", "fd00::/120"),
        pool("c", "10.0.1.0/24, fd01::/120"),
    ]);
    assert_eq!(
        allocator.give(&svc("web").prefer_dual(Family::V4)),
        ips("10.0.1.0 fd01::")
    );
}

#[test]
fn row_35_preferred_dual_stack_falls_back_to_the_first_family() {
    let mut allocator = allocator([pool("a4", "10.0.0.0/24"), pool("b6", "fd00::/120")]);
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
        pool("dual", "10.0.1.0/24, fd00::/120"),
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
    let mut allocator = allocator([pool("dual", "10.0.0.0/24, fd00::/120")]);
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
        pool("a", "10.0.0.0/24, fd00::/120").avoiding(),
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
    assert_eq!(available, [i64::MAX, 65_536]);
}

#[test]
fn a_pool_limited_by_a_selector_that_matches_no_namespace_is_closed_to_all() {
    // The reference opens it to everybody who names it.
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

#[test]
fn local_without_a_selector_shares_neither_with_cluster_nor_with_its_like() {
    // The reference lets it share with Cluster.
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("cluster").key("k").ports(&[80]));
    assert_eq!(
        allocator.give(&svc("x").key("k").ports(&[81]).local("")),
        ips("10.0.0.1")
    );
    let asking = svc("y").key("k").ports(&[82]).local("");
    assert!(matches!(
        allocator.propose(&asking.clone().asks("10.0.0.0")),
        Err(Refusal::SharingBackendDiffers { .. })
    ));
    assert_eq!(
        allocator.propose(&asking.asks("10.0.0.1")),
        Err(Refusal::SharingNeedsSelector {
            address: ip("10.0.0.1"),
            holder: service("x")
        })
    );
}

#[test]
fn a_pool_without_the_family_says_so() {
    // The reference says "not allowed" of an address that is not there.
    let allocator = allocator([pool("six", "fd00::/120")]);
    let refusal = allocator.propose(&svc("web").in_pool("six")).unwrap_err();
    assert_eq!(refusal.to_string(), "pool six has no IPv4");
}
