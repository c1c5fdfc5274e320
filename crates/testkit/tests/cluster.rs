//! The test bed itself: a control plane that is real, separate per user, and gone when it should
//! be.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails where something unexpected happens"
)]

use std::fs;
use std::path::Path;

use landfall_testkit::cluster::{Cluster, Options};

/// Ids of processes that were started for a cluster's directory.
fn processes_of(directory: &Path) -> Vec<u32> {
    let needle = directory.display().to_string();
    let entries = fs::read_dir("/proc").unwrap();
    let ids = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    ids.filter(|id| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&needle)
    })
    .collect()
}

#[tokio::test]
async fn a_user_without_rights_is_refused_and_the_audit_log_records_it() {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("rights").await.unwrap();
    let audit = cluster.audit();
    let unprivileged = cluster.identity("unprivileged", &["idle"]).unwrap();
    let kubectl = cluster.kubectl_as(&unprivileged);
    let refusal = kubectl
        .run(&["-n", &namespace, "create", "configmap", "x"])
        .await;
    let refusal = refusal.unwrap_err().to_string();
    assert!(
        refusal.contains("\"unprivileged\" cannot create resource \"configmaps\""),
        "{refusal}"
    );
    let writes = audit.writes_of("unprivileged").unwrap();
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert_eq!(
        (
            writes[0].verb.as_str(),
            writes[0].resource.as_str(),
            writes[0].code
        ),
        ("create", "configmaps", 403)
    );
    assert_eq!(writes[0].namespace, namespace);
    assert!(
        writes[0].user_agent.starts_with("kubectl/"),
        "{}",
        writes[0].user_agent
    );
}

#[tokio::test]
async fn a_restarted_api_server_still_knows_what_was_stored() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let namespace = cluster.namespace("kept").await.unwrap();
    cluster.stop_api_server();
    let refused = cluster
        .kubectl()
        .run(&["get", "namespace", &namespace])
        .await;
    assert!(refused.is_err());
    cluster.start_api_server().await.unwrap();
    cluster.compact().await.unwrap();
    cluster
        .kubectl()
        .get(&["namespace", &namespace])
        .await
        .unwrap();
}

#[tokio::test]
async fn nothing_is_left_of_a_cluster_whose_test_panicked() {
    let cluster = Cluster::start(Options {
        controllers: true,
        ..Options::default()
    })
    .await
    .unwrap();
    let directory = cluster.directory().to_owned();
    assert!(
        processes_of(&directory).len() >= 4,
        "{:?}",
        processes_of(&directory)
    );
    let test = tokio::spawn(async move {
        let _cluster = cluster;
        panic!("as a failed assertion does");
    });
    assert!(test.await.is_err());
    assert_eq!(processes_of(&directory), Vec::<u32>::new());
    assert!(!directory.exists());
}
