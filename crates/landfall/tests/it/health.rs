//! Members that fail, come back, or leave: what clients and conditions show.

use landfall_model::reason::Code;
use landfall_model::status::ConditionType;
use landfall_model::view::{Health, ServiceView};

use crate::backend::{self, Backend};
use crate::client::{self, Talk};
use crate::lab::Lab;
use crate::manifest::{slice, svc};
use crate::view::{at, condition, health_of, is_ready, listener};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_backend_shows_in_conditions_and_so_does_its_return() {
    let lab = Lab::new();
    let mut pods = backend::pods(&lab, &["a", "b"]).await;
    let members = [pods[0].address, pods[1].address];
    let service = svc("web")
        .tcp(8080)
        .members(&members)
        .option("monitor", "tcp")
        .option("monitor-delay", "200ms")
        .option("monitor-max-retries-down", "2");
    lab.write("web.yaml", &service.yaml());
    let lab = lab.started().await;
    let both_up = |service: &ServiceView| {
        members
            .iter()
            .all(|it| health_of(service, *it) == Some(Health::Up))
            && is_ready(service)
    };
    let web = lab.until("default/web", "has both members", both_up).await;
    let target = at(&web, 8080);
    assert_eq!(client::roll_call(target, 4).await, ["a", "a", "b", "b"]);

    pods[0].stop().await;
    let first_down = |service: &ServiceView| {
        health_of(service, members[0]) == Some(Health::Down) && is_ready(service)
    };
    let web = lab
        .until("default/web", "goes on with one", first_down)
        .await;
    let detail = &listener(&web, 8080).members[0].detail;
    assert!(detail.contains("refused"), "{detail}");
    assert_eq!(client::roll_call(target, 4).await, ["b"; 4]);

    pods[1].stop().await;
    let stopped = |service: &ServiceView| {
        condition(service, ConditionType::Programmed) == (false, Code::NoHealthyMembers)
    };
    let web = lab
        .until("default/web", "has no member left", stopped)
        .await;
    assert_eq!(
        condition(&web, ConditionType::Accepted),
        (true, Code::Accepted)
    );
    assert_eq!(
        condition(&web, ConditionType::Addressed),
        (true, Code::Assigned)
    );
    let reason = lab.reason("default/web", Code::NoHealthyMembers).await;
    assert!(reason.message.contains("none of 2 members"), "{reason}");

    pods[1].start().await;
    let web = lab.ready("default/web").await;
    assert_eq!(health_of(&web, members[1]), Some(Health::Up));
    assert_eq!(client::roll_call(target, 4).await, ["b"; 4]);
    pods[0].start().await;
    let web = lab.until("default/web", "has both members", both_up).await;
    assert!(listener(&web, 8080).members[0].traffic.health_changes >= 2);
    let metrics = lab.text("/metrics").await;
    assert!(metrics.contains("health"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http_check_takes_a_failing_backend_out_and_a_dead_one_is_skipped() {
    let lab = Lab::new();
    let a = Backend::http("a", lab.ranges.backend(1, 3001)).await;
    let mut b = Backend::http("b", lab.ranges.backend(2, 3001)).await;
    let service = svc("web")
        .tcp(8080)
        .members(&[a.address, b.address])
        .option("monitor", "http")
        .option("monitor-path", "/healthz")
        .option("monitor-delay", "200ms");
    lab.write("web.yaml", &service.yaml());
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    a.sick(true);
    let sick = |service: &ServiceView| health_of(service, a.address) == Some(Health::Down);
    let web = lab.until("default/web", "knows that a is down", sick).await;
    let member = listener(&web, 8080)
        .members
        .iter()
        .find(|it| it.address == a.address);
    assert!(member.unwrap().detail.contains("503"), "{member:?}");
    for _ in 0..4 {
        assert_eq!(client::http(target, "/").await.unwrap().json()["name"], "b");
    }
    a.sick(false);
    let well = |service: &ServiceView| health_of(service, a.address) == Some(Health::Up);
    lab.until("default/web", "knows that a is up", well).await;
    // Before the monitor notices, the others are tried.
    b.stop().await;
    for _ in 0..6 {
        assert_eq!(client::http(target, "/").await.unwrap().json()["name"], "a");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_leaves_keeps_its_connections_for_the_drain_time() {
    let lab = Lab::new();
    let pods = backend::pods(&lab, &["a", "b"]).await;
    let service = |drain: &str| {
        svc("web")
            .port("line", "TCP", 8080)
            .option("drain", drain)
            .yaml()
    };
    let pod = |index: usize| (pods[index].name.as_str(), pods[index].address);
    lab.write("web.yaml", &service("1h"));
    lab.write("slice.yaml", &slice("web", "line", "TCP", &[pod(0)]));
    let lab = lab.started().await;
    let target = at(&lab.ready("default/web").await, 8080);
    let mut talk = Talk::to(target).await.unwrap();
    assert_eq!(talk.say("before").await.unwrap().name, "a");

    lab.write("slice.yaml", &slice("web", "line", "TCP", &[pod(1)]));
    let drains = |service: &ServiceView| {
        health_of(service, pods[0].address) == Some(Health::Draining)
            && health_of(service, pods[1].address).is_some()
    };
    let web = lab.until("default/web", "drains a member", drains).await;
    let leaving = listener(&web, 8080)
        .members
        .iter()
        .find(|it| it.address == pods[0].address);
    assert_eq!(leaving.unwrap().traffic.open, 1);
    assert_eq!(client::roll_call(target, 4).await, ["b"; 4]);
    assert_eq!(talk.say("while it drains").await.unwrap().name, "a");
    // A member that comes back is a member again, and its connection never noticed.
    lab.write(
        "slice.yaml",
        &slice("web", "line", "TCP", &[pod(0), pod(1)]),
    );
    let back =
        |service: &ServiceView| health_of(service, pods[0].address) == Some(Health::Unchecked);
    lab.until("default/web", "has it back", back).await;
    assert_eq!(client::roll_call(target, 4).await, ["a", "a", "b", "b"]);
    assert_eq!(talk.say("again").await.unwrap().name, "a");
    // A shorter drain time ends it soon after the member has left.
    lab.write("web.yaml", &service("300ms"));
    lab.settled().await;
    lab.write("slice.yaml", &slice("web", "line", "TCP", &[pod(1)]));
    talk.ended().await;
    let gone = |service: &ServiceView| health_of(service, pods[0].address).is_none();
    lab.until("default/web", "has forgotten it", gone).await;
}
