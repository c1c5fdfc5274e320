//! Operations: how they end, and when they are asked for.

use std::time::Duration;

use landfall_exoscale::client::{Begun, ErrorKind};
use landfall_testkit::exoscale::{End, Fate, Parallel, Sim};
use tokio::time::Instant;

use crate::rig::{cloud, nlb, service, wait};

fn pending(begun: Begun) -> landfall_exoscale::client::Pending {
    match begun {
        Begun::Pending(operation) => operation,
        Begun::Done(_) => panic!("it is done"),
    }
}

#[tokio::test(start_paused = true)]
async fn polls_are_three_seconds_apart_at_least() {
    let sim = Sim::new();
    sim.configure(|it| it.polls = 4);
    let cloud = cloud(&sim);
    let started = Instant::now();
    let begun = cloud.create_load_balancer(&nlb("a")).await.unwrap();
    wait(&cloud, pending(begun)).await.unwrap();
    let polls = sim
        .calls()
        .iter()
        .filter(|it| it.path.starts_with("/v2/operation/"))
        .count();
    assert_eq!(polls, 4);
    assert!(started.elapsed() >= Duration::from_secs(12));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_an_error_at_once_and_later() {
    let sim = Sim::new();
    let cloud = cloud(&sim);
    let fate = Fate::failure("unavailable", "no capacity");
    sim.next_change(fate.clone().at_once());
    let error = cloud.create_load_balancer(&nlb("a")).await.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ErrorKind::Unavailable, "unavailable: no capacity")
    );
    sim.next_change(fate);
    let begun = cloud.create_load_balancer(&nlb("a")).await.unwrap();
    let later = wait(&cloud, pending(begun)).await.unwrap_err();
    assert_eq!((later.kind, later.message), (error.kind, error.message));
    assert_eq!(sim.load_balancers().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_success_at_once_needs_no_poll_and_may_name_nothing() {
    let sim = Sim::new();
    let cloud = cloud(&sim);
    let fate = Fate {
        has_reference: false,
        ..Fate::default()
    };
    sim.next_change(fate.clone().at_once());
    let begun = cloud.create_load_balancer(&nlb("a")).await.unwrap();
    assert_eq!(begun, Begun::Done(None));
    sim.next_change(fate);
    let begun = cloud.create_load_balancer(&nlb("b")).await.unwrap();
    assert_eq!(wait(&cloud, pending(begun)).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_operation_without_an_end_is_given_up_and_may_have_been_done() {
    let sim = Sim::new();
    let cloud = cloud(&sim);
    sim.next_change(Fate::stuck());
    let started = Instant::now();
    let begun = cloud.create_load_balancer(&nlb("a")).await.unwrap();
    let error = wait(&cloud, pending(begun)).await.unwrap_err();
    assert!(error.may_be_done(), "{error}");
    assert_eq!(started.elapsed(), Duration::from_secs(120));
    assert_eq!(cloud.load_balancers().await.unwrap()[0].name, "a");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_the_cloud_says_nothing_about_the_change() {
    let sim = Sim::new();
    let cloud = cloud(&sim);
    sim.next_change(Fate {
        end: End::Timeout,
        ..Fate::default()
    });
    let begun = cloud.create_load_balancer(&nlb("a")).await.unwrap();
    let error = wait(&cloud, pending(begun)).await.unwrap_err();
    assert!(error.may_be_done(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_second_change_of_an_nlb_is_refused_carried_out_or_stuck() {
    for (parallel, second) in [
        (Parallel::Refused, Some(ErrorKind::Conflict)),
        (Parallel::Allowed, None),
        (Parallel::Stuck, Some(ErrorKind::Lost)),
    ] {
        let sim = Sim::new();
        sim.configure(|it| it.parallel = parallel);
        let (pool, lb) = (sim.add_pool("web"), sim.add_load_balancer("lb"));
        let (cloud, lb) = (cloud(&sim), lb.as_str().into());
        let first = cloud
            .create_service(&lb, &service(80, &pool))
            .await
            .unwrap();
        let result = match cloud.create_service(&lb, &service(443, &pool)).await {
            Ok(begun) => wait(&cloud, pending(begun)).await.map(drop),
            Err(error) => Err(error),
        };
        assert_eq!(result.err().map(|error| error.kind), second, "{parallel:?}");
        wait(&cloud, pending(first)).await.unwrap();
        let services = cloud
            .load_balancer(&lb)
            .await
            .unwrap()
            .unwrap()
            .services
            .len();
        assert_eq!(services, if parallel == Parallel::Refused { 1 } else { 2 });
    }
}
