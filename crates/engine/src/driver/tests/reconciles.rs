//! From facts to reconciles: what a Service becomes, and what of it stays.

use std::net::IpAddr;

use landfall_testkit::build::bad_secret;
use landfall_testkit::{secret, slice};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_service_goes_from_fact_to_programmed_and_then_costs_nothing() {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.until_ready().await;
    let writes = lab.writes();
    let uid = lab.source.rows.lock().unwrap()[&key("a")].uid.clone();
    lab.wakes.send(uid).await.unwrap();
    lab.apply(web("b")).await;
    lab.until("b programmed", |rows| programmed(rows, "b"))
        .await;
    let about_a = |writes: &[String]| writes.iter().filter(|write| write.ends_with("/a")).count();
    assert_eq!(
        about_a(&lab.writes()),
        about_a(&writes),
        "a woken settled Service writes nothing"
    );
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn claims_on_record_are_known_before_the_first_address_is_given_out() {
    let holder = svc("z-holder").port(80).holding("127.77.0.1").row();
    let lab = Lab::start(9, vec![web("a"), holder]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    assert_eq!(
        *lab.shelf.recalled.lock().unwrap(),
        [("restore_claims".to_owned(), 1)]
    );
    let rows = lab.source.rows.lock().unwrap().clone();
    let address = |name| {
        rows[&key(name)]
            .status
            .addresses()
            .next()
            .unwrap()
            .to_string()
    };
    assert_eq!(
        (address("a"), address("z-holder")),
        ("127.77.0.2".into(), "127.77.0.1".into())
    );
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_waits_gets_the_address_of_a_deleted_one() {
    let lab = Lab::start(1, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.apply(web("b")).await;
    lab.until("b says that nothing is left", |rows| {
        rows[&key("b")]
            .status
            .condition(ConditionType::Addressed)
            .is_some_and(|condition| condition.reason == Code::PoolExhausted)
    })
    .await;
    lab.delete(&key("a")).await;
    lab.until("a gone", |rows| !rows.contains_key(&key("a")))
        .await;
    lab.until("b programmed", |rows| programmed(rows, "b"))
        .await;
    assert_eq!(lab.shelf.held.lock().unwrap().len(), 1);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_stops_wanting_is_cleaned_up_and_stays() {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    let mut row = lab.source.rows.lock().unwrap()[&key("a")].clone();
    row.wants_load_balancer = false;
    lab.apply(Arc::new(row)).await;
    lab.until("a clean", |rows| {
        let row = &rows[&key("a")];
        !row.finalized && row.status == ServiceStatus::default()
    })
    .await;
    assert!(lab.shelf.held.lock().unwrap().is_empty());
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_namesake_with_another_identity_does_not_inherit() {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    let namesake = svc("a")
        .port(80)
        .with(|row| row.uid = Uid::new("another"))
        .row();
    lab.apply(namesake).await;
    lab.until("the namesake is programmed", |rows| {
        programmed(rows, "a") && rows[&key("a")].uid == Uid::new("another")
    })
    .await;
    let held: Vec<Uid> = lab.shelf.held.lock().unwrap().keys().cloned().collect();
    assert_eq!(held, [Uid::new("another")]);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_version_leaves_the_valid_one_in_force_until_it_is_fixed() {
    let lab = Lab::start(9, vec![web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    let held = lab.shelf.held.lock().unwrap().clone();
    let status = lab.source.rows.lock().unwrap()[&key("a")].status.clone();
    let edit = |annotation: &str, status: &ServiceStatus| {
        svc("a")
            .port(80)
            .annotated("landfall.dev/drain", annotation)
            .with(|row| {
                row.finalized = true;
                row.status = status.clone();
            })
            .row()
    };
    lab.apply(edit("soon", &status)).await;
    let accepted = |rows: &BTreeMap<ServiceKey, ServiceRow>| {
        rows[&key("a")]
            .status
            .condition(ConditionType::Accepted)
            .is_some_and(|it| it.status)
    };
    lab.until("refused", |rows| !accepted(rows)).await;
    assert!(lab.source.rows.lock().unwrap().values().all(|row| {
        row.status
            .condition(ConditionType::Programmed)
            .is_some_and(|it| it.status)
    }));
    assert_eq!(*lab.shelf.held.lock().unwrap(), held);
    let status = lab.source.rows.lock().unwrap()[&key("a")].status.clone();
    lab.apply(edit("30s", &status)).await;
    lab.until("accepted again", accepted).await;
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn services_of_other_classes_are_never_touched() {
    let foreign = svc("foreign")
        .port(80)
        .with(|row| row.class = Some("example.com/lb".into()));
    let unknown = svc("unknown")
        .port(80)
        .with(|row| row.class = Some("landfall.dev/x".into()));
    let lab = Lab::start(9, vec![foreign.row(), unknown.row(), web("a")]).await;
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.until_ready().await;
    assert!(
        lab.writes().iter().all(|write| write.ends_with("/a")),
        "{:?}",
        lab.writes()
    );
    let codes = lab.handle.store.read(|pages| {
        let record = pages.records.get(&key("unknown"));
        record.map(|record| record.reasons.iter().map(|it| it.code).collect::<Vec<_>>())
    });
    assert_eq!(codes, Some(vec![Code::UnknownClass]));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn many_services_converge_whatever_the_order_and_each_holds_one_address() {
    let rows = (0..100).map(|number| web(&format!("s{number}"))).collect();
    let lab = Lab::start(100, rows).await;
    lab.until("all programmed", |rows| {
        rows.len() == 100 && rows.keys().all(|key| programmed(rows, key.name()))
    })
    .await;
    let held: std::collections::BTreeSet<u8> =
        lab.shelf.held.lock().unwrap().values().copied().collect();
    assert_eq!(held.len(), 100);
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_passes_to_another_instance_is_cleared_away_at_the_first() {
    let (lab, inner) = Lab::start_two(Shelf::new(9), vec![web("a")]).await;
    let edge = lab.shelf.clone();
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    assert_eq!(
        (
            edge.held.lock().unwrap().len(),
            inner.held.lock().unwrap().len()
        ),
        (1, 0)
    );
    let mut row = lab.source.rows.lock().unwrap()[&key("a")].clone();
    row.class = Some("landfall.dev/inner".into());
    lab.apply(Arc::new(row)).await;
    let moved = async {
        while edge.held.lock().unwrap().len() + 1 != inner.held.lock().unwrap().len() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), moved)
        .await
        .expect("it moves in 20 s");
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_whose_endpoint_becomes_a_cluster_ip_is_reconciled_without_it() {
    let lab = Lab::start(9, vec![web("a"), web("b")]).await;
    let slice = slice("a").port("", 80).ready("10.96.0.7");
    let slice = Fact::Slice(slice.ready("10.0.0.1").row());
    lab.source.facts.send(slice).await.unwrap();
    lab.until("a programmed", |rows| programmed(rows, "a"))
        .await;
    lab.until_ready().await;
    assert!(!lab.says("a", Code::MemberNotAllowed));
    let fact = |addresses: Box<[IpAddr]>| Fact::ClusterIps(key("dns"), addresses);
    for (addresses, is_one) in [
        (vec![IpAddr::from([10, 96, 0, 7])], true),
        (Vec::new(), false),
    ] {
        let fact = fact(addresses.into());
        lab.source.facts.send(fact).await.unwrap();
        lab.until("what is said of a changes", |_| {
            lab.says("a", Code::MemberNotAllowed) == is_one
        })
        .await;
    }
    assert!(!lab.says("b", Code::MemberNotAllowed));
    lab.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_is_reconciled_once_a_secret_that_it_names_is_there() {
    let secured = |name| {
        let web = svc(name).port(443).annotated("landfall.dev/mode", "tls");
        web.annotated("landfall.dev/tls-secret", &format!("{name}-tls"))
            .row()
    };
    let lab = Lab::start(9, vec![secured("a"), secured("b")]).await;
    lab.until("both lack a certificate", |_| {
        ["a", "b"].map(|name| lab.says(name, Code::CertificateNotFound)) == [true; 2]
    })
    .await;
    lab.until_ready().await;
    // The last one counts.
    for fact in [
        Fact::Secret(secret("a-tls")),
        Fact::Secret(bad_secret("a-tls", "tls.key is missing")),
        Fact::Secret(secret("a-tls")),
    ] {
        lab.source.facts.send(fact).await.unwrap();
    }
    lab.until("a has its certificate", |_| {
        !lab.says("a", Code::CertificateNotFound)
    })
    .await;
    assert!(lab.says("b", Code::CertificateNotFound));
    lab.stop().await;
}
