//! Plans that have no end.

use std::sync::atomic::AtomicUsize;

use super::*;

/// A provider that follows a script, and one Service.
async fn start(script: impl Fn(&[String]) -> Option<String> + Send + 'static) -> Lab {
    let shelf = Shelf::scripted(script);
    let leading = watch::Sender::new(Role::Leading { term: 0 }).subscribe();
    Lab::start_over(shelf, Classes::only("local"), vec![web("a")], leading).await
}

/// Deletes and posts for ever.
#[expect(clippy::unnecessary_wraps, reason = "a script may have an end")]
fn alternate(written: &[String]) -> Option<String> {
    let number = written.len();
    Some(if number % 2 == 1 {
        "create monitor of pool p".to_owned()
    } else {
        format!("delete monitor {number}")
    })
}

fn written(lab: &Lab) -> usize {
    lab.shelf.written.lock().unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_repeats_the_same_writes_for_ever_is_stopped_and_reported() {
    let lab = start(alternate).await;
    tokio::time::sleep(Duration::from_secs(55)).await;
    assert_eq!(written(&lab), 11, "five times each, and one more to delete");
    assert!(lab.says("a", Code::NotConverging));
    assert_eq!(lab.warnings_of("the same changes were applied"), 1);
    let reason = lab.handle.store.read(|pages| {
        let reasons = &pages.records[&key("a")].reasons;
        reasons[0].message.clone()
    });
    assert!(reason.ends_with("create monitor of pool p"), "{reason}");
    let status = lab.source.rows.lock().unwrap()[&key("a")].status.clone();
    let programmed = status.condition(ConditionType::Programmed).unwrap();
    assert_eq!(programmed.reason, Code::NotConverging);
    // A pause of a minute, of two, of four, ...: a try each.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!((13..=40).contains(&written(&lab)), "{}", written(&lab));
    assert!(lab.handle.metrics.view().reconciles["stuck"] >= 3);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_the_service_is_followed_at_once_although_it_was_stopped() {
    let lab = start(alternate).await;
    tokio::time::sleep(Duration::from_secs(55)).await;
    let before = written(&lab);
    // Facts that change nothing of what is wanted do not call for the same again.
    lab.wakes.send(uid("a")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(written(&lab), before);
    let mut row = lab.source.rows.lock().unwrap()[&key("a")].clone();
    row.ports = svc("a").port(81).row().ports.clone();
    lab.apply(Arc::new(row)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(written(&lab) > before);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_way_of_different_steps_is_gone_to_its_end() {
    let lab = start(|written| {
        let number = written.len();
        (number < 30).then(|| format!("create listener {number}"))
    })
    .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(written(&lab), 30);
    assert!(!lab.says("a", Code::NotConverging));
    assert!(!lab.handle.metrics.view().reconciles.contains_key("stuck"));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_another_program_changes_now_and_then_is_put_right_each_time() {
    let changes = Arc::new(AtomicUsize::default());
    let made = changes.clone();
    let lab = start(move |written| {
        let is_changed = written.len() < made.load(Ordering::Relaxed);
        is_changed.then(|| "update pool p: name".to_owned())
    })
    .await;
    for number in 1..=30 {
        changes.store(number, Ordering::Relaxed);
        lab.wakes.send(uid("a")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(written(&lab), number);
    }
    assert!(!lab.says("a", Code::NotConverging));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_service_takes_one_pass_although_the_source_reports_back_what_was_written() {
    let rows = (0..100).map(|number| web(&format!("s{number}"))).collect();
    let lab = Lab::start(100, rows).await;
    lab.until("all programmed", |rows| {
        rows.keys().all(|key| programmed(rows, key.name()))
    })
    .await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let reconciles = lab.handle.metrics.view().reconciles;
    assert_eq!(reconciles, BTreeMap::from([("settled".to_owned(), 100)]));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn writes_that_are_repeated_because_others_after_them_fail_are_stopped_and_reported() {
    let lab = start(|written| {
        let next = ["create pool p", "fail of the quota"];
        Some(next[written.len() % 2].to_owned())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(55)).await;
    assert_eq!(written(&lab), 10, "five times each");
    assert!(lab.says("a", Code::NotConverging));
    let named = "create pool p; the last failure: fail of the quota";
    assert_eq!(lab.warnings_of(named), 1);
    // From then on there is a try after each pause.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!((12..=80).contains(&written(&lab)), "{}", written(&lab));
    lab.stop().await;
}
