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
fn a_full_pool_still_serves_a_service_that_can_share() {
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
fn a_service_that_takes_a_port_of_another_sharer_moves() {
    let mut allocator = allocator([pool("a", "10.0.0.0/24")]);
    allocator.give(&svc("x").key("k").ports(&[80]));
    allocator.give(&svc("y").key("k").ports(&[81]));
    let proposal = allocator
        .settle(&svc("y").key("k").ports(&[80, 81]))
        .unwrap();
    assert_eq!(proposal.addresses, ips("10.0.0.1"));
    let Some(Why::NotAllowed(Refusal::Conflict(Conflict::SharingPortsClash { holder, .. }))) =
        proposal.decision.why()
    else {
        panic!("{proposal:?}");
    };
    assert_eq!(*holder, service("x"));
}

#[test]
fn a_service_with_a_key_gets_the_name_of_the_exclusive_holder() {
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

#[test]
fn the_key_of_another_namespace_opens_nothing_and_reveals_nothing() {
    let mut allocator = allocator([pool("a", "10.0.0.0/31")]);
    let victim = svc("a/victim")
        .key("s3cret")
        .ports(&[80])
        .local("app=vault");
    allocator.give(&victim);
    let asking = |name: &str| svc(name).asks("10.0.0.0").ports(&[81]).local("app=vault");
    // With the right key, a wrong one and none, and with a port that clashes: one answer.
    for request in [
        asking("b/attacker").key("s3cret"),
        asking("b/attacker").key("guess"),
        asking("b/attacker"),
        asking("b/attacker").key("s3cret").ports(&[80]),
    ] {
        let refusal = allocator.propose(&request).unwrap_err();
        let address = ip("10.0.0.0");
        assert_eq!(
            refusal,
            Refusal::Conflict(Conflict::AddressOfOthers { address })
        );
        let reason = format!("{:?}", refusal.reason());
        for secret in ["s3cret", "victim", "vault"] {
            assert!(!reason.contains(secret), "{reason}");
        }
    }
    // Nor is it offered to a Service that asks for none.
    let other = svc("b/attacker")
        .key("s3cret")
        .ports(&[81])
        .local("app=vault");
    assert_eq!(allocator.give(&other), ips("10.0.0.1"));
    // Within the namespace it is shared as ever.
    let own = svc("a/other").key("s3cret").ports(&[81]).local("app=vault");
    assert_eq!(allocator.give(&own), ips("10.0.0.0"));
}

#[test]
fn a_pool_may_let_services_of_all_namespaces_share() {
    let mut allocator = allocator([pool("a", "10.0.0.0/30").across_namespaces()]);
    allocator.give(&svc("a/x").key("k").ports(&[80]));
    assert_eq!(
        allocator.give(&svc("b/y").key("k").ports(&[81])),
        ips("10.0.0.0")
    );
    let address = ip("10.0.0.0");
    let clash = svc("b/z").key("k").ports(&[80]).asks("10.0.0.0");
    assert_eq!(
        allocator.propose(&clash).unwrap_err(),
        Refusal::Conflict(Conflict::SharingWithOthersClashes { address })
    );
    let wrong = svc("c/z").key("guess").ports(&[82]).asks("10.0.0.0");
    assert_eq!(
        allocator.propose(&wrong).unwrap_err(),
        Refusal::Conflict(Conflict::AddressOfOthers { address })
    );
    assert!(allocator.shared_by_exception(svc("a/x").uid()).is_empty());
}

#[test]
fn a_service_that_shares_across_namespaces_from_before_stays_and_no_other_joins() {
    let mut allocator = allocator([pool("a", "10.0.0.0/30")]);
    let (x, y) = (
        svc("a/x").key("k").ports(&[80]),
        svc("b/y").key("k").ports(&[81]),
    );
    let restore = |request: &Request| Restore {
        claimant: Arc::clone(&request.claimant),
        addresses: vec![ip("10.0.0.0")],
        pool: None,
        requested: Addresses::NONE,
    };
    assert_eq!(allocator.restore_all(vec![restore(&x), restore(&y)]), []);
    for request in [&x, &y] {
        let proposal = allocator.settle(request).unwrap();
        assert_eq!(proposal.decision, Decision::Keep);
        assert_eq!(
            allocator.shared_by_exception(request.uid()),
            [ip("10.0.0.0")]
        );
    }
    // A third of either namespace gets an address of its own, also once one of the two is gone.
    assert_eq!(
        allocator.give(&svc("b/z").key("k").ports(&[82])),
        ips("10.0.0.1")
    );
    allocator.release(x.uid());
    assert_eq!(
        allocator.give(&svc("a/late").key("k").ports(&[83])),
        ips("10.0.0.2")
    );
    assert!(allocator.shared_by_exception(y.uid()).is_empty());
    // A Service that gave it up is as any other.
    let back = svc("a/x").key("k").ports(&[80]).asks("10.0.0.0");
    assert!(allocator.propose(&back).is_err());
}
