//! What is written on a Service: finalizer and status, whoever else writes them, and whatever becomes of an answer.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_finalizer_of_ours_goes_after_a_crash_before_the_first_status() {
    let stopped = |name: &str, conditions: Vec<Condition>| {
        let service = svc(name).port(80).with(|row| {
            row.wants_load_balancer = false;
            row.finalized = true;
            row.status.conditions = conditions;
        });
        service.row()
    };
    let begun = crate::status::begun(Timestamp::UNIX_EPOCH);
    let lab = Lab::start(
        9,
        vec![stopped("ours", vec![begun]), stopped("theirs", Vec::new())],
    )
    .await;
    lab.until("ours is free", |rows| !rows[&key("ours")].finalized)
        .await;
    lab.until_ready().await;
    assert!(lab.source.rows.lock().unwrap()[&key("theirs")].finalized);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_of_ours_goes_after_a_crash_that_followed_the_finalizer() {
    let service = svc("ours").port(80).with(|row| {
        row.wants_load_balancer = false;
        row.status.conditions = vec![crate::status::begun(Timestamp::UNIX_EPOCH)];
    });
    let lab = Lab::start(9, vec![service.row()]).await;
    lab.until("nothing of ours is on it", |rows| {
        rows[&key("ours")].status == ServiceStatus::default()
    })
    .await;
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_comes_with_a_condition_that_tells_whose_it_is() {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a finalized", |rows| {
        let row = &rows[&key("a")];
        assert!(!row.finalized || !row.status.conditions.is_empty());
        row.finalized
    })
    .await;
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_whose_words_change_each_time_is_tried_again_with_pauses_that_grow() {
    let lab = Lab::start(9, Vec::new()).await;
    *lab.shelf.refused.lock().unwrap() = Some(0);
    lab.apply(web("a")).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let looks = lab.shelf.refused.lock().unwrap().take().unwrap();
    // 0.5 s, 1 s, 2 s, ... : ten pauses are more than the time that has passed.
    assert!((5..=11).contains(&looks), "{looks} looks in ten minutes");
    assert!(lab.writes().len() <= looks + 1, "{:?}", lab.writes());
    let uid = lab.source.rows.lock().unwrap()[&key("a")].uid.clone();
    lab.wakes.send(uid).await.unwrap();
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_that_somebody_else_wrote_is_put_right_at_once() {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut defaced = lab.source.rows.lock().unwrap()[&key("a")].clone();
    defaced.status.ingress.clear();
    lab.apply(Arc::new(defaced)).await;
    let published =
        |rows: &BTreeMap<ServiceKey, ServiceRow>| rows[&key("a")].status.ingress == ingress(1);
    lab.until("published again", published).await;
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_whose_answer_was_lost_is_not_taken_to_be_unwritten() {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.until_ready().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    *lab.shelf.refused.lock().unwrap() = Some(0);
    lab.source.loses_answer.store(true, Ordering::Relaxed);
    let uid = lab.source.rows.lock().unwrap()[&key("a")].uid.clone();
    lab.wakes.send(uid).await.unwrap();
    lab.until("the failure is written", |rows| !programmed(rows, "a"))
        .await;
    *lab.shelf.refused.lock().unwrap() = None;
    lab.until("a programmed again", |rows| programmed(rows, "a"))
        .await;
    lab.stop().await;
}
