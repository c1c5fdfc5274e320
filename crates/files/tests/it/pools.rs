//! Address pools over edits and restarts.

use std::fs;

use crate::stage::{Stage, namespace, pool, service};

/// Lets a process know all that there is, and ends it once that is on the disk.
async fn know_and_end(stage: &Stage) {
    stage.put("web.yaml", &service("web", 80));
    let mut running = stage.start().await;
    running.claim("web", 2).await;
    running.kill().await;
}

#[tokio::test]
async fn a_pool_whose_file_is_broken_at_a_restart_is_reported_as_it_was() {
    let stage = Stage::new();
    stage.put("pools.yaml", &pool("edge", "192.0.2.0/28"));
    know_and_end(&stage).await;
    stage.put("pools.yaml", "apiVersion: v1\nkind: [\n");
    for _ in 0..2 {
        let mut running = stage.start().await;
        assert!(running.has_received("Pool edge 192.0.2.0/28"));
        running
            .until("it is reported that it is kept", |running| {
                running
                    .problem("state.journal")
                    .contains("kept as recorded: IPAddressPool edge")
            })
            .await;
        running.kill().await;
    }

    let mut running = stage.start().await;
    stage.put("pools.yaml", &pool("other", "192.0.2.16/28"));
    running.until_received("PoolGone edge").await;
    running.until_received("problems state.journal 0").await;
    assert!(running.has_received("Pool other 192.0.2.16/28"));
    running.kill().await;

    // Nor does it come back.
    stage.put("pools.yaml", "apiVersion: v1\nkind: [\n");
    let running = stage.start().await;
    assert!(!running.has_received("Pool edge 192.0.2.0/28"));
    assert!(running.has_received("Pool other 192.0.2.16/28"));
}

#[tokio::test]
async fn a_pool_whose_newest_version_is_invalid_stays_as_it_was_also_over_a_restart() {
    let stage = Stage::new();
    stage.put("pools.yaml", &pool("edge", "192.0.2.0/28"));
    let mut running = stage.start().await;
    stage.put("pools.yaml", &pool("edge", "192.0.2.0/99"));
    running
        .until("the cause is reported", |running| {
            running
                .problem("pools.yaml")
                .contains("the last valid version of IPAddressPool edge is used")
        })
        .await;
    assert!(!running.has_received("PoolGone edge"));
    running.kill().await;

    let mut running = stage.start().await;
    assert!(running.has_received("Pool edge 192.0.2.0/28"));
    stage.put("pools.yaml", &pool("edge", "192.0.2.0/27"));
    running.until_received("Pool edge 192.0.2.0/27").await;
    running.until_received("problems pools.yaml 0").await;
}

#[tokio::test]
async fn a_pool_that_leaves_a_readable_file_is_gone_at_once_and_for_good() {
    let stage = Stage::new();
    stage.put("pools.yaml", &pool("edge", "192.0.2.0/28"));
    let mut running = stage.start().await;
    stage.put("pools.yaml", &namespace("shop"));
    running.until_received("PoolGone edge").await;
    running.until_received("Namespace shop").await;
    running.kill().await;
    let running = stage.start().await;
    assert!(!running.has_received("Pool edge 192.0.2.0/28"));
}

#[tokio::test]
async fn a_pool_that_vanished_while_nothing_ran_is_not_reported() {
    let stage = Stage::new();
    stage.put("pools.yaml", &pool("edge", "192.0.2.0/28"));
    stage.put("end.yaml", &namespace("end"));
    know_and_end(&stage).await;
    fs::remove_file(stage.path("pools.yaml")).unwrap();
    let running = stage.start().await;
    assert!(!running.has_received("Pool edge 192.0.2.0/28"));
}
