use std::collections::BTreeMap;

use super::*;
use crate::dialect::compound::*;
use crate::dialect::options::{EndpointSpec, MemberRef};

fn remedy<T: std::fmt::Debug>(refused: Result<T, Refusal>) -> String {
    refused.unwrap_err().remedy
}

#[test]
fn a_time_is_a_row_of_numbers_with_units() {
    let read = |text| duration(text, Duration::ZERO..=A_DAY).map(|time| time.as_millis());
    assert_eq!(read("30s"), Ok(30_000));
    assert_eq!(read("1m30s"), Ok(90_000));
    assert_eq!(read("250ms"), Ok(250));
    assert_eq!(read("2h"), Ok(7_200_000));
    assert_eq!(read("1h2m3s4ms"), Ok(3_723_004));
    assert_eq!(read("0s"), Ok(0));
    for text in [
        "",
        "s",
        "30",
        "-3s",
        "1.5s",
        "30 s",
        "s30",
        "5min",
        "3s1m",
        "1s1s",
        "9999999999999h",
        "99999999999999999999s",
        "½h",
        "1d",
    ] {
        assert!(read(text).is_err(), "{text:?} should be refused");
    }
}

#[test]
fn the_reason_for_a_number_without_a_unit_lists_the_units() {
    assert_eq!(
        remedy(duration("30", Duration::ZERO..=A_DAY)),
        "write 30s for seconds or 30ms for milliseconds"
    );
    assert_eq!(
        remedy(duration("25h", Duration::ZERO..=A_DAY)),
        "write a time from 0s to 24h"
    );
}

#[test]
fn a_time_reads_back_as_it_is_shown() {
    for milliseconds in [0, 1, 999, 1_000, 90_000, 3_723_004, 86_400_000] {
        let time = Duration::from_millis(milliseconds);
        let shown = show_duration(time);
        assert_eq!(
            duration(&shown, Duration::ZERO..=A_DAY),
            Ok(time),
            "{shown}"
        );
    }
}

#[test]
fn a_prefix_becomes_the_network_it_lies_in() {
    let read = |text| cidr(text).map(|prefix| prefix.to_string());
    assert_eq!(read("192.168.32.1/24").unwrap(), "192.168.32.0/24");
    assert_eq!(read("2001:db8::1/32").unwrap(), "2001:db8::/32");
    assert_eq!(read("0.0.0.0/0").unwrap(), "0.0.0.0/0");
    assert_eq!(read("::ffff:10.1.2.3/104").unwrap(), "10.0.0.0/8");
    assert_eq!(read("::/0").unwrap(), "::/0");
}

#[test]
fn an_address_without_a_length_is_no_prefix_and_learns_how_to_be_one() {
    assert_eq!(
        remedy(cidr("10.0.0.1")),
        "write 10.0.0.1/32 for this one address"
    );
    assert_eq!(remedy(cidr("::1")), "write ::1/128 for this one address");
    for text in [
        "",
        "/",
        "10.0.0.0/33",
        "::/129",
        "10.0.0/8",
        "010.0.0.0/8",
        "10.0.0.0/-1",
    ] {
        assert_eq!(
            cidr(text).unwrap_err().code,
            Code::InvalidSourceRange,
            "{text:?}"
        );
    }
}

#[test]
fn prefixes_are_separated_by_commas_or_white_space_and_collapse() {
    let read = |text| cidrs(text).map(|prefixes| prefixes.len());
    assert_eq!(read("10.0.0.0/8,192.0.2.0/24"), Ok(2));
    assert_eq!(read(" 10.0.0.0/8  192.0.2.0/24 , 2001:db8::/32\n"), Ok(3));
    assert_eq!(read("10.0.0.1/8,10.0.0.2/8"), Ok(1));
    assert!(read("").is_err());
}

#[test]
fn an_address_to_ask_for_is_one_that_a_single_host_can_have() {
    assert!(address("192.0.2.1").is_ok());
    assert!(address(" 2001:db8::1 ").is_ok());
    assert_eq!(remedy(address("::ffff:192.0.2.1")), "write 192.0.2.1");
    for text in [
        "",
        "web",
        "192.0.2.1/32",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
    ] {
        assert_eq!(
            address(text).unwrap_err().code,
            Code::InvalidAddress,
            "{text:?}"
        );
    }
}

#[test]
fn addresses_are_of_one_family_or_as_many_of_each_and_different() {
    assert_eq!(addresses("192.0.2.1").unwrap().len(), 1);
    assert_eq!(addresses("2001:db8::1, 192.0.2.1").unwrap().len(), 2);
    assert_eq!(addresses("192.0.2.1,192.0.2.2").unwrap().len(), 2);
    assert_eq!(addresses("192.0.2.1,192.0.2.2,::1,::2").unwrap().len(), 4);
    let of_v4 = |count: u8| (1..=count).map(|it| format!("192.0.2.{it}"));
    let list = |count| of_v4(count).collect::<Vec<_>>().join(",");
    assert_eq!(addresses(&list(8)).unwrap().len(), 8);
    for text in [
        "192.0.2.1,192.0.2.1",
        "192.0.2.1,",
        "192.0.2.1,::1,::2",
        &list(9),
    ] {
        assert!(addresses(text).is_err(), "{text:?} should be refused");
    }
}

#[test]
fn endpoints_carry_weights_and_backups() {
    let spec = |address: &str, weight, backup| EndpointSpec {
        address: address.parse().unwrap(),
        weight,
        backup,
    };
    assert_eq!(
        endpoints("10.0.0.1:80 weight=3, [2001:db8::1]:8080 backup,localhost:9 backup weight=0"),
        Ok(vec![
            spec("10.0.0.1:80", Some(3), false),
            spec("[2001:db8::1]:8080", None, true),
            spec("127.0.0.1:9", Some(0), true),
        ])
    );
}

#[test]
fn the_reason_for_a_bad_endpoint_has_a_valid_example() {
    let reported = |text| remedy(endpoints(text));
    assert!(reported("web.example.org:80").contains("IP address"));
    assert!(reported("10.0.0.1").contains("10.0.0.1:8080"));
    assert!(reported("2001:db8::1").contains("[2001:db8::1]:8080"));
    assert!(reported("localhost:http").contains("1 to 65535"));
    assert!(reported("10.0.0.1:0").contains("1 to 65535"));
    assert!(reported("10.0.0.1:80 weight=257").contains("256"));
    assert!(reported("10.0.0.1:80 weight=1 weight=2").contains("weight=N"));
    assert!(reported("10.0.0.1:80 spare").contains("backup"));
    assert!(reported("10.0.0.1:80,10.0.0.1:80").contains("once"));
    assert!(reported("10.0.0.1:80,,10.0.0.2:80").contains("comma"));
}

#[test]
fn weights_name_members_by_address_or_pod() {
    let by_address = |text: &str| MemberRef::Address(text.parse().unwrap());
    assert_eq!(
        weights("web-0=3, 10.0.0.2=0,[2001:db8::1]=256"),
        Ok(BTreeMap::from([
            (MemberRef::Name("web-0".to_owned()), 3),
            (by_address("10.0.0.2"), 0),
            (by_address("2001:db8::1"), 256),
        ]))
    );
    for text in [
        "web-0",
        "web-0=",
        "web-0=257",
        "=3",
        "Web=1",
        "web-0=1,web-0=2",
        "web-0=1,",
    ] {
        assert!(weights(text).is_err(), "{text:?} should be refused");
    }
}

#[test]
fn a_host_name_is_one_that_kubernetes_takes() {
    assert!(dns_name("web.example.org").is_ok());
    for text in [
        "",
        "Web.example.org",
        "*.example.org",
        "web_1",
        "web.",
        "-web",
        "192.0.2.1",
    ] {
        assert!(dns_name(text).is_err(), "{text:?} should be refused");
    }
}

#[test]
fn a_secret_of_another_namespace_is_refused() {
    assert_eq!(
        secret_names("web-tls, other,web-tls").unwrap(),
        ["web-tls", "other"]
    );
    assert!(remedy(secret_names("shop/web-tls")).contains("namespace"));
    assert!(secret_names("Web").is_err());
    assert!(remedy(secret_names(&["web-tls"; 65].join(","))).contains("64"));
}

#[test]
fn a_word_in_the_wrong_case_is_recognised_in_the_remedy() {
    let choices = [("ROUND_ROBIN", 1), ("SOURCE_IP", 2)];
    assert_eq!(word("SOURCE_IP", &choices), Ok(2));
    assert!(remedy(word("round-robin", &choices)).starts_with("did you mean ROUND_ROBIN?"));
    assert!(remedy(word("SUORCE_IP", &choices)).starts_with("did you mean SOURCE_IP?"));
    assert_eq!(
        remedy(word("fastest", &choices)),
        "write one of ROUND_ROBIN, SOURCE_IP"
    );
}
