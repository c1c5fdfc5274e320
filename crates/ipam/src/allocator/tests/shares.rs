//! How much of a pool one namespace may hold.

use super::*;

fn refused(allocator: &Allocator, request: &Request) -> Refusal {
    allocator.propose(request).unwrap_err()
}

/// How many Services of one IPv4 address each the namespace gets.
fn fill(allocator: &mut Allocator, namespace: &str) -> usize {
    let services = (0..64).map(|number| svc(&format!("{namespace}/s{number}")));
    let served = services.take_while(|request| allocator.settle(request).is_ok());
    served.count()
}

#[test]
fn a_namespace_that_holds_its_part_of_a_pool_gets_no_more_and_others_do() {
    let mut allocator = allocator([pool("a", "10.0.0.0/28").per_namespace(3)]);
    assert_eq!(fill(&mut allocator, "greedy"), 3);
    let used_up = Refusal::NamespaceFull {
        pool: name("a"),
        family: Family::V4,
        namespace: "greedy".into(),
        held: 3,
        most: 3,
    };
    for request in [
        svc("greedy/more").in_pool("a"),
        svc("greedy/more").asks("10.0.0.9"),
    ] {
        assert_eq!(refused(&allocator, &request), used_up);
        assert_eq!(used_up.code(), Code::LimitReached);
    }
    let of_any = refused(&allocator, &svc("greedy/more"));
    assert_eq!(of_any.code(), Code::LimitReached, "{of_any}");
    assert!(of_any.to_string().contains("a gives the namespace no more"));
    assert_eq!(fill(&mut allocator, "modest"), 3);
    // What is given back can be had again.
    allocator.release(svc("greedy/s1").uid());
    assert_eq!(allocator.give(&svc("greedy/more")), ips("10.0.0.1"));
}

#[test]
fn a_proposal_from_before_its_namespace_had_its_part_is_refused() {
    let mut allocator = allocator([pool("a", "10.0.0.0/28").per_namespace(1)]);
    let (first, second) = (svc("first"), svc("second").asks("10.0.0.5"));
    let proposals = [&first, &second].map(|request| allocator.propose(request).unwrap());
    allocator.claim(&first, &proposals[0]).unwrap();
    let refusal = allocator.claim(&second, &proposals[1]).unwrap_err();
    assert_eq!(refusal.code(), Code::LimitReached);
    assert_eq!(allocator.held(second.uid()), None);
}

#[test]
fn an_address_that_several_share_counts_once_for_their_namespace() {
    let mut allocator = allocator([pool("a", "10.0.0.0/28").per_namespace(1)]);
    for (name, port) in [("x", 80), ("y", 81), ("z", 82)] {
        let request = svc(name).key("k").ports(&[port]);
        assert_eq!(allocator.give(&request), ips("10.0.0.0"));
    }
    assert_eq!(
        refused(&allocator, &svc("own").in_pool("a")).code(),
        Code::LimitReached
    );
    // As long as one is left, the namespace holds it.
    for name in ["x", "z"] {
        allocator.release(svc(name).uid());
        assert!(allocator.propose(&svc("own")).is_err());
    }
    allocator.release(svc("y").uid());
    assert_eq!(allocator.give(&svc("own")), ips("10.0.0.0"));
}

#[test]
fn an_address_shared_across_namespaces_counts_for_each() {
    let specs = [pool("a", "10.0.0.0/28")
        .across_namespaces()
        .per_namespace(1)];
    let mut allocator = allocator(specs);
    allocator.give(&svc("one/x").key("k").ports(&[80]));
    allocator.give(&svc("two/own"));
    let joins = svc("two/y").key("k").ports(&[81]).in_pool("a");
    assert_eq!(refused(&allocator, &joins).code(), Code::LimitReached);
    allocator.release(svc("two/own").uid());
    assert_eq!(allocator.give(&joins), ips("10.0.0.0"));
    let largest = |allocator: &Allocator| allocator.counters()[0].largest_ipv4;
    assert_eq!(largest(&allocator), 1);
    // Pools that come again count the same.
    let pools = allocator.pools().clone();
    allocator.set_pools(pools);
    assert_eq!(
        refused(&allocator, &svc("one/z")).code(),
        Code::LimitReached
    );
    allocator.release(joins.uid());
    assert_eq!(allocator.give(&svc("two/own")), ips("10.0.0.1"));
}

#[test]
fn each_family_is_counted_by_itself() {
    let mut allocator = allocator([pool("a", "10.0.0.0/28, fd00::10-fd00::1f").per_namespace(1)]);
    allocator.give(&svc("four"));
    let six = svc("six").v6();
    assert_eq!(allocator.give(&six), ips("fd00::10"));
    // A Service that would rather have both keeps what it has.
    let both = svc("four").prefer_dual(Family::V4);
    let proposal = allocator.settle(&both).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.0"));
    assert_eq!(proposal.unmet.map(|it| it.code()), Some(Code::LimitReached));
}

#[test]
fn a_lower_limit_takes_nothing_away_and_a_service_may_still_exchange_its_address() {
    let mut allocator = allocator([pool("a", "10.0.0.0/28")]);
    assert_eq!(fill(&mut allocator, "default"), 16);
    for number in 8..16 {
        allocator.release(svc(&format!("s{number}")).uid());
    }
    allocator.set_pools(pool_set([pool("a", "10.0.0.0/28").per_namespace(2)]));
    let kept = allocator.settle(&svc("s7")).unwrap();
    assert_eq!(kept.decision, Decision::Keep);
    assert_eq!(
        allocator.give(&svc("s7").asks("10.0.0.12")),
        ips("10.0.0.12")
    );
    assert_eq!(allocator.counters()[0].largest_ipv4, 8);
    assert_eq!(
        refused(&allocator, &svc("new").in_pool("a")).code(),
        Code::LimitReached
    );
}

#[test]
fn what_a_service_gave_up_counts_until_no_record_names_it() {
    let mut allocator = allocator([pool("a", "10.0.0.0/28").per_namespace(1)]);
    allocator.give(&svc("web"));
    allocator.retire(svc("web").uid());
    assert_eq!(
        refused(&allocator, &svc("next").in_pool("a")).code(),
        Code::LimitReached
    );
    allocator.free(svc("web").uid());
    assert_eq!(allocator.give(&svc("next")), ips("10.0.0.0"));
}

#[test]
fn without_a_limit_one_namespace_may_hold_all_addresses_of_a_pool() {
    for spec in [
        pool("a", "10.0.0.0/28"),
        pool("a", "10.0.0.0/28").per_namespace(20),
    ] {
        let mut allocator = allocator([spec]);
        assert_eq!(fill(&mut allocator, "greedy"), 16);
        assert_eq!(
            refused(&allocator, &svc("greedy/more")).code(),
            Code::PoolExhausted
        );
    }
}
