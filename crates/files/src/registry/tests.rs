//! The life of a Service, without files and disks.

use landfall_model::rows::ServiceRow;
use landfall_model::status::IngressAddress;
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

fn want(registry: &mut Registry, manifests: impl IntoIterator<Item = Arc<ServiceRow>>) {
    registry.want(rows(manifests), |_| false, now());
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
    Registry::new(registry.records())
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
    let before = registry.revision();
    registry.add_finalizer(&key("web"), &uid(), None).unwrap();
    registry
        .write_status(&key("web"), &uid(), &status(2))
        .unwrap();
    registry.want(rows([manifest("web", "u1", 80)]), |_| false, later());
    assert_eq!(registry.take_changed(), []);
    assert_eq!(registry.revision(), before);
}

#[test]
fn a_service_that_only_moved_in_its_file_is_told_but_not_written() {
    let mut registry = serving();
    let before = registry.revision();
    let source = landfall_model::rows::SourceMap {
        document: landfall_model::Origin {
            file: "a.yaml".into(),
            line: 9,
        },
        lines: BTreeMap::new(),
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
    assert_eq!(registry.revision(), before);
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
fn nobody_puts_a_finalizer_on_what_is_being_deleted_or_gone() {
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
    registry.want(rows([manifest("web", "u2", 80)]), |_| false, later());
    let row = changed(&mut registry).unwrap();
    assert_eq!((row.uid, row.created), (Uid::new("u2"), Some(later())));
}

#[test]
fn everything_is_as_before_after_a_restart() {
    let mut registry = restarted(&serving());
    registry.want(rows([manifest("web", "u1", 80)]), |_| false, later());
    assert_eq!(changed(&mut registry), Some(served_row()));
    assert_eq!(registry.revision(), 0);
}

#[test]
fn a_service_that_vanished_while_nobody_ran_is_deleted_after_the_restart() {
    let mut registry = restarted(&serving());
    want(&mut registry, []);
    let expected = ServiceRow {
        deleting: true,
        ..served_row()
    };
    assert_eq!(changed(&mut registry), Some(expected));

    // And once more, in the middle of the deletion.
    let mut registry = restarted(&registry);
    registry.want(Rows::new(), |_| true, now());
    assert!(changed(&mut registry).unwrap().deleting);
}

#[test]
fn a_service_without_finalizer_that_vanished_while_nobody_ran_is_gone() {
    let mut registry = Registry::default();
    want(&mut registry, [manifest("web", "u1", 80)]);
    let mut registry = restarted(&registry);
    want(&mut registry, []);
    assert_eq!(changed(&mut registry), None);
}

#[test]
fn a_remembered_service_stays_while_its_file_can_not_be_read() {
    let mut registry = restarted(&serving());
    registry.want(Rows::new(), |_| true, later());
    assert_eq!(changed(&mut registry), Some(served_row()));
    let doubtful: Vec<_> = registry.doubtful().cloned().collect();
    assert_eq!(doubtful, [key("web")]);

    // The file is mended, and the Service is in it: nothing happened.
    registry.want(rows([manifest("web", "u1", 80)]), |_| false, later());
    assert_eq!(registry.take_changed(), []);
    assert_eq!(registry.doubtful().count(), 0);
}

#[test]
fn a_remembered_service_is_deleted_once_every_file_can_be_read_without_it() {
    let mut registry = restarted(&serving());
    registry.want(Rows::new(), |_| true, later());
    registry.take_changed();
    registry.want(Rows::new(), |_| false, later());
    assert!(changed(&mut registry).unwrap().deleting);
    assert_eq!(registry.doubtful().count(), 0);
}

#[test]
fn doubt_protects_only_what_was_not_seen_since_the_start() {
    let mut registry = restarted(&serving());
    want(&mut registry, [manifest("web", "u1", 80)]);
    registry.take_changed();
    registry.want(Rows::new(), |_| true, later());
    assert!(changed(&mut registry).unwrap().deleting);
}

#[test]
fn the_engine_may_write_on_what_is_kept_in_doubt() {
    let mut registry = restarted(&serving());
    registry.want(Rows::new(), |_| true, later());
    registry.take_changed();
    registry
        .write_status(&key("web"), &uid(), &status(3))
        .unwrap();
    assert_eq!(changed(&mut registry).unwrap().status, status(3));
    registry.remove_finalizer(&key("web"), &uid(), later());
    let row = changed(&mut registry).unwrap();
    assert_eq!((row.finalized, row.deleting), (false, false));
}

/// Something that happens to a registry of one Service.
#[derive(Clone, Debug)]
enum Happening {
    Manifests {
        uid: Option<u8>,
        port: u16,
        doubt: bool,
    },
    Finalize,
    Unfinalize,
    Status(u8),
    Restart,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => (proptest::option::of(1_u8..3), 80_u16..82, any::<bool>())
            .prop_map(|(uid, port, doubt)| Happening::Manifests { uid, port, doubt }),
        2 => Just(Happening::Finalize),
        1 => Just(Happening::Unfinalize),
        1 => (1_u8..4).prop_map(Happening::Status),
        1 => Just(Happening::Restart),
    ]
}

proptest! {
    /// Whatever happens: a finalizer that was put on stays until it is taken off, and so does the
    /// identity that it was put on; and who listens to changes alone knows what there is.
    #[test]
    fn a_finalizer_holds_its_service_whatever_happens(
        happenings in prop::collection::vec(happening(), 0..40),
    ) {
        let mut registry = Registry::default();
        let mut held: Option<Uid> = None;
        let mut heard: Option<Arc<ServiceRow>> = None;
        for happening in happenings {
            let current = registry.records().first().map(|record| record.row.uid.clone());
            match happening {
                Happening::Manifests { uid, port, doubt } => {
                    let manifests = uid.map(|uid| manifest("web", &format!("u{uid}"), port));
                    registry.want(rows(manifests), |_| doubt, now());
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
                heard = row;
            }
            let record = registry.records().first().map(|record| record.row.clone());
            prop_assert_eq!(&heard, &record);
            let finalized = record.filter(|row| row.finalized).map(|row| row.uid.clone());
            prop_assert_eq!(&finalized, &held);
        }
    }
}
