//! Reads everything go on beside the loop.

use super::*;

/// Waits until that many looks have begun.
async fn begun(lab: &Lab, count: usize) {
    let mut begun = lab.shelf.audits.begun.subscribe();
    let wait = begun.wait_for(|it| *it >= count);
    tokio::time::timeout(Duration::from_hours(1), wait)
        .await
        .expect("an audit in an hour")
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_look_that_takes_long_does_not_hold_up_facts_and_no_second_one_begins() {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    begun(&lab, 1).await;
    lab.apply(web("b")).await;
    lab.until("b programmed", |rows| programmed(rows, "b"))
        .await;
    tokio::time::sleep(Duration::from_mins(9)).await;
    assert_eq!(*lab.shelf.audits.begun.borrow(), 1);
    lab.shelf.audits.answers.send_replace(Some(Vec::new()));
    begun(&lab, 2).await;
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drift_that_an_audit_finds_is_repaired() {
    let lab = Lab::start(9, vec![web("a"), web("b")]).await;
    lab.until("both programmed", |rows| {
        programmed(rows, "a") && programmed(rows, "b")
    })
    .await;
    let uid = Uid::new("uid-a");
    let writes = lab.writes();
    lab.shelf.held.lock().unwrap().remove(&uid);
    let other_owner = Uid::new("uid-of-another-owner");
    let answer = Some(vec![other_owner, uid.clone()]);
    lab.shelf.audits.answers.send_replace(answer);
    let repaired = async {
        while !lab.shelf.held.lock().unwrap().contains_key(&uid) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_hours(1), repaired)
        .await
        .expect("repaired in an hour");
    let more = lab.writes().split_off(writes.len());
    assert!(more.iter().all(|write| write.ends_with("/a")), "{more:?}");
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_stops_although_a_look_has_not_ended() {
    let lab = Lab::start(9, vec![web("a")]).await;
    begun(&lab, 1).await;
    tokio::time::timeout(Duration::from_secs(60), lab.stop())
        .await
        .expect("it stops");
}

#[tokio::test(start_paused = true)]
async fn a_look_that_does_not_end_is_broken_off_and_the_next_one_begins() {
    let lab = Lab::start(9, vec![web("a")]).await;
    begun(&lab, 2).await;
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_look_that_takes_long_at_one_instance_does_not_keep_another_from_the_next() {
    let (lab, inner) = Lab::start_two(Shelf::new(9), vec![web("a")]).await;
    inner.audits.answers.send_replace(Some(Vec::new()));
    tokio::time::sleep(Duration::from_mins(7)).await;
    assert_eq!(*inner.audits.begun.borrow(), 2);
    assert_eq!(*lab.shelf.audits.begun.borrow(), 1);
    lab.stop().await;
}
