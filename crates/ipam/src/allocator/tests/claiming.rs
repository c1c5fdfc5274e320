use super::*;

#[test]
fn of_two_proposals_for_one_address_the_second_claim_is_refused_and_changes_nothing() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    let (first, second) = (svc("first"), svc("second"));
    let proposals = [&first, &second].map(|request| allocator.propose(request).unwrap());
    assert_eq!(proposals[0].addresses, proposals[1].addresses);
    allocator.claim(&first, &proposals[0]).unwrap();
    assert_eq!(
        allocator.claim(&second, &proposals[1]),
        Err(Refusal::Conflict(Conflict::AddressTaken {
            address: ip("10.0.0.0"),
            holder: service("first")
        }))
    );
    assert_eq!(allocator.held(second.uid()), None);
    assert_eq!(allocator.give(&second), ips("10.0.0.1"));
}

#[test]
fn a_refused_claim_of_two_addresses_takes_neither() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24, fd00::/120")]);
    let proposal = allocator.propose(&svc("dual").require_dual()).unwrap();
    allocator.give(&svc("six").v6());
    let refusal = allocator
        .claim(&svc("dual").require_dual(), &proposal)
        .unwrap_err();
    assert_eq!(refusal.code(), Code::AddressInUse);
    assert!(allocator.holders(ip("10.0.0.0")).is_empty());
}

#[test]
fn a_proposal_from_before_the_pools_changed_is_refused() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    let proposal = allocator.propose(&svc("web")).unwrap();
    allocator.set_pools(pool_set([pool("b", "10.0.1.0/24")]));
    assert_eq!(
        allocator.claim(&svc("web"), &proposal),
        Err(Refusal::AddressNotInPool {
            address: ip("10.0.0.0"),
            known: vec![name("b")]
        })
    );
}

#[test]
fn a_clone_is_independent() {
    let mut real = allocator([pool("a", "10.0.0.0/24")]);
    real.give(&svc("web"));
    let mut dry = real.clone();
    dry.give(&svc("other"));
    dry.release(svc("web").uid());
    assert_eq!(real.claims().len(), 1);
    assert_eq!(real.holds(&svc("web")), ips("10.0.0.0"));
    assert_eq!(real.give(&svc("other")), ips("10.0.0.1"));
}

#[test]
fn releasing_a_service_that_holds_nothing_changes_nothing() {
    assert_eq!(allocator([]).release(svc("web").uid()), None);
}

#[test]
fn the_lowest_free_address_is_reused_at_once() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    for service in ["s0", "s1", "s2"] {
        allocator.give(&svc(service));
    }
    allocator.release(svc("s1").uid());
    assert_eq!(allocator.give(&svc("new")), ips("10.0.0.1"));
    assert_eq!(allocator.give(&svc("newer")), ips("10.0.0.3"));
}

#[test]
fn entries_are_used_in_the_order_in_which_they_are_listed() {
    let mut allocator = allocator([pool("a", "10.0.9.0/32, 10.0.1.0/31, 10.0.5.0/32")]);
    let given = ["s0", "s1", "s2", "s3"].map(|name| allocator.give(&svc(name)));
    assert_eq!(
        given,
        [
            ips("10.0.9.0"),
            ips("10.0.1.0"),
            ips("10.0.1.1"),
            ips("10.0.5.0")
        ]
    );
}

#[test]
fn what_a_service_moved_away_from_is_given_to_no_other_until_it_is_freed() {
    let mut allocator = allocator([pool("a", "10.0.0.0/31")]);
    allocator.give(&svc("web"));
    let moved = svc("web").asks("10.0.0.1");
    let proposal = allocator.propose(&moved).unwrap();
    allocator.claim(&moved, &proposal).unwrap();
    assert_eq!(allocator.leaving(moved.uid()), [ip("10.0.0.0")]);
    assert!(allocator.propose(&svc("other")).is_err());
    allocator.free(moved.uid());
    assert_eq!(allocator.leaving(moved.uid()), [] as [std::net::IpAddr; 0]);
    assert_eq!(allocator.give(&svc("other")), ips("10.0.0.0"));
    assert_eq!(allocator.holds(&moved), ips("10.0.0.1"));
}

#[test]
fn a_service_may_come_back_to_what_it_gave_up() {
    let mut allocator = allocator([pool("a", "10.0.0.0/31")]);
    allocator.give(&svc("web"));
    allocator.retire(svc("web").uid());
    assert_eq!(allocator.held(svc("web").uid()), None);
    let counters = allocator.counters();
    let again = svc("web").asks("10.0.0.0").ports(&[443]);
    let proposal = allocator.propose(&again).unwrap();
    allocator.claim(&again, &proposal).unwrap();
    assert_eq!(allocator.leaving(again.uid()), [] as [std::net::IpAddr; 0]);
    allocator.free(again.uid());
    assert_eq!(allocator.holds(&again), ips("10.0.0.0"));
    assert_eq!(allocator.counters(), counters);
    assert_eq!(allocator.holders(ip("10.0.0.0")).len(), 1);
}
