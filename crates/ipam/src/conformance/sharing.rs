//! Sharing one address: rows 26 to 31.

use super::*;

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
        Refusal::Conflict(Conflict::SharingPortsClash {
            address: ip("10.0.0.0"),
            holder: service("x"),
            ports: crate::testing::tcp(&[80]).into_iter().collect(),
        })
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
fn row_31_a_service_that_alone_becomes_local_loses_the_shared_address_until_the_other_follows() {
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
        matches!(
            refusal,
            Refusal::Conflict(Conflict::SharingBackendDiffers { .. })
        ),
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
        Err(Refusal::Conflict(Conflict::SharingBackendDiffers { .. }))
    ));
    assert_eq!(
        allocator.propose(&asking.asks("10.0.0.1")),
        Err(Refusal::Conflict(Conflict::SharingNeedsSelector {
            address: ip("10.0.0.1"),
            holder: service("x")
        }))
    );
}
