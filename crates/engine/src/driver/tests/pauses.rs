//! Pauses hold, whatever else happens; and Services that wait get what they wait for in order.

use landfall_testkit::node;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

async fn failing(retry: Retry) -> Lab {
    let shelf = Shelf::new(9);
    shelf.fail("a", retry);
    let leading = watch::Sender::new(Role::Leading { term: 0 }).subscribe();
    let rows = vec![web("a"), web("b")];
    let lab = Lab::start_over(shelf, Classes::only("local"), rows, leading).await;
    lab.until("b programmed", |rows| programmed(rows, "b"))
        .await;
    lab
}

/// All that may happen to others.
async fn stir(lab: &Lab, number: usize) {
    let name = format!("n{number}");
    let facts = &lab.source.facts;
    facts
        .send(Fact::Node(node(&name, "10.0.0.1").row()))
        .await
        .unwrap();
    let other = format!("other{number}");
    lab.apply(web(&other)).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    lab.delete(&key(&other)).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    facts.send(Fact::NodeGone(name.into())).await.unwrap();
}

fn edited(lab: &Lab, name: &str) -> Arc<ServiceRow> {
    let mut row = lab.source.rows.lock().unwrap()[&key(name)].clone();
    row.annotations
        .insert("landfall.dev/drain".to_owned(), "30s".to_owned());
    Arc::new(row)
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_provider_asks_for_holds_whatever_else_changes() {
    let lab = failing(Retry::After(MINUTE)).await;
    assert_eq!(lab.shelf.looks("a"), 1);
    for number in 0..10 {
        stir(&lab, number).await;
    }
    lab.apply(edited(&lab, "a")).await;
    lab.wakes.send(uid("a")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(lab.shelf.looks("a"), 1);
    assert_eq!(lab.handle.metrics.view().reconciles["paused"], 1);
    lab.shelf.fails.lock().unwrap().clear();
    tokio::time::sleep(MINUTE).await;
    assert!(programmed(&lab.source.rows.lock().unwrap(), "a"));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_others_give_back_does_not_end_the_pause_of_one_that_failed_of_something_else() {
    let lab = failing(Retry::Backoff).await;
    // 0.5 s, 1 s, ... : by now the next attempt is minutes away.
    tokio::time::sleep(MINUTE * 5).await;
    let looks = lab.shelf.looks("a");
    for number in 0..20 {
        let other = format!("other{number}");
        lab.apply(web(&other)).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        lab.delete(&key(&other)).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(lab.shelf.looks("a"), looks);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_come_and_go_do_not_try_a_failed_service_over_and_over() {
    let lab = failing(Retry::Backoff).await;
    tokio::time::sleep(MINUTE * 5).await;
    let looks = lab.shelf.looks("a");
    for number in 0..10 {
        stir(&lab, number).await;
    }
    let more = lab.shelf.looks("a") - looks;
    assert!((1..=2).contains(&more), "{more} more looks in 4 seconds");
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_is_followed_at_once_although_the_service_failed_before() {
    let lab = failing(Retry::Backoff).await;
    tokio::time::sleep(MINUTE * 5).await;
    lab.shelf.fails.lock().unwrap().clear();
    let looks = lab.shelf.looks("a");
    lab.apply(edited(&lab, "a")).await;
    tokio::time::sleep(DEBOUNCE * 2).await;
    assert!(lab.shelf.looks("a") > looks);
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_service_that_waits_longest_for_an_address_gets_the_next_one() {
    let lab = Lab::start(1, vec![web("first")]).await;
    lab.until("first programmed", |rows| programmed(rows, "first"))
        .await;
    let names: Vec<String> = (0..8).map(|it| format!("{}", (it * 5) % 8)).collect();
    for name in &names {
        lab.apply(web(name)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let mut holder = "first".to_owned();
    for name in &names {
        // One that comes at the same moment does not overtake.
        lab.delete(&key(&holder)).await;
        lab.until("its turn", |rows| programmed(rows, name)).await;
        holder.clone_from(name);
    }
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_while_a_service_is_being_refused_reaches_it() {
    let lab = Lab::start(1, vec![web("holder")]).await;
    lab.until("the holder is programmed", |rows| {
        programmed(rows, "holder")
    })
    .await;
    *lab.source.slow.lock().unwrap() = Some((key("late"), Duration::from_secs(1)));
    lab.apply(web("late")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    lab.delete(&key("holder")).await;
    lab.until("the holder is gone", |rows| {
        !rows.contains_key(&key("holder"))
    })
    .await;
    let refused = lab.source.rows.lock().unwrap()[&key("late")].clone();
    assert!(!refused.finalized, "its refusal is still being written");
    lab.until("it is programmed", |rows| programmed(rows, "late"))
        .await;
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_waits_is_tried_when_something_is_given_back_and_not_when_something_is_made()
{
    let lab = Lab::start(3, vec![web("x"), web("y")]).await;
    lab.until("both programmed", |rows| {
        programmed(rows, "x") && programmed(rows, "y")
    })
    .await;
    lab.apply(web("z")).await;
    lab.until("z programmed", |rows| programmed(rows, "z"))
        .await;
    lab.apply(web("w")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let looks = lab.shelf.looks("w");
    for name in ["x", "y", "z"] {
        lab.apply(edited(&lab, name)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(lab.shelf.looks("w"), looks);
    let fewer = |ports: &[u16]| {
        let mut row = lab.source.rows.lock().unwrap()[&key("x")].clone();
        row.ports = ports
            .iter()
            .fold(svc("x"), |it, port| it.port(*port))
            .row()
            .ports
            .clone();
        Arc::new(row)
    };
    lab.apply(fewer(&[80, 81])).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(lab.shelf.looks("w"), looks);
    lab.apply(fewer(&[81])).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(lab.shelf.looks("w"), looks + 1);
    lab.stop().await;
}
