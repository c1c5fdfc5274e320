//! Standard input, which a test can't give to the process it runs in.

use std::io::Cursor;
use std::time::Duration;

use landfall_model::reason::Code;
use landfall_model::rows::Fact;

use super::*;

const SERVICE: &str =
    "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n";

#[tokio::test]
async fn standard_input_is_read_to_its_end_and_served() {
    let options = Options {
        paths: vec!["-".into()],
        ..Options::default()
    };
    let (manifests, _store) = Manifests::open_with(options, &mut Cursor::new(SERVICE)).unwrap();
    let (sender, mut facts) = mpsc::channel(1);
    let cancel = CancellationToken::new();
    let running = tokio::spawn(manifests.run(sender, cancel.clone()));
    let Some(Fact::Service(row)) = facts.recv().await else {
        panic!("no Service");
    };
    assert_eq!(row.origin_of("spec.ports").unwrap().to_string(), "-:4");
    assert!(matches!(facts.recv().await, Some(Fact::Synced)));
    cancel.cancel();
    running.await.unwrap();
    assert!(facts.recv().await.is_none());
}

#[tokio::test]
async fn that_a_pool_may_be_missing_is_reported_before_everything_is_known() {
    let options = Options {
        paths: vec!["-".into()],
        ..Options::default()
    };
    let (manifests, _store) = Manifests::open_with(options, &mut Cursor::new("kind: [")).unwrap();
    let (sender, mut facts) = mpsc::channel(1);
    let cancel = CancellationToken::new();
    let running = tokio::spawn(manifests.run(sender, cancel.clone()));
    let Some(Fact::PoolsIncomplete { incomplete, .. }) = facts.recv().await else {
        panic!("not PoolsIncomplete");
    };
    assert!(incomplete);
    assert!(matches!(
        facts.recv().await,
        Some(Fact::SourceProblems { .. })
    ));
    assert!(matches!(facts.recv().await, Some(Fact::Synced)));
    cancel.cancel();
    running.await.unwrap();
}

#[test]
fn standard_input_can_be_checked() {
    let paths = ["-".into()];
    let broken = SERVICE.replace("80", "70000");
    let loaded = crate::load::load_with(&paths, false, &mut Cursor::new(broken));
    assert_eq!(loaded.facts.len(), 0);
    let reasons: Vec<String> = loaded.reasons.iter().map(ToString::to_string).collect();
    assert_eq!(
        reasons,
        ["-:4: spec.ports[0].port: \"70000\": not a port; write a number from 1 to 65535"]
    );
}

#[tokio::test(start_paused = true)]
async fn what_changed_is_read_at_once_when_a_look_is_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("web.yaml");
    std::fs::write(&file, SERVICE).unwrap();
    let options = Options {
        paths: vec![file.clone()],
        ..Options::default()
    };
    let (mut manifests, _store) = Manifests::open(options).unwrap();
    // Changes are noticed by nothing but the routine.
    manifests.scanner.watcher = None;
    manifests.hints = None;
    let asked = Arc::new(Notify::new());
    let (sender, mut facts) = mpsc::channel(1);
    let cancel = CancellationToken::new();
    let running = manifests.look_when(asked.clone());
    let running = tokio::spawn(running.run(sender, cancel.clone()));
    while !matches!(facts.recv().await, Some(Fact::Synced)) {}
    let began = Instant::now();
    std::fs::write(&file, SERVICE.replace("port: 80", "port: 8080")).unwrap();
    asked.notify_one();
    let Some(Fact::Service(row)) = facts.recv().await else {
        panic!("no Service");
    };
    assert_eq!(row.ports[0].port.get(), 8080);
    assert_eq!(began.elapsed(), Duration::ZERO);
    cancel.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_edit_is_reported_while_the_disk_is_busy() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("web.yaml");
    std::fs::write(&file, SERVICE).unwrap();
    let options = Options {
        paths: vec![file.clone()],
        state: Some(home.path().join("state")),
        ..Options::default()
    };
    let (mut manifests, store) = Manifests::open(options).unwrap();
    manifests.scanner.watcher = None;
    manifests.hints = None;
    let asked = Arc::new(Notify::new());
    let (sender, mut facts) = mpsc::channel(1);
    let cancel = CancellationToken::new();
    let running = manifests.look_when(asked.clone());
    let running = tokio::spawn(running.run(sender, cancel.clone()));
    while !matches!(facts.recv().await, Some(Fact::Synced)) {}
    store.flush(true).await;
    let disk = store.seize_disk().await;
    std::fs::write(&file, SERVICE.replace("port: 80", "port: 8080")).unwrap();
    asked.notify_one();
    let Some(Fact::Service(row)) = facts.recv().await else {
        panic!("no Service");
    };
    assert_eq!(row.ports[0].port.get(), 8080);
    assert!(store.with(|registry| registry.has_unwritten()));
    // The disk is not waited for without end either.
    let silence = |fact: &Fact| match fact {
        Fact::SourceProblems { reasons, .. } => reasons
            .iter()
            .any(|it| it.code == Code::StateNotWritten && it.message.contains("does not answer")),
        _ => false,
    };
    while !silence(&facts.recv().await.unwrap()) {}
    let began = Instant::now();
    std::fs::write(&file, SERVICE.replace("port: 80", "port: 9090")).unwrap();
    asked.notify_one();
    let Some(Fact::Service(row)) = facts.recv().await else {
        panic!("no Service");
    };
    assert_eq!(row.ports[0].port.get(), 9090);
    assert_eq!(began.elapsed(), Duration::ZERO);
    drop(disk);
    let is_over =
        |fact: &Fact| matches!(fact, Fact::SourceProblems { reasons, .. } if reasons.is_empty());
    while !is_over(&facts.recv().await.unwrap()) {}
    cancel.cancel();
    running.await.unwrap();
}
