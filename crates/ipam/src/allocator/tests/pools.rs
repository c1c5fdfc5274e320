use super::*;

#[test]
fn a_renamed_pool_keeps_its_services_and_gives_them_the_new_name() {
    let mut allocator = allocator([pool("old", "10.0.0.0/24")]);
    allocator.give(&svc("web"));
    allocator.set_pools(pool_set([pool("new", "10.0.0.0/24")]));
    let proposal = allocator.settle(&svc("web")).unwrap();
    assert_eq!(proposal.decision, Decision::Keep);
    assert_eq!(proposal.pool, Some(name("new")));
    assert_eq!(
        allocator.held(svc("web").uid()).unwrap().pool,
        Some(name("new"))
    );
}

#[test]
fn disabling_auto_assign_keeps_the_services_that_are_there() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("web"));
    allocator.set_pools(pool_set([
        pool("a", "10.0.0.0/24").manual(),
        pool("b", "10.0.1.0/24"),
    ]));
    assert_eq!(
        allocator.settle(&svc("web")).unwrap().decision,
        Decision::Keep
    );
    assert_eq!(allocator.give(&svc("new")), ips("10.0.1.0"));
}

#[test]
fn enabling_avoid_buggy_ips_moves_a_service_that_holds_such_an_address() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("zero"));
    allocator.give(&svc("one"));
    allocator.set_pools(pool_set([pool("a", "10.0.0.0/24").avoiding()]));
    assert_eq!(allocator.counters()[0].assigned_ipv4, 2);
    assert_eq!(allocator.counters()[0].available_ipv4, 253);
    let proposal = allocator.settle(&svc("zero")).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.2"));
    assert_eq!(
        proposal.decision,
        Decision::Move {
            from: ips("10.0.0.0"),
            why: Why::NotAllowed(Refusal::AddressAvoided {
                address: ip("10.0.0.0"),
                pool: name("a"),
            }),
        }
    );
    assert_eq!(
        allocator.settle(&svc("one")).unwrap().decision,
        Decision::Keep
    );
}

#[test]
fn an_avoided_address_that_is_still_held_is_not_offered_for_sharing() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("zero").key("k").ports(&[80]));
    allocator.set_pools(pool_set([pool("a", "10.0.0.0/24").avoiding()]));
    assert_eq!(
        allocator.give(&svc("new").key("k").ports(&[81])),
        ips("10.0.0.1")
    );
}

#[test]
fn without_a_place_to_go_an_address_outside_of_all_pools_is_given_up() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("web"));
    allocator.set_pools(pool_set([pool("six", "fd00::/120")]));
    let proposal = allocator.settle(&svc("web")).unwrap();
    assert_eq!(
        proposal.decision,
        Decision::GiveUp {
            from: ips("10.0.0.0"),
            why: Why::PoolGone {
                address: ip("10.0.0.0"),
                pool: Some(name("a"))
            },
        }
    );
    assert_eq!(proposal.pool, None);
    assert_eq!(proposal.unmet.unwrap().code(), Code::NoAddressOfFamily);
    assert_eq!(allocator.held(svc("web").uid()), None);
}

#[test]
fn the_anycast_address_of_an_ipv6_prefix_is_assigned_only_on_request() {
    let six = |name: &str| Request {
        families: WantedFamilies::Only(Family::V6),
        ..svc(name)
    };
    let mut allocator = allocator([pool("a", "fd00:77::/126")]);
    assert_eq!(allocator.counters()[0].available_ipv6, 3);
    assert_eq!(allocator.give(&six("x")), ips("fd00:77::1"));
    assert_eq!(
        allocator.give(&six("asking").asks("fd00:77::")),
        ips("fd00:77::")
    );
    allocator.give(&six("y"));
    allocator.give(&six("z"));
    assert_eq!(allocator.counters()[0].available_ipv6, 0);
    assert_eq!(allocator.counters()[0].assigned_ipv6, 4);
    // Given back, it is no one's again.
    allocator.release(six("asking").uid());
    assert!(allocator.propose(&six("late")).is_err());
    // A Service that had it before keeps it.
    let old = six("old");
    let restored = allocator.restore(&Restore {
        claimant: Arc::clone(&old.claimant),
        addresses: vec![ip("fd00:77::")],
        pool: None,
        requested: Addresses::NONE,
    });
    assert_eq!(restored, []);
    assert_eq!(allocator.settle(&old).unwrap().decision, Decision::Keep);
}

#[test]
fn a_prefix_of_one_or_two_addresses_and_a_range_have_no_anycast_address() {
    for (text, first) in [
        ("fd00:77::4/128", "fd00:77::4"),
        ("fd00:77::4/127", "fd00:77::4"),
        ("fd00:77::4-fd00:77::9", "fd00:77::4"),
    ] {
        let mut allocator = allocator([pool("a", text)]);
        let six = Request {
            families: WantedFamilies::Only(Family::V6),
            ..svc("x")
        };
        assert_eq!(allocator.give(&six), ips(first), "{text}");
    }
}
