use std::collections::BTreeMap;

use landfall_model::recorded::vouch;
use landfall_model::rows::OwnershipFields;
use landfall_model::status::{Condition, ConditionType, ServiceStatus};
use landfall_testkit::{slice, svc};
use serde_json::json;

use super::*;
use crate::watch::kind::{Object, Outcome, Version};
use crate::watch::known::Known;

/// The limit in most tests.
const MOST: usize = 16 << 20;

/// What receives the facts: it keeps rows as the World does.
#[derive(Default)]
struct Receiver {
    rows: BTreeMap<ServiceKey, (Fact, usize)>,
    problems: BTreeMap<Arc<str>, Vec<Reason>>,
}

// === impl Receiver ===

impl Receiver {
    fn take(&mut self, fact: Fact) {
        match &fact {
            Fact::Service(row) => {
                let size = PackedService::of(row).size();
                self.rows.insert(row.key.clone(), (fact, size));
            }
            Fact::Slice(row) => {
                let size = PackedSlice::of(row).size();
                self.rows.insert(row.key.clone(), (fact, size));
            }
            Fact::ServiceGone(key) | Fact::SliceGone(key) => {
                self.rows.remove(key).unwrap();
            }
            Fact::SourceProblems { part, reasons } if reasons.is_empty() => {
                self.problems.remove(part).unwrap();
            }
            Fact::SourceProblems { part, reasons } => {
                self.problems.insert(part.clone(), reasons.clone());
            }
            // They are no row, and bounded for themselves.
            Fact::ClusterIps(..) => {}
            other => panic!("{other:?}"),
        }
    }

    /// The bytes that the rows of a namespace take.
    fn bytes(&self, namespace: &str) -> usize {
        let rows = self.rows.iter();
        let rows = rows.filter(|(key, _)| key.namespace() == namespace);
        rows.map(|(_, (_, size))| size).sum()
    }

    fn service(&self, name: &str) -> Option<&ServiceRow> {
        match &self.rows.get(&key(name))?.0 {
            Fact::Service(row) => Some(row),
            _ => None,
        }
    }

    /// The Services and slices that are kept as they are.
    fn whole(&self) -> Vec<&str> {
        let rows = self.rows.iter();
        let whole = rows.filter(|(_, (fact, _))| match fact {
            Fact::Service(row) => row.faults.is_empty(),
            Fact::Slice(row) => !row.cut,
            _ => true,
        });
        whole.map(|(key, _)| key.name()).collect()
    }

    fn slice(&self, name: &str) -> Option<&SliceRow> {
        match &self.rows.get(&key(name))?.0 {
            Fact::Slice(row) => Some(row),
            _ => None,
        }
    }

    fn reasons(&self) -> Vec<&Reason> {
        self.problems.values().flatten().collect()
    }
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("shop", name)
}

fn object(fact: Fact, version: u64, left_out: Vec<Reason>) -> Object {
    let key = match &fact {
        Fact::Service(row) => row.key.clone(),
        Fact::Slice(row) => row.key.clone(),
        other => panic!("{other:?}"),
    };
    let version = version.to_string();
    Object {
        key,
        version: Version::of(&version),
        resume_from: version,
        outcome: Outcome::Row(fact),
        left_out,
        cluster_ips: None,
    }
}

fn known(kind: Kind, most: usize) -> (Known, Receiver) {
    (Known::with(kind, Shares::of(most)), Receiver::default())
}

fn apply(known: &mut Known, receiver: &mut Receiver, fact: Fact, version: u64) {
    known.apply(object(fact, version, Vec::new()), |fact| {
        receiver.take(fact);
    });
}

/// A Service that carries so many bytes in an annotation of ours.
fn service(name: &str, bytes: usize) -> Fact {
    let service = svc(name).in_namespace("shop").port(80);
    let text = "x".repeat(bytes);
    Fact::Service(service.annotated("landfall.dev/endpoints", &text).row())
}

/// A slice of one endpoint whose pod has a name of so many bytes.
fn endpoints(name: &str, bytes: usize) -> Fact {
    let row = slice("web").named(name).pod(&"x".repeat(bytes), "10.0.0.1");
    let row = SliceRow {
        key: key(name),
        service: key("web"),
        ..SliceRow::clone(&row.row())
    };
    Fact::Slice(Arc::new(row))
}

#[test]
fn what_one_namespace_carries_is_bounded_and_others_are_read_whole() {
    let (mut services, mut receiver) = known(Kind::Services, MOST);
    for number in 0..200 {
        let fact = service(&format!("s{number}"), 256 << 10);
        apply(&mut services, &mut receiver, fact, 1);
    }
    let bytes = receiver.bytes("shop");
    assert!(bytes <= MOST * 5 / 4, "{bytes}");
    assert!(bytes > MOST / 2, "{bytes}");
    // Each is known, and says why it is not served.
    assert_eq!(receiver.rows.len(), 200);
    let other = svc("web").in_namespace("other").port(80).row();
    apply(
        &mut services,
        &mut receiver,
        Fact::Service(other.clone()),
        1,
    );
    let (kept, _) = &receiver.rows[&other.key];
    assert!(matches!(kept, Fact::Service(row) if *row == other));

    let (mut slices, mut receiver) = known(Kind::Slices, MOST);
    for number in 0..200 {
        let fact = endpoints(&format!("s{number}"), 1 << 20);
        apply(&mut slices, &mut receiver, fact, 1);
    }
    let bytes = receiver.bytes("shop");
    assert!(bytes <= MOST, "{bytes}");
    assert_eq!(receiver.whole().len(), 15);
    assert_eq!(receiver.rows.len(), 200, "and marks of the others");
}

#[test]
fn many_small_objects_count_with_what_they_take_beside_their_bytes() {
    let (mut slices, mut receiver) = known(Kind::Slices, 100 * (ROW + 100));
    for number in 0..1000 {
        apply(
            &mut slices,
            &mut receiver,
            endpoints(&format!("s{number}"), 1),
            1,
        );
    }
    let (rows, whole) = (receiver.rows.len(), receiver.whole().len());
    assert!(whole <= 140 && rows - whole <= 35, "{rows}, {whole} whole");
    let named = |secrets: &str| {
        let service = svc("web").in_namespace("shop").port(443);
        let service = service.annotated("landfall.dev/tls-secret", secrets);
        weight(&service.row())
    };
    assert!(named("a,b,c") >= named("a") + 2 * SECRET);
}

#[test]
fn a_service_over_the_limit_is_refused_with_a_reason_and_keeps_what_it_holds() {
    let (mut services, mut receiver) = known(Kind::Services, 16 << 10);
    apply(&mut services, &mut receiver, service("big", 12 << 10), 1);
    assert_eq!(receiver.reasons(), Vec::<&Reason>::new());
    let held = svc("held").in_namespace("shop").port(80).port(81);
    let held = held.holding("192.0.2.1").labelled("app", "web");
    let held = held.annotated("landfall.dev/drain", &"x".repeat(4 << 10));
    let held = held.with(|row| row.finalized = true).row();
    apply(&mut services, &mut receiver, Fact::Service(held.clone()), 1);
    let kept = receiver.service("held").unwrap();
    assert_eq!(kept.faults[0].code, Code::LimitReached);
    assert_eq!(kept.faults.len(), 1);
    assert_eq!(
        OwnershipFields::from(kept),
        OwnershipFields::from(&*held),
        "it is whose it was"
    );
    assert_eq!((&kept.status, &kept.uid), (&held.status, &held.uid));
    assert_eq!((&kept.labels, kept.annotations.len()), (&held.labels, 0));
    // The operator is notified once.
    apply(&mut services, &mut receiver, service("more", 4 << 10), 1);
    let [reason] = receiver.reasons()[..] else {
        panic!("{:?}", receiver.problems)
    };
    assert!(reason.message.contains("namespace shop"), "{reason}");
    assert_eq!(reason.code, Code::LimitReached);

    // Edits that need less than there is are read at once.
    apply(&mut services, &mut receiver, service("more", 10), 2);
    assert_eq!(receiver.whole(), ["big", "more"]);
    services.delete(&held.key, |fact| receiver.take(fact));
    assert_eq!(receiver.reasons(), Vec::<&Reason>::new());
}

#[test]
fn what_takes_no_more_than_before_is_read_at_the_limit_too() {
    let (mut slices, mut receiver) = known(Kind::Slices, 4 << 10);
    apply(&mut slices, &mut receiver, endpoints("a", 1 << 10), 1);
    apply(&mut slices, &mut receiver, endpoints("b", 1 << 10), 1);
    apply(&mut slices, &mut receiver, endpoints("c", 4 << 10), 1);
    assert_eq!(receiver.whole(), ["a", "b"]);
    apply(&mut slices, &mut receiver, endpoints("a", 1 << 10), 2);
    assert_eq!(receiver.whole(), ["a", "b"]);
    // Not as it was: its endpoints may belong to others by now.
    apply(&mut slices, &mut receiver, endpoints("b", 4 << 10), 2);
    assert_eq!(receiver.whole(), ["a"]);
    apply(&mut slices, &mut receiver, endpoints("b", 1 << 10), 3);
    assert_eq!(receiver.whole(), ["a", "b"]);
}

#[test]
fn a_slice_without_room_leaves_a_mark_so_that_its_service_says_why() {
    let (mut slices, mut receiver) = known(Kind::Slices, 16 << 10);
    for name in ["a", "b", "c"] {
        apply(&mut slices, &mut receiver, endpoints(name, 7 << 10), 1);
    }
    let mark = SliceRow {
        key: key("c"),
        service: key("web"),
        ..SliceRow::clone(&slice("web").cut().row())
    };
    assert_eq!(receiver.slice("c"), Some(&mark));
    assert!(!receiver.slice("a").unwrap().cut);
    assert_eq!(receiver.reasons().len(), 1);
    // One that has no endpoint lacks none.
    let empty = SliceRow {
        key: key("d"),
        service: key("web"),
        ..SliceRow::clone(&slice("web").port(&"x".repeat(4 << 10), 80).row())
    };
    apply(&mut slices, &mut receiver, Fact::Slice(empty.into()), 1);
    assert_eq!(receiver.slice("d"), None);
    slices.delete(&key("d"), |fact| receiver.take(fact));
    slices.delete(&key("c"), |fact| receiver.take(fact));
    assert_eq!(receiver.rows.len(), 2);
    assert!(!slices.take_freed(), "there is no more room than before");
    assert_eq!(receiver.reasons(), Vec::<&Reason>::new());
}

#[test]
fn marks_of_slices_are_bounded_and_take_no_room_of_endpoints() {
    let (mut slices, mut receiver) = known(Kind::Slices, 64 << 10);
    apply(&mut slices, &mut receiver, endpoints("large", 63 << 10), 1);
    for number in 0..1000 {
        let fact = endpoints(&format!("s{number:03}"), 2 << 10);
        apply(&mut slices, &mut receiver, fact, 1);
    }
    assert_eq!(receiver.whole(), ["large"]);
    let marks = receiver.rows.len() - 1;
    assert!((50..=64).contains(&marks), "{marks}");
    slices.delete(&key("large"), |fact| receiver.take(fact));
    assert!(slices.take_freed());
    slices.begin_listing();
    for number in (0..1000).rev() {
        let fact = endpoints(&format!("s{number:03}"), 2 << 10);
        apply(&mut slices, &mut receiver, fact, 1);
    }
    slices.end_listing(|fact| receiver.take(fact));
    let whole = receiver.whole().len();
    assert!(whole * (2 << 10) > 54 << 10, "{whole}");
    slices.forget_all(|fact| receiver.take(fact));
    assert!(receiver.rows.is_empty() && receiver.problems.is_empty());
    assert!(slices.shares().of.is_empty());
}

#[test]
fn what_was_refused_is_read_by_the_next_list_once_there_is_room() {
    for kind in [Kind::Services, Kind::Slices] {
        let make = |name: &str, bytes: usize| match kind {
            Kind::Services => service(name, bytes),
            _ => endpoints(name, bytes),
        };
        let (mut known, mut receiver) = known(kind.clone(), 16 << 10);
        for name in ["a", "b", "c"] {
            apply(&mut known, &mut receiver, make(name, 7 << 10), 1);
        }
        assert_eq!(receiver.whole(), ["a", "b"]);
        assert!(!known.take_freed(), "there is no more room than before");
        known.delete(&key("a"), |fact| receiver.take(fact));
        assert!(known.take_freed() && !known.take_freed());
        known.begin_listing();
        for name in ["b", "c"] {
            apply(&mut known, &mut receiver, make(name, 7 << 10), 1);
        }
        known.end_listing(|fact| receiver.take(fact));
        assert_eq!(receiver.whole(), ["b", "c"]);
        assert_eq!(receiver.reasons(), Vec::<&Reason>::new());
        known.delete(&key("b"), |fact| receiver.take(fact));
        assert!(!known.take_freed(), "nothing waits for it");
    }
}

#[test]
fn of_services_without_number_that_hold_nothing_only_some_are_refused_with_a_reason() {
    let (mut services, mut receiver) = known(Kind::Services, 64 << 10);
    for number in 0..1000 {
        let fact = service(&format!("s{number:03}"), 100);
        apply(&mut services, &mut receiver, fact, 1);
    }
    let (rows, whole) = (receiver.rows.len(), receiver.whole().len());
    assert!(
        rows > whole && rows < 250,
        "{rows} rows, {whole} of them whole"
    );
    // What may have something is known in any case: as one that is gone it would be removed.
    let held = svc("held")
        .in_namespace("shop")
        .port(80)
        .holding("192.0.2.1");
    let held = held.annotated("landfall.dev/drain", &"x".repeat(100)).row();
    apply(&mut services, &mut receiver, Fact::Service(held), 1);
    assert!(receiver.service("held").is_some());
    assert_eq!(receiver.reasons().len(), 1);
    services.forget_all(|fact| receiver.take(fact));
    assert!(receiver.rows.is_empty() && receiver.problems.is_empty());
}

#[test]
fn of_slices_with_problems_a_namespace_has_few_that_are_reported() {
    let (mut slices, mut receiver) = known(Kind::Slices, MOST);
    let problems = |count| vec![Reason::error(Code::InvalidField, "not an address"); count];
    for number in 0..1000 {
        let fact = endpoints(&format!("s{number:03}"), 1);
        let object = object(fact, 1, problems(1000));
        slices.apply(object, |fact| receiver.take(fact));
    }
    assert_eq!(receiver.rows.len(), 1000);
    assert_eq!(receiver.problems.len(), FAULTY);
    assert_eq!(receiver.reasons().len(), FAULTY * FAULTY);
    // One that is corrected leaves its place to another.
    apply(&mut slices, &mut receiver, endpoints("s000", 1), 2);
    assert_eq!(receiver.problems.len(), FAULTY - 1);
    let object = object(endpoints("s999", 1), 2, problems(1));
    slices.apply(object, |fact| receiver.take(fact));
    assert_eq!(receiver.problems.len(), FAULTY);
    slices.forget_all(|fact| receiver.take(fact));
    assert!(receiver.problems.is_empty());
}

/// A Service as the API server sends it, served by a cloud, with everything that is usual.
fn usual(number: usize, more: &serde_json::Value) -> serde_json::Value {
    let name = format!("storefront-checkout-{number:05}");
    let uid = format!("7c1f0b5e-93a4-4f0e-8d3c-2b6e5a4{number:05}");
    let mut object = json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": uid, "resourceVersion": "184467440",
            "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
            "labels": {
                "app.kubernetes.io/name": name, "app.kubernetes.io/instance": "checkout",
                "app.kubernetes.io/version": "2.14.1", "app.kubernetes.io/component": "frontend",
                "app.kubernetes.io/part-of": "storefront",
                "app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "storefront-4.3.2",
            },
            "annotations": {
                "meta.helm.sh/release-name": "checkout",
                "landfall.dev/tls-secret": format!("{name}-tls"),
                "loadbalancer.openstack.org/keep-floatingip": "true",
            },
            "managedFields": vec![json!({"manager": "helm", "fieldsV1": "x".repeat(1500)}); 2],
        },
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.14.7", "clusterIPs": ["10.96.14.7"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster",
            "ports": [
                {"name": "http", "port": 80, "targetPort": "http", "nodePort": 30080,
                    "protocol": "TCP"},
                {"name": "https", "port": 443, "targetPort": "https", "nodePort": 30443,
                    "protocol": "TCP", "appProtocol": "https"}],
            "selector": {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": "checkout"},
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        object["metadata"]["labels"][key] = value.clone();
    }
    let marks = BTreeMap::from([
        (ACCEPTED_VERSION.to_owned(), accepted_text(&object)),
        (INSTANCE.to_owned(), "openstack".to_owned()),
        (
            "state.landfall.dev/load-balancer".to_owned(),
            format!("v1 {uid} 2026-01-01T00:00:00 {}", "0f".repeat(32)),
        ),
        (
            "loadbalancer.openstack.org/load-balancer-id".to_owned(),
            uid.clone(),
        ),
        (
            "loadbalancer.openstack.org/load-balancer-address".to_owned(),
            "203.0.113.77".to_owned(),
        ),
    ]);
    let said = |kind: &str, message: &str| {
        json!({"type": kind, "status": "True", "reason": "Accepted", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 3})
    };
    object["status"] = json!({
        "loadBalancer": {"ingress": [{"ip": "203.0.113.77", "ipMode": "VIP"}]},
        "conditions": [
            said("landfall.dev/Accepted", "every field and annotation is valid"),
            said("landfall.dev/Addressed", "clients connect to 203.0.113.77"),
            said("landfall.dev/Programmed", "traffic flows"),
            said("landfall.dev/Recorded", &vouch(&uid, &marks).unwrap()),
        ],
    });
    for (key, value) in marks {
        object["metadata"]["annotations"][key] = value.into();
    }
    object
}

fn accepted_text(object: &serde_json::Value) -> String {
    wire::accepted_to_text(&read(object)).unwrap()
}

fn read(object: &serde_json::Value) -> ServiceRow {
    match Kind::Services
        .validate(&object.to_string())
        .unwrap()
        .outcome
    {
        Outcome::Row(Fact::Service(row)) => Arc::unwrap_or_clone(row),
        other => panic!("{other:?}"),
    }
}

fn list(known: &mut Known, receiver: &mut Receiver, object: &serde_json::Value) {
    let object = Kind::Services.validate(&object.to_string()).unwrap();
    known.apply(object, |fact| receiver.take(fact));
}

#[test]
fn twenty_thousand_usual_services_of_a_namespace_and_their_slices_are_read() {
    let row = read(&usual(0, &json!({})));
    assert_eq!(
        row.status.marks.len(),
        5,
        "what it is usually recorded with"
    );
    assert_eq!(named::count(&row), 1);
    let service = weight(&row);
    assert!(service > 2000, "{service}");
    assert!(service * 20_000 <= BYTES_OF_SERVICES, "{service} bytes");

    let mut both = slice("storefront-checkout-00000").named("storefront-checkout-00000-x7k2p");
    for number in 0..4 {
        both = both.pod(
            "storefront-checkout-7d9c5b8f6d-x7k2p",
            &format!("10.244.1.{number}"),
        );
    }
    let both = both.port("http", 8080).port("https", 8443).row();
    let mut row = SliceRow::clone(&both);
    for endpoint in &mut row.endpoints {
        endpoint.node = Some("ip-10-0-12-34.eu-central-1.compute.internal".into());
    }
    // One of each family.
    let bytes = weight_of_slice(&row);
    assert!(bytes > 500, "{bytes}");
    assert!(bytes * 2 * 20_000 <= BYTES_OF_SLICES, "{bytes} bytes");
}

#[test]
fn the_order_of_the_first_list_decides_nothing_for_usual_services_that_are_served() {
    let weigh = weight(&read(&usual(0, &json!({}))));
    let (mut services, mut receiver) = known(Kind::Services, weigh * 40);
    // Another one comes first, and leaves no room.
    apply(&mut services, &mut receiver, service("a", weigh * 39), 1);
    for number in 0..10 {
        list(&mut services, &mut receiver, &usual(number, &json!({})));
    }
    assert_eq!(receiver.whole().len(), 11, "{:?}", receiver.whole());
    // One that does not serve waits, and does so when that stands in its status.
    apply(&mut services, &mut receiver, service("z", 10), 1);
    let refused = svc("z").in_namespace("shop").port(80).with(|row| {
        let reason = Reason::error(Code::LimitReached, "no room");
        let now = jiff::Timestamp::UNIX_EPOCH;
        row.status.conditions = vec![Condition::unmet(ConditionType::Accepted, &reason, now)];
    });
    let refused = Fact::Service(refused.row());
    apply(&mut services, &mut receiver, refused, 2);
    assert_eq!(receiver.whole().len(), 11);
    assert_eq!(receiver.reasons().len(), 1);
}

#[test]
fn what_announces_and_removes_a_service_is_left_of_one_that_is_refused() {
    let weigh = weight(&read(&usual(0, &json!({}))));
    let (mut services, mut receiver) = known(Kind::Services, weigh * 2);
    let mut object = usual(0, &json!({}));
    list(&mut services, &mut receiver, &object);
    let before = receiver
        .service("storefront-checkout-00000")
        .unwrap()
        .clone();
    // It grows by what is long.
    let long = "x".repeat(weigh * 3);
    let annotations = &mut object["metadata"]["annotations"];
    annotations["landfall.dev/endpoints"] = long.clone().into();
    annotations["metallb.io/ip-allocated-from-pool"] = long.clone().into();
    annotations["state.landfall.dev/instance"] = long.clone().into();
    object["metadata"]["labels"]["long"] = long.into();
    object["metadata"]["resourceVersion"] = "184467441".into();
    list(&mut services, &mut receiver, &object);
    let kept = receiver.service("storefront-checkout-00000").unwrap();
    assert_eq!(kept.faults[0].code, Code::LimitReached);
    assert_eq!(
        (&kept.labels, &kept.annotations),
        (&before.labels, &before.annotations)
    );
    assert_eq!(
        (&kept.ports, kept.instance()),
        (&before.ports, Some("openstack"))
    );
    let marks = |status: &ServiceStatus| {
        let mut marks = status.marks.clone();
        marks.remove(INSTANCE);
        marks
    };
    assert_eq!(
        marks(&kept.status),
        marks(&before.status),
        "and none that anyone can make long"
    );
    assert!(receiver.bytes("shop") <= weigh * 2);
}

#[test]
fn a_service_that_may_hold_something_is_known_before_its_first_status() {
    let (mut services, mut receiver) = known(Kind::Services, 2 << 10);
    for name in ["a", "b", "c", "d", "e", "f"] {
        apply(&mut services, &mut receiver, service(name, 4 << 10), 1);
    }
    assert!(receiver.rows.len() < 6, "there is no room for any more");
    let begun = svc("begun").in_namespace("shop").port(80);
    let begun = begun.annotated("landfall.dev/endpoints", &"x".repeat(8 << 10));
    let begun = begun.with(|row| row.finalized = true).row();
    apply(&mut services, &mut receiver, Fact::Service(begun), 1);
    let kept = receiver.service("begun").unwrap();
    assert!(kept.finalized && !kept.faults.is_empty());
}

#[test]
fn a_service_that_is_refused_counts_with_the_version_that_is_served() {
    let (mut services, mut receiver) = known(Kind::Services, 16 << 10);
    for version in [1, 3] {
        apply(
            &mut services,
            &mut receiver,
            service("a", 10 << 10),
            version,
        );
        assert_eq!(receiver.whole().first(), Some(&"a"), "as it was");
        // Its older version is served, so nothing takes its place.
        apply(
            &mut services,
            &mut receiver,
            service("a", 20 << 10),
            version + 1,
        );
        apply(
            &mut services,
            &mut receiver,
            service("b", 10 << 10),
            version,
        );
        assert_eq!(receiver.whole(), Vec::<&str>::new());
    }
    assert!(!services.take_freed());
    services.delete(&key("a"), |fact| receiver.take(fact));
    assert!(services.take_freed());
    apply(&mut services, &mut receiver, service("b", 10 << 10), 3);
    assert_eq!(receiver.whole(), ["b"]);
    assert_eq!(receiver.reasons(), Vec::<&Reason>::new());
}

#[test]
fn a_version_that_is_not_accepted_makes_no_room() {
    let weigh = weight(&read(&usual(0, &json!({}))));
    let long = json!({"long": "x".repeat(weigh * 2)});
    let (mut services, mut receiver) = known(Kind::Services, weigh * 4);
    list(&mut services, &mut receiver, &usual(0, &long));
    // Invalid, so that the version with the long label is served.
    let mut invalid = usual(0, &json!({}));
    invalid["metadata"]["resourceVersion"] = "184467441".into();
    invalid["metadata"]["annotations"]["landfall.dev/mode"] = "sideways".into();
    list(&mut services, &mut receiver, &invalid);
    assert_eq!(receiver.whole().len(), 1);
    apply(&mut services, &mut receiver, service("b", weigh), 1);
    assert_eq!(receiver.whole().len(), 1, "there is no room for it");
    // As it is written down once it was accepted.
    let mut valid = usual(0, &json!({}));
    valid["metadata"]["resourceVersion"] = "184467442".into();
    list(&mut services, &mut receiver, &valid);
    apply(&mut services, &mut receiver, service("b", weigh), 2);
    assert_eq!(receiver.whole().len(), 2);
}

#[test]
fn a_slice_that_grows_over_the_limit_goes_on_with_the_endpoints_that_it_had() {
    let of = |name: &str, pods: usize| {
        let mut builder = slice("web").named(name);
        for number in 0..pods {
            builder = builder.pod(&format!("web-{number:03}"), &format!("10.0.0.{number}"));
        }
        let row = SliceRow {
            key: key(name),
            service: key("web"),
            ..SliceRow::clone(&builder.row())
        };
        Fact::Slice(Arc::new(row))
    };
    let endpoints = |receiver: &Receiver, name: &str| match receiver.rows.get(&key(name)) {
        Some((Fact::Slice(row), _)) => row.endpoints.len(),
        _ => 0,
    };
    let Fact::Slice(hundred) = of("a", 100) else {
        panic!("a slice");
    };
    let (mut slices, mut receiver) = known(Kind::Slices, weight_of_slice(&hundred));
    apply(&mut slices, &mut receiver, of("a", 100), 1);
    apply(&mut slices, &mut receiver, of("a", 102), 2);
    assert_eq!(endpoints(&receiver, "a"), 100);
    assert!(receiver.slice("a").unwrap().cut);
    assert_eq!(receiver.reasons().len(), 1, "which is reported");
    apply(&mut slices, &mut receiver, of("a", 99), 3);
    assert_eq!(endpoints(&receiver, "a"), 99);
    assert!(!receiver.slice("a").unwrap().cut);
    assert_eq!(receiver.reasons(), Vec::<&Reason>::new());
    apply(&mut slices, &mut receiver, of("b", 1), 1);
    assert_eq!(endpoints(&receiver, "b"), 0);
    slices.delete(&key("a"), |fact| receiver.take(fact));
    assert!(slices.take_freed());
    apply(&mut slices, &mut receiver, of("b", 1), 1);
    assert_eq!(endpoints(&receiver, "b"), 1);
}

#[test]
fn accounts_add_up_however_objects_come_and_go() {
    for kind in [Kind::Services, Kind::Slices] {
        let most = 16 << 10;
        let (mut known, mut receiver) = known(kind.clone(), most);
        let mut random = 7_usize;
        for version in 1..3000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695);
            let (name, step) = (format!("o{}", (random >> 33) % 12), (random >> 45) % 8);
            let bytes = (random >> 20) % (6 << 10);
            match step {
                0 => known.delete(&key(&name), |fact| receiver.take(fact)),
                1 => {
                    let nothing = Object {
                        outcome: Outcome::Nothing,
                        ..object(service(&name, 1), version, Vec::new())
                    };
                    known.apply(nothing, |fact| receiver.take(fact));
                }
                2 => known.begin_listing(),
                3 => known.end_listing(|fact| receiver.take(fact)),
                _ => {
                    let fact = match kind {
                        Kind::Services => service(&name, bytes),
                        _ => endpoints(&name, bytes),
                    };
                    apply(&mut known, &mut receiver, fact, version);
                }
            }
            let share = known.shares().of.get("shop");
            let taken = share.map_or(0, |share| share.bytes + share.marks);
            assert!(receiver.bytes("shop") <= taken, "step {version}");
            assert!(taken <= most * 2, "{taken}");
        }
        known.forget_all(|fact| receiver.take(fact));
        assert!(receiver.rows.is_empty() && receiver.problems.is_empty());
        assert!(known.shares().of.is_empty(), "{:?}", known.shares());
    }
}
