//! Errors of single calls.

use std::time::Duration;

use landfall_exoscale::client::ErrorKind;
use landfall_testkit::exoscale::{ErrorShape, Fault, Sim};
use tokio::time::Instant;

use crate::rig::{cloud, end, nlb, service};

#[tokio::test(start_paused = true)]
async fn every_shape_of_a_refusal_says_what_the_cloud_said() {
    for (shape, text) in [
        (ErrorShape::Message, "instance pool not found"),
        (ErrorShape::List, "instance pool not found"),
        (ErrorShape::Problem, "instance pool not found"),
        (ErrorShape::Error, "instance pool not found"),
        (ErrorShape::Plain, "instance pool not found"),
    ] {
        let sim = Sim::new();
        sim.configure(|it| it.errors = shape);
        let lb = sim.add_load_balancer("lb").as_str().into();
        let pool = "99999999-0000-4000-8000-000000000000";
        let error = cloud(&sim)
            .create_service(&lb, &service(80, pool))
            .await
            .unwrap_err();
        assert_eq!(error.message, text, "{shape:?}");
        // Without the API's form it may be a proxy that says so.
        let plain = shape == ErrorShape::Plain;
        let kind = if plain {
            ErrorKind::Unreadable
        } else {
            ErrorKind::NotFound
        };
        assert_eq!(error.kind, kind, "{shape:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_wrong_is_refused_with_all_that_is() {
    let sim = Sim::new();
    let (pool, lb) = (sim.add_pool("web"), sim.add_load_balancer("lb"));
    let mut body = service(80, &pool);
    body.target_port = 0;
    body.healthcheck.timeout = Some(20);
    let error = cloud(&sim)
        .create_service(&lb.as_str().into(), &body)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("target-port must be"), "{error}");
    assert!(
        error.message.contains("interval must not be less"),
        "{error}"
    );
    assert_eq!(sim.load_balancers()[0]["services"], serde_json::json!([]));
}

#[tokio::test(start_paused = true)]
async fn names_ports_and_numbers_have_limits() {
    let sim = Sim::new();
    sim.configure(|it| it.max_load_balancers = 2);
    let pool = sim.add_pool("web");
    let lb = sim.add_load_balancer("taken").as_str().into();
    let cloud = cloud(&sim);
    let error = cloud.create_load_balancer(&nlb("taken")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    let begun = cloud.create_load_balancer(&nlb("second")).await.unwrap();
    end(&cloud, begun).await;
    let error = cloud.create_load_balancer(&nlb("third")).await.unwrap_err();
    assert!(error.message.contains("quota"), "{error}");
    for port in 1..=10 {
        let begun = cloud
            .create_service(&lb, &service(port, &pool))
            .await
            .unwrap();
        end(&cloud, begun).await;
    }
    let again = cloud
        .create_service(&lb, &service(1, &pool))
        .await
        .unwrap_err();
    assert_eq!(again.kind, ErrorKind::Conflict);
    let more = cloud
        .create_service(&lb, &service(11, &pool))
        .await
        .unwrap_err();
    assert!(more.message.contains("limit"), "{more}");
}

#[tokio::test(start_paused = true)]
async fn an_nlb_with_services_is_deleted_or_refused_as_the_cloud_is_set() {
    for deletes in [false, true] {
        let sim = Sim::new();
        sim.configure(|it| it.deletes_with_services = deletes);
        let (pool, lb) = (sim.add_pool("web"), sim.add_load_balancer("lb"));
        sim.add_service(&lb, "a", 80, &pool);
        let cloud = cloud(&sim);
        match cloud.delete_load_balancer(&lb.as_str().into()).await {
            Ok(begun) => drop(end(&cloud, begun.unwrap()).await),
            Err(error) => assert_eq!(error.kind, ErrorKind::Stale),
        }
        assert_eq!(sim.load_balancers().is_empty(), deletes);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_may_have_been_done_and_is_never_sent_again() {
    for (fault, done) in [(Fault::NoAnswerBefore, 0), (Fault::NoAnswerAfter, 1)] {
        let sim = Sim::new();
        let cloud = cloud(&sim);
        sim.on_call(move |call| call.is_write().then(|| fault.clone()));
        let error = cloud.create_load_balancer(&nlb("a")).await.unwrap_err();
        assert!(error.may_be_done(), "{error}");
        assert_eq!(sim.writes().len(), 1);
        sim.heal();
        assert_eq!(cloud.load_balancers().await.unwrap().len(), done);
    }
}

#[tokio::test(start_paused = true)]
async fn all_calls_wait_when_the_cloud_asks_to_slow_down() {
    for code in [429, 503] {
        let sim = Sim::new();
        let cloud = cloud(&sim);
        cloud.check().await.unwrap();
        let mut first = true;
        sim.on_call(move |_| {
            std::mem::take(&mut first).then(|| Fault::Status {
                code,
                body: r#"{"message":"slow down"}"#.to_owned(),
                retry_after: Some(7),
            })
        });
        let started = Instant::now();
        let error = cloud.load_balancers().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Throttled);
        cloud.load_balancers().await.unwrap();
        assert!(started.elapsed() >= Duration::from_secs(7), "{code}");
    }
}
