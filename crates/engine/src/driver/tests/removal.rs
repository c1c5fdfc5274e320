//! A removal knows how it is to be done, however the Service went.

use landfall_model::dialect::openstack::LOAD_BALANCER_ID;

use super::*;

const KEEP: &str = "loadbalancer.openstack.org/keep-floatingip";

/// A Service that is programmed and asked for its floating IP to outlive it.
async fn keeping() -> Lab {
    let row = svc("a").port(80).annotated(KEEP, "true").row();
    let lab = Lab::start(9, vec![row]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.until_ready().await;
    lab
}

/// That whatever was removed was removed as the Service said.
fn assert_removed_as_asked(lab: &Lab) {
    let removals = lab.shelf.removals.lock().unwrap();
    assert!(!removals.is_empty());
    for removal in removals.iter() {
        assert_eq!(removal.uid, Uid::new("uid-a"));
        let keep = removal.extensions.openstack.keep_floating_ip.as_ref();
        assert!(keep.is_some_and(|keep| keep.value), "{removal:?}");
        assert_eq!(removal.marks[RECORD], "shelf 1");
    }
}

async fn until_empty(lab: &Lab) {
    let empty = async {
        let mut changes = lab.handle.store.changes();
        while !lab.shelf.held.lock().unwrap().is_empty() {
            let _ = tokio::time::timeout(Duration::from_millis(20), changes.changed()).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), empty)
        .await
        .expect("everything is given back in 20 s");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_deleted_goes_with_its_cloud_options_and_marks() {
    let lab = keeping().await;
    lab.delete(&key("a")).await;
    lab.until("a gone", |rows| !rows.contains_key(&key("a")))
        .await;
    assert_removed_as_asked(&lab);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_vanished_goes_with_the_cloud_options_and_marks_it_was_last_seen_with() {
    let lab = keeping().await;
    lab.source.rows.lock().unwrap().remove(&key("a"));
    let gone = Fact::ServiceGone(key("a"));
    lab.source.facts.send(gone).await.unwrap();
    until_empty(&lab).await;
    assert_removed_as_asked(&lab);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_namesake_does_not_lend_its_options_to_the_removal_of_the_earlier_one() {
    let lab = keeping().await;
    let namesake = svc("a").port(80).with(|row| row.uid = Uid::new("another"));
    lab.apply(namesake.row()).await;
    lab.until("the namesake is programmed", |rows| {
        programmed(rows, "a") && rows[&key("a")].uid == Uid::new("another")
    })
    .await;
    assert_removed_as_asked(&lab);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn where_several_instances_may_hold_something_each_is_asked_until_it_has_answered() {
    let row = svc("a").port(80).holding("127.77.0.1").with(|row| {
        row.wants_load_balancer = false;
        row.finalized = true;
        let condition = Condition::met(
            ConditionType::Accepted,
            Code::Accepted,
            "",
            Timestamp::UNIX_EPOCH,
        );
        row.status.conditions = vec![condition];
    });
    let row = row.row();
    let inner = Arc::new(Shelf::new(9));
    inner.held.lock().unwrap().insert(row.uid.clone(), 1);
    let error = Reason::error(Code::ProviderFailed, "not now");
    let error = ProviderError {
        reason: error,
        retry: Retry::Backoff,
        scope: landfall_model::provider::Scope::Reconcile,
    };
    inner.fails.lock().unwrap().insert(row.uid.clone(), error);
    let classes = Classes::new(vec!["edge".to_owned(), "inner".to_owned()], Some("edge"));
    let leading = watch::Sender::new(Role::Leading { term: 0 }).subscribe();
    let lab = Lab::start_on(
        Shelf::new(9),
        vec![inner.clone()],
        classes,
        vec![row.clone()],
        leading,
    )
    .await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(lab.source.rows.lock().unwrap()[&key("a")].finalized);
    inner.fails.lock().unwrap().clear();
    lab.until("nothing is left of it", |rows| !rows[&key("a")].finalized)
        .await;
    assert!(inner.held.lock().unwrap().is_empty());
    lab.stop().await;
}

/// Cleared away by another controller until it was stopped, on this provider.
async fn left_half_cleared(openstack: bool, marked: bool) -> Lab {
    let mut row = svc("left").port(80).with(|row| {
        row.wants_load_balancer = false;
        row.finalized = true;
    });
    if marked {
        row = row.annotated(LOAD_BALANCER_ID, "lb-1");
    }
    let mut shelf = Shelf::new(9);
    shelf.profile.predecessor_mark = openstack.then_some(LOAD_BALANCER_ID);
    let leading = leads();
    let rows = vec![row.row(), web("a")];
    let lab = Lab::start_over(shelf, Classes::only("local"), rows, leading).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab
}

#[tokio::test(start_paused = true)]
async fn what_the_reference_began_to_clear_away_is_finished_by_its_heir() {
    let lab = left_half_cleared(true, true).await;
    lab.until("the finalizer is gone", |rows| {
        !rows[&key("left")].finalized
    })
    .await;
    let uid = Uid::new("uid-left");
    assert!(
        lab.shelf
            .removals
            .lock()
            .unwrap()
            .iter()
            .any(|removal| removal.uid == uid)
    );
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_another_controller_began_is_left_to_it() {
    for (openstack, marked) in [(true, false), (false, true)] {
        let lab = left_half_cleared(openstack, marked).await;
        lab.until_ready().await;
        let writes = lab.writes();
        assert!(writes.iter().all(|it| it.ends_with("/a")), "{writes:?}");
        lab.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_whose_end_cant_be_recorded_is_shown_as_being_removed() {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    let removing = |lab: &Lab| {
        let store = &lab.handle.store;
        store.read(|pages| pages.records.get(&key("a")).map(|it| it.removing))
    };
    lab.until_ready().await;
    assert_eq!(removing(&lab), Some(false));
    *lab.source.takes.lock().unwrap() = 1;
    lab.delete(&key("a")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(removing(&lab), Some(true));
    let shown = lab.handle.store.read(|pages| {
        let record = &pages.records[&key("a")];
        record
            .shown_status()
            .condition(ConditionType::Programmed)
            .cloned()
    });
    assert!(shown.is_some_and(|it| !it.status && it.reason == Code::Progressing));
    *lab.source.takes.lock().unwrap() = usize::MAX;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(removing(&lab), None);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_served_before_a_removal_that_was_recorded_unanswered_does_not_come_back() {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.until_ready().await;
    lab.source.loses_answer.store(true, Ordering::Relaxed);
    let edit = |change: &dyn Fn(&mut ServiceRow)| {
        let mut row = lab.source.rows.lock().unwrap()[&key("a")].clone();
        change(&mut row);
        Arc::new(row)
    };
    lab.apply(edit(&|row| row.wants_load_balancer = false))
        .await;
    lab.until("it is removed", |rows| !rows[&key("a")].finalized)
        .await;
    let invalid = edit(&|row| {
        row.wants_load_balancer = true;
        let drain = ("landfall.dev/drain".to_owned(), "soon".to_owned());
        row.annotations.extend([drain]);
    });
    lab.apply(invalid).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!programmed(&lab.source.rows.lock().unwrap(), "a"));
    assert!(lab.shelf.held.lock().unwrap().is_empty());
    lab.stop().await;
}
