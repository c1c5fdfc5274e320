//! Services of a class that was taken from the configuration.

use landfall_model::rows::NamespaceRow;
use landfall_model::status::Condition;
use landfall_testkit::build::ServiceBuilder;

use super::*;
use crate::select::DEFAULT_CLASS_ANNOTATION;

const OLD: &str = "landfall.dev/old";

/// A Service of the class that no instance serves any more. It holds 127.77.0.1.
fn old() -> ServiceRow {
    let row = svc("old").port(80).holding("127.77.0.1");
    let row = row.with(|row| row.class = Some(OLD.into()));
    Arc::unwrap_or_clone(row.row())
}

fn address(lab: &Lab, name: &str) -> String {
    let rows = lab.source.rows.lock().unwrap();
    let addresses: Vec<_> = rows[&key(name)].status.addresses().collect();
    assert_eq!(addresses.len(), 1, "{name}");
    addresses[0].to_string()
}

fn warnings(lab: &Lab) -> Vec<String> {
    lab.source.warnings.lock().unwrap().clone()
}

fn accepted(now: Timestamp) -> Condition {
    Condition::met(ConditionType::Accepted, Code::Accepted, "valid", now)
}

#[tokio::test(start_paused = true)]
async fn the_address_of_a_removed_class_is_assigned_to_no_other_service_while_its_own_exists() {
    let lab = Lab::start(9, vec![Arc::new(old()), web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    assert_eq!(address(&lab, "a"), "127.77.0.2");
    assert!(lab.writes().iter().all(|write| write.ends_with("/a")));

    lab.source.rows.lock().unwrap().remove(&key("old"));
    let gone = Fact::ServiceGone(key("old"));
    lab.source.facts.send(gone).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    lab.apply(web("b")).await;
    lab.until("b programmed", |rows| programmed(rows, "b"))
        .await;
    assert_eq!(address(&lab, "b"), "127.77.0.1");
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_waits_gets_the_address_of_an_unserved_one_once_that_is_gone() {
    let lab = Lab::start(1, vec![Arc::new(old()), web("a")]).await;
    lab.until("a says that nothing is left", |rows| {
        let status = &rows[&key("a")].status;
        let addressed = status.condition(ConditionType::Addressed);
        addressed.is_some_and(|condition| condition.reason == Code::PoolExhausted)
    })
    .await;
    let gone = Fact::ServiceGone(key("old"));
    lab.source.facts.send(gone).await.unwrap();
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.stop().await;
}

/// A Service that another controller serves, with what that one publishes.
fn theirs(name: &str, address: Option<&str>) -> Arc<ServiceRow> {
    let row = svc(name).port(80);
    let row = address.into_iter().fold(row, ServiceBuilder::holding);
    row.with(|row| row.class = Some("example.com/lb".into()))
        .row()
}

fn reserved(lab: &Lab) -> Vec<u8> {
    lab.shelf
        .reserved
        .lock()
        .unwrap()
        .values()
        .copied()
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_address_that_another_controller_publishes_is_given_out_only_once_it_does_no_more() {
    let rows = vec![theirs("old", Some("127.77.0.1")), web("a")];
    let lab = Lab::start(4, rows).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    assert_eq!(address(&lab, "a"), "127.77.0.2");
    // The next one comes at the same moment as a Service of ours.
    lab.apply(theirs("new", None)).await;
    lab.apply(theirs("new", Some("127.77.0.3"))).await;
    lab.apply(web("b")).await;
    lab.until("b programmed", |rows| programmed(rows, "b"))
        .await;
    assert_eq!(address(&lab, "b"), "127.77.0.4");
    assert_eq!(reserved(&lab), [3, 1]);

    lab.apply(web("waits")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(lab.says("waits", Code::PoolExhausted));
    lab.apply(theirs("new", None)).await;
    lab.until("the one that waited has it", |rows| {
        programmed(rows, "waits")
    })
    .await;
    assert_eq!(address(&lab, "waits"), "127.77.0.3");
    assert_eq!(reserved(&lab), [1]);
    let of_theirs = |write: &String| write.ends_with("/old") || write.ends_with("/new");
    assert!(!lab.writes().iter().any(of_theirs), "{:?}", lab.writes());
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_others_publish_is_believed_after_a_pause_and_by_the_next_leader() {
    let (role, leading) = watch::channel(Role::Leading { term: 1 });
    let lab = Lab::start_led(9, vec![theirs("old", Some("127.77.0.1"))], leading).await;
    lab.until_ready().await;
    assert_eq!(reserved(&lab), [1]);
    role.send_replace(Role::Carrying);
    tokio::time::sleep(Duration::from_secs(1)).await;
    lab.apply(theirs("old", Some("127.77.0.2"))).await;
    lab.apply(theirs("new", Some("127.77.0.3"))).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    role.send_replace(Role::Leading { term: 1 });
    lab.apply(web("a")).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    assert_eq!(address(&lab, "a"), "127.77.0.1");
    assert_eq!(reserved(&lab), [3, 2]);

    role.send_replace(Role::Standby);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(reserved(&lab), [] as [u8; 0]);
    role.send_replace(Role::Leading { term: 2 });
    lab.apply(web("b")).await;
    lab.until("b programmed", |rows| programmed(rows, "b"))
        .await;
    assert_eq!(address(&lab, "b"), "127.77.0.4");
    assert_eq!(reserved(&lab), [3, 2]);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_service_that_finds_its_way_back_keeps_its_address() {
    let mut row = old();
    row.class = None;
    let namespace = |class: &str| {
        let annotation = (DEFAULT_CLASS_ANNOTATION.to_owned(), class.to_owned());
        Fact::Namespace(Arc::new(NamespaceRow {
            name: "default".into(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::from([annotation]),
        }))
    };
    row.status.conditions = vec![accepted(Timestamp::UNIX_EPOCH)];
    let lab = Lab::start(9, Vec::new()).await;
    lab.source.facts.send(namespace("typo")).await.unwrap();
    lab.apply(Arc::new(row)).await;
    lab.apply(web("b")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        lab.shelf.held.lock().unwrap().is_empty(),
        "no Service is served"
    );
    let uid = Uid::new("uid-old");
    assert_eq!(lab.shelf.reserved.lock().unwrap().get(&uid), Some(&1));
    lab.source.facts.send(namespace("local")).await.unwrap();
    lab.until("both programmed", |rows| {
        programmed(rows, "old") && programmed(rows, "b")
    })
    .await;
    assert_eq!(address(&lab, "old"), "127.77.0.1");
    assert_eq!(address(&lab, "b"), "127.77.0.2");
    assert!(lab.shelf.reserved.lock().unwrap().is_empty());
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unserved_service_that_waits_to_be_deleted_says_why_and_again_later() {
    let mut row = old();
    (row.deleting, row.finalized) = (true, true);
    let lab = Lab::start(9, vec![Arc::new(row)]).await;
    // Another process may be clearing it away.
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(warnings(&lab), [] as [&str; 0]);
    let reasons = lab.handle.store.read(|pages| {
        let record = pages.records.get(&key("old"));
        record
            .map(|record| record.reasons.clone())
            .unwrap_or_default()
    });
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert!(reasons[0].message.starts_with("it can't be deleted"));
    assert_eq!(reasons[0].value.as_deref(), Some(OLD));

    tokio::time::sleep(Duration::from_secs(20)).await;
    let reported = warnings(&lab);
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].starts_with("default/old: SyncLoadBalancerFailed: "));
    for words in [
        OLD,
        "configure the instance of the class",
        "load-balancer-cleanup",
    ] {
        assert!(reported[0].contains(words), "{words}: {}", reported[0]);
    }
    tokio::time::sleep(Duration::from_secs(40 * 60)).await;
    assert_eq!(warnings(&lab).len(), 2);
    assert_eq!(lab.writes(), [] as [&str; 0], "it is not ours to write to");

    // Another client removed the finalizer.
    let gone = Fact::ServiceGone(key("old"));
    lab.source.facts.send(gone).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60 * 60)).await;
    assert_eq!(warnings(&lab).len(), 2);
    assert!(lab.handle.store.read(|pages| pages.records.is_empty()));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_another_process_clears_away_in_time_is_not_spoken_of() {
    let mut row = old();
    (row.deleting, row.finalized) = (true, true);
    let lab = Lab::start(9, vec![Arc::new(row)]).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let gone = Fact::ServiceGone(key("old"));
    lab.source.facts.send(gone).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60 * 60)).await;
    assert_eq!(warnings(&lab), [] as [&str; 0]);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_default_instance_only_services_with_our_conditions_are_spoken_of() {
    let waiting = |name: &str, ours: bool| {
        let row = svc(name).port(80).with(|row| {
            (row.deleting, row.finalized) = (true, true);
            if ours {
                row.status.conditions = vec![accepted(Timestamp::UNIX_EPOCH)];
            }
        });
        row.row()
    };
    let rows = vec![waiting("ours", true), waiting("theirs", false)];
    let classes = Classes::new(vec!["local".to_owned()], None);
    let leading = leads();
    let lab = Lab::start_with(classes, 9, rows, leading).await;
    tokio::time::sleep(Duration::from_secs(90)).await;
    let reported = warnings(&lab);
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].starts_with("default/ours: "), "{}", reported[0]);
    assert!(
        reported[0].contains("configure a default instance again"),
        "{}",
        reported[0]
    );
    assert_eq!(lab.writes(), [] as [&str; 0]);
    lab.stop().await;
}
