//! What we write and what others write at the same time.

use super::*;

async fn settled() -> Lab {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.until_ready().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    lab
}

/// Clears the addresses in the status, as another controller would.
async fn deface(lab: &Lab) {
    let clear = |row: &mut ServiceRow| row.status.ingress.clear();
    lab.source.change("deface", &key("a"), clear).await.unwrap();
}

fn published(lab: &Lab) -> bool {
    lab.source.rows.lock().unwrap()[&key("a")].status.ingress == ingress(1)
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_retried_with_growing_pauses_and_without_a_warning() {
    let lab = Lab::start(9, Vec::new()).await;
    *lab.source.conflicts.lock().unwrap() = usize::MAX;
    lab.apply(web("a")).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let conflicts = lab.handle.metrics.view().reconciles["outdated"];
    // 50 ms, 100 ms, 200 ms, ... : eight pauses are more than the time that has passed.
    assert!((5..=10).contains(&conflicts), "{conflicts} in ten seconds");
    assert_eq!(lab.warnings_of("SyncLoadBalancerFailed"), 0);
    *lab.source.conflicts.lock().unwrap() = 0;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rewrite_that_comes_before_the_pass_has_ended_is_put_right() {
    let lab = settled().await;
    *lab.source.defaces.lock().unwrap() = 1;
    deface(&lab).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(published(&lab), "{:?}", lab.writes());
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn our_own_writes_are_never_taken_for_those_of_others() {
    let rows = (0..50).map(|number| web(&format!("s{number}"))).collect();
    let lab = Lab::start(100, rows).await;
    lab.until("all programmed", |rows| {
        rows.keys().all(|key| programmed(rows, key.name()))
    })
    .await;
    for _ in 0..5 {
        *lab.shelf.refused.lock().unwrap() = Some(0);
        lab.wakes.send(uid("s1")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        *lab.shelf.refused.lock().unwrap() = None;
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(lab.handle.metrics.view().status_rewrites, 0);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_writers_of_one_status_write_less_and_less_and_one_event_reports_it() {
    let lab = settled().await;
    let before = lab.writes().len();
    *lab.source.defaces.lock().unwrap() = usize::MAX;
    deface(&lab).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let writes = lab.writes().split_off(before);
    let ours = writes.iter().filter(|it| it.starts_with("status")).count();
    // Four at once, and then after 5 s, 10 s, 20 s, ...
    assert!((8..=12).contains(&ours), "{ours} in ten minutes");
    assert!(lab.says("a", Code::StatusContested));
    assert_eq!(lab.warnings_of("StatusContested"), 1);
    assert!(lab.handle.metrics.view().status_rewrites >= 8);
    *lab.source.defaces.lock().unwrap() = 0;
    tokio::time::sleep(Duration::from_secs(1200)).await;
    assert!(published(&lab));
    assert!(!lab.says("a", Code::StatusContested));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn in_a_fight_over_the_status_an_edit_is_followed_at_once() {
    let lab = settled().await;
    *lab.source.defaces.lock().unwrap() = usize::MAX;
    deface(&lab).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(lab.says("a", Code::StatusContested));
    let looks = lab.shelf.looks("a");
    let mut row = lab.source.rows.lock().unwrap()[&key("a")].clone();
    row.ports = svc("a").port(81).row().ports.clone();
    lab.apply(Arc::new(row)).await;
    tokio::time::sleep(DEBOUNCE * 2).await;
    assert_eq!(lab.shelf.looks("a"), looks + 1);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_namesake_of_a_service_of_which_nothing_was_made_inherits_nothing() {
    let invalid = |identity: &str| {
        let service = svc("a").port(80).annotated("landfall.dev/drain", "soon");
        service.with(|row| row.uid = Uid::new(identity)).row()
    };
    let lab = Lab::start(9, vec![invalid("first")]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(lab.warnings_of("SyncLoadBalancerFailed"), 1);
    lab.apply(invalid("second")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(lab.warnings_of("SyncLoadBalancerFailed"), 2);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_the_world_is_as_of_when_it_was_asked_for() {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    let world = lab.handle.world().await.unwrap();
    lab.apply(web("b")).await;
    lab.until("b programmed", |rows| programmed(rows, "b"))
        .await;
    assert_eq!(world.keys().collect::<Vec<_>>(), [key("a")]);
    let world = lab.handle.world().await.unwrap();
    assert_eq!(world.keys().collect::<Vec<_>>(), [key("a"), key("b")]);
    lab.stop().await;
}
