//! Objects together: what excludes what, and what stays in force meanwhile.

use std::sync::Arc;

use landfall_metallb::{CommunityValue, Config, PASSIVE, Passive};
use landfall_model::reason::Severity;
use landfall_model::rows::ResourceKind::{
    BfdProfile, BgpAdvertisement, BgpPeer, Community, IpAddressPool, L2Advertisement,
};
use landfall_model::rows::{AcceptedResource, PoolRow, ResourceRow};
use serde_json::{Value, json};

use crate::objects::{aged, aged_pool, brief, build, object, of, pool, pool_names};

fn peer(name: &str, fields: &Value) -> Arc<ResourceRow> {
    aged_peer(name, 0, fields)
}

fn aged_peer(name: &str, created: i64, fields: &Value) -> Arc<ResourceRow> {
    let mut spec = json!({"myASN": 64512, "peerASN": 64513, "peerAddress": "10.0.0.1"});
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    aged(BgpPeer, name, created, spec)
}

fn peer_names(config: &Config) -> Vec<&str> {
    config.peers().map(|(key, _)| key.name()).collect()
}

#[test]
fn of_two_pools_that_overlap_the_older_one_stays_whatever_their_names() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let pools = [
            aged_pool(second, 20, &["10.0.0.128/25"]),
            aged_pool(first, 10, &["10.0.0.0/24"]),
        ];
        let (config, findings) = build(&pools, &[]);
        assert_eq!(pool_names(&config), [first]);
        assert_eq!(of(&findings, IpAddressPool, first), []);
        let reasons = of(&findings, IpAddressPool, second);
        assert_eq!(reasons.len(), 1);
        assert_eq!(reasons[0].field.as_deref(), Some("spec.addresses[0]"));
        assert_eq!(reasons[0].value.as_deref(), Some("10.0.0.128/25"));
        assert!(
            reasons[0].message.contains(&format!("pool {first}")),
            "{}",
            reasons[0]
        );
    }
}

#[test]
fn a_pool_that_comes_to_overlap_stays_as_it_was() {
    let (before, _) = build(
        &[pool("a", &["10.0.0.0/24"]), pool("b", &["10.0.1.0/24"])],
        &[],
    );
    let pools = [pool("a", &["10.0.0.0/23"]), pool("b", &["10.0.1.0/24"])];
    let (config, findings) = Config::build(&pools, &[], &before);
    assert_eq!(config.pools(), before.pools());
    assert_eq!(of(&findings, IpAddressPool, "a").len(), 1);
    assert_eq!(of(&findings, IpAddressPool, "b"), []);
}

#[test]
fn an_object_that_becomes_invalid_stays_in_force_as_it_was_and_others_change() {
    let l2 = |name: &str, interface: Value| {
        object(L2Advertisement, name, json!({"interfaces": [interface]}))
    };
    let (before, findings) = build(&[], &[l2("a", json!("eth0")), l2("b", json!("eth0"))]);
    assert!(findings.is_empty());
    let rows = [l2("a", json!(7)), l2("b", json!("eth1"))];
    let (config, findings) = Config::build(&[], &rows, &before);
    let interfaces = |config: &Config| -> Vec<String> {
        let all = config.l2_advertisements().iter();
        all.flat_map(|it| it.advertisement.interfaces.clone())
            .collect()
    };
    assert_eq!(interfaces(&config), ["eth0", "eth1"]);
    let reasons = of(&findings, L2Advertisement, "a");
    assert_eq!(reasons.len(), 2);
    assert_eq!(reasons[0].field.as_deref(), Some("spec.interfaces[0]"));
    assert_eq!(reasons[1].severity, Severity::Warning);
    assert_eq!(of(&findings, L2Advertisement, "b"), []);
    // The same objects once more, and later the object is gone.
    assert_eq!(
        Config::build(&[], &rows, &config),
        (config.clone(), findings)
    );
    let (config, findings) = Config::build(&[], &rows[1..], &config);
    assert_eq!(interfaces(&config), ["eth1"]);
    assert!(findings.is_empty());
}

/// The object with its last valid version on record.
fn recorded(row: &Arc<ResourceRow>, spec: Value) -> Arc<ResourceRow> {
    Arc::new(ResourceRow {
        accepted: Some(Arc::new(AcceptedResource {
            spec,
            ..AcceptedResource::default()
        })),
        ..ResourceRow::clone(row)
    })
}

#[test]
fn at_a_start_an_invalid_object_is_in_force_as_it_is_on_record() {
    let invalid = object(L2Advertisement, "a", json!({"interfaces": [7]}));
    let known = recorded(&invalid, json!({"interfaces": ["eth1"]}));
    let (config, findings) = build(&[], &[known]);
    let interfaces = &config.l2_advertisements()[0].advertisement.interfaces;
    assert_eq!(interfaces.iter().collect::<Vec<_>>(), ["eth1"]);
    assert_eq!(
        of(&findings, L2Advertisement, "a").len(),
        2,
        "and that it stays"
    );
    // What is on record may be nonsense, too.
    let (config, _) = build(&[], &[recorded(&invalid, json!({"interfaces": 7}))]);
    assert!(config.l2_advertisements().is_empty());
    // What is valid now is in force, whatever was recorded.
    let valid = object(L2Advertisement, "a", json!({"interfaces": ["eth2"]}));
    let (config, _) = build(&[], &[recorded(&valid, json!({"interfaces": ["eth1"]}))]);
    let interfaces = &config.l2_advertisements()[0].advertisement.interfaces;
    assert_eq!(interfaces.iter().collect::<Vec<_>>(), ["eth2"]);
}

#[test]
fn the_version_on_record_for_what_is_written_now_counts_more_than_the_one_seen_last() {
    let seen = object(L2Advertisement, "a", json!({"interfaces": ["eth1"]}));
    let (config, _) = build(&[], &[seen]);
    let invalid = object(L2Advertisement, "a", json!({"interfaces": [7]}));
    // Others saw another valid version before the invalid one, which this process missed.
    let known = |generation, in_place_of| {
        let row = recorded(&invalid, json!({"interfaces": ["eth2"]}));
        let accepted = row.accepted.as_deref().cloned();
        let accepted = accepted.map(|it| AcceptedResource { in_place_of, ..it });
        Arc::new(ResourceRow {
            generation,
            accepted: accepted.map(Arc::new),
            ..ResourceRow::clone(&row)
        })
    };
    for (row, expected) in [
        (known(Some(3), Some(3)), "eth2"),
        (known(Some(4), Some(3)), "eth1"),
        (known(Some(3), None), "eth1"),
        (known(None, None), "eth1"),
    ] {
        let (config, _) = Config::build(&[], &[row], &config);
        let interfaces = &config.l2_advertisements()[0].advertisement.interfaces;
        assert_eq!(interfaces.iter().collect::<Vec<_>>(), [expected]);
    }
}

/// A pool, and its last valid version on record.
fn recorded_pool(row: &Arc<PoolRow>, addresses: &str) -> Arc<PoolRow> {
    let object = row.resource.as_ref().unwrap();
    Arc::new(PoolRow {
        resource: Some(recorded(object, json!({"addresses": [addresses]}))),
        ..PoolRow::clone(row)
    })
}

#[test]
fn at_a_start_a_pool_that_came_to_overlap_or_can_not_be_read_is_as_it_is_on_record() {
    let others = pool("b", &["10.0.1.0/24"]);
    let (before, _) = build(&[pool("a", &["10.0.0.0/24"]), others.clone()], &[]);
    // The older one of the two, by its age, would win otherwise.
    for now in ["10.0.0.0/23", "nonsense"] {
        let changed = recorded_pool(&aged_pool("a", -9, &[now]), "10.0.0.0/24");
        let (config, findings) = build(&[changed, others.clone()], &[]);
        assert_eq!(config.pools(), before.pools(), "{now}");
        assert_eq!(of(&findings, IpAddressPool, "a").len(), 1);
        assert_eq!(of(&findings, IpAddressPool, "b"), []);
    }
}

#[test]
fn a_pool_that_can_not_be_read_is_as_it_is_on_record_for_what_is_written_now() {
    let (seen, _) = build(&[pool("a", &["10.0.2.0/24"])], &[]);
    let row = recorded_pool(&pool("a", &["nonsense"]), "10.0.0.0/24");
    let mut object = ResourceRow::clone(row.resource.as_ref().unwrap());
    let accepted = object.accepted.as_deref().cloned();
    object.generation = Some(3);
    object.accepted = accepted.map(|it| {
        Arc::new(AcceptedResource {
            in_place_of: Some(3),
            ..it
        })
    });
    let row = Arc::new(PoolRow {
        resource: Some(Arc::new(object)),
        ..PoolRow::clone(&row)
    });
    let (config, _) = Config::build(&[row], &[], &seen);
    let recorded = "10.0.0.1".parse().unwrap();
    assert!(config.pools().pool_of(recorded).is_some());
}

#[test]
fn at_a_start_a_peer_that_came_to_repeat_another_is_as_it_is_on_record() {
    let first = aged_peer("a", 5, &json!({}));
    let changed = aged_peer("b", 1, &json!({}));
    let spec = json!({"myASN": 64512, "peerASN": 64513, "peerAddress": "10.0.0.2"});
    let (config, findings) = build(&[], &[first, recorded(&changed, spec)]);
    let addresses: Vec<String> = config
        .peers()
        .map(|(key, peer)| format!("{} {:?}", key.name(), peer.address))
        .collect();
    assert_eq!(addresses.len(), 2);
    assert!(addresses[1].contains("10.0.0.2"), "{addresses:?}");
    assert_eq!(of(&findings, BgpPeer, "a"), []);
}

#[test]
fn an_advertisement_of_a_pool_that_does_not_exist_waits_for_it() {
    let row = object(L2Advertisement, "it", json!({"ipAddressPools": ["a", "b"]}));
    let (config, findings) = build(&[pool("a", &["10.0.0.0/24"])], std::slice::from_ref(&row));
    let reasons = of(&findings, L2Advertisement, "it");
    assert_eq!(reasons.len(), 1);
    let (field, value, _) = brief(&reasons[0]);
    assert_eq!((&*field, &*value), ("spec.ipAddressPools", "b"));
    assert_eq!(reasons[0].severity, Severity::Warning);
    assert_eq!(config.l2_advertisements()[0].pools.len(), 1);
    let pools = [pool("a", &["10.0.0.0/24"]), pool("b", &["10.0.1.0/24"])];
    let (config, findings) = Config::build(&pools, &[row], &config);
    assert!(findings.is_empty());
    assert_eq!(config.l2_advertisements()[0].pools.len(), 2);
}

#[test]
fn a_name_of_a_community_means_what_the_older_object_says() {
    let community = |name: &str, created, value: &str| {
        let spec = json!({"communities": [{"name": "stay", "value": value}]});
        aged(Community, name, created, spec)
    };
    let advertisement = object(
        BgpAdvertisement,
        "it",
        json!({"communities": ["stay", "1:9"]}),
    );
    let rows = [
        community("a", 20, "1:2"),
        community("b", 10, "1:1"),
        advertisement,
    ];
    let (config, findings) = build(&[], &rows);
    let [it] = config.bgp_advertisements() else {
        panic!("{config:?}");
    };
    let values = [
        CommunityValue::Standard(1, 1),
        CommunityValue::Standard(1, 9),
    ];
    assert_eq!(it.communities, values.into());
    assert_eq!(of(&findings, Community, "b"), []);
    let reasons = of(&findings, Community, "a");
    assert_eq!(reasons.len(), 1);
    assert_eq!(reasons[0].value.as_deref(), Some("stay"));
}

#[test]
fn without_a_community_that_it_names_an_advertisement_is_not_announced_or_stays_as_it_was() {
    let spec = json!({"communities": [{"name": "stay", "value": "1:1"}]});
    let community = object(Community, "names", spec);
    let advertisement = object(BgpAdvertisement, "it", json!({"communities": ["stay"]}));
    let alone = [advertisement.clone()];
    let (config, findings) = build(&[], &alone);
    assert_eq!(config.bgp_advertisements(), []);
    let reasons = of(&findings, BgpAdvertisement, "it");
    assert_eq!(reasons.len(), 1);
    assert_eq!(reasons[0].field.as_deref(), Some("spec.communities"));
    assert_eq!(reasons[0].value.as_deref(), Some("stay"));
    let (complete, findings) = Config::build(&[], &[community, advertisement], &config);
    assert!(findings.is_empty());
    assert_eq!(complete.bgp_advertisements().len(), 1);
    let (config, findings) = Config::build(&[], &alone, &complete);
    assert_eq!(config.bgp_advertisements(), complete.bgp_advertisements());
    assert!(findings.has_errors());
}

#[test]
fn an_advertisement_leaves_out_a_pool_of_which_it_would_announce_too_much() {
    for (entry, length, fits) in [
        ("10.0.0.0/28", 28, true),
        ("10.0.0.0/28", 26, false),
        // A range counts by its largest prefix.
        ("10.0.0.0-10.0.0.20", 28, true),
        ("10.0.0.0-10.0.0.20", 27, false),
    ] {
        let pools = [pool("a", &[entry]), pool("wide", &["192.0.0.0/16"])];
        let spec = json!({"aggregationLength": length});
        let (config, findings) = build(&pools, &[object(BgpAdvertisement, "it", spec)]);
        let pools = &config.bgp_advertisements()[0].of.pools;
        assert_eq!(pools.len(), 1 + usize::from(fits), "{entry} {length}");
        let reasons = of(&findings, BgpAdvertisement, "it");
        assert_eq!(reasons.is_empty(), fits, "{reasons:?}");
        if let [reason] = reasons {
            assert_eq!(reason.field.as_deref(), Some("spec.aggregationLength"));
            assert!(reason.message.contains(entry), "{reason}");
        }
    }
    let spec = json!({"aggregationLengthV6": 40});
    let rows = [object(BgpAdvertisement, "it", spec)];
    let (_, findings) = build(&[pool("a", &["2001:db8::/48"])], &rows);
    let reasons = of(&findings, BgpAdvertisement, "it");
    assert_eq!(
        reasons[0].field.as_deref(),
        Some("spec.aggregationLengthV6")
    );
}

#[test]
fn of_two_advertisements_with_another_preference_for_the_same_routes_the_older_one_stays() {
    let advertisement = |name: &str, created, fields: &Value| {
        let mut spec = json!({"ipAddressPools": ["a"]});
        for (name, value) in fields.as_object().unwrap() {
            spec[name] = value.clone();
        }
        aged(BgpAdvertisement, name, created, spec)
    };
    let pools = [pool("a", &["10.0.0.0/24"]), pool("b", &["10.0.1.0/24"])];
    let announced = |second: &Value| {
        let first = advertisement("z-first", 10, &json!({"localPref": 300}));
        let second = advertisement("a-second", 20, second);
        let (config, findings) = build(&pools, &[second, first]);
        let all = config.bgp_advertisements().iter();
        let pools: Vec<usize> = all.map(|it| it.of.pools.len()).collect();
        assert_eq!(of(&findings, BgpAdvertisement, "z-first"), []);
        (pools, of(&findings, BgpAdvertisement, "a-second").to_vec())
    };
    let (pools, reasons) = announced(&json!({"localPref": 100, "ipAddressPools": ["a", "b"]}));
    assert_eq!(pools, [1, 1], "a-second is for b only");
    let (field, value, message) = brief(&reasons[0]);
    assert_eq!((&*field, &*value), ("spec.localPref", "100"));
    assert!(message.contains("z-first"), "{message}");
    for both in [
        json!({"localPref": 300}),
        json!({"localPref": 100, "ipAddressPools": ["b"]}),
        json!({"localPref": 100, "serviceSelectors": [{"matchLabels": {"app": "web"}}]}),
        json!({"localPref": 100, "aggregationLength": 24, "aggregationLengthV6": 120}),
    ] {
        let (pools, reasons) = announced(&both);
        assert_eq!((pools, reasons.len()), (vec![1, 1], 0), "{both}");
    }
}

#[test]
fn an_advertisement_that_comes_to_contradict_another_stays_as_it_was() {
    let advertisement = |name: &str, preference: u32| {
        object(BgpAdvertisement, name, json!({"localPref": preference}))
    };
    let pools = [pool("a", &["10.0.0.0/24"])];
    let (before, findings) = build(&pools, &[advertisement("a", 7), advertisement("b", 7)]);
    assert!(findings.is_empty());
    let rows = [advertisement("a", 8), advertisement("b", 7)];
    let (config, findings) = Config::build(&pools, &rows, &before);
    assert_eq!(config, before);
    assert_eq!(of(&findings, BgpAdvertisement, "a").len(), 2);
    assert_eq!(of(&findings, BgpAdvertisement, "b"), []);
}

#[test]
fn a_peer_that_repeats_or_contradicts_an_older_one_is_refused() {
    for (second, field) in [
        (json!({}), Some("spec.peerAddress")),
        (json!({"peerASN": 64999}), Some("spec.peerAddress")),
        (
            json!({"peerAddress": "10.0.0.2", "routerID": "10.9.9.8"}),
            Some("spec.routerID"),
        ),
        (
            json!({"peerAddress": "10.0.0.2", "myASN": 64999}),
            Some("spec.myASN"),
        ),
        (
            json!({"peerAddress": "10.0.0.2", "myASN": 64999, "vrf": "red"}),
            None,
        ),
        (json!({"vrf": "red"}), None),
        (json!({"peerAddress": "10.0.0.2"}), None),
        (json!({"peerAddress": null, "interface": "eth0"}), None),
    ] {
        let first = aged_peer("z-first", 10, &json!({"routerID": "10.9.9.9"}));
        let rows = [aged_peer("a-second", 20, &second), first];
        let (config, findings) = build(&[], &rows);
        let reasons = of(&findings, BgpPeer, "a-second");
        assert_eq!(
            reasons.first().and_then(|it| it.field.as_deref()),
            field,
            "{second}"
        );
        assert_eq!(of(&findings, BgpPeer, "z-first"), []);
        let kept = if field.is_some() { 1 } else { 2 };
        assert_eq!(peer_names(&config).len(), kept, "{second}");
    }
}

/// A peer of routers that begin sessions.
fn passive_peer(name: &str, created: i64, passive: &str, fields: &Value) -> Arc<ResourceRow> {
    let mut row = ResourceRow::clone(&aged_peer(name, created, fields));
    row.annotations = [(PASSIVE.to_owned(), passive.to_owned())].into();
    Arc::new(row)
}

#[test]
fn of_two_peers_with_the_same_routers_the_older_one_stays_and_a_narrower_range_is_another() {
    let annotation = "metadata.annotations[landfall.dev/passive]";
    for (address, passive, refused) in [
        // The same range, whatever router stands for it, and however it is written.
        ("10.0.0.1", "10.0.0.0/24", Some((annotation, "10.0.0.0/24"))),
        ("10.0.0.2", "10.0.0.9/24", Some((annotation, "10.0.0.0/24"))),
        // Within it, or around it.
        ("10.0.0.1", "10.0.0.0/25", None),
        ("10.0.0.1", "10.0.0.0/8", None),
        ("10.0.0.1", "10.0.0.1/32", None),
        ("10.0.0.1", "true", None),
        ("10.0.0.1", "false", None),
    ] {
        let address = json!({"peerAddress": address});
        let rows = [
            passive_peer("a-second", 20, passive, &address),
            passive_peer("z-first", 10, "10.0.0.0/24", &json!({})),
        ];
        let (config, findings) = build(&[], &rows);
        let reasons = of(&findings, BgpPeer, "a-second").iter();
        let places = reasons.map(|it| (it.field.as_deref(), it.value.as_deref()));
        let expected = refused.map(|(field, value)| (Some(field), Some(value)));
        assert_eq!(
            places.collect::<Vec<_>>(),
            Vec::from_iter(expected),
            "{passive}"
        );
        assert_eq!(of(&findings, BgpPeer, "z-first"), []);
        let names: &[&str] = match refused {
            Some(_) => &["z-first"],
            None => &["a-second", "z-first"],
        };
        assert_eq!(peer_names(&config), names, "{passive}");
    }
    // A range of one router is that router.
    let rows = [
        passive_peer("a", 10, "10.0.0.1/32", &json!({})),
        aged_peer("b", 20, &json!({})),
    ];
    let (config, _) = build(&[], &rows);
    assert_eq!(peer_names(&config), ["a"]);
}

#[test]
fn a_peer_that_comes_to_have_the_range_of_another_is_refused_or_stays_as_it_was() {
    let of = |name: &str, range: &str| passive_peer(name, 0, range, &json!({}));
    let (before, findings) = build(&[], &[of("a", "10.0.0.0/25"), of("b", "10.0.0.0/24")]);
    assert!(findings.is_empty());
    let rows = [of("a", "10.0.0.0/24"), of("b", "10.0.0.0/24")];
    let (config, _) = Config::build(&[], &rows, &before);
    assert_eq!(config, before);
}

#[test]
fn at_a_start_a_peer_whose_annotation_is_invalid_is_in_force_with_the_one_on_record() {
    let range = "10.0.0.0/24";
    let valid = passive_peer("a", 0, range, &json!({}));
    let invalid = passive_peer("a", 0, "10.0.0.0/240", &json!({}));
    let known = ResourceRow {
        accepted: Some(Arc::new(AcceptedResource {
            annotations: valid.annotations.clone(),
            spec: valid.spec.clone(),
            in_place_of: None,
        })),
        ..ResourceRow::clone(&invalid)
    };
    let (config, findings) = build(&[], &[Arc::new(known)]);
    let passive = config.peers().map(|(_, peer)| peer.passive);
    let range = Passive::Range(range.parse().unwrap());
    assert_eq!(passive.collect::<Vec<_>>(), [Some(range)]);
    assert_eq!(of(&findings, BgpPeer, "a").len(), 2);
}

#[test]
fn a_peer_without_password_in_a_range_with_one_is_named_with_that_range() {
    let annotation = "metadata.annotations[landfall.dev/passive]";
    let elsewhere = json!({"nodeSelectors": [{"matchLabels": {"rack": "1"}}]});
    for (passive, fields, field) in [
        ("true", json!({}), Some("spec.peerAddress")),
        ("false", json!({}), Some("spec.peerAddress")),
        ("10.0.0.0/25", json!({}), Some(annotation)),
        ("10.0.0.0/8", json!({}), None),
        ("true", json!({"password": "own"}), None),
        ("true", json!({"peerAddress": "10.0.1.1"}), None),
        ("false", json!({"vrf": "red"}), None),
        (
            "true",
            json!({"peerAddress": null, "interface": "eth0"}),
            None,
        ),
        ("true", elsewhere.clone(), None),
    ] {
        let mut range = json!({"passwordSecret": {"name": "key"}});
        if fields == elsewhere {
            range["nodeSelectors"] = json!([{"matchLabels": {"zone": "z"}}]);
        }
        let rows = [
            passive_peer("one", 10, passive, &fields),
            passive_peer("range", 20, "10.0.0.0/24", &range),
        ];
        let (config, findings) = build(&[], &rows);
        assert_eq!(peer_names(&config).len(), 2);
        assert_eq!(of(&findings, BgpPeer, "range"), []);
        let reasons = of(&findings, BgpPeer, "one");
        let fields_of = reasons.iter().map(|it| it.field.as_deref());
        assert_eq!(
            fields_of.collect::<Vec<_>>(),
            Vec::from_iter(field.map(Some)),
            "{fields}"
        );
        for reason in reasons {
            assert_eq!(reason.severity, Severity::Warning);
            let names = reason.message.contains("10.0.0.0/24 of range");
            assert!(names && reason.remedy.contains("password"), "{reason}");
        }
    }
    // A range of all addresses is around those of links, too.
    let rows = [
        passive_peer(
            "one",
            10,
            "true",
            &json!({"peerAddress": null, "interface": "eth0"}),
        ),
        passive_peer(
            "all",
            20,
            "::/0",
            &json!({"peerAddress": "2001:db8::1", "password": "key"}),
        ),
    ];
    let (_, findings) = build(&[], &rows);
    let reasons = of(&findings, BgpPeer, "one");
    assert_eq!(reasons.len(), 1);
    assert_eq!(reasons[0].field.as_deref(), Some("spec.interface"));
}

#[test]
fn peers_of_different_nodes_may_repeat_each_other_until_a_node_is_of_both() {
    let of_rack = |rack: &str| json!({"nodeSelectors": [{"matchLabels": {"rack": rack}}]});
    let of_zone = json!({"nodeSelectors": [{"matchLabels": {"zone": "z"}}]});
    let (config, findings) = build(&[], &[peer("a", &of_rack("1")), peer("b", &of_zone)]);
    assert!(findings.is_empty());
    let on = |labels: &[(&str, &str)]| {
        let labels = crate::objects::labels(labels);
        let (peers, findings) = config.peers_on(&labels);
        let names: Vec<String> = peers.iter().map(|(key, _)| key.name().to_owned()).collect();
        (names, of(&findings, BgpPeer, "b").len())
    };
    assert_eq!(on(&[("rack", "1")]), (vec!["a".to_owned()], 0));
    assert_eq!(on(&[("zone", "z")]), (vec!["b".to_owned()], 0));
    assert_eq!(
        on(&[("zone", "z"), ("rack", "1")]),
        (vec!["a".to_owned()], 1)
    );
    assert_eq!(on(&[]), (vec![], 0));
}

#[test]
fn a_peer_without_its_bfd_profile_is_reported_until_the_profile_comes() {
    let it = peer("it", &json!({"bfdProfile": "fast"}));
    let (config, findings) = build(&[], std::slice::from_ref(&it));
    let reasons = of(&findings, BgpPeer, "it");
    let (field, value, _) = brief(&reasons[0]);
    assert_eq!(
        (&*field, &*value, reasons.len()),
        ("spec.bfdProfile", "fast", 1)
    );
    assert_eq!(peer_names(&config), ["it"]);
    let profile = object(BfdProfile, "fast", json!({"detectMultiplier": 5}));
    let (config, findings) = Config::build(&[], &[it, profile], &config);
    assert!(findings.is_empty());
    assert_eq!(config.bfd_profile("fast").unwrap().detect_multiplier, 5);
}

#[test]
fn ipv6_addresses_are_not_announced_to_a_peer_with_echo_packets() {
    let rows = [
        peer("tor", &json!({"bfdProfile": "echo"})),
        object(BfdProfile, "echo", json!({"echoMode": true})),
        object(BgpAdvertisement, "it", json!({})),
        object(BgpAdvertisement, "elsewhere", json!({"peers": ["other"]})),
    ];
    let pools = [
        pool("four", &["10.0.0.0/24"]),
        pool("six", &["2001:db8::/64"]),
    ];
    let (config, findings) = build(&pools, &rows);
    let pools = |place: usize| config.bgp_advertisements()[place].of.pools.len();
    assert_eq!((pools(0), pools(1)), (2, 1), "elsewhere, it");
    let reasons = of(&findings, BgpAdvertisement, "it");
    let (field, value, message) = brief(&reasons[0]);
    assert_eq!((&*field, &*value), ("spec.peers", "tor"));
    assert!(message.contains("pool six"), "{message}");
}

#[test]
fn all_findings_in_one_list_name_their_objects() {
    let rows = [object(L2Advertisement, "it", json!({"interfaces": 7}))];
    let (_, findings) = build(&[], &rows);
    let all: Vec<String> = findings.reasons().iter().map(ToString::to_string).collect();
    assert_eq!(
        all,
        ["spec.interfaces: \"7\": L2Advertisement metallb-system/it: not a list; write a list"]
    );
}
