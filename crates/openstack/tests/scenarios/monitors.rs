//! Health monitors (rows H).

use landfall_model::Protocol;
use landfall_testkit::build::{ServiceBuilder, number, svc};

use serde_json::json;

use crate::create::web;
use crate::rig::stage::Stage;
use crate::rig::{Picture, Rig};
use crate::written::{annotate, bodies, refusal, remove, short};

/// `externalTrafficPolicy: Local`, as the API server fills it in.
fn local(service: ServiceBuilder) -> ServiceBuilder {
    service
        .local()
        .with(|row| row.health_check_node_port = Some(number(31000)))
}

fn udp() -> ServiceBuilder {
    svc("web").udp_port("dns", 53).node_port(30053)
}

fn kinds(picture: &Picture) -> Vec<&str> {
    picture
        .monitors
        .iter()
        .map(|monitor| monitor.kind.as_str())
        .collect()
}

fn monitor_ports(picture: &Picture, port: u16) -> Vec<Option<u16>> {
    let pool = picture.pool_at(port);
    picture.members[pool.id.as_str()]
        .iter()
        .map(|member| member.monitor_port)
        .collect()
}

fn asks_nodes(picture: &Picture, port: u16) {
    assert_eq!(kinds(picture), ["HTTP"]);
    let monitor = &picture.monitors[0];
    assert_eq!(monitor.url_path.as_deref(), Some("/healthz"));
    assert_eq!(monitor.http_method.as_deref(), Some("GET"));
    assert_eq!(monitor.expected_codes.as_deref(), Some("200"));
    assert_eq!(monitor_ports(picture, port), [Some(31000), Some(31000)]);
}

async fn is_at_rest(rig: &mut Rig) {
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn h01_a_monitor_is_part_of_what_is_made() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(web()).await;
    let body = &bodies(&rig, "POST", "loadbalancers")[0];
    assert_eq!(
        body["listeners"][0]["default_pool"]["healthmonitor"],
        json!({
            "name": "monitor_0_kube_service_c1_default_web",
            "type": "TCP",
            "delay": 5,
            "timeout": 3,
            "max_retries": 1,
            "max_retries_down": 3,
        })
    );
    assert_eq!(kinds(&rig.picture().await), ["TCP"]);
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn h02_datagrams_are_checked_by_udp_connect() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(udp()).await;
    let picture = rig.picture().await;
    assert_eq!(kinds(&picture), ["UDP-CONNECT"]);
    assert_eq!(monitor_ports(&picture, 53), [None, None]);
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn h03_nodes_are_asked_whether_they_have_an_endpoint() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(local(web())).await;
    asks_nodes(&rig.picture().await, 80);
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn h04_nodes_are_asked_for_datagrams_where_octavia_can() {
    for (minor, asks) in [(15, false), (16, true)] {
        let sim = Stage::new();
        sim.configure(|settings| settings.api_minor = minor);
        let mut rig = Rig::on(sim, "create-monitor=true");
        rig.apply(local(udp())).await;
        let picture = rig.picture().await;
        if asks {
            asks_nodes(&picture, 53);
        } else {
            assert_eq!(kinds(&picture), ["UDP-CONNECT"]);
            assert_eq!(monitor_ports(&picture, 53), [None, None]);
            let reported = rig.cluster.messages("OptionNotSupported").join("; ");
            assert!(reported.contains("no endpoint"), "{reported}");
        }
        is_at_rest(&mut rig).await;
    }
}

#[tokio::test(start_paused = true)]
async fn h05_the_traffic_policy_changes_members_and_monitor() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(web()).await;
    let before = rig.picture().await;
    rig.apply(local(web())).await;
    let picture = rig.picture().await;
    asks_nodes(&picture, 80);
    assert_eq!(picture.pool_at(80).id, before.pool_at(80).id);
    rig.forget();
    rig.apply(web()).await;
    let picture = rig.picture().await;
    assert_eq!(kinds(&picture), ["TCP"]);
    assert_eq!(monitor_ports(&picture, 80), [None, None]);
    assert_eq!(rig.writes().len(), 3, "{:?}", rig.writes());
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn h06_a_monitor_comes_and_goes_with_the_annotation() {
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    annotate(&mut rig, &[("enable-health-monitor", "true")]).await;
    assert_eq!(kinds(&rig.picture().await), ["TCP"]);
    assert_eq!(rig.writes().len(), 1);
    rig.forget();
    annotate(&mut rig, &[("enable-health-monitor", "false")]).await;
    assert!(rig.picture().await.monitors.is_empty());
    assert_eq!(rig.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn h07_numbers_of_a_monitor_change_in_one_write() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(web()).await;
    let before = rig.picture().await.monitors[0].id.clone();
    rig.forget();
    annotate(
        &mut rig,
        &[
            ("health-monitor-delay", "10"),
            ("health-monitor-timeout", "7"),
            ("health-monitor-max-retries", "2"),
            ("health-monitor-max-retries-down", "4"),
        ],
    )
    .await;
    let picture = rig.picture().await;
    let monitor = &picture.monitors[0];
    assert_eq!(monitor.id, before);
    assert_eq!(
        (
            monitor.delay,
            monitor.timeout,
            monitor.max_retries,
            monitor.max_retries_down
        ),
        (10, 7, 2, Some(4))
    );
    assert_eq!(rig.writes().len(), 1);
}

/// What Octavia would refuse is refused before it is asked, by an event that names the annotation.
#[tokio::test(start_paused = true)]
async fn h08_numbers_that_octavia_would_refuse_are_refused_by_name_and_nothing_is_written() {
    for (key, value) in [
        ("health-monitor-delay", "0"),
        ("health-monitor-timeout", "-1"),
        ("health-monitor-max-retries", "11"),
        ("health-monitor-max-retries-down", "-1"),
    ] {
        let mut rig = Rig::new("create-monitor=true");
        rig.apply(web()).await;
        let published = rig.published("web");
        rig.forget();
        annotate(&mut rig, &[(key, value)]).await;
        assert!(refusal(&rig, "web").contains(key));
        let reported = rig.cluster.messages("SyncLoadBalancerFailed");
        assert!(
            reported.len() == 1 && reported[0].contains(key),
            "{reported:?}"
        );
        assert_eq!(rig.writes(), Vec::<String>::new());
        assert_eq!(rig.published("web"), published);
    }
}

#[tokio::test(start_paused = true)]
async fn h08_a_time_out_above_the_delay_is_octavias_business() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(web()).await;
    rig.forget();
    annotate(&mut rig, &[("health-monitor-timeout", "9")]).await;
    assert_eq!(rig.writes().len(), 1);
    assert_eq!(rig.picture().await.monitors[0].timeout, 9);
    // A delay below the configured timeout is the Service's own spec; the timeout stays.
    remove(&mut rig, "health-monitor-timeout").await;
    annotate(&mut rig, &[("health-monitor-delay", "2")]).await;
    let monitor = rig.picture().await.monitors[0].clone();
    assert_eq!((monitor.delay, monitor.timeout), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn h09_a_monitor_removed_by_hand_comes_back_with_the_next_node() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(web()).await;
    let monitor = rig.picture().await.monitors[0].id.clone();
    assert!(rig.sim.delete(monitor.as_str()));
    rig.add_node("c", "10.0.0.6");
    rig.settle().await;
    let picture = rig.picture().await;
    assert_eq!(kinds(&picture), ["TCP"]);
    assert_eq!(picture.members_at(80).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn h10_local_traffic_brings_a_monitor_unless_an_option_disables_it() {
    let mut rig = Rig::new("");
    rig.apply(local(web())).await;
    asks_nodes(&rig.picture().await, 80);
    is_at_rest(&mut rig).await;
    let mut rig = Rig::new("");
    rig.apply(local(web()).annotated(&short("enable-health-monitor"), "false"))
        .await;
    let picture = rig.picture().await;
    assert!(picture.monitors.is_empty());
    assert_eq!(monitor_ports(&picture, 80), [None, None]);
    let warnings = rig.cluster.messages("ConflictingOptions");
    assert!(
        warnings
            .iter()
            .any(|it| it.contains("externalTrafficPolicy")),
        "{:?}",
        rig.cluster.events()
    );
}

#[tokio::test(start_paused = true)]
async fn h11_ovn_can_only_see_whether_a_port_is_open() {
    let mut rig = Rig::new("lb-provider=ovn\nlb-method=SOURCE_IP_PORT\ncreate-monitor=true");
    rig.apply(local(web())).await;
    let picture = rig.picture().await;
    assert_eq!(kinds(&picture), ["TCP"]);
    assert_eq!(monitor_ports(&picture, 80), [None, None]);
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn h12_sctp_is_checked_as_sctp() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(
        svc("web")
            .any_port("s", Protocol::Sctp, 5000)
            .node_port(30500),
    )
    .await;
    let checked = if rig.sim.is_ovn() { &[][..] } else { &["SCTP"] };
    assert_eq!(kinds(&rig.picture().await), checked);
    is_at_rest(&mut rig).await;
    let mut rig = Rig::new("lb-provider=ovn\nlb-method=SOURCE_IP_PORT\ncreate-monitor=true");
    rig.apply(
        svc("web")
            .any_port("s", Protocol::Sctp, 5000)
            .node_port(30500),
    )
    .await;
    let picture = rig.picture().await;
    assert_eq!(picture.listeners.len(), 1);
    assert!(picture.monitors.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_http_listener_is_checked_by_whether_its_port_is_open() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(web().annotated(&short("x-forwarded-for"), "true"))
        .await;
    assert_eq!(kinds(&rig.picture().await), ["TCP"]);
}

#[tokio::test(start_paused = true)]
async fn one_port_may_be_checked_by_requests_of_its_own() {
    let mut rig = Rig::new("create-monitor=true");
    rig.apply(
        svc("web")
            .named_port("a", 80)
            .node_port(30080)
            .named_port("b", 81)
            .node_port(30081)
            .annotated("landfall.dev/monitor.a", "http")
            .annotated("landfall.dev/monitor-path.a", "/ready")
            .annotated("landfall.dev/monitor-port.a", "8081"),
    )
    .await;
    let picture = rig.picture().await;
    let pool = &picture.pool_at(80).id;
    let of_a = |pools: &[landfall_openstack::objects::Ref]| pools.iter().any(|it| it.id == *pool);
    let monitor = picture.monitors.iter().find(|it| of_a(&it.pools)).unwrap();
    assert_eq!(monitor.kind, "HTTP");
    assert_eq!(monitor.url_path.as_deref(), Some("/ready"));
    assert_eq!(monitor_ports(&picture, 80), [Some(8081), Some(8081)]);
    assert_eq!(monitor_ports(&picture, 81), [None, None]);
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn a_check_over_tls_is_octavias_own() {
    let mut rig = Rig::new("");
    let service = web()
        .annotated("landfall.dev/monitor", "https")
        .annotated("landfall.dev/monitor-path", "/healthz");
    rig.apply(service).await;
    let picture = rig.picture().await;
    assert_eq!(kinds(&picture), ["HTTPS"]);
    assert_eq!(picture.monitors[0].url_path.as_deref(), Some("/healthz"));
    is_at_rest(&mut rig).await;
}

#[tokio::test(start_paused = true)]
async fn what_octavia_is_not_asked_for_is_refused_and_nothing_is_written() {
    for (option, value) in [
        ("tls-strict-names", "true"),
        ("https-redirect", "308"),
        ("member-tls", "insecure"),
        ("member-ca-secret", "ca"),
        ("member-server-name", "web.example.org"),
        ("member-client-secret", "client"),
        ("monitor-host", "web.example.org"),
        ("monitor-body", "well"),
        ("monitor-grpc-service", "shop.Cart"),
        ("monitor", "grpc"),
    ] {
        let mut rig = Rig::new("");
        let key = format!("landfall.dev/{option}");
        rig.apply(web().annotated(&key, value)).await;
        assert_eq!(rig.writes(), Vec::<String>::new(), "{key}");
        let why = refusal(&rig, "web");
        assert!(why.contains("ctavia"), "{key}: {why}");
    }
}
