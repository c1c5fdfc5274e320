use super::*;

#[test]
fn an_untouched_ipv6_pool_costs_nothing_however_large_it_is() {
    let small = allocator([pool("a", "fd00::/127")]).slot_bytes();
    let mut large = allocator([pool("a", "2000::/3")]);
    assert!(large.slot_bytes() <= small + 128, "{}", large.slot_bytes());
    assert_eq!(large.give(&svc("first").v6()), ips("2000::1"));
    let last = "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    assert_eq!(large.give(&svc("last").v6().asks(last)), ips(last));
    assert_eq!(large.give(&svc("second").v6()), ips("2000::2"));
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
