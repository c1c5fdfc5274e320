//! What becomes of Services while the lead comes and goes.

use super::*;

const FIRST: Role = Role::Leading { term: 1 };
const SECOND: Role = Role::Leading { term: 2 };

/// What was reported to the provider, but for the numbers.
fn reported(lab: &Lab) -> Vec<String> {
    let reported = lab.shelf.recalled.lock().unwrap();
    reported.iter().map(|(what, _)| what.clone()).collect()
}

fn held(lab: &Lab) -> usize {
    lab.shelf.held.lock().unwrap().len()
}

/// Lets everything happen that is about to.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// A replica whose provider holds something from before the engine.
async fn inheriting(role: Role) -> (watch::Sender<Role>, Lab) {
    let (role, followed) = watch::channel(role);
    let classes = Classes::only("local");
    let rows = vec![web("a")];
    let lab = Lab::start_after(Shelf::new(9), Vec::new(), classes, rows, (followed, true)).await;
    settle().await;
    (role, lab)
}

/// A replica that leads and serves one Service.
async fn leading() -> (watch::Sender<Role>, Lab) {
    let (role, followed) = watch::channel(FIRST);
    let lab = Lab::start_led(9, vec![web("a")], followed).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.until_ready().await;
    (role, lab)
}

#[tokio::test(start_paused = true)]
async fn a_standby_writes_nothing_until_it_leads() {
    let (role, followed) = watch::channel(Role::Standby);
    let lab = Lab::start_led(9, vec![web("a")], followed).await;
    lab.until_ready().await;
    settle().await;
    assert_eq!(lab.writes(), [] as [&str; 0]);
    assert!(!lab.handle.store.read(crate::store::Snapshot::serving));
    role.send_replace(FIRST);
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.until_ready().await;
    assert!(lab.handle.store.read(crate::store::Snapshot::serving));
    assert_eq!(reported(&lab), ["restore_claims"]);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_may_not_write_keeps_what_it_serves_and_writes_nothing() {
    let (role, lab) = leading().await;
    role.send_replace(Role::Carrying);
    settle().await;
    let writes = lab.writes();
    lab.apply(web("b")).await;
    lab.wakes
        .send(web("a").uid.clone())
        .await
        .expect("the loop goes on");
    settle().await;
    assert_eq!(lab.writes(), writes);
    assert_eq!(
        (held(&lab), reported(&lab)),
        (1, vec!["restore_claims".to_owned()])
    );
    assert!(!lab.handle.store.read(crate::store::Snapshot::serving));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_leads_again_catches_up_and_moves_nothing() {
    let (role, lab) = leading().await;
    let before = lab.source.rows.lock().unwrap()[&key("a")].clone();
    role.send_replace(Role::Carrying);
    settle().await;
    lab.apply(web("b")).await;
    settle().await;
    role.send_replace(FIRST);
    lab.until("b programmed", |rows| programmed(rows, "b"))
        .await;
    assert_eq!(lab.source.rows.lock().unwrap()[&key("a")], before);
    assert_eq!(
        reported(&lab),
        ["restore_claims", "invalidate_caches false"]
    );
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_went_while_nothing_could_be_written_is_cleared_away_afterwards() {
    let (role, lab) = leading().await;
    role.send_replace(Role::Carrying);
    settle().await;
    lab.source
        .facts
        .send(Fact::ServiceGone(key("a")))
        .await
        .unwrap();
    settle().await;
    assert_eq!(held(&lab), 1);
    role.send_replace(FIRST);
    settle().await;
    assert_eq!(held(&lab), 0);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_another_replica_led_only_what_is_on_record_counts() {
    let (role, lab) = leading().await;
    role.send_replace(Role::Carrying);
    settle().await;
    // The other one gave it another address.
    let mut row = lab.source.rows.lock().unwrap()[&key("a")].clone();
    row.status.ingress = ingress(7);
    lab.apply(Arc::new(row)).await;
    settle().await;
    role.send_replace(SECOND);
    settle().await;
    assert_eq!(
        reported(&lab),
        ["restore_claims", "invalidate_caches true", "restore_claims"]
    );
    let held: Vec<u8> = lab.shelf.held.lock().unwrap().values().copied().collect();
    assert_eq!(held, [7]);
    let row = lab.source.rows.lock().unwrap()[&key("a")].clone();
    assert_eq!(row.status.ingress, ingress(7));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_stands_by_once_another_replica_serves_and_may_lead_again() {
    let (role, lab) = leading().await;
    role.send_replace(Role::Carrying);
    settle().await;
    role.send_replace(Role::Standby);
    settle().await;
    assert_eq!(
        (held(&lab), reported(&lab)),
        (0, vec!["restore_claims".into(), "retire".into()])
    );
    assert!(lab.handle.store.read(|pages| pages.records.is_empty()));
    let writes = lab.writes();
    lab.apply(web("b")).await;
    settle().await;
    assert_eq!(lab.writes(), writes);
    role.send_replace(SECOND);
    lab.until("b programmed", |rows| programmed(rows, "b"))
        .await;
    assert_eq!(held(&lab), 2);
    assert_eq!(
        reported(&lab),
        ["restore_claims", "retire", "restore_claims"]
    );
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_role_that_changes_twice_before_the_loop_looks_is_not_missed() {
    let (role, lab) = leading().await;
    // In between it carried, stood by, and another replica led.
    role.send_replace(SECOND);
    settle().await;
    assert_eq!(
        reported(&lab),
        ["restore_claims", "invalidate_caches true", "restore_claims"]
    );
    assert_eq!(held(&lab), 1);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_open_before_the_start_is_kept_until_another_replica_serves() {
    let (role, lab) = inheriting(Role::Carrying).await;
    assert_eq!(lab.writes(), [] as [&str; 0]);
    assert_eq!(reported(&lab), [] as [&str; 0]);
    role.send_replace(Role::Standby);
    settle().await;
    assert_eq!(reported(&lab), ["retire"]);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn listeners_open_before_the_start_are_checked_again_by_a_leader() {
    let (role, lab) = inheriting(Role::Carrying).await;
    role.send_replace(FIRST);
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    assert_eq!(reported(&lab), ["invalidate_caches true", "restore_claims"]);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn listeners_open_before_the_start_are_closed_where_another_replica_serves_by_then() {
    let (_role, lab) = inheriting(Role::Standby).await;
    assert_eq!(reported(&lab), ["retire"]);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn listeners_open_before_the_start_are_kept_and_checked_by_a_replica_that_leads_by_then() {
    let (_role, lab) = inheriting(FIRST).await;
    assert_eq!(reported(&lab), ["invalidate_caches true", "restore_claims"]);
    assert_eq!(held(&lab), 1);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_never_led_lets_go_of_nothing() {
    let (role, followed) = watch::channel(Role::Standby);
    let lab = Lab::start_led(9, vec![web("a")], followed).await;
    lab.until_ready().await;
    role.send_replace(Role::Carrying);
    role.send_replace(Role::Standby);
    settle().await;
    assert_eq!(reported(&lab), [] as [&str; 0]);
    lab.stop().await;
}

/// A claim as the leader before wrote it.
fn claimed(name: &str, last: u8) -> Arc<ServiceRow> {
    svc(name)
        .port(80)
        .holding(&format!("127.77.0.{last}"))
        .row()
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_writes_nothing_before_it_knows_what_the_leader_before_wrote() {
    let (role, followed) = watch::channel(Role::Standby);
    let lab = Lab::start_confirmed(vec![web("a"), web("b")], followed).await;
    settle().await;
    role.send_replace(FIRST);
    settle().await;
    // Another term than this one.
    lab.source
        .facts
        .send(Fact::Current { term: 0 })
        .await
        .unwrap();
    settle().await;
    assert_eq!((held(&lab), lab.writes()), (0, Vec::new()));
    assert!(!lab.handle.store.read(crate::store::Snapshot::serving));
    // The watch lagged: the leader before had given the first address away.
    lab.apply(claimed("b", 1)).await;
    lab.source
        .facts
        .send(Fact::Current { term: 1 })
        .await
        .unwrap();
    lab.until("both programmed", |rows| {
        programmed(rows, "a") && programmed(rows, "b")
    })
    .await;
    let published = |name| {
        lab.source.rows.lock().unwrap()[&key(name)]
            .status
            .ingress
            .clone()
    };
    assert_eq!((published("a"), published("b")), (ingress(2), ingress(1)));
    // Within a term no other replica has written.
    role.send_replace(Role::Carrying);
    settle().await;
    lab.apply(web("c")).await;
    role.send_replace(FIRST);
    lab.until("c programmed", |rows| programmed(rows, "c"))
        .await;
    role.send_replace(Role::Carrying);
    settle().await;
    role.send_replace(SECOND);
    lab.apply(web("d")).await;
    settle().await;
    assert!(!programmed(&lab.source.rows.lock().unwrap(), "d"));
    lab.source
        .facts
        .send(Fact::Current { term: 2 })
        .await
        .unwrap();
    lab.until("d programmed", |rows| programmed(rows, "d"))
        .await;
    lab.stop().await;
}
