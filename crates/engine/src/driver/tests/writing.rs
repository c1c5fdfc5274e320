//! What is written on a Service: finalizer and status, whatever else writes them, and whatever
//! becomes of an answer.

use landfall_model::status::ACCEPTED_VERSION;
use landfall_model::wire::accepted_from_text;

use super::*;

/// What is on a Service from before the first write to the outside.
fn begun() -> Condition {
    let reason = Reason::info(Code::Progressing, "the load balancer is being created");
    Condition::unmet(ConditionType::Programmed, &reason, Timestamp::UNIX_EPOCH)
}

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
    let begun = begun();
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
        row.status.conditions = vec![begun()];
    });
    let lab = Lab::start(9, vec![service.row()]).await;
    lab.until("nothing of ours is on it", |rows| {
        rows[&key("ours")].status == ServiceStatus::default()
    })
    .await;
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_comes_with_a_condition_that_names_its_owner() {
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
async fn a_status_that_another_client_wrote_is_corrected_at_once() {
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

#[tokio::test(start_paused = true)]
async fn a_service_that_cant_be_read_is_refused_on_itself_keeps_its_address_and_can_be_deleted() {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut odd = lab.source.rows.lock().unwrap()[&key("a")].clone();
    odd.ports.clear();
    let fault = Reason::error(Code::InvalidField, "not a port").at("spec.ports[0].port");
    odd.faults = vec![fault];
    lab.apply(Arc::new(odd)).await;
    lab.until("refused on itself", |rows| {
        let status = &rows[&key("a")].status;
        let accepted = status.condition(ConditionType::Accepted).unwrap();
        let reported =
            accepted.reason == Code::InvalidField && accepted.message.contains("ports[0]");
        assert_eq!(status.ingress, ingress(1));
        !accepted.status && reported
    })
    .await;
    let warned = lab.source.warnings.lock().unwrap().clone();
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains("SyncLoadBalancerFailed"), "{warned:?}");
    lab.delete(&key("a")).await;
    lab.until("gone", |rows| !rows.contains_key(&key("a")))
        .await;
    assert!(lab.shelf.held.lock().unwrap().is_empty());
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_service_costs_two_writes_and_a_restart_none() {
    let lab = Lab::start(99, Vec::new()).await;
    for number in 0..50 {
        lab.apply(web(&format!("s{number}"))).await;
    }
    lab.until("all programmed", |rows| {
        (0..50).all(|number| programmed(rows, &format!("s{number}")))
    })
    .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(lab.writes().len(), 100, "{:?}", lab.writes());
    let events = || lab.source.events.load(Ordering::Relaxed);
    assert_eq!(events(), 50);

    let rows: Vec<_> = lab.source.rows.lock().unwrap().values().cloned().collect();
    let restarted = Lab::start(99, rows.into_iter().map(Arc::new).collect()).await;
    restarted.until_ready().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(restarted.writes(), [] as [String; 0]);
    assert_eq!(restarted.source.events.load(Ordering::Relaxed), 0);

    // A label changes nothing.
    let mut labelled = lab.source.rows.lock().unwrap()[&key("s7")].clone();
    labelled.labels.insert("team".to_owned(), "shop".to_owned());
    lab.apply(Arc::new(labelled)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((lab.writes().len(), events()), (100, 50));

    // And what leaves costs one write, which takes everything off at once.
    lab.delete(&key("s7")).await;
    lab.until("gone", |rows| !rows.contains_key(&key("s7")))
        .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let ours = lab.writes().split_off(100);
    assert_eq!(ours, ["delete default/s7", "unfinalize default/s7"]);
    lab.stop().await;
    restarted.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_version_is_not_accepted_when_the_status_of_the_one_before_is_confirmed() {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let current = lab.source.rows.lock().unwrap()[&key("a")].clone();
    let mut edited = current.clone();
    edited
        .annotations
        .insert("landfall.dev/drain".to_owned(), "soon".to_owned());
    // The edit was made before the status was written, and the watch sends them in this order.
    let mut before = edited.clone();
    before.status.conditions.clear();
    lab.source
        .facts
        .send(Fact::Service(Arc::new(before)))
        .await
        .unwrap();
    lab.apply(Arc::new(edited)).await;
    lab.until("the edit is refused", |rows| {
        let accepted = rows[&key("a")].status.condition(ConditionType::Accepted);
        accepted.is_some_and(|condition| !condition.status)
    })
    .await;
    lab.until_ready().await;
    let row = lab.source.rows.lock().unwrap()[&key("a")].clone();
    let accepted = accepted_from_text(&row.status.marks[ACCEPTED_VERSION], &row).unwrap();
    assert_eq!(accepted.annotations, current.annotations);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_address_that_was_given_up_before_it_was_recorded_goes_to_the_next_in_line() {
    let lab = Lab::start(1, Vec::new()).await;
    *lab.source.takes.lock().unwrap() = 0;
    lab.apply(web("a")).await;
    // By now it rests for so long that the other one is refused in between.
    tokio::time::sleep(Duration::from_secs(20)).await;
    *lab.source.takes.lock().unwrap() = usize::MAX;
    lab.apply(web("b")).await;
    lab.until("b refused", |rows| {
        let addressed = rows[&key("b")].status.condition(ConditionType::Addressed);
        addressed.is_some_and(|addressed| addressed.reason == Code::PoolExhausted)
    })
    .await;
    lab.shelf.held.lock().unwrap().insert(uid("a"), 9);
    lab.until("both programmed", |rows| {
        programmed(rows, "a") && programmed(rows, "b")
    })
    .await;
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_long_time_without_writes_all_services_are_written_soon() {
    let names = ["a", "b", "c", "d", "e"];
    let lab = Lab::start(9, Vec::new()).await;
    *lab.source.takes.lock().unwrap() = 0;
    for name in names {
        lab.apply(web(name)).await;
    }
    tokio::time::sleep(Duration::from_secs(3600)).await;
    *lab.source.takes.lock().unwrap() = usize::MAX;
    let begun = tokio::time::Instant::now();
    lab.until("all are written", |rows| {
        names.iter().all(|name| programmed(rows, name))
    })
    .await;
    // One looks every 5 s whether anything can be written; the others rest as long at most.
    assert!(begun.elapsed() < Duration::from_secs(11));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_writes_only_one_service_is_tried_often() {
    let lab = Lab::start(9, Vec::new()).await;
    *lab.source.takes.lock().unwrap() = 0;
    for name in ["a", "b", "c", "d", "e"] {
        lab.apply(web(name)).await;
    }
    tokio::time::sleep(Duration::from_secs(900)).await;
    let looks = || ["a", "b", "c", "d", "e"].map(|name| lab.shelf.looks(name));
    let before = looks();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let after = looks();
    let tried = before
        .iter()
        .zip(&after)
        .map(|(before, after)| after - before);
    let tried: Vec<usize> = tried.collect();
    assert!((600..=730).contains(&tried[0]), "{tried:?}");
    assert!(
        tried[1..].iter().all(|it| (11..=17).contains(it)),
        "{tried:?}"
    );
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_outage_is_found_although_the_service_that_looks_for_it_went() {
    let lab = Lab::start(9, Vec::new()).await;
    *lab.source.takes.lock().unwrap() = 0;
    for name in ["a", "b", "c"] {
        lab.apply(web(name)).await;
    }
    tokio::time::sleep(Duration::from_secs(3600)).await;
    lab.source.rows.lock().unwrap().remove(&key("a"));
    let gone = Fact::ServiceGone(key("a"));
    lab.source.facts.send(gone).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    *lab.source.takes.lock().unwrap() = usize::MAX;
    tokio::time::sleep(Duration::from_secs(11)).await;
    let rows = lab.source.rows.lock().unwrap().clone();
    assert!(programmed(&rows, "b") && programmed(&rows, "c"));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_long_time_without_writes_what_is_deleted_goes_soon() {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    *lab.source.takes.lock().unwrap() = 1;
    lab.delete(&key("a")).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    *lab.source.takes.lock().unwrap() = usize::MAX;
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(lab.source.rows.lock().unwrap().is_empty());
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_that_may_be_there_unseen_is_written_over_although_it_says_nothing_new() {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.until_ready().await;
    let before = lab.writes().len();
    // The failure can't be written, for all that is known, and then it is over.
    *lab.source.unwritable.lock().unwrap() = Some(key("a"));
    *lab.shelf.refused.lock().unwrap() = Some(0);
    let uid = lab.source.rows.lock().unwrap()[&key("a")].uid.clone();
    lab.wakes.send(uid).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    *lab.shelf.refused.lock().unwrap() = None;
    *lab.source.unwritable.lock().unwrap() = None;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(lab.writes()[before..], ["status default/a"]);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_alone_cant_be_written_keeps_its_pauses_while_others_are_written() {
    let lab = Lab::start(9, Vec::new()).await;
    *lab.source.unwritable.lock().unwrap() = Some(key("alone"));
    *lab.source.slow.lock().unwrap() = Some((key("alone"), Duration::from_secs(2)));
    lab.apply(web("alone")).await;
    // Each of these is written while the other one waits for an answer, or between its attempts.
    for number in 0..1_800 {
        lab.apply(web(&format!("web-{number}"))).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert!(lab.writes().len() >= 1_800);
    let looks = lab.shelf.looks("alone");
    assert!((10..=40).contains(&looks), "{looks} looks in an hour");
    lab.stop().await;
}
