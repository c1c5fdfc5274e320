use landfall_model::rows::Family;
use landfall_model::{Code, ServiceKey};

use super::*;
use crate::proposal::{Decision, Why};
use crate::testing::{allocator, ip, ips, name, pool, pool_set, selector, svc};
use crate::{PassedOver, WantedFamilies};

fn service(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

fn restore(request: &Request, addresses: &str) -> Restore {
    Restore {
        claimant: Arc::clone(&request.claimant),
        addresses: addresses.split_whitespace().map(ip).collect(),
        pool: None,
        requested: request.addresses,
    }
}

// --- Claiming ---

#[test]
fn of_two_proposals_for_one_address_the_second_claim_is_refused_and_changes_nothing() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    let (first, second) = (svc("first"), svc("second"));
    let proposals = [&first, &second].map(|request| allocator.propose(request).unwrap());
    assert_eq!(proposals[0].addresses, proposals[1].addresses);
    allocator.claim(&first, &proposals[0]).unwrap();
    assert_eq!(
        allocator.claim(&second, &proposals[1]),
        Err(Refusal::AddressTaken {
            address: ip("10.0.0.0"),
            holder: service("first")
        })
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
fn releasing_who_holds_nothing_is_nothing() {
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

// --- Changes of the wish ---

#[test]
fn removing_the_request_keeps_the_address() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("web").asks("10.0.0.9"));
    let proposal = allocator.settle(&svc("web")).unwrap();
    assert_eq!(proposal.decision, Decision::Keep);
    assert_eq!(proposal.addresses, ips("10.0.0.9"));
}

#[test]
fn every_refused_wish_keeps_the_held_address_and_says_why() {
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
fn a_service_that_waits_asks_for_every_pool_in_vain_and_is_told_of_each() {
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
            passed_over: [
                ("full", Verdict::Full(Family::V4)),
                ("hidden", Verdict::NotAutomatic),
                ("labels", Verdict::NotForLabels),
                ("six", Verdict::LacksFamily(Family::V4)),
                ("theirs", Verdict::NotForNamespace),
            ]
            .map(|(pool, verdict)| PassedOver {
                pool: name(pool),
                verdict
            })
            .into(),
        }
    );
    assert_eq!(
        refusal.to_string(),
        "no address pool has a free IPv4 address: full has no free IPv4, hidden serves only those \
         who name it, labels serves other labels, six has no IPv4, theirs serves other namespaces"
    );
}

// --- Changes of the pools ---

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
fn turning_auto_assign_off_keeps_who_is_there() {
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
fn turning_avoid_buggy_ips_on_moves_who_holds_such_an_address() {
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

// --- Families ---

#[test]
fn a_service_that_becomes_dual_stack_gains_the_other_family_in_its_pool() {
    let mut allocator = allocator([
        pool("a", "10.0.0.0/24, fd00::/120"),
        pool("0", "fe00::/120"),
    ]);
    allocator.give(&svc("web"));
    for request in [
        svc("web").require_dual(),
        svc("web").prefer_dual(Family::V6),
    ] {
        let mut allocator = allocator.clone();
        let proposal = allocator.settle(&request).unwrap();
        assert_eq!(proposal.addresses, ips("10.0.0.0 fd00::"));
        assert_eq!(
            proposal.decision,
            Decision::Gain {
                gained: ips("fd00::")
            }
        );
    }
}

#[test]
fn who_comes_to_require_both_moves_when_its_pool_has_but_one() {
    let mut allocator = allocator([
        pool("a", "10.0.0.0/24"),
        pool("dual", "10.0.1.0/24, fd00::/120"),
    ]);
    allocator.give(&svc("web"));
    let proposal = allocator.settle(&svc("web").require_dual()).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.1.0 fd00::"));
    assert_eq!(
        proposal.decision,
        Decision::Move {
            from: ips("10.0.0.0"),
            why: Why::NeedsBothFamilies {
                pool: name("a"),
                missing: Family::V6
            },
        }
    );
}

#[test]
fn a_service_that_becomes_single_stack_keeps_the_address_of_that_family() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24, fd00::/120")]);
    allocator.give(&svc("other").require_dual());
    allocator.give(&svc("web").require_dual());
    allocator.release(svc("other").uid());
    let proposal = allocator.settle(&svc("web").v6()).unwrap();
    assert_eq!(proposal.addresses, ips("fd00::1"));
    assert_eq!(
        proposal.decision,
        Decision::Drop {
            dropped: ips("10.0.0.1"),
            why: Why::FamilyNotWanted {
                address: ip("10.0.0.1")
            },
        }
    );
}

#[test]
fn who_prefers_both_and_loses_one_moves_to_another_dual_pool_if_there_is_one() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24, fd00::/120")]);
    let request = svc("web").prefer_dual(Family::V4);
    allocator.give(&request);
    let gone = Why::PoolShrunk {
        address: ip("fd00::"),
        pool: name("a"),
    };

    let mut alone = allocator.clone();
    alone.set_pools(pool_set([pool("a", "10.0.0.0/24")]));
    let proposal = alone.settle(&request).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.0"));
    assert_eq!(
        proposal.decision,
        Decision::Drop {
            dropped: ips("fd00::"),
            why: gone.clone()
        }
    );

    allocator.set_pools(pool_set([
        pool("a", "10.0.0.0/24"),
        pool("dual", "10.0.1.0/24, fd01::/120"),
    ]));
    let proposal = allocator.settle(&request).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.1.0 fd01::"));
    assert_eq!(
        proposal.decision,
        Decision::Move {
            from: ips("10.0.0.0 fd00::"),
            why: gone
        }
    );
}

#[test]
fn of_a_pair_that_lost_one_address_the_other_stays_when_its_pool_can_replace_it() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24, fd00::/120")]);
    let request = svc("web").require_dual();
    allocator.give(&request);
    allocator.set_pools(pool_set([pool("a", "10.0.0.0/24, fd01::/120")]));
    let proposal = allocator.settle(&request).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.0 fd01::"));
    assert!(matches!(
        proposal.decision,
        Decision::Move {
            why: Why::PoolShrunk { .. },
            ..
        }
    ));
}

#[test]
fn who_requires_both_keeps_the_one_that_is_left_when_no_pool_has_both() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24, fd00::/120")]);
    let request = svc("web").require_dual();
    allocator.give(&request);
    allocator.set_pools(pool_set([pool("a", "10.0.0.0/24")]));
    let proposal = allocator.settle(&request).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.0"));
    assert!(matches!(proposal.decision, Decision::Drop { .. }));
    assert_eq!(proposal.unmet.unwrap().code(), Code::NoAddressOfFamily);
}

#[test]
fn when_its_pool_is_split_by_family_the_second_address_is_replaced() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24, fd00::/120")]);
    let request = svc("web").prefer_dual(Family::V6);
    allocator.give(&request);
    allocator.set_pools(pool_set([
        pool("four", "10.0.0.0/24"),
        pool("six", "fd00::/120, 10.0.1.0/24"),
    ]));
    let proposal = allocator.settle(&request).unwrap();
    assert_eq!(proposal.addresses, ips("10.0.1.0 fd00::"));
    assert_eq!(proposal.pool, Some(name("six")));
    assert_eq!(
        proposal.decision.why(),
        Some(&Why::PoolsSplit {
            address: ip("10.0.0.0"),
            pool: name("four"),
            home: name("six"),
        })
    );
}

#[test]
fn of_a_split_pair_the_address_in_the_pool_with_both_families_stays() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24, fd00::/120")]);
    let request = svc("web").require_dual();
    allocator.give(&svc("other").require_dual());
    allocator.give(&request);
    allocator.release(svc("other").uid());
    allocator.set_pools(pool_set([
        pool("four", "10.0.0.0/24"),
        pool("six", "fd00::/120, 10.0.1.0/24"),
    ]));
    assert_eq!(allocator.give(&request), ips("10.0.1.0 fd00::1"));
}

#[test]
fn a_service_counts_its_own_address_among_those_it_can_have() {
    let mut allocator = allocator([pool("a", "10.0.0.0/32")]);
    allocator.give(&svc("web").key("k").ports(&[]));
    let proposal = allocator
        .settle(&svc("web").key("k").ports(&[80]).require_dual())
        .unwrap();
    assert_eq!(
        proposal.unmet,
        Some(Refusal::PoolsExhausted {
            families: WantedFamilies::RequireDual,
            passed_over: vec![PassedOver {
                pool: name("a"),
                verdict: Verdict::LacksFamily(Family::V6),
            }],
        })
    );
}

#[test]
fn who_prefers_both_is_served_tier_by_tier() {
    let mut allocator = allocator([
        pool("dual", "10.0.1.0/24, fd00::/120"),
        pool("pinned", "10.0.0.0/24").namespace("default"),
    ]);
    let given = allocator.give(&svc("web").prefer_dual(Family::V6));
    assert_eq!(
        given,
        ips("10.0.0.0"),
        "pools that name the namespace come first"
    );
}

// --- Sharing ---

#[test]
fn a_shareable_address_is_preferred_to_a_lower_free_one() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("low"));
    allocator.give(&svc("x").key("k").ports(&[80]));
    allocator.release(svc("low").uid());
    assert_eq!(
        allocator.give(&svc("y").key("k").ports(&[81])),
        ips("10.0.0.1")
    );
    assert_eq!(
        allocator.give(&svc("z").key("k").ports(&[81])),
        ips("10.0.0.0")
    );
}

#[test]
fn a_full_pool_still_serves_who_can_share() {
    let mut allocator = allocator([pool("a", "10.0.0.0/32"), pool("b", "10.0.1.0/24")]);
    allocator.give(&svc("x").key("k").ports(&[80]));
    assert_eq!(
        allocator.give(&svc("y").key("k").ports(&[81])),
        ips("10.0.0.0")
    );
    assert_eq!(
        allocator.give(&svc("z").key("k").ports(&[80])),
        ips("10.0.1.0")
    );
}

#[test]
fn a_sole_holder_changes_its_key_at_will_and_others_follow_the_new_one() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("x").key("old").ports(&[80]));
    let proposal = allocator.settle(&svc("x").key("new").ports(&[80])).unwrap();
    assert_eq!(proposal.decision, Decision::Keep);
    assert_eq!(
        allocator.give(&svc("y").key("old").ports(&[81])),
        ips("10.0.0.1")
    );
    assert_eq!(
        allocator.give(&svc("z").key("new").ports(&[81])),
        ips("10.0.0.0")
    );
}

#[test]
fn a_port_that_a_sharer_gives_back_can_be_used_by_the_next() {
    let mut allocator = allocator([pool("a", "10.0.0.0/32")]);
    allocator.give(&svc("x").key("k").ports(&[80, 443]));
    allocator.give(&svc("y").key("k").ports(&[81]));
    let z = svc("z").key("k").ports(&[443]);
    assert!(allocator.propose(&z).is_err());
    allocator.give(&svc("x").key("k").ports(&[80]));
    assert_eq!(allocator.give(&z), ips("10.0.0.0"));
}

#[test]
fn who_takes_a_port_of_another_sharer_moves() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("x").key("k").ports(&[80]));
    allocator.give(&svc("y").key("k").ports(&[81]));
    let proposal = allocator
        .settle(&svc("y").key("k").ports(&[80, 81]))
        .unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.1"));
    let Some(Why::NotAllowed(Refusal::SharingPortsClash { holder, .. })) = proposal.decision.why()
    else {
        panic!("{proposal:?}");
    };
    assert_eq!(*holder, service("x"));
}

#[test]
fn who_holds_alone_is_named_to_who_has_a_key() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("plain").asks("10.0.0.7"));
    let refusal = allocator
        .propose(&svc("y").key("k").asks("10.0.0.7"))
        .unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "10.0.0.7 is held by default/plain without a sharing key, and the sharing key here is \
         \"k\""
    );
}

// --- Restoring ---

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
fn of_two_services_with_one_address_in_status_the_first_by_name_keeps_it() {
    for order in [["a", "b"], ["b", "a"]] {
        let mut allocator = allocator([pool("p", "10.0.0.0/24")]);
        let all = order.map(|name| restore(&svc(name), "10.0.0.9")).into();
        let refused = allocator.restore_all(all);
        assert_eq!(
            refused,
            vec![(
                svc("b").claimant,
                Refusal::AddressTaken {
                    address: ip("10.0.0.9"),
                    holder: service("a")
                },
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

// --- Size ---

#[test]
fn an_untouched_ipv6_pool_costs_nothing_however_large_it_is() {
    let small = allocator([pool("a", "fd00::/127")]).slot_bytes();
    let mut large = allocator([pool("a", "::/0")]);
    assert!(large.slot_bytes() <= small + 64, "{}", large.slot_bytes());
    assert_eq!(large.give(&svc("first").v6()), ips("::"));
    let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    assert_eq!(large.give(&svc("last").v6().asks(last)), ips(last));
    assert_eq!(large.give(&svc("second").v6()), ips("::1"));
}

#[test]
fn a_large_ipv4_pool_avoids_buggy_addresses_as_a_small_one_does() {
    let mut allocator = allocator([pool("a", "10.0.0.0/8").avoiding()]);
    for number in 0..300u32 {
        allocator.give(&svc(&format!("s{number}")));
    }
    assert_eq!(allocator.holds(&svc("s0")), ips("10.0.0.1"));
    assert_eq!(allocator.holds(&svc("s253")), ips("10.0.0.254"));
    assert_eq!(allocator.holds(&svc("s254")), ips("10.0.1.1"));
    assert_eq!(allocator.counters()[0].available_ipv4, 254 * 65_536 - 300);
}
