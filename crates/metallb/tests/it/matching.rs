//! Which advertisements apply to an address of a Service, and to which nodes.

use std::net::IpAddr;
use std::sync::Arc;

use landfall_metallb::Config;
use landfall_model::rows::PoolOrigin;
use landfall_model::rows::ResourceKind::{BgpAdvertisement, L2Advertisement};
use serde_json::{Value, json};

use crate::objects::{build, labelled, labels, object, pool};

fn config(advertisements: &[(&str, Value)]) -> Config {
    let pools = [
        labelled(
            &pool("front", &["10.0.0.0/24", "2001:db8::/64"]),
            &[("tier", "front")],
        ),
        labelled(&pool("back", &["10.0.1.0/24"]), &[("tier", "back")]),
    ];
    let rows: Vec<_> = advertisements
        .iter()
        .flat_map(|(name, spec)| {
            [L2Advertisement, BgpAdvertisement].map(|kind| {
                let mut spec = spec.clone();
                if kind == BgpAdvertisement {
                    let fields = spec.as_object_mut().unwrap();
                    fields
                        .retain(|name, _| name != "interfaces" && name != "preferredNodeSelectors");
                }
                object(kind, name, spec)
            })
        })
        .collect();
    build(&pools, &rows).0
}

/// The advertisements of both kinds, which must be the same ones.
fn of(config: &Config, address: &str, service: &[(&str, &str)]) -> Vec<String> {
    let (address, service): (IpAddr, _) = (address.parse().unwrap(), labels(service));
    let l2 = config.l2_of(address, &service);
    assert_eq!(l2, config.bgp_of(address, &service));
    let names = l2
        .iter()
        .map(|place| config.l2_advertisements()[*place].key.name().to_owned());
    names.collect()
}

#[test]
fn an_advertisement_without_pools_is_for_all_of_them() {
    let config = config(&[("all", json!({}))]);
    for address in ["10.0.0.7", "10.0.1.255", "2001:db8::1"] {
        assert_eq!(of(&config, address, &[]), ["all"]);
    }
    assert_eq!(of(&config, "10.0.2.0", &[]), [""; 0], "no pool has it");
}

#[test]
fn a_pool_that_is_no_object_is_announced_by_none_because_speakers_do_not_know_it() {
    let mut configured = pool("front", &["10.0.0.0/24"]);
    Arc::make_mut(&mut configured).origin = PoolOrigin::Configured;
    let pools = [configured, pool("back", &["10.0.1.0/24"])];
    let all = [L2Advertisement, BgpAdvertisement].map(|kind| object(kind, "all", json!({})));
    let config = build(&pools, &all).0;
    assert_eq!(of(&config, "10.0.0.7", &[]), [""; 0]);
    assert_eq!(of(&config, "10.0.1.7", &[]), ["all"]);
}

#[test]
fn pools_are_chosen_by_name_or_by_label() {
    let config = config(&[
        (
            "by-label",
            json!({"ipAddressPoolSelectors": [{"matchLabels": {"tier": "back"}}]}),
        ),
        ("by-name", json!({"ipAddressPools": ["front"]})),
        (
            "either",
            json!({
                "ipAddressPools": ["back"],
                "ipAddressPoolSelectors": [{"matchExpressions": [
                    {"key": "tier", "operator": "In", "values": ["front", "middle"]}]}],
            }),
        ),
        ("neither", json!({"ipAddressPools": ["side"]})),
    ]);
    assert_eq!(of(&config, "10.0.0.1", &[]), ["by-name", "either"]);
    assert_eq!(of(&config, "2001:db8::9", &[]), ["by-name", "either"]);
    assert_eq!(of(&config, "10.0.1.1", &[]), ["by-label", "either"]);
}

#[test]
fn one_of_the_service_selectors_must_match() {
    let config = config(&[(
        "some",
        json!({"serviceSelectors": [
            {"matchLabels": {"app": "web"}},
            {"matchExpressions": [{"key": "public", "operator": "Exists"}]}]}),
    )]);
    assert_eq!(of(&config, "10.0.0.1", &[("app", "web")]), ["some"]);
    assert_eq!(of(&config, "10.0.0.1", &[("public", "")]), ["some"]);
    assert_eq!(of(&config, "10.0.0.1", &[("app", "mail")]), [""; 0]);
}

#[test]
fn without_an_advertisement_nothing_is_announced() {
    assert_eq!(of(&config(&[]), "10.0.0.1", &[]), [""; 0]);
}

#[test]
fn weights_of_preferences_add_up_on_accepted_nodes_only() {
    let prefer = |weight: u8, key: &str| {
        let preference = json!({"matchLabels": {key: "yes"}});
        json!({"weight": weight, "preference": preference})
    };
    let config = config(&[(
        "it",
        json!({
            "nodeSelectors": [{"matchLabels": {"rack": "1"}}, {"matchLabels": {"rack": "2"}}],
            "preferredNodeSelectors": [prefer(10, "fast"), prefer(90, "near"), prefer(1, "fast")],
            "interfaces": ["eth1"],
        }),
    )]);
    let nodes = [
        (
            "both",
            labels(&[("rack", "1"), ("fast", "yes"), ("near", "yes")]),
        ),
        ("fast", labels(&[("rack", "2"), ("fast", "yes")])),
        ("plain", labels(&[("rack", "2")])),
        ("outside", labels(&[("rack", "3"), ("near", "yes")])),
    ];
    let advertisement = &config.l2_advertisements()[0].advertisement;
    let selected = advertisement.select(nodes.iter().map(|(name, labels)| (*name, labels)));
    let names: Vec<&str> = selected.names.iter().map(String::as_str).collect();
    assert_eq!(names, ["both", "fast", "plain"]);
    let sums: Vec<_> = selected.preferences.into_iter().collect();
    assert_eq!(sums, [("both".to_owned(), 101), ("fast".to_owned(), 11)]);
    assert_eq!(advertisement.interfaces, ["eth1".to_owned()].into());
}
