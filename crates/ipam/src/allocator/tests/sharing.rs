use super::*;

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
