//! First addresses, explicit addresses and named pools: rows 1 to 16.

use super::*;

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
            skipped: vec![SkippedPool {
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
            skipped: vec![SkippedPool {
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
        Refusal::Conflict(Conflict::AddressTaken {
            address: ip("10.0.0.6"),
            holder: service("other")
        })
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
