//! What a provider of Octavia, or an old Octavia, has not.

use std::num::NonZeroU16;

use landfall_model::Protocol;
use landfall_testkit::build::ServiceBuilder;
use landfall_testkit::svc;

use crate::create::web;
use crate::listeners::TLS;
use crate::rig::Rig;
use crate::rig::stage::{Stage, is_real};
use crate::written::{annotate, bodies, refusal, short};

fn ovn() -> Rig {
    Rig::new("lb-provider=ovn\nlb-method=SOURCE_IP_PORT")
}

#[tokio::test(start_paused = true)]
async fn ovn_refuses_what_it_has_not_and_nothing_is_written() {
    let sim = Stage::new();
    let reference = sim.add_secret();
    drop(sim);
    for (key, value, says) in [
        ("x-forwarded-for", "true", "HTTP"),
        ("proxy-protocol", "v2", "PROXY"),
        (TLS, reference.as_str(), "TERMINATED_HTTPS"),
    ] {
        let mut rig = ovn();
        rig.apply(web().annotated(&short(key), value)).await;
        assert_eq!(rig.writes(), Vec::<String>::new(), "{key}");
        let why = refusal(&rig, "web");
        assert!(why.contains(says) && why.contains("ovn"), "{why}");
        // One that works is left as it is.
        let mut rig = ovn();
        rig.apply(web()).await;
        assert_eq!(rig.picture().await.balancers[0].provider, "ovn");
        let published = rig.published("web");
        rig.forget();
        annotate(&mut rig, &[(key, value)]).await;
        assert_eq!(rig.writes(), Vec::<String>::new(), "{key}");
        assert_eq!(rig.published("web"), published);
        assert!(refusal(&rig, "web").contains(says));
    }
}

#[tokio::test(start_paused = true)]
async fn ovn_chooses_members_its_own_way_and_says_so() {
    let mut rig = ovn();
    rig.apply(web().annotated(&short("lb-method"), "LEAST_CONNECTIONS"))
        .await;
    let picture = rig.picture().await;
    assert_eq!(picture.pool_at(80).lb_algorithm, "SOURCE_IP_PORT");
    let warnings = rig.cluster.messages("OptionNotSupported");
    assert!(
        warnings.iter().any(|it| it.contains("LEAST_CONNECTIONS")),
        "{:?} {warnings:?}",
        rig.cluster.events()
    );
}

#[tokio::test(start_paused = true)]
async fn ovn_has_neither_time_outs_nor_prefixes_and_is_sent_none() {
    let mut rig = ovn();
    rig.apply(web().annotated(&short("timeout-client-data"), "70000"))
        .await;
    let body = &bodies(&rig, "POST", "loadbalancers")[0];
    let listener = body["listeners"][0].as_object().unwrap();
    for key in ["timeout_client_data", "allowed_cidrs", "insert_headers"] {
        assert!(!listener.contains_key(key), "{body}");
    }
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn source_ranges_that_nothing_enforces_keep_a_service_from_being_exposed() {
    let mut rig = ovn();
    rig.apply(web().source_range("10.0.0.0/8")).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert!(refusal(&rig, "web").contains("source"));
    // Where the operator says so, a warning is all.
    let mut rig = ovn();
    rig.settings.strict_source_ranges = false;
    rig.apply(web().source_range("10.0.0.0/8")).await;
    assert_eq!(rig.picture().await.listeners.len(), 1);
    assert!(
        rig.cluster
            .events()
            .contains(&"web LoadBalancerSourceRangesIgnored".to_owned()),
        "{:?}",
        rig.cluster.events()
    );
    // Security groups enforce them.
    let mut rig =
        Rig::new("lb-provider=ovn\nlb-method=SOURCE_IP_PORT\nmanage-security-groups=true");
    rig.apply(web().source_range("10.0.0.0/8")).await;
    assert_eq!(rig.picture().await.listeners.len(), 1);
    assert_eq!(refusal(&rig, "web"), "");
    let picture = rig.picture().await;
    let sources: Vec<_> = picture.groups[0]
        .rules
        .iter()
        .filter_map(|rule| rule.remote_ip_prefix.as_ref().map(ToString::to_string))
        .collect();
    assert!(sources.contains(&"10.0.0.0/8".to_owned()), "{sources:?}");
    assert!(!sources.contains(&"0.0.0.0/0".to_owned()), "{sources:?}");
}

#[tokio::test(start_paused = true)]
async fn source_ranges_are_refused_by_an_octavia_that_is_too_old() {
    let old = || {
        let sim = Stage::new();
        sim.configure(|settings| settings.api_minor = 11);
        sim
    };
    let mut rig = Rig::on(old(), "");
    rig.apply(web().source_range("10.0.0.0/8")).await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    assert!(refusal(&rig, "web").contains("2.12"));
    let mut rig = Rig::on(old(), "");
    rig.apply(web()).await;
    assert_eq!(rig.picture().await.listener_at(80).allowed_cidrs, None);
}

#[tokio::test(start_paused = true)]
async fn an_sctp_port_has_an_sctp_listener() {
    let mut rig = Rig::new("");
    rig.apply(
        svc("web")
            .any_port("s", Protocol::Sctp, 5000)
            .node_port(30500),
    )
    .await;
    let picture = rig.picture().await;
    assert_eq!(picture.listener_at(5000).protocol, "SCTP");
    assert_eq!(picture.pool_at(5000).protocol, "SCTP");
}

/// What the controller did to pools by themselves.
fn writes_of_pools(rig: &Rig) -> Vec<String> {
    let mut writes = rig.writes();
    writes.retain(|line| line.contains("/lbaas/pools") && !line.ends_with("/members"));
    writes
}

fn by_source(name: &str, port: u16) -> ServiceBuilder {
    let service = svc(name).port(port).node_port(30_000 + port);
    service.annotated(&short("lb-method"), "SOURCE_IP")
}

#[tokio::test(start_paused = true)]
async fn m11_a_driver_for_ovn_that_knows_source_ip_gets_it() {
    let mut rig = ovn();
    // The driver of the stack knows it.
    if !is_real() {
        rig.sim.configure(|settings| settings.ovn_source_ip = true);
    }
    rig.apply(by_source("web", 80)).await;
    assert_eq!(rig.picture().await.pool_at(80).lb_algorithm, "SOURCE_IP");
    assert_eq!(refusal(&rig, "web"), "");
    assert_eq!(
        rig.cluster.messages("OptionNotSupported"),
        Vec::<String>::new()
    );
    // The next one is made with it.
    rig.forget();
    rig.apply(by_source("second", 81)).await;
    assert_eq!(rig.picture().await.pool_at(81).lb_algorithm, "SOURCE_IP");
    assert_eq!(writes_of_pools(&rig), Vec::<String>::new());
    // What is there stays, and is all that it takes to know.
    rig.forget();
    rig.restart().await;
    rig.apply(by_source("third", 82)).await;
    assert_eq!(writes_of_pools(&rig), Vec::<String>::new());
    assert_eq!(rig.picture().await.pool_at(82).lb_algorithm, "SOURCE_IP");
}

#[tokio::test(start_paused = true)]
async fn m11_a_driver_for_ovn_that_does_not_know_source_ip_is_tried_once() {
    let mut rig = ovn();
    rig.apply(by_source("web", 80)).await;
    let algorithm = rig.picture().await.pool_at(80).lb_algorithm.clone();
    assert_eq!(algorithm, "SOURCE_IP_PORT");
    assert_eq!(refusal(&rig, "web"), "");
    let warnings = rig.cluster.messages("OptionNotSupported");
    assert!(
        warnings.iter().any(|it| it.contains("SOURCE_IP_PORT")),
        "{:?} {warnings:?}",
        rig.cluster.events()
    );
    assert_eq!(writes_of_pools(&rig).len(), 1);
    rig.forget();
    rig.apply(by_source("second", 81)).await;
    rig.edit("web", |row| {
        let mut port = row.ports[0].clone();
        port.port = NonZeroU16::new(8080).unwrap();
        port.name = "more".into();
        row.ports[0].name = "first".into();
        row.ports.push(port);
    })
    .await;
    rig.wait(std::time::Duration::from_secs(400)).await;
    assert_eq!(writes_of_pools(&rig), ["POST /v2/lbaas/pools"]);
    assert_eq!(rig.picture().await.listeners.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn m11_a_port_that_comes_to_a_driver_for_ovn_without_source_ip_is_served() {
    let mut rig = ovn();
    rig.apply(by_source("web", 80)).await;
    // Another process knows nothing of the driver.
    rig.kill();
    rig.cluster.edit("web", |row| {
        row.ports[0].port = NonZeroU16::new(81).unwrap();
        row.ports[0].node_port = NonZeroU16::new(30_090);
    });
    rig.restart().await;
    let picture = rig.picture().await;
    assert_eq!(picture.members_at(81).len(), 2);
    assert_eq!(picture.pool_at(81).lb_algorithm, "SOURCE_IP_PORT");
    assert_eq!(refusal(&rig, "web"), "");
}
