use super::*;

#[test]
fn a_restored_address_outside_of_every_pool_is_held_until_it_moves() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    let mut durable = restore(&svc("web"), "192.0.2.1");
    durable.pool = Some(name("gone"));
    assert_eq!(allocator.restore(&durable), vec![]);
    assert_eq!(
        allocator.holders(ip("192.0.2.1"))[0].service,
        service("web")
    );
    let proposal = allocator.settle(&svc("web")).unwrap();
    assert_eq!(
        proposal.decision,
        Decision::Move {
            from: ips("192.0.2.1"),
            why: Why::PoolGone {
                address: ip("192.0.2.1"),
                pool: Some(name("gone"))
            },
        }
    );
}

#[test]
fn while_pools_may_be_missing_an_address_in_no_pool_stays_and_afterwards_it_moves() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.restore(&restore(&svc("web"), "192.0.2.1"));
    allocator.set_incomplete(true);
    let proposal = allocator.settle(&svc("web")).unwrap();
    assert_eq!(proposal.decision, Decision::Keep);
    assert_eq!(proposal.unmet, Some(Refusal::PoolsIncomplete));
    assert_eq!(allocator.holds(&svc("web")), ips("192.0.2.1"));
    assert_eq!(
        allocator.give(&svc("new")),
        ips("10.0.0.0"),
        "known pools go on serving"
    );
    allocator.set_incomplete(false);
    let proposal = allocator.settle(&svc("web")).unwrap();
    assert!(matches!(proposal.decision, Decision::Move { .. }));
}

#[test]
fn while_pools_may_be_missing_a_service_may_still_ask_for_a_pool_that_is_known() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    let request = svc("web").in_pool("a");
    allocator.restore(&restore(&request, "192.0.2.1"));
    allocator.set_incomplete(true);
    let proposal = allocator.settle(&request).unwrap();
    assert!(matches!(proposal.decision, Decision::Move { .. }));
}

#[test]
fn of_two_services_with_one_address_in_status_the_first_by_name_keeps_it() {
    for order in [["a", "b"], ["b", "a"]] {
        let mut allocator = allocator([pool("p", "10.0.0.0/24")]);
        let all = order.map(|name| restore(&svc(name), "10.0.0.9")).into();
        let refused = allocator.restore_all(all);
        assert_eq!(
            refused,
            vec![(
                svc("b").claimant,
                Refusal::Conflict(Conflict::AddressTaken {
                    address: ip("10.0.0.9"),
                    holder: service("a")
                }),
            )]
        );
        assert_eq!(allocator.holds(&svc("a")), ips("10.0.0.9"));
        assert_eq!(allocator.give(&svc("b")), ips("10.0.0.0"));
    }
}

#[test]
fn of_two_services_with_one_address_in_status_the_one_that_asks_for_it_keeps_it() {
    let mut allocator = allocator([pool("p", "10.0.0.0/24")]);
    let asking = svc("b").asks("10.0.0.9");
    allocator.restore_all(vec![
        restore(&svc("a"), "10.0.0.9"),
        restore(&asking, "10.0.0.9"),
    ]);
    assert_eq!(allocator.holds(&asking), ips("10.0.0.9"));
    assert_eq!(allocator.holds(&svc("a")), ips(""));
}

#[test]
fn sharers_are_restored_together() {
    let mut allocator = allocator([pool("p", "10.0.0.0/24")]);
    let services = [
        svc("a").key("k").ports(&[80]),
        svc("b").key("k").ports(&[81]),
    ];
    let all = services
        .iter()
        .map(|request| restore(request, "10.0.0.9"))
        .collect();
    assert_eq!(allocator.restore_all(all), vec![]);
    for request in &services {
        assert_eq!(allocator.settle(request).unwrap().decision, Decision::Keep);
    }
    assert_eq!(
        allocator.give(&svc("c").key("k").ports(&[82])),
        ips("10.0.0.9")
    );
}

#[test]
fn of_a_status_with_too_many_addresses_the_first_of_each_family_is_restored() {
    let mut allocator = allocator([pool("p", "10.0.0.0/24, fd00::/120")]);
    let refused = allocator.restore(&restore(&svc("a"), "fd00::1 10.0.0.5 10.0.0.6"));
    assert_eq!(
        refused,
        vec![Refusal::TooManyAddresses {
            addresses: vec![ip("fd00::1"), ip("10.0.0.5"), ip("10.0.0.6")],
        }]
    );
    assert_eq!(allocator.holds(&svc("a")), ips("10.0.0.5 fd00::1"));
    assert!(allocator.holders(ip("10.0.0.6")).is_empty());
}

#[test]
fn restoring_a_service_again_replaces_its_claim() {
    let mut allocator = allocator([pool("p", "10.0.0.0/24")]);
    allocator.restore(&restore(&svc("a"), "10.0.0.5"));
    allocator.restore(&restore(&svc("a"), "10.0.0.6"));
    assert!(allocator.holders(ip("10.0.0.5")).is_empty());
    assert_eq!(allocator.holds(&svc("a")), ips("10.0.0.6"));
}

#[test]
fn the_pool_that_was_noted_explains_a_move_although_the_other_address_lies_elsewhere() {
    let mut allocator = allocator([pool("new", "fd00::/120")]);
    let request = svc("web").require_dual();
    let mut durable = restore(&request, "10.0.0.1 fd00::1");
    durable.pool = Some(name("old"));
    allocator.restore(&durable);
    let proposal = allocator.settle(&request).unwrap();
    assert_eq!(
        proposal.decision.why(),
        Some(&Why::PoolGone {
            address: ip("10.0.0.1"),
            pool: Some(name("old"))
        })
    );
}
