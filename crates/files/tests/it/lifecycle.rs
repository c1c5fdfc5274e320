//! Finalizers, statuses, restarts.

use std::fs;

use landfall_engine::{Report, ReportError};
use landfall_files::{Manifests, Options};
use landfall_model::Uid;
use landfall_model::rows::{Fact, ServiceRow};
use landfall_model::status::ServiceStatus;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::stage::{Running, Stage, key, namespace, pool, service, status};

#[tokio::test]
async fn what_is_written_comes_back_once_and_only_if_it_is_new() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    let mut running = stage.start().await;
    running.received();
    let uid = running.row("web").uid.clone();
    running
        .store
        .add_finalizer(&key("web"), &uid, None)
        .await
        .unwrap();
    running.until_received("Service web 80 finalized").await;
    for _ in 0..3 {
        running
            .store
            .write_status(&key("web"), &uid, &status(2))
            .await
            .unwrap();
        running
            .store
            .add_finalizer(&key("web"), &uid, None)
            .await
            .unwrap();
    }
    running
        .until_received("Service web 80 127.0.0.2 finalized")
        .await;
    stage.put("end.yaml", &namespace("end"));
    running.until_received("Namespace end").await;
    assert_eq!(
        running.received(),
        [
            "Service web 80 finalized",
            "Service web 80 127.0.0.2 finalized",
            "Namespace end"
        ]
    );
}

#[tokio::test]
async fn a_service_leaves_in_the_order_of_kubernetes() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    let mut running = stage.start().await;
    running.claim("web", 2).await;
    running.received();
    stage.remove("web.yaml");
    running
        .until_received("Service web 80 127.0.0.2 finalized deleting")
        .await;
    let uid = running.row("web").uid.clone();
    let empty = ServiceStatus::default();
    running
        .store
        .write_status(&key("web"), &uid, &empty)
        .await
        .unwrap();
    running
        .until_received("Service web 80 finalized deleting")
        .await;
    running.release("web").await;
    running.until_received("ServiceGone web").await;
    assert_eq!(running.received().len(), 3);
}

#[tokio::test]
async fn a_service_without_finalizer_leaves_at_once() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    let mut running = stage.start().await;
    running.received();
    stage.remove("web.yaml");
    running.until_received("ServiceGone web").await;
    assert_eq!(running.received(), ["ServiceGone web"]);
}

#[tokio::test]
async fn a_manifest_that_is_back_in_time_keeps_the_address() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    let mut running = stage.start().await;
    running.claim("web", 2).await;
    stage.remove("web.yaml");
    running
        .until_received("Service web 80 127.0.0.2 finalized deleting")
        .await;
    stage.put("web.yaml", &service("web", 81));
    running
        .until_received("Service web 81 127.0.0.2 finalized")
        .await;
}

#[tokio::test]
async fn a_service_that_is_deleted_and_written_again_starts_afresh() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    let mut running = stage.start().await;
    running.claim("web", 2).await;
    stage.remove("web.yaml");
    running
        .until_received("Service web 80 127.0.0.2 finalized deleting")
        .await;
    running.release("web").await;
    running.until_received("ServiceGone web").await;
    running.received();
    stage.put("web.yaml", &service("web", 80));
    running.until_received("Service web 80").await;
    assert_eq!(running.row("web").status, ServiceStatus::default());
}

#[tokio::test]
async fn another_identity_waits_for_the_first_to_leave() {
    let stage = Stage::new();
    let with_uid =
        |uid: &str| service("web", 80).replace("name: web", &format!("name: web\n  uid: {uid}"));
    stage.put("web.yaml", &with_uid("one"));
    let mut running = stage.start().await;
    running.claim("web", 2).await;
    running.received();
    stage.put("web.yaml", &with_uid("two"));
    running
        .until_received("Service web 80 127.0.0.2 finalized deleting")
        .await;
    assert_eq!(running.row("web").uid, Uid::new("one"));
    running.release("web").await;
    running.until_received("Service web 80").await;
    assert_eq!(running.row("web").uid, Uid::new("two"));
    assert_eq!(
        running.received(),
        [
            "Service web 80 127.0.0.2 finalized deleting",
            "ServiceGone web",
            "Service web 80"
        ]
    );
}

#[tokio::test]
async fn everything_is_remembered_after_a_kill() {
    let stage = Stage::new();
    stage.put("web.yaml", &(service("web", 80) + &service("dns", 53)));
    let mut running = stage.start().await;
    running.claim("web", 2).await;
    running.claim("dns", 3).await;
    let before = running.services.clone();
    running.kill().await;

    let mut running = stage.start().await;
    assert_eq!(running.services, before);
    assert_eq!(
        running.received(),
        [
            "Service dns 53 127.0.0.3 finalized",
            "Service web 80 127.0.0.2 finalized",
            "Synced"
        ]
    );
}

#[tokio::test]
async fn a_manifest_removed_while_nothing_ran_is_deleted_at_the_next_start() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    stage.put("rest.yaml", "# The folder is the same.\n");
    let mut running = stage.start().await;
    running.claim("web", 2).await;
    running.kill().await;
    stage.remove("web.yaml");

    let mut running = stage.start().await;
    assert_eq!(
        running.received(),
        ["Service web 80 127.0.0.2 finalized deleting", "Synced"]
    );
    running.release("web").await;
    running.until_received("ServiceGone web").await;
    running.stop().await;

    let mut running = stage.start().await;
    assert_eq!(running.received(), ["Synced"]);
}

#[tokio::test]
async fn a_folder_that_is_empty_at_a_start_keeps_what_is_on_record_until_a_file_is_in_it() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    stage.put("pools.yaml", &pool("edge", "192.0.2.0/28"));
    let mut running = stage.start().await;
    running.claim("web", 2).await;
    running.kill().await;
    stage.remove("web.yaml");
    stage.remove("pools.yaml");

    let mut running = stage.start().await;
    assert!(!running.row("web").deleting);
    assert!(running.has_received("Pool edge 192.0.2.0/28"));
    running
        .until("the folder is reported", |running| {
            running.problem("manifests").contains("may not be mounted")
        })
        .await;
    stage.put("empty.yaml", "# Nothing any more.\n");
    running
        .until_received("Service web 80 127.0.0.2 finalized deleting")
        .await;
    running.until_received("PoolGone edge").await;
}

#[tokio::test]
async fn a_manifest_broken_while_nothing_ran_keeps_its_service() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    let mut running = stage.start().await;
    running.claim("web", 2).await;
    let before = running.row("web").clone();
    running.kill().await;
    stage.put("web.yaml", "apiVersion: v1\nkind: [\n");

    let mut running = stage.start().await;
    let now = running.row("web").clone();
    let [why] = now.newest_invalid() else {
        panic!("{:?}", now.newest_invalid());
    };
    assert!(why.to_string().contains("not YAML"), "{why}");
    let without_place = |row: ServiceRow| ServiceRow {
        source: None,
        ..row
    };
    assert_eq!(without_place(now), without_place(before));
    running
        .until(
            "the unreadable part of the journal is reported",
            |running| {
                running
                    .problem("state.journal")
                    .contains("kept as recorded: default/web")
            },
        )
        .await;
    stage.put("web.yaml", &service("web", 81));
    running
        .until_received("Service web 81 127.0.0.2 finalized")
        .await;
    running.until_received("problems state.journal 0").await;
}

#[tokio::test]
async fn a_file_that_a_crash_has_emptied_keeps_its_service_over_a_restart() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    let mut running = stage.start().await;
    running.claim("web", 2).await;
    running.kill().await;
    stage.put("web.yaml", "");
    let mut running = stage.start().await;
    assert!(!running.row("web").deleting);
    stage.remove("web.yaml");
    running
        .until_received("Service web 80 127.0.0.2 finalized deleting")
        .await;
}

#[tokio::test]
async fn history_that_is_copied_into_a_manifest_is_not_taken_for_ours() {
    let stage = Stage::new();
    let text = service("web", 80).replace(
        "  name: web\n",
        "  name: web\n  annotations:\n    state.landfall.dev/addresses: 192.0.2.1\n    \
         state.landfall.dev/instance: other\n    landfall.dev/drain: 1s\n",
    );
    stage.put("web.yaml", &text);
    let running = stage.start().await;
    let row = running.row("web");
    let annotations: Vec<&String> = row.annotations.keys().collect();
    assert_eq!(annotations, ["landfall.dev/drain"]);
    assert_eq!(row.status, ServiceStatus::default());
}

#[tokio::test]
async fn a_state_that_makes_no_sense_stops_the_start() {
    let stage = Stage::new();
    fs::create_dir(stage.state()).unwrap();
    fs::write(stage.state().join("state.json"), "{\"version\":1,").unwrap();
    let error = Manifests::open(stage.options()).unwrap_err().to_string();
    assert!(error.contains("state.json can't be parsed: "), "{error}");
    assert!(error.contains("move it away"), "{error}");
}

#[tokio::test]
async fn the_state_may_lie_among_the_manifests() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    let options = || Options {
        paths: vec![stage.folder()],
        recursive: true,
        state: Some(stage.folder()),
    };
    let mut running = Running::start(options()).await;
    running.claim("web", 2).await;
    stage.put("end.yaml", &namespace("end"));
    running.until_received("Namespace end").await;
    assert!(running.problems.is_empty(), "{:?}", running.problems);
    running.kill().await;
    let running = Running::start(options()).await;
    assert_eq!(running.row("web").status, status(2));
    assert!(running.problems.is_empty(), "{:?}", running.problems);
}

#[tokio::test]
async fn writing_does_not_wait_for_a_reader_of_facts() {
    let stage = Stage::new();
    let services: String = (0..20)
        .map(|index| service(&format!("web{index}"), 80))
        .collect();
    stage.put("web.yaml", &services);
    let (manifests, store) = Manifests::open(stage.options()).unwrap();
    let (sender, mut facts) = mpsc::channel(1);
    let cancel = CancellationToken::new();
    let task = tokio::spawn(manifests.run(sender, cancel.clone()));
    let Some(Fact::Service(row)) = facts.recv().await else {
        panic!("no Service");
    };
    // From here on nothing takes facts, and the source stands still at the full channel.
    store.add_finalizer(&row.key, &row.uid, None).await.unwrap();
    store
        .write_status(&row.key, &row.uid, &status(2))
        .await
        .unwrap();
    cancel.cancel();
    task.await.unwrap();
    // Nor for the source to run.
    store
        .write_status(&row.key, &row.uid, &status(3))
        .await
        .unwrap();
    drop(store);
    let running = stage.start().await;
    assert_eq!(running.services[&row.key].status, status(3));
}

#[tokio::test]
async fn the_engine_reports_to_the_store() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    let mut running = stage.start().await;
    let store = running.store.clone();
    let row = running.row("web").clone();
    Report::add_finalizer(&store, &row, None).await.unwrap();
    Report::write_status(&store, &row, &status(2))
        .await
        .unwrap();
    running
        .until_received("Service web 80 127.0.0.2 finalized")
        .await;
    stage.remove("web.yaml");
    running
        .until_received("Service web 80 127.0.0.2 finalized deleting")
        .await;
    let other = ServiceRow {
        uid: Uid::new("other"),
        ..row.clone()
    };
    let refused = Report::add_finalizer(&store, &other, None).await;
    assert_eq!(refused, Err(ReportError::Conflict { what: "finalizer" }));
    Report::remove_finalizer(&store, &row).await.unwrap();
    Report::remove_finalizer(&store, &row).await.unwrap();
    running.until_received("ServiceGone web").await;
    let late = Report::write_status(&store, &row, &status(4)).await;
    assert_eq!(late, Err(ReportError::Conflict { what: "status" }));
}

#[tokio::test]
async fn without_a_state_directory_nothing_is_remembered() {
    let stage = Stage::new();
    stage.put("web.yaml", &service("web", 80));
    let options = || Options {
        state: None,
        ..stage.options()
    };
    let mut running = Running::start(options()).await;
    running.claim("web", 2).await;
    running.kill().await;
    let mut running = Running::start(options()).await;
    assert_eq!(running.received(), ["Service web 80", "Synced"]);
    assert!(!stage.state().exists());
}

#[tokio::test]
async fn a_path_that_is_not_there_stops_the_start() {
    let stage = Stage::new();
    let error = Manifests::open(Options {
        paths: vec![stage.path("missing.yaml")],
        ..Options::default()
    })
    .unwrap_err()
    .to_string();
    assert!(
        error.ends_with("missing.yaml: No such file or directory (os error 2)"),
        "{error}"
    );
}
