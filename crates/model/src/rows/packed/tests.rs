use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::reason::{Code, Origin, Reason};
use crate::recorded::vouch;
use crate::rows::SliceRow;
use crate::status::{ACCEPTED_VERSION, Condition, ConditionType, INSTANCE, IngressAddress};
use crate::wire;

/// A Service as a cluster has many.
fn usual() -> ServiceRow {
    let object = json!({
        "metadata": {
            "name": "web-123", "namespace": "shop", "uid": "0b5d0f4c-8a3e-4d0c-9f1e-6a7b8c9d0e1f",
            "resourceVersion": "104467", "creationTimestamp": "2026-11-22T01:02:03Z",
            "labels": {"app": "web-123", "team": "team-23"},
        },
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.3.7", "clusterIPs": ["10.96.3.7"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "allocateLoadBalancerNodePorts": false, "selector": {"app": "web-123"},
            "ports": [{"name": "http", "port": 8080, "targetPort": 8000, "protocol": "TCP"}],
        },
        "status": {"loadBalancer": {}},
    });
    row(object)
}

fn row(object: serde_json::Value) -> ServiceRow {
    let shape: wire::Service = serde_json::from_value(object).unwrap();
    shape.into_row().unwrap()
}

/// Nothing in it is as in [`usual`].
fn unusual() -> ServiceRow {
    let now = Timestamp::new(1_700_000_000, 1).unwrap();
    let texts = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    };
    let reason = Reason::error(Code::InvalidField, "nö\0");
    let mut row = row(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "chosen", "generation": -3,
            "deletionTimestamp": "2026-11-22T01:02:03Z"},
        "spec": {"type": "LoadBalancer", "loadBalancerIP": "fd00::1", "loadBalancerClass": "a.b/c",
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 30_123,
            "sessionAffinity": "ClientIP", "publishNotReadyAddresses": true,
            "loadBalancerSourceRanges": ["10.0.0.0/8", "fd00::/8"],
            "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"],
            "ports": [
                {"name": "a", "port": 65535, "targetPort": "web", "protocol": "UDP", "nodePort": 1},
                {"name": "b", "port": 1, "protocol": "SCTP", "appProtocol": "h2c"},
            ]},
        "status": {"loadBalancer": {"ingress": [
            {"ip": "10.0.0.1", "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP",
                "error": "No"}]},
            {"hostname": "web.example.com"},
        ]}},
    }));
    row.created = Timestamp::new(-7, -5).ok();
    row.resource_version = Some("not-a-number".into());
    row.recorded = Some("addresses=sha256:00".into());
    row.annotations = texts(&[("landfall.dev/drain", "5s"), ("x", "")]);
    row.affinity = Some(Duration::new(5, 7));
    row.finalized = true;
    row.source = Some(Arc::new(SourceMap {
        document: Origin {
            file: "a.yaml".into(),
            line: 3,
        },
        lines: BTreeMap::new(),
        newest_invalid: vec![Reason::error(Code::InvalidManifest, "no")],
    }));
    row.status.conditions = vec![
        Condition::met(ConditionType::Accepted, Code::Accepted, "fine", now),
        Condition::unmet(ConditionType::Programmed, &reason, now),
    ];
    row
}

fn slice(object: serde_json::Value) -> SliceRow {
    let shape: wire::EndpointSlice = serde_json::from_value(object).unwrap();
    shape.into_row().unwrap()
}

fn usual_slice() -> SliceRow {
    let endpoint = |number: u8| {
        json!({"addresses": [format!("10.4.7.{number}")], "nodeName": format!("node-{number}"),
            "targetRef": {"kind": "Pod", "name": format!("web-123-{number}")}})
    };
    slice(json!({
        "metadata": {"name": "web-123-1", "namespace": "shop",
            "labels": {"kubernetes.io/service-name": "web-123"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8000}],
        "endpoints": [endpoint(1), endpoint(2), endpoint(3)],
    }))
}

#[test]
fn a_service_unpacks_as_it_was_packed() {
    for row in [usual(), unusual()] {
        assert_eq!(PackedService::of(&row).row(row.key.clone()), Some(row));
    }
}

/// Texts that have pieces in common, with each other and with those of many Services.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,30}",
        "[a-f0-9]{0,70}",
        "(web|web-1|app\": \"web|-){0,9}",
        "(every field and annotation is valid|clients connect to |10.0.0.1){0,3}",
    ]
}

fn any_texts() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map(any_text(), any_text(), 0..4)
}

fn any_row() -> impl Strategy<Value = ServiceRow> {
    let texts = (any_text(), any_text(), any_text(), any_text());
    let maps = (any_texts(), any_texts(), any_texts(), any_texts());
    let some = any::<[bool; 8]>();
    let numbers = any::<(Option<i64>, Option<Duration>, i32)>();
    (texts, maps, some, numbers).prop_map(|(texts, maps, some, numbers)| {
        let [
            unlike,
            class,
            version,
            recorded,
            address,
            finalized,
            deleting,
            published,
        ] = some;
        let mut row = if unlike { unusual() } else { usual() };
        row.uid = Uid::new(&texts.0);
        row.class = class.then(|| texts.1.as_str().into());
        row.resource_version = version.then(|| texts.2.as_str().into());
        row.recorded = recorded.then(|| texts.3.as_str().into());
        row.load_balancer_ip = address.then(|| texts.0.clone());
        row.source_ranges = vec![texts.2, texts.1];
        (row.labels, row.annotations, row.selector, row.status.marks) = maps;
        (row.generation, row.affinity) = (numbers.0, numbers.1);
        row.created = Timestamp::from_second(numbers.2.into()).ok();
        (row.finalized, row.deleting) = (finalized, deleting);
        if published {
            row.status.ingress = vec![IngressAddress {
                hostname: Some(texts.3),
                ..IngressAddress::default()
            }];
        }
        row
    })
}

/// Reads all that can be read of it.
fn read(bytes: &[u8]) {
    let packed = PackedService {
        bytes: bytes.into(),
        source: None,
    };
    let _ = packed.row(ServiceKey::new("shop", "web"));
    let _ = (packed.status(), packed.size());
    let _ = packed.affiliation();
}

proptest! {
    #[test]
    fn any_service_unpacks_as_it_was_packed(row in any_row()) {
        let packed = PackedService::of(&row);
        prop_assert_eq!(packed.affiliation(), Some(OwnershipFields::from(&row)));
        let status = packed.status();
        prop_assert_eq!(status.as_ref(), Some(&row.status));
        let unpacked = packed.row(row.key.clone());
        prop_assert_eq!(unpacked.as_ref(), Some(&row));
        prop_assert_eq!(unpacked.as_ref().map(PackedService::of), Some(packed));
    }

    #[test]
    fn bytes_that_no_packing_left_are_read_without_a_panic(
        row in any_row(),
        (at, cut, byte) in any::<(prop::sample::Index, prop::sample::Index, u8)>(),
        other in any::<Vec<u8>>(),
    ) {
        let packed = PackedService::of(&row);
        let mut changed = packed.bytes.to_vec();
        changed[at.index(packed.bytes.len())] = byte;
        read(&changed);
        read(&changed[..cut.index(changed.len())]);
        read(&other);
        // The same where the dense form is one.
        let (dense, mut rest) = (packed.dense().unwrap(), packed.rest().unwrap());
        let (head, _) = packed.bytes.split_at(packed.bytes.len() - dense.len());
        rest[at.index(packed.size() - head.len())] = byte;
        read(&[head, &dense::of(&rest)].concat());
        read(&[head, &dense::of(&rest[..cut.index(rest.len())])].concat());
        read(&[head, &dense::of(&other)].concat());
    }
}

#[test]
fn what_repeats_itself_takes_little_room_and_counts_in_full() {
    let mut row = usual();
    let before = PackedService::of(&row);
    assert!(before.size() > before.bytes.len());
    let long = "a text that is not in the list of phrases; ".repeat(1000);
    row.annotations.insert("a".to_owned(), long.clone());
    let packed = PackedService::of(&row);
    assert!(packed.bytes.len() < before.bytes.len() + long.len() / 10);
    assert!(packed.size() > before.size() + long.len());
    assert_eq!(packed.row(row.key.clone()), Some(row));
}

#[test]
fn a_status_is_read_without_the_rest() {
    let bare = ServiceRow {
        status: ServiceStatus::default(),
        ..usual()
    };
    for row in [usual(), unusual(), bare] {
        assert_eq!(PackedService::of(&row).status(), Some(row.status));
    }
}

#[test]
fn a_slice_unpacks_as_it_was_packed() {
    let unusual = slice(json!({
        "metadata": {"name": "x", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv6", "ports": [{"protocol": "UDP"}],
        "endpoints": [{"addresses": ["fd00::1"], "conditions": {"ready": false,
            "terminating": true}}],
    }));
    let names = slice(json!({
        "metadata": {"name": "x", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "FQDN",
    }));
    let cut = SliceRow {
        cut: true,
        ..usual_slice()
    };
    let mark = SliceRow {
        cut: true,
        endpoints: Vec::new(),
        ..names.clone()
    };
    for row in [usual_slice(), unusual, names, cut, mark] {
        let packed = PackedSlice::of(&row);
        assert_eq!(packed.row(row.key.clone(), row.service.clone()), Some(row));
    }
}

#[test]
fn an_endpoint_of_a_slice_is_found_without_unpacking() {
    let other = slice(json!({
        "metadata": {"name": "x", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv6", "ports": [{"protocol": "UDP"}, {"name": "b", "port": 65535}],
        "endpoints": [{"addresses": ["fd00::1"]}, {"addresses": ["fd00::2"], "nodeName": "n1",
            "targetRef": {"name": "p"}}, {"addresses": ["fd00::3"]}],
    }));
    for row in [usual_slice(), other] {
        let packed = PackedSlice::of(&row);
        for endpoint in &row.endpoints {
            assert!(packed.has_endpoint(|address| address == endpoint.address));
        }
        let asked = std::cell::RefCell::new(Vec::new());
        assert!(!packed.has_endpoint(|address| {
            asked.borrow_mut().push(address);
            false
        }));
        let all: Vec<IpAddr> = row.endpoints.iter().map(|it| it.address).collect();
        assert_eq!(*asked.borrow(), all);
    }
}

#[test]
fn what_is_usual_takes_about_a_hundred_bytes() {
    let service = PackedService::of(&usual());
    assert!(service.bytes.len() <= 100, "{}", service.bytes.len());
    let slice = PackedSlice::of(&usual_slice());
    assert!(slice.size() <= 100, "{}", slice.size());
}

/// A Service with an address, as it is on record.
fn served() -> ServiceRow {
    let accepted = "{\"annotations\":{},\"spec\":{\"allocateLoadBalancerNodePorts\":false,\
        \"externalTrafficPolicy\":\"Cluster\",\"ipFamilies\":[\"IPv4\"],\"ipFamilyPolicy\":\
        \"SingleStack\",\"ports\":[{\"name\":\"http\",\"port\":8080,\"protocol\":\"TCP\",\
        \"targetPort\":8000}],\"selector\":{\"app\":\"web-123\"},\"sessionAffinity\":\"None\",\
        \"type\":\"LoadBalancer\"}}";
    let marks = [
        ("metallb.io/ip-allocated-from-pool", "public"),
        (ACCEPTED_VERSION, accepted),
        (INSTANCE, "metal"),
    ];
    let marks = marks.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let now = Timestamp::new(1_764_000_000, 0).unwrap();
    let no_endpoint = "the Service has no endpoints";
    let remedy = "start pods that its selector matches, or write an EndpointSlice with the label \
                  kubernetes.io/service-name: web-123";
    let reason = Reason::warning(Code::NoEndpoints, no_endpoint).remedy(remedy);
    let mut row = usual();
    row.finalized = true;
    row.status.ingress = vec![IngressAddress {
        ip: Some("10.90.1.123".parse().unwrap()),
        ..IngressAddress::default()
    }];
    row.status.conditions = vec![
        Condition::met(
            ConditionType::Accepted,
            Code::Accepted,
            "every field and annotation is valid",
            now,
        ),
        Condition::met(
            ConditionType::Addressed,
            Code::Assigned,
            "clients connect to 10.90.1.123",
            now,
        ),
        Condition::unmet(ConditionType::Programmed, &reason, now),
    ];
    row.status.marks = marks.into();
    row.recorded = vouch(row.uid.as_str(), &row.status.marks).map(Into::into);
    row
}

#[test]
fn what_is_on_record_takes_a_third_of_the_room_that_its_texts_take() {
    let row = served();
    let packed = PackedService::of(&row);
    assert!(packed.bytes.len() <= 290, "{}", packed.bytes.len());
    assert!(packed.size() > 850, "{}", packed.size());
    assert_eq!(packed.status().as_ref(), Some(&row.status));
    assert_eq!(packed.row(row.key.clone()), Some(row));
}

#[test]
fn packed_services_differ_where_their_rows_do() {
    let packed = PackedService::of(&usual());
    assert_eq!(PackedService::of(&usual()), packed);
    let mut other = usual();
    other.deleting = true;
    assert_ne!(PackedService::of(&other), packed);
    let mut other = usual();
    other.source = unusual().source;
    assert_ne!(PackedService::of(&other), packed);
}
