//! Durability: what a caller may rely on after a write returned.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use landfall_model::rows::ServiceRow;
use landfall_model::status::IngressAddress;
use landfall_model::wire;

use super::*;

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
    let mut rows = BTreeMap::new();
    for name in names {
        let shape: wire::Service = serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "uid": "u1"}, "spec": {"ports": [{"port": 80}]},
        }))
        .unwrap();
        rows.insert(key(&name), Arc::new(shape.into_row().unwrap()));
    }
    let state = folder.map(|folder| StateDir::open(folder).unwrap().0);
    let store = ManifestStore::new(Registry::default(), state);
    store.change(|registry| registry.want(rows, |_| false, Timestamp::now()));
    store
}

/// What a process that starts now would find, without the lock that this one holds.
fn remembered(folder: &Path) -> BTreeMap<String, ServiceRow> {
    let copy = tempfile::tempdir().unwrap();
    fs::copy(folder.join("state.json"), copy.path().join("state.json")).unwrap();
    let (_, records) = StateDir::open(copy.path()).unwrap();
    records
        .into_iter()
        .map(|record| {
            (
                record.row.key.name().to_owned(),
                ServiceRow::clone(&record.row),
            )
        })
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
async fn a_write_that_nobody_waits_for_any_more_hurts_none_after_it() {
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

#[tokio::test]
async fn a_write_that_fails_says_so_and_succeeds_when_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(Some(folder.path()), ["web".to_owned()]);
    let obstacle = folder.path().join("state.json");
    fs::create_dir(&obstacle).unwrap();
    let error = store
        .write_status(&key("web"), &uid(), &status(2))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("state.json: can't be replaced"),
        "{error}"
    );
    fs::remove_dir(&obstacle).unwrap();
    store
        .write_status(&key("web"), &uid(), &status(2))
        .await
        .unwrap();
    assert_eq!(remembered(folder.path())["web"].status, status(2));
}

#[tokio::test]
async fn a_write_without_a_change_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(Some(folder.path()), ["web".to_owned()]);
    store
        .write_status(&key("web"), &uid(), &status(2))
        .await
        .unwrap();
    fs::remove_file(folder.path().join("state.json")).unwrap();
    store
        .write_status(&key("web"), &uid(), &status(2))
        .await
        .unwrap();
    assert!(!folder.path().join("state.json").exists());
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
