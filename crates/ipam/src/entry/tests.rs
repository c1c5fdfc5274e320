use proptest::prelude::*;

use super::*;

fn entry(text: &str) -> Entry {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ends(text: &str) -> (IpAddr, IpAddr) {
    let range = entry(text).range();
    (range.first(), range.last())
}

#[test]
fn a_prefix_is_all_its_addresses_with_host_bits_masked() {
    assert_eq!(
        ends("198.51.100.10/24"),
        (ip("198.51.100.0"), ip("198.51.100.255"))
    );
    assert_eq!(ends("10.0.0.7/32"), (ip("10.0.0.7"), ip("10.0.0.7")));
    assert_eq!(ends("0.0.0.0/0"), (ip("0.0.0.0"), ip("255.255.255.255")));
    assert_eq!(
        ends("2001:db8::5/126"),
        (ip("2001:db8::4"), ip("2001:db8::7"))
    );
    assert_eq!(
        ends("::/0").1,
        ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
    );
}

#[test]
fn a_range_may_have_spaces_around_its_ends() {
    assert_eq!(
        ends(" 10.0.0.5 - 10.0.0.7 "),
        (ip("10.0.0.5"), ip("10.0.0.7"))
    );
    assert_eq!(ends("fd00::1-fd00::1"), (ip("fd00::1"), ip("fd00::1")));
    assert_eq!(entry(" 10.0.0.5 - 10.0.0.7 ").text(), "10.0.0.5 - 10.0.0.7");
}

#[test]
fn each_mistake_is_named_with_what_would_be_right() {
    let cases = [
        ("", EntryError::Empty, "192.0.2.0/24"),
        (
            "10.0.0.1",
            EntryError::BareAddress {
                address: ip("10.0.0.1"),
            },
            "write 10.0.0.1/32",
        ),
        (
            "fd00::1",
            EntryError::BareAddress {
                address: ip("fd00::1"),
            },
            "write fd00::1/128",
        ),
        (
            "10.0.0/24",
            EntryError::NotAnAddress {
                part: "10.0.0".into(),
            },
            "in full",
        ),
        (
            "010.0.0.1/24",
            EntryError::NotAnAddress {
                part: "010.0.0.1".into(),
            },
            "in full",
        ),
        (
            "web-10.0.0.1",
            EntryError::NotAnAddress { part: "web".into() },
            "in full",
        ),
        (
            "10.0.0.1-20",
            EntryError::NotAnAddress { part: "20".into() },
            "in full",
        ),
        (
            "10.0.0.0/33",
            EntryError::BadPrefixLength {
                length: "33".into(),
                family: Family::V4,
            },
            "0 to 32",
        ),
        (
            "fd00::/+8",
            EntryError::BadPrefixLength {
                length: "+8".into(),
                family: Family::V6,
            },
            "0 to 128",
        ),
        (
            "10.0.0.0/255.255.255.0",
            EntryError::BadPrefixLength {
                length: "255.255.255.0".into(),
                family: Family::V4,
            },
            "0 to 32",
        ),
        (
            "10.0.0.1-fd00::1",
            EntryError::MixedFamilies {
                first: ip("10.0.0.1"),
                last: ip("fd00::1"),
            },
            "two ranges",
        ),
        (
            "10.0.0.9-10.0.0.1",
            EntryError::Backwards {
                first: ip("10.0.0.9"),
                last: ip("10.0.0.1"),
            },
            "write 10.0.0.1-10.0.0.9",
        ),
        (
            "::ffff:10.0.0.0/120",
            EntryError::Mapped {
                address: "::ffff:10.0.0.0".parse().unwrap(),
                v4: Ipv4Addr::new(10, 0, 0, 0),
            },
            "IPv4: 10.0.0.0",
        ),
    ];
    for (text, expected, remedy) in cases {
        let error = text.parse::<Entry>().unwrap_err();
        assert_eq!(error, expected, "{text}");
        assert!(
            error.remedy().contains(remedy),
            "{text}: {}",
            error.remedy()
        );
    }
}

#[test]
fn avoiding_buggy_addresses_leaves_254_of_each_256() {
    let places = |text: &str| entry(text).range().last_place(true).map(|last| last + 1);
    assert_eq!(places("10.0.0.0/24"), Some(254));
    assert_eq!(places("10.0.0.0/16"), Some(254 * 256));
    assert_eq!(places("10.0.0.0/25"), Some(127));
    assert_eq!(places("10.0.0.128/25"), Some(127));
    assert_eq!(places("10.0.0.64/26"), Some(64));
    assert_eq!(places("10.0.0.0/32"), None);
    assert_eq!(places("10.0.0.255-10.0.1.0"), None);
    assert_eq!(places("0.0.0.0/0"), Some(254 << 24));
    assert_eq!(
        places("fd00::/120"),
        Some(256),
        "IPv6 has no such addresses"
    );
}

#[test]
fn counters_saturate_from_62_host_bits_on() {
    let saturates = |text: &str| entry(text).range().saturates_counters();
    assert!(saturates("fd00::/66"));
    assert!(saturates("fd00::/48"));
    assert!(saturates("::/0"));
    assert!(!saturates("fd00::/67"));
    assert!(!saturates("0.0.0.0/0"));
    assert!(
        saturates("fd00::1-fd00::8000:0:0:0"),
        "one aligned block fits in"
    );
    assert!(
        !saturates("fd00::1-fd00::4000:0:0:0"),
        "as many addresses, but never aligned"
    );
}

proptest! {
    #[test]
    fn numbering_around_buggy_addresses_agrees_with_counting_them(
        first in any::<u32>(), length in 0u32..2000, avoid in any::<bool>(),
    ) {
        let last = first.saturating_add(length);
        let range = Range {
            first: IpAddr::V4(Ipv4Addr::from_bits(first)),
            last: IpAddr::V4(Ipv4Addr::from_bits(last)),
        };
        let mut place = 0;
        for bits in first..=last {
            let address = IpAddr::V4(Ipv4Addr::from_bits(bits));
            if avoid && is_buggy(address) {
                prop_assert_eq!(range.place_of(address, avoid), None);
            } else {
                prop_assert_eq!(range.place_of(address, avoid), Some(place));
                prop_assert_eq!(range.address_at(place, avoid), Some(address));
                place += 1;
            }
        }
        prop_assert_eq!(range.last_place(avoid), place.checked_sub(1));
        prop_assert_eq!(range.address_at(place, avoid), None);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[0-9a-f:./ -]{0,24}") {
        let _ = text.parse::<Entry>();
    }
}
