//! Durability: what a caller may rely on after a write returned.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use landfall_engine::report::Report;
use landfall_model::rows::ServiceRow;
use landfall_model::status::{ACCEPTED_VERSION, INSTANCE, IngressAddress};
use landfall_model::wire;

use super::*;
use crate::state::sim::{Sim, SimFault};
use crate::state::{Entry, Key, Remembered};

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

fn uid() -> Uid {
    Uid::new("u1")
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

/// A store with Services of these names.
fn store(folder: Option<&Path>, names: impl IntoIterator<Item = String>) -> ManifestStore {
    let state = folder.map(|folder| StateDir::open(folder).unwrap().0);
    store_in(state, names)
}

fn store_in(state: Option<StateDir>, names: impl IntoIterator<Item = String>) -> ManifestStore {
    let mut rows = BTreeMap::new();
    for name in names {
        let shape: wire::Service = serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "uid": "u1"}, "spec": {"ports": [{"port": 80}]},
        }))
        .unwrap();
        rows.insert(key(&name), Arc::new(shape.into_row().unwrap()));
    }
    let store = ManifestStore::new(Registry::default(), state, Blocking::Threads);
    store.change(|registry| registry.want_all(rows, |_| false, |_| Vec::new(), Timestamp::now()));
    store
}

/// What a process that starts now would find, without the lock that this one holds.
fn remembered(folder: &Path) -> BTreeMap<String, ServiceRow> {
    let copy = tempfile::tempdir().unwrap();
    fs::copy(
        folder.join("state.journal"),
        copy.path().join("state.journal"),
    )
    .unwrap();
    by_name(&StateDir::open(copy.path()).unwrap().1)
}

fn by_name(remembered: &Remembered) -> BTreeMap<String, ServiceRow> {
    let services = remembered.services.iter();
    services
        .map(|row| (row.key.name().to_owned(), ServiceRow::clone(row)))
        .collect()
}

#[tokio::test]
async fn what_a_write_returned_from_is_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(Some(folder.path()), ["web".to_owned()]);
    store
        .add_finalizer(&key("web"), &uid(), None)
        .await
        .unwrap();
    assert!(remembered(folder.path())["web"].finalized);
    store
        .write_status(&key("web"), &uid(), &status(2))
        .await
        .unwrap();
    assert_eq!(remembered(folder.path())["web"].status, status(2));
    store.remove_finalizer(&key("web"), &uid()).await.unwrap();
    assert!(!remembered(folder.path())["web"].finalized);
}

#[tokio::test]
async fn a_finalizer_and_the_status_that_comes_with_it_are_one_write() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(Some(folder.path()), ["web".to_owned()]);
    store.flush(true).await;
    let commits = || {
        let journal = std::fs::read_to_string(folder.path().join("state.journal")).unwrap();
        journal.matches("{\"commit\":").count()
    };
    let before = commits();
    let row = store.with(|registry| registry.take_changed().pop().unwrap().1.unwrap());
    Report::add_finalizer(&store, &row, Some(&status(2)))
        .await
        .unwrap();
    assert_eq!(commits(), before + 1);
    let record = &remembered(folder.path())["web"];
    assert!(record.finalized);
    assert_eq!(record.status, status(2));
    // Also on one that has its finalizer already.
    Report::add_finalizer(&store, &row, Some(&status(3)))
        .await
        .unwrap();
    assert_eq!(commits(), before + 2);
    assert_eq!(remembered(folder.path())["web"].status, status(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_at_once_all_find_their_writes_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..200).map(|index| format!("web{index}")).collect();
    let store = store(Some(folder.path()), names.clone());
    let writers: Vec<_> = names
        .iter()
        .cloned()
        .map(|name| {
            let store = store.clone();
            let folder = folder.path().to_owned();
            tokio::spawn(async move {
                store
                    .write_status(&key(&name), &uid(), &status(7))
                    .await
                    .unwrap();
                // A glance at a few is enough: each look reads the whole file.
                if name.ends_with("99") {
                    assert_eq!(remembered(&folder)[&name].status, status(7));
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let remembered = remembered(folder.path());
    assert_eq!(remembered.len(), 200);
    assert!(remembered.values().all(|row| row.status == status(7)));
}

#[tokio::test]
async fn a_write_whose_caller_is_gone_affects_none_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(Some(folder.path()), ["web".to_owned()]);
    for round in 0..20 {
        let abandoned_key = key("web");
        let abandoned_uid = uid();
        let abandoned_status = status(round);
        let abandoned = store.write_status(&abandoned_key, &abandoned_uid, &abandoned_status);
        let _ = poll_once(abandoned).await;
        store
            .write_status(&key("web"), &uid(), &status(100 + round))
            .await
            .unwrap();
        assert_eq!(remembered(folder.path())["web"].status, status(100 + round));
    }
}

/// Polls a future once and drops it.
async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

/// What is reported now.
fn reported(store: &ManifestStore) -> Vec<(bool, ServiceStatus)> {
    let changes = store.with(Registry::take_changed);
    let rows = changes.into_iter().filter_map(|(_, row)| row);
    rows.map(|row| (row.finalized, row.status.clone()))
        .collect()
}

#[tokio::test]
async fn a_write_that_fails_did_not_happen_and_is_never_reported() {
    let sim = Sim::default();
    let store = store_in(Some(sim.open().unwrap().0), ["web".to_owned()]);
    store
        .write_status(&key("web"), &uid(), &status(1))
        .await
        .unwrap();
    assert_eq!(reported(&store), [(false, status(1))]);
    sim.plan(0, SimFault::Full);
    for _ in 0..3 {
        // However often it is tried: without space it fails, and nothing is reported.
        let error = store
            .write_status(&key("web"), &uid(), &status(2))
            .await
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("state.journal: can't be written"),
            "{error}"
        );
        assert_eq!(reported(&store), []);
        let finalized = store.add_finalizer(&key("web"), &uid(), None).await;
        assert!(matches!(finalized, Err(StoreError::State(_))));
        assert_eq!(reported(&store), []);
        for survivor in sim.after_power_cut() {
            let remembered = by_name(&survivor.open().unwrap().1);
            assert_eq!(remembered["web"].status, status(1));
        }
    }
    sim.repair();
    store
        .write_status(&key("web"), &uid(), &status(2))
        .await
        .unwrap();
    assert_eq!(reported(&store), [(false, status(2))]);
    for survivor in sim.after_power_cut() {
        assert_eq!(
            by_name(&survivor.open().unwrap().1)["web"].status,
            status(2)
        );
    }
}

#[tokio::test]
async fn a_write_of_what_is_on_the_disk_waits_for_what_may_have_taken_its_place() {
    let sim = Sim::default();
    let store = store_in(Some(sim.open().unwrap().0), ["web".to_owned()]);
    store
        .write_status(&key("web"), &uid(), &status(1))
        .await
        .unwrap();
    // The write, and then its sync: it may be on the disk or not.
    sim.plan(1, SimFault::Fails);
    let failed = store.write_status(&key("web"), &uid(), &status(2)).await;
    assert!(matches!(failed, Err(StoreError::State(_))));
    sim.repair();
    store
        .write_status(&key("web"), &uid(), &status(1))
        .await
        .unwrap();
    for survivor in sim.after_power_cut() {
        assert_eq!(
            by_name(&survivor.open().unwrap().1)["web"].status,
            status(1)
        );
    }
}

#[tokio::test]
async fn a_write_whose_caller_is_gone_is_retried_only_on_request() {
    let sim = Sim::default();
    let store = store_in(Some(sim.open().unwrap().0), ["web".to_owned()]);
    sim.plan(0, SimFault::Full);
    assert!(store.flush(false).await.is_some());
    let operations = sim.operations();
    assert!(store.flush(false).await.is_some());
    assert_eq!(
        sim.operations(),
        operations,
        "a full disk is not written to all the time"
    );
    sim.repair();
    assert!(store.flush(true).await.is_none());
    assert_eq!(by_name(&sim.open().unwrap().1).len(), 1);
}

#[tokio::test]
async fn what_no_caller_waits_for_goes_to_the_disk_in_parts_and_a_request_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let names = (0..1000).map(|index| format!("web{index:04}"));
    let store = store(Some(folder.path()), names);
    store
        .write_status(&key("web0000"), &uid(), &status(1))
        .await
        .unwrap();
    let found = remembered(folder.path());
    assert_eq!(found["web0000"].status, status(1));
    assert!(found.len() < 1000, "it waited for all of them");
    while store.with(|registry| registry.has_unwritten()) {
        store.changed().await;
        assert!(store.flush(false).await.is_none());
    }
    let found = remembered(folder.path());
    assert_eq!(found.len(), 1000);
    assert_eq!(found["web0000"].status, status(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_at_the_same_time_share_a_sync() {
    let sim = Sim::default();
    let names: Vec<String> = (0..500).map(|index| format!("web{index}")).collect();
    let store = store_in(Some(sim.open().unwrap().0), names.clone());
    store.flush(true).await;
    let before = sim.operations();
    // The disk is busy while all of them come.
    let busy = store.shared.disk.clone().lock_owned().await;
    let mut writers = tokio::task::JoinSet::new();
    for name in names {
        let store = store.clone();
        writers.spawn(async move {
            store
                .write_status(&key(&name), &uid(), &status(7))
                .await
                .unwrap();
        });
    }
    while store.shared.with(|room| room.waiting.len()) < 500 {
        tokio::task::yield_now().await;
    }
    drop(busy);
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    let remembered = by_name(&sim.open().unwrap().1);
    assert!(remembered.values().all(|row| row.status == status(7)));
    let operations = sim.operations() - before;
    assert!(operations < 10, "{operations} operations for 500 writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_reported_to_every_caller_whose_write_it_was() {
    let sim = Sim::default();
    let names: Vec<String> = (0..50).map(|index| format!("web{index}")).collect();
    let store = store_in(Some(sim.open().unwrap().0), names.clone());
    sim.plan(0, SimFault::Full);
    let mut writers = tokio::task::JoinSet::new();
    for name in names {
        let store = store.clone();
        writers.spawn(async move {
            let (key, uid) = (key(&name), uid());
            store.write_status(&key, &uid, &status(7)).await
        });
    }
    while let Some(ended) = writers.join_next().await {
        assert!(matches!(ended.unwrap(), Err(StoreError::State(_))));
    }
    assert_eq!(
        reported(&store),
        vec![(false, ServiceStatus::default()); 50]
    );
}

#[tokio::test]
async fn a_write_without_a_change_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(Some(folder.path()), ["web".to_owned()]);
    store
        .write_status(&key("web"), &uid(), &status(2))
        .await
        .unwrap();
    let before = fs::read(folder.path().join("state.journal")).unwrap();
    store
        .write_status(&key("web"), &uid(), &status(2))
        .await
        .unwrap();
    let after = fs::read(folder.path().join("state.journal")).unwrap();
    assert_eq!(after, before);
}

#[tokio::test]
async fn without_a_state_directory_everything_holds_until_the_end_of_the_process() {
    let store = store(None, ["web".to_owned()]);
    store
        .add_finalizer(&key("web"), &uid(), None)
        .await
        .unwrap();
    store
        .write_status(&key("web"), &uid(), &status(2))
        .await
        .unwrap();
    let changes = store.with(Registry::take_changed);
    let row = changes[0].1.clone().unwrap();
    assert_eq!((row.finalized, &row.status), (true, &status(2)));
}

#[tokio::test]
async fn a_service_that_is_not_there_takes_no_report() {
    let store = store(None, []);
    let written = store.write_status(&key("web"), &uid(), &status(2)).await;
    assert!(matches!(written, Err(StoreError::Outdated { .. })));
    let added = store.add_finalizer(&key("web"), &uid(), None).await;
    assert!(matches!(added, Err(StoreError::Outdated { .. })));
    store.remove_finalizer(&key("web"), &uid()).await.unwrap();
}

#[test]
fn a_restart_writes_nothing_of_what_did_not_change() {
    let text = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations: {a: \
               b}\nspec:\n  type: LoadBalancer\n  ports:\n  - port: 80\n";
    let objects = crate::manifest::read(&"web.yaml".into(), text).objects;
    let Some(crate::manifest::Object::Service(row)) = objects.first().map(|it| &it.object) else {
        panic!("no Service");
    };
    let wanted = || std::iter::once((row.key.clone(), Some(row.clone()))).collect();
    let no_incomplete = |_: &ServiceKey| false;
    let mut first = Registry::default();
    first.want(wanted(), no_incomplete, |_| Vec::new(), Timestamp::now());
    let mut status = status(2);
    status.marks = [(INSTANCE, "local"), (ACCEPTED_VERSION, "{}")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    let requests = [Request {
        key: row.key.clone(),
        uid: row.uid.clone(),
        write: Write::Finalizer(Some(status)),
    }];
    let batch = first.begin(&requests, Timestamp::now());
    first.finish(&requests, batch);
    let (key, record) = first.take_changed().pop().unwrap();
    let key = Key::Service(key);
    let line = key.line(record.map(Entry::Service).as_ref());
    let Entry::Service(back) = Entry::read(&key, &line).unwrap() else {
        panic!("no Service");
    };
    let mut second = Registry::new(Remembered {
        services: vec![back],
        ..Remembered::default()
    });
    second.want(wanted(), no_incomplete, |_| Vec::new(), Timestamp::now());
    let after = second.take_changed().pop().unwrap().1.unwrap();
    assert!(after.source.is_some());
    assert!(!second.has_unwritten());
}
