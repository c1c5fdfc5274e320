//! The rules of one object: each is refused with its field, its value and a remedy, and whatever
//! keeps them is read.

use std::sync::Arc;

use landfall_model::reason::Severity;
use landfall_model::rows::ResourceKind::{
    self, BfdProfile, BgpAdvertisement, BgpPeer, Community, L2Advertisement,
};
use landfall_model::rows::{PoolRow, ResourceRow};
use serde_json::{Value, json};

use crate::objects::{build, object, of, older, pool};

/// A spec of a kind with nothing wrong.
fn good(kind: ResourceKind) -> Value {
    match kind {
        L2Advertisement | BgpAdvertisement | BfdProfile | ResourceKind::IpAddressPool => json!({}),
        BgpPeer => json!({"myASN": 64512, "peerASN": 64513, "peerAddress": "10.0.0.1"}),
        Community => json!({"communities": [{"name": "no-export", "value": "65535:65281"}]}),
    }
}

/// The same with some fields replaced.
fn with(kind: ResourceKind, fields: &Value) -> Value {
    let mut spec = good(kind);
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

/// Checks that each change is refused with exactly one error, about this field.
fn refused(kind: ResourceKind, cases: &[(Value, &str)]) {
    for (fields, field) in cases {
        let (_, findings) = build(&[], &[object(kind, "it", with(kind, fields))]);
        let reasons = of(&findings, kind, "it");
        assert_eq!(reasons.len(), 1, "{kind} {fields}: {reasons:?}");
        let reason = &reasons[0];
        assert_eq!(reason.severity, Severity::Error, "{fields}");
        assert_eq!(reason.field.as_deref(), Some(*field), "{fields}: {reason}");
        assert!(!reason.remedy.is_empty(), "{fields}: {reason}");
    }
}

fn accepted(kind: ResourceKind, cases: &[Value]) {
    for fields in cases {
        let (_, findings) = build(&[], &[object(kind, "it", with(kind, fields))]);
        let reasons = of(&findings, kind, "it");
        assert_eq!(reasons, [], "{kind} {fields}");
    }
}

#[test]
fn an_object_of_each_kind_with_nothing_wrong_has_no_findings() {
    for kind in ResourceKind::ALL {
        accepted(kind, &[json!({})]);
    }
}

#[test]
fn a_mistake_in_an_l2_advertisement_is_refused_with_its_field() {
    let selector = json!({"matchLabels": {"rack": "a"}});
    refused(
        L2Advertisement,
        &[
            (
                json!({"ipAddressPools": ["a", "a"]}),
                "spec.ipAddressPools[1]",
            ),
            (json!({"ipAddressPools": "a"}), "spec.ipAddressPools"),
            (json!({"ipAddressPools": [7]}), "spec.ipAddressPools[0]"),
            (json!({"ipAddressPools": [""]}), "spec.ipAddressPools[0]"),
            (
                json!({"interfaces": ["eth0", "eth1", "eth0"]}),
                "spec.interfaces[2]",
            ),
            (
                json!({"nodeSelectors": [selector, selector]}),
                "spec.nodeSelectors[1]",
            ),
            (
                json!({"ipAddressPoolSelectors": [selector, selector]}),
                "spec.ipAddressPoolSelectors[1]",
            ),
            (
                json!({"serviceSelectors": [selector, selector]}),
                "spec.serviceSelectors[1]",
            ),
            (
                json!({"nodeSelectors": [{"matchExpressions": [
                    {"key": "rack", "operator": "Within", "values": ["a"]}]}]}),
                "spec.nodeSelectors[0].matchExpressions",
            ),
            (
                json!({"nodeSelectors": [{"matchExpressions": [
                    {"key": "rack", "operator": "In", "values": ["a", "a"]}]}]}),
                "spec.nodeSelectors[0].matchExpressions",
            ),
            (
                json!({"serviceSelectors": [{"matchLabels": {"rack": 7}}]}),
                "spec.serviceSelectors[0].matchLabels[rack]",
            ),
            (
                json!({"preferredNodeSelectors": [{"weight": 0, "preference": selector}]}),
                "spec.preferredNodeSelectors[0].weight",
            ),
            (
                json!({"preferredNodeSelectors": [{"weight": 101, "preference": selector}]}),
                "spec.preferredNodeSelectors[0].weight",
            ),
            (
                json!({"preferredNodeSelectors": [{"preference": selector}]}),
                "spec.preferredNodeSelectors[0].weight",
            ),
            (
                json!({"preferredNodeSelectors": [{"weight": 5}]}),
                "spec.preferredNodeSelectors[0].preference",
            ),
        ],
    );
}

#[test]
fn a_mistake_in_a_bgp_advertisement_is_refused_with_its_field() {
    let many: Vec<String> = (0..64).map(|number| format!("65000:{number}")).collect();
    let services = json!([{"matchLabels": {"app": "web"}}]);
    refused(
        BgpAdvertisement,
        &[
            (json!({"aggregationLength": 0}), "spec.aggregationLength"),
            (json!({"aggregationLength": 33}), "spec.aggregationLength"),
            (json!({"aggregationLength": "24"}), "spec.aggregationLength"),
            (
                json!({"aggregationLengthV6": 129}),
                "spec.aggregationLengthV6",
            ),
            (json!({"localPref": -1}), "spec.localPref"),
            (json!({"localPref": 4_294_967_296_u64}), "spec.localPref"),
            (json!({"communities": many}), "spec.communities"),
            (
                json!({"communities": ["1:2", "1:2"]}),
                "spec.communities[1]",
            ),
            (
                json!({"communities": ["99999999:1"]}),
                "spec.communities[0]",
            ),
            (json!({"communities": ["1:+2"]}), "spec.communities[0]"),
            (
                json!({"communities": ["lar:123:9999:123"]}),
                "spec.communities[0]",
            ),
            (
                json!({"communities": ["large:1:2:4294967296"]}),
                "spec.communities[0]",
            ),
            (json!({"communities": ["1:2:3"]}), "spec.communities[0]"),
            (json!({"communities": [""]}), "spec.communities[0]"),
            (json!({"peers": ["tor", "tor"]}), "spec.peers[1]"),
            (
                json!({"serviceSelectors": services, "aggregationLength": 24}),
                "spec.aggregationLength",
            ),
            (
                json!({"serviceSelectors": services, "aggregationLengthV6": 64}),
                "spec.aggregationLengthV6",
            ),
        ],
    );
    accepted(
        BgpAdvertisement,
        &[
            json!({"aggregationLength": 1, "aggregationLengthV6": 1}),
            json!({"serviceSelectors": services, "aggregationLength": 32}),
            json!({"communities": many[..63].to_vec()}),
            json!({"communities": ["large:4294967295:0:1", "65535:65535"]}),
            json!({"localPref": 4_294_967_295_u64}),
        ],
    );
}

#[test]
fn a_mistake_in_a_peer_is_refused_with_its_field() {
    refused(
        BgpPeer,
        &[
            (json!({"myASN": 0}), "spec.myASN"),
            (json!({"myASN": null}), "spec.myASN"),
            (json!({"peerASN": null}), "spec.peerASN"),
            (json!({"peerASN": 0}), "spec.peerASN"),
            (json!({"peerASN": -1}), "spec.peerASN"),
            (json!({"dynamicASN": "internal"}), "spec.dynamicASN"),
            (
                json!({"peerASN": 0, "dynamicASN": "maybe"}),
                "spec.dynamicASN",
            ),
            (json!({"localASN": 0}), "spec.localASN"),
            (
                json!({"peerAddress": "tor.example.org"}),
                "spec.peerAddress",
            ),
            (json!({"peerAddress": null}), "spec.peerAddress"),
            (json!({"interface": "eth0"}), "spec.interface"),
            (json!({"sourceAddress": "here"}), "spec.sourceAddress"),
            (json!({"peerPort": -1}), "spec.peerPort"),
            (json!({"peerPort": 16385}), "spec.peerPort"),
            (json!({"holdTime": "2s"}), "spec.holdTime"),
            (json!({"holdTime": "90"}), "spec.holdTime"),
            (json!({"holdTime": "65536s"}), "spec.holdTime"),
            (
                json!({"holdTime": "9s", "keepaliveTime": "10s"}),
                "spec.keepaliveTime",
            ),
            (json!({"connectTime": "500ms"}), "spec.connectTime"),
            (json!({"connectTime": "1.5s"}), "spec.connectTime"),
            (json!({"connectTime": "65536s"}), "spec.connectTime"),
            (json!({"routerID": "2001:db8::1"}), "spec.routerID"),
            (json!({"nodeSelectors": [{}, {}]}), "spec.nodeSelectors[1]"),
            (
                json!({"password": "p", "passwordSecret": {"name": "s"}}),
                "spec.password",
            ),
            (
                json!({"ebgpMultiHop": true, "peerASN": 64512}),
                "spec.ebgpMultiHop",
            ),
            (json!({"ebgpMultiHop": "yes"}), "spec.ebgpMultiHop"),
        ],
    );
    accepted(
        BgpPeer,
        &[
            json!({"holdTime": "0s"}),
            json!({"holdTime": "3s", "keepaliveTime": "3s"}),
            json!({"connectTime": "65535s", "peerPort": 16384}),
            // As it is stored in the older version, where nothing converts it.
            json!({"peerPort": 0}),
            json!({"peerASN": null, "dynamicASN": "external", "vrf": "red"}),
            json!({"peerAddress": null, "interface": "eth0"}),
            json!({"peerAddress": "", "interface": "eth0"}),
            json!({"disableMP": true, "dualStackAddressFamily": true, "localASN": 65000}),
            json!({"passwordSecret": {"name": "s", "namespace": "metallb-system"}}),
        ],
    );
}

#[test]
fn a_password_is_never_shown() {
    for fields in [
        json!({"password": "hunter2", "passwordSecret": {"name": "s"}}),
        json!({"password": ["hunter2"]}),
        json!({"passwordSecret": "hunter2"}),
    ] {
        let rows = [object(BgpPeer, "it", with(BgpPeer, &fields))];
        let (config, findings) = build(&[], &rows);
        assert!(findings.has_errors(), "{fields}");
        assert!(
            !format!("{findings:?}{config:?}").contains("hunter2"),
            "{fields}"
        );
    }
    let fields = json!({"password": "hunter2"});
    let (config, findings) = build(&[], &[object(BgpPeer, "it", with(BgpPeer, &fields))]);
    assert!(findings.is_empty());
    assert_eq!(config.peers().count(), 1);
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn the_older_version_of_a_peer_has_its_own_rules() {
    let read = |fields: Value| {
        let row = older(&object(BgpPeer, "it", with(BgpPeer, &fields)));
        let (config, findings) = build(&[], &[row]);
        let peer = config.peers().next().map(|(_, peer)| peer.clone());
        (peer, of(&findings, BgpPeer, "it").to_vec())
    };
    let (peer, reasons) = read(json!({"peerPort": 0, "holdTime": "0s"}));
    let peer = peer.unwrap();
    assert_eq!(reasons, []);
    assert_eq!((peer.port, peer.timers.hold), (179, None));
    for (fields, field) in [
        (json!({"peerASN": null}), "spec.peerASN"),
        (json!({"peerAddress": null}), "spec.peerAddress"),
        (json!({"holdTime": "1s"}), "spec.holdTime"),
    ] {
        let (peer, reasons) = read(fields);
        assert_eq!((peer, reasons.len()), (None, 1));
        assert_eq!(reasons[0].field.as_deref(), Some(field));
    }
    let (peer, reasons) = read(json!({"vrf": "red"}));
    assert_eq!(peer.unwrap().vrf, None, "this version has no such field");
    assert_eq!(reasons[0].severity, Severity::Warning);
}

#[test]
fn timers_of_a_peer_complete_each_other() {
    let timers = |fields: Value| {
        let (config, _) = build(&[], &[object(BgpPeer, "it", with(BgpPeer, &fields))]);
        let timers = config.peers().next().unwrap().1.timers;
        let seconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs());
        (seconds(timers.hold), seconds(timers.keepalive))
    };
    assert_eq!(timers(json!({})), (None, None));
    assert_eq!(timers(json!({"holdTime": "90s"})), (Some(90), Some(30)));
    assert_eq!(
        timers(json!({"keepaliveTime": "1m"})),
        (Some(180), Some(60))
    );
    let both = json!({"holdTime": "1m30s", "keepaliveTime": "10s"});
    assert_eq!(timers(both), (Some(90), Some(10)));
}

#[test]
fn a_mistake_in_a_bfd_profile_is_refused_with_its_field() {
    refused(
        BfdProfile,
        &[
            (json!({"receiveInterval": 9}), "spec.receiveInterval"),
            (json!({"transmitInterval": 60_001}), "spec.transmitInterval"),
            (json!({"echoInterval": 0}), "spec.echoInterval"),
            (json!({"detectMultiplier": 1}), "spec.detectMultiplier"),
            (json!({"detectMultiplier": 256}), "spec.detectMultiplier"),
            (json!({"minimumTtl": 255}), "spec.minimumTtl"),
            (json!({"minimumTtl": 0}), "spec.minimumTtl"),
            (json!({"echoMode": 1}), "spec.echoMode"),
            (json!({"passiveMode": "no"}), "spec.passiveMode"),
        ],
    );
    accepted(
        BfdProfile,
        &[
            json!({"receiveInterval": 10, "transmitInterval": 60_000, "minimumTtl": 254}),
            json!({"detectMultiplier": 255, "echoMode": true, "passiveMode": true}),
        ],
    );
}

/// Returns a BFD profile with annotations of this side.
fn keyed(annotations: &[(&str, &str)]) -> Arc<ResourceRow> {
    let mut row = ResourceRow::clone(&object(BfdProfile, "it", json!({})));
    let annotations = annotations.iter();
    row.annotations = annotations
        .map(|(key, value)| (format!("landfall.dev/bfd-key-{key}"), (*value).to_owned()))
        .collect();
    Arc::new(row)
}

#[test]
fn a_bfd_profile_names_the_secret_of_its_key_by_annotations() {
    let key = |annotations: &[(&str, &str)]| {
        let (config, findings) = build(&[], &[keyed(annotations)]);
        assert_eq!(of(&findings, BfdProfile, "it"), []);
        let key = config.bfd_profile("it").unwrap().key.clone();
        key.map(|key| (key.secret, key.id, key.is_meticulous))
    };
    assert_eq!(key(&[]), None);
    let named = "bfd.edge-1".to_owned();
    assert_eq!(key(&[("secret", &named)]), Some((named.clone(), 1, false)));
    let all = [("secret", &*named), ("id", " 255 "), ("meticulous", "true")];
    assert_eq!(key(&all), Some((named, 255, true)));
}

#[test]
fn a_mistake_in_an_annotation_about_a_key_is_refused_with_its_name() {
    let secret = ("secret", "bfd");
    for (annotations, wrong) in [
        (vec![("secret", "")], "secret"),
        (vec![("secret", "Shop/bfd")], "secret"),
        (vec![secret, ("id", "256")], "id"),
        (vec![secret, ("id", "")], "id"),
        (vec![secret, ("meticulous", "yes")], "meticulous"),
        // Without a key.
        (vec![("id", "1")], "id"),
        (vec![("meticulous", "false")], "meticulous"),
    ] {
        let (config, findings) = build(&[], &[keyed(&annotations)]);
        let reasons = of(&findings, BfdProfile, "it");
        let fields: Vec<_> = reasons.iter().map(|it| it.field.as_deref()).collect();
        let field = format!("metadata.annotations[landfall.dev/bfd-key-{wrong}]");
        assert_eq!(fields, [Some(&*field)], "{annotations:?}");
        assert!(config.bfd_profile("it").is_none(), "{annotations:?}");
    }
}

#[test]
fn a_range_of_routers_has_the_address_of_one_and_is_not_of_addresses_that_each_link_has() {
    let refusals = |range: &str, address: &str| {
        let spec = with(BgpPeer, &json!({"peerAddress": address}));
        let mut row = ResourceRow::clone(&object(BgpPeer, "it", spec));
        let key = "landfall.dev/passive".to_owned();
        row.annotations = [(key, range.to_owned())].into();
        let (_, findings) = build(&[], &[Arc::new(row)]);
        let reasons = of(&findings, BgpPeer, "it");
        reasons.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for (range, address, word) in [
        ("10.0.0.0/24", "10.0.0.1", None),
        ("2001:db8::/64", "2001:db8::1", None),
        ("10.0.0.0/24", "10.0.1.1", Some("not in this range")),
        ("fe80::/64", "fe80::1", Some("link-local")),
        ("fe80::/10", "fe80::1", Some("link-local")),
    ] {
        let said = refusals(range, address);
        assert_eq!(said.len(), usize::from(word.is_some()), "{range}: {said:?}");
        assert!(said.iter().all(|it| it.contains(word.unwrap())), "{said:?}");
    }
}

#[test]
fn a_mistake_in_a_community_is_refused_with_its_field() {
    let one = |name: Value, value: Value| json!({"communities": [{"name": name, "value": value}]});
    refused(
        Community,
        &[
            (
                one(json!("a"), json!("99999999:1")),
                "spec.communities[0].value",
            ),
            (
                one(json!("a"), json!("lar:123:9999:123")),
                "spec.communities[0].value",
            ),
            (
                one(json!("a"), json!("no-export")),
                "spec.communities[0].value",
            ),
            (one(json!("a"), json!(7)), "spec.communities[0].value"),
            (one(json!("a"), Value::Null), "spec.communities[0].value"),
            (one(Value::Null, json!("1:2")), "spec.communities[0].name"),
            (
                json!({"communities": [
                    {"name": "a", "value": "1:2"}, {"name": "a", "value": "1:3"}]}),
                "spec.communities[1].name",
            ),
            (json!({"communities": {"a": "1:2"}}), "spec.communities"),
        ],
    );
}

#[test]
fn the_words_that_tools_of_metallb_look_for_are_in_the_messages() {
    for (value, words) in [
        ("99999999:1", &["invalid community value", "section"][..]),
        ("lar:123:9999:123", &["expected", "large"]),
    ] {
        let spec = json!({"communities": [{"name": "a", "value": value}]});
        let (_, findings) = build(&[], &[object(Community, "it", spec)]);
        let reason = &of(&findings, Community, "it")[0];
        for word in words {
            assert!(reason.message.contains(word), "{value}: {reason}");
        }
    }
}

#[test]
fn a_field_that_does_not_exist_is_ignored_with_a_warning() {
    let spec = json!({"ipAddressPool": ["a"], "interfaces": ["eth0"]});
    let (config, findings) = build(&[], &[object(L2Advertisement, "it", spec)]);
    let reasons = of(&findings, L2Advertisement, "it");
    assert_eq!(reasons.len(), 1);
    assert_eq!(reasons[0].severity, Severity::Warning);
    assert_eq!(reasons[0].field.as_deref(), Some("spec.ipAddressPool"));
    assert!(
        reasons[0].remedy.contains("ipAddressPools"),
        "{}",
        reasons[0]
    );
    assert_eq!(config.l2_advertisements().len(), 1);
}

#[test]
fn a_mistake_in_a_pool_is_refused_with_its_field_and_value() {
    for (addresses, field, value) in [
        (&[][..], "spec.addresses", None),
        (&["10.0.0.1"][..], "spec.addresses[0]", Some("10.0.0.1")),
        (
            &["10.0.0.0/24", "10.0.1.9-10.0.1.1"][..],
            "spec.addresses[1]",
            Some("10.0.1.9-10.0.1.1"),
        ),
        (
            &["10.0.0.1-2001:db8::1"][..],
            "spec.addresses[0]",
            Some("10.0.0.1-2001:db8::1"),
        ),
        (
            &["10.0.0.0/24", "10.0.0.128/25"][..],
            "spec.addresses[1]",
            Some("10.0.0.128/25"),
        ),
    ] {
        let (config, findings) = build(&[pool("it", addresses)], &[]);
        let reasons = of(&findings, ResourceKind::IpAddressPool, "it");
        assert_eq!(reasons.len(), 1, "{addresses:?}: {reasons:?}");
        assert_eq!(reasons[0].field.as_deref(), Some(field), "{addresses:?}");
        assert_eq!(reasons[0].value.as_deref(), value, "{addresses:?}");
        assert!(!reasons[0].remedy.is_empty());
        assert!(config.pools().is_empty());
    }
}

#[test]
fn what_is_not_read_of_a_pool_is_reported() {
    let report = |annotation: Option<(&str, &str)>, spec: Value| {
        let mut row = ResourceRow::clone(&object(ResourceKind::IpAddressPool, "it", spec));
        let annotations = annotation.into_iter();
        row.annotations = annotations
            .map(|(key, word)| (key.to_owned(), word.to_owned()))
            .collect();
        let row = PoolRow {
            resource: Some(Arc::new(row)),
            ..PoolRow::clone(&pool("it", &["10.0.0.0/24"]))
        };
        let (config, findings) = build(&[Arc::new(row)], &[]);
        assert_eq!(config.pools().iter().len(), 1);
        let reasons = of(&findings, ResourceKind::IpAddressPool, "it").iter();
        reasons
            .map(|it| (it.field.clone().unwrap_or_default(), it.severity))
            .collect::<Vec<_>>()
    };
    let good = json!({"addresses": ["10.0.0.0/24"], "serviceAllocation": {
        "priority": -3, "namespaces": ["a"], "serviceSelectors": [{"matchLabels": {"a": "b"}}]}});
    assert_eq!(report(Some(("landfall.dev/disabled", "false")), good), []);
    let unknown = vec![("spec.autoassign".to_owned(), Severity::Warning)];
    assert_eq!(report(None, json!({"autoassign": false})), unknown);
    for (key, word, severity) in [
        ("landfall.dev/disabled", "yes", Severity::Error),
        ("landfall.dev/cool-down", "soon", Severity::Error),
        ("landfall.dev/addresses-per-namespace", "0", Severity::Error),
        ("landfall.dev/cooldown", "1h", Severity::Warning),
    ] {
        let reported = report(Some((key, word)), Value::Null);
        assert_eq!(
            reported,
            [(format!("metadata.annotations[{key}]"), severity)]
        );
    }
}
