//! What a process that starts assumes of the Services that it finds, and what it leaves on them
//! for the next one.

use landfall_model::reach::MemberRules;
use landfall_model::recorded::recorded_instance;
use landfall_model::rows::{NamespaceRow, PoolOrigin, ResourceKind};
use landfall_model::status::{ACCEPTED_VERSION, HELD_ADDRESSES, INSTANCE};

use super::*;
use crate::select::DEFAULT_CLASS_ANNOTATION;

const MODE: &str = "landfall.dev/mode";

/// The next process over the same Services.
async fn restart(lab: Lab) -> Lab {
    let rows = lab.source.rows.lock().unwrap().clone();
    lab.stop().await;
    let lab = Lab::start(9, rows.into_values().map(Arc::new).collect()).await;
    lab.until_ready().await;
    lab
}

fn row(lab: &Lab, name: &str) -> ServiceRow {
    lab.source.rows.lock().unwrap()[&key(name)].clone()
}

fn mark(lab: &Lab, name: &str, mark: &str) -> Option<String> {
    row(lab, name).status.marks.get(mark).cloned()
}

fn reason(row: &ServiceRow, kind: ConditionType) -> (bool, Code) {
    let condition = row.status.condition(kind).unwrap();
    (condition.status, condition.reason)
}

fn edited(lab: &Lab, name: &str, edit: impl FnOnce(&mut ServiceRow)) -> Arc<ServiceRow> {
    let mut row = row(lab, name);
    edit(&mut row);
    Arc::new(row)
}

async fn refused(lab: &Lab, name: &str) {
    lab.until("the newest version is refused", |rows| {
        let accepted = rows[&key(name)].status.condition(ConditionType::Accepted);
        accepted.is_some_and(|condition| !condition.status)
    })
    .await;
}

async fn programmed_with(rows: Vec<Arc<ServiceRow>>) -> Lab {
    let names: Vec<String> = rows.iter().map(|row| row.key.name().to_owned()).collect();
    let lab = Lab::start(9, rows).await;
    lab.until("programmed", |rows| {
        names.iter().all(|name| programmed(rows, name))
    })
    .await;
    lab.until_ready().await;
    lab
}

/// Wants what it wanted, and something that is not possible.
async fn broken(lab: &Lab) {
    let broken = edited(lab, "a", |row| {
        row.annotations
            .insert(MODE.to_owned(), "sideways".to_owned());
    });
    lab.apply(broken).await;
    refused(lab, "a").await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_was_accepted_is_served_by_the_next_process_without_a_write() {
    let lab = programmed_with(vec![web("a")]).await;
    let accepted = mark(&lab, "a", ACCEPTED_VERSION);
    assert!(accepted.is_some());
    broken(&lab).await;
    assert_eq!(mark(&lab, "a", ACCEPTED_VERSION), accepted);
    let before = row(&lab, "a");
    let lab = restart(lab).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(row(&lab, "a"), before);
    assert_eq!(lab.writes(), [] as [&str; 0]);
    let spec = lab
        .handle
        .store
        .read(|pages| pages.records[&key("a")].address());
    assert!(spec.is_some(), "the last valid version is what is wanted");
    let truth = reason(&before, ConditionType::Programmed);
    assert_eq!(truth, (true, Code::Ready));

    // And by the one after that, until a version is accepted again.
    let lab = restart(lab).await;
    let repaired = edited(&lab, "a", |row| drop(row.annotations.remove(MODE)));
    lab.apply(repaired).await;
    lab.until("it is accepted", |rows| {
        let accepted = rows[&key("a")].status.condition(ConditionType::Accepted);
        accepted.is_some_and(|condition| condition.status)
    })
    .await;
    assert_eq!(mark(&lab, "a", ACCEPTED_VERSION), accepted);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_works_with_the_rows_of_the_source_as_they_are_by_then() {
    let lab = programmed_with(vec![web("a"), web("b")]).await;
    let rows = lab.source.rows.lock().unwrap().clone();
    lab.stop().await;
    let rows: Vec<Arc<ServiceRow>> = rows.into_values().map(Arc::new).collect();
    let mut newer = ServiceRow::clone(&rows[0]);
    newer.labels.insert("tier".to_owned(), "front".to_owned());
    let newer = Arc::new(newer);
    let all = [rows[0].clone(), newer.clone(), rows[1].clone()];
    let lab = Lab::start(9, all.to_vec()).await;
    lab.until_ready().await;
    lab.handle.store.read(|pages| {
        let same =
            |name: &str, row: &ServiceRow| pages.records[&key(name)].row().as_ref() == Some(row);
        assert!(same("a", &newer), "it came later");
        assert!(same("b", &rows[1]));
    });
    lab.stop().await;
}

/// The next process over the same Services, which lets them have so many ports, and annotations
/// name these members.
async fn restart_under(lab: Lab, ports: usize, named: &[&str]) -> Lab {
    let rows = lab.source.rows.lock().unwrap().clone();
    lab.stop().await;
    let mut shelf = Shelf::new(9);
    shelf.profile.limits.ports_per_service = ports;
    shelf.profile.members = MemberRules {
        annotations: Some(named.iter().map(|it| it.parse().unwrap()).collect()),
        ..MemberRules::default()
    };
    let rows = rows.into_values().map(Arc::new).collect();
    let lab = Lab::start_over(shelf, Classes::only("local"), rows, leads()).await;
    lab.until_ready().await;
    lab
}

/// Two ports to a named member.
fn named_members() -> Arc<ServiceRow> {
    let row = svc("a").named_port("one", 80).named_port("two", 81);
    row.annotated("landfall.dev/endpoints", "10.0.0.5:8080")
        .row()
}

#[tokio::test(start_paused = true)]
async fn an_accepted_service_is_served_on_by_a_process_with_stricter_rules() {
    for (ports, named, code) in [
        (1, "10.0.0.0/24", Code::LimitReached),
        (9, "10.9.0.0/24", Code::MemberNotAllowed),
    ] {
        let lab = programmed_with(vec![named_members()]).await;
        // As an earlier release left it.
        {
            let mut rows = lab.source.rows.lock().unwrap();
            let marks = &mut rows.get_mut(&key("a")).unwrap().status.marks;
            assert!(marks.remove(ACCEPTED_VERSION).is_some());
        }
        let mut lab = restart_under(lab, ports, &[named]).await;
        // The second process finds it recorded by the first.
        for _ in 0..2 {
            let row = row(&lab, "a");
            assert_eq!(reason(&row, ConditionType::Accepted), (false, code));
            assert!(reason(&row, ConditionType::Programmed).0);
            assert!(holds(&lab.shelf, "a"));
            assert!(lab.says("a", Code::ServingPreviousVersion));
            let spec = |pages: &crate::store::Snapshot| pages.records[&key("a")].address();
            assert!(lab.handle.store.read(spec).is_some());
            assert!(mark(&lab, "a", ACCEPTED_VERSION).is_some());
            lab = restart_under(lab, ports, &[named]).await;
        }
        lab.stop().await;
    }
}

fn accepted(observed: Option<i64>, status: bool) -> Condition {
    Condition {
        observed_generation: observed,
        ..said(ConditionType::Accepted, status)
    }
}

fn said(kind: ConditionType, status: bool) -> Condition {
    Condition {
        status,
        ..Condition::met(kind, Code::Accepted, "all of it", Timestamp::UNIX_EPOCH)
    }
}

#[tokio::test(start_paused = true)]
async fn places_are_kept_for_those_that_served_and_for_no_others() {
    let row = |name: &str, address: &str, programmed: bool| {
        let row = svc(name).port(80).holding(address);
        let condition = said(ConditionType::Programmed, programmed);
        row.with(|row| row.status.conditions.push(condition)).row()
    };
    let rows = vec![row("a", "127.77.0.1", false), row("b", "127.77.0.2", true)];
    let lab = Lab::start(9, rows).await;
    lab.until_ready().await;
    assert_eq!(*lab.shelf.kept.lock().unwrap(), [uid("b")]);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_accepted_service_that_no_rule_makes_valid_is_not_recorded() {
    let row = svc("a").port(80).annotated(MODE, "sideways");
    let row = row.with(|row| row.status.conditions.push(accepted(None, true)));
    let lab = Lab::start(9, vec![row.row()]).await;
    refused(&lab, "a").await;
    lab.until_ready().await;
    assert_eq!(mark(&lab, "a", ACCEPTED_VERSION), None);
    assert!(!lab.says("a", Code::ServingPreviousVersion));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stricter_rules_forgive_nothing_that_was_never_accepted() {
    let never = [
        None,
        Some(accepted(Some(1), true)),
        Some(accepted(Some(2), false)),
    ];
    for condition in never {
        let mut row = ServiceRow::clone(&named_members());
        row.generation = Some(2);
        row.status.conditions.extend(condition);
        let mut shelf = Shelf::new(9);
        shelf.profile.limits.ports_per_service = 1;
        let rows = vec![Arc::new(row)];
        let lab = Lab::start_over(shelf, Classes::only("local"), rows, leads()).await;
        lab.until_ready().await;
        assert!(lab.says("a", Code::LimitReached));
        assert!(!lab.says("a", Code::ServingPreviousVersion));
        assert!(!holds(&lab.shelf, "a"));
        assert_eq!(mark(&lab, "a", ACCEPTED_VERSION), None);
        lab.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_gave_up_its_load_balancer_does_not_come_back_with_the_version_before() {
    let lab = programmed_with(vec![web("a")]).await;
    let given_up = edited(&lab, "a", |row| row.wants_load_balancer = false);
    lab.apply(given_up).await;
    lab.until("nothing is left of it", |rows| {
        rows[&key("a")].status == ServiceStatus::default()
    })
    .await;
    let back = edited(&lab, "a", |row| {
        row.wants_load_balancer = true;
        row.annotations
            .insert(MODE.to_owned(), "sideways".to_owned());
    });
    lab.apply(back).await;
    refused(&lab, "a").await;
    let row = row(&lab, "a");
    assert_eq!(row.status.ingress, []);
    assert_eq!(mark(&lab, "a", ACCEPTED_VERSION), None);
    assert!(!reason(&row, ConditionType::Programmed).0);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_late_word_of_a_service_that_gave_up_its_load_balancer_brings_no_version_back() {
    let lab = programmed_with(vec![web("a")]).await;
    let mut late = row(&lab, "a");
    let given_up = edited(&lab, "a", |row| row.wants_load_balancer = false);
    lab.apply(given_up).await;
    lab.until("nothing is left of it", |rows| {
        rows[&key("a")].status == ServiceStatus::default()
    })
    .await;
    // It came back before the removal was written, with the status of then.
    late.annotations
        .insert(MODE.to_owned(), "sideways".to_owned());
    let late = Fact::Service(Arc::new(late));
    lab.source.facts.send(late).await.unwrap();
    refused(&lab, "a").await;
    assert_eq!(mark(&lab, "a", ACCEPTED_VERSION), None);
    assert!(!lab.says("a", Code::ServingPreviousVersion) && !holds(&lab.shelf, "a"));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn where_no_accepted_version_is_known_the_address_stays_and_no_traffic_is_promised() {
    for record in [None, Some("{")] {
        let row = svc("a")
            .port(80)
            .holding("127.77.0.1")
            .annotated(MODE, "sideways");
        let row = row.with(|row| {
            let record = record.map(|text| (ACCEPTED_VERSION.to_owned(), text.to_owned()));
            row.status.marks.extend(record);
        });
        let lab = Lab::start(9, vec![row.row()]).await;
        refused(&lab, "a").await;
        lab.until_ready().await;
        let row = super::restart::row(&lab, "a");
        assert_eq!(
            reason(&row, ConditionType::Programmed),
            (false, Code::InvalidAnnotation)
        );
        assert_eq!(row.status.ingress, ingress(1));
        let reasons = lab
            .handle
            .store
            .read(|pages| pages.records[&key("a")].reasons.clone());
        let damaged = reasons
            .iter()
            .any(|it| it.message.contains("the last valid version is unknown"));
        assert_eq!(damaged, record.is_some(), "{reasons:?}");
        lab.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_services_with_one_address_the_one_that_loses_it_is_notified_and_gets_another() {
    let mut shelf = Shelf::new(9);
    shelf.profile.takes_pools = true;
    let holding = |name: &str| svc(name).port(80).holding("127.77.0.1");
    let broken = holding("c").annotated(MODE, "sideways");
    let rows = vec![holding("a").row(), holding("b").row(), broken.row()];
    let leading = watch::Sender::new(Role::Leading { term: 0 }).subscribe();
    let lab = Lab::start_over(shelf, Classes::only("local"), rows, leading).await;
    lab.until("both programmed", |rows| {
        programmed(rows, "a") && programmed(rows, "b")
    })
    .await;
    refused(&lab, "c").await;
    assert_eq!(row(&lab, "a").status.ingress, ingress(1));
    assert_eq!(row(&lab, "b").status.ingress, ingress(2));
    assert_eq!(
        row(&lab, "c").status.ingress,
        [],
        "two would publish one address"
    );
    let warnings = lab.source.warnings.lock().unwrap().clone();
    let reported = |name: &str| {
        let about = format!("default/{name}: AddressInUse: 127.77.0.1 was in the status");
        warnings.iter().any(|warning| warning.starts_with(&about))
    };
    assert!(reported("b") && !reported("a"), "{warnings:?}");
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_instance_is_recorded_with_the_first_status_and_never_by_a_write_of_its_own() {
    let classed = svc("b")
        .port(80)
        .with(|row| row.class = Some("landfall.dev/local".into()));
    let lab = programmed_with(vec![web("a"), classed.row()]).await;
    assert_eq!(mark(&lab, "a", INSTANCE).as_deref(), Some("local"));
    assert_eq!(
        mark(&lab, "b", INSTANCE),
        None,
        "its class names the instance"
    );
    // One from before there was a record.
    let strip = |row: &mut ServiceRow| {
        row.status.marks.remove(INSTANCE);
        row.recorded = None;
    };
    lab.source
        .rows
        .lock()
        .unwrap()
        .entry(key("a"))
        .and_modify(strip);
    let lab = restart(lab).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(lab.writes(), [] as [&str; 0]);
    broken(&lab).await;
    assert_eq!(mark(&lab, "a", INSTANCE).as_deref(), Some("local"));
    lab.stop().await;
}

/// Two instances, the second of which is the default, and a Service that the first one serves.
async fn of_the_first(asked: Option<&str>) -> (Lab, Arc<Shelf>) {
    let row = svc("a").port(80).holding("127.77.0.1").with(|row| {
        row.finalized = true;
        let instance = asked.map(|name| (INSTANCE.to_owned(), name.to_owned()));
        row.status.marks.extend(instance);
    });
    let classes = Classes::new(vec!["edge".to_owned(), "inner".to_owned()], Some("inner"));
    let inner = Arc::new(Shelf::new(9));
    let leading = watch::Sender::new(Role::Leading { term: 0 }).subscribe();
    let rows = vec![row.row(), web("b")];
    let shelf = Shelf::new(9);
    let lab = Lab::start_on(shelf, vec![inner.clone()], classes, rows, leading).await;
    lab.until("b programmed", |rows| programmed(rows, "b"))
        .await;
    lab.until_ready().await;
    (lab, inner)
}

fn holds(shelf: &Shelf, name: &str) -> bool {
    let uid = Uid::new(&format!("uid-{name}"));
    shelf.held.lock().unwrap().contains_key(&uid)
}

#[tokio::test(start_paused = true)]
async fn a_service_stays_with_its_instance_when_another_becomes_the_default() {
    let (lab, inner) = of_the_first(Some("edge")).await;
    assert!(holds(&lab.shelf, "a") && !holds(&inner, "a"));
    assert!(holds(&inner, "b"), "a new one goes to the default");
    let annotation = (DEFAULT_CLASS_ANNOTATION.to_owned(), "inner".to_owned());
    let namespace = NamespaceRow {
        name: "default".into(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::from([annotation]),
    };
    let fact = Fact::Namespace(Arc::new(namespace));
    lab.source.facts.send(fact).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(holds(&lab.shelf, "a") && !holds(&inner, "a"));
    assert_eq!(row(&lab, "a").status.ingress, ingress(1));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_moves_when_another_instance_is_written_on_it() {
    let (lab, inner) = of_the_first(Some("edge")).await;
    let edit = edited(&lab, "a", |row| {
        let asked = (INSTANCE.to_owned(), "inner".to_owned());
        row.status.marks.extend([asked]);
    });
    lab.apply(edit).await;
    lab.until("the record says so", |rows| {
        let row = &rows[&key("a")];
        let record = row.status.marks.get(RECORD);
        row.instance() == Some("inner") && record.is_some_and(|record| record == "shelf 2")
    })
    .await;
    assert!(!holds(&lab.shelf, "a") && holds(&inner, "a"));
    let recorded = row(&lab, "a").recorded.clone().unwrap();
    assert_eq!(recorded_instance(&recorded), Some("inner"));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_whose_annotation_names_an_unknown_instance_shows_the_one_that_serves_it() {
    let (lab, _inner) = of_the_first(Some("edge")).await;
    let shown = || {
        lab.handle.store.read(|pages| {
            let record = pages.records.get(&key("a")).unwrap();
            let codes: Vec<Code> = record.reasons.iter().map(|it| it.code).collect();
            (record.instance, codes)
        })
    };
    let (serving, _) = shown();
    assert!(serving.is_some());
    // A second edit finds nothing tracked of it any more.
    for asked in ["edgy", "edgier"] {
        let edit = edited(&lab, "a", |row| {
            let asked = (INSTANCE.to_owned(), asked.to_owned());
            row.status.marks.extend([asked]);
        });
        lab.apply(edit).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(shown(), (serving, vec![Code::UnknownClass]), "{asked}");
        assert!(holds(&lab.shelf, "a"));
    }
    lab.stop().await;
}

/// What is left of a Service when a manifest replaces it that knows nothing of what was written on
/// it: the status alone.
fn replace(row: &mut ServiceRow) {
    row.annotations.clear();
    row.status.marks.clear();
    row.finalized = false;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_replaced_without_its_annotations_stays_and_has_them_again() {
    for replaced in [replace, |row: &mut ServiceRow| {
        row.status.marks.remove(INSTANCE);
    }] {
        // Also where the status does not name the instance: an earlier release wrote it.
        for recorded in [true, false] {
            let (lab, inner) = of_the_first(Some("edge")).await;
            let edit = edited(&lab, "a", |row| {
                replaced(row);
                row.recorded = row.recorded.take().filter(|_| recorded);
            });
            lab.apply(edit).await;
            lab.until("the annotation is back", |rows| {
                let row = &rows[&key("a")];
                row.finalized
                    && row
                        .status
                        .marks
                        .get(INSTANCE)
                        .is_some_and(|it| it == "edge")
            })
            .await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(holds(&lab.shelf, "a") && !holds(&inner, "a"));
            assert_eq!(row(&lab, "a").status.ingress, ingress(1));
            lab.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_was_replaced_while_no_process_ran_stays_where_it_was() {
    let recorded = format!("instance=edge, accepted=sha256:{}", "0".repeat(64));
    let row = svc("a").port(80).holding("127.77.0.3").with(move |row| {
        replace(row);
        row.recorded = Some(recorded.into());
    });
    let classes = Classes::new(vec!["edge".to_owned(), "inner".to_owned()], Some("inner"));
    let inner = Arc::new(Shelf::new(9));
    let leading = watch::Sender::new(Role::Leading { term: 0 }).subscribe();
    let shelf = Shelf::new(9);
    let lab = Lab::start_on(
        shelf,
        vec![inner.clone()],
        classes,
        vec![row.row()],
        leading,
    )
    .await;
    lab.until("the annotation is back", |rows| {
        let marks = &rows[&key("a")].status.marks;
        marks.get(INSTANCE).is_some_and(|name| name == "edge")
    })
    .await;
    assert!(holds(&lab.shelf, "a") && !holds(&inner, "a"));
    assert_eq!(self::row(&lab, "a").status.ingress, ingress(3));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_of_an_instance_that_is_gone_is_served_by_no_other_and_keeps_what_it_has() {
    let (lab, inner) = of_the_first(Some("gone")).await;
    assert!(!holds(&lab.shelf, "a") && !holds(&inner, "a"));
    let uid = Uid::new("uid-a");
    assert_eq!(inner.reserved.lock().unwrap().get(&uid), Some(&1));
    assert!(lab.writes().iter().all(|write| write.ends_with("/b")));
    let reasons = lab
        .handle
        .store
        .read(|pages| pages.records[&key("a")].reasons.clone());
    assert_eq!(reasons.len(), 1);
    assert_eq!(reasons[0].value.as_deref(), Some("gone"));
    assert!(
        reasons[0].remedy.contains("edge, inner"),
        "{}",
        reasons[0].remedy
    );
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn annotations_of_another_instance_stay_whichever_instance_serves_the_service() {
    let mut shelf = Shelf::new(9);
    shelf.profile.marks = &[RECORD];
    let marks = [(HELD_ADDRESSES, "192.0.2.1"), (RECORD, "shelf 9")];
    let marks = marks.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let row = svc("a").port(80).with(|row| row.status.marks.extend(marks));
    let leading = watch::Sender::new(Role::Leading { term: 0 }).subscribe();
    let lab = Lab::start_over(shelf, Classes::only("local"), vec![row.row()], leading).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    assert_eq!(
        mark(&lab, "a", HELD_ADDRESSES).as_deref(),
        Some("192.0.2.1")
    );
    assert_eq!(mark(&lab, "a", RECORD).as_deref(), Some("shelf 1"));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_is_taken_off_by_hand_lets_go_of_what_is_held_and_published() {
    let lab = programmed_with(vec![web("a")]).await;
    // Another finalizer keeps it there.
    let row = edited(&lab, "a", |row| {
        (row.deleting, row.finalized) = (true, false);
    });
    lab.apply(row).await;
    let empty = async {
        while holds(&lab.shelf, "a") || !lab.writes().last().unwrap().starts_with("unfinalize") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let empty = tokio::time::timeout(Duration::from_secs(20), empty);
    empty.await.expect("it is given back in 20 s");
    assert_eq!(lab.writes().last().unwrap(), "unfinalize default/a");
    lab.stop().await;
}

/// A Service whose newest version was refused, and of which no version before that is known.
fn unserved(name: &str, address: &str) -> Arc<ServiceRow> {
    let row = svc(name).port(80).holding(address).with(|row| {
        row.finalized = true;
        row.status.conditions = vec![begun()];
    });
    row.annotated(MODE, "sideways").row()
}

#[tokio::test(start_paused = true)]
async fn what_another_program_takes_out_of_an_unserved_service_is_published_again() {
    let lab = Lab::start(9, vec![unserved("a", "127.77.0.1")]).await;
    refused(&lab, "a").await;
    lab.until_ready().await;
    let published = row(&lab, "a").status.ingress;
    for conflicts in [0, 1] {
        *lab.source.conflicts.lock().unwrap() = conflicts;
        lab.apply(edited(&lab, "a", |row| row.status.ingress.clear()))
            .await;
        lab.until("it is there again", |rows| {
            rows[&key("a")].status.ingress == published
        })
        .await;
    }
    let truth = reason(&row(&lab, "a"), ConditionType::Addressed);
    assert_eq!(truth, (true, Code::Assigned));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unserved_service_that_holds_an_address_gets_its_finalizer_back() {
    let lab = Lab::start(9, vec![unserved("a", "127.77.0.1")]).await;
    refused(&lab, "a").await;
    lab.until_ready().await;
    lab.apply(edited(&lab, "a", |row| row.finalized = false))
        .await;
    lab.until("the finalizer is back", |rows| rows[&key("a")].finalized)
        .await;
    assert_eq!(row(&lab, "a").status.ingress, ingress(1));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_unserved_service_held_is_given_back_when_it_is_gone() {
    let mut shelf = Shelf::new(9);
    shelf.profile.takes_pools = true;
    let classes = Classes::only("local");
    let (_lead, leading) = watch::channel(Role::Leading { term: 1 });
    let rows = vec![unserved("a", "127.77.0.1")];
    let lab = Lab::start_on(shelf, Vec::new(), classes, rows, leading).await;
    refused(&lab, "a").await;
    assert!(holds(&lab.shelf, "a"), "it was recalled");
    // Its finalizer was taken off by force.
    lab.source.rows.lock().unwrap().remove(&key("a"));
    lab.source
        .facts
        .send(Fact::ServiceGone(key("a")))
        .await
        .unwrap();
    let given_back = async {
        while holds(&lab.shelf, "a") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let given_back = tokio::time::timeout(Duration::from_secs(20), given_back);
    given_back.await.expect("it is given back in 20 s");
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unserved_service_publishes_no_name_for_an_address_that_another_one_holds() {
    let mut shelf = Shelf::new(9);
    shelf.profile.takes_pools = true;
    shelf.profile.marks = &[HELD_ADDRESSES];
    let mut named = ServiceRow::clone(&unserved("b", "127.77.0.1"));
    named.status.ingress = vec![IngressAddress {
        hostname: Some("web.example.com".to_owned()),
        ..IngressAddress::default()
    }];
    let noted = (HELD_ADDRESSES.to_owned(), "127.77.0.1".to_owned());
    named.status.marks.extend([noted]);
    let rows = vec![unserved("a", "127.77.0.1"), Arc::new(named)];
    let (_lead, leading) = watch::channel(Role::Leading { term: 1 });
    let lab = Lab::start_on(shelf, Vec::new(), Classes::only("local"), rows, leading).await;
    lab.until_ready().await;
    for edited_later in [false, true] {
        if edited_later {
            let noted = edited(&lab, "b", |row| {
                row.annotations
                    .insert("example.com/note".to_owned(), "1".to_owned());
                row.generation = Some(2);
            });
            lab.apply(noted).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(row(&lab, "a").status.ingress, ingress(1));
        assert_eq!(row(&lab, "b").status.ingress, []);
        assert_eq!(mark(&lab, "b", HELD_ADDRESSES), None);
    }
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_waits_for_another_finalizer_takes_no_address_from_its_successor() {
    let going = svc("a").port(80).holding("127.77.0.1").with(|row| {
        row.deleting = true;
        row.status.conditions = vec![begun()];
    });
    let rows = vec![going.row(), svc("b").port(80).holding("127.77.0.1").row()];
    let lab = Lab::start(9, rows).await;
    lab.until("b programmed", |rows| programmed(rows, "b"))
        .await;
    lab.until_ready().await;
    assert_eq!(row(&lab, "b").status.ingress, ingress(1));
    assert!(!holds(&lab.shelf, "a"));
    assert!(
        lab.writes().contains(&"unfinalize default/a".to_owned()),
        "it is not published any more"
    );
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn services_of_an_instance_that_is_off_are_not_touched_whichever_fact_comes_first() {
    let classes = Classes::new(vec!["here".to_owned(), "cloud".to_owned()], Some("here"));
    let classes = classes.switched_off(&[false, true]);
    let annotation = (DEFAULT_CLASS_ANNOTATION.to_owned(), "cloud".to_owned());
    let namespace = Arc::new(NamespaceRow {
        name: "shop".into(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::from([annotation]),
    });
    let served = || svc("b").in_namespace("shop").port(80);
    let service = |name: &str| {
        let row = svc(name)
            .in_namespace("shop")
            .port(80)
            .holding("127.77.0.9");
        row.with(|row| {
            row.finalized = true;
            row.status.conditions = vec![begun()];
        })
        .row()
    };
    let cloud = Arc::new(Shelf::new(9));
    let (lead, leading) = watch::channel(Role::Standby);
    let rows = vec![service("early")];
    let shelf = Shelf::new(9);
    let lab = Lab::start_on(shelf, vec![cloud.clone()], classes, rows, leading).await;
    let fact = Fact::Namespace(namespace);
    lab.source.facts.send(fact).await.unwrap();
    lab.apply(service("late")).await;
    let here = served().with(|row| row.class = Some("landfall.dev/here".into()));
    lab.apply(here.row()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    lead.send_replace(Role::Leading { term: 1 });
    let b = ServiceKey::new("shop", "b");
    lab.until("b programmed", |rows| {
        rows.get(&b).is_some_and(|row| row.finalized)
    })
    .await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let writes = lab.writes();
    assert!(
        writes.iter().all(|write| write.ends_with("/b")),
        "{writes:?}"
    );
    assert!(cloud.held.lock().unwrap().is_empty());
    let warnings = lab.source.warnings.lock().unwrap().clone();
    let of_b = |warning: &String| warning.starts_with("shop/b: ");
    assert!(warnings.iter().all(of_b), "{warnings:?}");
    lab.stop().await;
}

fn pool(name: &str, origin: PoolOrigin) -> Fact {
    Fact::Pool(Arc::new(PoolRow {
        name: name.to_owned(),
        auto_assign: true,
        origin,
        ..PoolRow::default()
    }))
}

#[tokio::test(start_paused = true)]
async fn pools_that_change_together_come_into_force_together() {
    let mut shelf = Shelf::new(9);
    shelf.profile.takes_pools = true;
    let leading = watch::Sender::new(Role::Leading { term: 0 }).subscribe();
    let lab = Lab::start_over(shelf, Classes::only("local"), Vec::new(), leading).await;
    lab.until_ready().await;
    let reported = |lab: &Lab| std::mem::take(&mut *lab.shelf.pools.lock().unwrap());
    assert_eq!(reported(&lab), [(Vec::new(), false)]);
    for fact in [
        pool("one", PoolOrigin::Source),
        Fact::PoolGone("one".to_owned()),
        pool("two", PoolOrigin::Source),
    ] {
        lab.source.facts.send(fact).await.unwrap();
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    assert_eq!(reported(&lab), [] as [(Vec<String>, bool); 0]);
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(reported(&lab), [(vec!["two".to_owned()], false)]);
    let incomplete = |incomplete| Fact::PoolsIncomplete {
        part: "pools.yaml".into(),
        incomplete,
    };
    lab.source.facts.send(incomplete(true)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(reported(&lab), [(vec!["two".to_owned()], true)]);
    lab.stop().await;
}

fn resource(name: &str, interface: &str) -> Fact {
    let shape: landfall_model::wire::Resource = serde_json::from_value(serde_json::json!({
        "metadata": {"name": name, "namespace": "system"}, "spec": {"interfaces": [interface]},
    }))
    .unwrap();
    Fact::Resource(Arc::new(
        shape.into_row(ResourceKind::L2Advertisement).unwrap(),
    ))
}

#[tokio::test(start_paused = true)]
async fn resources_that_change_together_come_into_force_together_where_they_are_read() {
    for reads in [true, false] {
        let mut shelf = Shelf::new(9);
        if reads {
            shelf.profile.resources = &[ResourceKind::L2Advertisement];
        }
        let leading = watch::Sender::new(Role::Leading { term: 0 }).subscribe();
        let services = vec![svc("web").port(80).row()];
        let lab = Lab::start_over(shelf, Classes::only("local"), services, leading).await;
        lab.until_ready().await;
        let reported = |lab: &Lab| std::mem::take(&mut *lab.shelf.resources.lock().unwrap());
        let looks = |lab: &Lab| std::mem::take(&mut *lab.shelf.looks.lock().unwrap()).len();
        let expected = if reads { vec![Vec::new()] } else { Vec::new() };
        assert_eq!(reported(&lab), expected as Vec<Vec<String>>);
        tokio::time::sleep(Duration::from_secs(1)).await;
        looks(&lab);
        for fact in [
            resource("b", "eth0"),
            resource("a", "eth0"),
            resource("b", "eth1"),
        ] {
            lab.source.facts.send(fact).await.unwrap();
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        assert_eq!((reported(&lab), looks(&lab)), (Vec::new(), 0));
        tokio::time::sleep(Duration::from_secs(1)).await;
        if reads {
            let both = ["L2Advertisement system/a", "L2Advertisement system/b"];
            assert_eq!(reported(&lab), [both.map(str::to_owned)]);
            assert!(looks(&lab) > 0);
        } else {
            // It costs nothing where nothing reads it.
            assert_eq!((reported(&lab), looks(&lab)), (Vec::new(), 0));
        }
        lab.stop().await;
    }
}

/// What is said of a Service before anything is made for it.
fn begun() -> Condition {
    let reason = Reason::info(Code::Progressing, "the load balancer is being created");
    Condition::unmet(ConditionType::Programmed, &reason, Timestamp::UNIX_EPOCH)
}
