//! What a provider that hangs may hold up: itself.

use super::*;

fn webs(count: usize) -> Vec<Arc<ServiceRow>> {
    (0..count)
        .map(|number| web(&format!("s{number}")))
        .collect()
}

fn inner(name: &str) -> Arc<ServiceRow> {
    let service = svc(name).port(80);
    service
        .with(|row| row.class = Some("landfall.dev/inner".into()))
        .row()
}

fn hanging() -> Shelf {
    let shelf = Shelf::new(200);
    shelf.hangs.store(true, Ordering::Relaxed);
    shelf
}

#[tokio::test(start_paused = true)]
async fn the_loop_rests_while_every_slot_is_taken_and_more_is_due() {
    let leading = watch::Sender::new(Role::Leading { term: 0 }).subscribe();
    let lab = Lab::start_over(hanging(), Classes::only("local"), webs(16), leading).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(lab.shelf.looks.lock().unwrap().len(), 16);
    lab.apply(web("late")).await;
    tokio::task::yield_now().await;
    tokio::time::advance(DEBOUNCE * 2).await;
    let before = lab.handle.metrics.view().turns;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let turns = lab.handle.metrics.view().turns - before;
    assert!(turns < 10, "{turns} turns although nothing happens");
    assert_eq!(lab.handle.metrics.view().queued, 1);
}

#[tokio::test(start_paused = true)]
async fn passes_that_wait_for_the_record_alone_are_as_many_as_it_takes_at_once() {
    let leading = watch::Sender::new(Role::Leading { term: 0 }).subscribe();
    let mut shelf = hanging();
    shelf.profile.immediate = true;
    let lab = Lab::start_over(shelf, Classes::only("local"), webs(40), leading).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(lab.shelf.looks.lock().unwrap().len(), 24);
    assert_eq!(lab.handle.metrics.view().queued, 16);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_hangs_holds_up_no_other_and_no_removal_there() {
    let mut rows = webs(20);
    rows.push(inner("a"));
    let (lab, _) = Lab::start_two(hanging(), rows).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.apply(inner("b")).await;
    lab.until("b programmed", |rows| programmed(rows, "b"))
        .await;
    lab.delete(&key("a")).await;
    lab.until("a gone", |rows| !rows.contains_key(&key("a")))
        .await;
    assert_eq!(lab.shelf.looks.lock().unwrap().len(), 16);
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_does_not_end_is_broken_off_and_its_slot_is_free() {
    let leading = watch::Sender::new(Role::Leading { term: 0 }).subscribe();
    let lab = Lab::start_over(hanging(), Classes::only("local"), webs(17), leading).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    lab.shelf.hangs.store(false, Ordering::Relaxed);
    tokio::time::sleep(RECONCILE_LIMIT / 2).await;
    assert!(!programmed(&lab.source.rows.lock().unwrap(), "s16"));
    tokio::time::sleep(RECONCILE_LIMIT).await;
    let rows = lab.source.rows.lock().unwrap().clone();
    assert!(rows.keys().all(|key| programmed(&rows, key.name())));
    assert_eq!(lab.handle.metrics.view().reconciles["failed"], 16);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_stops_although_a_pass_does_not_end() {
    let leading = watch::Sender::new(Role::Leading { term: 0 }).subscribe();
    let lab = Lab::start_over(hanging(), Classes::only("local"), webs(1), leading).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    tokio::time::timeout(LAST_CALL * 2, lab.stop())
        .await
        .expect("it stops");
}
