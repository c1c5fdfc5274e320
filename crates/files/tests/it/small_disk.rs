//! A disk that is really full: a small tmpfs, in a mount namespace of its own that ends with the
//! test. Mounting takes root; without it the test fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use landfall_files::Options;

use crate::stage::{Running, Stage, key, service, status};

/// Names the root of the stage to the process in the namespace.
const ROOT: &str = "LANDFALL_TEST_SMALL_DISK";

const MOUNT: &str = "mount -t tmpfs -o size=256k tmpfs \"$1\"; shift; exec \"$@\"";

/// Runs a test of this program once more, in a namespace where `disk` in the stage is small.
fn again_on_a_small_disk(stage: &Stage, name: &str) {
    let disk = stage.root().join("disk");
    fs::create_dir(&disk).unwrap();
    let ended = Command::new("unshare")
        .args(["--mount", "sh", "-euc", MOUNT, "mount"])
        .arg(&disk)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ROOT, stage.root())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && text.contains("1 passed"),
        "as root? {text}{errors}"
    );
}

fn fill(disk: &Path) -> PathBuf {
    let path = disk.join("ballast");
    let error = fs::write(&path, vec![1_u8; 1024 * 1024]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    path
}

/// Plays a test on a small disk.
fn play<F: Future<Output = ()>>(name: &str, test: impl FnOnce(PathBuf) -> F) {
    let Some(root) = std::env::var_os(ROOT).map(PathBuf::from) else {
        let stage = Stage::new();
        stage.put("web.yaml", &service("web", 80));
        return again_on_a_small_disk(&stage, name);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test(root));
}

fn options(root: &Path) -> Options {
    Options {
        paths: vec![root.join("manifests")],
        recursive: false,
        state: Some(root.join("disk/state")),
    }
}

fn remount(disk: &Path, mode: &str) {
    let mounted = Command::new("mount")
        .args(["-o", &format!("remount,{mode}")])
        .arg(disk)
        .status();
    assert!(mounted.unwrap().success());
}

#[test]
fn what_is_on_record_is_served_from_a_disk_that_can_only_be_read() {
    let name = "small_disk::what_is_on_record_is_served_from_a_disk_that_can_only_be_read";
    play(name, async |root| {
        let mut running = Running::start(options(&root)).await;
        running.claim("web", 2).await;
        let uid = running.row("web").uid.clone();
        running.kill().await;
        let disk = root.join("disk");
        remount(&disk, "ro");
        let mut running = Running::start(options(&root)).await;
        assert_eq!(running.row("web").status, status(2));
        let write = |number| {
            let (store, uid) = (running.store.clone(), uid.clone());
            async move { store.write_status(&key("web"), &uid, &status(number)).await }
        };
        let refused = write(3).await.unwrap_err().to_string();
        assert!(refused.contains("Read-only file system"), "{refused}");
        remount(&disk, "rw");
        write(4).await.unwrap();
        running
            .until("what was written is reported", |running| {
                running.row("web").status == status(4)
            })
            .await;
        running.kill().await;
        let running = Running::start(options(&root)).await;
        assert_eq!(running.row("web").status, status(4));
        running.stop().await;
    });
}

#[test]
fn a_journal_does_not_fill_a_disk_that_has_room_for_what_counts() {
    let name = "small_disk::a_journal_does_not_fill_a_disk_that_has_room_for_what_counts";
    play(name, async |root| {
        let mut running = Running::start(options(&root)).await;
        running.claim("web", 2).await;
        let uid = running.row("web").uid.clone();
        for number in (0..8_u8).cycle().take(2_000) {
            let status = status(3 + number);
            let store = &running.store;
            store
                .write_status(&key("web"), &uid, &status)
                .await
                .unwrap();
        }
        running.stop().await;
    });
}

#[test]
fn a_full_disk_loses_no_claim_and_lets_none_be_used_that_is_not_on_it() {
    let name = "small_disk::a_full_disk_loses_no_claim_and_lets_none_be_used_that_is_not_on_it";
    play(name, on_a_small_disk);
}

async fn on_a_small_disk(root: PathBuf) {
    let disk = root.join("disk");
    let options = || options(&root);
    let mut running = Running::start(options()).await;
    running.claim("web", 2).await;
    let uid = running.row("web").uid.clone();
    let ballast = fill(&disk);
    // The last page of the file has room for some more.
    let mut acknowledged = 2;
    let mut failures = 0;
    for number in 3..60 {
        let (store, status) = (running.store.clone(), status(number));
        match store.write_status(&key("web"), &uid, &status).await {
            Ok(()) => acknowledged = number,
            Err(error) => {
                failures += 1;
                assert!(error.to_string().contains("No space left"), "{error}");
            }
        }
    }
    assert!(failures > 0, "it never became full");
    running
        .until("the failure is reported", |running| {
            running.problem("state.journal").contains("No space left")
        })
        .await;
    running
        .until("what was acknowledged is reported", |running| {
            running.row("web").status == status(acknowledged)
        })
        .await;
    running.kill().await;

    // A start without any room: everything is as it was.
    let running = Running::start(options()).await;
    assert_eq!(running.row("web").status, status(acknowledged));
    fs::remove_file(ballast).unwrap();
    running
        .store
        .write_status(&key("web"), &uid, &status(101))
        .await
        .unwrap();
    running.kill().await;
    let running = Running::start(options()).await;
    assert_eq!(running.row("web").status, status(101));
    running.stop().await;
}
