//! The life of a Service, without files and disks.

use landfall_model::rows::ServiceRow;
use landfall_model::status::{INSTANCE, IngressAddress};
use landfall_model::wire;
use proptest::prelude::*;

use super::*;

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

fn later() -> Timestamp {
    "2026-02-03T04:05:06Z".parse().unwrap()
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

fn uid() -> Uid {
    Uid::new("u1")
}

/// A manifest.
fn manifest(name: &str, uid: &str, port: u16) -> Arc<ServiceRow> {
    let shape: wire::Service = serde_json::from_value(serde_json::json!({
        "metadata": {"name": name, "uid": uid},
        "spec": {"type": "LoadBalancer", "ports": [{"port": port}]},
    }))
    .unwrap();
    Arc::new(shape.into_row().unwrap())
}

fn rows(manifests: impl IntoIterator<Item = Arc<ServiceRow>>) -> Rows {
    manifests
        .into_iter()
        .map(|row| (row.key.clone(), row))
        .collect()
}

fn status(last: u8) -> ServiceStatus {
    ServiceStatus {
        ingress: vec![IngressAddress {
            ip: Some(std::net::IpAddr::from([127, 0, 0, last])),
            ..IngressAddress::default()
        }],
        conditions: Vec::new(),
        ..ServiceStatus::default()
    }
}

impl Registry {
    /// Takes in all that the manifests say, in place of what is different.
    pub(crate) fn want_all(
        &mut self,
        rows: Rows,
        incomplete: impl Fn(&ServiceKey) -> bool,
        why: impl Fn(&ServiceKey) -> Vec<Reason>,
        now: Timestamp,
    ) {
        let gone = self.wanted.keys().filter(|key| !rows.contains_key(*key));
        let mut changes: Wanted = gone.map(|key| (key.clone(), None)).collect();
        changes.extend(rows.into_iter().map(|(key, row)| (key, Some(row))));
        self.want(changes, incomplete, why, now);
    }
}

fn want(registry: &mut Registry, manifests: impl IntoIterator<Item = Arc<ServiceRow>>) {
    registry.want_all(rows(manifests), |_| false, |_| Vec::new(), now());
}

/// Writes that succeed at once.
trait Writes {
    fn write(&mut self, key: &ServiceKey, uid: &Uid, write: Write, now: Timestamp) -> Outcome;

    fn add_finalizer(&mut self, key: &ServiceKey, uid: &Uid, _: Option<&ServiceStatus>) -> Outcome {
        self.write(key, uid, Write::Finalizer(None), now())
    }

    fn write_status(&mut self, key: &ServiceKey, uid: &Uid, status: &ServiceStatus) -> Outcome {
        self.write(key, uid, Write::Status(status.clone()), now())
    }

    fn remove_finalizer(&mut self, key: &ServiceKey, uid: &Uid, now: Timestamp) {
        self.write(key, uid, Write::NoFinalizer, now).unwrap();
    }

    fn records(&self) -> Vec<Arc<ServiceRow>>;
}

type Outcome = Result<(), Outdated>;

impl Writes for Registry {
    fn write(&mut self, key: &ServiceKey, uid: &Uid, write: Write, now: Timestamp) -> Outcome {
        let requests = [request(key, uid, write)];
        let batch = self.begin(&requests, now);
        self.finish(&requests, batch)[0]
    }

    fn records(&self) -> Vec<Arc<ServiceRow>> {
        self.records.values().cloned().collect()
    }
}

fn request(key: &ServiceKey, uid: &Uid, write: Write) -> Request {
    Request {
        key: key.clone(),
        uid: uid.clone(),
        write,
    }
}

/// One registry with one Service that has its finalizer and an address.
fn serving() -> Registry {
    let mut registry = Registry::default();
    want(&mut registry, [manifest("web", "u1", 80)]);
    registry.add_finalizer(&key("web"), &uid(), None).unwrap();
    registry
        .write_status(&key("web"), &uid(), &status(2))
        .unwrap();
    registry.take_changed();
    registry
}

fn served_row() -> ServiceRow {
    ServiceRow {
        created: Some(now()),
        finalized: true,
        status: status(2),
        ..ServiceRow::clone(&manifest("web", "u1", 80))
    }
}

/// The one Service that changed, as it is now.
fn changed(registry: &mut Registry) -> Option<ServiceRow> {
    let [(changed, row)] = registry.take_changed().try_into().unwrap();
    assert_eq!(changed, key("web"));
    row.map(|row| ServiceRow::clone(&row))
}

/// The same after a restart.
fn restarted(registry: &Registry) -> Registry {
    Registry::new(Remembered {
        services: registry.records(),
        pools: registry.pools.values().cloned().collect(),
    })
}

#[test]
fn a_new_service_has_neither_finalizer_nor_status() {
    let mut registry = Registry::default();
    want(&mut registry, [manifest("web", "u1", 80)]);
    let expected = ServiceRow {
        created: Some(now()),
        ..ServiceRow::clone(&manifest("web", "u1", 80))
    };
    assert_eq!(changed(&mut registry), Some(expected));
}

#[test]
fn what_is_written_is_part_of_the_service() {
    let mut registry = serving();
    want(&mut registry, [manifest("web", "u1", 81)]);
    let expected = ServiceRow {
        ports: manifest("web", "u1", 81).ports.clone(),
        ..served_row()
    };
    assert_eq!(changed(&mut registry), Some(expected));
}

#[test]
fn nothing_changes_when_nothing_is_different() {
    let mut registry = serving();
    registry.add_finalizer(&key("web"), &uid(), None).unwrap();
    registry
        .write_status(&key("web"), &uid(), &status(2))
        .unwrap();
    registry.want_all(
        rows([manifest("web", "u1", 80)]),
        |_| false,
        |_| Vec::new(),
        later(),
    );
    assert_eq!(registry.take_changed(), []);
    assert!(!registry.has_unwritten());
}

#[test]
fn a_service_that_only_moved_in_its_file_is_reported_but_not_written() {
    let mut registry = serving();
    let source = landfall_model::rows::SourceMap {
        document: landfall_model::Origin {
            file: "a.yaml".into(),
            line: 9,
        },
        lines: BTreeMap::new(),
        newest_invalid: Vec::new(),
    };
    let moved = ServiceRow {
        source: Some(Arc::new(source)),
        ..ServiceRow::clone(&manifest("web", "u1", 80))
    };
    want(&mut registry, [Arc::new(moved.clone())]);
    let expected = ServiceRow {
        source: moved.source,
        ..served_row()
    };
    assert_eq!(changed(&mut registry), Some(expected));
    assert!(!registry.has_unwritten());
}

#[test]
fn a_service_without_finalizer_vanishes_with_its_manifest() {
    let mut registry = Registry::default();
    want(&mut registry, [manifest("web", "u1", 80)]);
    want(&mut registry, []);
    assert_eq!(changed(&mut registry), None);
    assert_eq!(registry.records().len(), 0);
}

#[test]
fn a_service_with_finalizer_is_being_deleted_until_it_is_taken_off() {
    let mut registry = serving();
    want(&mut registry, []);
    let expected = ServiceRow {
        deleting: true,
        ..served_row()
    };
    assert_eq!(changed(&mut registry), Some(expected));
    registry
        .write_status(&key("web"), &uid(), &ServiceStatus::default())
        .unwrap();
    registry.remove_finalizer(&key("web"), &uid(), later());
    assert_eq!(changed(&mut registry), None);
    assert_eq!(registry.records().len(), 0);
}

#[test]
fn no_finalizer_is_put_on_an_object_that_is_being_deleted_or_gone() {
    let mut registry = Registry::default();
    assert_eq!(
        registry.add_finalizer(&key("web"), &uid(), None),
        Err(Outdated)
    );
    assert_eq!(
        registry.write_status(&key("web"), &uid(), &status(3)),
        Err(Outdated)
    );
    registry.remove_finalizer(&key("web"), &uid(), now());
    assert_eq!(registry.take_changed(), []);
}

#[test]
fn a_write_for_another_service_of_the_same_name_is_outdated() {
    let mut registry = serving();
    let other = Uid::new("other");
    assert_eq!(
        registry.add_finalizer(&key("web"), &other, None),
        Err(Outdated)
    );
    assert_eq!(
        registry.write_status(&key("web"), &other, &status(3)),
        Err(Outdated)
    );
    registry.remove_finalizer(&key("web"), &other, now());
    assert_eq!(registry.take_changed(), []);
}

#[test]
fn a_manifest_that_is_back_in_time_undoes_the_deletion() {
    let mut registry = serving();
    want(&mut registry, []);
    registry.take_changed();
    want(&mut registry, [manifest("web", "u1", 80)]);
    assert_eq!(changed(&mut registry), Some(served_row()));
}

#[test]
fn a_finalizer_that_is_taken_off_after_the_manifest_is_back_leaves_a_fresh_service() {
    let mut registry = serving();
    want(&mut registry, []);
    want(&mut registry, [manifest("web", "u1", 80)]);
    registry.remove_finalizer(&key("web"), &uid(), later());
    let expected = ServiceRow {
        finalized: false,
        status: ServiceStatus::default(),
        ..served_row()
    };
    assert_eq!(changed(&mut registry), Some(expected));
}

#[test]
fn a_service_with_another_identity_waits_until_the_first_is_gone() {
    let mut registry = serving();
    want(&mut registry, [manifest("web", "u2", 90)]);
    let expected = ServiceRow {
        deleting: true,
        ..served_row()
    };
    assert_eq!(changed(&mut registry), Some(expected));
    registry.remove_finalizer(&key("web"), &uid(), later());
    let expected = ServiceRow {
        created: Some(later()),
        ..ServiceRow::clone(&manifest("web", "u2", 90))
    };
    assert_eq!(changed(&mut registry), Some(expected));
}

#[test]
fn without_finalizer_another_identity_takes_the_name_at_once() {
    let mut registry = Registry::default();
    want(&mut registry, [manifest("web", "u1", 80)]);
    registry.want_all(
        rows([manifest("web", "u2", 80)]),
        |_| false,
        |_| Vec::new(),
        later(),
    );
    let row = changed(&mut registry).unwrap();
    assert_eq!((row.uid, row.created), (Uid::new("u2"), Some(later())));
}

#[test]
fn everything_is_as_before_after_a_restart() {
    let mut registry = restarted(&serving());
    registry.want_all(
        rows([manifest("web", "u1", 80)]),
        |_| false,
        |_| Vec::new(),
        later(),
    );
    assert_eq!(changed(&mut registry), Some(served_row()));
    assert!(!registry.has_unwritten());
}

#[test]
fn a_service_that_vanished_while_nothing_ran_is_deleted_after_the_restart() {
    let mut registry = restarted(&serving());
    want(&mut registry, []);
    let expected = ServiceRow {
        deleting: true,
        ..served_row()
    };
    assert_eq!(changed(&mut registry), Some(expected));

    // And once more, in the middle of the deletion.
    let mut registry = restarted(&registry);
    registry.want_all(Rows::new(), |_| true, |_| Vec::new(), now());
    assert!(changed(&mut registry).unwrap().deleting);
}

#[test]
fn a_service_without_finalizer_that_vanished_while_nothing_ran_is_gone() {
    let mut registry = Registry::default();
    want(&mut registry, [manifest("web", "u1", 80)]);
    let mut registry = restarted(&registry);
    want(&mut registry, []);
    assert_eq!(changed(&mut registry), None);
}

#[test]
fn a_remembered_service_stays_while_its_file_can_not_be_read() {
    let mut registry = restarted(&serving());
    registry.want_all(Rows::new(), |_| true, |_| Vec::new(), later());
    assert_eq!(changed(&mut registry), Some(served_row()));
    let unverified: Vec<_> = registry.unverified().cloned().collect();
    assert_eq!(unverified, [key("web")]);

    // The file is fixed, and the Service is in it: nothing happened.
    registry.want_all(
        rows([manifest("web", "u1", 80)]),
        |_| false,
        |_| Vec::new(),
        later(),
    );
    assert_eq!(registry.take_changed(), []);
    assert_eq!(registry.unverified().count(), 0);
}

#[test]
fn a_remembered_service_is_deleted_once_every_file_can_be_read_without_it() {
    let mut registry = restarted(&serving());
    registry.want_all(Rows::new(), |_| true, |_| Vec::new(), later());
    registry.take_changed();
    registry.want_all(Rows::new(), |_| false, |_| Vec::new(), later());
    assert!(changed(&mut registry).unwrap().deleting);
    assert_eq!(registry.unverified().count(), 0);
}

#[test]
fn an_unreadable_file_protects_only_what_was_not_seen_since_the_start() {
    let mut registry = restarted(&serving());
    want(&mut registry, [manifest("web", "u1", 80)]);
    registry.take_changed();
    registry.want_all(Rows::new(), |_| true, |_| Vec::new(), later());
    assert!(changed(&mut registry).unwrap().deleting);
}

#[test]
fn the_engine_may_write_on_what_is_kept_while_a_file_is_unreadable() {
    let mut registry = restarted(&serving());
    registry.want_all(Rows::new(), |_| true, |_| Vec::new(), later());
    registry.take_changed();
    registry
        .write_status(&key("web"), &uid(), &status(3))
        .unwrap();
    assert_eq!(changed(&mut registry).unwrap().status, status(3));
    registry.remove_finalizer(&key("web"), &uid(), later());
    let row = changed(&mut registry).unwrap();
    assert_eq!((row.finalized, row.deleting), (false, false));
}

#[test]
fn what_is_not_on_the_disk_is_not_reported() {
    let mut registry = serving();
    let requests = [request(&key("web"), &uid(), Write::Status(status(9)))];
    let batch = registry.begin(&requests, now());
    assert_eq!(batch.changes.len(), 1);
    assert_eq!(registry.take_changed(), []);
    registry.fail(batch);
    assert_eq!(registry.take_changed(), []);
    assert_eq!(*registry.records()[0], served_row());
}

#[test]
fn what_may_have_reached_the_disk_in_a_failed_write_is_written_again_as_it_is() {
    let mut registry = serving();
    let requests = [request(&key("web"), &uid(), Write::Status(status(9)))];
    let batch = registry.begin(&requests, now());
    registry.fail(batch);
    assert!(registry.has_unwritten());
    let batch = registry.begin(&[], now());
    let expected = Some(Entry::Service(Arc::new(served_row())));
    assert_eq!(
        batch.changes,
        Changes::from([(Key::Service(key("web")), expected)])
    );
    registry.finish(&[], batch);
    assert!(!registry.has_unwritten());
}

#[test]
fn a_request_is_not_settled_before_what_it_says_is_on_the_disk() {
    let mut registry = serving();
    let again = request(&key("web"), &uid(), Write::Status(status(2)));
    assert!(registry.is_settled(&again));
    let other = request(&key("web"), &uid(), Write::Status(status(3)));
    assert!(!registry.is_settled(&other));
    let requests = [other];
    let batch = registry.begin(&requests, now());
    registry.fail(batch);
    assert!(!registry.is_settled(&again));
}

#[test]
fn a_manifest_that_changes_while_a_status_is_written_keeps_both() {
    let mut registry = serving();
    let requests = [request(&key("web"), &uid(), Write::Status(status(3)))];
    let batch = registry.begin(&requests, now());
    want(&mut registry, [manifest("web", "u1", 81)]);
    assert_eq!(registry.finish(&requests, batch), [Ok(())]);
    let row = changed(&mut registry).unwrap();
    assert_eq!((row.ports[0].port.get(), row.status), (81, status(3)));
    assert!(registry.has_unwritten(), "the new port is not on the disk");
}

#[test]
fn a_service_that_vanishes_while_its_finalizer_is_written_does_not_have_it() {
    let mut registry = Registry::default();
    want(&mut registry, [manifest("web", "u1", 80)]);
    let requests = [request(&key("web"), &uid(), Write::Finalizer(None))];
    let batch = registry.begin(&requests, now());
    want(&mut registry, []);
    assert_eq!(registry.finish(&requests, batch), [Err(Outdated)]);
    assert_eq!(changed(&mut registry), None);
    let batch = registry.begin(&[], now());
    assert_eq!(batch.changes, Changes::new());
    assert_eq!(
        batch.gone,
        Changes::from([(Key::Service(key("web")), None)])
    );
}

#[test]
fn a_service_that_is_gone_leaves_the_disk_before_any_other_is_recorded() {
    let mut registry = Registry::default();
    want(&mut registry, [manifest("a", "u1", 80)]);
    let requests = [request(&key("a"), &uid(), Write::Finalizer(None))];
    let batch = registry.begin(&requests, now());
    // Far more than go to the disk together, all of them behind it.
    let others = (0..1000).map(|number| manifest(&format!("b{number}"), "u2", 80));
    want(&mut registry, others);
    assert_eq!(registry.finish(&requests, batch), [Err(Outdated)]);
    let gone = Changes::from([(Key::Service(key("a")), None)]);
    let other = [request(
        &key("b7"),
        &Uid::new("u2"),
        Write::Status(status(1)),
    )];
    let batch = registry.begin(&other, now());
    assert_eq!(batch.gone, gone);
    // What failed is written again, and in this order.
    registry.fail(batch);
    assert_eq!(registry.begin(&other, now()).gone, gone);
}

#[test]
fn requests_for_one_service_hold_in_their_order() {
    let mut registry = Registry::default();
    want(&mut registry, [manifest("web", "u1", 80)]);
    let requests = [
        request(&key("web"), &uid(), Write::Finalizer(None)),
        request(&key("web"), &uid(), Write::Status(status(1))),
        request(&key("web"), &Uid::new("other"), Write::Status(status(7))),
        request(&key("web"), &uid(), Write::Status(status(2))),
    ];
    let batch = registry.begin(&requests, now());
    let expected = Some(Entry::Service(Arc::new(served_row())));
    assert_eq!(
        batch.changes,
        Changes::from([(Key::Service(key("web")), expected)])
    );
    let outcomes = registry.finish(&requests, batch);
    assert_eq!(outcomes, [Ok(()), Ok(()), Err(Outdated), Ok(())]);
    assert_eq!(changed(&mut registry), Some(served_row()));
}

fn marked(mark: &str) -> ServiceStatus {
    ServiceStatus {
        marks: BTreeMap::from([(INSTANCE.to_owned(), mark.to_owned())]),
        ..status(2)
    }
}

fn annotated(port: u16, annotations: &[(&str, &str)]) -> Arc<ServiceRow> {
    let annotations = annotations.iter();
    Arc::new(ServiceRow {
        annotations: annotations
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        ..ServiceRow::clone(&manifest("web", "u1", port))
    })
}

#[test]
fn marks_stay_on_a_service_over_edits_and_restarts() {
    let mut registry = serving();
    registry
        .write_status(&key("web"), &uid(), &marked("edge"))
        .unwrap();
    let row = changed(&mut registry).unwrap();
    assert_eq!(row.annotations, marked("edge").marks);
    assert_eq!(row.status, marked("edge"));

    want(
        &mut registry,
        [annotated(81, &[("landfall.dev/drain", "1s")])],
    );
    let edited = changed(&mut registry).unwrap();
    assert_eq!(edited.annotations.len(), 2);
    assert_eq!(edited.annotations[INSTANCE], "edge");
    assert_eq!(edited.status.marks, marked("edge").marks);

    let mut registry = restarted(&registry);
    want(
        &mut registry,
        [annotated(81, &[("landfall.dev/drain", "1s")])],
    );
    assert_eq!(changed(&mut registry), Some(edited));
    assert!(!registry.has_unwritten());
}

#[test]
fn a_mark_that_is_no_longer_written_leaves_the_annotations() {
    let mut registry = serving();
    for mark in ["edge", "core"] {
        registry
            .write_status(&key("web"), &uid(), &marked(mark))
            .unwrap();
        let row = changed(&mut registry).unwrap();
        assert_eq!(row.annotations, marked(mark).marks);
    }
    // Also where there is no manifest to read.
    want(&mut registry, []);
    registry.take_changed();
    registry
        .write_status(&key("web"), &uid(), &status(2))
        .unwrap();
    assert_eq!(changed(&mut registry).unwrap().annotations, BTreeMap::new());
}

fn pool(name: &str, addresses: &str) -> Arc<PoolRow> {
    Arc::new(PoolRow {
        name: name.to_owned(),
        addresses: vec![addresses.to_owned()],
        ..PoolRow::default()
    })
}

#[test]
fn pools_are_written_when_they_change_and_only_then() {
    let mut registry = Registry::default();
    let pools = |pools: &[Arc<PoolRow>]| -> Pools {
        let pools = pools.iter();
        pools.map(|row| (row.name.clone(), row.clone())).collect()
    };
    registry.want_pools(pools(&[
        pool("a", "192.0.2.0/28"),
        pool("b", "192.0.2.16/28"),
    ]));
    let batch = registry.begin(&[], now());
    assert_eq!(batch.changes.len(), 2);
    registry.finish(&[], batch);
    registry.want_pools(pools(&[
        pool("a", "192.0.2.0/28"),
        pool("b", "192.0.2.16/28"),
    ]));
    assert!(!registry.has_unwritten());
    registry.want_pools(pools(&[pool("a", "192.0.2.0/27")]));
    let batch = registry.begin(&[], now());
    let a = Some(Entry::Pool(pool("a", "192.0.2.0/27")));
    assert_eq!(
        batch.changes,
        Changes::from([
            (Key::Pool("a".to_owned()), a),
            (Key::Pool("b".to_owned()), None)
        ])
    );
}

/// Something that happens to a registry of one Service.
#[derive(Clone, Debug)]
enum Happening {
    Manifests {
        uid: Option<u8>,
        port: u16,
        incomplete: bool,
    },
    Finalize,
    Unfinalize,
    Status(u8),
    Restart,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => (proptest::option::of(1_u8..3), 80_u16..82, any::<bool>())
            .prop_map(|(uid, port, incomplete)| Happening::Manifests { uid, port, incomplete }),
        2 => Just(Happening::Finalize),
        1 => Just(Happening::Unfinalize),
        1 => (1_u8..4).prop_map(Happening::Status),
        1 => Just(Happening::Restart),
    ]
}

proptest! {
    /// Whatever happens: a finalizer that was put on stays until it is taken off, and so does the
    /// identity that it was put on; and the changes alone add up to what there is.
    #[test]
    fn a_finalizer_holds_its_service_whatever_happens(
        happenings in prop::collection::vec(happening(), 0..40),
    ) {
        let mut registry = Registry::default();
        let mut held: Option<Uid> = None;
        let mut received: Option<Arc<ServiceRow>> = None;
        for happening in happenings {
            let current = registry.records().first().map(|row| row.uid.clone());
            match happening {
                Happening::Manifests { uid, port, incomplete } => {
                    let manifests = uid.map(|uid| manifest("web", &format!("u{uid}"), port));
                    registry.want_all(rows(manifests), |_| incomplete, |_| Vec::new(), now());
                }
                Happening::Finalize => {
                    if let Some(uid) = current
                        && registry.add_finalizer(&key("web"), &uid, None).is_ok()
                    {
                        held = Some(uid);
                    }
                }
                Happening::Unfinalize => {
                    if let Some(uid) = held.take() {
                        registry.remove_finalizer(&key("web"), &uid, now());
                    }
                }
                Happening::Status(last) => {
                    if let Some(uid) = current {
                        registry.write_status(&key("web"), &uid, &status(last)).unwrap();
                    }
                }
                Happening::Restart => {
                    registry = restarted(&registry);
                }
            }
            for (_, row) in registry.take_changed() {
                received = row;
            }
            let record = registry.records().first().cloned();
            prop_assert_eq!(&received, &record);
            let records = registry.records.keys();
            let unwanted = records.filter(|key| !registry.wanted.contains_key(*key));
            prop_assert_eq!(&registry.unwanted, &unwanted.cloned().collect::<BTreeSet<_>>());
            let finalized = record.filter(|row| row.finalized).map(|row| row.uid.clone());
            prop_assert_eq!(&finalized, &held);
        }
    }
}
